//! Notices: one for each incident or event, and user who has a channel. Rows are the queue: a notice has the next step of
//! its user's rules and when it is due ([`notice_steps`](crate::db::alarms::notice_steps)), and each of its deliveries
//! one message by one channel ([`notice_messages`](crate::db::alarms::notice_messages)).

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use utoipa::ToSchema;

use crate::{
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{
            channels::{self, StoredChannel},
            disabled_channels, new_devices,
        },
        schema::{channels as channel_rows, deliveries, incident_acks, notices},
    },
    domain::{
        channels::{
            escalation::FIRST_WITHIN,
            user_channel::{ChannelFault, ChannelKind, ChannelState, EMERGENCY_SPAN},
        },
        ids::{ChannelId, ServerId, UserId},
        time::Timestamp,
        words::words,
    },
};

words! {
    /// The state of a delivery.
    #[derive(ToSchema)]
    pub enum NoticeDeliveryState {
        /// Waits for its first or next attempt.
        Queued = "queued",
        /// The other side took it.
        Accepted = "accepted",
        /// Not taken, and not tried again.
        Failed = "failed",
        /// A newer message of the incident takes its place.
        Superseded = "superseded",
        /// The user acknowledged, the alarm is quiet, or the user may no longer watch the server.
        Cancelled = "cancelled",
        /// Not sent, because of the user's quiet hours.
        Suppressed = "suppressed",
    }
}

/// In the place of a round: the message that says that the user has acknowledged.
pub const ACKNOWLEDGED: i32 = -1;
/// For so long a message that was sent before its row was made waits for its outcome.
const OUTCOME_WITHIN: TimeDelta = TimeDelta::minutes(1);
/// Digits of a message's id.
const ID_DIGITS: usize = 32;

/// An incident or event, and a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoticeKey {
    pub incident: String,
    pub user: UserId,
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = deliveries)]
pub struct NoticeDelivery {
    /// Id of all its attempts.
    pub id: String,
    pub incident_id: String,
    pub user_id: String,
    pub channel_id: String,
    /// Rounds of the rules before this one, [`ACKNOWLEDGED`], or
    /// [`UPDATED`](crate::db::notices::count_updates::UPDATED).
    pub round: i32,
    /// Attempts that failed.
    pub attempts: i32,
    /// When it was due first.
    pub queued_at: Timestamp,
}

/// The id of a notice's message by this channel, in this round: it follows from them, so that a message that was sent
/// before its row is known when the row is made.
pub fn message_id(incident: &str, channel: &ChannelId, round: i32) -> String {
    let mut id = sha256_hex(format!("{incident}\n{channel}\n{round}").as_bytes());
    id.truncate(ID_DIGITS);
    id
}

impl NoticeDelivery {
    /// A message of this round that is due then, and was not tried.
    pub fn untried(incident: &str, user: &UserId, channel: &ChannelId, round: i32, queued_at: Timestamp) -> Self {
        Self {
            id: message_id(incident, channel, round),
            incident_id: incident.to_owned(),
            user_id: user.to_string(),
            channel_id: channel.to_string(),
            round,
            attempts: 0,
            queued_at,
        }
    }

    /// True for a message beside those of the rounds: it wakes no sleeper.
    pub fn is_aside(&self) -> bool {
        self.round < 0
    }

    /// True for the message that says that the user has acknowledged.
    pub fn is_acknowledgement(&self) -> bool {
        self.round == ACKNOWLEDGED
    }

    /// The notice that it belongs to.
    pub fn key(&self) -> NoticeKey {
        NoticeKey { incident: self.incident_id.clone(), user: self.user_id.as_str().into() }
    }
}

/// The end of a delivery: nothing of it is due then.
#[derive(AsChangeset)]
#[diesel(table_name = deliveries, treat_none_as_null = true)]
pub(in crate::db) struct DeliveryEnd {
    state: &'static str,
    due_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
}

impl DeliveryEnd {
    /// An end in this state.
    pub(in crate::db) fn new(state: NoticeDeliveryState, now: Timestamp) -> Self {
        Self { state: state.word(), due_at: None, ended_at: Some(now) }
    }
}

/// An attempt to send a delivery, with its outcome, which is not stored yet.
#[derive(Clone, Debug)]
pub struct EndedAttempt {
    pub delivery: NoticeDelivery,
    /// The channel as it was then, with the target that it went to.
    pub channel: StoredChannel,
    pub outcome: DeliveryOutcome,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Accepted {
        /// Status of the answer; `None`: it was not asked by HTTP.
        status: Option<u16>,
        /// The receipt of an emergency, which repeats, or the id of a message at Discord.
        receipt: Option<String>,
    },
    /// The channel has no word for it: nothing was sent.
    Unsaid,
    /// With the next attempt, if there is one.
    Failed { status: Option<u16>, fault: ChannelFault, retry_at: Option<Timestamp> },
}

