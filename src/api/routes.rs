//! Every path, one line each, in the contract's order. A wrong method is answered 405 by the resource itself.

use actix_web::{
    middleware::from_fn,
    web::{self, ServiceConfig, delete, get, post, resource},
};

use super::{devices, health, index, middleware::rate_limit, openapi, paired_servers, sign_in};

#[rustfmt::skip]
pub fn routes(config: &mut ServiceConfig) {
    config
        .service(resource("/auth/platform").wrap(from_fn(rate_limit::sign_in)).route(get().to(sign_in::start)))
        .service(resource("/auth/platform/callback").wrap(from_fn(rate_limit::sign_in)).route(get().to(sign_in::callback)))
        .service(resource("/me").route(get().to(sign_in::me)))
        .service(resource("/auth/signout").route(post().to(sign_in::sign_out)))
        .service(resource("/relay/token").route(post().to(sign_in::relay_token)))

        .service(resource("/paired-servers").route(get().to(paired_servers::list)).route(post().to(paired_servers::pair)))
        .service(resource("/paired-servers/{id}").route(get().to(paired_servers::get)).route(delete().to(paired_servers::remove)))
        .service(resource("/paired-servers/{id}/devices").route(get().to(devices::list)).route(post().to(devices::add)))
        .service(resource("/paired-servers/{id}/devices/{deviceId}").route(delete().to(devices::remove)))

        .service(resource("/").route(get().to(index::index)))
        .service(resource("/health").route(get().to(health::health)))
        .service(resource("/health/db").route(get().to(health::database)))
        .service(resource("/ready").route(get().to(health::ready)))
        .service(resource("/openapi.json").route(get().to(openapi::document)))

        .default_service(web::to(|| async { Err::<&str, _>(super::error::ApiError::NotFound) }));
}
