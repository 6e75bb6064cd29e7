//! The lock under which one process serves from a PostgreSQL: an advisory lock on a connection of its own, which
//! PostgreSQL frees when the connection ends. A process whose connection ends asks for the lock again at once; if another
//! one has it by then, that one serves.

use std::{
    fmt, io, process,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use diesel::{
    PgConnection, QueryableByName, RunQueryDsl as _,
    connection::SimpleConnection as _,
    sql_query,
    sql_types::{BigInt, Bool, Text},
};
use rustix::system::uname;
use secrecy::SecretString;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    clock::Clock,
    db::engine::{self, error::DbError},
    domain::time,
};

/// The number of the lock: any, but the same in every version.
const SERVING_LOCK: i64 = 0x636f_6d70_7365_7276;
/// Time between two looks at the lock.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A process that has seen another one wait ends when it has not seen its lock for so long. Shorter than what
/// [`FREE_EARLY`] makes of a connection whose host is gone: 5 s of silence and three questions.
const STEP_BACK_AFTER: Duration = Duration::from_secs(4);
/// PostgreSQL looks after a silent connection sooner than its two hours.
const FREE_EARLY: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";
/// Begins the names of connections that wait, and of the one that serves.
const WAITS: &str = "companion waits";
const SERVES: &str = "companion serves";
/// PostgreSQL cuts names after 63 bytes.
const LONGEST_HOST: usize = 24;

/// The process that serves, as its connection names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder(String);

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = self.0.strip_prefix(SERVES).unwrap_or_default().split_whitespace();
        let since = words.next().and_then(|milliseconds| milliseconds.parse().ok());
        let since = since.and_then(chrono::DateTime::from_timestamp_millis);
        match (since, words.next(), words.next()) {
            (Some(since), Some(process), Some(host)) => {
                write!(f, "process {process} on {host}, which serves since {}", time::to_wire(since))
            }
            _ => f.write_str("another process, which serves"),
        }
    }
}

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
}

/// The lock of this process, or its place in the queue. It is given up when dropped.
pub struct ServingLock {
    state: watch::Receiver<LockState>,
    _end: mpsc::Sender<()>,
}

/// Looks at the lock, on a thread of its own.
struct LockWatcher {
    url: SecretString,
    clock: Clock,
    connection: Option<LockConnection>,
    /// The name of the last connection that had the lock.
    name: Option<String>,
}

struct LockConnection {
    connection: PgConnection,
    ours: bool,
}

#[derive(QueryableByName)]
struct NamedHolder {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Bool)]
    own: bool,
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
        let mut watcher = LockWatcher { url: url.clone(), clock: clock.clone(), connection: None, name: None };
        let (report, state) = watch::channel(watcher.look()?);
        let (end, ended) = mpsc::channel();
        let run = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                let seen = watcher.look().unwrap_or_else(|error| LockState::Unknown(error.to_string()));
                report.send_replace(seen);
            }
        };
        let thread = thread::Builder::new().name("serving-lock".to_owned());
        thread.spawn(run).map_err(|error: io::Error| DbError::Unavailable(format!("no thread: {error}")))?;
        Ok(Self { state, _end: end })
    }

    /// The last look.
    pub fn state(&self) -> LockState {
        self.state.borrow().clone()
    }

    /// Completes after the next look.
    pub async fn changed(&mut self) -> Result<(), DbError> {
        self.state.changed().await.map_err(|_| DbError::Panicked)
    }

    /// Completes with the reason when this process no longer is the one that serves: another one has the lock, or it
    /// has not been seen for some seconds while another one waits. Without one that waits, a database that is away is
    /// no reason: alarms are delivered all the same.
    pub async fn lost(&mut self) -> String {
        let (mut seen, mut awaited, mut failed) = (Instant::now(), false, None);
        loop {
            match timeout(LOOK_EVERY, self.state.changed()).await {
                Ok(Err(_)) => return "nothing looks at the lock of the database any more".to_owned(),
                Ok(Ok(())) => match self.state.borrow_and_update().clone() {
                    LockState::Ours { awaited: now } => {
                        (seen, awaited) = (Instant::now(), now);
                        failed = None;
                    }
                    LockState::HeldBy(holder) => return format!("the lock of the database has passed to {holder}"),
                    LockState::Unknown(error) => {
                        if failed.replace(error.clone()).is_none() {
                            log::warn!("it is not known who has the lock of the database: {error}");
                        }
                    }
                },
                Err(_) => {}
            }
            if awaited && seen.elapsed() > STEP_BACK_AFTER {
                let reason = failed.as_deref().unwrap_or("the database does not answer");
                return format!(
                    "another process waits, and it is not known who has the lock of the database: {reason}"
                );
            }
        }
    }
}

