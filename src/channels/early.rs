//! Sends the first messages of alarms that the database does not have, or of which nothing came since it has them. Who
//! watches, by which channels and rules, is asked of the database if it still gives that, and known from memory otherwise.
//! All that follows, such as the next steps and attempts, begins when the database has the alarm: its rows get the outcomes
//! by the [ids of the messages](crate::db::notices::notice_queue::message_id).
//!
//! One node of several has the worker, and it alone knows that nothing came of an alarm that is stored. The outcomes of messages
//! that another node has sent early are stored [there](super::early_outcomes).

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use tokio::{
    select,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    channels::{
        attempt::{Attempted, attempt},
        early_outcomes,
        sender::Channels,
    },
    db::{
        alarms::{
            early_alarms::EarlyAlarm,
            notice_messages::SendableMessage,
            notice_subjects::NoticeSubject,
            reachable_watchers::{self, ReachableWatcher, WatchersByServer},
        },
        engine::{error::DbError, pool::Db, query_failures::log_failure},
        notices::{channels::StoredChannel, notice_queue::NoticeDelivery},
    },
    domain::{
        channels::{
            channel_lane::{ChannelLane, LaneTurns},
            escalation::{AlarmRules, EscalationRound, QUIET_AFTER},
            notice_step::{DrillFor, DueNotice, NoticeStep},
            user_channel::{ChannelKind, ChannelState},
        },
        ids::UserId,
        incident::Incident,
        sweep::Sweep,
        time::{Moment, Timestamp},
        world_event::EventKind,
    },
    ownership::{Ownership, sweeps},
    panics::{self, Part},
};

/// Time between two passes over all servers, and between two pages of one.
const PASS_EVERY: Duration = Duration::from_secs(30);
const PAGE_EVERY: Duration = Duration::from_millis(100);
/// Servers of a page.
const PAGE: i64 = 200;
/// Watchers that are remembered, some hundred megabytes. Those of further servers are asked of the database alone.
const MOST_WATCHERS: usize = 100_000;
/// For so long the database is waited for, and then not asked for a while.
const ASKED_FOR: Duration = Duration::from_millis(500);
const NOT_ASKED_FOR: Duration = Duration::from_secs(10);
/// For so long the worker has time for an alarm that the database has.
const SENT_WITHIN: Duration = Duration::from_secs(2);
/// Alarms for which it has, at once; those beyond wait for it alone.
const MOST_STORED: usize = 10_000;
/// Messages that wait for a turn, and for how long; the database has the others sent.
const MOST_WAITING: usize = 5_000;
const WAITS: TimeDelta = TimeDelta::minutes(1);

/// Works until it is aborted.
pub async fn run(channels: Arc<Channels>, ownership: Option<Ownership>) {
    let known = RefCell::default();
    tokio::join!(
        remember(&channels, &known),
        send(channels.clone(), &known, ownership.clone()),
        early_outcomes::run(&channels, ownership),
    );
}

/// Keeps in memory who is reached.
async fn remember(channels: &Channels, known: &RefCell<WatchersByServer>) {
    loop {
        // Also at a node that has not the worker.
        channels.forget_old();
        let changes = &channels.early_alarms.changes;
        let begun = changes.begin_reading();
        match panics::caught(Part::Channels, "", read_all(channels)).await {
            Some(Ok(watchers)) => {
                drop(known.replace(watchers));
                changes.end_reading(begun, channels.clock.moment());
            }
            Some(Err(error)) => log_failure("who is reached while the database is stuck is read later", &error),
            None => {}
        }
        sleep(PASS_EVERY).await;
    }
}

/// Everybody who is reached, as far as they are remembered.
pub(super) async fn read_all(channels: &Channels) -> Result<WatchersByServer, DbError> {
    let (mut all, mut count, mut after) = (WatchersByServer::new(), 0, None);
    loop {
        let from = after.take();
        let read = move |db: &mut Db| reachable_watchers::page(db, from.as_ref(), PAGE);
        let (page, last) = channels.pool.read(read).await?;
        count += page.values().map(Vec::len).sum::<usize>();
        if count > MOST_WATCHERS {
            log::warn!(remembered = all.len(); "not all servers are remembered: of others no channel rings while the database gives nothing");
            break;
        }
        all.extend(page);
        if last.is_none() {
            break;
        }
        after = last;
        sleep(PAGE_EVERY).await;
    }
    let is_browser = |channel: &StoredChannel| channel.kind().is_ok_and(|kind| kind == ChannelKind::WebPush);
    let mut watchers = all.values().flatten();
    if watchers.any(|watcher| watcher.channels.iter().any(is_browser))
        && let Err(error) = channels.vapid_key().await
    {
        log::warn!("browsers are not woken while the database is stuck: {error}");
    }
    Ok(all)
}

