//! Watched shops, from the API to the game connections.

use actix::prelude::*;

use super::Hub;
use crate::relay::market::shop_watcher::ShopWatchesChanged;

impl Handler<ShopWatchesChanged> for Hub {
    type Result = ();

    fn handle(&mut self, changed: ShopWatchesChanged, _: &mut Self::Context) {
        if let Some(connection) = self.connections.get(&changed.server) {
            connection.address.do_send(changed);
        }
    }
}
