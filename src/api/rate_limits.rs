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

use actix_web::HttpRequest;
use governor::{
    Quota, RateLimiter,
    clock::Clock as _,
    middleware::{NoOpMiddleware, StateInformationMiddleware},
    nanos::Nanos,
    state::keyed::DashMapStateStore,
};

use crate::{
    api::{
        error::{ApiError, LimitReport},
        request_notes::RequestNotes,
    },
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

/// Whose requests are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKey {
    /// A client address; an IPv6 /64 is one.
    Address,
    User,
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

const fn per_minute(name: &'static str, key: LimitKey, burst: u32) -> LimitClass {
    LimitClass { name, key, burst, window: WINDOW }
}

const fn wrong_guesses(name: &'static str) -> LimitClass {
    let seconds = WRONG_PER_ADDRESS.every.num_seconds() as u64 * WRONG_PER_ADDRESS.burst as u64;
    LimitClass { name, key: LimitKey::Address, burst: WRONG_PER_ADDRESS.burst, window: Duration::from_secs(seconds) }
}

const ADDRESS: LimitClass = per_minute("address", LimitKey::Address, REQUESTS_PER_ADDRESS);
const PROBE: LimitClass = per_minute("probe", LimitKey::Address, REQUESTS_PER_ADDRESS);
const SIGN_IN: LimitClass = per_minute("sign-in", LimitKey::Address, SIGN_IN_PER_ADDRESS);
const USER: LimitClass = per_minute("user", LimitKey::User, REQUESTS_PER_USER);
const ALIASES: LimitClass = per_minute("aliases", LimitKey::User, ALIASES_PER_USER);
const CAMERA_FRAME: LimitClass = per_minute("camera-frame", LimitKey::User, CAMERA_FRAMES_PER_USER);
const CHAT_LINE: LimitClass = per_minute("chat-line", LimitKey::User, CHAT_LINES_PER_USER);
const TOGGLE: LimitClass = per_minute("toggle", LimitKey::User, TOGGLES_PER_USER);
const EXPORT: LimitClass = per_minute("export", LimitKey::User, EXPORTS_PER_USER);
const PAIRING: LimitClass = wrong_guesses("pairing");
const INVITES: LimitClass = wrong_guesses("invites");
const CHAT_CODES: LimitClass = wrong_guesses("chat-codes");

/// Every class; the README has the same table.
pub const CLASSES: [LimitClass; 12] =
    [ADDRESS, PROBE, SIGN_IN, USER, ALIASES, CAMERA_FRAME, CHAT_LINE, TOGGLE, EXPORT, PAIRING, INVITES, CHAT_CODES];

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
struct Policy<K: Clone + std::hash::Hash + Eq> {
    class: LimitClass,
    clock: LimitClock,
    limiter: RateLimiter<K, DashMapStateStore<K>, LimitClock, StateInformationMiddleware>,
    taken: AtomicUsize,
}

impl<K: Clone + std::hash::Hash + Eq> Policy<K> {
    /// Of a class per minute.
    fn new(class: LimitClass, clock: &Clock) -> Self {
        let per_minute = NonZeroU32::new(class.burst).expect("a quota is not zero");
        let clock = LimitClock(clock.clone());
        let quota_per_minute = Quota::per_minute(per_minute);
        let limiter = RateLimiter::<_, _, _, NoOpMiddleware<Nanos>>::new(
            quota_per_minute,
            DashMapStateStore::default(),
            clock.clone(),
        )
        .with_middleware();
        Self { class, clock, limiter, taken: AtomicUsize::default() }
    }

    /// What is left after this request; an error when there was nothing.
    fn take(&self, key: &K) -> Result<LimitReport, LimitReport> {
        if self.taken.fetch_add(1, Ordering::Relaxed) % FORGET_AFTER == FORGET_AFTER - 1 {
            self.forget_idle();
        }
        match self.limiter.check_key(key) {
            Ok(state) => {
                let remaining = state.remaining_burst_capacity();
                let spent = self.class.burst.saturating_sub(remaining);
                Ok(self.class.report(remaining, self.class.window * spent / self.class.burst))
            }
            Err(not_until) => Err(self.class.report(0, not_until.wait_time_from(self.clock.now()))),
        }
    }

    /// The same, noted for the answer's header fields.
    fn take_noted(&self, notes: &RequestNotes, key: &K) -> Result<(), ApiError> {
        let left = self.take(key).map_err(ApiError::RateLimited)?;
        notes.limits.borrow_mut().push(left);
        Ok(())
    }

    /// Removes keys whose budget is full again; governor never does so by itself.
    fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

impl LimitClass {
    fn report(&self, remaining: u32, reset: Duration) -> LimitReport {
        LimitReport { policy: self.name, quota: self.burst, window: self.window, remaining, reset }
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
            address: Policy::new(ADDRESS, clock),
            probe: Policy::new(PROBE, clock),
            sign_in: Policy::new(SIGN_IN, clock),
            user: Policy::new(USER, clock),
            aliases: Policy::new(ALIASES, clock),
            codes: Mutex::default(),
            invites: Mutex::default(),
            chat_codes: Mutex::default(),
            camera_frame: Policy::new(CAMERA_FRAME, clock),
            chat_line: Policy::new(CHAT_LINE, clock),
            toggle: Policy::new(TOGGLE, clock),
            export: Policy::new(EXPORT, clock),
        }
    }

    /// One request to any route, those of operators apart; the one that costs nothing is free.
    pub fn take_address(&self, req: &HttpRequest) -> Result<(), ApiError> {
        let policy = match req.path() {
            "/health" => return Ok(()),
            "/health/db" | "/ready" | "/status" | "/metrics" => &self.probe,
            _ => &self.address,
        };
        policy.take_noted(&RequestNotes::of(req), &self.client_household(req))
    }

    /// One request to a sign-in route.
    pub fn take_sign_in(&self, req: &HttpRequest) -> Result<(), ApiError> {
        self.sign_in.take_noted(&RequestNotes::of(req), &self.client_household(req))
    }

    /// One request of this user.
    pub fn take_user(&self, notes: &RequestNotes, user: &UserId) -> Result<(), ApiError> {
        self.user.take_noted(notes, user)
    }

    /// One export of what is stored about this user.
    pub fn take_export(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        self.export.take_noted(&RequestNotes::of(req), user)
    }

    /// One question of this user for the aliases of a player.
    pub fn take_aliases(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        self.aliases.take_noted(&RequestNotes::of(req), user)
    }

    /// One camera frame of this user.
    pub fn take_camera_frame(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        self.camera_frame.take_noted(&RequestNotes::of(req), user)
    }

    /// One toggle of a smart switch by this user.
    pub fn take_toggle(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        self.toggle.take_noted(&RequestNotes::of(req), user)
    }

    /// One line of this user for a team's chat.
    pub fn take_chat_line(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        self.chat_line.take_noted(&RequestNotes::of(req), user)
    }

    fn guesses(&self, what: Guessed) -> MutexGuard<'_, GuessLimits> {
        let guesses = match what {
            Guessed::PairingCode => &self.codes,
            Guessed::Invite => &self.invites,
            Guessed::ChatCode => &self.chat_codes,
        };
        guesses.lock().unwrap_or_else(PoisonError::into_inner)
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
    let class = match what {
        Guessed::PairingCode => PAIRING,
        Guessed::Invite => INVITES,
        Guessed::ChatCode => CHAT_CODES,
    };
    ApiError::RateLimited(class.report(0, retry_after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_comes_back_with_time() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let policy = Policy::new(per_minute("test", LimitKey::User, 2), &clock);
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
        let policy = Policy::new(per_minute("test", LimitKey::User, 2), &clock);
        let mut guesses = GuessLimits::default();
        let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert!(policy.take(&1).is_ok() && policy.take(&1).is_ok());
        assert!((0..WRONG_PER_ADDRESS.burst).all(|_| guesses.begin(address, clock.moment()).is_ok()));
        for hours in [-1, 2, -24] {
            clock.advance(chrono::Duration::hours(hours));
            assert_eq!(policy.take(&1).unwrap_err().reset, Duration::from_secs(30));
            assert_eq!(guesses.begin(address, clock.moment()), Err(Duration::from_secs(120)));
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(policy.take(&1).is_ok() && guesses.begin(address, clock.moment()).is_ok());
    }

    #[test]
    fn keys_of_long_ago_are_forgotten_while_requests_keep_coming() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let policy = Policy::new(per_minute("test", LimitKey::User, 60), &clock);
        for key in 0..FORGET_AFTER + 1 {
            policy.take(&key).unwrap();
            clock.advance(chrono::Duration::milliseconds(100));
        }
        assert!(policy.limiter.len() < 100, "{}", policy.limiter.len());
    }

    #[test]
    fn the_readme_has_every_class() {
        let mut listed: Vec<String> = include_str!("../../README.md")
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"))
            .filter(|line| line.contains("` | address | ") || line.contains("` | user | "))
            .map(|line| line.split(" | ").take(4).collect::<Vec<_>>().join(" | "))
            .collect();
        let mut classes = CLASSES.map(|LimitClass { name, key, burst, window }| {
            let key = if key == LimitKey::Address { "address" } else { "user" };
            format!("{name}` | {key} | {burst} | {} s", window.as_secs())
        });
        listed.sort();
        classes.sort();
        assert_eq!(listed, classes);
    }
}
