//! The admin surface: everything below `/admin`, behind `middleware::admin_only`.
//!
//! A file here holds the endpoints of one thing, each of which has a line in [`routes`]. A handler that reads takes no [`Admin`](crate::api::extract::admin::Admin) and needs none: the
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
//! `write_and_notify` also notifies the relay after the commit. Requests to other services (a refund) go through
//! `effect`: an entry before, and one with the outcome. New actions have a name in
//! [`AdminAction`](crate::domain::audit::AdminAction). `tests/spec/admin/writes.rs` has an example of every write, and
//! fails for a route without one.

use actix_web::{
    middleware::from_fn,
    web::{self, ServiceConfig},
};

use crate::{
    api::{
        middleware::admin_only,
        route::{ApiRoute, mount, route},
    },
    domain::limits::CONTENT_BODY,
};

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

/// All paths of this surface begin with it.
pub const PREFIX: &str = "/admin/";

/// Every admin route, one line each, in the contract's order, routes of one path together.
pub fn routes() -> Vec<ApiRoute> {
    vec![
        route!(ping::ping, Admin),
        route!(users::list, Admin),
        route!(overview::get, Admin),
        route!(users::get, Admin),
        route!(users::sign_out, Admin),
        route!(refunds::list_charges, Admin),
        route!(subscriptions::get, Admin),
        route!(subscriptions::delete, Admin),
        route!(paired_servers::delete_all, Admin),
        route!(paired_servers::delete, Admin),
        route!(analytics::get, Admin),
        route!(audit::list, Admin),
        route!(stores::list, Admin),
        route!(stores::get, Admin),
        route!(stores::update, Admin).body(CONTENT_BODY),
        route!(stores::list_versions, Admin),
        route!(stores::get_version, Admin),
        route!(stores::restore, Admin),
        route!(beta_testers::list, Admin),
        route!(beta_testers::create, Admin).key(),
        route!(beta_testers::delete, Admin),
        route!(chat::register_commands, Admin),
        route!(wiki::list, Admin),
        route!(wiki::get, Admin),
        route!(wiki::update, Admin).body(CONTENT_BODY),
        route!(wiki::delete, Admin),
        route!(wiki::list_versions, Admin),
        route!(wiki::get_version, Admin),
        route!(wiki::restore, Admin),
        route!(wiki::upload_image, Admin),
        route!(items::list, Admin),
        route!(items::upload_icon, Admin),
        route!(items::update, Admin),
        route!(items::delete, Admin),
        route!(items::search, Admin),
        route!(conveyor_map::list, Admin),
        route!(conveyor_map::create, Admin).key(),
        route!(conveyor_map::update_categories, Admin),
        route!(conveyor_map::update, Admin),
        route!(conveyor_map::delete, Admin),
        route!(refunds::create, Admin).key(),
        route!(refunds::list, Admin),
        route!(refunds::list_events, Admin),
    ]
}

/// Registers these routes behind their door.
pub fn register(config: &mut ServiceConfig, routes: &[&ApiRoute]) {
    let scope = PREFIX.trim_end_matches('/');
    config.service(web::scope(scope).wrap(from_fn(admin_only::admit)).configure(|config| mount(config, routes, scope)));
}
