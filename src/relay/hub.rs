//! The registry of live connections: the only door from the API into the relay.

use std::collections::HashMap;

use actix::prelude::*;

use crate::domain::{
    ids::{ServerId, SessionId},
    server_state::ConnectionState,
    time::Timestamp,
};

/// A game server was paired, or its credentials changed: open its link now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ServerPaired {
    pub server: ServerId,
}

/// A paired server was deleted: end its link and every watch of it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ServerRemoved {
    pub server: ServerId,
}

/// A session signed out: close the sockets that came from it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionEnded {
    pub session: SessionId,
}

/// How the links of these servers stand; a server without a link is absent.
#[derive(Message)]
#[rtype(result = "HashMap<ServerId, Connection>")]
pub struct Connections {
    pub servers: Vec<ServerId>,
}

/// The link to one game server, as users see it.
#[derive(Clone, Debug)]
pub struct Connection {
    pub state: ConnectionState,
    pub since: Timestamp,
    pub reason: Option<String>,
    pub next_attempt_at: Option<Timestamp>,
}

/// See the module.
pub struct Hub;

impl Actor for Hub {
    type Context = Context<Self>;
}

impl Handler<ServerPaired> for Hub {
    type Result = ();

    fn handle(&mut self, _: ServerPaired, _: &mut Self::Context) {}
}

impl Handler<ServerRemoved> for Hub {
    type Result = ();

    fn handle(&mut self, _: ServerRemoved, _: &mut Self::Context) {}
}

impl Handler<SessionEnded> for Hub {
    type Result = ();

    fn handle(&mut self, _: SessionEnded, _: &mut Self::Context) {}
}

impl Handler<Connections> for Hub {
    type Result = MessageResult<Connections>;

    fn handle(&mut self, _: Connections, _: &mut Self::Context) -> Self::Result {
        MessageResult(HashMap::new())
    }
}