/// Sends alarms as they come.
pub(super) async fn send(channels: Arc<Channels>, known: &RefCell<WatchersByServer>, ownership: Option<Ownership>) {
    let (attempts, turns, asked_from) = (JoinSet::new(), LaneTurns::default(), Instant::now());
    let (stored, waiting) = (VecDeque::new(), VecDeque::new());
    let mut sender =
        EarlySender { channels: channels.clone(), ownership, attempts, turns, stored, waiting, asked_from };
    loop {
        let (next_look, are_any) = (sender.next_look(), !sender.stored.is_empty());
        select! {
            Some(ended) = sender.attempts.join_next() => {
                ended.into_iter().for_each(|ended| sender.end(ended));
                while let Some(ended) = sender.attempts.try_join_next() {
                    ended.into_iter().for_each(|ended| sender.end(ended));
                }
            }
            alarms = channels.early_alarms.take() => {
                let early = sender.put_stored_aside(alarms);
                sender.take(early, known).await;
            }
            () = sleep_until(next_look), if are_any => {
                let stuck = sender.stuck();
                sender.take(stuck, known).await;
            }
        }
        sender.begin();
    }
}

struct EarlySender {
    channels: Arc<Channels>,
    /// On a node of several.
    ownership: Option<Ownership>,
    attempts: JoinSet<Attempted>,
    turns: LaneTurns,
    /// Alarms that the database has, and since when.
    stored: VecDeque<(Instant, EarlyAlarm)>,
    /// Messages without a turn, and when they were made.
    waiting: VecDeque<(Moment, SendableMessage)>,
    /// From then on the database is asked.
    asked_from: Instant,
}

impl EarlySender {
    fn end(&mut self, Attempted { ended, .. }: Attempted) {
        self.turns.give_back(&ended.delivery.channel_id);
        self.channels.early.end(ended, self.channels.clock.moment());
        self.channels.news.notify_waiters();
    }

    /// Puts those aside for which the worker has time; gives the others.
    fn put_stored_aside(&mut self, alarms: Vec<EarlyAlarm>) -> Vec<EarlyAlarm> {
        let (stored, early): (Vec<_>, Vec<_>) = alarms.into_iter().partition(|alarm| alarm.is_stored);
        let (now, room) = (Instant::now(), MOST_STORED.saturating_sub(self.stored.len()));
        self.stored.extend(stored.into_iter().take(room).map(|alarm| (now, alarm)));
        early
    }

    /// When the time of the worker is over for the first of them.
    fn next_look(&self) -> Instant {
        self.stored.front().map_or_else(Instant::now, |(since, _)| *since + SENT_WITHIN)
    }

    /// The alarms whose time is over, and at which the worker could not look.
    fn stuck(&mut self) -> Vec<EarlyAlarm> {
        let now = Instant::now();
        let is_over = |(since, _): &(Instant, EarlyAlarm)| *since + SENT_WITHIN <= now;
        let count = self.stored.iter().take_while(|stored| is_over(stored)).count();
        let is_worker_here = sweeps::is_here(Sweep::Channels, self.ownership.as_ref());
        let over = self.stored.drain(..count).filter(|_| is_worker_here);
        over.filter(|(since, _)| !self.channels.has_looked_since(*since)).map(|(_, alarm)| alarm).collect()
    }

    /// Takes the messages of these alarms that are due now.
    async fn take(&mut self, alarms: Vec<EarlyAlarm>, known: &RefCell<WatchersByServer>) {
        let Some(first) = alarms.first() else { return };
        let incident = first.incident.id.clone();
        panics::caught(Part::Channels, &incident, self.take_messages(alarms, known)).await;
    }

    async fn take_messages(&mut self, alarms: Vec<EarlyAlarm>, known: &RefCell<WatchersByServer>) {
        let servers = alarms.iter().map(|alarm| alarm.server.to_string()).collect();
        // As old as the answer may be.
        let asked_at = self.channels.clock.moment();
        let stored = self.ask(servers).await;
        let now = self.channels.clock.moment();
        let known = known.borrow();
        let (watchers, is_from_memory) = (stored.as_ref().unwrap_or(&known), stored.is_none());
        let changes = &self.channels.early_alarms.changes;
        for alarm in &alarms {
            let watchers = watchers.get(&alarm.server).map_or(&[][..], Vec::as_slice);
            let messages = watchers.iter().flat_map(|watcher| {
                let changed = is_from_memory.then(|| changes.rules(&alarm.server, &watcher.user)).flatten();
                messages(alarm, watcher, changed.as_ref().unwrap_or(&watcher.rules), now.stamp)
            });
            let room = MOST_WAITING.saturating_sub(self.waiting.len());
            self.waiting.extend(messages.take(room).map(|message| (asked_at, message)));
        }
    }

