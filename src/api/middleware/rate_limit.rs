//! The limits of the client's address: around every route, and tighter ones around some.

use actix_web::{
    Error,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
};

use crate::api::{context::ApiContext, error::ApiError};

/// Around every route: how often, and how much at once behind a proxy. For `middleware::from_fn`.
pub async fn address(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let context = ApiContext::of(req.request());
    if let Err(error) = context.rate_limits.take_address(req.request()) {
        return Ok(req.error_response(error));
    }
    let permit = match req.peer_addr() {
        Some(peer) => context.connections.admit_forwarded(peer.ip(), req.headers()),
        None => Ok(None),
    };
    let Ok(_permit) = permit else { return Ok(req.error_response(ApiError::TooManyConnections)) };
    next.call(req).await.map(ServiceResponse::map_into_boxed_body)
}

/// Around the sign-in routes. For `middleware::from_fn`.
pub async fn sign_in(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let context = ApiContext::of(req.request());
    match context.rate_limits.take_sign_in(req.request()) {
        Err(error) => Ok(req.error_response(error)),
        Ok(fields) => {
            let mut response = next.call(req).await?.map_into_boxed_body();
            for (name, value) in fields {
                response.headers_mut().insert(name, value.try_into().expect("digits and a plain name"));
            }
            Ok(response)
        }
    }
}
