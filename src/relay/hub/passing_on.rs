//! Messages through the hub to game connections: commands of users who may give them, news and questions from the API.

use actix::{fut::ready, prelude::*};

use super::{
    BudgetExhausted, Hub,
    nodes::remote_commands::RemoteCommand,
    to_connection::{ForNodes, ForOtherNodes, NotPermitted, ToConnection},
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
    /// May this user do this to the server?
    pub(super) fn may(
        &self,
        server: ServerId,
        user: UserId,
        action: Action,
    ) -> impl Future<Output = Result<(), NotPermitted>> + use<> {
        let (pool, checked) = (self.context.pool.clone(), server.clone());
        async move {
            pool.read(move |db| check(db, &checked, &user, action)).await.unwrap_or_else(|error| {
                log::error!(server = server.as_str(); "access could not be read: {error}");
                Err(NotPermitted::Internal)
            })
        }
    }

    /// The answer of the game connection to this message, for a user who may do this to the server; `lost` if it ends before
    /// it answers. The connection may be on another node.
    pub(super) fn command<M, T, E>(
        &self,
        (server, user, action): (ServerId, UserId, Action),
        message: M,
        lost: E,
    ) -> ResponseActFuture<Self, Result<T, E>>
    where
        M: RemoteCommand + Message<Result = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<NotPermitted> + Send + 'static,
        GameConnection: Handler<M>,
    {
        let permitted = self.may(server.clone(), user, action).into_actor(self);
        Box::pin(permitted.then(move |permitted, hub, ctx| -> ResponseActFuture<Self, Result<T, E>> {
            match permitted {
                Ok(()) => hub.carry_out(server, message, lost, ctx),
                Err(refused) => Box::pin(ready(Err(refused.into()))),
            }
        }))
    }

    /// [`command`](Self::command) of a user who may.
    pub(super) fn carry_out<M, T, E>(
        &mut self,
        server: ServerId,
        message: M,
        lost: E,
        ctx: &Context<Self>,
    ) -> ResponseActFuture<Self, Result<T, E>>
    where
        M: RemoteCommand + Message<Result = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<NotPermitted> + Send + 'static,
        GameConnection: Handler<M>,
    {
        match self.connection(&server, false, ctx) {
            Some(connection) => {
                Box::pin(async move { connection.send(message).await.unwrap_or(Err(lost)) }.into_actor(self))
            }
            None => self.command_elsewhere(server, message, lost),
        }
    }
}

impl<M> Handler<ToConnection<M>> for Hub
where
    M: Message<Result = ()> + ForOtherNodes + Send + 'static,
    GameConnection: Handler<M>,
{
    type Result = ();

    fn handle(&mut self, ToConnection { server, message }: ToConnection<M>, ctx: &mut Self::Context) {
        match self.connections.get(&server) {
            Some(connection) => connection.address.do_send(message),
            None if self.nodes.is_some() => match message.for_others(&server) {
                ForNodes::News(news) => self.share(news, ctx),
                ForNodes::Line(line) => self.say_elsewhere(server, line, ctx),
            },
            None => {}
        }
    }
}

impl Handler<BudgetExhausted> for Hub {
    type Result = ResponseActFuture<Self, bool>;

    fn handle(&mut self, question: BudgetExhausted, _: &mut Self::Context) -> Self::Result {
        self.read_connection(question.server.clone(), question, |_| false)
    }
}
