//! Everything that is stored about a user: as it is given to them, and how it is erased. What hangs on the user's row,
//! or on one of their paired servers, goes with it; this names the rest.
//!
//! Kept on purpose: the audit log, which is a chain; and what belongs to a game server or to other users, in which the
//! user occurs as a player of the game.

use diesel::{
    QueryableByName,
    connection::SimpleConnection as _,
    sql_query,
    sql_types::{BigInt, Text},
};

use crate::{
    crypto::digest::sha256_hex,
    db::{
        alarms::emergencies::{self, OrphanedEmergency},
        engine::{error::DbError, pool::Db, prelude::*},
        money::customers_to_end::{self, CustomerTurn},
        schema::{
            active_days, beta_testers, chat_link_codes, chat_links, erased_customers, guests, idempotency_keys,
            incident_acks, incidents, map_notes, paired_servers, payment_customers, payment_events, store_versions,
            subscriptions, tracked_players, users, wiki_versions,
        },
        users::{self as accounts, User},
    },
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
};

/// Rows that are read at once.
pub const PAGE: usize = 500;

/// Name of an erased admin as the writer of content; the audit log knows more.
const ERASED_WRITER: &str = "erased";

/// One list of what is stored about a user. It is read by keyset: a page begins after the last row of the one before, and
/// costs the same however many rows came before it.
#[derive(Clone, Copy, Debug)]
pub struct PersonalRows {
    /// Its name in JSON.
    pub name: &'static str,
    pub table: &'static str,
    /// Which rows are the user's: those of these owners, one after the other.
    whose: &'static [RowsOf],
    /// Orders the rows of an owner, each at a place of its own. Where it can be long, an index begins with the owner and
    /// goes on with this. Each column with its form, where that is not text: `:time` or `:number`.
    key: &'static [&'static str],
    /// Each with its form, where that is not the same in JSON: `:time`, `:flag` or `:json`.
    columns: &'static [&'static str],
}

/// Rows of an owner, whose id is `{owner}`.
#[derive(Clone, Copy, Debug)]
enum RowsOf {
    User(&'static str),
    /// Rows of each paired server of the user's own.
    OwnServers(&'static str),
    /// Rows of each player that the user tracks.
    TrackedPlayers(&'static str),
}

/// Where a page of a list ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// Which of `whose`.
    share: usize,
    owner: String,
    key: Vec<String>,
}

const OF_OWN_SERVER: &[RowsOf] = &[RowsOf::OwnServers("server_id = {owner}")];
const OF_USER: &[RowsOf] = &[RowsOf::User("user_id = {owner}")];
/// By account or id; and a deleted server, which the log names by its own id, by its owner.
const ABOUT_USER: &[RowsOf] = &[RowsOf::User(
    "(target IN (SELECT platform_id FROM users WHERE id = {owner} UNION SELECT id FROM users WHERE id = {owner}) OR (action = 'paired_server.delete' AND payload LIKE '%\"ownerId\":\"' || {owner} || '\"%'))",
)];
const OF_ACCOUNT: &[RowsOf] = &[RowsOf::User("platform_id = (SELECT platform_id FROM users WHERE id = {owner})")];

const fn rows(
    name: &'static str,
    table: &'static str,
    whose: &'static [RowsOf],
    key: &'static [&'static str],
    columns: &'static [&'static str],
) -> PersonalRows {
    PersonalRows { name, table, whose, key, columns }
}

