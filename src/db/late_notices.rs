//! Alarms that go on already when a user has a channel, one that works again, or rules that send them.

use std::collections::BTreeSet;

use diesel::prelude::*;

use crate::{
    db::{
        access,
        engine::{error::DbError, pool::Db},
        incidents::{self, StoredIncident},
        new_notices,
        notices::NoticeDeliveryState,
        schema::{deliveries, notices},
    },
    domain::{
        access::Action,
        escalation::QUIET_AFTER,
        ids::{ServerId, UserId},
        time::Timestamp,
    },
};

/// A message of a notice, of whatever state.
#[derive(Queryable)]
struct EarlierMessage {
    round: i32,
    state: String,
    queued_at: Timestamp,
    waits: bool,
}

/// Opens a notice of each alarm that goes on, and of which the user has none. The first step counts from the alarm, as for
/// everyone else: counted from now, the alarm could be over before it. The next step of those of which nothing reached the
/// user is due now.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn open(db: &mut Db, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    let servers = access::servers_of(db, user)?;
    for (server, _) in servers.into_iter().filter(|(_, role)| role.may(Action::Watch)) {
        for stored in going_on(db, &server.id, user, now)? {
            let opened_at = stored.incident.first_at.min(now);
            new_notices::open_for(db, &server.id, user, &stored.id, opened_at, now, None)?;
            hasten_unheard(db, &stored.id, user, now)?;
        }
    }
    Ok(())
}

/// The alarms of this server that go on, and that the user has not acknowledged.
fn going_on(db: &mut Db, server: &ServerId, user: &UserId, now: Timestamp) -> Result<Vec<StoredIncident>, DbError> {
    let mut shown = incidents::shown(db, server, now)?;
    shown.retain(|StoredIncident { incident, .. }| {
        !incident.drill && incident.last_at + QUIET_AFTER > now && !incident.acks.contains_key(user)
    });
    Ok(shown)
}

/// Makes the next step of an alarm due of which no message was accepted. While one waits, that is a step of its round:
/// channels that were not tried in it are. Otherwise the next round begins, even after the last.
fn hasten_unheard(db: &mut Db, incident: &str, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    let messages = deliveries::table
        .filter(deliveries::incident_id.eq(incident))
        .filter(deliveries::user_id.eq(user.as_str()))
        .order((deliveries::round.desc(), deliveries::queued_at))
        .select((deliveries::round, deliveries::state, deliveries::queued_at, deliveries::due_at.is_not_null()));
    let messages: Vec<EarlierMessage> = messages.load(db)?;
    if messages.iter().any(|message| message.state == NoticeDeliveryState::Accepted.word()) {
        return Ok(());
    }
    let row = || notices::table.find((incident, user.as_str()));
    if let Some(&EarlierMessage { round, queued_at, .. }) = messages.first() {
        let not_begun = row().filter(notices::round.gt(round)).filter(notices::round_at.gt(now));
        if messages.iter().any(|message| message.waits) {
            let back = (notices::round.eq(round), notices::round_at.eq(queued_at));
            diesel::update(not_begun).set(back).execute(db)?;
        } else {
            diesel::update(not_begun).set(notices::round_at.eq(now)).execute(db)?;
            let ended = row().filter(notices::due_at.is_null()).filter(notices::round.eq(round));
            let next = (notices::round.eq(round + 1), notices::round_at.eq(now));
            diesel::update(ended).set(next).execute(db)?;
        }
    }
    let later = row().filter(notices::due_at.is_null().or(notices::due_at.gt(now)));
    diesel::update(later).set(notices::due_at.eq(now)).execute(db)?;
    Ok(())
}

/// Makes notices due of which nothing was sent yet: the user's rules for the server have changed, and each is looked at
/// by the new ones. Also those that the rules before sent by no channel, of alarms that go on.
pub fn hasten_unsent(db: &mut Db, server: &ServerId, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    let waiting = notices::table
        .filter(notices::server_id.eq(server.as_str()))
        .filter(notices::user_id.eq(user.as_str()))
        .filter(notices::due_at.gt(now));
    let mut unsent: BTreeSet<String> = waiting.select(notices::incident_id).load(db)?.into_iter().collect();
    let going_on: Vec<String> = going_on(db, server, user, now)?.into_iter().map(|stored| stored.id).collect();
    let of_user = || notices::table.filter(notices::user_id.eq(user.as_str()));
    let known = of_user().filter(notices::incident_id.eq_any(&going_on));
    let known: Vec<(String, bool)> = known.select((notices::incident_id, notices::due_at.is_null())).load(db)?;
    unsent.extend(known.into_iter().filter(|(_, has_ended)| *has_ended).map(|(incident, _)| incident));
    if unsent.is_empty() {
        return Ok(());
    }
    let messages = deliveries::table.filter(deliveries::user_id.eq(user.as_str()));
    let sent = messages.filter(deliveries::incident_id.eq_any(&unsent)).select(deliveries::incident_id);
    let sent: Vec<String> = sent.load(db)?;
    unsent.retain(|incident| !sent.contains(incident));
    diesel::update(of_user().filter(notices::incident_id.eq_any(unsent))).set(notices::due_at.eq(now)).execute(db)?;
    Ok(())
}
