//! Game servers whose world moves only on request, and a client of the game's protocol.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use companion::{
    domain::time::Timestamp,
    game::wire::*,
    simulator::{
        game_server::{DEMO_TOKEN, GameServer, GameServerOptions},
        world::{SimulatedWorld, TEAM},
    },
};
use futures_util::{SinkExt as _, StreamExt as _};
use prost::Message as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, client_async, connect_async,
    tungstenite::{Bytes, Message},
};

pub const LEADER: u64 = TEAM[0].0;
pub const MARLOW: u64 = TEAM[1].0;
pub const MARLOWS_TOKEN: i32 = 77;
/// Nothing here takes this long unless it is broken.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub fn world() -> SimulatedWorld {
    SimulatedWorld::new(7, Timestamp::from_unix(1_790_000_000).expect("a time"))
}

/// Two paired players, and a world that stays as it is until the test changes it.
pub fn options() -> GameServerOptions {
    GameServerOptions {
        players: vec![(LEADER, DEMO_TOKEN), (MARLOW, MARLOWS_TOKEN)],
        time_scale: 0.0,
        ..GameServerOptions::new(world())
    }
}

pub async fn server() -> GameServer {
    GameServer::start(options()).await.expect("a free port")
}

/// A client, over TCP unless it says otherwise.
pub struct Peer<S = MaybeTlsStream<TcpStream>> {
    pub socket: WebSocketStream<S>,
    pub player_id: u64,
    pub player_token: i32,
    seq: u32,
    pub broadcasts: Vec<AppBroadcast>,
}

impl Peer {
    pub async fn connect(server: &GameServer) -> Self {
        Self::connect_as(server, LEADER, DEMO_TOKEN).await
    }

    pub async fn connect_as(server: &GameServer, player_id: u64, player_token: i32) -> Self {
        let (socket, _) = connect_async(format!("ws://{}/any/path?v=1", server.addr())).await.expect("an upgrade");
        Self { socket, player_id, player_token, seq: 0, broadcasts: Vec::new() }
    }

    /// A client whose connection comes from this address of the machine.
    pub async fn connect_from(server: &GameServer, address: Ipv4Addr, player_id: u64, player_token: i32) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((address, 0).into()).expect("an address of loopback");
        let stream = socket.connect(server.addr()).await.expect("a listener");
        let (socket, _) = client_async("ws://game/", MaybeTlsStream::Plain(stream)).await.expect("an upgrade");
        Self { socket, player_id, player_token, seq: 0, broadcasts: Vec::new() }
    }
}

impl Peer<DuplexStream> {
    /// A client over memory, with which time can be paused: no message is ever on its way outside this process.
    pub async fn in_memory(server: &GameServer) -> Self {
        let (ours, theirs) = duplex(1 << 16);
        actix_web::rt::spawn(server.serve(theirs, IpAddr::from(Ipv4Addr::LOCALHOST)));
        let (socket, _) = client_async("ws://game/", ours).await.expect("an upgrade");
        Self { socket, player_id: LEADER, player_token: DEMO_TOKEN, seq: 0, broadcasts: Vec::new() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub async fn send(&mut self, request: AppRequest) -> u32 {
        self.seq += 1;
        let (seq, player_id, player_token) = (self.seq, self.player_id, self.player_token);
        let request = AppRequest { seq, player_id, player_token, ..request };
        self.socket.send(Message::binary(request.encode_to_vec())).await.expect("an open socket");
        seq
    }

    /// The next binary message as bytes; `None` at the end of the connection.
    pub async fn next_bytes(&mut self) -> Option<Bytes> {
        loop {
            match timeout(DEADLINE, self.socket.next()).await.expect("a message in time") {
                Some(Ok(Message::Binary(data))) => return Some(data),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    pub async fn next(&mut self) -> AppMessage {
        AppMessage::decode(self.next_bytes().await.expect("an open connection")).expect("a message")
    }

    pub async fn ask(&mut self, request: AppRequest) -> AppResponse {
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

    pub async fn refusal(&mut self, request: AppRequest) -> String {
        self.ask(request).await.error.expect("a refusal").error
    }

    pub async fn broadcast(&mut self) -> AppBroadcast {
        if !self.broadcasts.is_empty() {
            return self.broadcasts.remove(0);
        }
        self.next().await.broadcast.expect("a broadcast")
    }

    pub async fn entity_changed(&mut self) -> AppEntityChanged {
        self.broadcast().await.entity_changed.expect("entityChanged")
    }

    /// Broadcasts until now: the answer to a request comes after them.
    pub async fn broadcasts_so_far(&mut self) -> Vec<AppBroadcast> {
        self.ask(get_time()).await;
        std::mem::take(&mut self.broadcasts)
    }
}

pub fn get_info() -> AppRequest {
    AppRequest { get_info: Some(AppEmpty {}), ..Default::default() }
}

pub fn get_time() -> AppRequest {
    AppRequest { get_time: Some(AppEmpty {}), ..Default::default() }
}

pub fn get_team() -> AppRequest {
    AppRequest { get_team_info: Some(AppEmpty {}), ..Default::default() }
}

pub fn get_markers() -> AppRequest {
    AppRequest { get_map_markers: Some(AppEmpty {}), ..Default::default() }
}

pub fn get_chat() -> AppRequest {
    AppRequest { get_team_chat: Some(AppEmpty {}), ..Default::default() }
}

pub fn kick(steam_id: u64) -> AppRequest {
    AppRequest { kick_from_team: Some(AppTeamKick { steam_id }), ..Default::default() }
}

pub fn promote(steam_id: u64) -> AppRequest {
    AppRequest { promote_to_leader: Some(AppPromoteToLeader { steam_id }), ..Default::default() }
}

pub fn get_entity(entity_id: u64) -> AppRequest {
    AppRequest { entity_id: Some(entity_id), get_entity_info: Some(AppEmpty {}), ..Default::default() }
}

pub fn set_entity(entity_id: u64, value: bool) -> AppRequest {
    let set_entity_value = Some(AppSetEntityValue { value });
    AppRequest { entity_id: Some(entity_id), set_entity_value, ..Default::default() }
}

pub fn say(text: &str) -> AppRequest {
    AppRequest { send_team_message: Some(AppSendMessage { message: text.to_owned() }), ..Default::default() }
}

pub fn subscribe(camera: &str) -> AppRequest {
    let camera_subscribe = Some(AppCameraSubscribe { camera_id: camera.to_owned() });
    AppRequest { camera_subscribe, ..Default::default() }
}

pub fn steer(buttons: i32, x: f32, y: f32) -> AppRequest {
    let mouse_delta = Vector2 { x: Some(x), y: Some(y) };
    AppRequest { camera_input: Some(AppCameraInput { buttons, mouse_delta }), ..Default::default() }
}

/// Everything that the server writes to a client that begins a handshake.
pub async fn raw_bytes_of(addr: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.expect("a listener");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: game\r\n\r\n").await.expect("an open socket");
    let mut bytes = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("an end in time").expect("an orderly end");
    bytes
}
