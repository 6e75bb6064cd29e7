//! The push worker: pairings and alarms as the game pushes them, with or without a user online.
//!
//! [`worker`] has one session per stored credential; [`session_supervisor`] keeps it up; [`login`] and [`session`]
//! speak the protocol of [`mcs`]; [`arrived_push`] is a push on its way, and [`unstored`] holds those that wait:
//! [`inbox`] stores the changes by one before they are reported, but an alarm does not wait long for that; [`failure`]
//! ends the attempts to store one that never can be. [`registrar`] registers the devices to which the game pushes, whose rows
//! begin and end in [`registration_rows`]. On a node of several, [`owned_sessions`] knows which sessions it has.

pub mod arrived_push;
pub mod bundle_upload;
pub mod context;
pub mod failure;
pub mod gcm_credential;
pub mod inbox;
pub mod login;
pub mod login_pacer;
pub mod mcs;
pub mod message;
pub mod notification;
pub mod owned_sessions;
pub mod registrar;
pub mod registration_rows;
pub mod session;
pub mod session_status;
pub mod session_supervisor;
#[cfg(test)]
mod testing;
pub mod unstored;
pub mod wire;
pub mod worker;
