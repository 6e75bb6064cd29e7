//! The neighbours that are called over HTTP: one file for each, named by its role.
//!
//! Every call has a deadline and a cap on what it reads; redirects are never followed; base URLs are settings. No
//! client knows the answers of our own API, or the database.

pub mod channels;
pub mod chat;
pub mod error;
pub mod http;
pub mod identity;
pub mod payments;
pub mod player_stats;
pub mod registration;
pub mod relay_health;
