//! The payment provider, over HTTP in the form of Stripe's API: customers, checkout and portal, subscriptions, prices,
//! charges and refunds.
//!
//! Everything that changes something carries an idempotency key, so that it may be sent a second time when the provider
//! fails; nothing is sent more often within a request. No text of the provider is passed on: it may quote what we sent.

mod attempt;
mod of_customer;
mod provider_error;

use std::time::Duration;

use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use url::Url;

pub use self::provider_error::PaymentsError;
use self::{
    attempt::attempt,
    provider_error::{unavailable, unreadable},
};
use crate::{
    config::Payments,
    crypto::{digest::sha256_hex, random::Random},
    domain::{
        backoff::jittered,
        ids::{PlatformId, UserId},
        money::{
            billing_interval::BillingInterval,
            payment::{ProviderSubscription, id_at},
            plan::SoldPlan,
        },
        time::Timestamp,
    },
};

/// A whole call, with the second attempt.
pub const CALL_DEADLINE: Duration = Duration::from_secs(8);
/// One attempt.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(5);
/// Before the second attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(400);
/// Subscriptions of one page.
const PAGE: &str = "100";
/// Pages of the refunds of one charge.
const REFUND_PAGES: usize = 10;

/// A checkout to be opened.
#[derive(Clone, Debug)]
pub struct CheckoutRequest<'a> {
    pub user: &'a UserId,
    pub customer: &'a str,
    pub wanted: &'a SoldPlan,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    /// Shared by the repetitions of one request only: a key that lasts longer would bring an expired page back.
    pub idempotency_key: &'a str,
    /// The user never had a subscription, and may have a trial.
    pub is_first: bool,
}

/// A checkout that was opened.
#[derive(Clone, Debug)]
pub struct OpenedCheckout {
    pub id: String,
    /// Address of its page.
    pub url: String,
}

/// Outcome of closing a checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosedCheckout {
    /// The checkout cannot be paid, now or later.
    Unpaid,
    /// Paid before; the subscription.
    Paid(String),
}

/// Can a checkout still be paid, or was it?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckoutState {
    /// The checkout can be paid.
    Open,
    /// Paid; the subscription.
    Paid(String),
    /// The checkout cannot be paid, or the provider does not know it.
    Closed,
}

/// A refund to be made, of a charge or of a payment.
#[derive(Clone, Debug)]
pub struct RefundRequest<'a> {
    pub of: RefundOf<'a>,
    /// Smallest unit of its currency; `None`: all that is left.
    pub amount: Option<i64>,
    /// `duplicate`, `fraudulent` (which blocks the card) or `requested_by_customer`.
    pub reason: Option<&'a str>,
    /// Platform id of the admin.
    pub issued_by: &'a str,
    /// RFC 3339.
    pub issued_at: &'a str,
    /// Shared by the repetitions of one refund only.
    pub idempotency_key: &'a str,
}

/// Reference to a payment.
#[derive(Clone, Copy, Debug)]
pub enum RefundOf<'a> {
    Charge(&'a str),
    PaymentIntent(&'a str),
}

impl<'a> RefundOf<'a> {
    fn field(self) -> (&'static str, &'a str) {
        match self {
            Self::Charge(charge) => ("charge", charge),
            Self::PaymentIntent(payment) => ("payment_intent", payment),
        }
    }
}

/// A refund as the provider has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRefund {
    pub id: String,
    pub amount: i64,
    /// Lower-case ISO code.
    pub currency: String,
    /// The provider's word.
    pub status: String,
    pub charge: Option<String>,
    pub payment_intent: Option<String>,
    pub issued_by: Option<String>,
    pub issued_at: Option<String>,
    /// The idempotency key of ours with which it was made.
    pub attempt: Option<String>,
    /// The payer, where the provider says so.
    pub customer: Option<String>,
    pub created: Option<Timestamp>,
}

/// A charge as the provider has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderCharge {
    pub id: String,
    /// Smallest unit of its currency.
    pub amount: i64,
    pub amount_refunded: i64,
    /// Lower-case ISO code.
    pub currency: String,
    /// The provider's word.
    pub status: String,
    pub payment_intent: Option<String>,
    pub customer: Option<String>,
    pub created: Option<Timestamp>,
}

/// A price as the provider has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPrice {
    pub is_active: bool,
    pub is_recurring: bool,
    /// `None`: none of those in which tiers are sold.
    pub interval: Option<BillingInterval>,
    /// Smallest unit of its currency.
    pub amount: Option<i64>,
    pub currency: String,
}

