//! Messages of notices that are due, with all that they are made of. In batches, as
//! [`notice_steps`](crate::db::alarms::notice_steps).

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    db::{
        alarms::{
            incidents,
            notice_steps::TooLateMessage,
            notice_subjects::{self, NoticeConcern, NoticeRow, NoticeSubject},
        },
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{
            channels::{self, StoredChannel},
            count_updates::{self, ReplacedMessage, UPDATED},
            notice_queue::{ACKNOWLEDGED, DeliveryEnd, NoticeDelivery, NoticeDeliveryState, NoticeKey},
        },
        paired_servers::{self, PairedServer},
        schema::{channels as channel_rows, deliveries},
    },
    domain::{
        channels::{
            channel_lane::{ChannelLane, LaneLoad},
            escalation::QUIET_AFTER,
            user_channel::{ChannelFault, ChannelKind, ChannelState},
        },
        ids::ServerId,
        time::Timestamp,
    },
};

/// A message that can be sent.
#[derive(Clone, Debug)]
pub struct SendableMessage {
    pub delivery: NoticeDelivery,
    pub channel: StoredChannel,
    pub server: ServerId,
    /// As its user may see it.
    pub server_name: String,
    pub subject: NoticeSubject,
    /// The name that the other side gave the message of which this one takes the place.
    pub replaces: Option<String>,
    /// Incidents that are parts of this raid: they may have been shown by their own ids.
    pub parts: Vec<String>,
}

/// Messages whose attempt is due, by what can be done with them.
#[derive(Clone, Debug, Default)]
pub struct DueMessages {
    pub sendable: Vec<SendableMessage>,
    /// Ids of those that concern their users no longer.
    pub over: Vec<String>,
    /// Ids of those that cannot be read, or their channel, or their raid.
    pub unreadable: Vec<String>,
}

/// The messages of this lane with an attempt that is due, as many as it has room for: of raids first, the longest due
/// first, none of a channel, user, host or origin that has no turn now, and none that is passed over.
pub fn due(db: &mut Db, now: Timestamp, lane: ChannelLane, load: &LaneLoad) -> Result<DueMessages, DbError> {
    let mut ids = Vec::new();
    for urgent in [true, false] {
        let left = load.room.saturating_sub(ids.len());
        if left > 0 {
            ids.extend(due_ids(db, now, lane, load, urgent, left)?);
        }
    }
    match messages(db, &ids, now) {
        Err(DbError::Malformed(_)) => messages_singly(db, ids, now),
        read => read,
    }
}

fn due_ids(
    db: &mut Db,
    now: Timestamp,
    lane: ChannelLane,
    load: &LaneLoad,
    urgent: bool,
    limit: usize,
) -> Result<Vec<String>, DbError> {
    let is_active = channel_rows::state.eq(ChannelState::Active.word());
    let is_proven = is_active.and(channel_rows::accepted_at.is_not_null()).and(deliveries::attempts.eq(0));
    let due = deliveries::table
        .inner_join(channel_rows::table)
        .filter(deliveries::due_at.le(now))
        .filter(deliveries::urgent.eq(urgent))
        .filter(is_proven.eq(lane == ChannelLane::Proven))
        .filter(deliveries::id.ne_all(&load.messages))
        .filter(deliveries::channel_id.ne_all(&load.channels))
        .filter(deliveries::user_id.ne_all(&load.users))
        .filter(channel_rows::host.ne_all(&load.hosts))
        .filter(channel_rows::kind.concat(channel_rows::origin).ne_all(&load.origins));
    Ok(due.order(deliveries::due_at).limit(i64::try_from(limit).unwrap_or(i64::MAX)).select(deliveries::id).load(db)?)
}

/// Messages that wait for held origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldMessages {
    pub waiting: Vec<NoticeDelivery>,
    /// Ids of those that cannot be read.
    pub unreadable: Vec<String>,
}

/// Messages at these origins that are due first and not passed over yet, the longest due first.
pub fn at_origins(db: &mut Db, now: Timestamp, origins: &[String], limit: i64) -> Result<HeldMessages, DbError> {
    let untried = deliveries::table
        .inner_join(channel_rows::table)
        .filter(deliveries::due_at.le(now))
        .filter(deliveries::attempts.eq(0))
        .filter(deliveries::reason.is_null())
        .filter(channel_rows::kind.concat(channel_rows::origin).eq_any(origins));
    let ids: Vec<String> = untried.order(deliveries::due_at).limit(limit).select(deliveries::id).load(db)?;
    if ids.is_empty() {
        return Ok(HeldMessages::default());
    }
    let of_ids = deliveries::table.filter(deliveries::id.eq_any(&ids)).order(deliveries::due_at);
    match of_ids.select(NoticeDelivery::as_select()).load(db).map_err(DbError::from) {
        Err(DbError::Malformed(_)) => held_singly(db, ids),
        read => Ok(HeldMessages { waiting: read?, unreadable: Vec::new() }),
    }
}

