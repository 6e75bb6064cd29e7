//! Connections, and the one way from async code to the database.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path, sync::Arc, time::Duration};

use diesel::{
    Connection as _, PgConnection, RunQueryDsl as _, SqliteConnection,
    connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager},
    r2d2::R2D2Connection as _,
    sql_query,
};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness as _, embed_migrations};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{sync::Semaphore, task, time};

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
        if let Database::Sqlite(path) = database {
            create_private_file(path)
                .map_err(|error| DbError::Unavailable(format!("{} cannot be opened: {error}", path.display())))?;
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
            let with_deadlines = with_deadlines(url);
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

/// Makes the file and its directory where missing, for this user only: SQLite would leave them to the umask.
fn create_private_file(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        config::create_private_dir(directory)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(drop)
}

fn sqlite_name(path: &Path) -> Result<&str, ConnectError> {
    path.to_str().ok_or_else(|| ConnectError(format!("{} is not UTF-8", path.display())))
}

/// libpq waits without end for a host that does not answer, unless told otherwise. (Its URLs may name several hosts or
/// none, which the `url` crate does not read.)
fn with_deadlines(url: &SecretString) -> SecretString {
    let mut url = url.expose_secret().to_owned();
    for (parameter, value) in [("connect_timeout=", "5"), ("tcp_user_timeout=", "15000")] {
        if !url.contains(parameter) {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(parameter);
            url.push_str(value);
        }
    }
    SecretString::from(url)
}

/// libpq repeats a URL, or the part of one, that it cannot read.
fn redacted(message: &str, url: &SecretString) -> String {
    let url = url.expose_secret();
    let message = message.replace(url, "DATABASE_URL");
    let user_and_password = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    match user_and_password.and_then(|(user, _)| user.split_once(':')) {
        Some((_, password)) if !password.is_empty() => message.replace(password, "…"),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, thread};

    use diesel::{
        QueryableByName,
        sql_types::{Bool, Text},
    };

    use super::*;
    use crate::db::{
        sessions,
        testing::{self, Postgres, now},
        users,
    };

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, QueryableByName)]
    struct Column {
        #[diesel(sql_type = Text)]
        table_name: String,
        #[diesel(sql_type = Text)]
        column_name: String,
        #[diesel(sql_type = Text)]
        data_type: String,
        #[diesel(sql_type = Bool)]
        nullable: bool,
    }

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, QueryableByName)]
    struct Index {
        #[diesel(sql_type = Text)]
        table_name: String,
        #[diesel(sql_type = Text)]
        index_name: String,
        #[diesel(sql_type = Bool)]
        is_unique: bool,
    }

    /// What a stored value is, whatever the engine calls it.
    fn class(data_type: &str) -> &str {
        match data_type.to_ascii_lowercase().as_str() {
            "text" => "text",
            "integer" => "32 bits",
            "bigint" => "64 bits",
            "timestamp" | "timestamp without time zone" => "instant",
            "blob" | "bytea" => "bytes",
            "boolean" => "flag",
            "double precision" => "coordinate",
            other => panic!("{other} is not one of the types that are the same on both engines"),
        }
    }

    fn columns(pool: &Pool, query: &str) -> BTreeSet<Column> {
        let columns: Vec<Column> = pool.read_blocking(|db| Ok(sql_query(query).load(db)?)).unwrap();
        columns.into_iter().map(|column| Column { data_type: class(&column.data_type).to_owned(), ..column }).collect()
    }

    fn indexes(pool: &Pool, query: &str) -> BTreeSet<Index> {
        let indexes: Vec<Index> = pool.read_blocking(|db| Ok(sql_query(query).load(db)?)).unwrap();
        indexes.into_iter().collect()
    }

    #[test]
    fn both_engines_have_the_same_schema() {
        let Some(postgres) = Postgres::create() else { return };
        let postgres_pool = Pool::open(&postgres.database()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let sqlite_pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();

        let on_sqlite = columns(
            &sqlite_pool,
            "SELECT t.name AS table_name, c.name AS column_name, c.type AS data_type, c.\"notnull\" = 0 AS nullable \
             FROM sqlite_master t, pragma_table_info(t.name) c \
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name NOT LIKE '\\_\\_%' ESCAPE '\\'",
        );
        let on_postgres = columns(
            &postgres_pool,
            "SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'YES' AS nullable \
             FROM information_schema.columns \
             WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_%'",
        );
        assert!(on_sqlite.iter().any(|column| column.column_name == "player_token_sealed"));
        assert_eq!(on_sqlite, on_postgres);

        let on_sqlite = indexes(
            &sqlite_pool,
            "SELECT t.name AS table_name, i.name AS index_name, i.\"unique\" AS is_unique \
             FROM sqlite_master t, pragma_index_list(t.name) i WHERE t.type = 'table' AND i.origin = 'c'",
        );
        let on_postgres = indexes(
            &postgres_pool,
            "SELECT t.relname::text AS table_name, i.relname::text AS index_name, x.indisunique AS is_unique \
             FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid \
             WHERE t.relnamespace = 'public'::regnamespace AND NOT x.indisprimary",
        );
        assert!(on_sqlite.iter().any(|index| index.is_unique));
        assert_eq!(on_sqlite, on_postgres);
    }

    #[test]
    fn several_processes_may_migrate_an_empty_database_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let postgres = Postgres::create();
        let databases =
            [Some(Database::Sqlite(directory.path().join("test.db"))), postgres.as_ref().map(Postgres::database)];
        for database in databases.iter().flatten() {
            thread::scope(|scope| {
                let opening: Vec<_> = (0..3).map(|_| scope.spawn(|| Pool::open(database).map(drop))).collect();
                for opened in opening {
                    opened.join().unwrap().unwrap();
                }
            });
        }
    }

    #[test]
    fn a_failed_write_leaves_nothing_and_frees_its_connection() {
        testing::on_each_database(|pool| {
            let count = || {
                use crate::db::schema::users::dsl::users;
                use diesel::QueryDsl as _;
                pool.read_blocking(|db| Ok(users.count().get_result::<i64>(db)?)).unwrap()
            };
            let insert = |db: &mut Db| users::sign_in(db, &"user".into(), &"account".into(), None, now());
            let refused = pool.write_blocking(|db| insert(db).and(Err::<(), _>(DbError::NotFound)));
            assert!(matches!(refused, Err(DbError::NotFound)));
            assert_eq!(count(), 0);

            let panicked = thread::scope(|scope| {
                scope.spawn(|| pool.write_blocking(|db| insert(db).map(|_| -> () { panic!("on purpose") }))).join()
            });
            assert!(panicked.is_err());
            pool.write_blocking(insert).unwrap();
            assert_eq!(count(), 1);
        });
    }

    #[test]
    fn a_write_that_swallowed_an_error_is_kept_whole_or_not_at_all() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            let written = pool.write_blocking(|db| {
                sessions::insert(db, &"session".into(), &"user".into(), now())?;
                let twice = sessions::insert(db, &"session".into(), &"user".into(), now());
                assert!(matches!(twice, Err(DbError::Conflict)));
                Ok(())
            });
            let stored = pool.read_blocking(|db| sessions::find(db, &"session".into(), now())).unwrap();
            assert_eq!(written.is_ok(), stored.is_some());
        });
    }

    #[test]
    fn writers_of_two_processes_take_turns_on_one_sqlite_file() {
        use crate::db::schema::users::dsl::users as table;
        use diesel::QueryDsl as _;
        let directory = tempfile::tempdir().unwrap();
        let database = Database::Sqlite(directory.path().join("test.db"));
        let pools = [Pool::open(&database).unwrap(), Pool::open(&database).unwrap()];
        // Reads and then writes, which a transaction that began as a reader could not do here.
        let add = |pool: &Pool| {
            pool.write_blocking(|db| {
                let id = table.count().get_result::<i64>(db)?.to_string();
                users::sign_in(db, &id.as_str().into(), &id.as_str().into(), None, now())
            })
        };
        thread::scope(|scope| {
            for pool in &pools {
                scope.spawn(move || (0..20).for_each(|_| drop(add(pool).unwrap())));
            }
        });
        assert_eq!(pools[0].read_blocking(|db| Ok(table.count().get_result::<i64>(db)?)).unwrap(), 40);
    }

    #[test]
    fn the_sqlite_file_is_for_its_user_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/test.db");
        Pool::open(&Database::Sqlite(path.clone())).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    }

    #[test]
    fn a_read_cannot_write_on_sqlite() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        let written = pool.read_blocking(|db| users::sign_in(db, &"user".into(), &"account".into(), None, now()));
        assert!(matches!(written, Err(DbError::Query(_))));
    }

    #[test]
    fn acknowledged_writes_survive_and_foreign_keys_hold() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        #[derive(QueryableByName)]
        struct Pragmas {
            #[diesel(sql_type = Text)]
            journal_mode: String,
            #[diesel(sql_type = diesel::sql_types::Integer)]
            synchronous: i32,
            #[diesel(sql_type = diesel::sql_types::Integer)]
            foreign_keys: i32,
        }
        let query = sql_query(
            "SELECT journal_mode, synchronous, foreign_keys \
             FROM pragma_journal_mode, pragma_synchronous, pragma_foreign_keys",
        );
        let pragmas: Pragmas = pool.write_blocking(|db| Ok(query.get_result(db)?)).unwrap();
        // 2 is FULL.
        assert_eq!((pragmas.journal_mode.as_str(), pragmas.synchronous, pragmas.foreign_keys), ("wal", 2, 1));
    }

    #[tokio::test]
    async fn async_callers_read_and_write() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        let user = pool.write(|db| users::sign_in(db, &"user".into(), &"account".into(), None, now())).await.unwrap();
        assert_eq!(pool.read(|db| users::find(db, &"user".into())).await.unwrap(), Some(user));
        let panicked: Result<(), _> = pool.write(|_| panic!("on purpose")).await;
        assert!(matches!(panicked, Err(DbError::Query(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_gets_no_turn_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        let held = pool.writers.turns.clone().acquire_owned().await.unwrap();
        let refused: Result<(), _> = pool.write(|_| Ok(())).await;
        assert!(matches!(refused, Err(DbError::Unavailable(_))));
        drop(held);
        pool.write(|_| Ok(())).await.unwrap();
    }

    #[test]
    fn a_database_that_is_not_there_is_unavailable_and_its_password_stays_secret() {
        for url in [
            "postgres://u:hunter2@127.0.0.1:1/none",
            "postgres://u:hunter2@127.0.0.1:99999999/none",
            "postgres://u:hunter2@[::1/none",
            "postgres://u:hunter2%zz@127.0.0.1/none",
        ] {
            let error = Pool::open(&Database::Postgres(SecretString::from(url))).err().unwrap();
            assert!(matches!(error, DbError::Unavailable(_)), "{error:?}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let refused =
            redacted("unexpected character in postgres://u:hunter2@h or hunter2", &"postgres://u:hunter2@h".into());
        assert_eq!(refused, "unexpected character in DATABASE_URL or …");
        let file = tempfile::NamedTempFile::new().unwrap();
        let beneath_a_file = Database::Sqlite(file.path().join("test.db"));
        assert!(matches!(Pool::open(&beneath_a_file), Err(DbError::Unavailable(_))));
    }
}
