//! The simulated game servers, what is paired there, and the users who have paired it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use bytes::Bytes;
use chrono::Utc;
use companion::{
    api::context::ApiContext,
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers::{self, StoredPairing},
        smart_devices,
    },
    demo,
    domain::{
        device::DeviceKind,
        ids::{GameServerId, PartId, ServerId},
    },
    simulator::{
        game_server::{DEMO_TOKEN, GameServer, GameServerOptions, Limits},
        push_service::{PushService, PushedServer},
        world::{SimulatedDevice, SimulatedWorld, TEAM},
    },
};

use crate::records::{AlarmWay, LinksOfGame};

pub const GAMES: usize = 6;
/// The members of the team that plays on each of them.
pub const USERS: usize = TEAM.len();
/// Alarms of a pairing with devices: its link asks for all of them whenever it is made, within the game's budget.
const DEVICES: u64 = 12;
/// Alarms of a pairing without: fewer than the titles that a paired server may have open at once.
const PUSHES: u64 = 20;
const FIRST_DEVICE: u64 = 9_000_001;

/// A paired server. All of its alarms come by one way: a push of an unknown title and a device that goes off at the same
/// time are one alarm to the service, as the game does not say better.
pub struct Pairing {
    pub server: String,
    pub game: usize,
    pub user: usize,
    pub way: AlarmWay,
}

/// All pairings: two at each game server, one with devices and one without.
pub fn pairings() -> Vec<Pairing> {
    let of_game = |game: usize| {
        let with_devices = if game.is_multiple_of(2) { AlarmWay::Link } else { AlarmWay::LinkAndPush };
        [(game % USERS, with_devices), ((game + 1) % USERS, AlarmWay::Push)].map(|(user, way)| {
            let server = format!("game-{game}-user-{user}");
            Pairing { server, game, user, way }
        })
    };
    (0..GAMES).flat_map(of_game).collect()
}

impl Pairing {
    /// The number of its alarms.
    pub fn alarms(&self) -> u64 {
        if self.way == AlarmWay::Push { PUSHES } else { DEVICES }
    }

    /// The name of its alarm of this number, which no other alarm has.
    pub fn alarm_name(&self, number: u64) -> String {
        format!("Alarm {number} of {}", self.server)
    }

    fn device(&self, number: u64) -> Option<u64> {
        (self.way != AlarmWay::Push).then_some(FIRST_DEVICE + number)
    }

    /// The entity ids and names of its devices.
    fn devices(&self) -> impl Iterator<Item = (u64, String)> {
        (0..self.alarms()).filter_map(|number| Some((self.device(number)?, self.alarm_name(number))))
    }
}

/// Android id and security token of the phone of this user.
pub fn phone(user: usize) -> (u64, u64) {
    (5_000_000_000_000_000_001 + user as u64, 6_000_000_000_000_000_001 + user as u64)
}

/// A game server. Nothing happens in its world but the alarms.
pub struct Game {
    server: GameServer,
    pushed: PushedServer,
}

impl Game {
    /// Starts the game server of this number. Its limits are no part of the test: all nodes come from one machine.
    pub async fn start(number: usize, seed: u64, pairings: &[Pairing]) -> Self {
        let mut world = SimulatedWorld::new(seed, Utc::now().into());
        let here = || pairings.iter().filter(move |pairing| pairing.game == number);
        for (device, name) in here().flat_map(Pairing::devices) {
            // The test pushes by itself.
            world.add_device(device, &name, SimulatedDevice::Alarm { on: false, subscribers: BTreeSet::new() });
        }
        let options = GameServerOptions {
            players: here().map(|pairing| (TEAM[pairing.user].0, DEMO_TOKEN)).collect(),
            time_scale: 0.0,
            limits: Limits::unlimited(),
            // Drawing the map's picture would hold up everything else on the test's thread.
            map_picture: Some(Bytes::from_static(b"a picture")),
            ..GameServerOptions::new(world)
        };
        let server = GameServer::start(options).await.expect("a free port");
        let address = server.addr();
        let pushed = PushedServer {
            id: format!("5b6ad1f7-7f3c-4a53-9d7e-2f1f6a0c9e{number:02x}"),
            name: format!("Game {number}"),
            ip: address.ip().to_string(),
            port: address.port(),
        };
        Self { server, pushed }
    }

    pub fn port(&self) -> u16 {
        self.server.addr().port()
    }

    /// The part of the service that is its links.
    pub fn part(&self) -> String {
        PartId::links(&GameServerId::at(&self.pushed.ip, self.pushed.port)).to_string()
    }

    /// Raises an alarm. A device stays on.
    pub fn raise(&self, pairing: &Pairing, number: u64, push_first: bool, pushes: &PushService) {
        let name = pairing.alarm_name(number);
        let push = || drop(pushes.push(phone(pairing.user).0, self.pushed.alarm(&name, "Your base is under attack!")));
        let fire = || {
            if let Some(device) = pairing.device(number) {
                self.server.world(|world| world.fire_alarm(device));
            }
        };
        match pairing.way {
            AlarmWay::Link => fire(),
            AlarmWay::Push => push(),
            AlarmWay::LinkAndPush if push_first => {
                push();
                fire();
            }
            AlarmWay::LinkAndPush => {
                fire();
                push();
            }
        }
    }

    /// The number of the last connection, of those that are open.
    pub fn last_connection(&self) -> u64 {
        self.server.clients().last().map_or(0, |client| client.connection)
    }

    /// True if a link was made after the connection of this number, and works.
    pub fn is_linked_since(&self, connection: u64) -> bool {
        self.server.clients().iter().any(|client| client.connection > connection && client.player.is_some())
    }

    /// The addresses from which it has links.
    pub fn links(&self) -> LinksOfGame {
        let addresses: BTreeSet<IpAddr> = self.server.clients().into_iter().map(|client| client.address).collect();
        LinksOfGame { part: self.part(), addresses }
    }
}

/// Stores the users, with their phones, and all pairings, at game servers with these ports; the cookies of the users.
pub async fn fill(context: &ApiContext, ports: &[u16], pairings: &[Pairing]) -> Vec<String> {
    let mut users = Vec::new();
    for (number, (player, name)) in TEAM.into_iter().enumerate() {
        let user = demo::user::sign_in(context, player, name).await.expect("the database answers");
        let uploaded = demo::user::upload_push_credential(context, &user.id, player, phone(number)).await;
        uploaded.expect("the database answers");
        users.push(user);
    }
    let (vault, address) = (&context.keys.vault, Ipv4Addr::LOCALHOST.to_string());
    for pairing in pairings {
        let (server, port) = (ServerId::from(pairing.server.as_str()), ports[pairing.game]);
        let stored = StoredPairing {
            owner: users[pairing.user].id.clone(),
            game_server_id: None,
            name: format!("Game {}", pairing.game),
            address: address.clone(),
            port,
            player_id: TEAM[pairing.user].0.to_string(),
            player_token_sealed: vault.seal_player_token(&server, &address, port, DEMO_TOKEN),
            key_version: vault.key_version(),
        };
        let (devices, now): (Vec<(u64, String)>, _) = (pairing.devices().collect(), context.clock.now());
        let pair = move |db: &mut Db| -> Result<(), DbError> {
            paired_servers::put(db, &server, &stored, now)?;
            devices.iter().try_for_each(|(device, name)| {
                smart_devices::upsert(db, &server, &device.to_string(), DeviceKind::Alarm, name, now)
            })
        };
        context.pool.write(pair).await.expect("the database answers");
    }
    users.into_iter().map(|user| user.cookie).collect()
}
