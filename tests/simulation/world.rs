//! The world around the service: two game servers, a push service, wires, a disk, and dashboards. They outlive every
//! life of the service.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use chrono::TimeDelta;
use companion::{
    clock::Clock,
    config::Database,
    db::engine::{error::DbError, pool::DiskMoment},
    domain::{
        ids::{SessionId, UserId},
        relay_access::RelayAccess,
        time::Timestamp,
    },
    net::Memory,
    simulator::{
        game_server::{DEMO_TOKEN, GameServer, GameServerOptions, Limits},
        push_service::PushService,
        world::TEAM,
    },
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::LocalSet,
    time::{Instant, sleep},
};

use crate::{
    channels::{self, Receiver},
    early_rings,
    judge::Judge,
    maps::new_map,
    overlays::Overlay,
    random::{Stream, fold},
    script::HEALTHY_FROM,
    team_commands::TeamCommands,
    teams::TeamTruth,
    wire::{Wire, WireKind},
};

/// Users, each with an account at the push service (Android id, token) and a SteamID64.
pub const USERS: [&str; 2] = ["alice", "bob"];
pub const PHONES: [(u64, u64); 2] = [(7_001, 71), (7_002, 72)];
/// Host and port of the game servers.
pub const GAMES: [(&str, u16); 2] = [("10.0.0.1", 28_082), ("10.0.0.2", 28_082)];
/// Paired servers: id, owner, game. Alice plays on both, Bob on the first.
pub const PAIRED: [(&str, usize, usize); 3] = [("alice-1", 0, 0), ("alice-2", 0, 1), ("bob-1", 1, 0)];
/// Alarms that the game knows besides its own two.
pub const ROOF_ALARM: u64 = 4_801;
pub const SHED_ALARM: u64 = 4_802;
/// A switch that is turned from the team's chat alone.
pub const LAMP_SWITCH: u64 = 4_803;
pub const MORE_ALARMS: [(u64, &str); 2] = [(ROOF_ALARM, "Roof alarm"), (SHED_ALARM, "Shed alarm")];
/// When every run begins, in seconds since 1970.
pub const START: i64 = 1_800_000_000;
/// Seeds in a hundred whose game servers are far away until everything is healthy.
const FAR: u64 = 40;
const PUSH_HOST: &str = "push.example.com";

/// Fate of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Run,
    /// Every query takes this number of milliseconds longer.
    Slow(u64),
    /// Every write is refused.
    Full,
    /// This share of the queries, in a hundred, fails; half as many fail after their commit.
    Flaky(u64),
    /// The process dies at this query, before it or after its commit.
    Die {
        in_queries: u64,
        committed: bool,
    },
}

/// The fate of the lines of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalFate {
    Run,
    /// Every line takes this number of milliseconds longer.
    Slow(u64),
    /// Every line is refused.
    Full,
    /// The next line is written in part only.
    Tear,
}

/// A dashboard wants a socket, or a user does something by the API.
pub enum Request {
    Connect {
        user: UserId,
        session: SessionId,
        access: RelayAccess,
        reply: oneshot::Sender<Option<(Memory, Rc<Wire>)>>,
    },
    Act {
        act: UserAct,
        reply: oneshot::Sender<bool>,
    },
    /// The operator ends the service, as each deployment does.
    End,
}

/// Act of the API for a user; answered with true once it is acknowledged.
#[derive(Clone, Debug)]
pub enum UserAct {
    /// Pairs by hand what is paired already, or was deleted.
    Pair(usize),
    Delete(usize),
    SignOut(SessionId),
    SignIn(UserId, SessionId),
    /// The owner of an overlay makes it for the server of now, or removes its device.
    IssueOverlay(usize),
    RemoveOverlay(usize),
    /// Bob erases himself.
    Erase,
    /// He signs in again with this session.
    Return(SessionId),
    UploadCredential(usize),
    /// One with a wrong token, over one that has logged in.
    UploadRefused(usize),
    Drill(usize),
    /// The owner says this line in the team of a paired server.
    Say(usize, String),
    /// Alice lets Bob watch her first server, or no longer.
    Guest(bool),
}