/// All lists. Secrets, sealed or hashed, are in none.
#[rustfmt::skip]
pub const PERSONAL_DATA: [PersonalRows; 46] = [
    rows("profile", "users", &[RowsOf::User("id = {owner}")], &["id"], &["id", "platform_id", "display_name", "avatar_url", "time_zone", "locale", "created_at:time", "last_seen_at:time"]),
    rows("sessions", "sessions", OF_USER, &["id"], &["created_at:time", "last_seen_at:time", "expires_at:time"]),
    rows("activeDays", "active_days", OF_USER, &["day:time"], &["day:time"]),
    rows("pairedServers", "paired_servers", &[RowsOf::User("owner_id = {owner}")], &["id"], &["id", "game_server_id", "name", "address", "port", "player_id", "created_at:time", "updated_at:time", "link_alive_at:time", "wipe_time", "seed", "map_size", "level_name"]),
    rows("smartDevices", "smart_devices", OF_OWN_SERVER, &["device_id"], &["server_id", "device_id", "kind", "name", "label", "custom_command", "on_message", "off_message", "created_at:time", "last_value:flag", "x", "y", "reported"]),
    rows("pairingCodes", "pairing_codes", OF_USER, &["code"], &["label", "server_id", "sections", "issued_from", "created_at:time", "expires_at:time"]),
    rows("helperDevices", "helper_devices", OF_USER, &["id"], &["id", "label", "server_id", "sections", "created_at:time", "last_used_at:time", "seen_at:time", "warn_at:time"]),
    rows("apiTokens", "api_tokens", OF_USER, &["id"], &["id", "label", "scopes", "server_id", "created_at:time", "expires_at:time", "last_used_at:time"]),
    rows("channels", "channels", OF_USER, &["id"], &["id", "kind", "name", "host", "origin", "state", "reason", "failing_since:time", "accepted_at:time", "created_at:time", "failures:number", "warn_at:time"]),
    rows("alarmRules", "alarm_rules", OF_USER, &["server_id"], &["server_id", "rules"]),
    rows("notices", "notices", OF_USER, &["opened_at:time", "incident_id"], &["incident_id", "server_id", "opened_at:time", "round", "round_at:time", "due_at:time", "event"]),
    rows("deliveries", "deliveries", OF_USER, &["id"], &["id", "incident_id", "channel_id", "round", "state", "attempts", "queued_at:time", "due_at:time", "status", "reason", "ended_at:time", "urgent:flag", "rings_until:time"]),
    rows("pushCredentials", "push_credentials", OF_USER, &["user_id"], &["uploaded_at:time", "uploaded_by", "expires_at:time", "proven_at:time", "key_version", "staged_uploaded_at:time", "staged_uploaded_by", "staged_expires_at:time", "warn_at:time"]),
    rows("pushRefusals", "push_refusals", OF_USER, &["user_id"], &["uploaded_at:time", "uploaded_by", "reason", "refused_at:time", "dismissed:flag"]),
    rows("pushRegistration", "push_registrations", OF_USER, &["user_id"], &["id", "renew_asked:flag", "renew:flag", "closes_at:time", "step", "fault", "answer", "failures", "key_version", "bundle_at:time", "ends_at:time", "due_at:time"]),
    rows("receivedPushes", "push_seen", OF_USER, &["persistent_id"], &["persistent_id", "received_at:time"]),
    rows("failedPushes", "failed_pushes", OF_USER, &["push_id"], &["push_id", "attempts", "reason", "content", "failed_at:time", "dead:flag"]),
    rows("mapNotes", "map_notes", &[RowsOf::User("author_id = {owner}")], &["server_id", "id"], &["server_id", "id", "source", "x", "y", "category", "label", "created_at:time", "expires_at:time"]),
    rows("trackedPlayers", "tracked_players", OF_OWN_SERVER, &["id"], &["id", "server_id", "tracker_name", "tag", "note", "platform_id", "created_at:time", "online_since:time", "last_seen_at:time"]),
    rows("trackedSessions", "player_sessions", &[RowsOf::TrackedPlayers("player_id = {owner}")], &["began_at:time"], &["player_id", "began_at:time", "ended_at:time"]),
    rows("playerStatsRequests", "player_stats_spending", OF_USER, &["user_id"], &["day:time", "spent"]),
    rows("shopWatches", "shop_watches", OF_OWN_SERVER, &["id"], &["id", "server_id", "vendor_id", "item_id", "side", "direction", "expected_price", "currency_id", "created_at:time", "state", "found_vendor_id", "cost", "quantity", "as_of:time"]),
    rows("guests", "guests", OF_OWN_SERVER, &["id"], &["id", "server_id", "user_id", "platform_id", "label", "invited_at:time", "expires_at:time", "since:time"]),
    rows("guestOf", "guests", &[RowsOf::User("(user_id = {owner} OR platform_id = (SELECT platform_id FROM users WHERE id = {owner}))")], &["id"], &["id", "server_id", "label", "invited_at:time", "since:time"]),
    rows("refusedInvites", "refused_invites", OF_USER, &["server_id"], &["server_id", "refused_at:time"]),
    rows("blockedInviters", "blocked_inviters", OF_USER, &["blocked_user_id"], &["blocked_user_id", "blocked_at:time"]),
    rows("alarms", "alarms", OF_USER, &["id"], &["id", "server_id", "path", "alarm_id", "title", "message", "received_at:time", "sent_at:time", "state", "incident", "finished_at:time"]),
    rows("incidents", "incidents", OF_OWN_SERVER, &["id"], &["id", "server_id", "alarm_id", "alarm_name", "title", "x", "y", "grid", "first_at:time", "last_at:time", "ended_at:time", "count", "paths", "late:flag", "drill:flag", "state", "heard_at:time"]),
    rows("mergedIncidents", "merged_incidents", &[RowsOf::OwnServers("incident_id IN (SELECT id FROM incidents WHERE server_id = {owner})")], &["id"], &["id", "incident_id"]),
    rows("acknowledgements", "incident_acks", OF_USER, &["incident_id"], &["incident_id", "at:time"]),
    rows("timeline", "timeline", &[RowsOf::User("user_id = {owner}"), RowsOf::OwnServers("server_id = {owner}")], &["ts:time", "id"], &["id", "server_id", "kind", "action", "ts:time", "grid", "x", "y", "title", "data:json"]),
    rows("chatLines", "chat_lines", OF_OWN_SERVER, &["id"], &["server_id", "id", "said_at:time", "author", "author_id", "text"]),
    rows("chatLink", "chat_links", OF_USER, &["user_id"], &["chat_user_id", "linked_at:time"]),
    rows("paymentCustomer", "payment_customers", OF_USER, &["user_id"], &["customer_id", "open_checkout"]),
    rows("subscriptions", "subscriptions", OF_USER, &["id"], &["id", "customer_id", "tier", "status", "price", "period_start:time", "period_end:time", "cancel_at_period_end:flag", "lapsed:flag", "started_at:time", "fetched_at:time", "past_due_since:time", "paid_tier", "billing_interval", "ended_unknown:flag"]),
    rows("paymentEvents", "payment_events", &[RowsOf::User("(user_hint = {owner} OR customer_id IN (SELECT customer_id FROM payment_customers WHERE user_id = {owner}))")], &["id"], &["id", "kind", "subscription_id", "customer_id", "charge_id", "state", "reason", "received_at:time"]),
    rows("betaTester", "beta_testers", OF_ACCOUNT, &["platform_id"], &["tier", "note", "expires_at:time", "created_at:time"]),
    rows("searchedBy", "user_search", OF_USER, &["key"], &["key"]),
    rows("adminActions", "audit", &[RowsOf::User("actor = (SELECT platform_id FROM users WHERE id = {owner})")], &["at:time", "id:number"], &["id", "at:time", "action", "target", "payload:json", "result"]),
    rows("adminActionsAboutMe", "audit", ABOUT_USER, &["id:number"], &["id", "at:time", "action", "payload:json", "result"]),
    rows("pairingRequests", "pairing_requests", &[RowsOf::User("code IN (SELECT code FROM pairing_codes WHERE user_id = {owner})")], &["id"], &["id", "network", "requested_at:time", "confirmed_at:time"]),
    rows("teamChatSettings", "team_chat_settings", OF_OWN_SERVER, &["server_id"], &["server_id", "settings"]),
    rows("deviceGroups", "device_groups", OF_OWN_SERVER, &["id"], &["id", "server_id", "name", "command", "devices", "created_at:time"]),
    rows("spokenAlarms", "spoken_alarms", OF_OWN_SERVER, &["incident_id"], &["incident_id", "server_id", "state", "reason", "queued_at:time", "ended_at:time"]),
    rows("teamTimers", "team_timers", OF_OWN_SERVER, &["id"], &["id", "server_id", "number", "text", "created_at:time", "ends_at:time", "team"]),
    rows("switchBacks", "switch_backs", OF_OWN_SERVER, &["device_id"], &["server_id", "device_id", "value:flag", "due_at:time"]),
];

