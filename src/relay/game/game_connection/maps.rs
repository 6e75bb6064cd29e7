//! The world of a game connection's game server, and its map, which is kept for all who paired it.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;

use super::GameConnection;
use crate::{
    db::{engine::pool::Db, paired_servers},
    domain::world_map::{MapDrawing, WorldMap},
    game::decoding::DecodingPermit,
    relay::{
        shared::write_behind::{NewMap, Record},
        state::game_update::WorldUpdate,
    },
};

/// Pause after the database has not taken the world.
const STORED_AGAIN_AFTER: Duration = Duration::from_secs(5);

impl GameConnection {
    /// Keeps the map that the live state now has. The turn ends when it is stored.
    pub(super) fn store_map(&self, drawing: MapDrawing, address: String, port: u16, turn: Option<DecodingPermit>) {
        let (Some(world), Some(monuments)) = (self.feed.live.world(), self.feed.live.monuments()) else { return };
        let map = WorldMap { world: world.clone(), monuments: monuments.to_vec(), drawing };
        let at = self.context.clock.now();
        self.context.write_behind.store(Record::Map(Arc::new(NewMap { address, port, map, at, turn })));
    }

    /// Shares the map with other links to the game server, where it was paired under the same name: the map is kept by that.
    pub(super) fn share_map(&mut self, ctx: &mut Context<Self>) {
        let (Some(at), Some(map)) = (&self.held.game_server, self.feed.live.map()) else { return };
        let shared = self.context.maps.share(at, map);
        if !Arc::ptr_eq(&shared, map) {
            self.update(WorldUpdate::SharedMap(shared), ctx);
        }
    }

    /// Takes the map of another link to the game server. False if none has that of the present world.
    pub(super) fn take_shared_map(&mut self, ctx: &mut Context<Self>) -> bool {
        let shared = self.held.game_server.as_ref().and_then(|at| self.context.maps.get(at));
        shared.is_some_and(|map| {
            self.update(WorldUpdate::SharedMap(map), ctx);
            !self.feed.live.wants_map()
        })
    }

    /// Keeps what is known of the world, with its monuments if its map is known. It is tried until the database takes it:
    /// otherwise the next start would see a wipe once more.
    pub(super) fn store_world(&mut self, ctx: &mut Context<Self>) {
        let Some((row, monuments)) = self.feed.begin_world_write() else { return };
        let (pool, server) = (self.context.pool.clone(), self.server.clone());
        let save = move |db: &mut Db| paired_servers::save_baseline(db, &server, &row, monuments.as_deref());
        let stored = async move { pool.write(save).await };
        ctx.spawn(stored.into_actor(self).map(|stored, connection, ctx| match stored {
            Ok(_) => {
                if connection.feed.end_world_write() {
                    connection.store_world(ctx);
                }
            }
            Err(error) => {
                log::warn!(server = connection.server.as_str(); "the world is stored again later: {error}");
                ctx.run_later(STORED_AGAIN_AFTER, |connection, ctx| {
                    connection.feed.end_world_write();
                    connection.store_world(ctx);
                });
            }
        }));
    }
}
