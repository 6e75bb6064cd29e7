//! Alarms that go on already when a user has a channel, one that works again, or rules that send them.

use std::collections::BTreeSet;

use crate::{
    db::{
        access,
        alarms::incidents::{self, StoredIncident},
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{
            new_notices::{self, NewNotice},
            notice_queue::NoticeDeliveryState,
            notice_rules::NoticeRules,
        },
        schema::{channels, deliveries, notices},
    },
    domain::{
        channels::{escalation::QUIET_AFTER, user_channel::ChannelState},
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
    for server in access::server_ids_of(db, user)? {
        for stored in going_on(db, &server, user, now)? {
            let opened_at = stored.incident.first_at.min(now);
            let new = NewNotice { incident: &stored.id, opened_at, due_at: now, event: None };
            new_notices::open_for(db, &server, user, new)?;
            match hasten_unheard(db, &server, &stored.id, user, now) {
                Err(DbError::Malformed(_)) => {
                    let incident = stored.id.as_str();
                    log::error!(incident; "the messages of an alarm cannot be read: its next step is not sooner");
                }
                hastened => hastened?,
            }
        }
    }
    Ok(())
}

/// The alarms of this server that go on, and that the user has not acknowledged. One that cannot be read is left out, and
/// holds up no other.
fn going_on(db: &mut Db, server: &ServerId, user: &UserId, now: Timestamp) -> Result<Vec<StoredIncident>, DbError> {
    let recent = incidents::ids_since(db, server, now - QUIET_AFTER)?;
    let mut known: Vec<StoredIncident> = match incidents::get_all(db, &recent) {
        Err(DbError::Malformed(_)) => read_singly(db, &recent)?,
        read => read?.into_values().collect(),
    };
    known.retain(|StoredIncident { incident, .. }| {
        !incident.drill && incident.last_at + QUIET_AFTER > now && !incident.acks.contains_key(user)
    });
    known.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    Ok(known)
}

fn read_singly(db: &mut Db, ids: &BTreeSet<String>) -> Result<Vec<StoredIncident>, DbError> {
    let mut read = Vec::new();
    for id in ids {
        match incidents::get_all(db, &[id.clone()].into()) {
            Ok(incidents) => read.extend(incidents.into_values()),
            Err(DbError::Malformed(_)) => {
                log::error!(incident = id.as_str(); "an alarm cannot be read, and is not sent by channels that came later");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Makes the next step of an alarm due of which no message was accepted. While one waits, that is a step of its round:
/// channels that were not tried in it are. Otherwise the next round begins. After the last one there is no other: channels
/// that were not tried in it are, and those that work again have their message once more.
fn hasten_unheard(
    db: &mut Db,
    server: &ServerId,
    incident: &str,
    user: &UserId,
    now: Timestamp,
) -> Result<(), DbError> {
    let messages = deliveries::table
        .filter(deliveries::incident_id.eq(incident))
        .filter(deliveries::user_id.eq(user.as_str()))
        .filter(deliveries::round.ge(0))
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
            let is_last = i64::from(round) + 1 >= i64::from(rounds(db, server, user)?);
            let next = if is_last { round } else { round + 1 };
            diesel::update(ended).set((notices::round.eq(next), notices::round_at.eq(now))).execute(db)?;
            if is_last {
                send_again(db, incident, user, round, now)?;
            }
        }
    }
    let later = row().filter(notices::due_at.is_null().or(notices::due_at.gt(now)));
    diesel::update(later).set(notices::due_at.eq(now)).execute(db)?;
    Ok(())
}

/// Rounds of the user's rules for this server.
fn rounds(db: &mut Db, server: &ServerId, user: &UserId) -> Result<u32, DbError> {
    let rules = NoticeRules::read(db, &[server.to_string()].into(), &[user.to_string()].into())?;
    Ok(rules.of(server.as_str(), user.as_str()).0.rounds)
}

/// Queues the messages of this round that failed once more, as far as their channels work: no further round takes their
/// place.
fn send_again(db: &mut Db, incident: &str, user: &UserId, round: i32, now: Timestamp) -> Result<(), DbError> {
    let works = channels::table.filter(channels::user_id.eq(user.as_str()));
    let works = works.filter(channels::state.eq(ChannelState::Active.word())).select(channels::id);
    let works: Vec<String> = works.load(db)?;
    let failed = deliveries::table
        .filter(deliveries::incident_id.eq(incident))
        .filter(deliveries::user_id.eq(user.as_str()))
        .filter(deliveries::round.eq(round))
        .filter(deliveries::state.eq(NoticeDeliveryState::Failed.word()))
        .filter(deliveries::channel_id.eq_any(works));
    let queued = (
        deliveries::state.eq(NoticeDeliveryState::Queued.word()),
        deliveries::attempts.eq(0),
        deliveries::queued_at.eq(now),
        deliveries::due_at.eq(now),
        deliveries::reason.eq(None::<String>),
        deliveries::ended_at.eq(None::<Timestamp>),
    );
    diesel::update(failed).set(queued).execute(db)?;
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
