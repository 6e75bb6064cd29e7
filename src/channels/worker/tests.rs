//! Above 500 lines: the tests of one worker, which share its other side.

use std::{cell::RefCell, collections::BTreeMap};

use chrono::TimeDelta;
use diesel::{SqliteConnection, connection::SimpleConnection as _, sql_query};
use futures_util::FutureExt as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use reqwest::StatusCode;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use url::Url;

use super::*;
use crate::{
    channels::{device_news, early, user_messages},
    clients::channels::{ChannelAnswer, ChannelClient},
    clock::Clock,
    config::{Database, PublicUrls},
    crypto::{ack_link::AckLinks, keys::Key32, random::Random, sealer::Sealer},
    db::{
        alarms::{
            early_alarms::EarlyAlarm,
            emergencies,
            incidents::{self, StoredIncident},
        },
        engine::{pool::Pool, prelude::*},
        helper_devices,
        notices::{
            channels::{self, StoredChannel},
            early_changes::EndedWay,
            notice_queue::NoticeDeliveryState,
            waiting_notices,
        },
        pairing_codes::CodePurpose,
        schema::deliveries,
        testing::{self, FreezingRelay, Postgres, later, now},
    },
    domain::{
        channels::{
            escalation::{AlarmRules, QUIET_AFTER},
            user_channel::{ChannelState, ChannelTarget},
        },
        fence::Fence,
        ids::UserId,
        sweep::Sweep,
    },
    ownership::NodeSeat,
    vault::Vault,
};

/// More than a lane sends to one host at once.
const USERS: usize = 80;
/// Longest wait for anything; only a test that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(90);

/// The other side of a test's channels.
struct Receiver {
    clock: Clock,
    channels: Arc<Channels>,
    received: mpsc::UnboundedReceiver<(String, String)>,
    /// Ids of messages, and how often each came, by host.
    seen: BTreeMap<String, BTreeMap<String, usize>>,
    /// False: messages to the first host wait for their answers.
    answers: watch::Sender<bool>,
    /// True: the first host takes messages; otherwise there is no connection.
    takes: watch::Sender<bool>,
    worker: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

const FIRST: &str = "first.example";
const SECOND: &str = "second.example";
/// Each channel at this host is gone.
const GONE: &str = "gone.example";

impl Receiver {
    /// Users with a server each, and channels at these hosts, one after the other.
    fn start(pool: &Pool, hosts: &[&str], takes: bool) -> Self {
        let (clock, random) = (Clock::adjustable(now()), Random::seeded(1));
        let ((sender, received), answers, takes) =
            (mpsc::unbounded_channel(), watch::Sender::new(true), watch::Sender::new(takes));
        let (answered, taken) = (answers.clone(), takes.clone());
        let receive = move |request: crate::clients::channels::ChannelRequest| {
            let (sender, mut answered, taken) = (sender.clone(), answered.subscribe(), taken.clone());
            async move {
                let host = Url::parse(&request.url).unwrap().host_str().unwrap().to_owned();
                let id = request.headers.iter().find(|(name, _)| *name == "webhook-id").unwrap().1.clone();
                let is_first = host == FIRST;
                let status = if host == GONE { StatusCode::GONE } else { StatusCode::OK };
                sender.send((host, id)).unwrap();
                if is_first {
                    answered.wait_for(|answers| *answers).await.unwrap();
                }
                let receipt = Some("receipt".to_owned());
                let answer = ChannelAnswer { status, retry_after: None, receipt };
                (!is_first || *taken.borrow()).then_some(answer)
            }
            .boxed_local()
        };
        let url = || Url::parse("https://companion.example").unwrap().into();
        let channels = Arc::new(Channels {
            clock: clock.clone(),
            random: random.clone(),
            pool: pool.clone(),
            vault: Vault::new(pool.clone(), Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, random.clone()))),
            client: ChannelClient::simulated(Arc::new(receive), random),
            team_chat: None,
            links: AckLinks::new(&Key32::new([2; 32])),
            urls: PublicUrls { base: url(), frontend: url(), admin: url(), relay: None },
            vapid: Default::default(),
            news: Default::default(),
            good_look: Default::default(),
            failing_since: Default::default(),
            early_alarms: Default::default(),
            early: Default::default(),
            gone: Default::default(),
            orphaned: Default::default(),
        });
        for user in (0..USERS).map(|number| format!("user{number}")) {
            testing::user(pool, &user);
            testing::server(pool, &user, &user);
            let made = hosts.iter().map(|host| {
                let (url, secrets) = (format!("https://{host}/{user}"), vec!["whsec_c2VjcmV0".to_owned()]);
                let target = ChannelTarget::Webhook { url, secrets, template: None };
                channels.new_channel(&UserId::from(user.as_str()), (*host).to_owned(), &target)
            });
            let made: Vec<_> = made.collect();
            let add = |db: &mut Db| {
                made.iter().try_for_each(|row| channels::insert(db, row, 9).map(|added| drop(added.unwrap())))
            };
            pool.write_blocking(add).unwrap();
        }
        let worker = actix::spawn(run(channels.clone()));
        Self { clock, channels, received, seen: BTreeMap::new(), answers, takes, worker }
    }

    /// The alarms of these users go off.
    fn ring(&self, incident: &str, mut users: impl Iterator<Item = usize>) {
        let write = |db: &mut Db| {
            users.try_for_each(|number| {
                let (server, incident) = (format!("user{number}"), format!("{incident}{number}"));
                incidents::write(db, &server.as_str().into(), &testing::incident_write(&incident, 1))
            })
        };
        self.channels.pool.write_blocking(write).unwrap();
    }

    /// Messages that this host was sent.
    fn count(&self, host: &str) -> usize {
        self.seen.get(host).map_or(0, |messages| messages.values().sum())
    }

    async fn until(&mut self, host: &str, count: usize) {
        while self.count(host) < count {
            let waited = timeout(PATIENCE, self.received.recv()).await;
            let Ok(Some((host, id))) = waited else { panic!("{count} at {host}: {:?}", self.seen) };
            *self.seen.entry(host).or_default().entry(id).or_default() += 1;
        }
    }
}