/// Some subscriptions.
#[derive(Clone, Debug)]
pub struct SubscriptionPage {
    pub subscriptions: Vec<ProviderSubscription>,
    /// Where the next page begins; `None`: there is none.
    pub next: Option<String>,
}

/// The provider.
pub struct PaymentsClient {
    http: reqwest::Client,
    settings: Payments,
    random: Random,
}

/// Fields of a request, in the form encoding or as a query.
type RequestFields<'a> = [(&'a str, &'a str)];

impl PaymentsClient {
    /// A client with these settings; `random` spreads its attempts.
    pub fn new(http: reqwest::Client, settings: Payments, random: Random) -> Self {
        Self { http, settings, random }
    }

    /// Makes a customer of the user, or finds the one that was made with the same key within a day. `instead_of` is one
    /// that the provider no longer knows.
    pub async fn create_customer(
        &self,
        user: &UserId,
        account: &PlatformId,
        name: &str,
        instead_of: Option<&str>,
    ) -> Result<String, PaymentsError> {
        // A user may be called otherwise the next time, and the provider compares all that comes with a key.
        let named = sha256_hex(name.as_bytes());
        let key = format!("customer:{user}:{}:{named}", instead_of.unwrap_or_default());
        let fields = [("name", name), ("metadata[userId]", user.as_str()), ("metadata[platformId]", account.as_str())];
        text(&self.post("/v1/customers", &fields, &key).await?, "id")
    }

    /// Opens a page at the provider on which the user pays for a subscription.
    pub async fn open_checkout(&self, request: &CheckoutRequest<'_>) -> Result<OpenedCheckout, PaymentsError> {
        let user = request.user.as_str();
        let settings = &self.settings;
        let trial_days = settings.trial_days.to_string();
        let mut fields = vec![
            ("mode", "subscription"),
            ("line_items[0][price]", &request.wanted.price),
            ("line_items[0][quantity]", "1"),
            ("customer", request.customer),
            ("client_reference_id", user),
            ("metadata[userId]", user),
            ("metadata[tier]", request.wanted.plan.tier.word()),
            ("metadata[interval]", request.wanted.plan.interval.word()),
            ("subscription_data[metadata][userId]", user),
            ("success_url", request.success_url),
            ("cancel_url", request.cancel_url),
        ];
        if settings.automatic_tax {
            // An existing customer is changed only where that is allowed.
            fields.extend([
                ("automatic_tax[enabled]", "true"),
                ("billing_address_collection", "required"),
                ("tax_id_collection[enabled]", "true"),
                ("customer_update[address]", "auto"),
                ("customer_update[name]", "auto"),
            ]);
        }
        fields.extend(settings.promotion_codes.then_some(("allow_promotion_codes", "true")));
        if settings.trial_days > 0 && request.is_first {
            fields.push(("subscription_data[trial_period_days]", trial_days.as_str()));
        }
        let session = self.post("/v1/checkout/sessions", &fields, request.idempotency_key).await?;
        let id = id_at(&session, "/id").ok_or_else(|| unreadable("a checkout"))?;
        Ok(OpenedCheckout { id, url: page_address(&session)? })
    }

    /// Closes a checkout, unless it was paid.
    pub async fn close_checkout(&self, id: &str) -> Result<ClosedCheckout, PaymentsError> {
        let (path, key) = (format!("/v1/checkout/sessions/{id}/expire"), format!("close:{}", self.random.hex::<16>()));
        let refused = match self.post(&path, &[], &key).await {
            Ok(_) | Err(PaymentsError::Unknown { .. }) => return Ok(ClosedCheckout::Unpaid),
            Err(refused @ PaymentsError::Refused { .. }) => refused,
            Err(error) => return Err(error),
        };
        // Only an open one can be closed.
        match self.checkout(id).await? {
            CheckoutState::Closed => Ok(ClosedCheckout::Unpaid),
            CheckoutState::Paid(subscription) => Ok(ClosedCheckout::Paid(subscription)),
            CheckoutState::Open => Err(refused),
        }
    }

    /// The present state of a subscription.
    pub async fn subscription(&self, id: &str) -> Result<ProviderSubscription, PaymentsError> {
        let answer = self.get(&format!("/v1/subscriptions/{id}"), &[]).await?;
        ProviderSubscription::read(&answer).filter(|read| read.id == id).ok_or_else(|| unreadable("a subscription"))
    }

