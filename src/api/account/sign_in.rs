//! Sign-in and session: `/auth/*`, `/relay/token`.

use std::sync::PoisonError;

use actix_web::{
    HttpRequest, HttpResponse,
    cookie::{Cookie, SameSite, time},
    http::header,
    web,
};
use metrics::counter;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::error::ApiError,
        context::ApiContext,
        extract::{
            relay_caller::RelayCaller,
            session_user::{LeavingUser, presented_session},
        },
    },
    clients::identity::VerifyError,
    config::Environment,
    crypto::{digest::sha256_hex, relay_token::RelayClaims},
    db::{engine::pool::Db, openid_nonces, sessions, users},
    domain::{
        ids::{PlatformId, SessionId, UserId},
        limits::LOGIN_MINUTES,
        openid::{Answer, Rejected},
        outbound::Unconfirmed,
        retention, return_target,
        time::Timestamp,
    },
    relay::hub::SessionEnded,
};

/// Where the provider sends the browser back to, below BASE_URL.
const CALLBACK: &str = "/auth/platform/callback";

/// Longest duration of a login at the provider. A used one is remembered longer: as long as a nonce.
const LOGIN_LIFETIME: chrono::Duration = chrono::Duration::minutes(LOGIN_MINUTES);

/// A login that has begun at the identity provider, as its browser keeps it, sealed.
#[derive(Debug, PartialEq)]
struct LoginAttempt {
    /// Random, base64url; comes back with the provider's answer.
    state: String,
    expires_at: Timestamp,
    /// The checked URL to which the browser goes afterwards.
    target: String,
}

impl LoginAttempt {
    fn text(&self) -> String {
        format!("{} {} {}", self.expires_at.timestamp_micros(), self.state, self.target)
    }

    fn read(text: &str) -> Option<Self> {
        let (expires_at, rest) = text.split_once(' ')?;
        let (state, target) = rest.split_once(' ')?;
        let expires_at = Timestamp::from_timestamp_micros(expires_at.parse().ok()?)?;
        Some(Self { state: state.to_owned(), expires_at, target: target.to_owned() })
    }
}

/// A token that opens sockets at the relay until it expires; an open one stays. Ending the credential that minted it ends it.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct RelayToken {
    /// JWT with scope `relay`.
    token: String,
    /// Unix seconds.
    exp: i64,
}

impl RelayToken {
    /// Mints one for this credential.
    pub fn mint(claims: &RelayClaims, context: &ApiContext) -> Self {
        let (token, exp) = context.keys.relay_tokens.mint(claims, context.clock.now());
        Self { token, exp }
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "documents the query, which is read by hand: a repeated parameter is not an error")]
struct StartQuery {
    /// Where to go after sign-in; only the origins of FRONTEND_URL and ADMIN_ORIGIN are allowed.
    r#return: Option<String>,
}

/// Sends the browser to the identity provider. The attempt is kept by the browser alone: requests before sign-in do not
/// make the database grow.
#[utoipa::path(get, path = "/auth/platform", tag = "sign-in", params(StartQuery), responses(
    (status = 302, description = "To the identity provider; sets the login-state cookie"),
))]
pub async fn start(req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let target = return_target::choose(
        only_value(req.query_string(), "return").as_deref(),
        &context.settings.urls.frontend,
        &context.settings.urls.admin,
    );
    let expires_at = context.clock.now() + LOGIN_LIFETIME;
    let attempt = LoginAttempt { state: context.random.base64url::<16>(), expires_at, target };
    let url = context.services.identity.provider.login_url(&return_to(&context, &attempt.state), &realm(&context));
    let cookie = login_cookie(&context, &attempt);
    Ok(HttpResponse::Found().insert_header((header::LOCATION, url)).cookie(cookie).finish())
}

