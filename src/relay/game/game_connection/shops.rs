//! Shops at a game connection: see [`shop_watcher`](crate::relay::market::shop_watcher).

use actix::prelude::*;

use super::GameConnection;
use crate::{
    domain::ids::GameServerId,
    relay::{market::shop_watcher::ShopWatchesChanged, state::live_state::GameUpdate},
};

impl GameConnection {
    /// The link is to this game server.
    pub(super) fn join_market(&self, game_server: &GameServerId, ctx: &mut Context<Self>) {
        if let Some(load) = self.shops.linked(game_server) {
            ctx.spawn(load.into_actor(self));
        }
    }

    /// The live state has a complete answer of the map.
    pub(super) fn feed_market(&mut self, ctx: &mut Context<Self>) {
        if let Some(load) = self.shops.answered(self.context.clock.moment()) {
            ctx.spawn(load.into_actor(self));
        }
        let known = self.live.borrow().state().server.reports;
        if let Some(reports) = self.shops.reports().filter(|reports| *reports != known) {
            self.update(GameUpdate::Reports(reports), ctx);
        }
    }
}

impl Handler<ShopWatchesChanged> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: ShopWatchesChanged, ctx: &mut Self::Context) {
        ctx.spawn(self.shops.clone().reload().into_actor(self));
    }
}
