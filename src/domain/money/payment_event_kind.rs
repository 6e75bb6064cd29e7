//! The types of the payment provider's events that are read.

use crate::domain::words::words;

words! {
    /// The type of an event.
    pub enum PaymentEventKind {
        CheckoutCompleted = "checkout.session.completed",
        SubscriptionUpdated = "customer.subscription.updated",
        SubscriptionDeleted = "customer.subscription.deleted",
        TrialWillEnd = "customer.subscription.trial_will_end",
        PaymentFailed = "invoice.payment_failed",
        DisputeCreated = "charge.dispute.created",
        DisputeClosed = "charge.dispute.closed",
        RefundFailed = "refund.failed",
        /// Any other.
        Other = "other",
    }
}

impl PaymentEventKind {
    /// The type that the provider names with this word.
    pub fn of_provider(word: &str) -> Self {
        Self::parse(word).unwrap_or(Self::Other)
    }
}
