//! The database at a start: taken, opened, brought up to date, and given what a process before this one kept for it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    attempts::{on_a_thread, until_answered},
    listeners::Listeners,
    start_error::StartError,
    waiting::WaitingService,
};
use crate::{
    clock::Clock,
    config::{self, Config, Database, Environment, LockedFile},
    crypto::{random::Random, sealer::Sealer},
    db::{
        encryption_keys,
        engine::{
            self,
            cluster_timeline::NewestTimeline,
            database_file::TakenFile,
            error::DbError,
            lock_holder::{LockHold, LockHolder, LockSharing},
            pool::Pool,
            schema_steps,
            serving_lock::{LockState, ServingLock},
        },
        files::{erasure_list, journal, last_run},
    },
    rotation,
    vault::Vault,
};

/// Time between two looks of a standby at what it would take over.
const STANDBY_LOOKS_EVERY: Duration = Duration::from_secs(60);
/// Pause between two looks of a caller that waits for the lock, and how many there are: 10 s.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS: usize = 200;

/// The database, ready to serve.
pub struct OpenDatabase {
    pub(super) pool: Pool,
    pub(super) journal: journal::Journal,
    /// Number of the key that seals from now on.
    pub(super) key_version: i32,
    /// Held for as long as the process serves.
    pub(super) in_use: InUse,
    /// On PostgreSQL; held as long.
    pub(super) lock: Option<ServingLock>,
    /// If the process has waited for another one to end.
    pub(super) listeners: Option<Listeners>,
}

/// An attempt that has succeeded.
struct OpenedOnce {
    pool: Pool,
    journal: journal::Journal,
    key_version: i32,
    in_use: InUse,
}

/// The locks of the data directory, and of the SQLite file.
pub(super) struct InUse {
    _data_dir: LockedFile,
    database: Option<TakenFile>,
}

/// Needs of an attempt.
#[derive(Clone)]
struct Attempt {
    database: Database,
    data_dir: PathBuf,
    fingerprint: String,
    sealer: Arc<Sealer>,
    key_lost: bool,
    /// The keys that open what is stored, by fingerprint: two if the settings name an earlier one.
    keys: Vec<String>,
    environment: Environment,
    clock: Clock,
    /// Processes beside which this one serves.
    sharing: LockSharing,
}

impl OpenDatabase {
    /// Opens it, in one attempt. Blocks. [`StartError::Waits`] if another process serves from it.
    pub fn open(config: &Config, clock: &Clock) -> Result<Self, StartError> {
        let attempt = Attempt::new(config, clock);
        attempt.bring_up_to_date()?;
        let lock = attempt.lock_at_once()?;
        let hold = lock.as_ref().map(ServingLock::hold);
        Ok(Self::opened(attempt.run(hold)?, lock, None))
    }

    /// Opens it. One that is down, hangs or is locked is asked again until it answers, and one from which another process
    /// serves is waited for; meanwhile both listeners answer that the service waits. An error is none that would pass. Call
    /// it inside an actix system.
    pub async fn open_patiently(config: &Config, clock: &Clock) -> Result<Self, StartError> {
        let (attempt, random) = (Attempt::new(config, clock), Random::system());
        let mut waiting = None;
        let mut waits = |reason: String| {
            let service = match &mut waiting {
                Some(service) => service,
                none => none.insert(WaitingService::start(config, clock)?),
            };
            WaitingService::waits_for(service, reason);
            Ok(())
        };
        if attempt.sharing == LockSharing::WithNodes {
            let node = attempt.clone();
            until_answered(&random, move || node.bring_up_to_date(), &mut waits).await?;
        }
        let mut lock = attempt.clone().ask_until_answered(&random, &mut waits).await?;
        if let Some(lock) = &mut lock {
            let (mut last, mut looked) = (None, None);
            loop {
                let reason = match lock.state() {
                    LockState::Ours { .. } => break,
                    LockState::HeldBy(holder) => {
                        attempt.look_at_other(&holder, &mut looked, &mut waits).await?;
                        format!("waits for {holder}")
                    }
                    LockState::Unknown(error) => format!("waits for its database: {error}"),
                    LockState::Outdated(newer) => return Err(DbError::NewerSchema(newer).into()),
                };
                if last.as_ref() != Some(&reason) {
                    log::info!("the service {reason}");
                    waits(reason.clone())?;
                    last = Some(reason);
                }
                lock.changed().await?;
            }
            if last.is_some() {
                log::info!("the service takes over");
                waits("takes over".to_owned())?;
            }
        }
        let opened = attempt.run_until_answered(lock.as_ref().map(ServingLock::hold), &random, &mut waits).await?;
        let listeners = match waiting {
            Some(waiting) => Some(waiting.end().await),
            None => None,
        };
        Ok(Self::opened(opened, lock, listeners))
    }

