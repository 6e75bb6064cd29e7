//! How often a client may call: GCRA per client address and per user.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_web::{HttpRequest, http::header::HeaderName};
use governor::{
    Quota, RateLimiter,
    clock::Clock as _,
    middleware::{NoOpMiddleware, StateInformationMiddleware},
    nanos::Nanos,
    state::keyed::DashMapStateStore,
};

use crate::{
    api::error::{ApiError, LimitReport},
    clock::Clock,
    domain::{
        client_address::{TrustedProxies, household},
        ids::UserId,
        limits::{
            ALIASES_PER_USER, CAMERA_FRAMES_PER_USER, CHAT_LINES_PER_USER, EXPORTS_PER_USER, REQUESTS_PER_ADDRESS,
            REQUESTS_PER_USER, SIGN_IN_PER_ADDRESS, TOGGLES_PER_USER,
        },
        pairing::{Guess, GuessLimits, WRONG_PER_ADDRESS},
        time::Moment,
    },
    net::connections::forwarded_for,
};

const WINDOW: Duration = Duration::from_secs(60);
/// After so many requests the keys with a full budget are removed: it bounds how many there are between two sweeps.
const FORGET_AFTER: usize = 100_000;

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

/// One policy: so many requests per key at once, and as many per minute in the long run.
struct Policy<K: Clone + std::hash::Hash + Eq> {
    name: &'static str,
    quota: u32,
    clock: LimitClock,
    limiter: RateLimiter<K, DashMapStateStore<K>, LimitClock, StateInformationMiddleware>,
    taken: AtomicUsize,
}

impl<K: Clone + std::hash::Hash + Eq> Policy<K> {
    fn new(name: &'static str, quota: u32, clock: &Clock) -> Self {
        let per_minute = NonZeroU32::new(quota).expect("a quota is not zero");
        let clock = LimitClock(clock.clone());
        let quota_per_minute = Quota::per_minute(per_minute);
        let limiter = RateLimiter::<_, _, _, NoOpMiddleware<Nanos>>::new(
            quota_per_minute,
            DashMapStateStore::default(),
            clock.clone(),
        )
        .with_middleware();
        Self { name, quota, clock, limiter, taken: AtomicUsize::default() }
    }

    /// How many requests are left; an error when there was none.
    fn take(&self, key: &K) -> Result<u32, LimitReport> {
        if self.taken.fetch_add(1, Ordering::Relaxed) % FORGET_AFTER == FORGET_AFTER - 1 {
            self.forget_idle();
        }
        match self.limiter.check_key(key) {
            Ok(state) => Ok(state.remaining_burst_capacity()),
            Err(not_until) => Err(self.report(not_until.wait_time_from(self.clock.now()))),
        }
    }

    /// Removes keys whose budget is full again; governor never does so by itself.
    fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }

    fn report(&self, retry_after: Duration) -> LimitReport {
        LimitReport { policy: self.name, quota: self.quota, window: WINDOW, retry_after }
    }
}

/// What a client may try to guess; each has a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guessed {
    PairingCode,
    Invite,
    /// A code that links a chat account.
    ChatCode,
}

/// All policies of the API.
pub struct RateLimits {
    proxies: TrustedProxies,
    address: Policy<IpAddr>,
    /// Apart, so that nobody behind the same address can make the service look unready.
    probe: Policy<IpAddr>,
    sign_in: Policy<IpAddr>,
    user: Policy<UserId>,
    aliases: Policy<UserId>,
    codes: Mutex<GuessLimits>,
    invites: Mutex<GuessLimits>,
    chat_codes: Mutex<GuessLimits>,
    camera_frame: Policy<UserId>,
    chat_line: Policy<UserId>,
    toggle: Policy<UserId>,
    export: Policy<UserId>,
}

impl RateLimits {
    pub fn new(proxies: TrustedProxies, clock: &Clock) -> Self {
        Self {
            proxies,
            address: Policy::new("address", REQUESTS_PER_ADDRESS, clock),
            probe: Policy::new("probe", REQUESTS_PER_ADDRESS, clock),
            sign_in: Policy::new("sign-in", SIGN_IN_PER_ADDRESS, clock),
            user: Policy::new("user", REQUESTS_PER_USER, clock),
            aliases: Policy::new("aliases", ALIASES_PER_USER, clock),
            codes: Mutex::default(),
            invites: Mutex::default(),
            chat_codes: Mutex::default(),
            camera_frame: Policy::new("camera-frame", CAMERA_FRAMES_PER_USER, clock),
            chat_line: Policy::new("chat-line", CHAT_LINES_PER_USER, clock),
            toggle: Policy::new("toggle", TOGGLES_PER_USER, clock),
            export: Policy::new("export", EXPORTS_PER_USER, clock),
        }
    }

    /// One request to any route, those of operators apart; the one that costs nothing is free.
    pub fn take_address(&self, req: &HttpRequest) -> Result<(), ApiError> {
        let policy = match req.path() {
            "/health" => return Ok(()),
            "/health/db" | "/ready" | "/metrics" => &self.probe,
            _ => &self.address,
        };
        policy.take(&self.client_household(req)).map(|_| ()).map_err(ApiError::RateLimited)
    }

    /// One request to a sign-in route; the header fields that say how many are left.
    pub fn take_sign_in(&self, req: &HttpRequest) -> Result<[(HeaderName, String); 2], ApiError> {
        let remaining = self.sign_in.take(&self.client_household(req)).map_err(ApiError::RateLimited)?;
        Ok(self.sign_in.report(Duration::ZERO).headers(remaining))
    }

