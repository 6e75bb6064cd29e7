//! Markers of the map, except the players.

use std::collections::BTreeMap;

use crate::{game::wire::AppMarker, simulator::point::Point};

/// The markers by id.
#[derive(Clone, Debug, PartialEq)]
pub struct Markers {
    next_id: u32,
    by_id: BTreeMap<u64, AppMarker>,
}

/// Ids below belong to players.
const FIRST_ID: u32 = 100_001;

impl Default for Markers {
    fn default() -> Self {
        Self { next_id: FIRST_ID, by_id: BTreeMap::new() }
    }
}

impl Markers {
    /// Adds a marker; an id of 0 means the next free one. Returns its id.
    pub fn add(&mut self, mut marker: AppMarker) -> u64 {
        if marker.id == 0 {
            // Ids stay below 2^32: older clients cut them.
            marker.id = u64::from(self.next_id);
            self.next_id = self.next_id.checked_add(1).unwrap_or(FIRST_ID);
        }
        let id = marker.id;
        self.by_id.insert(id, marker);
        id
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut AppMarker> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn move_to(&mut self, id: u64, to: Point) {
        if let Some(marker) = self.by_id.get_mut(&id) {
            (marker.x, marker.y) = (to.x, to.y);
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    /// In the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &AppMarker> {
        self.by_id.values()
    }
}
