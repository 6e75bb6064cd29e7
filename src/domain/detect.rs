//! Successive snapshots in, world events out.
//!
//! The first answer after a connect only shows how things are. Only complete answers come here: a failed poll is no
//! answer. Nothing is gone because one answer missed it, and "gone" is taken back (`returned`) when it is there again.
//! Nothing is gone by silence either: a game server that showed shops and then shows neither shops nor events may have
//! stopped to report them ([`reporting`](crate::domain::reporting)).
//!
//! A call returns at most 100 events, and the calls of one link in any minute at most 300; the last event of a call, if
//! it has any, then says in `suppressed` how many more there were.

pub mod alarm;
mod cargo;
mod chinook;
mod crate_drop;
pub mod device;
mod events;
mod explosion;
mod heli;
mod link_gap;
pub mod map_detectors;
mod oil_rig;
mod presence;
mod shops;
pub mod team;
#[cfg(test)]
mod testing;
mod track;
mod vendor;
pub mod wipe;

pub use self::events::{EventWindow, MapContext};
