//! The invariants: while a walk goes on, when all is well again, and in the end, when months have passed.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::Value;

use crate::{
    acts::{PRICES, TIERS, runs},
    walk::Walk,
};

/// Invariants that do not hold yet, and why. A seed that breaks no other one passes.
pub const KNOWN: [(&str, &str); 0] = [];

const DAY: i64 = 24 * 3_600;

/// An attempt at a refund, as the audit log has it.
struct Attempt {
    entry: i64,
    charge: String,
    key: String,
    /// The last that was said of it: which entry, and what.
    outcome: Option<(i64, Value)>,
}

impl Attempt {
    fn result(&self) -> Option<&str> {
        self.outcome.as_ref().and_then(|(_, entry)| entry["result"].as_str())
    }

    fn is_settled(&self) -> bool {
        matches!(self.result(), Some("done" | "failed"))
    }
}

impl Walk {
    /// After every step: no user has two subscriptions that go on.
    pub async fn look_at_books(&mut self) {
        let all = self.books("subscriptions").await;
        for person in 0..self.persons.len() {
            let running = self.running_of(person, &all);
            let running: Vec<&str> = running.iter().filter_map(|one| one["id"].as_str()).collect();
            if running.len() > 1 {
                let name = self.persons[person].name;
                self.broke("no_one_has_two", format!("{name} has {running:?}"));
            }
        }
    }

    /// A dispute that was just taken is shown to admins, with the member who paid; a lost one leaves its payer nothing.
    pub async fn compare_dispute(&mut self, event: &Value) {
        let charge = &event["data"]["object"]["charge"];
        let charges = self.books("charges").await;
        let customer = charges.iter().find(|one| one["id"] == *charge).map(|one| one["customer"].clone());
        let all = self.books("subscriptions").await;
        let of_payer = || all.iter().filter(|one| customer.as_ref() == Some(&one["customer"]));
        let running: Vec<String> = of_payer().filter(|one| runs(one)).map(brief).collect();
        if event["data"]["object"]["status"] == "lost" && !running.is_empty() {
            self.broke("a_lost_dispute_ends_what_runs", format!("{charge}: {running:?}"));
        }
        let list = self.admin(Method::GET, "/admin/payment-events?state=reported&limit=500", None).await.body;
        let shown: Vec<Value> = list["events"].as_array().into_iter().flatten().cloned().collect();
        let shown: Vec<&Value> = shown.iter().filter(|shown| shown["id"] == event["id"]).collect();
        let users: BTreeSet<&str> = of_payer().filter_map(|one| one["metadata"]["userId"].as_str()).collect();
        let is_right = |user: &Value| match user.as_str() {
            Some(user) => users.contains(user) && !self.is_gone(user),
            None => users.iter().all(|user| self.is_gone(user)),
        };
        let [shown] = shown[..] else {
            let why = format!("{} is shown {} times", event["id"], shown.len());
            return self.broke("a_dispute_is_shown", why);
        };
        if shown["chargeId"] != *charge || !is_right(&shown["userId"]) {
            self.broke("a_dispute_is_shown", format!("{shown}, of the users {users:?}"));
        }
    }

    /// An account has one trial, under every user that it becomes.
    fn compare_trials(&mut self, all: &[Value]) {
        for person in 0..self.persons.len() {
            let tried = self.subscriptions_of(person, all).into_iter().filter(|one| !one["trial_start"].is_null());
            let tried: Vec<String> = tried.map(brief).collect();
            if tried.len() > 1 {
                let name = self.persons[person].name;
                self.broke("an_account_has_one_trial", format!("{name}: {tried:?}"));
            }
        }
    }

    /// The attempts of the audit log, the oldest first.
    async fn attempts(&mut self) -> Vec<Attempt> {
        let answer = self.admin(Method::GET, "/admin/audit?action=refund&limit=500", None).await;
        let entries = answer.body["entries"].as_array().unwrap_or_else(|| panic!("{}", answer.body)).clone();
        let number = |value: &Value| value.as_str().and_then(|id| id.parse::<i64>().ok()).unwrap_or_default();
        let mut attempts = BTreeMap::new();
        for entry in entries.iter().rev() {
            let id = number(&entry["id"]);
            let asked = &entry["payload"]["asked"];
            if asked.is_object() {
                let attempt = Attempt {
                    entry: id,
                    charge: entry["target"].as_str().unwrap_or_default().to_owned(),
                    key: asked["idempotencyKey"].as_str().unwrap_or_default().to_owned(),
                    outcome: None,
                };
                attempts.insert(id, attempt);
            } else if let Some(attempt) = attempts.get_mut(&number(&entry["payload"]["begun"])) {
                attempt.outcome = Some((id, entry.clone()));
            }
        }
        attempts.into_values().collect()
    }

