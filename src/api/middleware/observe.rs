//! The outermost layer: the request id, the log line, security headers, and the problem document of every error.

use std::fmt;

use actix_web::{
    Error, HttpMessage, HttpResponse, ResponseError,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    error::PayloadError,
    http::{
        StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
};
use tokio::time::Instant;

use crate::{
    api::{
        context::ApiContext,
        error::{ApiError, PROBLEM_JSON},
    },
    config::BaseUrl,
    net::http_service::is_late,
    panics,
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

    let base = ApiContext::of(req.request()).urls.base.clone();
    let mut response = match panics::caught("request", &id, next.call(req)).await {
        Some(Ok(response)) => response.map_into_boxed_body(),
        // The request is gone, and with it all that an answer could be added to.
        Some(Err(error)) => {
            let status = error.as_response_error().status_code();
            return Err(LostRequest::new(ApiError::Framework(status), id, &base).into());
        }
        None => return Err(LostRequest::new(ApiError::Internal("a handler panicked".into()), id, &base).into()),
    };
    if response.status().is_client_error() || response.status().is_server_error() {
        response = with_problem(response, &id, &base);
    }
    let status = response.status();
    if (status.is_success() || status.is_redirection())
        && let Some(route) = response.request().match_pattern()
    {
        ApiContext::of(response.request()).activity.count(&method, &route);
    }
    add_headers(response.headers_mut(), &id);
    log::info!(
        request_id = id.as_str(), method = method.as_str(), path = path.as_str(),
        status = status.as_u16(), ms = started.elapsed().as_millis() as u64;
        "request"
    );
    Ok(response)
}

/// What every answer carries.
fn add_headers(headers: &mut HeaderMap, id: &str) {
    headers.insert(REQUEST_ID, HeaderValue::from_str(id).expect("a request id is visible ASCII"));
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
}

fn is_request_id(text: &str) -> bool {
    (1..=MAX_REQUEST_ID).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Replaces the body of an error answer with its problem document and keeps the headers.
fn with_problem(mut response: ServiceResponse<BoxBody>, request_id: &str, base: &BaseUrl) -> ServiceResponse<BoxBody> {
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
    let body = serde_json::to_vec(&error.problem(request_id, base)).expect("a problem holds only strings and numbers");
    let status = error.status_code();
    *response.response_mut().status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    headers.remove(header::CONTENT_LENGTH);
    response.map_body(|_, _| BoxBody::new(body))
}

/// The whole answer to a request that is gone: its handler panicked, or a layer gave it up.
#[derive(Debug)]
struct LostRequest {
    error: ApiError,
    id: String,
    document: Vec<u8>,
}

impl LostRequest {
    fn new(error: ApiError, id: String, base: &BaseUrl) -> Self {
        error.log(&id);
        let document = serde_json::to_vec(&error.problem(&id, base)).unwrap_or_default();
        Self { error, id, document }
    }
}

impl fmt::Display for LostRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl ResponseError for LostRequest {
    fn status_code(&self) -> StatusCode {
        self.error.status_code()
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = self.error.error_response().set_body(BoxBody::new(self.document.clone()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        add_headers(response.headers_mut(), &self.id);
        response
    }
}

#[cfg(test)]
mod tests {
    use actix_web::{body, rt};
    use serde_json::Value;
    use url::Url;

    use super::*;

    #[test]
    fn a_request_that_is_lost_to_a_panic_is_answered_whole() {
        let base = Url::parse("https://api.example").unwrap().into();
        let lost = LostRequest::new(ApiError::Internal("secret".into()), "r-1".into(), &base);
        let response = lost.error_response();
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers().get(REQUEST_ID).unwrap(), "r-1");
        assert_eq!(response.headers().get(header::CONTENT_TYPE).unwrap(), PROBLEM_JSON);
        let body = rt::System::new().block_on(body::to_bytes(response.into_body())).unwrap();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&problem["code"], &problem["requestId"]), (&"internal_error".into(), &"r-1".into()));
    }

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
