//! Channels that have answered that they are gone, until the database has that: nothing is sent to them meanwhile. A push
//! service takes it ill if a subscription that has ended is tried again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::TimeDelta;

use crate::{db::notices::channels::StoredChannel, domain::time::Moment};

/// Channels that are remembered; others are tried once more for each alarm.
const MOST: usize = 20_000;
/// For so long an answer waits to be stored.
const REMEMBERED: TimeDelta = TimeDelta::hours(24);

/// The channels, each with the target that was gone, and when it said so.
#[derive(Debug, Default)]
pub struct GoneChannels(Mutex<HashMap<(String, String), Moment>>);

impl GoneChannels {
    /// The target of this channel is gone.
    pub fn note(&self, channel: &StoredChannel, now: Moment) {
        let mut gone = self.lock();
        if gone.len() < MOST {
            gone.insert(key(channel), now);
        }
    }

    /// True if this target of the channel is gone, and the database may not have that yet. One that took a message since is
    /// not: another node may have stored its test.
    pub fn has(&self, channel: &StoredChannel) -> bool {
        let gone = self.lock();
        // Nearly always.
        if gone.is_empty() {
            return false;
        }
        gone.get(&key(channel)).is_some_and(|since| channel.accepted_at.is_none_or(|taken_at| taken_at <= since.stamp))
    }

    /// The database has it, or the target is used again.
    pub fn forget(&self, channel: &StoredChannel) {
        self.lock().remove(&key(channel));
    }

    /// Forgets those whose answers are stored no more.
    pub fn forget_old(&self, now: Moment) {
        self.lock().retain(|_, since| now - *since < REMEMBERED);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Moment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(channel: &StoredChannel) -> (String, String) {
    (channel.id.clone(), channel.target_hash.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::notices::channels::tests::channel,
        domain::{channels::user_channel::ChannelKind, time::Timestamp},
    };

    #[test]
    fn a_target_is_gone_until_that_is_stored_and_another_one_of_its_channel_is_not() {
        let at = |second: i64| Moment::from(Timestamp::from_timestamp(second, 0).unwrap());
        let target = |target: &str| channel("channel", "user", ChannelKind::WebPush, target);
        let gone = GoneChannels::default();
        gone.note(&target("old"), at(0));
        assert_eq!([gone.has(&target("old")), gone.has(&target("new"))], [true, false]);
        gone.forget(&target("new"));
        gone.forget_old(at(86_399));
        let taken_at = |second| StoredChannel { accepted_at: Some(at(second).stamp), ..target("old") };
        let has = [target("old"), taken_at(0), taken_at(1)].map(|channel| gone.has(&channel));
        assert_eq!(has, [true, true, false], "its test was taken at another node");
        gone.forget(&target("old"));
        assert!(!gone.has(&target("old")));
        gone.note(&target("old"), at(0));
        gone.forget_old(at(86_400));
        assert!(!gone.has(&target("old")));
    }
}
