//! Alarms through the hub: pushed ones that no game connection took, drills, and users who take note.

use actix::{fut::ready, prelude::*};
use tokio::time::timeout;

use super::{
    AlarmPushed, DrillError, DrillOutcome, FindRaid, Hub, StartDrill, ToConnection, finding::FoundPairing,
    nodes::remote_commands::CARRIED_OUT_WITHIN, passing_on::check,
};
use crate::{
    db::{
        alarms::incidents::{self, StoredIncident},
        engine::{error::DbError, pool::Db},
    },
    domain::{access::Action, time::Timestamp},
    relay::{
        alarms::alarm_routes::DeliverPushedAlarm,
        game::{
            commands::{ACKNOWLEDGED_WITHIN, AcknowledgeRaid, CommandError, KeepAcknowledgement, Unanswered},
            game_connection::{Drill, ShowAcknowledgement},
        },
        remote::remote_question::{RemoteAnswer, RemoteQuestion},
    },
};

/// The answer to an acknowledgement.
type Acknowledged = ResponseActFuture<Hub, Result<StoredIncident, CommandError>>;
/// The answer to a test alarm.
type Drilled = ResponseActFuture<Hub, Result<DrillOutcome, DrillError>>;

impl Handler<AcknowledgeRaid> for Hub {
    type Result = Acknowledged;

    fn handle(&mut self, acknowledge: AcknowledgeRaid, ctx: &mut Self::Context) -> Self::Result {
        let now = self.context.clock.now();
        let stored = self.store_acknowledgement(&acknowledge, now, ctx.address());
        Box::pin(stored.into_actor(self).then(move |stored, hub, _| -> Acknowledged {
            match stored {
                // The alarm itself may wait for the database, too.
                Err(unstored @ (CommandError::Internal | CommandError::UnknownIncident)) => {
                    let kept = hub.keep_acknowledgement(acknowledge, now);
                    Box::pin(kept.map(move |kept, _, _| match kept {
                        // Only the database knows all.
                        Err(CommandError::UnknownIncident) => Err(unstored),
                        kept => kept,
                    }))
                }
                stored => Box::pin(ready(stored)),
            }
        }))
    }
}

impl Hub {
    fn store_acknowledgement(
        &self,
        acknowledge: &AcknowledgeRaid,
        now: Timestamp,
        hub: Addr<Self>,
    ) -> impl Future<Output = Result<StoredIncident, CommandError>> + use<> {
        let AcknowledgeRaid { server, user, incident, .. } = acknowledge;
        let (shown_at, shown_of) = (server.clone(), user.clone());
        // Also if the caller has stopped waiting by then.
        let show = move |known: &Result<StoredIncident, CommandError>| {
            // Perhaps of the incident that it is a part of.
            if let Ok(StoredIncident { id, .. }) = known {
                let message = ShowAcknowledgement { incident: id.clone(), user: shown_of, at: now };
                hub.do_send(ToConnection { server: shown_at, message });
            }
        };
        let (pool, server, user, incident) =
            (self.context.pool.clone(), server.clone(), user.clone(), incident.clone());
        let failing = server.clone();
        async move {
            let acknowledge = move |db: &mut Db| -> Result<_, DbError> {
                if let Err(refused) = check(db, &server, &user, Action::Acknowledge)? {
                    return Ok(Err(refused.into()));
                }
                let known = incidents::acknowledge(db, &server, &incident, &user, now)?;
                Ok(known.ok_or(CommandError::UnknownIncident))
            };
            let reason = match timeout(ACKNOWLEDGED_WITHIN, pool.write_and_notify(acknowledge, show)).await {
                Ok(Ok(answered)) => return answered,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the database takes too long".to_owned(),
            };
            log::warn!(server = failing.as_str(); "an acknowledgement could not be stored in time: {reason}");
            Err(CommandError::Internal)
        }
    }

    /// Has the game connection keep it, for a user who may watch as far as that is known.
    fn keep_acknowledgement(&mut self, acknowledge: AcknowledgeRaid, at: Timestamp) -> Acknowledged {
        let AcknowledgeRaid { server, user, incident, by_link } = acknowledge;
        let is_good = by_link && !self.context.early_alarms.changes.has_left(&server, &user);
        let linked = self.connections.get(&server).filter(|_| is_good).map(|known| known.address.clone());
        Box::pin(self.look_up(server.clone()).then(move |found, hub, _| -> Acknowledged {
            // `None`: at the node that has the server.
            let permitted = match (found, linked) {
                // A link is good for those who were not seen to leave.
                (Ok(Some(found)), Some(linked)) if !found.is_of_now => Ok(Some(linked)),
                (Ok(found), _) => {
                    let found = found.filter(|found| found.allowed.users.contains(&user));
                    found.map(|found| found.connection).ok_or(CommandError::UnknownServer)
                }
                (Err(_), Some(linked)) => Ok(Some(linked)),
                (Err(_), None) if is_good && hub.is_elsewhere(&server) => Ok(None),
                (Err(_), None) => Err(CommandError::Internal),
            };
            let keep = KeepAcknowledgement { incident, user, at };
            match permitted {
                Ok(Some(connection)) => {
                    let kept = async move { connection.send(keep).await.unwrap_or(Err(CommandError::Internal)) };
                    Box::pin(kept.into_actor(hub))
                }
                Ok(None) => hub.command_elsewhere(server, keep, CommandError::Internal),
                Err(refused) => Box::pin(ready(Err(refused))),
            }
        }))
    }
}

impl Handler<FindRaid> for Hub {
    type Result = ResponseActFuture<Self, Result<Option<StoredIncident>, Unanswered>>;

    fn handle(&mut self, find: FindRaid, _: &mut Self::Context) -> Self::Result {
        self.read_connection(find.server.clone(), find, |reason| reason.if_none(None))
    }
}

impl Handler<AlarmPushed> for Hub {
    type Result = ();

    fn handle(&mut self, pushed: AlarmPushed, ctx: &mut Self::Context) {
        // If the service stops, it waits in the ledger for the next start.
        if let Some(connection) = self.connection(&pushed.server, false, ctx) {
            // Without a way back: at a connection that fails whenever it is started, it would go round without a pause.
            connection.do_send(DeliverPushedAlarm::new(pushed, None));
        }
    }
}

impl Handler<StartDrill> for Hub {
    type Result = Drilled;

    fn handle(&mut self, StartDrill { server }: StartDrill, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.look_up(server.clone()).then(move |found, hub, _| -> Drilled {
            match found {
                Ok(Some(FoundPairing { connection: Some(connection), .. })) => {
                    let drilled = async move { connection.send(Drill).await.ok().flatten() };
                    Box::pin(drilled.into_actor(hub).map(|drilled, _, _| drilled.ok_or(DrillError::Unavailable)))
                }
                Ok(Some(FoundPairing { connection: None, .. })) => {
                    let drilled = hub.ask_elsewhere(server, RemoteQuestion::Drill, CARRIED_OUT_WITHIN);
                    Box::pin(drilled.map(|drilled, _, _| match drilled {
                        Ok(RemoteAnswer::Drilled(Some(outcome))) => Ok(outcome),
                        _ => Err(DrillError::Unavailable),
                    }))
                }
                Ok(None) => Box::pin(ready(Err(DrillError::UnknownServer))),
                Err(_) => Box::pin(ready(Err(DrillError::Unavailable))),
            }
        }))
    }
}
