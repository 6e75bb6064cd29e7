//! Tiers, plans and prices, and what the payment provider says of subscriptions, payments and refunds.

pub mod billing_interval;
pub mod invoice;
pub mod payment;
pub mod payment_event_kind;
pub mod plan;
pub mod refund;
pub mod tier;
