use std::collections::{BTreeMap, BTreeSet};

use diesel::connection::SimpleConnection as _;
use serde_json::Value;

use super::*;
use crate::db::{
    engine::{pool::Pool, schema_steps},
    money::payment_customers,
    paired_servers, sessions, testing,
    users::{self, StoredProfile},
};

/// Tables without an owner: of the service, of game servers, of the game. A table that is not here is filled for a
/// user, and nothing of that may be left.
const OF_NO_USER: [&str; 28] = [
    "__diesel_schema_migrations",
    "alias_answers",
    "audit_head",
    "conveyor_rows",
    "customers_to_end",
    "daily_counts",
    "day_speeds",
    "edited_items",
    "edited_items_version",
    "encryption_keys",
    "erased_customers",
    "former_subscribers",
    "held_parts",
    "image_uses",
    "images",
    "map_pictures",
    "maps",
    "markets",
    "node_news",
    "openid_nonces",
    "program_versions",
    "refund_attempts",
    "server_matches",
    "shop_history",
    "shops",
    "vapid_keys",
    "wiki_pages",
    "write_checks",
];

/// Tables whose rows stay, without their user.
const CONTENT: [&str; 5] = ["audit", "chat_link_codes", "payment_events", "store_versions", "wiki_versions"];

/// Tables that other tables refer to, to be filled first.
const FIRST: [&str; 9] = [
    "users",
    "paired_servers",
    "smart_devices",
    "incidents",
    "tracked_players",
    "push_credentials",
    "wiki_pages",
    "channels",
    "notices",
];

#[derive(QueryableByName)]
struct Column {
    #[diesel(sql_type = Text)]
    table_name: String,
    #[diesel(sql_type = Text)]
    column_name: String,
    #[diesel(sql_type = Text)]
    data_type: String,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// The columns of every table, with their types, as the database knows them.
fn catalogue(pool: &Pool) -> BTreeMap<String, Vec<(String, String)>> {
    let read = |db: &mut Db| {
        Ok(match db {
            Db::Pg(db) => sql_query(
                "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns
                 WHERE table_schema = 'public' ORDER BY ordinal_position",
            )
            .load::<Column>(db)?,
            Db::Sqlite(db) => sql_query(
                "SELECT m.name AS table_name, c.name AS column_name, lower(c.type) AS data_type
                 FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY c.cid",
            )
            .load::<Column>(db)?,
        })
    };
    let mut tables: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for Column { table_name, column_name, data_type } in pool.read_blocking(read).unwrap() {
        tables.entry(table_name).or_default().push((column_name, data_type));
    }
    tables
}

/// A value of this user for a column: every text names them.
fn value(table: &str, column: &str, data_type: &str, who: &str, number: i64, postgres: bool) -> String {
    let text = |text: String| format!("'{text}'");
    match (table, column) {
        ("users", "id") | (_, "user_id" | "blocked_user_id" | "owner_id" | "author_id" | "user_hint" | "caller") => {
            text(who.to_owned())
        }
        ("paired_servers", "id") | (_, "server_id") => text(format!("{who}-server")),
        ("incidents", "id") | (_, "incident_id") => text(format!("{who}-incident")),
        ("channels", "id") | (_, "channel_id") => text(format!("{who}-way")),
        ("tracked_players", "id") | ("player_sessions", "player_id") => text(format!("{who}-player")),
        (_, "platform_id" | "actor" | "target" | "written_by") => text(format!("{who}-account")),
        (_, "customer_id" | "chat_user_id") => text(format!("{who}-{column}")),
        ("idempotency_keys", "device_id") => text(format!("{who}-id")),
        ("audit", "payload") => "'{\"before\":null}'".to_owned(),
        ("timeline", "data") => format!("'{{\"by\":\"{who}\"}}'"),
        ("wiki_pages" | "wiki_versions", "slug") => text(format!("slug-{number}")),
        _ if data_type == "text" && (CONTENT.contains(&table) || OF_NO_USER.contains(&table)) => {
            text(format!("x-{number}-{column}"))
        }
        _ if data_type == "text" => text(format!("{who}-{column}")),
        _ if data_type.starts_with("timestamp") => text("2026-11-21 12:00:00.250000".to_owned()),
        _ if data_type == "boolean" => "TRUE".to_owned(),
        _ if data_type == "bytea" || data_type == "blob" => {
            if postgres {
                "'\\x00'::bytea".to_owned()
            } else {
                "X'00'".to_owned()
            }
        }
        _ => number.to_string(),
    }
}

fn run(pool: &Pool, sql: &str) {
    let run = |db: &mut Db| match db {
        Db::Pg(db) => Ok(db.batch_execute(sql)?),
        Db::Sqlite(db) => Ok(db.batch_execute(sql)?),
    };
    pool.write_blocking(run).unwrap_or_else(|error| panic!("{error}: {sql}"));
}

fn is_postgres(pool: &Pool) -> bool {
    pool.read_blocking(|db| Ok(matches!(db, Db::Pg(_)))).unwrap()
}

/// One row of this user in every table.
fn fill(pool: &Pool, tables: &BTreeMap<String, Vec<(String, String)>>, who: &str, number: i64) {
    let postgres = is_postgres(pool);
    let others =
        tables.keys().map(String::as_str).filter(|table| !FIRST.contains(table) && !OF_NO_USER.contains(table));
    for table in FIRST.into_iter().chain(others) {
        let columns = &tables[table];
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let values = columns.iter().map(|(name, form)| value(table, name, form, who, number, postgres));
        let values: Vec<String> = values.collect();
        run(pool, &format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", ")));
    }
}

