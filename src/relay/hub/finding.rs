//! Paired servers, as sockets and commands look for them: the game connection, and who may watch.

use std::time::Duration;

use actix::{fut::ready, prelude::*};
use tokio::time::timeout;

use super::{ANSWERED_WITHIN, Hub};
use crate::{
    db::engine::error::DbError,
    domain::ids::ServerId,
    relay::{
        client::server_lookup::{FindError, FindServer, FoundServer},
        game::game_connection::GameConnection,
        wire::publication::AllowedUsers,
    },
};

/// A paired server.
pub(super) struct FoundPairing {
    /// `None`: another node has it, or none has.
    pub connection: Option<Addr<GameConnection>>,
    pub allowed: AllowedUsers,
    /// See [`FoundServer::is_of_now`].
    pub is_of_now: bool,
}

/// The answer to [`FindServer`].
pub(super) type FindAnswer = ResponseActFuture<Hub, Result<Option<FoundServer>, FindError>>;

impl Hub {
    /// A server and who may watch it; none if it is not paired. While the database does not answer, the users of its last
    /// answer may watch.
    pub(super) fn look_up(
        &mut self,
        server: ServerId,
    ) -> impl ActorFuture<Self, Output = Result<Option<FoundPairing>, DbError>> + use<> {
        let patience = if self.known_allowed(&server).is_some() { ANSWERED_WITHIN } else { Duration::MAX };
        let allowed = timeout(patience, self.allowed_users(server.clone()));
        allowed.into_actor(self).map(move |allowed, hub, ctx| {
            let allowed = allowed.unwrap_or_else(|_| Err(DbError::Unavailable("no answer in time".to_owned())));
            let is_of_now = allowed.is_ok();
            let allowed = allowed.or_else(|error| {
                // A partial answer does not know the guests: they wait for a full one.
                let known = hub.known_allowed(&server).cloned().map(|known| hub.recent.newest(&server, known));
                let is_whole = |known: &AllowedUsers| !known.users.is_empty() && !known.is_partial;
                known.filter(|known| is_whole(known) || hub.recent.is_removed(&server)).ok_or(error)
            });
            let allowed = hub.recent.newest(&server, allowed?);
            // Without an owner there is no such paired server.
            let is_paired = !allowed.users.is_empty();
            let connection = is_paired.then(|| hub.connection(&server, false, ctx)).flatten();
            if let Some(known) = hub.connections.get_mut(&server) {
                known.allowed = Some(allowed.clone());
            }
            let is_there = connection.is_some() || (is_paired && !hub.ending && !hub.recent.is_removed(&server));
            Ok(is_there.then_some(FoundPairing { connection, allowed, is_of_now }))
        })
    }

    /// The users who may watch, by the last answer of the database.
    pub(super) fn known_allowed(&self, server: &ServerId) -> Option<&AllowedUsers> {
        let here = self.connections.get(server).and_then(|known| known.allowed.as_ref());
        here.or_else(|| self.nodes.as_ref()?.remote.allowed(server))
    }
}

impl Handler<FindServer> for Hub {
    type Result = FindAnswer;

    fn handle(&mut self, FindServer { server }: FindServer, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.look_up(server.clone()).then(move |found, hub, _| -> FindAnswer {
            match found {
                Ok(Some(FoundPairing { connection: Some(connection), allowed, is_of_now })) => {
                    Box::pin(ready(Ok(Some(FoundServer { feed: connection.into(), allowed, is_of_now }))))
                }
                Ok(Some(FoundPairing { connection: None, allowed, is_of_now })) => {
                    hub.find_elsewhere(server, allowed, is_of_now)
                }
                Ok(None) => Box::pin(ready(Ok(None))),
                Err(error) => Box::pin(ready(Err(error.into()))),
            }
        }))
    }
}
