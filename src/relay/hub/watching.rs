//! Changes of who may watch: one refresh from the database at a time for each server, however many changes come.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;

use super::{AccessChanged, Hub};
use crate::{
    domain::{ids::ServerId, node_news::NodeNews},
    relay::{
        client::admission::SocketOrder,
        game::game_connection::SetWatchers,
        wire::{close::Reason, publication::AllowedUsers},
    },
};

/// Pause before a refresh that the database did not answer is repeated.
const REFRESH_AGAIN: Duration = Duration::from_secs(5);

impl Hub {
    /// Reads who may watch, and passes it on to the sockets and the game connection.
    fn refresh_access(&mut self, server: ServerId, ctx: &mut Context<Self>) {
        let allowed = self.allowed_users(server.clone());
        let version = self.access_version;
        ctx.spawn(allowed.into_actor(self).map(move |allowed, hub, ctx| {
            let allowed = match allowed {
                Ok(allowed) => {
                    hub.close_only_of(&server, &allowed);
                    allowed
                }
                // No guest keeps an access that may have ended. That of the owner cannot.
                Err(error) => {
                    log::error!("access could not be read, the watches of all guests of the server end: {error}");
                    let known = hub.known_allowed(&server);
                    let owner = known.and_then(|known| known.owner.clone());
                    AllowedUsers { version, users: Arc::new(owner.iter().cloned().collect()), owner, is_partial: true }
                }
            };
            let is_partial = allowed.is_partial;
            // `recent` also without a connection: a caller that asks for the server may have an older answer already.
            if let Some(connection) = hub.connections.get_mut(&server) {
                connection.allowed = Some(allowed.clone());
                connection.address.do_send(SetWatchers(allowed.clone()));
            }
            hub.set_remote_watchers(&server, &allowed);
            hub.recent.set_watchers(server.clone(), allowed, hub.context.clock.moment());
            if is_partial {
                // The next refresh has all changes until then.
                ctx.run_later(REFRESH_AGAIN, |hub, ctx| hub.refresh_access(server, ctx));
                return;
            }
            // A change since this refresh began is in none yet.
            if hub.access_refreshes.remove(&server).is_some_and(|mut refresh| refresh.end()) {
                hub.access_changed(server, ctx);
            }
        }));
    }

    /// Closes the sockets that are for this server only, and whose users may no longer watch it.
    pub(super) fn close_only_of(&mut self, server: &ServerId, allowed: &AllowedUsers) {
        for socket in self.presence.end_only_of(server, |user| allowed.users.contains(user)) {
            socket.do_send(SocketOrder::Close(Reason::SignedOut));
        }
    }
}

impl Handler<AccessChanged> for Hub {
    type Result = ();

    fn handle(&mut self, AccessChanged { server }: AccessChanged, ctx: &mut Self::Context) {
        self.share(NodeNews::AccessChanged { server: server.clone() }, ctx);
        self.access_changed(server, ctx);
    }
}

impl Hub {
    /// Others may watch this server than before, perhaps.
    pub(super) fn access_changed(&mut self, server: ServerId, ctx: &mut Context<Self>) {
        if self.access_refreshes.entry(server.clone()).or_default().begin() {
            self.refresh_access(server, ctx);
        }
    }
}
