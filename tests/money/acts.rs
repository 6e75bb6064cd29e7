//! The acts of a walk: those of users, of time and of the way to the provider. Refunds are in `refunds`.
//!
//! To add an act: a line in [`MENU`], and what it does in [`Walk::act`].

use companion::simulator::payments::SubscriptionChange;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    proxy::{KillMoment, WireFault},
    walk::{Answer, Walk},
};

pub const TIERS: [&str; 3] = ["SCOUT", "OPERATOR", "OVERLORD"];
/// Prices of each tier by the month, then of each by the year.
pub const PRICES: [&str; 6] = [
    "price_scout",
    "price_operator",
    "price_overlord",
    "price_scout_yearly",
    "price_operator_yearly",
    "price_overlord_yearly",
];
pub const INTERVALS: [&str; 2] = ["month", "year"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    SignIn,
    Buy,
    BuyAgain,
    BuyInTwoTabs,
    Pay,
    Portal,
    ChangeInPortal,
    ChangeAtProvider,
    ChangePlan,
    Dispute,
    EndByAdmin,
    Erase,
    RenewAfterErasure,
    Beta,
    Refund,
    RepeatRefund,
    DoubleRefund,
    RefundWithTwoKeys,
    FailRefund,
    Deliver,
    Wait,
    Fault,
    Kill,
    KillDuring,
    Look,
}

/// Every act and its weight. Those after the first seven are left out in some seeds, or they would mask one another.
const MENU: [(u64, Act); 25] = [
    (8, Act::SignIn),
    (14, Act::Buy),
    (14, Act::Pay),
    (8, Act::Portal),
    (22, Act::ChangeInPortal),
    (25, Act::Deliver),
    (14, Act::Refund),
    (5, Act::BuyAgain),
    (3, Act::BuyInTwoTabs),
    (4, Act::ChangeAtProvider),
    (6, Act::ChangePlan),
    (6, Act::Dispute),
    (3, Act::EndByAdmin),
    (8, Act::Erase),
    (5, Act::RenewAfterErasure),
    (3, Act::Beta),
    (8, Act::RepeatRefund),
    (8, Act::DoubleRefund),
    (5, Act::RefundWithTwoKeys),
    (2, Act::FailRefund),
    (8, Act::Wait),
    (12, Act::Fault),
    (3, Act::Kill),
    (8, Act::KillDuring),
    (2, Act::Look),
];
const ALWAYS: usize = 7;

impl Walk {
    /// The acts of this seed.
    pub fn menu(&mut self) -> Vec<(u64, Act)> {
        let mut menu = MENU[..ALWAYS].to_vec();
        menu.extend(MENU[ALWAYS..].iter().filter(|_| self.random.chance(65)));
        menu
    }

    /// One of these acts.
    pub async fn step(&mut self, menu: &[(u64, Act)]) {
        let all: u64 = menu.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.random.below(all);
        let act = menu.iter().find(|(weight, _)| {
            let found = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            found
        });
        let seconds = self.random.between(20, 120) as i64;
        self.advance(seconds).await;
        self.act(act.expect("the weights add up").1).await;
        self.take_events();
        self.look_at_books().await;
    }

    async fn act(&mut self, act: Act) {
        let person = self.random.below(self.persons.len() as u64) as usize;
        match act {
            Act::SignIn => self.sign_in(person).await,
            Act::Buy | Act::BuyAgain | Act::BuyInTwoTabs | Act::ChangePlan | Act::Erase | Act::Portal
                if self.persons[person].cookie.is_none() =>
            {
                self.sign_in(person).await;
            }
            Act::Buy => drop(self.buy(person).await),
            Act::BuyAgain => self.buy_again(person).await,
            Act::BuyInTwoTabs => self.buy_in_two_tabs(person).await,
            Act::Pay => self.pay(person).await,
            Act::Portal => self.open_portal(person).await,
            Act::ChangeInPortal => {
                let actions =
                    ["plan", "plan", "cancel", "cancel", "cancel", "keep", "keep", "keep", "fail", "pay", "end"];
                let action = actions[self.random.below(actions.len() as u64) as usize];
                self.change_in_portal(person, action).await;
            }
            Act::ChangeAtProvider => self.change_at_provider().await,
            Act::ChangePlan => self.change_plan(person).await,
            Act::Dispute => self.dispute().await,
            Act::EndByAdmin => self.end_by_admin(person).await,
            Act::Erase => self.erase(person).await,
            Act::RenewAfterErasure => self.renew_after_erasure(person).await,
            Act::Beta => self.beta(person).await,
            Act::Refund => self.refund().await,
            Act::RepeatRefund => self.repeat_refund().await,
            Act::DoubleRefund => self.double_refund().await,
            Act::RefundWithTwoKeys => self.refund_with_two_keys().await,
            Act::FailRefund => {
                self.provider.fail_refund();
                self.say("the bank gives the latest refund back".to_owned());
            }
            Act::Deliver => {
                for _ in 0..=self.random.below(5) {
                    self.deliver_one().await;
                }
            }
            Act::Wait => {
                let hours = [1, 6, 25, 24 * 5, 24 * 31][self.random.below(5) as usize];
                self.pass_hours(hours).await;
            }
            Act::Fault => self.fault(),
            Act::Kill => {
                self.say("killed".to_owned());
                self.start_again().await;
            }
            Act::KillDuring => self.kill_during(person).await,
            Act::Look => {
                self.settle().await;
                self.reconcile().await;
                self.compare_tiers().await;
                self.compare_refunds().await;
                self.compare_erasures().await;
            }
        }
    }

