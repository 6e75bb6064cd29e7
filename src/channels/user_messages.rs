//! Messages to a user that are about no alarm, by all of their channels that work.

use crate::{
    channels::{figures, sender::Channels},
    clients::channels::{ChannelFailure, TakenMessage},
    db::{
        channels::{self, StoredChannel},
        engine::{error::DbError, pool::Db},
        notices,
    },
    domain::{
        alarm_notice::AlarmNotice,
        channel::ChannelState,
        channel_lane::ChannelLane,
        ids::{ChannelId, UserId},
        time::Timestamp,
    },
};

/// A message by each channel, and its outcome.
pub struct SentMessages(Vec<(StoredChannel, Result<TakenMessage, ChannelFailure>)>);

/// Sends this by all channels of the user that can be tried, but for the one that it is about.
pub async fn send(
    channels: &Channels,
    user: &UserId,
    about: Option<&ChannelId>,
    notice: &AlarmNotice,
) -> Result<SentMessages, DbError> {
    let owner = user.clone();
    let known = channels.pool.read(move |db: &mut Db| channels::list(db, &owner)).await?;
    let mut sent = Vec::new();
    for channel in known.into_iter().filter(|channel| is_usable(channel) && about != Some(&channel.id())) {
        let outcome = channels.deliver(ChannelLane::Unproven, &notice.incident, &channel, notice).await;
        if let Ok(kind) = channel.kind() {
            match &outcome {
                Ok(_) => figures::count_accepted(kind, None),
                Err(failure) => figures::count_failed(kind, failure.fault),
            }
        }
        sent.push((channel, outcome));
    }
    Ok(SentMessages(sent))
}

/// True for a channel that can be tried. One of a newer program is left alone.
fn is_usable(channel: &StoredChannel) -> bool {
    channel.check().is_ok() && matches!(channel.state(), Ok(ChannelState::Active | ChannelState::Failing))
}

impl SentMessages {
    /// Number of channels that were tried.
    pub fn tried(&self) -> usize {
        self.0.len()
    }

    /// Number of channels whose other side took it.
    pub fn taken(&self) -> usize {
        self.0.iter().filter(|(_, outcome)| outcome.is_ok()).count()
    }

    /// True if channels were tried, and none took it.
    pub fn all_failed(&self) -> bool {
        self.tried() > 0 && self.taken() == 0
    }

    /// Stores what follows for the channels.
    pub fn store(&self, db: &mut Db, now: Timestamp) -> Result<(), DbError> {
        self.0.iter().try_for_each(|(channel, outcome)| match outcome {
            Ok(_) => channels::note_accepted(db, &[(channel.id.as_str(), channel.target_hash.as_str())], now),
            Err(ChannelFailure { fault, .. }) => {
                notices::note_channel_failure(db, &channel.id(), &channel.target_hash, *fault, now)
            }
        })
    }
}
