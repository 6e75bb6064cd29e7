//! One life of the service: the real hub, game connections, links, subscriptions, sockets, push sessions and ledger,
//! inside an actix System that ends with the life.

use std::{rc::Rc, sync::Arc, time::Duration};

use actix::{Addr, Arbiter};
use bytes::BytesMut;
use companion::{
    config::{Game, GameLinkPolicy, PushAddress},
    crypto::{keys::Key32, random::Random, sealer::Sealer},
    db::{
        alarms::early_alarms::EarlyAlarms,
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        files::journal::{self, JOURNAL, Journal},
        paired_servers,
        push_credentials::{self, SealedBundle},
        schema::{alarms, guests, incidents},
        sessions,
        smart_devices::{self, DeviceChange},
        users,
    },
    domain::{
        game_address::GameAddress,
        ids::{ServerId, SessionId, UserId},
        time::Timestamp,
    },
    game::{decoding::MessageDecoder, outbound::Outbound},
    net::{
        Network,
        budgets::{RequestBudgets, TOGGLE, ToggleBudgets},
        tls_config,
    },
    pairings::{self, DeviceRequest, PairingRequest, PairingSource},
    push::{
        context::PushContext,
        worker::{self, CredentialChanged, PushWorker, ServersChanged},
    },
    relay::{
        self,
        client::{admission::Admit, client_socket::ClientSocket, relay_worker::RelayWorker, sockets::Sockets},
        hub::{
            AccessChanged, AlarmRoutes, DevicesChanged, Hub, HubNode, RelayHealth, SendChat, ServerPaired,
            ServerRemoved, SessionEnded, StartDrill, ToConnection,
        },
        shared::{context::RelayContext, write_behind::WriteBehind},
    },
    server::stopping::Stopping,
    simulator::world::{BASE_ALARM, GATE_SWITCH, TEAM, WALL_ALARM},
    vault::Vault,
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use futures_util::FutureExt as _;
use secrecy::SecretBox;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    channels,
    random::Stream,
    team_alarms, teams,
    world::{
        GAMES, JournalFate, LAMP_SWITCH, PAIRED, PHONES, ROOF_ALARM, Request, SHED_ALARM, USERS, UserAct, World, world,
    },
};

/// The longest time over which sockets are closed when a life ends gracefully, and for all of that.
const DRAIN: Duration = Duration::from_secs(2);
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// Seeds in a hundred whose subscriptions have room for one publication only.
const FEW_PLACES: u64 = 30;

/// Equipment of a life.
#[derive(Clone)]
pub struct Service {
    pub pool: Pool,
    pub vault: Vault,
    pub journal: Journal,
    pub random: Random,
}

/// The relay and the push sessions, as they run.
pub struct Running {
    pub hub: Addr<Hub>,
    pub push: Addr<PushWorker>,
    health: Arc<RelayHealth>,
    context: Arc<RelayContext>,
}

impl Running {
    /// Two threads of sockets.
    pub fn workers(&self, world: &World) -> [Rc<RelayWorker>; 2] {
        let new_worker = |()| {
            RelayWorker::new(
                world.clock.clone(),
                self.context.catalogue.clone(),
                self.hub.clone().into(),
                ToggleBudgets::new(RequestBudgets::new(TOGGLE, &world.clock)),
                Sockets::start(Arc::default()),
            )
        };
        let workers = [(); 2].map(new_worker);
        if Stream::of(world.seed, "mailboxes").chance(FEW_PLACES) {
            workers.iter().for_each(|worker| worker.mailbox.set(1));
        }
        workers
    }

    /// All that has to end.
    pub fn stopping(&self) -> Stopping {
        let (health, hub, push, kept) =
            (self.health.clone(), self.hub.clone(), self.push.clone(), self.context.clone());
        Stopping { health, hub, push, tracking: None, kept, drain: DRAIN }
    }
}

