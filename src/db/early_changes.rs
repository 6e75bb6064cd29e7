//! Changes since the watchers were read that alarms ring from memory: an access or a channel that ended, rules, and
//! acknowledgements. The database has them, and may give nothing since.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::TimeDelta;

use crate::{
    db::notices::NoticeKey,
    domain::{
        escalation::AlarmRules,
        ids::{ChannelId, ServerId, UserId},
        time::Moment,
    },
};

/// Changes of a kind that are remembered, of half a minute. Beyond them the memory is as it was read.
const MOST: usize = 20_000;
/// For so long a message may wait that an acknowledgement ends.
const ACKNOWLEDGED_FOR: TimeDelta = TimeDelta::minutes(5);

/// An access or a way that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndedWay {
    /// The user may no longer watch the server.
    Guest(ServerId, UserId),
    /// The user was erased.
    User(UserId),
    Channel(ChannelId),
}

#[derive(Debug, Default)]
struct KnownChanges {
    /// Changes that were noted.
    count: u64,
    /// The ways, and which change each was.
    ended: HashMap<EndedWay, u64>,
    rules: HashMap<(ServerId, UserId), (u64, AlarmRules)>,
    acknowledged: HashMap<NoticeKey, Moment>,
}

/// The changes. Note each after its commit: a later reading has it.
#[derive(Debug, Default)]
pub struct EarlyChanges(Mutex<KnownChanges>);

impl EarlyChanges {
    /// Nothing rings by this any longer.
    pub fn end(&self, way: EndedWay) {
        let mut known = self.lock();
        known.count += 1;
        let count = known.count;
        if known.ended.len() < MOST {
            known.ended.insert(way, count);
        }
    }

    /// The user may watch the server, maybe again.
    pub fn admit(&self, server: &ServerId, user: &UserId) {
        self.lock().ended.remove(&EndedWay::Guest(server.clone(), user.clone()));
    }

    /// The user has these rules.
    pub fn set_rules(&self, server: &ServerId, user: &UserId, rules: &AlarmRules) {
        let mut known = self.lock();
        known.count += 1;
        let new = (known.count, rules.clone());
        let key = (server.clone(), user.clone());
        if known.rules.len() < MOST || known.rules.contains_key(&key) {
            known.rules.insert(key, new);
        }
    }

    /// The user has acknowledged.
    pub fn acknowledge(&self, notice: NoticeKey, now: Moment) {
        let mut known = self.lock();
        if known.acknowledged.len() < MOST {
            known.acknowledged.insert(notice, now);
        }
    }

    /// True if no message of the notice may be sent by the channel any longer.
    pub fn is_ended(&self, server: &ServerId, notice: &NoticeKey, channel: &ChannelId) -> bool {
        let known = self.lock();
        let user = || notice.user.clone();
        known.acknowledged.contains_key(notice)
            || known.ended.contains_key(&EndedWay::Channel(channel.clone()))
            || known.ended.contains_key(&EndedWay::User(user()))
            || known.ended.contains_key(&EndedWay::Guest(server.clone(), user()))
    }

    /// The rules that were set since; `None`: none were.
    pub fn rules(&self, server: &ServerId, user: &UserId) -> Option<AlarmRules> {
        let known = self.lock();
        // Nearly always.
        if known.rules.is_empty() {
            return None;
        }
        known.rules.get(&(server.clone(), user.clone())).map(|(_, rules)| rules.clone())
    }

    /// All watchers are read from now on. Give the answer to [`end_reading`](Self::end_reading).
    pub fn begin_reading(&self) -> u64 {
        self.lock().count
    }

    /// They were read, and are remembered: forgets what changed before.
    pub fn end_reading(&self, begun: u64) {
        let mut known = self.lock();
        known.ended.retain(|_, count| *count > begun);
        known.rules.retain(|_, (count, _)| *count > begun);
    }

    /// Forgets acknowledgements for which no message waits any longer.
    pub fn forget_old(&self, now: Moment) {
        self.lock().acknowledged.retain(|_, since| now - *since < ACKNOWLEDGED_FOR);
    }

    fn lock(&self) -> MutexGuard<'_, KnownChanges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    fn at(second: i64) -> Moment {
        Timestamp::from_timestamp(second, 0).unwrap().into()
    }

    #[test]
    fn a_change_is_known_until_a_reading_that_began_after_it() {
        let changes = EarlyChanges::default();
        let (server, channel) = (ServerId::from("server"), ChannelId::from("channel"));
        let notice = |user: &str| NoticeKey { incident: "raid".to_owned(), user: user.into() };
        let are_ended = || ["guest", "gone", "other"].map(|user| changes.is_ended(&server, &notice(user), &channel));
        changes.end(EndedWay::Guest(server.clone(), "guest".into()));
        let begun = changes.begin_reading();
        changes.end(EndedWay::User("gone".into()));
        changes.end(EndedWay::Guest("another".into(), "other".into()));
        let rules = AlarmRules { rounds: 2, ..AlarmRules::default() };
        changes.set_rules(&server, &"other".into(), &rules);
        assert_eq!(are_ended(), [true, true, false]);
        changes.end_reading(begun);
        assert_eq!(are_ended(), [false, true, false], "what came meanwhile may not have been read");
        assert_eq!(changes.rules(&server, &"other".into()), Some(rules));
        assert_eq!(changes.rules(&server, &"guest".into()), None);
        changes.end_reading(changes.begin_reading());
        assert_eq!((are_ended(), changes.rules(&server, &"other".into())), ([false; 3], None));

        changes.end(EndedWay::Channel(channel.clone()));
        assert_eq!(are_ended(), [true; 3]);
        assert!(!changes.is_ended(&server, &notice("other"), &"another".into()));
        changes.end_reading(changes.begin_reading());
        changes.end(EndedWay::Guest(server.clone(), "guest".into()));
        changes.admit(&server, &"guest".into());
        changes.acknowledge(notice("other"), at(0));
        assert_eq!(are_ended(), [false, false, true]);
        changes.forget_old(at(299));
        assert_eq!(are_ended(), [false, false, true]);
        changes.forget_old(at(300));
        assert_eq!(are_ended(), [false; 3]);
    }
}
