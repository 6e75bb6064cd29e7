//! Every path, one line each, in the contract's order. A wrong method is answered 405 by the resource itself.

use actix_web::{
    guard::fn_guard,
    middleware::from_fn,
    web::{self, PayloadConfig, ServiceConfig, delete, get, patch, post, put, resource},
};

use super::{
    account::{api_tokens, credentials, me, pairing, personal_data, sessions, sign_in},
    admin,
    answer::error::ApiError,
    bot::{chat_links, interactions},
    content::{images, items, stores, wiki},
    document::openapi,
    intel::{map_notes, shop_scan, shop_watches, shops, timeline, tracking},
    middleware::rate_limit,
    money::billing,
    operation::{client_config, health, index, metrics, problem_pages, status},
    server::{
        alarms, aliases, blocked_inviters, cameras, chat, devices, guest_invites, guests, maps, paired_servers,
        readiness,
    },
};
use crate::domain::limits::{JSON_BODY, WEBHOOK_BODY};

#[rustfmt::skip]
pub fn routes(config: &mut ServiceConfig) {
    config
        // PostgreSQL refuses to look up a text with NUL; no id has one.
        .service(resource(r"/{path:(?s).*\x00.*}").to(not_found))

        .service(resource("/auth/platform").wrap(from_fn(rate_limit::sign_in)).route(get().to(sign_in::start)))
        .service(resource("/auth/platform/callback").wrap(from_fn(rate_limit::sign_in)).route(get().to(sign_in::callback)))
        .service(resource("/me").route(get().to(me::me)).route(patch().to(me::change)).route(delete().to(personal_data::erase)))
        .service(resource("/me/export").route(get().to(personal_data::export)))
        .service(resource("/me/sessions").route(get().to(sessions::list)).route(delete().to(sessions::end_others)))
        .service(resource("/me/sessions/{id}").route(delete().to(sessions::end)))
        .service(resource("/me/tokens").route(get().to(api_tokens::list)).route(post().to(api_tokens::make)))
        .service(resource("/me/tokens/{id}").route(delete().to(api_tokens::remove)))
        .service(resource("/auth/signout").route(post().to(sign_in::sign_out)))
        .service(resource("/relay/token").route(post().to(sign_in::relay_token)))

        .service(resource("/pairing/device/code").route(post().to(pairing::issue)))
        .service(resource("/pairing/device/activate").route(post().to(pairing::activate)))
        .service(resource("/pairing/device").route(get().to(pairing::list)))
        .service(resource("/pairing/device/requests/{id}").route(post().to(pairing::confirm)))
        .service(resource("/pairing/device/{id}").route(delete().to(pairing::remove)))

        .service(resource("/credentials/push").route(get().to(credentials::get)).route(put().to(credentials::upload)).route(delete().to(credentials::remove)))
        .service(resource("/credentials/push/refusal").route(delete().to(credentials::dismiss_refusal)))

        .service(resource("/billing/checkout").route(post().to(billing::open_checkout)))
        .service(resource("/billing/portal").route(post().to(billing::open_portal)))
        .service(resource("/billing/webhook").app_data(PayloadConfig::new(WEBHOOK_BODY)).route(post().to(billing::webhook)))

        .service(resource("/paired-servers").route(get().to(paired_servers::list)).route(post().to(paired_servers::pair)))
        .service(resource("/paired-servers/{id}").route(get().to(paired_servers::get)).route(delete().to(paired_servers::remove)))
        .service(resource("/paired-servers/{id}/devices").route(get().to(devices::list)).route(post().to(devices::add)))
        .service(resource("/paired-servers/{id}/devices/{deviceId}").route(patch().to(devices::edit)).route(delete().to(devices::remove)))
        .service(resource("/paired-servers/{id}/devices/{deviceId}/toggle").route(post().to(devices::toggle)))
        .service(resource("/paired-servers/{id}/devices/{deviceId}/camera-frame").route(get().to(cameras::frame)))
        .service(resource("/paired-servers/{id}/chat").route(get().to(chat::list)).route(post().to(chat::say)))
        .service(resource("/paired-servers/{id}/map").route(get().to(maps::get)))
        .service(resource("/paired-servers/{id}/map/image").route(get().to(maps::image)))
        .service(resource("/paired-servers/{id}/cameras").route(get().to(cameras::list)))

        .service(resource("/paired-servers/{id}/guests").route(get().to(guests::list)).route(post().to(guests::invite)))
        .service(resource("/paired-servers/{id}/guests/{guestId}").route(delete().to(guests::remove)))
        .service(resource("/guest-invites").route(get().to(guest_invites::list)))
        .service(resource("/guest-invites/preview").route(get().to(guest_invites::preview)))
        .service(resource("/guest-invites/accept").route(post().to(guest_invites::accept)))
        .service(resource("/guest-invites/blocked").route(get().to(blocked_inviters::list)).route(post().to(blocked_inviters::block)))
        .service(resource("/guest-invites/blocked/{userId}").route(delete().to(blocked_inviters::unblock)))
        .service(resource("/guest-invites/{serverId}").route(delete().to(guest_invites::leave)))

        .service(resource("/intel/{serverId}/tracking").route(get().to(tracking::list)).route(post().to(tracking::add)))
        .service(resource("/intel/{serverId}/tracking/{id}").route(patch().to(tracking::change)).route(delete().to(tracking::remove)))
        .service(resource("/intel/{serverId}/tracking/{id}/sessions").route(get().to(tracking::sessions)))
        .service(resource("/intel/{serverId}/aliases").route(get().to(aliases::aliases)))

        .service(resource("/paired-servers/{id}/readiness").route(get().to(readiness::readiness)))
        .service(resource("/paired-servers/{id}/drill").route(post().to(readiness::drill)))
        .service(resource("/paired-servers/{id}/alarms").route(get().to(alarms::list)))
        .service(resource("/paired-servers/{id}/alarms/{incident}/ack").route(post().to(alarms::acknowledge)))

        .service(resource("/paired-servers/{id}/shops").route(get().to(shops::offers)))
        .service(resource("/paired-servers/{id}/shops/history").route(get().to(shops::history)))

        .service(resource("/intel/{serverId}/shops").route(get().to(shop_watches::watches)).route(post().to(shop_watches::watch)))
        .service(resource("/intel/{serverId}/shops/scan").route(get().to(shop_scan::suspicious)))
        .service(resource("/intel/{serverId}/shops/{id}").route(patch().to(shop_watches::edit)).route(delete().to(shop_watches::unwatch)))
        .service(resource("/intel/{serverId}/map-notes").route(get().to(map_notes::list)).route(post().to(map_notes::add)))
        .service(resource("/intel/{serverId}/map-notes/{id}").route(patch().to(map_notes::edit)).route(delete().to(map_notes::remove)))
        .service(resource("/intel/{serverId}/timeline").route(get().to(timeline::list)))

        .service(resource("/chat/interactions").app_data(PayloadConfig::new(JSON_BODY)).route(post().to(interactions::receive)))
        .service(resource("/chat/link").route(post().to(chat_links::link)).route(delete().to(chat_links::unlink)))

        .service(resource("/client-config").route(get().to(client_config::get)))
        .service(resource("/relay.schema.json").route(get().to(client_config::relay_schema)))
        .service(resource("/store/{name}").route(get().to(stores::get)))
        .service(resource("/items").route(get().to(items::list)))
        .service(resource("/items/{id}").route(get().to(items::get)))
        .service(resource("/wiki/tree").route(get().to(wiki::tree)))
        .service(resource("/wiki/page").route(get().to(wiki::page)))
        .service(resource("/images/{name}").route(get().to(images::image)))

        .configure(admin::routes)

        .service(resource("/").route(get().to(index::index)))
        .service(resource("/health").route(get().to(health::health)))
        .service(resource("/health/db").route(get().to(health::database)))
        .service(resource("/ready").route(get().to(health::ready)))
        .service(resource("/status").route(get().to(status::status)))
        .service(resource("/metrics").guard(fn_guard(metrics::is_offered)).route(get().to(metrics::metrics)))
        .service(resource("/openapi.json").route(get().to(openapi::document)))
        .service(resource("/docs").route(get().to(openapi::docs_page)))
        .service(resource("/problems").route(get().to(problem_pages::list)))
        .service(resource("/problems/{code}").route(get().to(problem_pages::page)))

        .default_service(web::to(not_found));
}

async fn not_found() -> Result<&'static str, ApiError> {
    Err(ApiError::NotFound)
}
