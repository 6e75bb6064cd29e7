//! A game server that speaks the game's companion protocol over a [`SimulatedWorld`], keeps the game's limits, and misbehaves
//! on demand.
//!
//! Each connection is one task with one bounded queue to its peer; a peer that does not read is dropped. The world
//! and everything known about the connections stand behind one lock that is never held across an await.

use std::{
    collections::{HashMap, HashSet},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use chrono::TimeDelta;
use futures_util::{SinkExt, StreamExt};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinHandle},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_tungstenite::{
    accept_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use super::{
    map_picture,
    push_service::{PushService, PushedServer},
    scene::{FAR_PLANE, HEIGHT, SAMPLES, Scene, WIDTH},
    world::{GameError, SimulatedDevice, SimulatedWorld, TEAM, WorldChange},
};
use crate::domain::time::Timestamp;
use crate::game::{
    camera::sample_order,
    wire::{
        AppBroadcast, AppCameraInfo, AppCameraInput, AppEntityChanged, AppError, AppFlag, AppMessage,
        AppNewTeamMessage, AppRequest, AppResponse, AppSuccess, AppTeamChanged,
    },
};

/// The token of the paired player in [`GameServerOptions::new`]; negative, as half of the real ones are.
pub const DEMO_TOKEN: i32 = -123_456_789;

/// By which the game server's pushes name it.
const SERVER_ID: &str = "5b6ad1f7-7f3c-4a53-9d7e-2f1f6a0c9e11";
/// Least time between two pushes of one alarm.
const ALARM_COOLDOWN: TimeDelta = TimeDelta::seconds(30);

/// What a full server writes instead of an HTTP answer: a WebSocket close frame, code 1000.
const REFUSAL: [u8; 4] = [0x88, 0x02, 0x03, 0xE8];
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// How long a refused peer may take to read its refusal, and how many may take it at once.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(1);
const REFUSALS_AT_ONCE: usize = 64;
/// Messages that wait for one peer; one that has more is dropped.
const OUTBOX: usize = 1024;
/// Above this a message is not even read; between the game's own limit and this it is read and dropped.
const READ_AT_MOST: usize = 4 << 20;
const CAMERA_FRAME_EVERY: Duration = Duration::from_millis(100);
const CAMERA_RENEWAL: Duration = Duration::from_secs(30);
/// `AppCameraInput.buttons`.
const FIRE_PRIMARY: i32 = 1024;
/// Mouse and fire: a camera that turns and zooms.
const TURNING_CONTROLS: i32 = 2 | 8;
/// Cameras of monuments exist, and newest servers keep them to themselves.
const MONUMENT_CAMERAS: [&str; 3] = ["OILRIG1DOCK", "DOME1", "COMPOUNDSTREET"];

/// The server's limits; the default is what real servers keep.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    pub connections_per_address: usize,
    /// Bytes; larger messages are dropped without an answer.
    pub message_size: usize,
    /// Requests that wait at once; the excess is dropped without an answer.
    pub queue: usize,
    /// Capacity and refill per second.
    pub player_tokens: (f64, f64),
    pub address_tokens: (f64, f64),
    /// Wrong tokens from one address before its connections are cut. The game's own numbers are not known.
    pub bad_tokens: (f64, f64),
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 500,
            connections_per_address: 5,
            message_size: 1 << 20,
            queue: 100,
            player_tokens: (25.0, 3.0),
            address_tokens: (50.0, 15.0),
            bad_tokens: (30.0, 0.5),
        }
    }
}

/// How the server misbehaves; the default is not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The game thread hangs: requests are read and never answered, nothing is broadcast, pings are still answered.
    pub frozen: bool,
    /// New connections get the refusal of a full server.
    pub refuse: bool,
    /// Every request is answered with `rate_limit`.
    pub rate_limit: bool,
    /// Every token is unknown.
    pub reject_tokens: bool,
    /// Messages are replaced by bytes that are no message.
    pub rubbish: bool,
    /// Messages end in the middle.
    pub truncate: bool,
    /// Messages carry fields of a future version.
    pub unknown_fields: bool,
    /// Answers come this much later.
    pub delay: Option<Duration>,
}

