//! The outermost layer: the request id, the log line, security headers, and the problem document of every error.

use actix_web::{
    Error, HttpMessage, ResponseError as _,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    error::PayloadError,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
    middleware::Next,
};
use tokio::time::Instant;

use crate::{
    api::{
        context::ApiContext,
        error::{ApiError, PROBLEM_JSON},
    },
    net::http_service::is_late,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID: usize = 64;

/// The client's id of this request, or else ours. In the request's extensions.
#[derive(Clone)]
pub struct RequestId(pub String);

fn new_id(req: &ServiceRequest) -> String {
    let context = ApiContext::of(req.request());
    context.random.id(context.clock.now())
}

/// For `middleware::from_fn`, wrapped last.
pub async fn observe(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let started = Instant::now();
    let id = req
        .headers()
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|text| is_request_id(text))
        .map_or_else(|| new_id(&req), str::to_owned);
    req.extensions_mut().insert(RequestId(id.clone()));
    // An error drops the request, so what the log line needs is copied before.
    let method = req.method().clone();
    let path = req.path().to_owned();

    let mut response = match next.call(req).await {
        Ok(response) => response.map_into_boxed_body(),
        // Without a request there is no response to add to: actix builds one from the error.
        Err(error) => return Err(error),
    };
    if response.status().is_client_error() || response.status().is_server_error() {
        response = with_problem(response, &id);
    }
    let status = response.status();
    if (status.is_success() || status.is_redirection())
        && let Some(route) = response.request().match_pattern()
    {
        ApiContext::of(response.request()).activity.count(&method, &route);
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, HeaderValue::from_str(&id).expect("a request id is visible ASCII"));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    log::info!(
        request_id = id.as_str(), method = method.as_str(), path = path.as_str(),
        status = status.as_u16(), ms = started.elapsed().as_millis() as u64;
        "request"
    );
    Ok(response)
}

fn is_request_id(text: &str) -> bool {
    (1..=MAX_REQUEST_ID).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Replaces the body of an error answer with its problem document and keeps the headers.
fn with_problem(mut response: ServiceResponse<BoxBody>, request_id: &str) -> ServiceResponse<BoxBody> {
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == PROBLEM_JSON);
    if is_problem {
        return response;
    }
    let cause = response.response().error();
    let known = cause.and_then(|error| error.as_error::<ApiError>());
    let from_status;
    let error = match known {
        Some(error) => error,
        None => {
            from_status = match response.status() {
                _ if cause.and_then(|error| error.as_error::<PayloadError>()).is_some_and(is_late) => {
                    ApiError::BodyTimeout
                }
                StatusCode::NOT_FOUND => ApiError::NotFound,
                StatusCode::METHOD_NOT_ALLOWED => ApiError::MethodNotAllowed,
                StatusCode::PAYLOAD_TOO_LARGE => ApiError::BodyTooLarge,
                StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiError::UnsupportedMediaType,
                status => ApiError::Framework(status),
            };
            &from_status
        }
    };
    error.log(request_id);
    let body = serde_json::to_vec(&error.problem(request_id)).expect("a problem holds only strings and numbers");
    let status = error.status_code();
    *response.response_mut().status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    headers.remove(header::CONTENT_LENGTH);
    response.map_body(|_, _| BoxBody::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_from_outside_is_short_and_plain() {
        for good in ["a", "0192f0c1-7d3a-7b1e", "trace_1.2"] {
            assert!(is_request_id(good), "{good}");
        }
        for bad in ["", "a b", "a\nb", "é", "{}", &"a".repeat(65)] {
            assert!(!is_request_id(bad), "{bad:?}");
        }
    }
}
