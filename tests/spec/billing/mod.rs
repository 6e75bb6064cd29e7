//! Billing: checkout, portal, the provider's events in any order, and the tiers that come of them.

mod checkout;
mod orders;
mod parked;
mod refunds;
mod tiers;
mod webhook;