    pub fn fault(&mut self) {
        let fault = match self.random.below(8) {
            0 | 1 => WireFault::None,
            2 => WireFault::Slow(80),
            3 => WireFault::LoseAnswers,
            4 => WireFault::ActAndFail,
            5 => WireFault::Refuse,
            6 => WireFault::ActAndMisanswer,
            _ => WireFault::Any,
        };
        self.say(format!("the way to the provider: {fault:?}"));
        self.proxy.set(fault);
    }

    /// A tier and an interval, as their place in [`PRICES`].
    fn some_plan(&mut self) -> usize {
        self.random.below(PRICES.len() as u64) as usize
    }

    /// Opens a checkout.
    pub async fn buy(&mut self, person: usize) -> Answer {
        let plan = self.some_plan();
        let key = self.random.chance(50).then(|| format!("buy-{:016x}", self.random.bits()));
        if let Some(key) = &key {
            self.persons[person].keys.push((key.clone(), plan));
        }
        self.open_checkout(person, plan, key.as_deref()).await
    }

    async fn buy_again(&mut self, person: usize) {
        let keys = &self.persons[person].keys;
        if keys.is_empty() {
            return drop(self.buy(person).await);
        }
        let (key, plan) = keys[self.random.below(keys.len() as u64) as usize].clone();
        drop(self.open_checkout(person, plan, Some(&key)).await);
    }

    async fn open_checkout(&mut self, person: usize, plan: usize, key: Option<&str>) -> Answer {
        let all = self.books("subscriptions").await;
        let name = self.persons[person].name;
        let runs = self.running_of(person, &all).first().map(|one| one["id"].clone());
        let answer = self.person(person, Method::POST, "/billing/checkout", key, Some(&plan_body(plan))).await;
        let keyed = key.map_or("", |_| " with a key");
        self.say(format!("{name} opens a checkout of {}{keyed}: {}", PRICES[plan], answer.brief()));
        if answer.status == 200 {
            if let Some(running) = runs.filter(|_| !is_change(&answer.body)) {
                self.broke("nothing_is_sold_twice", format!("{name} has {running} and got a checkout"));
            }
            self.keep_page(person, &answer.body).await;
        }
        answer
    }

    async fn keep_page(&mut self, person: usize, body: &Value) {
        if is_change(body) {
            return;
        }
        let page = body["url"].as_str().unwrap_or_default().to_owned();
        let id = page.rsplit('/').next().unwrap_or_default();
        let session = self.session(id).await;
        if session["status"] != "open" {
            self.broke("a_page_is_open", format!("{page} is {}", session["status"]));
        }
        self.persons[person].pages.push(page);
    }

    async fn buy_in_two_tabs(&mut self, person: usize) {
        let (Some(cookie), name) = (self.persons[person].cookie.clone(), self.persons[person].name) else { return };
        let body = plan_body(self.some_plan());
        let ask = || self.ask(Method::POST, "/billing/checkout", &cookie, None, Some(&body));
        let (first, second) = tokio::join!(ask(), ask());
        self.say(format!("{name} opens two checkouts at once: {}, {}", first.brief(), second.brief()));
        for answer in [first, second] {
            let answer = self.seen(answer, "/billing/checkout");
            if answer.status == 200 && !is_change(&answer.body) {
                self.persons[person].pages.extend(answer.body["url"].as_str().map(str::to_owned));
            }
        }
    }

    /// Pays a checkout, perhaps one of an earlier day.
    async fn pay(&mut self, person: usize) {
        let pages = &self.persons[person].pages;
        if pages.is_empty() {
            return;
        }
        let back = if self.random.chance(70) { 0 } else { self.random.below(pages.len() as u64) as usize };
        let page = pages[pages.len() - 1 - back].clone();
        let open = self.session(page.rsplit('/').next().unwrap_or_default()).await["status"] == "open";
        let status = self.click(&page, &[]).await;
        self.paid_at.insert(self.clock.now().timestamp());
        let name = self.persons[person].name;
        if open {
            self.say(format!("{name} pays: {status}"));
        }
    }

