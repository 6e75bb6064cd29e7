//! Simulated neighbours of the service, for the demo, the tests and the benchmarks: a game server, the game's push
//! service, that of a browser, a phone, an identity provider, a player-statistics service, a payment provider, a chat
//! platform, and the sites of a registration for pushes.
//!
//! The game server speaks the game's own protocol and enforces the game's own limits, so that third-party clients work
//! with it as with a real one; the world behind it is seeded and scripted. The time comes from the service's clock.
//! Nothing here is part of the service.

mod avatar;
pub mod browser_push;
pub mod chat;
mod command_limits;
pub mod delivery_faults;
pub mod game_server;
mod ground;
mod http_server;
pub mod identity;
mod loopback_client;
mod map_picture;
pub mod market;
mod page;
pub mod payments;
pub mod phone;
pub mod player_stats;
pub mod point;
pub mod push_service;
mod pushover;
pub mod registration;
mod rng;
mod scene;
mod signed_receiver;
mod standalone;
pub mod terrain;
mod vector;
pub mod world;

pub use standalone::{STATS_SERVER, SimulateOptions, persons, program_as_started, simulate};
