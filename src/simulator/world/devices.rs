//! Smart devices: switches, alarms and storage monitors.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;

use super::{
    change::WorldChange,
    error::GameError,
    items::{CLOTH, GUNPOWDER, HIGH_QUALITY_METAL, METAL, SCRAP, STONES, SULFUR, WOOD},
    time::unix,
};
use crate::{
    domain::time::Timestamp,
    game::wire::{AppEntityInfo, AppEntityPayload, AppEntityType, app_entity_payload::Item},
};

/// Entity id of the switch of the gate, until the first wipe, as those below.
pub const GATE_SWITCH: u64 = 4242;
/// Entity id of the switch of the lights.
pub const LIGHTS_SWITCH: u64 = 4243;
/// Entity id of the alarm inside the base.
pub const BASE_ALARM: u64 = 4244;
/// Entity id of the alarm at the wall.
pub const WALL_ALARM: u64 = 4245;
/// Entity id of the monitor at the tool cupboard.
pub const TOOL_CUPBOARD: u64 = 4246;
/// Entity id of the monitor at the large box.
pub const LOOT_BOX: u64 = 4247;

/// Players that one alarm pushes to.
const ALARM_SUBSCRIBERS: usize = 20;

/// A smart device.
#[derive(Clone, Debug, PartialEq)]
pub enum SimulatedDevice {
    Switch {
        on: bool,
    },
    Alarm {
        on: bool,
        /// Players who get a push message when it goes off.
        subscribers: BTreeSet<u64>,
    },
    Storage {
        capacity: i32,
        /// Item id and pieces of each stack.
        items: Vec<(i32, i32)>,
        /// When upkeep runs out; tool cupboards only.
        protected_until: Option<Timestamp>,
    },
}

impl SimulatedDevice {
    /// The game's type of the device.
    pub fn entity_type(&self) -> AppEntityType {
        match self {
            Self::Switch { .. } => AppEntityType::Switch,
            Self::Alarm { .. } => AppEntityType::Alarm,
            Self::Storage { .. } => AppEntityType::StorageMonitor,
        }
    }

    /// `transitional` in the first of the two broadcasts of a storage monitor.
    fn payload(&self, transitional: bool) -> AppEntityPayload {
        match self {
            Self::Switch { on } | Self::Alarm { on, .. } => AppEntityPayload { value: Some(*on), ..Default::default() },
            Self::Storage { capacity, items, protected_until } => AppEntityPayload {
                value: Some(transitional),
                items: items
                    .iter()
                    .map(|&(item_id, quantity)| Item { item_id, quantity, item_is_blueprint: false })
                    .collect(),
                capacity: Some(*capacity),
                has_protection: Some(protected_until.is_some()),
                protection_expiry: protected_until.map(unix),
            },
        }
    }
}

/// From the entity ids of one base to those of the next.
const BASE_STEP: u64 = 100;

/// The entity id of the device of this base that is there what `device` is at the first one.
pub fn device_of(base: usize, device: u64) -> u64 {
    device + BASE_STEP * base as u64
}

/// The devices, with their names, by entity id, and the cupboards of the bases.
#[derive(Debug, Default)]
pub struct SimulatedDevices {
    by_id: BTreeMap<u64, (String, SimulatedDevice)>,
    /// The closed bases: authorised players by the number of the base.
    authorised: BTreeMap<usize, BTreeSet<u64>>,
    /// The bases of the devices that a cupboard covers.
    base_of: BTreeMap<u64, usize>,
}

impl SimulatedDevices {
    /// Adds the devices of a base; both alarms push to these players.
    pub fn build_base(&mut self, base: usize, owners: &[u64], now: Timestamp) {
        let switch = |on| SimulatedDevice::Switch { on };
        let alarm = || SimulatedDevice::Alarm { on: false, subscribers: owners.iter().copied().collect() };
        let cupboard = SimulatedDevice::Storage {
            capacity: 29,
            items: vec![(WOOD, 4000), (STONES, 6178), (METAL, 3500), (HIGH_QUALITY_METAL, 120)],
            // Less than a day of upkeep after a minute and a half: something for those who watch a demo.
            protected_until: Some(now + TimeDelta::seconds(6178 * 14)),
        };
        let loot_box = SimulatedDevice::Storage {
            capacity: 48,
            items: vec![(SULFUR, 3000), (SULFUR, 1240), (GUNPOWDER, 600), (SCRAP, 742), (CLOTH, 310)],
            protected_until: None,
        };
        for (device_id, name, device) in [
            (GATE_SWITCH, "Gate", switch(false)),
            (LIGHTS_SWITCH, "Lights", switch(true)),
            (BASE_ALARM, "Base alarm", alarm()),
            (WALL_ALARM, "Wall alarm", alarm()),
            (TOOL_CUPBOARD, "Tool cupboard", cupboard),
            (LOOT_BOX, "Loot box", loot_box),
        ] {
            let entity_id = device_of(base, device_id);
            self.insert(entity_id, name, device);
            self.base_of.insert(entity_id, base);
        }
    }

    /// From now on only these players may use the devices of the base.
    pub fn close_base(&mut self, base: usize, players: &[u64]) {
        self.authorised.insert(base, players.iter().copied().collect());
    }