    pub async fn open_portal(&mut self, person: usize) {
        let answer = self.person(person, Method::POST, "/billing/portal", None, None).await;
        if answer.status == 200 {
            self.persons[person].portals.extend(answer.body["url"].as_str().map(str::to_owned));
        }
        let name = self.persons[person].name;
        self.say(format!("{name} opens the portal: {}", answer.brief()));
    }

    /// In any portal page that was ever opened, on any subscription that still goes on.
    pub async fn change_in_portal(&mut self, person: usize, action: &str) {
        if self.persons[person].portals.is_empty() && self.persons[person].cookie.is_some() {
            self.open_portal(person).await;
        }
        if self.persons[person].portals.is_empty() {
            return;
        }
        let portals = &self.persons[person].portals;
        let portal = portals[self.random.below(portals.len() as u64) as usize].clone();
        let all = self.books("subscriptions").await;
        let own: Vec<&Value> = self.subscriptions_of(person, &all).into_iter().filter(|one| runs(one)).collect();
        if own.is_empty() {
            return;
        }
        let subscription = own[self.random.below(own.len() as u64) as usize]["id"].as_str().unwrap().to_owned();
        let plan = if action == "plan" { PRICES[self.random.below(6) as usize] } else { "" };
        let form = [("subscription", subscription.as_str()), ("action", action), ("plan", plan)];
        let status = self.click(&portal, &form).await;
        let name = self.persons[person].name;
        self.say(format!("{name} in a portal: {action} {plan} {subscription}: {status}"));
    }

    /// A subscriber asks for another tier or interval, and confirms it on the page that opens.
    async fn change_plan(&mut self, person: usize) {
        let plan = self.some_plan();
        let answer = self.open_checkout(person, plan, None).await;
        if answer.status != 200 || !is_change(&answer.body) {
            return;
        }
        let page = answer.body["url"].as_str().unwrap_or_default().to_owned();
        let all = self.books("subscriptions").await;
        let Some(id) = self.running_of(person, &all).first().and_then(|one| one["id"].as_str()).map(str::to_owned)
        else {
            return;
        };
        let status = self.click(&page, &[("subscription", &id), ("action", "plan"), ("plan", PRICES[plan])]).await;
        let name = self.persons[person].name;
        self.say(format!("{name} confirms {} of {id}: {status}", PRICES[plan]));
        let all = self.books("subscriptions").await;
        let now = all.iter().find(|one| one["id"] == *id).map(|one| one["items"]["data"][0]["price"]["id"].clone());
        if status == 303 && now != Some(json!(PRICES[plan])) {
            self.broke("a_change_is_what_was_asked", format!("{id} is {now:?}, not {}", PRICES[plan]));
        }
    }

    /// A payer wants money back from their bank, or a dispute ends.
    async fn dispute(&mut self) {
        let all = self.books("charges").await;
        let open: Vec<&Value> = all.iter().filter(|charge| charge["disputed"] == true).collect();
        let closes = !open.is_empty() && self.random.chance(60);
        let fit = if closes { open } else { all.iter().collect() };
        if fit.is_empty() {
            return;
        }
        let charge = fit[self.random.below(fit.len() as u64) as usize]["id"].as_str().unwrap().to_owned();
        let status = match (closes, self.random.chance(50)) {
            (false, _) => "needs_response",
            (true, true) => "won",
            (true, false) => "lost",
        };
        self.provider.dispute_charge(&charge, status);
        self.say(format!("the dispute of {charge}: {status}"));
    }

    /// Events of a subscription without its customer: it is ended, or a payment fails.
    async fn change_at_provider(&mut self) {
        let all = self.books("subscriptions").await;
        let running: Vec<&Value> = all.iter().filter(|one| runs(one)).collect();
        if running.is_empty() {
            return;
        }
        let one = running[self.random.below(running.len() as u64) as usize];
        let (id, is_incomplete) = (one["id"].as_str().unwrap(), one["status"] == "incomplete");
        let change = match self.random.below(6) {
            0 | 1 if is_incomplete => SubscriptionChange::FirstPaymentExpired,
            2 if is_incomplete => SubscriptionChange::PayAgain,
            0 => SubscriptionChange::FirstPaymentOpen,
            1 | 2 => SubscriptionChange::FailUpgrade(PRICES[self.random.below(6) as usize].to_owned()),
            _ => SubscriptionChange::End,
        };
        self.provider.change(id, &change);
        self.say(format!("at the provider: {change:?} of {id}"));
    }

