//! Paying back: `/admin/refund`, `/admin/refunds`, `/admin/users/{id}/charges`, and the payment events that wait:
//! `/admin/payment-events`.

use std::{cell::Cell, rc::Rc};

use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            error::ApiError,
            list_page::{cursor, next_of, not_a_next},
        },
        context::ApiContext,
        extract::{
            admin::Admin,
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::Json,
            query::Query,
        },
        money::billing::billing,
    },
    billing::{
        context::BillingContext,
        refunds::{self, RefundError, RefundStart},
    },
    clients::payments::{PaymentsError, ProviderCharge, RefundOf},
    db::{
        audit,
        engine::pool::Db,
        money::{
            payment_customers,
            payment_events::{self, ShownEvent},
        },
        users,
    },
    domain::{
        ids::{PlatformId, UserId},
        money::{
            payment_event_kind::PaymentEventKind,
            refund::{IssuedRefund, RefundPlan, RefundReason, RefundRefusal, RefundStatus},
        },
        time::Timestamp,
        timeline::Cursor,
    },
};

/// Refunds of a page when no `limit` is given.
const PAGE: u8 = 20;
/// Charges of a page when no `limit` is given.
const CHARGES: u8 = 100;
/// Payment events of a page when no `limit` is given.
const EVENTS: usize = 200;

/// The largest amount that the provider takes in any currency.
const LARGEST_REFUND: i64 = 999_999_999_999;

/// A refund to make.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "chargeId": "ch_1", "amount": 500, "reason": "requested_by_customer" }))]
pub struct CreateRefund {
    /// The provider's id of the charge. This or `paymentIntentId`.
    #[garde(inner(custom(is_provider_id)))]
    #[schema(pattern = "^[A-Za-z0-9_]{1,255}$")]
    charge_id: Option<String>,
    #[garde(inner(custom(is_provider_id)))]
    #[schema(pattern = "^[A-Za-z0-9_]{1,255}$")]
    payment_intent_id: Option<String>,
    /// Smallest unit of its currency; absent: all that is left.
    #[garde(range(min = 1, max = LARGEST_REFUND))]
    #[schema(minimum = 1, maximum = 999_999_999_999_i64)]
    amount: Option<i64>,
    /// `duplicate`, `fraudulent` (which blocks the card) or `requested_by_customer`.
    #[garde(inner(custom(is_reason)))]
    #[schema(format = "refund-reason")]
    reason: Option<String>,
}

