//! Above 500 lines: the tests of one actor, which share its outside.

mod alarm_routes;
mod between_nodes;
mod handing_over;
mod lossy_nodes;
mod nodes;
mod seats;

use std::{
    future::pending,
    io,
    rc::Rc,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32},
    },
};

use actix_http::ws::{OpCode, Parser};
use bytes::BytesMut;
use futures_util::{FutureExt as _, future::LocalBoxFuture};
use metrics_exporter_prometheus::PrometheusBuilder;
use tempfile::TempDir;
use tokio::{
    runtime::Builder,
    sync::Notify,
    time::{sleep, timeout},
};

use super::*;
use crate::{
    clock::Clock,
    config::{Database, Game},
    crypto::{keys::Key32, random::Random, sealer::Sealer},
    db::{
        engine::pool::{Db, DiskMoment, Pool},
        files::journal::Journal,
        paired_servers::StoredPairing,
        testing::{self, now},
    },
    domain::{
        bot::bot_messages::BotMessages, limits::ASKED_ATTEMPTS, link_reason::LinkReason, relay_access::RelayAccess,
        sections::Sections, team_command::settings::CommandWord,
    },
    game::{decoding::MessageDecoder, outbound::Outbound},
    net::{
        Memory, Network,
        budgets::{RequestBudgets, TOGGLE, ToggleBudgets},
    },
    relay::{
        client::{
            admission::{Admission, Admit},
            client_socket::ClientSocket,
            relay_worker::RelayWorker,
            server_lookup::{FindServer, FoundServer},
            server_subscription::Subscription,
            socket::Socket,
            sockets::Sockets,
        },
        game::pool::{
            link_owner::{LinkOwner, LinkPurpose},
            link_report::ReportOfLink,
            pooled_link::PooledLink,
        },
        shared::write_behind::WriteBehind,
        wire::{frame::SharedFrame, publication::Lane},
    },
    vault::Vault,
};

/// Panic. Only tests can send it.
#[derive(Message)]
#[rtype(result = "()")]
struct Panic;

impl Handler<Panic> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        panic!("on purpose");
    }
}

/// Behaviour of game servers and of the database, and the hosts that were connected to.
#[derive(Default)]
struct Outside {
    /// Number of reads that fail.
    failing_reads: AtomicU32,
    /// The next read is held once it has its answer, until this notifies.
    hold_next: AtomicBool,
    release: Notify,
    /// Connecting panics the next time.
    panic_next: AtomicBool,
    /// Game servers refuse.
    refuses: AtomicBool,
    /// Hosts that were connected to, and when. None answers.
    dialled: Mutex<Vec<(String, Instant)>>,
    /// Connects under way.
    open: Arc<AtomicUsize>,
}

/// Counts one while it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Outside {
    async fn disk(self: Arc<Self>, moment: DiskMoment) -> Result<(), DbError> {
        let one_less = |count: u32| count.checked_sub(1);
        if moment == DiskMoment::BeforeRead
            && self.failing_reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
        {
            return Err(DbError::Unavailable("on purpose".to_owned()));
        }
        if moment == DiskMoment::AfterQuery && self.hold_next.swap(false, Ordering::Relaxed) {
            self.release.notified().await;
        }
        Ok(())
    }

    fn dial(self: Arc<Self>, host: &str) -> LocalBoxFuture<'static, io::Result<Memory>> {
        self.dialled.lock().unwrap().push((host.to_owned(), Instant::now()));
        let panics = self.panic_next.swap(false, Ordering::Relaxed);
        async move {
            assert!(!panics, "on purpose");
            if self.refuses.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            self.open.fetch_add(1, Ordering::Relaxed);
            let _open = Counted(self.open.clone());
            pending().await
        }
        .boxed_local()
    }

    /// Number of connects to this server.
    fn dials(&self, server: &str) -> usize {
        let host = host(server);
        self.dialled.lock().unwrap().iter().filter(|(dialled, _)| *dialled == host).count()
    }
}

fn host(server: &str) -> String {
    format!("{server}.example.com")
}

