//! What is known of a user's push session, and how its supervisor reports a change.

use actix::Message;
use serde::Serialize;

use crate::domain::{
    ids::UserId,
    time::{self, Timestamp},
};

/// The state of a push session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PushState {
    Connecting,
    Connected,
    /// The push service cannot be reached; it is tried again.
    Unreachable,
    /// The login is refused: the helper must register again and upload.
    RefreshNeeded,
    /// The stored bundle cannot be opened or read.
    Unreadable,
}

/// A user's push session, as users see it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PushSession {
    pub state: PushState,
    #[serde(serialize_with = "time::wire")]
    pub since: Timestamp,
    #[serde(serialize_with = "time::wire_option")]
    pub last_heartbeat_at: Option<Timestamp>,
    #[serde(serialize_with = "time::wire_option")]
    pub last_message_at: Option<Timestamp>,
    pub last_error: Option<String>,
}

impl PushSession {
    /// A session that has yet to log in.
    pub fn connecting(since: Timestamp) -> Self {
        Self { state: PushState::Connecting, since, last_heartbeat_at: None, last_message_at: None, last_error: None }
    }

    /// Applies what happened now.
    pub fn apply(&mut self, event: SessionEvent, now: Timestamp) {
        match event {
            SessionEvent::State(state, error) => {
                if self.state != state {
                    (self.state, self.since) = (state, now);
                }
                self.last_error = error;
            }
            SessionEvent::Heartbeat => self.last_heartbeat_at = Some(now),
            SessionEvent::Message => self.last_message_at = Some(now),
        }
    }
}

/// What happened to a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// The state, which may be the same as before, and what went wrong.
    State(PushState, Option<String>),
    Heartbeat,
    Message,
}

/// A supervisor reports what happened to its session.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionReport {
    pub user: UserId,
    /// The number of the supervisor; reports of one that was replaced are ignored.
    pub generation: u64,
    /// `None`: there is no credential any more, and the supervisor has ended.
    pub event: Option<SessionEvent>,
}
