//! companion: the backend that players of the game *Rust* leave running, so that their base is watched while they
//! sleep.

pub mod api;
pub mod clients;
pub mod clock;
pub mod config;
pub mod crypto;
pub mod db;
pub mod demo;
pub mod domain;
pub mod game;
pub mod relay;
pub mod server;
pub mod simulator;
pub mod watch;
