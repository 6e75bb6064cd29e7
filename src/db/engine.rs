//! The two engines: opens a connection to either.
//!
//! The modules below have what every table needs: the pool, errors, stored instants, the steps of the schema and the
//! lock of the process that serves.

pub mod cluster_timeline;
pub mod database_file;
pub mod error;
pub mod fence_check;
pub mod file_size;
pub mod job_queue;
pub mod lock_holder;
pub mod pool;
#[cfg(all(test, feature = "postgres-tls"))]
mod postgres_tls;
pub mod prelude;
pub mod query_failures;
pub mod schema_steps;
pub mod serving_lock;
pub mod start_reads;
pub mod stored_monuments;
pub mod stored_server;
pub mod timestamp;
mod transient_failures;
pub mod write_check;

use std::{fmt, fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path};

use diesel::{
    Connection as _, PgConnection, QueryableByName, SqliteConnection, connection::SimpleConnection as _, sql_query,
    sql_types::Integer,
};
use secrecy::{ExposeSecret as _, SecretString};

use self::transient_failures::{NO_CONNECTION_LEFT, is_transient_for_connection};
use crate::{
    config,
    db::engine::{error::DbError, prelude::RunQuery as _},
};

/// Time for which a connection to SQLite waits for another one, milliseconds.
const PATIENT: &str = "PRAGMA busy_timeout = 5000";

/// Rights of a connection to SQLite.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    Read,
    Write,
}

/// Reason why a connection was not made, without the URL.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(String);

impl From<diesel::result::Error> for EngineError {
    fn from(error: diesel::result::Error) -> Self {
        Self(DbError::from(error).to_string())
    }
}

/// Opens a SQLite file, which must exist.
pub fn open_sqlite(path: &Path, access: Access) -> Result<SqliteConnection, EngineError> {
    let name = path.to_str().ok_or_else(|| EngineError(format!("{} is not UTF-8", path.display())))?;
    let mut connection =
        SqliteConnection::establish(name).map_err(|error| EngineError(format!("{}: {error}", path.display())))?;
    connection.batch_execute(PATIENT)?;
    // FULL: what was answered with success survives a power cut. What is deleted is overwritten.
    connection.batch_execute(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON",
    )?;
    if let Access::Read = access {
        connection.batch_execute("PRAGMA query_only = ON")?;
    }
    Ok(connection)
}

#[derive(QueryableByName)]
struct Checkpoint {
    #[diesel(sql_type = Integer)]
    busy: i32,
}

/// Writes what the log of SQLite holds into its file and empties the log, which still had what is deleted. False while
/// another connection reads from it.
pub fn empty_log(connection: &mut SqliteConnection) -> Result<bool, EngineError> {
    // No connection can write meanwhile: wait briefly.
    connection.batch_execute("PRAGMA busy_timeout = 50")?;
    let done = sql_query("PRAGMA wal_checkpoint(TRUNCATE)").get_result::<Checkpoint>(connection);
    connection.batch_execute(PATIENT)?;
    Ok(done?.busy == 0)
}

/// Writes what the log of SQLite holds into its file, and to the disk. Waits for connections that read an older state.
pub fn put_log_into_file(connection: &mut SqliteConnection) -> Result<(), EngineError> {
    match sql_query("PRAGMA wal_checkpoint(FULL)").get_result::<Checkpoint>(connection)? {
        Checkpoint { busy: 0 } => Ok(()),
        Checkpoint { .. } => Err(EngineError("another connection reads".to_owned())),
    }
}

/// Connects to PostgreSQL.
pub fn open_postgres(url: &SecretString) -> Result<PgConnection, EngineError> {
    // Before libpq does: else OpenSSL clears its memory when the process ends, though a thread of a pool may still connect.
    #[cfg(feature = "postgres-tls")]
    openssl_sys::init();
    let with_deadlines = with_deadlines(url);
    let mut connection = PgConnection::establish(with_deadlines.expose_secret())
        .map_err(|error| EngineError(redacted(&error.to_string(), &with_deadlines)))?;
    connection.batch_execute(
        "SET TIME ZONE 'UTC'; SET statement_timeout = '5s'; SET lock_timeout = '5s'; \
         SET idle_in_transaction_session_timeout = '10s'; SET application_name = 'companion'",
    )?;
    Ok(connection)
}

/// True if a start that failed with this is worth another attempt: the database is down, hangs or is locked. Any
/// other error, such as a refusal, is permanent.
pub fn is_retryable_at_start(error: &DbError) -> bool {
    matches!(error, DbError::Unavailable(message) if is_transient_for_connection(message))
}