/// These messages, one by one: a row that cannot be read holds up no other message.
fn held_singly(db: &mut Db, ids: Vec<String>) -> Result<HeldMessages, DbError> {
    let mut held = HeldMessages::default();
    for id in ids {
        let message = deliveries::table.find(&id).select(NoticeDelivery::as_select());
        match message.first(db).optional().map_err(DbError::from) {
            Ok(message) => held.waiting.extend(message),
            Err(DbError::Malformed(_)) => held.unreadable.push(id),
            Err(error) => return Err(error),
        }
    }
    Ok(held)
}

/// These messages, in this order.
fn messages(db: &mut Db, ids: &[String], now: Timestamp) -> Result<DueMessages, DbError> {
    if ids.is_empty() {
        return Ok(DueMessages::default());
    }
    let of_ids = deliveries::table.filter(deliveries::id.eq_any(ids));
    let mut due: Vec<NoticeDelivery> = of_ids.select(NoticeDelivery::as_select()).load(db)?;
    let places: HashMap<&str, usize> = ids.iter().map(String::as_str).zip(0..).collect();
    due.sort_unstable_by_key(|delivery| places.get(delivery.id.as_str()).copied());
    sendable(db, due, now)
}

/// These messages, one by one: a row that cannot be read holds up no other message.
fn messages_singly(db: &mut Db, ids: Vec<String>, now: Timestamp) -> Result<DueMessages, DbError> {
    let mut due = DueMessages::default();
    for id in ids {
        match messages(db, std::slice::from_ref(&id), now) {
            Ok(DueMessages { sendable, over, .. }) => {
                due.sendable.extend(sendable);
                due.over.extend(over);
            }
            Err(DbError::Malformed(_)) => due.unreadable.push(id),
            Err(error) => return Err(error),
        }
    }
    Ok(due)
}

fn sendable(db: &mut Db, due: Vec<NoticeDelivery>, now: Timestamp) -> Result<DueMessages, DbError> {
    if due.is_empty() {
        return Ok(DueMessages::default());
    }
    let sources = MessageSources::read(db, &due, now)?;
    let mut messages = DueMessages::default();
    for delivery in due {
        match sources.message(delivery, now) {
            Ok(message) => messages.sendable.push(message),
            Err(id) => messages.over.push(id),
        }
    }
    Ok(messages)
}

/// All that messages are made of.
struct MessageSources {
    concerns: HashMap<NoticeKey, NoticeConcern>,
    channels: HashMap<String, StoredChannel>,
    acknowledged: HashMap<NoticeKey, NoticeConcern>,
    /// By the message; see [`kept`].
    kept: HashMap<String, NoticeConcern>,
    /// By the message that takes its place.
    replaced: HashMap<String, ReplacedMessage>,
    /// Incidents that are parts of a raid, by the raid.
    parts: HashMap<String, Vec<String>>,
    notices: HashMap<NoticeKey, NoticeRow>,
    servers: HashMap<ServerId, PairedServer>,
}

