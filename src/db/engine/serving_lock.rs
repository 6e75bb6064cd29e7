//! The lock under which one process serves from a PostgreSQL: an advisory lock on a connection of its own, which
//! PostgreSQL frees when the connection ends. A process whose connection ends asks for the lock again at once; if another
//! one has it by then, that one serves.
//! A process writes only while it has the lock: see [`LockHold`].

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use diesel::{
    PgConnection, QueryableByName,
    connection::SimpleConnection as _,
    sql_query,
    sql_types::{BigInt, Bool, Text},
};
use secrecy::SecretString;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    clock::Clock,
    crypto::random::Random,
    db::engine::{
        self, POOL_SESSIONS,
        cluster_timeline::NewestTimeline,
        error::DbError,
        lock_holder::{self, LockHold, LockHolder, LockSharing, NamedHolder, SERVING_LOCK, WAITS},
        pool::Db,
        prelude::RunQuery as _,
        schema_steps,
    },
};

/// Time between two looks at the lock.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A process that serves alone and has seen another one wait ends when it has not seen its lock for so long. Shorter than
/// what [`FREE_EARLY`] makes of a connection whose host is gone: 5 s of silence and three questions.
const STEP_BACK_AFTER: Duration = Duration::from_secs(4);
/// PostgreSQL looks after a silent connection sooner than its two hours.
const FREE_EARLY: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";

/// The holder of the lock, as of the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockState {
    Ours {
        /// Another process waits for it.
        awaited: bool,
    },
    HeldBy(LockHolder),
    /// The database does not say, for this reason.
    Unknown(String),
    /// A newer program has brought the schema up to date while this process did not have the lock, in these words.
    Outdated(String),
}

/// The lock of this process, or its place in the queue. It is given up when dropped.
pub struct ServingLock {
    state: watch::Receiver<LockState>,
    hold: LockHold,
    _end: mpsc::Sender<()>,
}

/// Looks at the lock, on a thread of its own.
struct LockWatcher {
    url: SecretString,
    clock: Clock,
    timeline: Option<NewestTimeline>,
    /// The keys that open stored secrets, by fingerprint.
    keys: Vec<String>,
    connection: Option<LockConnection>,
    /// The name of the last connection that had the lock.
    name: Option<String>,
    hold: LockHold,
}

struct LockConnection {
    connection: PgConnection,
    ours: bool,
}

#[derive(QueryableByName)]
struct LockTaken {
    #[diesel(sql_type = Bool)]
    taken: bool,
}

#[derive(QueryableByName)]
struct WaitingCount {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

impl ServingLock {
    /// Asks for the lock, and again until it is ours or this is dropped. Blocks for the first question.
    pub fn ask(url: &SecretString, clock: &Clock) -> Result<Self, DbError> {
        Self::ask_since(url, clock, None)
    }

    /// [`ask`](Self::ask) of a server that was not left behind on an older timeline than this.
    pub fn ask_since(url: &SecretString, clock: &Clock, timeline: Option<NewestTimeline>) -> Result<Self, DbError> {
        Self::ask_beside(url, clock, timeline, LockSharing::Alone, Vec::new())
    }

