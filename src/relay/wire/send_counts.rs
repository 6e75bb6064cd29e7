//! Counts of what the sockets of one worker thread send.
//!
//! Only that thread writes, so that counting is a load and a store: no lock, no locked instruction, no text. A reader
//! adds the threads up.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::relay::wire::publication::Lane;

/// A count that one thread writes.
#[derive(Debug, Default)]
pub struct OwnCount(AtomicU64);

impl OwnCount {
    /// Adds `more` to the count.
    pub fn add(&self, more: usize) {
        self.0.store(self.get().wrapping_add(more as u64), Ordering::Relaxed);
    }

    /// Takes `fewer` off the count.
    pub fn remove(&self, fewer: usize) {
        self.0.store(self.get().wrapping_sub(fewer as u64), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the module. Aligned, so that no two threads write to one line of the cache.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SendCounts {
    /// Raid, event, chat, reply, as [`Lane`] numbers them.
    frames: [OwnCount; 4],
    waiting: [OwnCount; 4],
    pub snapshots: OwnCount,
    pub patches: OwnCount,
    /// The `patches` that are several in one.
    pub merged_patches: OwnCount,
    /// Bytes that the kernel took, of frames of every kind.
    pub bytes: OwnCount,
    /// Watched servers, once for each socket.
    pub subscriptions: OwnCount,
}

impl SendCounts {
    /// Frames of this lane, which is not that of the state.
    pub fn frames(&self, lane: Lane) -> &OwnCount {
        &self.frames[lane as usize]
    }

    /// Messages that wait in this lane, which is not that of the state.
    pub fn waiting(&self, lane: Lane) -> &OwnCount {
        &self.waiting[lane as usize]
    }
}

/// The counts of each thread that sends.
#[derive(Debug, Default)]
pub struct ThreadCounts(Mutex<Vec<Arc<SendCounts>>>);

/// All threads together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendTotals {
    /// Frames that were sent, by kind.
    pub frames: [(&'static str, u64); 6],
    pub merged_patches: u64,
    pub bytes: u64,
    pub subscriptions: u64,
    /// Messages that wait, by lane.
    pub waiting: [(&'static str, u64); 4],
}

impl ThreadCounts {
    /// The counts of one more thread.
    pub fn of_new_thread(&self) -> Arc<SendCounts> {
        let counts = Arc::<SendCounts>::default();
        self.lock().push(counts.clone());
        counts
    }

    /// All threads together.
    pub fn totals(&self) -> SendTotals {
        let threads = self.lock().clone();
        let sum = |of: &dyn Fn(&SendCounts) -> &OwnCount| {
            threads.iter().fold(0_u64, |sum, thread| sum.wrapping_add(of(thread).get()))
        };
        let lanes = [("raid", Lane::Raid), ("event", Lane::Event), ("chat", Lane::Chat), ("reply", Lane::Reply)];
        let [raid, event, chat, reply] = lanes.map(|(name, lane)| (name, sum(&|counts| counts.frames(lane))));
        let snapshots = ("snapshot", sum(&|counts| &counts.snapshots));
        let patches = ("patch", sum(&|counts| &counts.patches));
        SendTotals {
            frames: [raid, event, chat, reply, snapshots, patches],
            merged_patches: sum(&|counts| &counts.merged_patches),
            bytes: sum(&|counts| &counts.bytes),
            subscriptions: sum(&|counts| &counts.subscriptions),
            waiting: lanes.map(|(name, lane)| (name, sum(&|counts| counts.waiting(lane)))),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<SendCounts>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_added_up() {
        let all = ThreadCounts::default();
        let [one, other] = [all.of_new_thread(), all.of_new_thread()];
        one.frames(Lane::Chat).add(3);
        other.frames(Lane::Chat).add(4);
        one.waiting(Lane::Raid).add(2);
        one.waiting(Lane::Raid).remove(1);
        other.bytes.add(10);
        let totals = all.totals();
        assert_eq!(totals.frames[2], ("chat", 7));
        assert_eq!((totals.waiting[0], totals.bytes), (("raid", 1), 10));
    }
}