/// A hub on virtual time, with its outside.
struct Relay {
    hub: Addr<Hub>,
    outside: Arc<Outside>,
    context: Arc<RelayContext>,
    alarm_routes: AlarmRoutes,
    _directory: TempDir,
}

impl Relay {
    /// These servers are paired by alice, who alone may watch them.
    fn start(link_policy: GameLinkPolicy, servers: &[&str]) -> Self {
        Self::start_with(link_policy, servers, |_| {})
    }

    fn start_with(link_policy: GameLinkPolicy, servers: &[&str], prepare: fn(&Outside)) -> Self {
        Self::start_on_node(link_policy, servers, prepare, None)
    }

    /// With `node`, on a node of several.
    fn start_on_node(
        link_policy: GameLinkPolicy,
        servers: &[&str],
        prepare: fn(&Outside),
        node: Option<HubNode>,
    ) -> Self {
        let outside = Arc::new(Outside::default());
        prepare(&outside);
        let directory = tempfile::tempdir().unwrap();
        let (disk, dial, random) = (outside.clone(), outside.clone(), Random::seeded(1));
        let pool = Pool::open_simulated(
            &Database::Sqlite(directory.path().join("test.db")),
            Arc::new(move |moment| disk.clone().disk(moment).boxed_local()),
        );
        let pool = pool.unwrap();
        let context = Arc::new(RelayContext {
            early_alarms: Default::default(),
            markets: Default::default(),
            maps: Default::default(),
            catalogue: Default::default(),
            write_behind: WriteBehind::start(pool.clone(), random.clone()),
            clock: Clock::simulated(now()),
            vault: Vault::new(pool.clone(), Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, random.clone()))),
            random,
            pool,
            game: Game {
                link_policy,
                proxy_url: None,
                allow_private_servers: true,
                links_per_server: 5,
                source_addresses: Vec::new(),
            },
            network: Network::simulated(Arc::new(move |host, _| dial.clone().dial(host))),
            teams: Default::default(),
            chat_texts: Default::default(),
            budgets: Arc::default(),
            outbound: Arc::new(Outbound::new(Clock::simulated(now()), true)),
            connect_pacer: Arc::default(),
            recent_events: Default::default(),
            team_timers: Default::default(),
            decoder: MessageDecoder::inline(),
            journal: Journal::open_simulated(directory.path()).unwrap(),
        });
        testing::user(&context.pool, "alice");
        testing::user(&context.pool, "bob");
        pair(&context, servers);
        let alarm_routes = AlarmRoutes::default();
        let arbiters = vec![Arbiter::current()];
        let hub = super::super::start(context.clone(), Arc::default(), arbiters, alarm_routes.clone(), node);
        Self { hub, outside, context, alarm_routes, _directory: directory }
    }

    fn write<T>(&self, change: impl FnOnce(&mut Db) -> Result<T, DbError>) -> T {
        self.context.pool.write_blocking(change).unwrap()
    }

    fn delete_row(&self, server: &str) {
        assert!(self.write(|db| paired_servers::delete(db, &"alice".into(), &server.into())));
    }

    async fn status(&self, server: &str) -> Option<LinkStatus> {
        self.hub.send(LinkStatuses { servers: vec![server.into()] }).await.unwrap().remove(&server.into())
    }

    async fn find(&self, server: &str) -> Option<Found> {
        let FoundServer { allowed, .. } =
            self.hub.send(FindServer { server: server.into() }).await.unwrap().unwrap()?;
        let connection = self.hub.send(FindConnection(server.into())).await.unwrap().expect("it is here");
        Some(Found { connection, allowed })
    }

    fn worker(&self) -> Rc<RelayWorker> {
        self.worker_of(&self.hub)
    }

    /// A thread of this hub.
    fn worker_of(&self, hub: &Addr<Hub>) -> Rc<RelayWorker> {
        RelayWorker::new(
            self.context.clock.clone(),
            Default::default(),
            hub.clone().into(),
            ToggleBudgets::new(RequestBudgets::new(TOGGLE, &self.context.clock)),
            Sockets::start(Arc::default()),
        )
    }
}