impl Service {
    /// Opens the database, which migrates it at first.
    pub fn open(world: &World, life: u32) -> Self {
        let random = Random::seeded(world.seed ^ u64::from(life).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let disk = Arc::new(|moment| World::disk(moment).boxed_local());
        let pool = Pool::open_simulated(&world.database, disk).expect("a database");
        if world.start_fails.take() {
            fail_to_start(world, &pool);
        }
        journal::replay(&world.directory, &pool, &Default::default()).expect("the journal is stored");
        let journal = Journal::open_simulated(&world.directory).expect("a journal");
        let journal = journal.on_disk(Arc::new(|line: &[u8]| World::journal(line.to_vec()).boxed_local()));
        let sealer = Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, random.clone()));
        let vault = Vault::new(pool.clone(), sealer);
        Self { pool, vault, journal, random }
    }

    /// Users, credentials and paired servers, as they are before the first life.
    pub fn furnish(&self, world: &World) {
        let now = world.clock.now();
        let furnished = self.pool.write_blocking(|db| {
            for (user, id) in USERS.iter().enumerate() {
                users::sign_in(db, &(*id).into(), &TEAM[user].0.to_string().into(), None, now)?;
                sessions::insert(db, &session(user, 0), &(*id).into(), now)?;
                self.upload(db, user, PHONES[user].1, world)?;
            }
            (0..PAIRED.len()).try_for_each(|paired| self.pair(db, paired, world).map(drop))?;
            for overlay in &world.overlays {
                let server = world.judge.borrow().server(PAIRED[overlay.paired].0);
                overlay.furnish(db, &server.expect("it is paired"))?;
            }
            team_alarms::announce(db, world)?;
            let first = world.judge.borrow().server(PAIRED[0].0);
            match first.filter(|_| channels::are_there(world.seed)) {
                Some(server) => self.add_channels(db, world, &server),
                None => Ok(()),
            }
        });
        furnished.expect("a fresh database takes everything");
        world.judge.borrow_mut().furnished();
    }

    pub fn upload(&self, db: &mut Db, user: usize, token: u64, world: &World) -> Result<(), DbError> {
        let (now, id) = (world.clock.now(), UserId::from(USERS[user]));
        let (android_id, _) = PHONES[user];
        let bundle = json!({ "gcm": { "androidId": android_id.to_string(), "securityToken": token.to_string() } });
        let sealed = self.vault.seal_push_bundle(&id, bundle.to_string().as_bytes());
        let expires_at = now + chrono::TimeDelta::days(14);
        let key_version = self.vault.key_version();
        let bundle = SealedBundle { sealed, key_version, uploaded_at: now, uploaded_by: None, expires_at };
        push_credentials::upload(db, &id, &bundle).map(drop)
    }

    /// Pairs by hand, and gives the judge the server's id; true if the link must be opened again.
    fn pair(&self, db: &mut Db, paired: usize, world: &World) -> Result<bool, DbError> {
        let (id, owner, game) = PAIRED[paired];
        let request = PairingRequest {
            owner: USERS[owner].into(),
            source: PairingSource::Hand,
            name: None,
            address: GameAddress::parse(GAMES[game].0).expect("an address"),
            port: GAMES[game].1,
            player_id: TEAM[owner].0.to_string().into(),
            player_token: SecretBox::new(Box::new(world.teams.borrow().token(owner, game))),
            at: Some(world.clock.now()),
        };
        let outbound = Outbound::new(world.clock.clone(), true);
        let outcome = pairings::pair_server(db, &self.vault, &self.random, request, &outbound, world.clock.now())?;
        let outcome = outcome.expect("far below the limits");
        let devices = [BASE_ALARM, WALL_ALARM, ROOF_ALARM, SHED_ALARM, GATE_SWITCH, LAMP_SWITCH];
        for entity_id in devices.into_iter().chain(teams::paired_vault(world.seed)) {
            let device = DeviceRequest { entity_id, kind: None, name: None, label: None };
            let paired = pairings::pair_device(db, &outcome.server.id, device, world.clock.now())?;
            paired.expect("far below the limits");
        }
        let lamp = DeviceChange { custom_command: Some(Some("lamp".to_owned())), ..DeviceChange::default() };
        smart_devices::change(db, &outcome.server.id, &LAMP_SWITCH.to_string(), &lamp)?;
        // One that was paired in the game meanwhile has an id of its own.
        world.judge.borrow_mut().name_server(id, outcome.server.id.clone());
        Ok(outcome.changed)
    }

    /// Starts relay and push sessions; on a node of several, those that it has.
    pub fn start(
        &self,
        world: &World,
        network: Network,
        early_alarms: Arc<EarlyAlarms>,
        node: Option<HubNode>,
    ) -> Running {
        let outbound = Arc::new(Outbound::new(world.clock.clone(), true));
        let context = Arc::new(RelayContext {
            early_alarms,
            markets: Default::default(),
            maps: Default::default(),
            catalogue: Default::default(),
            write_behind: WriteBehind::start(self.pool.clone(), self.random.clone()),
            clock: world.clock.clone(),
            random: self.random.clone(),
            network: network.clone(),
            pool: self.pool.clone(),
            journal: self.journal.clone(),
            vault: self.vault.clone(),
            game: Game {
                proxy_url: None,
                link_policy: GameLinkPolicy::Always,
                allow_private_servers: true,
                links_per_server: 5,
                source_addresses: Vec::new(),
            },
            teams: Default::default(),
            chat_texts: Default::default(),
            budgets: Arc::default(),
            outbound: outbound.clone(),
            connect_pacer: Arc::default(),
            recent_events: Default::default(),
            team_timers: Default::default(),
            decoder: MessageDecoder::inline(),
        });
        let health = Arc::<RelayHealth>::default();
        let alarm_routes = AlarmRoutes::default();
        let arbiters = vec![Arbiter::current()];
        let ownership = node.as_ref().map(|node| node.ownership.clone());
        let hub = relay::start(context.clone(), health.clone(), arbiters, alarm_routes.clone(), node);
        let (host, port) = World::push_address();
        let push = Arc::new(PushContext {
            clock: world.clock.clone(),
            random: self.random.clone(),
            network,
            pool: self.pool.clone(),
            vault: self.vault.clone(),
            tls: Arc::new(tls_config(None).expect("roots")),
            address: PushAddress { host, port },
            logins: Arc::default(),
            outbound,
            hub: hub.clone(),
            alarm_routes,
        });
        let push = worker::start(push, vec![Arbiter::current()], ownership);
        Running { hub, push, health, context }
    }

    /// Runs the service until it is killed or the time is over.
    pub async fn live(self, world: Rc<World>) {
        let mut requests = world.begin_life();
        let network = Network::simulated(Arc::new(|host: &str, port| World::dial(host.to_owned(), port).boxed_local()));
        let early_alarms = Arc::<EarlyAlarms>::default();
        let running = self.start(&world, network, early_alarms.clone(), None);
        if channels::are_there(world.seed) {
            let channels = Arc::new(self.channels(&world, early_alarms));
            actix::spawn(companion::channels::early::run(channels.clone(), None));
            actix::spawn(companion::channels::worker::run(channels));
        }
        let (workers, hub, push) = (running.workers(&world), &running.hub, &running.push);
        let mut turn = 0;
        while let Some(request) = requests.recv().await {
            match request {
                Request::Connect { user, session, access, reply } => {
                    turn += 1;
                    let worker = workers[turn % workers.len()].clone();
                    let admitted = hub.send(Admit { user: user.clone(), session, access });
                    actix::spawn(async move {
                        let Ok(Ok(admission)) = admitted.await else { return drop(reply.send(None)) };
                        let (service, dashboard, wire) = crate::world::world().make_socket();
                        ClientSocket::start(worker, user, admission, service.into(), BytesMut::new(), false);
                        let _ = reply.send(Some((dashboard, wire)));
                    });
                }
                Request::End => {
                    actix::spawn(end(running.stopping()));
                }
                Request::Act { act, reply } => {
                    let (service, hub, push) = (self.clone(), hub.clone(), push.clone());
                    actix::spawn(async move {
                        let done = service.answer(act, &hub, &push).await;
                        let _ = reply.send(done);
                    });
                }
            }
        }
        // Killed: the world ends this life.
        std::future::pending::<()>().await;
    }

    /// Acts as the API's handlers do, once it is stored.
    pub async fn act(&self, act: UserAct, hub: &Addr<Hub>, push: &Addr<PushWorker>) -> bool {
        let world = world();
        match act {
            UserAct::Pair(paired) => {
                let this = self.clone();
                // Threads do not share the world: the pairing is written inline, on this one.
                let pair = move |db: &mut Db| this.pair(db, paired, &crate::world::world());
                let (hub, push) = (hub.clone(), push.clone());
                let notify = move |changed: &bool| {
                    push.do_send(ServersChanged { user: USERS[PAIRED[paired].1].into() });
                    let server = crate::world::world().judge.borrow().server(PAIRED[paired].0);
                    let server = server.expect("it has just been paired");
                    hub.do_send(ServerPaired { server: server.clone(), changed: *changed });
                    hub.do_send(ToConnection { server, message: DevicesChanged });
                };
                return self.pool.write_and_notify(pair, notify).await.is_ok();
            }
            UserAct::Delete(paired) => {
                let Some(server) = world.judge.borrow().server(PAIRED[paired].0) else { return false };
                let (owner, id) = (UserId::from(USERS[PAIRED[paired].1]), server.clone());
                let (hub, push, gone, user) = (hub.clone(), push.clone(), server.clone(), owner.clone());
                let notify = move |_: &_| {
                    hub.do_send(ServerRemoved { server: gone });
                    push.do_send(ServersChanged { user });
                };
                let delete = move |db: &mut Db| paired_servers::delete(db, &owner, &id);
                if !matches!(self.pool.write_and_notify(delete, notify).await, Ok(true)) {
                    return false;
                }
                world.judge.borrow_mut().server_gone(&server);
            }
            UserAct::SignOut(session) => {
                let (hub, id) = (hub.clone(), session.clone());
                let notify = move |_: &_| hub.do_send(SessionEnded { session });
                return self.pool.write_and_notify(move |db| sessions::delete(db, &id), notify).await.is_ok();
            }
            UserAct::SignIn(user, session) => {
                let now = world.clock.now();
                return self.pool.write(move |db| put_session(db, &session, &user, now)).await.is_ok();
            }
            UserAct::IssueOverlay(number) => return world.overlays[number].issue(&self.pool).await,
            UserAct::RemoveOverlay(number) => return world.overlays[number].remove(&self.pool, hub).await,
            UserAct::Erase => return self.erase(hub, push).await,
            UserAct::Return(session) => return self.come_back(session, push).await,
            UserAct::UploadCredential(user) | UserAct::UploadRefused(user) => {
                let (this, push) = (self.clone(), push.clone());
                let is_refused = matches!(act, UserAct::UploadRefused(_));
                let upload = move |db: &mut Db| {
                    let known = push_credentials::get(db, &USERS[user].into())?;
                    // Nothing is behind the first one.
                    let works = known.is_some_and(|known| known.proven_at.is_some());
                    let token = PHONES[user].1 + u64::from(is_refused);
                    if works || !is_refused { this.upload(db, user, token, &crate::world::world()) } else { Ok(()) }
                };
                let notify = move |_: &_| push.do_send(CredentialChanged { user: USERS[user].into() });
                return self.pool.write_and_notify(upload, notify).await.is_ok();
            }
            UserAct::Guest(is_guest) => {
                let Some(server) = world.judge.borrow().server(PAIRED[0].0) else { return false };
                let change = world.judge.borrow_mut().guests.attempt(&server, is_guest);
                let (hub, watched, now) = (hub.clone(), server.clone(), world.clock.now());
                let notify = move |_: &_| hub.do_send(AccessChanged { server: watched });
                let of_server = server.clone();
                let set = move |db: &mut Db| set_guest(db, &of_server, is_guest, now);
                if self.pool.write_and_notify(set, notify).await.is_err() {
                    return false;
                }
                world.judge.borrow_mut().guests.acknowledge(&server, is_guest, change);
            }
            UserAct::Say(paired, text) => {
                let (name, owner, _) = PAIRED[paired];
                let Some(server) = world.judge.borrow().server(name) else { return false };
                let (user, said) = (USERS[owner].into(), text.clone());
                world.judge.borrow_mut().records.attempt(&server, paired, &text);
                let said = hub.send(SendChat { server, user, text: said }).await;
                let is_said = matches!(said, Ok(Ok(line)) if line.line.text == text);
                if is_said {
                    world.judge.borrow_mut().records.acknowledge(&text);
                }
                return is_said;
            }
            UserAct::Drill(paired) => {
                let Some(server) = world.judge.borrow().server(PAIRED[paired].0) else { return false };
                return hub.send(StartDrill { server }).await.is_ok_and(|outcome| outcome.is_ok());
            }
        }
        true
    }
}

