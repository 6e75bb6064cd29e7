//! The simulated game server and identity provider, from outside: a socket on loopback and nothing else.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use companion::{
    clock::Clock,
    crypto::random::Random,
    domain::time,
    game::{
        camera::{Sample, decode_rays, sample_order},
        wire::*,
    },
    simulator::{
        game_server::{DEMO_TOKEN, GameServer, GameServerFaults, GameServerOptions, Limits},
        identity::IdentityProvider,
        persons,
        point::Point,
        world::{
            BASE_ALARM, FIXED_CAMERA, GATE_SWITCH, LOOT_BOX, SimulatedDevice, SimulatedWorld, TEAM, TOOL_CUPBOARD,
            TURNING_CAMERA,
        },
    },
};
use futures_util::{SinkExt, StreamExt};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Bytes, Message},
};

const LEADER: u64 = TEAM[0].0;
const MARLOW: u64 = TEAM[1].0;
const MARLOWS_TOKEN: i32 = 77;
/// Nothing here takes this long unless it is broken.
const DEADLINE: Duration = Duration::from_secs(20);

fn world() -> SimulatedWorld {
    SimulatedWorld::new(7, time::from_unix(1_790_000_000).expect("a time"))
}

fn options() -> GameServerOptions {
    GameServerOptions {
        players: vec![(LEADER, DEMO_TOKEN), (MARLOW, MARLOWS_TOKEN)],
        time_scale: 0.0,
        ..GameServerOptions::new(world())
    }
}

async fn server() -> GameServer {
    GameServer::start(options()).await.expect("a free port")
}

struct Peer {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    player_id: u64,
    player_token: i32,
    seq: u32,
    broadcasts: Vec<AppBroadcast>,
}

impl Peer {
    async fn connect(server: &GameServer) -> Self {
        Self::connect_as(server, LEADER, DEMO_TOKEN).await
    }

    async fn connect_as(server: &GameServer, player_id: u64, player_token: i32) -> Self {
        let (socket, _) = connect_async(format!("ws://{}/any/path?v=1", server.addr())).await.expect("an upgrade");
        Self { socket, player_id, player_token, seq: 0, broadcasts: Vec::new() }
    }

    async fn send(&mut self, request: AppRequest) -> u32 {
        self.seq += 1;
        let (seq, player_id, player_token) = (self.seq, self.player_id, self.player_token);
        let request = AppRequest { seq, player_id, player_token, ..request };
        self.socket.send(Message::binary(request.encode_to_vec())).await.expect("an open socket");
        seq
    }