    fn opened(opened: OpenedOnce, lock: Option<ServingLock>, listeners: Option<Listeners>) -> Self {
        let OpenedOnce { pool, journal, key_version, in_use } = opened;
        Self { pool, journal, key_version, in_use, lock, listeners }
    }
}

impl Attempt {
    fn new(config: &Config, clock: &Clock) -> Self {
        let secrets = &config.secrets;
        Self {
            database: config.database.clone(),
            data_dir: config.data_dir.clone(),
            fingerprint: secrets.credentials_key.fingerprint(),
            // Seals nothing, so its number does not matter.
            sealer: Arc::new(secrets.sealer(0, Random::system())),
            key_lost: secrets.credentials_key_lost,
            keys: secrets.key_fingerprints(),
            environment: config.environment,
            clock: clock.clone(),
            sharing: if config.nats.is_some() { LockSharing::WithNodes } else { LockSharing::Alone },
        }
    }

    /// Brings the schema up to date for a node, which others serve beside: they are of a program that does not know it, so
    /// that none may serve meanwhile. Blocks.
    fn bring_up_to_date(&self) -> Result<(), StartError> {
        // Nodes see a process that asks alone as one that wants them to end: none asks so while the database does not answer.
        if self.sharing == LockSharing::Alone || schema_steps::is_up_to_date(&self.database)? {
            return Ok(());
        }
        let alone = Self { sharing: LockSharing::Alone, ..self.clone() };
        match alone.lock_at_once() {
            // Another node did it, and serves.
            Err(StartError::Waits(_)) if schema_steps::is_up_to_date(&self.database)? => Ok(()),
            Err(error) => Err(error),
            Ok(_lock) => Ok(schema_steps::migrate(&self.database).map(drop)?),
        }
    }

    /// Asks for the lock of a PostgreSQL. Blocks.
    fn ask(&self) -> Result<Option<ServingLock>, StartError> {
        let Database::Postgres(url) = &self.database else { return Ok(None) };
        let timeline = Some(NewestTimeline::of(&self.data_dir));
        Ok(Some(ServingLock::ask_beside(url, &self.clock, timeline, self.sharing, self.keys.clone())?))
    }

    /// Takes the lock of a PostgreSQL. One that has just ended may have it still for a moment.
    fn lock_at_once(&self) -> Result<Option<ServingLock>, StartError> {
        let Some(lock) = self.ask()? else { return Ok(None) };
        for _ in 0..LOOKS {
            match lock.state() {
                LockState::Ours { .. } => return Ok(Some(lock)),
                _ => thread::sleep(LOOK_EVERY),
            }
        }
        match lock.state() {
            LockState::HeldBy(holder) => Err(StartError::Waits(holder)),
            LockState::Unknown(error) => Err(StartError::Database(DbError::Unavailable(error))),
            LockState::Outdated(newer) => Err(StartError::Database(DbError::NewerSchema(newer))),
            LockState::Ours { .. } => Ok(Some(lock)),
        }
    }