/// A server of a hub.
struct Found {
    connection: Addr<GameConnection>,
    allowed: AllowedUsers,
}

/// Asks for the game connection that runs.
#[derive(Message)]
#[rtype(result = "Option<Addr<GameConnection>>")]
struct FindConnection(ServerId);

impl Handler<FindConnection> for Hub {
    type Result = Option<Addr<GameConnection>>;

    fn handle(&mut self, FindConnection(server): FindConnection, _: &mut Self::Context) -> Self::Result {
        self.connections.get(&server).map(|known| known.address.clone())
    }
}

fn pair(context: &RelayContext, servers: &[&str]) {
    pair_at(context, servers.iter().map(|server| (*server, host(server))));
}

/// These servers, each at its host.
fn pair_at<'a>(context: &RelayContext, servers: impl Iterator<Item = (&'a str, String)>) {
    let paired = context.pool.write_blocking(|db| {
        for (server, address) in servers {
            let id = server.into();
            let pairing = StoredPairing { address, ..testing::pairing("alice") };
            let player_token_sealed = context.vault.seal_player_token(&id, &pairing.address, pairing.port, 1);
            let pairing = StoredPairing { player_token_sealed, ..pairing };
            paired_servers::put(db, &id, &pairing, now())?;
        }
        Ok(())
    });
    paired.unwrap();
}

/// Runs a test on virtual time, with an actix System; returns the metrics that it counted.
fn simulated(test: impl Future<Output = ()>) -> String {
    let runtime = Arc::new(Builder::new_current_thread().enable_time().start_paused(true).build().unwrap());
    let _entered = runtime.enter();
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || System::with_tokio_rt(|| runtime.clone()).block_on(test));
    recorder.handle().render()
}

/// A socket that watches, and its client.
async fn watch(worker: &RelayWorker, server: &str) -> (Rc<Subscription>, Rc<Socket>, Memory) {
    let subscription = worker.subscription(&server.into(), &"alice".into()).await.unwrap().expect("a server");
    let (ours, client) = Memory::pair(1 << 20);
    let socket = worker.sockets.open("alice".into(), ours.into(), false);
    socket.queue.borrow_mut().watch(&subscription.feed, None, Sections::ALL);
    subscription.watchers.add(&socket);
    socket.pump();
    (subscription, socket, client)
}