impl Receiver {
    /// Waits until no message waits.
    async fn all_stored(&self) {
        self.until_waiting(0).await;
    }

    /// Waits until this many messages wait.
    async fn until_waiting(&self, count: i64) {
        let stored = async {
            loop {
                let settled = self.channels.settled();
                tokio::pin!(settled);
                settled.as_mut().enable();
                if self.channels.pool.read(waiting_notices::read).await.is_ok_and(|waiting| waiting.messages == count) {
                    return;
                }
                settled.await;
            }
        };
        timeout(PATIENCE, stored).await.unwrap_or_else(|_| panic!("{count} wait"));
    }
}

async fn pass_over_a_dead_origin(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[FIRST, SECOND], false);
    receiver.ring("raid", 0..USERS - 1);
    receiver.until(SECOND, USERS - 1).await;
    let tried = receiver.count(FIRST);
    assert!((8..USERS - 1).contains(&tried), "{tried} of {}: the others were passed on without an attempt", USERS - 1);

    // One message tries it, and holds up no other while it hangs.
    receiver.answers.send_replace(false);
    receiver.clock.advance(TimeDelta::seconds(30));
    receiver.until(FIRST, tried + 1).await;
    receiver.ring("another", USERS - 1..USERS);
    receiver.until(SECOND, USERS).await;
    assert_eq!(receiver.count(FIRST), tried + 1);

    receiver.takes.send_replace(true);
    receiver.answers.send_replace(true);
    // Each of those that were tried comes once more.
    let all = tried + USERS;
    receiver.until(FIRST, all).await;
    receiver.all_stored().await;
    assert_eq!((receiver.count(FIRST), receiver.seen[FIRST].len()), (all, USERS));
}

#[test]
fn users_of_an_origin_that_is_dead_hear_by_their_next_channel_at_once() {
    testing::on_each_database(|pool| actix::System::new().block_on(pass_over_a_dead_origin(pool)));
}

/// Sends by a database that this freezes, and thaws.
async fn send_while_frozen(pool: &Pool, mut freeze: impl FnMut(bool)) {
    let mut receiver = Receiver::start(pool, &[FIRST], true);
    let at_once = ChannelLane::Unproven.at_once_to_host();
    receiver.answers.send_replace(false);
    receiver.ring("raid", 0..USERS);
    receiver.until(FIRST, at_once).await;
    freeze(true);
    receiver.answers.send_replace(true);
    // By the second, the worker's own write has failed.
    for _ in 0..2 {
        let noted = pool.write(|db: &mut Db| channels::rename(db, &"other".into(), &"other".into(), "")).await;
        assert!(noted.is_err(), "it is frozen");
    }
    while let Ok((host, id)) = receiver.received.try_recv() {
        *receiver.seen.entry(host).or_default().entry(id).or_default() += 1;
    }
    assert_eq!(receiver.count(FIRST), at_once, "no more than what can be stored later");
    freeze(false);
    receiver.until(FIRST, USERS).await;
    receiver.all_stored().await;
    assert_eq!(receiver.count(FIRST), USERS, "each was sent once");
}

