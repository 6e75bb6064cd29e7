//! Ends the repetitions of emergencies at Pushover whose raid was acknowledged elsewhere, or is over, or whose channel is
//! switched off or was deleted. Receipts are kept with their messages, so that a restart forgets none but those of deleted
//! channels; they end by themselves after some minutes. One node of several ends those that have rows, and each those that only
//! its memory has.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use tokio::{
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval, sleep},
};

use crate::{
    channels::sender::Channels,
    clients::channels::ChannelFailure,
    db::{
        alarms::emergencies::{self, Emergencies, Emergency, EmergencyPlace, OrphanedEmergency},
        engine::{error::DbError, pool::Db, query_failures::log_failure},
        notices::channels::{self, StoredChannel},
    },
    domain::{
        channels::channel_lane::{ChannelLane, LaneTurns},
        ids::ChannelId,
    },
    panics::{self, Part},
};

/// Time between two looks at what is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failure of the database.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// Emergencies that are read at once.
const PAGE: i64 = 250;
/// Pause after an attempt that failed, and attempts in all.
const PAUSE: TimeDelta = TimeDelta::seconds(5);
const ATTEMPTS: u32 = 12;
/// Nothing of an alarm waits for this lane.
const LANE: ChannelLane = ChannelLane::Unproven;

struct Ending {
    channels: Arc<Channels>,
    attempts: JoinSet<Emergency>,
    turns: LaneTurns,
}

/// Ends those that have rows. Works until it is aborted.
pub async fn run(channels: Arc<Channels>) {
    let (mut ending, mut looks) = (Ending::new(channels), looks());
    loop {
        let turn = tokio::select! {
            Some(Ok(ended)) = ending.attempts.join_next() => ending.store(ended).await,
            _ = looks.tick() => ending.begin().await,
        };
        if let Err(error) = turn {
            let meaning = "repetitions of emergencies at Pushover are not ended yet";
            match error {
                // The worker of channels logs that alarms wait for the database.
                DbError::Unavailable(_) => log::debug!("{meaning}: {error}"),
                _ => log_failure(meaning, &error),
            }
            sleep(AFTER_FAILURE).await;
        }
    }
}

/// Ends those that only the memory of this process has. Works until it is aborted.
pub async fn run_without_rows(channels: Arc<Channels>) {
    let (mut ending, mut looks) = (Ending::new(channels), looks());
    loop {
        tokio::select! {
            Some(Ok(ended)) = ending.attempts.join_next() => ending.turns.give_back(&ended.channel_id),
            _ = looks.tick() => ending.begin_orphaned(),
        }
    }
}

fn looks() -> Interval {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

impl Ending {
    fn new(channels: Arc<Channels>) -> Self {
        Self { channels, attempts: JoinSet::new(), turns: LaneTurns::default() }
    }

    /// Stores that this one has ended, and those that have since: all wait for the database once. One that is not stored is
    /// ended once more.
    async fn store(&mut self, first: Emergency) -> Result<(), DbError> {
        let mut ended = vec![first];
        while let Some(another) = self.attempts.try_join_next() {
            ended.extend(another);
        }
        ended.iter().for_each(|one| self.turns.give_back(&one.channel_id));
        let note = move |db: &mut Db| ended.iter().try_for_each(|one| emergencies::note_ended(db, one));
        self.channels.pool.write(note).await
    }

    /// Begins to end those of deleted channels, and those that rang from memory and were acknowledged since, as far as there is
    /// room.
    fn begin_orphaned(&mut self) {
        let (channels, now) = (&self.channels, self.channels.clock.now());
        let acknowledged =
            channels.early.take_repeating(|notice| channels.early_alarms.changes.is_acknowledged(notice));
        channels.orphaned.add(acknowledged.iter().filter_map(|one| OrphanedEmergency::begun_by(one, now)));
        let mut waiting = channels.orphaned.take();
        waiting.retain(|orphaned| !self.begin_one(&orphaned.emergency, &orphaned.channel));
        self.channels.orphaned.add(waiting);
    }

    /// Begins to end this one; false if there is no room.
    fn begin_one(&mut self, emergency: &Emergency, channel: &StoredChannel) -> bool {
        let has_turn = self.turns.take(LANE, &channel.id, &channel.user_id, &channel.host);
        if has_turn {
            self.attempts.spawn_local(end(self.channels.clone(), emergency.clone(), channel.clone()));
        }
        has_turn
    }

    /// Begins to end all that are over, as far as there is room.
    async fn begin(&mut self) -> Result<(), DbError> {
        let mut place: Option<EmergencyPlace> = None;
        loop {
            let (after, now) = (place.take(), self.channels.clock.now());
            let read = move |db: &mut Db| emergencies::over(db, now, after, PAGE);
            let Emergencies { over, next } = self.channels.pool.read(read).await?;
            for emergency in over {
                let id = ChannelId::from(emergency.channel_id.as_str());
                let channel = self.channels.pool.read(move |db: &mut Db| channels::get(db, &id)).await?;
                let Some(channel) = channel else { continue };
                self.begin_one(&emergency, &channel);
            }
            match next {
                Some(next) => place = Some(next),
                None => return Ok(()),
            }
        }
    }
}

/// Ends an emergency, or leaves it to its own end.
async fn end(channels: Arc<Channels>, emergency: Emergency, channel: StoredChannel) -> Emergency {
    let (incident, id) = (&*emergency.incident_id, &*channel.id);
    match panics::caught(Part::Channels, id, cancel(&channels, &emergency, &channel)).await {
        Some(Ok(())) => log::info!(incident, channel = id; "an emergency of a channel was ended"),
        Some(Err(ChannelFailure { fault, status, .. })) => {
            let fault = fault.word();
            log::warn!(incident, channel = id, status:?, fault; "an emergency of a channel could not be ended, and ends by itself");
        }
        None => {}
    }
    emergency
}

async fn cancel(channels: &Channels, emergency: &Emergency, channel: &StoredChannel) -> Result<(), ChannelFailure> {
    let Emergency { id, receipt: Some(receipt), rings_until: Some(until), .. } = emergency else { return Ok(()) };
    let mut attempts = 0;
    loop {
        let failure = match channels.cancel(LANE, id, channel, receipt).await {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        attempts += 1;
        let asked = failure.retry_after.and_then(|pause| TimeDelta::from_std(pause).ok()).unwrap_or_default();
        let (now, pause) = (channels.clock.moment(), asked.max(PAUSE));
        if !failure.fault.is_transient() || attempts == ATTEMPTS || now.stamp + pause >= *until {
            return Err(failure);
        }
        channels.clock.reach(now + pause).await;
    }
}
