//! Limits on the rate of calls: GCRA per client address and per user.

use std::{
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix_web::HttpRequest;

use crate::{
    api::answer::{error::ApiError, request_log_fields::RequestLogFields},
    clock::Clock,
    domain::{
        client_address::{TrustedProxies, client_network},
        guessing::{self, AT_HOME, Ceiling, EVERYWHERE, Guess, GuessLimits, WRONG_PER_ADDRESS},
        ids::{ApiTokenId, UserId},
        limits::{
            ALIASES_PER_USER, CAMERA_FRAMES_PER_USER, CHANNEL_TEST_SPAN, CHANNEL_TESTS_PER_USER, CHAT_LINES_PER_USER,
            DRILL_SPAN, DRILLS_PER_USER, EXPORTS_PER_USER, NEW_GAME_SERVERS_PER_USER, REGISTRATION_SPAN,
            REGISTRATIONS_PER_USER, REQUESTS_PER_ADDRESS, REQUESTS_PER_TOKEN, REQUESTS_PER_USER, SIGN_IN_PER_ADDRESS,
        },
        time::Moment,
        words::words,
    },
    net::{
        budgets::{LimitClass, LimitKey, RequestBudgets, TOGGLE, ToggleBudgets, per_minute},
        connections::forwarded_for,
        shared_guesses::{SharedGuesses, WrongGuess},
    },
};

const WRONG_SPAN: Duration = Duration::from_secs(guessing::SPAN.num_seconds() as u64);

const fn wrong_guesses(name: &'static str) -> LimitClass {
    LimitClass { name, key: LimitKey::Address, burst: WRONG_PER_ADDRESS, window: WRONG_SPAN }
}

const ADDRESS: LimitClass = per_minute("address", LimitKey::Address, REQUESTS_PER_ADDRESS);
/// Questions of an operator, so that no client behind the same address can make the service look unready.
pub const PROBE: LimitClass = per_minute("probe", LimitKey::Address, REQUESTS_PER_ADDRESS);
/// Steps of a sign-in.
pub const SIGN_IN: LimitClass = per_minute("sign-in", LimitKey::Address, SIGN_IN_PER_ADDRESS);
const USER: LimitClass = per_minute("user", LimitKey::User, REQUESTS_PER_USER);
const TOKEN: LimitClass = per_minute("token", LimitKey::Token, REQUESTS_PER_TOKEN);
/// Questions for the aliases of a player.
pub const ALIASES: LimitClass = per_minute("aliases", LimitKey::User, ALIASES_PER_USER);
/// Camera pictures.
pub const CAMERA_FRAME: LimitClass = per_minute("camera-frame", LimitKey::User, CAMERA_FRAMES_PER_USER);
/// Lines for a team's chat.
pub const CHAT_LINE: LimitClass = per_minute("chat-line", LimitKey::User, CHAT_LINES_PER_USER);
/// Exports of personal data.
pub const EXPORT: LimitClass = per_minute("export", LimitKey::User, EXPORTS_PER_USER);
/// Pairings at a new address, counted where they are stored.
pub const NEW_GAME_SERVERS: LimitClass = per_minute("new-game-servers", LimitKey::User, NEW_GAME_SERVERS_PER_USER);
/// Steps of a registration for pushes, which make the service call others.
pub const REGISTRATION: LimitClass =
    LimitClass { name: "registration", key: LimitKey::User, burst: REGISTRATIONS_PER_USER, window: REGISTRATION_SPAN };
/// Tests of channels, which call what the user names.
pub const CHANNEL_TEST: LimitClass =
    LimitClass { name: "channel-test", key: LimitKey::User, burst: CHANNEL_TESTS_PER_USER, window: CHANNEL_TEST_SPAN };
/// Test alarms.
pub const DRILL: LimitClass =
    LimitClass { name: "drill", key: LimitKey::User, burst: DRILLS_PER_USER, window: DRILL_SPAN };
/// Wrong pairing codes, as [`Guessed`].
pub const PAIRING: LimitClass = wrong_guesses("pairing");
/// Wrong invitation links, as [`Guessed`].
pub const INVITES: LimitClass = wrong_guesses("invites");
/// Wrong codes of the support bot, as [`Guessed`].
pub const CHAT_CODES: LimitClass = wrong_guesses("chat-codes");

/// Classes from which the handlers of single routes take.
const ACTIONS: [LimitClass; 7] = [ALIASES, CAMERA_FRAME, CHAT_LINE, EXPORT, REGISTRATION, CHANNEL_TEST, DRILL];

/// Every class; docs/api.md has the same table.
pub fn classes() -> impl Iterator<Item = LimitClass> {
    let others = [ADDRESS, PROBE, SIGN_IN, USER, TOKEN, TOGGLE, NEW_GAME_SERVERS, PAIRING, INVITES, CHAT_CODES];
    others.into_iter().chain(ACTIONS)
}

/// The limit class of a route, beside those of the address and the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteLimit {
    /// None.
    #[default]
    Usual,
    /// Requests cost the address nothing.
    Free,
    Of(LimitClass),
}