    fn run(self, hold: Option<LockHold>) -> Result<OpenedOnce, StartError> {
        let mut in_use = self.lock_storage()?;
        let pool =
            Pool::open_taken(&self.database, in_use.database.as_ref().map(TakenFile::file))?.held_by(hold.clone());
        if let (Database::Sqlite(path), Some(taken)) = (&self.database, &mut in_use.database) {
            let noted = taken.note_open(path);
            noted.map_err(|cause| DbError::Unavailable(format!("{}: {cause}", path.display())))?;
        }
        self.check_key(&pool)?;
        let in_data_dir = |cause| StartError::DataDir { directory: self.data_dir.clone(), cause };
        let listed = erasure_list::read(&self.data_dir).map_err(in_data_dir)?;
        let erased = pool.write_blocking(|db| erasure_list::apply(db, &listed, self.clock.now()))?;
        if erased.users > 0 {
            let users = erased.users;
            log::warn!("{users} users who had erased themselves were in the database again, and are erased");
            journal::take_out(&self.data_dir, &erased.servers).map_err(journal::JournalError::from)?;
        }
        let replay = match self.sharing {
            LockSharing::Alone => journal::replay,
            LockSharing::WithNodes => journal::replay_on_node,
        };
        match replay(&self.data_dir, &pool, &erased.servers) {
            // Alarms are delivered, and kept in the journal until the database is repaired.
            Err(journal::JournalError::Database(error @ DbError::Damaged(_))) => {
                log::error!("the journal of alarms: {error}")
            }
            replayed => replayed?,
        }
        let now = self.clock.now();
        if pool.read_blocking(encryption_keys::newest)?.is_none() {
            self.report_first_start();
        }
        let key_version = pool.write_blocking(|db| match self.sharing {
            LockSharing::Alone => encryption_keys::take_into_use(db, &self.fingerprint, now).map(Ok),
            LockSharing::WithNodes => encryption_keys::take_into_use_on_node(db, &self.fingerprint, hold.as_ref(), now),
        });
        let key_version = key_version?.map_err(StartError::NodeKey)?;
        let journal = journal::Journal::open(&self.data_dir).map_err(journal::JournalError::from)?;
        if let Some(end) = last_run::unclean_end(&self.data_dir).map_err(in_data_dir)? {
            log::warn!(
                "the process before this one ended without being stopped (a kill, a crash or a power cut); it was {end}"
            );
        }
        Ok(OpenedOnce { pool, journal, key_version, in_use })
    }

    /// Says that no companion has served from this database. One may have served from another, which is lost, or which the
    /// settings no longer name.
    fn report_first_start(&self) {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let database = match &self.database {
            Database::Sqlite(path) => absolute(path).display().to_string(),
            Database::Postgres(_) => "of DATABASE_URL".to_owned(),
        };
        let data_dir = absolute(&self.data_dir);
        // The journal is made by the process that serves.
        let has_served = journal::waiting(&data_dir).is_ok_and(|waiting| waiting.is_some());
        let sign = match (has_served, self.keys.len() > 1 || self.key_lost) {
            (true, _) => Some(format!("a companion has served from DATA_DIR {}", data_dir.display())),
            (false, true) => Some("the settings name an earlier CREDS_ENCRYPTION_KEY, or that it is lost".to_owned()),
            (false, false) => None,
        };
        match sign {
            Some(sign) => log::error!(
                "the database {database} is new and empty, and {sign}: earlier users, pairings and alarms are not in it. \
                 If that is not meant, stop the service now, correct DATABASE_URL and DATA_DIR or restore a backup: see \
                 docs/upgrading.md"
            ),
            None if self.environment == Environment::Production => log::warn!(
                "the database {database} is new and empty: if a companion has served before, its data directory was lost, or \
                 is another one than DATA_DIR {}; stop the service then, and correct the settings or restore a backup: see \
                 docs/upgrading.md",
                data_dir.display()
            ),
            None => log::info!("the database {database} is new and empty"),
        }
    }