    /// [`ask_since`](Self::ask_since) for a process that serves beside such others, and opens stored secrets with the keys of
    /// these fingerprints.
    pub fn ask_beside(
        url: &SecretString,
        clock: &Clock,
        timeline: Option<NewestTimeline>,
        sharing: LockSharing,
        keys: Vec<String>,
    ) -> Result<Self, DbError> {
        let hold = LockHold::new(&Random::system(), sharing);
        let (url, clock) = (url.clone(), clock.clone());
        let mut watcher = LockWatcher { url, clock, timeline, keys, connection: None, name: None, hold: hold.clone() };
        let (report, state) = watch::channel(watcher.look()?);
        let (end, ended) = mpsc::channel();
        let run = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                report.send_replace(watcher.look().unwrap_or_else(|error| match error {
                    DbError::NewerSchema(newer) => LockState::Outdated(newer),
                    error => LockState::Unknown(error.to_string()),
                }));
            }
        };
        let thread = thread::Builder::new().name("serving-lock".to_owned());
        thread.spawn(run).map_err(|error: io::Error| DbError::Unavailable(format!("no thread: {error}")))?;
        Ok(Self { state, hold, _end: end })
    }

    /// For the transactions of this process.
    pub fn hold(&self) -> LockHold {
        self.hold.clone()
    }

    /// The last look.
    pub fn state(&self) -> LockState {
        self.state.borrow().clone()
    }

    /// Completes after the next look.
    pub async fn changed(&mut self) -> Result<(), DbError> {
        self.state.changed().await.map_err(|_| DbError::Panicked)
    }

    /// Completes with the reason when this process no longer is the one that serves: another one has the lock, or had it
    /// meanwhile and is newer, or it has not been seen for some seconds while another one waits. Without one that waits, or for
    /// a node, of which all would end at once, a database that is away is no reason: alarms are kept in the journal.
    pub async fn lost(&mut self) -> String {
        let (mut seen, mut awaited, mut failed) = (Instant::now(), false, None);
        loop {
            match timeout(LOOK_EVERY, self.state.changed()).await {
                Ok(Err(_)) => return "nothing looks at the lock of the database".to_owned(),
                Ok(Ok(())) => match self.state.borrow_and_update().clone() {
                    LockState::Ours { awaited: now } => {
                        (seen, awaited) = (Instant::now(), now);
                        if failed.take().is_some() {
                            log::info!("this process has the lock of the database again, and writes");
                        }
                    }
                    LockState::HeldBy(holder) => return format!("the lock of the database has passed to {holder}"),
                    LockState::Outdated(newer) => return format!("another process has served meanwhile: {newer}"),
                    LockState::Unknown(error) => {
                        if failed.replace(error.clone()).is_none() {
                            let error = engine::with_advice(&error);
                            log::error!(
                                "it is not known who has the lock of the database, and nothing is written without it: \
                                 {error}"
                            );
                        }
                    }
                },
                Err(_) => {}
            }
            if let Some(holder) = self.hold.passed_to() {
                return format!("the lock of the database has passed to {holder}");
            }
            if awaited && self.hold.sharing() == LockSharing::Alone && seen.elapsed() > STEP_BACK_AFTER {
                let reason = failed.as_deref().unwrap_or("the database does not answer");
                return format!(
                    "another process waits, and it is not known who has the lock of the database: {reason}"
                );
            }
        }
    }
}

impl LockWatcher {
    /// Takes the lock if it is free, and no transaction of the process that had it goes on. A connection that fails is not
    /// used again.
    fn look(&mut self) -> Result<LockState, DbError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => LockConnection::open(&self.url, self.timeline.as_ref(), &self.keys)?,
        };
        if !connection.ours && connection.take(self.hold.sharing())? {
            if self.name.is_some() {
                // Another process may have served meanwhile. Nothing is written before this is known.
                let db = engine::open_postgres(&self.url).map_err(|error| DbError::Unavailable(error.to_string()))?;
                schema_steps::refuse_newer(&mut Db::Pg(db))?;
            }
            self.hold.is_taken_on(&mut connection.connection)?;
            let name = self.hold.name(self.clock.now());
            connection.name(&name)?;
            self.name = Some(name);
        }
        let holder = connection.holder()?;
        let state = match (holder, connection.ours) {
            (Some(NamedHolder { own: true, .. }), _) => LockState::Ours { awaited: connection.is_awaited()? },
            (_, true) => {
                return Err(DbError::Unavailable(format!(
                    "the serving lock is on another connection than it was taken on: {POOL_SESSIONS}"
                )));
            }
            (Some(NamedHolder { name, .. }), false) if self.name.as_ref() == Some(&name) => {
                return Err(DbError::Unavailable("PostgreSQL has not noticed yet that a connection ended".to_owned()));
            }
            (holder, false) => LockState::HeldBy(holder.map(LockHolder::from).unwrap_or_default()),
        };
        self.connection = Some(connection);
        Ok(state)
    }
}

impl LockConnection {
    fn open(url: &SecretString, timeline: Option<&NewestTimeline>, keys: &[String]) -> Result<Self, DbError> {
        let mut connection = engine::open_postgres(url).map_err(|error| DbError::Unavailable(error.to_string()))?;
        timeline.map_or(Ok(()), |timeline| timeline.check(&mut connection))?;
        let mut opened = Self { connection, ours: false };
        opened.connection.batch_execute(FREE_EARLY)?;
        opened.name(WAITS)?;
        lock_holder::say_keys(&mut opened.connection, keys)?;
        Ok(opened)
    }