    /// The next binary message as bytes; `None` at the end of the connection.
    async fn next_bytes(&mut self) -> Option<Bytes> {
        loop {
            match timeout(DEADLINE, self.socket.next()).await.expect("a message in time") {
                Some(Ok(Message::Binary(data))) => return Some(data),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    async fn next(&mut self) -> AppMessage {
        AppMessage::decode(self.next_bytes().await.expect("an open connection")).expect("a message")
    }

    async fn ask(&mut self, request: AppRequest) -> AppResponse {
        let seq = self.send(request).await;
        loop {
            let message = self.next().await;
            if let Some(response) = message.response {
                assert_eq!(response.seq, seq);
                return response;
            }
            self.broadcasts.extend(message.broadcast);
        }
    }

    async fn refusal(&mut self, request: AppRequest) -> String {
        self.ask(request).await.error.expect("a refusal").error
    }

    async fn broadcast(&mut self) -> AppBroadcast {
        if !self.broadcasts.is_empty() {
            return self.broadcasts.remove(0);
        }
        self.next().await.broadcast.expect("a broadcast")
    }

    async fn entity_changed(&mut self) -> AppEntityChanged {
        self.broadcast().await.entity_changed.expect("entityChanged")
    }

    /// What was broadcast until now: the answer to a request comes behind it.
    async fn broadcasts_so_far(&mut self) -> Vec<AppBroadcast> {
        self.ask(get_time()).await;
        std::mem::take(&mut self.broadcasts)
    }
}

fn get_info() -> AppRequest {
    AppRequest { get_info: Some(AppEmpty {}), ..Default::default() }
}

fn get_time() -> AppRequest {
    AppRequest { get_time: Some(AppEmpty {}), ..Default::default() }
}

fn get_team() -> AppRequest {
    AppRequest { get_team_info: Some(AppEmpty {}), ..Default::default() }
}

fn get_markers() -> AppRequest {
    AppRequest { get_map_markers: Some(AppEmpty {}), ..Default::default() }
}

fn get_entity(entity_id: u64) -> AppRequest {
    AppRequest { entity_id: Some(entity_id), get_entity_info: Some(AppEmpty {}), ..Default::default() }
}

fn set_entity(entity_id: u64, value: bool) -> AppRequest {
    let set_entity_value = Some(AppSetEntityValue { value });
    AppRequest { entity_id: Some(entity_id), set_entity_value, ..Default::default() }
}

fn say(text: &str) -> AppRequest {
    AppRequest { send_team_message: Some(AppSendMessage { message: text.to_owned() }), ..Default::default() }
}

fn subscribe(camera: &str) -> AppRequest {
    let camera_subscribe = Some(AppCameraSubscribe { camera_id: camera.to_owned() });
    AppRequest { camera_subscribe, ..Default::default() }
}

fn steer(buttons: i32, x: f32, y: f32) -> AppRequest {
    let mouse_delta = Vector2 { x: Some(x), y: Some(y) };
    AppRequest { camera_input: Some(AppCameraInput { buttons, mouse_delta }), ..Default::default() }
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits")).collect()
}

#[test]
fn messages_are_byte_exact() {
    let requests = [
        (
            AppRequest { seq: 1, player_token: -123456789, ..get_info() },
            "08 01 10 81 98 f9 92 90 80 80 88 01 18 eb e5 90 c5 ff ff ff ff ff 01 42 00",
        ),
        (
            AppRequest { seq: 2, player_token: 123456789, ..set_entity(4242, false) },
            "08 02 10 81 98 f9 92 90 80 80 88 01 18 95 9a ef 3a 20 92 21 7a 02 08 00",
        ),
        (
            AppRequest { seq: 3, player_token: -1, ..steer(1024, 0.0, 0.0) },
            "08 03 10 81 98 f9 92 90 80 80 88 01 18 ff ff ff ff ff ff ff ff ff 01 82 02 0f 08 80 08 12 0a 0d 00 00 00 \
             00 15 00 00 00 00",
        ),
    ];
    for (request, hex) in requests {
        let request = AppRequest { player_id: 76561198000000001, ..request };
        assert_eq!(request.encode_to_vec(), bytes(hex));
        assert_eq!(AppRequest::decode(&bytes(hex)[..]), Ok(request));
    }
    let error = Some(AppError { error: "not_found".to_owned() });
    let payload = AppEntityPayload { value: Some(false), ..Default::default() };
    let entity_changed = Some(AppEntityChanged { entity_id: 4242, payload });
    let messages = [
        (
            AppMessage { response: Some(AppResponse { seq: 1, error, ..Default::default() }), ..Default::default() },
            "0a 0f 08 01 2a 0b 0a 09 6e 6f 74 5f 66 6f 75 6e 64",
        ),
        (
            AppMessage {
                response: Some(AppResponse { seq: 2, success: Some(AppSuccess {}), ..Default::default() }),
                ..Default::default()
            },
            "0a 04 08 02 22 00",
        ),
        (
            AppMessage { broadcast: Some(AppBroadcast { entity_changed, ..Default::default() }), ..Default::default() },
            "12 09 32 07 08 92 21 12 02 08 00",
        ),
    ];
    for (message, hex) in messages {
        assert_eq!(message.encode_to_vec(), bytes(hex));
        assert_eq!(AppMessage::decode(&bytes(hex)[..]), Ok(message));
    }
}

#[test]
fn a_missing_required_field_is_read_as_its_default() {
    // setEntityValue as an empty sub-message, as the Python client sends `false`.
    let request = AppRequest::decode(&bytes("08 02 20 92 21 7a 00")[..]).expect("a lenient decoder");
    assert_eq!(request.set_entity_value, Some(AppSetEntityValue { value: false }));
    assert_eq!(request.player_id, 0);
}

#[actix_web::test]
async fn answers_info_time_team_chat_and_markers() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let info = peer.ask(get_info()).await.info.expect("info");
    assert_eq!((info.map_size, info.cameras_enabled), (4000, Some(true)));
    assert!(info.wipe_time > 1_789_000_000 && info.max_players >= info.players);
    let time = peer.ask(get_time()).await.time.expect("time");
    assert!((0.0..24.0).contains(&time.time) && time.sunrise < time.sunset);
    let team = peer.ask(get_team()).await.team_info.expect("team");
    assert_eq!((team.leader_steam_id, team.members.len()), (LEADER, 4));
    assert!(team.members.iter().any(|member| member.steam_id == LEADER && !member.is_online && member.is_alive));
    let chat = AppRequest { get_team_chat: Some(AppEmpty {}), ..Default::default() };
    assert!(peer.ask(chat).await.team_chat.expect("chat").messages.is_empty());
    let markers = peer.ask(get_markers()).await.map_markers.expect("markers").markers;
    let shops = markers.iter().filter(|marker| marker.r#type == AppMarkerType::VendingMachineMarker as i32).count();
    assert_eq!(shops, 41);
    assert!(markers.iter().all(|marker| marker.id < 1 << 32));
    let ids: HashSet<u64> = markers.iter().map(|marker| marker.id).collect();
    assert_eq!(ids.len(), markers.len());
}

#[actix_web::test]
async fn map_is_a_picture_with_monuments() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let request = AppRequest { get_map: Some(AppEmpty {}), ..Default::default() };
    let map = peer.ask(request).await.map.expect("a map");
    let picture = image::load_from_memory(&map.jpg_image).expect("a JPEG");
    assert_eq!((picture.width(), picture.height()), (map.width, map.height));
    for token in
        ["oil_rig_small", "large_oil_rig", "harbor_display_name", "harbor_2_display_name", "outpost", "launchsite"]
    {
        assert!(map.monuments.iter().any(|monument| monument.token == token), "{token}");
    }
}

#[actix_web::test]
async fn switch_tells_its_subscribers_only_when_it_changes() {
    let server = server().await;
    let (mut peer, mut other) = (Peer::connect(&server).await, Peer::connect(&server).await);
    let info = peer.ask(get_entity(GATE_SWITCH)).await.entity_info.expect("entity info");
    assert_eq!((info.r#type, info.payload.value), (AppEntityType::Switch as i32, Some(false)));
    other.ask(get_info()).await;
    assert!(peer.ask(set_entity(GATE_SWITCH, false)).await.success.is_some());
    assert!(peer.broadcasts_so_far().await.is_empty(), "nothing changed");
    assert!(peer.ask(set_entity(GATE_SWITCH, true)).await.success.is_some());
    let changed = peer.entity_changed().await;
    assert_eq!((changed.entity_id, changed.payload.value), (GATE_SWITCH, Some(true)));
    assert!(other.broadcasts_so_far().await.is_empty(), "never asked for the entity");
    let asked_again = peer.ask(get_entity(GATE_SWITCH)).await.entity_info.expect("entity info");
    assert_eq!(asked_again.payload.value, Some(true));
}

#[actix_web::test]
async fn alarm_fires_and_is_released() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_entity(BASE_ALARM)).await.entity_info.expect("entity info");
    server.world(|world| {
        world.fire_alarm(BASE_ALARM);
        world.fire_alarm(BASE_ALARM);
        world.release_alarm(BASE_ALARM);
    });
    assert_eq!(peer.entity_changed().await.payload.value, Some(true));
    assert_eq!(peer.entity_changed().await.payload.value, Some(false));
    assert!(peer.broadcasts_so_far().await.is_empty());
}

#[actix_web::test]
async fn storage_monitor_broadcasts_twice() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let cupboard = peer.ask(get_entity(TOOL_CUPBOARD)).await.entity_info.expect("entity info").payload;
    assert_eq!((cupboard.capacity, cupboard.has_protection), (Some(29), Some(true)));
    assert!(cupboard.protection_expiry() > 1_790_000_000);
    peer.ask(get_entity(LOOT_BOX)).await.entity_info.expect("entity info");
    server.world(|world| world.set_storage(LOOT_BOX, vec![(-932201673, 12)]));
    let first = peer.entity_changed().await.payload;
    assert_eq!((first.value, first.items[0].quantity), (Some(true), 12));
    assert!(peer.broadcasts_so_far().await.is_empty(), "the second comes half a second later");
    server.advance(Duration::from_millis(500));
    let second = peer.entity_changed().await.payload;
    assert_eq!((second.value, second.items[0].quantity), (Some(false), 12));
}

#[actix_web::test]
async fn chat_reaches_the_team_and_the_sender() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let mut mate = Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await;
    mate.ask(get_info()).await;
    assert!(peer.ask(say("  hello  ")).await.success.is_some());
    for line in [peer.broadcast().await, mate.broadcast().await] {
        let line = line.team_message.expect("teamMessage").message;
        assert_eq!((line.steam_id, line.message.as_str(), line.name.as_str()), (LEADER, "hello", "Nox"));
    }
    assert!(peer.ask(say("   ")).await.success.is_some());
    assert!(peer.broadcasts_so_far().await.is_empty(), "an empty line is not sent");
    peer.ask(say(&"ä".repeat(300))).await;
    let long = peer.broadcast().await.team_message.expect("teamMessage").message.message;
    assert_eq!((long.chars().count(), long.chars().last()), (256, Some('…')));
    let chat = AppRequest { get_team_chat: Some(AppEmpty {}), ..Default::default() };
    assert_eq!(peer.ask(chat).await.team_chat.expect("chat").messages.len(), 2);
}