impl MessageSources {
    fn read(db: &mut Db, due: &[NoticeDelivery], now: Timestamp) -> Result<Self, DbError> {
        let keys: BTreeSet<NoticeKey> = due.iter().map(NoticeDelivery::key).collect();
        let rows = notice_subjects::rows(db, &keys)?;
        let concerns = notice_subjects::concerns(db, &rows, now)?;
        let ids: Vec<&str> = due.iter().map(|delivery| delivery.channel_id.as_str()).collect();
        let channels = channels::get_all(db, &ids)?;
        let channels: HashMap<String, StoredChannel> =
            channels.into_iter().map(|channel| (channel.id.clone(), channel)).collect();
        let acknowledged: HashSet<NoticeKey> =
            due.iter().filter(|one| one.is_acknowledgement()).map(NoticeDelivery::key).collect();
        let of_acknowledged: Vec<NoticeRow> =
            rows.iter().filter(|row| acknowledged.contains(&row.key())).cloned().collect();
        let acknowledged = notice_subjects::acknowledged(db, &of_acknowledged)?;
        let may_be_kept = |delivery: &&NoticeDelivery| {
            let kind = channels.get(&delivery.channel_id).and_then(|channel| channel.kind().ok());
            let is_over = !delivery.is_aside() && !concerns.contains_key(&delivery.key());
            is_over && kind.is_some_and(|kind| kind.keeps(delivery.queued_at, now))
        };
        let kept = kept(db, &due.iter().filter(may_be_kept).collect::<Vec<_>>(), &rows)?;
        let replaced = count_updates::replaced(db, due)?;
        let parts = incidents::parts(db, &due.iter().map(|delivery| delivery.incident_id.as_str()).collect())?;
        let notices: HashMap<NoticeKey, NoticeRow> = rows.into_iter().map(|row| (row.key(), row)).collect();
        let servers: BTreeSet<&str> = notices.values().map(|notice| notice.server_id.as_str()).collect();
        let servers: HashMap<ServerId, PairedServer> =
            paired_servers::get_all(db, &servers)?.into_iter().map(|server| (server.id.clone(), server)).collect();
        Ok(Self { concerns, channels, acknowledged, kept, replaced, parts, notices, servers })
    }

    /// The message as it can be sent, or its id if it concerns its user no longer.
    fn message(&self, delivery: NoticeDelivery, now: Timestamp) -> Result<SendableMessage, String> {
        let channel = self.channels.get(&delivery.channel_id);
        let notice = self.notices.get(&delivery.key());
        let server = notice.and_then(|notice| self.servers.get(&ServerId::from(notice.server_id.as_str())));
        let kind = channel.and_then(|channel| channel.kind().ok());
        let (Some(NoticeConcern { subject, role }), Some(channel), Some(server)) =
            (self.concern(&delivery, kind, now), channel, server)
        else {
            return Err(delivery.id);
        };
        Ok(SendableMessage {
            channel: channel.clone(),
            server: server.id.clone(),
            server_name: server.name_for(*role).to_owned(),
            subject: subject.clone(),
            replaces: self.replaced.get(&delivery.id).and_then(|replaced| replaced.receipt.clone()),
            parts: self.parts.get(&delivery.incident_id).cloned().unwrap_or_default(),
            delivery,
        })
    }

    /// The concern of a message by a channel of this kind.
    fn concern(&self, delivery: &NoticeDelivery, kind: Option<ChannelKind>, now: Timestamp) -> Option<&NoticeConcern> {
        let key = delivery.key();
        match delivery.round {
            UPDATED => self.concerns.get(&key).filter(|concern| {
                self.replaced.get(&delivery.id).is_some_and(|replaced| {
                    concern.has_rung_since(replaced.taken_at) && kind.is_some_and(|kind| replaced.can_be(kind))
                })
            }),
            ACKNOWLEDGED => self.acknowledged.get(&key).filter(|_| {
                let is_kept = kind.is_some_and(|kind| kind.keeps(delivery.queued_at, now));
                is_kept || now < delivery.queued_at + QUIET_AFTER
            }),
            _ => self.concerns.get(&key).or_else(|| self.kept.get(&delivery.id)),
        }
    }
}

/// The raids of these messages, which are over, by the message: of those that are sent all the same, because their channel
/// has taken no message of the raid.
fn kept(
    db: &mut Db,
    late: &[&NoticeDelivery],
    notices: &[NoticeRow],
) -> Result<HashMap<String, NoticeConcern>, DbError> {
    if late.is_empty() {
        return Ok(HashMap::new());
    }
    let taken: Vec<(String, String)> = deliveries::table
        .filter(deliveries::incident_id.eq_any(late.iter().map(|delivery| delivery.incident_id.as_str())))
        .filter(deliveries::state.eq(NoticeDeliveryState::Accepted.word()))
        .select((deliveries::incident_id, deliveries::channel_id))
        .load(db)?;
    let taken: HashSet<(String, String)> = taken.into_iter().collect();
    let keys: HashSet<NoticeKey> = late.iter().map(|delivery| delivery.key()).collect();
    let notices: Vec<NoticeRow> = notices.iter().filter(|notice| keys.contains(&notice.key())).cloned().collect();
    let raids = notice_subjects::open_raids(db, &notices)?;
    let kept = late.iter().filter_map(|delivery| {
        let raid = raids.get(&delivery.key()).filter(|raid| raid.drill().is_none())?;
        let is_taken = taken.contains(&(delivery.incident_id.clone(), delivery.channel_id.clone()));
        (!is_taken).then(|| (delivery.id.clone(), raid.clone()))
    });
    Ok(kept.collect())
}

