//! The steps of notices: which channels are tried, and when the next ones are. In batches: an alarm of many users is a few
//! statements, not some for each of them.

use std::collections::{BTreeSet, HashMap};

use crate::{
    db::{
        alarms::notice_subjects::{self, NoticeConcern, NoticeRow},
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{
            notice_queue::{DeliveryEnd, NewMessage, NoticeDeliveryState, NoticeKey, message_id},
            notice_rules::NoticeRules,
        },
        schema::{deliveries, notices},
    },
    domain::{
        channels::{
            escalation::EscalationRound,
            notice_step::{DueNotice, NoticeStep},
            user_channel::{ChannelFault, ChannelKind},
        },
        ids::ChannelId,
        time::Timestamp,
    },
};

/// The steps that were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepsMade {
    /// Notices whose step was due.
    pub notices: usize,
    /// Messages that were queued.
    pub queued: usize,
    /// Notices whose rules cannot be read: the default was used.
    pub unreadable: Vec<NoticeKey>,
    /// Notices that cannot be read, or their incidents: nothing more is sent.
    pub ended: Vec<NoticeKey>,
    /// Messages that were not sent, because their raids were over before anything was.
    pub too_late: Vec<TooLateMessage>,
}

/// A message that was not sent, because its raid was over before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLateMessage {
    pub incident: String,
    pub user: String,
    pub channel: String,
    pub kind: ChannelKind,
}

/// The end of a message that is not sent: its state, and its reason, if that is not the user's own quiet hours.
type UnsentEnd = (NoticeDeliveryState, Option<ChannelFault>);

/// Quiet hours, a first step that comes later, and quiet hours by then.
const MOST_HOLDS: usize = 4;
const HELD: UnsentEnd = (NoticeDeliveryState::Suppressed, None);
const TOO_LATE: UnsentEnd = (NoticeDeliveryState::Failed, Some(ChannelFault::TooLate));

/// A message that was queued before.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = deliveries)]
struct KnownMessage {
    id: String,
    incident_id: String,
    user_id: String,
    channel_id: String,
    round: i32,
    #[diesel(
        select_expression = deliveries::due_at.is_not_null(),
        select_expression_type = diesel::dsl::IsNotNull<deliveries::due_at>,
    )]
    waits: bool,
}

/// Everything that decides about the steps of a batch.
struct StepFacts {
    rules: NoticeRules,
    known: HashMap<NoticeKey, Vec<KnownMessage>>,
}

/// Steps that are due, with all that is read to make them.
struct DueSteps {
    notices: Vec<NoticeRow>,
    concerns: HashMap<NoticeKey, NoticeConcern>,
    /// The raids of notices that concern their users no longer, as far as those have not acknowledged them.
    over: HashMap<NoticeKey, NoticeConcern>,
    facts: StepFacts,
}

/// Makes the steps that are due, at most this many: those of raids first, the longest due first. Queues a message for each
/// of their channels. Call it in a transaction.
pub fn make_due(db: &mut Db, now: Timestamp, limit: i64) -> Result<StepsMade, DbError> {
    let read = due(db, now, limit).and_then(|notices| DueSteps::read(db, notices, now));
    match read {
        Err(DbError::Malformed(_)) => make_singly(db, now, limit),
        read => {
            let mut made = StepsMade::default();
            read?.make(db, now, &mut made)?;
            Ok(made)
        }
    }
}

