//! Status of a user's push session: its supervisor writes it, the worker reads it for the API.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::domain::time::Timestamp;

/// The state of a push session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

impl PushState {
    /// Every state and its word, as in JSON.
    pub const WORDS: [(Self, &'static str); 5] = [
        (Self::Connecting, "connecting"),
        (Self::Connected, "connected"),
        (Self::Unreachable, "unreachable"),
        (Self::RefreshNeeded, "refresh_needed"),
        (Self::Unreadable, "unreadable"),
    ];
}

/// Number of push sessions in each state.
pub type PushCounts = [(&'static str, usize); PushState::WORDS.len()];

/// Reason for having no session, in fixed words. The words of a library or of the push service are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionFault {
    /// The push service's name is not resolved.
    Unresolved,
    NoConnection,
    /// TLS: the peer that answers is not the push service.
    UntrustedCertificate,
    TimedOut,
    LoginRefused,
    /// The push service has a fault of its own.
    ServiceFault,
    /// The answer is not of the protocol.
    Protocol,
    /// The push service ended the session.
    Closed,
    ConnectionBroke,
    /// The connection was open, and its other end silent.
    Silent,
    /// The bundle has no login of the form that every helper writes.
    UnusableBundle,
    /// The bundle does not open with the service's keys.
    UnknownKey,
    /// The stored bundle is damaged, or its key is lost for good.
    LostBundle,
    /// The database does not answer.
    Database,
    /// A push is not stored yet: that is tried again, while the session goes on.
    PushNotStored,
    /// The node that has the session does not answer: there may be one.
    NodeSilent,
    /// A panic of our own; the session is started again.
    OurFault,
}

/// A user's push session, as users see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushSession {
    pub state: PushState,
    pub since: Timestamp,
    pub last_heartbeat_at: Option<Timestamp>,
    pub last_message_at: Option<Timestamp>,
    pub last_error: Option<SessionFault>,
}

impl PushSession {
    /// The session at a node that does not answer.
    pub fn at_silent_node(since: Timestamp) -> Self {
        let (state, last_error) = (PushState::Connecting, Some(SessionFault::NodeSilent));
        Self { state, since, last_heartbeat_at: None, last_message_at: None, last_error }
    }

    /// True if its node does not answer.
    pub fn is_unknown(&self) -> bool {
        self.last_error == Some(SessionFault::NodeSilent)
    }
}

/// The status of one supervised session. Neither side ever waits for the other.
pub struct SessionStatus(Mutex<Option<PushSession>>);

impl SessionStatus {
    /// Status of a session that has yet to log in.
    pub fn connecting(since: Timestamp) -> Self {
        let state = PushState::Connecting;
        let session = PushSession { state, since, last_heartbeat_at: None, last_message_at: None, last_error: None };
        Self(Mutex::new(Some(session)))
    }

    /// Sets the state, which may be the same as before, and the fault.
    pub fn set_state(&self, state: PushState, fault: Option<SessionFault>, now: Timestamp) {
        if let Some(session) = self.lock().as_mut() {
            if session.state != state {
                (session.state, session.since) = (state, now);
            }
            session.last_error = fault;
        }
    }

    /// Notes that a push is not stored yet, or that all are again. The end of a session meanwhile matters more.
    pub fn set_unstored(&self, unstored: bool) {
        if let Some(session) = self.lock().as_mut().filter(|session| session.state == PushState::Connected) {
            session.last_error = unstored.then_some(SessionFault::PushNotStored);
        }
    }

    /// Notes a heartbeat that came now.
    pub fn heard(&self, now: Timestamp) {
        if let Some(session) = self.lock().as_mut() {
            session.last_heartbeat_at = Some(now);
        }
    }

    /// Notes a push that came now and is stored.
    pub fn received(&self, now: Timestamp) {
        if let Some(session) = self.lock().as_mut() {
            session.last_message_at = Some(now);
        }
    }

    /// Ends the session for good: the credential is gone.
    pub fn end(&self) {
        *self.lock() = None;
    }

    /// The session; `None` if it has ended for good.
    pub fn get(&self) -> Option<PushSession> {
        self.lock().clone()
    }

    /// Its state; `None` if it has ended for good.
    pub fn state(&self) -> Option<PushState> {
        self.lock().as_ref().map(|session| session.state)
    }

    fn lock(&self) -> MutexGuard<'_, Option<PushSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
