//! Changes since the watchers were read that alarms ring from memory: an access or a channel that ended, rules, and
//! acknowledgements. The database has them, and may give nothing since.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::TimeDelta;

use crate::{
    db::notices::notice_queue::NoticeKey,
    domain::{
        channels::escalation::AlarmRules,
        ids::{ChannelId, ServerId, UserId},
        time::Moment,
    },
};

/// Changes of a kind that are remembered, of some minutes. Beyond them the memory is as it was read. Of acknowledgements the
/// newest are remembered: what they end may still ring.
const MOST: usize = 20_000;
/// For so long a message may wait for its turn that was made from an older reading.
const WAITS: TimeDelta = TimeDelta::minutes(2);
/// For so long a message may wait that an acknowledgement ends.
const ACKNOWLEDGED_FOR: TimeDelta = TimeDelta::minutes(5);
/// For so long an alarm may ring, for whose acknowledgement the database is waited for.
const KEPT_FOR: TimeDelta = TimeDelta::hours(24);

/// An access or a way that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndedWay {
    /// The user may no longer watch the server.
    Guest(ServerId, UserId),
    /// The user was erased.
    User(UserId),
    Channel(ChannelId),
    /// The channel is gone at this target (its SHA-256), and may have another one since.
    Target(ChannelId, String),
}

/// Since when a way has ended.
#[derive(Clone, Copy, Debug)]
struct EndedSince {
    /// Which change it was.
    change: u64,
    /// When a reading was over that has it; `None`: none was yet.
    read_at: Option<Moment>,
}

/// The newest acknowledgements, oldest first.
#[derive(Debug, Default)]
struct Acknowledgements {
    known: HashSet<NoticeKey>,
    in_order: VecDeque<(Moment, NoticeKey)>,
}

impl Acknowledgements {
    /// Adds one; the first of a notice counts.
    fn add(&mut self, notice: NoticeKey, now: Moment) {
        if !self.known.insert(notice.clone()) {
            return;
        }
        self.in_order.push_back((now, notice));
        if self.in_order.len() > MOST {
            self.forget_first();
        }
    }

    fn forget_old(&mut self, now: Moment, kept_for: TimeDelta) {
        while self.in_order.front().is_some_and(|(since, _)| now - *since >= kept_for) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, notice)) = self.in_order.pop_front() {
            self.known.remove(&notice);
        }
    }
}

#[derive(Debug, Default)]
struct KnownChanges {
    /// Changes that were noted.
    count: u64,
    ended: HashMap<EndedWay, EndedSince>,
    rules: HashMap<(ServerId, UserId), (u64, AlarmRules)>,
    acknowledged: Acknowledgements,
    /// Acknowledgements that the journal had before the database.
    kept: Acknowledgements,
}

impl KnownChanges {
    fn is_acknowledged(&self, notice: &NoticeKey) -> bool {
        self.acknowledged.known.contains(notice) || self.kept.known.contains(notice)
    }

    /// True if this way has ended for a message that was made then: no reading had that. A later reading may have found that
    /// it is used again, also at another node.
    fn has_ended(&self, way: EndedWay, made_at: Moment) -> bool {
        let ended = self.ended.get(&way);
        ended.is_some_and(|since| since.read_at.is_none_or(|read_at| made_at <= read_at))
    }

    /// True if this way has ended, and that is not read yet.
    fn ends_unread(&self, way: EndedWay) -> bool {
        self.ended.get(&way).is_some_and(|since| since.read_at.is_none())
    }
}

/// The changes. Note each after its commit: a later reading has it.
#[derive(Debug, Default)]
pub struct EarlyChanges(Mutex<KnownChanges>);

impl EarlyChanges {
    /// Nothing rings by this any longer.
    pub fn end(&self, way: EndedWay) {
        let mut known = self.lock();
        known.count += 1;
        let since = EndedSince { change: known.count, read_at: None };
        if known.ended.len() < MOST || known.ended.contains_key(&way) {
            known.ended.insert(way, since);
        }
    }

    /// The user may watch the server, maybe again.
    pub fn admit(&self, server: &ServerId, user: &UserId) {
        self.lock().ended.remove(&EndedWay::Guest(server.clone(), user.clone()));
    }

    /// The channel is used again at this target.
    pub fn use_again(&self, channel: ChannelId, target: &str) {
        self.lock().ended.remove(&EndedWay::Target(channel, target.to_owned()));
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
        self.lock().acknowledged.add(notice, now);
    }

    /// The user has acknowledged, and only the journal has it.
    pub fn keep_acknowledged(&self, notice: NoticeKey, now: Moment) {
        self.lock().kept.add(notice, now);
    }

    /// True if the user has acknowledged, and the database may not have it yet.
    pub fn is_acknowledged(&self, notice: &NoticeKey) -> bool {
        self.lock().is_acknowledged(notice)
    }

    /// True if the user may no longer watch the server, and the newest reading may not have that.
    pub fn has_left(&self, server: &ServerId, user: &UserId) -> bool {
        let known = self.lock();
        known.ends_unread(EndedWay::User(user.clone()))
            || known.ends_unread(EndedWay::Guest(server.clone(), user.clone()))
    }

