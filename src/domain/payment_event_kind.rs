//! The types of the payment provider's events that are read.

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentEventKind {
    CheckoutCompleted,
    SubscriptionUpdated,
    SubscriptionDeleted,
    TrialWillEnd,
    PaymentFailed,
    DisputeCreated,
    DisputeClosed,
    RefundFailed,
    /// Any other.
    Other,
}

impl PaymentEventKind {
    pub const ALL: [Self; 9] = [
        Self::CheckoutCompleted,
        Self::SubscriptionUpdated,
        Self::SubscriptionDeleted,
        Self::TrialWillEnd,
        Self::PaymentFailed,
        Self::DisputeCreated,
        Self::DisputeClosed,
        Self::RefundFailed,
        Self::Other,
    ];

    /// The provider's word, as admins see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CheckoutCompleted => "checkout.session.completed",
            Self::SubscriptionUpdated => "customer.subscription.updated",
            Self::SubscriptionDeleted => "customer.subscription.deleted",
            Self::TrialWillEnd => "customer.subscription.trial_will_end",
            Self::PaymentFailed => "invoice.payment_failed",
            Self::DisputeCreated => "charge.dispute.created",
            Self::DisputeClosed => "charge.dispute.closed",
            Self::RefundFailed => "refund.failed",
            Self::Other => "other",
        }
    }

    /// The type that the provider names with this word.
    pub fn of_provider(word: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word).unwrap_or(Self::Other)
    }
}
