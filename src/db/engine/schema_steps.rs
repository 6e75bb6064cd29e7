//! The steps of the schema: which ones a database has, and bringing it up to date. A database that a newer program has
//! brought up to date is not touched: an older one would write rows that the newer one does not understand.

use std::{fs::File, path::Path, sync::Arc};

use diesel::{
    connection::SimpleConnection as _,
    migration::{MigrationSource, MigrationVersion},
    sql_query,
    sql_types::{BigInt, Text},
    sqlite::Sqlite,
};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness as _, embed_migrations};

use crate::{
    config::Database,
    db::{
        engine::{
            self, Access, EngineError, create_private_file, database_file,
            error::DbError,
            pool::{Db, Pool, SimulatedDisk},
            prelude::*,
        },
        schema::program_versions,
    },
};

const SQLITE_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
const POSTGRES_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");
/// The lock under which migrations run: any number, but the same in every version.
const MIGRATION_LOCK: i64 = 0x636f_6d70_616e_696f;
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// State of a database: which of the steps that this program knows it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaSteps {
    /// The newest step that it has; none: nothing was ever kept in it.
    pub newest: Option<String>,
    /// Number of steps that it does not have yet.
    pub pending: usize,
    /// Steps of a newer program.
    pub unknown: Vec<String>,
    /// The oldest version of the program that knows all of them, if it has noted itself.
    pub needed: Option<String>,
}

impl SchemaSteps {
    /// The reason not to touch the database, and how to go on, if a newer program has brought it up to date.
    pub fn newer(&self) -> Option<String> {
        let step = self.unknown.last()?;
        let needed = self.needed.as_deref().filter(|needed| *needed != VERSION).unwrap_or("a newer build");
        Some(format!(
            "it has step {step} of a newer companion, and this is {VERSION}: run {needed}, or restore the backup from \
             before"
        ))
    }
}

#[derive(QueryableByName)]
struct NamedStep {
    #[diesel(sql_type = Text)]
    name: String,
}

impl Pool {
    /// Connects and brings the schema up to date. Blocks; a missing SQLite file is created, with its directory.
    pub fn open(database: &Database) -> Result<Pool, DbError> {
        Self::open_taken(database, None)
    }

    /// [`open`](Self::open) of a SQLite file that is taken, for as long as connections to it are open.
    pub fn open_taken(database: &Database, taken: Option<Arc<File>>) -> Result<Pool, DbError> {
        migrate(database)?;
        Self::connect(database, None, taken)
    }

    /// Opens the database for a simulation on one thread: queries run on the thread of their caller, between two calls
    /// of the disk.
    pub fn open_simulated(database: &Database, disk: Arc<SimulatedDisk>) -> Result<Pool, DbError> {
        migrate(database)?;
        Self::connect(database, Some(disk), None)
    }
}

/// Brings the schema up to date; several processes may do so at once. A missing SQLite file is created, with its
/// directory. Returns the number of steps that were missing. [`DbError::NewerSchema`] if a newer program did. Blocks.
pub fn migrate(database: &Database) -> Result<usize, DbError> {
    let mut db = match database {
        Database::Postgres(url) => lock_postgres(Db::Pg(engine::open_postgres(url).map_err(unavailable)?))?,
        Database::Sqlite(path) => Db::Sqlite(create_sqlite(path)?),
    };
    refuse_newer(&mut db)?;
    let steps = run_pending(&mut db).map_err(|error| match format!("migration: {error}") {
        locked if ["database is locked", "read-only transaction"].iter().any(|words| locked.contains(words)) => {
            DbError::Unavailable(locked)
        }
        failure => DbError::Query(failure),
    })?;
    if let Some(last) = steps.last() {
        log::info!(steps = steps.len(), last = last.as_str(); "migrated the database");
    }
    note_version(&mut db)?;
    Ok(steps.len())
}

fn unavailable(error: EngineError) -> DbError {
    DbError::Unavailable(error.to_string())
}

/// Waits for other processes that migrate. Closing the connection releases the lock.
fn lock_postgres(mut db: Db) -> Result<Db, DbError> {
    // A migration may take longer than a request; so may waiting for another process that migrates.
    db.batch_execute("SET statement_timeout = '10min'; SET lock_timeout = '10min'")?;
    sql_query("SELECT pg_advisory_lock($1)").bind::<BigInt, _>(MIGRATION_LOCK).execute(&mut db)?;
    Ok(db)
}

