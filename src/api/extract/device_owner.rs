//! The user behind a device token: `Authorization: Bearer <96 hex digits>` (RFC 6750 §2.1).

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{self, HeaderMap},
};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{context::ApiContext, error::ApiError, request_notes::RequestNotes},
    crypto::digest::sha256_hex,
    db::{access, helper_devices, users, users::User},
    domain::{
        access::Action,
        ids::{HelperDeviceId, ServerId},
    },
};

/// Bytes of a device token.
pub const TOKEN_BYTES: usize = 48;

/// The user whose helper device calls. An overlay is refused.
pub struct DeviceOwner {
    pub user: User,
    pub label: Option<String>,
}

/// Any device that calls, also an overlay: for minting relay tokens only.
pub struct CallingDevice {
    pub user: User,
    pub device: HelperDeviceId,
    pub label: Option<String>,
    /// The one server that it may watch, if it is an overlay.
    pub overlay: Option<ServerId>,
}

impl FromRequest for DeviceOwner {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let device = CallingDevice::from_request(req, payload);
        async move {
            match device.await? {
                CallingDevice { overlay: Some(_), .. } => Err(ApiError::InsufficientScope),
                CallingDevice { user, label, .. } => Ok(Self { user, label }),
            }
        }
        .boxed_local()
    }
}

impl FromRequest for CallingDevice {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let (context, notes) = (ApiContext::of(req).clone(), RequestNotes::of(req));
        let missing = if bears_token(req.headers()) { ApiError::DeadDeviceToken } else { ApiError::NoDeviceToken };
        let hash = presented_token(req.headers()).map(|token| sha256_hex(token.as_bytes()));
        async move { calling_device(&context, &notes, hash.ok_or(missing)?).await }.boxed_local()
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

async fn calling_device(
    context: &ApiContext,
    notes: &RequestNotes,
    token_hash: String,
) -> Result<CallingDevice, ApiError> {
    let now = context.clock.now();
    let found = context
        .pool
        .read(move |db| {
            let Some(device) = helper_devices::find_by_token(db, &token_hash)? else { return Ok(None) };
            // An overlay ends with the access to its server.
            if let Some(server) = &device.overlay
                && !access::role(db, &device.user_id, server)?.is_some_and(|role| role.may(Action::Watch))
            {
                return Ok(None);
            }
            let user = users::find(db, &device.user_id)?;
            Ok(user.map(|user| (device, user)))
        })
        .await?;
    let (device, user) = found.ok_or(ApiError::DeadDeviceToken)?;
    notes.user.replace(Some(user.id.clone()));
    context.rate_limits.take_user(notes, &user.id)?;
    if device.wants_touch(now) {
        let id = device.id.clone();
        // Not worth failing a request for: the next one tries again.
        if let Err(error) = context.pool.write(move |db| helper_devices::touch(db, &id, now)).await {
            log::warn!("a helper device's last use was not stored: {error}");
        }
    }
    Ok(CallingDevice { user, device: device.id, label: device.label, overlay: device.overlay })
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
