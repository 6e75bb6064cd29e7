//! Reads the payment provider's objects (Stripe's API, in its current and its older shapes), leniently: only the fields
//! that are needed, wherever a version has them, and unknown words are not an error.

use chrono::TimeDelta;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::{
    money::{payment_event_kind::PaymentEventKind, plan::TierPrices, tier::SubscriptionStatus},
    time::Timestamp,
    words::words,
};

/// Longest id of the provider, characters.
const MAX_ID: usize = 255;
/// First and longest pause before a parked event is tried again.
const FIRST_RETRY: TimeDelta = TimeDelta::seconds(30);
const LONGEST_RETRY: TimeDelta = TimeDelta::hours(6);

/// An event that the provider sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentEvent {
    pub id: String,
    /// The provider's word.
    pub kind: String,
    /// True if it is about real money.
    pub livemode: Option<bool>,
    pub effect: EventEffect,
}

/// Consequence of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventEffect {
    /// The subscription has changed: its current state must be fetched, because events come in any order.
    Fetch(SubscriptionRef),
    /// The subscription has ended: the last word about it.
    Ended(Box<ProviderSubscription>),
    /// An admin has to look at a charge.
    Report(ChargeReport),
    /// Nothing; why.
    Nothing(&'static str),
}

/// A charge at which an admin has to look, at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeReport {
    pub kind: ReportKind,
    pub charge: Option<String>,
}

words! {
    /// Reason for which an admin has to look at a charge.
    pub enum ReportKind {
        /// The payer wants the money back from their bank; it is to be answered in time.
        DisputeOpened = "dispute_opened",
        /// The bank gave the money back.
        DisputeLost = "dispute_lost",
        /// Won, or withdrawn.
        DisputeClosed = "dispute_closed",
        /// The bank did not take the money back.
        RefundFailed = "refund_failed",
    }
}

/// Which subscription, and whose it may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionRef {
    pub id: String,
    pub customer: Option<String>,
    /// Our own id, as checkout gave it to the provider.
    pub user: Option<String>,
}

/// A subscription as the provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSubscription {
    pub id: String,
    pub customer: String,
    /// Our own id, as checkout gave it to the provider.
    pub user: Option<String>,
    /// The provider's word.
    pub status: String,
    pub prices: Vec<String>,
    /// Start of the current period, of the item whose period ends first.
    pub period_start: Option<Timestamp>,
    /// End of that period; the time of the end if it ended earlier.
    pub period_end: Option<Timestamp>,
    /// True if it is to end, now or at the end of the period.
    pub cancel_at_period_end: bool,
    /// True if it ended because it was not paid.
    pub lapsed: bool,
    pub created: Option<Timestamp>,
}

/// Fault of an event that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableEvent {
    NotJson,
    /// This field is missing or of another form.
    Field(&'static str),
}

words! {
    /// Reason for which an event waits.
    pub enum ParkReason {
        /// The provider did not answer, or refused to.
        ProviderUnavailable = "provider_unavailable",
        /// The provider does not know the subscription.
        UnknownSubscription = "unknown_subscription",
        /// Stored, but without a tier.
        UnknownPrice = "unknown_price",
        UnknownCustomer = "unknown_customer",
        /// Checkout named a user who does not (or no longer) exist.
        UnknownUser = "unknown_user",
        /// The subscription kept changing meanwhile.
        Contended = "contended",
    }
}

/// Time of the next try of a parked event, after this many attempts.
pub fn retry_at(attempts: i32, now: Timestamp) -> Timestamp {
    let doubled = FIRST_RETRY * 2_i32.pow(attempts.clamp(0, 12).unsigned_abs());
    now + doubled.min(LONGEST_RETRY)
}

words! {
    /// Result of taking an event.
    pub enum EventResult {
        Applied = "applied",
        Ignored = "ignored",
        /// Taken before: nothing changed.
        Duplicate = "duplicate",
        /// Waits for what it is about.
        Parked = "parked",
    }
}

impl PaymentEvent {
    /// Reads the body of a webhook, whose signature was checked.
    pub fn read(body: &[u8]) -> Result<Self, UnreadableEvent> {
        let event: Value = serde_json::from_slice(body).map_err(|_| UnreadableEvent::NotJson)?;
        let id = id_at(&event, "/id").ok_or(UnreadableEvent::Field("id"))?;
        let kind = event["type"]
            .as_str()
            .filter(|kind| (1..=MAX_ID).contains(&kind.len()) && !kind.chars().any(char::is_control));
        let kind = kind.ok_or(UnreadableEvent::Field("type"))?.to_owned();
        let effect = effect(&kind, &event["data"]["object"])?;
        Ok(Self { id, kind, livemode: event["livemode"].as_bool(), effect })
    }
}

