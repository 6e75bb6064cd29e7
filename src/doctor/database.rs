//! The database: whether it is there, of this program's schema, and can be written.

use chrono::{DateTime, TimeDelta};
use diesel::{
    QueryableByName, RunQueryDsl as _, sql_query,
    sql_types::{BigInt, Text},
};

use super::observation::Observation;
use crate::{
    clock::Clock,
    config::Database,
    db::{
        error::DbError,
        pool::{Db, Pool},
        schema_steps::{self, SchemaSteps},
    },
};

const SUBJECT: &str = "database";
/// Free pages of a SQLite file that are worth a `VACUUM`: so many bytes, and half of the file.
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

/// What there is to say, and how far the database's own clock is ahead of this machine's, if it has one. Blocks.
pub(super) fn examine(database: &Database, clock: &Clock) -> (Vec<Observation>, Option<TimeDelta>) {
    if let Database::Sqlite(path) = database
        && !path.exists()
    {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let text = format!("{} does not exist; the first `companion serve` makes it", path.display());
        return (vec![Observation::doubtful(SUBJECT, text)], None);
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
        // An empty transaction takes the lock of writers.
        pool.write_blocking(|_| Ok(()))
    });
    match examined {
        Ok(()) => findings.push(Observation::fine(SUBJECT, "it can be written")),
        Err(DbError::Unavailable(reason)) => findings.push(Observation::broken(
            SUBJECT,
            format!("{}; see that it runs, and that DATABASE_URL and DATA_DIR are right", reason.trim()),
        )),
        Err(error) => findings.push(Observation::broken(SUBJECT, error.to_string())),
    }
    (findings, skew)
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