    /// All subscriptions, also ended ones, from this place on.
    pub async fn subscriptions(&self, after: Option<&str>) -> Result<SubscriptionPage, PaymentsError> {
        let mut query = vec![("status", "all"), ("limit", PAGE)];
        query.extend(after.map(|after| ("starting_after", after)));
        let answer = self.get("/v1/subscriptions", &query).await?;
        let data = answer["data"].as_array().ok_or_else(|| unreadable("a list"))?;
        let last = data.last().and_then(|last| last["id"].as_str()).map(str::to_owned);
        let next = last.filter(|_| answer["has_more"] == true);
        if next.is_some() && next.as_deref() == after {
            return Err(unreadable("a page that follows another"));
        }
        Ok(SubscriptionPage { subscriptions: data.iter().filter_map(ProviderSubscription::read).collect(), next })
    }

    /// The price of this id.
    pub async fn price(&self, id: &str) -> Result<ProviderPrice, PaymentsError> {
        let price = self.get(&format!("/v1/prices/{id}"), &[]).await?;
        let recurring = &price["recurring"];
        let interval = recurring["interval"].as_str().and_then(BillingInterval::parse);
        Ok(ProviderPrice {
            is_active: price["active"] == true,
            is_recurring: price["type"] == "recurring" || recurring.is_object(),
            interval: interval.filter(|_| recurring["interval_count"].as_i64().unwrap_or(1) == 1),
            amount: price["unit_amount"].as_i64(),
            currency: text(&price, "currency")?,
        })
    }

    /// The charge of this name; of a payment, the one that succeeded.
    pub async fn charge(&self, of: RefundOf<'_>) -> Result<ProviderCharge, PaymentsError> {
        match of {
            RefundOf::Charge(id) => {
                let charge = self.get(&format!("/v1/charges/{id}"), &[]).await?;
                ProviderCharge::read(&charge).filter(|read| read.id == id).ok_or_else(|| unreadable("a charge"))
            }
            RefundOf::PaymentIntent(payment) => {
                let (charges, _) = self.list_charges(&[("payment_intent", payment), ("limit", PAGE)]).await?;
                let succeeded = charges.into_iter().find(|charge| charge.status == "succeeded");
                succeeded.ok_or_else(|| PaymentsError::Unknown { param: Some("payment_intent".to_owned()) })
            }
        }
    }

    /// Charges of a customer, the newest first, 1 to 100 from this place on, and whether there are more.
    pub async fn charges(
        &self,
        customer: &str,
        after: Option<&str>,
        limit: u8,
    ) -> Result<(Vec<ProviderCharge>, bool), PaymentsError> {
        let limit = limit.to_string();
        let mut query = vec![("customer", customer), ("limit", &limit)];
        query.extend(after.map(|after| ("starting_after", after)));
        self.list_charges(&query).await
    }

    async fn list_charges(&self, query: &RequestFields<'_>) -> Result<(Vec<ProviderCharge>, bool), PaymentsError> {
        let answer = self.get("/v1/charges", query).await?;
        let data = answer["data"].as_array().ok_or_else(|| unreadable("a list"))?;
        Ok((data.iter().filter_map(ProviderCharge::read).collect(), answer["has_more"] == true))
    }

    /// Pays back.
    pub async fn refund(&self, request: &RefundRequest<'_>) -> Result<ProviderRefund, PaymentsError> {
        let amount = request.amount.map(|amount| amount.to_string());
        let mut fields = vec![request.of.field()];
        fields.extend(amount.as_deref().map(|amount| ("amount", amount)));
        fields.extend(request.reason.map(|reason| ("reason", reason)));
        fields.extend([("metadata[issuedBy]", request.issued_by), ("metadata[issuedAt]", request.issued_at)]);
        fields.push(("metadata[attempt]", request.idempotency_key));
        let answer = self.post("/v1/refunds", &fields, request.idempotency_key).await?;
        ProviderRefund::read(&answer).ok_or_else(|| unreadable("a refund"))
    }

    /// Refunds, the newest first, 1 to 100 from this place on, and whether there are more.
    pub async fn refunds(&self, after: Option<&str>, limit: u8) -> Result<(Vec<ProviderRefund>, bool), PaymentsError> {
        let limit = limit.to_string();
        let mut query = vec![("limit", limit.as_str()), ("expand[0]", "data.charge")];
        query.extend(after.map(|after| ("starting_after", after)));
        self.list_refunds(&query).await
    }

    async fn list_refunds(&self, query: &RequestFields<'_>) -> Result<(Vec<ProviderRefund>, bool), PaymentsError> {
        let answer = self.get("/v1/refunds", query).await?;
        let data = answer["data"].as_array().ok_or_else(|| unreadable("a list"))?;
        Ok((data.iter().filter_map(ProviderRefund::read).collect(), answer["has_more"] == true))
    }