pub struct World {
    pub seed: u64,
    pub origin: Instant,
    pub clock: Clock,
    pub database: Database,
    /// Whatever is not the service runs here.
    pub neighbours: Rc<LocalSet>,
    pub games: Vec<GameServer>,
    pub pushes: Arc<PushService>,
    /// The other side of channels.
    pub receiver: Receiver,
    pub overlays: Vec<Rc<Overlay>>,
    pub judge: RefCell<Judge>,
    pub commands: RefCell<TeamCommands>,
    pub teams: RefCell<TeamTruth>,
    pub wires: RefCell<Vec<Rc<Wire>>>,
    pub fate: Cell<Fate>,
    pub journal_fate: Cell<JournalFate>,
    /// Writes that the disk let through.
    pub writes_taken: Cell<u64>,
    /// With which the next life begins.
    pub next_fate: Cell<Fate>,
    /// The next start fails.
    pub start_fails: Cell<bool>,
    /// Until when connections to this host are refused.
    pub refused: RefCell<HashMap<String, Instant>>,
    pub dead: Cell<bool>,
    pub lives: Cell<u32>,
    /// The life ends as an operator wants it.
    pub ending: Cell<bool>,
    died: Notify,
    /// Our ends of connections that the last life had open.
    left: RefCell<Vec<Rc<Memory>>>,
    requests: RefCell<Option<mpsc::UnboundedSender<Request>>>,
    pub disk_random: RefCell<Stream>,
    wires_made: Cell<u64>,
    hash: Cell<u64>,
    print: bool,
    /// The directory of the database and the journal. The process that runs the seed removes it: tasks that never
    /// end hold this world.
    pub directory: PathBuf,
}

/// Virtual milliseconds that this process has come to, for [`end_in_time`](crate::end_in_time).
pub static REACHED: AtomicU64 = AtomicU64::new(0);

/// The first panic, also of what is started again.
pub static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// From now on.
pub fn note_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        PANIC.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| panic.to_string());
    }));
}

/// The game server at this place.
fn game_at(host: &str, port: u16) -> Option<usize> {
    GAMES.iter().position(|at| *at == (host, port))
}

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// The world of this process.
pub fn world() -> Rc<World> {
    WORLD.with_borrow(|world| world.clone()).expect("it was made first")
}

impl World {
    /// Call it inside the neighbours' task set.
    pub fn make(seed: u64, print: bool, neighbours: Rc<LocalSet>, directory: PathBuf) -> Rc<Self> {
        let start = Timestamp::from_timestamp(START, 0).expect("a time");
        let clock = Clock::simulated(start);
        let address = |(host, port): (&str, u16)| SocketAddr::new(host.parse().expect("an address"), port);
        let pushes = PushService::new(address(("10.0.1.1", 5_228)), PHONES.to_vec(), clock.clone());
        let pushes = Arc::new(pushes.expect("a certificate"));
        let games: Vec<GameServer> = (0..GAMES.len())
            .map(|game| {
                let world = new_map(seed.wrapping_add(game as u64), Duration::ZERO);
                let server = GameServer::new(GameServerOptions {
                    listen: address(GAMES[game]),
                    players: vec![(TEAM[0].0, DEMO_TOKEN), (TEAM[1].0, DEMO_TOKEN + 1)],
                    time_scale: 0.0,
                    limits: Limits::default(),
                    map_picture: Some(Bytes::from_static(b"a picture")),
                    ..GameServerOptions::new(world)
                });
                let phones = (0..USERS.len()).map(|user| (TEAM[user].0, PHONES[user].0)).collect();
                server.push_through(pushes.clone(), &format!("Island {game}"), phones);
                server
            })
            .collect();
        let world = Rc::new(Self {
            seed,
            origin: Instant::now(),
            commands: RefCell::new(TeamCommands::new(&games)),
            clock,
            database: Database::Sqlite(directory.join("simulation.db")),
            neighbours,
            games,
            pushes,
            receiver: Receiver::default(),
            overlays: Overlay::all(seed),
            judge: RefCell::default(),
            teams: RefCell::default(),
            wires: RefCell::default(),
            fate: Cell::new(Fate::Run),
            journal_fate: Cell::new(JournalFate::Run),
            writes_taken: Cell::new(0),
            next_fate: Cell::new(Fate::Run),
            start_fails: Cell::new(false),
            refused: RefCell::default(),
            dead: Cell::new(true),
            lives: Cell::new(0),
            ending: Cell::new(false),
            died: Notify::new(),
            left: RefCell::default(),
            requests: RefCell::new(None),
            disk_random: RefCell::new(Stream::of(seed, "disk")),
            wires_made: Cell::new(0),
            hash: Cell::new(seed),
            print,
            directory,
        });
        WORLD.set(Some(world.clone()));
        if channels::are_there(seed) {
            tokio::task::spawn_local(early_rings::look(world.clone()));
        }
        world
    }

