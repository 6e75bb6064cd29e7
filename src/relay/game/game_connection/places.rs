//! Places of new devices: the game does not say where they are, but a player who pairs one is beside it.

use actix::prelude::*;
use chrono::TimeDelta;

use super::GameConnection;
use crate::{
    db::{engine::pool::Db, smart_devices},
    relay::game::commands::{PlaceDevice, UnplacedDevice},
};

/// Time after the pairing within which the place of the player is believed to be that of the device. The team is asked
/// for every 5 s.
const AT_THAT_MOMENT: TimeDelta = TimeDelta::seconds(15);
/// Devices that wait; no one pairs more within that time.
const WAITING: usize = 32;

impl GameConnection {
    /// Places the devices whose player's place is known by now.
    pub(super) fn place_devices(&mut self, ctx: &mut Context<Self>) {
        if self.unplaced.is_empty() {
            return;
        }
        let now = self.context.clock.moment();
        self.unplaced.retain(|unplaced| now - unplaced.paired < AT_THAT_MOMENT);
        let live = self.live.borrow();
        let place_of = |player| live.member_place(player, now, AT_THAT_MOMENT);
        let placed: Vec<_> = self.unplaced.extract_if(.., |unplaced| place_of(unplaced.player).is_some()).collect();
        for UnplacedDevice { device, player, .. } in placed {
            let Some(place) = place_of(player) else { continue };
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
        let PlaceDevice { device, player, sent, .. } = place;
        let paired = self.context.clock.moment();
        // One that was pushed while we were away says nothing of where the player is now.
        let fresh = paired.stamp - sent < AT_THAT_MOMENT && self.unplaced.len() < WAITING;
        if let (true, Ok(player)) = (fresh, player.as_str().parse()) {
            self.unplaced.push(UnplacedDevice { device, player, paired });
            self.place_devices(ctx);
        }
    }
}
