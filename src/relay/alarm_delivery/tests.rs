use actix::prelude::*;
use chrono::{DateTime, TimeDelta};
use futures_util::FutureExt as _;
use tempfile::TempDir;

use super::*;
use crate::{
    clock::Clock,
    config::{Database, Game, GameLinkPolicy},
    crypto::{keys::Key32, random::Random, sealer::Sealer},
    db::{pool::Pool, testing},
    game::asker::Budgets,
    net::Network,
    relay::publication::Publication,
    vault::Vault,
};

/// A subscriber whose sockets take every alarm; what it got, as JSON.
struct Client {
    sockets: usize,
    got: Rc<RefCell<Vec<serde_json::Value>>>,
}

impl Actor for Client {
    type Context = Context<Self>;
}

impl Handler<Publication> for Client {
    type Result = usize;

    fn handle(&mut self, publication: Publication, _: &mut Self::Context) -> usize {
        let Publication::DeliverAlarm { frame } = publication else { return 0 };
        // A server's frame is not masked: JSON begins at its first brace.
        let json = frame.iter().position(|byte| *byte == b'{').expect("JSON");
        self.got.borrow_mut().push(serde_json::from_slice(&frame[json..]).expect("JSON"));
        self.sockets
    }
}

/// The alarms of one server over a database, through any number of lives.
struct World {
    _directory: TempDir,
    context: Arc<RelayContext>,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        testing::user(&pool, "alice");
        testing::server(&pool, "alice", "one");
        let random = Random::seeded(1);
        let context = RelayContext {
            clock: Clock::adjustable(DateTime::from_timestamp(1_800_000_000, 0).unwrap()),
            vault: Vault::new(pool.clone(), Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, random.clone()))),
            random,
            pool,
            game: Game { link_policy: GameLinkPolicy::Always, proxy_url: None, allow_private_servers: true },
            network: Network::system(),
            budgets: Budgets::default(),
        };
        Self { _directory: directory, context: Arc::new(context) }
    }

    /// A start of the service, with a client on so many sockets.
    fn start(&self, sockets: usize) -> (Rc<AlarmDelivery>, Rc<RefCell<Vec<serde_json::Value>>>) {
        let publisher = Rc::new(RefCell::new(Publisher::new("one".into(), 1)));
        let got = Rc::new(RefCell::new(Vec::new()));
        if sockets > 0 {
            publisher.borrow_mut().subscribe(Client { sockets, got: got.clone() }.start().recipient());
        }
        (AlarmDelivery::new("one".into(), self.context.clone(), publisher), got)
    }

    fn later(&self, seconds: i64) {
        self.context.clock.advance(TimeDelta::seconds(seconds));
    }

    /// (state, finished, how many), how many nobody got.
    fn tally(&self) -> (Vec<(String, bool, i64)>, i64) {
        let tally = self.context.pool.read_blocking(alarms::tally).unwrap();
        (tally.counts, tally.unheard)
    }

    /// A push as the inbox stores it.
    fn receive(&self, id: &str) {
        let arrival = Arrival {
            id: id.into(),
            user: "alice".into(),
            server: Some("one".into()),
            path: AlarmPath::Push,
            alarm_id: String::new(),
            title: "Front door".into(),
            message: String::new(),
            state: AlarmState::Received,
            incident: None,
        };
        let now = self.context.clock.now();
        self.context.pool.write_blocking(|db| alarms::receive(db, &arrival, now)).unwrap();
    }
}

fn front_door() -> AlarmTrigger {
    AlarmTrigger { device: "7".into(), name: "Front door".into() }
}

fn count(state: &str, finished: bool) -> (String, bool, i64) {
    (state.to_owned(), finished, 1)
}

fn seen(got: &RefCell<Vec<serde_json::Value>>) -> Vec<(String, u64, bool)> {
    let got = got.borrow();
    let seen = got.iter().map(|raid| {
        (
            raid["incident"].as_str().unwrap().to_owned(),
            raid["count"].as_u64().unwrap(),
            raid["update"].as_bool().unwrap(),
        )
    });
    seen.collect()
}

