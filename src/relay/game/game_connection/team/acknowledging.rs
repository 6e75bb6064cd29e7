//! Players who take note of alarms in their team's chat: each for the own account, never for another. What the database does
//! not take in time is kept as alarms are.

use std::rc::Rc;

use actix::prelude::*;
use tokio::time::timeout;

use super::super::{GameConnection, ShowAcknowledgement};
use crate::{
    db::{
        access,
        alarms::incidents::{self, StoredIncident},
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        users,
    },
    domain::{
        access::Action,
        ids::{ServerId, UserId},
        team_command::speaker::LineUse,
        time::Timestamp,
    },
    relay::{
        alarms::alarm_delivery::AlarmDelivery,
        game::commands::{ACKNOWLEDGED_WITHIN, CommandError, KeepAcknowledgement},
    },
};

/// Incidents that were acknowledged, and the user in whose name.
struct AcknowledgedRaids {
    user: UserId,
    incidents: Vec<String>,
    /// Incidents that the database does not know, or was not asked for.
    unstored: Vec<String>,
}

impl GameConnection {
    /// Takes note of these incidents in the name of the user who plays as `author`.
    pub(super) fn acknowledge(&mut self, author: u64, asked: Vec<String>, ctx: &mut Context<Self>) {
        // The owner may play as another account than the one that signs in.
        let owner = self.commands.owner.clone().filter(|_| author == self.commands.player);
        let (pool, server, now) = (self.context.pool.clone(), self.server.clone(), self.context.clock.now());
        let own = ctx.address();
        // Also if the link ends meanwhile.
        let show = move |known: &Option<AcknowledgedRaids>| {
            if let Some(AcknowledgedRaids { user, incidents, .. }) = known {
                for incident in incidents.iter().cloned() {
                    own.do_send(ShowAcknowledgement { incident, user: user.clone(), at: now });
                }
            }
        };
        let (alarms, connection) = (self.alarms.clone(), ctx.address());
        let stored = async move {
            let asker = ChatAsker { pool, server, owner, author };
            let Some(mut known) = asker.take_note(asked, now, show).await? else { return Ok(None) };
            keep(&connection, &alarms, &mut known, now).await?;
            Ok::<_, CommandError>(Some(known))
        };
        ctx.spawn(stored.into_actor(self).map(move |stored, connection, ctx| {
            let name = connection.member_name(author);
            connection.with_texts(ctx, move |connection, texts, _| {
                let said = match stored {
                    Err(_) => texts.say("team.failed", &[]),
                    Ok(None) => texts.say("team.ack.stranger", &[]),
                    Ok(Some(known)) if known.incidents.is_empty() => texts.say("team.ack.none", &[("name", &name)]),
                    Ok(Some(known)) => {
                        let count = known.incidents.len().to_string();
                        texts.say("team.ack", &[("name", &name), ("count", &count)])
                    }
                };
                let now = connection.context.clock.moment();
                let has_room = |key| connection.context.teams.answers_acknowledgement(key, now);
                if connection.commands.key.as_ref().is_some_and(has_room) {
                    connection.say(&said, LineUse::Answer);
                }
            });
        }));
    }
}

/// A player who takes note in the chat of a paired server.
struct ChatAsker {
    pool: Pool,
    server: ServerId,
    /// The owner, if it is that player.
    owner: Option<UserId>,
    author: u64,
}

impl ChatAsker {
    /// Stores that the player has taken note of these incidents, as far as the database takes it in time. `None` if that is
    /// no user who may acknowledge here.
    async fn take_note(
        self,
        asked: Vec<String>,
        now: Timestamp,
        show: impl FnOnce(&Option<AcknowledgedRaids>) + Send + 'static,
    ) -> Result<Option<AcknowledgedRaids>, CommandError> {
        let Self { pool, server, owner, author } = self;
        let (known_owner, of_server, unstored) = (owner.clone(), server.clone(), asked.clone());
        let take_note = move |db: &mut Db| take_note(db, &server, owner, author, &asked, now);
        if let Ok(Ok(stored)) = timeout(ACKNOWLEDGED_WITHIN, pool.write_and_notify(take_note, show)).await {
            return Ok(stored);
        }
        log::warn!(server = of_server.as_str(); "acknowledgements in a team's chat could not be stored in time");
        let user = match known_owner {
            Some(owner) => Some(owner),
            None => {
                let read = pool.read(move |db: &mut Db| user_who_may(db, &of_server, None, author));
                read.await.map_err(|_| CommandError::Internal)?
            }
        };
        Ok(user.map(|user| AcknowledgedRaids { user, incidents: Vec::new(), unstored }))
    }
}

/// Has those kept that are not stored, as far as they ring and the user does not know of them.
async fn keep(
    connection: &Addr<GameConnection>,
    alarms: &Rc<AlarmDelivery>,
    known: &mut AcknowledgedRaids,
    at: Timestamp,
) -> Result<(), CommandError> {
    let mut failure = Ok(());
    for incident in std::mem::take(&mut known.unstored) {
        if alarms.find(&incident).is_none_or(|found| found.incident.acks.contains_key(&known.user)) {
            continue;
        }
        let message = KeepAcknowledgement { incident, user: known.user.clone(), at };
        match connection.send(message).await.unwrap_or(Err(CommandError::Internal)) {
            Ok(StoredIncident { id, .. }) => known.incidents.push(id),
            Err(error) => failure = Err(error),
        }
    }
    if known.incidents.is_empty() { failure } else { Ok(()) }
}

/// The user who plays as `author`, if they may acknowledge here.
fn user_who_may(db: &mut Db, server: &ServerId, owner: Option<UserId>, author: u64) -> Result<Option<UserId>, DbError> {
    let user = match owner {
        Some(owner) => Some(owner),
        None => users::find_by_account(db, &author.to_string().into())?,
    };
    let Some(user) = user else { return Ok(None) };
    let role = access::role(db, &user, server)?;
    Ok(role.is_some_and(|role| role.may(Action::Acknowledge)).then_some(user))
}

/// `None` if the player is no user who may acknowledge here.
fn take_note(
    db: &mut Db,
    server: &ServerId,
    owner: Option<UserId>,
    author: u64,
    asked: &[String],
    now: Timestamp,
) -> Result<Option<AcknowledgedRaids>, DbError> {
    let Some(user) = user_who_may(db, server, owner, author)? else { return Ok(None) };
    let (mut incidents, mut unstored) = (Vec::new(), Vec::new());
    for incident in asked {
        match incidents::get(db, incident)? {
            // One that the user knows of stays as it is.
            Some(known) if known.incident.acks.contains_key(&user) => {}
            Some(_) => {
                incidents.extend(incidents::acknowledge(db, server, incident, &user, now)?.map(|known| known.id));
            }
            None => unstored.push(incident.clone()),
        }
    }
    Ok(Some(AcknowledgedRaids { user, incidents, unstored }))
}