fn effect(kind: &str, object: &Value) -> Result<EventEffect, UnreadableEvent> {
    use PaymentEventKind::*;
    const NO_SUBSCRIPTION: EventEffect = EventEffect::Nothing("about no subscription");
    let missing = UnreadableEvent::Field("data.object");
    Ok(match PaymentEventKind::of_provider(kind) {
        CheckoutCompleted => match id_at(object, "/subscription") {
            Some(id) if object["mode"] == "subscription" => EventEffect::Fetch(SubscriptionRef {
                id,
                customer: id_at(object, "/customer"),
                user: text_at(object, "/client_reference_id").or_else(|| text_at(object, "/metadata/userId")),
            }),
            _ => NO_SUBSCRIPTION,
        },
        SubscriptionUpdated => {
            let ProviderSubscription { id, customer, user, .. } = ProviderSubscription::read(object).ok_or(missing)?;
            EventEffect::Fetch(SubscriptionRef { id, customer: Some(customer), user })
        }
        SubscriptionDeleted => {
            let mut ended = object.clone();
            if let Some(status) = ended.get_mut("status") {
                *status = "canceled".into();
            }
            EventEffect::Ended(ProviderSubscription::read(&ended).ok_or(missing)?.into())
        }
        PaymentFailed => {
            let details = "/parent/subscription_details";
            let id = id_at(object, &format!("{details}/subscription")).or_else(|| id_at(object, "/subscription"));
            let user = text_at(object, &format!("{details}/metadata/userId"));
            match id {
                Some(id) => EventEffect::Fetch(SubscriptionRef { id, customer: id_at(object, "/customer"), user }),
                None => NO_SUBSCRIPTION,
            }
        }
        DisputeCreated => reported(ReportKind::DisputeOpened, object),
        DisputeClosed if object["status"] == "lost" => reported(ReportKind::DisputeLost, object),
        DisputeClosed => reported(ReportKind::DisputeClosed, object),
        RefundFailed => reported(ReportKind::RefundFailed, object),
        TrialWillEnd => EventEffect::Nothing("logged only"),
        Other => EventEffect::Nothing("of an unknown type"),
    })
}

/// The outcome of ending a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionEnding {
    /// At the provider and here.
    Ended,
    /// Nothing was left to do, or only to store.
    AlreadyEnded,
    /// The provider does not know it, and it was ended here.
    Unknown,
}

fn reported(kind: ReportKind, object: &Value) -> EventEffect {
    EventEffect::Report(ChargeReport { kind, charge: id_at(object, "/charge") })
}

impl ProviderSubscription {
    /// True if it goes on at the provider.
    pub fn is_running(&self) -> bool {
        SubscriptionStatus::of_provider(&self.status).is_running()
    }

    /// True if it was sold here: by what checkout noted on it, or by its price. The account may sell other things.
    pub fn is_ours(&self, prices: &TierPrices) -> bool {
        self.user.is_some() || prices.plan_of(&self.prices).is_some()
    }

    /// `None` without an id, a customer or a status.
    pub fn read(object: &Value) -> Option<Self> {
        let items: &[Value] = object["items"]["data"].as_array().map_or(&[], Vec::as_slice);
        let status = text_at(object, "/status")?;
        let price = |item: &Value| id_at(item, "/price").or_else(|| id_at(item, "/plan"));
        let mut prices: Vec<String> = items.iter().filter_map(price).collect();
        if prices.is_empty() {
            prices.extend(id_at(object, "/plan"));
        }
        // On the items since 2025-03-31, on the subscription before.
        let period = |of: &Value| Some((time_at(of, "/current_period_end")?, time_at(of, "/current_period_start")));
        let period = items.iter().filter_map(period).min().or_else(|| period(object));
        let (start, end) = (period.and_then(|(_, start)| start), period.map(|(end, _)| end));
        let has_ended = matches!(status.as_str(), "canceled" | "incomplete_expired");
        // The flag of one that has ended says that it ended with its period.
        let ended_at_once = has_ended && object["cancel_at_period_end"] != true;
        let ended_at = || time_at(object, "/ended_at").or_else(|| time_at(object, "/canceled_at")).or(start);
        let paid_until = |end: Timestamp| if ended_at_once { end.min(ended_at().unwrap_or_default()) } else { end };
        // The portal sets a time where the API sets the flag; undoing it resets both.
        let is_to_end = object["cancel_at_period_end"] == true || !object["cancel_at"].is_null();
        let reason = object["cancellation_details"]["reason"].as_str();
        Some(Self {
            id: id_at(object, "/id")?,
            customer: id_at(object, "/customer")?,
            user: text_at(object, "/metadata/userId"),
            prices,
            period_start: start,
            period_end: end.map(paid_until),
            cancel_at_period_end: is_to_end && !has_ended,
            lapsed: status == "incomplete_expired"
                || status == "canceled" && matches!(reason, Some("payment_failed" | "payment_disputed")),
            created: time_at(object, "/created"),
            status,
        })
    }
}