words! {
    /// Secrets that a client may try to guess; each has a budget of its own. Nodes know them by their words.
    pub enum Guessed {
        PairingCode = "pairing-code",
        /// A pairing code from a network that has spent its guesses: only one that was issued or confirmed there is found.
        PairingCodeAtHome = "pairing-code-at-home",
        Invite = "invite",
        /// A code that links a chat account.
        ChatCode = "chat-code",
    }
}

/// All policies of the API.
pub struct RateLimits {
    proxies: TrustedProxies,
    address: RequestBudgets<IpAddr>,
    probe: RequestBudgets<IpAddr>,
    sign_in: RequestBudgets<IpAddr>,
    user: RequestBudgets<UserId>,
    token: RequestBudgets<ApiTokenId>,
    actions: [RequestBudgets<UserId>; ACTIONS.len()],
    codes: Mutex<GuessLimits>,
    codes_at_home: Mutex<GuessLimits>,
    invites: Mutex<GuessLimits>,
    chat_codes: Mutex<GuessLimits>,
    /// Wrong guesses at other nodes, and the way to them.
    shared: Option<Arc<SharedGuesses>>,
    toggle: ToggleBudgets,
}

impl RateLimits {
    /// `toggle`: the budgets that the relay takes from, too.
    pub fn new(proxies: TrustedProxies, clock: &Clock, toggle: ToggleBudgets) -> Self {
        Self {
            proxies,
            address: RequestBudgets::new(ADDRESS, clock),
            probe: RequestBudgets::new(PROBE, clock),
            sign_in: RequestBudgets::new(SIGN_IN, clock),
            user: RequestBudgets::new(USER, clock),
            token: RequestBudgets::new(TOKEN, clock),
            actions: ACTIONS.map(|class| RequestBudgets::new(class, clock)),
            codes: Mutex::new(GuessLimits::new(&EVERYWHERE)),
            codes_at_home: Mutex::new(GuessLimits::new(&AT_HOME)),
            invites: Mutex::new(GuessLimits::new(&EVERYWHERE)),
            chat_codes: Mutex::new(GuessLimits::new(&EVERYWHERE)),
            shared: None,
            toggle,
        }
    }

    /// On a node of several: wrong guesses count at all of them.
    pub fn shared_by(self, shared: Option<Arc<SharedGuesses>>) -> Self {
        Self { shared, ..self }
    }

    /// Takes one request to a route of this limit from the client's address.
    pub fn take_address(&self, req: &HttpRequest, limit: RouteLimit) -> Result<(), ApiError> {
        let (notes, address) = (RequestLogFields::of(req), self.client_network(req));
        match limit {
            RouteLimit::Free => Ok(()),
            RouteLimit::Of(class) if class == PROBE => noted(&self.probe, &notes, &address),
            RouteLimit::Of(class) if class == SIGN_IN => {
                noted(&self.address, &notes, &address)?;
                noted(&self.sign_in, &notes, &address)
            }
            RouteLimit::Usual | RouteLimit::Of(_) => noted(&self.address, &notes, &address),
        }
    }

    /// Takes one request of this user.
    pub fn take_user(&self, notes: &RequestLogFields, user: &UserId) -> Result<(), ApiError> {
        noted(&self.user, notes, user)
    }

