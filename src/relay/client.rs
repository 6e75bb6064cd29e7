//! Clients: one WebSocket each, its place in the queue, and the paired servers that it watches on its thread.
//!
//! # Past the mailbox
//! The mailbox of a client's actor ([`client_socket`]) has only what the client says. All that it is sent is decided in
//! its [`send_queue`], by a plain call of the subscription on the same thread that has something new, and is written
//! into its [`socket`] at once or when its turn comes ([`sockets`]). For two reasons:
//!
//! - A frame in a mailbox is decided already: a raid could not overtake it, later changes could not be merged into it,
//!   the budget of frames would not count it, and a client that does not read would have a second queue.
//! - Little may be done for each of 10 000 clients. A patch costs 0.011 ms for each, of which the kernel takes more than
//!   four fifths, and an idle client 2.1 KiB in all (`docs/sizing.md`). Most of the rest is waiting for the memory of one
//!   socket after the other, which is read ahead for 32 together: a message to each actor would be allocated, queued
//!   and looked at in memory that is elsewhere.

pub mod admission;
pub mod announced_alarms;
pub mod client_socket;
pub mod feed;
pub mod frame_budget;
pub mod patch_log;
pub mod permission;
pub mod relay_worker;
pub mod send_queue;
pub mod server_lookup;
pub mod server_subscription;
pub mod socket;
pub mod sockets;
pub mod timer_wheel;
pub mod watchers;
