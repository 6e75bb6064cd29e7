//! Warns users by their channels that their registration for the game's pushes ends, or has ended: no alarm reaches them
//! then. A warning may be sent again a quarter of an hour after the end of the process, with the same id.

use std::sync::Arc;

use crate::{
    channels::{
        sender::Channels,
        user_messages::{self, WarningKind, warning_id},
    },
    db::{engine::error::DbError, push_credentials},
    domain::{
        credential::{next_warning, warning},
        ids::UserId,
        time::Timestamp,
    },
};

/// Warns without end, until it is aborted.
pub async fn run(channels: Arc<Channels>) {
    let kind = WarningKind {
        list: push_credentials::list_to_warn,
        put_off: |db, (user, ends), now| push_credentials::warn_next(db, user, *ends, next_warning(*ends, now, false)),
        id: |(user, _): &(UserId, Timestamp)| user.as_str(),
        user: |(user, _)| user.as_str(),
        unread: "users to be warned of the end of their registration were not read",
        unstored: "that a user was warned of the end of a registration was not stored",
    };
    user_messages::warn_when_due(channels, kind, warn).await;
}

/// Sends the warning that is due now by all channels of the user that work, and stores when the next one is.
async fn warn(channels: &Channels, of: &(UserId, Timestamp), now: Timestamp) -> Result<(), DbError> {
    let (user, expires_at) = (&of.0, of.1);
    let Some(due) = warning(expires_at, now) else { return Ok(()) };
    let message = warning_id(&format!("{user} {} {}", expires_at.to_wire(), due.title()));
    let notice = channels.expiry_notice(message, due, expires_at);
    let sent = user_messages::send(channels, user, None, &notice).await?;
    let (tried, taken) = (sent.tried(), sent.taken());
    log::info!(user:%, event = notice.event.word(), channels = tried, taken; "a user was warned of the end of a registration");
    let next = next_warning(expires_at, now, !sent.all_failed());
    let owner = user.clone();
    sent.store(channels, now, move |db| push_credentials::warn_next(db, &owner, expires_at, next)).await
}
