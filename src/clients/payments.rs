//! The payment provider, over HTTP in the form of Stripe's API: customers, checkout and portal, subscriptions, prices,
//! charges and refunds.
//!
//! Everything that changes something carries an idempotency key, so that it may be sent a second time when the provider
//! fails; nothing is sent more often within a request. No text of the provider is passed on: it may quote what we sent.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    error::ClientError,
    http::{self, read_capped},
};
use crate::{
    config::Payments,
    crypto::random::Random,
    domain::{
        backoff::jittered,
        ids::{PlatformId, UserId},
        payment::{ProviderSubscription, id_at},
        tier::Tier,
        time::Timestamp,
    },
};

const NEIGHBOUR: &str = "the payment provider";
/// Largest answer that is read, bytes: a hundred subscriptions have half of it.
const MAX_ANSWER: usize = 2 * 1024 * 1024;
/// A whole call, with the second attempt.
pub const CALL_DEADLINE: Duration = Duration::from_secs(8);
/// One attempt.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(5);
/// Before the second attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(400);
/// Subscriptions of one page.
const PAGE: &str = "100";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PaymentsError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is no such thing. The parameter that named it, if one did.
    #[error("the payment provider does not know it")]
    Unknown { param: Option<String> },
    /// It could be done, and the provider will not.
    #[error("the payment provider refused: status {status}, {code}")]
    Refused { status: u16, code: String },
}

/// What a checkout is for.
#[derive(Clone, Debug)]
pub struct CheckoutRequest<'a> {
    pub user: &'a UserId,
    pub customer: &'a str,
    pub tier: Tier,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    /// The same for a repetition, and for no other: one that lasts longer would bring an expired page back.
    pub idempotency_key: &'a str,
}

/// A checkout that was opened.
#[derive(Clone, Debug)]
pub struct OpenedCheckout {
    pub id: String,
    /// Of its page.
    pub url: String,
}

/// What became of a checkout that was to be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosedCheckout {
    /// Nobody can pay there any more, or ever could.
    Unpaid,
    /// It was paid before; the subscription.
    Paid(String),
}

/// What is paid back, of a charge or of a payment.
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
    /// The same for a repetition of the same refund, and for no other.
    pub idempotency_key: &'a str,
}

/// By what a payment is named.
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
    pub created: Option<Timestamp>,
}

/// A price as the provider has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPrice {
    pub is_active: bool,
    pub is_recurring: bool,
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

/// What is sent: fields in the form encoding, or as a query.
type RequestFields<'a> = [(&'a str, &'a str)];

impl PaymentsClient {
    pub fn new(http: reqwest::Client, settings: Payments, random: Random) -> Self {
        Self { http, settings, random }
    }

    /// Makes a customer of the user, or finds the one that was made with the same key within a day. `instead_of` is one
    /// that the provider does not know any more.
    pub async fn create_customer(
        &self,
        user: &UserId,
        account: &PlatformId,
        instead_of: Option<&str>,
    ) -> Result<String, PaymentsError> {
        let key = format!("customer:{user}:{}", instead_of.unwrap_or_default());
        let fields = [("metadata[userId]", user.as_str()), ("metadata[platformId]", account.as_str())];
        text(&self.post("/v1/customers", &fields, &key).await?, "id")
    }

    /// Opens a checkout.
    pub async fn open_checkout(&self, request: &CheckoutRequest<'_>) -> Result<OpenedCheckout, PaymentsError> {
        let user = request.user.as_str();
        let fields = [
            ("mode", "subscription"),
            ("line_items[0][price]", self.settings.prices.price_of(request.tier)),
            ("line_items[0][quantity]", "1"),
            ("customer", request.customer),
            ("client_reference_id", user),
            ("metadata[userId]", user),
            ("metadata[tier]", request.tier.as_str()),
            ("subscription_data[metadata][userId]", user),
            ("success_url", request.success_url),
            ("cancel_url", request.cancel_url),
        ];
        let session = self.post("/v1/checkout/sessions", &fields, request.idempotency_key).await?;
        let id = id_at(&session, "/id").ok_or_else(|| unreadable("a checkout"))?;
        Ok(OpenedCheckout { id, url: text(&session, "url")? })
    }

    /// Closes a checkout, unless it was paid.
    pub async fn close_checkout(&self, id: &str) -> Result<ClosedCheckout, PaymentsError> {
        let (path, key) = (format!("/v1/checkout/sessions/{id}"), format!("close:{}", self.random.hex::<16>()));
        let refused = match self.post(&format!("{path}/expire"), &[], &key).await {
            Ok(_) | Err(PaymentsError::Unknown { .. }) => return Ok(ClosedCheckout::Unpaid),
            Err(refused @ PaymentsError::Refused { .. }) => refused,
            Err(error) => return Err(error),
        };
        // Only an open one can be closed.
        let session = self.get(&path, &[]).await?;
        match session["status"].as_str() {
            Some("expired") => Ok(ClosedCheckout::Unpaid),
            Some("complete") => {
                let subscription = id_at(&session, "/subscription").ok_or_else(|| unreadable("a paid checkout"))?;
                Ok(ClosedCheckout::Paid(subscription))
            }
            _ => Err(refused),
        }
    }

    /// Opens the portal of a customer; the address of its page, which lets whoever has it in.
    pub async fn open_portal(&self, customer: &str, return_url: &str) -> Result<String, PaymentsError> {
        let key = format!("portal:{}", self.random.hex::<16>());
        let fields = [("customer", customer), ("return_url", return_url)];
        text(&self.post("/v1/billing_portal/sessions", &fields, &key).await?, "url")
    }

