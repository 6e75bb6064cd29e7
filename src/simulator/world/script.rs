//! Events in the world that happen by themselves, and their times.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use super::devices::{BASE_ALARM, LOOT_BOX, TOOL_CUPBOARD, WALL_ALARM};
use crate::{domain::time::Timestamp, simulator::rng::Rng};

/// Something that happens by itself.
#[derive(Clone, Copy, Debug)]
pub enum ScriptEvent {
    Chat,
    Trade,
    Raid,
    AlarmOn(u64),
    AlarmOff(u64),
    StorageUsed(u64),
    /// The second of the two broadcasts after a change.
    StorageSettled(u64),
    SwitchUsed,
    CargoShip,
    Helicopter,
    Chinook {
        to_rig: bool,
    },
    Vendor,
    Death,
    Respawn(u64),
    Logout,
    Login(u64),
    /// The next step of what happens among the teams.
    TeamLife(usize),
}

/// Seconds from one step of what happens among the teams to the next.
pub const TEAM_LIFE: i64 = 15;

/// The first 90 seconds, in seconds after the start: something of everything, for those who watch a demo.
pub const OPENING: [(i64, ScriptEvent); 11] = [
    (1, ScriptEvent::Vendor),
    (2, ScriptEvent::Trade),
    (5, ScriptEvent::Chat),
    (10, ScriptEvent::CargoShip),
    (20, ScriptEvent::Raid),
    (28, ScriptEvent::SwitchUsed),
    (30, ScriptEvent::Helicopter),
    (40, ScriptEvent::Death),
    (50, ScriptEvent::Logout),
    (60, ScriptEvent::Chinook { to_rig: true }),
    (75, ScriptEvent::StorageUsed(LOOT_BOX)),
];

/// In seconds after a wipe.
pub const AFTER_WIPE: [(i64, ScriptEvent); 8] = [
    (2, ScriptEvent::Trade),
    (10, ScriptEvent::Chat),
    (60, ScriptEvent::Vendor),
    (120, ScriptEvent::CargoShip),
    (300, ScriptEvent::Helicopter),
    (400, ScriptEvent::Death),
    (500, ScriptEvent::Logout),
    (600, ScriptEvent::Chinook { to_rig: true }),
];

impl ScriptEvent {
    /// Seconds until an event of this kind happens again, and that event; `None` for one that another event causes.
    pub fn next(self, rng: &mut Rng) -> Option<(f32, Self)> {
        let (low, high) = match self {
            Self::Chat => (25.0, 120.0),
            Self::Trade => (2.0, 7.0),
            Self::Raid => (900.0, 2400.0),
            Self::StorageUsed(_) => (40.0, 140.0),
            Self::SwitchUsed => (70.0, 240.0),
            Self::CargoShip => (2400.0, 4800.0),
            Self::Helicopter => (900.0, 2100.0),
            Self::Chinook { .. } => (600.0, 1500.0),
            Self::Vendor => (1800.0, 2700.0),
            Self::Death => (400.0, 1200.0),
            Self::Logout => (300.0, 900.0),
            Self::TeamLife(_) => (TEAM_LIFE as f32, TEAM_LIFE as f32),
            Self::AlarmOn(_) | Self::AlarmOff(_) | Self::StorageSettled(_) | Self::Respawn(_) | Self::Login(_) => {
                return None;
            }
        };
        let next = match self {
            Self::StorageUsed(_) => Self::StorageUsed(if rng.chance(0.6) { LOOT_BOX } else { TOOL_CUPBOARD }),
            Self::Chinook { .. } => Self::Chinook { to_rig: rng.chance(0.7) },
            Self::TeamLife(step) => Self::TeamLife(step + 1),
            same => same,
        };
        Some((rng.between(low, high), next))
    }
}

/// The alarms of a raid, in seconds after it began: four pulses of four seconds.
pub fn raid(rng: &mut Rng) -> Vec<(f32, ScriptEvent)> {
    let mut events = Vec::new();
    let mut at = 0.0;
    for alarm in [BASE_ALARM, BASE_ALARM, WALL_ALARM, BASE_ALARM] {
        events.push((at, ScriptEvent::AlarmOn(alarm)));
        at += 4.0;
        events.push((at, ScriptEvent::AlarmOff(alarm)));
        at += rng.between(4.0, 9.0);
    }
    events
}

/// Events by the time at which they are due; those of the same time in the order in which they were added.
#[derive(Debug, Default)]
pub struct Script {
    events: BTreeMap<(Timestamp, u64), ScriptEvent>,
    added: u64,
}

impl Script {
    /// The events of a table, in seconds after `start`.
    pub fn starting(start: Timestamp, table: &[(i64, ScriptEvent)]) -> Self {
        let mut script = Self::default();
        for (seconds, event) in table {
            script.add(start + TimeDelta::seconds(*seconds), *event);
        }
        script
    }

    /// Adds an event at this time, after others of the same time.
    pub fn add(&mut self, at: Timestamp, event: ScriptEvent) {
        self.added += 1;
        self.events.insert((at, self.added), event);
    }

    /// Removes the next event that is due at `now`, and returns it with its time.
    pub fn take_due(&mut self, now: Timestamp) -> Option<(Timestamp, ScriptEvent)> {
        let first = self.events.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((at, _), event) = first.remove_entry();
        Some((at, event))
    }

    /// Moves every event to a later time.
    pub fn postpone(&mut self, by: TimeDelta) {
        self.events =
            std::mem::take(&mut self.events).into_iter().map(|((at, n), event)| ((at + by, n), event)).collect();
    }

    /// Removes raids that did not begin.
    pub fn cancel_raids(&mut self) {
        self.events.retain(|_, event| !matches!(event, ScriptEvent::Raid));
    }

    /// Events to come.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.events.len()
    }
}
