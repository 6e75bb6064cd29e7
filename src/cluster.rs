//! Several nodes that serve from one database: which of them live, and which of them has what.
//!
//! A node lives as long as it renews its lease ([`lease`]), one entry for each node in a store outside of the database
//! ([`lease_store`]). What it has is in rows of the database ([`db::held_parts`](crate::db::held_parts)), which are changed when
//! something passes to another node and never renewed; each such change counts the fencing number, without which no write
//! of an owner is committed. Where something belongs follows from the nodes that live ([`placement`]).
//!
//! Nodes send one another messages that may be lost ([`node_mail`]).
//!
//! Nothing here reads the time of day: a node compares only its own monotonic clock with itself. Clocks of two machines
//! may run apart by [`lease::DRIFT`].

pub mod lease;
pub mod lease_store;
pub mod memory_leases;
#[cfg(feature = "cluster")]
pub mod nats_leases;
#[cfg(feature = "cluster")]
pub mod nats_link;
#[cfg(feature = "cluster")]
pub mod nats_mail;
pub mod node_lease;
pub mod node_mail;
pub mod peers;
pub mod placement;
