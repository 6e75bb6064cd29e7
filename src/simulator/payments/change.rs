//! What can be done to a subscription, by its customer or by time.

/// What can be done to a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionChange {
    /// To this price.
    Plan(String),
    /// It ends with its period.
    Cancel,
    /// It does not.
    Keep,
    /// It ends now.
    End,
    /// It is renewed, and the payment fails.
    FailPayment,
    /// The payment that failed is made.
    PayAgain,
}
