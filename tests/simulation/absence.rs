//! A time in the healthy minutes in which no client is there: an alarm goes off meanwhile, and they come back with the state
//! that they had. They have heard of it then.

use std::time::Duration;

use tokio::time::sleep;

use crate::{oracle, random::Stream, run::Run, world::ROOF_ALARM};

/// When all clients leave; the alarm that goes off then is over before it goes on again.
pub const ALL_LEAVE: u64 = 365_000;
/// Seeds in a hundred in which they do.
const THEY_LEAVE: u64 = 40;
/// Shorter than any client stays away.
const RINGS_AFTER: Duration = Duration::from_millis(300);
const RINGS_FOR: Duration = Duration::from_secs(4);

impl Run {
    /// Every client leaves for a moment, in which an alarm goes off.
    pub fn leave_all(&self) {
        if !Stream::of(self.world.seed, "absence").chance(THEY_LEAVE) {
            return;
        }
        self.lossy();
        for client in self.dashboards.iter().chain(&self.overlays) {
            if let Some(wire) = client.open_wire() {
                client.comes_back.set(true);
                wire.cut();
            }
        }
        tokio::task::spawn_local(async {
            sleep(RINGS_AFTER).await;
            oracle::change_all(|world| world.fire_alarm(ROOF_ALARM));
            sleep(RINGS_FOR).await;
            oracle::change_all(|world| world.release_alarm(ROOF_ALARM));
        });
    }
}