/// Handles the provider's answer: signs the user in and sends the browser to its return target. The session that the
/// browser had before ends, with its sockets.
#[utoipa::path(get, path = "/auth/platform/callback", tag = "sign-in", responses(
    (status = 302, description = "To the return target; sets `rp_sess`, unless the user declined: then the target has `signIn=cancelled` in its query"),
    (status = 400, description = "`sign_in_rejected`; a browser gets a page that says so"),
    (status = 503, description = "`identity_provider_unavailable`"),
))]
pub async fn callback(req: HttpRequest, context: web::Data<ApiContext>) -> HttpResponse {
    let attempt = presented_attempt(&req, &context);
    let former = presented_session(&req, &context);
    let mut response = match complete_sign_in(&context, req.query_string(), attempt.as_ref(), former).await {
        Ok(SignedIn { session, target }) => {
            counter!(SIGN_INS, "outcome" => if session.is_some() { "signed_in" } else { "cancelled" }).increment(1);
            let mut response = HttpResponse::Found().insert_header((header::LOCATION, target)).finish();
            if let Some(session) = session {
                set_cookie(&mut response, &session_cookie(&context, &session));
            }
            response
        }
        Err(error) => {
            let rejected = matches!(error, ApiError::SignInRejected(_));
            counter!(SIGN_INS, "outcome" => if rejected { "rejected" } else { "failed" }).increment(1);
            HttpResponse::from_error(error)
        }
    };
    if let Some(attempt) = attempt {
        set_cookie(&mut response, &cleared(login_cookie(&context, &attempt)));
    }
    response
}

const SIGN_INS: &str = "companion_sign_ins_total";

/// Counts each outcome from 0.
pub fn describe() {
    metrics::describe_counter!(SIGN_INS, "Answers of the identity provider that browsers brought, by outcome.");
    for outcome in ["signed_in", "cancelled", "rejected", "failed"] {
        counter!(SIGN_INS, "outcome" => outcome).absolute(0);
    }
}

/// The result of a callback that was verified.
struct SignedIn {
    /// `None` when the user declined.
    session: Option<SessionId>,
    target: String,
}

/// `attempt` and `former` session are those whose cookies this browser sent.
async fn complete_sign_in(
    context: &ApiContext,
    query: &str,
    attempt: Option<&LoginAttempt>,
    former: Option<SessionId>,
) -> Result<SignedIn, ApiError> {
    let attempt = attempt.filter(|attempt| attempt.expires_at > context.clock.now());
    // Checks 1 to 3 of `domain::openid`.
    let assertion = match Answer::parse(query).map_err(rejected)? {
        Answer::Assertion(assertion) => assertion,
        Answer::Declined => {
            let target = attempt.map_or(context.settings.urls.frontend.as_str(), |attempt| &attempt.target);
            return Ok(SignedIn { session: None, target: return_target::cancelled(target) });
        }
    };
    // 4
    let Some(attempt) = attempt else {
        return Err(ApiError::SignInRejected("this browser started no such login, or too long ago".into()));
    };
    // 5 to 10
    let checked = assertion
        .check(&context.services.identity.provider, &return_to(context, &attempt.state), context.clock.now())
        .map_err(rejected)?;
    // 11, 12. The provider is asked once for each login that began here.
    let asked = context
        .limits
        .confirmations
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take(&attempt.state, context.clock.moment());
    asked.map_err(|refused| match refused {
        Unconfirmed::Repeated => ApiError::SignInRejected("this login was answered before".into()),
        Unconfirmed::Busy(_) => ApiError::IdentityProviderUnavailable("too many sign-ins at once".into()),
    })?;
    context.services.identity.verify(&checked).await.map_err(|error| match error {
        VerifyError::Rejected(reason) => rejected(reason),
        VerifyError::Client(cause) => ApiError::IdentityProviderUnavailable(cause.into()),
    })?;
    // 13: neither the answer nor the login is used again. Nothing is stored before the provider has confirmed.
    let (endpoint, nonce) = (context.services.identity.provider.endpoint.clone(), checked.nonce);
    let login = sha256_hex(attempt.state.as_bytes());
    let now = context.clock.now();
    let is_first = context.pool.write(move |db| -> Result<_, ApiError> {
        Ok(openid_nonces::insert(db, &endpoint, &nonce, now)? && openid_nonces::insert(db, CALLBACK, &login, now)?)
    });
    if !is_first.await? {
        return Err(ApiError::SignInRejected("the answer was used before".into()));
    }
    // 14: always a new session; the one that the browser had ends.
    let session = sign_in(context, checked.platform_id, former).await?;
    Ok(SignedIn { session: Some(session), target: attempt.target.clone() })
}

