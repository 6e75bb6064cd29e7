//! Messages between the relay and its clients: published, encoded once, and counted when a socket took them.

pub mod close;
pub mod deflate;
pub mod frame;
pub mod protocol;
pub mod publication;
pub mod publisher;
pub mod receipt;
pub mod schema;
pub mod send_counts;
pub mod steps;
