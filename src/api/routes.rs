//! Every route, one line each, in the contract's order, routes of one path together: the handler, whose `#[utoipa::path]`
//! has path and method, who may call it, and by which tokens, with a key, from which limit class. A wrong method is
//! answered 405 by the resource itself.

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
    extract::route_facts::{
        KnownRoutes,
        TokenKind::{self, Api, Helper, Overlay},
    },
    intel::{map_notes, shop_scan, shop_watches, shops, timeline, tracking},
    money::billing,
    operation::{
        ack_pages, client_config,
        health::{probes, status_page},
        metrics, pages, problem_pages,
    },
    rate_limits::{
        ALIASES, CAMERA_FRAME, CHANNEL_TEST, CHAT_CODES, CHAT_LINE, DRILL, EXPORT, INVITES, NEW_GAME_SERVERS, PAIRING,
        PROBE, REGISTRATION, SIGN_IN,
    },
    route::{ApiRoute, mount, route},
    server::{
        alarm_deliveries, alarm_readiness, alarm_rules, alarms, aliases, blocked_inviters, cameras, chat,
        chat_settings, device_groups, devices, drills, guest_invites, guests, maps, paired_servers,
    },
};
use crate::{
    domain::{
        limits::{JSON_BODY, WEBHOOK_BODY},
        token_scope::TokenScope::{Chat, Devices, Read},
    },
    net::budgets::TOGGLE,
};

const READ: &[TokenKind] = &[Api(Read)];
const MAP: &[TokenKind] = &[Overlay, Api(Read)];
const COMMAND: &[TokenKind] = &[Api(Devices)];

