//! Around routes that anybody may call: the rate limit of the client's address.

use actix_web::{
    Error,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
};

use crate::api::context::ApiContext;

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