/// Makes them one by one: a row that cannot be read holds up no other alarm. Its notice ends.
fn make_singly(db: &mut Db, now: Timestamp, limit: i64) -> Result<StepsMade, DbError> {
    let mut made = StepsMade::default();
    for key in due_keys(db, now, limit)? {
        let read = notice_subjects::rows(db, &[key.clone()].into());
        match read.and_then(|notices| DueSteps::read(db, notices, now)) {
            Ok(steps) => steps.make(db, now, &mut made)?,
            Err(DbError::Malformed(_)) => {
                set_next(db, &key, None)?;
                made.notices += 1;
                made.ended.push(key);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

impl DueSteps {
    fn read(db: &mut Db, notices: Vec<NoticeRow>, now: Timestamp) -> Result<Self, DbError> {
        let concerns = notice_subjects::concerns(db, &notices, now)?;
        let is_over = |notice: &&NoticeRow| notice.is_raid() && !concerns.contains_key(&notice.key());
        let over: Vec<NoticeRow> = notices.iter().filter(is_over).cloned().collect();
        let over = if over.is_empty() { HashMap::new() } else { notice_subjects::open_raids(db, &over)? };
        let facts = StepFacts::read(db, &notices)?;
        Ok(Self { notices, concerns, over, facts })
    }

    /// Makes these steps, and adds them to those that were made.
    fn make(&self, db: &mut Db, now: Timestamp, made: &mut StepsMade) -> Result<(), DbError> {
        made.notices += self.notices.len();
        for notice in &self.notices {
            let key = notice.key();
            let Some(concern) = self.concerns.get(&key) else {
                set_next(db, &key, None)?;
                made.too_late.extend(self.end_unsent(db, notice, now)?);
                continue;
            };
            let (step, are_read) = self.facts.step(notice, concern, now);
            made.queued += self.facts.make(db, notice, &step, now)?;
            if !are_read {
                made.unreadable.push(key);
            }
        }
        Ok(())
    }

    /// Notes the messages of a raid that is over before anything was sent: the user sees why nothing came. Returns those
    /// that no quiet hours held up.
    fn end_unsent(&self, db: &mut Db, notice: &NoticeRow, now: Timestamp) -> Result<Vec<TooLateMessage>, DbError> {
        let concern = self.over.get(&notice.key()).filter(|_| self.facts.known(notice).is_empty());
        let Some(concern) = concern else { return Ok(Vec::new()) };
        let (channels, is_held) = self.facts.unsent(notice, concern);
        let end = if is_held { HELD } else { TOO_LATE };
        insert(db, notice, &channels, Some(end), now)?;
        Ok(if is_held { Vec::new() } else { self.facts.too_late(notice, &channels).collect() })
    }
}

/// Inserts a message by each of these channels, or its end; returns how many are new.
fn insert(
    db: &mut Db,
    notice: &NoticeRow,
    channels: &[ChannelId],
    end: Option<UnsentEnd>,
    now: Timestamp,
) -> Result<usize, DbError> {
    let (state, reason) = end.unwrap_or((NoticeDeliveryState::Queued, None));
    let mut inserted = 0;
    for channel in channels {
        let id = message_id(&notice.incident_id, channel, notice.round);
        let new = NewMessage {
            id: &id,
            incident_id: &notice.incident_id,
            user_id: &notice.user_id,
            channel_id: channel.as_str(),
            round: notice.round,
            state: state.word(),
            attempts: 0,
            // From then on it waits for us.
            queued_at: notice.due_at.unwrap_or(now),
            due_at: end.is_none().then_some(now),
            reason: reason.map(ChannelFault::word),
            ended_at: end.map(|_| now),
            urgent: notice.is_raid(),
        };
        inserted += new.insert(db)?;
    }
    Ok(inserted)
}

/// The notices whose step is due, in the order in which they are made.
fn due(db: &mut Db, now: Timestamp, limit: i64) -> Result<Vec<NoticeRow>, DbError> {
    let due = || notices::table.filter(notices::due_at.le(now)).order(notices::due_at).select(NoticeRow::as_select());
    let mut rows: Vec<NoticeRow> = due().filter(notices::event.is_null()).limit(limit).load(db)?;
    let left = limit - i64::try_from(rows.len()).unwrap_or(limit);
    if left > 0 {
        rows.extend(due().filter(notices::event.is_not_null()).limit(left).load::<NoticeRow>(db)?);
    }
    Ok(rows)
}

/// Their keys alone.
fn due_keys(db: &mut Db, now: Timestamp, limit: i64) -> Result<Vec<NoticeKey>, DbError> {
    let due = notices::table.filter(notices::due_at.le(now)).order((notices::event.is_not_null(), notices::due_at));
    let keys: Vec<(String, String)> = due.limit(limit).select((notices::incident_id, notices::user_id)).load(db)?;
    Ok(keys.into_iter().map(|(incident, user)| NoticeKey { incident, user: user.as_str().into() }).collect())
}

/// Stores the round and time of the next step; `None`: nothing more is sent.
fn set_next(db: &mut Db, notice: &NoticeKey, next: Option<(EscalationRound, Timestamp)>) -> Result<(), DbError> {
    let row = notices::table.find((notice.incident.as_str(), notice.user.as_str()));
    match next {
        None => diesel::update(row).set(notices::due_at.eq(None::<Timestamp>)).execute(db)?,
        Some((round, due_at)) => {
            let next = (
                notices::round.eq(i32::try_from(round.number).unwrap_or(i32::MAX)),
                notices::round_at.eq(round.began_at),
                notices::due_at.eq(due_at),
            );
            diesel::update(row).set(next).execute(db)?
        }
    };
    Ok(())
}

impl StepFacts {
    fn read(db: &mut Db, notices: &[NoticeRow]) -> Result<Self, DbError> {
        let users: BTreeSet<String> = notices.iter().map(|notice| notice.user_id.clone()).collect();
        let servers: BTreeSet<String> = notices.iter().map(|notice| notice.server_id.clone()).collect();
        let incidents: BTreeSet<&str> = notices.iter().map(|notice| notice.incident_id.as_str()).collect();
        let messages: Vec<KnownMessage> = deliveries::table
            .filter(deliveries::incident_id.eq_any(incidents))
            .select(KnownMessage::as_select())
            .load(db)?;
        let mut known: HashMap<NoticeKey, Vec<KnownMessage>> = HashMap::new();
        for message in messages {
            let key = NoticeKey { incident: message.incident_id.clone(), user: message.user_id.as_str().into() };
            known.entry(key).or_default().push(message);
        }
        Ok(Self { rules: NoticeRules::read(db, &servers, &users)?, known })
    }

    /// The step of a notice; false if its rules cannot be read, and the default was used.
    fn step(&self, notice: &NoticeRow, concern: &NoticeConcern, now: Timestamp) -> (NoticeStep, bool) {
        let (rules, are_read) = self.rules.of(&notice.server_id, &notice.user_id);
        let tried = self.known(notice).iter().filter(|message| message.round == notice.round);
        let tried = tried.map(|message| ChannelId::from(message.channel_id.as_str())).collect();
        let number = u32::try_from(notice.round).unwrap_or_default();
        let due = DueNotice {
            kind: concern.subject.kind(),
            drill: concern.drill(),
            rules,
            channels: &self.rules.channels(&notice.server_id, &notice.user_id),
            tried: &tried,
            round: EscalationRound { number, began_at: notice.round_at },
        };
        (due.step(now), are_read)
    }

    fn known(&self, notice: &NoticeRow) -> &[KnownMessage] {
        self.known.get(&notice.key()).map_or(&[], Vec::as_slice)
    }

    /// The first channels of a raid that is over, and whether quiet hours held them up.
    fn unsent(&self, notice: &NoticeRow, concern: &NoticeConcern) -> (Vec<ChannelId>, bool) {
        let (mut at, mut is_held) = (notice.round_at, notice.is_held());
        for _ in 0..MOST_HOLDS {
            match self.step(notice, concern, at).0 {
                NoticeStep::Send { channels, .. } => return (channels, is_held),
                NoticeStep::Suppress { channels } => return (channels, true),
                NoticeStep::Hold { round, until } => {
                    // Only quiet hours move the round.
                    is_held |= round.began_at > notice.round_at;
                    at = until;
                }
            }
        }
        (Vec::new(), is_held)
    }

    /// The messages by these channels, as too late.
    fn too_late(&self, notice: &NoticeRow, channels: &[ChannelId]) -> impl Iterator<Item = TooLateMessage> {
        let known = self.rules.channels(&notice.server_id, &notice.user_id).into_owned();
        let known = known.into_iter().filter(move |(id, _)| channels.contains(id));
        known.map(move |(id, kind)| TooLateMessage {
            incident: notice.incident_id.clone(),
            user: notice.user_id.clone(),
            channel: id.to_string(),
            kind,
        })
    }

    /// Makes the step; returns how many messages were queued.
    fn make(&self, db: &mut Db, notice: &NoticeRow, step: &NoticeStep, now: Timestamp) -> Result<usize, DbError> {
        let (channels, next, end) = match step {
            NoticeStep::Send { channels, next } => (channels.as_slice(), *next, None),
            NoticeStep::Suppress { channels } => (channels.as_slice(), None, Some(HELD)),
            NoticeStep::Hold { round, until } => (&[][..], Some((*round, *until)), None),
        };
        self.supersede(db, notice, channels, now)?;
        let inserted = insert(db, notice, channels, end, now)?;
        set_next(db, &notice.key(), next)?;
        Ok(if end.is_none() { inserted } else { 0 })
    }

    /// Ends the older messages about the incident that wait for these channels: the new ones take their place.
    fn supersede(
        &self,
        db: &mut Db,
        notice: &NoticeRow,
        channels: &[ChannelId],
        now: Timestamp,
    ) -> Result<(), DbError> {
        let is_older = |message: &&KnownMessage| {
            let is_of_step = channels.iter().any(|channel| channel.as_str() == message.channel_id);
            is_of_step && message.round < notice.round && message.waits
        };
        let older: Vec<&str> = self.known(notice).iter().filter(is_older).map(|message| message.id.as_str()).collect();
        if older.is_empty() {
            return Ok(());
        }
        let ended = DeliveryEnd::new(NoticeDeliveryState::Superseded, now);
        diesel::update(deliveries::table.filter(deliveries::id.eq_any(older))).set(ended).execute(db)?;
        Ok(())
    }
}
