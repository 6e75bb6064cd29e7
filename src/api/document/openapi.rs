//! The OpenAPI document, served at `/openapi.json`. Handlers are listed by hand: collecting them automatically needs
//! route macros, which answer a wrong method with 404 instead of 405.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};
use serde_json::Value;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, ObjectBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Type,
        path::{ParameterBuilder, ParameterIn},
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::{
    api::{
        account::{api_tokens, credentials, me, pairing, personal_data, sessions, sign_in},
        admin::AdminDoc,
        answer::{
            error::{self, PROBLEM_JSON},
            fixed_answer::FixedAnswer,
        },
        bot::{chat_links, interactions},
        content::{images, items, stores, wiki},
        document::{docs, operation_answers},
        extract::{idempotent::IDEMPOTENT, token_routes},
        intel::{map_notes, shop_scan, shop_watches, shops, timeline, tracking},
        money::billing,
        operation::{client_config, health, index, metrics, problem_pages, status},
        server::{
            alarms, aliases, blocked_inviters, cameras, chat, devices, guest_invites, guests, maps, paired_servers,
            readiness,
        },
    },
    crypto::session_cookie::SESSION_COOKIE,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "companion", description = "Watches your base while you sleep.\n\nParameters of the query and fields of a \
        body that an operation does not know are refused with `invalid_request`. Answers may have further fields with later \
        versions: ignore those that you do not know. A request that accepts \
        `text/html` is refused with a page for people in place of a problem document."),
    paths(
        sign_in::start,
        sign_in::callback,
        me::me,
        me::change,
        personal_data::export,
        personal_data::erase,
        sessions::list,
        sessions::end,
        sessions::end_others,
        api_tokens::list,
        api_tokens::make,
        api_tokens::remove,
        sign_in::sign_out,
        sign_in::relay_token,
        pairing::issue,
        pairing::activate,
        pairing::list,
        pairing::confirm,
        pairing::remove,
        credentials::get,
        credentials::upload,
        credentials::remove,
        credentials::dismiss_refusal,
        billing::open_checkout,
        billing::open_portal,
        billing::webhook,
        paired_servers::list,
        paired_servers::pair,
        paired_servers::get,
        paired_servers::remove,
        devices::list,
        devices::add,
        devices::edit,
        devices::toggle,
        devices::remove,
        tracking::list,
        tracking::add,
        tracking::change,
        tracking::remove,
        tracking::sessions,
        aliases::aliases,
        guests::list,
        guests::invite,
        guests::remove,
        guest_invites::list,
        guest_invites::preview,
        guest_invites::accept,
        guest_invites::leave,
        blocked_inviters::list,
        blocked_inviters::block,
        blocked_inviters::unblock,
        cameras::frame,
        cameras::list,
        chat::list,
        chat::say,
        maps::get,
        maps::image,
        readiness::readiness,
        readiness::drill,
        alarms::list,
        alarms::acknowledge,
        shops::offers,
        shops::history,
        shop_watches::watches,
        shop_watches::watch,
        shop_scan::suspicious,
        shop_watches::edit,
        shop_watches::unwatch,
        map_notes::list,
        map_notes::add,
        map_notes::edit,
        map_notes::remove,
        timeline::list,
        interactions::receive,
        chat_links::link,
        chat_links::unlink,
        client_config::get,
        client_config::relay_schema,
        stores::get,
        items::list,
        items::get,
        wiki::tree,
        wiki::page,
        images::image,
        status::status,
        metrics::metrics,
        index::index,
        health::health,
        health::database,
        health::ready,
        document,
        docs_page,
        problem_pages::list,
        problem_pages::page,
    ),
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

/// The operations that may be sent again with their key.
struct IdempotencyKeys;

impl Modify for IdempotencyKeys {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let key = ParameterBuilder::new()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(
                "Names this request, for example a UUID: 1 to 255 visible ASCII characters. The same request with the \
                 same key, within 24 hours, has its effect once and gets the same answer, with \
                 `Idempotency-Replayed: true`. A request that was refused (4xx) had no effect, and its key is free again.",
            ))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[!-~]{1,255}$"))))
            .build();
        let answers = [
            ("409", "also `idempotency_key_in_use`: the request with this key is still under way"),
            ("422", "`idempotency_key_reused`: another request came with this key"),
        ];
        for path in IDEMPOTENT {
            let Some(item) = openapi.paths.paths.get_mut(path) else { continue };
            let Some(operation) = &mut item.post else { continue };
            operation.parameters.get_or_insert_default().push(key.clone().into());
            for (status, description) in answers {
                let problem = problem(description);
                let known = operation.responses.responses.entry(status.to_owned()).or_insert(problem.into());
                if let RefOr::T(known) = known
                    && !known.description.contains(description)
                {
                    known.description = format!("{}; {description}", known.description);
                }
            }
        }
    }
}

fn problem(description: &str) -> Response {
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM_JSON, Content::new(Some(Ref::from_schema_name("Problem"))))
        .build()
}

/// The document, made once.
pub fn value() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        let mut document = ApiDoc::openapi();
        document.merge(AdminDoc::openapi());
        IdempotencyKeys.modify(&mut document);
        let mut document = serde_json::to_value(document).expect("the document holds only strings, numbers and lists");
        token_routes::document(&mut document);
        operation_answers::complete(&mut document);
        document
    });
    &DOCUMENT
}

/// The document as JSON text.
pub fn json() -> &'static str {
    static JSON: LazyLock<String> = LazyLock::new(|| format!("{:#}", value()));
    &JSON
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "documentation", responses(
    (status = 200, description = "OpenAPI 3.1", body = Object, content_type = "application/json"),
))]
pub async fn document(req: HttpRequest) -> HttpResponse {
    static ANSWER: LazyLock<FixedAnswer> = LazyLock::new(|| FixedAnswer::json(json().to_owned()));
    ANSWER.answer(&req)
}

/// Every route, schema and error code of this API, as a page.
#[utoipa::path(get, path = "/docs", operation_id = "docs", tag = "documentation", responses(
    (status = 200, content_type = "text/html", body = String),
))]
pub async fn docs_page(req: HttpRequest) -> HttpResponse {
    static PAGE: LazyLock<FixedAnswer> = LazyLock::new(|| FixedAnswer::page(docs::page(value())));
    PAGE.answer(&req)
}
