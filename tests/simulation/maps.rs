//! The maps of the game servers, with the devices that the script uses.

use std::time::Duration;

use chrono::TimeDelta;
use companion::{
    clock::Clock,
    domain::time::Timestamp,
    simulator::world::{SimulatedDevice, SimulatedWorld},
};

use crate::{
    teams::found_rivals,
    world::{LAMP_SWITCH, MORE_ALARMS, START},
};

/// The map of this seed, `age` after the begin of the run. Its lines have the right time, though nothing else of it moves by
/// itself.
pub fn new_map(seed: u64, age: Duration) -> SimulatedWorld {
    let start = Timestamp::from_timestamp(START, 0).expect("a time");
    let mut world = SimulatedWorld::new(seed, start);
    add_devices(&mut world);
    found_rivals(&mut world);
    world.chat_follows(Clock::simulated(start + TimeDelta::from_std(age).expect("minutes")));
    world
}

/// The alarms of which nothing is pushed, and the lamp.
pub fn add_devices(world: &mut SimulatedWorld) {
    for (alarm, name) in MORE_ALARMS {
        world.add_device(alarm, name, SimulatedDevice::Alarm { on: false, subscribers: Default::default() });
    }
    world.add_device(LAMP_SWITCH, "Lamp", SimulatedDevice::Switch { on: false });
}