#[test]
fn a_frozen_database_makes_no_message_go_twice_and_few_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.db");
    let pool = Pool::open(&Database::Sqlite(path.clone())).unwrap();
    let mut lock = None;
    let freeze = |is_frozen: bool| {
        lock = is_frozen.then(|| {
            let mut lock = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
            lock.batch_execute("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE").unwrap();
            lock
        });
    };
    actix::System::new().block_on(send_while_frozen(&pool, freeze));
    if let Some(postgres) = Postgres::create() {
        let relay = FreezingRelay::before(&postgres);
        let pool = Pool::open(&relay.database()).unwrap();
        actix::System::new().block_on(send_while_frozen(&pool, |is_frozen| relay.freeze(is_frozen)));
        drop(pool);
    }
}

async fn rename(pool: &Pool, from: &str, to: &str) {
    let rename = format!("ALTER TABLE {from} RENAME TO {to}");
    pool.write(move |db: &mut Db| Ok::<_, DbError>(sql_query(rename).execute(db)?)).await.unwrap();
}

/// An alarm of this user that the database does not have.
fn early_alarm(incident: &str, number: usize) -> EarlyAlarm {
    let (server, id) = (format!("user{number}").as_str().into(), format!("{incident}{number}"));
    let (incident, _) = testing::incident_write(&id, 1).incidents.remove(&id).unwrap();
    EarlyAlarm { server, incident: StoredIncident::unheard(id, incident), is_stored: false }
}

impl Receiver {
    /// Rings for all while the database gives no channels, which it does afterwards.
    async fn ring_from_memory(&mut self, pool: &Pool) -> tokio::task::JoinHandle<()> {
        let channels = self.channels.clone();
        let known = RefCell::new(early::read_all(&channels).await.unwrap());
        rename(pool, "channels", "channels_away").await;
        (0..USERS).for_each(|number| channels.early_alarms.add(early_alarm("raid", number)));
        let sending = actix::spawn(async move { early::send(channels, &known, None).await });
        self.until(SECOND, USERS).await;
        rename(pool, "channels_away", "channels").await;
        sending
    }

    /// Waits until this holds for the outcomes of early messages that wait for their rows.
    async fn until_early(&self, holds: impl Fn(&[EndedAttempt]) -> bool) {
        let waited = async {
            loop {
                let settled = self.channels.settled();
                tokio::pin!(settled);
                settled.as_mut().enable();
                if holds(&self.channels.early.ended()) {
                    return;
                }
                settled.await;
            }
        };
        timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("{:?}", self.channels.early));
    }

    /// Waits until all messages of the alarms are stored as accepted.
    async fn all_accepted(&self, pool: &Pool) {
        let accepted = async {
            loop {
                let settled = self.channels.settled();
                tokio::pin!(settled);
                settled.as_mut().enable();
                let accepted = deliveries::state.eq(NoticeDeliveryState::Accepted.word());
                let accepted = deliveries::table.filter(accepted).filter(deliveries::round.eq(0)).count();
                let count: i64 = pool.read(move |db: &mut Db| Ok(accepted.get_result(db)?)).await.unwrap();
                if count == USERS as i64 {
                    return;
                }
                settled.await;
            }
        };
        timeout(PATIENCE, accepted).await.expect("the rows have the outcomes");
    }
}

/// Rings by a database that gives nothing.
async fn ring_from_memory(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    let sending = receiver.ring_from_memory(pool).await;
    receiver.ring("raid", 0..USERS);
    receiver.all_accepted(pool).await;
    receiver.ring("another", 0..1);
    receiver.until(SECOND, USERS + 1).await;
    sending.abort();
    assert_eq!(receiver.seen[SECOND].len(), USERS + 1, "each was sent once");
}

#[test]
fn alarms_that_no_database_gives_ring_from_memory_and_once() {
    testing::on_each_database(|pool| actix::System::new().block_on(ring_from_memory(pool)));
}

