//! Connections, and the only way from async code to the database.
//!
//! Queries run on threads of their own, one for each connection, and whatever becomes of them, their caller has an
//! answer in time: a database that hangs holds these threads, and nothing else.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use diesel::{
    PgConnection, SqliteConnection,
    connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager},
    r2d2::R2D2Connection as _,
};
use futures_util::future::LocalBoxFuture;
use tokio::{
    sync::{Semaphore, oneshot},
    time,
};

use crate::{
    config::Database,
    db::{
        engine::{self, Access, EngineError},
        error::DbError,
        job_queue::{JobQueue, Urgency},
    },
};

/// How long a caller waits for its answer before it gets [`DbError::Unavailable`].
const DEADLINE: Duration = Duration::from_secs(5);
/// Connections of one process to PostgreSQL; one of them is only for what is written first.
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
    readers: Arc<Lane>,
    writers: Arc<Lane>,
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

/// Runs queries on a connection, or passes on why there is none.
type Job = Box<dyn FnOnce(Result<&mut Db, DbError>) -> Answer + Send>;
/// Answers the caller: with the result of the queries, unless something went wrong after them.
type Answer = Box<dyn FnOnce(Result<(), DbError>) + Send>;

/// Some connections, and the queries that wait for them.
struct Lane {
    connections: r2d2::Pool<Connector>,
    queue: Arc<JobQueue<Job>>,
    simulated: Option<SimulatedLane>,
}

/// What takes the place of a lane's threads.
struct SimulatedLane {
    disk: Arc<SimulatedDisk>,
    turns: Arc<Semaphore>,
    before: DiskMoment,
}

impl Pool {
    /// Connects and brings the schema up to date. Blocks; a missing SQLite file is created, with its directory.
    pub fn open(database: &Database) -> Result<Pool, DbError> {
        Self::open_at(database, None)
    }

    /// The same for a simulation on one thread: queries run on the thread of their caller, between two calls of the disk.
    pub fn open_simulated(database: &Database, disk: Arc<SimulatedDisk>) -> Result<Pool, DbError> {
        Self::open_at(database, Some(disk))
    }

    fn open_at(database: &Database, disk: Option<Arc<SimulatedDisk>>) -> Result<Pool, DbError> {
        engine::migrate(database)?;
        let lane = |size, reserved, access| {
            Lane::open(Connector { database: database.clone(), access }, size, reserved, disk.clone()).map(Arc::new)
        };
        match database {
            Database::Postgres(_) => {
                let both = lane(POSTGRES_CONNECTIONS, 1, Access::Write)?;
                Ok(Pool { readers: both.clone(), writers: both })
            }
            // SQLite has one writer at a time: one connection, so that writers queue here and not in its busy loop.
            Database::Sqlite(_) => {
                Ok(Pool { writers: lane(1, 0, Access::Write)?, readers: lane(SQLITE_READERS, 0, Access::Read)? })
            }
        }
    }

    /// Runs queries that change nothing.
    pub async fn read<T, F>(&self, query: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        self.readers.run(Urgency::Ordinary, query).await
    }

    /// Runs queries as one transaction: committed when `change` returns `Ok`, rolled back when not. Once begun it runs
    /// to its end, even if the caller stops waiting or gets `Unavailable` because it took too long.
    pub async fn write<T, F>(&self, change: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        self.writers.run(Urgency::Ordinary, |db| transaction(db, change)).await
    }

    /// [`write`](Self::write) before everybody else's: for alarms.
    pub async fn write_first<T, F>(&self, change: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        self.writers.run(Urgency::First, |db| transaction(db, change)).await
    }

    /// [`read`](Self::read) for threads that may block; without a deadline for the queries.
    pub fn read_blocking<T>(&self, query: impl FnOnce(&mut Db) -> Result<T, DbError>) -> Result<T, DbError> {
        query(&mut *connection(&self.readers.connections)?)
    }

    /// [`write`](Self::write) for threads that may block; without a deadline for the queries.
    pub fn write_blocking<T>(&self, change: impl FnOnce(&mut Db) -> Result<T, DbError>) -> Result<T, DbError> {
        transaction(&mut *connection(&self.writers.connections)?, change)
    }
}

