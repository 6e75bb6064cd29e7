//! Players who take note of alarms in their team's chat: each for the own account, never for another.

use actix::prelude::*;

use super::super::{GameConnection, ShowAcknowledgement};
use crate::{
    db::{
        access,
        engine::{error::DbError, pool::Db},
        incidents, users,
    },
    domain::{
        access::Action,
        ids::{ServerId, UserId},
        team_command::speaker::LineUse,
        time::Timestamp,
    },
};

/// Incidents that were acknowledged, and the user in whose name.
struct Acknowledged {
    user: UserId,
    incidents: Vec<String>,
}

impl GameConnection {
    /// Takes note of these incidents in the name of the user who plays as `author`.
    pub(super) fn acknowledge(&mut self, author: u64, asked: Vec<String>, ctx: &mut Context<Self>) {
        // The owner may play as another account than the one that signs in.
        let owner = self.commands.owner.clone().filter(|_| author == self.commands.player);
        let (pool, server, now) = (self.context.pool.clone(), self.server.clone(), self.context.clock.now());
        let own = ctx.address();
        // Also if the link ends meanwhile.
        let show = move |known: &Option<Acknowledged>| {
            if let Some(Acknowledged { user, incidents }) = known {
                for incident in incidents.iter().cloned() {
                    own.do_send(ShowAcknowledgement { incident, user: user.clone(), at: now });
                }
            }
        };
        let stored = async move {
            let take_note = move |db: &mut Db| take_note(db, &server, owner, author, &asked, now);
            pool.write_and_notify(take_note, show).await
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

/// `None` if the player is no user who may acknowledge here.
fn take_note(
    db: &mut Db,
    server: &ServerId,
    owner: Option<UserId>,
    author: u64,
    asked: &[String],
    now: Timestamp,
) -> Result<Option<Acknowledged>, DbError> {
    let user = match owner {
        Some(owner) => Some(owner),
        None => users::find_by_account(db, &author.to_string().into())?,
    };
    let Some(user) = user else { return Ok(None) };
    if !access::role(db, &user, server)?.is_some_and(|role| role.may(Action::Acknowledge)) {
        return Ok(None);
    }
    let mut incidents = Vec::new();
    for incident in asked {
        // One that the user knows of stays as it is.
        let known = incidents::get(db, incident)?;
        if known.is_some_and(|known| !known.incident.acks.contains_key(&user))
            && let Some(known) = incidents::acknowledge(db, server, incident, &user, now)?
        {
            incidents.push(known.id);
        }
    }
    Ok(Some(Acknowledged { user, incidents }))
}