async fn sign_in(
    context: &ApiContext,
    platform_id: PlatformId,
    former: Option<SessionId>,
) -> Result<SessionId, ApiError> {
    let profile = context.services.identity.profile(&platform_id).await;
    let profile = profile.map(|p| users::StoredProfile { display_name: p.display_name, avatar_url: p.avatar_url });
    let now = context.clock.now();
    let new_user = context.random.id::<UserId>(now);
    let session = context.random.id::<SessionId>(now);
    let id = session.clone();
    let hub = context.services.hub.clone();
    let write = move |db: &mut Db| -> Result<_, ApiError> {
        // The browser loses the cookie of this session. Locked before the user's row, in the order of those who store its last use.
        let ended = match former {
            Some(former) if sessions::delete(db, &former)? => Some(former),
            _ => None,
        };
        let user = users::sign_in(db, &new_user, &platform_id, profile.as_ref(), now)?;
        sessions::insert(db, &id, &user.id, now)?;
        Ok((user, ended))
    };
    let notify = move |(_, ended): &(_, Option<SessionId>)| {
        if let Some(session) = ended.clone() {
            hub.do_send(SessionEnded { session });
        }
    };
    let (user, _) = context.pool.write_and_notify(write, notify).await?;
    context.caches.activity.count_sign_in();
    log::info!(user:% = user.id; "signed in");
    Ok(session)
}

fn rejected(reason: Rejected) -> ApiError {
    ApiError::SignInRejected(reason.to_string())
}

/// Ends the session: its cookie and every copy of it are invalid from then on.
#[utoipa::path(post, path = "/auth/signout", tag = "sign-in", responses(
    (status = 204),
))]
pub async fn sign_out(
    LeavingUser(user): LeavingUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (hub, session, ended) = (context.services.hub.clone(), user.session.clone(), user.session.clone());
    let notify = move |_: &_| hub.do_send(SessionEnded { session: ended });
    context.pool.write_and_notify(move |db| sessions::delete(db, &session), notify).await?;
    let mut response = HttpResponse::NoContent().finish();
    clear_session_cookie(&mut response, &context, &user.session);
    Ok(response)
}

/// Mints a token for the relay, for a browser, a helper device, an overlay or an API token. Its socket may do what the
/// credential may that minted it: of an API token's scopes `read` watches, `devices` toggles and acknowledges.
#[utoipa::path(post, path = "/relay/token", tag = "relay", responses(
    (status = 200, body = RelayToken),
))]
pub async fn relay_token(RelayCaller(claims): RelayCaller, context: web::Data<ApiContext>) -> HttpResponse {
    HttpResponse::Ok().json(RelayToken::mint(&claims, &context))
}

/// The value of a parameter that occurs exactly once.
fn only_value(query: &str, name: &str) -> Option<String> {
    let mut found = url::form_urlencoded::parse(query.as_bytes()).filter(|(other, _)| other == name);
    let value = found.next()?.1.into_owned();
    found.next().is_none().then_some(value)
}

/// From the configuration, because the client chooses the request's `Host`.
fn return_to(context: &ApiContext, login: &str) -> String {
    context.settings.urls.base.at(&format!("{CALLBACK}?state={login}"))
}

