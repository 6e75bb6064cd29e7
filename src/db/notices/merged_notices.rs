//! Notices of incidents that turned out to be parts of others: a user has one of each raid, and what rang about a part counts
//! for the whole.

use std::collections::{BTreeMap, BTreeSet};

use diesel::dsl::min;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{
            channels,
            count_updates::UPDATED,
            notice_queue::{
                self, ACKNOWLEDGED, DeliveryOutcome, EndedAttempt, NewMessage, NoticeDelivery, NoticeDeliveryState,
            },
        },
        schema::{deliveries, incident_acks, merged_incidents, notices as notice_rows},
    },
    domain::{
        ids::{ChannelId, UserId},
        time::Timestamp,
    },
};

/// In the place of a round, and below it: a message of a part that repeats where it was sent, while the whole has one by the
/// same channel in its round. An acknowledgement ends both.
const BESIDE_ROUNDS: i32 = UPDATED - 1;

/// Locks the channels of all messages of these incidents, for a transaction that merges some of them: see [`channels::lock`].
pub(in crate::db) fn lock_channels<'a>(db: &mut Db, incidents: impl Iterator<Item = &'a str>) -> Result<(), DbError> {
    let messages = deliveries::table.filter(deliveries::incident_id.eq_any(incidents));
    let ids: Vec<String> = messages.select(deliveries::channel_id).distinct().load(db)?;
    channels::lock(db, ids.iter().map(String::as_str))
}

/// Gives the notices of an incident to the one that it is a part of. A notice of the whole of which no message was made gives
/// way, unless its first step comes sooner; otherwise it stays, and gets the messages of the part that were taken.
pub(in crate::db) fn merge(db: &mut Db, incident: &str, into: &str) -> Result<(), DbError> {
    lock_channels(db, [incident, into].into_iter())?;
    let of = |incident: &str| notice_rows::table.filter(notice_rows::incident_id.eq(incident.to_owned()));
    let users: BTreeSet<String> = of(incident).select(notice_rows::user_id).load::<String>(db)?.into_iter().collect();
    let mut stay = with_messages(db, into)?;
    stay.extend(first_in_whole(db, incident, into)?);
    let give_way = of(into).filter(notice_rows::user_id.eq_any(users.difference(&stay)));
    diesel::delete(give_way).execute(db)?;
    take_over(db, incident, into, &stay)?;
    diesel::delete(of(incident).filter(notice_rows::user_id.eq_any(&stay))).execute(db)?;
    diesel::update(of(incident)).set(notice_rows::incident_id.eq(into)).execute(db)?;
    Ok(())
}

/// The users who have messages of the incident's rounds, sent or not.
fn with_messages(db: &mut Db, incident: &str) -> Result<BTreeSet<String>, DbError> {
    let made = deliveries::table.filter(deliveries::incident_id.eq(incident)).filter(deliveries::round.ge(0));
    Ok(made.select(deliveries::user_id).load::<String>(db)?.into_iter().collect())
}

/// The users whose first step of the whole waits, and who have no message of the part, whose first step would come later.
fn first_in_whole(db: &mut Db, part: &str, whole: &str) -> Result<Vec<String>, DbError> {
    let rounds = |incident: &str| {
        let rows = notice_rows::table.filter(notice_rows::incident_id.eq(incident.to_owned()));
        rows.select((notice_rows::user_id, notice_rows::round_at))
    };
    let of_part: BTreeMap<String, Timestamp> = rounds(part).load::<(String, Timestamp)>(db)?.into_iter().collect();
    let waiting = rounds(whole).filter(notice_rows::due_at.is_not_null());
    let waiting: Vec<(String, Timestamp)> = waiting.load(db)?;
    let rung = with_messages(db, part)?;
    let is_first =
        |(user, at): &(String, Timestamp)| !rung.contains(user) && of_part.get(user).is_some_and(|later| at <= later);
    Ok(waiting.into_iter().filter(is_first).map(|(user, _)| user).collect())
}

/// Moves the messages of a part to these users that were taken to the whole, where there is room, and those that repeat.
fn take_over(db: &mut Db, incident: &str, into: &str, users: &BTreeSet<String>) -> Result<(), DbError> {
    let taken = deliveries::table
        .filter(deliveries::incident_id.eq(incident))
        .filter(deliveries::state.eq(NoticeDeliveryState::Accepted.word()))
        .filter(deliveries::round.ge(0).or(deliveries::round.le(BESIDE_ROUNDS)));
    let taken = taken.select((NoticeDelivery::as_select(), deliveries::rings_until.is_not_null()));
    let taken: Vec<(NoticeDelivery, bool)> = taken.load(db)?;
    for (message, repeats) in taken.iter().filter(|(message, _)| users.contains(&message.user_id)) {
        supersede_said(db, into, message)?;
        if let Some(round) = round_in(db, into, message, *repeats)? {
            let row = deliveries::table.find(&message.id);
            let of_whole = (deliveries::incident_id.eq(into), deliveries::round.eq(round));
            diesel::update(row).set(of_whole).execute(db)?;
        }
    }
    Ok(())
}

