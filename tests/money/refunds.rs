//! Refunds on a walk: whole and in part, with and without a key, with a reason, asked for again, by two clicks, and while
//! the service is killed.

use std::time::Duration;

use chrono::TimeDelta;
use companion::domain::time::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    proxy::{KillMoment, WireFault},
    walk::{Answer, Walk},
};

const REASONS: [&str; 2] = ["duplicate", "requested_by_customer"];

/// A refund that an admin means once, however often it is clicked.
pub struct RefundIntent {
    pub charge: String,
    /// None: all that is left.
    pub amount: Option<i64>,
    pub key: Option<String>,
    body: Value,
    /// The refund that was answered.
    pub refund: Option<String>,
    /// True if its outcome is unknown.
    pub is_open: bool,
    first_sent_at: Timestamp,
}

/// The time that the service knows a key: later, the same request is meant once more.
const KEY_KNOWN: TimeDelta = TimeDelta::hours(24);

impl Walk {
    /// A charge; most often one of which something is left.
    async fn some_charge(&mut self) -> Option<(String, i64)> {
        let all = self.books("charges").await;
        let any = self.random.chance(15);
        let left = |charge: &Value| charge["amount"].as_i64().unwrap() - charge["amount_refunded"].as_i64().unwrap();
        let fit: Vec<&Value> = all.iter().filter(|charge| any || left(charge) > 0).collect();
        if fit.is_empty() {
            return None;
        }
        let charge = fit[self.random.below(fit.len() as u64) as usize];
        Some((charge["id"].as_str().unwrap().to_owned(), left(charge)))
    }

    /// Means to pay something back; which of the intents it is.
    fn mean(&mut self, charge: &str, left: i64, keyed: bool) -> usize {
        let amount = match self.random.below(3) {
            0 => None,
            1 => Some(left.max(1)),
            _ => Some(1 + self.random.below(left.max(1) as u64) as i64),
        };
        let mut body = json!({ "chargeId": charge });
        if let Some(amount) = amount {
            body["amount"] = json!(amount);
        }
        if self.random.chance(35) {
            body["reason"] = json!(REASONS[self.random.below(2) as usize]);
        }
        let key = keyed.then(|| format!("refund-{:016x}", self.random.bits()));
        let charge = charge.to_owned();
        self.intend(charge, amount, key, body)
    }

    fn intend(&mut self, charge: String, amount: Option<i64>, key: Option<String>, body: Value) -> usize {
        let first_sent_at = self.clock.now();
        self.intents.push(RefundIntent { charge, amount, key, body, refund: None, is_open: true, first_sent_at });
        self.intents.len() - 1
    }

    /// The intent, or one more like it when the service no longer knows its key.
    fn as_known(&mut self, intent: usize) -> usize {
        let RefundIntent { charge, amount, key, body, first_sent_at, .. } = &self.intents[intent];
        if key.is_none() || self.clock.now() - *first_sent_at < KEY_KNOWN {
            return intent;
        }
        let (charge, amount, key, body) = (charge.clone(), *amount, key.clone(), body.clone());
        self.intend(charge, amount, key, body)
    }

    /// The request of an intent, not sent yet.
    fn request(&self, intent: usize, cookie: &str) -> impl Future<Output = Answer> + use<> {
        let RefundIntent { key, body, .. } = &self.intents[intent];
        self.ask(Method::POST, "/admin/refund", cookie, key.as_deref(), Some(body))
    }

    async fn send(&mut self, intent: usize, how: &str) {
        let cookie = self.admin_cookie().await;
        let answer = self.request(intent, &cookie).await;
        self.note(intent, how, answer);
    }

    fn note(&mut self, intent: usize, how: &str, answer: Answer) {
        let answer = self.seen(answer, "/admin/refund");
        let RefundIntent { body, key, .. } = &self.intents[intent];
        let line = format!("refund {intent}{how} {body} {}: {}", key.as_deref().unwrap_or("no key"), answer.brief());
        self.say(line);
        let known = answer.is_known();
        let made = answer.body["id"].as_str().filter(|_| answer.status == 201).map(str::to_owned);
        let before = self.intents[intent].refund.clone();
        if let (Some(before), Some(made), true) = (&before, &made, self.intents[intent].key.is_some())
            && before != made
        {
            self.broke("a_key_is_one_refund", format!("refund {intent} was {before} and then {made}"));
        }
        let intent = &mut self.intents[intent];
        intent.is_open &= !known;
        intent.refund = made.or(before);
    }

