//! Looks at the references between rows: a row of which the one that it belongs to is not there shows that a page was lost. The
//! engines let none be written. PostgreSQL takes a page of zeros for an empty one, and says nothing by itself.

use diesel::{QueryableByName, sql_query, sql_types::Text};

use crate::db::engine::{error::DbError, pool::Db, prelude::RunQuery as _};

/// Rows of one table that belong to rows of another one.
#[derive(Debug, QueryableByName)]
pub struct RowReference {
    #[diesel(sql_type = Text)]
    child: String,
    #[diesel(sql_type = Text)]
    child_column: String,
    #[diesel(sql_type = Text)]
    parent: String,
    #[diesel(sql_type = Text)]
    parent_column: String,
}

#[derive(QueryableByName)]
struct LoneRow {
    #[expect(dead_code, reason = "that there is one is the finding")]
    #[diesel(sql_type = Text)]
    child: String,
}

/// Says that the rows of some references could not be looked at in the time of a query ([`DbError::is_out_of_time`]).
pub fn left_out(references: usize) -> String {
    format!(
        "{references} pairs of large tables took longer than 5 s to compare and were left out; see docs/alerts.md, A \
         database that is damaged"
    )
}

/// The references of one column each.
pub fn all(db: &mut Db) -> Result<Vec<RowReference>, DbError> {
    let query = match db {
        Db::Sqlite(_) => {
            "SELECT t.name AS child, min(k.\"from\") AS child_column, k.\"table\" AS parent, min(k.\"to\") AS parent_column \
             FROM sqlite_master t, pragma_foreign_key_list(t.name) k WHERE t.type = 'table' \
             GROUP BY t.name, k.id, k.\"table\" HAVING count(*) = 1 ORDER BY 1, 2"
        }
        Db::Pg(_) => {
            "SELECT k.conrelid::regclass::text AS child, quote_ident(c.attname) AS child_column, \
                    k.confrelid::regclass::text AS parent, quote_ident(p.attname) AS parent_column \
             FROM pg_constraint k \
             JOIN pg_attribute c ON c.attrelid = k.conrelid AND c.attnum = k.conkey[1] \
             JOIN pg_attribute p ON p.attrelid = k.confrelid AND p.attnum = k.confkey[1] \
             WHERE k.contype = 'f' AND cardinality(k.conkey) = 1 \
             AND k.connamespace = current_schema()::regnamespace ORDER BY 1, 2"
        }
    };
    Ok(sql_query(query).load(db)?)
}

/// [`DbError::Damaged`] if a row belongs to one that is not there. Reads both tables.
pub fn check(db: &mut Db, reference: &RowReference) -> Result<(), DbError> {
    let RowReference { child, child_column, parent, parent_column } = reference;
    let is_there = match db {
        Db::Sqlite(_) => "true",
        // Reads the row, where the index alone would do.
        Db::Pg(_) => "p.xmin::text <> ''",
    };
    let lone: Vec<LoneRow> = sql_query(format!(
        "SELECT '' AS child FROM {child} c WHERE c.{child_column} IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM {parent} p WHERE p.{parent_column} = c.{child_column} AND {is_there}) LIMIT 1"
    ))
    .load(db)?;
    match lone.is_empty() {
        true => Ok(()),
        false => Err(DbError::Damaged(format!(
            "a row of {child} belongs to one of {parent} that is not there ({child_column})"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use diesel::connection::SimpleConnection as _;

    use super::*;
    use crate::db::testing;

    #[test]
    fn a_row_whose_owner_is_lost_is_found() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            let broken = |db: &mut Db| {
                let references = all(db)?;
                assert!(references.len() > 30, "{references:?}");
                let checked = references.iter().map(|reference| check(db, reference));
                Ok(checked.filter_map(Result::err).map(|error| error.to_string()).collect::<Vec<_>>())
            };
            assert_eq!(pool.read_blocking(broken).unwrap(), [""; 0]);
            // As a page of zeros takes a row away: without what hangs on it.
            let lose = |db: &mut Db| match db {
                Db::Sqlite(db) => db.batch_execute(
                    "PRAGMA query_only = OFF; PRAGMA foreign_keys = OFF; DELETE FROM users; PRAGMA query_only = ON",
                ),
                Db::Pg(db) => db.batch_execute(
                    "SET session_replication_role = replica; DELETE FROM users; RESET session_replication_role",
                ),
            };
            // Outside of a transaction, in which SQLite goes on to look after them.
            pool.read_blocking(|db| Ok(lose(db)?)).unwrap();
            let found = pool.read_blocking(broken).unwrap();
            assert!(
                found.iter().any(|error| error.contains("a row of paired_servers belongs to one of users")),
                "{found:?}"
            );
        });
    }
}
