//! A game server that speaks the game's companion protocol over a [`SimulatedWorld`], enforces the game's limits, and
//! misbehaves on demand.
//!
//! A connection reads and writes one stream, through one bounded queue; a client that does not read is cut.

mod cameras;
mod clients;
mod connection;
mod faults;
mod game;
mod limits;
mod observed;
mod pushes;
mod requests;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use chrono::TimeDelta;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

pub use faults::GameServerFaults;
pub use limits::Limits;
pub use observed::{ActKind, AddressUse, ObservedClient, PlayerAct};

use self::{
    connection::serve,
    game::{SharedGame, SimulatedGame},
    pushes::GamePushes,
};
use super::{
    push_service::{PushService, PushedServer},
    scene::{HEIGHT, WIDTH},
    world::{SimulatedWorld, TEAM},
};
use crate::game::{camera::sample_order, wire::AppTeamMessage};

/// The token of the paired player in [`GameServerOptions::new`]; negative, as half of the real ones are.
pub const DEMO_TOKEN: i32 = -123_456_789;

/// The id of the game server in its pushes.
const SERVER_ID: &str = "5b6ad1f7-7f3c-4a53-9d7e-2f1f6a0c9e11";
/// Connections that are refused at once; others are closed without a refusal.
const REFUSALS_AT_ONCE: usize = 64;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Address, world, players and pace of a simulated game server.
pub struct GameServerOptions {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    pub world: SimulatedWorld,
    /// Paired players: SteamID64 and player token.
    pub players: Vec<(u64, i32)>,
    /// Time between two advances of the world.
    pub tick: Duration,
    /// World seconds per second; at 0 only [`GameServer::advance`] moves the time.
    pub time_scale: f64,
    pub limits: Limits,
    /// The map picture, a JPEG. `None`: drawn when a client first asks for the map of a seed, which takes a moment.
    pub map_picture: Option<Bytes>,
}

impl GameServerOptions {
    /// On a free port of loopback, the first of the team paired with [`DEMO_TOKEN`], the game's own limits, real time.
    pub fn new(world: SimulatedWorld) -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            world,
            players: vec![(TEAM[0].0, DEMO_TOKEN)],
            tick: Duration::from_millis(100),
            time_scale: 1.0,
            limits: Limits::default(),
            map_picture: None,
        }
    }
}

/// A running server; ends when dropped.
pub struct GameServer {
    addr: SocketAddr,
    shared: Arc<SharedGame>,
    listening: Mutex<Option<JoinHandle<()>>>,
    /// Its address while it does not listen.
    kept: Mutex<Option<TcpSocket>>,
    ticking: Option<JoinHandle<()>>,
}

impl GameServer {
    /// A server without a listener, for streams that the caller accepts ([`GameServer::serve`]); `listen` is only the
    /// address that its pushes contain. Call it inside an actix system.
    pub fn new(options: GameServerOptions) -> Self {
        let players = options.players.into_iter().collect();
        let game = SimulatedGame::new(options.world, players, options.limits, options.map_picture);
        let refusals = Semaphore::new(REFUSALS_AT_ONCE);
        let shared = Arc::new(SharedGame::new(game, sample_order(WIDTH, HEIGHT), refusals));
        let ticking = (options.time_scale > 0.0)
            .then(|| actix::spawn(tick(Arc::clone(&shared), options.tick, options.time_scale)));
        Self { addr: options.listen, shared, listening: Mutex::default(), kept: Mutex::default(), ticking }
    }

    /// Binds and begins to serve. Call it inside an actix system.
    pub async fn start(options: GameServerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let server = Self::new(GameServerOptions { listen: listener.local_addr()?, ..options });
        server.listen(listener);
        Ok(server)
    }

    fn listen(&self, listener: TcpListener) {
        let listening = actix::spawn(accept(Arc::clone(&self.shared), listener));
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(listening);
    }

    /// Serves one client on a stream that the caller accepted, as if it came from `address`. Completes when the
    /// connection has ended; dropping it cuts the connection.
    pub fn serve<S>(&self, stream: S, address: IpAddr) -> impl Future<Output = ()> + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        serve(Arc::clone(&self.shared), stream, address)
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on pairings and alarms are pushed to these phones: Android id by SteamID64.
    pub fn push_through(&self, service: Arc<PushService>, name: &str, phones: HashMap<u64, u64>) {
        let server = PushedServer {
            id: SERVER_ID.to_owned(),
            name: name.to_owned(),
            ip: self.addr.ip().to_string(),
            port: self.addr.port(),
        };
        self.shared.lock().pushes = Some(GamePushes::new(service, server, phones));
    }

    /// The player presses "pair" in the game, and at each of these devices that they may use.
    pub fn pair(&self, player: u64, devices: &[u64]) {
        let game = self.shared.lock();
        if let (Some(pushes), Some(token)) = (&game.pushes, game.players.get(&player)) {
            let may_pair = |id: u64| devices.contains(&id) && game.world.may_use(player, id).is_ok();
            pushes.pair(player, *token, game.world.devices().filter(|(id, ..)| may_pair(*id)));
        }
    }