#[actix::test]
async fn both_paths_of_one_alarm_are_one_incident_and_both_rows_are_finished() {
    let world = World::new();
    let (alarms, got) = world.start(3);
    world.receive("push");
    let (link, push) = (alarms.link_alarm(&front_door()), alarms.pushed_alarm("push".into(), "Front door"));
    tokio::join!(link, push);
    assert!(matches!(&seen(&got)[..], [(_, 1, false)]), "announced once: {:?}", got.borrow());
    assert_eq!(world.tally(), (vec![count("merged", true), count("opened", true)], 0));
}

#[actix::test]
async fn an_alarm_that_nobody_takes_is_finished_as_unheard() {
    let world = World::new();
    let (alarms, _) = world.start(0);
    alarms.link_alarm(&front_door()).await;
    assert_eq!(world.tally(), (vec![count("opened", true)], 1));
}

#[actix::test]
async fn a_drill_goes_the_whole_way_and_reports_its_sockets() {
    let world = World::new();
    let (alarms, got) = world.start(2);
    alarms.link_alarm(&front_door()).await;
    let outcome = alarms.drill().await.expect("the ledger can be written");
    assert_eq!(outcome.sockets, 2);
    assert_eq!(seen(&got)[1], (outcome.incident, 1, false), "not merged into the raid");
    assert_eq!(got.borrow()[1]["drill"], true);
}

#[actix::test]
async fn a_ledger_that_cannot_be_written_does_not_hold_an_alarm_up() {
    let world = World::new();
    // Without its paired server no row can be written.
    let gone = world.context.pool.write_blocking(|db| paired_servers::delete(db, &"alice".into(), &"one".into()));
    assert!(gone.unwrap());
    let (alarms, got) = world.start(1);
    alarms.link_alarm(&front_door()).await;
    assert_eq!(seen(&got).len(), 1);
    assert_eq!(alarms.drill().await, None);
}

#[actix::test]
async fn repeats_are_counted_and_sent_every_ten_seconds() {
    let world = World::new();
    let (alarms, got) = world.start(1);
    for _ in 0..3 {
        alarms.link_alarm(&front_door()).await;
        world.later(2);
    }
    assert!(alarms.tick().is_none());
    world.later(4);
    alarms.tick().expect("an update is due").await;
    let incident = seen(&got)[0].0.clone();
    assert_eq!(seen(&got), [(incident.clone(), 1, false), (incident, 3, true)]);
}

#[actix::test]
async fn what_a_crash_left_unfinished_is_delivered_once_and_never_announced_twice() {
    let world = World::new();
    // Dead between the ledger and the sockets: the alarm is stored, its future is dropped.
    let (before, _) = world.start(1);
    world.receive("received");
    let mut alarm = Box::pin(before.link_alarm(&front_door()));
    assert!(alarm.as_mut().now_or_never().is_none(), "it waits for the ledger");
    let (rows, _) = loop {
        let tally = world.tally();
        if tally.0.iter().any(|(state, ..)| state == "opened") {
            break tally;
        }
        tokio::task::yield_now().await;
    };
    drop((alarm, before));
    assert!(rows.contains(&count("received", false)));

    let (alarms, got) = world.start(1);
    alarms.recover().expect("the first call").await;
    assert!(alarms.recover().is_none(), "only once");
    let seen = seen(&got);
    assert!(seen.iter().any(|(_, _, update)| *update), "what may have been announced is an update: {seen:?}");
    assert!(world.tally().0.iter().all(|(_, finished, _)| *finished), "{:?}", world.tally());
}

#[actix::test]
async fn recovery_leaves_alone_what_is_under_way() {
    let world = World::new();
    let (alarms, got) = world.start(1);
    world.receive("push");
    let pushed = alarms.pushed_alarm("push".into(), "Front door");
    let recovery = alarms.recover().expect("the first call");
    tokio::join!(pushed, recovery);
    alarms.pushed_alarm("push".into(), "Front door").await;
    assert_eq!(seen(&got).iter().filter(|(_, _, update)| !update).count(), 1, "announced once");
    assert_eq!(world.tally().0.len(), 1);
}
