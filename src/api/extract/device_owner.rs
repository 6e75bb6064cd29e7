//! The user behind a device token: `Authorization: Bearer <96 hex digits>` (RFC 6750 §2.1).

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{self, HeaderMap},
};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{context::ApiContext, error::ApiError},
    crypto::digest::sha256_hex,
    db::{helper_devices, users, users::User},
    domain::ids::HelperDeviceId,
};

/// Bytes of a device token.
pub const TOKEN_BYTES: usize = 48;

/// The user whose helper device calls.
pub struct DeviceOwner {
    pub user: User,
    pub device: HelperDeviceId,
    pub label: Option<String>,
}

impl FromRequest for DeviceOwner {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let context = ApiContext::of(req).clone();
        let hash = presented_token(req.headers()).map(|token| sha256_hex(token.as_bytes()));
        async move { owner(&context, hash.ok_or(ApiError::Unauthenticated)?).await }.boxed_local()
    }
}

/// Whether the request carries a bearer token, valid or not.
pub fn bears_token(headers: &HeaderMap) -> bool {
    bearer(headers).is_some()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The token in lower case, if it has the form of ours.
fn presented_token(headers: &HeaderMap) -> Option<String> {
    let token = bearer(headers)?;
    let hex = token.len() == 2 * TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then(|| token.to_ascii_lowercase())
}

async fn owner(context: &ApiContext, token_hash: String) -> Result<DeviceOwner, ApiError> {
    let now = context.clock.now();
    let found = context
        .pool
        .read(move |db| {
            let Some(device) = helper_devices::find_by_token(db, &token_hash)? else { return Ok(None) };
            let user = users::find(db, &device.user_id)?;
            Ok(user.map(|user| (device, user)))
        })
        .await?;
    let (device, user) = found.ok_or(ApiError::Unauthenticated)?;
    context.rate_limits.take_user(&user.id)?;
    if device.wants_touch(now) {
        let id = device.id.clone();
        // Not worth failing a request for: the next one tries again.
        if let Err(error) = context.pool.write(move |db| helper_devices::touch(db, &id, now)).await {
            log::warn!("a helper device's last use was not stored: {error}");
        }
    }
    Ok(DeviceOwner { user, device: device.id, label: device.label })
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_96_hex_digits_after_the_scheme() {
        let presented = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            presented_token(&headers)
        };
        let token = "0a".repeat(TOKEN_BYTES);
        for good in [format!("Bearer {token}"), format!("bearer  {token} "), format!("BEARER {}", token.to_uppercase())]
        {
            assert_eq!(presented(&good).as_deref(), Some(token.as_str()), "{good}");
        }
        for bad in
            ["", "Bearer", "Bearer ", "Bearer abc", &token, &format!("Basic {token}"), &format!("Bearer {token}0a")]
        {
            assert_eq!(presented(bad), None, "{bad}");
        }
    }
}