/// Alarms are stored at a node, and the worker is at another one.
async fn leave_what_is_stored_to_the_worker(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    receiver.worker.abort();
    let channels = receiver.channels.clone();
    let known = RefCell::new(early::read_all(&channels).await.unwrap());
    let channel = pool.read(|db: &mut Db| channels::list(db, &"user1".into())).await.unwrap()[0].id();
    tokio::time::pause();
    let (seat, ownership) = NodeSeat::new("here");
    let sender = channels.clone();
    let sending = actix::spawn(async move { early::send(sender, &known, Some(ownership)).await });
    let ring = |number| channels.early_alarms.add(EarlyAlarm { is_stored: true, ..early_alarm("raid", number) });
    ring(0);
    sleep(Duration::from_secs(10)).await;
    seat.seat([Arc::new(Fence { part: Sweep::Channels.part(), node: "here-1".into(), number: 1 })]);
    ring(1);
    receiver.until(SECOND, 1).await;
    sending.abort();
    let sent: Vec<&String> = receiver.seen[SECOND].keys().collect();
    assert_eq!(sent, [&notice_queue::message_id("raid1", &channel, 0)], "the first one is for the other node");
}

#[test]
fn a_stored_alarm_of_a_node_without_the_worker_rings_there_only() {
    testing::on_each_database(|pool| actix::System::new().block_on(leave_what_is_stored_to_the_worker(pool)));
}

/// Rings at a node, while the worker, which is at another one, makes the rows.
async fn store_outcomes_without_the_worker(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    receiver.worker.abort();
    let sending = receiver.ring_from_memory(pool).await;
    let (_seat, ownership) = NodeSeat::new("here");
    let channels = receiver.channels.clone();
    let storing = actix::spawn(async move { early_outcomes::run(&channels, Some(ownership)).await });
    receiver.ring("raid", 0..USERS);
    let now = receiver.clock.now();
    pool.write_blocking(|db| notice_steps::make_due(db, now, BATCH as i64)).unwrap();
    receiver.all_accepted(pool).await;
    receiver.until_early(|ended| ended.is_empty()).await;
    sending.abort();
    storing.abort();
}

#[test]
fn what_rang_at_a_node_without_the_worker_has_its_outcome() {
    testing::on_each_database(|pool| actix::System::new().block_on(store_outcomes_without_the_worker(pool)));
}

/// The worker of another node has sent what rang here, and its outcome is the one of the row.
async fn keep_the_outcome_of_the_worker(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[GONE], true);
    receiver.worker.abort();
    let channels = receiver.channels.clone();
    let (known, sender) = (RefCell::new(early::read_all(&channels).await.unwrap()), channels.clone());
    let sending = actix::spawn(async move { early::send(sender, &known, None).await });
    channels.early_alarms.add(early_alarm("raid", 0));
    receiver.until(GONE, 1).await;
    receiver.until_early(|ended| ended.len() == 1).await;
    receiver.ring("raid", 0..1);
    let now = receiver.clock.now();
    let accept = |db: &mut Db| {
        notice_steps::make_due(db, now, BATCH as i64)?;
        let accepted = NoticeDeliveryState::Accepted.word();
        let taken =
            (deliveries::state.eq(accepted), deliveries::due_at.eq(None::<Timestamp>), deliveries::ended_at.eq(now));
        Ok(diesel::update(deliveries::table).set(taken).execute(db)?)
    };
    assert_eq!(pool.write_blocking(accept).unwrap(), 1);
    early_outcomes::store(&channels, |attempt, _| panic!("{attempt:?}")).await.unwrap();
    sending.abort();
    assert!(channels.early.ended().is_empty());
    let states: Vec<String> =
        pool.read_blocking(|db| Ok(deliveries::table.select(deliveries::state).load(db)?)).unwrap();
    assert_eq!(states, [NoticeDeliveryState::Accepted.word()]);
}

#[test]
fn what_the_worker_of_another_node_has_sent_again_keeps_its_outcome() {
    testing::on_each_database(|pool| actix::System::new().block_on(keep_the_outcome_of_the_worker(pool)));
}

/// Alarms become quiet while their messages wait for others.
async fn become_quiet_while_waiting(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[FIRST], true);
    let channels = receiver.channels.clone();
    receiver.answers.send_replace(false);
    for number in 0..USERS {
        let mut alarm = early_alarm("raid", number);
        let last_at = &mut alarm.incident.incident.last_at;
        *last_at = *last_at - QUIET_AFTER + TimeDelta::seconds(10);
        channels.early_alarms.add(alarm);
    }
    let (sender, known) = (channels.clone(), RefCell::default());
    let sending = actix::spawn(async move { early::send(sender, &known, None).await });
    let at_once = ChannelLane::Unproven.at_once_to_host();
    receiver.until(FIRST, at_once).await;

    receiver.clock.advance(TimeDelta::seconds(20));
    let another = early_alarm("another", USERS - 1);
    let first = receiver.seen[FIRST].clone();
    channels.early_alarms.add(another);
    receiver.answers.send_replace(true);
    receiver.until(FIRST, at_once + 1).await;
    sending.abort();
    let channel = pool.read(|db: &mut Db| channels::list(db, &format!("user{}", USERS - 1).as_str().into())).await;
    let expected = notice_queue::message_id(&format!("another{}", USERS - 1), &channel.unwrap()[0].id(), 0);
    let sent: Vec<&String> = receiver.seen[FIRST].keys().filter(|id| !first.contains_key(*id)).collect();
    assert_eq!(sent, [&expected], "of those that are over nothing more is sent");
}

