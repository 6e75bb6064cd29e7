//! Whom we call: one file per neighbour, named by its role.
//!
//! Every call has a deadline and a cap on what it reads; redirects are never followed; base URLs are settings. No
//! client knows HTTP statuses of ours or the database.

pub mod error;
pub mod http;
pub mod identity;
