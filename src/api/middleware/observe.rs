//! The outermost layer: the request id and its trace, the log line, security headers, and the problem document of every
//! error.

use std::{fmt, sync::Arc};

use actix_web::{
    Error, HttpMessage, HttpRequest, HttpResponse, ResponseError,
    body::{BodySize, BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    error::PayloadError,
    http::{
        StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
};
use maud::html;
use tokio::time::Instant;
use url::Url;

use crate::{
    api::{
        answer::{
            error::{ApiError, PROBLEM_JSON, Problem},
            fixed_answer::FileOfAPage,
            page,
            request_log_fields::RequestLogFields,
        },
        context::ApiContext,
        extract::idempotent::REPLAYED,
        middleware::{
            rate_limit::{RATELIMIT, RATELIMIT_POLICY},
            route_class,
        },
    },
    config::BaseUrl,
    domain::{client_address::network, ids::UserId},
    net::{
        http_service::is_late,
        refusals::NotedRefusal,
        trace::{self, Trace},
    },
    panics::{self, Part},
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
    let (method, notes) = (req.method().clone(), RequestLogFields::of(req.request()));

    let from = network(ApiContext::of(req.request()).limits.rate_limits.client_network(req.request()));
    let base = ApiContext::of(req.request()).settings.urls.base.clone();
    let mut response = match panics::caught(Part::Request, id, next.call(req)).await {
        Some(Ok(response)) => response.map_into_boxed_body(),
        // The request is gone, and with it all that an answer could be added to.
        Some(Err(error)) => {
            let status = error.as_response_error().status_code();
            route_class::count(None, status.as_u16(), started.elapsed());
            return Err(LostRequest::new(ApiError::Framework(status), id, &base).into());
        }
        None => {
            route_class::count(None, 500, started.elapsed());
            return Err(LostRequest::new(ApiError::Internal("a handler panicked".into()), id, &base).into());
        }
    };
    let mut is_noted = false;
    if response.status().is_client_error() || response.status().is_server_error() {
        (response, is_noted) = with_problem(response, id, &base);
    }
    let status = response.status();
    // Never the path: what is in it may be a secret.
    let route = response.request().match_pattern();
    // A replayed answer was counted when it was first given.
    if (status.is_success() || status.is_redirection())
        && !response.headers().contains_key(REPLAYED)
        && let Some(route) = &route
    {
        ApiContext::of(response.request()).caches.activity.count(&method, route);
    }
    route_class::count(route.as_deref(), status.as_u16(), started.elapsed());
    add_headers(response.headers_mut(), id, is_https(&base));
    if response.response().extensions().contains::<FileOfAPage>() {
        remove_headers_of_calls(response.headers_mut());
    }
    let bytes = length(response.response().body().size());
    // The refusal has its line, or its kind has enough of them; a proxy asks for the health once a second.
    if is_noted || (status.is_success() && route.as_deref() == Some("/health")) {
        return Ok(response);
    }
    let user = notes.user.take();
    log::info!(
        method = method.as_str(), route = route.as_deref().unwrap_or("none"), status = status.as_u16(),
        ms = started.elapsed().as_millis() as u64, bytes = bytes.unwrap_or_default(),
        network = from.as_str(), user = user.as_ref().map_or("none", UserId::as_str);
        "request"
    );
    Ok(response)
}

/// None if it is not known before the end.
fn length(body: BodySize) -> Option<u64> {
    match body {
        BodySize::Sized(bytes) => Some(bytes),
        BodySize::None => Some(0),
        BodySize::Stream => None,
    }
}

fn is_https(base: &BaseUrl) -> bool {
    base.scheme() == "https"
}

/// Adds the headers of every answer: its request id, and, unless its handler set others, those for browsers.
fn add_headers(headers: &mut HeaderMap, id: &str, is_https: bool) {
    headers.insert(REQUEST_ID, HeaderValue::from_str(id).expect("a request id is visible ASCII"));
    // A page of any site may show public answers; those of a user, only pages of this site.
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

/// Removes what only pages and answers to calls are read with. A first visit asks for fifty files: for them, it would be a
/// fifth of all bytes.
fn remove_headers_of_calls(headers: &mut HeaderMap) {
    for name in [
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        header::CROSS_ORIGIN_OPENER_POLICY,
        header::REFERRER_POLICY,
        header::X_FRAME_OPTIONS,
        RATELIMIT,
        RATELIMIT_POLICY,
    ] {
        headers.remove(name);
    }
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
}

fn is_request_id(text: &str) -> bool {
    (1..=MAX_REQUEST_ID).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Replaces the body of an error answer with its problem document and keeps the headers. Says whether it was noted as a
/// refusal.
fn with_problem(
    mut response: ServiceResponse<BoxBody>,
    request_id: &str,
    base: &BaseUrl,
) -> (ServiceResponse<BoxBody>, bool) {
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == PROBLEM_JSON);
    if is_problem {
        return (response, false);
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
    let is_notable = error.is_notable();
    if !is_notable || note(error, response.request()) {
        error.log(request_id);
    }
    let (problem, status) = (error.problem(request_id, base), error.status_code());
    let is_page = page::is_wanted(response.request().headers().get(header::ACCEPT));
    let (media_type, body) = match is_page {
        true => (
            "text/html; charset=utf-8",
            problem_page(&problem, base, &ApiContext::of(response.request()).settings.urls.frontend),
        ),
        false => (PROBLEM_JSON, serde_json::to_string(&problem).expect("a problem holds only strings and numbers")),
    };
    *response.response_mut().status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if is_page {
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::policy()));
        headers.append(header::VARY, HeaderValue::from_static("accept"));
    }
    headers.remove(header::CONTENT_LENGTH);
    (response.map_body(|_, _| BoxBody::new(body)), is_notable)
}

/// Counts a refusal; true if it is in the log.
fn note(error: &ApiError, req: &HttpRequest) -> bool {
    let context = ApiContext::of(req);
    let route = req.match_pattern();
    let refusal = NotedRefusal {
        code: error.code().code,
        limit: error.limit().map(|limit| limit.policy),
        from: context.limits.rate_limits.client_network(req),
        method: req.method().as_str(),
        route: route.as_deref().unwrap_or("none"),
    };
    context.limits.refusals.note(&refusal)
}

/// The problem for a person, with the way back.
fn problem_page(problem: &Problem, base: &BaseUrl, frontend: &Url) -> String {
    let Problem { title, detail, status, code, request_id, .. } = problem;
    let content = html! {
        p { (detail) }
        @if *status == 503 { p { "Try again in a moment." } }
    };
    let foot = html! {
        a href=(base.at(&format!("/problems/{code}"))) { code { (code) } } ", request " code { (request_id) }
    };
    let sign_in = matches!(status, 400 | 401).then(|| ("Sign in again", base.at("/auth/platform")));
    let dashboard = ("Go to the dashboard", frontend.to_string());
    let ways: Vec<_> = sign_in.into_iter().chain([dashboard]).collect();
    page::notice(title, &content, &ways, &foot)
}

/// The whole answer to a request that is gone: its handler panicked, or a layer gave it up.
#[derive(Debug)]
struct LostRequest {
    error: ApiError,
    id: String,
    document: Vec<u8>,
    is_https: bool,
}

impl LostRequest {
    fn new(error: ApiError, id: &str, base: &BaseUrl) -> Self {
        error.log(id);
        let document = serde_json::to_vec(&error.problem(id, base)).unwrap_or_default();
        Self { error, id: id.to_owned(), document, is_https: is_https(base) }
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
        add_headers(response.headers_mut(), &self.id, self.is_https);
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
        let lost = LostRequest::new(ApiError::Internal("secret".into()), "r-1", &base);
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
