//! Lines that users say in their team's chat, through the hub.

use actix::prelude::*;

use super::Hub;
use crate::{
    db::access,
    domain::{access::Action, chat::KeptLine},
    relay::game::commands::{ChatError, SayInTeam, SendChat},
};

impl Handler<SendChat> for Hub {
    type Result = ResponseActFuture<Self, Result<KeptLine, ChatError>>;

    fn handle(&mut self, SendChat { server, user, text }: SendChat, _: &mut Self::Context) -> Self::Result {
        let (pool, asked) = (self.context.pool.clone(), server.clone());
        let role = async move { pool.read(move |db| access::role(db, &user, &asked)).await };
        let connection = role.into_actor(self).map(move |role, hub, ctx| match role {
            Ok(Some(role)) if role.may(Action::Command) => {
                hub.connection(&server, false, ctx).ok_or(ChatError::Unavailable)
            }
            Ok(Some(_)) => Err(ChatError::OwnerOnly),
            Ok(None) => Err(ChatError::UnknownServer),
            Err(error) => {
                log::error!("access could not be read: {error}");
                Err(ChatError::Internal)
            }
        });
        Box::pin(connection.then(|connection, hub, _| {
            async move { connection?.send(SayInTeam { text }).await.map_err(|_| ChatError::TimedOut)? }.into_actor(hub)
        }))
    }
}
