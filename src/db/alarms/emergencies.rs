//! Messages at Pushover that repeat until someone opens them, and the receipts by which they are ended before.

use std::collections::BTreeSet;

use crate::{
    db::{
        alarms::{incidents, notice_subjects},
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{
            channels::{self, StoredChannel},
            notice_queue::{EndedAttempt, NoticeKey},
        },
        paired_servers,
        schema::{channels as channel_rows, deliveries, notices},
    },
    domain::{
        channels::user_channel::EMERGENCY_SPAN,
        ids::{ChannelId, ServerId, UserId},
        time::Timestamp,
    },
};

/// A message that repeats.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = deliveries)]
pub struct Emergency {
    /// Id of the message.
    pub id: String,
    pub incident_id: String,
    pub user_id: String,
    pub channel_id: String,
    pub receipt: Option<String>,
    /// When it ends by itself.
    pub rings_until: Option<Timestamp>,
}

/// The place of an emergency in their order: when it ends by itself, and its id.
pub type EmergencyPlace = (Timestamp, String);

/// An emergency that is to be ended although its row goes, and its channel's with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedEmergency {
    pub emergency: Emergency,
    pub channel: StoredChannel,
}

/// A page of emergencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emergencies {
    /// Emergencies whose raid is acknowledged or over, whose user may no longer watch the server, or whose channel is switched
    /// off.
    pub over: Vec<Emergency>,
    /// The end of the page; `None`: there is no further one.
    pub next: Option<EmergencyPlace>,
}

/// The emergencies after this place that still repeat and are over, of at most `limit`.
pub fn over(db: &mut Db, now: Timestamp, after: Option<EmergencyPlace>, limit: i64) -> Result<Emergencies, DbError> {
    let (from, id) = after.unwrap_or((now, String::new()));
    let is_later = deliveries::rings_until.gt(from);
    let is_behind = deliveries::rings_until.eq(from).and(deliveries::id.gt(id));
    let ringing = deliveries::table
        .filter(deliveries::rings_until.ge(from))
        .filter(is_later.or(is_behind))
        .order((deliveries::rings_until, deliveries::id))
        .limit(limit);
    let mut over: Vec<Emergency> = ringing.select(Emergency::as_select()).load(db)?;
    let is_full = i64::try_from(over.len()).is_ok_and(|count| count == limit);
    let last = over.last().filter(|_| is_full);
    let next = last.and_then(|last| Some((last.rings_until?, last.id.clone())));
    if !over.is_empty() {
        let keys: BTreeSet<NoticeKey> = over.iter().map(Emergency::key).collect();
        let rows = notice_subjects::rows(db, &keys)?;
        let concerns = notice_subjects::concerns(db, &rows, now)?;
        let channels: Vec<&str> = over.iter().map(|emergency| emergency.channel_id.as_str()).collect();
        let usable = channels::usable_among(db, &channels)?;
        let goes_on = |one: &Emergency| concerns.contains_key(&one.key()) && usable.contains(&one.channel_id);
        over.retain(|emergency| !goes_on(emergency));
    }
    Ok(Emergencies { over, next })
}

/// The emergencies of the user's channel that still repeat, before it is deleted.
pub fn of_channel(
    db: &mut Db,
    user: &UserId,
    channel: &ChannelId,
    now: Timestamp,
) -> Result<Vec<OrphanedEmergency>, DbError> {
    let ringing = deliveries::table
        .filter(deliveries::channel_id.eq(channel.as_str()))
        .filter(deliveries::user_id.eq(user.as_str()))
        .filter(deliveries::rings_until.gt(now));
    let ringing = ringing.select(Emergency::as_select()).load(db)?;
    with_channels(db, ringing)
}

/// Deletes the user's channel; false if they have no such one. Also returns its emergencies that still repeat. Call it in a
/// transaction.
pub fn delete_channel(
    db: &mut Db,
    user: &UserId,
    channel: &ChannelId,
    now: Timestamp,
) -> Result<(bool, Vec<OrphanedEmergency>), DbError> {
    if let Db::Pg(db) = db {
        // A receipt that is being stored is waited for, and one that comes later finds no channel.
        channel_rows::table.find(channel.as_str()).select(channel_rows::id).for_update().execute(db)?;
    }
    let orphaned = of_channel(db, user, channel, now)?;
    Ok((channels::delete(db, user, channel)?, orphaned))
}

/// The emergencies that these attempts began and that are not stored: their messages or channels were deleted while they
/// were under way, or have another target, or another attempt had begun one before. Call it in the transaction that stores the
/// outcomes.
pub fn unkept(db: &mut Db, ended: &[EndedAttempt], now: Timestamp) -> Result<Vec<OrphanedEmergency>, DbError> {
    let mut begun: Vec<OrphanedEmergency> =
        ended.iter().filter_map(|attempt| OrphanedEmergency::begun_by(attempt, now)).collect();
    if begun.is_empty() {
        return Ok(begun);
    }
    let ids: Vec<&str> = begun.iter().map(|begun| begun.emergency.id.as_str()).collect();
    let kept: Vec<(String, Option<String>)> = deliveries::table
        .filter(deliveries::id.eq_any(ids))
        .filter(deliveries::rings_until.is_not_null())
        .select((deliveries::id, deliveries::receipt))
        .load(db)?;
    begun.retain(|OrphanedEmergency { emergency: Emergency { id, receipt, .. }, .. }| {
        !kept.iter().any(|(kept, by)| kept == id && by == receipt)
    });
    let mut orphaned = Vec::new();
    for one in begun {
        // One whose raid became a part of another one goes on as long as that concerns its user, and ends by itself.
        let goes_on = match incidents::merged_into(db, &one.emergency.incident_id)? {
            Some(incident) => {
                let whole = NoticeKey { incident, user: one.emergency.user_id.as_str().into() };
                let rows = notice_subjects::rows(db, &BTreeSet::from([whole.clone()]))?;
                notice_subjects::concerns(db, &rows, now)?.contains_key(&whole)
            }
            None => false,
        };
        if !goes_on {
            orphaned.push(one);
        }
    }
    Ok(orphaned)
}

