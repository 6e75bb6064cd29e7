//! Changes that the API and pushes report: pairings, deletions, sessions that end. On a node of several, the others hear of
//! them, too.

use actix::prelude::*;

use super::{Hub, ServerPaired, ServerRemoved, SessionEnded, UserErased};
use crate::{
    config::GameLinkPolicy,
    domain::{
        ids::{SessionId, UserId},
        node_news::NodeNews,
    },
    relay::{client::admission::SocketOrder, game::game_connection::RetryLink, wire::close::Reason},
};

impl Hub {
    /// This server is paired, perhaps once more.
    pub(super) fn paired(&mut self, ServerPaired { server, changed }: ServerPaired, ctx: &mut Context<Self>) {
        self.recent.pair(&server);
        if self.nodes.is_some() {
            self.read_places(ctx);
        }
        match self.connections.get(&server).filter(|known| known.address.connected()) {
            // The read that has just begun finds the change.
            Some(_) if changed && self.nodes.is_some() => {}
            Some(connection) => connection.address.do_send(RetryLink { changed }),
            // A new connection reads its credentials anyway; one that waits for a watcher starts with that.
            None if self.context.game.link_policy == GameLinkPolicy::Always => {
                self.connection(&server, true, ctx);
            }
            None => {}
        }
    }

    /// This server was deleted.
    pub(super) fn removed(&mut self, ServerRemoved { server }: ServerRemoved) {
        self.context.journal.forget(&server);
        self.forget(server);
    }

    /// Closes the sockets of a session.
    pub(super) fn end_session(&mut self, session: &SessionId) {
        for socket in self.presence.end_session(session) {
            socket.do_send(SocketOrder::Close(Reason::SignedOut));
        }
    }

    /// Closes all sockets of a user.
    pub(super) fn end_user(&mut self, user: &UserId) {
        for socket in self.presence.end_user(user) {
            socket.do_send(SocketOrder::Close(Reason::SignedOut));
        }
    }
}

impl Handler<ServerPaired> for Hub {
    type Result = ();

    fn handle(&mut self, paired: ServerPaired, ctx: &mut Self::Context) {
        self.share(NodeNews::ServerPaired { server: paired.server.clone() }, ctx);
        self.paired(paired, ctx);
    }
}

impl Handler<ServerRemoved> for Hub {
    type Result = ();

    fn handle(&mut self, removed: ServerRemoved, ctx: &mut Self::Context) {
        self.share(NodeNews::ServerRemoved { server: removed.server.clone() }, ctx);
        self.removed(removed);
    }
}

impl Handler<SessionEnded> for Hub {
    type Result = ();

    fn handle(&mut self, SessionEnded { session }: SessionEnded, ctx: &mut Self::Context) {
        self.end_session(&session);
        self.share(NodeNews::SessionEnded { session }, ctx);
    }
}

impl Handler<UserErased> for Hub {
    type Result = ();

    fn handle(&mut self, UserErased { user }: UserErased, ctx: &mut Self::Context) {
        self.end_user(&user);
        self.share(NodeNews::UserErased { user }, ctx);
    }
}
