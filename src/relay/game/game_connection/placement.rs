//! New devices whose place is not known yet: the game does not say where they are, but a player who pairs one is beside
//! it. Pure bookkeeping.

use chrono::TimeDelta;

use crate::{
    domain::time::Moment,
    relay::{game::commands::PlaceDevice, state::live_state::LiveState},
};

/// Time after the pairing within which the place of the player is believed to be that of the device. The team is asked
/// for every 5 s.
const AT_THAT_MOMENT: TimeDelta = TimeDelta::seconds(15);
/// Devices that wait; no one pairs more within that time.
const WAITING: usize = 32;

/// See the module.
#[derive(Default)]
pub struct Placement(Vec<UnplacedDevice>);

struct UnplacedDevice {
    device: String,
    /// SteamID64.
    player: u64,
    paired: Moment,
}

impl Placement {
    /// A device was paired. One that was pushed while we were away says nothing of where the player is now.
    pub fn add(&mut self, PlaceDevice { device, player, sent }: PlaceDevice, now: Moment) {
        let fresh = now.stamp - sent < AT_THAT_MOMENT && self.0.len() < WAITING;
        if let (true, Ok(player)) = (fresh, player.as_str().parse()) {
            self.0.push(UnplacedDevice { device, player, paired: now });
        }
    }

    /// Takes the devices whose player's place is known by now, with that place in metres from the south-west corner.
    pub fn take_placed(&mut self, live: &LiveState, now: Moment) -> Vec<(String, (f64, f64))> {
        self.0.retain(|unplaced| now - unplaced.paired < AT_THAT_MOMENT);
        let place = |unplaced: &UnplacedDevice| live.member_place(unplaced.player, now, AT_THAT_MOMENT);
        let placed = self.0.extract_if(.., |unplaced| place(unplaced).is_some());
        placed.filter_map(|unplaced| place(&unplaced).map(|place| (unplaced.device, place))).collect()
    }
}
