//! Messages that say how often an alarm went off, in the place of the one that a browser or Discord shows, and without a
//! sound. One follows another message by the same channel after half a minute.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::TimeDelta;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        notices::notice_queue::{NewMessage, NoticeDelivery, NoticeDeliveryState, message_id},
        schema::{channels, deliveries, incident_acks},
    },
    domain::{
        channels::user_channel::{ChannelKind, ChannelState},
        ids::ChannelId,
        time::Timestamp,
    },
};

/// In the place of a round: the message that says how often the alarm went off by then.
pub const UPDATED: i32 = -2;
/// Time between two messages about an alarm by one channel, if the second is for its count alone: push services take
/// permissions from sites that send more.
const APART: TimeDelta = TimeDelta::seconds(30);
/// Browsers of this push service show a message beside the one before.
const STACKING: &str = ".push.apple.com";
/// A message that was taken at most so long after a trigger may have been made before it.
const ON_ITS_WAY: TimeDelta = TimeDelta::seconds(10);

/// A message by such a channel.
#[derive(Queryable)]
struct ShownMessage {
    user_id: String,
    channel_id: String,
    host: String,
    round: i32,
    state: String,
    ended_at: Option<Timestamp>,
}

impl ShownMessage {
    /// When it was taken.
    fn taken_at(&self) -> Option<Timestamp> {
        self.ended_at.filter(|_| self.state == NoticeDeliveryState::Accepted.word())
    }

    fn waits(&self) -> bool {
        self.state == NoticeDeliveryState::Queued.word()
    }
}

/// Queues one by each such channel that has a message of this alarm, which has just gone off again, unless one waits there.
/// Users who have acknowledged it get none.
pub(in crate::db) fn queue(db: &mut Db, incident: &str, rang_at: Timestamp) -> Result<(), DbError> {
    let usable = [ChannelState::Active, ChannelState::Failing].map(ChannelState::word);
    let replace = [ChannelKind::WebPush, ChannelKind::Discord].map(ChannelKind::word);
    let messages: Vec<ShownMessage> = deliveries::table
        .inner_join(channels::table)
        .filter(deliveries::incident_id.eq(incident))
        .filter(channels::kind.eq_any(replace))
        .filter(channels::state.eq_any(usable))
        .select((
            deliveries::user_id,
            deliveries::channel_id,
            channels::host,
            deliveries::round,
            deliveries::state,
            deliveries::ended_at,
        ))
        .load(db)?;
    if messages.is_empty() {
        return Ok(());
    }
    let acks = incident_acks::table.filter(incident_acks::incident_id.eq(incident));
    let acks: BTreeSet<String> = acks.select(incident_acks::user_id).load::<String>(db)?.into_iter().collect();
    let mut by_channel: BTreeMap<&str, Vec<&ShownMessage>> = BTreeMap::new();
    for message in messages.iter().filter(|one| !acks.contains(&one.user_id) && !one.host.ends_with(STACKING)) {
        by_channel.entry(&message.channel_id).or_default().push(message);
    }
    for (channel, messages) in by_channel {
        let of_rounds = || messages.iter().filter(|message| message.round >= 0);
        let is_queued = messages.iter().any(|message| message.round == UPDATED && message.waits());
        let is_shown = of_rounds().any(|message| message.waits() || message.taken_at().is_some());
        if is_queued || !is_shown {
            continue;
        }
        let user = messages.first().map_or("", |message| message.user_id.as_str());
        let taken_at = messages.iter().filter_map(|message| message.taken_at()).max();
        let due_at = taken_at.map_or(rang_at, |taken_at| taken_at.max(rang_at - APART)) + APART;
        put(db, incident, (user, channel), (rang_at, due_at))?;
    }
    Ok(())
}

/// There is one for each incident and channel, which is queued again each time.
fn put(
    db: &mut Db,
    incident: &str,
    (user, channel): (&str, &str),
    (rang_at, due_at): (Timestamp, Timestamp),
) -> Result<(), DbError> {
    let update = NoticeDelivery::untried(incident, &user.into(), &channel.into(), UPDATED, rang_at);
    let again = (
        deliveries::state.eq(NoticeDeliveryState::Queued.word()),
        deliveries::attempts.eq(0),
        deliveries::queued_at.eq(rang_at),
        deliveries::due_at.eq(Some(due_at)),
        deliveries::status.eq(None::<i32>),
        deliveries::reason.eq(None::<String>),
        deliveries::ended_at.eq(None::<Timestamp>),
    );
    if diesel::update(deliveries::table.find(&update.id)).set(again).execute(db)? == 0 {
        NewMessage::queued(&update, due_at, false).insert(db)?;
    }
    Ok(())
}

/// A message whose place an update takes.
#[derive(Clone, Debug)]
pub(in crate::db) struct ReplacedMessage {
    pub taken_at: Timestamp,
    /// The name that the other side gave it.
    pub receipt: Option<String>,
}

impl ReplacedMessage {
    /// True if another message can take its place by a channel of this kind.
    pub(in crate::db) fn can_be(&self, kind: ChannelKind) -> bool {
        kind != ChannelKind::Discord || self.receipt.is_some()
    }
}

/// The newest messages by the channels of these updates that were taken, by the update's id: one without such a message has
/// nothing to take the place of.
pub(in crate::db) fn replaced(
    db: &mut Db,
    due: &[NoticeDelivery],
) -> Result<HashMap<String, ReplacedMessage>, DbError> {
    let updates: Vec<&NoticeDelivery> = due.iter().filter(|message| message.round == UPDATED).collect();
    if updates.is_empty() {
        return Ok(HashMap::new());
    }
    let taken: Vec<(String, String, Option<Timestamp>, Option<String>)> = deliveries::table
        .filter(deliveries::incident_id.eq_any(updates.iter().map(|message| message.incident_id.as_str())))
        .filter(deliveries::channel_id.eq_any(updates.iter().map(|message| message.channel_id.as_str())))
        .filter(deliveries::state.eq(NoticeDeliveryState::Accepted.word()))
        .filter(deliveries::round.ge(0))
        .order(deliveries::ended_at)
        .select((deliveries::incident_id, deliveries::channel_id, deliveries::ended_at, deliveries::receipt))
        .load(db)?;
    let taken = taken.into_iter().filter_map(|(incident, channel, taken_at, receipt)| {
        let id = message_id(&incident, &ChannelId::from(channel.as_str()), UPDATED);
        Some((id, ReplacedMessage { taken_at: taken_at?, receipt }))
    });
    // The last one of each counts.
    Ok(taken.collect())
}

/// True if an update has news for one who was sent a message that was taken then.
pub(in crate::db) fn is_news(taken_at: Timestamp, rang_at: Timestamp) -> bool {
    taken_at < rang_at + ON_ITS_WAY
}