#[actix_web::test]
async fn team_changes_are_broadcast_whole() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_info()).await;
    server.world(|world| world.kill(MARLOW));
    let changed = peer.broadcast().await.team_changed.expect("teamChanged");
    assert_eq!((changed.player_id, changed.team_info.members.len()), (LEADER, 4));
    let marlow = changed.team_info.members.iter().find(|member| member.steam_id == MARLOW).expect("a member");
    assert!(!marlow.is_alive && marlow.death_time > 0);
    server.world(|world| {
        world.respawn(MARLOW);
        world.set_online(MARLOW, false);
    });
    peer.broadcast().await.team_changed.expect("respawned");
    let changed = peer.broadcast().await.team_changed.expect("logged out");
    assert!(changed.team_info.members.iter().any(|member| member.steam_id == MARLOW && !member.is_online));

    let mut mate = Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await;
    let promote =
        |steam_id| AppRequest { promote_to_leader: Some(AppPromoteToLeader { steam_id }), ..Default::default() };
    let kick = |steam_id| AppRequest { kick_from_team: Some(AppTeamKick { steam_id }), ..Default::default() };
    assert_eq!(mate.refusal(promote(MARLOW)).await, "access_denied");
    assert_eq!(mate.refusal(kick(LEADER)).await, "access_denied");
    assert_eq!(peer.refusal(promote(1)).await, "not_found");
    assert!(peer.ask(kick(MARLOW)).await.success.is_some());
    let left = mate.broadcast().await.team_changed.expect("the kicked one is told").team_info;
    assert_eq!((left.leader_steam_id, left.members.len()), (MARLOW, 1));
    let left = peer.broadcast().await.team_changed.expect("so is the team").team_info;
    assert_eq!(left.members.len(), 3);
    let chat = AppRequest { get_team_chat: Some(AppEmpty {}), ..Default::default() };
    assert_eq!(mate.refusal(chat).await, "no_team");
    assert_eq!(mate.refusal(say("hello?")).await, "no_team");
    assert_eq!(mate.refusal(promote(MARLOW)).await, "no_team");
}

