//! The live state of one paired server, and what each answer of the game server makes of it. Pure: an update in, what
//! follows from it out. The game server's part and the team's write the same document.

mod devices;
mod notes;

use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;

use crate::{
    domain::{
        change::{Change, Section},
        detect::{
            Detectors,
            alarm::Alarms,
            wipe::{Wipe, World},
        },
        device::{Device, Reachable, TurnBack},
        freshness::Freshness,
        grid::{self, GridStyle},
        incident::Incident,
        link_reason::LinkReason,
        monument::Monument,
        server_state::{ConnectionState, ServerState},
        shop::MarketGround,
        team_command::{daylight::DayLearner, desk::ChatNotice},
        time::{Moment, Timestamp},
        world_event::{EventKind, WorldEvent},
    },
    game::wire::{AppInfo, AppTeamInfo},
    relay::state::{
        game_update::GameUpdate, outcome::Outcome, state_step::StateStep, team_state::TeamState,
        world_state::WorldState,
    },
};

/// A blind interval shorter than this is no event.
const SHORTEST_GAP: TimeDelta = TimeDelta::seconds(30);

/// See the module.
pub struct LiveState {
    state: ServerState,
    detectors: Detectors,
    world: WorldState,
    team: TeamState,
    alarms: Alarms,
    /// The game server has said which notes the team has placed; before, they are as they were stored.
    game_notes_known: bool,
    connected: bool,
    /// Since when the link is down, if it ever was up.
    blind_since: Option<Moment>,
    /// When a link before this state was last known to be up; until there is one.
    alive_before: Option<Timestamp>,
    /// Since when a client watches.
    watched_since: Option<Moment>,
    /// Devices that ever answered, and when they last did.
    heard: HashMap<Arc<str>, Moment>,
    /// When each camera showed its last frame; no poll asks for them.
    frames_at: HashMap<Arc<str>, Timestamp>,
    /// The switches that turn back, also those that are not known yet.
    turn_backs: HashMap<Arc<str>, TurnBack>,
    /// The last broadcasts of this link about each device. What was asked for before is older.
    device_broadcasts: HashMap<Arc<str>, u64>,
}

