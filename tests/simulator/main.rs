//! The simulated game server and identity provider, from outside.

mod cameras;
mod faults;
mod game_client;
mod identity;
mod limits;
mod messages;
mod requests;
mod streams;