#[actix_web::test]
async fn refusals_have_the_games_words() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let check = |id| AppRequest { entity_id: Some(id), check_subscription: Some(AppEmpty {}), ..Default::default() };
    assert_eq!(peer.refusal(get_entity(1)).await, "not_found");
    assert_eq!(peer.refusal(set_entity(1, true)).await, "not_found");
    assert_eq!(peer.refusal(set_entity(BASE_ALARM, true)).await, "wrong_type");
    assert_eq!(peer.refusal(check(GATE_SWITCH)).await, "wrong_type");
    assert_eq!(peer.refusal(AppRequest::default()).await, "unhandled");
    let clan = AppRequest { get_clan_info: Some(AppEmpty {}), ..Default::default() };
    assert_eq!(peer.refusal(clan).await, "no_clan");
    server.world(|world| world.destroy_device(GATE_SWITCH));
    assert_eq!(peer.refusal(get_entity(GATE_SWITCH)).await, "not_found");

    assert!(peer.ask(check(BASE_ALARM)).await.flag.expect("a flag").value);
    let set_subscription = Some(AppFlag { value: false });
    let off = AppRequest { entity_id: Some(BASE_ALARM), set_subscription, ..Default::default() };
    assert!(peer.ask(off.clone()).await.success.is_some());
    assert!(!peer.ask(check(BASE_ALARM)).await.flag.expect("a flag").value);
    let subscribers = (0..20).collect();
    server.world(|world| world.add_device(9, "Full", SimulatedDevice::Alarm { on: false, subscribers }));
    let set_subscription = Some(AppFlag { value: true });
    let on = AppRequest { entity_id: Some(9), set_subscription, ..Default::default() };
    assert_eq!(peer.refusal(on).await, "too_many_subscribers");
}

#[actix_web::test]
async fn wrong_token_is_not_found_and_the_connection_stays() {
    let server = server().await;
    let mut peer = Peer::connect_as(&server, LEADER, 1).await;
    assert_eq!(peer.refusal(get_info()).await, "not_found");
    assert_eq!(peer.refusal(get_markers()).await, "not_found");
    server.world(|world| world.kill(MARLOW));
    peer.player_token = DEMO_TOKEN;
    assert!(peer.broadcasts_so_far().await.is_empty(), "not bound before the first valid request");
    server.set_token(LEADER, None);
    assert_eq!(peer.refusal(get_info()).await, "not_found");
}

#[actix_web::test]
async fn repeated_wrong_tokens_end_the_connection() {
    let limits = Limits { bad_tokens: (3.0, 0.0), ..Default::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let mut peer = Peer::connect_as(&server, LEADER, 1).await;
    for _ in 0..3 {
        assert_eq!(peer.refusal(get_info()).await, "not_found");
    }
    peer.send(get_info()).await;
    assert_eq!(peer.next_bytes().await, None);
    let mut honest = Peer::connect(&server).await;
    honest.send(get_info()).await;
    assert_eq!(honest.next_bytes().await, None, "the address is cut off, whatever the token");
}

#[actix_web::test]
async fn rebinding_moves_the_broadcasts() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    assert!(peer.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.is_some());
    (peer.player_id, peer.player_token) = (MARLOW, MARLOWS_TOKEN);
    peer.ask(get_info()).await;
    peer.broadcasts.clear();
    server.world(|world| world.set_online(TEAM[2].0, false));
    let changed = peer.broadcast().await.team_changed.expect("teamChanged");
    assert_eq!(changed.player_id, MARLOW);
    assert_eq!(peer.refusal(steer(0, 0.0, 0.0)).await, "no_camera");
}