/// Ends these messages, as far as they still wait and are over: their raid may have become part of another one while they
/// were read. Those that were never tried, because they waited for an origin or for this service, have failed, and are
/// returned, unless their users acknowledged or may no longer watch. Call it in a transaction.
pub fn end_over(db: &mut Db, ids: &[String], now: Timestamp) -> Result<Vec<TooLateMessage>, DbError> {
    match end_together(db, ids, now) {
        Err(DbError::Malformed(_)) => end_singly(db, ids, now),
        ended => ended,
    }
}

/// Ends these messages, one by one: a row that cannot be read holds up no other message.
fn end_singly(db: &mut Db, ids: &[String], now: Timestamp) -> Result<Vec<TooLateMessage>, DbError> {
    let mut too_late = Vec::new();
    for id in ids {
        match end_together(db, std::slice::from_ref(id), now) {
            Ok(ended) => too_late.extend(ended),
            // Read again, it is one that cannot be read.
            Err(DbError::Malformed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(too_late)
}

fn end_together(db: &mut Db, ids: &[String], now: Timestamp) -> Result<Vec<TooLateMessage>, DbError> {
    let waiting = deliveries::table.filter(deliveries::id.eq_any(ids)).filter(deliveries::due_at.is_not_null());
    let waiting: Vec<NoticeDelivery> = waiting.select(NoticeDelivery::as_select()).load(db)?;
    let over = sendable(db, waiting.clone(), now)?.over;
    let is_untried = |message: &&NoticeDelivery| message.attempts == 0 && !message.is_aside();
    let untried = waiting.iter().filter(is_untried).filter(|message| over.contains(&message.id));
    let (unsent, too_late) = too_late(db, &untried.collect::<Vec<_>>())?;
    let failed = deliveries::table.filter(deliveries::id.eq_any(&unsent));
    let reason = deliveries::reason.eq(ChannelFault::TooLate.word());
    diesel::update(failed).set((reason, DeliveryEnd::new(NoticeDeliveryState::Failed, now))).execute(db)?;
    let over = over.iter().filter(|id| !unsent.contains(id));
    let over = deliveries::table.filter(deliveries::id.eq_any(over));
    diesel::update(over).set(DeliveryEnd::new(NoticeDeliveryState::Cancelled, now)).execute(db)?;
    Ok(too_late)
}

/// The messages among these that their users would have had, if there had been time: their ids, and each as too late.
fn too_late(db: &mut Db, untried: &[&NoticeDelivery]) -> Result<(Vec<String>, Vec<TooLateMessage>), DbError> {
    if untried.is_empty() {
        return Ok(Default::default());
    }
    let keys: BTreeSet<NoticeKey> = untried.iter().map(|message| message.key()).collect();
    let rows = notice_subjects::rows(db, &keys)?;
    let raids = notice_subjects::open_raids(db, &rows)?;
    let ids: Vec<&str> = untried.iter().map(|message| message.channel_id.as_str()).collect();
    let channels = channels::get_all(db, &ids)?;
    let kind = |message: &NoticeDelivery| {
        let channel = channels.iter().find(|channel| channel.id == message.channel_id);
        channel.and_then(|channel| channel.kind().ok())
    };
    let too_late = untried.iter().filter(|message| raids.contains_key(&message.key())).filter_map(|message| {
        let NoticeDelivery { id, incident_id, user_id, channel_id, .. } = NoticeDelivery::clone(message);
        let kind = kind(message)?;
        Some((id, TooLateMessage { incident: incident_id, user: user_id, channel: channel_id, kind }))
    });
    Ok(too_late.unzip())
}

/// Ends these messages, which cannot be read.
pub fn end_unreadable(db: &mut Db, ids: &[String], now: Timestamp) -> Result<(), DbError> {
    let waiting = deliveries::table.filter(deliveries::id.eq_any(ids)).filter(deliveries::due_at.is_not_null());
    let reason = deliveries::reason.eq(ChannelFault::Unreadable.word());
    diesel::update(waiting).set((reason, DeliveryEnd::new(NoticeDeliveryState::Failed, now))).execute(db)?;
    Ok(())
}
