//! What the provider knows: every object as its API shows it, and what happens to them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Map, Value, json};

use super::change::SubscriptionChange;

/// The latest events and answers that are remembered.
const REMEMBERED: usize = 10_000;
const PERIOD: i64 = 30 * 24 * 60 * 60;
const VERSION: &str = "2026-10-28.endive";
/// Before the period moved to the items.
const OLDER_VERSION: &str = "2024-06-20";

/// Something to subscribe to.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedPrice {
    pub id: &'static str,
    pub name: &'static str,
    /// Cents a month.
    pub amount: i64,
}

/// The prices that there are.
pub const PRICES: [SimulatedPrice; 3] = [
    SimulatedPrice { id: "price_scout", name: "SCOUT", amount: 300 },
    SimulatedPrice { id: "price_operator", name: "OPERATOR", amount: 700 },
    SimulatedPrice { id: "price_overlord", name: "OVERLORD", amount: 1_500 },
];

pub fn price(id: &str) -> Option<&'static SimulatedPrice> {
    PRICES.iter().find(|price| price.id == id)
}

/// Why something is not done, in the words of the API.
#[derive(Debug)]
pub struct ApiRefusal {
    pub status: u16,
    pub code: &'static str,
    pub param: Option<&'static str>,
}

impl ApiRefusal {
    pub fn of(code: &'static str, param: &'static str) -> Self {
        Self { status: 400, code, param: Some(param) }
    }

    pub fn unknown() -> Self {
        Self { status: 404, code: "resource_missing", param: Some("id") }
    }
}

/// Parameters of a request.
pub type Parameters = BTreeMap<String, String>;

/// A kept answer: of which request, and its status and body.
type KeptAnswer = (String, u16, Value);

/// See the module.
#[derive(Default)]
pub struct Books {
    /// Part of every id, so that a restart makes others.
    run: String,
    made: u64,
    customers: BTreeMap<String, Value>,
    sessions: BTreeMap<String, Value>,
    /// The customer and the way back of each portal session.
    portals: BTreeMap<String, (String, String)>,
    subscriptions: BTreeMap<String, Value>,
    charges: Vec<Value>,
    refunds: Vec<Value>,
    events: VecDeque<Value>,
    /// Events that were not looked at yet.
    news: usize,
    answers: HashMap<String, KeptAnswer>,
    pub asked: u64,
}

impl Books {
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

    pub fn events(&self, older_shape: bool) -> Vec<Value> {
        self.events.iter().map(|event| shaped(event, older_shape)).collect()
    }

    /// The answer that was given to this key, or a refusal when it was given to another request.
    pub fn kept(&self, key: &str, request: &str) -> Option<Result<(u16, Value), ApiRefusal>> {
        let (of, status, body) = self.answers.get(key)?;
        Some(if of == request {
            Ok((*status, body.clone()))
        } else {
            Err(ApiRefusal { status: 400, code: "idempotency_error", param: None })
        })
    }

    pub fn keep(&mut self, key: String, request: String, status: u16, body: Value) {
        if self.answers.len() >= REMEMBERED {
            self.answers.clear();
        }
        self.answers.insert(key, (request, status, body));
    }

    pub fn create_customer(&mut self, parameters: &Parameters, now: i64) -> Value {
        let id = self.id("cus");
        let customer = json!({
            "id": id, "object": "customer", "created": now, "livemode": false, "email": null,
            "name": parameters.get("name"), "metadata": nested(parameters, "metadata"),
        });
        self.customers.insert(id, customer.clone());
        customer
    }

    pub fn forget_customer(&mut self, id: &str) {
        self.customers.remove(id);
    }