#[actix_web::test]
async fn player_bucket_holds_25_tokens() {
    let limits = Limits { player_tokens: (25.0, 0.0), ..Default::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let mut peer = Peer::connect(&server).await;
    peer.ask(AppRequest { get_map: Some(AppEmpty {}), ..Default::default() }).await.map.expect("5 tokens");
    peer.ask(say("one")).await.success.expect("2 tokens");
    for _ in 0..17 {
        peer.ask(get_info()).await.info.expect("1 token");
    }
    assert_eq!(peer.refusal(say("no")).await, "rate_limit");
    peer.ask(get_info()).await.info.expect("the last token");
    assert_eq!(peer.refusal(get_info()).await, "rate_limit");
    let mut mate = Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await;
    mate.ask(get_info()).await.info.expect("another player, another bucket");
}

#[actix_web::test]
async fn address_bucket_is_shared_by_its_players() {
    let limits = Limits { address_tokens: (4.0, 0.0), ..Default::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let mut peer = Peer::connect(&server).await;
    let mut mate = Peer::connect_as(&server, MARLOW, MARLOWS_TOKEN).await;
    for peer in [&mut peer, &mut mate] {
        peer.ask(get_info()).await.info.expect("1 token");
        peer.ask(get_time()).await.time.expect("1 token");
    }
    assert_eq!(peer.refusal(get_info()).await, "rate_limit");
    assert_eq!(mate.refusal(get_info()).await, "rate_limit");
}

async fn raw_bytes_of(addr: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.expect("a listener");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: game\r\n\r\n").await.expect("an open socket");
    let mut bytes = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("an end in time").expect("an orderly end");
    bytes
}

#[actix_web::test]
async fn sixth_connection_of_an_address_gets_the_refusal_bytes() {
    let server = server().await;
    let mut peers = Vec::new();
    for _ in 0..5 {
        peers.push(Peer::connect(&server).await);
    }
    assert_eq!(server.connections(), 5);
    assert_eq!(raw_bytes_of(server.addr()).await, [0x88, 0x02, 0x03, 0xE8]);
    for peer in &mut peers {
        peer.ask(get_info()).await.info.expect("the others are untouched");
    }
}

#[actix_web::test]
async fn handshake_declines_compression() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.addr()).await.expect("a listener");
    let request = "GET /x?y=z HTTP/1.1\r\nHost: game\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Origin: http://elsewhere.test\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("an open socket");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, stream.read_u8()).await.expect("a head in time").expect("a head"));
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(!head.contains("sec-websocket-extensions"), "{head}");
}

#[actix_web::test]
async fn too_large_and_text_are_ignored_and_rubbish_closes() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.socket.send(Message::binary(vec![0; (1 << 20) + 1])).await.expect("an open socket");
    peer.socket.send(Message::text("hello")).await.expect("an open socket");
    peer.ask(get_info()).await.info.expect("still open, nothing answered before");
    peer.socket.send(Message::binary(vec![0xFF; 8])).await.expect("an open socket");
    assert_eq!(peer.next_bytes().await, None);
}

#[actix_web::test]
async fn frozen_server_pongs_and_nothing_else() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_info()).await;
    server.faults(|faults| faults.frozen = true);
    peer.send(get_info()).await;
    server.world(|world| world.kill(MARLOW));
    peer.socket.send(Message::Ping("?".into())).await.expect("an open socket");
    let answer = timeout(DEADLINE, peer.socket.next()).await.expect("in time").expect("open").expect("a frame");
    assert_eq!(answer, Message::Pong("?".into()));
    server.faults(|faults| *faults = GameServerFaults::default());
    peer.broadcast().await.team_changed.expect("told when it thaws");
    peer.ask(get_info()).await.info.expect("answers again");
}

#[actix_web::test]
async fn faults_spoil_what_they_say() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    server.faults(|faults| faults.rate_limit = true);
    assert_eq!(peer.refusal(get_info()).await, "rate_limit");
    server.faults(|faults| *faults = GameServerFaults { reject_tokens: true, ..GameServerFaults::default() });
    assert_eq!(peer.refusal(get_info()).await, "not_found");
    server.faults(|faults| *faults = GameServerFaults { unknown_fields: true, ..GameServerFaults::default() });
    peer.ask(get_info()).await.info.expect("unknown fields are skipped");
    for faults in [
        GameServerFaults { rubbish: true, ..GameServerFaults::default() },
        GameServerFaults { truncate: true, ..GameServerFaults::default() },
    ] {
        server.faults(|current| *current = faults);
        peer.send(get_info()).await;
        let data = peer.next_bytes().await.expect("an open connection");
        assert!(AppMessage::decode(data).is_err());
    }
    server.faults(|faults| *faults = GameServerFaults { refuse: true, ..GameServerFaults::default() });
    assert_eq!(raw_bytes_of(server.addr()).await, [0x88, 0x02, 0x03, 0xE8]);
    server.faults(|faults| {
        *faults = GameServerFaults { delay: Some(Duration::from_millis(20)), ..GameServerFaults::default() }
    });
    peer.ask(get_info()).await.info.expect("late, but right");
}

