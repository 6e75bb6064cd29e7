//! The time of day, as an argument that tests can set.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{Duration, SubsecRound, TimeDelta, Utc};
use tokio::time::Instant;

use crate::domain::time::{Moment, Timestamp};

/// The system's clock, one that only moves when it is advanced, or one that follows tokio's time. Clones share the time.
///
/// It labels; durations are measured with [`tokio::time::Instant`], and the two are never compared.
#[derive(Clone, Debug)]
pub struct Clock(ClockKind);

#[derive(Clone, Debug)]
enum ClockKind {
    /// Since when the steady clock runs.
    System(Instant),
    Adjustable(Arc<Mutex<Timestamp>>),
    /// The time at an instant.
    Simulated(Arc<Mutex<(Timestamp, Instant)>>),
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(ClockKind::System(Instant::now()))
    }

    /// A clock at `start` that only moves when advanced: for tests and the demo.
    pub fn adjustable(start: Timestamp) -> Self {
        Self(ClockKind::Adjustable(Arc::new(Mutex::new(start))))
    }

    /// A clock that begins at `start` and follows tokio's time, which may be virtual; advancing it makes it jump.
    pub fn simulated(start: Timestamp) -> Self {
        Self(ClockKind::Simulated(Arc::new(Mutex::new((start, Instant::now())))))
    }

    /// Now, cut to microseconds: what is stored is then equal to what is read back.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
    pub fn now(&self) -> Timestamp {
        let now = match &self.0 {
            ClockKind::System(_) => Utc::now(),
            ClockKind::Adjustable(adjusted) => *lock(adjusted),
            ClockKind::Simulated(simulated) => {
                let (start, origin) = *lock(simulated);
                start + origin.elapsed()
            }
        };
        now.trunc_subsecs(6)
    }

    /// Now, also on a clock that is never set. An adjustable clock is both, as a test advances it.
    pub fn moment(&self) -> Moment {
        let now = self.now();
        let since = |start: Instant| TimeDelta::from_std(start.elapsed()).unwrap_or(TimeDelta::MAX);
        match &self.0 {
            ClockKind::System(start) => Moment::new(since(*start), now),
            ClockKind::Adjustable(_) => now.into(),
            ClockKind::Simulated(simulated) => Moment::new(since(lock(simulated).1), now),
        }
    }

    /// Moves the time, also back. The system's clock goes its own way and is left alone.
    pub fn advance(&self, by: Duration) {
        match &self.0 {
            ClockKind::System(_) => {}
            ClockKind::Adjustable(adjusted) => *lock(adjusted) += by,
            ClockKind::Simulated(simulated) => lock(simulated).0 += by,
        }
    }
}

fn lock<T>(time: &Mutex<T>) -> MutexGuard<'_, T> {
    time.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjustable_clock_moves_when_advanced_and_its_clones_with_it() {
        let start = chrono::DateTime::from_timestamp(1_800_000_000, 123_456_789).unwrap();
        let clock = Clock::adjustable(start);
        let clone = clock.clone();
        assert_eq!(clock.now().timestamp_subsec_nanos(), 123_456_000);
        clock.advance(Duration::seconds(5));
        assert_eq!(clone.now().timestamp(), 1_800_000_005);
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_follows_virtual_time_and_may_jump_back() {
        let clock = Clock::simulated(chrono::DateTime::from_timestamp(1_800_000_000, 0).unwrap());
        tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
        assert_eq!(clock.now().timestamp(), 1_800_003_600);
        clock.advance(Duration::seconds(-600));
        assert_eq!(clock.clone().now().timestamp(), 1_800_003_000);
    }
}
