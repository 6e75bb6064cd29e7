//! A look at the tables that an alarm is written to, and at those by which channels send it, small enough for every
//! minute: the ends of each table and each index at which the next row is added. A page of these that is damaged keeps
//! every alarm out. A damaged page further back is not seen here: it keeps out only what reads or changes that row, and
//! `companion doctor` looks through all of a file.

use diesel::{
    QueryableByName, sql_query,
    sql_types::{BigInt, Text},
};

use crate::db::engine::{error::DbError, pool::Db, prelude::RunQuery as _};

/// Tables of the ledger, and those that it writes or reads for an alarm, each with a text of its rows and its key.
const LEDGER: [(&str, &str, &str); 7] = [
    ("incidents", "alarm_name", "id"),
    ("alarms", "title", "id"),
    ("incident_acks", "user_id", "incident_id"),
    ("merged_incidents", "incident_id", "id"),
    ("paired_servers", "address", "id"),
    ("smart_devices", "name", "device_id"),
    ("notices", "user_id", "incident_id"),
];
/// Tables without which no alarm is sent by a channel, likewise.
const CHANNELS: [(&str, &str, &str); 2] = [("channels", "name", "id"), ("deliveries", "state", "id")];
/// Rows at each end.
const ROWS: usize = 50;

#[derive(QueryableByName)]
struct ReadLength {
    #[expect(dead_code, reason = "reading it is the check")]
    #[diesel(sql_type = BigInt)]
    length: i64,
}

#[derive(QueryableByName)]
struct LedgerIndex {
    #[diesel(sql_type = Text)]
    of: String,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    first: String,
}

/// Fails if a table of the ledger cannot be read.
pub fn check(db: &mut Db) -> Result<(), DbError> {
    check_tables(db, &LEDGER)
}

/// Fails if a table of channels cannot be read.
pub fn check_channels(db: &mut Db) -> Result<(), DbError> {
    check_tables(db, &CHANNELS)
}

fn check_tables(db: &mut Db, tables: &[(&str, &str, &str)]) -> Result<(), DbError> {
    for &(table, text, key) in tables {
        let order = match db {
            // The end of the table itself.
            Db::Sqlite(_) => "rowid",
            Db::Pg(_) => key,
        };
        // The length makes it read the row, where an index would do for a count.
        let rows = format!("SELECT {text} AS text FROM {table} ORDER BY {order} DESC LIMIT {ROWS}");
        let read = format!("SELECT CAST(coalesce(sum(length(text)), 0) AS BIGINT) AS length FROM ({rows}) newest");
        sql_query(read).get_result::<ReadLength>(db)?;
    }
    let Db::Sqlite(_) = db else { return Ok(()) };
    let tables = names(tables);
    let indexes: Vec<LedgerIndex> = sql_query(format!(
        "SELECT t.name AS \"of\", i.name AS name, c.name AS first \
         FROM sqlite_master t, pragma_index_list(t.name) i, pragma_index_info(i.name) c \
         WHERE t.type = 'table' AND t.name IN ({tables}) AND c.seqno = 0 AND i.partial = 0"
    ))
    .load(db)?;
    for LedgerIndex { of, name, first } in indexes {
        let entries = format!("SELECT 1 FROM {of} INDEXED BY \"{name}\" ORDER BY {first} DESC LIMIT {ROWS}");
        sql_query(format!("SELECT count(*) AS length FROM ({entries})")).get_result::<ReadLength>(db)?;
    }
    Ok(())
}

/// Their names, for a list in SQL.
fn names(tables: &[(&str, &str, &str)]) -> String {
    tables.iter().map(|(table, ..)| format!("'{table}'")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs::OpenOptions, os::unix::fs::FileExt as _};

    use super::*;
    use crate::{
        config::Database,
        db::{
            alarms::incidents,
            engine::{self, Access, pool::Pool},
            testing,
        },
    };

    #[test]
    fn a_ledger_that_is_well_is_found_so() {
        testing::on_each_database(|pool| {
            pool.read_blocking(|db| check(db).and_then(|()| check_channels(db))).unwrap();
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            pool.write_blocking(|db| incidents::write(db, &"one".into(), &testing::incident_write("a", 1))).unwrap();
            pool.read_blocking(|db| check(db).and_then(|()| check_channels(db))).unwrap();
        });
    }

    #[derive(Debug, QueryableByName)]
    struct RootOffset {
        #[diesel(sql_type = Text)]
        name: String,
        #[diesel(sql_type = BigInt)]
        offset: i64,
    }

    #[test]
    fn a_damaged_root_of_any_table_or_whole_index_of_these_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let database = Database::Sqlite(path.clone());
        let pool = Pool::open(&database).unwrap();
        testing::user(&pool, "alice");
        testing::server(&pool, "alice", "one");
        pool.write_blocking(|db| incidents::write(db, &"one".into(), &testing::incident_write("a", 1))).unwrap();
        let roots: Vec<RootOffset> = pool
            .read_blocking(|db| {
                let tables = names(&[&LEDGER[..], &CHANNELS].concat());
                Ok(sql_query(format!(
                    "SELECT name, (rootpage - 1) * page_size AS offset FROM sqlite_master, pragma_page_size \
                     WHERE tbl_name IN ({tables}) AND rootpage > 0 AND coalesce(sql, '') NOT LIKE '% WHERE %'"
                ))
                .load(db)?)
            })
            .unwrap();
        assert!(roots.len() > 20, "{roots:?}");
        drop(pool);
        // Its connections close a moment later, and the last one puts the log into the file.
        let mut db = engine::open_sqlite(&path, Access::Write).unwrap();
        while !engine::empty_log(&mut db).unwrap() {}
        drop(db);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut unseen = BTreeSet::new();
        for RootOffset { name, offset } in roots {
            let mut page = [0; 64];
            file.read_exact_at(&mut page, offset as u64).unwrap();
            file.write_all_at(&[0xff; 64], offset as u64).unwrap();
            let mut db = Db::Sqlite(engine::open_sqlite(&path, Access::Read).unwrap());
            let checked = check(&mut db).and_then(|()| check_channels(&mut db));
            if !matches!(checked, Err(DbError::Damaged(_))) {
                unseen.insert(name);
            }
            file.write_all_at(&page, offset as u64).unwrap();
        }
        assert!(unseen.is_empty(), "{unseen:?}");
    }
}
