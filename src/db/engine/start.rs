//! Reads that are done once at a start, of the service or of a part of it, and then never again.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    crypto::random::Random,
    db::engine::{
        error::DbError,
        pool::{Db, Pool},
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
        match pool.read(query.clone()).await {
            Ok(read) => return read,
            Err(error) => {
                let pause = backoff.after(Duration::ZERO, Duration::ZERO, random.byte());
                log::error!("{what} could not be read, again in {} ms: {error}", pause.as_millis());
                sleep(pause).await;
            }
        }
    }
}