fn is_provider_id(text: &str, _: &()) -> garde::Result {
    let plain =
        (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then_some(()).ok_or_else(|| garde::Error::new("must be an id of the payment provider"))
}

fn is_reason(text: &str, _: &()) -> garde::Result {
    let known = RefundReason::parse(text).is_some();
    known.then_some(()).ok_or_else(|| garde::Error::new("must be duplicate, fraudulent or requested_by_customer"))
}

/// A page of refunds or charges.
#[derive(Deserialize, IntoParams, Validate)]
pub struct ProviderPage {
    /// Most entries of the page; 20 refunds or 100 charges if absent.
    #[garde(range(min = 1, max = 100))]
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u8>,
    /// Only older ones: the `next` of the page before.
    #[garde(inner(custom(is_provider_id)))]
    #[param(pattern = "^[A-Za-z0-9_]{1,255}$")]
    before: Option<String>,
}

/// A page of events.
#[derive(Deserialize, IntoParams, Validate)]
pub struct PaymentEventQuery {
    /// `parked` (if absent): those that wait, the oldest first; `reported`: disputes, and refunds that failed at the bank,
    /// the newest first.
    #[garde(custom(is_shown))]
    #[param(pattern = "^(parked|reported)$")]
    state: Option<String>,
    /// Most events of the page; 200 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Only what comes after the page before: its `next`.
    #[garde(length(max = 300))]
    #[param(max_length = 300, format = "cursor")]
    before: Option<String>,
}

fn is_shown(state: &Option<String>, _: &()) -> garde::Result {
    let known = state.as_deref().is_none_or(|state| matches!(state, "parked" | "reported"));
    known.then_some(()).ok_or_else(|| garde::Error::new("must be parked or reported"))
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
    status: RefundStatus,
    charge_id: Option<String>,
    payment_intent_id: Option<String>,
    /// The member who paid; null: a customer who is not, or no longer, a member here.
    user_id: Option<String>,
    /// Platform id of the admin; null: it was issued at the provider.
    issued_by: Option<String>,
    #[schema(format = DateTime)]
    issued_at: Option<String>,
}

impl From<IssuedRefund> for RefundView {
    fn from(refund: IssuedRefund) -> Self {
        let IssuedRefund { id, amount, currency, status, charge_id, payment_intent_id, user_id, issued_by, issued_at } =
            refund;
        let status = RefundStatus::of_provider(&status);
        Self { id, amount, currency, status, charge_id, payment_intent_id, user_id, issued_by, issued_at }
    }
}

#[derive(Serialize, ToSchema)]
struct RefundList {
    /// The newest first.
    refunds: Vec<RefundView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// A charge of a member.
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
    created_at: Option<Timestamp>,
}

impl From<ProviderCharge> for ChargeView {
    fn from(charge: ProviderCharge) -> Self {
        let ProviderCharge { id, amount, amount_refunded, currency, status, payment_intent, created, .. } = charge;
        Self { id, amount, amount_refunded, currency, status, payment_intent_id: payment_intent, created_at: created }
    }
}

#[derive(Serialize, ToSchema)]
struct ChargeList {
    /// The newest first.
    charges: Vec<ChargeView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// An event of the payment provider that waits, because something about it is unknown; or one that an admin has to see.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PaymentEventView {
    id: String,
    /// The provider's type of it; `other`: one that is not read.
    #[schema(format = "payment-event-kind")]
    kind: &'static str,
    /// `parked` or `reported`.
    state: &'static str,
    /// Reason to wait; or `dispute_opened`, `dispute_lost`, `dispute_closed`, `refund_failed`.
    reason: Option<String>,
    /// The charge that is disputed, or whose refund failed.
    charge_id: Option<String>,
    subscription_id: Option<String>,
    customer_id: Option<String>,
    /// The user named at checkout, or the payer of the charge.
    user_id: Option<String>,
    received_at: Timestamp,
    /// Number of further attempts.
    attempts: i32,
    next_attempt_at: Option<Timestamp>,
}

impl PaymentEventView {
    fn new(state: &'static str, event: ShownEvent) -> Self {
        let ShownEvent {
            id,
            kind,
            subscription_id,
            customer_id,
            user_hint: user_id,
            reason,
            received_at,
            attempts,
            next_attempt_at,
            charge_id,
        } = event;
        Self {
            id,
            kind: PaymentEventKind::of_provider(&kind).word(),
            state,
            reason,
            charge_id,
            subscription_id,
            customer_id,
            user_id,
            received_at,
            attempts,
            next_attempt_at,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct PaymentEventList {
    total: usize,
    events: Vec<PaymentEventView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

fn refused(error: PaymentsError) -> ApiError {
    match error {
        // The client sent it as `before`.
        PaymentsError::Unknown { param: Some(param) } if param == "starting_after" => not_a_next(),
        PaymentsError::Unknown { .. } => ApiError::UnknownCharge,
        PaymentsError::Refused { code, .. } if code == "charge_already_refunded" => ApiError::AlreadyRefunded,
        PaymentsError::Refused { code, .. } if code.starts_with("idempotency") => ApiError::Conflict,
        error => error.into(),
    }
}

/// Pays a charge back, or a part of it. The tier does not change; an event of the provider may change it. One refund of
/// a charge at a time: while one is under way, or its outcome is unknown, the same request without an `Idempotency-Key`
/// is that one, and any other is `refund_open`. After `payment_provider_unavailable` the provider is asked again each
/// minute; the outcome is a further entry of the audit log, and the answer to the same request. The same request after
/// an answer pays back again, unless it has the same `Idempotency-Key`; each key is a refund of its own. An answer that
/// its client did not wait for counts as given: a client that waits less than 30 s sends a key.
#[utoipa::path(post, path = "/admin/refund", tag = "admin", request_body = CreateRefund,
    responses(
    (status = 201, body = RefundView),
    (status = 404, description = "`unknown_charge`"),
    (status = 409, description = "`already_refunded`; `charge_disputed`; `refund_open`: another refund of the charge is under way, or what became of it was not shown yet"),
    (status = 502, description = "`payment_provider_refused`"),
    (status = 503, description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn create(
    admin: Admin,
    once: Idempotent,
    Json(new): Json<CreateRefund>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let billing = billing(&context)?.clone();
    let caller = admin.platform_id.clone();
    let plan = async |key: Option<&str>| plan(&context, &billing, &caller, new, key.is_some()).await;
    let (asked, by) = (billing.clone(), admin.clone());
    let attempt = Rc::new(Cell::new(None));
    let begun_with = attempt.clone();
    let call = move |step: RefundStep| async move {
        let start = match step {
            RefundStep::Join(begun) => RefundStart::Attempt(begun),
            RefundStep::Begin { plan, keyed, after } => {
                by.locked(move |db, head, now| Ok(refunds::begin(db, head, &plan, keyed, after, now)?)).await?
            }
        };
        let refund = match start {
            RefundStart::Attempt(begun) => {
                begun_with.set(Some(begun));
                refunds::finish(&asked, begun).await.map_err(not_made)?
            }
            RefundStart::Open(which) => return Err(ApiError::RefundOpen(which)),
        };
        Ok(ReplayableAnswer::new(StatusCode::CREATED, &RefundView::from(refund)))
    };
    let answer = once.effect(KeyCaller::Admin(admin.platform_id.clone()), plan, call).await;
    if let Some(begun) = attempt.get() {
        refunds::note_shown(&billing, begun).await;
    }
    answer
}

fn not_made(error: RefundError) -> ApiError {
    match error {
        RefundError::NotMade(RefundRefusal::UnknownCharge) => ApiError::UnknownCharge,
        RefundError::NotMade(RefundRefusal::AlreadyRefunded) => ApiError::AlreadyRefunded,
        RefundError::NotMade(RefundRefusal::Disputed) => ApiError::ChargeDisputed,
        RefundError::NotMade(RefundRefusal::Refused | RefundRefusal::NotMade) => {
            ApiError::PaymentsRefused(error.into())
        }
        RefundError::Unknown(_) => ApiError::RefundUnanswered(error.into()),
        RefundError::Database(error) => error.into(),
    }
}

/// The effect of a request.
#[derive(Serialize, Deserialize)]
enum RefundStep {
    /// Joins the attempt that began with this entry of the audit log.
    Join(i64),
    Begin {
        plan: Box<RefundPlan>,
        /// The request has a key.
        keyed: bool,
        /// The last entry of the audit log when it came.
        after: i64,
    },
}

/// With `keyed`, the request has a key of its own.
async fn plan(
    context: &ApiContext,
    billing: &BillingContext,
    admin: &PlatformId,
    new: CreateRefund,
    keyed: bool,
) -> Result<RefundStep, ApiError> {
    let CreateRefund { charge_id, payment_intent_id, amount, reason } = new;
    let of = match (&charge_id, &payment_intent_id) {
        (Some(charge), None) => RefundOf::Charge(charge),
        (None, Some(payment)) => RefundOf::PaymentIntent(payment),
        _ => return Err(ApiError::invalid("chargeId", "or `paymentIntentId` is required, one of the two")),
    };
    // Before the charge is read: what is under way now may be over then.
    let named = charge_id.clone().or(payment_intent_id.clone()).unwrap_or_default();
    let asked = reason.clone();
    let now = context.clock.now();
    let arrive = move |db: &mut Db| -> Result<_, ApiError> {
        let after = audit::lock(db)?.id();
        let is_asked = |plan: &RefundPlan| plan.is_asked_by(amount, asked.as_deref());
        let start = if keyed { None } else { refunds::in_the_way(db, &named, after, now, is_asked)? };
        Ok((after, start))
    };
    let after = match context.pool.write(arrive).await? {
        (_, Some(RefundStart::Attempt(begun))) => return Ok(RefundStep::Join(begun)),
        (_, Some(RefundStart::Open(which))) => return Err(ApiError::RefundOpen(which)),
        (after, None) => after,
    };
    let charge = billing.client.charge(of).await.map_err(refused)?;
    let left = charge.amount.saturating_sub(charge.amount_refunded);
    if left <= 0 {
        return Err(ApiError::AlreadyRefunded);
    }
    if amount.is_some_and(|amount| amount > left) {
        return Err(ApiError::invalid("amount", format!("is more than the {left} that are left")));
    }
    let ProviderCharge { id: charge_id, payment_intent: payment_intent_id, currency, customer, .. } = charge;
    let payer = move |db: &mut Db| customer.map_or(Ok(None), |customer| payment_customers::user_of(db, &customer));
    let user_id = context.pool.read(payer).await?.map(|user| user.to_string());
    let amount = amount.unwrap_or(left);
    let plan = RefundPlan {
        charge_id,
        payment_intent_id,
        amount,
        currency,
        reason,
        issued_by: admin.to_string(),
        issued_at: context.clock.now().to_wire(),
        idempotency_key: context.random.hex::<16>(),
        all: amount == left,
        user_id,
    };
    Ok(RefundStep::Begin { plan: Box::new(plan), keyed, after })
}

/// The latest refunds.
#[utoipa::path(get, path = "/admin/refunds", tag = "admin", params(ProviderPage), responses(
    (status = 200, body = RefundList),
    (status = 503, description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn list(
    Query(ProviderPage { limit, before }): Query<ProviderPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let billing = billing(&context)?;
    let page = billing.client.refunds(before.as_deref(), limit.unwrap_or(PAGE)).await;
    let (refunds, is_cut) = page.map_err(refused)?;
    let next = refunds.last().filter(|_| is_cut).map(|last| last.id.clone());
    let refunds = refunds::listed(billing, refunds).await?;
    Ok(HttpResponse::Ok().json(RefundList { refunds: refunds.into_iter().map(RefundView::from).collect(), next }))
}

/// The charges of a member, to choose a refund from.
#[utoipa::path(get, path = "/admin/users/{id}/charges", tag = "admin",
    params(("id" = String, Path), ProviderPage), responses(
    (status = 200, body = ChargeList),
    (status = 503, description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn list_charges(
    path: web::Path<String>,
    Query(ProviderPage { limit, before }): Query<ProviderPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let billing = billing(&context)?;
    let user = UserId::from(path.into_inner());
    let read = move |db: &mut Db| {
        let Some(user) = users::find(db, &user)? else { return Ok(None) };
        payment_customers::of_user(db, &user.id).map(Some)
    };
    let (charges, is_cut) = match context.pool.read(read).await?.ok_or(ApiError::NotFound)? {
        Some(customer) => {
            let page = billing.client.charges(&customer, before.as_deref(), limit.unwrap_or(CHARGES)).await;
            match page {
                // Deleted at the provider.
                Err(PaymentsError::Unknown { param }) if param.as_deref() != Some("starting_after") => {
                    (Vec::new(), false)
                }
                page => page.map_err(refused)?,
            }
        }
        None => (Vec::new(), false),
    };
    let next = charges.last().filter(|_| is_cut).map(|last| last.id.clone());
    Ok(HttpResponse::Ok().json(ChargeList { charges: charges.into_iter().map(ChargeView::from).collect(), next }))
}

/// Events of the payment provider that wait, because something about them is unknown, and are tried again by themselves;
/// or those at which an admin has to look: disputes, and refunds that failed at the bank.
#[utoipa::path(get, path = "/admin/payment-events", tag = "admin",
    params(PaymentEventQuery), responses(
    (status = 200, body = PaymentEventList),
))]
pub async fn list_events(
    Query(PaymentEventQuery { limit, state, before }): Query<PaymentEventQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let limit = limit.unwrap_or(EVENTS);
    let before = cursor(before)?;
    let (state, list): (_, fn(&mut Db, Option<&Cursor>, usize) -> _) = match state.as_deref() {
        Some("reported") => ("reported", payment_events::reported),
        _ => ("parked", payment_events::parked),
    };
    let (total, events) = context.pool.read(move |db| list(db, before.as_ref(), limit)).await?;
    let next = next_of(&events, limit, |last| Cursor { ts: last.received_at, id: last.id.clone() }.to_wire());
    let events = events.into_iter().map(|event| PaymentEventView::new(state, event)).collect();
    Ok(HttpResponse::Ok().json(PaymentEventList { total, events, next }))
}