fn row(key: &NoticeKey) -> diesel::dsl::Find<notices::table, (&str, &str)> {
    notices::table.find((key.incident.as_str(), key.user.as_str()))
}

/// The server of a notice; `None`: the user has none of this incident.
pub fn server_of(db: &mut Db, incident: &str, user: &UserId) -> Result<Option<ServerId>, DbError> {
    let key = NoticeKey { incident: incident.to_owned(), user: user.clone() };
    let server: Option<String> = row(&key).select(notices::server_id).first(db).optional()?;
    Ok(server.map(ServerId::from))
}

/// True if a step is due.
pub fn is_due(db: &mut Db, now: Timestamp) -> Result<bool, DbError> {
    let due: Option<String> =
        notices::table.filter(notices::due_at.le(now)).select(notices::incident_id).first(db).optional()?;
    Ok(due.is_some())
}

/// Stores the outcomes of attempts, and what follows for their channels. A message that will not get through makes the
/// next step of its notice due at once. One whose channel has another target meanwhile is still due, to that one.
pub fn note_outcomes(db: &mut Db, ended: &[EndedAttempt], now: Timestamp) -> Result<(), DbError> {
    let (mut accepted, mut named, mut channels) = (Vec::new(), Vec::new(), Vec::new());
    let sent: Vec<(&str, &str)> = ended.iter().map(EndedAttempt::sent_to).collect();
    let aimed = channels::aimed(db, &sent)?;
    for attempt in ended.iter().filter(|attempt| aimed.contains(&attempt.delivery.channel_id)) {
        match &attempt.outcome {
            DeliveryOutcome::Accepted { status, receipt } => {
                accepted.push((*status, attempt.delivery.id.as_str()));
                named.extend(receipt.as_deref().map(|receipt| (attempt, receipt)));
                channels.push(attempt.sent_to());
            }
            DeliveryOutcome::Unsaid => {
                let unsaid = deliveries::table.find(&attempt.delivery.id);
                diesel::update(unsaid).set(DeliveryEnd::new(NoticeDeliveryState::Cancelled, now)).execute(db)?;
            }
            DeliveryOutcome::Failed { status, fault, retry_at } => {
                note_failed(db, attempt, *status, *fault, *retry_at, now)?;
            }
        }
    }
    accepted.sort_unstable();
    for group in accepted.chunk_by(|one, other| one.0 == other.0) {
        let Some((status, _)) = group.first() else { continue };
        let ids: Vec<&str> = group.iter().map(|(_, id)| *id).collect();
        let answer = (deliveries::status.eq(status.map(i32::from)), deliveries::reason.eq(None::<String>));
        diesel::update(deliveries::table.filter(deliveries::id.eq_any(ids)))
            .set((answer, DeliveryEnd::new(NoticeDeliveryState::Accepted, now)))
            .execute(db)?;
    }
    let rung = ended.iter().filter(|attempt| attempt.rang_at(&accepted));
    queue_acknowledged_meanwhile(db, &rung.map(|attempt| attempt.delivery.id.as_str()).collect::<Vec<_>>(), now)?;
    for (attempt, receipt) in named {
        let unbegun = deliveries::table.find(&attempt.delivery.id).filter(deliveries::rings_until.is_null());
        let rings_until = deliveries::rings_until.eq(attempt.repeats().then(|| now + EMERGENCY_SPAN));
        diesel::update(unbegun).set((deliveries::receipt.eq(receipt), rings_until)).execute(db)?;
    }
    if channels.is_empty() { Ok(()) } else { channels::note_accepted(db, &channels, now) }
}

impl EndedAttempt {
    /// True for an alarm among these messages, which were accepted.
    fn rang_at(&self, accepted: &[(Option<u16>, &str)]) -> bool {
        let is_accepted = accepted.iter().any(|(_, accepted)| *accepted == self.delivery.id);
        !self.delivery.is_acknowledgement() && is_accepted
    }

    /// The id of its channel, and the target's SHA-256.
    fn sent_to(&self) -> (&str, &str) {
        (&self.delivery.channel_id, &self.channel.target_hash)
    }

