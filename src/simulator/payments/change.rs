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
    /// Its first payment is not done yet.
    FirstPaymentOpen,
    /// Its first payment was never done.
    FirstPaymentExpired,
    /// It ends now.
    End,
    /// The end with its period, which the subscription states.
    EndWithPeriod,
    /// It is renewed, and the payment fails.
    FailPayment,
    /// To this price, within the period, and the payment fails.
    FailUpgrade(String),
    /// The payment that failed is made.
    PayAgain,
}
