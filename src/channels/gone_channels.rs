//! Channels that have answered that they are gone, until the database has that: nothing is sent to them meanwhile. A push
//! service takes it ill if a subscription that has ended is tried again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::TimeDelta;

use crate::{
    db::notices::channels::StoredChannel,
    domain::time::{Moment, Timestamp},
};

/// Channels that are remembered; others are tried once more for each alarm.
const MOST: usize = 20_000;
/// For so long an answer waits to be stored.
const REMEMBERED: TimeDelta = TimeDelta::hours(24);

/// Since when a target is gone.
#[derive(Clone, Copy, Debug)]
struct GoneSince {
    /// When it said so.
    at: Moment,
    /// The time in its row of a message that it took before. Later than `at` if that was stored afterwards, or if the clock
    /// was set back in between.
    taken_before: Option<Timestamp>,
}

/// The channels, each with the target that is gone.
#[derive(Debug, Default)]
pub struct GoneChannels(Mutex<HashMap<(String, String), GoneSince>>);

impl GoneChannels {
    /// The target of this channel is gone.
    pub fn note(&self, channel: &StoredChannel, now: Moment) {
        let mut gone = self.lock();
        if gone.len() < MOST {
            gone.insert(key(channel), GoneSince { at: now, taken_before: channel.accepted_at });
        }
    }

    /// The database has since then that this target took a message, which this process sent before it was gone.
    pub fn note_taken_before(&self, channel: &StoredChannel, stored_at: Timestamp) {
        if let Some(since) = self.lock().get_mut(&key(channel)) {
            since.taken_before = Some(stored_at);
        }
    }

    /// True if this target of the channel is gone, and the database may not have that yet. One that took a message since is
    /// forgotten: another node may have stored its test, also after the clock was set back. A time that lies ahead is from
    /// before that.
    pub fn has(&self, channel: &StoredChannel, now: Moment) -> bool {
        let mut gone = self.lock();
        // Nearly always.
        if gone.is_empty() {
            return false;
        }
        let key = key(channel);
        let Some(since) = gone.get(&key).copied() else { return false };
        let gone_at = since.at.stamp - now.set_back_since(since.at).max(TimeDelta::zero());
        let taken_at = channel.accepted_at.filter(|taken_at| gone_at < *taken_at && *taken_at <= now.stamp);
        let is_used_again = taken_at.is_some() && taken_at != since.taken_before;
        if is_used_again {
            gone.remove(&key);
        }
        !is_used_again
    }

    /// The database has it, or the target is used again.
    pub fn forget(&self, channel: &StoredChannel) {
        self.lock().remove(&key(channel));
    }

    /// Forgets those whose answers are stored no more.
    pub fn forget_old(&self, now: Moment) {
        self.lock().retain(|_, since| now - since.at < REMEMBERED);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), GoneSince>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(channel: &StoredChannel) -> (String, String) {
    (channel.id.clone(), channel.target_hash.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{db::notices::channels::tests::channel, domain::channels::user_channel::ChannelKind};

    fn at(second: i64) -> Moment {
        Moment::from(Timestamp::from_timestamp(second, 0).unwrap())
    }

    fn target(target: &str) -> StoredChannel {
        channel("channel", "user", ChannelKind::WebPush, target)
    }

    /// The channel, whose row has that it took a message then.
    fn taken_at(second: i64) -> StoredChannel {
        StoredChannel { accepted_at: Some(at(second).stamp), ..target("old") }
    }

    #[test]
    fn a_target_is_gone_until_that_is_stored_and_another_one_of_its_channel_is_not() {
        let gone = GoneChannels::default();
        let has = |channel: StoredChannel| gone.has(&channel, at(9));
        gone.note(&target("old"), at(0));
        assert_eq!([has(target("old")), has(target("new"))], [true, false]);
        gone.forget(&target("new"));
        gone.forget_old(at(86_399));
        let are_gone = [target("old"), taken_at(0), taken_at(1)].map(has);
        assert_eq!(are_gone, [true, true, false], "its test was taken at another node");
        gone.note(&target("old"), at(0));
        gone.forget(&target("old"));
        assert!(!has(target("old")));
        gone.note(&target("old"), at(0));
        gone.forget_old(at(86_400));
        assert!(!has(target("old")));
    }

    #[test]
    fn a_target_that_is_gone_stays_so_with_a_message_that_it_took_before() {
        let gone = GoneChannels::default();
        let has = |second, now| gone.has(&taken_at(second), at(now));
        gone.note(&taken_at(5), at(0));
        assert!(has(5, 9) && has(1_800, 9), "the clock was set back in between");
        gone.note_taken_before(&target("new"), at(7).stamp);
        gone.note_taken_before(&taken_at(5), at(8).stamp);
        assert_eq!([has(8, 9), has(7, 9)], [true, false], "its test was taken at another node");
        gone.note_taken_before(&taken_at(7), at(9).stamp);
        assert!(!has(9, 9), "this process sent it afterwards");
    }

    #[test]
    fn a_target_whose_test_was_taken_after_the_clock_was_set_back_is_used_again() {
        let gone = GoneChannels::default();
        gone.note(&taken_at(7_100), at(7_200));
        // By an hour, and a minute has gone by.
        let now = Moment::new(TimeDelta::seconds(7_260), at(3_660).stamp);
        let has = |second| gone.has(&taken_at(second), now);
        assert_eq!([3_600, 3_700, 7_100].map(has), [true; 3], "from before");
        assert!(!has(3_630), "its test was taken at another node");
    }
}
