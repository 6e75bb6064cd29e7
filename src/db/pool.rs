//! Connections, and the one way from async code to the database.

use std::{path::Path, sync::Arc, time::Duration};

use diesel::{
    Connection as _, PgConnection, RunQueryDsl as _, SqliteConnection,
    connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager},
    r2d2::R2D2Connection as _,
    sql_query,
};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness as _, embed_migrations};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{sync::Semaphore, task, time};
use url::Url;

use crate::{
    config::{self, Database},
    db::error::DbError,
};

/// How long a caller waits for its turn before it is told [`DbError::Unavailable`].
const WAIT: Duration = Duration::from_secs(5);
/// Connections of one process to PostgreSQL.
const POSTGRES_CONNECTIONS: u32 = 10;
/// Connections that read SQLite while its one writer writes.
const SQLITE_READERS: u32 = 4;

const SQLITE_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
const POSTGRES_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");
/// Names the lock under which migrations run; any number, but the same in every version.
const MIGRATION_LOCK: i64 = 0x636f_6d70_616e_696f;

/// A connection to either engine.
#[derive(diesel::MultiConnection)]
pub enum Db {
    Pg(PgConnection),
    Sqlite(SqliteConnection),
}

/// The database; clones share the connections.
#[derive(Clone)]
pub struct Pool {
    readers: Lane,
    writers: Lane,
}

/// Some connections and the queue for them. Callers wait in the queue, in order and no longer than [`WAIT`], instead
/// of holding a thread each.
#[derive(Clone)]
struct Lane {
    connections: r2d2::Pool<Connector>,
    turns: Arc<Semaphore>,
}

impl Pool {
    /// Connects and brings the schema up to date. Blocks; a missing SQLite file is created, with its directory.
    pub fn open(database: &Database) -> Result<Pool, DbError> {
        if let Database::Sqlite(path) = database
            && let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty())
        {
            config::create_private_dir(directory).map_err(|error| {
                DbError::Unavailable(format!("the directory {} cannot be made: {error}", directory.display()))
            })?;
        }
        migrate(database)?;
        let lane = |size, access| Lane::open(Connector { database: database.clone(), access }, size);
        match database {
            Database::Postgres(_) => {
                let both = lane(POSTGRES_CONNECTIONS, Access::Write)?;
                Ok(Pool { readers: both.clone(), writers: both })
            }
            // SQLite has one writer at a time: one connection, so that writers queue here and not in its busy loop.
            Database::Sqlite(_) => {
                Ok(Pool { writers: lane(1, Access::Write)?, readers: lane(SQLITE_READERS, Access::Read)? })
            }
        }
    }

    /// Runs queries that change nothing, on the blocking pool.
    pub async fn read<T, F>(&self, query: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        self.readers.run(query).await
    }

    /// Runs queries as one transaction, on the blocking pool: committed when `change` returns `Ok`, rolled back when
    /// not. It goes on to its end even if the caller stops waiting.
    pub async fn write<T, F>(&self, change: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        self.writers.run(|db| transaction(db, change)).await
    }

    /// [`read`](Self::read) for threads that may block.
    pub fn read_blocking<T>(&self, query: impl FnOnce(&mut Db) -> Result<T, DbError>) -> Result<T, DbError> {
        self.readers.run_blocking(query)
    }

    /// [`write`](Self::write) for threads that may block.
    pub fn write_blocking<T>(&self, change: impl FnOnce(&mut Db) -> Result<T, DbError>) -> Result<T, DbError> {
        self.writers.run_blocking(|db| transaction(db, change))
    }
}

impl Lane {
    fn open(connector: Connector, size: u32) -> Result<Self, DbError> {
        let connections = r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(1))
            .connection_timeout(WAIT)
            .build(connector)
            .map_err(|error| DbError::Unavailable(error.to_string()))?;
        Ok(Self { connections, turns: Arc::new(Semaphore::new(size as usize)) })
    }

    async fn run<T, F>(&self, job: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        let turn = match time::timeout(WAIT, self.turns.clone().acquire_owned()).await {
            Ok(Ok(turn)) => turn,
            _ => return Err(DbError::Unavailable("every connection is busy".to_owned())),
        };
        let lane = self.clone();
        let done = task::spawn_blocking(move || {
            let _turn = turn;
            lane.run_blocking(job)
        });
        // The thread's panic was reported where it happened; the connection is dropped with it.
        done.await.unwrap_or_else(|_| Err(DbError::Query("a query panicked".to_owned())))
    }

    fn run_blocking<T>(&self, job: impl FnOnce(&mut Db) -> Result<T, DbError>) -> Result<T, DbError> {
        let mut db = self.connections.get().map_err(|error| DbError::Unavailable(error.to_string()))?;
        job(&mut db)
    }
}

