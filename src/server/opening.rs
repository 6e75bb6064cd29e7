//! The database at a start: opened, brought up to date, and told what a process before this one kept for it.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::start_error::StartError;
use crate::{
    clock::Clock,
    config::{self, Config, Database},
    crypto::{random::Random, sealer::Sealer},
    db::{
        encryption_keys, engine,
        error::DbError,
        journal::{self, Journal, JournalError},
        pool::Pool,
    },
    domain::backoff::Backoff,
    rotation,
    vault::Vault,
};

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// An attempt that takes longer is reported. It goes on: a migration may take its time.
const REPORTED_AFTER: Duration = Duration::from_secs(10);

/// The database, ready to serve.
pub struct OpenDatabase {
    pub(super) pool: Pool,
    pub(super) journal: Journal,
    /// Number of the key that seals from now on.
    pub(super) key_version: i32,
    /// Held for as long as the process serves.
    pub(super) in_use: File,
}

/// What an attempt needs.
#[derive(Clone)]
struct Attempt {
    database: Database,
    data_dir: PathBuf,
    fingerprint: String,
    sealer: Arc<Sealer>,
    key_lost: bool,
    clock: Clock,
}

impl OpenDatabase {
    /// Opens it, in one attempt. Blocks.
    pub fn open(config: &Config, clock: &Clock) -> Result<Self, StartError> {
        Attempt::new(config, clock).run()
    }

    /// Opens it. One that is down, hangs or is locked is asked again until it answers; an error is none that would pass.
    pub async fn open_patiently(config: &Config, clock: &Clock) -> Result<Self, StartError> {
        Attempt::new(config, clock).run_until_answered(&Random::system()).await
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
            clock: clock.clone(),
        }
    }

    fn run(self) -> Result<OpenDatabase, StartError> {
        let in_use = lock(&self.data_dir)?;
        let pool = Pool::open(&self.database)?;
        if !self.key_lost {
            match rotation::none_opens(&Vault::new(pool.clone(), self.sealer)) {
                Ok(Some(stored)) => return Err(StartError::WrongKey { stored }),
                Ok(None) => {}
                // The service is there for those whose rows can be read.
                Err(error) => log::warn!("it is not known whether the keys open what is stored: {error}"),
            }
        }
        journal::replay(&self.data_dir, &pool)?;
        let journal = Journal::open(&self.data_dir).map_err(JournalError::from)?;
        let now = self.clock.now();
        let key_version = pool.write_blocking(|db| encryption_keys::take_into_use(db, &self.fingerprint, now))?;
        Ok(OpenDatabase { pool, journal, key_version, in_use })
    }

    async fn run_until_answered(self, random: &Random) -> Result<OpenDatabase, StartError> {
        let mut backoff = Backoff::between(Backoff::FIRST, LONGEST_PAUSE);
        loop {
            let error = match self.clone().run_on_a_thread().await {
                Err(error) if passes(&error) => error,
                ended => return ended,
            };
            let pause = backoff.after(Duration::ZERO, Duration::ZERO, random.byte());
            log::warn!("the service waits for its database, which is asked again in {} ms: {error}", pause.as_millis());
            sleep(pause).await;
        }
    }

    #[allow(clippy::disallowed_methods, reason = "nothing runs yet whose thread it could be, and it may hang")]
    async fn run_on_a_thread(self) -> Result<OpenDatabase, StartError> {
        let (done, mut opened) = oneshot::channel();
        // Nobody may wait any more.
        thread::spawn(move || drop(done.send(self.run())));
        loop {
            match timeout(REPORTED_AFTER, &mut opened).await {
                Ok(Ok(opened)) => return opened,
                Ok(Err(_)) => return Err(StartError::Database(DbError::Panicked)),
                Err(_) => log::warn!("the service waits for its database, which has not answered yet"),
            }
        }
    }
}

/// Takes the data directory for this process alone: two would write one journal.
fn lock(data_dir: &Path) -> Result<File, StartError> {
    let failed = |cause| StartError::DataDir { directory: data_dir.to_owned(), cause };
    config::take_data_dir(data_dir).map_err(failed)?.ok_or_else(|| StartError::InUse(data_dir.to_owned()))
}

fn passes(error: &StartError) -> bool {
    match error {
        StartError::Database(error) => engine::is_not_there_yet(error),
        // The database is there, and takes nothing now.
        StartError::Journal(JournalError::Database(error)) => matches!(error, DbError::Unavailable(_)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{
        crypto::keys::Key32,
        db::{incidents, testing},
    };

    fn attempt(database: Database, directory: &tempfile::TempDir) -> Attempt {
        let key = Key32::new([1; 32]);
        Attempt {
            database,
            data_dir: directory.path().to_owned(),
            fingerprint: key.fingerprint(),
            sealer: Arc::new(Sealer::new(&key, None, 0, Random::seeded(1))),
            key_lost: false,
            clock: Clock::system(),
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
        assert!(attempt.clone().run_on_a_thread().await.is_err_and(|error| passes(&error)), "the lock is held");
        drop(release);
        locked.join().unwrap().unwrap();
        let opened = attempt.run_until_answered(&Random::seeded(1)).await.unwrap();
        assert_eq!(opened.pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 1)).unwrap(), []);
    }

    #[test]
    fn a_data_directory_is_for_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let attempt = attempt(Database::Sqlite(directory.path().join("test.db")), &directory);
        let first = attempt.clone().run().unwrap();
        let second = attempt.clone().run().err().expect("it is in use");
        assert!(matches!(second, StartError::InUse(_)), "{second}");
        drop(first);
        attempt.run().unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_frozen_is_waited_for_and_one_that_refuses_is_not() {
        let Some(postgres) = testing::Postgres::create() else { return };
        let directory = tempfile::tempdir().unwrap();
        let relay = testing::FreezingRelay::before(&postgres);
        relay.freeze(true);
        let frozen = attempt(relay.database(), &directory).run_on_a_thread().await;
        let error = frozen.err().expect("it hangs");
        assert!(passes(&error), "{error}");
        relay.freeze(false);
        attempt(relay.database(), &directory).run_until_answered(&Random::seeded(1)).await.unwrap();
    }
}