/// Supersedes the acknowledgement of the whole that this message's channel has said, or that waits and may be under way there:
/// it names no part that rang since, and is said once more.
fn supersede_said(db: &mut Db, whole: &str, message: &NoticeDelivery) -> Result<(), DbError> {
    let said = deliveries::table
        .filter(deliveries::incident_id.eq(whole))
        .filter(deliveries::user_id.eq(&message.user_id))
        .filter(deliveries::channel_id.eq(&message.channel_id))
        .filter(deliveries::round.eq(ACKNOWLEDGED));
    diesel::update(said).set(deliveries::state.eq(NoticeDeliveryState::Superseded.word())).execute(db)?;
    Ok(())
}

/// The round in which a message of a part, which was taken, becomes one of the whole: its own if there is room, or one beside
/// the rounds if it repeats. None: it does not.
fn round_in(db: &mut Db, whole: &str, message: &NoticeDelivery, repeats: bool) -> Result<Option<i32>, DbError> {
    if make_room(db, whole, message)? {
        return Ok(Some(message.round));
    }
    if !repeats {
        return Ok(None);
    }
    let by_channel = deliveries::table
        .filter(deliveries::incident_id.eq(whole))
        .filter(deliveries::user_id.eq(&message.user_id))
        .filter(deliveries::channel_id.eq(&message.channel_id));
    let lowest: Option<i32> = by_channel.select(min(deliveries::round)).first(db)?;
    Ok(Some(lowest.map_or(BESIDE_ROUNDS, |lowest| BESIDE_ROUNDS.min(lowest - 1))))
}

/// True if the whole has no message to this one's user by its channel in its round. One that has ended without being taken is
/// deleted for it.
fn make_room(db: &mut Db, whole: &str, message: &NoticeDelivery) -> Result<bool, DbError> {
    let known = deliveries::table
        .filter(deliveries::incident_id.eq(whole))
        .filter(deliveries::user_id.eq(&message.user_id))
        .filter(deliveries::channel_id.eq(&message.channel_id))
        .filter(deliveries::round.eq(message.round))
        .select((deliveries::id, deliveries::state, deliveries::due_at.is_not_null()));
    let known: Option<(String, String, bool)> = known.first(db).optional()?;
    match known {
        None => Ok(true),
        Some((_, state, waits)) if waits || state == NoticeDeliveryState::Accepted.word() => Ok(false),
        Some((id, ..)) => {
            diesel::delete(deliveries::table.find(id)).execute(db)?;
            Ok(true)
        }
    }
}

/// The incidents among these that are parts of others, each with the other.
pub fn parts_among(db: &mut Db, incidents: &BTreeSet<String>) -> Result<BTreeMap<String, String>, DbError> {
    if incidents.is_empty() {
        return Ok(BTreeMap::new());
    }
    let parts = merged_incidents::table.filter(merged_incidents::id.eq_any(incidents));
    let parts: Vec<(String, String)> = parts.select((merged_incidents::id, merged_incidents::incident_id)).load(db)?;
    Ok(parts.into_iter().collect())
}

/// Makes rows for messages among these that were taken, and whose raid became a part of another one while they were under way:
/// of the whole, where there is room, or if they repeat. Their outcomes follow.
pub fn adopt(db: &mut Db, ended: &[EndedAttempt], now: Timestamp) -> Result<(), DbError> {
    // All of them, whose outcomes are stored next.
    channels::lock(db, ended.iter().map(|attempt| attempt.delivery.channel_id.as_str()))?;
    let is_taken = |attempt: &&EndedAttempt| {
        !attempt.delivery.is_aside() && matches!(attempt.outcome, DeliveryOutcome::Accepted { .. })
    };
    let taken = || ended.iter().filter(is_taken);
    let wholes = parts_among(db, &taken().map(|attempt| attempt.delivery.incident_id.clone()).collect())?;
    for attempt in taken() {
        let delivery = &attempt.delivery;
        let Some(whole) = wholes.get(&delivery.incident_id) else { continue };
        let (user, channel) = (UserId::from(&*delivery.user_id), ChannelId::from(&*delivery.channel_id));
        let is_wanted = notice_queue::server_of(db, whole, &user)?.is_some() && channels::get(db, &channel)?.is_some();
        let is_there = !notice_queue::stored(db, std::slice::from_ref(&delivery.id))?.is_empty();
        if !is_wanted || is_there {
            continue;
        }
        supersede_said(db, whole, delivery)?;
        match round_in(db, whole, delivery, attempt.repeating().is_some())? {
            Some(round) => {
                let message = NoticeDelivery { incident_id: whole.clone(), round, ..delivery.clone() };
                NewMessage::queued(&message, now, true).insert(db)?;
            }
            None if is_acknowledged(db, whole, &user)? => notice_queue::queue_acknowledged(db, whole, &user, now)?,
            None => {}
        }
    }
    Ok(())
}

fn is_acknowledged(db: &mut Db, incident: &str, user: &UserId) -> Result<bool, DbError> {
    let acks = incident_acks::table.filter(incident_acks::incident_id.eq(incident));
    let acks = acks.filter(incident_acks::user_id.eq(user.as_str()));
    let known: Option<String> = acks.select(incident_acks::user_id).first(db).optional()?;
    Ok(known.is_some())
}