/// Stores a session, unless it is there: the answer of an earlier attempt may have been lost. Refused for a user who is
/// not there.
pub fn put_session(db: &mut Db, session: &SessionId, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    if sessions::owners(db, std::slice::from_ref(session), now)?.is_empty() {
        sessions::insert(db, session, user, now)?;
    }
    Ok(())
}

/// A start that cannot read the journal, and one that dies when it has stored what is in that and has not emptied it.
/// Neither loses nor repeats anything.
fn fail_to_start(world: &World, pool: &Pool) {
    let (path, aside) = (world.directory.join(JOURNAL), world.directory.join("aside"));
    let is_there = std::fs::rename(&path, &aside).is_ok();
    std::fs::create_dir(&path).expect("a directory");
    if journal::replay(&world.directory, pool, &Default::default()).is_ok()
        || Journal::open_simulated(&world.directory).is_ok()
    {
        world.judge.borrow_mut().broken("starts-are-honest", "it starts without its journal".to_owned());
    }
    std::fs::remove_dir(&path).expect("it is empty");
    if is_there {
        std::fs::rename(&aside, &path).expect("our own file");
        let kept = std::fs::read(&path).expect("our own file");
        world.trace(&format!(
            "a start dies with {} lines in the journal",
            kept.split(|byte| *byte == b'\n').count() - 1
        ));
        journal::replay(&world.directory, pool, &Default::default()).expect("the journal is stored");
        let stored = ledger(pool);
        std::fs::write(&path, kept).expect("our own file");
        journal::replay(&world.directory, pool, &Default::default()).expect("the journal is stored");
        if ledger(pool) != stored {
            world.judge.borrow_mut().broken("replay-repeats-nothing", format!("{:?}, before {stored:?}", ledger(pool)));
        }
    }
}