    /// True if its channel has answered that it is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self.outcome, DeliveryOutcome::Failed { fault: ChannelFault::Gone, .. })
    }

    /// True for one by a channel whose receipts are of messages that repeat.
    fn repeats(&self) -> bool {
        self.channel.kind != ChannelKind::Discord.word()
    }

    /// The receipt of the message that it began, which repeats.
    pub fn repeating(&self) -> Option<&str> {
        match &self.outcome {
            DeliveryOutcome::Accepted { receipt: Some(receipt), .. } if self.repeats() => Some(receipt),
            _ => None,
        }
    }
}

/// The row of a message that is new: it waits, or is not sent.
#[derive(Insertable)]
#[diesel(table_name = deliveries)]
pub(in crate::db) struct NewMessage<'a> {
    pub id: &'a str,
    pub incident_id: &'a str,
    pub user_id: &'a str,
    pub channel_id: &'a str,
    pub round: i32,
    pub state: &'static str,
    pub attempts: i32,
    pub queued_at: Timestamp,
    pub due_at: Option<Timestamp>,
    pub reason: Option<&'static str>,
    pub ended_at: Option<Timestamp>,
    pub urgent: bool,
}

impl<'a> NewMessage<'a> {
    /// One that waits until then.
    pub(in crate::db) fn queued(delivery: &'a NoticeDelivery, due_at: Timestamp, urgent: bool) -> Self {
        let NoticeDelivery { id, incident_id, user_id, channel_id, round, attempts, queued_at } = delivery;
        Self {
            id,
            incident_id,
            user_id,
            channel_id,
            round: *round,
            state: NoticeDeliveryState::Queued.word(),
            attempts: *attempts,
            queued_at: *queued_at,
            due_at: Some(due_at),
            reason: None,
            ended_at: None,
            urgent,
        }
    }

    /// Inserts it unless there is one with its id; returns how many rows are new.
    pub(in crate::db) fn insert(self, db: &mut Db) -> Result<usize, DbError> {
        let insert = diesel::insert_into(deliveries::table).values(self).on_conflict_do_nothing();
        Ok(on_backend!(db, |db| insert.execute(db))?)
    }
}

/// Queues messages that say that the user has acknowledged the incident: one by each channel that took the alarm, has a
/// word for it and is not gone. One in the place of another that is superseded has another id: a webhook's receiver drops a
/// message whose id it has.
pub fn queue_acknowledged(db: &mut Db, incident: &str, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    let says = [ChannelKind::WebPush.word(), ChannelKind::Webhook.word()];
    let rung: Vec<String> = deliveries::table
        .inner_join(channel_rows::table)
        .filter(deliveries::incident_id.eq(incident))
        .filter(deliveries::user_id.eq(user.as_str()))
        .filter(deliveries::state.eq(NoticeDeliveryState::Accepted.word()))
        .filter(deliveries::round.ge(0))
        .filter(channel_rows::kind.eq_any(says))
        .filter(channel_rows::state.ne(ChannelState::Gone.word()))
        .select(deliveries::channel_id)
        .distinct()
        .load(db)?;
    let superseded = deliveries::table
        .filter(deliveries::incident_id.eq(incident))
        .filter(deliveries::user_id.eq(user.as_str()))
        .filter(deliveries::round.eq(ACKNOWLEDGED))
        .filter(deliveries::state.eq(NoticeDeliveryState::Superseded.word()));
    let before: Vec<(String, String)> = superseded.select((deliveries::channel_id, deliveries::id)).load(db)?;
    let before: BTreeMap<String, String> = before.into_iter().collect();
    if !before.is_empty() {
        diesel::delete(superseded).execute(db)?;
    }
    for channel in rung.into_iter().map(ChannelId::from) {
        let mut said = NoticeDelivery::untried(incident, user, &channel, ACKNOWLEDGED, now);
        if let Some(before) = before.get(channel.as_str()) {
            said.id = message_id(before, &channel, ACKNOWLEDGED);
        }
        NewMessage::queued(&said, now, false).insert(db)?;
    }
    Ok(())
}

/// Queues them for those of these messages that were on their way when their users acknowledged the raid, or a part of it.
fn queue_acknowledged_meanwhile(db: &mut Db, rung: &[&str], now: Timestamp) -> Result<(), DbError> {
    if rung.is_empty() {
        return Ok(());
    }
    let rung = deliveries::table.filter(deliveries::id.eq_any(rung.iter().copied()));
    let rung: Vec<(String, String)> = rung.select((deliveries::incident_id, deliveries::user_id)).load(db)?;
    let incidents: BTreeSet<&str> = rung.iter().map(|(incident, _)| incident.as_str()).collect();
    let acks = incident_acks::table.filter(incident_acks::incident_id.eq_any(incidents));
    let acks: Vec<(String, String)> = acks.select((incident_acks::incident_id, incident_acks::user_id)).load(db)?;
    let mut acks = acks.into_iter().filter(|ack| rung.contains(ack));
    acks.try_for_each(|(incident, user)| queue_acknowledged(db, &incident, &user.into(), now))
}

