//! Budgets of requests: GCRA, one for each key of a class.

use std::{
    hash::Hash,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::Clock as _,
    middleware::{NoOpMiddleware, StateInformationMiddleware},
    nanos::Nanos,
    state::keyed::DashMapStateStore,
};

use crate::{
    clock::Clock,
    domain::{ids::UserId, limits::TOGGLES_PER_USER},
};

const WINDOW: Duration = Duration::from_secs(60);
/// After this many requests the keys with a full budget are removed: it bounds how many there are between two sweeps.
const FORGET_AFTER: usize = 100_000;

/// The owner of a budget: requests of one are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKey {
    /// A client address; an IPv6 /64 is one.
    Address,
    User,
    /// An API token.
    Token,
}

/// A class of requests with a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitClass {
    /// As `RateLimit-Policy` names it.
    pub name: &'static str,
    pub key: LimitKey,
    /// At once.
    pub burst: u32,
    /// In which a spent budget is full again.
    pub window: Duration,
}

/// A class whose budget is full again in a minute.
pub const fn per_minute(name: &'static str, key: LimitKey, burst: u32) -> LimitClass {
    LimitClass { name, key, burst, window: WINDOW }
}

/// Toggles of smart switches.
pub const TOGGLE: LimitClass = per_minute("toggle", LimitKey::User, TOGGLES_PER_USER);

/// The budgets of toggles, shared by the API and all threads of the relay.
pub type ToggleBudgets = Arc<RequestBudgets<UserId>>;

/// A rate limit as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReport {
    pub policy: &'static str,
    /// Requests per `window`.
    pub quota: u32,
    pub window: Duration,
    /// Requests that are left now.
    pub remaining: u32,
    /// Until the budget is full again; for a refusal, until there is one more.
    pub reset: Duration,
}

impl LimitReport {
    /// An item of `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
    pub fn policy_item(&self) -> String {
        let Self { policy, quota, window, .. } = self;
        format!("\"{policy}\";q={quota};w={}", window.as_secs())
    }

    /// An item of `RateLimit`.
    pub fn item(&self) -> String {
        let Self { policy, remaining, reset, .. } = self;
        format!("\"{policy}\";r={remaining};t={}", whole_seconds(*reset))
    }
}

/// Rounded up, so that a client that waits this long has waited long enough.
pub fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The steady clock of the service, as governor reads it: the time of day may be set back.
#[derive(Clone)]
struct LimitClock(Clock);

impl governor::clock::Clock for LimitClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        let since_start = self.0.moment().steady().num_nanoseconds().unwrap_or(0);
        Nanos::new(u64::try_from(since_start).unwrap_or(0))
    }
}

/// The budgets of one class.
pub struct RequestBudgets<K: Clone + Hash + Eq> {
    pub class: LimitClass,
    clock: LimitClock,
    limiter: RateLimiter<K, DashMapStateStore<K>, LimitClock, StateInformationMiddleware>,
    taken: AtomicUsize,
}

impl<K: Clone + Hash + Eq> RequestBudgets<K> {
    /// Budgets of a class.
    pub fn new(class: LimitClass, clock: &Clock) -> Self {
        let burst = NonZeroU32::new(class.burst).expect("a quota is not zero");
        let quota = Quota::with_period(class.window / class.burst).expect("a window is not zero").allow_burst(burst);
        let clock = LimitClock(clock.clone());
        let limiter =
            RateLimiter::<_, _, _, NoOpMiddleware<Nanos>>::new(quota, DashMapStateStore::default(), clock.clone())
                .with_middleware();
        Self { class, clock, limiter, taken: AtomicUsize::default() }
    }

    /// The requests left after this one; an error when there was nothing.
    pub fn take(&self, key: &K) -> Result<LimitReport, LimitReport> {
        self.take_many(key, NonZeroU32::MIN)
    }

    /// As [`take`](Self::take), for `count` requests at once: all of them, or nothing. More than the class has at once are
    /// never allowed.
    pub fn take_many(&self, key: &K, count: NonZeroU32) -> Result<LimitReport, LimitReport> {
        if self.taken.fetch_add(1, Ordering::Relaxed) % FORGET_AFTER == FORGET_AFTER - 1 {
            self.forget_idle();
        }
        let Ok(checked) = self.limiter.check_key_n(key, count) else {
            return Err(self.class.report(0, self.class.window));
        };
        match checked {
            Ok(state) => {
                let remaining = state.remaining_burst_capacity();
                let spent = self.class.burst.saturating_sub(remaining);
                Ok(self.class.report(remaining, self.class.window * spent / self.class.burst))
            }
            Err(not_until) => Err(self.class.report(0, not_until.wait_time_from(self.clock.now()))),
        }
    }

    /// Removes keys whose budget is full again; governor never does so by itself.
    pub fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

impl LimitClass {
    /// The report of this many left; `reset` as in [`LimitReport`].
    pub fn report(&self, remaining: u32, reset: Duration) -> LimitReport {
        LimitReport { policy: self.name, quota: self.burst, window: self.window, remaining, reset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_comes_back_with_time() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let policy = RequestBudgets::new(per_minute("test", LimitKey::User, 2), &clock);
        let left = |key| policy.take(&key).map(|left| (left.remaining, left.reset.as_secs()));
        assert_eq!(left(1), Ok((1, 30)));
        assert_eq!(left(1), Ok((0, 60)));
        let refusal = policy.take(&1).unwrap_err();
        assert_eq!(refusal.reset, Duration::from_secs(30));
        assert_eq!(left(2), Ok((1, 30)), "another key has its own budget");
        clock.advance(chrono::Duration::seconds(30));
        assert_eq!(left(1), Ok((0, 60)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_or_forth_changes_no_budget() {
        let clock = Clock::simulated("2026-11-21T12:00:00Z".parse().unwrap());
        let policy = RequestBudgets::new(per_minute("test", LimitKey::User, 2), &clock);
        assert!(policy.take(&1).is_ok() && policy.take(&1).is_ok());
        for hours in [-1, 2, -24] {
            clock.advance(chrono::Duration::hours(hours));
            assert_eq!(policy.take(&1).unwrap_err().reset, Duration::from_secs(30));
        }
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(policy.take(&1).is_ok());
    }

    #[test]
    fn keys_of_long_ago_are_forgotten_while_requests_keep_coming() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let policy = RequestBudgets::new(per_minute("test", LimitKey::User, 60), &clock);
        for key in 0..FORGET_AFTER + 1 {
            policy.take(&key).unwrap();
            clock.advance(chrono::Duration::milliseconds(100));
        }
        assert!(policy.limiter.len() < 100, "{}", policy.limiter.len());
    }
}
