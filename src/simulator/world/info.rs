//! The answer to getInfo.

use std::f32::consts::TAU;

use super::time::unix;
use crate::{domain::time::Timestamp, game::wire::AppInfo, simulator::terrain::MAP_SIZE};

/// The server as the game shows it in its list; the number of players rises and falls every hour.
pub fn app_info(seed: u64, now: Timestamp, wiped_at: Timestamp) -> AppInfo {
    let swell = (now.timestamp() as f32 % 3600.0 / 3600.0 * TAU).sin();
    AppInfo {
        name: "<color=#ce422b>Companion</color> Demo | Weekly | EU".to_owned(),
        header_image: String::new(),
        url: String::new(),
        map: "Procedural Map".to_owned(),
        map_size: MAP_SIZE as u32,
        wipe_time: unix(wiped_at),
        players: (84.0 + 20.0 * swell) as u32,
        max_players: 150,
        queued_players: 0,
        seed: Some(seed as u32),
        salt: Some((seed as u32).wrapping_mul(31).wrapping_add(7)),
        cameras_enabled: Some(true),
        ..Default::default()
    }
}
