//! Users who erase themselves, and what still runs for them at the provider: it ends, whatever is done meanwhile.

use std::{collections::BTreeSet, time::Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    acts::runs,
    proxy::WireFault,
    walk::{Answer, PATIENCE, RETRIED_WITHIN, Walk},
};

const PERIOD_HOURS: i64 = 31 * 24;

/// A user is gone.
pub struct Erasure {
    user: String,
    /// Since when, seconds since 1970.
    at: i64,
    /// The answer said that nothing runs for them.
    is_ended: bool,
}

impl Walk {
    /// Often as it must be: cancelled before. A user with an open portal page may still take that back afterwards.
    pub async fn erase(&mut self, person: usize) {
        if self.random.chance(70) {
            self.change_in_portal(person, "cancel").await;
            self.take_events();
        }
        for _ in 0..self.random.below(12) {
            self.deliver_one().await;
        }
        self.erase_now(person).await;
        if self.random.chance(50) {
            self.change_in_portal(person, "keep").await;
        }
    }

    pub fn confirmation(&self, person: usize) -> Value {
        json!({ "confirm": self.persons[person].account.to_string() })
    }

    /// True if the user is gone, also if the answer was lost.
    pub async fn note_erasure(&mut self, person: usize, at: i64, answer: &Answer) {
        if answer.status == 200 || self.person(person, Method::GET, "/me", None, None).await.status == 401 {
            let known = &mut self.persons[person];
            known.cookie = None;
            // With everything that is stored about them.
            known.beta = None;
            let user = known.users.last().unwrap().clone();
            let is_ended = matches!(answer.body["payments"].as_str(), Some("none" | "ended"));
            self.say(format!("{user} is gone, payments {}", answer.body["payments"]));
            self.erasures.push(Erasure { user, at, is_ended });
        }
    }

    async fn erase_now(&mut self, person: usize) {
        // An erasure needs a recent sign-in.
        self.sign_in(person).await;
        let (at, body) = (self.clock.now().timestamp(), self.confirmation(person));
        let answer = self.person(person, Method::DELETE, "/me", None, Some(&body)).await;
        let name = self.persons[person].name;
        self.say(format!("{name} erases themselves: {}", answer.brief()));
        self.note_erasure(person, at, &answer).await;
    }

    /// Cancelled, erased, renewed in the portal page that is still open; then the period passes.
    pub async fn renew_after_erasure(&mut self, person: usize) {
        self.proxy.set(WireFault::None);
        self.sign_in(person).await;
        let all = self.books("subscriptions").await;
        if self.running_of(person, &all).is_empty() {
            self.buy(person).await;
            let Some(page) = self.persons[person].pages.last().cloned() else { return };
            self.click(&page, &[]).await;
        }
        self.deliver_all().await;
        self.open_portal(person).await;
        self.change_in_portal(person, "cancel").await;
        self.deliver_all().await;
        self.fault();
        self.erase_now(person).await;
        self.change_in_portal(person, "keep").await;
        self.take_events();
        for _ in 0..self.random.below(4) {
            self.deliver_one().await;
        }
        self.pass_hours(PERIOD_HOURS).await;
    }

    /// Time passes, without a fault that lasts for so long that nothing can be ended.
    pub async fn pass_hours(&mut self, hours: i64) {
        if !self.running_of_gone().await.is_empty() {
            self.proxy.set(WireFault::None);
            self.advance(RETRIED_WITHIN).await;
            let began = Instant::now();
            while !self.running_of_gone().await.is_empty() {
                if began.elapsed() > PATIENCE {
                    let running = self.running_of_gone().await.join(", ");
                    self.broke("what_runs_for_erased_users_ends", running);
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        self.say(format!("{hours} hours pass"));
        self.advance(hours * 3_600).await;
    }

    /// Subscriptions that run for users who are gone.
    async fn running_of_gone(&self) -> Vec<String> {
        let all = self.books("subscriptions").await;
        let is_gone = |one: &&Value| self.erasures.iter().any(|erasure| one["metadata"]["userId"] == *erasure.user);
        let running = all.iter().filter(|one| runs(one)).filter(is_gone);
        running.map(|one| one["id"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// True if this user has erased themselves.
    pub fn is_gone(&self, user: &str) -> bool {
        self.erasures.iter().any(|erasure| erasure.user == user)
    }

    /// True for a subscription of a user who is gone that the service ends, or has not answered about yet.
    pub fn is_ending(&self, subscription: &Value) -> bool {
        let is_of = |erasure: &&Erasure| subscription["metadata"]["userId"] == *erasure.user;
        self.erasures.iter().find(is_of).is_some_and(|erasure| !erasure.is_ended)
    }

    /// Once all is well again, nothing runs for users who are gone; and they were not charged since, but for a page that
    /// they paid themselves before the provider could be asked to close it.
    pub async fn compare_erasures(&mut self) {
        let running = self.running_of_gone().await;
        if !running.is_empty() {
            self.broke("what_runs_for_erased_users_ends", running.join(", "));
        }
        let (all, charges) = (self.books("subscriptions").await, self.books("charges").await);
        let mut broken = Vec::new();
        for Erasure { user, at, is_ended } in &self.erasures {
            let own = all.iter().filter(|one| one["metadata"]["userId"] == **user);
            let customers: BTreeSet<&str> = own.filter_map(|one| one["customer"].as_str()).collect();
            let charged = charges.iter().filter(|charge| {
                let created = charge["created"].as_i64().unwrap_or_default();
                charge["customer"].as_str().is_some_and(|customer| customers.contains(customer))
                    && created > *at
                    && (*is_ended || !self.paid_at.contains(&created))
            });
            broken.extend(charged.map(|charge| format!("{user} was charged {}", charge["id"])));
        }
        if let Some(first) = broken.first() {
            self.broke("no_one_is_charged_after_erasure", format!("{first} ({} charges)", broken.len()));
        }
    }
}
