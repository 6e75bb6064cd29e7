//! One newtype per kind of identifier, so that none can be used for another. All are opaque text.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: Into<Arc<str>>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A user of the service (our own, UUIDv7).
    UserId
);
id!(
    /// A user's account at the identity provider: a SteamID64 in decimal.
    PlatformId
);
id!(
    /// A paired game server (our own, UUIDv7).
    ServerId
);
id!(
    /// A game server, independent of its pairings: its address and port, as they are stored with each pairing.
    GameServerId
);
id!(
    /// A browser's session (our own, UUIDv7); leaves the service only sealed.
    SessionId
);

id!(
    /// An account of the chat platform: decimal digits.
    ChatUserId
);

id!(
    /// A helper device of a user (our own, UUIDv7).
    HelperDeviceId
);

id!(
    /// An API token of a user (our own, UUIDv7).
    ApiTokenId
);

id!(
    /// A channel of a user (our own, UUIDv7).
    ChannelId
);

id!(
    /// One run of the process on a node of a cluster (our own: a UUIDv7 and a number): a process that starts again is another
    /// node.
    NodeId
);

id!(
    /// A part of the service that one node of a cluster has at a time.
    PartId
);

impl NodeId {
    /// The node of this number of a process, which goes on as another node when it has lost its lease.
    pub fn of_process(process: &str, number: u32) -> Self {
        Self::from(format!("{process}-{number}"))
    }

    /// The process, whose messages are those of all of its nodes.
    pub fn process(&self) -> &str {
        self.as_str().rsplit_once('-').map_or(self.as_str(), |(process, _)| process)
    }
}

impl PartId {
    /// Begins the names of [`links`](Self::links).
    pub const LINKS: &'static str = "links:";

    /// The links to this game server, and all that is made of their answers.
    pub fn links(game_server: &GameServerId) -> Self {
        Self::from(format!("{}{game_server}", Self::LINKS))
    }
}

impl GameServerId {
    /// The game server at this address.
    pub fn at(address: &str, port: u16) -> Self {
        Self::from(format!("{address}:{port}"))
    }
}
id!(
    /// A guest of a paired server, or an invitation of one (our own, UUIDv7).
    GuestId
);

impl SessionId {
    /// The session of a helper device's relay tokens, in place of a browser's.
    pub fn of_device(device: &HelperDeviceId) -> Self {
        Self::from(format!("{DEVICE}{device}"))
    }

    /// The helper device, if it is the session of one.
    pub fn device(&self) -> Option<HelperDeviceId> {
        self.0.strip_prefix(DEVICE).map(HelperDeviceId::from)
    }

    /// The session of an API token's relay tokens, in place of a browser's.
    pub fn of_token(token: &ApiTokenId) -> Self {
        Self::from(format!("{TOKEN}{token}"))
    }

    /// The API token, if it is the session of one.
    pub fn token(&self) -> Option<ApiTokenId> {
        self.0.strip_prefix(TOKEN).map(ApiTokenId::from)
    }
}

/// No UUID starts with either.
const DEVICE: &str = "device:";
const TOKEN: &str = "token:";

impl PlatformId {
    /// Reads the SteamID64 of an individual account in the public universe: 17 digits, in range.
    pub fn parse(text: &str) -> Option<Self> {
        const INDIVIDUAL: std::ops::RangeInclusive<u64> = 76_561_197_960_265_728..=76_561_202_255_233_023;
        let digits = text.len() == 17 && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits && text.parse().is_ok_and(|id| INDIVIDUAL.contains(&id))).then(|| Self::from(text))
    }
}