/// How to start a server.
pub struct GameServerOptions {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    pub world: SimulatedWorld,
    /// Paired players: SteamID64 and player token.
    pub players: Vec<(u64, i32)>,
    /// How often the world moves on.
    pub tick: Duration,
    /// SimulatedWorld seconds per second; 0 lets time stand still until [`GameServer::advance`].
    pub time_scale: f64,
    pub limits: Limits,
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
        }
    }
}

/// A running server; ends when dropped.
pub struct GameServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
    ticking: JoinHandle<()>,
}

impl GameServer {
    /// Binds and begins to serve; needs a tokio runtime.
    pub async fn start(options: GameServerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                world: options.world,
                players: options.players.into_iter().collect(),
                limits: options.limits,
                faults: Faults::default(),
                connections: HashMap::new(),
                next_connection: 0,
                player_tokens: HashMap::new(),
                address_tokens: HashMap::new(),
                bad_tokens: HashMap::new(),
                pending: 0,
                controllers: HashMap::new(),
                push_line: None,
            }),
            order: sample_order(WIDTH, HEIGHT),
            refusals: Arc::new(Semaphore::new(REFUSALS_AT_ONCE)),
        });
        let listening = tokio::spawn(accept(Arc::clone(&shared), listener));
        let ticking = tokio::spawn(tick(Arc::clone(&shared), options.tick, options.time_scale));
        Ok(Self { addr, shared, listening: Mutex::new(Some(listening)), ticking })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on pairings and alarms are pushed to these devices: Android id by SteamID64.
    pub fn set_push_line(&self, service: Arc<PushService>, name: &str, devices: HashMap<u64, u64>) {
        let server = PushedServer {
            id: SERVER_ID.to_owned(),
            name: name.to_owned(),
            ip: self.addr.ip().to_string(),
            port: self.addr.port(),
        };
        self.shared.lock().push_line = Some(PushLine { service, server, devices, told: HashMap::new() });
    }

    /// The player presses "pair" in the game, and at each of these devices.
    pub fn pair(&self, player: u64, devices: &[u64]) {
        let state = self.shared.lock();
        let (Some(line), Some(token)) = (&state.push_line, state.players.get(&player)) else { return };
        let Some(android_id) = line.devices.get(&player) else { return };
        line.service.push(*android_id, line.server.pairing(player, *token));
        for (id, name, device) in state.world.devices().filter(|(id, ..)| devices.contains(id)) {
            let kind = match device {
                SimulatedDevice::Switch { .. } => 1,
                SimulatedDevice::Alarm { .. } => 2,
                SimulatedDevice::Storage { .. } => 3,
            };
            line.service.push(*android_id, line.server.entity_pairing(player, *token, id, kind, name));
        }
    }

    /// Looks at the world or changes it; what follows from the change is broadcast before this returns.
    pub fn world<T>(&self, change: impl FnOnce(&mut SimulatedWorld) -> T) -> T {
        let mut state = self.shared.lock();
        let result = change(&mut state.world);
        state.publish();
        result
    }

    /// Lets the world live that much longer at once.
    pub fn advance(&self, by: Duration) {
        self.world(|world| world.advance_to(world.now() + TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX / 2)));
    }

    /// Changes how the server misbehaves.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut state = self.shared.lock();
        change(&mut state.faults);
        state.publish();
    }

    /// Gives the player a token, or takes it away.
    pub fn set_token(&self, player: u64, token: Option<i32>) {
        let mut state = self.shared.lock();
        match token {
            Some(token) => state.players.insert(player, token),
            None => state.players.remove(&player),
        };
    }

    /// Open connections, those in the handshake included.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }

    /// Cuts every connection without a word.
    pub fn drop_connections(&self) {
        self.shared.lock().drop_connections();
    }

    /// A new map, which cuts every connection.
    pub fn wipe(&self) {
        self.world(SimulatedWorld::wipe);
    }

    /// Stops listening and cuts every connection; the world and the tokens stay.
    pub async fn stop(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listening) = listening {
            listening.abort();
            // The address is free when the listener is gone; an aborted task has nothing else to tell.
            let _ = listening.await;
        }
        self.drop_connections();
    }

    /// Stops, then listens again on the same address.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop().await;
        let listener = TcpListener::bind(self.addr).await?;
        let listening = tokio::spawn(accept(Arc::clone(&self.shared), listener));
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(listening);
        Ok(())
    }
}

