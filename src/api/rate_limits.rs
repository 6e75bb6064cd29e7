//! Limits on the rate of calls: GCRA per client address and per user.

use std::{
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
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
    },
    net::{
        budgets::{LimitClass, LimitKey, RequestBudgets, TOGGLE, ToggleBudgets, per_minute},
        connections::forwarded_for,
    },
};

const WRONG_SPAN: Duration = Duration::from_secs(guessing::SPAN.num_seconds() as u64);

const fn wrong_guesses(name: &'static str) -> LimitClass {
    LimitClass { name, key: LimitKey::Address, burst: WRONG_PER_ADDRESS, window: WRONG_SPAN }
}

const ADDRESS: LimitClass = per_minute("address", LimitKey::Address, REQUESTS_PER_ADDRESS);
const PROBE: LimitClass = per_minute("probe", LimitKey::Address, REQUESTS_PER_ADDRESS);
const SIGN_IN: LimitClass = per_minute("sign-in", LimitKey::Address, SIGN_IN_PER_ADDRESS);
const USER: LimitClass = per_minute("user", LimitKey::User, REQUESTS_PER_USER);
const TOKEN: LimitClass = per_minute("token", LimitKey::Token, REQUESTS_PER_TOKEN);
const ALIASES: LimitClass = per_minute("aliases", LimitKey::User, ALIASES_PER_USER);
const CAMERA_FRAME: LimitClass = per_minute("camera-frame", LimitKey::User, CAMERA_FRAMES_PER_USER);
const CHAT_LINE: LimitClass = per_minute("chat-line", LimitKey::User, CHAT_LINES_PER_USER);
const EXPORT: LimitClass = per_minute("export", LimitKey::User, EXPORTS_PER_USER);
const NEW_GAME_SERVERS: LimitClass = per_minute("new-game-servers", LimitKey::User, NEW_GAME_SERVERS_PER_USER);
const REGISTRATION: LimitClass =
    LimitClass { name: "registration", key: LimitKey::User, burst: REGISTRATIONS_PER_USER, window: REGISTRATION_SPAN };
const CHANNEL_TEST: LimitClass =
    LimitClass { name: "channel-test", key: LimitKey::User, burst: CHANNEL_TESTS_PER_USER, window: CHANNEL_TEST_SPAN };
const DRILL: LimitClass = LimitClass { name: "drill", key: LimitKey::User, burst: DRILLS_PER_USER, window: DRILL_SPAN };
const PAIRING: LimitClass = wrong_guesses("pairing");
const INVITES: LimitClass = wrong_guesses("invites");
const CHAT_CODES: LimitClass = wrong_guesses("chat-codes");

/// Every class; docs/api.md has the same table.
pub const CLASSES: [LimitClass; 17] = [
    ADDRESS,
    PROBE,
    SIGN_IN,
    USER,
    TOKEN,
    ALIASES,
    CAMERA_FRAME,
    CHAT_LINE,
    TOGGLE,
    EXPORT,
    NEW_GAME_SERVERS,
    REGISTRATION,
    CHANNEL_TEST,
    DRILL,
    PAIRING,
    INVITES,
    CHAT_CODES,
];

/// Secrets that a client may try to guess; each has a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guessed {
    PairingCode,
    /// A pairing code from a network that has spent its guesses: only one that was issued or confirmed there is found.
    PairingCodeAtHome,
    Invite,
    /// A code that links a chat account.
    ChatCode,
}

