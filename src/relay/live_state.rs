//! The live state of one paired server, and what each answer of the game server makes of it. Pure: an update in, what
//! follows from it out.

use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;

use crate::{
    domain::{
        change::{Change, Section},
        detect::{
            Detectors, Surroundings,
            alarm::Alarms,
            wipe::{Wipe, World},
        },
        device::{Device, DeviceKind, Reachable},
        map::{MapNote, Marker, MarkerKind},
        monument::Monument,
        plain_text::plain_text,
        server_state::{ConnectionState, ServerState},
        time::{self, Moment, Timestamp},
        world_event::{EventKind, WorldEvent},
    },
    game::{
        link::AskError,
        reading,
        wire::{
            AppBroadcast, AppEntityChanged, AppEntityInfo, AppInfo, AppMap, AppMapMarkers, AppTeamChat, AppTeamInfo,
            AppTime,
        },
    },
    relay::{protocol::ChatLine, team_chat::TeamChat},
};

/// Shops that may well vanish together, and answers without any after which more are believed to have.
const FEW_SHOPS: usize = 5;
const TRUNCATED_BELIEVED: u32 = 5;
const DEATH_NOTE_LIFE: TimeDelta = TimeDelta::minutes(30);
/// A blind interval shorter than this is no event.
const SHORTEST_GAP: TimeDelta = TimeDelta::seconds(30);

/// What the link has learnt.
pub enum GameUpdate {
    /// The world as it was stored. Comes before the link is up, or a wipe in our absence would go unseen.
    StoredWorld(Option<World>),
    /// The link is up and the player token is good.
    Connected(AppInfo),
    /// There is no link, or no longer.
    Disconnected {
        state: ConnectionState,
        reason: Option<String>,
        next_attempt_at: Option<Timestamp>,
    },
    Info(AppInfo),
    Time(AppTime),
    Team(AppTeamInfo),
    Chat(AppTeamChat),
    Markers(AppMapMarkers),
    Map(AppMap),
    /// The devices paired to this server, by device id.
    Devices(HashMap<Arc<str>, PairedDevice>),
    /// A device's answer, or why there is none.
    Device {
        device: Arc<str>,
        answer: Result<Option<AppEntityInfo>, AskError>,
    },
    Broadcast(Box<AppBroadcast>),
}

/// A device as it is stored.
pub struct PairedDevice {
    pub kind: DeviceKind,
    pub name: String,
    pub label: Option<String>,
}

/// A smart alarm that went off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmTrigger {
    pub device: Arc<str>,
    pub name: String,
}

/// What follows from an update.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One step of the state; empty = no step.
    pub changes: Vec<Change>,
    pub events: Vec<WorldEvent>,
    pub chat: Vec<ChatLine>,
    pub alarms: Vec<AlarmTrigger>,
    /// The connection to the game server is in another state.
    pub connection_changed: bool,
    /// More is known of the world than is stored.
    pub world: Option<World>,
    /// The map must be asked for.
    pub map_wanted: bool,
    /// A tool cupboard that computes its upkeep again (protocol §3.4): ask it again in a moment.
    pub ask_again: Option<Arc<str>>,
}

/// See the module.
pub struct LiveState {
    state: ServerState,
    monuments: Vec<Monument>,
    /// What the monuments belong to; the map is asked for again when it changes.
    map: Option<World>,
    /// The world as it was last known, also across restarts; another one is a wipe.
    world: Option<World>,
    detectors: Detectors,
    alarms: Alarms,
    chat: TeamChat,
    /// Marker answers without shops in a row.
    truncated: u32,
    connected: bool,
    /// Since when the link is down, if it ever was up.
    blind_since: Option<Moment>,
}