impl Lane {
    /// With so many connections, `reserved` of which only do what comes first.
    fn open(connector: Connector, size: u32, reserved: u32, disk: Option<Arc<SimulatedDisk>>) -> Result<Self, DbError> {
        let before = match connector.access {
            Access::Read => DiskMoment::BeforeRead,
            Access::Write => DiskMoment::BeforeWrite,
        };
        let connections = r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(1))
            .connection_timeout(DEADLINE)
            .build(connector)
            .map_err(|error| DbError::Unavailable(error.to_string()))?;
        let turns = Arc::new(Semaphore::new(size as usize));
        let simulated = disk.map(|disk| SimulatedLane { disk, turns, before });
        let lane = Self { connections, queue: Arc::default(), simulated };
        if lane.simulated.is_none() {
            for worker in 0..size {
                lane.start(if worker < reserved { Urgency::First } else { Urgency::Ordinary })
                    .map_err(|error| DbError::Unavailable(format!("no thread for queries: {error}")))?;
            }
        }
        Ok(lane)
    }

    /// Starts a thread that does jobs of at least this urgency until the lane is gone.
    fn start(&self, least: Urgency) -> io::Result<()> {
        let (queue, connections) = (self.queue.clone(), self.connections.clone());
        let work = move || {
            while let Some(job) = queue.next(least) {
                // A panic is reported where it happens; the connection is dropped with it, and so is the answer.
                let _ = catch_unwind(AssertUnwindSafe(|| run_job(job, &connections)(Ok(()))));
            }
        };
        thread::Builder::new().name("database".to_owned()).spawn(work).map(drop)
    }

    async fn run<T, F>(&self, urgency: Urgency, query: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        let (reply, answered) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            let done = db.and_then(query);
            Box::new(move |after| drop(reply.send(after.and(done))))
        });
        let Some(_ticket) = self.queue.push(urgency, job) else {
            return Err(DbError::Unavailable("too many queries wait".to_owned()));
        };
        if let Some(simulated) = &self.simulated {
            simulated.spawn_turn(self.queue.clone(), self.connections.clone());
        }
        match time::timeout(DEADLINE, answered).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(DbError::Query("a query panicked".to_owned())),
            Err(_) => Err(DbError::Unavailable(format!("no answer within {} s", DEADLINE.as_secs()))),
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl SimulatedLane {
    /// Does one job when a connection is free: a task, so that it comes to its end even if the caller stops waiting.
    fn spawn_turn(&self, queue: Arc<JobQueue<Job>>, connections: r2d2::Pool<Connector>) {
        let Self { disk, turns, before } = self;
        let (disk, turns, before) = (disk.clone(), turns.clone(), *before);
        actix::spawn(async move {
            let _turn = turns.acquire().await;
            let Some(job) = queue.next_now() else { return };
            match disk(before).await {
                Ok(()) => {
                    let answer = run_job(job, &connections);
                    answer(disk(DiskMoment::AfterQuery).await);
                }
                Err(error) => job(Err(error))(Ok(())),
            }
        });
    }
}

/// The connection is free again before the caller has its answer.
fn run_job(job: Job, connections: &r2d2::Pool<Connector>) -> Answer {
    match connection(connections) {
        Ok(mut db) => job(Ok(&mut db)),
        Err(error) => job(Err(error)),
    }
}