    pub fn millis(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64
    }

    /// Folds what happened, and when, into the hash of the run.
    pub fn trace(&self, event: &str) {
        let at = self.millis();
        REACHED.store(at, Ordering::Relaxed);
        self.hash.set(fold(self.hash.get(), at.to_le_bytes().into_iter().chain(event.bytes())));
        if self.print {
            println!("{:>9.3} {event}", at as f64 / 1_000.0);
        }
    }

    /// Folds it into the hash without printing it.
    pub fn trace_silently(&self, event: &str) {
        self.hash.set(fold(self.hash.get(), event.bytes()));
    }

    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// A life of the service begins; its requests come through the receiver.
    pub fn begin_life(&self) -> mpsc::UnboundedReceiver<Request> {
        self.dead.set(false);
        self.lives.set(self.lives.get() + 1);
        self.fate.set(self.next_fate.replace(Fate::Run));
        self.journal_fate.set(JournalFate::Run);
        self.ending.set(false);
        self.judge.borrow_mut().gaps.begin_life(self.clock.now());
        let (sender, requests) = mpsc::unbounded_channel();
        *self.requests.borrow_mut() = Some(sender);
        requests
    }

    pub async fn death(&self) {
        while !self.dead.get() {
            self.died.notified().await;
        }
    }

    /// Kills the process after this number of milliseconds, unless the healthy minutes have begun.
    pub async fn kill_after(&self, millis: u64) {
        sleep(Duration::from_millis(millis)).await;
        if self.millis() < HEALTHY_FROM {
            self.kill("killed");
        }
    }

    /// kill -9: nothing it still does is seen outside; what its kernel has is delivered.
    pub fn kill(&self, how: &str) {
        if self.dead.replace(true) {
            return;
        }
        self.trace(how);
        // An end that a kill cuts short closes no socket.
        if how != "ended" {
            self.ending.set(false);
        }
        self.requests.borrow_mut().take();
        // Lines of this life are not news of the next one.
        self.games.iter().for_each(|game| game.faults(|faults| faults.late_broadcasts = false));
        for wire in self.wires.borrow_mut().drain(..) {
            // A process that is killed says no goodbye, and a slow wire may show that only while the next one ends.
            if how != "ended" {
                wire.lossless.set(false);
            }
            self.left.borrow_mut().extend(wire.kill());
        }
        self.died.notify_one();
    }

    /// The System of the last life is gone: nothing of it is left over.
    pub fn check_nothing_left(&self) {
        let held = self.left.take().iter().filter(|left| left.try_write(b"?").is_ok()).count();
        if held > 0 {
            self.judge.borrow_mut().broken("nothing-left-over", format!("{held} connections outlive the service"));
        }
    }

    fn add_wire(&self, kind: WireKind) -> (Memory, Memory, Rc<Wire>) {
        let number = self.wires_made.get() + 1;
        self.wires_made.set(number);
        let (service, neighbour, wire) = Wire::new(kind, self.seed, number, &self.neighbours);
        let mut wires = self.wires.borrow_mut();
        wires.retain(|wire| wire.is_open());
        wires.push(wire.clone());
        (service, neighbour, wire)
    }

    /// A client connects with a token for this: its end, or nothing if the service is down or refuses.
    pub async fn connect(&self, user: &UserId, session: &SessionId, access: RelayAccess) -> Option<(Memory, Rc<Wire>)> {
        let (reply, answer) = oneshot::channel();
        let request = Request::Connect { user: user.clone(), session: session.clone(), access, reply };
        self.requests.borrow().as_ref()?.send(request).ok()?;
        answer.await.ok()?
    }

    /// A dashboard's socket: the service's end, the dashboard's, and the wire.
    pub fn make_socket(&self) -> (Memory, Memory, Rc<Wire>) {
        self.add_wire(WireKind::Relay)
    }

    /// Ends the service gracefully.
    pub fn end(&self) {
        if let Some(requests) = &*self.requests.borrow() {
            let _ = requests.send(Request::End);
        }
    }

    /// A user's request to the API; true once it is acknowledged.
    pub async fn act(&self, act: UserAct) -> bool {
        let (reply, answer) = oneshot::channel();
        let sent =
            self.requests.borrow().as_ref().is_some_and(|requests| requests.send(Request::Act { act, reply }).is_ok());
        sent && answer.await.unwrap_or(false)
    }