#[derive(QueryableByName)]
struct KeyedRow {
    #[diesel(sql_type = Text)]
    json: String,
    #[diesel(sql_type = Text)]
    first_key: String,
    #[diesel(sql_type = Text)]
    second_key: String,
}

/// The engine that a query is written for.
#[derive(Clone, Copy)]
enum Dialect {
    Sqlite,
    Postgres,
}

impl RowsOf {
    fn rows(self) -> &'static str {
        match self {
            Self::User(rows) | Self::OwnServers(rows) | Self::TrackedPlayers(rows) => rows,
        }
    }

    /// The ids of its owners, in order.
    fn owners(self, db: &mut Db, user: &User) -> Result<Vec<String>, DbError> {
        let id = user.id.as_str();
        let own = paired_servers::table.filter(paired_servers::owner_id.eq(id)).select(paired_servers::id);
        let mut owners: Vec<String> = match self {
            Self::User(_) => vec![id.to_owned()],
            Self::OwnServers(_) => own.load(db)?,
            Self::TrackedPlayers(_) => {
                let servers: Vec<String> = own.load(db)?;
                let tracked = tracked_players::table.filter(tracked_players::server_id.eq_any(servers));
                tracked.select(tracked_players::id).load(db)?
            }
        };
        owners.sort();
        Ok(owners)
    }
}

