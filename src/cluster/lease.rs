//! Pure: the lease under which a node has anything. It is renewed by conditional writes to a store, and it ends by the
//! node's own clock before another node may take it for ended. Times are since any start of the node's monotonic clock.

use std::time::Duration;

/// Clocks of two machines run apart by at most one part in this number: twice as fast as NTP sets a clock.
pub const DRIFT: u32 = 1_000;

/// Times of a lease, the same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Without a renewal that a node sees for so long, the lease of another has ended.
    pub lease: Duration,
    pub renew_every: Duration,
    /// The holder takes it for ended so much earlier.
    pub margin: Duration,
}

impl LeaseTimes {
    /// The times of nodes. After a renewal that was due and failed there are 5 s for others: servers of NATS that choose
    /// another leader take most of that. A node that died is replaced within 15 s: `docs/scale.md` adds up why. Nodes of two
    /// versions live side by side while they are upgraded: one with a shorter lease would take what another still has.
    pub const NODES: Self =
        Self { lease: Duration::from_secs(8), renew_every: Duration::from_secs(2), margin: Duration::from_secs(1) };

    /// For so long after the write that renewed it the holder has its lease.
    pub fn held_for(self) -> Duration {
        self.lease.saturating_sub(self.margin)
    }

    /// A node that saw no renewal for so long may take the lease of another for ended.
    pub fn passes_after(self) -> Duration {
        self.lease + self.lease / DRIFT
    }
}

/// A lease as its holder has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// Revision of the last write that is known to have succeeded; the next one has the condition that it is still the
    /// newest.
    pub revision: u64,
    sent_at: Duration,
}

impl HeldLease {
    /// Taken or renewed by a write of this revision, which was sent then. The time of its answer would be too late: others
    /// may have seen the write before.
    pub fn written(revision: u64, sent_at: Duration) -> Self {
        Self { revision, sent_at }
    }

    /// When the last write that succeeded was sent.
    pub fn sent_at(self) -> Duration {
        self.sent_at
    }

    /// From then on it is to be renewed.
    pub fn renew_at(self, times: LeaseTimes) -> Duration {
        self.sent_at + times.renew_every
    }

    /// From then on nothing may be done under it.
    pub fn ends_at(self, times: LeaseTimes) -> Duration {
        self.sent_at + times.held_for()
    }

    /// True until it ends.
    pub fn holds(self, times: LeaseTimes, now: Duration) -> bool {
        now < self.ends_at(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: LeaseTimes = LeaseTimes::NODES;

    fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_ends_a_margin_before_it_passes_and_leaves_room_for_attempts() {
        let lease = HeldLease::written(7, after(100));
        assert_eq!((lease.renew_at(TIMES), lease.ends_at(TIMES)), (after(102), after(107)));
        assert!(lease.holds(TIMES, after(107) - Duration::from_millis(1)) && !lease.holds(TIMES, after(107)));
        assert!(TIMES.passes_after() > TIMES.held_for() + TIMES.margin);
        assert!(TIMES.held_for() >= TIMES.renew_every + after(5), "a renewal that fails is tried again");
    }
}
