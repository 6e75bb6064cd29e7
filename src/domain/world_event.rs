//! Events of a game world, in the form of the relay message `event`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::domain::{
    sections::{Sections, StateKey},
    time::Timestamp,
    words::words,
};

words! {
    /// The family of a world event, named as in the timeline.
    #[derive(PartialOrd, Ord, Hash, Deserialize, ToSchema)]
    pub enum EventKind {
        Cargo = "cargo",
        Heli = "heli",
        Chinook = "chinook",
        Crate = "crate",
        Oilrig = "oilrig",
        Vendor = "vendor",
        Explosion = "explosion",
        Death = "death",
        Raid = "raid",
        Login = "login",
        Logout = "logout",
        /// Joined, left, respawned, a new leader.
        Team = "team",
        Wipe = "wipe",
        Shop = "shop",
        Device = "device",
        Gap = "gap",
        /// Lines of chat were dropped.
        Chat = "chat",
    }
}

impl EventKind {
    /// The keys of the state that its receiver must see: the one that it is about; all for chat, which is under none.
    pub fn sections(self) -> Sections {
        let about = match self {
            Self::Cargo
            | Self::Heli
            | Self::Chinook
            | Self::Crate
            | Self::Oilrig
            | Self::Vendor
            | Self::Explosion
            | Self::Shop => StateKey::MapMarkers,
            Self::Death | Self::Login | Self::Logout | Self::Team => StateKey::Team,
            Self::Raid => StateKey::Raids,
            Self::Wipe | Self::Gap => StateKey::Server,
            Self::Device => StateKey::Devices,
            Self::Chat => return Sections::ALL,
        };
        Sections::from_iter([about])
    }
}

/// One world event: `{ kind, action, grid, x, y, ts, title, data }`, as an entry of the timeline has it. The actions
/// and fields are in [`event_shapes`](crate::domain::event_shapes).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorldEvent {
    pub kind: EventKind,
    /// The event within the family, for example `entered`, `docked`, `left`, `shot_down`.
    pub action: &'static str,
    /// Grid label, outside of the map a compass direction (`NE`), `""` where there is no place.
    pub grid: String,
    /// Metres from the south-west corner, to the east; `null` where there is no place.
    pub x: Option<f64>,
    /// Metres from the south-west corner, to the north.
    pub y: Option<f64>,
    pub ts: Timestamp,
    /// One line of English.
    pub title: String,
    /// Further facts, by kind and action.
    pub data: Map<String, Value>,
}

impl WorldEvent {
    /// Lines of chat were dropped: `{ kind: "chat", action: "dropped", data: { lines }, … }`.
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
