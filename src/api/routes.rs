//! Every route, one line each, in the contract's order, routes of one path together. Path and method are in the handler's
//! `#[utoipa::path]`, from which they are taken. A wrong method is answered 405 by the resource itself.

use std::sync::LazyLock;

use actix_web::web::{self, ServiceConfig, get, resource};
use serde_json::Value;

use super::{
    account::{api_tokens, channels, credentials, me, news, pairing, personal_data, registrations, sessions, sign_in},
    admin,
    answer::error::ApiError,
    bot::{chat_links, interactions},
    content::{avatars, images, items, stores, wiki},
    document::openapi::{self, ApiDocument},
    extract::token_routes::{
        TokenKind::{self, Api, Helper, Overlay},
        TokenRoutes,
    },
    intel::{map_notes, shop_scan, shop_watches, shops, timeline, tracking},
    money::billing,
    operation::{
        ack_pages, client_config,
        health::{probes, status_page},
        metrics, pages, problem_pages,
    },
    route::{ApiRoute, mount, route},
    server::{
        alarm_deliveries, alarm_readiness, alarm_rules, alarms, aliases, blocked_inviters, cameras, chat,
        chat_settings, device_groups, devices, drills, guest_invites, guests, maps, paired_servers,
    },
};
use crate::domain::{
    limits::{JSON_BODY, WEBHOOK_BODY},
    token_scope::TokenScope::{Chat, Devices, Read},
};

const READ: &[TokenKind] = &[Api(Read)];
const MAP: &[TokenKind] = &[Overlay, Api(Read)];
const COMMAND: &[TokenKind] = &[Api(Devices)];