/// The text that has arrived since the last time.
fn received(client: &Memory) -> String {
    let mut bytes = BytesMut::new();
    while client.try_read_buf(&mut bytes).is_ok_and(|count| count > 0) {}
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The epoch of the last snapshot in this text.
#[track_caller]
fn snapshot_epoch(text: &str) -> u64 {
    let (_, snapshot) = text.rsplit_once("\"snapshot\"").unwrap_or_else(|| panic!("no snapshot: {text}"));
    let (_, epoch) = snapshot.split_once("\"epoch\":").expect("an epoch");
    epoch.split(|character: char| !character.is_ascii_digit()).next().and_then(|epoch| epoch.parse().ok()).unwrap()
}

#[test]
fn links_open_once_the_database_answers_and_a_pairing_does_not_wait_for_that() {
    simulated(async {
        let fail = |outside: &Outside| outside.failing_reads.store(u32::MAX, Ordering::Relaxed);
        let relay = Relay::start_with(GameLinkPolicy::Always, &["one", "two"], fail);
        sleep(Duration::from_secs(600)).await;
        assert!(!relay.hub.send(LinksLoaded).await.unwrap());
        relay.hub.do_send(ServerPaired { server: "two".into(), changed: true });
        assert!(relay.status("two").await.is_some() && relay.status("one").await.is_none());
        relay.outside.failing_reads.store(0, Ordering::Relaxed);
        sleep(Duration::from_secs(20)).await;
        assert!(relay.hub.send(LinksLoaded).await.unwrap());
        assert!(relay.outside.dials("one") > 0 && relay.outside.dials("two") > 0);
    });
}

#[test]
fn many_links_open_one_after_another_and_what_a_user_asks_for_goes_first() {
    simulated(async {
        let names: Vec<String> = (0..1_000).map(|number| format!("server-{number}")).collect();
        let relay = Relay::start(GameLinkPolicy::Always, &names.iter().map(String::as_str).collect::<Vec<_>>());
        sleep(Duration::from_millis(20)).await;
        pair(&relay.context, &["asked-for"]);
        relay.hub.do_send(ServerPaired { server: "asked-for".into(), changed: true });
        sleep(Duration::from_secs(12)).await;
        let dialled = relay.outside.dialled.lock().unwrap();
        let place = dialled.iter().position(|(host, _)| host.starts_with("asked-for")).expect("it is connected to");
        assert!(place < 100, "{place}");
        assert_eq!(dialled.len(), 1_001);
        let (first, last) = (dialled[0].1, dialled[1_000].1);
        assert!((1..10).contains(&(last - first).as_secs()), "{:?}", last - first);
        for window in dialled.windows(150) {
            assert!(window[149].1 - window[0].1 > Duration::from_millis(100), "a storm");
        }
    });
}

#[test]
fn a_deletion_ends_a_link_that_connects() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Always, &["one"]);
        sleep(Duration::from_secs(5)).await;
        assert_eq!((relay.outside.dials("one"), relay.outside.open.load(Ordering::Relaxed)), (1, 1));
        relay.delete_row("one");
        relay.hub.do_send(ServerRemoved { server: "one".into() });
        assert!(relay.status("one").await.is_none());
        sleep(Duration::from_secs(3_600)).await;
        assert_eq!((relay.outside.dials("one"), relay.outside.open.load(Ordering::Relaxed)), (1, 0));
    });
}

#[test]
fn an_address_that_refuses_keeps_its_pauses_however_often_it_is_paired_and_deleted() {
    const PAIRINGS: usize = 20;
    simulated(async {
        let refuse = |outside: &Outside| outside.refuses.store(true, Ordering::Relaxed);
        let relay = Relay::start_with(GameLinkPolicy::Always, &["one"], refuse);
        sleep(Duration::from_secs(5)).await;
        let before = relay.outside.dials("one");
        assert!((2..=4).contains(&before), "{before}");
        let mut server = "one".to_owned();
        for number in 0..PAIRINGS {
            relay.delete_row(&server);
            relay.hub.do_send(ServerRemoved { server: server.as_str().into() });
            sleep(Duration::from_millis(100)).await;
            server = format!("one-{number}");
            pair_at(&relay.context, std::iter::once((server.as_str(), host("one"))));
            relay.hub.do_send(ServerPaired { server: server.as_str().into(), changed: true });
            sleep(Duration::from_secs(1)).await;
        }
        let dials = relay.outside.dials("one") - before;
        // As many as a user may ask for, and one whose pause was over.
        assert!((1..=ASKED_ATTEMPTS + 1).contains(&dials), "{dials} in {PAIRINGS} pairings");
        sleep(Duration::from_secs(900)).await;
        assert!(relay.outside.dials("one") > before + dials, "it is tried again");
    });
}

/// Takes the reports of a link.
struct LinkReports;

impl Actor for LinkReports {
    type Context = Context<Self>;
}

impl Handler<ReportOfLink> for LinkReports {
    type Result = bool;

    fn handle(&mut self, _: ReportOfLink, _: &mut Self::Context) -> bool {
        false
    }
}