    /// How a subscription stands now.
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
        Ok(SubscriptionPage { subscriptions: data.iter().filter_map(ProviderSubscription::read).collect(), next })
    }

    /// The configured price of a tier.
    pub async fn price(&self, tier: Tier) -> Result<ProviderPrice, PaymentsError> {
        let price = self.get(&format!("/v1/prices/{}", self.settings.prices.price_of(tier)), &[]).await?;
        Ok(ProviderPrice {
            is_active: price["active"] == true,
            is_recurring: price["type"] == "recurring" || price["recurring"].is_object(),
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
                let charges = self.list_charges(&[("payment_intent", payment), ("limit", PAGE)]).await?;
                let succeeded = charges.into_iter().find(|charge| charge.status == "succeeded");
                succeeded.ok_or_else(|| PaymentsError::Unknown { param: Some("payment_intent".to_owned()) })
            }
        }
    }

    /// The latest charges of a customer, 1 to 100.
    pub async fn charges(&self, customer: &str, limit: u8) -> Result<Vec<ProviderCharge>, PaymentsError> {
        self.list_charges(&[("customer", customer), ("limit", &limit.to_string())]).await
    }

    async fn list_charges(&self, query: &RequestFields<'_>) -> Result<Vec<ProviderCharge>, PaymentsError> {
        let answer = self.get("/v1/charges", query).await?;
        let data = answer["data"].as_array().ok_or_else(|| unreadable("a list"))?;
        Ok(data.iter().filter_map(ProviderCharge::read).collect())
    }

    /// Pays back.
    pub async fn refund(&self, request: &RefundRequest<'_>) -> Result<ProviderRefund, PaymentsError> {
        let amount = request.amount.map(|amount| amount.to_string());
        let mut fields = vec![request.of.field()];
        fields.extend(amount.as_deref().map(|amount| ("amount", amount)));
        fields.extend(request.reason.map(|reason| ("reason", reason)));
        fields.extend([("metadata[issuedBy]", request.issued_by), ("metadata[issuedAt]", request.issued_at)]);
        let answer = self.post("/v1/refunds", &fields, request.idempotency_key).await?;
        ProviderRefund::read(&answer).ok_or_else(|| unreadable("a refund"))
    }

    /// The latest refunds, 1 to 100.
    pub async fn refunds(&self, limit: u8) -> Result<Vec<ProviderRefund>, PaymentsError> {
        self.list_refunds(&[("limit", &limit.to_string())]).await
    }

    async fn list_refunds(&self, query: &RequestFields<'_>) -> Result<Vec<ProviderRefund>, PaymentsError> {
        let answer = self.get("/v1/refunds", query).await?;
        let data = answer["data"].as_array().ok_or_else(|| unreadable("a list"))?;
        Ok(data.iter().filter_map(ProviderRefund::read).collect())
    }

    /// The id of the latest refund of it, whatever became of that one; `None`: there was none.
    pub async fn latest_refund(&self, of: RefundOf<'_>) -> Result<Option<String>, PaymentsError> {
        let refunds = self.list_refunds(&[of.field(), ("limit", "1")]).await?;
        Ok(refunds.into_iter().next().map(|refund| refund.id))
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
        http::traced(self.http.request(method, self.settings.base_url.at(path)))
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

/// One attempt; an error with whether another one may help.
async fn attempt(request: reqwest::RequestBuilder) -> Result<Value, (PaymentsError, bool)> {
    let response = request.send().await.map_err(|error| (unavailable(http::reason(&error)), true))?;
    let status = response.status();
    let advice = response.headers().get("stripe-should-retry").map(|advice| advice == "true");
    let body = read_capped(response, MAX_ANSWER).await.map_err(|error| (unavailable(error.to_string()), true))?;
    let answer: Option<Value> = serde_json::from_slice(&body).ok();
    if status == StatusCode::OK {
        return answer.filter(Value::is_object).ok_or_else(|| (unreadable("JSON"), false));
    }
    let error = answer.map(|mut answer| answer["error"].take()).unwrap_or_default();
    let code = plain(&error["code"]).or_else(|| plain(&error["type"])).unwrap_or_default();
    let passes = status.is_server_error() || matches!(status.as_u16(), 409 | 424 | 429);
    let may_help = advice.unwrap_or(passes && status != StatusCode::TOO_MANY_REQUESTS);
    Err((
        match status {
            _ if passes => unavailable(format!("status {} {code}", status.as_u16())),
            _ if status == StatusCode::NOT_FOUND || code == "resource_missing" => {
                PaymentsError::Unknown { param: plain(&error["param"]) }
            }
            status => PaymentsError::Refused { status: status.as_u16(), code },
        },
        may_help,
    ))
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
            created: charge["created"].as_i64().and_then(Timestamp::from_timestamp_secs),
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
            created: refund["created"].as_i64().and_then(Timestamp::from_timestamp_secs),
        })
    }
}

/// A word of an error that may be logged: a code or the name of a parameter.
fn plain(value: &Value) -> Option<String> {
    let word = value.as_str()?;
    let is_word =
        word.len() <= 60 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'[' | b']'));
    is_word.then(|| word.to_owned())
}

fn text(answer: &Value, field: &str) -> Result<String, PaymentsError> {
    answer[field].as_str().map(str::to_owned).ok_or_else(|| unreadable(field))
}

fn unreadable(what: &str) -> PaymentsError {
    unavailable(format!("its answer is no {what}"))
}

fn unavailable(reason: impl Into<String>) -> PaymentsError {
    ClientError::Unavailable { neighbour: NEIGHBOUR, reason: reason.into() }.into()
}
