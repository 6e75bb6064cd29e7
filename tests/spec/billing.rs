//! Billing: checkout, portal, the provider's events in any order, and the tiers that come of them.

mod checkout;
mod disputes;
mod endings;
mod orders;
mod parked;
mod refunds;
mod tiers;
mod webhook;
mod yearly;
