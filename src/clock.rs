//! The time of day, as an argument that tests can set.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{Duration, SubsecRound, TimeDelta, Utc};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::domain::time::{Moment, Timestamp};

/// The system's clock, one that only moves when it is advanced, or one that follows tokio's time. Clones share the time.
///
/// Its times are labels; durations are measured with [`tokio::time::Instant`], and the two are never compared.
#[derive(Clone, Debug)]
pub struct Clock(ClockKind);

#[derive(Clone, Debug)]
enum ClockKind {
    /// Since when the steady clock runs.
    System(Instant),
    Adjustable(Arc<Movable<Timestamp>>),
    /// The time at an instant.
    Simulated(Arc<Movable<(Timestamp, Instant)>>),
}

#[derive(Debug)]
struct Movable<T> {
    time: Mutex<T>,
    moved: Notify,
}

impl<T> Movable<T> {
    fn new(time: T) -> Arc<Self> {
        Arc::new(Self { time: Mutex::new(time), moved: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.moved.notify_waiters();
    }
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(ClockKind::System(Instant::now()))
    }

    /// A clock at `start` that only moves when advanced: for tests and the demo.
    pub fn adjustable(start: Timestamp) -> Self {
        Self(ClockKind::Adjustable(Movable::new(start)))
    }

    /// A clock that begins at `start` and follows tokio's time, which may be virtual; advancing it makes it jump.
    pub fn simulated(start: Timestamp) -> Self {
        Self(ClockKind::Simulated(Movable::new((start, Instant::now()))))
    }

    /// Now, cut to microseconds: what is stored is then equal to what is read back.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
    pub fn now(&self) -> Timestamp {
        let now = match &self.0 {
            ClockKind::System(_) => Utc::now().into(),
            ClockKind::Adjustable(adjusted) => *adjusted.lock(),
            ClockKind::Simulated(simulated) => {
                let (start, origin) = *simulated.lock();
                start + origin.elapsed()
            }
        };
        now.trunc_subsecs(6).into()
    }

    /// Now, also on a clock that is never set. An adjustable clock is both, as a test advances it.
    pub fn moment(&self) -> Moment {
        let now = self.now();
        let since = |start: Instant| TimeDelta::from_std(start.elapsed()).unwrap_or(TimeDelta::MAX);
        match &self.0 {
            ClockKind::System(start) => Moment::new(since(*start), now),
            ClockKind::Adjustable(_) => now.into(),
            ClockKind::Simulated(simulated) => Moment::new(since(simulated.lock().1), now),
        }
    }

    /// Moves the time, also back. The system's clock goes its own way and is left alone.
    pub fn advance(&self, by: Duration) {
        match &self.0 {
            ClockKind::System(_) => {}
            ClockKind::Adjustable(adjusted) => adjusted.change(|time| *time += by),
            ClockKind::Simulated(simulated) => simulated.change(|(start, _)| *start += by),
        }
    }

    /// Waits until this moment, or until the clock is advanced: the caller looks again what is due.
    pub async fn reach(&self, at: Moment) {
        let left = || (at - self.moment()).to_std().unwrap_or_default();
        let (moved, follows) = match &self.0 {
            ClockKind::System(_) => return sleep(left()).await,
            ClockKind::Adjustable(adjusted) => (adjusted.moved.notified(), false),
            ClockKind::Simulated(simulated) => (simulated.moved.notified(), true),
        };
        // In a box: links wait on the system's clock, and have no room for this.
        let reached = async move {
            let mut moved = pin!(moved);
            // Before the look at the time, so that no advance is missed.
            moved.as_mut().enable();
            let left = left();
            tokio::select! {
                () = moved => {}
                () = sleep(left), if follows || left.is_zero() => {}
            }
        };
        Box::pin(reached).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjustable_clock_moves_when_advanced_and_its_clones_with_it() {
        let start = Timestamp::from_timestamp(1_800_000_000, 123_456_789).unwrap();
        let clock = Clock::adjustable(start);
        let clone = clock.clone();
        assert_eq!(clock.now().timestamp_subsec_nanos(), 123_456_000);
        clock.advance(Duration::seconds(5));
        assert_eq!(clone.now().timestamp(), 1_800_000_005);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_is_set_back_is_noticed_and_one_that_runs_is_not() {
        let clock = Clock::simulated(Timestamp::from_timestamp(1_800_000_000, 0).unwrap());
        let seen = clock.moment();
        sleep(std::time::Duration::from_secs(60)).await;
        assert_eq!(clock.moment().set_back_since(seen), TimeDelta::zero());
        clock.advance(Duration::seconds(-90));
        assert_eq!(clock.moment().set_back_since(seen), TimeDelta::seconds(90));
        clock.advance(Duration::seconds(120));
        assert_eq!(clock.moment().set_back_since(seen), TimeDelta::seconds(-30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_reached_in_time_and_an_advance_ends_the_wait() {
        let start = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();
        for clock in [Clock::system(), Clock::simulated(start)] {
            let (due, began) = (clock.moment() + TimeDelta::seconds(90), Instant::now());
            clock.reach(due).await;
            assert_eq!(began.elapsed().as_secs(), 90);
            clock.reach(due).await;
            assert_eq!(began.elapsed().as_secs(), 90, "it is over");
        }
        for clock in [Clock::adjustable(start), Clock::simulated(start)] {
            let (due, began) = (clock.moment() + TimeDelta::days(1), Instant::now());
            let advance = async { clock.advance(Duration::seconds(5)) };
            tokio::join!(clock.reach(due), advance);
            assert_eq!(began.elapsed().as_secs(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_follows_virtual_time_and_may_jump_back() {
        let clock = Clock::simulated(Timestamp::from_timestamp(1_800_000_000, 0).unwrap());
        tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
        assert_eq!(clock.now().timestamp(), 1_800_003_600);
        clock.advance(Duration::seconds(-600));
        assert_eq!(clock.clone().now().timestamp(), 1_800_003_000);
    }
}
