//! The admin surface: everything below `/admin`, behind `middleware::admin_only`.
//!
//! A file here holds the endpoints of one thing. It registers its paths in [`routes`], which are relative to `/admin`, and its
//! handlers in [`AdminDoc`]. A handler that reads takes no [`Admin`](crate::api::extract::admin::Admin) and needs none: the
//! door is around the scope. A handler that changes something takes one, and changes it through it:
//!
//! ```text
//! let put = admin.write(AdminAction::PutThing, &id, move |db, now| {
//!     let before = things::find(db, &key)?;
//!     things::put(db, &key, &thing, now)?;
//!     Ok(Written::new(thing.clone(), before.map(ThingView::from), ThingView::from(thing)))
//! }).await?;
//! ```
//!
//! The closure is one transaction with its entry in the audit log; an `Err` (of any
//! [`ApiError`](crate::api::answer::error::ApiError), also of a `DbError`) undoes it and is the answer.
//! `write_and_tell` also notifies the relay after the commit. Requests to other services (a refund) go through
//! `effect`: an entry before, and one with the outcome. New actions have a name in
//! [`AdminAction`](crate::domain::audit::AdminAction). `tests/spec/admin/writes.rs` has an example of every write, and
//! fails for a route without one.

use actix_web::{
    middleware::from_fn,
    web::{PayloadConfig, ServiceConfig, delete, get, post, put, resource, scope},
};
use utoipa::OpenApi;

use crate::{api::middleware::admin_only, domain::limits::CONTENT_BODY};

pub mod analytics;
pub mod audit;
pub mod beta_testers;
pub mod chat;
pub mod conveyor_map;
pub mod items;
pub mod member_views;
pub mod overview;
pub mod paired_servers;
pub mod ping;
pub mod refunds;
pub mod stores;
pub mod subscriptions;
pub mod upload;
pub mod users;
pub mod wiki;

/// Every path, one line each, in the contract's order.
#[rustfmt::skip]
pub fn routes(config: &mut ServiceConfig) {
    config.service(scope("/admin").wrap(from_fn(admin_only::admit)).configure(|config| {
        config
        .service(resource("/ping").route(get().to(ping::ping)))
        .service(resource("/users").route(get().to(users::list)))
        .service(resource("/users/overview").route(get().to(overview::overview)))
        .service(resource("/users/{id}").route(get().to(users::get)))
        .service(resource("/users/{id}/sign-out").route(post().to(users::sign_out)))
        .service(resource("/users/{id}/charges").route(get().to(refunds::charges)))
        .service(resource("/users/{id}/subscriptions/fetch").route(post().to(subscriptions::fetch)))
        .service(resource("/users/{id}/subscriptions/{subscriptionId}").route(delete().to(subscriptions::end)))
        .service(resource("/users/{userId}/paired-servers").route(delete().to(paired_servers::remove_all)))
        .service(resource("/paired-servers/{id}").route(delete().to(paired_servers::remove)))
        .service(resource("/analytics").route(get().to(analytics::analytics)))
        .service(resource("/audit").route(get().to(audit::list)))
        .service(resource("/stores").route(get().to(stores::list)))
        .service(resource("/store/{name}").app_data(content()).route(get().to(stores::get)).route(put().to(stores::put)))
        .service(resource("/store/{name}/versions").route(get().to(stores::versions)))
        .service(resource("/store/{name}/versions/{version}").route(get().to(stores::version)))
        .service(resource("/store/{name}/restore").route(post().to(stores::restore)))
        .service(resource("/beta-testers").route(get().to(beta_testers::list)).route(post().to(beta_testers::put)))
        .service(resource("/beta-testers/{platformId}").route(delete().to(beta_testers::remove)))
        .service(resource("/chat/register-commands").route(post().to(chat::register_commands)))
        .service(resource("/wiki/tree").route(get().to(wiki::tree)))
        .service(resource("/wiki/page").app_data(content()).route(get().to(wiki::page)).route(put().to(wiki::put)).route(delete().to(wiki::remove)))
        .service(resource("/wiki/page/versions").route(get().to(wiki::versions)))
        .service(resource("/wiki/page/versions/{version}").route(get().to(wiki::read_version)))
        .service(resource("/wiki/page/restore").route(post().to(wiki::restore)))
        .service(resource("/wiki/image").route(post().to(wiki::upload_image)))
        .service(resource("/items").route(get().to(items::list)))
        .service(resource("/items/upload-icon").route(post().to(items::upload_icon)))
        .service(resource("/items/{id}").route(put().to(items::put)).route(delete().to(items::remove)))
        .service(resource("/items-search").route(get().to(items::search)))
        .service(resource("/conveyor-map").route(get().to(conveyor_map::list)).route(post().to(conveyor_map::add)))
        .service(resource("/conveyor-map/bulk-category").route(post().to(conveyor_map::bulk_category)))
        .service(resource("/conveyor-map/{shortname}").route(put().to(conveyor_map::put)).route(delete().to(conveyor_map::remove)))
        .service(resource("/refund").route(post().to(refunds::refund)))
        .service(resource("/refunds").route(get().to(refunds::list)))
        .service(resource("/payment-events").route(get().to(refunds::events)));
    }));
}

/// Stores and pages are larger than other bodies.
fn content() -> PayloadConfig {
    PayloadConfig::new(CONTENT_BODY)
}

/// The part of the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(
    ping::ping,
    users::list,
    overview::overview,
    users::get,
    users::sign_out,
    refunds::charges,
    subscriptions::fetch,
    subscriptions::end,
    paired_servers::remove_all,
    paired_servers::remove,
    analytics::analytics,
    audit::list,
    stores::list,
    stores::get,
    stores::put,
    stores::versions,
    stores::version,
    stores::restore,
    beta_testers::list,
    beta_testers::put,
    beta_testers::remove,
    chat::register_commands,
    wiki::tree,
    wiki::page,
    wiki::put,
    wiki::remove,
    wiki::versions,
    wiki::read_version,
    wiki::restore,
    wiki::upload_image,
    items::list,
    items::upload_icon,
    items::put,
    items::remove,
    items::search,
    conveyor_map::list,
    conveyor_map::add,
    conveyor_map::bulk_category,
    conveyor_map::put,
    conveyor_map::remove,
    refunds::refund,
    refunds::list,
    refunds::events,
))]
pub struct AdminDoc;