    /// The refund of a charge for which this holds, if the provider has one.
    pub async fn find_refund(
        &self,
        charge: &str,
        is_it: impl Fn(&ProviderRefund) -> bool,
    ) -> Result<Option<ProviderRefund>, PaymentsError> {
        let mut after: Option<String> = None;
        for _ in 0..REFUND_PAGES {
            let mut query = vec![("charge", charge), ("limit", PAGE)];
            query.extend(after.as_deref().map(|after| ("starting_after", after)));
            let (refunds, has_more) = self.list_refunds(&query).await?;
            if let Some(found) = refunds.iter().find(|refund| is_it(refund)) {
                return Ok(Some(found.clone()));
            }
            match refunds.last().filter(|_| has_more) {
                Some(last) if after.as_ref() != Some(&last.id) => after = Some(last.id.clone()),
                Some(_) => return Err(unreadable("a page that follows another")),
                None => return Ok(None),
            }
        }
        Err(unreadable("a list of this length"))
    }

    async fn get(&self, path: &str, query: &RequestFields<'_>) -> Result<Value, PaymentsError> {
        self.call(|| self.request(Method::GET, path).query(query)).await
    }

    async fn post(
        &self,
        path: &str,
        fields: &RequestFields<'_>,
        idempotency_key: &str,
    ) -> Result<Value, PaymentsError> {
        self.call(|| self.request(Method::POST, path).header("Idempotency-Key", idempotency_key).form(fields)).await
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method, self.settings.base_url.at(path))
            .bearer_auth(self.settings.key.expose_secret())
            .header("Stripe-Version", &self.settings.api_version)
            .timeout(ATTEMPT_DEADLINE)
    }

    /// The answer, asked for a second time if the provider fails.
    async fn call(&self, request: impl Fn() -> reqwest::RequestBuilder) -> Result<Value, PaymentsError> {
        let asked = async {
            match attempt(request()).await {
                Err((_, true)) => {
                    sleep(jittered(RETRY_PAUSE, self.random.byte())).await;
                    attempt(request()).await
                }
                answer => answer,
            }
        };
        let answer = timeout(CALL_DEADLINE, asked).await;
        answer.unwrap_or_else(|_| Err((unavailable("no answer in time"), false))).map_err(|(error, _)| error)
    }
}

impl ProviderCharge {
    fn read(charge: &Value) -> Option<Self> {
        let optional = |field: &str| charge[field].as_str().or_else(|| charge[field]["id"].as_str()).map(str::to_owned);
        Some(Self {
            id: optional("id")?,
            amount: charge["amount"].as_i64()?,
            amount_refunded: charge["amount_refunded"].as_i64()?,
            currency: optional("currency")?,
            status: optional("status")?,
            payment_intent: optional("payment_intent"),
            customer: optional("customer"),
            created: charge["created"].as_i64().and_then(|at| Timestamp::from_timestamp(at, 0)),
        })
    }
}

impl ProviderRefund {
    fn read(refund: &Value) -> Option<Self> {
        let optional = |field: &str| refund[field].as_str().or_else(|| refund[field]["id"].as_str()).map(str::to_owned);
        let metadata = |field: &str| refund["metadata"][field].as_str().map(str::to_owned);
        Some(Self {
            id: optional("id")?,
            amount: refund["amount"].as_i64()?,
            currency: optional("currency")?,
            status: optional("status")?,
            charge: optional("charge"),
            payment_intent: optional("payment_intent"),
            issued_by: metadata("issuedBy"),
            issued_at: metadata("issuedAt"),
            attempt: metadata("attempt"),
            customer: optional("customer").or_else(|| refund["charge"]["customer"].as_str().map(str::to_owned)),
            created: refund["created"].as_i64().and_then(|at| Timestamp::from_timestamp(at, 0)),
        })
    }
}

fn text(answer: &Value, field: &str) -> Result<String, PaymentsError> {
    answer[field].as_str().map(str::to_owned).ok_or_else(|| unreadable(field))
}

/// The address of a page to which browsers are sent.
fn page_address(answer: &Value) -> Result<String, PaymentsError> {
    let is_page = |address: &Url| matches!(address.scheme(), "http" | "https");
    let address = Url::parse(&text(answer, "url")?).ok().filter(is_page);
    address.map(String::from).ok_or_else(|| unreadable("the address of a page"))
}
