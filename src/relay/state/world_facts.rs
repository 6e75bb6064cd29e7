//! Facts about a game server, the same for all who paired a server there.

use std::sync::Arc;

use crate::domain::{
    detect::{MapContext, wipe::World},
    map::Marker,
    monument::Monument,
    server_state::Keyed,
    team_command::daylight::DayLearner,
    time::{Moment, Timestamp},
    world_head::WorldHead,
    world_map::MonumentMap,
};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct WorldFacts {
    pub head: WorldHead,
    /// By the game's marker id.
    pub markers: Keyed<u64, Marker>,
    /// The map, which other links to the game server may share; it is asked for again when the world is another.
    pub map: Option<Arc<MonumentMap>>,
    /// The world as it was last known, also across restarts; another one is a wipe.
    pub world: Option<World>,
    /// When a wipe was last seen.
    pub wiped_at: Option<Timestamp>,
    /// Edge length of the world, metres; 0 = not known.
    pub map_size: u32,
    /// The game's clock, and what is known of its speeds.
    pub day: DayLearner,
    /// When the game server last said what it is.
    pub info_at: Option<Moment>,
    /// When it last said which time of day it is.
    pub time_at: Option<Moment>,
    /// When it last said what is on the map.
    pub markers_at: Option<Moment>,
}

impl WorldFacts {
    /// The map, as far as it is known.
    pub fn around(&self) -> MapContext<'_> {
        MapContext { map_size: self.map_size, monuments: self.known_monuments().unwrap_or_default() }
    }

    /// The monuments of the world; `None` until its map is known.
    pub fn known_monuments(&self) -> Option<&[Monument]> {
        self.map.as_ref().map(|map| &map.monuments[..])
    }
}
