//! The push worker: pairings and alarms as the game pushes them, whether or not anybody is online.

pub mod bundle;
pub mod mcs;
pub mod notification;
pub mod session;
pub mod wire;
pub mod worker;
