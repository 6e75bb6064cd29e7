//! Connections, and the only way from async code to the database.
//!
//! Queries run on threads of their own, one for each connection, and whatever becomes of them, their caller has an
//! answer in time: a database that hangs holds these threads, and nothing else.
//!
//! Above 500 lines: the connections, their queue and the end of a transaction know each other, and nothing else does.

use std::{
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
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
    db::engine::{
        self, Access, EngineError,
        database_file::DatabaseFile,
        error::DbError,
        fence_check,
        job_queue::{JobQueue, JobUrgency},
        lock_holder::LockHold,
    },
    domain::fence::Fence,
    net::trace,
};

/// Time for which a caller waits for its answer before it gets [`DbError::Unavailable`].
const DEADLINE: Duration = Duration::from_secs(5);
/// Longest wait of a simulation for its connections, by the clock: a machine that has more to do is no fault in it.
const SIMULATED_DEADLINE: Duration = Duration::from_secs(600);
/// Time between two looks of a waiting query whether there will be a connection.
const LOOKED_EVERY: Duration = Duration::from_millis(200);
/// For about as long as its caller waits.
const LOOKS: u32 = 25;
/// Connections of one process to PostgreSQL; one of them is only for what is written first.
const POSTGRES_CONNECTIONS: u32 = 10;
/// Connections that read SQLite while its one writer writes.
const SQLITE_READERS: u32 = 4;
/// Reads of a start that are under way or wait for a connection at once.
const AT_START: usize = 16;

/// A connection to either engine.
#[derive(diesel::MultiConnection)]
pub enum Db {
    Pg(PgConnection),
    Sqlite(SqliteConnection),
}

/// The database; clones share the connections.
#[derive(Clone)]
pub struct Pool {
    readers: Arc<DbLane>,
    writers: Arc<DbLane>,
    keeper: Keeper,
    at_start: Arc<Semaphore>,
}

/// Sees to it that a change which is answered with success is kept.
#[derive(Clone, Default)]
struct Keeper {
    /// The file of SQLite; `None` for PostgreSQL.
    file: Option<Arc<DatabaseFile>>,
    /// The lock of a process that serves from PostgreSQL.
    hold: Option<LockHold>,
    /// The right by which a node writes for a part of the service.
    fence: Option<Arc<Fence>>,
}

tokio::task_local! {
    /// The right by which the work of this task writes.
    static WRITES_BY: Arc<Fence>;
}

/// Does work for a part: its changes fail once another node has that, as those of a pool that is
/// [`fenced_by`](Pool::fenced_by) its right. Not those of tasks that it starts.
pub async fn writes_by<T>(right: Arc<Fence>, work: impl Future<Output = T>) -> T {
    WRITES_BY.scope(right, work).await
}

impl Keeper {
    /// With the right of the work of this task, unless the pool has one.
    fn of_task(&self) -> Self {
        let mut keeper = self.clone();
        if keeper.fence.is_none() {
            keeper.fence = WRITES_BY.try_with(Arc::clone).ok();
        }
        keeper
    }
}

/// Load of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolLoad {
    /// Open connections, and those of them that run a query.
    pub open: usize,
    pub busy: usize,
    /// Queries that wait for one.
    pub waiting: usize,
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
type Job = Box<dyn FnOnce(Result<&mut Db, DbError>) -> QueryAnswer + Send>;
/// Answers the caller: with the result of the queries, unless something went wrong after them.
type QueryAnswer = Box<dyn FnOnce(Result<(), DbError>) + Send>;

/// Some connections, and why the database refused the last one that was asked for.
#[derive(Clone)]
struct DbConnections {
    made: r2d2::Pool<Connector>,
    refused: ConnectRefusal,
    /// Closed after all connections: see [`TakenFile::file`](super::database_file::TakenFile::file).
    _taken: Option<Arc<File>>,
}

type ConnectRefusal = Arc<Mutex<Option<String>>>;

/// Some connections, and the queries that wait for them.
struct DbLane {
    connections: DbConnections,
    queue: Arc<JobQueue<Job>>,
    simulated: Option<SimulatedLane>,
}

/// Replaces a lane's threads in a simulation.
struct SimulatedLane {
    disk: Arc<SimulatedDisk>,
    turns: Arc<Semaphore>,
    before: DiskMoment,
}

impl Pool {
    /// Connects to a database as it is. Blocks; a missing SQLite file would be created empty.
    pub fn open_as_it_is(database: &Database) -> Result<Pool, DbError> {
        Self::connect(database, None, None)
    }

