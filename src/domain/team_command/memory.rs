//! Facts of the past that answers need and the live state no longer shows: where a ship or helicopter went, and the
//! upkeep of a cupboard whose monitor has lost its power.

use std::{collections::HashMap, sync::Arc};

use crate::domain::{
    device::Device,
    time::Timestamp,
    world_event::{EventKind, WorldEvent},
};

/// The last event of a ship or a helicopter.
#[derive(Clone, Debug, PartialEq)]
pub struct LastEvent {
    pub action: &'static str,
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
        let last = LastEvent { action: event.action, grid: event.grid.clone(), at: event.ts };
        match event.kind {
            EventKind::Cargo => {
                let leaves_at = event.data.get("egressAt").and_then(|at| at.as_str()?.parse().ok());
                match event.action {
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