    /// True if no message of the notice that was made then may be sent by the channel to this target (its SHA-256) any longer.
    pub fn is_ended(
        &self,
        server: &ServerId,
        notice: &NoticeKey,
        (channel, target): (&ChannelId, &str),
        made_at: Moment,
    ) -> bool {
        let known = self.lock();
        known.is_acknowledged(notice)
            || known.has_ended(EndedWay::Channel(channel.clone()), made_at)
            || known.has_ended(EndedWay::Target(channel.clone(), target.to_owned()), made_at)
            || known.has_ended(EndedWay::User(notice.user.clone()), made_at)
            || known.has_ended(EndedWay::Guest(server.clone(), notice.user.clone()), made_at)
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

    /// They were read, and are remembered: forgets what changed before. A way that has ended is known for as long as a message
    /// may wait that was made before.
    pub fn end_reading(&self, begun: u64, now: Moment) {
        let mut known = self.lock();
        known.rules.retain(|_, (count, _)| *count > begun);
        for since in known.ended.values_mut().filter(|since| since.change <= begun) {
            since.read_at.get_or_insert(now);
        }
        known.ended.retain(|_, since| since.read_at.is_none_or(|read_at| now - read_at < WAITS));
    }

    /// Forgets acknowledgements for which no message waits any longer.
    pub fn forget_old(&self, now: Moment) {
        let mut known = self.lock();
        known.acknowledged.forget_old(now, ACKNOWLEDGED_FOR);
        known.kept.forget_old(now, KEPT_FOR);
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
        let is_ended_for = |user: &str, to: (&ChannelId, &str), made_at: i64| {
            changes.is_ended(&server, &notice(user), to, at(made_at))
        };
        let is_ended = |user: &str, to: (&ChannelId, &str)| is_ended_for(user, to, 0);
        let are_ended = || ["guest", "gone", "other"].map(|user| is_ended(user, (&channel, "target")));
        let have_left = || ["guest", "gone", "other"].map(|user| changes.has_left(&server, &user.into()));
        changes.end(EndedWay::Guest(server.clone(), "guest".into()));
        let begun = changes.begin_reading();
        changes.end(EndedWay::User("gone".into()));
        changes.end(EndedWay::Guest("another".into(), "other".into()));
        let rules = AlarmRules { rounds: 2, ..AlarmRules::default() };
        changes.set_rules(&server, &"other".into(), &rules);
        assert_eq!((are_ended(), have_left()), ([true, true, false], [true, true, false]));
        changes.end_reading(begun, at(0));
        assert_eq!(have_left(), [false, true, false], "what came meanwhile may not have been read");
        assert_eq!(changes.rules(&server, &"other".into()), Some(rules));
        assert_eq!(changes.rules(&server, &"guest".into()), None);
        changes.end_reading(changes.begin_reading(), at(60));
        assert_eq!((have_left(), changes.rules(&server, &"other".into())), ([false; 3], None));
        assert_eq!(are_ended(), [true, true, false], "a message may wait that was made before");
        let of_gone = [59, 60, 61].map(|made_at| is_ended_for("gone", (&channel, "target"), made_at));
        assert_eq!(of_gone, [true, true, false], "a reading since may have found them again");
        changes.end_reading(changes.begin_reading(), at(120));
        assert_eq!(are_ended(), [false, true, false], "a message waits for no longer");
        changes.end_reading(changes.begin_reading(), at(180));
        assert_eq!(are_ended(), [false; 3]);

        changes.end(EndedWay::Channel(channel.clone()));
        assert_eq!(are_ended(), [true; 3]);
        assert!(!is_ended("other", (&"another".into(), "target")));
        changes.end_reading(changes.begin_reading(), at(240));
        changes.end_reading(changes.begin_reading(), at(360));
        changes.end(EndedWay::Target(channel.clone(), "old".to_owned()));
        assert_eq!(["old", "target"].map(|target| is_ended("other", (&channel, target))), [true, false]);
        changes.use_again(channel.clone(), "old");
        assert!(!is_ended("other", (&channel, "old")));
        changes.end(EndedWay::Guest(server.clone(), "guest".into()));
        changes.end_reading(changes.begin_reading(), at(360));
        changes.admit(&server, &"guest".into());
        changes.acknowledge(notice("other"), at(0));
        assert_eq!(are_ended(), [false, false, true]);
        changes.forget_old(at(299));
        assert_eq!(are_ended(), [false, false, true]);
        changes.forget_old(at(300));
        assert_eq!(are_ended(), [false; 3]);
        changes.keep_acknowledged(notice("other"), at(0));
        changes.forget_old(at(86_399));
        assert_eq!((are_ended(), changes.is_acknowledged(&notice("other"))), ([false, false, true], true));
        changes.forget_old(at(86_400));
        assert_eq!(are_ended(), [false; 3]);
    }

    #[test]
    fn of_too_many_acknowledgements_the_newest_are_known() {
        let changes = EarlyChanges::default();
        let notice = |number: usize| NoticeKey { incident: number.to_string(), user: "user".into() };
        for add in [EarlyChanges::keep_acknowledged, EarlyChanges::acknowledge] {
            (0..=MOST).for_each(|number| add(&changes, notice(number), at(0)));
            add(&changes, notice(1), at(1));
            let known = [0, 1, MOST].map(|number| changes.is_acknowledged(&notice(number)));
            assert_eq!(known, [false, true, true]);
            changes.forget_old(at(86_400));
            assert!(!changes.is_acknowledged(&notice(MOST)));
        }
    }
}
