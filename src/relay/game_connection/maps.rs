//! The map of a game connection's game server, kept for all who paired it.

use std::sync::Arc;

use super::GameConnection;
use crate::{
    domain::world_map::{MapDrawing, WorldMap},
    game::decoding::DecodingPermit,
    relay::fact_sink::{Fact, NewMap},
};

impl GameConnection {
    /// Keeps the map that the live state now has. The turn ends when it is stored.
    pub(super) fn store_map(&self, drawing: MapDrawing, address: String, port: u16, turn: Option<DecodingPermit>) {
        let live = self.live.borrow();
        let (Some(world), Some(monuments)) = (live.world(), live.monuments()) else { return };
        let map = WorldMap { world: world.clone(), monuments: monuments.to_vec(), drawing };
        let at = self.context.clock.now();
        self.context.facts.store(Fact::Map(Arc::new(NewMap { address, port, map, at, turn })));
    }
}