#[actix_web::test]
async fn waiting_requests_beyond_the_queue_get_no_answer() {
    let limits = Limits { queue: 2, ..Default::default() };
    let server = GameServer::start(GameServerOptions { limits, ..options() }).await.expect("a free port");
    let mut peer = Peer::connect(&server).await;
    server.faults(|faults| faults.delay = Some(Duration::from_secs(1)));
    for _ in 0..4 {
        peer.send(get_info()).await;
    }
    let mut answered = vec![peer.next().await.response.expect("an answer").seq];
    answered.push(peer.next().await.response.expect("an answer").seq);
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);
    server.faults(|faults| faults.delay = None);
    peer.ask(get_info()).await.info.expect("the third and fourth were dropped");
}

#[actix_web::test]
async fn peer_that_does_not_read_is_dropped() {
    let server = server().await;
    let (mut peer, mut other) = (Peer::connect(&server).await, Peer::connect_as(&server, 5, 5).await);
    peer.ask(get_info()).await;
    server.world(|world| (0..2000).for_each(|_| world.say(LEADER, &"x".repeat(200))));
    assert_eq!(server.connections(), 1);
    assert_eq!(other.refusal(get_info()).await, "not_found", "the others are untouched");
    while peer.next_bytes().await.is_some() {}
}

#[actix_web::test]
async fn restart_and_dropped_connections_end_subscriptions() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_entity(GATE_SWITCH)).await;
    server.drop_connections();
    assert_eq!(peer.next_bytes().await, None);
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_info()).await;
    server.world(|world| world.set_switch(GATE_SWITCH, true)).expect("a switch");
    assert!(peer.broadcasts_so_far().await.is_empty(), "the subscription ended with the connection");
    server.stop().await;
    assert_eq!(peer.next_bytes().await, None);
    assert!(TcpStream::connect(server.addr()).await.is_err(), "nobody listens");
    server.restart().await.expect("the same port");
    let mut peer = Peer::connect(&server).await;
    let info = peer.ask(get_entity(GATE_SWITCH)).await.entity_info.expect("the world survives");
    assert_eq!(info.payload.value, Some(true));
}

#[actix_web::test]
async fn wipe_is_a_restart_with_another_map_and_no_devices() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let before = peer.ask(get_info()).await.info.expect("info");
    server.wipe();
    assert_eq!(peer.next_bytes().await, None);
    let mut peer = Peer::connect(&server).await;
    let after = peer.ask(get_info()).await.info.expect("the token survives");
    assert_ne!(after.seed, before.seed);
    assert!(after.wipe_time > before.wipe_time + 60);
    assert_eq!(peer.refusal(get_entity(GATE_SWITCH)).await, "not_found");
}