    /// Takes one request with this API token.
    pub fn take_token(&self, notes: &RequestLogFields, token: &ApiTokenId) -> Result<(), ApiError> {
        noted(&self.token, notes, token)
    }

    /// Takes requests of this user to a route of this limit: all of them, or nothing. Fails for a route whose line names no
    /// class of users' actions.
    pub fn take_action(
        &self,
        notes: &RequestLogFields,
        limit: RouteLimit,
        user: &UserId,
        count: NonZeroU32,
    ) -> Result<(), ApiError> {
        let mut budgets = self.actions.iter().chain([&*self.toggle]);
        let budgets = budgets.find(|budgets| limit == RouteLimit::Of(budgets.class));
        let budgets = budgets.ok_or_else(|| ApiError::Internal("the line of the route names no limit class".into()))?;
        let left = budgets.take_many(user, count).map_err(ApiError::RateLimited)?;
        notes.limits.borrow_mut().push(left);
        Ok(())
    }

    fn guesses(&self, what: Guessed) -> MutexGuard<'_, GuessLimits> {
        let guesses = match what {
            Guessed::PairingCode => &self.codes,
            Guessed::PairingCodeAtHome => &self.codes_at_home,
            Guessed::Invite => &self.invites,
            Guessed::ChatCode => &self.chat_codes,
        };
        guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pays for one guess, before it is looked up. Fails after too many wrong ones from its networks.
    pub fn begin_guess(&self, what: Guessed, req: &HttpRequest, now: Moment) -> Result<Guess, ApiError> {
        let address = self.client_network(req);
        self.take_heard(now);
        self.guesses(what).begin(address, now).map_err(|retry_after| guess_refused(what, retry_after))
    }

    /// Charges the wrong guesses at other nodes.
    fn take_heard(&self, now: Moment) {
        for WrongGuess { what, from } in self.shared.iter().flat_map(|shared| shared.take_heard()) {
            // A newer program has further kinds.
            let Some(what) = Guessed::parse(&what) else { continue };
            self.guesses(what).charge(from, now);
        }
    }

    /// The answer to a wrong guess: `error`, as long as all of them together are below the ceiling.
    pub fn guessed_wrong(&self, what: Guessed, guess: Guess, error: ApiError) -> ApiError {
        // Beyond it, there is nothing left to count.
        if let Some(shared) = self.shared.as_ref().filter(|_| guess.ceiling != Ceiling::Passed)
            && let Some(from) = self.guesses(what).address(guess)
        {
            shared.made(WrongGuess { what: what.word().to_owned(), from });
        }
        match guess.ceiling {
            _ if what == Guessed::PairingCodeAtHome => guess_refused(what, WRONG_SPAN),
            Ceiling::Passed => guess_refused(what, WRONG_SPAN),
            Ceiling::Far | Ceiling::Near => error,
        }
    }

    /// Pays a guess back that was right, or could not be looked up.
    pub fn pay_back_guess(&self, what: Guessed, guess: Guess) {
        self.guesses(what).pay_back(guess);
    }

    /// Removes keys whose budget is full again.
    pub fn forget_idle(&self, now: Moment) {
        Guessed::ALL.into_iter().for_each(|what| self.guesses(what).forget_old(now));
        [&self.address, &self.probe, &self.sign_in].into_iter().for_each(RequestBudgets::forget_idle);
        self.token.forget_idle();
        self.actions.iter().chain([&self.user, &*self.toggle]).for_each(RequestBudgets::forget_idle);
    }

    /// Address by which the client shares budgets. Over a Unix socket there is none: all such clients share one budget.
    pub fn client_network(&self, req: &HttpRequest) -> IpAddr {
        let peer = req.peer_addr().map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |peer| peer.ip());
        client_network(self.proxies.client(peer, forwarded_for(req.headers())))
    }
}

/// Takes one request from this budget, and notes what is left for the answer's header fields.
fn noted<K: Clone + Hash + Eq>(budgets: &RequestBudgets<K>, notes: &RequestLogFields, key: &K) -> Result<(), ApiError> {
    let left = budgets.take(key).map_err(ApiError::RateLimited)?;
    notes.limits.borrow_mut().push(left);
    Ok(())
}