impl Drop for GameServer {
    fn drop(&mut self) {
        self.ticking.abort();
        if let Some(listening) = self.listening.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            listening.abort();
        }
        self.drop_connections();
    }
}

struct Shared {
    state: Mutex<State>,
    /// Which pixel each camera sample belongs to.
    order: Vec<(u16, u16)>,
    refusals: Arc<Semaphore>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the game server's push messages go.
struct PushLine {
    service: Arc<PushService>,
    server: PushedServer,
    /// Android id by SteamID64.
    devices: HashMap<u64, u64>,
    /// When the last push of each alarm was sent.
    told: HashMap<u64, Timestamp>,
}

struct State {
    world: SimulatedWorld,
    players: HashMap<u64, i32>,
    limits: Limits,
    faults: Faults,
    connections: HashMap<u64, Connection>,
    next_connection: u64,
    player_tokens: HashMap<u64, Bucket>,
    address_tokens: HashMap<IpAddr, Bucket>,
    bad_tokens: HashMap<IpAddr, Bucket>,
    /// Requests taken in and not answered yet.
    pending: usize,
    /// Which connection steers a camera.
    controllers: HashMap<String, u64>,
    push_line: Option<PushLine>,
}

struct Connection {
    address: IpAddr,
    outbox: mpsc::Sender<Bytes>,
    task: AbortHandle,
    /// Whose team broadcasts it gets: set by the first valid request.
    player: Option<u64>,
    /// Whose entityChanged it gets.
    entities: HashSet<u64>,
    camera: Option<CameraSession>,
}

struct CameraSession {
    name: String,
    offset: usize,
    renewed: Instant,
    fire_pressed: bool,
}

/// A token bucket.
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn fill(&mut self, (capacity, refill): (f64, f64), now: Instant) {
        self.tokens = capacity.min(self.tokens + refill * (now - self.at).as_secs_f64());
        self.at = now;
    }
}

/// The bucket of `key`, filled up to `now`. Full buckets say nothing and are forgotten, so the map stays small.
fn bucket<K: std::hash::Hash + Eq + Copy>(
    buckets: &mut HashMap<K, Bucket>,
    key: K,
    limit: (f64, f64),
    now: Instant,
) -> &mut Bucket {
    if buckets.len() >= 1024 && !buckets.contains_key(&key) {
        buckets.retain(|_, bucket| {
            bucket.fill(limit, now);
            bucket.tokens < limit.0
        });
    }
    let bucket = buckets.entry(key).or_insert(Bucket { tokens: limit.0, at: now });
    bucket.fill(limit, now);
    bucket
}

/// What becomes of a message.
enum Verdict {
    Answer(Box<AppResponse>),
    Silence,
    Close,
}

impl State {
    fn receive(&mut self, id: u64, data: &[u8], now: Instant) -> Verdict {
        let Some(address) = self.connections.get(&id).map(|connection| connection.address) else {
            return Verdict::Close;
        };
        if self.faults.frozen || data.len() > self.limits.message_size || self.pending >= self.limits.queue {
            return Verdict::Silence;
        }
        let Ok(request) = AppRequest::decode(data) else {
            return Verdict::Close;
        };
        let bad_tokens = bucket(&mut self.bad_tokens, address, self.limits.bad_tokens, now);
        if bad_tokens.tokens < 1.0 {
            return Verdict::Close;
        }
        let seq = request.seq;
        if self.players.get(&request.player_id) != Some(&request.player_token) || self.faults.reject_tokens {
            bad_tokens.tokens -= 1.0;
            return Verdict::Answer(error(seq, "not_found").into());
        }
        if self.faults.rate_limit || !self.spend(request.player_id, address, cost(&request), now) {
            return Verdict::Answer(error(seq, "rate_limit").into());
        }
        self.bind(id, request.player_id);
        let response = self.handle(id, &request, now).unwrap_or_else(|refusal| error(seq, refusal));
        self.publish();
        Verdict::Answer(response.into())
    }

