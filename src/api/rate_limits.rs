//! How often a client may call: GCRA per client address and per user.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use actix_web::{
    HttpRequest,
    http::header::{HeaderMap, HeaderName},
};
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
        ids::UserId,
        limits::{REQUESTS_PER_USER, SIGN_IN_PER_ADDRESS},
        pairing::{Guess, GuessLimits, WRONG_PER_ADDRESS},
        time::Timestamp,
    },
};

const WINDOW: Duration = Duration::from_secs(60);

/// The clock of the service, as governor reads it.
#[derive(Clone)]
struct LimitClock(Clock);

impl governor::clock::Clock for LimitClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        let since_epoch = self.0.now().timestamp_nanos_opt().unwrap_or(0);
        Nanos::new(u64::try_from(since_epoch).unwrap_or(0))
    }
}

/// One policy: so many requests per key at once, and as many per minute in the long run.
struct Policy<K: Clone + std::hash::Hash + Eq> {
    name: &'static str,
    quota: u32,
    clock: LimitClock,
    limiter: RateLimiter<K, DashMapStateStore<K>, LimitClock, StateInformationMiddleware>,
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
        Self { name, quota, clock, limiter }
    }

    /// How many requests are left; an error when there was none.
    fn take(&self, key: &K) -> Result<u32, LimitReport> {
        match self.limiter.check_key(key) {
            Ok(state) => Ok(state.remaining_burst_capacity()),
            Err(not_until) => Err(self.report(not_until.wait_time_from(self.clock.now()))),
        }
    }

    fn report(&self, retry_after: Duration) -> LimitReport {
        LimitReport { policy: self.name, quota: self.quota, window: WINDOW, retry_after }
    }
}

/// All policies of the API.
pub struct RateLimits {
    trusted_proxies: Vec<IpAddr>,
    sign_in: Policy<IpAddr>,
    user: Policy<UserId>,
    guesses: Mutex<GuessLimits>,
}

impl RateLimits {
    pub fn new(trusted_proxies: Vec<IpAddr>, clock: &Clock) -> Self {
        Self {
            trusted_proxies,
            sign_in: Policy::new("sign-in", SIGN_IN_PER_ADDRESS, clock),
            user: Policy::new("user", REQUESTS_PER_USER, clock),
            guesses: Mutex::default(),
        }
    }

    /// One request to a sign-in route; the header fields that say how many are left.
    pub fn take_sign_in(&self, req: &HttpRequest) -> Result<[(HeaderName, String); 2], ApiError> {
        let remaining = self.sign_in.take(&self.client_network(req)).map_err(ApiError::RateLimited)?;
        Ok(self.sign_in.report(Duration::ZERO).headers(remaining))
    }

    /// One request of this user.
    pub fn take_user(&self, user: &UserId) -> Result<(), ApiError> {
        self.user.take(user).map(|_| ()).map_err(ApiError::RateLimited)
    }

    /// Pays for one guess of a pairing code, before it is looked up. An error: too many wrong ones from its address, or
    /// from all addresses together.
    pub fn begin_guess(&self, req: &HttpRequest, now: Timestamp) -> Result<Guess, ApiError> {
        let address = self.client_network(req);
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.begin(address, now).map_err(guess_refused)
    }

    /// The guess was right, or could not be looked up.
    pub fn pay_back_guess(&self, guess: Guess) {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner).pay_back(guess);
    }

    /// Removes keys whose budget is full again; governor never does so by itself.
    pub fn forget_idle(&self, now: Timestamp) {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner).forget_idle(now);
        self.sign_in.limiter.retain_recent();
        self.sign_in.limiter.shrink_to_fit();
        self.user.limiter.retain_recent();
        self.user.limiter.shrink_to_fit();
    }

    /// The network that the client shares a budget with. Over a Unix socket there is no address: all such clients share
    /// one budget.
    fn client_network(&self, req: &HttpRequest) -> IpAddr {
        let peer = req.peer_addr().map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |peer| peer.ip());
        network(client_address(peer, req.headers(), &self.trusted_proxies))
    }
}

/// The answer to a guess that is not looked up, or that was wrong while the global quota is spent.
pub fn guess_refused(retry_after: Duration) -> ApiError {
    let (quota, window) = (WRONG_PER_ADDRESS.burst, WRONG_PER_ADDRESS.every * WRONG_PER_ADDRESS.burst as i32);
    let window = window.to_std().unwrap_or_default();
    ApiError::RateLimited(LimitReport { policy: "pairing", quota, window, retry_after })
}

/// The client's address: the peer, or, when the peer is a trusted proxy, the last address in `X-Forwarded-For` that is
/// not one.
fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpAddr]) -> IpAddr {
    let mut client = peer.to_canonical();
    let hops: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    for hop in hops.into_iter().rev() {
        if !trusted.contains(&client) {
            break;
        }
        match hop.trim().parse::<IpAddr>() {
            Ok(address) => client = address.to_canonical(),
            Err(_) => break,
        }
    }
    client
}

/// An IPv4 address, or an IPv6 /64, which one household has for itself.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn client(peer: &str, forwarded: &[&'static str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(HeaderName::from_static("x-forwarded-for"), HeaderValue::from_static(value));
        }
        let trusted: Vec<IpAddr> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        client_address(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn forwarded_addresses_count_only_from_trusted_proxies() {
        assert_eq!(client("203.0.113.9", &["198.51.100.1"], &[]), "203.0.113.9");
        assert_eq!(client("203.0.113.9", &["198.51.100.1"], &["10.0.0.1"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["198.51.100.1"], &["10.0.0.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, 198.51.100.1"], &["10.0.0.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.1, 10.0.0.2"], &["10.0.0.1", "10.0.0.2"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "198.51.100.1"], &["10.0.0.1"]), "198.51.100.1");
        assert_eq!(client("::ffff:10.0.0.1", &["198.51.100.1"], &["10.0.0.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["nonsense"], &["10.0.0.1"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[], &["10.0.0.1"]), "10.0.0.1");
    }

    #[test]
    fn all_addresses_of_an_ipv6_64_are_one_client() {
        let network_of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(network_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network_of("203.0.113.9"), "203.0.113.9");
    }

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
}
