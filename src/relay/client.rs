//! Clients: one WebSocket each, its place in the queue, and the paired servers that it watches on its thread.

pub mod admission;
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
pub mod turns;
pub mod watchers;