    fn spend(&mut self, player: u64, address: IpAddr, cost: f64, now: Instant) -> bool {
        let of_player = bucket(&mut self.player_tokens, player, self.limits.player_tokens, now);
        let of_address = bucket(&mut self.address_tokens, address, self.limits.address_tokens, now);
        let enough = of_player.tokens >= cost && of_address.tokens >= cost;
        if enough {
            of_player.tokens -= cost;
            of_address.tokens -= cost;
        }
        enough
    }

    fn bind(&mut self, id: u64, player: u64) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.player.replace(player).is_some_and(|before| before != player)
        {
            self.end_camera(id);
        }
    }

    /// The answer to a request that may be served.
    fn handle(&mut self, id: u64, request: &AppRequest, now: Instant) -> Result<AppResponse, GameError> {
        let player = request.player_id;
        let mut response = AppResponse { seq: request.seq, ..Default::default() };
        let world = &mut self.world;
        if request.get_map.is_some() {
            let terrain = world.terrain();
            response.map = Some(map_picture::app_map(terrain, map_picture::picture(terrain)));
        } else if request.get_info.is_some() {
            response.info = Some(world.info());
        } else if request.get_time.is_some() {
            response.time = Some(world.time());
        } else if request.get_team_info.is_some() {
            response.team_info = Some(world.team_info(player));
        } else if request.get_team_chat.is_some() {
            response.team_chat = Some(world.team_chat(player)?);
        } else if let Some(line) = &request.send_team_message {
            world.member(player).ok_or("no_team")?;
            world.say(player, &line.message);
            response.success = Some(AppSuccess {});
        } else if request.get_entity_info.is_some() {
            response.entity_info = Some(world.entity_info(request.entity_id())?);
            self.watch_entity(id, request.entity_id());
        } else if let Some(wanted) = request.set_entity_value {
            let turned = world.set_switch(request.entity_id(), wanted.value);
            turned?;
            self.watch_entity(id, request.entity_id());
            response.success = Some(AppSuccess {});
        } else if request.check_subscription.is_some() {
            response.flag = Some(AppFlag { value: world.subscription(request.entity_id(), player)? });
            self.watch_entity(id, request.entity_id());
        } else if let Some(wanted) = request.set_subscription {
            world.set_subscription(request.entity_id(), player, wanted.value)?;
            self.watch_entity(id, request.entity_id());
            response.success = Some(AppSuccess {});
        } else if request.get_map_markers.is_some() {
            response.map_markers = Some(world.map_markers(player));
        } else if let Some(target) = request.promote_to_leader {
            world.promote(player, target.steam_id)?;
            response.success = Some(AppSuccess {});
        } else if let Some(target) = request.kick_from_team {
            world.kick(player, target.steam_id)?;
            response.success = Some(AppSuccess {});
        } else if request.get_clan_info.is_some()
            || request.get_clan_chat.is_some()
            || request.set_clan_motd.is_some()
            || request.send_clan_message.is_some()
        {
            return Err("no_clan");
        } else if request.get_nexus_auth.is_some() {
            return Err("server_error"); // this server belongs to no nexus
        } else if let Some(wanted) = &request.camera_subscribe {
            response.camera_subscribe_info = Some(self.subscribe_camera(id, player, &wanted.camera_id, now)?);
        } else if request.camera_unsubscribe.is_some() {
            self.end_camera(id);
            response.success = Some(AppSuccess {});
        } else if let Some(input) = &request.camera_input {
            self.steer_camera(id, input)?;
            response.success = Some(AppSuccess {});
        } else {
            return Err("unhandled");
        }
        Ok(response)
    }

    fn watch_entity(&mut self, id: u64, entity_id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.entities.insert(entity_id);
        }
    }

    fn subscribe_camera(&mut self, id: u64, player: u64, name: &str, now: Instant) -> Result<AppCameraInfo, GameError> {
        if name.is_empty() {
            return Err("invalid_id");
        }
        let member = self.world.member(player);
        if member.is_some_and(|member| !member.is_alive) {
            return Err("no_player");
        }
        if member.is_some_and(|member| member.is_online) {
            return Err("player_online");
        }
        if MONUMENT_CAMERAS.contains(&name) {
            return Err("access_denied");
        }
        let turns = self.world.camera(name).ok_or("not_found")?.turns;
        let connection = self.connections.get_mut(&id).ok_or("server_error")?;
        match &mut connection.camera {
            Some(session) if session.name == name => session.renewed = now,
            _ => {
                self.end_camera(id);
                if let Some(connection) = self.connections.get_mut(&id) {
                    let name = name.to_owned();
                    connection.camera = Some(CameraSession { name, offset: 0, renewed: now, fire_pressed: false });
                }
            }
        }
        let steers = turns && *self.controllers.entry(name.to_owned()).or_insert(id) == id;
        Ok(AppCameraInfo {
            width: i32::from(WIDTH),
            height: i32::from(HEIGHT),
            near_plane: 0.0,
            far_plane: FAR_PLANE,
            control_flags: if steers { TURNING_CONTROLS } else { 0 },
        })
    }

    fn end_camera(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.camera = None;
        }
        self.controllers.retain(|_, controller| *controller != id);
    }

    fn steer_camera(&mut self, id: u64, input: &AppCameraInput) -> Result<(), GameError> {
        let session = self.connections.get_mut(&id).and_then(|connection| connection.camera.as_mut());
        let session = session.ok_or("no_camera")?;
        let camera = self.world.camera_mut(&session.name).ok_or("no_camera")?;
        if !camera.turns || self.controllers.get(&session.name) != Some(&id) {
            return Ok(());
        }
        let (across, above) = (input.mouse_delta.x(), input.mouse_delta.y());
        if across.is_finite() && above.is_finite() {
            camera.yaw = (camera.yaw + across.to_radians()).rem_euclid(std::f32::consts::TAU);
            camera.pitch = (camera.pitch + above.to_radians()).clamp(-1.0, 0.6);
        }
        let pressed = input.buttons & FIRE_PRIMARY != 0;
        if std::mem::replace(&mut session.fire_pressed, pressed) && !pressed {
            camera.zoom = (camera.zoom + 1) % 4;
        }
        Ok(())
    }

    /// What the camera of a connection sees now, and the number of the next sample; `None` when nothing is to send.
    fn camera_frame(&mut self, id: u64, now: Instant) -> Option<(Scene, usize)> {
        if self.faults.frozen {
            return None;
        }
        let connection = self.connections.get_mut(&id)?;
        let session = connection.camera.as_mut()?;
        let camera = self.world.camera(&session.name);
        let player = connection.player.and_then(|player| self.world.member(player));
        let gone = camera.is_none() || player.is_some_and(|player| player.is_online || !player.is_alive);
        if gone || now - session.renewed > CAMERA_RENEWAL {
            self.end_camera(id);
            return None;
        }
        let offset = session.offset;
        session.offset = (offset + SAMPLES) % (usize::from(WIDTH) * usize::from(HEIGHT));
        Some((Scene::new(&self.world, camera?), offset))
    }

    /// Broadcasts what has happened in the world. A frozen game keeps it until it thaws.
    fn publish(&mut self) {
        if self.faults.frozen {
            return;
        }
        for change in self.world.take_changes() {
            match change {
                WorldChange::Team { players } => {
                    for player in players {
                        let team_info = self.world.team_info(player);
                        let changed = AppTeamChanged { player_id: player, team_info };
                        let broadcast = AppBroadcast { team_changed: Some(changed), ..Default::default() };
                        self.broadcast(broadcast, |connection| connection.player == Some(player));
                    }
                }
                WorldChange::Chat(message) => {
                    let message = Some(AppNewTeamMessage { message });
                    let team = self.world.team();
                    let broadcast = AppBroadcast { team_message: message, ..Default::default() };
                    self.broadcast(broadcast, |connection| {
                        connection.player.is_some_and(|player| team.contains(&player))
                    });
                }
                WorldChange::Entity { entity_id, payload } => {
                    let changed = Some(AppEntityChanged { entity_id, payload });
                    let broadcast = AppBroadcast { entity_changed: changed, ..Default::default() };
                    self.broadcast(broadcast, |connection| connection.entities.contains(&entity_id));
                }
                WorldChange::Alarm { entity_id, title, subscribers } => {
                    self.push_alarm(entity_id, &title, &subscribers)
                }
                WorldChange::Wiped => self.drop_connections(),
            }
        }
    }

    /// The push messages of an alarm; the game sends one in 30 seconds for each device.
    fn push_alarm(&mut self, entity_id: u64, title: &str, subscribers: &[u64]) {
        let (Some(line), now) = (&mut self.push_line, self.world.now()) else { return };
        let told = line.told.insert(entity_id, now);
        if told.is_some_and(|told| now - told < ALARM_COOLDOWN) {
            line.told.extend(told.map(|told| (entity_id, told)));
            return;
        }
        for android_id in subscribers.iter().filter_map(|player| line.devices.get(player)) {
            line.service.push(*android_id, line.server.alarm(title, "Your base is under attack!"));
        }
    }

    fn broadcast(&mut self, broadcast: AppBroadcast, audience: impl Fn(&Connection) -> bool) {
        if !self.connections.values().any(&audience) {
            return;
        }
        let data = self.faults.encode(AppMessage { broadcast: Some(broadcast), ..Default::default() });
        self.connections.retain(|_, connection| {
            let keeps_up = !audience(connection) || connection.outbox.try_send(data.clone()).is_ok();
            if !keeps_up {
                connection.task.abort();
            }
            keeps_up
        });
    }

    fn drop_connections(&mut self) {
        for (_, connection) in self.connections.drain() {
            connection.task.abort();
        }
        self.controllers.clear();
    }

    fn is_full(&self, address: IpAddr) -> bool {
        let of_address = self.connections.values().filter(|connection| connection.address == address).count();
        self.faults.refuse
            || self.connections.len() >= self.limits.connections
            || of_address >= self.limits.connections_per_address
    }
}

