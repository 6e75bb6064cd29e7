//! Books of the provider: every object as its API shows it, and the changes of these objects.

mod by_customer;
mod disputes;
mod payments;
mod periods;
mod portals;
mod prices;
mod shapes;

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Value, json};

pub use self::{
    prices::{PRICES, SimulatedPrice, price, shown_price},
    shapes::Portal,
};
use self::{
    prices::{period_of, shown_plan},
    shapes::{nested, shaped},
};
use super::change::SubscriptionChange;

/// The latest events and answers that are remembered.
const REMEMBERED: usize = 10_000;
/// The time that the answer to an idempotency key is kept, seconds: a day, as the real one promises.
const ANSWER_KEPT: i64 = 24 * 60 * 60;
const VERSION: &str = "2026-10-28.endive";

/// Refusal of a request, in the words of the API.
#[derive(Debug)]
pub struct ApiRefusal {
    pub status: u16,
    pub code: &'static str,
    pub param: Option<&'static str>,
}

impl ApiRefusal {
    /// Refusal of a parameter, with the code of the real provider.
    pub fn of(code: &'static str, param: &'static str) -> Self {
        Self { status: 400, code, param: Some(param) }
    }

    /// Refusal of an id that there is not.
    pub fn unknown() -> Self {
        Self { status: 404, code: "resource_missing", param: Some("id") }
    }
}

/// Parameters of a request.
pub type Parameters = BTreeMap<String, String>;

/// A kept answer.
struct KeptAnswer {
    request: String,
    status: u16,
    body: Value,
    /// Seconds since 1970.
    kept_at: i64,
}

/// See the module.
#[derive(Default)]
pub struct Books {
    /// Part of every id, so that a restart makes others.
    run: String,
    made: u64,
    customers: BTreeMap<String, Value>,
    sessions: BTreeMap<String, Value>,
    portals: BTreeMap<String, Portal>,
    subscriptions: BTreeMap<String, Value>,
    charges: Vec<Value>,
    /// Paid invoices, the oldest first.
    invoices: Vec<Value>,
    refunds: Vec<Value>,
    events: VecDeque<Value>,
    /// Events that were not looked at yet.
    news: usize,
    answers: HashMap<String, KeptAnswer>,
    pub asked: u64,
}

