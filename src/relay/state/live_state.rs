//! The live state of one paired server, and what each answer of the game server makes of it. Pure: an update in, what
//! follows from it out.

mod clock;
mod devices;
mod markers;
mod notes;
mod team;

use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;

use crate::{
    domain::{
        change::{Change, Section},
        detect::{
            Detectors, MapContext,
            alarm::Alarms,
            wipe::{Wipe, World},
        },
        device::{Device, Reachable, TurnBack},
        freshness::Freshness,
        incident::Incident,
        link_reason::LinkReason,
        monument::Monument,
        plain_text::plain_text,
        server_state::{ConnectionState, ServerState},
        shop::MarketGround,
        team_command::{daylight::DayLearner, desk::ChatNotice, stillness::Stillness},
        time::{Moment, Timestamp},
        world_event::{EventKind, WorldEvent},
    },
    game::{link::Answered, reading, wire::AppInfo},
    relay::state::{game_update::GameUpdate, outcome::Outcome, team_chat::TeamChat},
};

/// A blind interval shorter than this is no event.
const SHORTEST_GAP: TimeDelta = TimeDelta::seconds(30);

/// See the module.
pub struct LiveState {
    state: ServerState,
    monuments: Vec<Monument>,
    /// World of the monuments; the map is asked for again when it changes.
    map: Option<World>,
    /// The world as it was last known, also across restarts; another one is a wipe.
    world: Option<World>,
    /// When a wipe was last seen. Stored notes from before it are of another world.
    wiped_at: Option<Timestamp>,
    detectors: Detectors,
    alarms: Alarms,
    chat: TeamChat,
    /// The game server has said which notes the team has placed; before, they are as they were stored.
    game_notes_known: bool,
    /// Marker answers without shops in a row.
    truncated: u32,
    connected: bool,
    /// Since when the link is down, if it ever was up.
    blind_since: Option<Moment>,
    /// When a link before this state was last known to be up; until there is one.
    alive_before: Option<Timestamp>,
    /// The last answers, but those of devices.
    freshness: Freshness,
    /// Devices that ever answered, and when they last did.
    heard: HashMap<Arc<str>, Moment>,
    day: DayLearner,
    stillness: Stillness,
    /// When each camera showed its last frame; no poll asks for them.
    frames_at: HashMap<Arc<str>, Timestamp>,
    /// The switches that turn back, also those that are not known yet.
    turn_backs: HashMap<Arc<str>, TurnBack>,
    /// The last broadcasts of this link about the team and about each device. What was asked for before is older.
    team_broadcast: u64,
    device_broadcasts: HashMap<Arc<str>, u64>,
}