impl LockWatcher {
    /// Takes the lock if it is free. A connection that fails is not used again.
    fn look(&mut self) -> Result<LockState, DbError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => LockConnection::open(&self.url)?,
        };
        if !connection.ours && connection.take()? {
            let host = uname().nodename().to_string_lossy().into_owned();
            let host: String = host.chars().filter(char::is_ascii_graphic).take(LONGEST_HOST).collect();
            let name = format!("{SERVES} {} {} {host}", self.clock.now().timestamp_millis(), process::id());
            connection.name(&name)?;
            self.name = Some(name);
        }
        let holder = connection.holder()?;
        let state = match (holder, connection.ours) {
            (Some(NamedHolder { own: true, .. }), _) => LockState::Ours { awaited: connection.is_awaited()? },
            (_, true) => {
                return Err(DbError::Unavailable(
                    "the serving lock is on another connection than it was taken on: a pooler between this process and \
                     PostgreSQL must pool sessions, not transactions"
                        .to_owned(),
                ));
            }
            (Some(NamedHolder { name, .. }), false) if self.name.as_ref() == Some(&name) => {
                return Err(DbError::Unavailable("PostgreSQL has not noticed yet that a connection ended".to_owned()));
            }
            (holder, false) => LockState::HeldBy(LockHolder(holder.map(|holder| holder.name).unwrap_or_default())),
        };
        self.connection = Some(connection);
        Ok(state)
    }
}

impl LockConnection {
    fn open(url: &SecretString) -> Result<Self, DbError> {
        let connection = engine::open_postgres(url).map_err(|error| DbError::Unavailable(error.to_string()))?;
        let mut opened = Self { connection, ours: false };
        opened.connection.batch_execute(FREE_EARLY)?;
        opened.name(WAITS)?;
        Ok(opened)
    }

    fn take(&mut self) -> Result<bool, DbError> {
        let take = sql_query("SELECT pg_try_advisory_lock($1) AS taken").bind::<BigInt, _>(SERVING_LOCK);
        self.ours = take.get_result::<LockTaken>(&mut self.connection)?.taken;
        Ok(self.ours)
    }

    fn holder(&mut self) -> Result<Option<NamedHolder>, DbError> {
        let holders = sql_query(
            "SELECT coalesce(a.application_name, '') AS name, l.pid = pg_backend_pid() AS own \
             FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
             WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid::bigint = $1 \
             AND l.objid::bigint = $2 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        );
        let holders = holders.bind::<BigInt, _>(SERVING_LOCK >> 32).bind::<BigInt, _>(SERVING_LOCK & 0xffff_ffff);
        Ok(holders.load(&mut self.connection)?.into_iter().next())
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
    use crate::{config::Database, db::testing::Postgres};

    fn url(postgres: &Postgres) -> SecretString {
        let Database::Postgres(url) = postgres.database() else { panic!("it is a PostgreSQL") };
        url
    }

    /// Ends the connections that are named so.
    fn end(url: &SecretString, name: &str) {
        let mut connection = engine::open_postgres(url).unwrap();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND starts_with(application_name, $1)";
        sql_query(end).bind::<Text, _>(name).execute(&mut connection).unwrap();
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
        assert!(reason.contains("another process, which serves"), "{reason}");
    }

    #[tokio::test]
    async fn one_that_does_not_see_it_steps_back_for_another_one_that_waits() {
        let Some(postgres) = Postgres::create() else { return };
        let (url, clock) = (url(&postgres), Clock::system());
        let mut alone = ServingLock::ask(&url, &clock).unwrap();
        postgres.refuse(true);
        let long = STEP_BACK_AFTER + 4 * LOOK_EVERY;
        assert!(timeout(long, alone.lost()).await.is_err(), "nobody waits");
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

    #[test]
    fn a_lock_of_another_database_is_another_one() {
        let (Some(one), Some(other)) = (Postgres::create(), Postgres::create()) else { return };
        let [one, other] = [&one, &other].map(|postgres| ServingLock::ask(&url(postgres), &Clock::system()).unwrap());
        assert!([one.state(), other.state()].iter().all(|state| matches!(state, LockState::Ours { .. })));
    }
}
