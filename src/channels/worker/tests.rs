use std::{cell::RefCell, collections::BTreeMap};

use chrono::TimeDelta;
use diesel::{SqliteConnection, connection::SimpleConnection as _, prelude::*, sql_query};
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
    channels::early,
    clients::channels::{ChannelAnswer, ChannelClient},
    clock::Clock,
    config::{Database, PublicUrls},
    crypto::{ack_link::AckLinks, keys::Key32, random::Random, sealer::Sealer},
    db::{
        channels,
        early_alarms::EarlyAlarm,
        early_changes::EndedWay,
        engine::pool::Pool,
        incidents::{self, StoredIncident},
        notices::NoticeDeliveryState,
        schema::deliveries,
        testing::{self, FreezingRelay, Postgres, now},
    },
    domain::{
        channel::ChannelTarget,
        escalation::{AlarmRules, QUIET_AFTER},
        ids::UserId,
    },
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
                sender.send((host, id)).unwrap();
                if is_first {
                    answered.wait_for(|answers| *answers).await.unwrap();
                }
                let answer = ChannelAnswer { status: StatusCode::OK, retry_after: None, receipt: None };
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
            pool.write_blocking(|db| made.iter().try_for_each(|row| channels::insert(db, row, 9).map(Result::unwrap)))
                .unwrap();
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
        let stored = async {
            loop {
                let settled = self.channels.settled();
                tokio::pin!(settled);
                settled.as_mut().enable();
                if self.channels.pool.read(notices::waiting).await.is_ok_and(|waiting| waiting.messages == 0) {
                    return;
                }
                settled.await;
            }
        };
        timeout(PATIENCE, stored).await.expect("all are stored");
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
        let sending = actix::spawn(async move { early::send(channels, &known).await });
        self.until(SECOND, USERS).await;
        rename(pool, "channels_away", "channels").await;
        sending
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
    let sending = actix::spawn(async move { early::send(sender, &known).await });
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
    let expected = notices::message_id(&format!("another{}", USERS - 1), &channel.unwrap()[0].id(), 0);
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
    changes.end(EndedWay::Channel(first[0].id()));
    let off = AlarmRules { enabled: false, ..AlarmRules::default() };
    changes.set_rules(&"user3".into(), &"user3".into(), &off);
    changes.acknowledge(NoticeKey { incident: "raid4".to_owned(), user: "user4".into() }, receiver.clock.moment());
    changes.end(EndedWay::Guest("user5".into(), "another".into()));
    (0..=5).for_each(|number| channels.early_alarms.add(early_alarm("raid", number)));
    let sender = channels.clone();
    let sending = actix::spawn(async move { early::send(sender, &known).await });
    receiver.until(SECOND, 1).await;
    sending.abort();
    rename(pool, "channels_away", "channels").await;
    let channel = pool.read(|db: &mut Db| channels::list(db, &"user5".into())).await.unwrap()[0].id();
    let sent: Vec<&String> = receiver.seen[SECOND].keys().collect();
    assert_eq!(sent, [&notices::message_id("raid5", &channel, 0)]);
}

#[test]
fn nothing_rings_from_memory_by_a_way_that_has_ended_since() {
    testing::on_each_database(|pool| actix::System::new().block_on(end_ways_of_memory(pool)));
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