#[test]
fn pauses_that_have_grown_start_again_after_a_mates_link_that_has_read_for_a_minute() {
    simulated(async {
        let refuse = |outside: &Outside| outside.refuses.store(true, Ordering::Relaxed);
        let relay = Relay::start_with(GameLinkPolicy::Subscribed, &["one"], refuse);
        let reports = LinkReports.start();
        let dials = async |read_since: Option<Instant>, seconds: u64| {
            let before = relay.outside.dials("one");
            let owner = LinkOwner {
                number: 1,
                reports: reports.clone().recipient(),
                context: relay.context.clone(),
                server: "one".into(),
                wake: Arc::default(),
                slots: Arc::new(LinkSlots::new(5, Vec::new(), relay.context.clock.clone())),
                purpose: LinkPurpose::Read,
                knows_world: false,
                read_since,
            };
            let ended = timeout(Duration::from_secs(seconds), PooledLink::keep(owner)).await;
            assert!(ended.is_err(), "the link is tried again and again");
            relay.outside.dials("one") - before
        };
        assert!(dials(None, 100).await > 4);
        assert_eq!(dials(None, 10).await, 1, "a pause of a minute follows");
        let sat_down = Instant::now();
        sleep(Duration::from_secs(60)).await;
        assert!(dials(Some(sat_down), 10).await > 2, "pauses of seconds");
        assert_eq!(dials(None, 3).await, 1, "and they grow again");
    });
}

#[test]
fn a_link_whose_server_is_deleted_ends_by_itself() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Always, &["one", "two"]);
        let worker = relay.worker();
        let (_, _, client) = watch(&worker, "one").await;
        sleep(Duration::from_secs(5)).await;
        let connection = relay.find("one").await.expect("a server").connection;
        relay.delete_row("one"); // without a message to the hub
        sleep(Duration::from_secs(60)).await;
        assert!(relay.status("one").await.is_none() && relay.status("two").await.is_some());
        assert!(!connection.connected());
        assert!(received(&client).contains("unknown_server"), "its watchers are notified");
        let dials = relay.outside.dials("one");
        sleep(Duration::from_secs(3_600)).await;
        assert_eq!(relay.outside.dials("one"), dials);
    });
}

#[test]
fn what_was_asked_before_a_deletion_does_not_start_the_server_again() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one", "two"]);
        for drill in [false, true] {
            let server = ServerId::from(if drill { "two" } else { "one" });
            let alarm = PushedAlarm {
                id: "alarm".into(),
                title: "Raid".into(),
                message: String::new(),
                sent: now(),
                incident: None,
            };
            relay.outside.hold_next.store(true, Ordering::Relaxed);
            let (hub, asked) = (relay.hub.clone(), server.clone());
            let answer = actix::spawn(async move {
                match drill {
                    true => hub.send(StartDrill { server: asked }).await.unwrap() == Err(DrillError::UnknownServer),
                    false => hub.send(FindServer { server: asked }).await.unwrap().unwrap().is_none(),
                }
            });
            sleep(Duration::from_millis(10)).await; // it is read as paired, and not answered yet
            relay.delete_row(server.as_str());
            relay.hub.do_send(ServerRemoved { server: server.clone() });
            relay.outside.release.notify_one();
            assert!(answer.await.unwrap(), "there is no such server");
            relay.hub.do_send(AlarmPushed {
                server: server.clone(),
                alarm: alarm.clone(),
                received_at: ReceivedAt::now(),
            });
            assert!(relay.status(server.as_str()).await.is_none());
            assert_eq!(relay.hub.send(StartDrill { server }).await.unwrap(), Err(DrillError::UnknownServer));
        }
    });
}

#[test]
fn who_may_watch_is_known_from_the_latest_change_also_without_a_connection() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one"]);
        relay.outside.hold_next.store(true, Ordering::Relaxed);
        let found = relay.hub.send(FindServer { server: "one".into() });
        sleep(Duration::from_millis(10)).await; // alice is read, and not answered yet
        relay.write(|db| {
            use crate::db::{engine::prelude::*, schema::paired_servers::dsl};
            Ok(diesel::update(dsl::paired_servers).set(dsl::owner_id.eq("bob")).execute(db)?)
        });
        relay.hub.do_send(AccessChanged { server: "one".into() });
        sleep(Duration::from_millis(10)).await;
        relay.outside.release.notify_one();
        let found = found.await.unwrap().unwrap().expect("a server");
        assert_eq!(*found.allowed.users, ["bob".into()].into());
    });
}