#[actix_web::test]
async fn camera_streams_a_whole_picture() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let info = peer.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.expect("a camera");
    assert_eq!((info.width, info.height, info.control_flags), (160, 90, 10));
    let order = sample_order(160, 90);
    let mut picture = vec![None; order.len()];
    for frame in 0..5 {
        let rays = peer.broadcast().await.camera_rays.expect("cameraRays");
        assert_eq!(rays.sample_offset, frame * 3000);
        let samples = decode_rays(&rays.ray_data).expect("whole samples");
        assert_eq!(samples.len(), 3000);
        assert!(rays.entities.iter().any(|entity| entity.r#type == 1));
        for (n, sample) in samples.into_iter().enumerate() {
            let (x, y) = order[(rays.sample_offset as usize + n) % order.len()];
            picture[usize::from(y) * 160 + usize::from(x)] = Some(sample);
        }
    }
    let picture: Vec<Sample> = picture.into_iter().map(|sample| sample.expect("every pixel is covered")).collect();
    assert!(picture[89 * 160..].iter().all(|sample| *sample == Sample::SKY), "y counts upwards: sky in the last row");
    assert!(picture[..160].iter().all(|sample| *sample != Sample::SKY), "ground in the first");
    let stopped = AppRequest { camera_unsubscribe: Some(AppEmpty {}), ..Default::default() };
    assert!(peer.ask(stopped).await.success.is_some());
    assert_eq!(peer.refusal(steer(0, 1.0, 0.0)).await, "no_camera");
}

#[actix_web::test]
async fn camera_turns_and_zooms_for_the_one_who_steers() {
    let server = server().await;
    let (mut peer, mut other) = (Peer::connect(&server).await, Peer::connect(&server).await);
    assert_eq!(peer.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.expect("a camera").control_flags, 10);
    assert_eq!(other.ask(subscribe(TURNING_CAMERA)).await.camera_subscribe_info.expect("a camera").control_flags, 0);
    let before = server.world(|world| *world.camera(TURNING_CAMERA).expect("a camera"));
    other.ask(steer(0, 10.0, 0.0)).await.success.expect("acknowledged and ignored");
    assert_eq!(server.world(|world| world.camera(TURNING_CAMERA).map(|camera| camera.yaw)), Some(before.yaw));
    for buttons in [1024, 0] {
        peer.ask(steer(buttons, 5.0, f32::NAN)).await.success.expect("acknowledged");
    }
    peer.ask(steer(0, 10.0, 2.0)).await.success.expect("acknowledged");
    let after = server.world(|world| *world.camera(TURNING_CAMERA).expect("a camera"));
    assert!(after.yaw != before.yaw && after.pitch != before.pitch && after.zoom == 1);
    let zoomed = loop {
        let rays = peer.broadcast().await.camera_rays.expect("cameraRays");
        if rays.vertical_fov < 65.0 {
            break rays.vertical_fov;
        }
    };
    assert_eq!(zoomed, 43.33);
}

#[actix_web::test]
async fn camera_refusals_come_in_the_games_order() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    assert_eq!(peer.refusal(subscribe("")).await, "invalid_id");
    assert_eq!(peer.refusal(subscribe("NOWHERE")).await, "not_found");
    assert_eq!(peer.refusal(subscribe("OILRIG1DOCK")).await, "access_denied");
    assert_eq!(peer.refusal(steer(0, 0.0, 0.0)).await, "no_camera");
    server.world(|world| world.set_online(LEADER, true));
    assert_eq!(peer.refusal(subscribe(FIXED_CAMERA)).await, "player_online");
    server.world(|world| world.kill(LEADER));
    assert_eq!(peer.refusal(subscribe(FIXED_CAMERA)).await, "no_player");
    server.world(|world| {
        world.respawn(LEADER);
        world.set_online(LEADER, false);
    });
    assert_eq!(peer.ask(subscribe(FIXED_CAMERA)).await.camera_subscribe_info.expect("a camera").control_flags, 0);
}

#[actix_web::test]
async fn markers_come_move_and_go_by_hand() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let explosion = AppMarker { r#type: AppMarkerType::ExplosionMarker as i32, x: 1.0, y: 2.0, ..Default::default() };
    let id = server.world(|world| world.add_marker(explosion));
    let find = |markers: AppMapMarkers| markers.markers.into_iter().find(|marker| marker.id == id);
    let marker = find(peer.ask(get_markers()).await.map_markers.expect("markers")).expect("the marker");
    assert_eq!((marker.x, marker.y), (1.0, 2.0));
    server.world(|world| world.move_marker(id, Point::new(5.0, 6.0)));
    let marker = find(peer.ask(get_markers()).await.map_markers.expect("markers")).expect("the marker");
    assert_eq!((marker.x, marker.y), (5.0, 6.0));
    server.world(|world| world.remove_marker(id));
    assert!(find(peer.ask(get_markers()).await.map_markers.expect("markers")).is_none());
}

#[actix_web::test]
async fn a_running_clock_moves_the_team() {
    let running = GameServerOptions { time_scale: 50.0, tick: Duration::from_millis(10), ..options() };
    let server = GameServer::start(running).await.expect("a free port");
    let mut peer = Peer::connect(&server).await;
    peer.ask(get_info()).await;
    timeout(DEADLINE, async {
        loop {
            if peer.broadcast().await.team_message.is_some() {
                break;
            }
        }
    })
    .await
    .expect("the script speaks after five seconds of its time");
}

// The identity provider

struct Browser {
    addr: SocketAddr,
}

impl Browser {
    /// Head and body of the answer.
    async fn send(&self, method: &str, path: &str, form: &[(&str, &str)]) -> (String, String) {
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let (path, body) =
            if method == "GET" { (format!("{path}?{form}"), String::new()) } else { (path.to_owned(), form) };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
            self.addr,
            body.len()
        );
        let mut stream = TcpStream::connect(self.addr).await.expect("a listener");
        stream.write_all(request.as_bytes()).await.expect("an open socket");
        let mut answer = Vec::new();
        timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("an end in time").expect("an orderly end");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }
}

fn location(head: &str) -> url::Url {
    let line = head.lines().find_map(|line| line.strip_prefix("location: ")).expect("a redirect");
    line.parse().expect("an address")
}