/// In how many rows of each table a text names this user.
fn named(pool: &Pool, tables: &BTreeMap<String, Vec<(String, String)>>, who: &str) -> BTreeMap<String, i64> {
    let count = |table: &str, columns: &[(String, String)]| {
        let texts = columns.iter().filter(|(_, form)| form == "text");
        let any: Vec<String> = texts.map(|(name, _)| format!("{name} LIKE '%{who}%'")).collect();
        if any.is_empty() {
            return 0;
        }
        let sql = format!("SELECT count(*) AS count FROM {table} WHERE {}", any.join(" OR "));
        let read = |db: &mut Db| {
            Ok(match db {
                Db::Pg(db) => sql_query(&sql).get_result::<Count>(db)?,
                Db::Sqlite(db) => sql_query(&sql).get_result::<Count>(db)?,
            })
        };
        pool.read_blocking(read).unwrap().count
    };
    tables
        .iter()
        .map(|(table, columns)| (table.clone(), count(table, columns)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn user(pool: &Pool, id: &str) -> User {
    pool.read_blocking(|db| users::find(db, &id.into())).unwrap().unwrap()
}

/// Data that Ann shares with Bob, and the answer to the activation of her device.
const SHARED: &str = "
    INSERT INTO guests (id, server_id, user_id, invited_at) VALUES ('g1', 'bob-server', 'ann', '2026-11-21 12:00:00');
    INSERT INTO guests (id, server_id, platform_id, invited_at)
        VALUES ('g2', 'bob-server', 'ann-account', '2026-11-21 12:00:00');
    INSERT INTO incident_acks (incident_id, user_id, at) VALUES ('bob-incident', 'ann', '2026-11-21 12:00:00');
    INSERT INTO map_notes (server_id, id, author_id, source, x, y, category, created_at)
        VALUES ('bob-server', 'n1', 'ann', 'user', 1, 1, 'raid', '2026-11-21 12:00:00');
    INSERT INTO idempotency_keys (id, caller, request, sealed, created_at, device_id)
        VALUES ('k1', 'code 1', 'activation', '', '2026-11-21 12:00:00', 'ann-id');";

#[test]
fn nothing_of_an_erased_user_is_left_and_all_of_others_is() {
    testing::on_each_database(|pool| {
        let tables = catalogue(pool);
        fill(pool, &tables, "ann", 1);
        fill(pool, &tables, "bob", 2);
        let bobs = named(pool, &tables, "bob");
        run(pool, SHARED);
        assert!(named(pool, &tables, "ann").len() > 30, "many tables name a user");

        let ann = user(pool, "ann");
        // As after a kill in the middle: all of it or nothing.
        let whole = named(pool, &tables, "ann");
        let failed: Result<(), DbError> =
            pool.write_blocking(|db| erase(db, &ann, testing::now()).and(Err(DbError::Conflict)));
        assert!(failed.is_err());
        assert_eq!(named(pool, &tables, "ann"), whole);

        let erased = pool.write_blocking(|db| erase(db, &ann, testing::now())).unwrap();
        assert_eq!(erased.servers, ["ann-server".into()]);
        assert_eq!(erased.notes, [("bob-server".into(), "n1".to_owned())]);
        assert!(erased.shared.contains(&"bob-server".into()));
        assert_eq!(erased.acknowledged, ["bob-server".into()]);
        let left = named(pool, &tables, "ann");
        assert_eq!(left.keys().collect::<Vec<_>>(), ["audit", "customers_to_end"], "{left:?}");
        let customers: Vec<&str> = erased.customers.iter().map(|turn| turn.customer.as_str()).collect();
        assert_eq!(customers, ["ann-customer_id"]);
        assert_eq!(named(pool, &tables, "bob"), bobs);
        let customer = |customer: &str| pool.read_blocking(|db| is_erased_customer(db, customer)).unwrap();
        assert!(customer("ann-customer_id") && !customer("bob-customer_id"));

        let profile = StoredProfile { display_name: "Ann".into(), avatar_url: None };
        let account = ann.platform_id.clone();
        let again =
            pool.write_blocking(|db| users::sign_in(db, &"new".into(), &account, Some(&profile), testing::now()));
        let again = again.unwrap();
        assert_eq!((again.id.as_str(), again.time_zone, again.created_at), ("new", None, testing::now()));
    });
}

#[test]
fn an_export_has_a_row_of_every_table_and_no_secret() {
    testing::on_each_database(|pool| {
        let tables = catalogue(pool);
        fill(pool, &tables, "ann", 1);
        fill(pool, &tables, "bob", 2);
        run(pool, "DELETE FROM guests WHERE user_id = 'bob'");
        run(pool, SHARED);
        let ann = user(pool, "ann");
        for rows in PERSONAL_DATA {
            let (page, next) = pool.read_blocking(|db| rows.read(db, &ann, None)).unwrap();
            assert!(!page.is_empty(), "{}", rows.name);
            assert!(rows.table != "audit" || page.iter().all(|row| row.contains("payload")), "{page:?}");
            for row in &page {
                let row: Value = serde_json::from_str(row).unwrap_or_else(|error| panic!("{error}: {row}"));
                for column in rows.columns {
                    let (name, form) = column.split_once(':').unwrap_or((column, ""));
                    let value = &row[camel_case(name)];
                    let is_right = match form {
                        "time" => {
                            value.is_null()
                                || value == "2026-11-21T12:00:00.250Z"
                                || value == "2026-11-21T12:00:00.000Z"
                        }
                        "flag" => value.is_null() || value == true,
                        "json" => value.is_object(),
                        _ => true,
                    };
                    assert!(is_right, "{} {column}: {value}", rows.name);
                }
            }
            assert_eq!(next, None);
            for column in rows.columns {
                for secret in ["sealed", "hash", "token"] {
                    assert!(!column.contains(secret), "{column}");
                }
            }
        }
        let notes = PERSONAL_DATA.iter().find(|rows| rows.name == "mapNotes").unwrap();
        let sorted = pool.read_blocking(|db| notes.read(db, &ann, None)).unwrap().0;
        assert_eq!(sorted.len(), 2, "on the own server, and on Bob's: {sorted:?}");

        // Codes cannot be listed: only their hash is stored. Content has no user but its writer. The rows kept for a
        // request that may come again are sealed, and their content is listed elsewhere.
        let exported: BTreeSet<&str> = PERSONAL_DATA.iter().map(|rows| rows.table).collect();
        let withheld = ["chat_link_codes", "idempotency_keys", "store_versions", "wiki_versions"];
        for table in tables.keys().map(String::as_str).filter(|table| !OF_NO_USER.contains(table)) {
            assert!(
                exported.contains(table) != withheld.contains(&table),
                "{table} is in the export, or known not to be"
            );
        }
    });
}

#[test]
fn a_long_list_is_read_in_pages_that_have_each_row_once() {
    testing::on_each_database(|pool| {
        let tables = catalogue(pool);
        fill(pool, &tables, "ann", 1);
        fill(pool, &tables, "bob", 2);
        testing::server(pool, "ann", "ann-second");
        let insert = |table: &str, columns: &str, row: &dyn Fn(usize) -> String| {
            let rows: Vec<String> = (0..PAGE + 150).map(row).collect();
            run(pool, &format!("INSERT INTO {table} ({columns}) VALUES {}", rows.join(", ")));
        };
        insert("push_seen", "user_id, persistent_id, received_at", &|n| {
            format!("('ann', 'push-{n}', '2026-11-21 12:00:00')")
        });
        // Many of one microsecond, and of two servers.
        let columns = "id, user_id, server_id, kind, action, ts, grid, title, data";
        insert("timeline", columns, &|n| {
            let (server, micros) = (["'ann-server'", "'ann-second'", "NULL"][n % 3], n / 100);
            let user = if server == "NULL" { "'ann'" } else { "NULL" };
            let time = format!("2026-11-21 12:00:00.{micros:06}");
            format!("('many-{n}', {user}, {server}, 'heli', 'seen', '{time}', '', '', '{{}}')")
        });
        let ann = user(pool, "ann");
        for rows in PERSONAL_DATA.iter().filter(|rows| ["push_seen", "timeline"].contains(&rows.table)) {
            let (mut all, mut pages, mut place) = (Vec::new(), 0, None);
            loop {
                let (page, next) = pool.read_blocking(|db| rows.read(db, &ann, place.as_ref())).unwrap();
                all.extend(page);
                pages += 1;
                place = next;
                if place.is_none() {
                    break;
                }
            }
            let different: BTreeSet<&String> = all.iter().collect();
            // The filled row of the timeline is of the user and of their server.
            let filled = if rows.table == "timeline" { 2 } else { 1 };
            assert_eq!((all.len(), different.len(), pages), (PAGE + 150 + filled, PAGE + 151, 2), "{}", rows.name);
        }
    });
}

/// SQLite has one writer.
#[test]
fn nothing_is_added_for_a_user_while_they_are_erased() {
    let Some(postgres) = testing::Postgres::create() else { return };
    let pool = Pool::open(&postgres.database()).unwrap();
    testing::user(&pool, "ann");
    let add = |db: &mut Db| {
        if let Db::Pg(db) = db {
            db.batch_execute("SET LOCAL lock_timeout = '1ms'")?;
        }
        payment_customers::put_first(db, &"ann".into(), "cus_1")
    };
    let undone: Result<(), DbError> = pool.write_blocking(|db| {
        begin_erasure(db, &"ann".into())?;
        let added = pool.write_blocking(add);
        assert!(added.as_ref().is_err_and(DbError::is_lost_lock), "{added:?}");
        Err(DbError::Conflict)
    });
    assert!(matches!(undone, Err(DbError::Conflict)));
    pool.write_blocking(add).unwrap();
}

#[test]
fn of_an_erasure_and_another_that_lock_in_another_order_the_erasure_begins_again() {
    let Some(postgres) = testing::Postgres::create() else { return };
    let pool = Pool::open(&postgres.database()).unwrap();
    testing::user(&pool, "ann");
    let ann = user(&pool, "ann");
    testing::server(&pool, "ann", "ann-server");
    let (send, sent) = std::sync::mpsc::channel();
    let waiting = "SELECT count(*) AS count FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let waits = || pool.read_blocking(|db| Ok(sql_query(waiting).get_result::<Count>(db)?.count)).unwrap() > 0;
    let erased = std::thread::scope(|scope| {
        let erasing = scope.spawn(|| {
            pool.write_blocking(|db| {
                begin_erasure(db, &ann.id)?;
                send.send(()).unwrap();
                let waited = (0..2_000).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    waits()
                });
                assert!(waited, "the other waits for the user");
                erase(db, &ann, testing::now())
            })
        });
        let other = pool.write_blocking(|db| {
            paired_servers::lock(db, &"ann-server".into())?;
            sent.recv().unwrap();
            sessions::insert(db, &"s".into(), &ann.id, testing::now())
        });
        other.expect("it is no erasure");
        erasing.join().unwrap()
    });
    assert!(erased.as_ref().is_err_and(DbError::is_lost_lock), "{erased:?}");
}

#[test]
fn rows_of_users_who_are_gone_go_with_the_upgrade() {
    let Some(postgres) = testing::Postgres::create() else { return };
    let pool = Pool::open(&postgres.database()).unwrap();
    let tables = catalogue(&pool);
    fill(&pool, &tables, "bob", 2);
    let bobs = named(&pool, &tables, "bob");
    let references = [("payment_customers", "user_id", "CASCADE"), ("map_notes", "author_id", "SET NULL")];
    for (table, column, _) in references {
        run(&pool, &format!("ALTER TABLE {table} DROP CONSTRAINT {table}_{column}_fkey"));
    }
    run(
        &pool,
        "INSERT INTO payment_customers (user_id, customer_id) VALUES ('ann', 'cus_1');
         INSERT INTO map_notes (server_id, id, author_id, source, x, y, category, created_at)
             VALUES ('bob-server', 'n1', 'ann', 'user', 1, 1, 'raid', '2026-11-21 12:00:00');
         DELETE FROM __diesel_schema_migrations WHERE version = '00000000000040'",
    );
    for (table, column, then) in references {
        let reference = format!("FOREIGN KEY ({column}) REFERENCES users (id) ON DELETE {then}");
        run(&pool, &format!("ALTER TABLE {table} ADD CONSTRAINT {table}_{column}_fkey {reference} NOT VALID"));
    }
    schema_steps::migrate(&postgres.database()).unwrap();
    for (table, column, _) in references {
        run(&pool, &format!("ALTER TABLE {table} VALIDATE CONSTRAINT {table}_{column}_fkey"));
    }
    assert!(named(&pool, &tables, "ann").is_empty());
    let notes = "SELECT count(*) AS count FROM map_notes WHERE id = 'n1'";
    assert_eq!(pool.read_blocking(|db| Ok(sql_query(notes).get_result::<Count>(db)?.count)).unwrap(), 1);
    let left = named(&pool, &tables, "bob");
    assert_eq!(left["users"], bobs["users"]);
    assert_eq!(left.keys().collect::<Vec<_>>(), bobs.keys().collect::<Vec<_>>());
}