impl Books {
    /// Empty books; the run is part of every id.
    pub fn new(run: String) -> Self {
        Self { run, ..Self::default() }
    }

    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}_sim{}{:06}", self.run, self.made)
    }

    fn emit(&mut self, kind: &str, object: Value, now: i64) {
        let id = self.id("evt");
        if self.events.len() >= REMEMBERED {
            self.events.pop_front();
        }
        self.events.push_back(json!({
            "id": id, "object": "event", "api_version": VERSION, "created": now, "livemode": false, "type": kind,
            "pending_webhooks": 1, "request": { "id": null, "idempotency_key": null }, "data": { "object": object },
        }));
        self.news += 1;
    }

    /// The events since the last call.
    pub fn take_news(&mut self, older_shape: bool) -> Vec<Value> {
        let news = std::mem::take(&mut self.news).min(self.events.len());
        self.events.iter().skip(self.events.len() - news).map(|event| shaped(event, older_shape)).collect()
    }

    /// All events, the oldest first, perhaps in the shape of the API's version before.
    pub fn events(&self, older_shape: bool) -> Vec<Value> {
        self.events.iter().map(|event| shaped(event, older_shape)).collect()
    }

    /// The answer that was given to this key, or a refusal when it was given to another request.
    pub fn kept(&self, key: &str, request: &str, now: i64) -> Option<Result<(u16, Value), ApiRefusal>> {
        let kept = self.answers.get(key).filter(|kept| now < kept.kept_at + ANSWER_KEPT)?;
        Some(if kept.request == request {
            Ok((kept.status, kept.body.clone()))
        } else {
            Err(ApiRefusal { status: 400, code: "idempotency_error", param: None })
        })
    }

    /// Keeps the answer to a request with this key.
    pub fn keep(&mut self, key: String, request: String, status: u16, body: Value, now: i64) {
        if self.answers.len() >= REMEMBERED {
            self.answers.clear();
        }
        self.answers.insert(key, KeptAnswer { request, status, body, kept_at: now });
    }

    /// Adds a customer; as the API shows it.
    pub fn create_customer(&mut self, parameters: &Parameters, now: i64) -> Value {
        let id = self.id("cus");
        let customer = json!({
            "id": id, "object": "customer", "created": now, "livemode": false, "email": null,
            "name": parameters.get("name"), "metadata": nested(parameters, "metadata"),
        });
        self.customers.insert(id, customer.clone());
        customer
    }

    fn known_customer<'a>(&self, parameters: &'a Parameters) -> Result<&'a str, ApiRefusal> {
        let customer = parameters.get("customer").ok_or(ApiRefusal::of("parameter_missing", "customer"))?;
        self.customers
            .contains_key(customer)
            .then_some(customer.as_str())
            .ok_or(ApiRefusal::of("resource_missing", "customer"))
    }

    /// Opens a checkout of a subscription; its page is below `base`.
    pub fn open_checkout(&mut self, parameters: &Parameters, base: &str, now: i64) -> Result<Value, ApiRefusal> {
        if parameters.get("mode").is_none_or(|mode| mode != "subscription") {
            return Err(ApiRefusal::of("parameter_invalid", "mode"));
        }
        let customer = self.known_customer(parameters)?.to_owned();
        let price = parameters.get("line_items[0][price]").and_then(|id| price(id));
        let price = price.ok_or(ApiRefusal::of("resource_missing", "line_items[0][price]"))?;
        let success_url = parameters.get("success_url").ok_or(ApiRefusal::of("parameter_missing", "success_url"))?;
        let id = self.id("cs_test");
        let session = json!({
            "id": id, "object": "checkout.session", "mode": "subscription", "created": now, "expires_at": now + 86_400,
            "livemode": false, "status": "open", "payment_status": "unpaid", "customer": customer, "subscription": null,
            "client_reference_id": parameters.get("client_reference_id"), "currency": "usd",
            "amount_total": price.amount, "metadata": nested(parameters, "metadata"), "success_url": success_url,
            "cancel_url": parameters.get("cancel_url"), "url": format!("{base}/checkout/{id}"),
            // Not shown by the API: what the subscription will be.
            "simulated": {
                "price": price.id, "metadata": nested(parameters, "subscription_data[metadata]"),
                "trial_days": parameters.get("subscription_data[trial_period_days]"), "asked": parameters,
            },
        });
        self.sessions.insert(id, session.clone());
        Ok(shown_session(session))
    }

    /// The checkout of this id.
    pub fn session(&self, id: &str) -> Option<&Value> {
        self.sessions.get(id)
    }

    /// Number of open checkouts.
    pub fn open_sessions(&self) -> usize {
        self.sessions.values().filter(|session| session["status"] == "open").count()
    }

    /// A checkout, as the API shows it.
    pub fn shown_session(&self, id: &str) -> Option<Value> {
        self.session(id).cloned().map(shown_session)
    }

    /// Closes an open checkout.
    pub fn expire(&mut self, id: &str, now: i64) -> Result<Value, ApiRefusal> {
        let session = self.sessions.get_mut(id).ok_or(ApiRefusal::unknown())?;
        if session["status"] != "open" {
            // The real one gives no code either.
            return Err(ApiRefusal { status: 400, code: "", param: None });
        }
        session["status"] = json!("expired");
        session["url"] = json!(null);
        let expired = shown_session(session.clone());
        self.emit("checkout.session.expired", expired.clone(), now);
        Ok(expired)
    }

    /// Completes a checkout; the subscription. `None` if there is no open one.
    pub fn pay(&mut self, id: &str, now: i64) -> Option<String> {
        let session = self.sessions.get(id).filter(|session| session["status"] == "open")?.clone();
        let plan = session["simulated"]["price"].as_str().and_then(price)?;
        let metadata = session["simulated"]["metadata"].clone();
        let subscription = self.begin(session["customer"].as_str()?, metadata, plan, now);
        if let Some(days) = session["simulated"]["trial_days"].as_str().and_then(|days| days.parse::<i64>().ok()) {
            self.try_out(&subscription, now + days * 86_400, now);
        }
        let session = self.sessions.get_mut(id)?;
        session["status"] = json!("complete");
        session["payment_status"] = json!("paid");
        session["subscription"] = json!(subscription);
        session["url"] = json!(null);
        let completed = shown_session(session.clone());
        self.emit("checkout.session.completed", completed, now);
        Some(subscription)
    }

    /// A subscription without a checkout.
    pub fn subscribe(&mut self, customer: &str, user: Option<&str>, plan: &str, now: i64) -> String {
        let known = price(plan).copied();
        let metadata = user.map_or(json!({}), |user| json!({ "userId": user }));
        let id = self.begin(customer, metadata, &known.unwrap_or(PRICES[0]), now);
        // One that the service does not know.
        if let (None, Some(subscription)) = (known, self.subscriptions.get_mut(&id)) {
            subscription["items"]["data"][0]["price"]["id"] = json!(plan);
        }
        id
    }

    fn begin(&mut self, customer: &str, metadata: Value, plan: &SimulatedPrice, now: i64) -> String {
        let (id, item, invoice) = (self.id("sub"), self.id("si"), self.id("in"));
        let subscription = json!({
            "id": id, "object": "subscription", "created": now, "start_date": now, "livemode": false, "customer": customer,
            "status": "active", "currency": "usd", "collection_method": "charge_automatically", "metadata": metadata,
            "cancel_at": null, "cancel_at_period_end": false, "canceled_at": null, "ended_at": null,
            "cancellation_details": { "comment": null, "feedback": null, "reason": null }, "latest_invoice": invoice,
            "trial_start": null, "trial_end": null, "pause_collection": null,
            "items": { "object": "list", "has_more": false, "url": format!("/v1/subscription_items?subscription={id}"),
                "data": [{
                    "id": item, "object": "subscription_item", "created": now, "subscription": id, "quantity": 1,
                    "metadata": {}, "price": shown_price(plan), "current_period_start": now,
                    "current_period_end": now + period_of(&json!({ "price": { "id": plan.id } })),
                }] },
        });
        self.subscriptions.insert(id.clone(), subscription.clone());
        self.charge_period(&id, now);
        self.emit("customer.subscription.created", subscription, now);
        self.updated(&id, now);
        id
    }

    /// Makes the subscription free until this time.
    fn try_out(&mut self, id: &str, until: i64, now: i64) {
        // The charge with which it began.
        self.charges.pop();
        self.invoices.pop();
        let Some(subscription) = self.subscriptions.get_mut(id) else { return };
        subscription["status"] = json!("trialing");
        subscription["trial_start"] = json!(now);
        subscription["trial_end"] = json!(until);
        subscription["items"]["data"][0]["current_period_end"] = json!(until);
        self.updated(id, now);
    }

    fn updated(&mut self, id: &str, now: i64) {
        let subscription = self.subscriptions[id].clone();
        self.emit("customer.subscription.updated", subscription, now);
    }

    fn payment_failed(&mut self, id: &str, customer: &str, metadata: Value, reason: &str, now: i64) {
        let invoice = self.id("in");
        let failed = json!({
            "id": invoice, "object": "invoice", "created": now, "customer": customer, "livemode": false,
            "status": "open", "attempt_count": 1, "billing_reason": reason, "metadata": {},
            "next_payment_attempt": now + 3 * 86_400,
            "parent": { "type": "subscription_details",
                "subscription_details": { "subscription": id, "metadata": metadata } },
        });
        self.emit("invoice.payment_failed", failed, now);
    }

    /// Changes a subscription as its customer does in the portal.
    pub fn change(&mut self, id: &str, change: &SubscriptionChange, now: i64) {
        if let SubscriptionChange::Plan(plan) = change
            && self.subscription(id).is_some_and(|known| known["status"] != "canceled")
        {
            self.change_plan(id, plan, now);
            return self.updated(id, now);
        }
        let Some(subscription) = self.subscriptions.get_mut(id).filter(|known| known["status"] != "canceled") else {
            return;
        };
        let customer = subscription["customer"].as_str().unwrap_or_default().to_owned();
        let item = &mut subscription["items"]["data"][0];
        match change {
            SubscriptionChange::Plan(_) => {}
            SubscriptionChange::FailUpgrade(plan) => {
                item["price"] = shown_plan(plan);
                subscription["status"] = json!("past_due");
                let metadata = subscription["metadata"].clone();
                self.payment_failed(id, &customer, metadata, "subscription_update", now);
            }
            // As the portal does it: a time, and the flag stays as it is.
            SubscriptionChange::Cancel => {
                let end = item["current_period_end"].clone();
                subscription["cancel_at"] = end;
                subscription["canceled_at"] = json!(now);
                subscription["cancellation_details"]["reason"] = json!("cancellation_requested");
            }
            SubscriptionChange::Keep => {
                subscription["cancel_at"] = json!(null);
                subscription["canceled_at"] = json!(null);
                subscription["cancellation_details"]["reason"] = json!(null);
            }
            SubscriptionChange::End | SubscriptionChange::EndWithPeriod => {
                subscription["cancel_at_period_end"] = json!(*change == SubscriptionChange::EndWithPeriod);
                let unpaid = subscription["status"] == "past_due";
                let reason = if unpaid { "payment_failed" } else { "cancellation_requested" };
                subscription["status"] = json!("canceled");
                subscription["ended_at"] = json!(now);
                subscription["cancellation_details"]["reason"] = json!(reason);
                let ended = subscription.clone();
                return self.emit("customer.subscription.deleted", ended, now);
            }
            SubscriptionChange::FailPayment => {
                item["current_period_start"] = json!(now);
                item["current_period_end"] = json!(now + period_of(item));
                subscription["status"] = json!("past_due");
                let metadata = subscription["metadata"].clone();
                self.payment_failed(id, &customer, metadata, "subscription_cycle", now);
            }
            SubscriptionChange::FirstPaymentOpen => subscription["status"] = json!("incomplete"),
            SubscriptionChange::FirstPaymentExpired => subscription["status"] = json!("incomplete_expired"),
            SubscriptionChange::PayAgain => {
                subscription["status"] = json!("active");
                self.charge_period(id, now);
            }
        }
        self.updated(id, now);
    }

    /// The subscription of this id.
    pub fn subscription(&self, id: &str) -> Option<&Value> {
        self.subscriptions.get(id)
    }

    /// Subscriptions of this customer, newest first.
    pub fn subscriptions(&self, customer: Option<&str>, with_ended: bool) -> Vec<&Value> {
        let fits = |known: &&Value| {
            customer.is_none_or(|customer| known["customer"] == customer)
                && (with_ended || known["status"] != "canceled")
        };
        self.subscriptions.values().rev().filter(fits).collect()
    }

    /// The charge of this id.
    pub fn charge(&self, id: &str) -> Option<&Value> {
        self.charges.iter().find(|charge| charge["id"] == id)
    }

    /// Charges of this customer and this payment, newest first.
    pub fn charges(&self, customer: Option<&str>, payment: Option<&str>) -> Vec<&Value> {
        let fits = |charge: &&Value| {
            customer.is_none_or(|customer| charge["customer"] == customer)
                && payment.is_none_or(|payment| charge["payment_intent"] == payment)
        };
        self.charges.iter().rev().filter(fits).collect()
    }

    /// Refunds of this charge and this payment, newest first.
    pub fn refunds(&self, charge: Option<&str>, payment: Option<&str>) -> Vec<&Value> {
        let fits = |refund: &&Value| {
            charge.is_none_or(|charge| refund["charge"] == charge)
                && payment.is_none_or(|payment| refund["payment_intent"] == payment)
        };
        self.refunds.iter().rev().filter(fits).collect()
    }

    /// A refund, with all of its charge if that is asked for.
    pub fn shown_refund(&self, refund: &Value, with_charge: bool) -> Value {
        let mut refund = refund.clone();
        if let Some(charge) = refund["charge"].as_str().and_then(|id| self.charge(id)).filter(|_| with_charge) {
            refund["charge"] = charge.clone();
        }
        refund
    }

    /// The bank does not take the latest refund.
    pub fn fail_refund(&mut self, now: i64) {
        let Some(refund) = self.refunds.last_mut() else { return };
        refund["status"] = json!("failed");
        let refund = refund.clone();
        if let Some(charge) = self.charges.iter_mut().find(|charge| charge["id"] == refund["charge"]) {
            let left = charge["amount_refunded"].as_i64().unwrap_or(0) - refund["amount"].as_i64().unwrap_or(0);
            charge["amount_refunded"] = json!(left);
            charge["refunded"] = json!(false);
        }
        self.emit("refund.failed", refund, now);
    }

    /// Pays back a charge, or that of a payment, all or in part.
    pub fn refund(&mut self, parameters: &Parameters, now: i64) -> Result<Value, ApiRefusal> {
        const REASONS: [&str; 3] = ["duplicate", "fraudulent", "requested_by_customer"];
        let (field, wanted) = match (parameters.get("charge"), parameters.get("payment_intent")) {
            (Some(charge), None) => ("id", charge),
            (None, Some(payment)) => ("payment_intent", payment),
            _ => return Err(ApiRefusal::of("parameter_missing", "charge")),
        };
        if parameters.get("reason").is_some_and(|reason| !REASONS.contains(&reason.as_str())) {
            return Err(ApiRefusal::of("parameter_invalid", "reason"));
        }
        let missing = ApiRefusal::of("resource_missing", if field == "id" { "charge" } else { "payment_intent" });
        let id = self.id("re");
        let charge = self.charges.iter_mut().find(|charge| charge[field] == wanted.as_str()).ok_or(missing)?;
        if charge["disputed"] == true {
            return Err(ApiRefusal::of("charge_disputed", "charge"));
        }
        let (amount, refunded) =
            (charge["amount"].as_i64().unwrap_or(0), charge["amount_refunded"].as_i64().unwrap_or(0));
        let left = amount - refunded;
        if left == 0 {
            return Err(ApiRefusal::of("charge_already_refunded", "charge"));
        }
        let wanted = match parameters.get("amount") {
            Some(amount) => amount.parse().ok().filter(|amount| *amount > 0),
            None => Some(left),
        };
        let wanted: i64 = wanted.ok_or(ApiRefusal::of("parameter_invalid_integer", "amount"))?;
        if wanted > left {
            return Err(ApiRefusal::of("amount_too_large", "amount"));
        }
        charge["amount_refunded"] = json!(refunded + wanted);
        charge["refunded"] = json!(wanted == left);
        let refund = json!({
            "id": id, "object": "refund", "amount": wanted, "charge": charge["id"], "created": now, "currency": "usd",
            "metadata": nested(parameters, "metadata"), "payment_intent": charge["payment_intent"],
            "reason": parameters.get("reason"), "receipt_number": null, "status": "succeeded",
        });
        self.refunds.push(refund.clone());
        self.emit("refund.created", refund.clone(), now);
        Ok(refund)
    }
}

fn shown_session(mut session: Value) -> Value {
    session.as_object_mut().map(|fields| fields.remove("simulated"));
    session
}
