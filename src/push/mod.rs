//! The push worker: pairings and alarms as the game pushes them, whether or not anybody is online.

pub mod credentials;
pub mod worker;
