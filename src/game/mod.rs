//! How the game speaks: its messages, a link to a game server, and what its answers mean.

pub mod address;
pub mod asker;
pub mod budget;
pub mod camera;
pub mod counting;
pub mod decoding;
pub mod link;
mod meter;
pub mod reading;
pub mod wire;
