//! An event of the timeline that a user wants to be sent by channels.

use serde::{Deserialize, Serialize};

use crate::domain::{
    time::{self, Timestamp},
    timeline::TimelineEntry,
    world_event::EventKind,
};

/// All of an event that its messages are made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoticedEvent {
    pub kind: EventKind,
    /// One line of English.
    pub title: String,
    /// `""` where there is no place.
    pub grid: String,
    /// Metres from the south-west corner.
    pub x: Option<f64>,
    pub y: Option<f64>,
    #[serde(serialize_with = "time::exact")]
    pub ts: Timestamp,
}

impl NoticedEvent {
    /// The event of an entry; `None` if its kind is none that rules can name.
    pub fn of(entry: &TimelineEntry) -> Option<Self> {
        let TimelineEntry { title, grid, x, y, ts, .. } = entry.clone();
        Some(Self { kind: EventKind::parse(&entry.kind)?, title, grid, x, y, ts })
    }
}
