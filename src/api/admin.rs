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
        route!(ping::ping),
        route!(users::list),
        route!(overview::get),
        route!(users::get),
        route!(users::sign_out),
        route!(refunds::list_charges),
        route!(subscriptions::get),
        route!(subscriptions::delete),
        route!(paired_servers::delete_all),
        route!(paired_servers::delete),
        route!(analytics::get),
        route!(audit::list),
        route!(stores::list),
        route!(stores::get),
        route!(stores::update).body(CONTENT_BODY),
        route!(stores::list_versions),
        route!(stores::get_version),
        route!(stores::restore),
        route!(beta_testers::list),
        route!(beta_testers::create).key(),
        route!(beta_testers::delete),
        route!(chat::register_commands),
        route!(wiki::list),
        route!(wiki::get),
        route!(wiki::update).body(CONTENT_BODY),
        route!(wiki::delete),
        route!(wiki::list_versions),
        route!(wiki::get_version),
        route!(wiki::restore),
        route!(wiki::upload_image),
        route!(items::list),
        route!(items::upload_icon),
        route!(items::update),
        route!(items::delete),
        route!(items::search),
        route!(conveyor_map::list),
        route!(conveyor_map::create).key(),
        route!(conveyor_map::update_categories),
        route!(conveyor_map::update),
        route!(conveyor_map::delete),
        route!(refunds::create).key(),
        route!(refunds::list),
        route!(refunds::list_events),
    ]
}

/// Registers these routes behind their door.
pub fn register(config: &mut ServiceConfig, routes: &[&ApiRoute]) {
    let scope = PREFIX.trim_end_matches('/');
    config.service(web::scope(scope).wrap(from_fn(admin_only::admit)).configure(|config| mount(config, routes, scope)));
}