/// The user's emergencies that still repeat.
pub fn of_user(db: &mut Db, user: &UserId, now: Timestamp) -> Result<Vec<OrphanedEmergency>, DbError> {
    let ringing =
        deliveries::table.filter(deliveries::rings_until.gt(now)).filter(deliveries::user_id.eq(user.as_str()));
    let ringing = ringing.select(Emergency::as_select()).load(db)?;
    with_channels(db, ringing)
}

/// The emergencies of all users about this paired server that still repeat, before it is deleted.
pub fn of_server(db: &mut Db, server: &ServerId, now: Timestamp) -> Result<Vec<OrphanedEmergency>, DbError> {
    let ringing = deliveries::table.filter(deliveries::rings_until.gt(now));
    let mut ringing: Vec<Emergency> = ringing.select(Emergency::as_select()).load(db)?;
    if !ringing.is_empty() {
        let incidents: Vec<&str> = ringing.iter().map(|emergency| emergency.incident_id.as_str()).collect();
        let of_server: Vec<String> = notices::table
            .filter(notices::incident_id.eq_any(incidents))
            .filter(notices::server_id.eq(server.as_str()))
            .select(notices::incident_id)
            .load(db)?;
        ringing.retain(|emergency| of_server.contains(&emergency.incident_id));
    }
    with_channels(db, ringing)
}

/// Deletes the owner's paired server, and returns the emergencies about it; `None` when they have no such server.
pub fn delete_server(
    db: &mut Db,
    owner: &UserId,
    server: &ServerId,
    now: Timestamp,
) -> Result<Option<Vec<OrphanedEmergency>>, DbError> {
    let orphaned = readable(of_server(db, server, now))?;
    Ok(paired_servers::delete(db, owner, server)?.then_some(orphaned))
}

/// The emergencies of the user, and of all users about the paired servers of this one, before the user is erased.
pub fn of_erased(
    db: &mut Db,
    user: &UserId,
    servers: &[String],
    now: Timestamp,
) -> Result<Vec<OrphanedEmergency>, DbError> {
    let mut all = readable(of_user(db, user, now))?;
    for server in servers {
        let of_server = readable(of_server(db, &server.as_str().into(), now))?;
        all.extend(of_server.into_iter().filter(|orphaned| orphaned.emergency.user_id != user.as_str()));
    }
    Ok(all)
}

/// One that cannot be read ends by itself, and holds up no deletion.
fn readable(read: Result<Vec<OrphanedEmergency>, DbError>) -> Result<Vec<OrphanedEmergency>, DbError> {
    match read {
        Err(DbError::Malformed(_)) => Ok(Vec::new()),
        read => read,
    }
}

fn with_channels(db: &mut Db, ringing: Vec<Emergency>) -> Result<Vec<OrphanedEmergency>, DbError> {
    if ringing.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<&str> = ringing.iter().map(|emergency| emergency.channel_id.as_str()).collect();
    let channels = channels::get_all(db, &ids)?;
    let orphaned = ringing.into_iter().filter_map(|emergency| {
        let channel = channels.iter().find(|channel| channel.id == emergency.channel_id)?.clone();
        Some(OrphanedEmergency { emergency, channel })
    });
    Ok(orphaned.collect())
}

/// Stores that nothing more is done about this emergency. Another one that the same message has begun, sent twice, goes on.
pub fn note_ended(db: &mut Db, Emergency { id, receipt, .. }: &Emergency) -> Result<(), DbError> {
    let ringing = deliveries::table.find(id).filter(deliveries::receipt.eq(receipt.as_deref()));
    let ended = (deliveries::receipt.eq(None::<String>), deliveries::rings_until.eq(None::<Timestamp>));
    diesel::update(ringing).set(ended).execute(db)?;
    Ok(())
}

impl OrphanedEmergency {
    /// The emergency that this attempt began just now.
    pub fn begun_by(attempt: &EndedAttempt, now: Timestamp) -> Option<Self> {
        let (receipt, delivery) = (attempt.repeating()?.to_owned(), &attempt.delivery);
        let emergency = Emergency {
            id: delivery.id.clone(),
            incident_id: delivery.incident_id.clone(),
            user_id: delivery.user_id.clone(),
            channel_id: delivery.channel_id.clone(),
            receipt: Some(receipt),
            rings_until: Some(now + EMERGENCY_SPAN),
        };
        Some(Self { emergency, channel: attempt.channel.clone() })
    }
}

impl Emergency {
    fn key(&self) -> NoticeKey {
        NoticeKey { incident: self.incident_id.clone(), user: self.user_id.as_str().into() }
    }
}
