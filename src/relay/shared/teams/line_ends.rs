//! The ends of lines in a team's queue that are stored: of alarms, and of timers. A line ends when the game server took it, or
//! when it is dropped.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    clock::Clock,
    domain::{
        channels::{
            spoken_alarm::{SpokenFault, SpokenLine, SpokenState},
            user_channel::ChannelFault,
        },
        ids::ServerId,
    },
    relay::shared::write_behind::{Record, WriteBehind},
};

/// The alarm of a line: how far that came is noted, also when the line is dropped.
pub struct AlarmLine {
    clock: Clock,
    line: SpokenLine,
    asked_by: LineAsker,
}

enum LineAsker {
    /// The owner's settings: the line is a delivery of its own, which is stored.
    Announcements { server: ServerId, incident: Arc<str>, write_behind: WriteBehind },
    /// A channel, which is answered once.
    Channel(Option<oneshot::Sender<Result<(), ChannelFault>>>),
}

impl AlarmLine {
    /// A line about this incident that waits from now on.
    pub fn queued(server: &ServerId, incident: &str, clock: &Clock, write_behind: &WriteBehind) -> Self {
        let (server, incident, write_behind) = (server.clone(), incident.into(), write_behind.clone());
        Self::asked_by(LineAsker::Announcements { server, incident, write_behind }, clock)
    }

    /// A line of a channel that waits from now on. The channel is answered when it ends.
    pub fn of_channel(answer: oneshot::Sender<Result<(), ChannelFault>>, clock: &Clock) -> Self {
        Self::asked_by(LineAsker::Channel(Some(answer)), clock)
    }

    fn asked_by(asked_by: LineAsker, clock: &Clock) -> Self {
        let line = SpokenLine::queued(clock.now());
        let mut queued = Self { clock: clock.clone(), line, asked_by };
        queued.note();
        queued
    }

    /// Stores its end.
    pub fn end(mut self, state: SpokenState, fault: Option<SpokenFault>) {
        self.note_end(state, fault);
    }

    fn note_end(&mut self, state: SpokenState, fault: Option<SpokenFault>) {
        self.line = SpokenLine { state, fault, ended_at: Some(self.clock.now()), ..self.line };
        self.note();
    }

    fn note(&mut self) {
        match &mut self.asked_by {
            LineAsker::Announcements { server, incident, write_behind } => {
                write_behind.store(Record::Spoken(server.clone(), incident.clone(), self.line));
            }
            LineAsker::Channel(answer) => {
                if let Some(outcome) = self.line.outcome()
                    && let Some(answer) = answer.take()
                {
                    // The channel may have stopped waiting.
                    let _ = answer.send(outcome);
                }
            }
        }
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
    /// By these their rows go.
    ends: Vec<Record>,
    write_behind: WriteBehind,
}

impl EndedTimers {
    /// The timers whose rows go by these.
    pub fn new(ends: Vec<Record>, write_behind: &WriteBehind) -> Self {
        Self { ends, write_behind: write_behind.clone() }
    }
}

impl Drop for EndedTimers {
    fn drop(&mut self) {
        for end in self.ends.drain(..) {
            self.write_behind.store(end);
        }
    }
}
