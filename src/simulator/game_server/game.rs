//! The game behind the connections: the world, the paired players, the clients, the limits and the faults.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use prost::Message as _;
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};

use super::{
    cameras::CameraSessions,
    clients::{ClientQueue, GameClient, GameClients},
    faults::GameServerFaults,
    limits::{Limits, TokenBuckets, cost},
    observed::{ActKind, Observed, PlayerAct},
    pushes::GamePushes,
    requests::{answer, watches_entity},
};
use crate::{
    game::wire::{
        AppBroadcast, AppEntityChanged, AppError, AppMessage, AppNewTeamMessage, AppRequest, AppResponse, AppSuccess,
        AppTeamChanged, AppTeamMessage,
    },
    simulator::{
        scene::Scene,
        world::{GameError, SimulatedWorld, WorldChange},
    },
};

/// The game, shared by the connections behind one lock that is never held across an await.
pub struct SharedGame {
    game: Mutex<SimulatedGame>,
    /// Pixel of each camera sample.
    pub sample_order: Vec<(u16, u16)>,
    /// One permit per refusal under way.
    pub refusals: Semaphore,
}

impl SharedGame {
    pub(crate) fn new(game: SimulatedGame, sample_order: Vec<(u16, u16)>, refusals: Semaphore) -> Self {
        Self { game: Mutex::new(game), sample_order, refusals }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SimulatedGame> {
        self.game.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
pub struct SimulatedGame {
    pub world: SimulatedWorld,
    /// Player token by SteamID64.
    pub players: HashMap<u64, i32>,
    pub faults: GameServerFaults,
    pub clients: GameClients,
    pub cameras: CameraSessions,
    pub pushes: Option<GamePushes>,
    /// Requests whose answer is delayed.
    pub pending: usize,
    /// Maps that were asked for.
    pub maps: usize,
    /// Requests to turn a switch.
    pub toggles: usize,
    pub observed: Observed,
    /// Ends that are sent every line of chat.
    pub readers: Vec<mpsc::UnboundedSender<AppTeamMessage>>,
    limits: Limits,
    map_picture: Option<Bytes>,
    player_tokens: TokenBuckets<u64>,
    address_tokens: TokenBuckets<IpAddr>,
    bad_tokens: TokenBuckets<IpAddr>,
}

/// Answer to a message.
pub enum Reply {
    Send(Box<AppResponse>),
    Nothing,
    /// The connection ends.
    Close,
}

impl SimulatedGame {
    pub(crate) fn new(
        world: SimulatedWorld,
        players: HashMap<u64, i32>,
        limits: Limits,
        map_picture: Option<Bytes>,
    ) -> Self {
        Self {
            world,
            players,
            faults: GameServerFaults::default(),
            clients: GameClients::default(),
            cameras: CameraSessions::default(),
            pushes: None,
            pending: 0,
            maps: 0,
            toggles: 0,
            observed: Observed::default(),
            readers: Vec::new(),
            limits,
            map_picture,
            player_tokens: TokenBuckets::default(),
            address_tokens: TokenBuckets::default(),
            bad_tokens: TokenBuckets::default(),
        }
    }

    /// Admits a new client; `None` if the server is full.
    pub fn admit(&mut self, address: IpAddr) -> Option<ClientQueue> {
        // An address of version 4 has two forms, and one limit.
        let address = address.to_canonical();
        let open = self.clients.count_of(address);
        let full = self.clients.count() >= self.limits.connections || open >= self.limits.connections_per_address;
        self.observed.count(address, |usage| {
            usage.refused += usize::from(full);
            usage.most = usage.most.max(open + usize::from(!full && !self.faults.refuse));
        });
        (!full && !self.faults.refuse).then(|| self.clients.admit(address))
    }

    /// Removes a client that has left.
    pub fn remove(&mut self, client: u64) {
        self.clients.remove(client);
        self.cameras.end(client);
    }

    /// Cuts every connection.
    pub fn drop_connections(&mut self) {
        self.clients.clear();
        self.cameras.end_all();
    }

    /// Cuts the connections of this player.
    pub fn drop_connections_of(&mut self, player: u64) {
        for client in self.clients.of_player(player) {
            self.remove(client);
        }
    }

    /// Handles a message of a client.
    pub fn receive(&mut self, client: u64, data: &[u8], now: Instant) -> Reply {
        let Some(address) = self.clients.get(client).map(|client| client.address) else {
            return Reply::Close;
        };
        if self.faults.frozen || data.len() > self.limits.message_size || self.pending >= self.limits.queue {
            return Reply::Nothing;
        }
        let Ok(request) = AppRequest::decode(data) else {
            return Reply::Close;
        };
        let bad_tokens = self.bad_tokens.tokens(address, self.limits.bad_tokens, now);
        if *bad_tokens < 1.0 {
            return Reply::Close;
        }
        let (seq, player) = (request.seq, request.player_id);
        if self.players.get(&player) != Some(&request.player_token) || self.faults.reject_tokens {
            *bad_tokens -= 1.0;
            self.observed.count(address, |usage| usage.bad_tokens += 1);
            return Reply::Send(error(seq, "not_found").into());
        }
        if self.faults.rate_limit || !self.spend(player, address, cost(&request), now) {
            self.observed.count(address, |usage| usage.rate_limited += usize::from(!self.faults.rate_limit));
            return Reply::Send(error(seq, "rate_limit").into());
        }
        self.bind(client, player);
        self.toggles += usize::from(request.set_entity_value.is_some());
        let stuck = request.set_entity_value.filter(|_| self.faults.stuck);
        let response = match stuck {
            Some(_) => AppResponse { seq, success: Some(AppSuccess {}), ..Default::default() },
            None => match self.handle(client, &request, now) {
                Ok(response) => {
                    self.observe(client, address, &request);
                    response
                }
                Err(refused) => error(seq, refused),
            },
        };
        if self.faults.overtaken && request.get_entity_info.is_some() {
            self.world.flip_device(request.entity_id());
        }
        self.publish();
        Reply::Send(response.into())
    }

    fn spend(&mut self, player: u64, address: IpAddr, cost: f64, now: Instant) -> bool {
        let of_player = self.player_tokens.tokens(player, self.limits.player_tokens, now);
        let of_address = self.address_tokens.tokens(address, self.limits.address_tokens, now);
        let enough = *of_player >= cost && *of_address >= cost;
        if enough {
            *of_player -= cost;
            *of_address -= cost;
        }
        enough
    }

    /// Makes the client get the broadcasts of this player from now on.
    fn bind(&mut self, client: u64, player: u64) {
        if let Some(bound) = self.clients.get_mut(client)
            && bound.player.replace(player).is_some_and(|before| before != player)
        {
            self.observed.count(bound.address, |usage| usage.rebound += 1);
            self.cameras.end(client);
        }
    }

    /// Keeps the act of a request that has succeeded.
    fn observe(&mut self, connection: u64, address: IpAddr, request: &AppRequest) {
        if let Some(kind) = ActKind::of(request) {
            let player = request.player_id;
            let team = self.world.team_of(player).map(|team| team.id());
            self.observed.act(PlayerAct { player, team, connection, address, kind });
        }
    }

    /// The answer to a request that may be served.
    fn handle(&mut self, client: u64, request: &AppRequest, now: Instant) -> Result<AppResponse, GameError> {
        let response = AppResponse { seq: request.seq, ..Default::default() };
        if let Some(wanted) = &request.camera_subscribe {
            let (name, player) = (&wanted.camera_id, request.player_id);
            let info = self.cameras.subscribe(client, player, name, &self.world, &self.faults, now)?;
            return Ok(AppResponse { camera_subscribe_info: Some(info), ..response });
        }
        if request.camera_unsubscribe.is_some() {
            self.cameras.end(client);
            return Ok(AppResponse { success: Some(AppSuccess {}), ..response });
        }
        if let Some(input) = &request.camera_input {
            self.cameras.steer(client, input, &mut self.world)?;
            return Ok(AppResponse { success: Some(AppSuccess {}), ..response });
        }
        if request.send_team_message.is_some() && self.faults.muted {
            return Err("message_not_sent");
        }
        if request.get_team_info.is_some() && self.faults.no_team {
            return Err("no_team");
        }
        self.maps += usize::from(request.get_map.is_some());
        let answer = answer(request, &mut self.world, self.map_picture.as_ref())?;
        if watches_entity(request)
            && let Some(client) = self.clients.get_mut(client)
        {
            client.entities.insert(request.entity_id());
        }
        Ok(answer)
    }

    /// Content of the next camera frame of a client; `None` when there is nothing to send.
    pub fn camera_frame(&mut self, client: u64, now: Instant) -> Option<(Scene, usize)> {
        if self.faults.frozen {
            return None;
        }
        let player = self.clients.get(client)?.player;
        self.cameras.next_frame(client, player, &self.world, now)
    }

    /// Broadcasts what changed in the world. A frozen game does so when it is no longer frozen, a late one later.
    pub fn publish(&mut self) {
        if self.faults.frozen || self.faults.late_broadcasts {
            return;
        }
        for change in self.world.take_changes() {
            match change {
                WorldChange::Team { players } => {
                    for player_id in players {
                        let team_info = self.world.team_info(player_id);
                        let changed = Some(AppTeamChanged { player_id, team_info });
                        let broadcast = AppBroadcast { team_changed: changed, ..Default::default() };
                        self.broadcast(broadcast, |client| client.player == Some(player_id));
                    }
                }
                WorldChange::Chat { players, line } => {
                    self.readers.retain(|reader| reader.send(line.clone()).is_ok());
                    let message = Some(AppNewTeamMessage { message: line });
                    let broadcast = AppBroadcast { team_message: message, ..Default::default() };
                    self.broadcast(broadcast, |client| client.player.is_some_and(|player| players.contains(&player)));
                }
                WorldChange::Entity { entity_id, payload } => {
                    let changed = Some(AppEntityChanged { entity_id, payload });
                    let broadcast = AppBroadcast { entity_changed: changed, ..Default::default() };
                    let to_all = self.faults.unasked_broadcasts;
                    let hears =
                        |client: &GameClient| client.entities.contains(&entity_id) || to_all && client.player.is_some();
                    self.broadcast(broadcast, hears);
                }
                WorldChange::Alarm { entity_id, title, subscribers } => {
                    if let Some(pushes) = &mut self.pushes {
                        pushes.alarm(entity_id, &title, &subscribers, self.world.now());
                    }
                }
                WorldChange::Wiped => self.drop_connections(),
            }
        }
    }

    fn broadcast(&mut self, broadcast: AppBroadcast, audience: impl Fn(&GameClient) -> bool) {
        let message = AppMessage { broadcast: Some(broadcast), ..Default::default() };
        self.clients.broadcast(audience, || self.faults.encode(message));
    }
}

fn error(seq: u32, text: GameError) -> AppResponse {
    AppResponse { seq, error: Some(AppError { error: text.to_owned() }), ..Default::default() }
}