impl LiveState {
    /// Nothing known.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: ServerState::new(now),
            monuments: Vec::new(),
            map: None,
            world: None,
            wiped_at: None,
            detectors: Detectors::new(),
            alarms: Alarms::new(),
            chat: TeamChat::default(),
            game_notes_known: false,
            truncated: 0,
            connected: false,
            blind_since: None,
            alive_before: None,
            freshness: Freshness::default(),
            heard: HashMap::new(),
            day: DayLearner::default(),
            stillness: Stillness::default(),
            frames_at: HashMap::new(),
            turn_backs: HashMap::new(),
            team_broadcast: 0,
            device_broadcasts: HashMap::new(),
        }
    }

    /// The state that clients see.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// The monuments of the world; `None` until its map is known.
    pub fn monuments(&self) -> Option<&[Monument]> {
        self.map.is_some().then_some(&self.monuments)
    }

    /// When the game server last said how many players there are.
    pub fn info_at(&self) -> Option<Timestamp> {
        self.freshness.info.map(|heard| heard.stamp)
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
        self.world.as_ref()
    }

    /// Where shops are the map's own.
    pub fn ground(&self) -> MarketGround {
        MarketGround::of(&MapContext { map_size: self.map_size(), monuments: &self.monuments })
    }

    /// Applies an update.
    pub fn update(&mut self, update: GameUpdate, now: Moment) -> Outcome {
        let mut outcome = Outcome::default();
        match update {
            // A world that is known here is newer than the stored one.
            GameUpdate::StoredWorld { world, monuments, alive_until, reports, speeds } => {
                self.day.remember(speeds);
                if !self.connected && self.blind_since.is_none() {
                    self.alive_before = alive_until;
                    self.update_reports(reports, &mut outcome);
                }
                if self.world.is_none() {
                    self.map = world.clone().filter(|_| monuments.is_some());
                    self.monuments = monuments.unwrap_or_default();
                    self.world = world;
                }
            }
            GameUpdate::Connected(info) => self.connect(&info, now, &mut outcome),
            GameUpdate::Disconnected { state, reason, next_attempt_at } => {
                if std::mem::take(&mut self.connected) {
                    self.detectors.link_lost(now);
                    self.day.interrupt();
                    self.stillness.interrupt();
                    self.blind_since = Some(now);
                }
                self.set_connection(state, reason, next_attempt_at, now, &mut outcome);
            }
            GameUpdate::Info(info) => self.update_info(&info, now, &mut outcome),
            GameUpdate::Time(time) => self.update_time(&time, now, &mut outcome),
            // A broadcast that came since it was asked for says the same, and is not older.
            GameUpdate::Team(Answered { asked_after, content }) => {
                if asked_after >= self.team_broadcast {
                    self.update_team(content, now, &mut outcome);
                }
            }
            GameUpdate::Chat(chat) => outcome.chat = self.chat.history(chat.messages, now),
            GameUpdate::Reports(reports) => self.update_reports(reports, &mut outcome),
            GameUpdate::Markers(markers) => self.update_markers(markers, now, &mut outcome),
            GameUpdate::Map(map) => {
                self.monuments = reading::monuments(&map);
                self.map = self.world.clone();
                outcome.world = self.world.clone();
            }
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
                    self.team_broadcast = number;
                    self.update_team(changed.team_info, now, &mut outcome);
                }
                if let Some(said) = broadcast.team_message {
                    outcome.chat.extend(self.chat.line(said.message, now));
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
        self.freshness.watched_since = is_watched.then(|| self.freshness.watched_since.unwrap_or(now));
    }

    /// When something comes due, if no answer comes before.
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let expiries = self.state.map_notes.iter().filter_map(|(_, note)| note.expires_at).map(|at| now.at(at));
        let timers = [self.detectors.next_due(now), self.chat.next_due(), self.freshness().next_due(now)];
        timers.into_iter().flatten().chain(expiries).min()
    }

    /// Does all that comes due without an answer: timers of detectors, notes that expire, sections that become stale.
    /// Call it when something does.
    pub fn tick(&mut self, now: Moment) -> Outcome {
        let mut outcome = Outcome { events: self.detectors.tick(now), ..Outcome::default() };
        outcome.events.extend(self.chat.take_dropped(now).map(|lines| WorldEvent::chat_dropped(lines, now.stamp)));
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
        Freshness { devices: self.heard.values().min().copied(), ..self.freshness }
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
        // This link counts its broadcasts from 1.
        self.team_broadcast = 0;
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
        self.state.server.map_size.unwrap_or_default()
    }

    /// Takes in what the game server says of itself.
    fn update_info(&mut self, info: &AppInfo, now: Moment, outcome: &mut Outcome) {
        self.freshness.info = Some(now);
        let seen = reading::world(info);
        let wipe = self.world.as_ref().and_then(|known| known.compare(&seen));
        let world = self.world.clone().unwrap_or_default().updated(seen);
        if self.world.as_ref() != Some(&world) {
            self.world = Some(world.clone());
            outcome.world = Some(world.clone());
        }
        let before = self.map_size();
        self.state.edit_server(&mut outcome.changes, |server| {
            server.name = Some(plain_text(&info.name, 128)).filter(|name| !name.is_empty());
            server.map_size = Some(info.map_size).filter(|size| *size != 0);
            server.map_seed = info.seed.filter(|seed| *seed != 0);
            server.players = Some(info.players);
            server.max_players = Some(info.max_players);
            server.queued_players = Some(info.queued_players);
            server.wiped_at = Timestamp::from_unix(info.wipe_time);
        });
        if before != self.map_size() {
            self.label_notes(&mut outcome.changes);
            self.label_devices(&mut outcome.changes);
        }
        if let Some(wipe) = wipe {
            self.wipe(&wipe, now, outcome);
        }
        let is_known = |map: &World| map.compare(&world).is_none() && map.level == world.level;
        outcome.map_wanted = !self.map.as_ref().is_some_and(is_known);
    }

    /// A new map: nothing of the old one remains.
    fn wipe(&mut self, wipe: &Wipe, now: Moment, outcome: &mut Outcome) {
        self.wiped_at = Some(now.stamp);
        self.detectors.wiped();
        self.monuments.clear();
        self.map = None;
        let changes = &mut outcome.changes;
        self.state.map_markers.replace(Section::MapMarkers, [], changes);
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
