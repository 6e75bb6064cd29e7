//! How the game speaks: its messages, a link to a game server, and what its answers mean.

pub mod address;
pub mod asker;
pub mod budget;
pub mod camera;
pub mod link;
pub mod reading;
pub mod wire;
