//! Sign-in and session: `/auth/*`, `/me`, `/relay/token`.

use actix_web::{
    HttpRequest, HttpResponse,
    cookie::{Cookie, SameSite, time},
    http::header,
    web,
};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        error::{ApiError, Problem},
        extract::{relay_caller::RelayCaller, session_user::SessionUser},
        state::AppState,
    },
    clients::identity::{Answer, Rejected, VerifyError},
    config::Environment,
    crypto::digest::sha256_hex,
    db::{openid_nonces, sessions, sign_in_attempts, users},
    domain::{
        ids::{PlatformId, SessionId, UserId},
        return_target,
    },
    relay::hub::SessionEnded,
};

/// Where the provider sends the browser back to, beneath BASE_URL.
const CALLBACK: &str = "/auth/platform/callback";

/// The signed-in user.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Me {
    id: String,
    /// The account at the identity provider (SteamID64).
    platform_id: String,
    display_name: String,
    /// https.
    avatar_url: Option<String>,
    subscription: Subscription,
}

/// Always an object; a user who has nothing has nulls.
#[derive(Serialize, ToSchema)]
struct Subscription {
    tier: Option<&'static str>,
    status: Option<&'static str>,
}

/// A token that opens one socket at the relay.
#[derive(Serialize, ToSchema)]
struct RelayToken {
    /// JWT with scope `relay`.
    token: String,
    /// Unix seconds.
    exp: i64,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "documents the query, which is read by hand: a repeated parameter is not an error")]
struct StartQuery {
    /// Where to go after sign-in; only the origins of FRONTEND_URL and ADMIN_ORIGIN count.
    r#return: Option<String>,
}

/// Sends the browser to the identity provider.
#[utoipa::path(get, path = "/auth/platform", tag = "sign-in", params(StartQuery), responses(
    (status = 302, description = "To the identity provider; sets the login-state cookie"),
    (status = 429, body = Problem, content_type = "application/problem+json"),
))]
pub async fn start(req: HttpRequest, state: web::Data<AppState>) -> Result<HttpResponse, ApiError> {
    let target = return_target::choose(
        only_value(req.query_string(), "return").as_deref(),
        &state.origins.frontend,
        &state.origins.admin,
    );
    let login = state.random.base64url::<16>();
    let hash = sha256_hex(login.as_bytes());
    let now = state.clock.now();
    state.pool.write(move |db| sign_in_attempts::insert(db, &hash, &target, now)).await?;
    let url = state.identity.provider.login_url(&return_to(&state, &login), &realm(&state));
    Ok(HttpResponse::Found().insert_header((header::LOCATION, url)).cookie(login_cookie(&state, &login)).finish())
}

/// Takes the provider's answer, signs the user in and sends the browser to where it wanted to go.
#[utoipa::path(get, path = "/auth/platform/callback", tag = "sign-in", responses(
    (status = 302, description = "To the return target; sets `rp_sess` unless the user declined"),
    (status = 400, body = Problem, content_type = "application/problem+json", description = "`sign_in_rejected`"),
    (status = 429, body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json",
        description = "`identity_provider_unavailable`"),
))]
pub async fn callback(req: HttpRequest, state: web::Data<AppState>) -> HttpResponse {
    let login = presented_login(&req, &state);
    let mut response = match complete_sign_in(&state, req.query_string(), login.as_deref()).await {
        Ok(SignedIn { session, target }) => {
            let mut response = HttpResponse::Found().insert_header((header::LOCATION, target)).finish();
            if let Some(session) = session {
                set_cookie(&mut response, &session_cookie(&state, &session));
            }
            response
        }
        Err(error) => HttpResponse::from_error(error),
    };
    if let Some(login) = login {
        set_cookie(&mut response, &cleared(login_cookie(&state, &login)));
    }
    response
}

/// How a callback that was believed ended.
struct SignedIn {
    /// `None` when the user declined.
    session: Option<SessionId>,
    target: String,
}

/// `login` is the login state that this browser proved to hold.
async fn complete_sign_in(state: &AppState, query: &str, login: Option<&str>) -> Result<SignedIn, ApiError> {
    // Spent whatever comes of it: a login is tried once.
    let target = match login {
        Some(login) => {
            let (hash, now) = (sha256_hex(login.as_bytes()), state.clock.now());
            state.pool.write(move |db| sign_in_attempts::take(db, &hash, now)).await?
        }
        None => None,
    };
    // Checks 1 to 3 of `clients::identity`.
    let assertion = match Answer::parse(query).map_err(rejected)? {
        Answer::Assertion(assertion) => assertion,
        Answer::Declined => {
            let target = target.unwrap_or_else(|| state.origins.frontend.as_str().to_owned());
            return Ok(SignedIn { session: None, target });
        }
    };
    // 4
    let (Some(login), Some(target)) = (login, target) else {
        return Err(ApiError::SignInRejected("this browser started no such login, or too long ago".into()));
    };
    // 5 to 10
    let checked =
        assertion.check(&state.identity.provider, &return_to(state, login), state.clock.now()).map_err(rejected)?;
    // 11, 12
    state.identity.verify(&checked).await.map_err(|error| match error {
        VerifyError::Rejected(reason) => rejected(reason),
        VerifyError::Client(cause) => ApiError::IdentityProviderUnavailable(cause.into()),
    })?;
    // 13
    let (endpoint, nonce) = (state.identity.provider.endpoint.clone(), checked.nonce);
    let now = state.clock.now();
    if !state.pool.write(move |db| openid_nonces::insert(db, &endpoint, &nonce, now)).await? {
        return Err(ApiError::SignInRejected("the answer was used before".into()));
    }
    // 14: always a fresh session, whatever cookie the browser came with.
    let session = sign_in(state, checked.platform_id).await?;
    Ok(SignedIn { session: Some(session), target })
}

