//! Checkout, portal and the payment provider's webhook: `/billing/*`.

use std::{sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{error::ApiError, fields::is_tier},
        context::ApiContext,
        extract::{
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::Json,
            session_user::SessionUser,
        },
    },
    billing::{
        checkout::{self, CheckoutError, OpenedPage, PageRequest},
        context::BillingContext,
        sync,
    },
    clients::payments::{OpenedCheckout, PaymentsError},
    crypto::webhook_signature,
    domain::money::{
        billing_interval::BillingInterval,
        payment::{PaymentEvent, UnreadableEvent},
        plan::Plan,
        tier::Tier,
    },
};

/// Longest time for an event before its sender is asked to come again. Work that has begun goes on to its end.
const WEBHOOK_DEADLINE: Duration = Duration::from_secs(20);
/// Instead of a checkout's id: the page of a change, which cannot be asked for, lasts minutes and opens once.
const CHANGE: &str = "change";
const SIGNATURE: &str = "stripe-signature";

/// A tier to subscribe to.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "tier": "OPERATOR", "interval": "month" }))]
pub struct CreateCheckout {
    #[garde(custom(is_tier))]
    #[schema(format = "tier")]
    tier: String,
    /// The interval at which it is charged; `month` if absent.
    #[garde(skip)]
    interval: Option<BillingInterval>,
}

/// A page of the payment provider.
#[derive(Serialize, ToSchema)]
struct PaymentPage {
    url: String,
}

/// Outcome of an event.
#[derive(Serialize, ToSchema)]
struct EventReceipt {
    received: bool,
    /// `applied`; `ignored`: there is nothing to do; `duplicate`; `parked`: it waits and is tried again by itself.
    #[schema(format = "event-outcome")]
    outcome: &'static str,
}

impl From<PaymentsError> for ApiError {
    fn from(error: PaymentsError) -> Self {
        match error {
            PaymentsError::Client(_) | PaymentsError::Foreign => Self::PaymentsUnavailable(error.into()),
            PaymentsError::Unknown { .. } | PaymentsError::Refused { .. } => Self::PaymentsRefused(error.into()),
        }
    }
}

impl From<CheckoutError> for ApiError {
    fn from(error: CheckoutError) -> Self {
        match error {
            CheckoutError::Subscribed => Self::AlreadySubscribed,
            CheckoutError::NoCustomer => Self::NoCustomer,
            CheckoutError::Closed => Self::CheckoutClosed,
            CheckoutError::Provider(error) => error.into(),
            CheckoutError::Gone => Self::Unauthenticated,
            CheckoutError::Database(error) => error.into(),
        }
    }
}

pub(in crate::api) fn billing(context: &ApiContext) -> Result<&Arc<BillingContext>, ApiError> {
    context.services.billing.as_ref().ok_or(ApiError::PaymentsDisabled)
}

