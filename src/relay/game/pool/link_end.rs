//! The end of a link to a game server, or of an attempt to make one.

use std::time::Duration;

use crate::{
    domain::{link_reason::LinkReason, server_state::ConnectionState},
    game::link::{AskError, ConnectError, LinkEnded},
    net::NetworkError,
};

/// The game server's limits or a ban: come back in minutes, not seconds.
const PAUSE_REFUSED: Duration = Duration::from_secs(60);
/// A refused token is tried again now and then, as the refusal may be a transient fault of the game server.
pub const PAUSE_REJECTED: Duration = Duration::from_secs(3_600);

/// Cause of the missing link, and the least pause.
pub struct LinkEnd {
    pub state: ConnectionState,
    pub reason: LinkReason,
    /// Details for the log.
    pub detail: String,
    /// Least time until the next attempt.
    pub pause: Duration,
}

impl LinkEnd {
    /// The game server cannot be reached, or no longer.
    pub fn unreachable(reason: LinkReason, detail: impl ToString) -> Self {
        let (state, detail) = (ConnectionState::Unreachable, detail.to_string());
        Self { state, reason, detail, pause: Duration::ZERO }
    }

    /// The game server takes no more links from us, and others have their turn.
    pub fn waiting() -> Self {
        let (state, reason) = (ConnectionState::Waiting, LinkReason::NoSlot);
        Self { state, reason, detail: "others have their turn".to_owned(), pause: Duration::ZERO }
    }

    /// A request whose failure the link does not survive.
    pub fn by(error: AskError) -> Self {
        let reason = match &error {
            AskError::Refused(word) if is_dead(word) => {
                let reason = if word == "banned" { LinkReason::Banned } else { LinkReason::UnknownToken };
                let (state, detail) = (ConnectionState::Rejected, error.to_string());
                return Self { state, reason, detail, pause: PAUSE_REJECTED };
            }
            AskError::Refused(_) => LinkReason::Failing,
            AskError::TimedOut => LinkReason::Silent,
            AskError::TooMany(_) => LinkReason::TooMuch,
            AskError::Closed => LinkReason::Closed,
        };
        Self::unreachable(reason, error)
    }
}

impl From<ConnectError> for LinkEnd {
    fn from(error: ConnectError) -> Self {
        let reason = match &error {
            ConnectError::Network(NetworkError::Unresolved(_)) => LinkReason::NotFound,
            ConnectError::Network(NetworkError::AddressRefused) => LinkReason::NotPublic,
            ConnectError::Network(NetworkError::Unreachable(_)) => LinkReason::NoConnection,
            ConnectError::Handshake(_) => LinkReason::NoCompanion,
            ConnectError::Refused => LinkReason::Refused,
            ConnectError::TimedOut => LinkReason::Silent,
        };
        let pause = if reason == LinkReason::Refused { PAUSE_REFUSED } else { Duration::ZERO };
        Self { pause, ..Self::unreachable(reason, error) }
    }
}

impl From<LinkEnded> for LinkEnd {
    fn from(ended: LinkEnded) -> Self {
        let reason = match &ended {
            LinkEnded::Silent | LinkEnded::Stuck => LinkReason::Silent,
            LinkEnded::TooLarge => LinkReason::TooMuch,
            LinkEnded::Closed | LinkEnded::Broken(_) | LinkEnded::Unneeded => LinkReason::Closed,
        };
        Self::unreachable(reason, ended)
    }
}

/// Words after which the player token is dead (protocol §1.6).
pub fn is_dead(word: &str) -> bool {
    matches!(word, "not_found" | "banned")
}
