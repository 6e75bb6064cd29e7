//! Reasons for which there is no link to a game server, in words for its owner. Texts of libraries go to the log.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkReason {
    Unwatched,
    /// The name of the game server has no address.
    NotFound,
    /// The name has an address in a network that is not ours to enter.
    NotPublic,
    NoConnection,
    /// The address answers the handshake with something that is no WebSocket.
    NoCompanion,
    Refused,
    Silent,
    Closed,
    TooMuch,
    /// The game server refused to say what it is.
    Failing,
    UnknownToken,
    Banned,
    UnreadableToken,
    /// The key that sealed the player token is not configured.
    MissingKey,
    /// No game server has answered at this address so far. A more exact reason would reveal what is in networks that
    /// the user cannot reach.
    NoGameServer,
    OtherCredentials,
    /// The game server takes no more links from our address.
    NoSlot,
    OurDatabase,
    /// A row of the pairing, or the page that it is on, is damaged.
    UnreadableRow,
    /// The node that has the link, or that says which one has it, does not answer: there may be a link.
    NodeSilent,
    OurFault,
}

impl LinkReason {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Unwatched,
        Self::NotFound,
        Self::NotPublic,
        Self::NoConnection,
        Self::NoCompanion,
        Self::Refused,
        Self::Silent,
        Self::Closed,
        Self::TooMuch,
        Self::Failing,
        Self::UnknownToken,
        Self::Banned,
        Self::UnreadableToken,
        Self::MissingKey,
        Self::NoGameServer,
        Self::OtherCredentials,
        Self::NoSlot,
        Self::OurDatabase,
        Self::UnreadableRow,
        Self::NodeSilent,
        Self::OurFault,
    ];

    /// The reason that users are shown while no game server has answered at the address.
    pub fn before_any_answer(self) -> Self {
        match self {
            Self::NotFound
            | Self::NotPublic
            | Self::NoConnection
            | Self::NoCompanion
            | Self::Refused
            | Self::Silent
            | Self::Closed
            | Self::TooMuch => Self::NoGameServer,
            other => other,
        }
    }

    /// The words that users are shown.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unwatched => "no one is watching",
            Self::NotFound => "the address of the game server cannot be found",
            Self::NotPublic => "the address of the game server is not a public one",
            Self::NoConnection => "the game server cannot be reached: it may be down or restarting",
            Self::NoCompanion => "what answers at this address is not a game server with the companion app switched on",
            Self::Refused => "the game server refuses the connection: it is full, or we are banned",
            Self::Silent => "the game server does not answer",
            Self::Closed => "the game server closed the connection",
            Self::TooMuch => "the game server sends more than we accept",
            Self::Failing => "the game server answers with an error",
            Self::UnknownToken => "the game server no longer knows this pairing: pair again",
            Self::Banned => "the paired player is banned on this game server",
            Self::UnreadableToken => "the stored pairing cannot be read: pair again",
            Self::MissingKey => {
                "the stored pairing cannot be read: the operator is repairing this, there is nothing for you to do"
            }
            Self::NoGameServer => {
                "no game server has answered at this address yet: it may be down, or its address or companion port is another one"
            }
            Self::OtherCredentials => "paired again, connecting",
            Self::NoSlot => {
                "this game server takes no more connections from us: others have their turn, and yours comes by itself"
            }
            Self::OurFault => "an internal error, we try again",
            Self::UnreadableRow => {
                "what is stored of the pairing cannot be read: the operator has to repair it, there is nothing for you to do"
            }
            Self::NodeSilent => "the part of our service that has this link does not answer: look again in a moment",
            Self::OurDatabase => "our database does not answer, we try again",
        }
    }

    /// For `#[serde(deserialize_with = "LinkReason::read")]`, between nodes: words of another version are no reason here, and
    /// hide nothing else that came with them.
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(Self::ALL.into_iter().find(|known| Some(known.text()) == text.as_deref()))
    }
}

impl fmt::Display for LinkReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for LinkReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}