/// Opens the payment provider's checkout for a tier, and closes the one that was opened before: of a user's checkouts only
/// the last can be paid. The payment provider is asked first whether a subscription goes on: then `url` is the portal's
/// page on which the change to that tier and interval is confirmed. The tier comes with the provider's event, shortly after payment: the
/// page to which the browser returns (`FRONTEND_URL/?billing=done&session=…`) should ask `/me` until it does.
#[utoipa::path(post, path = "/billing/checkout", tag = "billing",
    request_body = CreateCheckout, responses(
    (status = 200, body = PaymentPage),
    (status = 400,
        description = "also `invalid_request` with `interval`: the tier is not sold by the year, see `yearlyPrice` of `/client-config`"),
    (status = 409,
        description = "`already_subscribed`: the user has that tier and interval, or a subscription that cannot be changed now, which the portal shows; `checkout_closed`: the page that this `Idempotency-Key` opened can no longer be used"),
    (status = 502, description = "`payment_provider_refused`"),
    (status = 503, description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn create_checkout(
    SessionUser { user, .. }: SessionUser,
    once: Idempotent,
    Json(new): Json<CreateCheckout>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let tier = Tier::parse(&new.tier).ok_or_else(|| ApiError::invalid("tier", "must be a tier"))?;
    let plan = Plan { tier, interval: new.interval.unwrap_or_default() };
    let (billing, caller) = (billing(&context)?.clone(), user.id.clone());
    let unsold = || ApiError::invalid("interval", format!("must be month: {} is not sold by the year", tier.word()));
    let wanted = billing.prices.sold(plan).ok_or_else(unsold)?;
    let provider = billing.clone();
    let fresh = context.random.hex::<16>();
    let step = async |key: Option<&str>| Ok(key.map_or(fresh, str::to_owned));
    let call = move |key: String| async move {
        let frontend = &context.settings.urls.frontend;
        let request = PageRequest { user: &user, wanted: &wanted, frontend, key: &key };
        let page = checkout::open_page(&billing, request).await?;
        log::info!(user:% = user.id, tier = tier.word(), interval = plan.interval.word(); "the page of a plan was opened");
        let (id, url) = match page {
            OpenedPage::Checkout(OpenedCheckout { id, url }) => (id, url),
            OpenedPage::Change(url) => (CHANGE.to_owned(), url),
        };
        Ok(ReplayableAnswer::new(StatusCode::OK, &PaymentPage { url }).about(id))
    };
    let check_lasts = async |id: &str| match id {
        CHANGE => Err(ApiError::CheckoutClosed),
        id => Ok(checkout::check_open(&provider, id).await?),
    };
    once.effect_while(KeyCaller::User(caller), step, call, check_lasts).await
}

/// Opens the payment provider's portal, in which the user changes or cancels the subscription and sees invoices. The
/// address admits anyone who has it, for a short time.
#[utoipa::path(post, path = "/billing/portal", tag = "billing", responses(
    (status = 200, body = PaymentPage),
    (status = 409,
        description = "`no_customer`: this user was never at the checkout, or the payment provider no longer knows them"),
    (status = 502, description = "`payment_provider_refused`"),
    (status = 503, description = "`payments_disabled`; `payment_provider_unavailable`"),
))]
pub async fn create_portal(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let url = checkout::open_portal(billing(&context)?, &user, &context.settings.urls.frontend).await?;
    Ok(HttpResponse::Ok().json(PaymentPage { url }))
}

/// Takes an event of the payment provider, at most 1 MiB, signed in `Stripe-Signature`. Answered 200 when it is stored,
/// with its effect or to be tried again; anything else makes the provider send it again.
#[utoipa::path(post, path = "/billing/webhook", tag = "billing",
    request_body(content = Object, content_type = "application/json",
        example = json!({ "id": "evt_1", "type": "customer.subscription.updated", "data": { "object": { "id": "sub_1" } } })), responses(
    (status = 200, body = EventReceipt),
    (status = 400, description = "`invalid_signature`; `malformed_json`; `invalid_request`"),
    (status = 503, description = "`payments_disabled`; `unavailable`: nothing was stored"),
))]
pub async fn webhook(
    req: HttpRequest,
    body: web::Bytes,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let billing = billing(&context)?.clone();
    let mut headers = req.headers().get_all(SIGNATURE);
    let header = headers.next().and_then(|header| header.to_str().ok()).unwrap_or_default();
    if headers.next().is_some() {
        return Err(ApiError::InvalidSignature("two signatures".to_owned()));
    }
    webhook_signature::verify(header, &body, &billing.webhook_secrets, context.clock.now())
        .map_err(|fault| ApiError::InvalidSignature(fault.to_string()))?;
    let event = PaymentEvent::read(&body).map_err(|unreadable| match unreadable {
        UnreadableEvent::NotJson => ApiError::MalformedJson,
        UnreadableEvent::Field(path) => ApiError::invalid(path, "is missing or has another form"),
    })?;
    let taken = timeout(WEBHOOK_DEADLINE, sync::take(&billing, event)).await;
    let outcome = taken.map_err(|elapsed| ApiError::Unavailable(elapsed.into()))??;
    Ok(HttpResponse::Ok().json(EventReceipt { received: true, outcome: outcome.as_str() }))
}