impl Faults {
    /// The bytes of a message, with what is wrong with them.
    fn encode(&self, message: AppMessage) -> Bytes {
        if self.rubbish {
            return Bytes::from_static(&[0xFF, 0x07, 0x00, 0x13, 0x37, 0xFF]);
        }
        let mut data = message.encode_to_vec();
        if self.unknown_fields {
            // Field 999, a varint, and field 1000, three bytes.
            data.extend([0xB8, 0x3E, 0x2A, 0xC2, 0x3E, 0x03, b'n', b'e', b'w']);
        }
        if self.truncate {
            data.truncate(data.len() - data.len().div_ceil(3));
        }
        data.into()
    }
}

fn error(seq: u32, text: &str) -> AppResponse {
    AppResponse { seq, error: Some(AppError { error: text.to_owned() }), ..Default::default() }
}

/// Tokens a request costs (protocol §3.5).
fn cost(request: &AppRequest) -> f64 {
    if request.get_map.is_some() {
        5.0
    } else if request.send_team_message.is_some() || request.send_clan_message.is_some() {
        2.0
    } else if request.camera_input.is_some() {
        0.01
    } else {
        1.0
    }
}

async fn tick(shared: Arc<Shared>, every: Duration, time_scale: f64) {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Instant::now();
    loop {
        let now = ticks.tick().await;
        let passed = (now - before).as_secs_f64() * time_scale;
        before = now;
        let mut state = shared.lock();
        if !state.faults.frozen && passed > 0.0 {
            let until = state.world.now() + TimeDelta::microseconds((passed * 1e6) as i64);
            state.world.advance_to(until);
            state.publish();
        }
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of file descriptors, most likely: others must close first.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut state = shared.lock();
        if state.is_full(peer.ip()) {
            if let Ok(permit) = Arc::clone(&shared.refusals).try_acquire_owned() {
                tokio::spawn(async move {
                    // A peer that does not listen is simply left.
                    let _ = timeout(REFUSAL_DEADLINE, refuse(stream)).await;
                    drop(permit);
                });
            }
            continue;
        }
        let id = state.next_connection;
        state.next_connection += 1;
        let (outbox, queue) = mpsc::channel(OUTBOX);
        // The task waits for the lock before it looks itself up, so it finds itself.
        let task = tokio::spawn(serve(Arc::clone(&shared), id, stream, outbox.clone(), queue)).abort_handle();
        let connection =
            Connection { address: peer.ip(), outbox, task, player: None, entities: HashSet::new(), camera: None };
        state.connections.insert(id, connection);
    }
}

