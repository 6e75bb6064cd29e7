//! Connections, and the only way from async code to the database.

use std::{sync::Arc, time::Duration};

use diesel::{
    PgConnection, SqliteConnection,
    connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager},
    r2d2::R2D2Connection as _,
};
use futures_util::future::LocalBoxFuture;
use tokio::{sync::Semaphore, task, time};

use crate::{
    config::Database,
    db::{
        engine::{self, Access, EngineError},
        error::DbError,
    },
};

/// How long a caller waits for its turn before it gets [`DbError::Unavailable`].
const WAIT: Duration = Duration::from_secs(5);
/// Connections of one process to PostgreSQL.
const POSTGRES_CONNECTIONS: u32 = 10;
/// Connections that read SQLite while its one writer writes.
const SQLITE_READERS: u32 = 4;

/// A connection to either engine.
#[derive(diesel::MultiConnection)]
pub enum Db {
    Pg(PgConnection),
    Sqlite(SqliteConnection),
}

/// The database; clones share the connections.
#[derive(Clone)]
pub struct Pool {
    readers: ConnectionQueue,
    writers: ConnectionQueue,
}

/// Where queries run.
#[derive(Clone)]
enum QueryPlace {
    BlockingPool,
    /// On the caller's thread, between two calls of the disk.
    Simulated(Arc<SimulatedDisk>),
}

/// When a simulated disk is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskMoment {
    BeforeRead,
    BeforeWrite,
    /// Its transaction, if it is one, is committed.
    AfterQuery,
}

/// A disk that may take its time, refuse a query before it runs, or never come back, as at the end of a process.
pub type SimulatedDisk = dyn Fn(DiskMoment) -> LocalBoxFuture<'static, Result<(), DbError>> + Send + Sync;

/// Some connections and the queue for them. Callers wait in the queue, in order and no longer than [`WAIT`], instead
/// of holding a thread each.
#[derive(Clone)]
struct ConnectionQueue {
    connections: r2d2::Pool<Connector>,
    turns: Arc<Semaphore>,
    place: QueryPlace,
    access: Access,
}

impl Pool {
    /// Connects and brings the schema up to date. Blocks; a missing SQLite file is created, with its directory.
    pub fn open(database: &Database) -> Result<Pool, DbError> {
        Self::open_at(database, QueryPlace::BlockingPool)
    }

    /// The same for a simulation on one thread: queries run on the thread of their caller.
    pub fn open_simulated(database: &Database, disk: Arc<SimulatedDisk>) -> Result<Pool, DbError> {
        Self::open_at(database, QueryPlace::Simulated(disk))
    }

    fn open_at(database: &Database, place: QueryPlace) -> Result<Pool, DbError> {
        engine::migrate(database)?;
        let queue =
            |size, access| ConnectionQueue::open(Connector { database: database.clone(), access }, size, place.clone());
        match database {
            Database::Postgres(_) => {
                let both = queue(POSTGRES_CONNECTIONS, Access::Write)?;
                Ok(Pool { readers: both.clone(), writers: both })
            }
            // SQLite has one writer at a time: one connection, so that writers queue here and not in its busy loop.
            Database::Sqlite(_) => {
                Ok(Pool { writers: queue(1, Access::Write)?, readers: queue(SQLITE_READERS, Access::Read)? })
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
    /// not. It runs to its end even if the caller stops waiting.
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

impl ConnectionQueue {
    fn open(connector: Connector, size: u32, place: QueryPlace) -> Result<Self, DbError> {
        let access = connector.access;
        let connections = r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(1))
            .connection_timeout(WAIT)
            .build(connector)
            .map_err(|error| DbError::Unavailable(error.to_string()))?;
        Ok(Self { connections, turns: Arc::new(Semaphore::new(size as usize)), place, access })
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that moves work to the blocking pool")]
    async fn run<T, F>(&self, job: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        let turn = match time::timeout(WAIT, self.turns.clone().acquire_owned()).await {
            Ok(Ok(turn)) => turn,
            _ => return Err(DbError::Unavailable("every connection is busy".to_owned())),
        };
        let queue = self.clone();
        let before = match self.access {
            Access::Read => DiskMoment::BeforeRead,
            Access::Write => DiskMoment::BeforeWrite,
        };
        let done = match self.place.clone() {
            QueryPlace::BlockingPool => task::spawn_blocking(move || {
                let _turn = turn;
                queue.run_blocking(job)
            }),
            // A task too: the query runs to its end even if the caller stops waiting.
            QueryPlace::Simulated(disk) => actix::spawn(async move {
                let _turn = turn;
                disk(before).await?;
                let done = queue.run_blocking(job);
                disk(DiskMoment::AfterQuery).await?;
                done
            }),
        };
        // A panic was reported where it happened; the connection is dropped with it.
        done.await.unwrap_or_else(|_| Err(DbError::Panicked))
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
            // A connection that cannot roll back is not used again (`has_broken`), and closing it rolls back.
            if let Err(failure) = <Db as diesel::Connection>::TransactionManager::rollback_transaction(db) {
                log::warn!("a transaction could not be rolled back: {}", DbError::from(failure));
            }
            Err(error)
        }
    }
}

/// Opens connections for r2d2. (`MultiConnection`'s own `establish` would try one engine after the other, and make a
/// SQLite file named like the URL of a PostgreSQL that is down.)
#[derive(Debug)]
struct Connector {
    database: Database,
    access: Access,
}

impl r2d2::ManageConnection for Connector {
    type Connection = Db;
    type Error = EngineError;

    fn connect(&self) -> Result<Db, EngineError> {
        match &self.database {
            Database::Sqlite(path) => engine::open_sqlite(path, self.access).map(Db::Sqlite),
            Database::Postgres(url) => engine::open_postgres(url).map(Db::Pg),
        }
    }

    fn is_valid(&self, db: &mut Db) -> Result<(), EngineError> {
        match db {
            Db::Pg(connection) => Ok(connection.ping()?),
            // A file does not hang up.
            Db::Sqlite(_) => Ok(()),
        }
    }

    fn has_broken(&self, db: &mut Db) -> bool {
        // A panic may have left a transaction open.
        std::thread::panicking() || db.is_broken()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use diesel::RunQueryDsl as _;

    use super::*;
    use crate::db::{
        sessions,
        testing::{self, now},
        users,
    };

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
    fn a_write_that_swallowed_an_error_is_stored_whole_or_not_at_all() {
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
    fn a_read_cannot_write_on_sqlite() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        let written = pool.read_blocking(|db| users::sign_in(db, &"user".into(), &"account".into(), None, now()));
        assert!(matches!(written, Err(DbError::Query(_))));
    }

    #[tokio::test]
    async fn async_callers_read_and_write() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        let user = pool.write(|db| users::sign_in(db, &"user".into(), &"account".into(), None, now())).await.unwrap();
        assert_eq!(pool.read(|db| users::find(db, &"user".into())).await.unwrap(), Some(user));
        let panicked: Result<(), _> = pool.write(|_| panic!("on purpose")).await;
        assert!(matches!(panicked, Err(DbError::Panicked)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_gets_no_turn_gets_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        let held = pool.writers.turns.clone().acquire_owned().await.unwrap();
        let refused: Result<(), _> = pool.write(|_| Ok(())).await;
        assert!(matches!(refused, Err(DbError::Unavailable(_))));
        drop(held);
        pool.write(|_| Ok(())).await.unwrap();
    }
}
