//! Above 500 lines: the tests of one struct, which share its world.

mod acknowledging;
mod flapping;
mod handing_over;
mod incident_lines;
mod passed_on;
mod stopping;
mod unsaid_lines;

use actix::prelude::*;
use chrono::TimeDelta;
use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use futures_util::{FutureExt as _, future::join_all};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::{
    clock::Clock,
    config::{Database, Game, GameLinkPolicy},
    crypto::{keys::Key32, random::Random, sealer::Sealer},
    db::{
        alarms::incidents,
        engine::pool::{Db, Pool},
        files::journal::{self, Journal},
        paired_servers, smart_devices, testing,
    },
    domain::{device::DeviceKind, incident::DevicePlace, items::Catalogue, raid::TriggerTime},
    game::{decoding::MessageDecoder, outbound::Outbound},
    net::Network,
    relay::{
        shared::write_behind::WriteBehind,
        state::live_state::LiveState,
        wire::{publication::Publication, publisher::Publisher},
    },
    vault::Vault,
};

/// A subscriber whose sockets take every alarm and snapshot; the alarms it got, as JSON.
struct Client {
    sockets: usize,
    got: Rc<RefCell<Vec<Value>>>,
}

impl Actor for Client {
    type Context = Context<Self>;
}

impl Handler<Publication> for Client {
    type Result = usize;

    fn handle(&mut self, publication: Publication, _: &mut Self::Context) -> usize {
        let Publication::DeliverAlarm { frame, acknowledged, taken, .. } = publication else { return 0 };
        if acknowledged.contains(&"alice".into()) {
            return 0;
        }
        // A server's frame is not masked: JSON begins at its first brace.
        let json = frame.plain().iter().position(|byte| *byte == b'{').expect("JSON");
        self.got.borrow_mut().push(serde_json::from_slice(&frame.plain()[json..]).expect("JSON"));
        (0..self.sockets).for_each(|_| taken.add());
        self.sockets
    }
}

/// A thread with a socket that takes every alarm at once, and another one that never reads.
struct HalfStuck;

impl Actor for HalfStuck {
    type Context = Context<Self>;
}

impl Handler<Publication> for HalfStuck {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, publication: Publication, _: &mut Self::Context) -> Self::Result {
        if let Publication::DeliverAlarm { taken, .. } = publication {
            taken.add();
        }
        Box::pin(std::future::pending())
    }
}

/// The alarms of one server over a database, through any number of lives.
struct World {
    directory: TempDir,
    context: Arc<RelayContext>,
}

/// One start of the service, with the state and the subscribers as the game connection has them.
#[derive(Clone)]
struct Life {
    alarms: Rc<AlarmDelivery>,
    live: Rc<RefCell<LiveState>>,
    publisher: Rc<RefCell<Publisher>>,
    got: Rc<RefCell<Vec<Value>>>,
}

impl World {
    fn new() -> Self {
        let world = Self::open(tempfile::tempdir().unwrap(), 1);
        let pool = &world.context.pool;
        testing::user(pool, "alice");
        testing::server(pool, "alice", "one");
        let device = |db: &mut Db| {
            smart_devices::upsert(db, &"one".into(), "7", DeviceKind::Alarm, "Front door", testing::now())
        };
        pool.write_blocking(device).unwrap();
        world
    }

    /// On what is in this directory.
    fn open(directory: TempDir, seed: u64) -> Self {
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        journal::replay(directory.path(), &pool, &Default::default()).unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        Self::over(directory, seed, pool, journal, Clock::adjustable)
    }

