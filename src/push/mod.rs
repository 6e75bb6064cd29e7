//! The push worker: pairings and alarms as the game pushes them, whether or not anybody is online.
//!
//! [`worker`] keeps one session per stored credential; [`session_keeper`] logs in and comes back for ever; [`session`]
//! speaks the protocol of [`mcs`]; [`inbox`] stores what a push says before anybody hears of it.

pub mod bundle;
pub mod inbox;
pub mod mcs;
pub mod notification;
pub mod session;
pub mod session_keeper;
pub mod state;
pub mod wire;
pub mod worker;