fn connection(connections: &r2d2::Pool<Connector>) -> Result<r2d2::PooledConnection<Connector>, DbError> {
    connections.get().map_err(|error| DbError::Unavailable(error.to_string()))
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
        assert!(matches!(panicked, Err(DbError::Query(_))));
    }

    fn sqlite() -> (tempfile::TempDir, Pool) {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        (directory, pool)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap()
    }

    /// Holds a writer until the sender sends or is gone; resolves when it does.
    async fn occupy(pool: &Pool) -> std::sync::mpsc::Sender<()> {
        let ((release, released), (begin, begun)) = (std::sync::mpsc::channel(), oneshot::channel());
        let pool = pool.clone();
        actix::spawn(async move {
            let held = pool.write(move |_| {
                begin.send(()).unwrap();
                let _ = released.recv();
                Ok(())
            });
            let _ = held.await;
        });
        begun.await.unwrap();
        release
    }

    #[test]
    fn queries_need_no_thread_of_the_blocking_pool() {
        testing::on_each_database(|pool| {
            let (release, released) = std::sync::mpsc::channel::<()>();
            runtime().block_on(async {
                let held = tokio::task::spawn_blocking(move || released.recv());
                let found = pool.read(|db| users::find(db, &"user".into())).await.unwrap();
                assert_eq!(found, None);
                pool.write(|_| Ok(())).await.unwrap();
                drop(release);
                assert!(held.await.unwrap().is_err());
            });
        });
    }

    #[actix::test]
    async fn a_caller_is_answered_in_time_and_a_write_that_nobody_waits_for_is_not_begun() {
        let (_directory, pool) = sqlite();
        let release = occupy(&pool).await;
        time::pause();
        let late = pool.write(|db| users::sign_in(db, &"late".into(), &"late".into(), None, now()).map(drop)).await;
        assert!(matches!(late, Err(DbError::Unavailable(_))), "{late:?}");
        time::resume();
        drop(release);
        pool.write(|_| Ok(())).await.unwrap();
        assert_eq!(pool.read(|db| users::find(db, &"late".into())).await.unwrap(), None);
    }

    #[actix::test]
    async fn what_is_written_first_goes_before_all_that_waits() {
        let (_directory, pool) = sqlite();
        let release = occupy(&pool).await;
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let order = order.clone();
            move |_: &mut Db| {
                order.lock().unwrap().push(name);
                Ok(())
            }
        };
        let waiting = [pool.write(note("one")), pool.write(note("two"))];
        let waiting = futures_util::future::join_all(waiting);
        let alarm = pool.write_first(note("alarm"));
        // All wait before the writer is free.
        let freed = async { drop(release) };
        let (waited, alarmed, ()) = futures_util::future::join3(waiting, alarm, freed).await;
        assert!(waited.iter().all(Result::is_ok) && alarmed.is_ok());
        assert_eq!(*order.lock().unwrap(), ["alarm", "one", "two"]);
    }

    #[actix::test]
    async fn ordinary_writes_never_hold_every_connection_to_postgres() {
        let Some(postgres) = testing::Postgres::create() else { return };
        let pool = Pool::open(&postgres.database()).unwrap();
        let mut held = Vec::new();
        for _ in 1..POSTGRES_CONNECTIONS {
            held.push(occupy(&pool).await);
        }
        pool.write_first(|_| Ok(())).await.unwrap();
        time::pause();
        assert!(matches!(pool.write(|_| Ok(())).await, Err(DbError::Unavailable(_))), "every other one is held");
    }

    #[actix::test]
    async fn a_lock_of_another_process_delays_a_writer_no_longer_than_its_deadline() {
        let (directory, pool) = sqlite();
        let other = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        let release = occupy(&other).await;
        time::pause();
        let (first, second) = tokio::join!(pool.write(|_| Ok(())), pool.write_first(|_| Ok(())));
        assert!(matches!((first, second), (Err(DbError::Unavailable(_)), Err(DbError::Unavailable(_)))));
        time::resume();
        pool.read(|db| users::find(db, &"user".into())).await.expect("readers go on");
        drop(release);
        pool.write(|_| Ok(())).await.unwrap();
    }

    #[actix::test]
    async fn a_database_that_hangs_holds_its_threads_and_nobody_else() {
        let Some(postgres) = testing::Postgres::create() else { return };
        let relay = testing::FreezingRelay::before(&postgres);
        let pool = Pool::open(&relay.database()).unwrap();
        pool.write(|_| Ok(())).await.unwrap();
        relay.freeze(true);
        time::pause();
        let reads = (0..200).map(|_| pool.read(|db| users::find(db, &"user".into())));
        let answers = futures_util::future::join_all(reads).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(DbError::Unavailable(_)))));
        time::resume();
        relay.freeze(false);
        pool.write(|_| Ok(())).await.unwrap();
    }
}
