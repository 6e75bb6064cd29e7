//! Tracked players through the hub: every watcher of a server gets its players' coming and going.

use actix::prelude::*;

use super::{Hub, PlayerSeen};

impl Handler<PlayerSeen> for Hub {
    type Result = ();

    fn handle(&mut self, seen: PlayerSeen, ctx: &mut Self::Context) {
        if let Some(connection) = self.connection(&seen.server, false, ctx) {
            connection.do_send(seen);
        }
    }
}
