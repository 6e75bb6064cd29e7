//! The worker of channels. It reads and stores in batches, so that an alarm of ten thousand users is some dozens of
//! transactions, and keeps in memory only the messages that have a turn in a [lane](ChannelLane).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use crate::{
    channels::{
        attempt::{Attempted, attempt, kind_at_origin},
        early_outcomes, figures, outcomes,
        reached_users::{MinuteReport, ReachedUsers},
        sender::Channels,
    },
    db::{
        alarms::{
            notice_messages::{self, DueMessages, HeldMessages, SendableMessage},
            notice_steps::{self, StepsMade, TooLateMessage},
            notice_subjects::NoticeSubject,
        },
        engine::{error::DbError, pool::Db, query_failures::log_failure},
        notices::notice_queue::{self, DeliveryOutcome, EndedAttempt, NoticeKey},
    },
    domain::{
        channels::{
            channel_lane::{ChannelLane, LaneLoad, LaneTurns},
            held_origins::{HeldOrigins, OriginChange},
            user_channel::ChannelFault,
        },
        ids::ChannelId,
        time::{Moment, Timestamp},
    },
    panics::{self, Part},
};

/// Time between two looks at what is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause after a failure of the database.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// The wall clock is set by less than this all the time.
const CLOCK_STEP: TimeDelta = TimeDelta::seconds(2);
/// Steps of one transaction, and outcomes: other writers wait for it.
const BATCH: usize = 250;
/// Messages that a look passes over in a lane, because only the journal has their acknowledgements. Beyond them, others in
/// that lane wait until the database has these.
const MOST_PASSED_OVER: usize = 4_096;
/// For so long the first outcome waits for others.
const GATHERED_FOR: Duration = Duration::from_millis(20);

struct Worker {
    channels: Arc<Channels>,
    attempts: JoinSet<Attempted>,
    /// Turns of messages that are being sent, or whose outcome is not stored yet.
    turns: LaneTurns,
    /// Origins to which nothing goes for a while.
    origins: HeldOrigins,
    /// Outcomes that are not stored yet.
    ended: Vec<EndedAttempt>,
    /// When the clock was last looked at; `None`: it was not yet.
    seen: Option<Moment>,
    users: ReachedUsers,
}

/// This process looks after the messages, until it is dropped.
struct LooksHere(Arc<Channels>);

impl Drop for LooksHere {
    fn drop(&mut self) {
        self.0.forget_looks();
    }
}

