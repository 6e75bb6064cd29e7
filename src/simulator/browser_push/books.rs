//! Subscriptions, and the pushes that wait for them.

use std::collections::{BTreeMap, VecDeque};

use chrono::TimeDelta;

use super::{push_request::PushHeaders, refused::RefusedPush, sender::PushSender};
use crate::domain::time::Timestamp;

/// Most subscriptions; the oldest end for new ones.
const MOST_SUBSCRIPTIONS: usize = 100;
/// Most pushes that wait for one subscription; the oldest are lost.
const MOST_WAITING: usize = 50;

/// A push that was taken.
#[derive(Clone, Debug)]
pub struct TakenPush {
    pub id: String,
    pub headers: PushHeaders,
    pub sender: PushSender,
    /// Encrypted.
    pub body: Vec<u8>,
    pub taken_at: Timestamp,
}

/// A browser.
struct SubscribedBrowser {
    id: String,
    /// The only key whose pushes are taken; `None` until the first one.
    key: Option<String>,
    has_ended: bool,
    waiting: VecDeque<TakenPush>,
}

/// All of them.
#[derive(Default)]
pub struct PushBooks {
    subscriptions: VecDeque<SubscribedBrowser>,
    /// Pushes that were taken, and those that were not, by reason.
    pub taken: u64,
    pub refused: BTreeMap<String, u64>,
}

impl PushBooks {
    /// Adds a subscription, made with this key of a sender.
    pub fn add(&mut self, id: String, key: Option<String>) {
        if self.subscriptions.len() == MOST_SUBSCRIPTIONS {
            self.subscriptions.pop_front();
        }
        self.subscriptions.push_back(SubscribedBrowser { id, key, has_ended: false, waiting: VecDeque::new() });
    }

    /// Ends a subscription; false if there is none.
    pub fn end(&mut self, id: &str) -> bool {
        let known = self.subscriptions.iter_mut().find(|known| known.id == id);
        known.map(|known| known.has_ended = true).is_some()
    }

    /// Takes a push, in place of one of its topic that still waits.
    pub fn take(&mut self, id: &str, push: TakenPush) -> Result<(), RefusedPush> {
        let known = self.subscriptions.iter_mut().find(|known| known.id == id).ok_or(RefusedPush::Unknown)?;
        if known.has_ended {
            return Err(RefusedPush::Gone);
        }
        if *known.key.get_or_insert_with(|| push.sender.key.clone()) != push.sender.key {
            return Err(RefusedPush::Forbidden("the subscription is of another key"));
        }
        if push.headers.topic.is_some() {
            known.waiting.retain(|older| older.headers.topic != push.headers.topic);
        }
        if known.waiting.len() == MOST_WAITING {
            known.waiting.pop_front();
        }
        known.waiting.push_back(push);
        self.taken += 1;
        Ok(())
    }

    /// Counts a refusal.
    pub fn note(&mut self, refusal: RefusedPush) {
        *self.refused.entry(refusal.to_string()).or_default() += 1;
    }

    /// Pushes that wait for a subscription, oldest first; those whose time is over are lost.
    pub fn waiting(&mut self, id: &str, now: Timestamp) -> Option<Vec<TakenPush>> {
        let known = self.subscriptions.iter_mut().find(|known| known.id == id)?;
        known.waiting.retain(|push| push.taken_at + TimeDelta::seconds(push.headers.ttl.into()) > now);
        Some(known.waiting.iter().cloned().collect())
    }

    /// Withdraws a push, or notes that it has arrived; false if none waits.
    pub fn remove(&mut self, id: &str) -> bool {
        let mut waiting = self.subscriptions.iter_mut().map(|known| &mut known.waiting);
        let found = waiting.find_map(|waiting| {
            let at = waiting.iter().position(|push| push.id == id)?;
            waiting.remove(at)
        });
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_timestamp(1_700_000_000, 0).unwrap()
    }

    fn push(id: &str, topic: &str, key: &str) -> TakenPush {
        let sender = PushSender { key: key.to_owned(), contact: "mailto:a@example.org".to_owned(), until: now() };
        let headers = PushHeaders { ttl: 60, urgency: "high".to_owned(), topic: Some(topic.to_owned()) };
        TakenPush { id: id.to_owned(), headers, sender, body: Vec::new(), taken_at: now() }
    }

    #[test]
    fn a_push_waits_for_its_time_or_until_one_of_its_topic_comes() {
        let mut books = PushBooks::default();
        books.add("phone".to_owned(), None);
        for (id, topic) in [("1", "raid"), ("2", "other"), ("3", "raid")] {
            books.take("phone", push(id, topic, "key")).unwrap();
        }
        let mut ids = |after| {
            let waiting = books.waiting("phone", now() + TimeDelta::seconds(after)).unwrap();
            waiting.into_iter().map(|push| push.id).collect::<Vec<_>>()
        };
        assert_eq!((ids(59), ids(60)), (vec!["2".to_owned(), "3".to_owned()], Vec::new()));
    }

    #[test]
    fn a_subscription_is_of_one_key_and_ends() {
        let mut books = PushBooks::default();
        books.add("phone".to_owned(), Some("key".to_owned()));
        let refused = books.take("phone", push("1", "a", "another"));
        assert!(matches!(refused, Err(RefusedPush::Forbidden(_))), "{refused:?}");
        books.take("phone", push("1", "a", "key")).unwrap();
        assert!(books.remove("1") && !books.remove("1"));
        assert!(books.end("phone") && !books.end("tablet"));
        assert_eq!(books.take("phone", push("2", "a", "key")), Err(RefusedPush::Gone));
        assert_eq!(books.take("tablet", push("2", "a", "key")), Err(RefusedPush::Unknown));
        for number in 0..200 {
            books.add(number.to_string(), None);
        }
        assert_eq!((books.subscriptions.len(), books.waiting("phone", now()).is_none()), (MOST_SUBSCRIPTIONS, true));
    }
}