    fn take(&mut self, sharing: LockSharing) -> Result<bool, DbError> {
        let take = sql_query(sharing.try_to_take()).bind::<BigInt, _>(SERVING_LOCK);
        self.ours = take.get_result::<LockTaken>(&mut self.connection)?.taken;
        if self.ours {
            lock_holder::wait_for_the_one_before(&mut self.connection, sharing)?;
        }
        Ok(self.ours)
    }

    fn holder(&mut self) -> Result<Option<NamedHolder>, DbError> {
        lock_holder::find(&mut self.connection)
    }

    fn is_awaited(&mut self) -> Result<bool, DbError> {
        let waiting = sql_query(
            "SELECT count(*) AS count FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = $1",
        );
        Ok(waiting.bind::<Text, _>(WAITS).get_result::<WaitingCount>(&mut self.connection)?.count > 0)
    }

    /// Says in the list of connections what this one is for.
    fn name(&mut self, name: &str) -> Result<(), DbError> {
        sql_query("SELECT set_config('application_name', $1, false)")
            .bind::<Text, _>(name)
            .execute(&mut self.connection)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    use secrecy::ExposeSecret as _;

    use crate::{
        config::Database,
        db::{
            engine::{lock_holder::SERVES, pool::Pool},
            testing::{self, Postgres},
            users,
        },
    };

    fn url(postgres: &Postgres) -> SecretString {
        let Database::Postgres(url) = postgres.database() else { panic!("it is a PostgreSQL") };
        url
    }

    /// Ends the connections to this database that are named so, and waits until they have.
    fn end(url: &SecretString, name: &str) {
        end_from(&mut engine::open_postgres(url).unwrap(), url, name);
    }

    fn end_from(connection: &mut PgConnection, url: &SecretString, name: &str) {
        let url = url.expose_secret();
        let database = url.rsplit('/').next().unwrap();
        let end = "SELECT pg_terminate_backend(pid, 4000) FROM pg_stat_activity \
                   WHERE datname = $2 AND starts_with(application_name, $1)";
        sql_query(end).bind::<Text, _>(name).bind::<Text, _>(database).execute(connection).unwrap();
    }

    async fn until(lock: &mut ServingLock, wanted: impl FnMut(&LockState) -> bool) {
        timeout(Duration::from_secs(30), lock.state.wait_for(wanted)).await.expect("it comes").expect("it is watched");
    }

    #[tokio::test]
    async fn one_has_it_and_the_next_one_gets_it() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, clock) = (url(&postgres), Clock::system());
        let mut first = ServingLock::ask(&url, &clock).unwrap();
        assert_eq!(first.state(), LockState::Ours { awaited: false });
        let mut second = ServingLock::ask(&url, &clock).unwrap();
        let LockState::HeldBy(holder) = second.state() else { panic!("{:?}", second.state()) };
        let (holder, process) = (holder.to_string(), format!("process {} on ", process::id()));
        assert!(holder.starts_with(&process) && holder.contains("which serves since 20"), "{holder}");
        until(&mut first, |state| *state == LockState::Ours { awaited: true }).await;
        let (serves, waiting) = lock_holder::processes(&mut engine::open_postgres(&url).unwrap()).unwrap();
        assert_eq!((serves.iter().map(ToString::to_string).collect::<Vec<_>>(), waiting), (vec![holder], 1));
        drop(first);
        until(&mut second, |state| *state == LockState::Ours { awaited: false }).await;
    }

    #[tokio::test]
    async fn one_whose_connection_ends_serves_on_unless_another_one_does() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, clock) = (url(&postgres), Clock::system());
        let mut first = ServingLock::ask(&url, &clock).unwrap();
        end(&url, SERVES);
        until(&mut first, |state| matches!(state, LockState::Unknown(_))).await;
        until(&mut first, |state| *state == LockState::Ours { awaited: false }).await;
        // Another one, which is quicker.
        let mut other = engine::open_postgres(&url).unwrap();
        end(&url, SERVES);
        let take = sql_query("SELECT pg_advisory_lock($1)").bind::<BigInt, _>(SERVING_LOCK);
        take.execute(&mut other).unwrap();
        let reason = timeout(Duration::from_secs(30), first.lost()).await.expect("it is lost");
        assert!(reason.contains("no companion that serves") && reason.contains("pg_terminate_backend("), "{reason}");
    }

    #[tokio::test]
    async fn one_that_takes_it_again_after_a_newer_program_has_served_ends_and_writes_nothing() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, clock) = (url(&postgres), Clock::system());
        let mut lock = ServingLock::ask(&url, &clock).unwrap();
        let pool = Pool::open(&postgres.database()).unwrap().held_by(Some(lock.hold()));
        let newer = "INSERT INTO __diesel_schema_migrations (version) VALUES ('99999999999999')";
        engine::open_postgres(&url).unwrap().batch_execute(newer).unwrap();
        end(&url, SERVES);
        let reason = timeout(Duration::from_secs(30), lock.lost()).await.expect("it ends");
        assert!(reason.contains("step 99999999999999 of a newer companion"), "{reason}");
        let id = "alice";
        let write = pool.write_blocking(|db| users::sign_in(db, &id.into(), &id.into(), None, testing::now()));
        assert!(matches!(write, Err(DbError::Unavailable(_))), "{write:?}");
    }

    #[test]
    fn a_primary_that_a_failover_left_behind_is_not_served_from() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, directory) = (url(&postgres), tempfile::tempdir().unwrap());
        let ask = || ServingLock::ask_since(&url, &Clock::system(), Some(NewestTimeline::of(directory.path())));
        ask().unwrap();
        let file = directory.path().join("postgres.timeline");
        let seen = std::fs::read_to_string(&file).unwrap();
        let (cluster, timeline) = seen.trim().split_once(' ').unwrap();
        std::fs::write(&file, format!("{cluster} FFFFFFFE\n")).unwrap();
        let refused = ask().err().expect("it was left behind").to_string();
        let facts = [timeline, "FFFFFFFE", "left behind by a failover", "remove postgres.timeline"];
        assert!(facts.iter().all(|fact| refused.contains(fact)), "{refused}");
        // A dump that was restored into another cluster.
        std::fs::write(&file, "1 FFFFFFFE\n").unwrap();
        ask().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), seen);
    }

    #[tokio::test]
    async fn one_that_does_not_see_it_steps_back_for_another_one_that_waits() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, clock) = (url(&postgres), Clock::system());
        let mut alone = ServingLock::ask(&url, &clock).unwrap();
        postgres.refuse(true);
        let long = STEP_BACK_AFTER + 4 * LOOK_EVERY;
        assert!(timeout(long, alone.lost()).await.is_err(), "no process waits");
        postgres.refuse(false);
        until(&mut alone, |state| matches!(state, LockState::Ours { .. })).await;
        let _waits = ServingLock::ask(&url, &clock).unwrap();
        until(&mut alone, |state| *state == LockState::Ours { awaited: true }).await;
        let mut lost = std::pin::pin!(alone.lost());
        // Long enough to have been looked at.
        assert!(timeout(2 * LOOK_EVERY, &mut lost).await.is_err());
        postgres.refuse(true);
        let reason = timeout(Duration::from_secs(30), lost).await.expect("it steps back");
        assert!(reason.contains("another process waits"), "{reason}");
    }

    #[tokio::test]
    async fn a_node_that_does_not_see_it_serves_on_though_another_process_waits() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, clock) = (url(&postgres), Clock::system());
        let mut node = ServingLock::ask_beside(&url, &clock, None, LockSharing::WithNodes, Vec::new()).unwrap();
        let _waits = ServingLock::ask(&url, &clock).unwrap();
        until(&mut node, |state| *state == LockState::Ours { awaited: true }).await;
        let mut lost = std::pin::pin!(node.lost());
        // Long enough to have been looked at.
        assert!(timeout(2 * LOOK_EVERY, &mut lost).await.is_err());
        postgres.refuse(true);
        assert!(timeout(STEP_BACK_AFTER + 4 * LOOK_EVERY, lost).await.is_err());
    }

    /// The lock of the database is free, this process cannot ask for it, and its other connections live on.
    fn lose(postgres: &Postgres, url: &SecretString) {
        postgres.admit(false);
        end_from(&mut postgres.server(), url, SERVES);
    }

    #[tokio::test]
    async fn nothing_is_written_without_the_lock_and_who_has_it_then_is_found() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, database) = (url(&postgres), postgres.database());
        let mut lock = ServingLock::ask(&url, &Clock::system()).unwrap();
        let pool = Pool::open(&database).unwrap().held_by(Some(lock.hold()));
        let mut other = engine::open_postgres(&url).unwrap();
        let write = |id: &'static str| {
            pool.write_blocking(|db| users::sign_in(db, &id.into(), &id.into(), None, testing::now()))
        };
        let read = |id: &'static str| pool.read_blocking(|db| users::find(db, &id.into())).unwrap().is_some();
        write("before").unwrap();
        lose(&postgres, &url);
        let refused = write("without").unwrap_err().to_string();
        assert!(refused.contains("nothing is written meanwhile") && !read("without"), "{refused}");
        postgres.admit(true);
        until(&mut lock, |state| matches!(state, LockState::Unknown(_))).await;
        until(&mut lock, |state| matches!(state, LockState::Ours { .. })).await;
        write("again").unwrap();
        assert!(read("before") && read("again"));

        // Another process, while this one cannot ask.
        lose(&postgres, &url);
        let take = sql_query("SELECT pg_advisory_lock($1)").bind::<BigInt, _>(SERVING_LOCK);
        take.execute(&mut other).unwrap();
        let name = format!("SET application_name = '{SERVES} 1764000000000 77 elsewhere'");
        other.batch_execute(&name).unwrap();
        let refused = write("beside").unwrap_err().to_string();
        assert!(refused.contains("has passed to process 77 on elsewhere") && !read("beside"), "{refused}");
        let reason = timeout(Duration::from_secs(30), lock.lost()).await.expect("it is lost");
        assert!(reason.contains("has passed to process 77 on elsewhere"), "{reason}");
    }

    #[test]
    fn one_that_takes_the_lock_waits_for_transactions_of_the_one_before() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, clock) = (url(&postgres), Clock::system());
        let first = ServingLock::ask(&url, &clock).unwrap();
        let mut writer = engine::open_postgres(&url).unwrap();
        writer.batch_execute("BEGIN").unwrap();
        first.hold().check(&mut writer).unwrap();
        drop(first);
        let waits = || ServingLock::ask(&url, &clock).map(|lock| matches!(lock.state(), LockState::Ours { .. }));
        while let Ok(ours) = waits() {
            assert!(!ours, "the first one has not ended its connection yet, or a transaction goes on");
        }
        writer.batch_execute("COMMIT").unwrap();
        assert!(waits().unwrap());
    }

    #[test]
    fn one_that_takes_the_lock_waits_until_the_connection_of_the_one_before_has_ended() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, clock) = (url(&postgres), Clock::system());
        let ask = || ServingLock::ask(&url, &clock);
        // This one has let go of the lock, and not of its own yet.
        let mut ending = engine::open_postgres(&url).unwrap();
        let hold = LockHold::new(&Random::seeded(1), LockSharing::Alone);
        hold.is_taken_on(&mut ending).unwrap();
        let mut writer = engine::open_postgres(&url).unwrap();
        writer.batch_execute("BEGIN").unwrap();
        hold.check(&mut writer).unwrap();
        writer.batch_execute("ROLLBACK").unwrap();
        assert!(ask().is_err(), "its transactions take themselves for those of the one that serves");
        drop(ending);
        // The connection that asked before may not have ended yet.
        let _next = loop {
            let next = ask().unwrap();
            if matches!(next.state(), LockState::Ours { .. }) {
                break next;
            }
        };
        writer.batch_execute("BEGIN").unwrap();
        assert!(hold.check(&mut writer).is_err());
    }

    #[test]
    fn a_lock_of_another_database_is_another_one() {
        let (Some(one), Some(other)) = (Postgres::create(), Postgres::create()) else { return };
        let [one, other] = [&one, &other].map(|postgres| ServingLock::ask(&url(postgres), &Clock::system()).unwrap());
        assert!([one.state(), other.state()].iter().all(|state| matches!(state, LockState::Ours { .. })));
    }
}
