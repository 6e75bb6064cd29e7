//! Notifies users by their channels of helper devices that were paired with their account and that they have not seen: one
//! who has seen a code may have paired it. Once; a message may be sent again an hour after the end of the process, with
//! the same id.

use std::sync::Arc;

use crate::{
    channels::{
        sender::Channels,
        user_messages::{self, WarningKind, warning_id},
    },
    db::{engine::error::DbError, helper_devices::HelperDevice, notices::new_devices},
    domain::time::Timestamp,
};

/// Notifies without end, until it is aborted.
pub async fn run(channels: Arc<Channels>) {
    user_messages::warn_when_due(channels, kind(), announce).await;
}

/// The kind of these messages.
pub(super) fn kind() -> WarningKind<HelperDevice> {
    WarningKind {
        list: new_devices::list_to_announce,
        put_off: |db, device, now| new_devices::announce_next(db, &device.id, true, now),
        id: |device| device.id.as_str(),
        user: |device| device.user_id.as_str(),
        unread: "devices of which users are to be notified were not read",
        unstored: "that a user was notified of a device was not stored",
    }
}

/// Announces this device by all channels of the user that work. What all of them refuse is sent again, until they are
/// switched off.
pub(super) async fn announce(channels: &Channels, device: &HelperDevice, now: Timestamp) -> Result<(), DbError> {
    let (id, user) = (device.id.clone(), &device.user_id);
    let notice = channels.device_notice(warning_id(&format!("paired {id}")), device);
    let sent = user_messages::send(channels, user, None, &notice).await?;
    let (tried, taken, all_failed) = (sent.tried(), sent.taken(), sent.all_failed());
    log::info!(user:%, device:% = id, channels = tried, taken; "a user was notified of a device");
    sent.store(channels, now, move |db| new_devices::announce_next(db, &id, all_failed, now)).await
}
