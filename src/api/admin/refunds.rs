//! Paying back: `/admin/refund`, `/admin/refunds`, `/admin/users/{id}/charges`, and the payment events that wait:
//! `/admin/payment-events`.

use std::collections::{HashMap, HashSet};

use actix_web::{HttpResponse, http::StatusCode, web};
use chrono::TimeDelta;
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        billing::billing,
        context::ApiContext,
        error::{ApiError, Problem},
        extract::{
            admin::Admin,
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::Json,
            query::Query,
        },
    },
    billing::context::BillingContext,
    clients::payments::{PaymentsError, ProviderCharge, ProviderRefund, RefundOf, RefundRequest},
    crypto::digest::sha256_hex,
    db::{
        audit::{self, AuditEntry, AuditPage},
        payment_customers,
        payment_events::{self, ParkedEvent},
        pool::Db,
        users,
    },
    domain::{
        audit::{AdminAction, Written},
        ids::{PlatformId, UserId},
        time::{self, Timestamp},
    },
};

/// Refunds of a page when no `limit` is given.
const PAGE: u8 = 20;
/// Charges of a member that are shown, the newest.
const CHARGES: u8 = 100;
/// Payment events of a page when no `limit` is given.
const EVENTS: usize = 200;
/// Entries of earlier attempts at a charge that are looked through.
const ATTEMPTS: usize = 50;
/// The provider knows a key for at least a day.
const KEY_KEPT: TimeDelta = TimeDelta::hours(23);
/// The code of a refund of which nobody knows whether it was made.
const UNANSWERED: &str = "payment_provider_unavailable";
/// The code of a refund whose key another one has used, which was made or not.
const OVERTAKEN: &str = "conflict";

/// What is paid back.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "chargeId": "ch_1", "amount": 500, "reason": "requested_by_customer" }))]
pub struct NewRefund {
    /// The provider's id of the charge. This or `paymentIntentId`.
    #[garde(inner(custom(is_provider_id)))]
    #[schema(pattern = "^[A-Za-z0-9_]{1,255}$")]
    charge_id: Option<String>,
    #[garde(inner(custom(is_provider_id)))]
    #[schema(pattern = "^[A-Za-z0-9_]{1,255}$")]
    payment_intent_id: Option<String>,
    /// Smallest unit of its currency; absent: all that is left.
    #[garde(range(min = 1))]
    #[schema(minimum = 1)]
    amount: Option<i64>,
    /// `duplicate`, `fraudulent` (which blocks the card) or `requested_by_customer`.
    #[garde(inner(custom(is_reason)))]
    #[schema(pattern = "^(duplicate|fraudulent|requested_by_customer)$")]
    reason: Option<String>,
}

