//! A wall of alarm devices of one server goes off while clients watch. More than a server may have, so that it is worse
//! than what can come.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::Utc;
use companion::{
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        paired_servers::{self, StoredPairing},
        smart_devices,
    },
    demo,
    domain::{device::DeviceKind, ids::ServerId, time::Timestamp},
    simulator::{
        game_server::{DEMO_TOKEN, GameServer, GameServerOptions},
        world::{SimulatedDevice, SimulatedWorld, TEAM},
    },
};
use futures_util::future::join_all;
use tokio::{
    sync::watch,
    time::{interval, timeout},
};

use crate::{
    PATIENCE,
    client::{Client, Received},
    crash::{Installation, binary},
    verdict::{self, IncidentRow, unheard},
};

const DEVICES: u64 = 500;
const FIRST_DEVICE: u64 = 9_100_001;
const BURST: Duration = Duration::from_secs(10);
const CLIENTS: usize = 3;

/// The outcome.
pub struct Wall {
    /// When each device went off.
    pub fired: BTreeMap<String, Timestamp>,
    pub incidents: Vec<IncidentRow>,
    pub clients: Vec<Client>,
}

fn devices() -> impl Iterator<Item = u64> {
    FIRST_DEVICE..FIRST_DEVICE + DEVICES
}

/// The game server, which broadcasts every alarm: to be asked for all of them first would take minutes.
async fn game(seed: u64) -> GameServer {
    let mut world = SimulatedWorld::new(seed, Utc::now().into());
    for device in devices() {
        let alarm = SimulatedDevice::Alarm { on: false, subscribers: BTreeSet::new() };
        world.add_device(device, &format!("Wall {device}"), alarm);
    }
    let options = GameServerOptions { time_scale: 0.0, ..GameServerOptions::new(world) };
    let game = GameServer::start(options).await.unwrap();
    game.faults(|faults| faults.unasked_broadcasts = true);
    game
}

/// Fills the database with a user who has paired all of them; the session cookie.
fn fill(installation: &Installation, server: &ServerId, game: &GameServer) -> String {
    let ((player, name), address) = (TEAM[0], game.addr());
    installation.fill(async |context| {
        let user = demo::user::sign_in(context, player, name).await.unwrap();
        let (vault, now, ip) = (&context.keys.vault, context.clock.now(), address.ip().to_string());
        let pairing = StoredPairing {
            owner: user.id,
            game_server_id: None,
            name: "Wall".to_owned(),
            player_token_sealed: vault.seal_player_token(server, &ip, address.port(), DEMO_TOKEN),
            address: ip,
            port: address.port(),
            player_id: player.to_string(),
            key_version: vault.key_version(),
        };
        let server = server.clone();
        let pair = move |db: &mut Db| -> Result<(), DbError> {
            paired_servers::put(db, &server, &pairing, now)?;
            devices().try_for_each(|device| {
                let (id, name) = (device.to_string(), format!("Wall {device}"));
                smart_devices::upsert(db, &server, &id, DeviceKind::Alarm, &name, now)
            })
        };
        context.pool.write(pair).await.unwrap();
        user.cookie
    })
}

impl Wall {
    /// All go off, and clients watch until the ledger has them as heard of.
    pub async fn go_off(seed: u64) -> Self {
        let (game, server) = (game(seed).await, ServerId::from("wall"));
        let installation = Installation::new(|_| vec!["--allow-private-game-servers=true".to_owned()]);
        let cookie = fill(&installation, &server, &game);
        let pool = Pool::open(&installation.database()).unwrap();
        let service = installation.start();
        let (_up, is_up) = watch::channel(Some(service.addresses.clone()));
        let http = binary::http();
        let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::start(&http, &cookie, &server, &is_up)).collect();
        let is_ready = |received: &Received| {
            let Some(state) = &received.state else { return false };
            let known = state["devices"].as_object().map_or(0, serde_json::Map::len);
            state["server"]["connection"] == "connected" && known == DEVICES as usize
        };
        join_all(clients.iter().map(|client| client.until("link", is_ready))).await;

        let mut fired = BTreeMap::new();
        let mut moments = interval(BURST / DEVICES as u32);
        for device in devices() {
            moments.tick().await;
            fired.insert(device.to_string(), Utc::now().into());
            game.world(|world| world.fire_alarm(device));
        }
        let knows_all = |received: &Received| received.known.len() >= DEVICES as usize;
        join_all(clients.iter().map(|client| client.until("knowledge of all alarms", knows_all))).await;
        // The database does not report its changes.
        let mut looks = interval(Duration::from_millis(20));
        let heard = async {
            while verdict::incidents(&pool).len() < fired.len() || unheard(&pool) > 0 {
                looks.tick().await;
            }
        };
        // Incidents that are unheard then are judged.
        let _ = timeout(PATIENCE, heard).await;
        Self { fired, incidents: verdict::incidents(&pool), clients }
    }

    /// Times until clients knew of each.
    pub fn figures(&self) -> String {
        let age = |received: &Received, row: &IncidentRow| {
            let (fired, known) = (self.fired.get(&row.alarm_id)?, received.known.get(&row.id)?);
            Some((*known - *fired).num_milliseconds())
        };
        let of_client = |client: &Client| {
            client.received(|received| self.incidents.iter().filter_map(|row| age(received, row)).collect::<Vec<_>>())
        };
        let mut ages: Vec<i64> = self.clients.iter().flat_map(of_client).collect();
        ages.sort_unstable();
        let part = |percent: usize| ages.get(ages.len() * percent / 100).copied().unwrap_or_default();
        format!(
            "a wall of {DEVICES} devices in {} s: {} incidents, known to a client after {} ms (p50), {} ms (p99), {} ms at most",
            BURST.as_secs(),
            self.incidents.len(),
            part(50),
            part(99),
            ages.last().copied().unwrap_or_default(),
        )
    }
}