#[test]
fn a_thousand_changes_of_access_are_two_looks_and_the_last_one_counts() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one"]);
        let (subscription, _socket, _client) = watch(&relay.worker(), "one").await;
        relay.outside.hold_next.store(true, Ordering::Relaxed);
        relay.hub.send(AccessChanged { server: "one".into() }).await.unwrap();
        sleep(Duration::from_millis(10)).await; // alice is read, and not answered yet
        crate::db::testing::guest(&relay.context.pool, "guest", "one", "bob");
        (0..1_000).for_each(|_| relay.hub.do_send(AccessChanged { server: "one".into() }));
        relay.outside.release.notify_one();
        sleep(Duration::from_millis(10)).await;
        assert!(subscription.watchers.may_watch(&"bob".into()));
        assert_eq!(relay.find("one").await.unwrap().allowed.version, 1 + 2 + 1);
    });
}

#[test]
fn a_refresh_of_access_that_fails_ends_no_watch_of_the_owner_and_is_repeated() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one"]);
        crate::db::testing::guest(&relay.context.pool, "guest", "one", "bob");
        let (subscription, _socket, _client) = watch(&relay.worker(), "one").await;
        let may_watch = || ["alice", "bob"].map(|user| subscription.watchers.may_watch(&user.into()));
        assert_eq!(may_watch(), [true, true]);
        relay.outside.failing_reads.store(1, Ordering::Relaxed);
        relay.hub.send(AccessChanged { server: "one".into() }).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(may_watch(), [true, false], "what a guest had may have been taken away");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(may_watch(), [true, true]);
    });
}

#[test]
fn an_acknowledgement_that_takes_the_database_too_long_is_shown_and_no_failure() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one"]);
        let (_, _socket, client) = watch(&relay.worker(), "one").await;
        let drill = relay.hub.send(StartDrill { server: "one".into() }).await.unwrap().unwrap();
        sleep(Duration::from_secs(30)).await;
        assert!(!received(&client).contains("acks\":{\"alice"));
        relay.outside.hold_next.store(true, Ordering::Relaxed);
        let acknowledge = |user: &str, by_link| {
            let incident = drill.incident.clone();
            relay.hub.send(AcknowledgeRaid { server: "one".into(), user: user.into(), incident, by_link })
        };
        let kept = acknowledge("alice", false).await.unwrap().expect("it is known");
        assert_eq!((&kept.id, kept.incident.acks.len()), (&drill.incident, 1));
        sleep(Duration::from_secs(1)).await;
        let shown = received(&client);
        assert!(shown.contains(&drill.incident) && shown.contains("alice"), "{shown}");
        assert_eq!(acknowledge("stranger", false).await.unwrap(), Err(CommandError::UnknownServer));
        assert!(acknowledge("alice", true).await.unwrap().is_ok());
        relay.outside.release.notify_one();
    });
}

#[test]
fn a_question_whose_stored_answer_cannot_be_read_has_failed_and_is_read_again() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Always, &["one"]);
        sleep(Duration::from_secs(5)).await;
        let texts = BotMessages::default();
        let ask = || AskServer { server: "one".into(), command: CommandWord::Cargo, texts: texts.clone() };
        relay.outside.failing_reads.store(1, Ordering::Relaxed);
        assert_eq!(relay.hub.send(ask()).await.unwrap(), Some(vec![texts.say("team.failed", &[])]));
        assert_eq!(relay.hub.send(ask()).await.unwrap(), None, "there is no link to answer from");
    });
}

/// Keeps why it was closed.
struct Door(Rc<std::cell::RefCell<Vec<Reason>>>);

impl Actor for Door {
    type Context = Context<Self>;
}

impl Handler<SocketOrder> for Door {
    type Result = ();

    fn handle(&mut self, order: SocketOrder, _: &mut Self::Context) {
        if let SocketOrder::Close(reason) = order {
            self.0.borrow_mut().push(reason);
        }
    }
}

