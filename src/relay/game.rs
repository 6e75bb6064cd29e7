//! Game servers: one connection each, its link, and the commands and camera pictures that pass over it.

pub mod camera_capture;
pub mod commands;
pub mod device_refreshes;
mod echoes;
pub mod game_connection;
pub mod pool;
pub mod seats;
pub mod team_hosts;
pub mod team_speech;
pub mod toggles;