    fn over(
        directory: TempDir,
        seed: u64,
        pool: Pool,
        journal: Journal,
        clock: impl FnOnce(Timestamp) -> Clock,
    ) -> Self {
        let random = Random::seeded(seed);
        let context = RelayContext {
            early_alarms: Default::default(),
            markets: Default::default(),
            maps: Default::default(),
            catalogue: Default::default(),
            write_behind: WriteBehind::start(pool.clone(), random.clone()),
            clock: clock(Timestamp::from_timestamp(1_800_000_000, 0).unwrap()),
            vault: Vault::new(pool.clone(), Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, random.clone()))),
            random,
            pool,
            journal,
            game: Game {
                link_policy: GameLinkPolicy::Always,
                proxy_url: None,
                allow_private_servers: true,
                links_per_server: 5,
                source_addresses: Vec::new(),
            },
            network: Network::system(),
            teams: Default::default(),
            chat_texts: Default::default(),
            budgets: Arc::default(),
            outbound: Arc::new(Outbound::new(Clock::system(), true)),
            connect_pacer: Default::default(),
            recent_events: Default::default(),
            team_timers: Default::default(),
            decoder: MessageDecoder::inline(),
        };
        Self { directory, context: Arc::new(context) }
    }

    /// A start of the service, with a client on this number of sockets.
    async fn start(&self, sockets: usize) -> Life {
        let life = self.start_unread(sockets);
        life.load().await;
        life
    }

    /// A start whose ledger is not read yet.
    fn start_unread(&self, sockets: usize) -> Life {
        let publisher = Rc::new(RefCell::new(Publisher::new("one".into(), 1, Default::default())));
        let live = Rc::new(RefCell::new(LiveState::new(self.context.clock.now())));
        let got = Rc::new(RefCell::new(Vec::new()));
        if sockets > 0 {
            publisher.borrow_mut().subscribe(Client { sockets, got: got.clone() }.start().recipient());
        }
        Life { alarms: AlarmDelivery::new("one".into(), self.context.clone()), live, publisher, got }
    }

    /// An earlier life, in which the alarm went off; gives its incident.
    async fn rang_before(&self) -> String {
        let before = self.start(1).await;
        before.link_alarm().await;
        before.alarms.ledger.idle().await;
        before.seen()[0].0.clone()
    }

    fn later(&self, seconds: i64) {
        self.context.clock.advance(TimeDelta::seconds(seconds));
    }

    /// Locks the database against every writer, until dropped.
    fn freeze(&self) -> SqliteConnection {
        let path = self.directory.path().join("test.db");
        let mut lock = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
        lock.batch_execute("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE").unwrap();
        lock
    }

    /// Another service on what is on the disk now: this one was killed.
    fn after_a_kill(&self) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(self.directory.path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        Self::open(copy, 2)
    }

    /// The incidents of the ledger, once nothing waits to be written: state, count, sockets.
    async fn ledger(&self, life: &Life) -> Vec<(String, u32, i64)> {
        life.alarms.ledger.idle().await;
        let stored = self.context.pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 100)).unwrap();
        stored.into_iter().rev().map(|stored| (stored.state, stored.incident.count, stored.sockets)).collect()
    }

    /// Number of alarms in each state.
    fn alarms(&self) -> Vec<(&'static str, i64)> {
        let counts = self.context.pool.read_blocking(alarm_ledger::tally).unwrap().counts;
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// A push as the inbox stores it.
    fn receive(&self, id: &str, title: &str) -> PushedAlarm {
        let now = self.context.clock.now();
        let alarm =
            LedgerAlarm { title: title.into(), received_at: now, sent_at: Some(now), ..testing::received_alarm(id) };
        self.context.pool.write_blocking(|db| alarm_ledger::receive(db, &alarm)).unwrap();
        PushedAlarm { id: id.into(), title: title.into(), message: String::new(), sent: now, incident: None }
    }
}

impl Life {
    fn publish(&self, news: IncidentNews) -> FollowedNews {
        let now = self.alarms.context.clock.moment();
        self.alarms.publish(news, &mut self.live.borrow_mut(), &mut self.publisher.borrow_mut(), now)
    }

    async fn load(&self) {
        let loading::LoadedAlarms { news, pushes } = self.alarms.clone().load().await;
        let sent = self.publish(news);
        tokio::join!(sent.all, join_all(pushes.into_iter().map(|push| self.pushed_alarm(push))));
    }

    async fn link_alarm(&self) {
        self.alarm_of("7").await;
    }