static ROUTES: LazyLock<Vec<ApiRoute>> = LazyLock::new(|| {
    let routes = vec![
        route!(sign_in::start, Anyone).limit(SIGN_IN),
        route!(sign_in::callback, Anyone).limit(SIGN_IN),
        route!(me::get, User),
        route!(me::update, User),
        route!(personal_data::erase, User),
        route!(personal_data::export, User).limit(EXPORT),
        route!(news::list, User),
        route!(sessions::list, User),
        route!(sessions::delete_others, User),
        route!(sessions::delete, Holder),
        route!(api_tokens::list, User),
        route!(api_tokens::create, User),
        route!(api_tokens::delete, Holder),
        route!(sign_in::sign_out, User),
        route!(sign_in::relay_token, User).tokens(&[Helper, Overlay, Api(Read), Api(Devices), Api(Chat)]),
        route!(pairing::create_code, User).key(),
        route!(pairing::activate, Anyone).key().limit(PAIRING),
        route!(pairing::list, User),
        route!(pairing::confirm, Holder),
        route!(pairing::note_seen, Holder),
        route!(pairing::delete, Holder),
        route!(credentials::get, User).tokens(&[Helper]),
        route!(credentials::upload, Device).tokens(&[Helper]),
        route!(credentials::delete, Holder),
        route!(credentials::delete_refusal, Holder),
        route!(registrations::get_app, Device).tokens(&[Helper]),
        route!(registrations::create, User).key().limit(REGISTRATION),
        route!(registrations::get, Holder),
        route!(registrations::update, Holder).limit(REGISTRATION),
        route!(channels::list, User),
        route!(channels::create, User).key(),
        route!(channels::get_web_push_key, User),
        route!(channels::update, Holder),
        route!(channels::delete, Holder),
        route!(channels::test, Holder).limit(CHANNEL_TEST),
        route!(channels::rotate_secret, Holder),
        route!(channels::replace_subscription, Holder),
        route!(billing::create_checkout, User).key(),
        route!(billing::create_portal, User),
        route!(billing::webhook, Anyone).body(WEBHOOK_BODY),
        route!(paired_servers::list, User).tokens(&[Api(Read), Api(Devices), Api(Chat)]),
        route!(paired_servers::create, User).key().limit(NEW_GAME_SERVERS),
        route!(paired_servers::get, Watcher).tokens(READ),
        route!(paired_servers::delete, Owner),
        route!(alarm_rules::get, Watcher),
        route!(alarm_rules::update, Watcher),
        route!(chat_settings::get, Owner),
        route!(chat_settings::update, Owner),
        route!(device_groups::list, Watcher),
        route!(device_groups::create, Owner).key(),
        route!(device_groups::update, Owner),
        route!(device_groups::delete, Owner),
        route!(device_groups::toggle, Owner).limit(TOGGLE),
        route!(devices::list, Watcher).tokens(&[Api(Read), Api(Devices)]),
        route!(devices::create, Owner).key(),
        route!(devices::update, Owner),
        route!(devices::delete, Owner),
        route!(devices::toggle, Owner).tokens(COMMAND).limit(TOGGLE),
        route!(cameras::get_frame, Watcher).tokens(READ).limit(CAMERA_FRAME),
        route!(chat::list, Watcher).tokens(&[Api(Read), Api(Chat)]),
        route!(chat::create, Owner).tokens(&[Api(Chat)]).key().limit(CHAT_LINE),
        route!(maps::get, Watcher).tokens(MAP),
        route!(maps::get_image, Watcher).tokens(MAP),
        route!(cameras::list, Watcher).tokens(READ),
        route!(guests::list, Watcher),
        route!(guests::create, Owner).key(),
        route!(guests::delete, Owner),
        route!(guest_invites::list, User),
        route!(guest_invites::preview, Anyone).limit(INVITES),
        route!(guest_invites::accept, User).limit(INVITES),
        route!(blocked_inviters::list, User),
        route!(blocked_inviters::create, User),
        route!(blocked_inviters::delete, Holder),
        route!(guest_invites::delete, Guest),
        route!(tracking::list, Watcher).tokens(READ),
        route!(tracking::create, Owner).key(),
        route!(tracking::update, Owner),
        route!(tracking::delete, Owner),
        route!(tracking::list_sessions, Watcher).tokens(READ),
        route!(aliases::list, Watcher).tokens(READ).limit(ALIASES),
        route!(alarm_readiness::get, Watcher).tokens(READ),
        route!(drills::create_drill, Owner).limit(DRILL),
        route!(alarms::list, Watcher).tokens(READ),
        route!(alarms::acknowledge, Watcher).tokens(COMMAND),
        route!(alarm_deliveries::list, Watcher),
        route!(shops::list_offers, Watcher).tokens(READ),
        route!(shops::list_history, Watcher).tokens(READ),
        route!(shop_watches::list, Watcher).tokens(READ),
        route!(shop_watches::create, Owner).key(),
        route!(shop_scan::list, Watcher).tokens(READ),
        route!(shop_watches::update, Owner),
        route!(shop_watches::delete, Owner),
        route!(map_notes::list, Watcher).tokens(READ),
        route!(map_notes::create, Watcher).key(),
        route!(map_notes::update, Owner),
        route!(map_notes::delete, Owner),
        route!(timeline::list, Watcher).tokens(READ),
        route!(interactions::receive, Anyone).body(JSON_BODY),
        route!(chat_links::create, User).limit(CHAT_CODES),
        route!(chat_links::delete, Holder),
        route!(client_config::get, Anyone),
        route!(client_config::relay_schema, Anyone),
        route!(stores::get, Anyone),
        route!(items::list, User).tokens(READ),
        route!(items::get, User).tokens(READ),
        route!(wiki::list, Anyone),
        route!(wiki::get, Anyone),
        route!(images::get, Anyone),
        route!(avatars::get, Holder),
        route!(pages::dashboard, Anyone),
        route!(pages::invite, Anyone),
        route!(pages::overlay, Anyone),
        route!(pages::worker, Anyone),
        route!(ack_pages::ack_page, Link),
        route!(ack_pages::acknowledge, Link),
        route!(probes::health, Anyone).free(),
        route!(probes::database, Anyone).limit(PROBE),
        route!(probes::ready, Anyone).limit(PROBE),
        route!(status_page::status, Anyone).limit(PROBE),
        route!(metrics::metrics, Anyone).only_if(metrics::is_offered).limit(PROBE),
        route!(openapi::document, Anyone),
        route!(openapi::docs_page, Anyone),
        route!(problem_pages::list, Anyone),
        route!(problem_pages::page, Anyone),
    ];
    routes.into_iter().chain(admin::routes()).collect()
});

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::describe(&ROUTES));
static FACTS: LazyLock<KnownRoutes> = LazyLock::new(|| ApiRoute::facts(&ROUTES));

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
        .app_data(&*FACTS)
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
    use crate::api::{
        rate_limits::{RouteLimit, classes},
        route::Callers,
    };

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

    #[test]
    fn the_admin_surface_is_of_admins_and_nothing_else_is() {
        for ApiRoute { method, path, callers, .. } in &*ROUTES {
            assert_eq!(path.starts_with(admin::PREFIX), *callers == Callers::Admin, "{method} {path}");
        }
    }

    #[test]
    fn every_limit_class_is_of_a_route_or_of_all() {
        let of_routes = ROUTES.iter().filter_map(|route| match route.limit {
            RouteLimit::Of(class) => Some(class.name),
            RouteLimit::Usual | RouteLimit::Free => None,
        });
        let known: BTreeSet<&str> = of_routes.chain(["address", "user", "token"]).collect();
        assert_eq!(known, classes().map(|class| class.name).collect());
    }
}
