//! A neighbourhood in a box: what companion talks to, for the demo, the tests and the benchmarks.
//!
//! The game server speaks the game's own protocol and keeps the game's own limits, so that a third-party client
//! cannot tell it from a real one; the world behind it is seeded and scripted. Nothing here is part of the service.

pub mod game_server;
mod ground;
pub mod identity;
mod map_picture;
pub mod point;
pub mod push_service;
mod rng;
mod scene;
mod standalone;
pub mod terrain;
mod vector;
pub mod world;

pub use standalone::{SimulateOptions, persons, simulate};
