//! Checkout and the events of the payment provider.

pub mod billing;
