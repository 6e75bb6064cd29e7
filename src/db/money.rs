//! Subscriptions and payments, as the payment provider last had them, and the facts that give users a tier.

pub mod beta_testers;
pub mod customers_to_end;
pub mod former_subscribers;
pub mod payment_customers;
pub mod payment_events;
pub mod refund_attempts;
pub mod subscriptions;
pub mod tiers;