/// Alarms with their incidents; incidents with their counts.
fn ledger(pool: &Pool) -> impl PartialEq + std::fmt::Debug + use<> {
    type Rows = (Vec<(String, Option<String>)>, Vec<(String, i64, String)>);
    let read = |db: &mut Db| -> Result<Rows, DbError> {
        let rows = alarms::table.order(alarms::id).select((alarms::id, alarms::incident)).load(db)?;
        let columns = (incidents::id, incidents::count, incidents::state);
        Ok((rows, incidents::table.order(incidents::id).select(columns).load(db)?))
    };
    pool.read_blocking(read).expect("the ledger can be read")
}

/// Bob is a guest of this server, or no longer.
fn set_guest(db: &mut Db, server: &ServerId, is_guest: bool, now: Timestamp) -> Result<(), DbError> {
    let bob = guests::table.filter(guests::server_id.eq(server.as_str())).filter(guests::user_id.eq(USERS[1]));
    diesel::delete(bob).execute(db)?;
    if is_guest {
        let row = (
            guests::id.eq(format!("bob at {}", server.as_str())),
            guests::server_id.eq(server.as_str()),
            guests::user_id.eq(USERS[1]),
            guests::invited_at.eq(now),
            guests::since.eq(now),
        );
        diesel::insert_into(guests::table).values(row).execute(db)?;
    }
    Ok(())
}

/// The way of the real service, and what it promises.
async fn end(stopping: Stopping) {
    let (world, began) = (world(), Instant::now());
    if world.ending.replace(true) {
        return;
    }
    stopping.end_sessions().await;
    stopping.flush().await;
    let took = began.elapsed();
    let kept = stopping.kept.journal.unsaved_alarms.flush(Duration::ZERO, Duration::ZERO).await;
    if !kept && world.journal_fate.get() == JournalFate::Run {
        world.judge.borrow_mut().broken("ends-gracefully", "something is kept nowhere".to_owned());
    }
    if took > ENDED_WITHIN {
        world.judge.borrow_mut().broken("ends-gracefully", format!("it took {took:?}"));
    }
    world.kill("ended");
}

/// The n-th session of a user.
pub fn session(user: usize, number: u32) -> SessionId {
    format!("{}-session-{number}", USERS[user]).into()
}
