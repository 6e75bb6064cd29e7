//! Bodies in an encoding that is not read are refused: they would be taken for what they hold.

use actix_web::{
    Error,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::header,
    middleware::Next,
};

use crate::api::answer::error::ApiError;

/// For `middleware::from_fn`.
pub async fn check(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let mut encodings = req.headers().get_all(header::CONTENT_ENCODING);
    // The framework opens gzip, and one encoding only.
    let is_read = encodings.next().is_none_or(|encoding| is_known(encoding.as_bytes())) && encodings.next().is_none();
    if !is_read {
        let mut response = req.error_response(ApiError::UnsupportedMediaType).map_into_boxed_body();
        let known = header::HeaderValue::from_static("gzip, identity");
        response.headers_mut().insert(header::ACCEPT_ENCODING, known);
        return Ok(response);
    }
    next.call(req).await.map(ServiceResponse::map_into_boxed_body)
}

fn is_known(encoding: &[u8]) -> bool {
    [&b"gzip"[..], b"identity"].iter().any(|known| encoding.trim_ascii().eq_ignore_ascii_case(known))
}