    async fn pushed_alarm(&self, push: PushedAlarm) {
        let Some(taken_up) = self.alarms.clone().take_up(push, ReceivedAt::now()).await else { return };
        let named = self.live.borrow().alarms_named(taken_up.title());
        let news = self.alarms.clone().pushed_alarm(taken_up, named).await;
        self.publish(news).all.await;
    }

    async fn drill(self) -> Option<DrillOutcome> {
        let (drill, news) = self.alarms.clone().drill().await;
        drill.outcome(self.publish(news)).await
    }

    async fn tick(&self) {
        self.publish(self.alarms.tick()).all.await;
    }

    fn acknowledged(&self, incident: &str, user: &str, at: Timestamp) {
        let _ = self.publish(self.alarms.acknowledged(incident, &user.into(), at));
    }

    async fn alarm_of(&self, device: &str) {
        let news = self.alarms.clone().link_alarm(trigger(device)).await;
        self.publish(news).all.await;
    }

    /// Incident, count and whether it is an update, of each message.
    fn seen(&self) -> Vec<(String, u64, bool)> {
        let got = self.got.borrow();
        let seen = got.iter().map(|raid| {
            let incident = raid["incident"].as_str().unwrap().to_owned();
            (incident, raid["count"].as_u64().unwrap(), raid["update"].as_bool().unwrap())
        });
        seen.collect()
    }

    /// `state.raids`.
    fn raids(&self) -> Value {
        serde_json::to_value(self.live.borrow().state().document(Catalogue::embedded())).unwrap()["raids"].take()
    }
}

/// This device goes off on the link.
fn trigger(device: &str) -> AlarmTrigger {
    let (device, name, place) = (device.into(), "Front door".into(), DevicePlace::default());
    AlarmTrigger { device, name, place, time: TriggerTime::Now }
}

fn row(state: &str, count: u32, sockets: i64) -> (String, u32, i64) {
    (state.to_owned(), count, sockets)
}

#[actix::test]
async fn both_paths_of_one_alarm_are_one_incident() {
    let world = World::new();
    let life = world.start(3).await;
    let push = world.receive("push", "Front door");
    tokio::join!(life.link_alarm(), life.pushed_alarm(push));
    assert!(matches!(&life.seen()[..], [(_, 1, false)]), "announced once: {:?}", life.seen());
    assert_eq!(world.ledger(&life).await, [row("delivered", 1, 3)]);
    assert_eq!(world.alarms(), [("opened", 1), ("merged", 1)]);
    let incident = &life.raids()[&life.seen()[0].0];
    assert_eq!(incident["paths"], serde_json::json!(["link", "push"]));
    assert_eq!((&incident["alarmId"], &incident["count"]), (&"7".into(), &1.into()));
}

#[actix::test]
async fn an_alarm_that_no_socket_takes_is_unheard_until_a_snapshot_with_it_is_taken() {
    let world = World::new();
    let life = world.start(0).await;
    let before = life.publisher.borrow().position();
    life.link_alarm().await;
    assert_eq!(world.ledger(&life).await, [row("unheard", 1, 0)]);
    assert_eq!(life.raids().as_object().unwrap().len(), 1, "a client that comes later is shown it");
    life.alarms.state_taken(before);
    assert_eq!(world.ledger(&life).await, [row("unheard", 1, 0)], "it was not in that snapshot");
    life.alarms.state_taken(life.publisher.borrow().position());
    assert_eq!(world.ledger(&life).await, [row("delivered_later", 1, 0)]);
}

#[actix::test]
async fn a_drill_goes_the_whole_way_and_reports_its_sockets() {
    let world = World::new();
    let life = world.start(2).await;
    life.link_alarm().await;
    let outcome = life.clone().drill().await.expect("the ledger can be written");
    assert_eq!(outcome.sockets, 2);
    assert_eq!(life.seen()[1], (outcome.incident.clone(), 1, false), "not merged into the raid");
    assert_eq!(life.got.borrow()[1]["drill"], true);
    assert_eq!(life.raids()[&outcome.incident]["drill"], true);
}