fn transaction<T>(db: &mut Db, change: impl FnOnce(&mut Db) -> Result<T, DbError>) -> Result<T, DbError> {
    match db {
        Db::Pg(connection) => AnsiTransactionManager::begin_transaction(connection)?,
        // A transaction that begins as a reader cannot always become a writer.
        Db::Sqlite(connection) => AnsiTransactionManager::begin_transaction_sql(connection, "BEGIN IMMEDIATE")?,
    }
    let changed = change(db).and_then(|value| {
        // PostgreSQL answers COMMIT without an error when an earlier, swallowed error has already undone everything.
        if let Db::Pg(connection) = db {
            connection.batch_execute("SELECT 1")?;
        }
        Ok(value)
    });
    match changed {
        Ok(value) => {
            <Db as diesel::Connection>::TransactionManager::commit_transaction(db)?;
            Ok(value)
        }
        Err(error) => {
            // A connection that cannot roll back is not given out again (`has_broken`), and closing it rolls back.
            if let Err(failure) = <Db as diesel::Connection>::TransactionManager::rollback_transaction(db) {
                log::warn!("a transaction could not be rolled back: {}", DbError::from(failure));
            }
            Err(error)
        }
    }
}

/// Brings the schema up to date; several processes may do so at once.
fn migrate(database: &Database) -> Result<(), DbError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| DbError::Query(format!("migration: {error}"));
    let mut db = connect(database, Access::Write).map_err(|error| DbError::Unavailable(error.to_string()))?;
    let steps: Vec<String> = match &mut db {
        Db::Pg(connection) => {
            // A migration may take longer than a request; so may waiting for another process that migrates.
            connection.batch_execute("SET statement_timeout = '10min'; SET lock_timeout = '10min'")?;
            sql_query("SELECT pg_advisory_lock($1)")
                .bind::<diesel::sql_types::BigInt, _>(MIGRATION_LOCK)
                .execute(connection)?;
            // Closing the connection gives the lock back.
            let steps = connection.run_pending_migrations(POSTGRES_MIGRATIONS).map_err(failed)?;
            steps.iter().map(ToString::to_string).collect()
        }
        Db::Sqlite(connection) => connection
            .immediate_transaction(|connection| {
                let steps = connection.run_pending_migrations(SQLITE_MIGRATIONS)?;
                Ok(steps.iter().map(ToString::to_string).collect())
            })
            .map_err(failed)?,
    };
    for step in steps {
        log::info!("migrated the database: {step}");
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Access {
    Read,
    Write,
}

/// Opens connections for r2d2. (`MultiConnection`'s own `establish` would try one engine after the other, and make a
/// SQLite file named like the URL of a PostgreSQL that is down.)
#[derive(Debug)]
struct Connector {
    database: Database,
    access: Access,
}

/// Why a connection was not made, without the URL.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ConnectError(String);

impl r2d2::ManageConnection for Connector {
    type Connection = Db;
    type Error = ConnectError;

    fn connect(&self) -> Result<Db, ConnectError> {
        connect(&self.database, self.access)
    }

    fn is_valid(&self, db: &mut Db) -> Result<(), ConnectError> {
        match db {
            Db::Pg(connection) => connection.ping().map_err(|error| ConnectError(DbError::from(error).to_string())),
            // A file does not hang up.
            Db::Sqlite(_) => Ok(()),
        }
    }

    fn has_broken(&self, db: &mut Db) -> bool {
        // A panic may have left a transaction open.
        std::thread::panicking() || db.is_broken()
    }
}

fn connect(database: &Database, access: Access) -> Result<Db, ConnectError> {
    let in_words = |error: diesel::result::Error| ConnectError(DbError::from(error).to_string());
    match database {
        Database::Sqlite(path) => {
            let mut connection = SqliteConnection::establish(sqlite_name(path)?)
                .map_err(|error| ConnectError(format!("{}: {error}", path.display())))?;
            // FULL: what was answered with success survives a power cut.
            connection
                .batch_execute(
                    "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                     PRAGMA foreign_keys = ON",
                )
                .map_err(in_words)?;
            if let Access::Read = access {
                connection.batch_execute("PRAGMA query_only = ON").map_err(in_words)?;
            }
            Ok(Db::Sqlite(connection))
        }
        Database::Postgres(url) => {
            let with_deadlines = with_deadlines(url)?;
            let mut connection = PgConnection::establish(with_deadlines.expose_secret())
                .map_err(|error| ConnectError(redacted(&error.to_string(), &with_deadlines)))?;
            connection
                .batch_execute(
                    "SET TIME ZONE 'UTC'; SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
                     SET idle_in_transaction_session_timeout = '30s'; SET application_name = 'companion'",
                )
                .map_err(in_words)?;
            Ok(Db::Pg(connection))
        }
    }
}

fn sqlite_name(path: &Path) -> Result<&str, ConnectError> {
    path.to_str().ok_or_else(|| ConnectError(format!("{} is not UTF-8", path.display())))
}

/// libpq waits without end for a host that does not answer, unless told otherwise.
fn with_deadlines(url: &SecretString) -> Result<SecretString, ConnectError> {
    let mut url =
        Url::parse(url.expose_secret()).map_err(|error| ConnectError(format!("DATABASE_URL is not a URL: {error}")))?;
    for (name, value) in [("connect_timeout", "5"), ("tcp_user_timeout", "15000")] {
        if !url.query_pairs().any(|(given, _)| given == name) {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    Ok(SecretString::from(String::from(url)))
}

/// libpq repeats a URL that it cannot read.
fn redacted(message: &str, url: &SecretString) -> String {
    let message = message.replace(url.expose_secret(), "DATABASE_URL");
    match Url::parse(url.expose_secret()).ok().as_ref().and_then(Url::password) {
        Some(password) if !password.is_empty() => message.replace(password, "…"),
        _ => message,
    }
}
