//! Messages through the hub to game connections: commands of users who may give them, and news from the API.

use actix::prelude::*;

use super::{
    Hub,
    to_connection::{NotPermitted, ToConnection},
};
use crate::{
    db::{
        access,
        engine::{error::DbError, pool::Db},
    },
    domain::{
        access::Action,
        ids::{ServerId, UserId},
    },
    relay::game::game_connection::GameConnection,
};

/// May this user do this to the server?
pub(super) fn check(
    db: &mut Db,
    server: &ServerId,
    user: &UserId,
    action: Action,
) -> Result<Result<(), NotPermitted>, DbError> {
    Ok(match access::role(db, user, server)? {
        Some(role) if role.may(action) => Ok(()),
        Some(role) if role.may(Action::Watch) => Err(NotPermitted::OwnerOnly),
        _ => Err(NotPermitted::UnknownServer),
    })
}

impl Hub {
    /// The game connection of this server, for a user who may do this to it.
    pub(super) fn permitted(
        &self,
        server: ServerId,
        user: UserId,
        action: Action,
    ) -> impl ActorFuture<Self, Output = Result<Addr<GameConnection>, NotPermitted>> + use<> {
        let (pool, checked) = (self.context.pool.clone(), server.clone());
        let permitted = async move { pool.read(move |db| check(db, &checked, &user, action)).await };
        permitted.into_actor(self).map(move |permitted, hub, ctx| {
            permitted.unwrap_or_else(|error| {
                log::error!(server = server.as_str(); "access could not be read: {error}");
                Err(NotPermitted::Internal)
            })?;
            hub.connection(&server, false, ctx).ok_or(NotPermitted::Unavailable)
        })
    }

    /// [`permitted`](Self::permitted), and the connection's answer to this message; `lost` if it ends before it answers.
    pub(super) fn command<M, T, E>(
        &self,
        (server, user, action): (ServerId, UserId, Action),
        message: M,
        lost: E,
    ) -> ResponseActFuture<Self, Result<T, E>>
    where
        M: Message<Result = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<NotPermitted> + Send + 'static,
        GameConnection: Handler<M>,
    {
        Box::pin(self.permitted(server, user, action).then(move |connection, hub, _| {
            async move { connection?.send(message).await.unwrap_or(Err(lost)) }.into_actor(hub)
        }))
    }
}

impl<M> Handler<ToConnection<M>> for Hub
where
    M: Message<Result = ()> + Send + 'static,
    GameConnection: Handler<M>,
{
    type Result = ();

    fn handle(&mut self, ToConnection { server, message }: ToConnection<M>, _: &mut Self::Context) {
        if let Some(connection) = self.connections.get(&server) {
            connection.address.do_send(message);
        }
    }
}
