//! Reads that are done once at a start, of the service or of a part of it, and then never again.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    crypto::random::Random,
    db::engine::{
        error::DbError,
        pool::{Db, Pool},
        query_failures::log_failure,
    },
    domain::backoff::Backoff,
};

/// Longest pause before the database is asked again: until it answers, no user is watched over.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Reads until the database answers, with growing pauses. `what` names it in the log.
pub async fn read_until_answered<T: Send + 'static>(
    pool: &Pool,
    random: &Random,
    what: &str,
    query: impl Fn(&mut Db) -> Result<T, DbError> + Clone + Send + 'static,
) -> T {
    let mut backoff = Backoff::between(Backoff::FIRST, LONGEST_PAUSE);
    loop {
        match pool.read_at_start(query.clone()).await {
            Ok(read) => return read,
            Err(error) => {
                let pause = backoff.after(Duration::ZERO, Duration::ZERO, random.byte());
                log_failure(&format!("{what} could not be read, again in {} ms", pause.as_millis()), &error);
                sleep(pause).await;
            }
        }
    }
}
