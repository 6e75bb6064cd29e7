//! Reads one customer, checkout or subscription, and ends a subscription.

use reqwest::Method;
use serde_json::Value;

use super::{CheckoutState, PAGE, PaymentsClient, PaymentsError, RequestFields, page_address, unreadable};
use crate::domain::money::{
    invoice,
    payment::{ProviderSubscription, id_at},
    plan::SoldPlan,
    tier::SubscriptionStatus,
};

/// Pages of what belongs to one customer.
const MOST_PAGES: usize = 10;
/// Invoices among which the last payment is.
const LATEST: &str = "20";

impl PaymentsClient {
    /// All subscriptions of a customer, also ended ones; `None`: the provider does not know the customer.
    pub async fn subscriptions_of(&self, customer: &str) -> Result<Option<Vec<ProviderSubscription>>, PaymentsError> {
        let all = self.all_pages("/v1/subscriptions", &[("customer", customer), ("status", "all")]).await?;
        Ok(all.map(|all| all.iter().filter_map(ProviderSubscription::read).collect()))
    }

    /// The checkouts of a customer that can be paid.
    pub async fn open_checkouts_of(&self, customer: &str) -> Result<Vec<String>, PaymentsError> {
        let all = self.all_pages("/v1/checkout/sessions", &[("customer", customer), ("status", "open")]).await?;
        Ok(all.iter().flatten().filter_map(|session| id_at(session, "/id")).collect())
    }

    /// The prices of the last payment for a subscription, the one that cost most first; none: nothing was ever paid.
    pub async fn paid_prices(&self, subscription: &str) -> Result<Vec<String>, PaymentsError> {
        let query = [("subscription", subscription), ("status", "paid"), ("limit", LATEST)];
        let answer = self.get("/v1/invoices", &query).await?;
        let invoices = answer["data"].as_array().ok_or_else(|| unreadable("a list"))?;
        Ok(invoice::paid_prices(invoices))
    }

    /// Opens the portal of a customer; the address of its page, which admits anyone who has it.
    pub async fn open_portal(&self, customer: &str, return_url: &str) -> Result<String, PaymentsError> {
        self.open_portal_with(&[("customer", customer), ("return_url", return_url)]).await
    }

    /// Opens the portal where the customer confirms that a subscription changes to this plan; the address of its page.
    /// `None`: it has that plan, or its standing does not allow a change.
    pub async fn open_change(
        &self,
        subscription: &str,
        wanted: &SoldPlan,
        return_url: &str,
    ) -> Result<Option<String>, PaymentsError> {
        let answer = self.get(&format!("/v1/subscriptions/{subscription}"), &[]).await?;
        let read = ProviderSubscription::read(&answer).ok_or_else(|| unreadable("a subscription"))?;
        let has_plan = self.settings.prices.plan_of(&read.prices).is_none_or(|(has, _)| has == wanted.plan);
        let may_change = matches!(read.status.as_str(), "active" | "trialing");
        // The portal changes a subscription of one item only.
        let item = id_at(&answer, "/items/data/0/id").filter(|_| answer.pointer("/items/data/1").is_none());
        let Some(item) = item.filter(|_| may_change && !has_plan) else { return Ok(None) };
        let fields = [
            ("customer", read.customer.as_str()),
            ("return_url", return_url),
            ("flow_data[type]", "subscription_update_confirm"),
            ("flow_data[subscription_update_confirm][subscription]", subscription),
            ("flow_data[subscription_update_confirm][items][0][id]", &item),
            ("flow_data[subscription_update_confirm][items][0][price]", &wanted.price),
            ("flow_data[subscription_update_confirm][items][0][quantity]", "1"),
            ("flow_data[after_completion][type]", "redirect"),
            ("flow_data[after_completion][redirect][return_url]", return_url),
        ];
        self.open_portal_with(&fields).await.map(Some)
    }

    async fn open_portal_with(&self, fields: &RequestFields<'_>) -> Result<String, PaymentsError> {
        let key = format!("portal:{}", self.random.hex::<16>());
        page_address(&self.post("/v1/billing_portal/sessions", fields, &key).await?)
    }

    /// The present state of a checkout.
    pub async fn checkout(&self, id: &str) -> Result<CheckoutState, PaymentsError> {
        let session = match self.get(&format!("/v1/checkout/sessions/{id}"), &[]).await {
            Err(PaymentsError::Unknown { .. }) => return Ok(CheckoutState::Closed),
            session => session?,
        };
        Ok(match (session["status"].as_str(), id_at(&session, "/subscription")) {
            (Some("open"), _) => CheckoutState::Open,
            (Some("complete"), Some(subscription)) => CheckoutState::Paid(subscription),
            _ => CheckoutState::Closed,
        })
    }

    /// Ends a subscription at once. One that has ended before is returned as it is.
    pub async fn end_subscription(&self, id: &str) -> Result<ProviderSubscription, PaymentsError> {
        let path = format!("/v1/subscriptions/{id}");
        let refused = match self.call(|| self.request(Method::DELETE, &path)).await {
            Ok(ended) => return ProviderSubscription::read(&ended).ok_or_else(|| unreadable("a subscription")),
            Err(refused @ (PaymentsError::Unknown { .. } | PaymentsError::Refused { .. })) => refused,
            Err(error) => return Err(error),
        };
        let found = self.subscription(id).await?;
        if SubscriptionStatus::of_provider(&found.status).is_running() { Err(refused) } else { Ok(found) }
    }

    /// All pages of a list; `None`: it is of something that the provider does not know.
    async fn all_pages(&self, path: &str, query: &RequestFields<'_>) -> Result<Option<Vec<Value>>, PaymentsError> {
        let mut all: Vec<Value> = Vec::new();
        for _ in 0..MOST_PAGES {
            let after = all.last().and_then(|last| last["id"].as_str()).map(str::to_owned);
            let mut query = [query, &[("limit", PAGE)]].concat();
            query.extend(after.as_deref().map(|after| ("starting_after", after)));
            let mut page = match self.get(path, &query).await {
                Err(PaymentsError::Unknown { .. }) if all.is_empty() => return Ok(None),
                page => page?,
            };
            let Value::Array(data) = page["data"].take() else { return Err(unreadable("a list")) };
            let is_last = page["has_more"] != true || data.is_empty();
            all.extend(data);
            if is_last {
                return Ok(Some(all));
            }
        }
        Err(unreadable("a list of this length"))
    }
}
