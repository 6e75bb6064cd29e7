//! Billing: what the payment provider's events change, and how what is stored follows the provider whatever becomes of
//! its events.
//!
//! [`sync`] takes an event: it fetches the subscription and stores it with the event's id in one transaction. What it
//! cannot place is parked, and [`worker`] tries it again; [`reconcile`] compares everything with the provider, nightly.
//! [`checkout`] opens the provider's pages; [`refunds`] pays back, one attempt on a charge at a time; [`endings`] ends what
//! runs for users who are gone.

pub mod checkout;
pub mod context;
pub mod endings;
pub mod reconcile;
pub mod refunds;
pub mod sync;
pub mod worker;