static ROUTES: LazyLock<Vec<ApiRoute>> = LazyLock::new(|| {
    let routes = vec![
        route!(sign_in::start),
        route!(sign_in::callback),
        route!(me::get),
        route!(me::update),
        route!(personal_data::erase),
        route!(personal_data::export),
        route!(news::list),
        route!(sessions::list),
        route!(sessions::delete_others),
        route!(sessions::delete),
        route!(api_tokens::list),
        route!(api_tokens::create),
        route!(api_tokens::delete),
        route!(sign_in::sign_out),
        route!(sign_in::relay_token).tokens(&[Helper, Overlay, Api(Read), Api(Devices), Api(Chat)]),
        route!(pairing::create_code).key(),
        route!(pairing::activate).key(),
        route!(pairing::list),
        route!(pairing::confirm),
        route!(pairing::delete),
        route!(credentials::get).tokens(&[Helper]),
        route!(credentials::upload).tokens(&[Helper]),
        route!(credentials::delete),
        route!(credentials::delete_refusal),
        route!(registrations::create).key(),
        route!(registrations::get),
        route!(registrations::update),
        route!(channels::list),
        route!(channels::create).key(),
        route!(channels::get_web_push_key),
        route!(channels::update),
        route!(channels::delete),
        route!(channels::test),
        route!(channels::rotate_secret),
        route!(channels::replace_subscription),
        route!(billing::create_checkout).key(),
        route!(billing::create_portal),
        route!(billing::webhook).body(WEBHOOK_BODY),
        route!(paired_servers::list).tokens(&[Api(Read), Api(Devices), Api(Chat)]),
        route!(paired_servers::create).key(),
        route!(paired_servers::get).tokens(READ),
        route!(paired_servers::delete),
        route!(alarm_rules::get),
        route!(alarm_rules::update),
        route!(chat_settings::get),
        route!(chat_settings::update),
        route!(device_groups::list),
        route!(device_groups::create).key(),
        route!(device_groups::update),
        route!(device_groups::delete),
        route!(device_groups::toggle),
        route!(devices::list).tokens(&[Api(Read), Api(Devices)]),
        route!(devices::create).key(),
        route!(devices::update),
        route!(devices::delete),
        route!(devices::toggle).tokens(COMMAND),
        route!(cameras::get_frame).tokens(READ),
        route!(chat::list).tokens(&[Api(Read), Api(Chat)]),
        route!(chat::create).tokens(&[Api(Chat)]).key(),
        route!(maps::get).tokens(MAP),
        route!(maps::get_image).tokens(MAP),
        route!(cameras::list).tokens(READ),
        route!(guests::list),
        route!(guests::create).key(),
        route!(guests::delete),
        route!(guest_invites::list),
        route!(guest_invites::preview),
        route!(guest_invites::accept),
        route!(blocked_inviters::list),
        route!(blocked_inviters::create),
        route!(blocked_inviters::delete),
        route!(guest_invites::delete),
        route!(tracking::list).tokens(READ),
        route!(tracking::create).key(),
        route!(tracking::update),
        route!(tracking::delete),
        route!(tracking::list_sessions).tokens(READ),
        route!(aliases::list).tokens(READ),
        route!(alarm_readiness::get).tokens(READ),
        route!(drills::create_drill),
        route!(alarms::list).tokens(READ),
        route!(alarms::acknowledge).tokens(COMMAND),
        route!(alarm_deliveries::list),
        route!(shops::list_offers).tokens(READ),
        route!(shops::list_history).tokens(READ),
        route!(shop_watches::list).tokens(READ),
        route!(shop_watches::create).key(),
        route!(shop_scan::list).tokens(READ),
        route!(shop_watches::update),
        route!(shop_watches::delete),
        route!(map_notes::list).tokens(READ),
        route!(map_notes::create).key(),
        route!(map_notes::update),
        route!(map_notes::delete),
        route!(timeline::list).tokens(READ),
        route!(interactions::receive).body(JSON_BODY),
        route!(chat_links::create),
        route!(chat_links::delete),
        route!(client_config::get),
        route!(client_config::relay_schema),
        route!(stores::get),
        route!(items::list).tokens(READ),
        route!(items::get).tokens(READ),
        route!(wiki::list),
        route!(wiki::get),
        route!(images::get),
        route!(avatars::get),
        route!(pages::dashboard),
        route!(pages::invite),
        route!(pages::overlay),
        route!(pages::worker),
        route!(ack_pages::ack_page),
        route!(ack_pages::acknowledge),
        route!(probes::health),
        route!(probes::database),
        route!(probes::ready),
        route!(status_page::status),
        route!(metrics::metrics).only_if(metrics::is_offered),
        route!(openapi::document),
        route!(openapi::docs_page),
        route!(problem_pages::list),
        route!(problem_pages::page),
    ];
    routes.into_iter().chain(admin::routes()).collect()
});

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::describe(&ROUTES));
static TOKEN_ROUTES: LazyLock<TokenRoutes> = LazyLock::new(|| ApiRoute::token_routes(&ROUTES));

/// Every route, in the order in which they are matched; admin routes last.
pub fn routes() -> &'static [ApiRoute] {
    &ROUTES
}

/// The OpenAPI document, made once.
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// Registers all routes, and data from them that extractors and layers look up.
pub fn register(config: &mut ServiceConfig) {
    let (admin, others): (Vec<&ApiRoute>, _) = ROUTES.iter().partition(|route| route.path.starts_with(admin::PREFIX));
    config
        .app_data(&*TOKEN_ROUTES)
        .app_data(ApiDocument(document))
        // PostgreSQL refuses to look up a text with NUL; no id has one.
        .service(resource(r"/{path:(?s).*\x00.*}").to(not_found))
        .configure(|config| mount(config, &others, ""))
        .configure(|config| admin::register(config, &admin))
        .service(web::scope("/_").default_service(get().to(pages::file)))
        .default_service(web::to(not_found));
}

async fn not_found() -> Result<&'static str, ApiError> {
    Err(ApiError::NotFound)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn routes_of_one_path_stand_together() {
        let mut paths = BTreeSet::new();
        for group in ROUTES.chunk_by(|one, next| one.path == next.path) {
            assert!(
                paths.insert(&group[0].path),
                "{} is registered twice, and the second is never matched",
                group[0].path
            );
        }
    }
}