    fn known_customer<'a>(&self, parameters: &'a Parameters) -> Result<&'a str, ApiRefusal> {
        let customer = parameters.get("customer").ok_or(ApiRefusal::of("parameter_missing", "customer"))?;
        self.customers
            .contains_key(customer)
            .then_some(customer.as_str())
            .ok_or(ApiRefusal::of("resource_missing", "customer"))
    }

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
            "simulated": { "price": price.id, "metadata": nested(parameters, "subscription_data[metadata]") },
        });
        self.sessions.insert(id, session.clone());
        Ok(shown_session(session))
    }

    pub fn session(&self, id: &str) -> Option<&Value> {
        self.sessions.get(id)
    }

    /// How many checkouts are open.
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
                    "current_period_end": now + PERIOD,
                }] },
        });
        self.subscriptions.insert(id.clone(), subscription.clone());
        self.take_charge(customer, plan.amount, now);
        self.emit("customer.subscription.created", subscription, now);
        self.updated(&id, now);
        id
    }

    fn take_charge(&mut self, customer: &str, amount: i64, now: i64) {
        let (id, payment) = (self.id("ch"), self.id("pi"));
        self.charges.push(json!({
            "id": id, "object": "charge", "amount": amount, "amount_refunded": 0, "currency": "usd", "created": now,
            "customer": customer, "livemode": false, "paid": true, "payment_intent": payment, "refunded": false,
            "status": "succeeded", "metadata": {},
        }));
    }

    fn updated(&mut self, id: &str, now: i64) {
        let subscription = self.subscriptions[id].clone();
        self.emit("customer.subscription.updated", subscription, now);
    }

    pub fn change(&mut self, id: &str, change: &SubscriptionChange, now: i64) {
        let Some(subscription) = self.subscriptions.get_mut(id).filter(|known| known["status"] != "canceled") else {
            return;
        };
        let customer = subscription["customer"].as_str().unwrap_or_default().to_owned();
        let item = &mut subscription["items"]["data"][0];
        match change {
            SubscriptionChange::Plan(plan) => {
                item["price"] = price(plan).map_or_else(|| json!({ "id": plan, "object": "price" }), shown_price);
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
            SubscriptionChange::End => {
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
                item["current_period_end"] = json!(now + PERIOD);
                subscription["status"] = json!("past_due");
                let metadata = subscription["metadata"].clone();
                let invoice = self.id("in");
                let failed = json!({
                    "id": invoice, "object": "invoice", "created": now, "customer": customer, "livemode": false,
                    "status": "open", "attempt_count": 1, "billing_reason": "subscription_cycle", "metadata": {},
                    "next_payment_attempt": now + 3 * 86_400,
                    "parent": { "type": "subscription_details",
                        "subscription_details": { "subscription": id, "metadata": metadata } },
                });
                self.emit("invoice.payment_failed", failed, now);
            }
            SubscriptionChange::PayAgain => {
                subscription["status"] = json!("active");
                let amount = subscription["items"]["data"][0]["price"]["unit_amount"].as_i64().unwrap_or(0);
                self.take_charge(&customer, amount, now);
            }
        }
        self.updated(id, now);
    }

    pub fn subscription(&self, id: &str) -> Option<&Value> {
        self.subscriptions.get(id)
    }

    /// Of this customer, newest first.
    pub fn subscriptions(&self, customer: Option<&str>, with_ended: bool) -> Vec<&Value> {
        let fits = |known: &&Value| {
            customer.is_none_or(|customer| known["customer"] == customer)
                && (with_ended || known["status"] != "canceled")
        };
        self.subscriptions.values().rev().filter(fits).collect()
    }

    pub fn charge(&self, id: &str) -> Option<&Value> {
        self.charges.iter().find(|charge| charge["id"] == id)
    }

    /// Of this customer and this payment, newest first.
    pub fn charges(&self, customer: Option<&str>, payment: Option<&str>) -> Vec<&Value> {
        let fits = |charge: &&Value| {
            customer.is_none_or(|customer| charge["customer"] == customer)
                && payment.is_none_or(|payment| charge["payment_intent"] == payment)
        };
        self.charges.iter().rev().filter(fits).collect()
    }

    /// Of this charge and this payment, newest first.
    pub fn refunds(&self, charge: Option<&str>, payment: Option<&str>) -> Vec<&Value> {
        let fits = |refund: &&Value| {
            charge.is_none_or(|charge| refund["charge"] == charge)
                && payment.is_none_or(|payment| refund["payment_intent"] == payment)
        };
        self.refunds.iter().rev().filter(fits).collect()
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

    pub fn open_portal(&mut self, parameters: &Parameters, base: &str, now: i64) -> Result<Value, ApiRefusal> {
        let customer = self.known_customer(parameters)?.to_owned();
        let return_url = parameters.get("return_url").cloned().unwrap_or_default();
        let id = self.id("bps");
        let session = json!({
            "id": id, "object": "billing_portal.session", "created": now, "customer": customer, "livemode": false,
            "return_url": return_url, "url": format!("{base}/portal/{id}"),
        });
        self.portals.insert(id, (customer, return_url));
        Ok(session)
    }

    /// The customer of a portal session, and the way back.
    pub fn portal(&self, id: &str) -> Option<&(String, String)> {
        self.portals.get(id)
    }

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

pub fn shown_price(price: &SimulatedPrice) -> Value {
    json!({
        "id": price.id, "object": "price", "active": true, "billing_scheme": "per_unit", "currency": "usd",
        "livemode": false, "metadata": {}, "nickname": price.name, "product": format!("prod_{}", price.id),
        "recurring": { "interval": "month", "interval_count": 1, "usage_type": "licensed" }, "type": "recurring",
        "unit_amount": price.amount,
    })
}

fn shown_session(mut session: Value) -> Value {
    session.as_object_mut().map(|fields| fields.remove("simulated"));
    session
}

/// An event as it is, or as an older version of the API has it.
fn shaped(event: &Value, older: bool) -> Value {
    let mut event = event.clone();
    if older {
        event["api_version"] = json!(OLDER_VERSION);
        let object = &mut event["data"]["object"];
        let period = ["current_period_start", "current_period_end"];
        if object["object"] == "subscription" {
            for field in period {
                object[field] = object["items"]["data"][0][field].take();
                object["items"]["data"][0].as_object_mut().map(|item| item.remove(field));
            }
        } else if let Some(subscription) = object.pointer("/parent/subscription_details/subscription").cloned() {
            object["subscription"] = subscription;
            object.as_object_mut().map(|invoice| invoice.remove("parent"));
        }
    }
    event
}

/// The fields under a name: `metadata[userId]` is `userId` of `metadata`.
fn nested(parameters: &Parameters, name: &str) -> Value {
    let field = |(key, value): (&String, &String)| {
        let field = key.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?;
        Some((field.to_owned(), json!(value)))
    };
    Value::Object(parameters.iter().filter_map(field).collect::<Map<_, _>>())
}
