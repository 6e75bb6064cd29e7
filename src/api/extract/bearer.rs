//! Callers with a token instead of a cookie: `Authorization: Bearer` (RFC 6750 §2.1). Which routes take one is in
//! [`route_facts`](crate::api::extract::route_facts).

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{self, HeaderMap},
};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{
        answer::{error::ApiError, request_log_fields::RequestLogFields},
        context::ApiContext,
        extract::last_use,
    },
    crypto::digest::sha256_hex,
    db::{
        access,
        api_tokens::{self, ApiToken},
        engine::{error::DbError, pool::Db},
        helper_devices::{self, HelperDevice},
        users::{self, User},
    },
    domain::{
        ids::{SessionId, UserId},
        relay_access::RelayAccess,
        sections::Sections,
    },
};

/// Bytes of a device token.
pub const TOKEN_BYTES: usize = 48;
/// The prefix of an API token, so that it is recognised where it should not be; its bytes follow in hex.
pub const API_TOKEN_PREFIX: &str = "companion_";
/// Random bytes of an API token.
pub const API_TOKEN_BYTES: usize = 32;

/// A token as it was sent, if it has the form of ours; its hash is what is stored.
pub enum SentToken {
    /// A helper device or an overlay.
    Device { hash: String },
    /// A user's API token.
    Api { hash: String },
}

/// The user whose token calls, and what the token is for.
pub struct TokenHolder {
    pub user: User,
    pub access: RelayAccess,
    /// The credential whose end closes the relay's sockets.
    pub session: SessionId,
    pub label: Option<String>,
}

/// The user whose helper device calls. Any other token is refused.
pub struct DeviceOwner {
    pub user: User,
    pub label: Option<String>,
}

impl FromRequest for DeviceOwner {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let holder = required(req);
        async move {
            match holder.await? {
                TokenHolder { user, label, access: RelayAccess::Helper, .. } => Ok(Self { user, label }),
                _ => Err(ApiError::InsufficientScope),
            }
        }
        .boxed_local()
    }
}

/// The holder of the request's token. Without one, or with one that is not valid: an error.
pub fn required(req: &HttpRequest) -> impl Future<Output = Result<TokenHolder, ApiError>> + use<> {
    let missing = if bears_token(req.headers()) { ApiError::DeadToken } else { ApiError::NoDeviceToken };
    let (req, sent) = (req.clone(), sent_token(req.headers()));
    async move { Ok(holder(&req, sent.ok_or(missing)?, |_, _| Ok(())).await?.0) }
}

/// True if the request carries a bearer token, valid or not.
pub fn bears_token(headers: &HeaderMap) -> bool {
    bearer(headers).is_some()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The token, if it has the form of one of ours.
pub fn sent_token(headers: &HeaderMap) -> Option<SentToken> {
    let token = bearer(headers)?;
    if let Some(secret) = token.strip_prefix(API_TOKEN_PREFIX) {
        return is_hex(secret, API_TOKEN_BYTES).then(|| SentToken::Api { hash: sha256_hex(token.as_bytes()) });
    }
    let hash = || sha256_hex(token.to_ascii_lowercase().as_bytes());
    is_hex(token, TOKEN_BYTES).then(|| SentToken::Device { hash: hash() })
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The stored part of a token.
enum FoundToken {
    Device(HelperDevice),
    Api(ApiToken),
}

impl FoundToken {
    fn user(&self) -> &UserId {
        match self {
            Self::Device(device) => &device.user_id,
            Self::Api(token) => &token.user_id,
        }
    }
}

/// The holder of this token, within their budget, and the result of `also`, read in the same trip to the database.
pub async fn holder<T, F>(req: &HttpRequest, token: SentToken, also: F) -> Result<(TokenHolder, T), ApiError>
where
    T: Send + 'static,
    F: FnOnce(&mut Db, &UserId) -> Result<T, DbError> + Send + 'static,
{
    let (context, notes) = (ApiContext::of(req).clone(), RequestLogFields::of(req));
    let now = context.clock.now();
    let read = move |db: &mut Db| {
        let found = match token {
            SentToken::Device { hash } => living_device(db, &hash)?.map(FoundToken::Device),
            SentToken::Api { hash } => api_tokens::find(db, &hash, now)?.map(FoundToken::Api),
        };
        let Some(found) = found else { return Ok(None) };
        let Some(user) = users::find(db, found.user())? else { return Ok(None) };
        let more = also(db, &user.id)?;
        Ok(Some((found, user, more)))
    };
    let (found, user, more) = context.pool.read(read).await?.ok_or(ApiError::DeadToken)?;
    notes.user.replace(Some(user.id.clone()));
    let holder = match found {
        FoundToken::Device(device) => {
            context.limits.rate_limits.take_user(&notes, &user.id)?;
            if device.wants_touch(now) {
                let id = device.id.clone();
                last_use::touch(context.pool.write(move |db| helper_devices::touch(db, &id, now))).await;
            }
            let HelperDevice { id, label, overlay, sections, .. } = device;
            let sections = sections.map_or(Sections::ALL, Sections::from);
            let access = overlay.map_or(RelayAccess::Helper, |server| RelayAccess::Overlay { server, sections });
            TokenHolder { user, access, session: SessionId::of_device(&id), label }
        }
        FoundToken::Api(token) => {
            // A budget of its own: a program that asks too much takes nothing from its user.
            context.limits.rate_limits.take_token(&notes, &token.id)?;
            if token.wants_touch(now) {
                let id = token.id.clone();
                last_use::touch(context.pool.write(move |db| api_tokens::touch(db, &id, now))).await;
            }
            let ApiToken { id, label, scopes, server, expires_at, .. } = token;
            let access = RelayAccess::Token { scopes, server, ends: expires_at };
            TokenHolder { user, access, session: SessionId::of_token(&id), label: Some(label) }
        }
    };
    Ok((holder, more))
}

/// The device whose token has this hash. An overlay ends with the access to its server.
fn living_device(db: &mut Db, hash: &str) -> Result<Option<HelperDevice>, DbError> {
    let Some(device) = helper_devices::find_by_token(db, hash)? else { return Ok(None) };
    let Some(server) = &device.overlay else { return Ok(Some(device)) };
    Ok(access::may_watch(db, &device.user_id, server)?.then_some(device))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_96_hex_digits_after_the_scheme() {
        let sent = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            match sent_token(&headers)? {
                SentToken::Device { hash } | SentToken::Api { hash } => Some(hash),
            }
        };
        let api = format!("{API_TOKEN_PREFIX}{}", "0a".repeat(API_TOKEN_BYTES));
        assert_eq!(sent(&format!("Bearer {api}")), Some(sha256_hex(api.as_bytes())));
        for bad in [&api[..api.len() - 1], &api.to_uppercase(), &format!("{api}0")] {
            assert_eq!(sent(&format!("Bearer {bad}")), None, "{bad}");
        }
        let token = "0a".repeat(TOKEN_BYTES);
        let hash = sha256_hex(token.as_bytes());
        for good in [format!("Bearer {token}"), format!("bearer  {token} "), format!("BEARER {}", token.to_uppercase())]
        {
            assert_eq!(sent(&good).as_ref(), Some(&hash), "{good}");
        }
        for bad in
            ["", "Bearer", "Bearer ", "Bearer abc", &token, &format!("Basic {token}"), &format!("Bearer {token}0a")]
        {
            assert_eq!(sent(bad), None, "{bad}");
        }
    }
}
