//! The push worker on virtual time: sessions that cannot be started yet, that panic, and that end after a burst; on a node of
//! several, those that it has.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use actix::{Addr, Arbiter, System};
use companion::{
    clock::Clock,
    cluster::memory_leases::MemoryLeases,
    config::{Database, Game, GameLinkPolicy, PushAddress},
    crypto::{self, keys::Key32, random::Random, sealer::Sealer},
    db::{
        engine::{
            error::DbError,
            pool::{DiskMoment, Pool},
        },
        files::journal::Journal,
        push_credentials::{self, SealedBundle},
        schema::alarms,
        users,
    },
    domain::ids::UserId,
    game::{decoding::MessageDecoder, outbound::Outbound},
    net::{Memory, Network, tls_config},
    ownership::{NodeSeat, Ownership, nodes},
    push::{
        context::PushContext,
        session_status::{PushSession, PushState, SessionFault},
        worker::{self, PushSessions, PushWorker, SessionsLoaded},
    },
    relay::{
        self,
        hub::AlarmRoutes,
        shared::{context::RelayContext, write_behind::WriteBehind},
    },
    simulator::push_service::{PushService, PushServiceFaults, PushedServer},
    vault::Vault,
};
use diesel::{QueryDsl as _, RunQueryDsl as _};
use futures_util::FutureExt as _;
use tempfile::TempDir;
use tokio::{runtime::Builder, sync::oneshot, time::sleep};

/// A worker with a credential of alice's. The push service answers the first connection, if there is one.
struct Beside {
    push: Addr<PushWorker>,
    pool: Pool,
    /// Number of reads that fail.
    failing_reads: Arc<AtomicU32>,
    /// Number of connections to the push service, and of further ones that panic.
    dials: Arc<Mutex<(u32, u32)>>,
    _directory: TempDir,
}

impl Beside {
    fn start(failing_reads: u32, panics: u32, service: Option<Arc<PushService>>) -> Self {
        Self::start_on_node(failing_reads, panics, service, None)
    }

    fn start_on_node(
        failing_reads: u32,
        panics: u32,
        service: Option<Arc<PushService>>,
        ownership: Option<Ownership>,
    ) -> Self {
        crypto::install();
        let directory = tempfile::tempdir().unwrap();
        let failing = Arc::new(AtomicU32::new(0));
        let failing_reads_left = failing.clone();
        let disk = Arc::new(move |moment| {
            let one_less = |count: u32| count.checked_sub(1);
            let fails = moment == DiskMoment::BeforeRead
                && failing_reads_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
            async move { if fails { Err(DbError::Unavailable("on purpose".to_owned())) } else { Ok(()) } }.boxed_local()
        });
        let pool = Pool::open_simulated(&Database::Sqlite(directory.path().join("test.db")), disk).unwrap();
        let (random, clock) = (Random::seeded(1), Clock::simulated("2026-11-21T12:00:00Z".parse().unwrap()));
        let vault = Vault::new(pool.clone(), Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, random.clone())));
        let (alice, now) = (UserId::from("alice"), clock.now());
        let json = br#"{ "gcm": { "androidId": "7001", "securityToken": "71" } }"#;
        let expires_at = now + chrono::TimeDelta::days(14);
        let sealed = vault.seal_push_bundle(&alice, json);
        let bundle =
            SealedBundle { sealed, key_version: vault.key_version(), uploaded_at: now, uploaded_by: None, expires_at };
        let stored = pool.write_blocking(|db| {
            users::sign_in(db, &alice, &"76561198000000001".into(), None, now)?;
            push_credentials::upload(db, &alice, &bundle).map(drop)
        });
        stored.unwrap();
        failing.store(failing_reads, Ordering::Relaxed);
        let dials = Arc::new(Mutex::new((0, panics)));
        let counted = dials.clone();
        let network = Network::simulated(Arc::new(move |_, _| {
            let (panics, first) = {
                let mut dials = counted.lock().unwrap();
                dials.0 += 1;
                let panics = dials.1 > 0;
                dials.1 = dials.1.saturating_sub(1);
                (panics, dials.0 == 1)
            };
            let service = service.clone().filter(|_| first);
            async move {
                assert!(!panics, "on purpose");
                let service = service.ok_or(io::ErrorKind::ConnectionRefused)?;
                let (ours, theirs) = Memory::pair(256 * 1024);
                actix::spawn(service.serve(theirs));
                Ok(ours)
            }
            .boxed_local()
        }));
        let outbound = Arc::new(Outbound::new(clock.clone(), true));
        let context = RelayContext {
            early_alarms: Default::default(),
            markets: Default::default(),
            maps: Default::default(),
            catalogue: Default::default(),
            write_behind: WriteBehind::start(pool.clone(), random.clone()),
            clock: clock.clone(),
            random: random.clone(),
            network: network.clone(),
            pool: pool.clone(),
            vault: vault.clone(),
            game: Game {
                proxy_url: None,
                link_policy: GameLinkPolicy::Subscribed,
                allow_private_servers: true,
                links_per_server: 5,
                source_addresses: Vec::new(),
            },
            teams: Default::default(),
            chat_texts: Default::default(),
            budgets: Default::default(),
            outbound: outbound.clone(),
            connect_pacer: Default::default(),
            recent_events: Default::default(),
            team_timers: Default::default(),
            decoder: MessageDecoder::inline(),
            journal: Journal::open_simulated(directory.path()).unwrap(),
        };
        let alarm_routes = AlarmRoutes::default();
        let arbiters = vec![Arbiter::current()];
        let hub = relay::start(Arc::new(context), Arc::default(), arbiters, alarm_routes.clone(), None);
        let context = Arc::new(PushContext {
            logins: Default::default(),
            clock,
            random,
            network,
            pool: pool.clone(),
            vault,
            tls: Arc::new(tls_config(None).unwrap()),
            address: PushAddress { host: "push.example.com".to_owned(), port: 5_228 },
            outbound,
            hub,
            alarm_routes,
        });
        let push = worker::start(context, vec![Arbiter::current()], ownership);
        Self { push, pool, failing_reads: failing, dials, _directory: directory }
    }

    async fn loaded(&self) -> bool {
        self.push.send(SessionsLoaded).await.unwrap()
    }

    async fn session(&self) -> Option<PushSession> {
        self.push.send(PushSessions { users: vec!["alice".into()] }).await.unwrap().remove(&"alice".into())
    }

    fn dials(&self) -> u32 {
        self.dials.lock().unwrap().0
    }
}

