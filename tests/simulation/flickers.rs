//! Markers that one answer leaves out: what is still there is not said to be gone.

use companion::simulator::world::TEAM;
use serde_json::Value;
use tokio::time::{Duration, sleep};

use crate::{
    judge::Judge,
    run::Run,
    script::HEALTHY_FROM,
    world::{PAIRED, world},
};

/// When a ship and a helicopter come, and when answers leave them out: for less time than two questions take.
pub const SHIPS_COME: u64 = 300_000;
pub const SHIPS_FLICKER: u64 = 325_000;
const FLICKERS_FOR: Duration = Duration::from_secs(4);

impl Run {
    /// A ship and a helicopter come to each game.
    pub fn send_ships(&self) {
        for game in &self.world.games {
            game.world(|world| {
                world.send_cargo_ship();
                world.send_helicopter(false);
            });
        }
    }

    /// Answers leave them out for a moment.
    pub fn hide_ships(&self) {
        let world = self.world.clone();
        tokio::task::spawn_local(async move {
            world.games.iter().for_each(|game| game.faults(|faults| faults.no_events = true));
            sleep(FLICKERS_FOR).await;
            world.games.iter().for_each(|game| game.faults(|faults| faults.no_events = false));
        });
    }
}

impl Judge {
    /// A client received an event of this server: a marker that it calls gone is not there.
    pub fn check_is_gone(&mut self, number: usize, server: &str, event: &Value) {
        let is_gone = matches!(event["action"].as_str(), Some("left" | "gone" | "shot_down"));
        let marker = event["data"]["markerId"].as_str().and_then(|id| id.parse::<u64>().ok());
        let (true, Some(marker)) = (is_gone && world().millis() >= HEALTHY_FROM, marker) else { return };
        let Some(paired) = self.paired(server) else { return };
        let (name, _, game) = PAIRED[paired];
        if world().games[game]
            .world(|world| world.map_markers(TEAM[0].0).markers.iter().any(|known| known.id == marker))
        {
            self.broken("gone-is-not-there", format!("client {number} of {name}: {event}"));
        }
    }
}