/// The text of an error, with what an operator can do about it where that is not obvious.
pub fn with_advice(error: &impl fmt::Display) -> String {
    // Texts of libpq end with a line break.
    let text = error.to_string().trim_end().to_owned();
    match advice(&text) {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

/// Advice to an operator whose connections are mixed up.
const POOL_SESSIONS: &str = "a pooler between this process and PostgreSQL must pool sessions, not transactions: see \
                             docs/operations.md (PgBouncer), or connect past it";

/// True for texts of errors that ask for the advice beside it.
type Fits = fn(&str) -> bool;

/// Texts of errors with advice to an operator; the first that fits counts.
const ADVICE: [(Fits, &str); 14] = [
    (
        |error| has_any(error, &NO_CONNECTION_LEFT),
        "PostgreSQL, or a pooler before it, has no connection left: raise max_connections (a companion takes 12), the limit of \
         the role or the pooler's (docs/operations.md, PgBouncer), or end what holds them, see pg_stat_activity",
    ),
    (
        // A full pooler says nothing for minutes.
        |error| error.ends_with("timed out waiting for connection"),
        "it takes connections and does not answer, or not in time: look at its machine; a pooler before it may have no \
         connection left: docs/operations.md (PgBouncer)",
    ),
    (
        |error| error.contains("prepared statement \"") && has_any(error, &["already exists", "does not exist"]),
        POOL_SESSIONS,
    ),
    (
        |error| error.contains("password authentication failed"),
        "correct the password in DATABASE_URL (or PGPASSWORD, ~/.pgpass), or set that of the role (ALTER ROLE)",
    ),
    (
        |error| error.contains("is not currently accepting connections"),
        "an administrator keeps connections out: ALTER DATABASE … ALLOW_CONNECTIONS true lets them in again",
    ),
    (
        |error| has_any(error, &["due to lock timeout", "due to statement timeout"]),
        "PostgreSQL took longer than 5 s: another session may hold a lock on a table (a transaction left open, ALTER TABLE, \
         VACUUM FULL), which pg_stat_activity and pg_blocking_pids(pid) name: wait for it, or end it with \
         pg_terminate_backend(pid); otherwise the server or its disk has too much to do",
    ),
    (
        |error| error.contains("database is locked"),
        "another program holds the lock of the SQLite file: `fuser` or `lsof` on it names it (sqlite3 with an open \
         transaction, a tool for backups); end it",
    ),
    (
        |error| {
            has_any(error, &["no such table", "no such column"])
                || has_any(error, &["relation \"", "column \""]) && error.contains("does not exist")
        },
        "a table or column of the schema is missing: it was removed or renamed by hand, or DATABASE_URL leads to another \
         database or schema (search_path); put its name back, or restore a backup",
    ),
    (
        |error| error.contains("Read-only file system"),
        "the kernel has given up a file system of PostgreSQL, or it is mounted so: `mount` and the kernel's log of its \
         machine say more; look at the disk before you remount it",
    ),
    (
        |error| error.contains("read-only transaction"),
        "PostgreSQL takes no writes (a replica, or default_transaction_read_only): name the primary in DATABASE_URL",
    ),
    (|error| error.contains("database or disk is full"), "the disk of the SQLite file is full: make room on it"),
    (
        |error| error.contains("disk I/O error"),
        "the disk or the file system of the SQLite file fails: `mount` and the kernel's log say more; look at the disk \
         before you remount it",
    ),
    (|error| error.contains("No space left on device"), "a disk of PostgreSQL is full: make room on it"),
    (
        |error| error.contains("readonly database"),
        "the file, its directory or their file system cannot be written: see their owner (chown, chmod), and `mount`",
    ),
];

fn has_any(error: &str, words: &[&str]) -> bool {
    words.iter().any(|words| error.contains(words))
}

/// Advice to an operator about an error with this text, where it is not obvious.
pub fn advice(error: &str) -> Option<&'static str> {
    ADVICE.into_iter().find(|(is_it, _)| is_it(error)).map(|(_, advice)| advice)
}

/// Creates the file and its directory where missing, for this user only: SQLite would leave them to the umask.
pub fn create_private_file(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        config::create_private_dir(directory)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(drop)
}

/// Settings that end a connection whose host is gone, where the URL does not say otherwise: seconds, or milliseconds
/// for `tcp_user_timeout`.
const CONNECTION_DEADLINES: [(&str, &str); 4] = [
    ("tcp_user_timeout=", "15000"),
    ("keepalives_idle=", "10"),
    ("keepalives_interval=", "5"),
    ("keepalives_count=", "2"),
];

/// libpq waits without end for a host that does not answer, unless its URL has deadlines. (A libpq URL may
/// name several hosts or none, which the `url` crate does not read.)
fn with_deadlines(url: &SecretString) -> SecretString {
    let mut url = url.expose_secret().to_owned();
    // With several hosts, the second is asked before the pool gives up, after 5 s. libpq knows no shorter time.
    let connect_timeout = ("connect_timeout=", if url.contains(',') { "2" } else { "5" });
    for (parameter, value) in [connect_timeout].into_iter().chain(CONNECTION_DEADLINES) {
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

    use diesel::sql_types::{Bool, Text};

    use super::*;
    use crate::{
        config::Database,
        db::{engine::pool::Pool, testing::Postgres},
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

    /// The kind of a stored value, whatever the engine calls it.
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
    fn the_sqlite_file_is_for_its_user_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/test.db");
        Pool::open(&Database::Sqlite(path.clone())).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    }

    #[test]
    fn acknowledged_writes_survive_and_foreign_keys_hold() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        #[derive(QueryableByName)]
        struct Pragmas {
            #[diesel(sql_type = Text)]
            journal_mode: String,
            #[diesel(sql_type = Integer)]
            synchronous: i32,
            #[diesel(sql_type = Integer)]
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

    #[test]
    fn only_a_database_that_may_come_is_waited_for() {
        let opened =
            |database: &Database| is_retryable_at_start(&Pool::open(database).err().expect("it does not open"));
        let url = |url: &str| Database::Postgres(SecretString::from(url));
        assert!(opened(&url("postgres://u:p@127.0.0.1:1/none")));
        for never in ["postgres://u:p@127.0.0.1:99999999/none", "postgres://u:p@[::1/none", "postgres://u%zz@h/none"] {
            assert!(!opened(&url(never)), "{never}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!opened(&Database::Sqlite(file.path().join("test.db"))));
        let is_retried = |message: &str| is_retryable_at_start(&DbError::Unavailable(message.to_owned()));
        assert!(is_retried(
            "connection to server at \"h\", port 5432 failed: FATAL:  the database system is starting up"
        ));
        for full in [
            "sorry, too many clients already",
            "too many connections for role \"u\"",
            "no more connections allowed (max_client_conn)",
        ] {
            let full = format!("to 127.0.0.1 failed: FATAL:  {full}");
            assert!(
                is_retried(&full) && advice(&full).is_some_and(|advice| advice.contains("max_connections")),
                "{full}"
            );
        }
        assert!(is_retried("query_wait_timeout"), "the pool of a pooler is full");
        let closed = "FATAL:  database \"c\" is not currently accepting connections";
        assert!(is_retried(closed) && advice(closed).is_some_and(|advice| advice.contains("ALLOW_CONNECTIONS true")));
        for (error, word) in [
            ("canceling statement due to lock timeout", "pg_blocking_pids"),
            ("canceling statement due to statement timeout", "pg_blocking_pids"),
            ("timed out waiting for connection", "PgBouncer"),
            ("query_wait_timeout", "PgBouncer"),
            ("database is locked", "fuser"),
            ("disk I/O error", "kernel's log"),
            ("FATAL:  password authentication failed for user \"u\"", "the password in DATABASE_URL"),
            ("relation \"users\" does not exist", "table or column"),
            ("prepared statement \"__diesel_stmt_0\" already exists", "must pool sessions"),
            ("prepared statement \"__diesel_stmt_0\" does not exist", "must pool sessions"),
            ("no such table: users", "table or column"),
        ] {
            assert!(advice(error).is_some_and(|advice| advice.contains(word)), "{error}");
        }
        assert_eq!(advice("role \"u\" does not exist"), None);
        let read_only = "FATAL:  could not open file \"base/16385/1259\": Read-only file system";
        assert!(advice(read_only).is_some_and(|advice| advice.contains("before you remount it")));
        for refusal in ["password authentication failed for user \"u\"", "database \"none\" does not exist"] {
            let refused = format!("to ::1 failed: Connection refused\nto 127.0.0.1 failed: FATAL:  {refusal}");
            assert!(!is_retried(&refused), "{refused}");
        }
        let Some(postgres) = Postgres::create() else { return };
        let Database::Postgres(known) = postgres.database() else { unreachable!("it is one") };
        assert!(!opened(&url(&format!("{}_not", known.expose_secret()))), "an unknown database");
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
