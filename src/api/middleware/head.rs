//! HEAD, wherever there is a GET (RFC 9110 §9.3.2): the same answer, of which the server sends everything but the body.

use actix_web::{
    Error,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode,
        header::{self, HeaderValue},
    },
    middleware::Next,
};

/// For `middleware::from_fn`, next to the routes.
pub async fn as_get(
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if req.method() == Method::HEAD {
        req.head_mut().method = Method::GET;
    }
    let mut response = next.call(req).await?.map_into_boxed_body();
    if response.status() == StatusCode::METHOD_NOT_ALLOWED
        && let Some(allowed) = response.headers().get(header::ALLOW).and_then(|value| value.to_str().ok())
        && allowed.split(", ").any(|method| method == "GET")
        && let Ok(allowed) = HeaderValue::from_str(&format!("{allowed}, HEAD"))
    {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    Ok(response)
}