/// Works until it is aborted.
pub async fn run(channels: Arc<Channels>) {
    let users = ReachedUsers::new(channels.clock.moment());
    // Another node that goes on says how its looks end.
    let _looks_here = LooksHere(channels.clone());
    let (attempts, turns) = (JoinSet::new(), LaneTurns::default());
    let origins = HeldOrigins::default();
    let mut worker = Worker { channels, attempts, turns, origins, ended: Vec::new(), seen: None, users };
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(ended) = worker.attempts.join_next() => {
                ended.into_iter().for_each(|ended| worker.end(ended));
                worker.gather().await;
            }
            _ = looks.tick() => {}
        }
        worker.report();
        let began = (worker.channels.clock.moment(), Instant::now());
        let turn = panics::caught(Part::Channels, "", worker.turn()).await;
        if let Some(turn) = &turn {
            worker.channels.note_look(began, turn.is_ok());
        }
        match turn {
            Some(Ok(true)) => looks.reset_immediately(),
            Some(Ok(false)) | None => {}
            Some(Err(error)) => {
                log_failure("alarms wait for the database to be sent by channels", &error);
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

impl Worker {
    /// Takes the attempts that end within a moment, so that their outcomes are stored together.
    async fn gather(&mut self) {
        sleep(GATHERED_FOR).await;
        while let Some(ended) = self.attempts.try_join_next() {
            ended.into_iter().for_each(|ended| self.end(ended));
        }
    }

    /// Reports an attempt that has ended, and keeps its outcome to be stored.
    fn end(&mut self, Attempted { ended, origin, sign }: Attempted) {
        let (delivery, now) = (&ended.delivery, self.channels.clock.moment());
        match self.origins.note(&origin, (&delivery.channel_id, &delivery.user_id), sign, now) {
            Some(OriginChange::Held(fault)) => {
                let (kind, origin, fault) = (&*origin.kind, &*origin.origin, fault.word());
                log::warn!(origin, kind, fault; "channels send nothing to an origin for a while");
            }
            Some(OriginChange::Released) => {
                let (kind, origin) = (&*origin.kind, &*origin.origin);
                log::info!(origin, kind; "channels send to an origin again");
            }
            None => {}
        }
        self.report_outcome(&ended, now);
        self.ended.push(ended);
    }

    fn report_outcome(&mut self, EndedAttempt { delivery, channel, outcome }: &EndedAttempt, now: Moment) {
        let kind = channel.kind.as_str();
        let (user, incident, channel) = (&*delivery.user_id, &*delivery.incident_id, &*delivery.channel_id);
        match outcome {
            DeliveryOutcome::Accepted { .. } => self.users.note_accepted(user, now),
            DeliveryOutcome::Unsaid => {}
            DeliveryOutcome::Failed { status, fault, .. } if delivery.is_aside() => {
                let fault = fault.word();
                log::info!(incident, channel, status:?, fault; "news of an alarm did not get through");
            }
            DeliveryOutcome::Failed { status, fault, .. } => {
                if self.users.note_failed(user, now) {
                    let (fault, round) = (fault.word(), delivery.round);
                    log::warn!(incident, channel, kind, round, status:?, fault; "an alarm did not get through");
                }
            }
        }
    }

    fn report(&mut self) {
        let Some(MinuteReport { counts, unsaid }) = self.users.report(self.channels.clock.moment()) else { return };
        figures::set_users(counts);
        figures::set_held_origins(self.origins.forget_old(self.channels.clock.moment()));
        if unsaid > 0 {
            let (reached, unreached) = (counts.reached, counts.unreached);
            log::warn!(messages = unsaid, reached, unreached; "more alarms did not get through within a minute");
        }
    }

    /// Stores what has ended, makes a batch of the steps that are due, and begins the attempts that are. True if there is
    /// more to do at once.
    async fn turn(&mut self) -> Result<bool, DbError> {
        self.check_clock().await?;
        self.store_ended().await?;
        let steps = self.make_steps().await;
        self.store_early().await?;
        let mut ends = Ok(());
        let are_begun = self.begin_due(&mut ends).await?;
        let are_passed_over = self.pass_over().await?;
        ends?;
        Ok(steps? && (are_begun || self.attempts.is_empty()) || are_passed_over)
    }

    /// Makes all due that waits, when the wall clock was set back: it would wait for as long as that.
    async fn check_clock(&mut self) -> Result<(), DbError> {
        let now = self.channels.clock.moment();
        let is_set_back = match self.seen {
            Some(seen) => now.set_back_since(seen) > CLOCK_STEP,
            None => {
                let clock = self.channels.clock.clone();
                // By the time of the reading: what was stored while it waited for its turn is not ahead.
                let is_ahead = move |db: &mut Db| notice_queue::are_any_ahead(db, clock.now() + CLOCK_STEP);
                self.channels.pool.read(is_ahead).await?
            }
        };
        if is_set_back {
            let notices = self.channels.pool.write(move |db: &mut Db| notice_queue::hasten_all(db, now.stamp)).await?;
            log::warn!(notices; "the clock was set back: alarms that waited are sent at once");
        }
        self.seen = Some(now);
        Ok(())
    }

    /// Until it is stored that a message was taken, its channel stays busy: it would be sent again otherwise.
    async fn store_ended(&mut self) -> Result<(), DbError> {
        while !self.ended.is_empty() {
            let outcomes: Vec<EndedAttempt> = self.ended.iter().take(BATCH).cloned().collect();
            let (count, now) = (outcomes.len(), self.channels.clock.now());
            let (pool, orphaned) = (&self.channels.pool, &self.channels.orphaned);
            let kept = outcomes::store(pool, orphaned, &outcomes, now).await?;
            early_outcomes::note_stored(&self.channels, &kept, now);
            self.ended.drain(..count);
            kept.iter().for_each(|attempt| self.turns.give_back(&attempt.delivery.channel_id));
            self.channels.news.notify_waiters();
        }
        Ok(())
    }

    /// Stores what came of messages that were sent early, as far as their rows are there by now, or are made by no step.
    async fn store_early(&mut self) -> Result<(), DbError> {
        let channels = self.channels.clone();
        early_outcomes::store(&channels, |attempt, now| self.report_outcome(attempt, now)).await
    }

    /// True if further steps may be due.
    async fn make_steps(&self) -> Result<bool, DbError> {
        let (pool, now) = (&self.channels.pool, self.channels.clock.now());
        if !pool.read(move |db| notice_queue::is_due(db, now)).await? {
            return Ok(false);
        }
        let make = move |db: &mut Db| notice_steps::make_due(db, now, BATCH as i64);
        let StepsMade { notices, unreadable, ended, mut too_late, .. } = pool.write(make).await?;
        // Their outcomes follow.
        too_late.retain(|message| {
            let id = notice_queue::message_id(&message.incident, &ChannelId::from(message.channel.as_str()), 0);
            !self.channels.early.is_early(&id)
        });
        for key in unreadable {
            let incident = key.incident.as_str();
            log::error!(incident; "the rules of a user cannot be read: an alarm is sent as without rules");
        }
        for NoticeKey { incident, user } in ended {
            log::error!(incident, user = user.as_str(); "an alarm of a user cannot be read, and is not sent");
        }
        report_too_late(&too_late);
        // A step that suppressed or ended something is news, too.
        self.channels.news.notify_waiters();
        Ok(notices == BATCH)
    }

    /// Passes a batch of the alarms that wait for held origins on to the next channels; true if there were any.
    async fn pass_over(&self) -> Result<bool, DbError> {
        let (pool, now, mut are_any) = (&self.channels.pool, self.channels.clock.moment(), false);
        for fault in [ChannelFault::Throttled, ChannelFault::Unavailable] {
            let origins = self.origins.held_for(fault, now);
            if origins.is_empty() {
                continue;
            }
            let read = move |db: &mut Db| notice_messages::at_origins(db, now.stamp, &origins, BATCH as i64);
            let HeldMessages { waiting, unreadable } = pool.read(read).await?;
            self.end_unreadable(unreadable, now.stamp).await?;
            if !waiting.is_empty() {
                are_any = true;
                pool.write(move |db: &mut Db| notice_queue::pass_over(db, &waiting, fault, now.stamp)).await?;
                self.channels.news.notify_waiters();
            }
        }
        Ok(are_any)
    }

    /// Ends these messages, which cannot be read: they hold up no other.
    async fn end_unreadable(&self, messages: Vec<String>, now: Timestamp) -> Result<(), DbError> {
        if messages.is_empty() {
            return Ok(());
        }
        for delivery in &messages {
            log::error!(delivery = delivery.as_str(); "a message of an alarm cannot be read, and is not sent");
        }
        self.channels.pool.write(move |db: &mut Db| notice_messages::end_unreadable(db, &messages, now)).await
    }

    /// Ends these messages, which cannot be read, or whose alarms are over.
    async fn end_read(&self, unreadable: Vec<String>, over: Vec<String>, now: Timestamp) -> Result<(), DbError> {
        self.end_unreadable(unreadable, now).await?;
        if !over.is_empty() {
            let end = move |db: &mut Db| notice_messages::end_over(db, &over, now);
            report_too_late(&self.channels.pool.write(end).await?);
            self.channels.news.notify_waiters();
        }
        Ok(())
    }

    /// Begins the attempts that are due, as far as there is room; true if there were any. `ends` of messages that the database
    /// does not take hold up no other.
    async fn begin_due(&mut self, ends: &mut Result<(), DbError>) -> Result<bool, DbError> {
        let before = self.attempts.len();
        for lane in ChannelLane::ALL {
            let mut passed_over = Vec::new();
            // Each time those are passed over that have no turn any longer, or are acknowledged.
            while self.begin_in(lane, &mut passed_over, ends).await? {}
        }
        Ok(self.attempts.len() > before)
    }

    /// Begins a batch of this lane, without those that were `passed_over`; true if others may have a turn in the place of
    /// some of it.
    async fn begin_in(
        &mut self,
        lane: ChannelLane,
        passed_over: &mut Vec<String>,
        ends: &mut Result<(), DbError>,
    ) -> Result<bool, DbError> {
        let moment = self.channels.clock.moment();
        let (origins, messages) = (self.origins.held(moment), passed_over.clone());
        let (load, now) = (LaneLoad { origins, messages, ..self.turns.load(lane) }, moment.stamp);
        if load.room == 0 {
            return Ok(false);
        }
        // Many may be acknowledged: a few readings pass over all of them.
        let room = if passed_over.is_empty() { load.room } else { load.room.max(BATCH) };
        let load = LaneLoad { room, ..load };
        let read = move |db: &mut Db| notice_messages::due(db, now, lane, &load);
        let DueMessages { sendable, over, unreadable } = self.channels.pool.read(read).await?;
        let (due, mut begun, before) = (sendable.len(), 0, passed_over.len());
        for message in sendable {
            let SendableMessage { channel, delivery, .. } = &message;
            // The journal has that, and the database soon. Until then they keep no place.
            if !delivery.is_aside() && self.channels.early_alarms.changes.is_acknowledged(&delivery.key()) {
                if passed_over.len() < MOST_PASSED_OVER {
                    passed_over.push(delivery.id.clone());
                }
                continue;
            }
            if !self.turns.take(lane, &channel.id, &channel.user_id, &channel.host) {
                continue;
            }
            if !self.origins.may_begin(&kind_at_origin(channel), (&channel.id, &channel.user_id), moment) {
                self.turns.give_back(&channel.id);
                continue;
            }
            let is_first = message.delivery.round == 0 && matches!(message.subject, NoticeSubject::Raid(_));
            if is_first && !self.channels.early.begin_from_row(&message.delivery.id, moment) {
                self.turns.give_back(&channel.id);
                continue;
            }
            begun += 1;
            self.attempts.spawn_local(attempt(self.channels.clone(), lane, message));
        }
        // Afterwards: while the database takes it, or does not, a channel may end that was read as one that works.
        // One that is refused is tried again by the next turn.
        if ends.is_ok() {
            *ends = self.end_read(unreadable, over, now).await;
        }
        Ok(begun < due && (begun > 0 || passed_over.len() > before))
    }
}

/// Reports the messages that were not sent because their alarms were over: a line for each alarm.
fn report_too_late(messages: &[TooLateMessage]) {
    let mut by_incident: BTreeMap<&str, Vec<&TooLateMessage>> = BTreeMap::new();
    for message in messages {
        figures::count_failed(message.kind, ChannelFault::TooLate);
        by_incident.entry(&message.incident).or_default().push(message);
    }
    for (incident, messages) in by_incident {
        let (first, fault) = (messages.first(), ChannelFault::TooLate.word());
        let (channel, kind) = (first.map(|first| &*first.channel), first.map(|first| first.kind.word()));
        let users = messages.iter().map(|message| &message.user).collect::<BTreeSet<_>>().len();
        log::warn!(incident, channel:?, kind:?, users, fault; "an alarm was over before it could be sent by channels");
    }
}

#[cfg(test)]
mod tests;