/// Writes the refusal, and reads what the peer says: closing over unread bytes would take the refusal back.
async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(&REFUSAL).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Forgets a connection when its task ends, however it ends.
struct Leave {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.connections.remove(&self.id);
        state.end_camera(self.id);
    }
}

/// A request on its way to its answer.
struct Pending(Arc<Shared>);

impl Pending {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.lock().pending += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.lock().pending -= 1;
    }
}

/// One connection from handshake to end.
async fn serve(
    shared: Arc<Shared>,
    id: u64,
    stream: TcpStream,
    outbox: mpsc::Sender<Bytes>,
    mut queue: mpsc::Receiver<Bytes>,
) {
    let _leave = Leave { shared: Arc::clone(&shared), id };
    // Small messages, one answer each: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let config = WebSocketConfig::default()
        .read_buffer_size(8 * 1024)
        .max_message_size(Some(READ_AT_MOST))
        .max_frame_size(Some(READ_AT_MOST));
    let Ok(Ok(socket)) = timeout(HANDSHAKE_DEADLINE, accept_async_with_config(stream, Some(config))).await else {
        return;
    };
    let (mut sink, mut source) = socket.split();
    let mut frames = interval(CAMERA_FRAME_EVERY);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watching = false;
    loop {
        tokio::select! {
            biased;
            Some(data) = queue.recv() => {
                let Ok(Ok(())) = timeout(WRITE_DEADLINE, sink.send(Message::Binary(data))).await else {
                    return;
                };
            }
            message = source.next() => match message {
                Some(Ok(Message::Binary(data))) => {
                    let (verdict, faults) = {
                        let mut state = shared.lock();
                        let verdict = state.receive(id, &data, Instant::now());
                        watching = state.connections.get(&id).is_some_and(|connection| connection.camera.is_some());
                        (verdict, state.faults)
                    };
                    if !follow(&shared, verdict, faults, &outbox) {
                        return;
                    }
                }
                // The library answers pings and closings; a game server ignores text.
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            now = frames.tick(), if watching => {
                let (frame, faults) = {
                    let mut state = shared.lock();
                    let frame = state.camera_frame(id, now);
                    watching = state.connections.get(&id).is_some_and(|connection| connection.camera.is_some());
                    (frame, state.faults)
                };
                if let Some((scene, offset)) = frame {
                    let rays = scene.frame(&shared.order, offset);
                    let broadcast = AppBroadcast { camera_rays: Some(rays), ..Default::default() };
                    let data = faults.encode(AppMessage { broadcast: Some(broadcast), ..Default::default() });
                    if outbox.try_send(data).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Does what was decided; false ends the connection.
fn follow(shared: &Arc<Shared>, verdict: Verdict, faults: Faults, outbox: &mpsc::Sender<Bytes>) -> bool {
    let response = match verdict {
        Verdict::Silence => return true,
        Verdict::Close => return false,
        Verdict::Answer(response) => *response,
    };
    let Some(delay) = faults.delay else { return outbox.try_send(faults.encode(answer(response))).is_ok() };
    let (pending, outbox) = (Pending::new(shared), outbox.clone());
    tokio::spawn(async move {
        sleep(delay).await;
        // A connection that has ended wants no answer.
        let _ = outbox.send(faults.encode(answer(response))).await;
        drop(pending);
    });
    true
}

fn answer(response: AppResponse) -> AppMessage {
    AppMessage { response: Some(response), ..Default::default() }
}
