//! The HTTP API: routes, endpoints, extractors, and how errors become answers.
//!
//! An endpoint is in the file named after its table in the contract. Rules live in `domain`, SQL in `db`.

use std::{io, net::TcpListener, sync::Arc};

use self::{context::ApiContext, error::ApiError};
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

pub mod activity;
pub mod admin;
pub mod alarms;
pub mod aliases;
pub mod api_tokens;
pub mod billing;
pub mod blocked_inviters;
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
pub mod ended_credentials;
pub mod error;
pub mod etags;
pub mod example_values;
pub mod extract;
pub mod fields;
pub mod fixed_answer;
pub mod guest_invites;
pub mod guests;
pub mod health;
pub mod image_uploads;
pub mod images;
pub mod index;
pub mod interactions;
pub mod item_answers;
pub mod items;
pub mod list_page;
pub mod map_notes;
pub mod map_pictures;
pub mod map_places;
pub mod maps;
pub mod me;
pub mod metrics;
pub mod middleware;
pub mod openapi;
pub mod operation_answers;
pub mod operation_names;
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
pub mod route_class;
pub mod routes;
pub mod service_status;
pub mod sessions;
pub mod shop_scan;
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
pub mod token_routes;
pub mod tracking;
pub mod transaction;
pub mod watch_checks;
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
    let own_origins = middleware::cors::own_origins([&context.urls.frontend, &context.urls.admin]);
    App::new()
        .app_data(context)
        .app_data(web::PayloadConfig::new(JSON_BODY))
        .app_data(web::PathConfig::default().error_handler(|_, _| ApiError::NotFound.into()))
        .configure(routes::routes)
        .wrap(from_fn(middleware::content_encoding::check))
        .wrap(from_fn(middleware::known_input::check))
        .wrap(from_fn(middleware::head::as_get))
        .wrap(from_fn(middleware::admin_only::is_on))
        .wrap(from_fn(middleware::rate_limit::address))
        .wrap(own_origins)
        .wrap(from_fn(middleware::cors::any_origin))
        .wrap(from_fn(middleware::observe::observe))
}