#[actix::test]
async fn a_socket_that_does_not_read_holds_up_neither_the_ledger_nor_the_answer_to_a_drill() {
    let world = World::new();
    let life = world.start(0).await;
    life.publisher.borrow_mut().subscribe(HalfStuck.start().recipient());
    let drill = actix::spawn(life.clone().drill());
    while world.ledger(&life).await != [row("delivered", 1, 1)] {
        tokio::task::yield_now().await;
    }
    assert!(!drill.is_finished(), "the other may take it yet");
    tokio::time::pause();
    assert_eq!(drill.await.unwrap().expect("the ledger can be written").sockets, 1);
}

#[actix::test]
async fn a_ledger_that_cannot_be_written_does_not_hold_an_alarm_up() {
    let world = World::new();
    let life = world.start(1).await;
    // Without its paired server no row can be written.
    let gone = world.context.pool.write_blocking(|db| paired_servers::delete(db, &"alice".into(), &"one".into()));
    assert!(gone.unwrap());
    world.context.journal.forget(&"one".into());
    life.link_alarm().await;
    assert_eq!(life.seen().len(), 1);
    assert_eq!(life.clone().drill().await, None);
}

#[actix::test]
async fn repeats_are_sent_every_ten_seconds_and_stored_every_second() {
    let world = World::new();
    let life = world.start(1).await;
    for _ in 0..8 {
        life.link_alarm().await;
        world.later(1);
    }
    assert!(life.tick().now_or_never().is_some(), "nothing to send");
    assert!(life.alarms.clone().due().now_or_never().is_none(), "nothing is due");
    assert_eq!(life.seen().len(), 1, "repeats wait");
    assert_eq!(world.ledger(&life).await, [row("delivered", 8, 1)], "but a kill would not lose them");
    tokio::join!(life.alarms.clone().due(), async { world.later(2) });
    life.tick().await;
    let incident = life.seen()[0].0.clone();
    assert_eq!(life.seen(), [(incident.clone(), 1, false), (incident.clone(), 8, true)]);
    assert_eq!(world.ledger(&life).await, [row("delivered", 8, 1)]);
    assert_eq!(world.alarms(), [("opened", 1)], "no row for a repeat");
    assert_eq!(life.raids()[&incident]["count"], 8);
    tokio::join!(life.alarms.clone().due(), async { world.later(100) });
    life.tick().await;
    assert!(life.raids()[&incident]["endedAt"].is_string());
}

#[actix::test]
async fn a_repeat_that_was_pushed_is_counted_at_once() {
    let world = World::new();
    let life = world.start(1).await;
    for id in ["1", "2", "3"] {
        let alarm = world.receive(id, "Front door");
        life.pushed_alarm(alarm).await;
        world.later(1);
    }
    assert_eq!(world.ledger(&life).await, [row("delivered", 3, 1)]);
    assert_eq!(world.alarms(), [("opened", 1), ("merged", 2)]);
}

#[actix::test]
async fn an_acknowledged_incident_counts_on_and_does_not_ring_that_user() {
    let world = World::new();
    let life = world.start(1).await;
    life.link_alarm().await;
    let (incident, at) = (life.seen()[0].0.clone(), world.context.clock.now());
    life.acknowledged(&incident, "alice", at);
    assert!(life.raids()[&incident]["acks"]["alice"].is_string());
    world.later(20);
    life.link_alarm().await;
    assert_eq!(life.seen().len(), 1, "it does not ring");
    assert_eq!(life.raids()[&incident]["count"], 2, "it counts");
}

