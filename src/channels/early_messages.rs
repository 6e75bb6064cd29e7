//! Messages that were sent before the database had them. Their ids are those that their rows will have: once a row is
//! there, it gets the outcome, and is not sent again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::TimeDelta;

use crate::{
    db::notices::notice_queue::{DeliveryOutcome, EndedAttempt, NoticeDelivery, NoticeKey},
    domain::time::Moment,
};

/// Early messages that are remembered; others wait for the database.
const MOST: usize = 20_000;
/// Messages from rows that are remembered.
const MOST_FROM_ROWS: usize = 100_000;
/// For so long an outcome waits for its row.
const REMEMBERED: TimeDelta = TimeDelta::hours(24);
/// For so long an early message may come after that of its row.
const OVERTAKEN_WITHIN: TimeDelta = TimeDelta::minutes(5);

/// A message that is or was sent early, since then.
#[derive(Debug)]
struct EarlyMessage {
    since: Moment,
    notice: NoticeKey,
    /// The outcome, which waits for the row; `None`: it is being sent.
    ended: Option<EndedAttempt>,
}

#[derive(Debug, Default)]
struct KnownMessages {
    early: HashMap<String, EarlyMessage>,
    /// Messages that are or were sent from their rows, and since when.
    from_rows: HashMap<String, Moment>,
}

/// The messages, by id. Either their row is sent, or they are sent early, and never both.
#[derive(Debug, Default)]
pub struct EarlyMessages(Mutex<KnownMessages>);

impl EarlyMessages {
    /// Takes the first message of an alarm to send it from its row; false: it is or was sent early.
    pub fn begin_from_row(&self, id: &str, now: Moment) -> bool {
        let mut known = self.lock();
        let is_free = !known.early.contains_key(id);
        if is_free && known.from_rows.len() < MOST_FROM_ROWS {
            known.from_rows.entry(id.to_owned()).or_insert(now);
        }
        is_free
    }

    /// Takes a message to send it early; false: it was taken before, or too many are remembered.
    pub fn begin_early(&self, delivery: &NoticeDelivery, now: Moment) -> bool {
        let (mut known, id) = (self.lock(), &delivery.id);
        let is_taken = known.early.contains_key(id) || known.from_rows.contains_key(id);
        let is_free = !is_taken && known.early.len() < MOST;
        if is_free {
            known.early.insert(id.clone(), EarlyMessage { since: now, notice: delivery.key(), ended: None });
        }
        is_free
    }

    /// Keeps the outcome of a message that was sent early.
    pub fn end(&self, ended: EndedAttempt, now: Moment) {
        let (id, notice) = (ended.delivery.id.clone(), ended.delivery.key());
        self.lock().early.insert(id, EarlyMessage { since: now, notice, ended: Some(ended) });
    }

    /// True for a message that is or was sent early.
    pub fn is_early(&self, id: &str) -> bool {
        self.lock().early.contains_key(id)
    }

    /// True if the user is or was sent an early message of this alarm, and the database has no outcome of it yet.
    pub fn has_rung(&self, notice: &NoticeKey) -> bool {
        self.lock().early.values().any(|message| message.notice == *notice)
    }

    /// The outcomes that wait for their rows.
    pub fn ended(&self) -> Vec<EndedAttempt> {
        self.lock().early.values().filter_map(|message| message.ended.clone()).collect()
    }

    /// The outcomes of this alarm's messages to the user that wait for their rows.
    pub fn ended_of(&self, notice: &NoticeKey) -> Vec<EndedAttempt> {
        let known = self.lock();
        let of_notice = known.early.values().filter(|message| message.notice == *notice);
        of_notice.filter_map(|message| message.ended.clone()).collect()
    }

    /// The messages that repeat where they were sent, of notices for which this holds. Their receipts are taken out: each is
    /// given once.
    pub fn take_repeating(&self, holds: impl Fn(&NoticeKey) -> bool) -> Vec<EndedAttempt> {
        let mut taken = Vec::new();
        for EarlyMessage { notice, ended, .. } in self.lock().early.values_mut() {
            let repeats = |ended: &&mut EndedAttempt| ended.repeating().is_some() && holds(notice);
            let Some(ended) = ended.as_mut().filter(repeats) else { continue };
            taken.push(ended.clone());
            if let DeliveryOutcome::Accepted { receipt, .. } = &mut ended.outcome {
                *receipt = None;
            }
        }
        taken
    }