/// An id; an expanded object is represented by its own id. It becomes part of a path.
pub fn id_at(value: &Value, pointer: &str) -> Option<String> {
    let found = value.pointer(pointer)?;
    let id = found.as_str().or_else(|| found["id"].as_str())?;
    let is_id = (1..=MAX_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    is_id.then(|| id.to_owned())
}

fn text_at(value: &Value, pointer: &str) -> Option<String> {
    let text = value.pointer(pointer)?.as_str()?;
    let is_short = (1..=MAX_ID).contains(&text.len()) && !text.chars().any(char::is_control);
    is_short.then(|| text.to_owned())
}

fn time_at(value: &Value, pointer: &str) -> Option<Timestamp> {
    Timestamp::from_timestamp(value.pointer(pointer)?.as_i64()?, 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::money::plan::PriceList;

    fn at(seconds: i64) -> Option<Timestamp> {
        Timestamp::from_timestamp(seconds, 0)
    }

    fn event(kind: &str, object: Value) -> Result<PaymentEvent, UnreadableEvent> {
        let event =
            json!({ "id": "evt_1", "object": "event", "type": kind, "livemode": false, "data": { "object": object } });
        PaymentEvent::read(event.to_string().as_bytes())
    }

    fn fetches(id: &str, customer: Option<&str>, user: Option<&str>) -> EventEffect {
        let [customer, user] = [customer, user].map(|text| text.map(str::to_owned));
        EventEffect::Fetch(SubscriptionRef { id: id.into(), customer, user })
    }

    #[test]
    fn a_subscription_is_read_in_its_current_and_its_older_shape() {
        let current = json!({
            "id": "sub_1", "customer": { "id": "cus_1", "object": "customer" }, "status": "active", "created": 5,
            "metadata": { "userId": "u" }, "cancel_at_period_end": false, "cancel_at": 30,
            "items": { "data": [
                { "price": { "id": "price_a" }, "current_period_start": 20, "current_period_end": 40 },
                { "price": { "id": "price_b" }, "current_period_start": 10, "current_period_end": 30 },
            ] },
        });
        let older = json!({
            "id": "sub_1", "customer": "cus_1", "status": "active", "created": 5, "metadata": { "userId": "u" },
            "cancel_at_period_end": true, "current_period_start": 10, "current_period_end": 30,
            "items": { "data": [{ "plan": { "id": "price_a" } }, { "plan": { "id": "price_b" } }] },
        });
        let expected = ProviderSubscription {
            id: "sub_1".into(),
            customer: "cus_1".into(),
            user: Some("u".into()),
            status: "active".into(),
            prices: vec!["price_a".into(), "price_b".into()],
            period_start: at(10),
            period_end: at(30),
            cancel_at_period_end: true,
            lapsed: false,
            created: at(5),
        };
        assert_eq!(ProviderSubscription::read(&current), Some(expected.clone()));
        assert_eq!(ProviderSubscription::read(&older), Some(expected));
        for needed in ["id", "customer", "status"] {
            let mut without = older.clone();
            without[needed] = json!(null);
            assert_eq!(ProviderSubscription::read(&without), None, "{needed}");
        }
    }

    #[test]
    fn what_was_sold_here_carries_our_user_or_price() {
        let prices = TierPrices { monthly: ["a", "b", "c"].map(PriceList::of), yearly: [const { None }; 3] };
        let read = |status: &str, price: &str, user: Value| {
            let subscription = json!({
                "id": "sub_1", "customer": "cus_1", "status": status, "metadata": { "userId": user },
                "items": { "data": [{ "price": { "id": price } }] },
            });
            ProviderSubscription::read(&subscription).unwrap()
        };
        let is_ours = |price: &str, user: Value| read("active", price, user).is_ours(&prices);
        assert!(is_ours("b", json!(null)) && is_ours("x", json!("u")) && !is_ours("x", json!(null)));
        let running = ["active", "past_due", "incomplete", "canceled", "incomplete_expired"]
            .map(|status| read(status, "a", json!(null)).is_running());
        assert_eq!(running, [true, true, true, false, false]);
    }

    #[test]
    fn a_cancelled_subscription_is_not_about_to_end_and_may_have_lapsed() {
        let ended = |reason: &str| {
            ProviderSubscription::read(&json!({
                "id": "sub_1", "customer": "cus_1", "status": "canceled", "cancel_at": 30,
                "cancellation_details": { "reason": reason },
            }))
            .map(|ended| (ended.cancel_at_period_end, ended.lapsed))
        };
        assert_eq!(ended("cancellation_requested"), Some((false, false)));
        assert_eq!([ended("payment_failed"), ended("payment_disputed")], [Some((false, true)); 2]);
    }

    #[test]
    fn the_period_of_what_ended_at_once_ends_with_it() {
        let end = |status: &str, flag: bool, ended_at: Value| {
            let ended = json!({
                "id": "sub_1", "customer": "cus_1", "status": status, "cancel_at_period_end": flag, "ended_at": ended_at,
                "cancel_at": 30, "current_period_start": 10, "current_period_end": 30,
            });
            ProviderSubscription::read(&ended).unwrap().period_end
        };
        assert_eq!(end("canceled", false, json!(20)), at(20));
        assert_eq!(end("canceled", false, json!(31)), at(30));
        assert_eq!(end("canceled", false, json!(null)), at(10), "nothing is left of it, whenever that was");
        assert_eq!(end("canceled", true, json!(20)), at(30));
        assert_eq!(end("active", false, json!(null)), at(30));
    }

    #[test]
    fn each_type_of_event_asks_for_its_effect() {
        let session = json!({
            "mode": "subscription", "subscription": "sub_1", "customer": "cus_1", "client_reference_id": "u",
        });
        let effect = |kind: &str, object: Value| event(kind, object).unwrap().effect;
        assert_eq!(effect("checkout.session.completed", session), fetches("sub_1", Some("cus_1"), Some("u")));
        let other = json!({ "mode": "payment", "subscription": null });
        assert!(matches!(effect("checkout.session.completed", other), EventEffect::Nothing(_)));

        let subscription = json!({ "id": "sub_1", "customer": "cus_1", "status": "past_due" });
        let updated = effect("customer.subscription.updated", subscription.clone());
        assert_eq!(updated, fetches("sub_1", Some("cus_1"), None));
        let EventEffect::Ended(ended) = effect("customer.subscription.deleted", subscription) else {
            panic!("it ended")
        };
        assert_eq!((ended.id.as_str(), ended.status.as_str()), ("sub_1", "canceled"));

        let current = json!({ "customer": "cus_1",
            "parent": { "subscription_details": { "subscription": "sub_1", "metadata": { "userId": "u" } } } });
        assert_eq!(effect("invoice.payment_failed", current), fetches("sub_1", Some("cus_1"), Some("u")));
        let older = json!({ "customer": "cus_1", "subscription": "sub_1" });
        assert_eq!(effect("invoice.payment_failed", older), fetches("sub_1", Some("cus_1"), None));
        for (event, status, kind) in [
            ("charge.dispute.created", "needs_response", ReportKind::DisputeOpened),
            ("charge.dispute.closed", "lost", ReportKind::DisputeLost),
            ("charge.dispute.closed", "won", ReportKind::DisputeClosed),
            ("refund.failed", "failed", ReportKind::RefundFailed),
        ] {
            let report = EventEffect::Report(ChargeReport { kind, charge: Some("ch_1".into()) });
            assert_eq!(effect(event, json!({ "status": status, "charge": "ch_1" })), report, "{event} {status}");
        }
        for (kind, object) in [
            ("invoice.payment_failed", json!({ "customer": "cus_1" })),
            ("customer.subscription.trial_will_end", json!({})),
            ("charge.refunded", json!(null)),
        ] {
            assert!(matches!(effect(kind, object), EventEffect::Nothing(_)), "{kind}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert_eq!(PaymentEvent::read(b"<html>"), Err(UnreadableEvent::NotJson));
        assert_eq!(PaymentEvent::read(b"[]"), Err(UnreadableEvent::Field("id")));
        assert_eq!(PaymentEvent::read(br#"{"id":"../x","type":"a"}"#), Err(UnreadableEvent::Field("id")));
        assert_eq!(PaymentEvent::read(br#"{"id":"evt_1"}"#), Err(UnreadableEvent::Field("type")));
        let without = event("customer.subscription.updated", json!({ "id": "sub_1" }));
        assert_eq!(without, Err(UnreadableEvent::Field("data.object")));
    }

    #[test]
    fn pauses_grow_to_six_hours() {
        let now = at(0).unwrap();
        let pauses = [0, 1, 2, 9, 10, 99].map(|attempts| (retry_at(attempts, now) - now).num_seconds());
        assert_eq!(pauses, [30, 60, 120, 15_360, 21_600, 21_600]);
    }
}