    /// The admin fetches what a member has, and ends the first that goes on. Twice, as by two clicks.
    async fn end_by_admin(&mut self, person: usize) {
        let Some(user) = self.persons[person].users.last().cloned() else { return };
        let path = format!("/admin/users/{user}/subscriptions");
        let fetched = self.admin(Method::POST, &format!("{path}/fetch"), None).await;
        let Some(id) = fetched.body["running"][0].as_str().map(str::to_owned) else { return };
        for _ in 0..2 {
            let answer = self.admin(Method::DELETE, &format!("{path}/{id}"), None).await;
            self.say(format!("the admin ends {id}: {} {}", answer.status, answer.body["outcome"]));
            let runs = self.books("subscriptions").await.iter().any(|one| one["id"] == *id && runs(one));
            let status = &answer.body["subscription"]["status"];
            if answer.status == 200 && (runs || status != "CANCELED") {
                self.broke("what_an_admin_ended_has_ended", format!("{id}: {status} here, runs there: {runs}"));
            }
        }
    }

    async fn beta(&mut self, person: usize) {
        let account = self.persons[person].account.to_string();
        let (answer, beta) = if self.persons[person].beta.is_some() {
            (self.admin(Method::DELETE, &format!("/admin/beta-testers/{account}"), None).await, None)
        } else {
            let tier = TIERS[self.random.below(3) as usize];
            let body = json!({ "platformId": account, "tier": tier });
            (self.admin(Method::POST, "/admin/beta-testers", Some(&body)).await, Some(tier))
        };
        assert!(answer.is_known(), "{}", answer.body);
        self.persons[person].beta = beta;
        let name = self.persons[person].name;
        self.say(format!("{name} is a beta tester of {beta:?}: {}", answer.status));
    }

    /// The service is killed while it does something.
    async fn kill_during(&mut self, person: usize) {
        let moments = [KillMoment::Asked, KillMoment::Done, KillMoment::Answered];
        let moment = moments[self.random.below(3) as usize];
        let request = self.proxy.seen() + 1 + self.random.below(4);
        if self.random.chance(60) {
            return self.kill_during_refund(request, moment).await;
        }
        self.sign_in(person).await;
        let (cookie, name) = (self.persons[person].cookie.clone().unwrap_or_default(), self.persons[person].name);
        let erases = self.random.chance(50);
        let at = self.clock.now().timestamp();
        let asked = if erases {
            self.ask(Method::DELETE, "/me", &cookie, None, Some(&self.confirmation(person)))
        } else {
            let body = plan_body(self.some_plan());
            self.ask(Method::POST, "/billing/checkout", &cookie, None, Some(&body))
        };
        let answer = self.killed_during(asked, request, moment).await;
        let what = if erases { "erases themselves" } else { "opens a checkout" };
        self.say(format!("killed while {name} {what}: {}", answer.brief()));
        if erases {
            self.note_erasure(person, at, &answer).await;
        } else if answer.status == 200 {
            self.keep_page(person, &answer.body).await;
        }
    }

    /// Sends a request, and kills the service at this moment of its request of this number to the provider, or when it has
    /// answered. Starts it again.
    pub async fn killed_during(
        &mut self,
        asked: impl Future<Output = Answer> + 'static,
        request: u64,
        moment: KillMoment,
    ) -> Answer {
        let mut reached = self.proxy.stop_at(request, moment);
        let mut asked = actix_web::rt::spawn(asked);
        let answer = tokio::select! {
            answer = &mut asked => Some(answer),
            _ = reached.wait_for(|reached| *reached) => None,
        };
        self.kill();
        self.proxy.go_on();
        self.start_again().await;
        match answer {
            Some(answer) => answer.expect("it does not panic"),
            None => asked.await.expect("it does not panic"),
        }
    }
}

/// The body of `/billing/checkout` for a plan; without an interval it is the month.
fn plan_body(plan: usize) -> Value {
    match (TIERS[plan % 3], INTERVALS[plan / 3]) {
        (tier, "month") if plan == 0 => json!({ "tier": tier }),
        (tier, interval) => json!({ "tier": tier, "interval": interval }),
    }
}

/// True if it goes on at the provider.
pub fn runs(subscription: &Value) -> bool {
    !matches!(subscription["status"].as_str(), Some("canceled" | "incomplete_expired"))
}

/// True if the page is the portal's, on which a subscriber confirms a change.
fn is_change(body: &Value) -> bool {
    body["url"].as_str().is_some_and(|url| url.contains("/portal/"))
}
