//! The world of a game connection's game server, and its map, which is kept for all who paired it.

use std::sync::Arc;

use actix::prelude::*;

use super::GameConnection;
use crate::{
    db::{engine::pool::Db, paired_servers},
    domain::{
        detect::wipe::World,
        world_map::{MapDrawing, WorldMap},
    },
    game::decoding::DecodingPermit,
    relay::shared::write_behind::{NewMap, Record},
};

impl GameConnection {
    /// Keeps the map that the live state now has. The turn ends when it is stored.
    pub(super) fn store_map(&self, drawing: MapDrawing, address: String, port: u16, turn: Option<DecodingPermit>) {
        let (Some(world), Some(monuments)) = (self.feed.live.world(), self.feed.live.monuments()) else { return };
        let map = WorldMap { world: world.clone(), monuments: monuments.to_vec(), drawing };
        let at = self.context.clock.now();
        self.context.write_behind.store(Record::Map(Arc::new(NewMap { address, port, map, at, turn })));
    }

    /// Keeps what is known of the world, with its monuments if its map is known.
    pub(super) fn store_world(&self, world: &World, ctx: &mut Context<Self>) {
        let (pool, server, row) = (self.context.pool.clone(), self.server.clone(), world.into());
        let monuments = self.feed.live.monuments().map(<[_]>::to_vec);
        let save = move |db: &mut Db| paired_servers::save_baseline(db, &server, &row, monuments.as_deref());
        let stored = async move { pool.write(save).await };
        ctx.spawn(stored.into_actor(self).map(|stored, connection, _| {
            if let Err(error) = stored {
                log::warn!(server = connection.server.as_str(); "the world could not be stored: {error}");
            }
        }));
    }
}
