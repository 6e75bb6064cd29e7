//! Byte streams to clients and neighbours: TCP, or pipes within this process for simulations and tests.
//!
//! A [`Stream`] is a closed enum, not a trait: what the relay asks of it (`try_write` beside readiness) no trait offers,
//! and the one predictable branch costs nothing beside a system call.

mod memory;
mod names;
mod network;
mod stream;

pub use self::{
    memory::Memory,
    names::{Names, Resolve},
    network::{Dial, Network, NetworkError, SecureStream},
    stream::Stream,
};
