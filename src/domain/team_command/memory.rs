//! Facts of the past that answers need and the live state no longer shows: where a ship or helicopter went, and the
//! upkeep of a cupboard whose monitor has lost its power.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value};

use crate::domain::{
    device::Device,
    time::Timestamp,
    timeline::TimelineEntry,
    world_event::{EventKind, WorldEvent},
};

/// The last event of a ship or a helicopter.
#[derive(Clone, Debug, PartialEq)]
pub struct LastEvent {
    pub action: String,
    pub grid: String,
    pub at: Timestamp,
}

/// See the module.
#[derive(Debug, Default)]
pub struct WorldMemory {
    pub cargo: Option<LastEvent>,
    pub heli: Option<LastEvent>,
    /// When the ship that is here turns to leave.
    pub cargo_leaves_at: Option<Timestamp>,
    /// End of upkeep of each cupboard, as it was last seen.
    pub upkeep: HashMap<Arc<str>, Option<Timestamp>>,
}

impl WorldMemory {
    /// Takes note of an event.
    pub fn note(&mut self, event: &WorldEvent) {
        let last = LastEvent { action: event.action.to_owned(), grid: event.grid.clone(), at: event.ts };
        self.note_last(event.kind, last, &event.data);
    }

    /// Takes note of what is stored, the newest entry first, where nothing was seen since. `wiped_at`: the beginning of the
    /// present world, if it is known.
    pub fn recall(&mut self, entries: &[TimelineEntry], wiped_at: Option<Timestamp>) {
        let mut stored = Self::default();
        for entry in entries.iter().rev().filter(|entry| wiped_at.is_none_or(|at| entry.ts >= at)) {
            let last = LastEvent { action: entry.action.clone(), grid: entry.grid.clone(), at: entry.ts };
            if let Some(kind) = EventKind::parse(&entry.kind) {
                stored.note_last(kind, last, &entry.data);
            }
        }
        // Only its arrival says when a ship leaves, which has perhaps been seen again since.
        if self.cargo.as_ref().is_none_or(|last| last.action != "left") {
            self.cargo_leaves_at = self.cargo_leaves_at.or(stored.cargo_leaves_at);
        }
        self.cargo = self.cargo.take().or(stored.cargo);
        self.heli = self.heli.take().or(stored.heli);
    }

    fn note_last(&mut self, kind: EventKind, last: LastEvent, data: &Map<String, Value>) {
        match kind {
            EventKind::Cargo => {
                let leaves_at = data.get("egressAt").and_then(|at| at.as_str()?.parse().ok());
                match last.action.as_str() {
                    "left" => self.cargo_leaves_at = None,
                    _ => self.cargo_leaves_at = leaves_at.or(self.cargo_leaves_at),
                }
                self.cargo = Some(last);
            }
            EventKind::Heli => self.heli = Some(last),
            EventKind::Wipe => *self = Self::default(),
            _ => {}
        }
    }

    /// Takes note of the devices as they are now.
    pub fn see<'a>(&mut self, devices: impl Iterator<Item = (&'a Arc<str>, &'a Device)>) {
        for (id, device) in devices {
            if let Some(storage) = device.storage.as_ref().filter(|storage| storage.has_protection) {
                self.upkeep.insert(id.clone(), storage.protection_expires_at);
            }
        }
    }

    /// Forgets cupboards that are no longer paired.
    pub fn retain(&mut self, is_paired: impl Fn(&Arc<str>) -> bool) {
        self.upkeep.retain(|id, _| is_paired(id));
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use serde_json::json;

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + TimeDelta::minutes(minute)
    }

    fn entry(kind: &str, action: &str, minute: i64) -> TimelineEntry {
        let Value::Object(data) = json!({ "egressAt": at(minute + 50).to_wire() }) else { unreachable!() };
        TimelineEntry {
            id: minute.to_string(),
            kind: kind.to_owned(),
            action: action.to_owned(),
            ts: at(minute),
            grid: "D7".to_owned(),
            x: None,
            y: None,
            title: String::new(),
            data: if kind == "cargo" { data } else { Map::new() },
        }
    }

    #[test]
    fn the_last_events_of_the_present_world_are_recalled() {
        let stored = [entry("cargo", "entered", 9), entry("heli", "shot_down", 5), entry("heli", "entered", 1)];
        let recalled = |wiped_at| {
            let mut memory = WorldMemory::default();
            memory.recall(&stored, wiped_at);
            let at = |last: Option<LastEvent>| last.map(|last| (last.action, last.at));
            (at(memory.cargo), at(memory.heli), memory.cargo_leaves_at)
        };
        let cargo = Some(("entered".to_owned(), at(9)));
        assert_eq!(recalled(None), (cargo.clone(), Some(("shot_down".to_owned(), at(5))), Some(at(59))));
        assert_eq!(recalled(Some(at(6))), (cargo, None, Some(at(59))));
        let mut memory = WorldMemory::default();
        memory.recall(&[entry("wipe", "wiped", 9), entry("cargo", "left", 8)], None);
        assert_eq!(memory.cargo, None, "it was in another world");
        memory.recall(&[entry("cargo", "left", 8)], None);
        memory.recall(&stored, None);
        assert_eq!(memory.cargo_leaves_at, None, "the ship has left");
        assert_eq!(memory.cargo.map(|last| last.at), Some(at(8)), "what was seen stays");
    }

    #[test]
    fn a_ship_that_was_seen_again_leaves_when_its_stored_arrival_says() {
        let docked = WorldEvent {
            kind: EventKind::Cargo,
            action: "docked",
            grid: "D7".to_owned(),
            x: None,
            y: None,
            ts: at(20),
            title: String::new(),
            data: Map::new(),
        };
        let mut memory = WorldMemory::default();
        memory.note(&docked);
        memory.recall(&[entry("cargo", "entered", 9)], None);
        assert_eq!(memory.cargo_leaves_at, Some(at(59)));
        assert_eq!(memory.cargo.map(|last| last.action).as_deref(), Some("docked"));
    }
}