fn create_sqlite(path: &Path) -> Result<diesel::SqliteConnection, DbError> {
    create_private_file(path)
        .map_err(|error| DbError::Unavailable(format!("{} cannot be opened: {error}", path.display())))?;
    engine::open_sqlite(path, Access::Write).map_err(unavailable)
}

/// Applies the steps that the database does not have, and names them.
fn run_pending(db: &mut Db) -> diesel::migration::Result<Vec<String>> {
    let names = |steps: Vec<MigrationVersion<'_>>| steps.iter().map(ToString::to_string).collect();
    match db {
        Db::Pg(connection) => connection.run_pending_migrations(POSTGRES_MIGRATIONS).map(names),
        Db::Sqlite(connection) => connection
            .immediate_transaction(|connection| connection.run_pending_migrations(SQLITE_MIGRATIONS).map(names)),
    }
}

/// Notes the newest step that this version knows, unless it is noted: a process may have been killed after the steps.
fn note_version(db: &mut Db) -> Result<(), DbError> {
    use program_versions as versions;
    let Some(newest_step) = known()?.pop() else { return Ok(()) };
    let noted: Option<String> = versions::table.find(VERSION).select(versions::newest_step).first(db).optional()?;
    if noted.as_ref() == Some(&newest_step) {
        return Ok(());
    }
    let row = (versions::version.eq(VERSION), versions::newest_step.eq(&newest_step));
    let note = diesel::insert_into(versions::table).values(row).on_conflict(versions::version);
    let note = note.do_update().set(versions::newest_step.eq(&newest_step));
    on_backend!(db, |db| note.execute(db))?;
    Ok(())
}

/// Fails if a newer program has brought the database up to date, with the version that is needed.
pub fn refuse_newer(db: &mut Db) -> Result<(), DbError> {
    read(db)?.newer().map_or(Ok(()), |newer| Err(DbError::NewerSchema(newer)))
}

/// The steps that this program knows, the oldest first: the same on both engines.
pub fn known() -> Result<Vec<String>, DbError> {
    let steps = MigrationSource::<Sqlite>::migrations(&SQLITE_MIGRATIONS);
    let steps = steps.map_err(|error| DbError::Query(format!("migration: {error}")))?;
    Ok(steps.iter().map(|step| step.name().version().to_string()).collect())
}

/// Reads which steps a database has.
pub fn read(db: &mut Db) -> Result<SchemaSteps, DbError> {
    let table = match db {
        Db::Sqlite(_) => "SELECT name FROM sqlite_master WHERE name = '__diesel_schema_migrations'",
        Db::Pg(_) => "SELECT coalesce(to_regclass('__diesel_schema_migrations')::text, '') AS name",
    };
    let tables: Vec<NamedStep> = sql_query(table).load(db)?;
    let known = known()?;
    if tables.iter().all(|table| table.name.is_empty()) {
        return Ok(SchemaSteps { pending: known.len(), ..SchemaSteps::default() });
    }
    let applied = "SELECT version AS name FROM __diesel_schema_migrations ORDER BY version";
    let applied: Vec<NamedStep> = sql_query(applied).load(db)?;
    let mut applied: Vec<String> = applied.into_iter().map(|step| step.name).collect();
    let newest = applied.last().cloned();
    let pending = known.iter().filter(|step| !applied.contains(step)).count();
    applied.retain(|step| !known.contains(step));
    let needed = applied.last().and_then(|step| {
        let since = program_versions::table.filter(program_versions::newest_step.ge(step));
        since.order(program_versions::newest_step).select(program_versions::version).first(db).ok()
    });
    Ok(SchemaSteps { newest, pending, unknown: applied, needed })
}

/// Opens a database that has been served from, and makes nothing where there is none. Blocks.
pub fn open_existing(database: &Database) -> Result<Pool, DbError> {
    if let Database::Sqlite(path) = database {
        refuse_missing(path)?;
    }
    let pool = Pool::open_as_it_is(database)?;
    let steps = pool.read_blocking(read)?;
    match steps {
        _ if !steps.unknown.is_empty() => Err(DbError::NewerSchema(steps.newer().unwrap_or_default())),
        SchemaSteps { newest: None, .. } => {
            Err(DbError::Unavailable("it is empty; `companion serve` or `companion migrate` fills it".to_owned()))
        }
        SchemaSteps { pending: 1.., .. } => Err(DbError::Unavailable(
            "its schema is older than this program; `companion migrate` brings it up to date".to_owned(),
        )),
        _ => Ok(pool),
    }
}

