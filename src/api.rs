//! The HTTP API: routes, endpoints, extractors, and how errors become answers.
//!
//! An endpoint is in the file named after its table in the contract. Rules live in `domain`, SQL in `db`.
//!
//! Imports between the rooms go down:
//!
//! ```text
//! routes       every route, one line each
//! document     OpenAPI, and the check of requests by it
//! bot          commands on the chat platform
//! admin        the admin surface
//! operation    health, status, metrics, pages
//! intel        shops, map notes, tracked players, timeline
//! server       paired servers, their devices, alarms and guests
//! account      sign-in, credentials, personal data
//! content      stores, wiki, images, items
//! money        checkout and webhook
//! middleware   layers around requests
//! route        a route: its handler, its document, its facts
//! extract      the caller and the input, by the types of a handler
//! context      shared by all endpoints
//! caches       computed once, shared from memory
//! rate_limits  how often a client may call
//! answer       errors, pages, lists, entity tags
//! ```

use std::{io, net::TcpListener, sync::Arc};

use self::{answer::error::ApiError, context::ApiContext};
use crate::{
    domain::limits::{IDLE_CONNECTION, JSON_BODY},
    net::{connections::Connections, http_service},
};
use actix_server::ServerBuilder;
use actix_service::map_config;
use actix_web::{
    App, Error,
    body::MessageBody,
    dev::{AppConfig, ServiceFactory, ServiceRequest, ServiceResponse},
    middleware::from_fn,
    web,
};

pub mod account;
pub mod admin;
pub mod answer;
pub mod bot;
pub mod caches;
pub mod content;
pub mod context;
pub mod document;
pub mod extract;
pub mod intel;
pub mod middleware;
pub mod money;
pub mod operation;
pub mod rate_limits;
pub mod route;
pub mod routes;
pub mod server;

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
    let own_origins = middleware::cors::own_origins([&context.settings.urls.frontend, &context.settings.urls.admin]);
    App::new()
        .app_data(context)
        .app_data(web::PayloadConfig::new(JSON_BODY))
        .app_data(web::PathConfig::default().error_handler(|_, _| ApiError::NotFound.into()))
        .configure(routes::register)
        .wrap(from_fn(middleware::content_encoding::check))
        .wrap(from_fn(document::known_input::check))
        .wrap(from_fn(middleware::head::as_get))
        .wrap(from_fn(middleware::admin_only::is_on))
        .wrap(from_fn(middleware::rate_limit::address))
        .wrap(own_origins)
        .wrap(from_fn(middleware::cors::any_origin))
        .wrap(from_fn(middleware::observe::observe))
}