    /// The service dials.
    pub async fn dial(host: String, port: u16) -> io::Result<Memory> {
        let world = world();
        let lag = 1 + world.disk_random.borrow_mut().below(4);
        sleep(Duration::from_millis(lag)).await;
        if world.dead.get() {
            return std::future::pending().await;
        }
        if world.refused.borrow().get(&host).is_some_and(|until| *until > Instant::now()) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (service, wire) = world.connect_to(&host, port, [192, 0, 2, 1].into())?;
        if let Some(game) = game_at(&host, port) {
            if world.millis() < HEALTHY_FROM && Stream::of(world.seed, "far").chance(FAR) {
                wire.set_lag((20, 400));
            }
            let connections = world.games[game].connections();
            world.judge.borrow_mut().see_connections(game, connections);
        }
        Ok(service)
    }

    /// A neighbour takes a connection of the service from this address: the service's end, and the wire.
    pub fn connect_to(&self, host: &str, port: u16, from: IpAddr) -> io::Result<(Memory, Rc<Wire>)> {
        let game = game_at(host, port);
        if game.is_none() && host != PUSH_HOST {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (service, neighbour, wire) = self.add_wire(if game.is_some() { WireKind::Link } else { WireKind::Push });
        match game {
            Some(game) => drop(self.neighbours.spawn_local(self.games[game].serve(neighbour, from))),
            None => drop(self.neighbours.spawn_local(self.pushes.serve(neighbour))),
        }
        Ok((service, wire))
    }

    /// Every query passes here, before it runs and after its commit.
    pub async fn disk(moment: DiskMoment) -> Result<(), DbError> {
        let world = world();
        if moment != DiskMoment::AfterQuery {
            // A database that takes no time hides every race.
            let jitter = world.disk_random.borrow_mut().below(3);
            sleep(Duration::from_millis(jitter)).await;
            match world.fate.get() {
                Fate::Slow(by) => sleep(Duration::from_millis(by)).await,
                Fate::Flaky(percent) if world.disk_random.borrow_mut().chance(percent) => {
                    return Err(DbError::Unavailable("the disk fails".to_owned()));
                }
                Fate::Full if moment == DiskMoment::BeforeWrite => {
                    return Err(DbError::Unavailable("the disk is full".to_owned()));
                }
                Fate::Die { in_queries: 0, committed: false } => world.kill("dies before a query"),
                Fate::Die { in_queries, committed } if in_queries > 0 => {
                    world.fate.set(Fate::Die { in_queries: in_queries - 1, committed });
                }
                _ => {}
            }
        } else {
            match world.fate.get() {
                Fate::Die { in_queries: 0, committed: true } => world.kill("dies after a commit"),
                Fate::Flaky(percent) if world.disk_random.borrow_mut().chance(percent / 2) => {
                    return Err(DbError::Unavailable("the disk fails after a commit".to_owned()));
                }
                _ => {}
            }
        }
        if world.dead.get() {
            return std::future::pending().await;
        }
        if moment == DiskMoment::BeforeWrite {
            world.writes_taken.set(world.writes_taken.get() + 1);
        }
        Ok(())
    }

    /// Every line of the journal passes here before it is written.
    pub async fn journal(line: Vec<u8>) -> Result<(), usize> {
        let world = world();
        let (fate, line) = (world.journal_fate.get(), String::from_utf8_lossy(&line).into_owned());
        match fate {
            JournalFate::Slow(by) => {
                world.judge.borrow_mut().unsaved_alarms.push(line.clone());
                sleep(Duration::from_millis(by)).await;
            }
            JournalFate::Tear => world.journal_fate.set(JournalFate::Run),
            JournalFate::Run | JournalFate::Full => {}
        }
        if world.dead.get() {
            return std::future::pending().await;
        }
        if !matches!(fate, JournalFate::Full | JournalFate::Tear) {
            world.judge.borrow_mut().unsaved_alarms.retain(|unsaved_alarms| *unsaved_alarms != line);
            return Ok(());
        }
        world.trace(&format!("the journal fails: {fate:?}"));
        world.judge.borrow_mut().unsaved_alarms.push(line.clone());
        Err(if fate == JournalFate::Tear { line.len() / 2 } else { 0 })
    }

    pub fn push_address() -> (String, u16) {
        (PUSH_HOST.to_owned(), 5_228)
    }

    /// The wall clock jumps.
    pub fn jump(&self, seconds: i64) {
        self.clock.advance(TimeDelta::seconds(seconds));
    }

    pub fn forget(&self) {
        WORLD.set(None);
    }
}
