//! Alarms of a server that passes to another node.

use std::rc::Rc;

use tokio::time::{Duration, Instant, sleep};

use super::AlarmDelivery;
use crate::{db::alarms::incidents::LedgerWrite, domain::raid::handing_over::HandedRaid};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Shares while no alarm is on its way: those of the game connection, its timer, and the one who waits.
const SHARED_BY: usize = 3;

impl AlarmDelivery {
    /// Waits until no alarm is on its way into the ledger or to sockets, but no longer than this.
    pub async fn settled(self: Rc<Self>, within: Duration) {
        let until = Instant::now() + within;
        while Rc::strong_count(&self) > SHARED_BY && Instant::now() < until {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Facts that the ledger does not have. The values of alarms are stored now, as there is no later.
    pub fn hand_over(&self) -> Vec<HandedRaid> {
        let values = self.values.borrow_mut().take_all(self.context.clock.moment());
        let values = values.into_iter().map(|device| (device, true)).collect();
        self.ledger.write_later(LedgerWrite { values, ..Default::default() });
        self.raids.borrow().hand_over()
    }

    /// Takes in these facts, once the ledger has been read.
    pub fn take_over(&self, handed: Vec<HandedRaid>) {
        if self.known.get() {
            self.raids.borrow_mut().take_over(handed, self.context.clock.moment());
            self.changed.notify_one();
        } else {
            *self.handed.borrow_mut() = handed;
        }
    }
}