#[test]
fn an_alarm_that_is_over_by_its_turn_does_not_ring_from_memory() {
    testing::on_each_database(|pool| actix::System::new().block_on(become_quiet_while_waiting(pool)));
}

/// Ways end after it was read who is reached.
async fn end_ways_of_memory(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    let channels = receiver.channels.clone();
    let known = RefCell::new(early::read_all(&channels).await.unwrap());
    let first = pool.read(|db: &mut Db| channels::list(db, &"user2".into())).await.unwrap();
    rename(pool, "channels", "channels_away").await;
    let changes = &channels.early_alarms.changes;
    changes.end(EndedWay::Guest("user0".into(), "user0".into()));
    changes.end(EndedWay::User("user1".into()));
    channels.note_deleted(&[first[0].id()]);
    let off = AlarmRules { enabled: false, ..AlarmRules::default() };
    changes.set_rules(&"user3".into(), &"user3".into(), &off);
    changes.acknowledge(NoticeKey { incident: "raid4".to_owned(), user: "user4".into() }, receiver.clock.moment());
    changes.end(EndedWay::Guest("user5".into(), "another".into()));
    (0..=5).for_each(|number| channels.early_alarms.add(early_alarm("raid", number)));
    let sender = channels.clone();
    let sending = actix::spawn(async move { early::send(sender, &known, None).await });
    receiver.until(SECOND, 1).await;
    sending.abort();
    rename(pool, "channels_away", "channels").await;
    let channel = pool.read(|db: &mut Db| channels::list(db, &"user5".into())).await.unwrap()[0].id();
    let sent: Vec<&String> = receiver.seen[SECOND].keys().collect();
    assert_eq!(sent, [&notice_queue::message_id("raid5", &channel, 0)]);
}

#[test]
fn nothing_rings_from_memory_by_a_way_that_has_ended_since() {
    testing::on_each_database(|pool| actix::System::new().block_on(end_ways_of_memory(pool)));
}

/// The first channel of this user.
fn channel_of(pool: &Pool, user: &str) -> StoredChannel {
    let user = UserId::from(user);
    pool.read_blocking(|db| channels::list(db, &user)).unwrap().remove(0)
}

/// Channels answer that they are gone, and the database has that later.
async fn end_by_answers(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[GONE], true);
    let channels = receiver.channels.clone();
    // The clock was set back since this one took a message.
    let StoredChannel { id, target_hash, .. } = channel_of(pool, "user0");
    pool.write_blocking(|db| channels::note_accepted(db, &[(id.as_str(), target_hash.as_str())], later(1_800)))
        .unwrap();
    let known = RefCell::new(early::read_all(&channels).await.unwrap());
    rename(pool, "channels", "channels_away").await;
    let ring = |incident, number| channels.early_alarms.add(early_alarm(incident, number));
    let sender = channels.clone();
    let sending = actix::spawn(async move { early::send(sender, &known, None).await });
    ring("raid", 0);
    receiver.until_early(|ended| ended.len() == 1).await;
    // The database does not have it yet, and has this before an alarm from memory.
    ring("another", 0);
    receiver.until_early(|ended| ended.len() == 2).await;
    assert!(channels.early.ended().iter().all(EndedAttempt::is_gone));
    rename(pool, "channels_away", "channels").await;
    receiver.ring("raid", 0..1);
    receiver.until_early(|ended| ended.iter().all(|attempt| attempt.delivery.incident_id != "raid0")).await;
    rename(pool, "channels", "channels_away").await;
    ring("third", 0);
    ring("raid", 1);
    receiver.until(GONE, 2).await;
    sending.abort();
    rename(pool, "channels_away", "channels").await;
    let mut expected = Vec::new();
    for number in 0..2 {
        let channel = channel_of(pool, &format!("user{number}")).id();
        expected.push(notice_queue::message_id(&format!("raid{number}"), &channel, 0));
    }
    expected.sort_unstable();
    assert_eq!(receiver.seen[GONE].keys().cloned().collect::<Vec<_>>(), expected, "each was asked once");
}

