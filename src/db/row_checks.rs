//! Looks at every row of a table through the type that the service reads it with, a few at a time: what cannot be read
//! is named by its table and key. A row gets so by a hand that edits the database, or by a fault of its disk.
//!
//! Tables whose rows are counted or compared and never shown are not here, and no table without a text as its first key,
//! except the audit log.

use std::fmt;

use crate::db::{
    alarms::{alarm_ledger::WaitingPush, incidents::IncidentRow, notice_subjects::NoticeRow, spoken_alarms::SpokenRow},
    alias_answers::StoredAnswer,
    api_tokens::ApiToken,
    audit::AuditEntry,
    chat_lines::LineRow,
    conveyor_rows::ConveyorRow,
    device_groups::GroupRow,
    edited_items::EditedItemRow,
    engine::{error::DbError, pool::Db, prelude::*},
    failed_pushes::FailedPush,
    guests::GuestRow,
    helper_devices::HelperDevice,
    invite_refusals::BlockRow,
    map_notes::StoredNote,
    maps::MapRow,
    markets::MarketRow,
    money::{
        beta_testers::BetaTesterRow, customers_to_end::CustomerRow, payment_events::ShownEvent,
        subscriptions::SubscriptionRow,
    },
    notices::{alarm_rules::RulesRow, channels::StoredChannel, deliveries::StoredDelivery},
    paired_servers::PairedServer,
    player_sessions::PastSession,
    push_credentials::CredentialRow,
    push_registrations::PushRegistration,
    schema,
    server_matches::MatchRow,
    sessions::Session,
    shop_history::HistoryRow,
    shop_watches::WatchRow,
    shops::ShopRow,
    smart_devices::SmartDevice,
    team_timers::TimerRow,
    timeline::TimelineRow,
    tracked_players::TrackedPlayer,
    users::User,
    wiki_pages::{WikiHead, WikiVersion},
};

/// Keys whose rows are read at once: all rows of a key are few.
const KEYS: i64 = 200;
/// Keys whose rows are read at once where a key has hundreds.
const KEYS_OF_MANY: i64 = 10;

/// One for each table.
pub const ROW_CHECKS: [RowCheck; 41] = [
    row_check!(alias_answers, name_key: String, StoredAnswer),
    row_check!(alarms, id: String, WaitingPush),
    row_check!(alarm_rules, server_id: String, RulesRow, RulesRow::check),
    row_check!(api_tokens, id: String, ApiToken),
    row_check!(audit, id: i64, AuditEntry),
    row_check!(beta_testers, platform_id: String, BetaTesterRow),
    row_check!(blocked_inviters, user_id: String, BlockRow),
    row_check!(channels, id: String, StoredChannel, StoredChannel::check),
    row_check!(chat_lines, server_id: String, LineRow; KEYS_OF_MANY),
    row_check!(conveyor_rows, shortname: String, ConveyorRow),
    row_check!(customers_to_end, customer_id: String, CustomerRow),
    row_check!(deliveries, id: String, StoredDelivery, StoredDelivery::check),
    row_check!(device_groups, id: String, GroupRow),
    row_check!(edited_items, id: i32, EditedItemRow),
    row_check!(failed_pushes, user_id: String, FailedPush),
    row_check!(guests, id: String, GuestRow),
    row_check!(helper_devices, id: String, HelperDevice),
    row_check!(incidents, id: String, IncidentRow),
    row_check!(map_notes, server_id: String, StoredNote),
    row_check!(maps, address: String, MapRow),
    row_check!(markets, game_server_id: String, MarketRow),
    row_check!(notices, incident_id: String, NoticeRow),
    row_check!(paired_servers, id: String, PairedServer, PairedServer::check),
    row_check!(payment_events, id: String, ShownEvent),
    row_check!(player_sessions, player_id: String, PastSession),
    row_check!(push_credentials, user_id: String, CredentialRow),
    row_check!(push_registrations, user_id: String, PushRegistration),
    row_check!(server_matches, address: String, MatchRow),
    row_check!(sessions, id: String, Session),
    row_check!(shop_history, id: String, HistoryRow),
    row_check!(shop_watches, id: String, WatchRow),
    row_check!(shops, game_server_id: String, ShopRow),
    row_check!(smart_devices, server_id: String, SmartDevice),
    row_check!(subscriptions, id: String, SubscriptionRow),
    row_check!(timeline, id: String, TimelineRow),
    row_check!(spoken_alarms, incident_id: String, SpokenRow),
    row_check!(team_timers, id: String, TimerRow),
    row_check!(tracked_players, id: String, TrackedPlayer),
    row_check!(users, id: String, User),
    row_check!(wiki_pages, slug: String, WikiHead),
    row_check!(wiki_versions, slug: String, WikiVersion),
];

/// The look at one table.
#[derive(Clone, Copy)]
pub struct RowCheck {
    pub table: &'static str,
    /// Reads the rows of the next keys after this one; none if there are no more.
    pub next: fn(&mut Db, Option<&str>) -> Result<Option<CheckedKeys>, DbError>,
}

/// Some keys whose rows were read.
#[derive(Debug)]
pub struct CheckedKeys {
    pub last: String,
    /// The keys of rows that cannot be read, with the column, as far as it is known.
    pub unreadable: Vec<(String, Option<String>)>,
}

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreadableRow {
    table: &'static str,
    key: String,
    column: Option<String>,
}

impl fmt::Display for UnreadableRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, column } = self;
        write!(f, "a row of {table} cannot be read: {key}")?;
        column.as_ref().map_or(Ok(()), |column| write!(f, ", column {column}"))
    }
}