fn simulated(test: impl Future<Output = ()>) {
    let runtime = Arc::new(Builder::new_current_thread().enable_time().start_paused(true).build().unwrap());
    let _entered = runtime.enter();
    System::with_tokio_rt(|| runtime.clone()).block_on(test);
}

#[test]
fn sessions_start_once_the_database_answers() {
    simulated(async {
        let beside = Beside::start(u32::MAX, 0, None);
        sleep(Duration::from_secs(600)).await;
        assert!(!beside.loaded().await && beside.session().await.is_none());
        beside.failing_reads.store(0, Ordering::Relaxed);
        sleep(Duration::from_secs(20)).await;
        assert!(beside.loaded().await && beside.dials() > 0);
    });
}

#[test]
fn a_session_that_panics_is_started_again() {
    simulated(async {
        let beside = Beside::start(0, 1, None);
        sleep(Duration::from_millis(100)).await;
        let session = beside.session().await.expect("a session");
        assert_eq!((session.state, session.last_error), (PushState::Unreachable, Some(SessionFault::OurFault)));
        sleep(Duration::from_secs(2)).await;
        assert!(beside.dials() >= 2);
        let session = beside.session().await.expect("a session");
        assert_ne!(session.last_error, Some(SessionFault::OurFault), "it was tried again");
    });
}

#[test]
fn a_burst_is_stored_though_its_session_ends_right_after_it() {
    simulated(async {
        crypto::install();
        let clock = Clock::simulated("2026-11-21T12:00:00Z".parse().unwrap());
        let service = PushService::new(([10, 0, 1, 1], 5_228).into(), vec![(7_001, 71)], clock.clone()).unwrap();
        service.faults(|faults| *faults = PushServiceFaults { close_after: Some(3), ..PushServiceFaults::default() });
        let valley = PushedServer { id: "v".into(), name: "Valley".into(), ip: "192.0.2.1".into(), port: 28_082 };
        for title in ["1", "2", "3"] {
            service.push_at(7_001, valley.alarm(title, "words"), clock.now(), chrono::TimeDelta::weeks(4));
        }
        let beside = Beside::start(0, 0, Some(Arc::new(service)));
        sleep(Duration::from_secs(60)).await;
        assert!(beside.dials() > 1, "the session ended, and there is no other");
        let titles =
            beside.pool.read_blocking(|db| Ok(alarms::table.select(alarms::title).order(alarms::title).load(db)?));
        assert_eq!(titles.unwrap() as Vec<String>, ["1", "2", "3"]);
    });
}

#[test]
fn a_node_has_the_session_from_when_it_has_the_part_until_it_leaves() {
    simulated(async {
        let (seat, ownership) = NodeSeat::new("process");
        let beside = Beside::start_on_node(0, 0, None, Some(ownership));
        sleep(Duration::from_secs(60)).await;
        assert!(beside.loaded().await && beside.session().await.is_none() && beside.dials() == 0);
        let (leave, left) = oneshot::channel::<()>();
        let (pool, clock) = (beside.pool.clone(), Clock::simulated("2026-11-21T12:00:00Z".parse().unwrap()));
        let node = actix::spawn(async move {
            let store = MemoryLeases::default();
            nodes::run(&store, pool, clock, seat, async { drop(left.await) }).await;
        });
        sleep(Duration::from_secs(60)).await;
        assert!(beside.session().await.is_some() && beside.dials() > 0);
        leave.send(()).unwrap();
        node.await.unwrap();
        assert!(beside.session().await.is_none());
    });
}