    /// Takes the data directory and the SQLite file for this process alone: two would write one journal, or answer twice.
    fn lock_storage(&self) -> Result<InUse, StartError> {
        let failed = |cause| StartError::DataDir { directory: self.data_dir.clone(), cause };
        let Some(data_dir) = config::take_data_dir(&self.data_dir).map_err(failed)? else {
            return Err(match &self.database {
                Database::Postgres(_) => StartError::EndsStill(self.data_dir.clone()),
                Database::Sqlite(_) => StartError::InUse(self.data_dir.clone()),
            });
        };
        Ok(InUse { _data_dir: data_dir, database: self.lock_database()? })
    }

    /// Takes the SQLite file for this process alone.
    fn lock_database(&self) -> Result<Option<TakenFile>, StartError> {
        let Database::Sqlite(path) = &self.database else { return Ok(None) };
        let unavailable = |cause: io::Error| DbError::Unavailable(format!("{}: {cause}", path.display()));
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        directory.map_or(Ok(()), config::create_private_dir).map_err(unavailable)?;
        refuse_lost(&self.database, &self.data_dir)?;
        if !path.exists() {
            engine::create_private_file(path).map_err(unavailable)?;
        }
        let taken = TakenFile::take(path).map_err(unavailable)?;
        taken.ok_or_else(|| StartError::DatabaseInUse(path.clone())).map(Some)
    }

    /// Fails if the keys open nothing of what is stored.
    fn check_key(&self, pool: &Pool) -> Result<(), StartError> {
        if self.key_lost {
            return Ok(());
        }
        match rotation::none_opens(&Vault::new(pool.clone(), self.sealer.clone())) {
            Ok(Some(stored)) => return Err(StartError::WrongKey { stored }),
            Ok(None) => {}
            // The service is there for those whose rows can be read.
            Err(error) => log::warn!("it is not known whether the keys open what is stored: {error}"),
        }
        Ok(())
    }

    /// Finds that this process could not take over while another one serves: when another one does, and now and then, as
    /// the schema may be brought up to date after that.
    async fn look_at_other(
        &self,
        holder: &LockHolder,
        looked: &mut Option<(LockHolder, Instant)>,
        waits: impl FnMut(String) -> Result<(), StartError>,
    ) -> Result<(), StartError> {
        let is_known = looked.as_ref().is_some_and(|(known, _)| known == holder);
        if is_known && looked.as_ref().is_some_and(|(_, at)| at.elapsed() < STANDBY_LOOKS_EVERY) {
            return Ok(());
        }
        let attempt = self.clone();
        let unknown = on_a_thread(move || attempt.check_takeover(), waits).await?;
        *looked = Some((holder.clone(), Instant::now()));
        if let (Some(error), false) = (unknown, is_known) {
            log::info!("it is not known yet whether the keys open what is stored: {error}");
        }
        Ok(())
    }

    /// Fails if this process could not take over from the one that serves, or gives the reason for which that is not known.
    /// Blocks.
    fn check_takeover(&self) -> Result<Option<DbError>, StartError> {
        match schema_steps::open_existing(&self.database) {
            Ok(pool) => self.check_key(&pool).map(|()| None),
            Err(error @ DbError::NewerSchema(_)) => Err(error.into()),
            // With a newer program, the schema is older until it takes over.
            Err(error) => Ok(Some(error)),
        }
    }

    async fn ask_until_answered(
        self,
        random: &Random,
        waits: impl FnMut(String) -> Result<(), StartError>,
    ) -> Result<Option<ServingLock>, StartError> {
        until_answered(random, move || self.ask(), waits).await
    }

    async fn run_until_answered(
        self,
        hold: Option<LockHold>,
        random: &Random,
        waits: impl FnMut(String) -> Result<(), StartError>,
    ) -> Result<OpenedOnce, StartError> {
        until_answered(random, move || self.clone().run(hold.clone()), waits).await
    }
}

