//! Messages to a user that are about no alarm, by all of their channels that work.

use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;
use futures_util::{StreamExt as _, future::join_all, stream};

use crate::{
    channels::{figures, sender::Channels},
    clients::channels::{ChannelFailure, TakenMessage},
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db, query_failures::log_failure},
        notices::{
            channels::{self, StoredChannel},
            notice_queue,
        },
    },
    domain::{
        channels::{
            alarm_notice::AlarmNotice,
            channel_lane::ChannelLane,
            user_channel::{ChannelKind, ChannelState},
        },
        ids::{ChannelId, UserId},
        time::Timestamp,
    },
    panics::{self, Part},
};

/// Interval of the looks at what is due.
const LOOK_EVERY: TimeDelta = TimeDelta::minutes(1);
/// Warnings of one look; others have their turn in the next one.
const WARNINGS: i64 = 500;
/// Users at once. Channels that take nothing keep one for some seconds.
const AT_ONCE: usize = 32;
/// Warnings of one user in a look; others of theirs have their turn in the next one. No user holds up the others by many.
const OF_USER: usize = 3;
/// Digits of a message's id.
const ID_DIGITS: usize = 32;

/// A kind of warning that users get by their channels.
pub struct WarningKind<D> {
    /// The warnings that are due now, at most this number of them.
    pub list: fn(&mut Db, Timestamp, i64) -> Result<Vec<D>, DbError>,
    /// Stores when the warning is due again if no channel takes it.
    pub put_off: fn(&mut Db, &D, Timestamp) -> Result<(), DbError>,
    /// The id under which a panic is logged.
    pub id: fn(&D) -> &str,
    /// Id of the user, or of what each user has few of.
    pub user: fn(&D) -> &str,
    /// Log texts for failures of the database: what is due was not read, or what was sent was not stored.
    pub unread: &'static str,
    pub unstored: &'static str,
}

/// Sends the warnings of this kind when they are due, without end, until it is aborted.
pub async fn warn_when_due<D: Clone + Send + 'static>(
    channels: Arc<Channels>,
    kind: WarningKind<D>,
    warn: impl AsyncFn(&Channels, &D, Timestamp) -> Result<(), DbError>,
) {
    loop {
        let looked = channels.clock.moment();
        warn_due(&channels, &kind, &warn, looked.stamp).await;
        channels.clock.reach(looked + LOOK_EVERY).await;
    }
}

/// Sends the warnings of this kind that are due.
pub(super) async fn warn_due<D: Clone + Send + 'static>(
    channels: &Channels,
    kind: &WarningKind<D>,
    warn: &impl AsyncFn(&Channels, &D, Timestamp) -> Result<(), DbError>,
    now: Timestamp,
) {
    let &WarningKind { list, put_off, id, user, unread, unstored } = kind;
    match channels.pool.read(move |db| list(db, now, WARNINGS)).await {
        Ok(due) => {
            let warned = stream::iter(by_user(due, user)).for_each_concurrent(AT_ONCE, |of_user| async move {
                for due in of_user {
                    let warned = async {
                        // Each look would send it again while the database gives it, and takes nothing.
                        let later = due.clone();
                        channels.pool.write(move |db: &mut Db| put_off(db, &later, now)).await?;
                        warn(channels, &due, now).await
                    };
                    if let Some(Err(error)) = panics::caught(Part::Channels, id(&due), warned).await {
                        log_failure(unstored, &error);
                    }
                }
            });
            warned.await;
        }
        Err(error) => log_failure(unread, &error),
    }
}

/// The warnings of each user that have their turn, users with the longest due first.
fn by_user<D>(due: Vec<D>, user: fn(&D) -> &str) -> Vec<Vec<D>> {
    let mut groups: Vec<Vec<D>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for warning in due {
        let place = *places.entry(user(&warning).to_owned()).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(place).filter(|group| group.len() < OF_USER) {
            group.push(warning);
        }
    }
    groups
}

/// One id for all attempts of a warning.
pub fn warning_id(warning: &str) -> String {
    let mut id = sha256_hex(warning.as_bytes());
    id.truncate(ID_DIGITS);
    id
}

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
    let usable = known.into_iter().filter(|channel| is_usable(channel) && about != Some(&channel.id()));
    // At once: each that takes nothing would keep the others waiting for seconds.
    let sent = usable.map(|channel| async move {
        let outcome = channels.deliver_unless_gone(ChannelLane::Unproven, &notice.incident, &channel, notice).await;
        if let Ok(kind) = channel.kind() {
            match &outcome {
                Ok(_) => figures::count_accepted(kind, None),
                Err(failure) => figures::count_failed(kind, failure.fault),
            }
        }
        (channel, outcome)
    });
    Ok(SentMessages(join_all(sent).await))
}

/// True for a channel that can be tried. One of a newer program is left alone, and a team does not hear of an account.
fn is_usable(channel: &StoredChannel) -> bool {
    let is_own = channel.kind().is_ok_and(|kind| kind != ChannelKind::TeamChat);
    is_own && channel.check().is_ok() && matches!(channel.state(), Ok(ChannelState::Active | ChannelState::Failing))
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

    /// Stores what follows for the channels, and `also` in the same transaction.
    pub async fn store(
        self,
        channels: &Channels,
        now: Timestamp,
        also: impl FnOnce(&mut Db) -> Result<(), DbError> + Send + 'static,
    ) -> Result<(), DbError> {
        let store = move |db: &mut Db| -> Result<Self, DbError> {
            self.note(db, now)?;
            also(db)?;
            Ok(self)
        };
        let Self(stored) = channels.pool.write(store).await?;
        for (channel, outcome) in &stored {
            channels.note_outcome_stored(channel, outcome.as_ref().err().map(|failure| failure.fault), now);
        }
        Ok(())
    }

    fn note(&self, db: &mut Db, now: Timestamp) -> Result<(), DbError> {
        self.0.iter().try_for_each(|(channel, outcome)| match outcome {
            Ok(_) => channels::note_accepted(db, &[(channel.id.as_str(), channel.target_hash.as_str())], now),
            Err(ChannelFailure { fault, .. }) => {
                notice_queue::note_channel_failure(db, &channel.id(), &channel.target_hash, *fault, now)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_many_warnings_takes_few_turns_of_a_look() {
        let due = ["mallory 1", "mallory 2", "mallory 3", "mallory 4", "alice 1", "mallory 5", "bob 1", "alice 2"];
        let of = |due: &&'static str| due.split_once(' ').map_or("", |(user, _)| user);
        let turns = by_user(due.to_vec(), of);
        assert_eq!(turns, [vec!["mallory 1", "mallory 2", "mallory 3"], vec!["alice 1", "alice 2"], vec!["bob 1"]]);
    }
}