impl PersonalRows {
    /// Places within it, one for each owner of rows.
    #[cfg(test)]
    pub fn places(&self, db: &mut Db, user: &User) -> Result<Vec<RowPlace>, DbError> {
        let value = |column: &&str| match column.split_once(':') {
            Some((_, "time")) => "2026-11-21 12:00:00".to_owned(),
            _ => "0".to_owned(),
        };
        let mut places = Vec::new();
        for (share, whose) in self.whose.iter().enumerate() {
            let key = || -> Vec<String> { self.key.iter().map(value).collect() };
            places.extend(whose.owners(db, user)?.into_iter().map(|owner| RowPlace { share, owner, key: key() }));
        }
        Ok(places)
    }

    /// A page of it from this place on, each row as a JSON object, and where the next one begins; none if this is the last.
    pub fn read(
        &self,
        db: &mut Db,
        user: &User,
        after: Option<&RowPlace>,
    ) -> Result<(Vec<String>, Option<RowPlace>), DbError> {
        let mut page = Vec::new();
        for (share, whose) in self.whose.iter().enumerate().skip(after.map_or(0, |after| after.share)) {
            let after = after.filter(|after| after.share == share);
            for owner in whose.owners(db, user)? {
                let key = match after {
                    Some(after) if owner < after.owner => continue,
                    Some(after) if owner == after.owner => after.key.as_slice(),
                    _ => &[],
                };
                let rows = self.read_of(db, whose.rows(), &owner, key, PAGE - page.len())?;
                let last = rows.last().map(|row| [row.first_key.clone(), row.second_key.clone()]);
                page.extend(rows.into_iter().map(|row| row.json));
                if let Some(key) = last.filter(|_| page.len() == PAGE) {
                    let key = key.into_iter().take(self.key.len()).collect();
                    return Ok((page, Some(RowPlace { share, owner, key })));
                }
            }
        }
        Ok((page, None))
    }

