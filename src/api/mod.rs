//! The HTTP API: routes, endpoints, extractors, and how errors become answers.
//!
//! An endpoint is in the file named after its table in the contract. Rules live in `domain`, SQL in `db`.

use std::{io, net::TcpListener, sync::Arc};

use actix_cors::Cors;
use actix_server::ServerBuilder;
use actix_service::map_config;
use actix_web::{
    App, Error,
    body::MessageBody,
    dev::{AppConfig, ServiceFactory, ServiceRequest, ServiceResponse},
    http::{Method, header},
    middleware::from_fn,
    web,
};
use url::Url;

use self::{
    context::ApiContext,
    error::ApiError,
    extract::idempotent::{IDEMPOTENCY_KEY, REPLAYED},
};
use crate::{
    domain::limits::{IDLE_CONNECTION, JSON_BODY},
    net::{connections::Connections, http_service},
};

pub mod activity;
pub mod admin;
pub mod alarms;
pub mod aliases;
pub mod billing;
pub mod camera_drawing;
pub mod cameras;
pub mod chat;
pub mod chat_links;
pub mod chat_problem;
pub mod client_config;
pub mod context;
pub mod credentials;
pub mod devices;
pub mod docs;
pub mod done;
pub mod error;
pub mod etags;
pub mod example_values;
pub mod extract;
pub mod fields;
pub mod guest_invites;
pub mod guests;
pub mod health;
pub mod image_uploads;
pub mod images;
pub mod index;
pub mod interactions;
pub mod item_answers;
pub mod items;
pub mod map_notes;
pub mod map_pictures;
pub mod map_places;
pub mod maps;
pub mod me;
pub mod metrics;
pub mod middleware;
pub mod openapi;
pub mod operation_answers;
pub mod own_state;
pub mod page;
pub mod paired_servers;
pub mod pairing;
pub mod personal_data;
pub mod problem_pages;
pub mod process_metrics;
pub mod push_bundle;
pub mod rate_limits;
pub mod readiness;
pub mod request_notes;
pub mod routes;
pub mod service_status;
pub mod shop_watches;
pub mod shops;
pub mod short_cache;
pub mod sign_in;
pub mod state_checks;
pub mod status;
pub mod store_answers;
pub mod stores;
pub mod tier_limits;
pub mod timeline;
pub mod tracking;
pub mod transaction;
pub mod wiki;

/// Binds the API to a listening socket.
pub fn bind(
    builder: ServerBuilder,
    socket: TcpListener,
    connections: Arc<Connections>,
    context: web::Data<ApiContext>,
) -> io::Result<ServerBuilder> {
    let shutdown = builder.graceful_shutdown_signal();
    builder.listen("api", socket, move || {
        let app = map_config(app(context.clone()), |()| AppConfig::default());
        let http = http_service::builder(shutdown.clone())
            .keep_alive(IDLE_CONNECTION)
            .finish(http_service::with_deadlines(app));
        http_service::accepting(connections.clone(), None, http)
    })
}

/// The application one worker runs. Layers from the outside in: observation, CORS, limits of the address.
fn app(
    context: web::Data<ApiContext>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<impl MessageBody + use<>>,
        Error = Error,
        InitError = (),
    > + use<>,
> {
    let cors = cors([&context.urls.frontend, &context.urls.admin]);
    App::new()
        .app_data(context)
        .app_data(web::PayloadConfig::new(JSON_BODY))
        .app_data(web::PathConfig::default().error_handler(|_, _| ApiError::NotFound.into()))
        .app_data(web::QueryConfig::default().error_handler(|error, _| ApiError::invalid("", error.to_string()).into()))
        .configure(routes::routes)
        .wrap(from_fn(middleware::head::as_get))
        .wrap(from_fn(middleware::rate_limit::address))
        .wrap(cors)
        .wrap(from_fn(middleware::observe::observe))
}

/// Exactly these origins, with cookies.
fn cors(origins: [&Url; 2]) -> Cors {
    let cors = Cors::default()
        .allowed_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allowed_headers([
            header::CONTENT_TYPE,
            header::ACCEPT,
            header::AUTHORIZATION,
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            header::HeaderName::from_static("x-request-id"),
            header::HeaderName::from_static("traceparent"),
            header::HeaderName::from_static(IDEMPOTENCY_KEY),
        ])
        .expose_headers([
            REPLAYED,
            "x-request-id",
            "retry-after",
            "ratelimit",
            "ratelimit-policy",
            "x-frame-at",
            "etag",
        ])
        .supports_credentials()
        .max_age(600);
    origins.into_iter().fold(cors, |cors, origin| cors.allowed_origin(&origin.origin().ascii_serialization()))
}