impl LiveState {
    /// Nothing known.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: ServerState::new(now),
            detectors: Detectors::new(),
            alarms: Alarms::new(),
            world: WorldState::default(),
            team: TeamState::default(),
            game_notes_known: false,
            connected: false,
            blind_since: None,
            alive_before: None,
            watched_since: None,
            heard: HashMap::new(),
            frames_at: HashMap::new(),
            turn_backs: HashMap::new(),
            device_broadcasts: HashMap::new(),
        }
    }

    /// The state that clients see.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// The monuments of the world; `None` until its map is known.
    pub fn monuments(&self) -> Option<&[Monument]> {
        self.world.monuments()
    }

    /// When the game server last said how many players there are.
    pub fn info_at(&self) -> Option<Timestamp> {
        self.world.info_at().map(|heard| heard.stamp)
    }

    /// When the link was last known to be up.
    pub fn alive_at(&self, now: Moment) -> Option<Timestamp> {
        match self.connected {
            true => Some(now.stamp),
            false => self.blind_since.map(|since| since.stamp).or(self.alive_before),
        }
    }

    /// The world, as far as it is known.
    pub fn world(&self) -> Option<&World> {
        self.world.world()
    }

    /// Where shops are the map's own.
    pub fn ground(&self) -> MarketGround {
        MarketGround::of(&self.world.around())
    }

    /// The game's clock, and what is known of its speeds.
    pub fn day(&self) -> &DayLearner {
        self.world.day()
    }

    /// The label of the grid cell of this place.
    pub fn grid_of(&self, x: f64, y: f64) -> String {
        grid::label(GridStyle::InGame, self.map_size(), x, y)
    }

    /// Where this member of the team is alive, if an answer not older than this says so.
    pub fn member_place(&self, player: u64, now: Moment, age: TimeDelta) -> Option<(f64, f64)> {
        self.team.heard_at().filter(|heard| now - *heard < age)?;
        let member = self.state.members.get(&player).filter(|member| member.alive)?;
        member.x.zip(member.y)
    }

    /// Applies an update.
    pub fn update(&mut self, update: GameUpdate, now: Moment) -> Outcome {
        let mut outcome = Outcome::default();
        let (world, team, step) = &mut self.parts(now, &mut outcome);
        match update {
            GameUpdate::StoredWorld { world: stored, monuments, alive_until, reports, speeds } => {
                world.remember_speeds(speeds);
                world.remember(stored, monuments);
                if !self.connected && self.blind_since.is_none() {
                    self.alive_before = alive_until;
                    let (world, _, mut step) = self.parts(now, &mut outcome);
                    world.update_reports(reports, &mut step);
                }
            }
            GameUpdate::Connected(info) => self.connect(&info, now, &mut outcome),
            GameUpdate::Disconnected { state, reason, next_attempt_at } => {
                if std::mem::take(&mut self.connected) {
                    self.detectors.link_lost(now);
                    self.world.link_lost();
                    self.team.link_lost();
                    self.blind_since = Some(now);
                }
                self.set_connection(state, reason, next_attempt_at, now, &mut outcome);
            }
            GameUpdate::Info(info) => self.update_info(&info, now, &mut outcome),
            GameUpdate::Time(time) => world.update_time(&time, step),
            GameUpdate::Team(answer) => {
                if let Some(content) = team.unless_late(answer) {
                    self.update_team(content, now, &mut outcome);
                }
            }
            GameUpdate::Chat(chat) => team.update_chat(chat, step),
            GameUpdate::Reports(reports) => world.update_reports(reports, step),
            GameUpdate::Markers(markers) => world.update_markers(markers, step),
            GameUpdate::Map(map) => world.update_map(&map, step),
            GameUpdate::Devices(known) => self.update_devices(known, &mut outcome),
            GameUpdate::Notes(notes) => self.update_notes(notes, &mut outcome.changes),
            GameUpdate::Timers(timers) => self.state.timers.replace(Section::Timers, timers, &mut outcome.changes),
            GameUpdate::TurnBacks(backs) => self.show_turn_backs(backs, &mut outcome.changes),
            GameUpdate::ChatNotice(notice) => {
                self.state.edit_team(&mut outcome.changes, |team| team.chat_notice = notice.map(ChatNotice::word));
            }
            GameUpdate::NoteDeleted(id) => self.delete_note(id, &mut outcome.changes),
            GameUpdate::Device { device, answer } => self.update_device(device, answer, now, &mut outcome),
            GameUpdate::Camera { device, reachable, frame_at } => {
                self.camera_seen(device, reachable, frame_at, &mut outcome);
            }
            GameUpdate::Broadcast(number, broadcast) => {
                if let Some(changed) = broadcast.entity_changed {
                    self.device_changed(changed, number, now, &mut outcome);
                }
                if let Some(changed) = broadcast.team_changed {
                    self.team.note_broadcast(number);
                    self.update_team(changed.team_info, now, &mut outcome);
                }
                if let Some(said) = broadcast.team_message {
                    let (_, team, mut step) = self.parts(now, &mut outcome);
                    team.hear(said.message, &mut step);
                }
            }
        }
        self.follow_events(now, &mut outcome);
        // New stale sections are for the tick; those that were stale may be fresh again.
        if !self.state.server.stale.is_empty() {
            self.judge_freshness(now, &mut outcome);
        }
        outcome
    }

    /// A user begins to watch, or the last one stops: sections that are asked for more often are stale sooner.
    pub fn watch(&mut self, is_watched: bool, now: Moment) {
        self.watched_since = is_watched.then(|| self.watched_since.unwrap_or(now));
    }

    /// When something comes due, if no answer comes before.
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let expiries = self.state.map_notes.iter().filter_map(|(_, note)| note.expires_at).map(|at| now.at(at));
        let timers = [self.detectors.next_due(now), self.team.next_due(), self.freshness().next_due(now)];
        timers.into_iter().flatten().chain(expiries).min()
    }

    /// Does all that comes due without an answer: timers of detectors, notes that expire, sections that become stale.
    /// Call it when something does.
    pub fn tick(&mut self, now: Moment) -> Outcome {
        let mut outcome = Outcome { events: self.detectors.tick(now), ..Outcome::default() };
        let (_, team, mut step) = self.parts(now, &mut outcome);
        team.tick(&mut step);
        self.devices_due(now, &mut outcome);
        self.follow_events(now, &mut outcome);
        let expired: Vec<Arc<str>> = self
            .state
            .map_notes
            .iter()
            .filter(|(_, note)| note.expires_at.is_some_and(|at| at <= now.stamp))
            .map(|(id, _)| id.clone())
            .collect();
        for id in expired {
            self.state.map_notes.put(Section::MapNotes, id, None, &mut outcome.changes);
        }
        self.judge_freshness(now, &mut outcome);
        outcome
    }

    /// Deaths are noted. What changes within shops is left out of the events: it concerns those who watch an item, not
    /// everybody.
    fn follow_events(&mut self, now: Moment, outcome: &mut Outcome) {
        outcome.events.retain(|event| event.kind != EventKind::Shop || matches!(event.action, "opened" | "removed"));
        self.note_deaths(now, outcome);
        outcome.reported = self.detectors.devices.take_changed();
    }

    /// Shows a raid incident as it is now; none: no longer.
    pub fn show_incident(&mut self, id: &str, incident: Option<&Incident>, changes: &mut Vec<Change>) {
        self.state.raids.put(Section::Raids, id.into(), incident.cloned(), changes);
    }

    fn freshness(&self) -> Freshness {
        Freshness {
            info: self.world.info_at(),
            time: self.world.time_at(),
            team: self.team.heard_at(),
            markers: self.world.markers_at(),
            devices: self.heard.values().min().copied(),
            watched_since: self.watched_since,
        }
    }

    fn judge_freshness(&mut self, now: Moment, outcome: &mut Outcome) {
        let stale = self.freshness().stale(now);
        if stale != self.state.server.stale {
            self.state.edit_server(&mut outcome.changes, |server| server.stale = stale);
        }
    }

    fn connect(&mut self, info: &AppInfo, now: Moment, outcome: &mut Outcome) {
        self.connected = true;
        self.detectors.link_up(now);
        self.team.link_up();
        // This link counts its broadcasts from 1.
        self.device_broadcasts.clear();
        self.update_info(info, now, outcome);
        self.set_connection(ConnectionState::Connected, None, None, now, outcome);
        // While this service was away, there is only the time of day to go by.
        let before = self.alive_before.take();
        self.alarms.link_up(self.blind_since.or(before.map(|until| now.at(until))));
        let before = before.map(|until| (until, now.stamp - until));
        let blind = self.blind_since.take().map(|since| (since.stamp, now - since)).or(before);
        if let Some((since, length)) = blind.filter(|(_, length)| *length >= SHORTEST_GAP) {
            outcome.events.push(gap(since, now.stamp, length));
        }
    }

    fn set_connection(
        &mut self,
        state: ConnectionState,
        reason: Option<LinkReason>,
        next_attempt_at: Option<Timestamp>,
        now: Moment,
        outcome: &mut Outcome,
    ) {
        let before = outcome.changes.len();
        self.state.edit_server(&mut outcome.changes, |server| {
            if server.connection != state {
                (server.connection, server.since) = (state, now.stamp);
            }
            server.reason = reason;
            server.next_attempt_at = next_attempt_at;
        });
        outcome.connection_changed |= outcome.changes.len() > before;
    }

    fn map_size(&self) -> u32 {
        self.world.around().map_size
    }

    /// The parts that others share, and the step that they make together.
    fn parts<'a>(
        &'a mut self,
        now: Moment,
        outcome: &'a mut Outcome,
    ) -> (&'a mut WorldState, &'a mut TeamState, StateStep<'a>) {
        let Self { state: document, detectors, world, team, .. } = self;
        (world, team, StateStep { document, detectors, outcome, now })
    }

    fn update_team(&mut self, content: AppTeamInfo, now: Moment, outcome: &mut Outcome) {
        self.update_game_notes(&content, now, outcome);
        let (world, team, mut step) = self.parts(now, outcome);
        team.update_members(content, &world.around(), &mut step);
    }

    /// Takes in what the game server says of itself.
    fn update_info(&mut self, info: &AppInfo, now: Moment, outcome: &mut Outcome) {
        let (world, _, mut step) = self.parts(now, outcome);
        let news = world.update_info(info, &mut step);
        if news.is_resized {
            self.label_notes(&mut outcome.changes);
            self.label_devices(&mut outcome.changes);
        }
        if let Some(wipe) = news.wipe {
            self.wipe(&wipe, now, outcome);
        }
        outcome.map_wanted = self.world.is_map_wanted();
    }

    /// A new map: nothing of the old one remains.
    fn wipe(&mut self, wipe: &Wipe, now: Moment, outcome: &mut Outcome) {
        self.detectors.wiped();
        let (world, _, mut step) = self.parts(now, outcome);
        world.wipe(&mut step);
        let changes = &mut outcome.changes;
        self.state.map_notes.replace(Section::MapNotes, [], changes);
        let gone: Vec<_> = self.state.devices.iter().map(|(id, device)| (id.clone(), Device::clone(device))).collect();
        for (id, device) in gone {
            let removed = Device { reachable: Reachable::Removed, value: None, storage: None, ..device };
            self.state.devices.put(Section::Devices, id, Some(removed), changes);
        }
        outcome.events.push(wipe.event(now.stamp));
    }
}

/// The interval in which the link was down.
fn gap(since: Timestamp, now: Timestamp, length: TimeDelta) -> WorldEvent {
    let mut data = serde_json::Map::new();
    data.insert("from".to_owned(), since.to_wire().into());
    data.insert("to".to_owned(), now.to_wire().into());
    WorldEvent {
        kind: EventKind::Gap,
        action: "ended",
        grid: String::new(),
        x: None,
        y: None,
        ts: now,
        title: format!("No answers from the game server for {} s", length.num_seconds()),
        data,
    }
}

#[cfg(test)]
mod tests;
