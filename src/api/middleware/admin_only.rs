//! The door of everything below `/admin`: without an allowlist 503, before any look at the session; without a session
//! 401; for every other user 403 `not_admin`. A handler cannot forget it, and finds the caller in [`Admin`].

use actix_web::{
    Error, HttpMessage as _,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
};

use crate::api::{answer::error::ApiError, context::ApiContext, extract::admin::Admin};

/// Without an allowlist nothing else is looked at, not even whether there is such a route. Around every route; for
/// `middleware::from_fn`.
pub async fn is_on(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let path = req.match_info().unprocessed();
    let is_admin = path.strip_prefix("/admin").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if is_admin && ApiContext::of(req.request()).settings.admins.is_empty() {
        return Ok(req.error_response(ApiError::AdminDisabled));
    }
    next.call(req).await.map(ServiceResponse::map_into_boxed_body)
}

/// For `middleware::from_fn`.
pub async fn admit(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match Admin::calling(req.request()).await {
        Ok(admin) => {
            req.extensions_mut().insert(admin);
            next.call(req).await.map(ServiceResponse::map_into_boxed_body)
        }
        Err(refused) => Ok(req.error_response(refused)),
    }
}
