//! The OpenAPI document, served at `/openapi.json`: the documents of all routes' handlers, completed.

use std::sync::OnceLock;

use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, ObjectBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Type,
        path::{Operation, ParameterBuilder, ParameterIn},
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::{
    api::{
        answer::{
            error::{self, PROBLEM_JSON},
            fixed_answer::FixedAnswer,
        },
        document::{docs, openapi_completion},
        extract::route_facts::TokenKind::{self, Helper, Overlay},
        route::ApiRoute,
    },
    crypto::session_cookie::SESSION_COOKIE,
    domain::time,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "companion", description = "Watches your base while you sleep.\n\nParameters of the query and fields of a \
        body that an operation does not know are refused with `invalid_request`. Answers may have further fields with later \
        versions: ignore those that you do not know. A request that accepts \
        `text/html` is refused with a page for people in place of a problem document."),
    components(schemas(error::Problem, error::FieldError)),
    modifiers(&SecuritySchemes)
)]
struct ApiDoc;

struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_with(Default::default);
        let cookie = ApiKey::Cookie(ApiKeyValue::with_description(SESSION_COOKIE, "Set by the sign-in callback."));
        components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "A device token: 96 hex digits, from `POST /pairing/device/activate`. A helper's uploads push credentials and \
                 mints relay tokens that watch and take note of alarms. An overlay's mints relay tokens that watch its one \
                 server, and reads that server's map and the picture of it. Where the other one comes, 403 \
                 `insufficient_scope`.",
            ));
        components.add_security_scheme("device", SecurityScheme::Http(token.build()));
        let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "An API token: `companion_` and 64 hex digits, from `POST /me/tokens`. The scopes that open an operation, any \
             one of them, stand at its scheme.",
        ));
        components.add_security_scheme("apiToken", SecurityScheme::Http(token.build()));
    }
}

/// Documents that the operation may be sent again with its key.
fn document_key(operation: &mut Operation) {
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "Names this request, for example a UUID: 1 to 255 visible ASCII characters. The same request with the same \
             key, within 24 hours, has its effect once and gets the same answer, with `Idempotency-Replayed: true`. A \
             request that was refused (4xx) had no effect, and its key is free again.",
        ))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[!-~]{1,255}$"))))
        .build();
    operation.parameters.get_or_insert_default().push(key.into());
    for (status, description) in [
        ("409", "also `idempotency_key_in_use`: the request with this key is still under way"),
        ("422", "`idempotency_key_reused`: another request came with this key"),
    ] {
        let problem = problem(description);
        let known = operation.responses.responses.entry(status.to_owned()).or_insert(problem.into());
        if let RefOr::T(known) = known
            && !known.description.contains(description)
        {
            known.description = format!("{}; {description}", known.description);
        }
    }
}

/// Names the tokens that the operation takes.
fn document_tokens(operation: &mut Value, kinds: &[TokenKind]) {
    // `IndexMut` would put a null where the operation needs no sign-in.
    let Some(schemes) = operation.get_mut("security").and_then(Value::as_array_mut) else { return };
    let scopes: Vec<_> = kinds.iter().filter_map(|kind| kind.scope()).collect();
    let device = kinds.iter().any(|kind| matches!(kind, Helper | Overlay)).then(|| json!({ "device": [] }));
    let token = (!scopes.is_empty()).then(|| json!({ "apiToken": scopes }));
    for scheme in device.into_iter().chain(token) {
        if !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
    }
}

fn problem(description: &str) -> Response {
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM_JSON, Content::new(Some(Ref::from_schema_name("Problem"))))
        .build()
}

/// The document of these routes.
pub fn describe(routes: &[ApiRoute]) -> Value {
    let mut document = ApiDoc::openapi();
    for route in routes {
        document.merge(route.document(document_key));
    }
    let mut document = serde_json::to_value(document).expect("the document holds only strings, numbers and lists");
    time::inline(&mut document);
    for route in routes {
        let operation = &mut document["paths"][&route.path][route.method.as_str().to_ascii_lowercase()];
        document_tokens(operation, route.tokens);
    }
    openapi_completion::complete(&mut document);
    document
}

/// Gives the document of the service; in the data of its application.
#[derive(Clone, Copy)]
pub struct ApiDocument(pub fn() -> &'static Value);

impl ApiDocument {
    /// The document of the service that got this request.
    pub fn of(req: &HttpRequest) -> &'static Value {
        let ApiDocument(document) = req.app_data().expect("every application of the API has its document");
        document()
    }
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "documentation", responses(
    (status = 200, description = "OpenAPI 3.1", body = Object, content_type = "application/json"),
))]
pub async fn document(req: HttpRequest) -> HttpResponse {
    static ANSWER: OnceLock<FixedAnswer> = OnceLock::new();
    ANSWER.get_or_init(|| FixedAnswer::json(format!("{:#}", ApiDocument::of(&req)))).answer(&req)
}

/// Every route, schema and error code of this API, as a page.
#[utoipa::path(get, path = "/docs", operation_id = "docs", tag = "documentation", responses(
    (status = 200, content_type = "text/html", body = String),
))]
pub async fn docs_page(req: HttpRequest) -> HttpResponse {
    static PAGE: OnceLock<FixedAnswer> = OnceLock::new();
    PAGE.get_or_init(|| FixedAnswer::page(docs::page(ApiDocument::of(&req)))).answer(&req)
}