    /// Refunds of which the log does not say what became of them.
    pub async fn open_attempts(&mut self) -> Vec<String> {
        let attempts = self.attempts().await;
        let open = attempts.iter().filter(|attempt| !attempt.is_settled());
        open.map(|attempt| {
            format!("entry {} ({}): {:?}", attempt.entry, attempt.charge, attempt.result().unwrap_or("begun"))
        })
        .collect()
    }

    /// The log and the provider's books say the same, and nothing was paid back that was not meant.
    pub async fn compare_refunds(&mut self) {
        let (attempts, made) = (self.attempts().await, self.books("refunds").await);
        let mut outcomes = BTreeMap::<&str, Vec<&Attempt>>::new();
        for attempt in &attempts {
            outcomes.entry(&attempt.key).or_default().push(attempt);
        }
        let mut broken = Vec::new();
        for (key, of_key) in &outcomes {
            let refund = made.iter().find(|refund| refund["metadata"]["attempt"] == **key);
            for attempt in of_key.iter().filter(|attempt| attempt.is_settled()) {
                let (entry, result) = (attempt.entry, attempt.result().unwrap_or_default());
                match (result, refund) {
                    ("done", None) => {
                        broken.push(format!("entry {entry} is done, and the provider has no such refund"))
                    }
                    ("failed", Some(refund)) => {
                        broken.push(format!("entry {entry} failed, and the provider has {}", refund["id"]));
                    }
                    _ => {}
                }
            }
        }
        let named = |refund: &&Value| {
            refund["metadata"]["attempt"].as_str().is_some_and(|attempt| outcomes.contains_key(attempt))
        };
        let unnamed = made.iter().filter(|refund| !named(refund));
        broken.extend(unnamed.map(|refund| format!("{} is in no entry of the log", refund["id"])));
        if let Some(first) = broken.first() {
            self.broke("the_log_is_the_truth", format!("{first} ({} in all)", broken.len()));
        }
        self.compare_attempts(&attempts);
        self.compare_intents(&made);
    }

    /// While one attempt at a charge is open, no other one begins.
    fn compare_attempts(&mut self, attempts: &[Attempt]) {
        for (place, later) in attempts.iter().enumerate() {
            let is_open = |earlier: &&Attempt| {
                let over = earlier.outcome.as_ref().filter(|_| earlier.is_settled()).map(|(entry, _)| *entry);
                earlier.charge == later.charge && earlier.key != later.key && over.is_none_or(|over| over > later.entry)
            };
            if let Some(earlier) = attempts[..place].iter().find(is_open) {
                let why = format!("entry {} began while {} was open", later.entry, earlier.entry);
                return self.broke("one_attempt_at_a_time", why);
            }
        }
    }

    /// Every refund is one that an admin meant, and each was meant once.
    fn compare_intents(&mut self, made: &[Value]) {
        let mut broken = Vec::new();
        let mut answered = BTreeMap::new();
        for (number, intent) in self.intents.iter().enumerate() {
            let Some(refund) = &intent.refund else { continue };
            if !made.iter().any(|made| made["id"] == **refund) {
                broken.push(format!("{refund} was answered and is not in the books"));
            }
            // A key that the service has forgotten is sent with another intent, and one that it still knows is the same.
            if let (Some(key), Some(other)) = (&intent.key, answered.insert(refund, number))
                && self.intents[other].key.as_ref().is_some_and(|other| other != key)
            {
                broken.push(format!("{refund} was the answer to two keys ({other} and {number})"));
            }
        }
        let charges: BTreeSet<&str> = made.iter().filter_map(|refund| refund["charge"].as_str()).collect();
        for charge in charges {
            let of_charge = || self.intents.iter().filter(|intent| intent.charge == charge);
            // A refund of all that is left fits any amount.
            let mut any = of_charge().filter(|intent| intent.amount.is_none()).count();
            let mut meant: Vec<i64> = of_charge().filter_map(|intent| intent.amount).collect();
            let mut amounts: Vec<i64> = made
                .iter()
                .filter(|made| made["charge"] == charge)
                .filter_map(|made| made["amount"].as_i64())
                .collect();
            amounts.sort_unstable();
            for amount in amounts {
                if let Some(place) = meant.iter().position(|meant| *meant == amount) {
                    meant.swap_remove(place);
                } else if any > 0 {
                    any -= 1;
                } else {
                    broken.push(format!("{amount} of {charge} were paid back and not asked for (again)"));
                }
            }
        }
        if let Some(first) = broken.first() {
            self.broke("nothing_is_paid_back_unasked", format!("{first} ({} in all)", broken.len()));
        }
    }

