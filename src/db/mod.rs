//! The database: one file per table, plain functions over a connection and the time. No rules about who may call them
//! (except [`access`]), no HTTP, no keys: sealed columns are read and written sealed.
//!
//! SQLite and PostgreSQL share the schema and the code. Ids and times come from the caller; instants are stored as
//! UTC with microseconds.

/// The same query, compiled for each engine: for what diesel does not offer over both at once (`ON CONFLICT`).
macro_rules! on_backend {
    ($db:expr, |$connection:ident| $query:expr) => {
        match $db {
            $crate::db::pool::Db::Pg($connection) => $query,
            $crate::db::pool::Db::Sqlite($connection) => $query,
        }
    };
}

pub mod access;
pub mod alarms;
pub mod encryption_keys;
pub mod engine;
pub mod error;
pub mod failed_pushes;
pub mod helper_devices;
pub mod openid_nonces;
pub mod paired_servers;
pub mod pairing_codes;
pub mod pool;
pub mod push_credentials;
pub mod push_refusals;
pub mod push_seen;
pub mod schema;
pub mod sessions;
pub mod sign_in_attempts;
pub mod smart_devices;
#[cfg(test)]
pub(crate) mod testing;
pub mod timeline;
pub mod timestamp;
pub mod users;