fn note_failed(
    db: &mut Db,
    attempt: &EndedAttempt,
    status: Option<u16>,
    fault: ChannelFault,
    retry_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), DbError> {
    let delivery = &attempt.delivery;
    let attempts = delivery.attempts + 1;
    let failed = (
        deliveries::attempts.eq(attempts),
        deliveries::status.eq(status.map(i32::from)),
        deliveries::reason.eq(fault.word()),
    );
    // One that was passed over has hastened the next step before.
    let news = deliveries::table.find(&delivery.id).filter(deliveries::reason.is_null());
    let news: Option<String> = news.select(deliveries::id).first(db).optional()?;
    // One that was superseded or cancelled meanwhile stays so.
    let queued = deliveries::table.find(&delivery.id).filter(deliveries::due_at.is_not_null());
    match retry_at {
        Some(at) => diesel::update(queued).set((failed, deliveries::due_at.eq(at))).execute(db)?,
        None => {
            let ended = DeliveryEnd::new(NoticeDeliveryState::Failed, now);
            diesel::update(queued).set((failed, ended)).execute(db)?
        }
    };
    note_channel_failure(db, &ChannelId::from(delivery.channel_id.as_str()), &attempt.channel.target_hash, fault, now)?;
    if attempts == 1 && news.is_some() {
        hasten(db, delivery, now)?;
    }
    Ok(())
}

/// Stores that a message did not get through to this target, as [`channels::note_failure`]. With a channel that is gone
/// ends all that waits for it, and the next steps are due.
pub fn note_channel_failure(
    db: &mut Db,
    channel: &ChannelId,
    target: &str,
    fault: ChannelFault,
    now: Timestamp,
) -> Result<(), DbError> {
    if channels::note_failure(db, channel, target, fault, now)? != Some(ChannelState::Gone) {
        return Ok(());
    }
    let waiting =
        deliveries::table.filter(deliveries::channel_id.eq(channel.as_str())).filter(deliveries::due_at.is_not_null());
    // Messages with a reason have failed or were passed over, and have hastened the next step before.
    let news: Vec<NoticeDelivery> =
        waiting.filter(deliveries::reason.is_null()).select(NoticeDelivery::as_select()).load(db)?;
    let ended = (deliveries::reason.eq(fault.word()), DeliveryEnd::new(NoticeDeliveryState::Failed, now));
    diesel::update(waiting).set(ended).execute(db)?;
    news.iter().try_for_each(|message| hasten(db, message, now))
}

/// The messages with these ids that are stored.
pub fn stored(db: &mut Db, ids: &[String]) -> Result<Vec<NoticeDelivery>, DbError> {
    Ok(deliveries::table.filter(deliveries::id.eq_any(ids)).select(NoticeDelivery::as_select()).load(db)?)
}

/// The messages among these, sent early, whose rows no step makes later: its step was made without them, as after an
/// acknowledgement. Those without a notice or a channel are not among them.
pub fn passed_by_steps(db: &mut Db, sent: &[NoticeDelivery], now: Timestamp) -> Result<Vec<NoticeDelivery>, DbError> {
    let incidents: BTreeSet<&str> = sent.iter().map(|delivery| delivery.incident_id.as_str()).collect();
    let steps: Vec<(String, String, Option<Timestamp>)> = notices::table
        .filter(notices::incident_id.eq_any(incidents))
        .select((notices::incident_id, notices::user_id, notices::due_at))
        .load(db)?;
    let made = steps.into_iter().filter(|(.., due_at)| due_at.is_none_or(|due_at| due_at > now));
    let made: BTreeSet<NoticeKey> = made.map(|(incident, user, _)| NoticeKey { incident, user: user.into() }).collect();
    let passed: Vec<&NoticeDelivery> = sent.iter().filter(|delivery| made.contains(&delivery.key())).collect();
    let ids: BTreeSet<&str> = passed.iter().map(|delivery| delivery.channel_id.as_str()).collect();
    let known: Vec<String> =
        channel_rows::table.filter(channel_rows::id.eq_any(ids)).select(channel_rows::id).load(db)?;
    let known: BTreeSet<String> = known.into_iter().collect();
    Ok(passed.into_iter().filter(|delivery| known.contains(&delivery.channel_id)).cloned().collect())
}