#[test]
fn while_the_database_is_silent_a_token_and_what_is_known_are_enough() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one", "two"]);
        relay.write(|db| crate::db::sessions::insert(db, &"valid".into(), &"alice".into(), now()));
        relay.find("one").await.expect("a server");
        relay.outside.failing_reads.store(u32::MAX, Ordering::Relaxed);
        let mut doors = Vec::new();
        for session in ["valid", "gone"] {
            let admit = Admit { user: "alice".into(), session: session.into(), access: RelayAccess::Session };
            let admission = relay.hub.send(admit).await.unwrap().unwrap_or_else(|refused| panic!("{refused:?}"));
            let closed = Rc::default();
            let door = Door(Rc::clone(&closed)).start();
            admission.opened(door.downgrade().recipient());
            doors.push((admission, door, closed));
        }
        let found = relay.find("one").await.expect("it was known before");
        assert_eq!(*found.allowed.users, ["alice".into()].into());
        let (worker, one) = (relay.worker(), "one".into());
        assert!(worker.subscription(&one, &"alice".into()).await.is_ok_and(|found| found.is_some()));
        assert!(worker.subscription(&one, &"bob".into()).await.is_err(), "perhaps he was invited since");
        assert!(relay.hub.send(FindServer { server: "two".into() }).await.unwrap().is_err(), "it was not");
        sleep(Duration::from_secs(60)).await;
        assert!(doors.iter().all(|(.., closed)| closed.borrow().is_empty()));

        relay.outside.failing_reads.store(0, Ordering::Relaxed);
        sleep(Duration::from_secs(10)).await;
        let closed: Vec<bool> = doors.iter().map(|(.., closed)| closed.borrow().contains(&Reason::SignedOut)).collect();
        assert_eq!(closed, [false, true]);
    });
}

#[test]
fn a_game_connection_that_panics_is_started_again_and_its_watchers_go_on() {
    let metrics = simulated(async {
        let relay = Relay::start(GameLinkPolicy::Always, &["one", "two", "three"]);
        let worker = relay.worker();
        let (subscription, _socket, client) = watch(&worker, "one").await;
        sleep(Duration::from_secs(10)).await;
        let first = snapshot_epoch(&received(&client));
        let (failing, unwatched) = (relay.find("one").await.unwrap(), relay.find("two").await.unwrap());
        let other = relay.find("three").await.unwrap().connection;
        let dials = relay.outside.dials("two");
        failing.connection.do_send(Panic);
        unwatched.connection.do_send(Panic);
        sleep(Duration::from_secs(4)).await;
        let text = received(&client);
        assert!(snapshot_epoch(&text) > first, "{text}");
        assert!(!text.contains("unknown_server"), "{text}");
        assert!(subscription.is_live() && !failing.connection.connected());
        assert_ne!(relay.find("one").await.unwrap().connection, failing.connection);
        assert!(relay.status("one").await.is_some() && relay.status("two").await.is_some());
        assert!(relay.outside.dials("two") > dials, "also the one without watchers");
        assert_eq!(relay.find("three").await.unwrap().connection, other, "others go on");

        // Publications of the new connection arrive.
        let again = relay.find("one").await.unwrap().connection;
        again.do_send(SetWatchers(AllowedUsers { version: u64::MAX, ..AllowedUsers::default() }));
        sleep(Duration::from_secs(1)).await;
        assert!(received(&client).contains("unknown_server"));
    });
    assert!(metrics.contains("companion_panics_total{part=\"game_connection\"} 2"), "{metrics}");
}

#[test]
fn a_game_connection_that_panics_again_and_again_is_started_with_growing_pauses() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Always, &["one"]);
        let worker = relay.worker();
        let (_, _socket, _client) = watch(&worker, "one").await;
        let mut panics = 0;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(120) {
            if relay.status("one").await.is_some() && relay.outside.dials("one") > panics {
                panics = relay.outside.dials("one");
                relay.find("one").await.unwrap().connection.do_send(Panic);
            }
            sleep(Duration::from_millis(100)).await;
        }
        assert!((3..30).contains(&panics), "{panics}");
    });
}

