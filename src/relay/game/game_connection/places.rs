//! Places of new devices at a game connection.

use actix::prelude::*;

use super::GameConnection;
use crate::{
    db::{engine::pool::Db, smart_devices},
    relay::game::commands::PlaceDevice,
};

impl GameConnection {
    /// Stores the places of new devices that are known by now.
    pub(super) fn place_devices(&mut self, ctx: &mut Context<Self>) {
        let placed = self.devices.placement.take_placed(&self.feed.live, self.context.clock.moment());
        for (device, place) in placed {
            let (pool, server) = (self.context.pool.clone(), self.server.clone());
            let store = async move {
                let set = move |db: &mut Db| smart_devices::set_first_place(db, &server, &device, place);
                pool.write(set).await
            };
            ctx.spawn(store.into_actor(self).map(|stored, connection, ctx| match stored {
                Ok(true) => connection.load_devices(ctx),
                Ok(false) => {}
                Err(error) => {
                    log::warn!(server = connection.server.as_str(); "the place of a device was not stored: {error}");
                }
            }));
        }
    }
}

impl Handler<PlaceDevice> for GameConnection {
    type Result = ();

    fn handle(&mut self, place: PlaceDevice, ctx: &mut Self::Context) {
        self.devices.placement.add(place, self.context.clock.moment());
        self.place_devices(ctx);
    }
}