#[test]
fn a_channel_that_is_gone_is_tried_again_neither_before_nor_after_that_is_stored() {
    testing::on_each_database(|pool| actix::System::new().block_on(end_by_answers(pool)));
}

/// A channel says that it is gone while a message is under way that it took before.
async fn end_beside_a_message_that_was_taken(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[FIRST], true);
    receiver.answers.send_replace(false);
    receiver.ring("raid", 0..1);
    receiver.until(FIRST, 1).await;
    receiver.channels.gone.note(&channel_of(pool, "user0"), receiver.clock.moment());
    receiver.clock.advance(TimeDelta::seconds(1));
    receiver.answers.send_replace(true);
    receiver.all_stored().await;
    assert_eq!(channel_of(pool, "user0").accepted_at, Some(later(1)));

    receiver.ring("another", 0..1);
    let gone = async {
        loop {
            let settled = receiver.channels.settled();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if channel_of(pool, "user0").state().unwrap() == ChannelState::Gone {
                return;
            }
            settled.await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the database has it");
    assert!(receiver.received.try_recv().is_err(), "it is not tried again");
}

#[test]
fn a_channel_that_is_gone_is_not_tried_again_once_a_message_that_it_took_before_is_stored() {
    testing::on_each_database(|pool| actix::System::new().block_on(end_beside_a_message_that_was_taken(pool)));
}

/// A channel is gone by the time that a message by it is there.
async fn make_a_message_by_a_channel_that_is_gone(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    receiver.worker.abort();
    receiver.ring("raid", 0..1);
    let now = receiver.clock.now();
    let make = |db: &mut Db| {
        let made = notice_steps::make_due(db, now, BATCH as i64)?;
        sql_query("UPDATE channels SET state = 'gone'").execute(db)?;
        Ok(made.queued)
    };
    assert_eq!(pool.write_blocking(make).unwrap(), 1);
    receiver.worker = actix::spawn(run(receiver.channels.clone()));
    receiver.all_stored().await;
    assert!(receiver.received.try_recv().is_err(), "nothing is sent");
    let reasons: Vec<Option<String>> =
        pool.read_blocking(|db| Ok(deliveries::table.select(deliveries::reason).load(db)?)).unwrap();
    assert_eq!(reasons, [Some("gone".to_owned())]);
}

#[test]
fn a_message_that_is_made_while_its_channel_ends_is_not_sent() {
    testing::on_each_database(|pool| actix::System::new().block_on(make_a_message_by_a_channel_that_is_gone(pool)));
}

/// A message is over, and the database does not take that. `is_proven`: it is in the first lane, and the other one is not.
async fn send_beside_a_message_that_is_over(pool: &Pool, is_proven: bool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    receiver.worker.abort();
    if is_proven {
        let StoredChannel { id, target_hash, .. } = channel_of(pool, "user0");
        pool.write_blocking(|db| channels::note_accepted(db, &[(id.as_str(), target_hash.as_str())], now())).unwrap();
    }
    receiver.ring("raid", 0..2);
    let now = receiver.clock.now();
    let acknowledge = |db: &mut Db| {
        let made = notice_steps::make_due(db, now, BATCH as i64)?;
        let acknowledge = "INSERT INTO incident_acks (incident_id, user_id, at) \
            SELECT id, 'user0', first_at FROM incidents WHERE id = 'raid0'";
        sql_query(acknowledge).execute(db)?;
        Ok(made.queued)
    };
    assert_eq!(pool.write_blocking(acknowledge).unwrap(), 2);
    let refuse = |db: &mut Db| {
        let refuse = match db {
            Db::Sqlite(_) => {
                "CREATE TRIGGER cancels_nothing BEFORE UPDATE ON deliveries WHEN NEW.state = 'cancelled' \
                BEGIN SELECT RAISE(ABORT, 'not now'); END"
            }
            Db::Pg(_) => "ALTER TABLE deliveries ADD CHECK (state <> 'cancelled')",
        };
        Ok(sql_query(refuse).execute(db)?)
    };
    pool.write_blocking(refuse).unwrap();
    receiver.worker = actix::spawn(run(receiver.channels.clone()));
    receiver.until(SECOND, 1).await;
    let expected = notice_queue::message_id("raid1", &channel_of(pool, "user1").id(), 0);
    assert_eq!(receiver.seen[SECOND].keys().collect::<Vec<_>>(), [&expected]);
}

#[test]
fn a_message_that_is_over_and_cannot_be_ended_holds_up_no_other() {
    for is_proven in [false, true] {
        testing::on_each_database(|pool| {
            actix::System::new().block_on(send_beside_a_message_that_is_over(pool, is_proven));
        });
    }
}

/// A channel answers to a warning that it is gone, and another one to a test, and the database has that later.
async fn end_by_answers_to_others(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[GONE], true);
    receiver.worker.abort();
    let channels = receiver.channels.clone();
    let known = RefCell::new(early::read_all(&channels).await.unwrap());
    let (user, notice) = (UserId::from("user0"), channels.test_notice());
    let warn = async || user_messages::send(&channels, &user, None, &notice).await.unwrap();
    assert!(warn().await.all_failed());
    let again = warn().await;
    assert!(again.all_failed(), "the database does not have it yet");
    again.store(&channels, receiver.clock.now(), |_| Ok(())).await.unwrap();
    assert_eq!(warn().await.tried(), 0);
    let (tested, again) = (channel_of(pool, "user1"), channel_of(pool, "user2"));
    channels.note_tested(&tested, Some(ChannelFault::Gone));
    channels.note_tested(&again, Some(ChannelFault::Gone));
    channels.note_tested(&again, None);
    let of_new_target = channel_of(pool, "user3");
    channels.note_gone_stored(&StoredChannel { target_hash: "old".to_owned(), ..of_new_target.clone() });

    rename(pool, "channels", "channels_away").await;
    (0..4).for_each(|number| channels.early_alarms.add(early_alarm("raid", number)));
    let sender = channels.clone();
    let sending = actix::spawn(async move { early::send(sender, &known, None).await });
    receiver.until(GONE, 3).await;
    sending.abort();
    rename(pool, "channels_away", "channels").await;
    let rung = [("raid2", again.id()), ("raid3", of_new_target.id())];
    let rung = rung.map(|(incident, channel)| notice_queue::message_id(incident, &channel, 0));
    let mut expected = [&[notice.incident][..], &rung].concat();
    expected.sort_unstable();
    assert_eq!(receiver.seen[GONE].keys().cloned().collect::<Vec<_>>(), expected, "the warning came once");
}