fn is_provider_id(text: &str, _: &()) -> garde::Result {
    let plain =
        (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then_some(()).ok_or_else(|| garde::Error::new("must be an id of the payment provider"))
}

fn is_reason(text: &str, _: &()) -> garde::Result {
    let known = ["duplicate", "fraudulent", "requested_by_customer"].contains(&text);
    known.then_some(()).ok_or_else(|| garde::Error::new("must be duplicate, fraudulent or requested_by_customer"))
}

/// How many.
#[derive(Deserialize, IntoParams, Validate)]
pub struct RefundQuery {
    /// At most so many; 20 if absent.
    #[garde(range(min = 1, max = 100))]
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
}

/// Which events.
#[derive(Deserialize, IntoParams, Validate)]
pub struct PaymentEventQuery {
    /// `parked`, which is what there is to see.
    #[garde(custom(is_parked))]
    #[param(pattern = "^parked$")]
    state: Option<String>,
    /// At most so many; 200 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

fn is_parked(state: &Option<String>, _: &()) -> garde::Result {
    let known = state.as_deref().is_none_or(|state| state == "parked");
    known.then_some(()).ok_or_else(|| garde::Error::new("must be parked"))
}

/// A refund.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RefundView {
    id: String,
    /// Smallest unit of the currency.
    amount: i64,
    /// Lower-case ISO code.
    currency: String,
    /// The provider's word, for example `succeeded` or `pending`.
    status: String,
    charge_id: Option<String>,
    payment_intent_id: Option<String>,
    /// Platform id of the admin; null: it was issued at the provider.
    issued_by: Option<String>,
    #[schema(format = DateTime)]
    issued_at: Option<String>,
}

impl From<ProviderRefund> for RefundView {
    fn from(refund: ProviderRefund) -> Self {
        let ProviderRefund { id, amount, currency, status, charge, payment_intent, issued_by, issued_at, .. } = refund;
        Self {
            id,
            amount,
            currency,
            status,
            charge_id: charge,
            payment_intent_id: payment_intent,
            issued_by,
            issued_at,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct RefundList {
    /// The newest first.
    refunds: Vec<RefundView>,
}

/// What a member has paid.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ChargeView {
    id: String,
    /// Smallest unit of the currency.
    amount: i64,
    amount_refunded: i64,
    currency: String,
    /// The provider's word: `succeeded`, `pending` or `failed`.
    status: String,
    payment_intent_id: Option<String>,
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    created_at: Option<Timestamp>,
}

impl From<ProviderCharge> for ChargeView {
    fn from(charge: ProviderCharge) -> Self {
        let ProviderCharge { id, amount, amount_refunded, currency, status, payment_intent, created } = charge;
        Self { id, amount, amount_refunded, currency, status, payment_intent_id: payment_intent, created_at: created }
    }
}

#[derive(Serialize, ToSchema)]
struct ChargeList {
    /// The newest first, at most 100.
    charges: Vec<ChargeView>,
}

/// An event of the payment provider that waits, because something about it is unknown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PaymentEventView {
    id: String,
    /// The provider's word, for example `customer.subscription.updated`.
    kind: String,
    state: &'static str,
    reason: Option<String>,
    subscription_id: Option<String>,
    customer_id: Option<String>,
    /// The user whom checkout named.
    user_id: Option<String>,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    received_at: Timestamp,
    /// How often it was tried again.
    attempts: i32,
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt_at: Option<Timestamp>,
}

impl From<ParkedEvent> for PaymentEventView {
    fn from(event: ParkedEvent) -> Self {
        let ParkedEvent { id, kind, subscription_id, customer_id, user_hint, reason, received_at, .. } = event;
        let (attempts, next_attempt_at) = (event.attempts, event.next_attempt_at);
        let (state, user_id) = ("parked", user_hint);
        Self { id, kind, state, reason, subscription_id, customer_id, user_id, received_at, attempts, next_attempt_at }
    }
}

#[derive(Serialize, ToSchema)]
struct PaymentEventList {
    total: usize,
    /// The oldest first.
    events: Vec<PaymentEventView>,
}

fn refused(error: PaymentsError) -> ApiError {
    match error {
        PaymentsError::Unknown { .. } => ApiError::UnknownCharge,
        PaymentsError::Refused { code, .. } if code == "charge_already_refunded" => ApiError::AlreadyRefunded,
        PaymentsError::Refused { code, .. } if code.starts_with("idempotency") => ApiError::Conflict,
        PaymentsError::Client(_) => ApiError::PaymentsUnavailable(error.into()),
        PaymentsError::Refused { .. } => ApiError::PaymentsRefused(error.into()),
    }
}

/// Pays a charge back, or a part of it. It does not change the tier; an event of the provider may. After
/// `payment_provider_unavailable` nobody knows whether it was made; asked for again within 23 hours, it is made at most once.
/// The same again after an answer pays back again, unless it comes with the same `Idempotency-Key`.
#[utoipa::path(post, path = "/admin/refund", tag = "admin", security(("session" = [])), request_body = NewRefund,
    responses(
    (status = 201, body = RefundView),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`not_admin`"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_charge`"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`already_refunded`; `conflict`: the same was asked for at the same time, or so long ago that the provider may have forgotten it; look at what became of it"),
    (status = 502, body = Problem, content_type = "application/problem+json",
        description = "`payment_provider_refused`"),
    (status = 503, body = Problem, content_type = "application/problem+json",
        description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn refund(
    admin: Admin,
    once: Idempotent,
    Json(new): Json<NewRefund>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let billing = billing(&context)?.clone();
    let caller = admin.platform_id.clone();
    let plan = async |key: Option<&str>| plan(&context, &billing, &caller, new, key).await;
    let (billing, by) = (billing.clone(), admin.clone());
    let call = move |plan: RefundPlan| async move {
        let (target, asked) = (plan.charge_id.clone(), json!(plan));
        let call = async move {
            let RefundPlan { charge_id, amount, reason, issued_by, issued_at, idempotency_key, .. } = &plan;
            let request = RefundRequest {
                of: RefundOf::Charge(charge_id),
                amount: Some(*amount),
                reason: reason.as_deref(),
                issued_by,
                issued_at,
                idempotency_key,
            };
            let refund = billing.client.refund(&request).await.map_err(|error| match error {
                PaymentsError::Client(_) => ApiError::RefundUnanswered(error.into()),
                error => refused(error),
            })?;
            let told = serde_json::to_value(RefundView::from(refund.clone())).unwrap_or_default();
            Ok(Written::new(RefundView::from(refund), (), told))
        };
        let refund = by.effect(AdminAction::Refund, &target, asked, call).await?;
        Ok(ReplayableAnswer::new(StatusCode::CREATED, &refund))
    };
    once.effect(KeyCaller::Admin(admin.platform_id), plan, call).await
}

/// What the provider is asked for, all of which it compares with what came with the same key before. The audit log has it,
/// too.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RefundPlan {
    charge_id: String,
    payment_intent_id: Option<String>,
    amount: i64,
    currency: String,
    reason: Option<String>,
    /// Platform id of the admin.
    issued_by: String,
    /// RFC 3339.
    issued_at: String,
    idempotency_key: String,
}

/// `key` is that of the request.
async fn plan(
    context: &ApiContext,
    billing: &BillingContext,
    admin: &PlatformId,
    new: NewRefund,
    key: Option<&str>,
) -> Result<RefundPlan, ApiError> {
    let NewRefund { charge_id, payment_intent_id, amount, reason } = new;
    let of = match (&charge_id, &payment_intent_id) {
        (Some(charge), None) => RefundOf::Charge(charge),
        (None, Some(payment)) => RefundOf::PaymentIntent(payment),
        _ => return Err(ApiError::invalid("chargeId", "or `paymentIntentId` is required, one of the two")),
    };
    // Read before the charge: a refund that a click at the same time makes in between gives this one no other key.
    let latest = match key {
        Some(_) => None,
        None => billing.client.latest_refund(of).await.map_err(refused)?,
    };
    let charge = billing.client.charge(of).await.map_err(refused)?;
    let left = charge.amount - charge.amount_refunded;
    if left <= 0 {
        return Err(ApiError::AlreadyRefunded);
    }
    if amount.is_some_and(|amount| amount > left) {
        return Err(ApiError::invalid("amount", format!("is more than the {left} that are left")));
    }
    // What was asked for is the same for a repetition, and for nothing else.
    let amount = amount.unwrap_or(left);
    // An attempt of which nobody knows the end comes before the key of this request: the money goes back at most once.
    let attempt = open_attempt(context, &charge.id, amount, reason.as_deref()).await?;
    if attempt.as_ref().is_some_and(|attempt| !attempt.is_known_to_provider(context.clock.now())) {
        return Err(ApiError::Conflict);
    }
    let attempt = match attempt {
        Some(attempt) => attempt,
        None => RefundAttempt {
            key: match key {
                Some(key) => format!("refund:{key}"),
                // A second click at the same time finds the same latest refund and makes the same key. After a refund
                // there is another latest one, also when it came to nothing: the same can be asked for again.
                None => sha256_hex(format!("{}:{latest:?}:{amount}:{reason:?}", charge.id).as_bytes()),
            },
            issued_by: admin.to_string(),
            issued_at: time::to_wire(context.clock.now()),
        },
    };
    let RefundAttempt { key: idempotency_key, issued_by, issued_at } = attempt;
    let ProviderCharge { id: charge_id, payment_intent: payment_intent_id, currency, .. } = charge;
    Ok(RefundPlan { charge_id, payment_intent_id, amount, currency, reason, issued_by, issued_at, idempotency_key })
}

/// A refund that was asked for.
struct RefundAttempt {
    key: String,
    issued_by: String,
    issued_at: String,
}

impl RefundAttempt {
    /// Whether the provider still knows its key, which it counts from the first time that it was sent: a repetition may be
    /// younger than the key. One that it has forgotten would pay once more.
    fn is_known_to_provider(&self, now: Timestamp) -> bool {
        self.issued_at.parse::<Timestamp>().is_ok_and(|first| now - first < KEY_KEPT)
    }
}

/// The last attempt at this refund, by whomever, if nobody knows what became of it: it goes on, or the provider did not
/// answer. Asking with its key, which may be too old for that, makes the refund at most once. One that nobody has repeated
/// for as long as a key is known is over: the same again is another refund.
async fn open_attempt(
    context: &ApiContext,
    charge: &str,
    amount: i64,
    reason: Option<&str>,
) -> Result<Option<RefundAttempt>, ApiError> {
    let page = AuditPage {
        action: Some(AdminAction::Refund.as_str().to_owned()),
        target: Some(charge.to_owned()),
        since: Some(context.clock.now() - KEY_KEPT),
        limit: ATTEMPTS,
        ..Default::default()
    };
    let (_, entries) = context.pool.read(move |db| audit::list(db, &page)).await?;
    Ok(unanswered_attempt(entries, amount, reason))
}

/// The same of these entries, the newest first. An attempt that another one overtook has neither made the refund nor says
/// what became of its key.
fn unanswered_attempt(entries: Vec<AuditEntry>, amount: i64, reason: Option<&str>) -> Option<RefundAttempt> {
    let (mut over, mut settled_keys, mut unsettled) = (HashMap::new(), HashSet::new(), Vec::new());
    for AuditEntry { id, actor, payload, .. } in entries {
        let mut payload: Value = serde_json::from_str(&payload).unwrap_or_default();
        // What became of an attempt comes before it.
        if let Some(begun) = payload["begun"].as_str().map(str::to_owned) {
            over.insert(begun, payload["after"]["error"].take());
            continue;
        }
        let asked = &payload["asked"];
        let Some(key) = asked["idempotencyKey"].as_str().map(str::to_owned) else { continue };
        match over.remove(&id.to_string()) {
            Some(error) if error == OVERTAKEN => {}
            Some(error) if error != UNANSWERED => {
                settled_keys.insert(key);
            }
            _ if asked["amount"] == amount && asked["reason"].as_str() == reason => {
                let issued_at = asked["issuedAt"].as_str().map(str::to_owned);
                let issued_by = asked["issuedBy"].as_str().unwrap_or(&actor).to_owned();
                unsettled.extend(issued_at.map(|issued_at| RefundAttempt { key, issued_by, issued_at }));
            }
            _ => {}
        }
    }
    // Of several the first: the provider has its words.
    unsettled.into_iter().rev().find(|attempt| !settled_keys.contains(&attempt.key))
}

/// The latest refunds.
#[utoipa::path(get, path = "/admin/refunds", tag = "admin", security(("session" = [])), params(RefundQuery), responses(
    (status = 200, body = RefundList),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`not_admin`"),
    (status = 503, body = Problem, content_type = "application/problem+json",
        description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn list(
    Query(RefundQuery { limit }): Query<RefundQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let refunds = billing(&context)?.client.refunds(limit.unwrap_or(PAGE)).await.map_err(refused)?;
    Ok(HttpResponse::Ok().json(RefundList { refunds: refunds.into_iter().map(RefundView::from).collect() }))
}

/// What a member has paid, to choose a refund from.
#[utoipa::path(get, path = "/admin/users/{id}/charges", tag = "admin", security(("session" = [])),
    params(("id" = String, Path)), responses(
    (status = 200, body = ChargeList),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`not_admin`"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json",
        description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn charges(path: web::Path<String>, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let billing = billing(&context)?;
    let user = UserId::from(path.into_inner());
    let read = move |db: &mut Db| {
        let Some(user) = users::find(db, &user)? else { return Ok(None) };
        payment_customers::of_user(db, &user.id).map(Some)
    };
    let charges = match context.pool.read(read).await?.ok_or(ApiError::NotFound)? {
        Some(customer) => match billing.client.charges(&customer, CHARGES).await {
            // It was deleted there.
            Err(PaymentsError::Unknown { .. }) => Vec::new(),
            charges => charges.map_err(refused)?,
        },
        None => Vec::new(),
    };
    Ok(HttpResponse::Ok().json(ChargeList { charges: charges.into_iter().map(ChargeView::from).collect() }))
}

/// Events of the payment provider that wait, because something about them is unknown. They are tried again by themselves.
#[utoipa::path(get, path = "/admin/payment-events", tag = "admin", security(("session" = [])),
    params(PaymentEventQuery), responses(
    (status = 200, body = PaymentEventList),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`not_admin`"),
))]
pub async fn events(
    Query(PaymentEventQuery { limit, .. }): Query<PaymentEventQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let limit = limit.unwrap_or(EVENTS);
    let (total, events) = context.pool.read(move |db| payment_events::parked(db, limit)).await?;
    let events = events.into_iter().map(PaymentEventView::from).collect();
    Ok(HttpResponse::Ok().json(PaymentEventList { total, events }))
}

#[cfg(test)]
mod tests;
