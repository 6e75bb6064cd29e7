//! A user takes note of a raid: stored first, then shown to all who watch.

use actix::prelude::*;

use super::Hub;
use crate::{
    db::{
        access,
        incidents::{self, StoredIncident},
    },
    domain::access::Action,
    relay::{
        commands::{AcknowledgeRaid, CommandError},
        game_connection::ShowAcknowledgement,
    },
};

impl Handler<AcknowledgeRaid> for Hub {
    type Result = ResponseActFuture<Self, Result<StoredIncident, CommandError>>;

    fn handle(&mut self, acknowledge: AcknowledgeRaid, _: &mut Self::Context) -> Self::Result {
        let AcknowledgeRaid { server, user, incident } = acknowledge;
        let (pool, now) = (self.context.pool.clone(), self.context.clock.now());
        let (asked, by, id) = (server.clone(), user.clone(), incident.clone());
        let stored = async move {
            pool.write(move |db| {
                if !access::role(db, &by, &asked)?.is_some_and(|role| role.may(Action::Watch)) {
                    return Ok(Err(CommandError::UnknownServer));
                }
                let known = incidents::acknowledge(db, &asked, &id, &by, now)?;
                Ok(known.ok_or(CommandError::UnknownIncident))
            })
            .await
        };
        Box::pin(stored.into_actor(self).map(move |stored, hub, _| {
            let stored = stored.unwrap_or_else(|error| {
                log::error!("an acknowledgement could not be stored: {error}");
                Err(CommandError::Internal)
            })?;
            if let Some(connection) = hub.connections.get(&server) {
                connection.address.do_send(ShowAcknowledgement { incident, user, at: now });
            }
            Ok(stored)
        }))
    }
}