    /// At most `limit` rows of one owner after this key.
    fn read_of(
        &self,
        db: &mut Db,
        whose: &str,
        owner: &str,
        key: &[String],
        limit: usize,
    ) -> Result<Vec<KeyedRow>, DbError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Ok(match db {
            Db::Pg(db) => {
                let query = sql_query(self.query(Dialect::Postgres, whose, !key.is_empty())).into_boxed();
                let query = query.bind::<Text, _>(owner).bind::<BigInt, _>(limit);
                key.iter().fold(query, |query, part| query.bind::<Text, _>(part)).load(db)?
            }
            Db::Sqlite(db) => {
                let query = sql_query(self.query(Dialect::Sqlite, whose, !key.is_empty())).into_boxed();
                let query = query.bind::<Text, _>(owner).bind::<BigInt, _>(limit);
                key.iter().fold(query, |query, part| query.bind::<Text, _>(part)).load(db)?
            }
        })
    }

    /// The owner's id, how many, and with `goes_on` the key, are its values.
    fn query(&self, dialect: Dialect, whose: &str, goes_on: bool) -> String {
        let Self { table, key, columns, .. } = self;
        let fields: Vec<String> = columns
            .iter()
            .map(|column| {
                let (column, form) = column.split_once(':').unwrap_or((column, ""));
                let value = match (dialect, form) {
                    (Dialect::Sqlite, "time") => format!("strftime('%Y-%m-%dT%H:%M:%fZ', {column})"),
                    (Dialect::Postgres, "time") => format!("to_char({column}, 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"),
                    (Dialect::Sqlite, "flag") => {
                        format!("json(CASE {column} WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END)")
                    }
                    (Dialect::Sqlite, "json") => format!("json({column})"),
                    (Dialect::Postgres, "json") => format!("{column}::json"),
                    _ => column.to_owned(),
                };
                format!("'{}', {value}", camel_case(column))
            })
            .collect();
        let fields = fields.join(", ");
        let (object, mark) = match dialect {
            Dialect::Sqlite => (format!("json_object({fields})"), '?'),
            Dialect::Postgres => (format!("json_build_object({fields})::text"), '$'),
        };
        // As text, which says a time exactly.
        let (mut order, mut texts, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (number, column) in (3..).zip(*key) {
            let (column, form) = column.split_once(':').unwrap_or((column, ""));
            let value = format!("{mark}{number}");
            values.push(match (dialect, form) {
                (Dialect::Postgres, "time") => format!("{value}::timestamp"),
                (_, "number") => format!("CAST({value} AS BIGINT)"),
                _ => value,
            });
            texts.push(format!("CAST({column} AS TEXT)"));
            order.push(column);
        }
        texts.resize(2, "''".to_owned());
        let order = order.join(", ");
        let goes_on = if goes_on { format!("AND ({order}) > ({})", values.join(", ")) } else { String::new() };
        let whose = whose.replace("{owner}", &format!("{mark}1"));
        format!(
            "SELECT {object} AS json, {} AS first_key, {} AS second_key FROM {table}
             WHERE {whose} {goes_on} ORDER BY {order} LIMIT {mark}2",
            texts[0], texts[1]
        )
    }
}

fn camel_case(column: &str) -> String {
    let mut parts = column.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| {
        let (initial, rest) = part.split_at(part.len().min(1));
        name + &initial.to_uppercase() + rest
    })
}

/// Traces of an erased user that other parts must be notified of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Own ones.
    pub servers: Vec<ServerId>,
    /// Servers of which the user was a guest.
    pub shared: Vec<ServerId>,
    /// Servers of others, whose alarms the user took note of.
    pub acknowledged: Vec<ServerId>,
    /// Map notes on servers of others, by server.
    pub notes: Vec<(ServerId, String)>,
    /// The customer id of the payment provider, at which a subscription may run.
    pub customers: Vec<CustomerTurn>,
    /// Messages at Pushover that still repeat, also those of others about the user's servers.
    pub emergencies: Vec<OrphanedEmergency>,
}

/// Begins an erasure: nothing of this user is added until the transaction ends. Others lock in another order (the
/// server before its user), and only an erasure may fail for that: it waits for a shorter time than PostgreSQL does
/// before it ends a deadlock, and than an alarm does for the ledger. On [`DbError::is_lost_lock`] the caller begins
/// again.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn begin_erasure(db: &mut Db, user: &UserId) -> Result<(), DbError> {
    if let Db::Pg(db) = db {
        db.batch_execute("SET LOCAL lock_timeout = '200ms'")?;
    }
    accounts::lock_out(db, user)
}

