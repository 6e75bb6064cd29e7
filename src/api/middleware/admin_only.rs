//! The door of everything below `/admin`: without an allowlist 503, before any look at the session; without a session
//! 401; for everybody else 403 `not_admin`. A handler cannot forget it, and finds who calls in [`Admin`].

use actix_web::{
    Error, HttpMessage as _,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
};

use crate::api::extract::admin::Admin;

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