const RETURN_TO: &str = "http://127.0.0.1:8080/auth/platform/callback?state=abc";
const SETUP: [(&str, &str); 6] = [
    ("openid.ns", "http://specs.openid.net/auth/2.0"),
    ("openid.mode", "checkid_setup"),
    ("openid.claimed_id", "http://specs.openid.net/auth/2.0/identifier_select"),
    ("openid.identity", "http://specs.openid.net/auth/2.0/identifier_select"),
    ("openid.return_to", RETURN_TO),
    ("openid.realm", "http://127.0.0.1:8080/"),
];

async fn provider() -> (IdentityProvider, Browser) {
    let provider =
        IdentityProvider::start((Ipv4Addr::LOCALHOST, 0).into(), persons(), Clock::system(), Random::system())
            .await
            .expect("a free port");
    let addr = provider.addr();
    (provider, Browser { addr })
}

#[actix_web::test]
async fn sign_in_takes_one_click_and_is_confirmed_once() {
    let (provider, browser) = provider().await;
    let (head, page) = browser.send("GET", "/openid/login", &SETUP).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(page.contains("Nox") && page.contains(&LEADER.to_string()));
    let mut clicked = SETUP.to_vec();
    let id = LEADER.to_string();
    clicked.push(("person", &id));
    let (head, _) = browser.send("POST", "/openid/choose", &clicked).await;
    assert!(head.starts_with("HTTP/1.1 302"), "{head}");
    let url = location(&head);
    assert!(url.as_str().starts_with(RETURN_TO));
    let answer: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let field = |name: &str| answer.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str());
    assert_eq!(field("state"), Some("abc"));
    assert_eq!(field("openid.mode"), Some("id_res"));
    assert_eq!(field("openid.op_endpoint"), Some(&*provider.login_url()));
    assert_eq!(field("openid.claimed_id"), Some(&*format!("{}{LEADER}", provider.claimed_id_prefix())));
    assert_eq!(field("openid.identity"), field("openid.claimed_id"));
    assert_eq!(field("openid.return_to"), Some(RETURN_TO));

    let check = |change: Option<(&'static str, &'static str)>| {
        answer
            .iter()
            .filter(|(name, _)| name.starts_with("openid."))
            .map(|(name, value)| match change {
                Some((changed, to)) if changed == name => (name.as_str(), to),
                _ if name == "openid.mode" => (name.as_str(), "check_authentication"),
                _ => (name.as_str(), value.as_str()),
            })
            .collect::<Vec<_>>()
    };
    let forged = Some(("openid.claimed_id", "http://127.0.0.1/openid/id/76561198000000002"));
    for (change, expected) in [
        (forged, "is_valid:false\n"),
        (Some(("openid.signed", "signed")), "is_valid:false\n"),
        (Some(("openid.mode", "id_res")), "error:Unknown mode\n"),
        (None, "is_valid:true\n"),
        (None, "is_valid:false\n"),
    ] {
        let (_, body) = browser.send("POST", "/openid/login", &check(change)).await;
        assert!(body.contains(expected), "{change:?}: {body}");
    }
}

#[actix_web::test]
async fn sign_in_can_be_cancelled_or_refused() {
    let (_provider, browser) = provider().await;
    let mut cancelled = SETUP.to_vec();
    cancelled.push(("person", ""));
    let (head, _) = browser.send("POST", "/openid/choose", &cancelled).await;
    assert!(location(&head).query_pairs().any(|pair| pair == ("openid.mode".into(), "cancel".into())));
    let mut immediate = SETUP;
    immediate[1].1 = "checkid_immediate";
    let (head, _) = browser.send("GET", "/openid/login", &immediate).await;
    assert!(location(&head).query_pairs().any(|pair| pair == ("openid.mode".into(), "setup_needed".into())));
    for (at, value) in [
        (0, "http://specs.openid.net/auth/1.0"),
        (1, "associate"),
        (2, "http://elsewhere.test/"),
        (4, "javascript:alert(1)"),
        (5, "http://elsewhere.test/"),
    ] {
        let mut request = SETUP;
        request[at].1 = value;
        let (head, _) = browser.send("GET", "/openid/login", &request).await;
        assert!(head.starts_with("HTTP/1.1 400"), "{value}: {head}");
    }
    let mut hostile = SETUP;
    hostile[4].1 = "http://127.0.0.1:8080/\"><script>alert(1)</script>";
    let (_, page) = browser.send("GET", "/openid/login", &hostile).await;
    assert!(!page.contains("<script>"));
}

#[actix_web::test]
async fn profiles_have_names_and_need_a_key() {
    let (_provider, browser) = provider().await;
    let ids = format!("{LEADER},76561198999999999");
    let path = "/ISteamUser/GetPlayerSummaries/v0002/";
    let (_, body) = browser.send("GET", path, &[("key", "demo"), ("steamids", &ids)]).await;
    let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(answer["response"]["players"].as_array().map(Vec::len), Some(1));
    assert_eq!(answer["response"]["players"][0]["personaname"], "Nox");
    let (head, _) = browser.send("GET", path, &[("steamids", &ids)]).await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}