async fn sign_in(state: &AppState, platform_id: PlatformId) -> Result<SessionId, ApiError> {
    let profile = state.identity.profile(&platform_id).await;
    let profile = profile.map(|p| users::StoredProfile { display_name: p.display_name, avatar_url: p.avatar_url });
    let now = state.clock.now();
    let new_user = state.random.id::<UserId>(now);
    let session = state.random.id::<SessionId>(now);
    let id = session.clone();
    let user = state
        .pool
        .write(move |db| {
            let user = users::sign_in(db, &new_user, &platform_id, profile.as_ref(), now)?;
            sessions::insert(db, &id, &user.id, now)?;
            Ok(user)
        })
        .await?;
    log::info!(user_id:% = user.id; "signed in");
    Ok(session)
}

fn rejected(reason: Rejected) -> ApiError {
    ApiError::SignInRejected(reason.to_string())
}

/// Who is signed in.
#[utoipa::path(get, path = "/me", tag = "sign-in", security(("session" = [])), responses(
    (status = 200, body = Me),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn me(SessionUser { user, .. }: SessionUser) -> HttpResponse {
    HttpResponse::Ok().json(Me {
        id: user.id.to_string(),
        platform_id: user.platform_id.to_string(),
        display_name: user.display_name,
        avatar_url: user.avatar_url,
        subscription: Subscription { tier: None, status: None },
    })
}

/// Ends the session: its cookie, and every copy of it, is worthless from then on.
#[utoipa::path(post, path = "/auth/signout", tag = "sign-in", security(("session" = [])), responses(
    (status = 204),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn sign_out(user: SessionUser, state: web::Data<AppState>) -> Result<HttpResponse, ApiError> {
    let session = user.session.clone();
    state.pool.write(move |db| sessions::delete(db, &session)).await?;
    let mut response = HttpResponse::NoContent().finish();
    set_cookie(&mut response, &cleared(session_cookie(&state, &user.session)));
    state.hub.do_send(SessionEnded { session: user.session });
    Ok(response)
}

/// Mints a token for the relay, for a browser or for a helper device.
#[utoipa::path(post, path = "/relay/token", tag = "relay", security(("session" = []), ("device" = [])), responses(
    (status = 200, body = RelayToken),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn relay_token(RelayCaller { user, session }: RelayCaller, state: web::Data<AppState>) -> HttpResponse {
    let (token, exp) = state.relay_tokens.mint(&user, &session, state.clock.now());
    HttpResponse::Ok().json(RelayToken { token, exp })
}

/// The value of a parameter that occurs exactly once.
fn only_value(query: &str, name: &str) -> Option<String> {
    let mut found = url::form_urlencoded::parse(query.as_bytes()).filter(|(other, _)| other == name);
    let value = found.next()?.1.into_owned();
    found.next().is_none().then_some(value)
}

/// Built from configuration: the request's `Host` is the client's word.
fn return_to(state: &AppState, login: &str) -> String {
    format!("{}{CALLBACK}?state={login}", state.config.urls.base)
}

fn realm(state: &AppState) -> String {
    format!("{}/", state.origins.base.origin().ascii_serialization())
}

/// The login state of the callback, when this browser holds the cookie that was set with it.
fn presented_login(req: &HttpRequest, state: &AppState) -> Option<String> {
    let login = only_value(req.query_string(), "state")?;
    let name = login_cookie_name(&login)?;
    let cookies = req.cookies().ok()?;
    let held = |cookie: &Cookie| {
        // Hashes are compared: how long that takes says nothing about the value.
        let opened = state.login_cookie.open(cookie.value());
        opened.is_some_and(|opened| sha256_hex(opened.as_bytes()) == sha256_hex(login.as_bytes()))
    };
    cookies.iter().any(|cookie| cookie.name() == name && held(cookie)).then_some(login)
}

/// One cookie per login, so that several tabs can sign in side by side; a few characters of the state tell them apart.
fn login_cookie_name(login: &str) -> Option<String> {
    let start = login.get(..6)?;
    start.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')).then(|| format!("rp_login_{start}"))
}

fn login_cookie(state: &AppState, login: &str) -> Cookie<'static> {
    let name = login_cookie_name(login).expect("a login state is base64url of 16 bytes");
    let path = format!("{}/auth", state.origins.base.path().trim_end_matches('/'));
    cookie(state, name, state.login_cookie.seal(login), path, sign_in_attempts::LIFETIME)
}

fn session_cookie(state: &AppState, session: &SessionId) -> Cookie<'static> {
    let name = state.session_cookie.name().to_owned();
    cookie(state, name, state.session_cookie.seal(session.as_str()), "/".to_owned(), sessions::LIFETIME)
}

/// Lax is needed and enough: the way back from the provider is a cross-site top-level GET.
fn cookie(state: &AppState, name: String, value: String, path: String, life: chrono::Duration) -> Cookie<'static> {
    Cookie::build(name, value)
        .path(path)
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(state.config.environment == Environment::Production)
        .max_age(time::Duration::seconds(life.num_seconds()))
        .finish()
}

/// The same cookie, gone: browsers match by name, path and domain.
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
    fn a_login_state_from_outside_makes_no_odd_cookie_name() {
        assert_eq!(login_cookie_name("abcdefghij").as_deref(), Some("rp_login_abcdef"));
        for bad in ["", "abc", "ab;def", "abc=def", "ééé€€€"] {
            assert_eq!(login_cookie_name(bad), None, "{bad}");
        }
    }
}
