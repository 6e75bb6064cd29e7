//! The simulated game server and identity provider, from outside.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

mod cameras;
mod faults;
mod game_client;
mod identity;
mod limits;
mod link;
mod messages;
mod player_stats;
mod requests;
mod streams;
mod teams;
