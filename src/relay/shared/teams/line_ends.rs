//! The ends of lines in a team's queue that are stored: of alarms, and of timers. A line ends when the game server took it, or
//! when it is dropped.

use std::sync::Arc;

use crate::{
    clock::Clock,
    domain::{
        ids::ServerId,
        spoken_alarm::{SpokenFault, SpokenLine, SpokenState},
    },
    relay::shared::write_behind::{Record, WriteBehind},
};

/// The alarm of a line: its delivery is stored, also when the line is dropped.
pub struct AlarmLine {
    server: ServerId,
    incident: Arc<str>,
    clock: Clock,
    write_behind: WriteBehind,
    line: SpokenLine,
}

impl AlarmLine {
    /// A line about this incident that waits from now on.
    pub fn queued(server: &ServerId, incident: &str, clock: &Clock, write_behind: &WriteBehind) -> Self {
        let line = SpokenLine { state: SpokenState::Queued, fault: None, queued_at: clock.now(), ended_at: None };
        let (server, clock, write_behind) = (server.clone(), clock.clone(), write_behind.clone());
        let queued = Self { server, incident: incident.into(), clock, write_behind, line };
        queued.store();
        queued
    }

    /// Stores its end.
    pub fn end(mut self, state: SpokenState, fault: Option<SpokenFault>) {
        self.note_end(state, fault);
    }

    fn note_end(&mut self, state: SpokenState, fault: Option<SpokenFault>) {
        self.line = SpokenLine { state, fault, ended_at: Some(self.clock.now()), ..self.line };
        self.store();
    }

    fn store(&self) {
        self.write_behind.store(Record::Spoken(self.server.clone(), self.incident.clone(), self.line));
    }
}

impl Drop for AlarmLine {
    fn drop(&mut self) {
        if self.line.ended_at.is_none() {
            self.note_end(SpokenState::Failed, Some(SpokenFault::NotTaken));
        }
    }
}

/// Timers that have ended and whose end is being said. Their rows go with the last line that says it: after the end of the
/// process the next one says it.
pub struct EndedTimers {
    /// Ids of their rows.
    ids: Vec<Arc<str>>,
    write_behind: WriteBehind,
}

impl EndedTimers {
    /// The timers of these ids.
    pub fn new(ids: Vec<Arc<str>>, write_behind: &WriteBehind) -> Self {
        Self { ids, write_behind: write_behind.clone() }
    }
}

impl Drop for EndedTimers {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            self.write_behind.store(Record::TimerEnded(id));
        }
    }
}