    /// The watchers of these servers, if the database gives them in time: they may be newer than what is remembered.
    async fn ask(&mut self, servers: BTreeSet<String>) -> Option<WatchersByServer> {
        if Instant::now() < self.asked_from {
            return None;
        }
        let read = self.channels.pool.read(move |db: &mut Db| reachable_watchers::of(db, &servers));
        let stored = timeout(ASKED_FOR, read).await.ok().and_then(Result::ok);
        if stored.is_none() {
            self.asked_from = Instant::now() + NOT_ASKED_FOR;
        }
        stored
    }

    /// Begins the attempts that have a turn.
    fn begin(&mut self) {
        let now = self.channels.clock.moment();
        let changes = &self.channels.early_alarms.changes;
        for (since, message) in std::mem::take(&mut self.waiting) {
            let SendableMessage { channel, delivery, subject, server, .. } = &message;
            let notice = delivery.key();
            let is_over =
                matches!(subject, NoticeSubject::Raid(raid) if is_over(&raid.incident, &notice.user, now.stamp));
            if is_over || now - since >= WAITS {
                continue;
            }
            let lane = lane(channel);
            if !self.turns.take(lane, &channel.id, &channel.user_id, &channel.host) {
                self.waiting.push_back((since, message));
            } else if !changes.is_ended(server, &notice, (&channel.id(), &channel.target_hash), since)
                && self.channels.early.begin_early(delivery, now)
            {
                self.attempts.spawn_local(attempt(self.channels.clone(), lane, message));
            } else {
                self.turns.give_back(&channel.id);
            }
        }
    }
}

/// The lane of a first attempt by this channel.
fn lane(channel: &StoredChannel) -> ChannelLane {
    let is_active = channel.state().is_ok_and(|state| state == ChannelState::Active);
    if is_active && channel.accepted_at.is_some() { ChannelLane::Proven } else { ChannelLane::Unproven }
}

/// True for an alarm that is quiet, or that the user has acknowledged: the database sends no first message of it either.
fn is_over(incident: &Incident, user: &UserId, now: Timestamp) -> bool {
    incident.last_at + QUIET_AFTER <= now || incident.acks.contains_key(user)
}

/// The messages of an alarm that these rules of the user send at this time.
fn messages(
    alarm: &EarlyAlarm,
    watcher: &ReachableWatcher,
    rules: &AlarmRules,
    now: Timestamp,
) -> Vec<SendableMessage> {
    let EarlyAlarm { server, incident, .. } = alarm;
    if is_over(&incident.incident, &watcher.user, now) {
        return Vec::new();
    }
    let due = DueNotice {
        kind: EventKind::Raid,
        drill: incident.incident.drill.then(|| DrillFor::of(watcher.role)),
        rules,
        channels: &watcher.channel_kinds(),
        tried: &BTreeSet::new(),
        round: EscalationRound { number: 0, began_at: incident.incident.first_at },
    };
    let NoticeStep::Send { channels, .. } = due.step(now) else { return Vec::new() };
    let of_step = watcher.channels.iter().filter(|channel| channels.contains(&channel.id()));
    let message = |channel: &StoredChannel| SendableMessage {
        delivery: NoticeDelivery::untried(&incident.id, &watcher.user, &channel.id(), 0, incident.incident.first_at),
        channel: channel.clone(),
        server: server.clone(),
        server_name: watcher.server_name.clone(),
        subject: NoticeSubject::Raid(incident.clone().into()),
        replaces: None,
        parts: Vec::new(),
    };
    of_step.map(message).collect()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::{
        db::{alarms::incidents::StoredIncident, notices::channels::tests::channel, testing},
        domain::access::Role,
    };

    /// An alarm of just now, and a user with a channel.
    fn alarm() -> (EarlyAlarm, ReachableWatcher) {
        let (incident, _) = testing::incident_write("raid", 1).incidents.remove("raid").unwrap();
        let incident = StoredIncident::unheard("raid".to_owned(), incident);
        let watcher = ReachableWatcher {
            user: "user".into(),
            role: Role::Owner,
            server_name: "Server".to_owned(),
            rules: AlarmRules::default(),
            channels: vec![channel("channel", "user", ChannelKind::Ntfy, "target")],
        };
        (EarlyAlarm { server: "server".into(), incident, is_stored: false }, watcher)
    }

    #[test]
    fn no_alarm_rings_that_is_over_or_that_its_user_has_acknowledged() {
        let (mut alarm, watcher) = alarm();
        let count = |alarm: &EarlyAlarm, now| messages(alarm, &watcher, &watcher.rules, now).len();
        let quiet = testing::now() + QUIET_AFTER;
        assert_eq!((count(&alarm, quiet - TimeDelta::seconds(1)), count(&alarm, quiet)), (1, 0));
        let acks = &mut alarm.incident.incident.acks;
        acks.insert("other".into(), testing::now());
        assert_eq!(count(&alarm, testing::now()), 1, "it is another's");
        alarm.incident.incident.acks.insert("user".into(), testing::now());
        assert_eq!(count(&alarm, testing::now()), 0);
    }
}