    /// One request of this user.
    pub fn take_user(&self, user: &UserId) -> Result<(), ApiError> {
        self.user.take(user).map(|_| ()).map_err(ApiError::RateLimited)
    }

    /// One export of what is stored about this user.
    pub fn take_export(&self, user: &UserId) -> Result<(), ApiError> {
        self.export.take(user).map(|_| ()).map_err(ApiError::RateLimited)
    }

    /// One question of this user for the aliases of a player.
    pub fn take_aliases(&self, user: &UserId) -> Result<(), ApiError> {
        self.aliases.take(user).map(|_| ()).map_err(ApiError::RateLimited)
    }

    fn guesses(&self, what: Guessed) -> MutexGuard<'_, GuessLimits> {
        let guesses = match what {
            Guessed::PairingCode => &self.codes,
            Guessed::Invite => &self.invites,
            Guessed::ChatCode => &self.chat_codes,
        };
        guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One camera frame of this user; the header fields that say how many are left.
    pub fn take_camera_frame(&self, user: &UserId) -> Result<[(HeaderName, String); 2], ApiError> {
        let remaining = self.camera_frame.take(user).map_err(ApiError::RateLimited)?;
        Ok(self.camera_frame.report(Duration::ZERO).headers(remaining))
    }

    /// One toggle of a smart switch by this user; the header fields that say how many are left.
    pub fn take_toggle(&self, user: &UserId) -> Result<[(HeaderName, String); 2], ApiError> {
        let remaining = self.toggle.take(user).map_err(ApiError::RateLimited)?;
        Ok(self.toggle.report(Duration::ZERO).headers(remaining))
    }

    /// One line of this user for a team's chat.
    pub fn take_chat_line(&self, user: &UserId) -> Result<(), ApiError> {
        self.chat_line.take(user).map(|_| ()).map_err(ApiError::RateLimited)
    }

    /// Pays for one guess, before it is looked up. An error: too many wrong ones from its address, or
    /// from all addresses together.
    pub fn begin_guess(&self, what: Guessed, req: &HttpRequest, now: Moment) -> Result<Guess, ApiError> {
        let address = self.client_household(req);
        self.guesses(what).begin(address, now).map_err(|retry_after| guess_refused(what, retry_after))
    }

    /// The guess was right, or could not be looked up.
    pub fn pay_back_guess(&self, what: Guessed, guess: Guess) {
        self.guesses(what).pay_back(guess);
    }

    /// Removes keys whose budget is full again.
    pub fn forget_idle(&self, now: Moment) {
        let guessed = [Guessed::PairingCode, Guessed::Invite, Guessed::ChatCode];
        guessed.into_iter().for_each(|what| self.guesses(what).forget_idle(now));
        [&self.address, &self.probe, &self.sign_in].into_iter().for_each(Policy::forget_idle);
        [&self.user, &self.camera_frame, &self.chat_line, &self.toggle, &self.aliases, &self.export]
            .into_iter()
            .for_each(Policy::forget_idle);
    }

    /// Whom the client shares a budget with. Over a Unix socket there is no address: all such clients share one budget.
    fn client_household(&self, req: &HttpRequest) -> IpAddr {
        let peer = req.peer_addr().map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |peer| peer.ip());
        household(self.proxies.client(peer, forwarded_for(req.headers())))
    }
}

/// The answer to a guess that is not looked up, or that was wrong while the global quota is spent.
pub fn guess_refused(what: Guessed, retry_after: Duration) -> ApiError {
    let policy = match what {
        Guessed::PairingCode => "pairing",
        Guessed::Invite => "invites",
        Guessed::ChatCode => "chat-codes",
    };
    let (quota, window) = (WRONG_PER_ADDRESS.burst, WRONG_PER_ADDRESS.every * WRONG_PER_ADDRESS.burst as i32);
    let window = window.to_std().unwrap_or_default();
    ApiError::RateLimited(LimitReport { policy, quota, window, retry_after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_comes_back_with_time() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let policy = Policy::new("test", 2, &clock);
        assert_eq!(policy.take(&1), Ok(1));
        assert_eq!(policy.take(&1), Ok(0));
        let refusal = policy.take(&1).unwrap_err();
        assert_eq!(refusal.retry_after, Duration::from_secs(30));
        assert_eq!(policy.take(&2), Ok(1), "another key has its own budget");
        clock.advance(chrono::Duration::seconds(30));
        assert_eq!(policy.take(&1), Ok(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_or_forth_changes_no_budget() {
        let clock = Clock::simulated("2026-11-21T12:00:00Z".parse().unwrap());
        let policy = Policy::new("test", 2, &clock);
        let mut guesses = GuessLimits::default();
        let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert!(policy.take(&1).is_ok() && policy.take(&1).is_ok());
        assert!((0..WRONG_PER_ADDRESS.burst).all(|_| guesses.begin(address, clock.moment()).is_ok()));
        for hours in [-1, 2, -24] {
            clock.advance(chrono::Duration::hours(hours));
            assert_eq!(policy.take(&1).unwrap_err().retry_after, Duration::from_secs(30));
            assert_eq!(guesses.begin(address, clock.moment()), Err(Duration::from_secs(120)));
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(policy.take(&1).is_ok() && guesses.begin(address, clock.moment()).is_ok());
    }

    #[test]
    fn keys_of_long_ago_are_forgotten_while_requests_keep_coming() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let policy = Policy::new("test", 60, &clock);
        for key in 0..FORGET_AFTER + 1 {
            policy.take(&key).unwrap();
            clock.advance(chrono::Duration::milliseconds(100));
        }
        assert!(policy.limiter.len() < 100, "{}", policy.limiter.len());
    }
}
