//! Says by a user's other channels that one was switched off, because nothing got through for a day. Once; a message may
//! be sent twice at the end of the process, with the same id.

use std::sync::Arc;

use chrono::TimeDelta;
use futures_util::{StreamExt as _, stream};

use crate::{
    channels::{sender::Channels, user_messages},
    crypto::digest::sha256_hex,
    db::{
        channels::{self, StoredChannel},
        disabled_channels,
        engine::{error::DbError, pool::Db},
        query_failures::log_failure,
    },
    domain::{
        ids::{ChannelId, UserId},
        time::Timestamp,
    },
    panics::{self, Part},
};

/// Interval of the looks at what is due.
const LOOK_EVERY: TimeDelta = TimeDelta::minutes(1);
/// Channels of one look; others have their turn in the next one.
const CHANNELS: i64 = 500;
/// Messages at once.
const AT_ONCE: usize = 8;
/// Digits of a message's id.
const ID_DIGITS: usize = 32;

/// Warns without end, until it is aborted.
pub async fn run(channels: Arc<Channels>) {
    loop {
        let looked = channels.clock.moment();
        let now = looked.stamp;
        match channels.pool.read(move |db| disabled_channels::list_to_warn(db, now, CHANNELS)).await {
            Ok(due) => {
                let warned = stream::iter(due).for_each_concurrent(AT_ONCE, |id| {
                    let channels = channels.clone();
                    async move {
                        let warned = warn(&channels, &id, now);
                        if let Some(Err(error)) = panics::caught(Part::Channels, id.as_str(), warned).await {
                            log_failure(
                                "that a user was warned of a channel that is switched off was not stored",
                                &error,
                            );
                        }
                    }
                });
                warned.await;
            }
            Err(error) => log_failure("channels that are switched off were not read", &error),
        }
        channels.clock.reach(looked + LOOK_EVERY).await;
    }
}

/// Sends the warning about this channel by the user's others. One that all of them refuse is sent again, until they are
/// switched off, too.
async fn warn(channels: &Channels, id: &ChannelId, now: Timestamp) -> Result<(), DbError> {
    let known = id.clone();
    let Some(channel) = channels.pool.read(move |db: &mut Db| channels::get(db, &known)).await? else { return Ok(()) };
    let Some(since) = channel.failing_since else { return Ok(()) };
    let (id, user) = (channel.id(), UserId::from(channel.user_id.as_str()));
    let notice = channels.disabled_notice(message_id(&channel, since), &channel, since);
    let sent = user_messages::send(channels, &user, Some(&id), &notice).await?;
    let (kind, tried, taken) = (channel.kind.as_str(), sent.tried(), sent.taken());
    log::info!(channel = id.as_str(), kind, channels = tried, taken; "a user was warned of a channel that is switched off");
    let store = move |db: &mut Db| -> Result<(), DbError> {
        sent.store(db, now)?;
        disabled_channels::warn_next(db, &id, since, sent.all_failed(), now)
    };
    channels.pool.write(store).await
}

/// One id for all attempts of a warning.
fn message_id(channel: &StoredChannel, since: Timestamp) -> String {
    let mut id = sha256_hex(format!("disabled {} {}", channel.id, since.to_wire()).as_bytes());
    id.truncate(ID_DIGITS);
    id
}
