//! Warns users by their channels that their registration for the game's pushes ends, or has ended: no alarm reaches them
//! then. A warning may be sent twice at the end of the process, with the same id.

use std::sync::Arc;

use chrono::TimeDelta;
use futures_util::{StreamExt as _, stream};

use crate::{
    channels::{sender::Channels, user_messages},
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db},
        push_credentials,
        query_failures::log_failure,
    },
    domain::{
        credential::{next_warning, warning},
        ids::UserId,
        time::Timestamp,
    },
    panics::{self, Part},
};

/// Interval of the looks at what is due.
const LOOK_EVERY: TimeDelta = TimeDelta::minutes(1);
/// Users of one look; others have their turn in the next one.
const USERS: i64 = 500;
/// Messages at once.
const AT_ONCE: usize = 8;
/// Digits of a message's id.
const ID_DIGITS: usize = 32;

/// Warns without end, until it is aborted.
pub async fn run(channels: Arc<Channels>) {
    loop {
        let looked = channels.clock.moment();
        let now = looked.stamp;
        match channels.pool.read(move |db| push_credentials::list_to_warn(db, now, USERS)).await {
            Ok(due) => {
                let warned = stream::iter(due).for_each_concurrent(AT_ONCE, |(user, expires_at)| {
                    let channels = channels.clone();
                    async move {
                        let warned = warn(&channels, &user, expires_at, now);
                        if let Some(Err(error)) = panics::caught(Part::Channels, user.as_str(), warned).await {
                            log_failure("that a user was warned of the end of a registration was not stored", &error);
                        }
                    }
                });
                warned.await;
            }
            Err(error) => log_failure("users to be warned of the end of their registration were not read", &error),
        }
        channels.clock.reach(looked + LOOK_EVERY).await;
    }
}

/// Sends the warning that is due now by all channels of the user that work, and stores when the next one is.
async fn warn(channels: &Channels, user: &UserId, expires_at: Timestamp, now: Timestamp) -> Result<(), DbError> {
    let Some(due) = warning(expires_at, now) else { return Ok(()) };
    let notice = channels.expiry_notice(message_id(user, expires_at, due.title()), due, expires_at);
    let sent = user_messages::send(channels, user, None, &notice).await?;
    let (tried, taken) = (sent.tried(), sent.taken());
    log::info!(user:%, event = notice.event.word(), channels = tried, taken; "a user was warned of the end of a registration");
    let next = next_warning(expires_at, now, !sent.all_failed());
    let owner = user.clone();
    let store = move |db: &mut Db| -> Result<(), DbError> {
        sent.store(db, now)?;
        push_credentials::warn_next(db, &owner, expires_at, next)
    };
    channels.pool.write(store).await
}

/// One id for all attempts of a warning.
fn message_id(user: &UserId, expires_at: Timestamp, title: &str) -> String {
    let mut id = sha256_hex(format!("{user} {} {title}", expires_at.to_wire()).as_bytes());
    id.truncate(ID_DIGITS);
    id
}
