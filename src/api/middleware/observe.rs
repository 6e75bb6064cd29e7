//! The outermost layer: the request id and its trace, the log line, security headers, and the problem document of every error.

use std::sync::Arc;

use actix_web::{
    Error, HttpMessage, HttpRequest, ResponseError as _,
    body::{BodySize, BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    error::PayloadError,
    http::{
        StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
};
use tokio::time::Instant;
use url::Url;

use crate::{
    api::{
        context::ApiContext,
        error::{ApiError, PROBLEM_JSON, Problem},
        request_notes::RequestNotes,
    },
    domain::ids::UserId,
    net::{
        http_service::is_late,
        trace::{self, Trace},
    },
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
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
    let header = |name| req.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let id = header(REQUEST_ID).filter(|text| is_request_id(text)).map_or_else(|| new_id(&req), str::to_owned);
    let trace = Trace::new(id, header(TRACEPARENT), &ApiContext::of(req.request()).random);
    let trace = Arc::new(trace);
    trace::within(trace.clone(), observed(req, next, &trace.request_id)).await
}

async fn observed(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
    id: &str,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let started = Instant::now();
    req.extensions_mut().insert(RequestId(id.to_owned()));
    // An error drops the request, so what the log line needs is copied before.
    let (method, notes) = (req.method().clone(), RequestNotes::of(req.request()));

    let mut response = match next.call(req).await {
        Ok(response) => response.map_into_boxed_body(),
        // Without a request there is no response to add to: actix builds one from the error.
        Err(error) => return Err(error),
    };
    if response.status().is_client_error() || response.status().is_server_error() {
        response = with_problem(response, id);
    }
    let status = response.status();
    // Never the path: what is in it may be a secret.
    let route = response.request().match_pattern();
    if (status.is_success() || status.is_redirection())
        && let Some(route) = &route
    {
        ApiContext::of(response.request()).activity.count(&method, route);
    }
    let is_https = ApiContext::of(response.request()).urls.base.scheme() == "https";
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, HeaderValue::from_str(id).expect("a request id is visible ASCII"));
    add_security(headers, is_https);
    let bytes = match response.response().body().size() {
        BodySize::Sized(bytes) => Some(bytes),
        BodySize::None => Some(0),
        BodySize::Stream => None,
    };
    let user = notes.user.take();
    log::info!(
        method = method.as_str(), route = route.as_deref().unwrap_or("none"), status = status.as_u16(),
        ms = started.elapsed().as_millis() as u64, bytes = bytes.unwrap_or_default(),
        user = user.as_ref().map_or("none", UserId::as_str);
        "request"
    );
    Ok(response)
}

/// What every answer has, unless its handler said otherwise.
fn add_security(headers: &mut HeaderMap, is_https: bool) {
    // A page of any site may show what everybody may read; what is a user's, only those of this one.
    let is_public = headers.get(header::CACHE_CONTROL).is_some_and(|value| value.as_bytes().starts_with(b"public"));
    let defaults = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
        (header::CROSS_ORIGIN_RESOURCE_POLICY, if is_public { "cross-origin" } else { "same-site" }),
    ];
    let transport = is_https.then_some((header::STRICT_TRANSPORT_SECURITY, "max-age=31536000"));
    for (name, value) in defaults.into_iter().chain(transport) {
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
    let (problem, status) = (error.problem(request_id), error.status_code());
    let (media_type, body) = match is_sign_in_of_browser(response.request()) {
        true => ("text/html; charset=utf-8", problem_page(&problem, &ApiContext::of(response.request()).urls.frontend)),
        false => (PROBLEM_JSON, serde_json::to_string(&problem).expect("a problem holds only strings and numbers")),
    };
    *response.response_mut().status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.remove(header::CONTENT_LENGTH);
    response.map_body(|_, _| BoxBody::new(body))
}

/// Whether a person looks at the answer: browsers come here by themselves, and not by a script of a page.
fn is_sign_in_of_browser(req: &HttpRequest) -> bool {
    let accept = req.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    req.path().starts_with("/auth/platform") && accept.is_some_and(|accept| accept.contains("text/html"))
}

/// The problem for a person, with the way back.
fn problem_page(Problem { title, detail, request_id, .. }: &Problem, frontend: &Url) -> String {
    let [title, detail, back] = [title, detail.as_str(), frontend.as_str()].map(escaped);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <h1>{title}</h1><p>{detail}</p><p><a href=\"/auth/platform\">Sign in again</a> or \
         <a href=\"{back}\">go back</a>.</p><p>Request {request_id}</p></html>"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