#[actix::test]
async fn after_a_crash_incidents_are_shown_again_and_none_is_announced_twice() {
    let world = World::new();
    // Dead between the ledger and the sockets: the alarm is stored, its future is dropped.
    let before = world.start(1).await;
    assert!(before.link_alarm().now_or_never().is_none(), "it waits for the ledger");
    assert_eq!(world.ledger(&before).await, [row("unheard", 1, 0)]);
    drop(before);
    world.later(30);

    let life = world.start(2).await;
    let [(incident, 1, true)] = &life.seen()[..] else {
        panic!("announced once more, as an update: {:?}", life.seen())
    };
    assert_eq!(life.raids()[incident]["alarmId"], "7");
    assert_eq!(world.ledger(&life).await, [row("delivered", 1, 2)]);
    // Its next trigger is a repeat, and the one after it has ended is an incident of its own.
    life.link_alarm().await;
    world.later(20);
    life.tick().await;
    assert_eq!(life.seen()[1..], [(incident.clone(), 2, true)]);
    assert_eq!(world.ledger(&life).await, [row("delivered", 2, 2)]);

    let again = world.start(1).await;
    assert!(again.seen().is_empty(), "it was heard");
    assert_eq!(again.raids()[incident]["count"], 2);
}

#[actix::test]
async fn an_unheard_incident_of_long_ago_is_announced_as_late_and_after_a_day_no_longer() {
    let world = World::new();
    world.start(0).await.link_alarm().await;
    world.later(8 * 3_600);
    let life = world.start(0).await;
    assert_eq!(life.raids().as_object().unwrap().len(), 1);
    let life = world.start(1).await;
    assert_eq!(life.got.borrow()[0]["late"], true);
    world.later(24 * 3_600);
    let life = world.start(1).await;
    assert!(life.seen().is_empty() && life.raids().as_object().unwrap().is_empty());
    world.ledger(&life).await;
    let stored = world.context.pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 100)).unwrap();
    assert!(stored[0].incident.ended_at.is_some(), "it is over, though no service was there to see that");
}

#[actix::test]
async fn what_rang_before_the_ledger_could_be_read_belongs_to_the_known_incident() {
    let world = World::new();
    let before = world.start(1).await;
    before.link_alarm().await;
    let known = before.seen()[0].0.clone();
    let acknowledge = |incident: &str, user: &str| {
        let (at, user) = (world.context.clock.now(), user.into());
        let acknowledge = |db: &mut Db| incidents::acknowledge(db, &"one".into(), incident, &user, at);
        world.context.pool.write_blocking(acknowledge).unwrap().expect("it is known")
    };
    testing::user(&world.context.pool, "bob");
    acknowledge(&known, "alice");
    before.alarms.ledger.idle().await;
    drop(before);

    world.later(20);
    let life = world.start_unread(2);
    life.link_alarm().await;
    let rung = life.seen()[0].0.clone();
    assert!(rung != known && life.raids()[&rung]["count"] == 1, "nothing is known yet");
    life.alarms.ledger.idle().await;
    acknowledge(&rung, "bob");
    life.acknowledged(&rung, "bob", world.context.clock.now());

    life.load().await;
    let raids = life.raids();
    assert_eq!(raids.as_object().unwrap().keys().collect::<Vec<_>>(), [&known]);
    assert_eq!((&raids[&known]["count"], &raids[&known]["endedAt"]), (&2.into(), &Value::Null));
    assert_eq!(raids[&known]["acks"].as_object().unwrap().keys().collect::<Vec<_>>(), ["alice", "bob"]);
    assert_eq!(world.ledger(&life).await, [row("acknowledged", 2, 2)]);
    assert_eq!(world.alarms(), [("opened", 1), ("merged", 1)]);
    // Repeats are of one incident, of which both have taken note; so is what is said of the other.
    world.later(15);
    life.link_alarm().await;
    assert_eq!(life.seen().len(), 1);
    assert_eq!(acknowledge(&rung, "bob").id, known);

    // Both remain after a start, and also after an older journal.
    let again = world.start(1).await;
    assert_eq!(again.raids()[&known]["acks"].as_object().unwrap().len(), 2);
    let late = LedgerWrite {
        incidents: [(rung, (life.alarms.raids.borrow().get(&known).unwrap().clone(), None))].into(),
        ..Default::default()
    };
    again.alarms.ledger.write(late).await;
    assert_eq!(world.ledger(&again).await.len(), 1);
}

