//! Attempts of a start that may fail or hang for a while: made again while the failure is transient.

use std::{thread, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use super::start_error::StartError;
use crate::{
    crypto::random::Random,
    db::{
        engine::{self, error::DbError},
        files::journal::JournalError,
    },
    domain::backoff::Backoff,
};

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Time between two lines of the log about the same reason to wait.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// An attempt that takes longer is reported. It goes on: a migration may take its time.
const REPORTED_AFTER: Duration = Duration::from_secs(5);

/// Tries again while the failure is transient, and reports what it waits for.
pub(super) async fn until_answered<T: Send + 'static>(
    random: &Random,
    attempt: impl Fn() -> Result<T, StartError> + Clone + Send + 'static,
    mut waits: impl FnMut(String) -> Result<(), StartError>,
) -> Result<T, StartError> {
    let mut backoff = Backoff::between(Backoff::FIRST, LONGEST_PAUSE);
    let mut last_line: Option<(Instant, String)> = None;
    loop {
        let error = match on_a_thread(attempt.clone(), &mut waits).await {
            Err(error) if is_transient(&error) => error,
            ended => return ended,
        };
        let pause = backoff.after(Duration::ZERO, Duration::ZERO, random.byte());
        let text = engine::with_advice(&error);
        // Equal words once a minute.
        let is_known = |(at, known): &(Instant, String)| at.elapsed() < SAID_EVERY && *known == text;
        if !last_line.as_ref().is_some_and(is_known) {
            log::warn!("the service waits for its database, and asks it again until it answers: {text}");
            last_line = Some((Instant::now(), text));
        }
        waits(match error {
            StartError::EndsStill(_) => "waits for another process to end".to_owned(),
            // Its words may name hosts and users.
            _ => "waits for its database, which does not answer well; see the log".to_owned(),
        })?;
        sleep(pause).await;
    }
}

/// Runs it on a thread of its own, and reports that it takes long.
#[allow(clippy::disallowed_methods, reason = "nothing runs yet whose thread it could be, and it may hang")]
pub(super) async fn on_a_thread<T: Send + 'static>(
    attempt: impl FnOnce() -> Result<T, StartError> + Send + 'static,
    mut waits: impl FnMut(String) -> Result<(), StartError>,
) -> Result<T, StartError> {
    let (done, mut opened) = oneshot::channel();
    // The receiver may be gone.
    thread::spawn(move || drop(done.send(attempt())));
    loop {
        match timeout(REPORTED_AFTER, &mut opened).await {
            Ok(Ok(opened)) => return opened,
            Ok(Err(_)) => return Err(StartError::Database(DbError::Panicked)),
            Err(_) => {
                log::warn!(
                    "the service waits for its database, which has not answered yet; a pooler before it may have no connection \
                     left: docs/operations.md (PgBouncer)"
                );
                waits("waits for its database, which has not answered yet".to_owned())?;
            }
        }
    }
}

/// True for a failure that may be over at the next attempt.
pub(super) fn is_transient(error: &StartError) -> bool {
    match error {
        StartError::Database(error) => engine::is_retryable_at_start(error),
        // The database is there, and takes nothing now.
        StartError::Journal(JournalError::Database(error)) => matches!(error, DbError::Unavailable(_)),
        // The process whose lock this one has got is about to end.
        StartError::EndsStill(_) => true,
        _ => false,
    }
}
