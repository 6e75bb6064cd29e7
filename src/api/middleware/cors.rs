//! CORS (Fetch, "CORS protocol") in two parts. Pages of our own origins may read with cookies. Pages of any origin,
//! also `null`, may call the routes that take a token, with a token: no browser adds one by itself, and as their
//! answers allow no credentials, a browser shows such a page nothing that came with a cookie. They may also call the
//! two routes with which a page begins that has no token yet, and where no cookie counts.
//!
//! A preflight carries no token. It is answered for the method and the path of a route that takes one, and only if
//! `Authorization` is to be sent; and for the routes that take none.

use actix_cors::Cors;
use actix_web::{
    Error, HttpResponse,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
};
use url::Url;

use crate::api::{
    context::ApiContext,
    extract::{
        bearer::bears_token,
        idempotent::{IDEMPOTENCY_KEY, REPLAYED},
        route_facts,
    },
};

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// Header fields that a page may send.
const SENT: [&str; 8] = [
    "content-type",
    "accept",
    "authorization",
    "if-match",
    "if-none-match",
    "x-request-id",
    "traceparent",
    IDEMPOTENCY_KEY,
];
/// Header fields of an answer that a page may read.
const READ: [&str; 7] =
    [REPLAYED, "x-request-id", "retry-after", "ratelimit", "ratelimit-policy", "x-frame-at", "etag"];
/// For how many seconds a browser remembers a preflight.
const MAX_AGE: usize = 600;

/// The routes on which an overlay page finds the relay, and exchanges its code for a token.
const WITHOUT_TOKEN: [(Method, &str); 2] =
    [(Method::GET, "/client-config"), (Method::POST, "/pairing/device/activate")];

/// Exactly these origins, with cookies.
pub fn own_origins(origins: [&Url; 2]) -> Cors {
    let cors = Cors::default()
        .allowed_methods(METHODS)
        .allowed_headers(SENT)
        .expose_headers(READ)
        .supports_credentials()
        .max_age(MAX_AGE);
    origins.into_iter().fold(cors, |cors, origin| cors.allowed_origin(&origin.origin().ascii_serialization()))
}

/// Every other origin, with a token. For `middleware::from_fn`, around [`own_origins`].
pub async fn any_origin(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if !is_foreign(&req) {
        return next.call(req).await.map(ServiceResponse::map_into_boxed_body);
    }
    if let Some(method) = preflighted(&req) {
        let mut answer = HttpResponse::Ok().finish();
        let fields = [
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*".to_owned()),
            (header::ACCESS_CONTROL_ALLOW_METHODS, method.to_string()),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, SENT.join(", ")),
            (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE.to_string()),
            (header::VARY, "Origin, Access-Control-Request-Method, Access-Control-Request-Headers".to_owned()),
        ];
        for (name, value) in fields {
            answer.headers_mut().insert(name, value.parse().expect("plain ASCII"));
        }
        return Ok(req.into_response(answer));
    }
    let readable = takes_nothing(&req, req.method()) || bears_token(req.headers()) && takes_token(&req, req.method());
    let mut answer = next.call(req).await?.map_into_boxed_body();
    let headers = answer.headers_mut();
    // The layer within says it to every origin.
    headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
    if readable {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        let read = READ.join(", ").parse().expect("names of header fields");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, read);
    }
    Ok(answer)
}

/// True if the request comes from a page of another origin than the two that may read with cookies.
fn is_foreign(req: &ServiceRequest) -> bool {
    let urls = &ApiContext::of(req.request()).settings.urls;
    let own = [&urls.frontend, &urls.admin].map(|url| url.origin().ascii_serialization());
    req.headers().get(header::ORIGIN).is_some_and(|origin| own.iter().all(|own| origin != own.as_str()))
}

/// True if the route of this method takes a token.
fn takes_token(req: &ServiceRequest, method: &Method) -> bool {
    !route_facts::of(req.request(), method).tokens.is_empty()
}

/// True if the route of this method looks at no cookie and no token.
fn takes_nothing(req: &ServiceRequest, method: &Method) -> bool {
    let Some(path) = req.match_pattern() else { return false };
    WITHOUT_TOKEN.iter().any(|(known, route)| known == method && *route == path)
}

/// The method that a preflight asks for, if a page of any origin may use it so.
fn preflighted(req: &ServiceRequest) -> Option<Method> {
    if req.method() != Method::OPTIONS {
        return None;
    }
    let method = text(req.headers(), &header::ACCESS_CONTROL_REQUEST_METHOD)?.parse().ok()?;
    let fields = text(req.headers(), &header::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
    let sends_token = || fields.split(',').any(|field| field.trim().eq_ignore_ascii_case("authorization"));
    (takes_nothing(req, &method) || sends_token() && takes_token(req, &method)).then_some(method)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
