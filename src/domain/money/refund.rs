//! Refunds: the request, the case of two equal ones, and the outcome.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{time::Timestamp, words::words};

/// The provider knows an idempotency key for at least a day.
const KEY_KEPT: TimeDelta = TimeDelta::hours(23);

/// Request to the provider, which compares all of it with an earlier one of the same key. The audit log has it, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefundPlan {
    pub charge_id: String,
    pub payment_intent_id: Option<String>,
    /// Smallest unit of its currency.
    pub amount: i64,
    pub currency: String,
    pub reason: Option<String>,
    /// Platform id of the admin.
    pub issued_by: String,
    /// RFC 3339.
    pub issued_at: String,
    /// Names the attempt, also in the refund's metadata.
    pub idempotency_key: String,
    /// The amount is all that was left of the charge.
    #[serde(default)]
    pub all: bool,
    /// The member who paid; `None`: a customer who is no member here.
    #[serde(default)]
    pub user_id: Option<String>,
}

impl RefundPlan {
    /// True if a request for this amount (`None`: all that is left) and reason asks for the same.
    pub fn is_asked_by(&self, amount: Option<i64>, reason: Option<&str>) -> bool {
        let is_same_amount = amount.map_or(self.all, |amount| amount == self.amount);
        is_same_amount && self.reason.as_deref() == reason
    }

    /// True if the provider still knows its key, which counts from the first request. With a key that it has forgotten
    /// it would pay once more.
    pub fn is_known_to_provider(&self, now: Timestamp) -> bool {
        self.issued_at.parse::<Timestamp>().is_ok_and(|first| now - first < KEY_KEPT)
    }
}

/// A refund that was made, as the audit log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuedRefund {
    pub id: String,
    /// Smallest unit of the currency.
    pub amount: i64,
    /// Lower-case ISO code.
    pub currency: String,
    /// The provider's word.
    pub status: String,
    pub charge_id: Option<String>,
    pub payment_intent_id: Option<String>,
    /// The member who paid; `None`: a customer who is no member here.
    #[serde(default)]
    pub user_id: Option<String>,
    /// Platform id of the admin; `None`: it was issued at the provider.
    pub issued_by: Option<String>,
    /// RFC 3339.
    pub issued_at: Option<String>,
}

/// The status of a refund at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefundStatus {
    Pending,
    /// The customer has to say where the money goes.
    RequiresAction,
    Succeeded,
    /// The bank did not take the money.
    Failed,
    Canceled,
    /// Another word of the provider.
    Other,
}

impl RefundStatus {
    /// The provider's word for it.
    pub fn of_provider(word: &str) -> Self {
        match word {
            "pending" => Self::Pending,
            "requires_action" => Self::RequiresAction,
            "succeeded" => Self::Succeeded,
            "failed" => Self::Failed,
            "canceled" => Self::Canceled,
            _ => Self::Other,
        }
    }
}

words! {
    /// Reason of a refund, as the provider knows it.
    pub enum RefundReason {
        Duplicate = "duplicate",
        /// Blocks the card.
        Fraudulent = "fraudulent",
        RequestedByCustomer = "requested_by_customer",
    }
}

words! {
    /// Reason for which a refund was not made.
    pub enum RefundRefusal {
        UnknownCharge = "unknown_charge",
        AlreadyRefunded = "already_refunded",
        /// The bank of the payer has the money back for as long as a dispute is open.
        Disputed = "charge_disputed",
        /// The provider refused for another reason.
        Refused = "payment_provider_refused",
        /// The provider has no such refund, a day after it was asked for.
        NotMade = "not_made",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> RefundPlan {
        RefundPlan {
            charge_id: "ch_1".into(),
            payment_intent_id: None,
            amount: 700,
            currency: "usd".into(),
            reason: None,
            issued_by: "1".into(),
            issued_at: "2026-11-21T12:00:00.000Z".into(),
            idempotency_key: "a".into(),
            all: true,
            user_id: None,
        }
    }

    #[test]
    fn the_same_is_the_same_amount_for_the_same_reason() {
        let part = RefundPlan { amount: 200, all: false, reason: Some("duplicate".into()), ..plan() };
        assert!(plan().is_asked_by(None, None) && plan().is_asked_by(Some(700), None));
        assert!(!plan().is_asked_by(Some(200), None) && !plan().is_asked_by(None, Some("duplicate")));
        assert!(part.is_asked_by(Some(200), Some("duplicate")));
        assert!(!part.is_asked_by(None, Some("duplicate")) && !part.is_asked_by(Some(200), None));
    }

    #[test]
    fn the_providers_words_are_known_and_others_are_no_error() {
        for word in ["pending", "requires_action", "succeeded", "failed", "canceled"] {
            assert_eq!(serde_json::to_value(RefundStatus::of_provider(word)).unwrap(), word);
        }
        assert_eq!(RefundStatus::of_provider("half"), RefundStatus::Other);
    }

    #[test]
    fn a_key_is_known_for_a_day_from_when_it_was_issued() {
        let issued: Timestamp = plan().issued_at.parse().unwrap();
        assert!(plan().is_known_to_provider(issued + KEY_KEPT - TimeDelta::seconds(1)));
        assert!(!plan().is_known_to_provider(issued + KEY_KEPT));
        assert!(!RefundPlan { issued_at: "no time".into(), ..plan() }.is_known_to_provider(issued));
    }
}
