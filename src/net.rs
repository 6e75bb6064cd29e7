//! Byte streams to clients and neighbours: TCP, or pipes within this process for simulations and tests. And how many
//! of them clients may have, how long one may take for a request, how many requests one may make, which guesses
//! of them were wrong, and in which trace a request is.
//!
//! A [`Stream`] is a closed enum, not a trait: what the relay asks of it (`try_write` beside readiness) no trait offers,
//! and the one predictable branch costs nothing beside a system call.

pub mod budgets;
pub mod connections;
pub mod descriptors;
pub mod http_service;
mod http_stream;
mod memory;
pub mod memory_limit;
mod names;
pub mod neighbour;
mod network;
pub mod refusals;
pub mod shared_guesses;
mod stream;
mod timer;
mod tls;
pub mod trace;
pub mod unread_forwarding;

pub use self::{
    http_stream::HttpStream,
    memory::Memory,
    names::{Names, Resolve},
    network::{Dial, Network, NetworkError, SecureStream},
    stream::Stream,
    timer::Timer,
    tls::tls_config,
};
