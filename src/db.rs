//! The database: a file for each table, plain functions over a connection and the time. No rules about who may call them
//! (except [`access`]), no HTTP, no keys: sealed columns are read and written sealed. Beside the tables: what is kept in files of
//! the data directory or in memory, because the database may be away, and looks at the rows of all tables.
//!
//! SQLite and PostgreSQL share the schema and the code. Ids and times come from the caller; instants are stored as
//! UTC with microseconds.

/// Compiles one query for each engine: for what diesel does not offer over both at once (`ON CONFLICT`).
macro_rules! on_backend {
    ($db:expr, |$connection:ident| $query:expr) => {
        match $db {
            $crate::db::engine::pool::Db::Pg($connection) => $query,
            $crate::db::engine::pool::Db::Sqlite($connection) => $query,
        }
    };
}

/// Deletes the rows whose column, which may be nullable, is not after this time: the oldest [`PURGE_BATCH`], and what is as old as the last of
/// them. Gives how many.
macro_rules! purge_oldest {
    ($db:expr, $table:ident, $column:ident, $until:expr) => {{
        let until: Timestamp = $until;
        let last: Option<Option<Timestamp>> = $table::table
            .filter($table::$column.le(until))
            .order($table::$column)
            .offset($crate::db::PURGE_BATCH as i64 - 1)
            .select($table::$column.nullable())
            .first($db)
            .optional()?;
        diesel::delete($table::table.filter($table::$column.le(last.flatten().unwrap_or(until)))).execute($db)?
    }};
}

pub mod access;
pub mod alarms;
pub mod alias_answers;
pub mod api_tokens;
pub mod audit;
pub mod bot_links;
pub mod chat_lines;
pub mod conveyor_rows;
pub mod daily_counts;
pub mod day_speeds;
pub mod device_groups;
pub mod edited_items;
pub mod encryption_keys;
pub mod engine;
pub mod failed_pushes;
pub mod files;
pub mod guests;
pub mod held_parts;
pub mod helper_devices;
pub mod idempotency_keys;
pub mod images;
pub mod invite_refusals;
pub mod ledger_check;
pub mod map_notes;
pub mod maps;
pub mod markets;
pub mod members;
pub mod money;
pub mod moving;
pub mod node_news;
pub mod notices;
pub mod openid_nonces;
pub mod paired_servers;
pub mod pairing_codes;
pub mod pairing_requests;
pub mod personal_data;
pub mod player_sessions;
pub mod player_stats_spending;
pub mod push_credentials;
pub mod push_refusals;
pub mod push_registrations;
pub mod push_seen;
pub mod row_checks;
pub mod row_references;
pub mod schema;
pub mod server_matches;
pub mod server_places;
pub mod sessions;
pub mod shop_history;
pub mod shop_watches;
pub mod shops;
pub mod smart_devices;
pub mod stores;
pub mod switch_backs;
pub mod team_chat_settings;
pub mod team_timers;
#[cfg(test)]
pub(crate) mod testing;
pub mod timeline;
pub mod tracked_players;
pub mod usage;
pub mod user_search;
pub mod users;
pub mod vapid_keys;
pub mod wiki_pages;

/// Rows that a purge deletes at once, so that no other writer waits long for it. One that deleted fewer is done.
pub const PURGE_BATCH: usize = 500;

#[cfg(test)]
mod query_plans;