/// All policies of the API.
pub struct RateLimits {
    proxies: TrustedProxies,
    address: RequestBudgets<IpAddr>,
    /// Separate, so that no client behind the same address can make the service look unready.
    probe: RequestBudgets<IpAddr>,
    sign_in: RequestBudgets<IpAddr>,
    user: RequestBudgets<UserId>,
    token: RequestBudgets<ApiTokenId>,
    aliases: RequestBudgets<UserId>,
    codes: Mutex<GuessLimits>,
    codes_at_home: Mutex<GuessLimits>,
    invites: Mutex<GuessLimits>,
    chat_codes: Mutex<GuessLimits>,
    camera_frame: RequestBudgets<UserId>,
    chat_line: RequestBudgets<UserId>,
    toggle: ToggleBudgets,
    export: RequestBudgets<UserId>,
    registration: RequestBudgets<UserId>,
    channel_test: RequestBudgets<UserId>,
    drill: RequestBudgets<UserId>,
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
            aliases: RequestBudgets::new(ALIASES, clock),
            codes: Mutex::new(GuessLimits::new(&EVERYWHERE)),
            codes_at_home: Mutex::new(GuessLimits::new(&AT_HOME)),
            invites: Mutex::new(GuessLimits::new(&EVERYWHERE)),
            chat_codes: Mutex::new(GuessLimits::new(&EVERYWHERE)),
            camera_frame: RequestBudgets::new(CAMERA_FRAME, clock),
            chat_line: RequestBudgets::new(CHAT_LINE, clock),
            toggle,
            export: RequestBudgets::new(EXPORT, clock),
            registration: RequestBudgets::new(REGISTRATION, clock),
            channel_test: RequestBudgets::new(CHANNEL_TEST, clock),
            drill: RequestBudgets::new(DRILL, clock),
        }
    }

    /// Takes one request to any route. Probes have a budget of their own, and `/health` is free.
    pub fn take_address(&self, req: &HttpRequest) -> Result<(), ApiError> {
        let policy = match req.path() {
            "/health" => return Ok(()),
            "/health/db" | "/ready" | "/status" | "/metrics" => &self.probe,
            _ => &self.address,
        };
        noted(policy, &RequestLogFields::of(req), &self.client_network(req))
    }

    /// Takes one request to a sign-in route.
    pub fn take_sign_in(&self, req: &HttpRequest) -> Result<(), ApiError> {
        noted(&self.sign_in, &RequestLogFields::of(req), &self.client_network(req))
    }

    /// Takes one request of this user.
    pub fn take_user(&self, notes: &RequestLogFields, user: &UserId) -> Result<(), ApiError> {
        noted(&self.user, notes, user)
    }

    /// Takes one request with this API token.
    pub fn take_token(&self, notes: &RequestLogFields, token: &ApiTokenId) -> Result<(), ApiError> {
        noted(&self.token, notes, token)
    }

    /// Takes one export of this user's data.
    pub fn take_export(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        noted(&self.export, &RequestLogFields::of(req), user)
    }

    /// Takes one step of this user in a registration, which makes the service call others.
    pub fn take_registration(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        noted(&self.registration, &RequestLogFields::of(req), user)
    }

    /// Takes one test of a channel by this user.
    pub fn take_channel_test(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        noted(&self.channel_test, &RequestLogFields::of(req), user)
    }

    /// Takes one drill of this user.
    pub fn take_drill(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        noted(&self.drill, &RequestLogFields::of(req), user)
    }

    /// Takes one question of this user for the aliases of a player.
    pub fn take_aliases(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        noted(&self.aliases, &RequestLogFields::of(req), user)
    }

    /// Takes one camera frame of this user.
    pub fn take_camera_frame(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        noted(&self.camera_frame, &RequestLogFields::of(req), user)
    }

    /// Takes one toggle of a smart switch by this user.
    pub fn take_toggle(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        noted(&self.toggle, &RequestLogFields::of(req), user)
    }

    /// Takes a toggle for each switch of a group, or nothing if there is no budget for all.
    pub fn take_toggles(&self, req: &HttpRequest, user: &UserId, count: u32) -> Result<(), ApiError> {
        let Some(count) = NonZeroU32::new(count) else { return Ok(()) };
        let left = self.toggle.take_many(user, count).map_err(ApiError::RateLimited)?;
        RequestLogFields::of(req).limits.borrow_mut().push(left);
        Ok(())
    }

    /// Takes one line of this user for a team's chat.
    pub fn take_chat_line(&self, req: &HttpRequest, user: &UserId) -> Result<(), ApiError> {
        noted(&self.chat_line, &RequestLogFields::of(req), user)
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
        self.guesses(what).begin(address, now).map_err(|retry_after| guess_refused(what, retry_after))
    }

    /// Pays a guess back that was right, or could not be looked up.
    pub fn pay_back_guess(&self, what: Guessed, guess: Guess) {
        self.guesses(what).pay_back(guess);
    }

    /// Removes keys whose budget is full again.
    pub fn forget_idle(&self, now: Moment) {
        let guessed = [Guessed::PairingCode, Guessed::PairingCodeAtHome, Guessed::Invite, Guessed::ChatCode];
        guessed.into_iter().for_each(|what| self.guesses(what).forget_old(now));
        [&self.address, &self.probe, &self.sign_in].into_iter().for_each(RequestBudgets::forget_idle);
        self.token.forget_idle();
        [
            &self.user,
            &self.camera_frame,
            &self.chat_line,
            &*self.toggle,
            &self.aliases,
            &self.export,
            &self.registration,
            &self.channel_test,
            &self.drill,
        ]
        .into_iter()
        .for_each(RequestBudgets::forget_idle);
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

/// The answer to a wrong guess: `error`, as long as all of them together are below the ceiling.
pub fn guessed_wrong(what: Guessed, guess: Guess, error: ApiError) -> ApiError {
    match guess.ceiling {
        _ if what == Guessed::PairingCodeAtHome => guess_refused(what, WRONG_SPAN),
        Ceiling::Passed => guess_refused(what, WRONG_SPAN),
        Ceiling::Far | Ceiling::Near => error,
    }
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
    use super::*;

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
        let mut classes = CLASSES.map(|LimitClass { name, key, burst, window }| {
            let key = match key {
                LimitKey::Address => "address",
                LimitKey::User => "user",
                LimitKey::Token => "token",
            };
            format!("{name}` | {key} | {burst} | {} s", window.as_secs())
        });
        listed.sort();
        classes.sort();
        assert_eq!(listed, classes);
    }
}
