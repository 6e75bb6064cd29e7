//! Age of what is known of a game server, readable from every thread.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use crate::domain::time::Timestamp;

/// When a game server last said something, in milliseconds since 1970; 0 before it has. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LastHeard(Arc<AtomicI64>);

impl LastHeard {
    /// Records that the game server said something at `now`.
    pub fn note(&self, now: Timestamp) {
        self.0.store(now.timestamp_millis(), Ordering::Relaxed);
    }

    /// Seconds since then; none before.
    pub fn age(&self, now: Timestamp) -> Option<f64> {
        let heard = Some(self.0.load(Ordering::Relaxed)).filter(|heard| *heard > 0)?;
        Some((now.timestamp_millis() - heard).max(0) as f64 / 1_000.0)
    }
}