/// The answer to a toggle for which there is no room among those that wait for the same switch.
pub fn too_many_toggles() -> ApiError {
    ApiError::RateLimited(TOGGLE.report(0, Duration::from_secs(1)))
}

/// The answer to a user who pairs a new address after many others.
pub fn new_game_servers_refused(retry_after: Duration) -> ApiError {
    ApiError::RateLimited(NEW_GAME_SERVERS.report(0, retry_after))
}

/// The answer to a guess that is not looked up, or that was wrong while all wrong ones together have passed the ceiling.
fn guess_refused(what: Guessed, retry_after: Duration) -> ApiError {
    let class = match what {
        Guessed::PairingCode | Guessed::PairingCodeAtHome => PAIRING,
        Guessed::Invite => INVITES,
        Guessed::ChatCode => CHAT_CODES,
    };
    ApiError::RateLimited(class.report(0, retry_after))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn an_action_is_paid_from_the_class_of_its_route() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let toggle = ToggleBudgets::new(RequestBudgets::new(TOGGLE, &clock));
        let limits = RateLimits::new(TrustedProxies::default(), &clock, toggle);
        let (notes, user) = (RequestLogFields::default(), UserId::from("ada"));
        let take = |limit, count| limits.take_action(&notes, limit, &user, NonZeroU32::new(count).unwrap());
        let of_users = [ALIASES, CAMERA_FRAME, CHAT_LINE, TOGGLE, EXPORT, REGISTRATION, CHANNEL_TEST, DRILL];
        for class in of_users {
            assert!(take(RouteLimit::Of(class), class.burst + 1).is_err(), "{class:?}: nothing is taken");
            assert!(take(RouteLimit::Of(class), class.burst).is_ok(), "{class:?}");
            let refused = take(RouteLimit::Of(class), 1).unwrap_err();
            assert_eq!(refused.limit().map(|left| left.policy), Some(class.name));
        }
        for limit in [RouteLimit::Usual, RouteLimit::Free, RouteLimit::Of(USER), RouteLimit::Of(PAIRING)] {
            assert!(matches!(take(limit, 1), Err(ApiError::Internal(_))), "{limit:?}");
        }
    }

    #[test]
    fn a_wrong_guess_at_another_node_counts_here() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let shared: [Arc<SharedGuesses>; 2] = Default::default();
        let [here, there] = shared.clone().map(|shared| {
            let toggle = ToggleBudgets::new(RequestBudgets::new(TOGGLE, &clock));
            RateLimits::new(TrustedProxies::default(), &clock, toggle).shared_by(Some(shared))
        });
        let (req, now) = (TestRequest::default().to_http_request(), clock.moment());
        for _ in 0..WRONG_PER_ADDRESS {
            let guess = there.begin_guess(Guessed::Invite, &req, now).unwrap();
            there.guessed_wrong(Guessed::Invite, guess, ApiError::UnknownInvite);
        }
        let right = here.begin_guess(Guessed::Invite, &req, now).unwrap();
        here.pay_back_guess(Guessed::Invite, right);
        let made = shared[1].take_made();
        assert_eq!((made.len(), shared[0].take_made().len()), (WRONG_PER_ADDRESS as usize, 0));
        made.into_iter().for_each(|guess| shared[0].heard(guess));
        assert!(here.begin_guess(Guessed::Invite, &req, now).is_err());
        assert!(here.begin_guess(Guessed::ChatCode, &req, now).is_ok(), "each has its own");
    }

    #[test]
    fn the_documentation_has_every_class() {
        let mut listed: Vec<String> = include_str!("../../docs/api.md")
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"))
            .filter(|line| {
                line.contains("` | address | ") || line.contains("` | user | ") || line.contains("` | token | ")
            })
            .map(|line| line.split(" | ").take(4).collect::<Vec<_>>().join(" | "))
            .collect();
        let classes = classes().map(|LimitClass { name, key, burst, window }| {
            let key = match key {
                LimitKey::Address => "address",
                LimitKey::User => "user",
                LimitKey::Token => "token",
            };
            format!("{name}` | {key} | {burst} | {} s", window.as_secs())
        });
        let mut classes: Vec<String> = classes.collect();
        listed.sort();
        classes.sort();
        assert_eq!(listed, classes);
    }
}