    pub async fn refund(&mut self) {
        let Some((charge, left)) = self.some_charge().await else { return };
        let keyed = self.random.chance(40);
        let intent = self.mean(&charge, left, keyed);
        self.send(intent, "").await;
    }

    /// Repeats the unanswered requests; sometimes with other words, which is then meant besides.
    pub async fn repeat_refund(&mut self) {
        let open: Vec<usize> = (0..self.intents.len()).filter(|intent| self.intents[*intent].is_open).collect();
        if open.is_empty() {
            let keyed: Vec<usize> =
                (0..self.intents.len()).filter(|intent| self.intents[*intent].key.is_some()).collect();
            if !keyed.is_empty() {
                let intent = keyed[self.random.below(keyed.len() as u64) as usize];
                let intent = self.as_known(intent);
                self.send(intent, " once more").await;
            }
            return;
        }
        let intent = open[self.random.below(open.len() as u64) as usize];
        if self.random.chance(60) {
            let intent = self.as_known(intent);
            return self.send(intent, " again").await;
        }
        let RefundIntent { charge, amount, body, .. } = &self.intents[intent];
        let (charge, mut amount, mut body) = (charge.clone(), *amount, body.clone());
        match body["reason"].as_str() {
            Some(_) => drop(body.as_object_mut().unwrap().remove("reason")),
            None => body["reason"] = json!(REASONS[1]),
        }
        if self.random.chance(30) {
            body["amount"] = json!(1);
            amount = Some(1);
        }
        let key = self.random.chance(30).then(|| format!("refund-{:016x}", self.random.bits()));
        let meant = self.intend(charge, amount, key, body);
        self.send(meant, &format!(" in place of {intent}")).await;
    }

    /// Two clicks on one button, the second while the first is under way.
    pub async fn double_refund(&mut self) {
        let Some((charge, left)) = self.some_charge().await else { return };
        let keyed = self.random.chance(25);
        let intent = self.mean(&charge, left, keyed);
        self.proxy.set(WireFault::Slow(150));
        let until = self.proxy.seen() + 1 + self.random.below(3);
        let cookie = self.admin_cookie().await;
        let RefundIntent { key, body, .. } = &self.intents[intent];
        let click = || self.ask(Method::POST, "/admin/refund", &cookie, key.as_deref(), Some(body));
        let first = actix_web::rt::spawn(click());
        let in_hand = tokio::time::timeout(Duration::from_secs(2), self.proxy.seen_until(until)).await.is_ok();
        let second = if in_hand && !first.is_finished() { Some(click().await) } else { None };
        let first = first.await.expect("it does not panic");
        self.proxy.set(WireFault::None);
        self.note(intent, " first click", first);
        if let Some(second) = second {
            self.note(intent, " second click", second);
        }
    }

    /// Two admins at once, each with a key: each means it.
    pub async fn refund_with_two_keys(&mut self) {
        let Some((charge, left)) = self.some_charge().await else { return };
        let first = self.mean(&charge, left, true);
        let RefundIntent { amount, body, .. } = &self.intents[first];
        let (amount, body) = (*amount, body.clone());
        let key = Some(format!("refund-{:016x}", self.random.bits()));
        let second = self.intend(charge, amount, key, body);
        // One session: signing in ends none.
        let cookie = self.admin_cookie().await;
        let ask = |intent: &RefundIntent| {
            self.ask(Method::POST, "/admin/refund", &cookie, intent.key.as_deref(), Some(&intent.body))
        };
        let (one, other) = tokio::join!(ask(&self.intents[first]), ask(&self.intents[second]));
        self.note(first, " at once", one);
        self.note(second, " at once", other);
    }

    pub async fn kill_during_refund(&mut self, number: u64, moment: KillMoment) {
        let Some((charge, left)) = self.some_charge().await else { return };
        let keyed = self.random.chance(40);
        let intent = self.mean(&charge, left, keyed);
        let cookie = self.admin_cookie().await;
        let request = self.request(intent, &cookie);
        let answer = self.killed_during(request, number, moment).await;
        self.note(intent, " killed", answer);
    }
}
