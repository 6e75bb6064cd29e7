//! Billing: stored subscriptions follow the payment provider by its events, and also without them.
//!
//! [`sync`] takes an event: it fetches the subscription and stores it with the event's id in one transaction. An event
//! that it cannot place is parked, and [`worker`] tries it again; [`reconcile`] compares everything with the provider,
//! nightly. [`checkout`] opens the provider's pages; [`refunds`] pays back, one attempt on a charge at a time;
//! [`endings`] ends the subscriptions of users who are gone.

pub mod checkout;
pub mod context;
pub mod endings;
pub mod reconcile;
pub mod refunds;
pub mod sync;
pub mod worker;