    /// Connects; with a simulated disk, queries run on the thread of their caller, between two calls of the disk. The
    /// file of a SQLite that is taken is held until all connections are closed.
    pub(in crate::db) fn connect(
        database: &Database,
        disk: Option<Arc<SimulatedDisk>>,
        taken: Option<Arc<File>>,
    ) -> Result<Pool, DbError> {
        let lane = |size, reserved, access| {
            let connector = Connector { database: database.clone(), access, refused: Arc::default() };
            DbLane::open(connector, size, reserved, disk.clone(), taken.clone()).map(Arc::new)
        };
        let at_start = Arc::new(Semaphore::new(AT_START));
        match database {
            Database::Postgres(_) => {
                let both = lane(POSTGRES_CONNECTIONS, 1, Access::Write)?;
                Ok(Pool { readers: both.clone(), writers: both, keeper: Keeper::default(), at_start })
            }
            // SQLite has one writer at a time: one connection, so that writers queue here and not in its busy loop.
            Database::Sqlite(path) => {
                let (writers, readers) = (lane(1, 0, Access::Write)?, lane(SQLITE_READERS, 0, Access::Read)?);
                let file = DatabaseFile::at(path)
                    .map_err(|error| DbError::Unavailable(format!("{}: {error}", path.display())))?;
                let keeper = Keeper { file: Some(Arc::new(file)), ..Keeper::default() };
                Ok(Pool { writers, readers, keeper, at_start })
            }
        }
    }

    /// This pool, which changes nothing unless this process has its lock.
    pub fn held_by(mut self, hold: Option<LockHold>) -> Self {
        self.keeper.hold = hold;
        self
    }

    /// This pool, which changes nothing once another node has the part: [`DbError::Fenced`]. As long as it, or a change
    /// through it, goes on, the right is shared.
    pub fn fenced_by(mut self, fence: Arc<Fence>) -> Self {
        self.keeper.fence = Some(fence);
        self
    }

    /// This pool without its fence: for changes that are right whichever node has the part.
    pub fn unfenced(mut self) -> Self {
        self.keeper.fence = None;
        self
    }

    /// Runs queries that change nothing.
    pub async fn read<T, F>(&self, query: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        self.readers.run(JobUrgency::Ordinary, query).await
    }

    /// [`read`](Self::read), for what each of thousands of parts reads when all of them start at once: a few at a time, so
    /// that nothing else waits behind them.
    pub async fn read_at_start<T, F>(&self, query: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        let _turn = self.at_start.acquire().await;
        self.read(query).await
    }