/// True if a database has all steps that this program knows. Fails if it does not answer, which says nothing about its
/// steps, or has those of a newer program. Blocks.
pub fn is_up_to_date(database: &Database) -> Result<bool, DbError> {
    let mut db = match database {
        Database::Postgres(url) => Db::Pg(engine::open_postgres(url).map_err(unavailable)?),
        Database::Sqlite(path) => {
            refuse_missing(path)?;
            Db::Sqlite(engine::open_sqlite(path, Access::Read).map_err(unavailable)?)
        }
    };
    let steps = read(&mut db)?;
    steps.newer().map_or(Ok(steps.pending == 0), |newer| Err(DbError::NewerSchema(newer)))
}

fn refuse_missing(path: &Path) -> Result<(), DbError> {
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = shown.display();
    match path.try_exists() {
        Ok(true) => database_file::refuse_unsafe(path),
        Ok(false) => Err(DbError::Unavailable(format!("{shown} does not exist; is DATA_DIR right?"))),
        Err(error) => Err(DbError::Unavailable(format!("{shown}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing;

    #[test]
    fn a_database_that_was_served_from_is_opened_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Database::Sqlite(directory.path().join("none.db"));
        assert!(open_existing(&missing).is_err_and(|error| error.to_string().contains("does not exist")));
        assert!(is_up_to_date(&missing).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let empty = directory.path().join("empty.db");
        std::fs::File::create(&empty).unwrap();
        let postgres = testing::Postgres::create();
        for empty in
            [Some(Database::Sqlite(empty)), postgres.as_ref().map(testing::Postgres::database)].iter().flatten()
        {
            let refusal = open_existing(empty).err().expect("it is empty").to_string();
            assert!(refusal.contains("it is empty"), "{refusal}");
            assert!(!is_up_to_date(empty).unwrap());
            let pool = Pool::open(empty).unwrap();
            let newest = known().unwrap().pop();
            assert_eq!(pool.read_blocking(read).unwrap(), SchemaSteps { newest, ..SchemaSteps::default() });
            open_existing(empty).unwrap();
            assert!(is_up_to_date(empty).unwrap());
            let version = |sql: &'static str| pool.write_blocking(|db| Ok(sql_query(sql).execute(db)?)).unwrap();
            version("UPDATE __diesel_schema_migrations SET version = '99' WHERE version = '00000000000004'");
            let SchemaSteps { pending, unknown, .. } = pool.read_blocking(read).unwrap();
            assert_eq!((pending, unknown), (1, vec!["99".to_owned()]));
            assert!(open_existing(empty).is_err_and(|error| error.to_string().contains("run a newer build")));
            assert!(matches!(is_up_to_date(empty), Err(DbError::NewerSchema(_))));
            version("DELETE FROM __diesel_schema_migrations WHERE version = '99'");
            assert!(open_existing(empty).is_err_and(|error| error.to_string().contains("companion migrate")));
            assert!(!is_up_to_date(empty).unwrap());
        }
        let Some(postgres) = postgres else { return };
        postgres.refuse(true);
        let error = is_up_to_date(&postgres.database()).expect_err("it does not say");
        assert!(engine::is_retryable_at_start(&error), "{error}");
    }

    #[test]
    fn the_version_is_noted_also_after_a_kill_between_the_steps_and_its_note() {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = Database::Sqlite(directory.path().join("test.db"));
        let postgres = testing::Postgres::create();
        for database in [Some(sqlite), postgres.as_ref().map(testing::Postgres::database)].iter().flatten() {
            let pool = Pool::open(database).unwrap();
            let newest = known().unwrap().pop();
            let noted = || -> Option<String> {
                let noted = program_versions::table.find(VERSION).select(program_versions::newest_step);
                pool.read_blocking(|db| Ok(noted.first(db).optional()?)).unwrap()
            };
            assert_eq!(noted(), newest);
            for kill in ["DELETE FROM program_versions", "UPDATE program_versions SET newest_step = '00000000000004'"] {
                pool.write_blocking(|db| Ok(sql_query(kill).execute(db)?)).unwrap();
                assert_ne!(noted(), newest, "{kill}");
                migrate(database).unwrap();
                assert_eq!(noted(), newest, "{kill}");
            }
        }
    }
}
