//! The map notes of a paired server: the game's own, those of users, and those of deaths.

use std::{collections::HashSet, sync::Arc};

use chrono::TimeDelta;

use super::OwnState;
use crate::{
    domain::{
        change::Section,
        detect::MapContext,
        grid::{self, GridStyle},
        map::{DEATH_NOTE, MapNote, NoteSource},
        server_state::ServerState,
        time::{Moment, Timestamp},
        world_event::EventKind,
    },
    game::{
        reading::{self, MapNoteSeen, NOTES},
        wire::app_team_info,
    },
    relay::state::state_step::StateStep,
};

/// The time for which the note of a death is shown.
pub const DEATH_NOTE_LIFE: TimeDelta = TimeDelta::minutes(30);
/// Notes of deaths on the map, the newest.
pub const DEATH_NOTES: usize = 100;
const USER: &str = NoteSource::User.word();
const GAME: &str = NoteSource::Game.word();
const DETECTOR: &str = NoteSource::Detector.word();

impl OwnState {
    /// The stored notes: all of users, and those of deaths and of the game that may not be known since a restart.
    /// Notes from before the last wipe are of another world.
    pub fn update_notes(
        &self,
        mut notes: Vec<(Arc<str>, MapNote)>,
        around: &MapContext,
        wiped_at: Option<Timestamp>,
        step: &mut StateStep,
    ) {
        notes.retain(|(_, note)| note.source != GAME || !self.game_notes_known);
        // They may have been read before the wipe is stored.
        notes.retain(|(_, note)| wiped_at.is_none_or(|wiped| note.created_at >= wiped));
        let stored: HashSet<Arc<str>> = notes.iter().map(|(id, _)| id.clone()).collect();
        let of_users = step.document.map_notes.iter().filter(|(_, note)| note.source == USER);
        let gone: Vec<_> = of_users.filter(|(id, _)| !stored.contains(*id)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            put(id, None, step);
        }
        for (id, note) in notes {
            put_labelled(id, note, around, step);
        }
        prune_deaths(step);
    }

    /// A user deleted a note.
    pub fn delete_note(&self, id: String, step: &mut StateStep) {
        put(id.into(), None, step);
    }

    /// The map has this size now: a place may have another label.
    pub(super) fn label_notes(&self, around: &MapContext, step: &mut StateStep) {
        for (id, note) in notes_of_others(step.document) {
            put_labelled(id, note, around, step);
        }
    }

    /// The notes that the paired player has placed in the game, all of them.
    pub fn update_placed_notes(&mut self, placed: &[app_team_info::Note]) {
        self.placed_notes = reading::notes(placed);
    }

    /// Shows the notes that are placed in the game: the paired player's, and those of the leader, who may be the same
    /// player. Those of other sources stay.
    pub fn show_game_notes(
        &mut self,
        of_leader: &[(Arc<str>, MapNoteSeen)],
        around: &MapContext,
        step: &mut StateStep,
    ) {
        let others = notes_of_others(step.document);
        let StateStep { document, outcome, now, .. } = step;
        let mut shown: HashSet<&Arc<str>> = HashSet::new();
        let placed = self.placed_notes.iter().chain(of_leader).filter(|(id, _)| shown.insert(id)).take(NOTES);
        let notes = placed.map(|(id, seen)| {
            let since = document.map_notes.get(id).map_or(now.stamp, |note| note.created_at);
            (id.clone(), seen.since(since, around.map_size))
        });
        let notes: Vec<_> = notes.collect();
        let before = outcome.changes.len();
        document.map_notes.replace(
            Section::MapNotes,
            others.into_iter().chain(notes.iter().cloned()),
            &mut outcome.changes,
        );
        let is_first = !std::mem::replace(&mut self.game_notes_known, true);
        if is_first || outcome.changes.len() > before {
            outcome.own.game_notes = Some(notes);
        }
    }

    /// When the next note expires.
    pub fn notes_due(&self, document: &ServerState, now: Moment) -> Option<Moment> {
        document.map_notes.iter().filter_map(|(_, note)| note.expires_at).map(|at| now.at(at)).min()
    }

    /// Takes away the notes that have expired.
    pub fn expire_notes(&self, step: &mut StateStep) {
        let notes = step.document.map_notes.iter();
        let expired = notes.filter(|(_, note)| note.expires_at.is_some_and(|at| at <= step.now.stamp));
        let expired: Vec<Arc<str>> = expired.map(|(id, _)| id.clone()).collect();
        for id in expired {
            put(id, None, step);
        }
    }

    /// A death becomes a note on the map.
    pub fn note_deaths(&self, step: &mut StateStep) {
        let StateStep { document, outcome, now, .. } = step;
        for event in outcome.events.iter().filter(|event| event.kind == EventKind::Death) {
            let (Some(x), Some(y)) = (event.x, event.y) else { continue };
            let who = event.data.get("steamId").and_then(|id| id.as_str()).unwrap_or("?");
            let id: Arc<str> = format!("death:{who}:{}", now.stamp.timestamp_millis()).into();
            let note = MapNote {
                x,
                y,
                grid: event.grid.clone(),
                category: DEATH_NOTE.to_owned(),
                label: Some(event.title.clone()),
                source: DETECTOR,
                author: None,
                created_at: now.stamp,
                expires_at: Some((*now + DEATH_NOTE_LIFE).stamp),
            };
            outcome.own.death_notes.push((id.clone(), note.clone()));
            document.map_notes.put(Section::MapNotes, id, Some(note), &mut outcome.changes);
        }
        if !outcome.own.death_notes.is_empty() {
            prune_deaths(step);
        }
    }
}

