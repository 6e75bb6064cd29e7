//! Logins of all sessions of this process: a lost network sends them back together, and they must not look like an
//! attack, nor keep threads and database from other work.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Logins under way at once, each over within its deadlines. Each writes to the database, where alarms must not wait
/// long behind them.
const AT_ONCE: usize = 50;
/// Part of the spread for each session.
const EACH: Duration = Duration::from_millis(10);
/// Longest spread, however many sessions: an alarm that waits for its session is late.
const LONGEST_SPREAD: Duration = Duration::from_secs(60);

/// Shared by all sessions.
pub struct LoginPacer {
    turns: Semaphore,
    sessions: AtomicUsize,
}

impl Default for LoginPacer {
    fn default() -> Self {
        Self { turns: Semaphore::new(AT_ONCE), sessions: AtomicUsize::new(0) }
    }
}

impl LoginPacer {
    /// Waits until one more login may begin; it lasts until the permit is dropped. First come, first served.
    pub async fn take(&self) -> SemaphorePermit<'_> {
        self.turns.acquire().await.expect("it is never closed")
    }

    /// Sets the number of sessions that may have to log in at once.
    pub fn set_sessions(&self, sessions: usize) {
        self.sessions.store(sessions, Ordering::Relaxed);
    }

    /// Delay before a session logs in again, from two random bytes.
    pub fn delay(&self, random: [u8; 2]) -> Duration {
        let part = f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX);
        spread(self.sessions.load(Ordering::Relaxed)).mul_f64(part)
    }
}

/// The time over which the logins of this many sessions are spread.
pub fn spread(sessions: usize) -> Duration {
    EACH.saturating_mul(u32::try_from(sessions).unwrap_or(u32::MAX)).min(LONGEST_SPREAD)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn sessions_that_return_together_are_spread_and_back_within_a_minute() {
        let (least, middle, most) = ([0, 0], [0, 0x80], [0xff, 0xff]);
        let turns = LoginPacer::default();
        for (sessions, seconds) in [(1, 0.01), (500, 5.0), (20_000, 60.0), (usize::MAX, 60.0)] {
            turns.set_sessions(sessions);
            let delays = [least, middle, most].map(|random| turns.delay(random).as_secs_f64());
            assert_eq!((delays[0], delays[2]), (0.0, seconds));
            assert!((delays[1] / seconds - 0.5).abs() < 0.01, "{delays:?}");
        }
    }

    #[test]
    fn a_login_waits_for_its_turn() {
        let turns = LoginPacer::default();
        let mut under_way: Vec<_> = (0..AT_ONCE).map(|_| turns.take().now_or_never().expect("a turn")).collect();
        let mut next = Box::pin(turns.take());
        assert!(next.as_mut().now_or_never().is_none());
        under_way.pop();
        assert!(next.now_or_never().is_some());
    }
}
