//! Every path, one line each, in the contract's order. A wrong method is answered 405 by the resource itself.

use actix_web::{
    guard::fn_guard,
    middleware::from_fn,
    web::{self, ServiceConfig, delete, get, post, put, resource},
};

use super::{
    alarms, credentials, devices, error::ApiError, health, index, metrics, middleware::rate_limit, openapi,
    paired_servers, pairing, readiness, sign_in,
};

#[rustfmt::skip]
pub fn routes(config: &mut ServiceConfig) {
    config
        // PostgreSQL refuses to look up a text with NUL; no id has one.
        .service(resource(r"/{path:(?s).*\x00.*}").to(not_found))

        .service(resource("/auth/platform").wrap(from_fn(rate_limit::sign_in)).route(get().to(sign_in::start)))
        .service(resource("/auth/platform/callback").wrap(from_fn(rate_limit::sign_in)).route(get().to(sign_in::callback)))
        .service(resource("/me").route(get().to(sign_in::me)))
        .service(resource("/auth/signout").route(post().to(sign_in::sign_out)))
        .service(resource("/relay/token").route(post().to(sign_in::relay_token)))

        .service(resource("/pairing/device/code").route(post().to(pairing::issue)))
        .service(resource("/pairing/device/activate").route(post().to(pairing::activate)))
        .service(resource("/pairing/device").route(get().to(pairing::list)))
        .service(resource("/pairing/device/{id}").route(delete().to(pairing::remove)))

        .service(resource("/credentials/push").route(get().to(credentials::get)).route(put().to(credentials::upload)).route(delete().to(credentials::remove)))
        .service(resource("/credentials/push/refusal").route(delete().to(credentials::dismiss_refusal)))

        .service(resource("/paired-servers").route(get().to(paired_servers::list)).route(post().to(paired_servers::pair)))
        .service(resource("/paired-servers/{id}").route(get().to(paired_servers::get)).route(delete().to(paired_servers::remove)))
        .service(resource("/paired-servers/{id}/devices").route(get().to(devices::list)).route(post().to(devices::add)))
        .service(resource("/paired-servers/{id}/devices/{deviceId}").route(delete().to(devices::remove)))

        .service(resource("/paired-servers/{id}/readiness").route(get().to(readiness::readiness)))
        .service(resource("/paired-servers/{id}/drill").route(post().to(readiness::drill)))
        .service(resource("/paired-servers/{id}/alarms").route(get().to(alarms::list)))
        .service(resource("/paired-servers/{id}/alarms/{incident}/ack").route(post().to(alarms::acknowledge)))

        .service(resource("/").route(get().to(index::index)))
        .service(resource("/health").route(get().to(health::health)))
        .service(resource("/health/db").route(get().to(health::database)))
        .service(resource("/ready").route(get().to(health::ready)))
        .service(resource("/metrics").guard(fn_guard(metrics::is_local)).route(get().to(metrics::metrics)))
        .service(resource("/openapi.json").route(get().to(openapi::document)))

        .default_service(web::to(not_found));
}

async fn not_found() -> Result<&'static str, ApiError> {
    Err(ApiError::NotFound)
}
