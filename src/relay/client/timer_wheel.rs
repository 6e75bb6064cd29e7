//! Timer wheel of the sockets of one thread: their numbers, by the tick at which they are served. Pure.
//!
//! Times are rounded up to a tick, so that many sockets are served together, after one wait.

use std::collections::BTreeMap;

use crate::relay::client::frame_budget::Millis;

/// Turns are moved by less than this. Small beside the pace of patches.
const TICK: Millis = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct TimerWheel {
    sockets: BTreeMap<Millis, Vec<u32>>,
}

impl TimerWheel {
    /// Tick of a socket that wants to be served at this time.
    pub fn tick(at: Millis) -> Millis {
        at.next_multiple_of(TICK)
    }

    /// Adds a socket at its tick. True if it is now the first of all.
    pub fn add(&mut self, tick: Millis, socket: u32) -> bool {
        let earlier = self.first().is_none_or(|first| tick < first);
        self.sockets.entry(tick).or_default().push(socket);
        earlier
    }

    /// The earliest tick.
    pub fn first(&self) -> Option<Millis> {
        self.sockets.keys().next().copied()
    }

    /// Removes and returns the sockets of the earliest tick, if its time has come.
    pub fn take_due(&mut self, now: Millis) -> Option<Vec<u32>> {
        let first = self.sockets.first_entry().filter(|first| *first.key() <= now)?;
        Some(first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_served_together_and_never_early() {
        let mut wheel = TimerWheel::default();
        assert!(wheel.add(TimerWheel::tick(1), 1));
        assert!(!wheel.add(TimerWheel::tick(TICK), 2), "it is not earlier");
        assert!(!wheel.add(TimerWheel::tick(TICK + 1), 3));
        assert_eq!(wheel.first(), Some(TICK));
        assert_eq!(wheel.take_due(TICK - 1), None);
        assert_eq!(wheel.take_due(TICK), Some(vec![1, 2]));
        assert_eq!(wheel.take_due(TICK), None);
        assert_eq!(wheel.take_due(Millis::MAX), Some(vec![3]));
        assert_eq!(wheel.first(), None);
    }
}