/// Brings the schema up to date. Fails if it is not, and another process serves from the database, which would go on on a
/// schema that it does not know. Returns the number of steps that were missing. Blocks.
pub fn migrate(config: &Config, clock: &Clock) -> Result<usize, StartError> {
    let database = &config.database;
    let attempt = Attempt { sharing: LockSharing::Alone, ..Attempt::new(config, clock) };
    // Its lock is waited for, which would disturb those that serve.
    if matches!(database, Database::Postgres(_)) && schema_steps::is_up_to_date(database)? {
        return Ok(0);
    }
    let _lock = attempt.lock_at_once()?;
    let _taken = match attempt.lock_database() {
        // One that does not answer may be older.
        Err(StartError::DatabaseInUse(_)) if schema_steps::is_up_to_date(database).unwrap_or(false) => return Ok(0),
        taken => taken?,
    };
    Ok(schema_steps::migrate(database)?)
}

/// Fails if the SQLite file of a data directory from which a companion has served is not there: an empty one in its place
/// would look as if all users were gone.
fn refuse_lost(database: &Database, data_dir: &Path) -> Result<(), StartError> {
    let Database::Sqlite(path) = database else { return Ok(()) };
    // SQLite makes it empty, and then fills it.
    let is_there = fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let has_served = || journal::waiting(data_dir).is_ok_and(|waiting| waiting.is_some());
    if is_there || !has_served() {
        return Ok(());
    }
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Err(StartError::DatabaseLost { path: absolute(path), data_dir: absolute(data_dir) })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        crypto::keys::Key32,
        db::{alarms::incidents, testing},
        server::attempts::is_transient,
    };

    fn attempt(database: Database, directory: &tempfile::TempDir) -> Attempt {
        let key = Key32::new([1; 32]);
        Attempt {
            database,
            data_dir: directory.path().to_owned(),
            fingerprint: key.fingerprint(),
            sealer: Arc::new(Sealer::new(&key, None, 0, Random::seeded(1))),
            key_lost: false,
            keys: vec![key.fingerprint()],
            environment: Environment::Development,
            clock: Clock::system(),
            sharing: LockSharing::Alone,
        }
    }

    #[tokio::test]
    async fn a_locked_file_is_waited_for_and_what_was_kept_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::Sqlite(directory.path().join("test.db"));
        let attempt = attempt(database.clone(), &directory);
        let pool = Pool::open(&database).unwrap();
        let (release, released) = mpsc::channel::<()>();
        let (begin, begun) = oneshot::channel();
        let locked = thread::spawn(move || {
            pool.write_blocking(|_| {
                begin.send(()).unwrap();
                let _ = released.recv();
                Ok(())
            })
        });
        begun.await.unwrap();
        assert!(
            on_a_thread(
                {
                    let attempt = attempt.clone();
                    move || attempt.run(None)
                },
                |_| Ok(())
            )
            .await
            .is_err_and(|error| is_transient(&error)),
            "the lock is held"
        );
        drop(release);
        locked.join().unwrap().unwrap();
        let opened = attempt.run_until_answered(None, &Random::seeded(1), |_| Ok(())).await.unwrap();
        assert_eq!(opened.pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 1)).unwrap(), []);
    }

    #[test]
    fn a_data_directory_is_for_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let attempt = attempt(Database::Sqlite(directory.path().join("test.db")), &directory);
        let first = attempt.clone().run(None).unwrap();
        let second = attempt.clone().run(None).err().expect("it is in use");
        assert!(matches!(second, StartError::InUse(_)), "{second}");
        drop(first);
        attempt.run(None).unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_frozen_is_waited_for_and_one_that_refuses_is_not() {
        let Some(postgres) = testing::Postgres::create() else { return };
        let directory = tempfile::tempdir().unwrap();
        let relay = testing::FreezingRelay::before(&postgres);
        relay.freeze(true);
        let frozen = attempt(relay.database(), &directory);
        let error = on_a_thread(move || frozen.run(None), |_| Ok(())).await.err().expect("it hangs");
        assert!(is_transient(&error), "{error}");
        relay.freeze(false);
        attempt(relay.database(), &directory).run_until_answered(None, &Random::seeded(1), |_| Ok(())).await.unwrap();
    }
}
