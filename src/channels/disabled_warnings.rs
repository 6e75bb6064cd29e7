//! Says by a user's other channels that one was switched off, because nothing got through for a day. Once; a message may
//! be sent again an hour after the end of the process, with the same id.

use std::sync::Arc;

use crate::{
    channels::{
        sender::Channels,
        user_messages::{self, WarningKind, warning_id},
    },
    db::{
        engine::{error::DbError, pool::Db},
        notices::{channels, disabled_channels},
    },
    domain::{
        ids::{ChannelId, UserId},
        time::Timestamp,
    },
};

/// Warns without end, until it is aborted.
pub async fn run(channels: Arc<Channels>) {
    let kind = WarningKind {
        list: disabled_channels::list_to_warn,
        put_off: disabled_channels::put_off,
        id: |id: &ChannelId| id.as_str(),
        user: |id| id.as_str(),
        unread: "channels that are switched off were not read",
        unstored: "that a user was warned of a channel that is switched off was not stored",
    };
    user_messages::warn_when_due(channels, kind, warn).await;
}

/// Sends the warning about this channel by the user's others. One that all of them refuse is sent again, until they are
/// switched off, too.
async fn warn(channels: &Channels, id: &ChannelId, now: Timestamp) -> Result<(), DbError> {
    let known = id.clone();
    let Some(channel) = channels.pool.read(move |db: &mut Db| channels::get(db, &known)).await? else { return Ok(()) };
    let Some(since) = channel.failing_since else { return Ok(()) };
    let (id, user) = (channel.id(), UserId::from(channel.user_id.as_str()));
    let message = warning_id(&format!("disabled {} {}", channel.id, since.to_wire()));
    let notice = channels.disabled_notice(message, &channel, since);
    let sent = user_messages::send(channels, &user, Some(&id), &notice).await?;
    let (kind, tried, taken, all_failed) = (channel.kind.as_str(), sent.tried(), sent.taken(), sent.all_failed());
    log::info!(channel = id.as_str(), kind, channels = tried, taken; "a user was warned of a channel that is switched off");
    sent.store(channels, now, move |db| disabled_channels::warn_next(db, &id, since, all_failed, now)).await
}