    /// Everybody who is signed in has what the provider's books say, and nothing else.
    pub async fn compare_tiers(&mut self) {
        let all = self.books("subscriptions").await;
        let invoices = self.books("invoices").await;
        self.compare_trials(&all);
        for person in 0..self.persons.len() {
            if self.persons[person].cookie.is_none() {
                continue;
            }
            // Months may have passed.
            self.sign_in(person).await;
            let me = self.person(person, Method::GET, "/me", None, None).await.body;
            let user = self.persons[person].users.last().unwrap().clone();
            let own: Vec<&Value> = all.iter().filter(|one| one["metadata"]["userId"] == *user).collect();
            let (tier, status) = (&me["subscription"]["tier"], &me["subscription"]["status"]);
            let possible = self.possible_tiers(person, &own, &invoices);
            let name = self.persons[person].name;
            if !possible.contains(&tier.as_str()) {
                let briefs: Vec<String> = own.iter().map(|one| brief(one)).collect();
                self.broke("a_tier_is_paid", format!("{name} has {tier} ({status}), not of {possible:?}: {briefs:?}"));
            }
            let priced = own.iter().find(|one| runs(one)).map(|one| one["items"]["data"][0]["price"].clone());
            let interval = &me["subscription"]["interval"];
            if let Some(price) = priced.filter(|price| *interval != price["recurring"]["interval"]) {
                self.broke("the_interval_is_shown", format!("{name} has {}, and /me says {interval}", price["id"]));
            }
            let running = own.iter().find(|one| runs(one)).map(|one| one["status"].as_str().unwrap_or_default());
            if let Some(running) = running.filter(|running| status != &running.to_uppercase()) {
                self.broke("the_running_one_is_shown", format!("{name} has {running}, and /me says {status}"));
            }
        }
    }

    /// The tier that the provider's books and the beta tests give this person.
    fn possible_tiers(&self, person: usize, own: &[&Value], invoices: &[Value]) -> BTreeSet<Option<&'static str>> {
        let (mut paid, mut perhaps) = (None, BTreeSet::new());
        for one in own {
            match one["status"].as_str() {
                Some("active" | "trialing") => paid = paid.max(tier_of(one)),
                // For some days, what was paid. The service may not have heard of the last payment.
                Some("past_due") => {
                    let of_one =
                        |invoice: &&Value| invoice["parent"]["subscription_details"]["subscription"] == one["id"];
                    perhaps.extend(invoices.iter().filter(of_one).filter_map(paid_tier).map(Some));
                    perhaps.insert(None);
                }
                _ => {}
            }
        }
        let beta = self.persons[person].beta;
        let name = |tier: Option<usize>| tier.map(|tier| TIERS[tier]).or(beta);
        let mut possible = BTreeSet::from([name(paid)]);
        possible.extend(perhaps.into_iter().map(|tier| name(paid.max(tier))));
        possible
    }

    /// Heals what webhooks missed.
    pub async fn reconcile(&mut self) {
        let differences = self.service().reconcile().await;
        self.say(format!("reconciled: {differences:?}"));
    }

    /// Settles everything, lets months pass, and compares all books.
    pub async fn end(&mut self) {
        self.settle().await;
        self.reconcile().await;
        self.compare_tiers().await;
        self.compare_refunds().await;
        self.compare_erasures().await;
        for _ in 0..2 {
            self.advance(31 * DAY).await;
            self.deliver_all().await;
        }
        self.settle().await;
        self.reconcile().await;
        self.compare_tiers().await;
        self.compare_refunds().await;
        self.compare_erasures().await;
        self.look_at_books().await;
        let differ = self.service().reconcile().await;
        if !differ.is_empty() {
            self.broke("the_books_agree", differ.join("; "));
        }
    }
}

/// The place of its tier in [`TIERS`].
fn tier_of(subscription: &Value) -> Option<usize> {
    PRICES.iter().position(|price| subscription["items"]["data"][0]["price"]["id"] == *price).map(|place| place % 3)
}

/// The tier of what an invoice charges.
fn paid_tier(invoice: &Value) -> Option<usize> {
    let charged = invoice["lines"]["data"].as_array()?.iter().rfind(|line| line["amount"].as_i64() > Some(0))?;
    let price = &charged["pricing"]["price_details"]["price"];
    PRICES.iter().position(|known| price == known).map(|place| place % 3)
}

fn brief(subscription: &Value) -> String {
    let item = &subscription["items"]["data"][0];
    format!("{} {} {}", subscription["id"], item["price"]["id"], subscription["status"])
}