    /// Reads the world or changes it; the effects of the change are broadcast before this returns.
    pub fn world<T>(&self, change: impl FnOnce(&mut SimulatedWorld) -> T) -> T {
        let mut game = self.shared.lock();
        let result = change(&mut game.world);
        game.publish();
        result
    }

    /// Advances the world by this much at once.
    pub fn advance(&self, by: Duration) {
        self.world(|world| world.advance_to(world.now() + TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX / 2)));
    }

    /// Changes the faults.
    pub fn faults(&self, change: impl FnOnce(&mut GameServerFaults)) {
        let mut game = self.shared.lock();
        change(&mut game.faults);
        game.publish();
    }

    /// Gives the player a token, in place of one that they had, or revokes it. Connections stay: their next request is
    /// answered with `not_found`, and broadcasts go on.
    pub fn set_token(&self, player: u64, token: Option<i32>) {
        let mut game = self.shared.lock();
        match token {
            Some(token) => game.players.insert(player, token),
            None => game.players.remove(&player),
        };
    }

    /// Open connections, those in the handshake included.
    pub fn connections(&self) -> usize {
        self.shared.lock().clients.count()
    }

    /// Open connections that make requests as this player.
    pub fn connections_of(&self, player: u64) -> usize {
        self.shared.lock().clients.of_player(player).len()
    }

    /// Each open connection.
    pub fn clients(&self) -> Vec<ObservedClient> {
        self.shared.lock().clients.observed()
    }

    /// Use of this server by each source address from which a client came.
    pub fn addresses(&self) -> BTreeMap<IpAddr, AddressUse> {
        let game = self.shared.lock();
        game.observed.addresses(|address| game.clients.count_of(address))
    }

    /// Acts of players through their clients so far, oldest first: the last 10 000.
    pub fn acts(&self) -> Vec<PlayerAct> {
        self.shared.lock().observed.acts()
    }

    /// Number of requests for the map.
    pub fn maps(&self) -> usize {
        self.shared.lock().maps
    }

    /// Requests to turn a switch so far.
    pub fn toggles(&self) -> usize {
        self.shared.lock().toggles
    }

    /// Number of camera subscriptions that began (renewals are none), and of those that there are now.
    pub fn camera_subscriptions(&self) -> (usize, usize) {
        self.shared.lock().cameras.count()
    }

    /// Cuts every connection without a close frame.
    pub fn drop_connections(&self) {
        self.shared.lock().drop_connections();
    }

    /// Cuts the connections of this player without a close frame.
    pub fn drop_connections_of(&self, player: u64) {
        self.shared.lock().drop_connections_of(player);
    }

    /// All lines of chat that are said from now on, however many they are.
    pub fn chat(&self) -> mpsc::UnboundedReceiver<AppTeamMessage> {
        let (reader, lines) = mpsc::unbounded_channel();
        self.shared.lock().readers.push(reader);
        lines
    }

    /// A new map, which cuts every connection.
    pub fn wipe(&self) {
        self.world(SimulatedWorld::wipe);
    }

    /// Stops listening and cuts every connection; the world and the tokens stay. The address stays ours, so that no
    /// other server of this machine is reached at it.
    pub async fn stop(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listening) = listening {
            listening.abort();
            // The address is free when the task has ended; that it was aborted is no failure.
            let _ = listening.await;
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = bind(self.addr).ok();
        }
        self.drop_connections();
    }

    /// Stops, then listens again on the same address.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop().await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let socket = kept.map_or_else(|| bind(self.addr), Ok)?;
        self.listen(socket.listen(BACKLOG)?);
        Ok(())
    }
}

impl Drop for GameServer {
    fn drop(&mut self) {
        let listening = self.listening.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        for task in self.ticking.take().into_iter().chain(listening) {
            task.abort();
        }
        self.drop_connections();
    }
}

/// A socket that holds this address and refuses every connection until it listens.
fn bind(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Closed connections keep an address for a minute.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

/// Advances the world with the time that has passed.
async fn tick(shared: Arc<SharedGame>, every: Duration, time_scale: f64) {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Instant::now();
    loop {
        let now = ticks.tick().await;
        let passed = (now - before).as_secs_f64() * time_scale;
        before = now;
        let mut game = shared.lock();
        if !game.faults.frozen && passed > 0.0 {
            let until = game.world.now() + TimeDelta::microseconds((passed * 1e6) as i64);
            game.world.advance_to(until);
            game.publish();
        }
    }
}

async fn accept(shared: Arc<SharedGame>, listener: TcpListener) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Most likely out of file descriptors: other connections must end first.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        // Messages are small, one answer each: filling a packet only delays them. Without it they are only slower.
        let _ = stream.set_nodelay(true);
        actix::spawn(serve(Arc::clone(&shared), stream, peer.ip()));
    }
}