#[actix::test]
async fn an_alarm_that_is_merged_before_it_is_sent_is_sent_as_the_known_incident() {
    let world = World::new();
    let known = world.rang_before().await;

    world.later(20);
    let life = world.start_unread(2);
    let news = life.alarms.clone().link_alarm(trigger("7")).await;
    life.load().await;
    assert!(life.seen().is_empty(), "the known one was heard");
    life.publish(news).all.await;
    assert_eq!(life.seen(), [(known.clone(), 2, true)]);
    assert_eq!(life.raids().as_object().unwrap().keys().collect::<Vec<_>>(), [&known]);
    assert_eq!(world.ledger(&life).await, [row("delivered", 2, 2)]);
}

#[actix::test]
async fn a_burst_in_a_frozen_database_and_a_kill_lose_no_alarm_and_double_none() {
    const ALARMS: usize = 500;
    let world = World::new();
    let life = world.start(1).await;
    let lock = world.freeze();
    let devices: Vec<String> = (0..ALARMS).map(|number| number.to_string()).collect();
    join_all(devices.iter().map(|device| life.alarm_of(device))).await;
    assert_eq!(life.seen().len(), ALARMS, "announced all the same");

    let next = world.after_a_kill();
    drop(lock);
    let life = next.start(1).await;
    assert_eq!(life.raids().as_object().unwrap().len(), ALARMS);
    life.alarms.ledger.idle().await;
    let stored = next.context.pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 1_000)).unwrap();
    let mut of_device: Vec<&str> = stored.iter().map(|stored| &*stored.incident.alarm_id).collect();
    of_device.sort_by_key(|device| device.parse::<u32>().unwrap());
    assert_eq!(of_device, devices, "each has one incident");
    assert!(stored.iter().all(|stored| stored.incident.count == 1));
    assert_eq!(next.alarms(), [("opened", ALARMS as i64)]);
}

#[actix::test]
async fn a_push_that_a_crash_left_behind_is_delivered_once() {
    let world = World::new();
    let push = world.receive("push", "Front door");
    let life = world.start_unread(1);
    tokio::join!(life.pushed_alarm(push.clone()), life.load());
    life.pushed_alarm(push).await;
    assert_eq!(life.seen().len(), 1, "announced once: {:?}", life.seen());
    assert_eq!(world.ledger(&life).await, [row("delivered", 1, 1)]);
    assert_eq!(world.alarms(), [("opened", 1)]);
    // One that waited for long is late.
    world.receive("another", "Back door");
    world.later(3_600);
    let life = world.start(1).await;
    assert_eq!((&life.got.borrow()[0]["late"], &life.got.borrow()[0]["update"]), (&true.into(), &false.into()));
}

#[actix::test]
async fn that_an_alarm_is_on_is_stored_with_it_and_that_it_is_off_soon() {
    let world = World::new();
    let life = world.start(1).await;
    let stored = async |life: &Life| {
        world.ledger(life).await;
        let devices = world.context.pool.read_blocking(|db| smart_devices::list(db, &"one".into())).unwrap();
        devices[0].last_value
    };
    life.alarms.note_value("7", Some(true));
    life.link_alarm().await;
    assert_eq!(stored(&life).await, Some(true));
    life.alarms.note_value("7", Some(false));
    assert_eq!(stored(&life).await, Some(false));
    life.alarms.note_value("7", Some(true));
    assert_eq!(stored(&life).await, Some(false), "it may flutter");
    world.later(10);
    life.tick().await;
    assert_eq!(stored(&life).await, Some(true));
    // The repeat is counted, and a start that takes its alarm for off counts it again.
    life.alarms.note_value("7", Some(false));
    assert_eq!(stored(&life).await, Some(false));
    life.alarms.note_value("7", Some(true));
    life.link_alarm().await;
    assert_eq!((world.ledger(&life).await, stored(&life).await), (vec![row("delivered", 2, 1)], Some(true)));
}
