//! The database: whether it is there, of this program's schema, and can be written.

use std::path::Path;

use chrono::{DateTime, TimeDelta};
use diesel::{
    QueryableByName, RunQueryDsl as _, sql_query,
    sql_types::{BigInt, Bool, Text},
};

use super::observation::Observation;
use crate::{
    clock::Clock,
    config::Database,
    db::{
        engine::{
            database_file,
            error::DbError,
            pool::{Db, Pool},
            schema_steps::{self, SchemaSteps},
            write_check,
        },
        journal,
    },
};

const SUBJECT: &str = "database";
/// Free pages of a SQLite file that are worth a `VACUUM`: this many bytes, and half of the file.
const WORTHWHILE: i64 = 256 << 20;

#[derive(QueryableByName)]
struct FileSize {
    #[diesel(sql_type = BigInt)]
    bytes: i64,
    #[diesel(sql_type = BigInt)]
    free: i64,
}

#[derive(QueryableByName)]
struct ServerFacts {
    #[diesel(sql_type = Text)]
    version: String,
    #[diesel(sql_type = Text)]
    read_only: String,
    #[diesel(sql_type = BigInt)]
    milliseconds: i64,
}

/// The findings, and how far the database's own clock is ahead of this machine's, if it has one. Blocks.
pub(super) fn examine(database: &Database, data_dir: &Path, clock: &Clock) -> (Vec<Observation>, Option<TimeDelta>) {
    if let Database::Sqlite(path) = database
        && !path.exists()
    {
        return (vec![missing(path, data_dir)], None);
    }
    let (mut findings, mut skew) = (Vec::new(), None);
    let examined = Pool::open_as_it_is(database).and_then(|pool| {
        let steps = pool.read_blocking(schema_steps::read)?;
        findings.push(schema(&steps));
        findings.push(match pool.read_blocking(size)? {
            Size::File(FileSize { bytes, free }) if free > WORTHWHILE && free > bytes / 2 => Observation::doubtful(
                SUBJECT,
                format!(
                    "{} MiB, {} of them free pages; stop the service and run VACUUM on the file to give them back",
                    bytes >> 20,
                    free >> 20
                ),
            ),
            Size::File(FileSize { bytes, free }) => {
                Observation::fine(SUBJECT, format!("SQLite, {} MiB, {} of them free pages", bytes >> 20, free >> 20))
            }
            Size::Server(ServerFacts { version, read_only, .. }) if read_only == "on" => Observation::broken(
                SUBJECT,
                format!("PostgreSQL {version} is read-only (a replica?); name the primary in DATABASE_URL"),
            ),
            Size::Server(ServerFacts { version, milliseconds, .. }) => {
                skew = DateTime::from_timestamp_millis(milliseconds).map(|there| there - clock.now());
                Observation::fine(SUBJECT, format!("PostgreSQL {version} answers"))
            }
        });
        if let Some(damage) = pool.read_blocking(damage)? {
            return Err(DbError::Damaged(damage));
        }
        if !pool.read_blocking(may_create)? {
            findings.push(Observation::broken(
                SUBJECT,
                "its user may not create tables, which an upgrade needs; GRANT CREATE ON SCHEMA public TO that user",
            ));
        }
        // An older schema may lack the table.
        let is_up_to_date = steps.newest.is_some() && steps.pending == 0 && steps.unknown.is_empty();
        pool.write_blocking(|db| if is_up_to_date { write_check::try_out(db, clock.now()) } else { Ok(()) })
    });
    match examined {
        Ok(()) => findings.push(Observation::fine(SUBJECT, "it takes what is written")),
        Err(DbError::Unavailable(reason)) => findings.push(Observation::broken(
            SUBJECT,
            format!("{}; see that it runs, and that DATABASE_URL and DATA_DIR are right", reason.trim()),
        )),
        Err(error @ DbError::Query(_)) => findings.push(Observation::broken(
            SUBJECT,
            format!("{error}; its user needs SELECT, INSERT, UPDATE and DELETE on all tables"),
        )),
        Err(error) => findings.push(Observation::broken(SUBJECT, error.to_string())),
    }
    (findings, skew)
}

/// The finding about a SQLite file that is not there.
fn missing(path: &Path, data_dir: &Path) -> Observation {
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = shown.display();
    if database_file::is_taken(path) {
        return Observation::broken(
            SUBJECT,
            format!(
                "{shown} was removed while a companion serves from it: what it stores is lost when it ends. Do not stop \
                 it before you have saved the file: docs/operations.md, A database file that was removed"
            ),
        );
    }
    match journal::waiting(data_dir) {
        Ok(None) => {
            Observation::doubtful(SUBJECT, format!("{shown} does not exist; the first `companion serve` makes it"))
        }
        _ => Observation::broken(
            SUBJECT,
            format!(
                "{shown} does not exist, and a companion has served from this DATA_DIR; restore a backup, or correct \
                 DATABASE_URL: `companion serve` would begin with an empty one"
            ),
        ),
    }
}

/// The first damage that SQLite finds in its file. PostgreSQL has `amcheck` for that.
fn damage(db: &mut Db) -> Result<Option<String>, DbError> {
    #[derive(QueryableByName)]
    struct CheckedPages {
        #[diesel(sql_type = Text)]
        quick_check: String,
    }
    let Db::Sqlite(db) = db else { return Ok(None) };
    let found = sql_query("PRAGMA quick_check(1)").get_result::<CheckedPages>(db)?.quick_check;
    Ok((found != "ok").then(|| found.replace('\n', " ")))
}

/// True if an upgrade may add tables.
fn may_create(db: &mut Db) -> Result<bool, DbError> {
    #[derive(QueryableByName)]
    struct SchemaRight {
        #[diesel(sql_type = Bool)]
        granted: bool,
    }
    let Db::Pg(db) = db else { return Ok(true) };
    let asked = sql_query("SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS granted");
    Ok(asked.get_result::<SchemaRight>(db)?.granted)
}

fn schema(steps: &SchemaSteps) -> Observation {
    if let Some(newer) = steps.newer() {
        return Observation::broken(SUBJECT, newer);
    }
    match steps {
        SchemaSteps { newest: None, .. } => {
            Observation::doubtful(SUBJECT, "it is empty; the first `companion serve` fills it")
        }
        SchemaSteps { pending: 1.., newest: Some(newest), .. } => Observation::doubtful(
            SUBJECT,
            format!(
                "its schema ({newest}) is {} steps older than this program, which brings it up to date at its start; \
                 take a backup before",
                steps.pending
            ),
        ),
        SchemaSteps { newest: Some(newest), .. } => {
            Observation::fine(SUBJECT, format!("its schema is up to date ({newest})"))
        }
    }
}

enum Size {
    File(FileSize),
    Server(ServerFacts),
}

fn size(db: &mut Db) -> Result<Size, DbError> {
    Ok(match db {
        Db::Sqlite(db) => Size::File(
            sql_query(
                "SELECT page_count * page_size AS bytes, freelist_count * page_size AS free \
                 FROM pragma_page_count, pragma_page_size, pragma_freelist_count",
            )
            .get_result(db)?,
        ),
        Db::Pg(db) => Size::Server(
            sql_query(
                "SELECT current_setting('server_version') AS version, current_setting('transaction_read_only') AS read_only, \
                 (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS milliseconds",
            )
            .get_result(db)?,
        ),
    })
}
