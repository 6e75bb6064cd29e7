//! The paired server's own part of the live state: how its link is, its devices and alarms, and the notes, raids and
//! timers of its users.

mod devices;
pub mod notes;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use chrono::TimeDelta;

use crate::{
    domain::{
        change::Section,
        detect::{MapContext, alarm::Alarms, device::Devices},
        device::TurnBack,
        link_reason::LinkReason,
        server_state::ConnectionState,
        team_command::desk::ChatNotice,
        team_timer::TeamTimer,
        time::{Moment, Timestamp},
        world_event::{EventKind, WorldEvent},
    },
    game::reading::MapNoteSeen,
    relay::state::state_step::StateStep,
};

/// A blind interval shorter than this is no event.
const SHORTEST_GAP: TimeDelta = TimeDelta::seconds(30);

/// See the module.
#[derive(Default)]
pub struct OwnState {
    alarms: Alarms,
    devices: Devices,
    /// The notes that the paired player has placed in the game, by note id.
    placed_notes: Vec<(Arc<str>, MapNoteSeen)>,
    /// The game server has said which notes are placed in the game; before, they are as they were stored.
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
    /// The last broadcasts of this link about each device, and when it was heard. What was asked for before is older.
    last_broadcasts: HashMap<Arc<str>, (u64, Moment)>,
    /// Devices of which another link has said something: the next answer of this one may be older, and does not count.
    said_elsewhere: HashSet<Arc<str>>,
    /// Since when broadcasts of this link may have waited.
    waited_since: Option<Timestamp>,
}

impl OwnState {
    /// When the link was last known to be up.
    pub fn alive_at(&self, now: Moment) -> Option<Timestamp> {
        match self.connected {
            true => Some(now.stamp),
            false => self.blind_since.map(|since| since.stamp).or(self.alive_before),
        }
    }

    /// Takes in when a link was last known to be up; false if one was up here.
    pub fn remember_alive(&mut self, alive_until: Option<Timestamp>) -> bool {
        let is_first = !self.has_been_up();
        if is_first {
            self.alive_before = alive_until;
        }
        is_first
    }

    /// True if a link was up here.
    pub fn has_been_up(&self) -> bool {
        self.connected || self.blind_since.is_some()
    }

    /// The alarms as they are known.
    pub fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// Goes on with what another node knew, whose link was lost then.
    pub fn take_over(&mut self, alarms: Alarms, lost_at: Moment, now: Moment) {
        self.alarms.take_over(alarms, now);
        self.blind_since = Some(lost_at);
    }

    /// A user begins to watch, or the last one stops.
    pub fn watch(&mut self, is_watched: bool, now: Moment) {
        self.watched_since = is_watched.then(|| self.watched_since.unwrap_or(now));
    }

    /// Since when a user watches.
    pub fn watched_since(&self) -> Option<Moment> {
        self.watched_since
    }

    /// There is a new link, which counts its broadcasts from 1.
    pub fn link_up(&mut self, now: Moment) {
        self.connected = true;
        self.devices.link_up(now);
        self.last_broadcasts.clear();
        self.said_elsewhere.clear();
        self.waited_since = None;
    }

    /// Broadcasts of this link may have waited since then; `None`: they have just come.
    pub fn broadcasts_waited(&mut self, since: Option<Timestamp>) {
        self.waited_since = since;
    }

    /// Another link reads from now on, without a gap. It counts its broadcasts from 1, and was asked about the devices
    /// since then: of some of them the link before may have said something later.
    pub fn link_switched(&mut self, asked_since: Moment) {
        let said_since = self.last_broadcasts.drain().filter(|(_, (_, heard))| *heard >= asked_since);
        self.said_elsewhere = said_since.map(|(id, _)| id).collect();
        self.waited_since = None;
        self.alarms.link_up(None);
    }

    /// There is no link; true if it was lost just now.
    pub fn link_lost(&mut self, now: Moment) -> bool {
        let is_lost = std::mem::take(&mut self.connected);
        if is_lost {
            self.blind_since = Some(now);
            self.devices.link_lost(now);
        }
        is_lost
    }

    /// Shows how the connection to the game server is.
    pub fn show_connection(
        &self,
        state: ConnectionState,
        reason: Option<LinkReason>,
        next_attempt_at: Option<Timestamp>,
        step: &mut StateStep,
    ) {
        let (before, now) = (step.outcome.changes.len(), step.now);
        step.edit_server(|server| {
            if server.connection != state {
                (server.connection, server.since) = (state, now.stamp);
            }
            server.reason = reason;
            server.next_attempt_at = next_attempt_at;
        });
        step.outcome.own.connection_changed |= step.outcome.changes.len() > before;
    }

    /// The time without a link is over: a long one is an event.
    pub fn end_gap(&mut self, step: &mut StateStep) {
        let now = step.now;
        // While this service was away, there is only the time of day to go by.
        let before = self.alive_before.take();
        self.alarms.link_up(self.blind_since.or(before.map(|until| now.at(until))));
        let before = before.map(|until| (until, now.stamp - until));
        let blind = self.blind_since.take().map(|since| (since.stamp, now - since)).or(before);
        if let Some((since, length)) = blind.filter(|(_, length)| *length >= SHORTEST_GAP) {
            step.outcome.events.push(gap(since, now.stamp, length));
        }
    }

    /// The map has another size.
    pub fn relabel(&self, around: &MapContext, step: &mut StateStep) {
        self.label_notes(around, step);
        self.label_devices(around, step);
    }

    /// A new map: nothing of the old one remains.
    pub fn wipe(&mut self, step: &mut StateStep) {
        self.devices.wiped();
        self.placed_notes.clear();
        step.document.map_notes.replace(Section::MapNotes, [], &mut step.outcome.changes);
        self.remove_devices(step);
    }

    /// Shows the timers that players set.
    pub fn update_timers(&self, timers: Vec<(Arc<str>, TeamTimer)>, step: &mut StateStep) {
        step.document.timers.replace(Section::Timers, timers, &mut step.outcome.changes);
    }

    /// Shows a warning about our answers in the team's chat, or its end.
    pub fn show_chat_notice(&self, notice: Option<ChatNotice>, step: &mut StateStep) {
        step.edit_team(|team| team.chat_notice = notice.map(ChatNotice::word));
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
