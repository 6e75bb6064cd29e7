//! The types in a handler's signature that say who may call and that the input is valid.

pub mod admin;
pub mod bearer;
pub mod caller;
pub mod cross_site;
pub mod idempotent;
pub mod json;
mod last_use;
pub mod paired_server;
pub mod query;
pub mod relay_caller;
pub mod route_facts;
pub mod session_user;
pub mod strict_objects;
