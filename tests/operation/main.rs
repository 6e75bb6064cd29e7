//! The binary as its operators see it: its metrics, what reads them, and how it stops.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use companion::{
    api::context::ApiContext,
    demo,
    simulator::{
        game_server::{DEMO_TOKEN, GameServer, GameServerOptions},
        world::{BASE_ALARM, SimulatedWorld},
    },
};
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::{Client, Method, header::COOKIE};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message},
};

mod caddy;
#[path = "../crash/mod.rs"]
mod crash;
#[path = "../spec/harness/database.rs"]
mod database;
mod demo_nodes;
mod disk;
mod drain;
mod metrics;
mod nodes;
mod standby;

use crash::{Addresses, Installation, binary};

/// Longest wait for anything; only a test that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// SteamID64 of the first user, who is in the simulated team.
const FIRST: u64 = 76_561_198_000_000_001;

/// An installation that dials the simulated game servers, and the cookies of this many users.
fn installation(users: u64, flags: &[&str]) -> (Installation, Vec<String>) {
    let flags: Vec<String> = ["--push-address=127.0.0.1:9", "--allow-private-game-servers=true"]
        .iter()
        .chain(flags)
        .map(|flag| (*flag).to_owned())
        .collect();
    let installation = Installation::new(|_| flags);
    let cookies = installation.fill(async move |context: &ApiContext| {
        let mut cookies = Vec::new();
        for user in FIRST..FIRST + users {
            cookies.push(demo::user::sign_in(context, user, "User").await.unwrap().cookie);
        }
        cookies
    });
    (installation, cookies)
}

/// A game server whose world does not move.
async fn still_game() -> GameServer {
    let world = SimulatedWorld::new(7, chrono::Utc::now().into());
    // Drawing the map's picture would hold up everything else on the test's thread.
    let map_picture = Some(Bytes::from_static(b"a picture"));
    let options = GameServerOptions { time_scale: 0.0, map_picture, ..GameServerOptions::new(world) };
    GameServer::start(options).await.unwrap()
}

/// A signed-in user of a running service.
#[derive(Clone)]
struct User {
    http: Client,
    addresses: Addresses,
    cookie: String,
}

impl User {
    fn new(addresses: &Addresses, cookie: &str) -> Self {
        Self { http: binary::http(), addresses: addresses.clone(), cookie: cookie.to_owned() }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        let request = self.http.request(method, format!("{}{path}", self.addresses.api)).header(COOKIE, &self.cookie);
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.unwrap_or_default()))
    }

    /// Pairs what listens there, with the alarm of the base; the id of the paired server.
    async fn pair(&self, game: SocketAddr) -> String {
        let player = FIRST.to_string();
        let pairing =
            json!({ "address": "127.0.0.1", "port": game.port(), "playerId": player, "playerToken": DEMO_TOKEN });
        let (status, server) = self.ask(Method::POST, "/paired-servers", Some(pairing)).await.unwrap();
        assert_eq!(status, 201, "{server}");
        let server = server["id"].as_str().unwrap().to_owned();
        let path = format!("/paired-servers/{server}/devices");
        let (status, answer) = self.ask(Method::POST, &path, Some(json!({ "entityId": BASE_ALARM }))).await.unwrap();
        assert_eq!(status, 201, "{answer}");
        server
    }

    /// Waits until the alarm of this server is known to the link.
    async fn until_alarm_is_known(&self, server: &str) {
        let path = format!("/paired-servers/{server}/devices");
        until("the alarm", || async {
            let (_, devices) = self.ask(Method::GET, &path, None).await.unwrap();
            devices["devices"][0]["reachable"] == "ok"
        })
        .await;
    }

    /// Opens a socket.
    async fn open(&self) -> Socket {
        self.try_open().await.unwrap_or_else(|status| panic!("refused: {status}"))
    }

    /// Opens a socket with this token, if a listener is there and takes it.
    async fn open_with(&self, token: &str) -> Option<Socket> {
        let stream = TcpStream::connect(self.addresses.relay).await.ok()?;
        let url = format!("ws://{}/v1?token={token}", self.addresses.relay);
        client_async(url, stream).await.ok().map(|(socket, _)| Socket(socket))
    }

    /// Opens a socket, or the status that refuses it.
    async fn try_open(&self) -> Result<Socket, u16> {
        let (status, answer) = self.ask(Method::POST, "/relay/token", None).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        let stream = TcpStream::connect(self.addresses.relay).await.unwrap();
        let url = format!("ws://{}/v1?token={}", self.addresses.relay, answer["token"].as_str().unwrap());
        match client_async(url, stream).await {
            Ok((socket, _)) => Ok(Socket(socket)),
            Err(Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(error) => panic!("the handshake: {error}"),
        }
    }
}

#[derive(Debug)]
struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn subscribe(&mut self, server: &str) -> Value {
        self.subscribe_from(server, &json!({})).await
    }

    /// Goes on from this snapshot of another connection; the snapshot that answers.
    async fn subscribe_from(&mut self, server: &str, seen: &Value) -> Value {
        let mut subscribe = json!({ "type": "subscribe", "serverId": server });
        for field in ["epoch", "seq"] {
            if let Some(value) = seen.get(field) {
                subscribe[field] = value.clone();
            }
        }
        self.0.send(Message::text(subscribe.to_string())).await.unwrap();
        self.expect("snapshot").await
    }

    /// The next message of this type.
    async fn expect(&mut self, wanted: &str) -> Value {
        let read = async {
            loop {
                let message = self.0.next().await.expect("it stays open").unwrap();
                let Ok(text) = message.to_text() else { continue };
                let Ok(value) = serde_json::from_str::<Value>(text) else { continue };
                if value["type"] == wanted {
                    return value;
                }
            }
        };
        timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("no {wanted}"))
    }

    /// Its close code and when it came; none if it ended without.
    async fn closed(mut self) -> (Option<u16>, Instant) {
        let read = async {
            while let Some(message) = self.0.next().await {
                match message {
                    Ok(Message::Close(frame)) => return frame.map(|frame| frame.code.into()),
                    Ok(_) => {}
                    Err(_) => return None,
                }
            }
            None
        };
        let code = timeout(PATIENCE, read).await.expect("it ends");
        (code, Instant::now())
    }
}

/// Asks until it holds.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let held = || {
        let holds = holds();
        async { holds.await.then_some(()) }
    };
    until_some(what, held).await;
}

/// Asks until there is one.
async fn until_some<T, F: Future<Output = Option<T>>>(what: &str, mut find: impl FnMut() -> F) -> T {
    let ask = async {
        loop {
            if let Some(found) = find().await {
                return found;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, ask).await.unwrap_or_else(|_| panic!("no {what}"))
}
