//! What happened in a game world, in the form of the relay message `event`.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::domain::time::{self, Timestamp};

/// The family of a world event, named as in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    Cargo,
    Heli,
    Chinook,
    Crate,
    Oilrig,
    Vendor,
    Explosion,
    Death,
    Raid,
    Login,
    Logout,
    /// Joined, left, respawned, a new leader.
    Team,
    Wipe,
    Shop,
    Device,
    Gap,
    /// Lines of chat were dropped.
    Chat,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 17] = [
        Self::Cargo,
        Self::Heli,
        Self::Chinook,
        Self::Crate,
        Self::Oilrig,
        Self::Vendor,
        Self::Explosion,
        Self::Death,
        Self::Raid,
        Self::Login,
        Self::Logout,
        Self::Team,
        Self::Wipe,
        Self::Shop,
        Self::Device,
        Self::Gap,
        Self::Chat,
    ];

    /// The word on the wire and in the database.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cargo => "cargo",
            Self::Heli => "heli",
            Self::Chinook => "chinook",
            Self::Crate => "crate",
            Self::Oilrig => "oilrig",
            Self::Vendor => "vendor",
            Self::Explosion => "explosion",
            Self::Death => "death",
            Self::Raid => "raid",
            Self::Login => "login",
            Self::Logout => "logout",
            Self::Team => "team",
            Self::Wipe => "wipe",
            Self::Shop => "shop",
            Self::Device => "device",
            Self::Gap => "gap",
            Self::Chat => "chat",
        }
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// One world event: `{ kind, action, grid, x, y, ts, title, … }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorldEvent {
    pub kind: EventKind,
    /// What happened within the family, for example `entered`, `docked`, `left`, `shot_down`.
    pub action: &'static str,
    /// Grid label, outside of the map a compass direction (`NE`), `""` where there is no place.
    pub grid: String,
    /// Metres from the south-west corner, to the east; `null` where there is no place.
    pub x: Option<f64>,
    /// Metres from the south-west corner, to the north.
    pub y: Option<f64>,
    #[serde(serialize_with = "time::wire")]
    pub ts: Timestamp,
    /// One line of English.
    pub title: String,
    /// Further fields of this kind, beside the others in JSON.
    #[serde(flatten)]
    pub data: Map<String, Value>,
}

impl WorldEvent {
    /// So many lines of chat were dropped: `{ kind: "chat", action: "dropped", lines, … }`.
    pub fn chat_dropped(lines: u32, ts: Timestamp) -> Self {
        Self {
            kind: EventKind::Chat,
            action: "dropped",
            grid: String::new(),
            x: None,
            y: None,
            ts,
            title: format!("Lines of chat left out: {lines}"),
            data: Map::from_iter([("lines".to_owned(), lines.into())]),
        }
    }
}
