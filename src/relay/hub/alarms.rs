//! Alarms through the hub: those that were pushed, drills, and users who take note.

use actix::prelude::*;

use super::{AlarmPushed, DrillError, DrillOutcome, Hub, StartDrill, ToConnection, passing_on::check};
use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        incidents::{self, StoredIncident},
    },
    domain::access::Action,
    relay::game::{
        commands::{AcknowledgeRaid, CommandError},
        game_connection::{DeliverPushedAlarm, Drill, ShowAcknowledgement},
    },
};

impl Handler<AcknowledgeRaid> for Hub {
    type Result = ResponseActFuture<Self, Result<StoredIncident, CommandError>>;

    fn handle(&mut self, acknowledge: AcknowledgeRaid, ctx: &mut Self::Context) -> Self::Result {
        let AcknowledgeRaid { server, user, incident } = acknowledge;
        let (pool, now) = (self.context.pool.clone(), self.context.clock.now());
        let (asked, failing, by) = (server.clone(), server.clone(), user.clone());
        let hub = ctx.address();
        // Also if the caller has stopped waiting by then.
        let show = move |known: &Result<StoredIncident, CommandError>| {
            // Perhaps of the incident that it is a part of.
            if let Ok(StoredIncident { id, .. }) = known {
                let incident = id.clone();
                let message = ShowAcknowledgement { incident, user, at: now };
                hub.do_send(ToConnection { server, message });
            }
        };
        let stored = async move {
            let acknowledge = move |db: &mut Db| -> Result<_, DbError> {
                if let Err(refused) = check(db, &asked, &by, Action::Acknowledge)? {
                    return Ok(Err(refused.into()));
                }
                let known = incidents::acknowledge(db, &asked, &incident, &by, now)?;
                Ok(known.ok_or(CommandError::UnknownIncident))
            };
            pool.write_and_notify(acknowledge, show).await.unwrap_or_else(|error| {
                log::error!(server = failing.as_str(); "an acknowledgement could not be stored in time: {error}");
                Err(CommandError::Internal)
            })
        };
        Box::pin(stored.into_actor(self))
    }
}

impl Handler<AlarmPushed> for Hub {
    type Result = ();

    fn handle(&mut self, AlarmPushed { server, alarm, received_at }: AlarmPushed, ctx: &mut Self::Context) {
        // If the service stops, it waits in the ledger for the next start.
        if let Some(connection) = self.connection(&server, false, ctx) {
            connection.do_send(DeliverPushedAlarm(alarm, received_at));
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
