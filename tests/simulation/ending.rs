//! At the end every dashboard shows what the game is: its markers, its team, its devices, and nothing stale.

use std::collections::BTreeSet;

use companion::simulator::world::TEAM;
use serde_json::Value;

use crate::{
    judge::Judge,
    link_starts::{STILL, device_value},
    world::{PAIRED, World},
};

impl Judge {
    /// The state that a dashboard has of a paired server.
    pub fn check_end(&mut self, world: &World, paired: usize, state: &Value) {
        let (name, owner, game) = PAIRED[paired];
        let details = world.games[game].world(|simulated| {
            let mut wrong = Vec::new();
            if let Some(stale) = state["server"].get("stale") {
                wrong.push(format!("stale: {stale}"));
            }
            let shown: BTreeSet<String> =
                state["mapMarkers"].as_object().into_iter().flatten().map(|it| it.0.clone()).collect();
            let markers = simulated.map_markers(TEAM[owner].0).markers;
            let there: BTreeSet<String> = markers.iter().map(|marker| marker.id.to_string()).collect();
            if shown != there {
                let (more, less) = (shown.difference(&there), there.difference(&shown));
                wrong.push(format!(
                    "markers: {:?} too many, {:?} missing",
                    more.collect::<Vec<_>>(),
                    less.collect::<Vec<_>>()
                ));
            }
            for member in simulated.team_info(TEAM[owner].0).members {
                let shown = &state["team"]["members"][member.steam_id.to_string()];
                if (&shown["online"], &shown["alive"]) != (&member.is_online.into(), &member.is_alive.into()) {
                    wrong.push(format!("member {member:?}: {shown}"));
                }
            }
            for id in STILL {
                let shown = &state["devices"][id.to_string()];
                let value = device_value(simulated, id);
                if shown["value"] != value {
                    wrong.push(format!("device {id} is {value}: {shown}"));
                }
            }
            wrong
        });
        if !details.is_empty() {
            self.broken("the-end-equals-the-game", format!("{name}: {}", details.join("; ")));
        }
    }
}
