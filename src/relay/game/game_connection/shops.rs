//! Shops at a game connection: see [`shop_watcher`](crate::relay::market::shop_watcher).

use actix::prelude::*;

use super::GameConnection;
use crate::{
    domain::ids::GameServerId,
    relay::{market::shop_watcher::ShopWatchesChanged, state::game_update::WorldUpdate},
};

impl GameConnection {
    /// The link is to this game server.
    pub(super) fn join_market(&mut self, game_server: &GameServerId, ctx: &mut Context<Self>) {
        self.shops.linked(game_server);
        self.load_shops(ctx);
    }

    /// Reads what is missing from the database; until then nothing is compared.
    fn load_shops(&mut self, ctx: &mut Context<Self>) {
        if let Some(load) = self.shops.to_load() {
            ctx.spawn(load.into_actor(self).map(|loaded, connection, _| connection.shops.loaded(loaded)));
        }
    }

    /// The live state has a complete answer of the map.
    pub(super) fn feed_market(&mut self, ctx: &mut Context<Self>) {
        self.load_shops(ctx);
        for event in self.shops.answered(&self.feed.live, self.context.clock.moment()) {
            let id = self.context.record(&self.server, None, &event);
            self.feed.deliver_event(id.as_deref(), &event);
        }
        let known = self.feed.live.state().server.reports;
        if let Some(reports) = self.shops.reports().filter(|reports| *reports != known) {
            self.update(WorldUpdate::Reports(reports), ctx);
        }
    }
}

impl Handler<ShopWatchesChanged> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: ShopWatchesChanged, ctx: &mut Self::Context) {
        let stored = self.shops.read_watches();
        ctx.spawn(stored.into_actor(self).map(|stored, connection, _| connection.shops.reloaded(stored)));
    }
}