impl LiveState {
    /// Nothing known.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: ServerState::new(now),
            monuments: Vec::new(),
            map: None,
            world: None,
            detectors: Detectors::new(),
            alarms: Alarms::new(),
            chat: TeamChat::default(),
            truncated: 0,
            connected: false,
            blind_since: None,
        }
    }

    /// The state that clients see.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// Applies an update.
    pub fn update(&mut self, update: GameUpdate, now: Moment) -> Outcome {
        let mut outcome = Outcome::default();
        match update {
            // What is known here is newer than what is stored.
            GameUpdate::StoredWorld(world) => self.world = self.world.take().or(world),
            GameUpdate::Connected(info) => self.connect(&info, now, &mut outcome),
            GameUpdate::Disconnected { state, reason, next_attempt_at } => {
                if std::mem::take(&mut self.connected) {
                    self.detectors.link_lost(now);
                    self.blind_since = Some(now);
                }
                self.set_connection(state, reason, next_attempt_at, now, &mut outcome);
            }
            GameUpdate::Info(info) => self.update_info(&info, now, &mut outcome),
            GameUpdate::Time(time) => self.update_time(&time, &mut outcome),
            GameUpdate::Team(team) => self.update_team(team, now, &mut outcome),
            GameUpdate::Chat(chat) => outcome.chat = self.chat.history(chat.messages, now),
            GameUpdate::Markers(markers) => self.update_markers(markers, now, &mut outcome),
            GameUpdate::Map(map) => {
                self.monuments = reading::monuments(&map);
                self.map = self.world.clone();
            }
            GameUpdate::Devices(known) => self.update_devices(known, &mut outcome),
            GameUpdate::Device { device, answer } => self.update_device(device, answer, now, &mut outcome),
            GameUpdate::Broadcast(broadcast) => {
                if let Some(changed) = broadcast.entity_changed {
                    self.device_changed(changed, now, &mut outcome);
                }
                if let Some(changed) = broadcast.team_changed {
                    self.update_team(changed.team_info, now, &mut outcome);
                }
                if let Some(said) = broadcast.team_message {
                    outcome.chat.extend(self.chat.line(said.message, now));
                }
            }
        }
        self.note_deaths(now, &mut outcome);
        outcome
    }

    /// What comes due without an answer: timers of detectors, notes that expire. Call it every second.
    pub fn tick(&mut self, now: Moment) -> Outcome {
        let mut outcome = Outcome { events: self.detectors.tick(now), ..Outcome::default() };
        outcome.events.extend(self.chat.take_dropped(now).map(|lines| WorldEvent::chat_dropped(lines, now.stamp)));
        self.note_deaths(now, &mut outcome);
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
        outcome
    }

    fn connect(&mut self, info: &AppInfo, now: Moment, outcome: &mut Outcome) {
        self.connected = true;
        self.detectors.link_up(now);
        self.update_info(info, now, outcome);
        self.set_connection(ConnectionState::Connected, None, None, now, outcome);
        if let Some(since) = self.blind_since.take()
            && now - since >= SHORTEST_GAP
        {
            outcome.events.push(gap(since, now));
        }
    }

    fn set_connection(
        &mut self,
        state: ConnectionState,
        reason: Option<String>,
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

    /// What the game server says of itself.
    fn update_info(&mut self, info: &AppInfo, now: Moment, outcome: &mut Outcome) {
        let seen = reading::world(info);
        let wipe = self.world.as_ref().and_then(|known| known.compare(&seen));
        let world = self.world.clone().unwrap_or_default().updated(seen);
        if self.world.as_ref() != Some(&world) {
            self.world = Some(world.clone());
            outcome.world = Some(world.clone());
        }
        self.state.edit_server(&mut outcome.changes, |server| {
            server.name = Some(plain_text(&info.name, 128)).filter(|name| !name.is_empty());
            server.map_size = Some(info.map_size).filter(|size| *size != 0);
            server.players = Some(info.players);
            server.max_players = Some(info.max_players);
            server.queued_players = Some(info.queued_players);
            server.wiped_at = time::from_unix(info.wipe_time);
        });
        if let Some(wipe) = wipe {
            self.wipe(&wipe, now, outcome);
        }
        outcome.map_wanted = self.map.as_ref() != Some(&world);
    }

    /// A new map: nothing of the old one is there any more.
    fn wipe(&mut self, wipe: &Wipe, now: Moment, outcome: &mut Outcome) {
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

    fn update_time(&mut self, time: &AppTime, outcome: &mut Outcome) {
        // A tenth of an hour is what a clock face shows.
        let hour = |hour: f32| (0.0..=24.0).contains(&hour).then(|| (f64::from(hour) * 10.0).round() / 10.0);
        self.state.edit_server(&mut outcome.changes, |server| {
            server.hour = hour(time.time);
            server.sunrise = hour(time.sunrise);
            server.sunset = hour(time.sunset);
        });
    }

    fn update_team(&mut self, team: AppTeamInfo, now: Moment, outcome: &mut Outcome) {
        let map_size = self.map_size();
        let notes = reading::notes(&team, map_size);
        let (leader, members) = reading::team(team, map_size);
        let changes = &mut outcome.changes;
        self.state.edit_team(changes, |head| head.leader_id = leader);
        self.state.members.replace(Section::Members, members, changes);
        // Notes of the game come and go with the team's answer; those of other sources stay.
        let others: Vec<_> = self.state.map_notes.iter().filter(|(_, note)| note.source != "game").collect();
        let others: Vec<_> = others.into_iter().map(|(id, note)| (id.clone(), MapNote::clone(note))).collect();
        let notes = notes.into_iter().map(|(id, seen)| {
            let id = Arc::from(id);
            let since = self.state.map_notes.get(&id).map_or(now.stamp, |note| note.created_at);
            (id, seen.since(since))
        });
        let notes: Vec<_> = others.into_iter().chain(notes).collect();
        self.state.map_notes.replace(Section::MapNotes, notes, changes);
        let around = Surroundings { map_size, monuments: &self.monuments };
        let members = self.state.members.iter().map(|(id, member)| (*id, &**member));
        let leader = self.state.team.leader_id.as_deref();
        outcome.events.extend(self.detectors.team(&around, leader, members, now));
    }

    fn update_markers(&mut self, markers: AppMapMarkers, now: Moment, outcome: &mut Outcome) {
        let map_size = self.map_size();
        let markers = reading::markers(markers, map_size);
        if self.is_truncated(&markers) {
            return;
        }
        self.state.map_markers.replace(Section::MapMarkers, markers, &mut outcome.changes);
        let around = Surroundings { map_size, monuments: &self.monuments };
        let markers = self.state.map_markers.iter().map(|(id, marker)| (*id, &**marker));
        outcome.events.extend(self.detectors.markers(&around, markers, now));
    }

    /// Whether an answer has lost its shops on the way: all gone at once is not believed at first (protocol §4.1).
    fn is_truncated(&mut self, markers: &[(u64, Marker)]) -> bool {
        let is_shop = |marker: &Marker| marker.kind == MarkerKind::VendingMachine;
        let known = self.state.map_markers.iter().filter(|(_, marker)| is_shop(marker)).count();
        let truncated = known > FEW_SHOPS && !markers.iter().any(|(_, marker)| is_shop(marker));
        self.truncated = if truncated { self.truncated + 1 } else { 0 };
        (1..TRUNCATED_BELIEVED).contains(&self.truncated)
    }

    fn update_devices(&mut self, known: HashMap<Arc<str>, PairedDevice>, outcome: &mut Outcome) {
        let device = |(id, known): (Arc<str>, PairedDevice)| {
            let device = match self.state.devices.get(&id) {
                Some(device) => Device { name: known.name, label: known.label, ..Device::clone(device) },
                None => Device {
                    kind: known.kind,
                    name: known.name,
                    label: known.label,
                    value: None,
                    reachable: Reachable::NoResponse,
                    storage: None,
                },
            };
            (id, device)
        };
        let devices: Vec<_> = known.into_iter().map(device).collect();
        self.state.devices.replace(Section::Devices, devices, &mut outcome.changes);
    }

    fn update_device(
        &mut self,
        id: Arc<str>,
        answer: Result<Option<AppEntityInfo>, AskError>,
        now: Moment,
        outcome: &mut Outcome,
    ) {
        let Some(device) = self.state.devices.get(&id) else { return };
        let mut device = Device::clone(device);
        match answer {
            Ok(Some(info)) => {
                device.kind = reading::device_kind(info.r#type);
                reading::read_payload(&mut device, info.payload);
            }
            Err(AskError::Refused(word)) if word == "not_found" => {
                device = Device { reachable: Reachable::Removed, value: None, storage: None, ..device };
            }
            Ok(None) | Err(_) => device.reachable = Reachable::NoResponse,
        }
        self.put_device(id, device, Alarms::answered, now, outcome);
    }

    fn device_changed(&mut self, changed: AppEntityChanged, now: Moment, outcome: &mut Outcome) {
        let id: Arc<str> = changed.entity_id.to_string().into();
        let Some(device) = self.state.devices.get(&id) else { return };
        let mut device = Device::clone(device);
        reading::read_payload(&mut device, changed.payload);
        if device.storage.as_ref().is_some_and(|storage| storage.has_protection) {
            outcome.ask_again = Some(id.clone());
        }
        self.put_device(id, device, Alarms::changed, now, outcome);
    }

    /// Stores a device; an alarm may go off, by the rule for an answer or for a broadcast.
    fn put_device(
        &mut self,
        id: Arc<str>,
        device: Device,
        triggers: fn(&mut Alarms, &str, bool, Moment) -> bool,
        now: Moment,
        outcome: &mut Outcome,
    ) {
        if device.kind == DeviceKind::Alarm
            && let Some(value) = device.value
            && triggers(&mut self.alarms, &id, value, now)
        {
            let name = device.label.clone().unwrap_or_else(|| device.name.clone());
            outcome.alarms.push(AlarmTrigger { device: id.clone(), name });
        }
        self.state.devices.put(Section::Devices, id, Some(device), &mut outcome.changes);
    }

    /// A death becomes a note on the map. What changes within shops is left out of the events: it concerns those who
    /// watch an item, not everybody.
    fn note_deaths(&mut self, now: Moment, outcome: &mut Outcome) {
        outcome.events.retain(|event| event.kind != EventKind::Shop || matches!(event.action, "opened" | "removed"));
        for event in outcome.events.iter().filter(|event| event.kind == EventKind::Death) {
            let (Some(x), Some(y)) = (event.x, event.y) else { continue };
            let who = event.data.get("steamId").and_then(|id| id.as_str()).unwrap_or("?");
            let id = format!("death:{who}:{}", now.stamp.timestamp_millis());
            let note = MapNote {
                x,
                y,
                grid: event.grid.clone(),
                category: "death".to_owned(),
                label: Some(event.title.clone()),
                source: "detector",
                author: None,
                created_at: now.stamp,
                expires_at: Some((now + DEATH_NOTE_LIFE).stamp),
            };
            self.state.map_notes.put(Section::MapNotes, id.into(), Some(note), &mut outcome.changes);
        }
    }
}

/// The interval in which the link was down.
fn gap(since: Moment, now: Moment) -> WorldEvent {
    let mut data = serde_json::Map::new();
    data.insert("from".to_owned(), time::to_wire(since.stamp).into());
    data.insert("to".to_owned(), time::to_wire(now.stamp).into());
    WorldEvent {
        kind: EventKind::Gap,
        action: "ended",
        grid: String::new(),
        x: None,
        y: None,
        ts: now.stamp,
        title: format!("No answers from the game server for {} s", (now - since).num_seconds()),
        data,
    }
}

#[cfg(test)]
mod tests;