/// The notes that are not the game's.
fn notes_of_others(document: &ServerState) -> Vec<(Arc<str>, MapNote)> {
    let others = document.map_notes.iter().filter(|(_, note)| note.source != GAME);
    others.map(|(id, note)| (id.clone(), MapNote::clone(note))).collect()
}

/// Keeps the newest.
fn prune_deaths(step: &mut StateStep) {
    let of_deaths = step.document.map_notes.iter().filter(|(_, note)| note.source == DETECTOR);
    let mut of_deaths: Vec<_> = of_deaths.map(|(id, note)| (note.created_at, id.clone())).collect();
    of_deaths.sort_unstable();
    for (_, id) in &of_deaths[..of_deaths.len().saturating_sub(DEATH_NOTES)] {
        put(id.clone(), None, step);
    }
}

/// Shows a note with the label of its place.
fn put_labelled(id: Arc<str>, note: MapNote, around: &MapContext, step: &mut StateStep) {
    let grid = grid::label(GridStyle::InGame, around.map_size, note.x, note.y);
    put(id, Some(MapNote { grid, ..note }), step);
}

fn put(id: Arc<str>, note: Option<MapNote>, step: &mut StateStep) {
    step.document.map_notes.put(Section::MapNotes, id, note, &mut step.outcome.changes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::detect::EventWindow,
        game::{
            link::Answered,
            wire::{AppInfo, AppTeamInfo},
        },
        relay::state::{
            game_update::{GameUpdate, OwnUpdate, TeamUpdate, WorldUpdate},
            live_state::LiveState,
            outcome::Outcome,
        },
    };

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(1_800_000_000 + seconds)).into()
    }

    #[test]
    fn the_players_own_notes_stay_when_the_leaders_change() {
        let mut document = ServerState::new(at(0).stamp);
        let (mut window, mut outcome) = (EventWindow::default(), Outcome::default());
        let step = &mut StateStep { document: &mut document, window: &mut window, outcome: &mut outcome, now: at(0) };
        let around = MapContext { map_size: 4_000, monuments: &[] };
        let placed = |x| app_team_info::Note { r#type: 1, x, y: 1.0, ..Default::default() };
        let mut own = OwnState::default();
        own.update_placed_notes(&[placed(1.0)]);
        for (of_leader, shown) in [
            (&[placed(2.0)][..], &["game:1:1:1", "game:1:2:1"][..]),
            (&[placed(1.0), placed(3.0)], &["game:1:1:1", "game:1:3:1"]),
            (&[], &["game:1:1:1"]),
        ] {
            step.now = step.now + TimeDelta::seconds(5);
            own.show_game_notes(&reading::notes(of_leader), &around, step);
            let ids: Vec<&str> = step.document.map_notes.iter().map(|(id, _)| &**id).collect();
            assert_eq!(ids, shown);
        }
        let note = step.document.map_notes.get(&Arc::from("game:1:1:1")).expect("it is shown");
        assert_eq!(note.created_at, at(5).stamp, "it was there all the while");
    }

    #[test]
    fn the_players_own_notes_stay_while_a_mates_link_reads() {
        let placed = |x| app_team_info::Note { r#type: 1, x, y: 1.0, ..Default::default() };
        let answer = |own: &[_], of_leader: &[_]| {
            let content =
                AppTeamInfo { map_notes: own.to_vec(), leader_map_notes: of_leader.to_vec(), ..Default::default() };
            TeamUpdate::Members(Answered { asked_after: 0, content })
        };
        let mut live = LiveState::new(at(0).stamp);
        live.update(GameUpdate::Connected(AppInfo { map_size: 4_000, ..AppInfo::default() }), at(0));
        live.update(answer(&[placed(1.0)], &[placed(2.0)]), at(1));
        live.update(GameUpdate::LinkSwitched { asked_since: at(1) }, at(2));
        live.update(GameUpdate::TeamByMate(answer(&[], &[placed(3.0)])), at(3));
        let shown: Vec<&str> = live.state().map_notes.iter().map(|(id, _)| &**id).collect();
        assert_eq!(shown, ["game:1:1:1", "game:1:3:1"]);
        live.update(answer(&[], &[placed(3.0)]), at(4));
        assert_eq!(live.state().map_notes.iter().count(), 1, "the own link says so");
    }

    #[test]
    fn stored_notes_from_before_a_wipe_do_not_come_back() {
        let info = |wipe_time| AppInfo { map_size: 4_000, wipe_time, ..AppInfo::default() };
        let note = |id: &str, seconds| {
            let note = MapNote {
                x: 1_000.0,
                y: 1_000.0,
                grid: String::new(),
                category: "death".into(),
                label: None,
                source: DETECTOR,
                author: None,
                created_at: at(seconds).stamp,
                expires_at: None,
            };
            (Arc::from(id), note)
        };
        let mut live = LiveState::new(at(0).stamp);
        live.update(GameUpdate::Connected(info(1_000)), at(0));
        live.update(WorldUpdate::Info(info(90_000)), at(10));
        live.update(OwnUpdate::Notes(vec![note("old", 5), note("new", 15)]), at(20));
        let shown: Vec<&str> = live.state().map_notes.iter().map(|(id, _)| &**id).collect();
        assert_eq!(shown, ["new"]);
    }
}
