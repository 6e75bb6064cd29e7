//! The map notes in the live state: the game's own, those of users, and those of deaths.

use std::{collections::HashSet, sync::Arc};

use chrono::TimeDelta;

use super::LiveState;
use crate::{
    domain::{
        change::{Change, Section},
        grid::{self, GridStyle},
        map::{DEATH_NOTE, MapNote, NoteSource},
        time::Moment,
        world_event::EventKind,
    },
    game::{reading, wire::AppTeamInfo},
    relay::state::outcome::Outcome,
};

pub(super) const DEATH_NOTE_LIFE: TimeDelta = TimeDelta::minutes(30);
/// Notes of deaths on the map, the newest.
pub(super) const DEATH_NOTES: usize = 100;
const USER: &str = NoteSource::User.word();
const GAME: &str = NoteSource::Game.word();
const DETECTOR: &str = NoteSource::Detector.word();

impl LiveState {
    /// The stored notes: all of users, and those of deaths and of the game that may not be known since a restart.
    pub(super) fn update_notes(&mut self, mut notes: Vec<(Arc<str>, MapNote)>, changes: &mut Vec<Change>) {
        let map_size = self.map_size();
        notes.retain(|(_, note)| note.source != GAME || !self.game_notes_known);
        // They may have been read before the wipe is stored.
        let wiped_at = self.world.wiped_at();
        notes.retain(|(_, note)| wiped_at.is_none_or(|wiped| note.created_at >= wiped));
        let stored: HashSet<Arc<str>> = notes.iter().map(|(id, _)| id.clone()).collect();
        let of_users = self.state.map_notes.iter().filter(|(_, note)| note.source == USER);
        let gone: Vec<_> = of_users.filter(|(id, _)| !stored.contains(*id)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.state.map_notes.put(Section::MapNotes, id, None, changes);
        }
        for (id, note) in notes {
            let grid = grid::label(GridStyle::InGame, map_size, note.x, note.y);
            self.state.map_notes.put(Section::MapNotes, id, Some(MapNote { grid, ..note }), changes);
        }
        self.prune_deaths(changes);
    }

    pub(super) fn delete_note(&mut self, id: String, changes: &mut Vec<Change>) {
        self.state.map_notes.put(Section::MapNotes, id.into(), None, changes);
    }

    /// The notes that are not the game's.
    fn own_notes(&self) -> Vec<(Arc<str>, MapNote)> {
        let own = self.state.map_notes.iter().filter(|(_, note)| note.source != GAME);
        own.map(|(id, note)| (id.clone(), MapNote::clone(note))).collect()
    }

    /// The map has this size now: a place may have another label.
    pub(super) fn label_notes(&mut self, changes: &mut Vec<Change>) {
        let map_size = self.map_size();
        for (id, note) in self.own_notes() {
            let grid = grid::label(GridStyle::InGame, map_size, note.x, note.y);
            self.state.map_notes.put(Section::MapNotes, id, Some(MapNote { grid, ..note }), changes);
        }
    }

    /// Notes of the game come and go with the team's answer; those of other sources stay.
    pub(super) fn update_game_notes(&mut self, team: &AppTeamInfo, now: Moment, outcome: &mut Outcome) {
        let notes = reading::notes(team, self.map_size());
        let others = self.own_notes();
        let notes = notes.into_iter().map(|(id, seen)| {
            let id = Arc::from(id);
            let since = self.state.map_notes.get(&id).map_or(now.stamp, |note| note.created_at);
            (id, seen.since(since))
        });
        let notes: Vec<_> = notes.collect();
        let before = outcome.changes.len();
        self.state.map_notes.replace(
            Section::MapNotes,
            others.into_iter().chain(notes.iter().cloned()),
            &mut outcome.changes,
        );
        let is_first = !std::mem::replace(&mut self.game_notes_known, true);
        if is_first || outcome.changes.len() > before {
            outcome.game_notes = Some(notes);
        }
    }

    /// A death becomes a note on the map.
    pub(super) fn note_deaths(&mut self, now: Moment, outcome: &mut Outcome) {
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
                expires_at: Some((now + DEATH_NOTE_LIFE).stamp),
            };
            outcome.death_notes.push((id.clone(), note.clone()));
            self.state.map_notes.put(Section::MapNotes, id, Some(note), &mut outcome.changes);
        }
        if !outcome.death_notes.is_empty() {
            self.prune_deaths(&mut outcome.changes);
        }
    }

    /// Keeps the newest.
    fn prune_deaths(&mut self, changes: &mut Vec<Change>) {
        let of_deaths = self.state.map_notes.iter().filter(|(_, note)| note.source == DETECTOR);
        let mut of_deaths: Vec<_> = of_deaths.map(|(id, note)| (note.created_at, id.clone())).collect();
        of_deaths.sort_unstable();
        for (_, id) in &of_deaths[..of_deaths.len().saturating_sub(DEATH_NOTES)] {
            self.state.map_notes.put(Section::MapNotes, id.clone(), None, changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::time::Timestamp, game::wire::AppInfo, relay::state::game_update::GameUpdate};

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(1_800_000_000 + seconds)).into()
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
        live.update(GameUpdate::Info(info(90_000)), at(10));
        live.update(GameUpdate::Notes(vec![note("old", 5), note("new", 15)]), at(20));
        let shown: Vec<&str> = live.state().map_notes.iter().map(|(id, _)| &**id).collect();
        assert_eq!(shown, ["new"]);
    }
}
