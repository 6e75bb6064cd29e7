//! Facts about a game server that are the same for all who play there.

use crate::domain::{reporting::Reports, time::Timestamp};

/// See the module. Each as [`ServerHead`](crate::domain::server_state::ServerHead) has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorldHead {
    pub name: Option<String>,
    pub map_size: Option<u32>,
    pub map_seed: Option<u32>,
    pub players: Option<u32>,
    pub max_players: Option<u32>,
    pub queued_players: Option<u32>,
    pub wiped_at: Option<Timestamp>,
    pub hour: Option<f64>,
    pub sunrise: Option<f64>,
    pub sunset: Option<f64>,
    pub day_seconds: Option<u32>,
    pub night_seconds: Option<u32>,
    pub day_night_at: Option<Timestamp>,
    pub reports: Reports,
}
