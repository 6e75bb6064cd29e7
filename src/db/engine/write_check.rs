//! A small write, to see whether the database takes any.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::write_checks,
    },
    domain::time::Timestamp,
};

/// Bytes of a row: more than a page of SQLite, so that it takes new pages, which a full disk has none of.
const FILLER: usize = 8 * 1024;

/// Writes a row, then removes the one before. Call it in a transaction.
pub fn write(db: &mut Db, now: Timestamp) -> Result<(), DbError> {
    let at = now;
    let row = (write_checks::checked_at.eq(at), write_checks::filler.eq("-".repeat(FILLER)));
    let insert = diesel::insert_into(write_checks::table).values(row).on_conflict_do_nothing();
    // Another process may have checked at this very moment.
    on_backend!(db, |db| insert.execute(db))?;
    diesel::delete(write_checks::table.filter(write_checks::checked_at.lt(at))).execute(db)?;
    Ok(())
}

/// Makes the same write and undoes it. Call it in a transaction.
pub fn try_out(db: &mut Db, now: Timestamp) -> Result<(), DbError> {
    let undone = db.transaction::<(), TriedWrite, _>(|db| {
        write(db, now).map_err(TriedWrite::Failed)?;
        Err(TriedWrite::Written)
    });
    match undone {
        Err(TriedWrite::Failed(error)) => Err(error),
        Ok(()) | Err(TriedWrite::Written) => Ok(()),
    }
}

/// The end of a write that is undone either way.
enum TriedWrite {
    Written,
    Failed(DbError),
}

impl From<diesel::result::Error> for TriedWrite {
    fn from(error: diesel::result::Error) -> Self {
        Self::Failed(error.into())
    }
}

#[cfg(test)]
mod tests {
    use diesel::connection::SimpleConnection as _;

    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn one_row_stays() {
        testing::on_each_database(|pool| {
            for at in [now(), now(), later(5), later(10)] {
                pool.write_blocking(|db| write(db, at)).unwrap();
            }
            let rows = pool.read_blocking(|db| Ok(write_checks::table.count().get_result::<i64>(db)?)).unwrap();
            assert_eq!(rows, 1);
        });
    }

    #[test]
    fn a_write_that_is_tried_out_leaves_nothing() {
        testing::on_each_database(|pool| {
            let stored = || pool.read_blocking(|db| Ok(write_checks::table.count().get_result::<i64>(db)?)).unwrap();
            pool.write_blocking(|db| try_out(db, now())).unwrap();
            assert_eq!(stored(), 0);
            pool.write_blocking(|db| Ok(diesel::sql_query("DROP TABLE write_checks").execute(db)?)).unwrap();
            let refused = pool.write_blocking(|db| try_out(db, now())).unwrap_err();
            assert!(matches!(refused, DbError::Query(_)), "{refused}");
        });
    }

    #[test]
    fn a_full_database_takes_none() {
        testing::on_each_database(|pool| {
            let limited = |pages: u32| {
                pool.write_blocking(|db| match db {
                    Db::Sqlite(db) => Ok(db.batch_execute(&format!("PRAGMA max_page_count = {pages}")).is_ok()),
                    Db::Pg(_) => Ok(false),
                })
            };
            let fill = "CREATE TABLE free_pages (filler BLOB);
                INSERT INTO free_pages
                    SELECT zeroblob(page_size * freelist_count) FROM pragma_page_size, pragma_freelist_count";
            let filled = pool.write_blocking(|db| match db {
                Db::Sqlite(db) => Ok(db.batch_execute(fill)?),
                Db::Pg(_) => Ok(()),
            });
            filled.unwrap();
            // SQLite never sets the limit below the pages in use.
            if limited(1).unwrap() {
                let full = pool.write_blocking(|db| write(db, now())).unwrap_err();
                assert!(matches!(full, DbError::Unavailable(_)), "{full}");
                assert!(limited(1_000_000).unwrap());
                pool.write_blocking(|db| write(db, now())).unwrap();
            }
        });
    }
}
