//! News of game connections: the status of a link, a server that is no longer paired, a panic.

use std::time::Duration;

use actix::prelude::*;

use super::Hub;
use crate::{
    config::GameLinkPolicy,
    domain::ids::ServerId,
    relay::game::game_connection::{ConnectionEvent, GameConnection},
};

impl Hub {
    /// Restarts a game connection that has panicked, after a pause if no one asks for it before.
    fn restart(&mut self, server: ServerId, connection: &Addr<GameConnection>, ctx: &mut Context<Self>) {
        let Some(known) = self.connections.get(&server).filter(|known| known.address == *connection) else { return };
        let lived = known.since.elapsed();
        self.connections.remove(&server);
        self.alarm_routes.remove(&server);
        self.link_statuses.remove(&server);
        if self.context.game.link_policy == GameLinkPolicy::Always {
            self.link_statuses.insert(server.clone(), self.connecting());
            let backoff = self.failed.entry(server.clone()).or_default();
            let pause = backoff.after(lived, Duration::ZERO, self.context.random.byte());
            ctx.run_later(pause, move |hub, ctx| drop(hub.connection(&server, false, ctx)));
        }
    }
}

impl Handler<ConnectionEvent> for Hub {
    type Result = ();

    fn handle(&mut self, event: ConnectionEvent, ctx: &mut Self::Context) {
        match event {
            ConnectionEvent::Status { server, status } => {
                if self.connections.contains_key(&server) {
                    self.link_statuses.insert(server, status);
                }
            }
            ConnectionEvent::ServerGone { server } => self.forget(server),
            ConnectionEvent::Failed { server, connection } => self.restart(server, &connection, ctx),
        }
    }
}