/// Erases the user with all that is stored about them.
///
/// Call it in a transaction, and after [`begin_erasure`] where others write.
pub fn erase(db: &mut Db, user: &User, now: Timestamp) -> Result<Erased, DbError> {
    let (id, account) = (user.id.as_str(), user.platform_id.as_str());
    accounts::lock_out(db, &user.id)?;
    let servers: Vec<String> =
        paired_servers::table.filter(paired_servers::owner_id.eq(id)).select(paired_servers::id).load(db)?;
    let shared: Vec<String> = guests::table.filter(guests::user_id.eq(id)).select(guests::server_id).load(db)?;
    let mut acknowledged: Vec<String> = incident_acks::table
        .inner_join(incidents::table)
        .filter(incident_acks::user_id.eq(id))
        .select(incidents::server_id)
        .distinct()
        .load(db)?;
    acknowledged.retain(|server| !servers.contains(server));
    let mut notes: Vec<(String, String)> = diesel::delete(map_notes::table.filter(map_notes::author_id.eq(id)))
        .returning((map_notes::server_id, map_notes::id))
        .load(db)?;
    notes.retain(|(server, _)| !servers.contains(server));

    diesel::delete(active_days::table.filter(active_days::user_id.eq(id))).execute(db)?;
    diesel::delete(guests::table.filter(guests::platform_id.eq(account))).execute(db)?;
    diesel::delete(beta_testers::table.find(account)).execute(db)?;
    let sent = idempotency_keys::table.filter(idempotency_keys::caller.eq_any([id, account]));
    diesel::delete(sent).execute(db)?;
    let accounts: Vec<String> =
        chat_links::table.filter(chat_links::user_id.eq(id)).select(chat_links::chat_user_id).load(db)?;
    diesel::delete(chat_link_codes::table.filter(chat_link_codes::chat_user_id.eq_any(accounts))).execute(db)?;
    let customers = forget_payments(db, id, now)?;
    let emergencies = emergencies::of_erased(db, &user.id, &servers, now)?;
    diesel::update(store_versions::table.filter(store_versions::written_by.eq(account)))
        .set(store_versions::written_by.eq(ERASED_WRITER))
        .execute(db)?;
    diesel::update(wiki_versions::table.filter(wiki_versions::written_by.eq(account)))
        .set(wiki_versions::written_by.eq(ERASED_WRITER))
        .execute(db)?;
    diesel::delete(users::table.find(id)).execute(db)?;
    Ok(Erased {
        servers: servers.into_iter().map(ServerId::from).collect(),
        shared: shared.into_iter().map(ServerId::from).collect(),
        acknowledged: acknowledged.into_iter().map(ServerId::from).collect(),
        notes: notes.into_iter().map(|(server, note)| (server.into(), note)).collect(),
        customers,
        emergencies,
    })
}

/// Events stay known as taken, and no longer name a user. What runs at the provider is still to be ended.
fn forget_payments(db: &mut Db, user: &str, now: Timestamp) -> Result<Vec<CustomerTurn>, DbError> {
    let of_user = payment_customers::table.filter(payment_customers::user_id.eq(user));
    let mut customers: Vec<String> = of_user.select(payment_customers::customer_id).load(db)?;
    let of_user = subscriptions::table.filter(subscriptions::user_id.eq(user));
    let known: Vec<(String, String)> = of_user.select((subscriptions::id, subscriptions::customer_id)).load(db)?;
    let (ids, more): (Vec<String>, Vec<String>) = known.into_iter().unzip();
    customers.extend(more);
    customers.sort();
    customers.dedup();
    for customer in &customers {
        let row = erased_customers::customer_hash.eq(sha256_hex(customer.as_bytes()));
        let put = diesel::insert_into(erased_customers::table).values(row).on_conflict_do_nothing();
        on_backend!(db, |db| put.execute(db))?;
    }
    let about = payment_events::user_hint
        .eq(user)
        .or(payment_events::customer_id.eq_any(&customers))
        .or(payment_events::subscription_id.eq_any(ids));
    diesel::update(payment_events::table.filter(about))
        .set((
            payment_events::customer_id.eq(None::<String>),
            payment_events::user_hint.eq(None::<String>),
            payment_events::subscription_id.eq(None::<String>),
        ))
        .execute(db)?;
    customers.iter().map(|customer| customers_to_end::put(db, customer, now)).collect()
}

/// True if this customer of the payment provider was a user who has erased themselves.
pub fn is_erased_customer(db: &mut Db, customer: &str) -> Result<bool, DbError> {
    let row = erased_customers::table.find(sha256_hex(customer.as_bytes()));
    Ok(row.select(erased_customers::customer_hash).first::<String>(db).optional()?.is_some())
}

#[cfg(test)]
mod tests;