impl RowCheck {
    /// The rows that these keys have found.
    pub fn found(&self, keys: CheckedKeys) -> impl Iterator<Item = UnreadableRow> {
        let table = self.table;
        keys.unreadable.into_iter().map(move |(key, column)| UnreadableRow { table, key, column })
    }
}

macro_rules! row_check {
    ($table:ident, $key:ident : $key_type:ty, $row:ty $(; $keys:expr)?) => {
        row_check!($table, $key: $key_type, $row, |_: &$row| Ok(()) $(; $keys)?)
    };
    // With what columns alone do not say.
    ($table:ident, $key:ident : $key_type:ty, $row:ty, $check:expr) => {
        row_check!($table, $key: $key_type, $row, $check; KEYS)
    };
    // The key begins the primary key, or each batch would read the whole table.
    ($table:ident, $key:ident : $key_type:ty, $row:ty, $check:expr; $keys:expr) => {
        RowCheck {
            table: stringify!($table),
            next: |db, after| {
                use schema::$table::{self, $key};
                let mut keys = $table::table.select($key).distinct().order($key).limit($keys).into_boxed();
                if let Some(after) = after.and_then(|after| after.parse::<$key_type>().ok()) {
                    keys = keys.filter($key.gt(after));
                }
                let keys: Vec<$key_type> = keys.load(db)?;
                let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(None) };
                let mut read = |first: &$key_type, last: &$key_type| -> Result<(), DbError> {
                    let rows = $table::table.filter($key.ge(first.clone())).filter($key.le(last.clone()));
                    rows.select(<$row>::as_select()).load::<$row>(db)?.iter().try_for_each($check)
                };
                let mut unreadable = Vec::new();
                if let Err(error) = read(first, last) {
                    let DbError::Malformed(_) = error else { return Err(error) };
                    for key in &keys {
                        match read(key, key) {
                            Ok(()) => {}
                            Err(DbError::Malformed(column)) => unreadable.push((key.to_string(), column)),
                            Err(error) => return Err(error),
                        }
                    }
                }
                Ok(Some(CheckedKeys { last: last.to_string(), unreadable }))
            },
        }
    };
}
use row_check;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            engine::pool::Pool,
            notices::channels::{self, tests::channel},
            paired_servers::{self, StoredPairing},
            testing,
        },
        domain::channels::user_channel::ChannelKind,
    };

    fn unreadable(pool: &Pool) -> Vec<String> {
        let mut found = Vec::new();
        for check in ROW_CHECKS {
            let mut after = None;
            while let Some(keys) = pool.read_blocking(|db| (check.next)(db, after.as_deref())).unwrap() {
                after = Some(keys.last.clone());
                found.extend(check.found(keys).map(|row| row.to_string()));
            }
        }
        found
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named_and_others_are_not() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            let fill = |db: &mut Db| {
                for number in 0..=2 * KEYS {
                    let pairing = StoredPairing { player_id: number.to_string(), ..testing::pairing("alice") };
                    paired_servers::put(db, &format!("server-{number:04}").into(), &pairing, testing::now())?;
                }
                Ok(())
            };
            pool.write_blocking(fill).unwrap();
            assert_eq!(unreadable(pool), [""; 0]);
            let spoil = "UPDATE paired_servers SET port = 70000 WHERE id IN ('server-0007', 'server-0400')";
            pool.write_blocking(|db| Ok(diesel::sql_query(spoil).execute(db)?)).unwrap();
            let named =
                ["server-0007", "server-0400"].map(|id| format!("a row of paired_servers cannot be read: {id}"));
            assert_eq!(unreadable(pool), named);
            let spoil = "UPDATE paired_servers SET port = 28083, player_id = 'x' WHERE id = 'server-0007'";
            pool.write_blocking(|db| Ok(diesel::sql_query(spoil).execute(db)?)).unwrap();
            assert_eq!(unreadable(pool)[0], format!("{}, column player_id", named[0]));
            let repair = "UPDATE paired_servers SET port = 28083, player_id = '1' || substr(id, 8)";
            pool.write_blocking(|db| Ok(diesel::sql_query(repair).execute(db)?)).unwrap();
            // A message whose state is no word of ours.
            let insert = |db: &mut Db| {
                channels::insert(db, &channel("hook", "alice", ChannelKind::Discord, "hook"), 9)?.unwrap();
                for statement in [
                    "INSERT INTO notices (incident_id, server_id, user_id, opened_at, round, round_at) \
                     VALUES ('raid', 'server-0000', 'alice', '2026-11-21 12:00:00', 0, '2026-11-21 12:00:00')",
                    "INSERT INTO deliveries (id, incident_id, user_id, channel_id, round, state, attempts, queued_at, urgent) \
                     VALUES ('message', 'raid', 'alice', 'hook', 0, 'somewhere', 0, '2026-11-21 12:00:00', true)",
                ] {
                    diesel::sql_query(statement).execute(db)?;
                }
                Ok(())
            };
            pool.write_blocking(insert).unwrap();
            assert_eq!(unreadable(pool), ["a row of deliveries cannot be read: message, column state"]);
        });
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&crate::config::Database::Sqlite(directory.path().join("test.db"))).unwrap();
        testing::user(&pool, "alice");
        let spoil = "UPDATE users SET created_at = 'yesterday'";
        pool.write_blocking(|db| Ok(diesel::sql_query(spoil).execute(db)?)).unwrap();
        assert_eq!(unreadable(&pool), ["a row of users cannot be read: alice, column created_at"]);
    }
}