/// Makes rows for messages that were sent early; their outcomes follow. Until then they are not due: the worker may be at another
/// node, which knows of none.
pub fn insert_sent(db: &mut Db, sent: &[NoticeDelivery], now: Timestamp) -> Result<(), DbError> {
    let due_at = now + OUTCOME_WITHIN;
    sent.iter().try_for_each(|delivery| NewMessage::queued(delivery, due_at, true).insert(db).map(drop))
}

/// Ends the message of an attempt whose outcome cannot be stored, without a word about its channel, unless that is gone: it
/// would be sent again otherwise.
pub fn end_alone(db: &mut Db, attempt: &EndedAttempt, now: Timestamp) -> Result<(), DbError> {
    let state = match attempt.outcome {
        DeliveryOutcome::Accepted { .. } => NoticeDeliveryState::Accepted,
        DeliveryOutcome::Unsaid => NoticeDeliveryState::Cancelled,
        DeliveryOutcome::Failed { .. } => NoticeDeliveryState::Failed,
    };
    let reason = (state == NoticeDeliveryState::Failed).then(|| ChannelFault::Unreadable.word());
    attempt.is_gone().then(|| channels::note_gone(db, attempt.sent_to(), now)).transpose()?;
    let waiting = deliveries::table.find(&attempt.delivery.id).filter(deliveries::due_at.is_not_null());
    diesel::update(waiting).set((deliveries::reason.eq(reason), DeliveryEnd::new(state, now))).execute(db)?;
    Ok(())
}

/// Passes over messages that wait, because nothing goes to their origins for a while: the next steps are due at once. They are
/// sent when that is over, if the alarm still goes on.
pub fn pass_over(db: &mut Db, waiting: &[NoticeDelivery], fault: ChannelFault, now: Timestamp) -> Result<(), DbError> {
    let ids = waiting.iter().map(|delivery| delivery.id.as_str());
    let queued = deliveries::table.filter(deliveries::id.eq_any(ids)).filter(deliveries::due_at.is_not_null());
    diesel::update(queued).set(deliveries::reason.eq(fault.word())).execute(db)?;
    waiting.iter().try_for_each(|delivery| hasten(db, delivery, now))
}

/// Makes the next step of the round due now.
fn hasten(db: &mut Db, delivery: &NoticeDelivery, now: Timestamp) -> Result<(), DbError> {
    let key = delivery.key();
    let next = row(&key).filter(notices::round.eq(delivery.round)).filter(notices::due_at.gt(now));
    diesel::update(next).set(notices::due_at.eq(now)).execute(db)?;
    Ok(())
}

/// True if a notice that has a further step was opened later than now, a message that waits was queued, or a warning was
/// planned: the clock was set back since.
pub fn are_any_ahead(db: &mut Db, now: Timestamp) -> Result<bool, DbError> {
    let ahead = notices::table.filter(notices::opened_at.gt(now)).filter(notices::due_at.is_not_null());
    let ahead: Option<String> = ahead.select(notices::incident_id).first(db).optional()?;
    // Not `is_not_null`, for which SQLite uses no index.
    let waiting = deliveries::table.filter(deliveries::due_at.ge(Timestamp::UNIX_EPOCH));
    let waiting = waiting.filter(deliveries::queued_at.gt(now));
    let waiting: Option<String> = waiting.select(deliveries::id).first(db).optional()?;
    let are_warnings = disabled_channels::are_any_ahead(db, now)? || new_devices::are_any_ahead(db, now)?;
    Ok(ahead.is_some() || waiting.is_some() || are_warnings)
}

/// Makes all due that is planned for later, also attempts, warnings of channels that are switched off and news of devices:
/// after the clock was set back, it would wait for as long as that. Returns how many notices. Quiet hours are looked at again
/// by each step.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn hasten_all(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    let planned = notices::table.filter(notices::due_at.gt(now));
    // No first step is waited for once more.
    let began_at = now - FIRST_WITHIN;
    let hastened =
        diesel::update(planned).set((notices::due_at.eq(now), notices::round_at.eq(began_at))).execute(db)?;
    let waiting = deliveries::table.filter(deliveries::due_at.gt(now));
    diesel::update(waiting).set(deliveries::due_at.eq(now)).execute(db)?;
    disabled_channels::hasten_all(db, now)?;
    new_devices::hasten_all(db, now)?;
    Ok(hastened)
}

/// Deletes a batch of the notices before this time, and their messages; returns how many notices.
pub fn purge(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, notices, opened_at, before))
}

#[cfg(test)]
mod tests;
