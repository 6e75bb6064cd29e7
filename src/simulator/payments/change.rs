//! Changes of a subscription, by its customer or by time.

/// A change of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionChange {
    /// Change to this price.
    Plan(String),
    /// The subscription ends with its period.
    Cancel,
    /// The subscription does not end with its period.
    Keep,
    /// Its first payment is not done yet.
    FirstPaymentOpen,
    /// Its first payment was never done.
    FirstPaymentExpired,
    /// The subscription ends now.
    End,
    /// The end with its period, which the subscription states.
    EndWithPeriod,
    /// The subscription is renewed, and the payment fails.
    FailPayment,
    /// Change to this price, within the period, and the payment fails.
    FailUpgrade(String),
    /// The payment that failed is made.
    PayAgain,
}