    /// Authorises a player at the cupboard of a base, or no longer; then the base is closed to all others.
    pub fn authorise(&mut self, base: usize, player: u64, authorised: bool) {
        let players = self.authorised.entry(base).or_default();
        if authorised {
            players.insert(player);
        } else {
            players.remove(&player);
        }
    }

    /// Refuses a player who is not authorised at the cupboard that covers the device. Devices that none covers, and those
    /// of a base that is not closed, are for everybody who knows their entity id.
    pub fn may_use(&self, player: u64, entity_id: u64) -> Result<(), GameError> {
        let players = self.base_of.get(&entity_id).and_then(|base| self.authorised.get(base));
        if players.is_none_or(|players| players.contains(&player)) { Ok(()) } else { Err("not_found") }
    }

    pub(crate) fn insert(&mut self, entity_id: u64, name: &str, device: SimulatedDevice) {
        self.by_id.insert(entity_id, (name.to_owned(), device));
    }

    pub(crate) fn remove(&mut self, entity_id: u64) {
        self.by_id.remove(&entity_id);
    }

    pub(crate) fn get(&self, entity_id: u64) -> Option<&SimulatedDevice> {
        self.by_id.get(&entity_id).map(|(_, device)| device)
    }

    /// Entity id, name and device.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &str, &SimulatedDevice)> {
        self.by_id.iter().map(|(id, (name, device))| (*id, name.as_str(), device))
    }

    /// The broadcast of a device; `None` if there is no such device.
    pub fn changed(&self, entity_id: u64, transitional: bool) -> Option<WorldChange> {
        self.get(entity_id).map(|device| WorldChange::Entity { entity_id, payload: device.payload(transitional) })
    }

    /// Turns a switch; nothing is broadcast when it has that value already.
    pub fn set_switch(&mut self, entity_id: u64, value: bool) -> Result<Option<WorldChange>, GameError> {
        let (_, device) = self.by_id.get_mut(&entity_id).ok_or("not_found")?;
        let SimulatedDevice::Switch { on } = device else {
            return Err("wrong_type");
        };
        let turned = std::mem::replace(on, value) != value;
        Ok(self.changed(entity_id, false).filter(|_| turned))
    }

    /// Power reaches or leaves an alarm: what to broadcast, then what to push.
    pub fn power_alarm(&mut self, entity_id: u64, powered: bool) -> Vec<WorldChange> {
        let Some((name, SimulatedDevice::Alarm { on, subscribers })) = self.by_id.get_mut(&entity_id) else {
            return Vec::new();
        };
        if std::mem::replace(on, powered) == powered {
            return Vec::new();
        }
        let (title, subscribers) = (name.clone(), subscribers.iter().copied().collect());
        let pushed = powered.then_some(WorldChange::Alarm { entity_id, title, subscribers });
        self.changed(entity_id, false).into_iter().chain(pushed).collect()
    }

    /// Turns a switch, or the power of an alarm; other devices stay as they are.
    pub fn flip(&mut self, entity_id: u64) -> Vec<WorldChange> {
        match self.get(entity_id) {
            Some(&SimulatedDevice::Switch { on }) => {
                self.set_switch(entity_id, !on).ok().flatten().into_iter().collect()
            }
            Some(&SimulatedDevice::Alarm { on, .. }) => self.power_alarm(entity_id, !on),
            _ => Vec::new(),
        }
    }

    /// Changes the contents of a container; false if it is none.
    pub fn set_storage(&mut self, entity_id: u64, contents: Vec<(i32, i32)>, now: Timestamp) -> bool {
        let Some((_, SimulatedDevice::Storage { items, protected_until, .. })) = self.by_id.get_mut(&entity_id) else {
            return false;
        };
        *items = contents;
        if let Some(until) = protected_until {
            // Real upkeep needs more than stone; one material is enough to let it change.
            let stone: i64 = items.iter().filter(|item| item.0 == STONES).map(|item| i64::from(item.1)).sum();
            *until = now + TimeDelta::seconds(stone * 14);
        }
        true
    }

    /// The answer to getEntityInfo.
    pub fn app_entity_info(&self, entity_id: u64) -> Result<AppEntityInfo, GameError> {
        let device = self.get(entity_id).ok_or("not_found")?;
        Ok(AppEntityInfo { r#type: device.entity_type() as i32, payload: device.payload(false) })
    }

    /// True if the alarm sends push messages to the player.
    pub fn subscription(&self, entity_id: u64, player: u64) -> Result<bool, GameError> {
        match self.get(entity_id) {
            None => Err("not_found"),
            Some(SimulatedDevice::Alarm { subscribers, .. }) => Ok(subscribers.contains(&player)),
            Some(_) => Err("wrong_type"),
        }
    }

    /// Makes an alarm push to this player, or no longer.
    pub fn set_subscription(&mut self, entity_id: u64, player: u64, wanted: bool) -> Result<(), GameError> {
        let (_, device) = self.by_id.get_mut(&entity_id).ok_or("not_found")?;
        let SimulatedDevice::Alarm { subscribers, .. } = device else {
            return Err("wrong_type");
        };
        if !wanted {
            subscribers.remove(&player);
        } else if subscribers.len() >= ALARM_SUBSCRIBERS && !subscribers.contains(&player) {
            return Err("too_many_subscribers");
        } else {
            subscribers.insert(player);
        }
        Ok(())
    }
}