    /// Runs queries as one transaction: committed when `change` returns `Ok`, rolled back when not. Once begun it runs
    /// to its end, even if the caller stops waiting or gets `Unavailable` because it took too long.
    pub async fn write<T, E, F>(&self, change: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, E> + Send + 'static,
    {
        let keeper = self.keeper.of_task();
        self.writers.run(JobUrgency::Ordinary, move |db| keeper.transaction(db, change)).await
    }

    /// [`write`](Self::write), and runs the callback once the change is committed, even if its caller has stopped
    /// waiting by then: on the thread that committed it, so the callback must not block.
    pub async fn write_and_notify<T, E, F>(&self, change: F, notify: impl FnOnce(&T) + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, E> + Send + 'static,
    {
        let keeper = self.keeper.of_task();
        self.writers.run(JobUrgency::Ordinary, move |db| keeper.transaction(db, change).inspect(notify)).await
    }

    /// [`write_and_notify`](Self::write_and_notify) before everybody else's: for alarms.
    pub async fn write_first<T, F>(&self, change: F, notify: impl FnOnce(&T) + Send + 'static) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, DbError> + Send + 'static,
    {
        let keeper = self.keeper.of_task();
        self.writers.run(JobUrgency::First, move |db| keeper.transaction(db, change).inspect(notify)).await
    }

    /// Removes what was deleted from SQLite's log, too. False when it is still there, because another connection reads
    /// from the log; none of the others waits for that. PostgreSQL has a log of its own.
    pub async fn empty_log(&self) -> Result<bool, DbError> {
        let empty = |db: &mut Db| match db {
            Db::Pg(_) => Ok(true),
            Db::Sqlite(connection) => {
                engine::empty_log(connection).map_err(|error| DbError::Unavailable(error.to_string()))
            }
        };
        self.writers.run(JobUrgency::Ordinary, empty).await
    }

    /// The file of a SQLite database.
    pub fn file(&self) -> Option<Arc<DatabaseFile>> {
        self.keeper.file.clone()
    }

    /// Current load of the connections.
    pub fn load(&self) -> PoolLoad {
        let lanes = [Some(&self.writers), (!Arc::ptr_eq(&self.readers, &self.writers)).then_some(&self.readers)];
        lanes.into_iter().flatten().fold(PoolLoad::default(), |load, lane| {
            let state = lane.connections.made.state();
            PoolLoad {
                open: load.open + state.connections as usize,
                busy: load.busy + (state.connections - state.idle_connections.min(state.connections)) as usize,
                waiting: load.waiting + lane.queue.waiting_jobs(),
            }
        })
    }

    /// [`read`](Self::read) for threads that may block; without a deadline for the queries.
    pub fn read_blocking<T>(&self, query: impl FnOnce(&mut Db) -> Result<T, DbError>) -> Result<T, DbError> {
        query(&mut *self.readers.connections.wait()?)
    }

    /// [`write`](Self::write) for threads that may block; without a deadline for the queries.
    pub fn write_blocking<T>(&self, change: impl FnOnce(&mut Db) -> Result<T, DbError>) -> Result<T, DbError> {
        self.keeper.transaction(&mut *self.writers.connections.wait()?, change)
    }
}

impl DbLane {
    /// Opens `size` connections, `reserved` of which only run jobs of [`JobUrgency::First`].
    fn open(
        connector: Connector,
        size: u32,
        reserved: u32,
        disk: Option<Arc<SimulatedDisk>>,
        taken: Option<Arc<File>>,
    ) -> Result<Self, DbError> {
        let before = match connector.access {
            Access::Read => DiskMoment::BeforeRead,
            Access::Write => DiskMoment::BeforeWrite,
        };
        let refused = connector.refused.clone();
        let made = r2d2::Pool::builder().max_size(size);
        let made = match connector.database {
            Database::Postgres(_) => made.min_idle(Some(1)),
            // All at once and for good: one that is opened when the log has been removed has another log than they.
            Database::Sqlite(_) => made.max_lifetime(None).idle_timeout(None),
        };
        let made = made
            .connection_timeout(if disk.is_some() { SIMULATED_DEADLINE } else { DEADLINE })
            // Each query that gets no connection says why; the pool would say it once more with every attempt.
            .error_handler(Box::new(r2d2::NopErrorHandler))
            .build(connector)
            .map_err(|error| DbError::Unavailable(error.to_string()))?;
        let turns = Arc::new(Semaphore::new(size as usize));
        let simulated = disk.map(|disk| SimulatedLane { disk, turns, before });
        let lane =
            Self { connections: DbConnections { made, refused, _taken: taken }, queue: Arc::default(), simulated };
        if lane.simulated.is_none() {
            for worker in 0..size {
                lane.start(if worker < reserved { JobUrgency::First } else { JobUrgency::Ordinary })
                    .map_err(|error| DbError::Unavailable(format!("no thread for queries: {error}")))?;
            }
        }
        Ok(lane)
    }

    /// Starts a thread that does jobs of at least this urgency until the lane is gone.
    fn start(&self, least: JobUrgency) -> io::Result<()> {
        let (queue, connections) = (self.queue.clone(), self.connections.clone());
        let work = move || {
            while let Some(job) = queue.next(least) {
                // A panic is reported where it happens; the connection is dropped with it, and so is the answer.
                let _ = catch_unwind(AssertUnwindSafe(|| run_job(job, &connections)(Ok(()))));
            }
        };
        thread::Builder::new().name("database".to_owned()).spawn(work).map(drop)
    }

    /// Compiled for each query, so the way to the thread and back is not in it: [`run_boxed`](Self::run_boxed).
    async fn run<T, E, F>(&self, urgency: JobUrgency, query: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, E> + Send + 'static,
    {
        let done = Arc::new(Mutex::new(None));
        let kept = done.clone();
        let query = Box::new(move |db: &mut Db| {
            let result = query(db);
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        self.run_boxed(urgency, query).await?;
        let result = done.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.unwrap_or_else(|| Err(DbError::Panicked.into()))
    }

    async fn run_boxed(&self, urgency: JobUrgency, query: Box<dyn FnOnce(&mut Db) + Send>) -> Result<(), DbError> {
        let (reply, answered) = oneshot::channel();
        let (since, trace) = (time::Instant::now(), trace::current());
        let job: Job = Box::new(move |db| {
            metrics::histogram!("companion_database_wait_seconds").record(since.elapsed());
            let done = trace::resumed(trace, || db.map(query));
            Box::new(move |after: Result<(), DbError>| drop(reply.send(after.and(done))))
        });
        let Some(_ticket) = self.queue.push(urgency, job) else {
            return Err(DbError::Unavailable("too many queries wait".to_owned()));
        };
        if let Some(simulated) = &self.simulated {
            simulated.spawn_turn(self.queue.clone(), self.connections.clone());
        }
        match time::timeout(DEADLINE, answered).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(DbError::Panicked),
            Err(_) => Err(DbError::Unavailable(format!("no answer within {} s", DEADLINE.as_secs()))),
        }
    }
}

impl Drop for DbLane {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl SimulatedLane {
    /// Does one job when a connection is free: a task, so that it comes to its end even if the caller stops waiting.
    fn spawn_turn(&self, queue: Arc<JobQueue<Job>>, connections: DbConnections) {
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
fn run_job(job: Job, connections: &DbConnections) -> QueryAnswer {
    match connections.take() {
        Ok(mut db) => job(Ok(&mut db)),
        Err(error) => job(Err(error)),
    }
}

impl DbConnections {
    /// One that is free. Where the database refuses them all, no query waits: the pool asks again by itself, ever more
    /// rarely, at least every [`DEADLINE`] / 2.
    fn take(&self) -> Result<r2d2::PooledConnection<Connector>, DbError> {
        for _ in 0..LOOKS {
            if let Some(free) = self.made.try_get() {
                return Ok(free);
            }
            if self.made.state().connections == 0
                && let Some(reason) = &*self.refused.lock().unwrap_or_else(PoisonError::into_inner)
            {
                return Err(DbError::Unavailable(format!("it refuses connections: {}", reason.trim())));
            }
            if let Ok(made) = self.made.get_timeout(LOOKED_EVERY) {
                return Ok(made);
            }
        }
        Err(DbError::Unavailable("no connection is free".to_owned()))
    }

    /// One that is free; waits for it.
    fn wait(&self) -> Result<r2d2::PooledConnection<Connector>, DbError> {
        self.made.get().map_err(|error| DbError::Unavailable(error.to_string()))
    }
}

impl Keeper {
    fn transaction<T, E: From<DbError>>(
        &self,
        db: &mut Db,
        change: impl FnOnce(&mut Db) -> Result<T, E>,
    ) -> Result<T, E> {
        begin(db)?;
        match change(db) {
            Ok(value) => {
                self.commit(db)?;
                Ok(value)
            }
            Err(error) => {
                roll_back(db);
                Err(error)
            }
        }
    }

    fn commit(&self, db: &mut Db) -> Result<(), DbError> {
        if let Err(error) = self.before_commit(db) {
            roll_back(db);
            return Err(error);
        }
        <Db as diesel::Connection>::TransactionManager::commit_transaction(db)?;
        self.after_commit(db)
    }

    fn before_commit(&self, db: &mut Db) -> Result<(), DbError> {
        match (&mut *db, &self.fence) {
            (Db::Pg(connection), Some(fence)) => fence_check::on_postgres(connection, fence)?,
            (Db::Sqlite(connection), Some(fence)) => fence_check::on_sqlite(connection, fence)?,
            (_, None) => {}
        }
        match (db, &self.hold) {
            (Db::Pg(connection), Some(hold)) => hold.check(connection),
            // PostgreSQL answers COMMIT without an error when an earlier, swallowed error has already undone everything.
            (Db::Pg(connection), None) => Ok(connection.batch_execute("SELECT 1")?),
            (Db::Sqlite(_), _) => Ok(()),
        }
    }

    /// A change in a log that was removed is put into the file.
    fn after_commit(&self, db: &mut Db) -> Result<(), DbError> {
        let (Db::Sqlite(connection), Some(file)) = (db, &self.file) else { return Ok(()) };
        match file.check_log() {
            Ok(()) => Ok(()),
            Err(fault) => engine::put_log_into_file(connection).map_err(|error| {
                DbError::Unavailable(format!("{fault}, and its changes are not in the file: {error}"))
            }),
        }
    }
}

fn begin(db: &mut Db) -> Result<(), DbError> {
    match db {
        Db::Pg(connection) => AnsiTransactionManager::begin_transaction(connection)?,
        // A transaction that begins as a reader cannot always become a writer.
        Db::Sqlite(connection) => AnsiTransactionManager::begin_transaction_sql(connection, "BEGIN IMMEDIATE")?,
    }
    Ok(())
}

/// A connection that cannot roll back is not used again (`has_broken`), and closing it rolls back.
fn roll_back(db: &mut Db) {
    if let Err(failure) = <Db as diesel::Connection>::TransactionManager::rollback_transaction(db) {
        log::warn!("a transaction could not be rolled back: {}", DbError::from(failure));
    }
}

/// Opens connections for r2d2. (`MultiConnection`'s own `establish` would try one engine after the other, and make a
/// SQLite file named like the URL of a PostgreSQL that is down.)
#[derive(Debug)]
struct Connector {
    database: Database,
    access: Access,
    /// Reason why the last attempt was refused.
    refused: ConnectRefusal,
}

impl r2d2::ManageConnection for Connector {
    type Connection = Db;
    type Error = EngineError;

    fn connect(&self) -> Result<Db, EngineError> {
        let opened = match &self.database {
            Database::Sqlite(path) => engine::open_sqlite(path, self.access).map(Db::Sqlite),
            Database::Postgres(url) => engine::open_postgres(url).map(Db::Pg),
        };
        let refused = opened.as_ref().err().map(ToString::to_string);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        opened
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
mod tests;
