//! Tracked players at a game connection: their coming and going is delivered and kept like events of the game.

use actix::prelude::*;

use super::GameConnection;
use crate::domain::{ids::ServerId, world_event::WorldEvent};

/// A tracked player of this paired server came online or went offline: every watcher gets the event.
#[derive(Message)]
#[rtype(result = "()")]
pub struct PlayerSeen {
    pub server: ServerId,
    pub event: WorldEvent,
}

/// The most of one [`PlayersSeen`].
pub const PLAYERS_AT_ONCE: usize = 500;

/// Tracked players came online and went offline, [`PLAYERS_AT_ONCE`] at the most. For the hub.
#[derive(Message)]
#[rtype(result = "()")]
pub struct PlayersSeen(pub Vec<PlayerSeen>);

impl Handler<PlayerSeen> for GameConnection {
    type Result = ();

    fn handle(&mut self, PlayerSeen { event, .. }: PlayerSeen, _: &mut Self::Context) {
        let id = self.context.record(&self.server, self.held.game_server.as_ref(), &event);
        self.feed.deliver_event(id.as_deref(), &event);
    }
}