#[test]
fn a_link_that_panics_is_tried_again() {
    let metrics = simulated(async {
        let panic = |outside: &Outside| outside.panic_next.store(true, Ordering::Relaxed);
        let relay = Relay::start_with(GameLinkPolicy::Always, &["one"], panic);
        let connection = relay.find("one").await.unwrap().connection;
        sleep(Duration::from_millis(100)).await;
        let status = relay.status("one").await.expect("a link");
        assert_eq!(status.reason, Some(LinkReason::OurFault));
        sleep(Duration::from_secs(2)).await;
        assert_eq!(relay.outside.dials("one"), 2);
        assert_eq!(relay.find("one").await.unwrap().connection, connection, "it has lost nothing");
    });
    assert!(metrics.contains("companion_panics_total{part=\"game_link\"} 1"), "{metrics}");
}

#[test]
#[allow(clippy::await_holding_refcell_ref, reason = "makes the next write of that socket panic")]
fn a_subscription_that_panics_lets_its_sockets_come_back_and_the_thread_goes_on() {
    let metrics = simulated(async {
        let relay = Relay::start(GameLinkPolicy::Always, &["one", "two"]);
        let worker = relay.worker();
        let (failing, bad, _bad_client) = watch(&worker, "one").await;
        let (_, _healthy, client) = watch(&worker, "one").await;
        let (_, _other, other_client) = watch(&worker, "two").await;
        sleep(Duration::from_secs(10)).await;
        received(&client);
        let broken = bad.queue.borrow_mut();
        failing.feed.awaiting_snapshot.add(bad.number, &Default::default());
        failing.feed.want_snapshot();
        sleep(Duration::from_secs(1)).await;
        drop(broken);
        assert!(!failing.is_live());
        assert!(received(&client).contains("internal error"), "the close frame");
        assert!(!received(&other_client).is_empty(), "others of the thread go on");
        let (subscription, _socket, client) = watch(&worker, "one").await;
        let snapshot = async {
            while !received(&client).contains("snapshot") {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(Duration::from_secs(10), snapshot).await.expect("a snapshot");
        assert!(subscription.is_live());
    });
    assert!(metrics.contains("companion_panics_total{part=\"server_subscription\"} 1"), "{metrics}");
}

#[test]
#[allow(clippy::await_holding_refcell_ref, reason = "makes the next write of that socket panic")]
fn a_client_socket_that_panics_is_gone_and_the_thread_goes_on() {
    let metrics = simulated(async {
        let relay = Relay::start(GameLinkPolicy::Always, &["one"]);
        let worker = relay.worker();
        let (subscription, healthy, client) = watch(&worker, "one").await;
        let (ours, theirs) = Memory::pair(1 << 20);
        let admission = Admission::new(1, RelayAccess::Session, Arc::new(relay.hub.downgrade().recipient()));
        ClientSocket::start(worker.clone(), "alice".into(), admission, ours.into(), BytesMut::new(), false);
        let send = |message: &str| {
            let mut frame = BytesMut::new();
            Parser::write_message(&mut frame, message, OpCode::Text, true, true);
            theirs.try_write(&frame)
        };
        send(r#"{"type":"subscribe","serverId":"one"}"#).unwrap();
        // Before a ping is due.
        sleep(Duration::from_millis(10)).await;
        assert!(received(&theirs).contains("snapshot"));
        let watching = || subscription.watchers.all();
        let socket = watching().pop().expect("it watches");
        assert!(!Rc::ptr_eq(&socket, &healthy));
        let broken = socket.queue.borrow_mut();
        send(r#"{"type":"ping"}"#).unwrap();
        sleep(Duration::from_millis(10)).await;
        drop(broken);
        drop(socket);
        assert!(matches!(&watching()[..], [socket] if Rc::ptr_eq(socket, &healthy)));
        assert!(send("").is_err(), "the connection is over");
        received(&client);
        healthy.push(Lane::Reply, SharedFrame::text(b"still here"));
        assert!(received(&client).contains("still here"));
    });
    assert!(metrics.contains("companion_panics_total{part=\"client_socket\"} 1"), "{metrics}");
}
