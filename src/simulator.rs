//! Simulated neighbours of the service, for the demo, the tests and the benchmarks: a game server, a push service, an
//! identity provider, a player-statistics service, a payment provider and a chat platform.
//!
//! The game server speaks the game's own protocol and enforces the game's own limits, so that third-party clients work
//! with it as with a real one; the world behind it is seeded and scripted. The time comes from the service's clock.
//! Nothing here is part of the service.

pub mod chat;
pub mod game_server;
mod ground;
mod html;
mod http_server;
pub mod identity;
mod loopback_client;
mod map_picture;
pub mod market;
pub mod payments;
pub mod player_stats;
pub mod point;
pub mod push_service;
mod rng;
mod scene;
mod standalone;
pub mod terrain;
mod vector;
pub mod world;

pub use standalone::{STATS_SERVER, SimulateOptions, persons, program_as_started, simulate};