fn realm(context: &ApiContext) -> String {
    format!("{}/", context.settings.urls.base.origin().ascii_serialization())
}

/// The attempt of the callback, when this browser sent the cookie that was set with it.
fn presented_attempt(req: &HttpRequest, context: &ApiContext) -> Option<LoginAttempt> {
    let state = only_value(req.query_string(), "state")?;
    let name = login_cookie_name(&state)?;
    let cookies = req.cookies().ok()?;
    let held = |cookie: &Cookie| {
        let attempt = LoginAttempt::read(&context.keys.login_cookie.open(cookie.value())?)?;
        // Hashes are compared: how long that takes says nothing about the value.
        (sha256_hex(attempt.state.as_bytes()) == sha256_hex(state.as_bytes())).then_some(attempt)
    };
    cookies.iter().filter(|cookie| cookie.name() == name).find_map(held)
}

/// One cookie per login, so that several tabs can sign in side by side; a few characters of the state distinguish them.
fn login_cookie_name(login: &str) -> Option<String> {
    let start = login.get(..6)?;
    start.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')).then(|| format!("rp_login_{start}"))
}

fn login_cookie(context: &ApiContext, attempt: &LoginAttempt) -> Cookie<'static> {
    let name = login_cookie_name(&attempt.state).expect("a login state is base64url of 16 bytes");
    let path = format!("{}/auth", context.settings.urls.base.path().trim_end_matches('/'));
    cookie(context, name, context.keys.login_cookie.seal(&attempt.text()), path, LOGIN_LIFETIME)
}

fn session_cookie(context: &ApiContext, session: &SessionId) -> Cookie<'static> {
    let name = context.keys.session_cookie.name().to_owned();
    cookie(context, name, context.keys.session_cookie.seal(session.as_str()), "/".to_owned(), retention::SESSION)
}

/// Takes the cookie of a session that has ended away from the browser.
pub(in crate::api) fn clear_session_cookie(response: &mut HttpResponse, context: &ApiContext, session: &SessionId) {
    set_cookie(response, &cleared(session_cookie(context, session)));
}

/// SameSite is Lax, because the provider sends the browser back with a cross-site top-level GET.
fn cookie(context: &ApiContext, name: String, value: String, path: String, life: chrono::Duration) -> Cookie<'static> {
    Cookie::build(name, value)
        .path(path)
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(context.settings.environment == Environment::Production)
        .max_age(time::Duration::seconds(life.num_seconds()))
        .finish()
}

/// Removes this cookie from the browser, which matches it by name, path and domain.
fn cleared(mut cookie: Cookie<'static>) -> Cookie<'static> {
    cookie.make_removal();
    cookie
}

fn set_cookie(response: &mut HttpResponse, cookie: &Cookie<'_>) {
    response.add_cookie(cookie).expect("our cookies are visible ASCII");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_parameter_has_no_value() {
        assert_eq!(only_value("return=a%20b", "return").as_deref(), Some("a b"));
        assert_eq!(only_value("return=a&return=b", "return"), None);
        assert_eq!(only_value("returned=a", "return"), None);
    }

    #[test]
    fn an_attempt_is_read_as_it_was_written() {
        let target = "https://app.example/a?b=c%20d".to_owned();
        let expires_at = Timestamp::from_timestamp_micros(1_800_000_000_123_456).unwrap();
        let attempt = LoginAttempt { state: "abc-_".into(), expires_at, target };
        assert_eq!(LoginAttempt::read(&attempt.text()), Some(attempt));
        assert_eq!(LoginAttempt::read("abc"), None);
    }

    #[test]
    fn a_login_state_from_outside_makes_only_plain_cookie_names() {
        assert_eq!(login_cookie_name("abcdefghij").as_deref(), Some("rp_login_abcdef"));
        for bad in ["", "abc", "ab;def", "abc=def", "ééé€€€"] {
            assert_eq!(login_cookie_name(bad), None, "{bad}");
        }
    }
}