#[test]
fn a_channel_that_is_gone_by_a_warning_or_test_is_not_tried_again() {
    testing::on_each_database(|pool| actix::System::new().block_on(end_by_answers_to_others(pool)));
}

/// A device is to be announced while the database gives it, and takes nothing about it.
async fn announce_while_nothing_is_stored(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    receiver.worker.abort();
    let purpose = CodePurpose { user: "user0".into(), label: None, overlay: None, sections: None };
    pool.write_blocking(|db| helper_devices::insert(db, &"device".into(), &purpose, "token", now())).unwrap();
    let alter = |sqlite: &'static str, postgres: &'static str| {
        let alter = |db: &mut Db| {
            let alter = match db {
                Db::Sqlite(_) => sqlite,
                Db::Pg(_) => postgres,
            };
            Ok(sql_query(alter).execute(db)?)
        };
        pool.write_blocking(alter).unwrap();
    };
    let (channels, kind) = (receiver.channels.clone(), device_news::kind());
    let at = now() + helper_devices::ANNOUNCED_AFTER;
    let look = async || user_messages::warn_due(&channels, &kind, &device_news::announce, at).await;

    alter(
        "CREATE TRIGGER takes_nothing BEFORE UPDATE ON helper_devices BEGIN SELECT RAISE(ABORT, 'not now'); END",
        "ALTER TABLE helper_devices ADD CONSTRAINT takes_nothing CHECK (seen_at IS NOT NULL) NOT VALID",
    );
    look().await;
    look().await;
    assert!(receiver.received.try_recv().is_err(), "each look would send it again");
    alter("DROP TRIGGER takes_nothing", "ALTER TABLE helper_devices DROP CONSTRAINT takes_nothing");
    look().await;
    look().await;
    receiver.until(SECOND, 1).await;
    assert!(receiver.received.try_recv().is_err(), "it is sent once");
}

#[test]
fn a_message_to_a_user_is_not_sent_again_and_again_while_the_database_takes_nothing() {
    testing::on_each_database(|pool| actix::System::new().block_on(announce_while_nothing_is_stored(pool)));
}