    /// The rows have the outcomes of these: further attempts are from there.
    pub fn note_stored<'a>(&self, ended: impl IntoIterator<Item = &'a EndedAttempt>, now: Moment) {
        let mut known = self.lock();
        for EndedAttempt { delivery, .. } in ended {
            known.early.remove(&delivery.id);
            known.from_rows.insert(delivery.id.clone(), now);
        }
    }

    /// Forgets what no row asks for any longer.
    pub fn forget_old(&self, now: Moment) {
        let mut known = self.lock();
        known.early.retain(|_, message| now - message.since < REMEMBERED);
        known.from_rows.retain(|_, since| now - *since < OVERTAKEN_WITHIN);
    }

    fn lock(&self) -> MutexGuard<'_, KnownMessages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::notices::channels::tests::channel,
        domain::{channels::user_channel::ChannelKind, time::Timestamp},
    };

    fn at(second: i64) -> Moment {
        Timestamp::from_timestamp(second, 0).unwrap().into()
    }

    fn ended(id: &str) -> EndedAttempt {
        let [incident_id, user_id, channel_id] = ["incident", "user", "channel"].map(str::to_owned);
        let id = id.to_owned();
        let queued_at = at(0).stamp;
        EndedAttempt {
            delivery: NoticeDelivery { id, incident_id, user_id, channel_id, round: 0, attempts: 0, queued_at },
            channel: channel("channel", "user", ChannelKind::Ntfy, "target"),
            outcome: DeliveryOutcome::Accepted { status: Some(200), receipt: None },
        }
    }

    #[test]
    fn a_message_is_sent_early_or_from_its_row() {
        let messages = EarlyMessages::default();
        assert!(messages.begin_early(&ended("early").delivery, at(0)));
        assert!(!messages.begin_early(&ended("early").delivery, at(0)) && !messages.begin_from_row("early", at(0)));
        assert!(messages.is_early("early") && messages.ended().is_empty(), "it has no outcome yet");
        let notice = ended("early").delivery.key();
        assert!(
            messages.has_rung(&notice) && !messages.has_rung(&NoticeKey { user: "other".into(), ..notice.clone() })
        );
        messages.end(ended("early"), at(1));
        assert!(!messages.begin_from_row("early", at(1)), "its row waits for the outcome");
        assert_eq!((messages.ended().len(), messages.ended_of(&notice).len()), (1, 1));
        assert!(messages.ended_of(&NoticeKey { incident: "other".to_owned(), ..notice.clone() }).is_empty());
        messages.note_stored(&messages.ended(), at(2));
        assert!(messages.ended().is_empty() && messages.begin_from_row("early", at(2)), "its next attempt");
        assert!(!messages.has_rung(&notice), "the database has it");
        assert!(!messages.begin_early(&ended("early").delivery, at(2)));

        assert!(messages.begin_from_row("row", at(0)) && messages.begin_from_row("row", at(9)), "each attempt");
        assert!(!messages.begin_early(&ended("row").delivery, at(9)) && !messages.is_early("row"));
        messages.begin_early(&ended("late").delivery, at(0));
        messages.end(ended("late"), at(1));
        messages.forget_old(at(400));
        assert_eq!(
            (messages.ended().len(), messages.lock().from_rows.len()),
            (1, 0),
            "an outcome waits for the database"
        );
        assert!(messages.take_repeating(|_| true).is_empty(), "it has no receipt");
        let accepted = DeliveryOutcome::Accepted { status: Some(200), receipt: Some("receipt".to_owned()) };
        messages.end(EndedAttempt { outcome: accepted, ..ended("late") }, at(2));
        assert!(messages.take_repeating(|_| false).is_empty());
        assert_eq!([(); 2].map(|()| messages.take_repeating(|notice| notice.incident == "incident").len()), [1, 0]);
        messages.forget_old(at(90_000));
        assert!(messages.lock().early.is_empty());
    }
}
