//! Alarms through the hub: those that were pushed, drills, and users who take note.

use actix::prelude::*;

use super::{AlarmPushed, DrillError, DrillOutcome, Hub, StartDrill};
use crate::{
    db::{
        access,
        incidents::{self, StoredIncident},
    },
    domain::access::Action,
    relay::{
        commands::{AcknowledgeRaid, CommandError},
        game_connection::{DeliverPushedAlarm, Drill, ShowAcknowledgement},
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

impl Handler<AlarmPushed> for Hub {
    type Result = ();

    fn handle(&mut self, AlarmPushed { server, alarm }: AlarmPushed, ctx: &mut Self::Context) {
        // If the service stops, it waits in the ledger for the next start.
        if let Some(connection) = self.connection(&server, false, ctx) {
            connection.do_send(DeliverPushedAlarm(alarm));
        }
    }
}

impl Handler<StartDrill> for Hub {
    type Result = ResponseActFuture<Self, Result<DrillOutcome, DrillError>>;

    fn handle(&mut self, StartDrill { server }: StartDrill, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.find(server).then(|found, hub, _| {
            async move {
                let found = found.map_err(|_| DrillError::Unavailable)?.ok_or(DrillError::UnknownServer)?;
                found.connection.send(Drill).await.ok().flatten().ok_or(DrillError::Unavailable)
            }
            .into_actor(hub)
        }))
    }
}