/// Users acknowledge what rang from memory before the database has a message of it.
async fn acknowledge_from_memory(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    let sending = receiver.ring_from_memory(pool).await;
    let write = |db: &mut Db| {
        (0..USERS).try_for_each(|number| {
            let (user, incident) = (format!("user{number}"), format!("raid{number}"));
            incidents::write(db, &user.as_str().into(), &testing::incident_write(&incident, 1))?;
            incidents::acknowledge(db, &user.as_str().into(), &incident, &user.as_str().into(), now())?.unwrap();
            Ok::<_, DbError>(())
        })
    };
    pool.write_blocking(write).unwrap();
    receiver.all_accepted(pool).await;
    receiver.until(SECOND, 2 * USERS).await;
    sending.abort();
    assert_eq!(receiver.seen[SECOND].len(), 2 * USERS, "each alarm was sent once, and each acknowledgement");
    assert!(receiver.channels.early.ended().is_empty(), "no outcome waits");
}

#[test]
fn what_rang_from_memory_and_was_acknowledged_at_once_has_its_outcome() {
    testing::on_each_database(|pool| actix::System::new().block_on(acknowledge_from_memory(pool)));
}

/// Users acknowledge two alarms each, which only the journal has: more messages than a lane has room for.
async fn acknowledge_in_the_journal(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    let kept = 2 * USERS;
    assert!(kept > ChannelLane::Unproven.at_once());
    for (incident, number) in ["raid", "another"].iter().flat_map(|raid| (0..USERS).map(move |number| (raid, number))) {
        let notice =
            NoticeKey { incident: format!("{incident}{number}"), user: format!("user{number}").as_str().into() };
        receiver.channels.early_alarms.changes.keep_acknowledged(notice, receiver.clock.moment());
    }
    receiver.ring("raid", 0..USERS);
    receiver.ring("another", 0..USERS);
    receiver.until_waiting(kept as i64).await;
    receiver.clock.advance(TimeDelta::seconds(1));
    receiver.ring("later", USERS - 1..USERS);
    receiver.until(SECOND, 1).await;
    let user = UserId::from(format!("user{}", USERS - 1).as_str());
    let channel = pool.read(move |db: &mut Db| channels::list(db, &user)).await.unwrap()[0].id();
    let sent: Vec<&String> = receiver.seen[SECOND].keys().collect();
    assert_eq!(sent, [&notice_queue::message_id(&format!("later{}", USERS - 1), &channel, 0)]);
}

#[test]
fn messages_whose_acknowledgement_only_the_journal_has_hold_up_no_other() {
    testing::on_each_database(|pool| actix::System::new().block_on(acknowledge_in_the_journal(pool)));
}

/// A channel that rang from memory is deleted before the database has a message of it.
async fn delete_after_memory(pool: &Pool) {
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    let sending = receiver.ring_from_memory(pool).await;
    let rang = pool.read(|db: &mut Db| channels::list(db, &"user0".into())).await.unwrap().remove(0).id();
    let deleted = rang.clone();
    let delete = move |db: &mut Db| emergencies::delete_channel(db, &"user0".into(), &deleted, now());
    assert_eq!(pool.write(delete).await.unwrap(), (true, vec![]));
    let orphaned = async {
        loop {
            let settled = receiver.channels.settled();
            tokio::pin!(settled);
            settled.as_mut().enable();
            let orphaned = receiver.channels.orphaned.take();
            if !orphaned.is_empty() {
                return orphaned;
            }
            settled.await;
        }
    };
    let orphaned = timeout(PATIENCE, orphaned).await.expect("what repeats there is to be ended");
    sending.abort();
    assert_eq!(orphaned.iter().map(|one| one.channel.id()).collect::<Vec<_>>(), [rang]);
    let early = receiver.channels.early.ended();
    assert!(early.iter().all(|attempt| attempt.channel.user_id != "user0"), "its outcome waits for no row");
}

#[test]
fn what_rang_from_memory_by_a_channel_that_was_deleted_since_is_ended() {
    testing::on_each_database(|pool| actix::System::new().block_on(delete_after_memory(pool)));
}

/// Sends an alarm seven seconds after it went off.
async fn send_late(pool: &Pool, recorder: &PrometheusRecorder) {
    let _recording = metrics::set_default_local_recorder(recorder);
    let mut receiver = Receiver::start(pool, &[SECOND], true);
    receiver.clock.advance(TimeDelta::seconds(7));
    receiver.ring("raid", 0..1);
    receiver.until(SECOND, 1).await;
    receiver.all_stored().await;
}

#[test]
fn the_delay_of_a_message_counts_from_its_alarm() {
    testing::on_each_database(|pool| {
        let recorder = PrometheusBuilder::new().build_recorder();
        actix::System::new().block_on(send_late(pool, &recorder));
        let figures = recorder.handle().render();
        let sum = "companion_channel_delay_seconds_sum{kind=\"webhook\"} 7";
        assert!(figures.lines().any(|line| line == sum), "{figures}");
    });
}
