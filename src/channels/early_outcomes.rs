//! Outcomes of messages that were sent early, on their way into the rows, which the worker has made by then. A node of several
//! stores those of its own messages also where the worker is at another one.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    channels::{outcomes, sender::Channels},
    db::{
        alarms::emergencies::{self, OrphanedEmergency},
        engine::{error::DbError, pool::Db, query_failures::log_failure},
        notices::{
            channels, deliveries, merged_notices,
            notice_queue::{self, DeliveryOutcome, EndedAttempt, NoticeDelivery},
        },
    },
    domain::{
        sweep::Sweep,
        time::{Moment, Timestamp},
    },
    ownership::{Ownership, sweeps},
    panics::{self, Part},
};

/// Time between two looks whether the rows are there, at a node without the worker.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Outcomes of one transaction: other writers wait for it.
const BATCH: usize = 250;

/// Stores them while the worker is at another node; where there is one process, that has it.
pub async fn run(channels: &Channels, ownership: Option<Ownership>) {
    let Some(ownership) = ownership else { return };
    loop {
        sleep(LOOK_EVERY).await;
        if sweeps::is_here(Sweep::Channels, Some(&ownership)) {
            continue;
        }
        if let Some(Err(error)) = panics::caught(Part::Channels, "", store(channels, |_, _| {})).await {
            log_failure("what came of alarms that were sent early is stored later", &error);
        }
    }
}

/// Stores what came of messages that were sent early, as far as their rows are there by now, or are made by no step; lets the
/// caller know of each.
pub async fn store(channels: &Channels, mut stored: impl FnMut(&EndedAttempt, Moment)) -> Result<(), DbError> {
    let ended = channels.early.ended();
    for batch in ended.chunks(BATCH) {
        let ids: Vec<String> = batch.iter().map(|attempt| attempt.delivery.id.clone()).collect();
        let read = move |db: &mut Db| Ok((notice_queue::stored(db, &ids)?, deliveries::accepted(db, &ids)?));
        let (rows, accepted) = channels.pool.read(read).await?;
        let mut rows: HashMap<String, NoticeDelivery> = rows.into_iter().map(|row| (row.id.clone(), row)).collect();
        let sent = batch.iter().map(|attempt| &attempt.delivery);
        let unmade = sent.filter(|sent| !rows.contains_key(&sent.id)).cloned().collect();
        let made = make_sent(channels, unmade).await?;
        rows.extend(made.into_iter().map(|row| (row.id.clone(), row)));
        let unmade = || batch.iter().filter(|attempt| !rows.contains_key(&attempt.delivery.id));
        let incidents: BTreeSet<String> = unmade().map(|attempt| attempt.delivery.incident_id.clone()).collect();
        let parts = channels.pool.read(move |db: &mut Db| merged_notices::parts_among(db, &incidents)).await?;
        forget_gone(channels, unmade()).await?;
        // The worker at another node has sent them again, as it knew of none, and has stored that they were taken.
        let is_over = |attempt: &&EndedAttempt| accepted.contains(&attempt.delivery.id);
        forget_taken(channels, batch.iter().filter(is_over).cloned().collect()).await?;
        let of_row = |attempt: &EndedAttempt| {
            // One of a part has a row of the whole by now, or gets one.
            let of_part = || parts.contains_key(&attempt.delivery.incident_id).then_some(&attempt.delivery);
            let delivery = rows.get(&attempt.delivery.id).or_else(of_part)?.clone();
            Some(EndedAttempt { delivery, ..attempt.clone() })
        };
        let of_rows: Vec<EndedAttempt> = batch.iter().filter(|attempt| !is_over(attempt)).filter_map(of_row).collect();
        if of_rows.is_empty() {
            continue;
        }
        let now = channels.clock.moment();
        let kept = outcomes::store(&channels.pool, &channels.orphaned, &of_rows, now.stamp).await?;
        note_stored(channels, &kept, now.stamp);
        kept.iter().for_each(|&attempt| stored(attempt, now));
        channels.early.note_stored(kept, now);
        channels.news.notify_waiters();
    }
    Ok(())
}

/// The database has these outcomes since then: notes which of their channels are gone, and which took a message.
pub fn note_stored(channels: &Channels, stored: &[&EndedAttempt], now: Timestamp) {
    for attempt in stored {
        let fault = match attempt.outcome {
            DeliveryOutcome::Accepted { .. } => None,
            DeliveryOutcome::Failed { fault, .. } => Some(fault),
            DeliveryOutcome::Unsaid => continue,
        };
        channels.note_outcome_stored(&attempt.channel, fault, now);
    }
}

/// Forgets these messages, sent early, which were taken as far as the rows have it. What repeats beside what the rows know of is
/// ended.
async fn forget_taken(channels: &Channels, sent: Vec<EndedAttempt>) -> Result<(), DbError> {
    if sent.is_empty() {
        return Ok(());
    }
    let (now, begun) = (channels.clock.moment(), sent.clone());
    let beside = channels.pool.read(move |db: &mut Db| emergencies::unkept(db, &begun, now.stamp)).await?;
    channels.orphaned.add(beside);
    channels.early.note_stored(&sent, now);
    channels.news.notify_waiters();
    Ok(())
}

/// Forgets those of these messages, sent early, whose channels were deleted: no row of them comes. What repeats there is
/// ended.
async fn forget_gone(channels: &Channels, sent: impl Iterator<Item = &EndedAttempt>) -> Result<(), DbError> {
    let mut sent: Vec<EndedAttempt> = sent.cloned().collect();
    if sent.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = sent.iter().map(|attempt| attempt.channel.id.clone()).collect();
    let read = move |db: &mut Db| channels::get_all(db, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    let known: BTreeSet<String> = channels.pool.read(read).await?.into_iter().map(|channel| channel.id).collect();
    sent.retain(|attempt| !known.contains(&attempt.channel.id));
    let now = channels.clock.moment();
    channels.orphaned.add(sent.iter().filter_map(|one| OrphanedEmergency::begun_by(one, now.stamp)));
    channels.early.note_stored(&sent, now);
    channels.news.notify_waiters();
    Ok(())
}

/// Makes rows for the messages among these, sent early, that no step makes later. Returns these.
async fn make_sent(channels: &Channels, sent: Vec<NoticeDelivery>) -> Result<Vec<NoticeDelivery>, DbError> {
    let (pool, now) = (&channels.pool, channels.clock.now());
    if sent.is_empty() {
        return Ok(Vec::new());
    }
    let passed = pool.read(move |db: &mut Db| notice_queue::passed_by_steps(db, &sent, now)).await?;
    if !passed.is_empty() {
        let rows = passed.clone();
        pool.write(move |db: &mut Db| notice_queue::insert_sent(db, &rows, now)).await?;
    }
    Ok(passed)
}
