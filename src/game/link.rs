//! One client connection to one game server: requests matched with answers, deadlines, liveness (protocol §1).
//!
//! No actor and no policy: the caller says when to connect, what to ask and how often. A task owns the
//! WebSocket; it ends when the peer does, when the link is silent for too long, or when the last [`Link`] is dropped.

use std::{collections::HashMap, fmt, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use prost::Message as _;
use secrecy::{ExposeSecret as _, SecretBox};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, client_async_tls_with_config,
    tungstenite::{self, Message, error::ProtocolError, protocol::WebSocketConfig},
};

use crate::{
    game::{
        address::is_public,
        wire::{AppBroadcast, AppMessage, AppRequest, AppResponse},
    },
    net::{Network, NetworkError, Stream},
};

/// Resolving, connecting and the handshake, together.
const CONNECT_DEADLINE: Duration = Duration::from_secs(15);
/// A write that the peer does not take ends the link.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// Between two pings; two without any sign of life end the link.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// A map picture is megabytes; nothing else comes near.
const MESSAGE_LIMIT: usize = 32 * 1024 * 1024;
/// Requests handed over and not yet written.
const REQUESTS: usize = 64;
/// Broadcasts read and not yet taken; when full, reading waits and the game server feels it.
const BROADCASTS: usize = 256;

/// Where a game server is, and which way to go.
#[derive(Clone, Debug)]
pub struct Route {
    /// Host name or address of the game server.
    pub host: String,
    /// Its companion port.
    pub port: u16,
    /// Base URL of the publisher's proxy, if connections go through it.
    pub proxy: Option<String>,
    /// Whether private and loopback addresses may be connected to.
    pub allow_private: bool,
}

/// Who asks. The token is the player's secret.
pub struct Player {
    /// SteamID64.
    pub id: u64,
    pub token: SecretBox<i32>,
}

/// Why no link came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("no connection: {0}")]
    Handshake(String),
    /// The server answers with something that is not HTTP: its connection limits, or a ban (protocol §1.7).
    #[error("the game server refuses the connection (its limits, or a ban)")]
    Refused,
    #[error("no answer in time")]
    TimedOut,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The game server's own word (protocol §1.6), for example `not_found` or `rate_limit`.
    #[error("the game server answered {0}")]
    Refused(String),
    #[error("no answer in time")]
    TimedOut,
    #[error("the link is closed")]
    Closed,
}

/// A live link; clones share it.
#[derive(Clone)]
pub struct Link {
    requests: mpsc::Sender<Outgoing>,
}

struct Outgoing {
    request: AppRequest,
    answer: oneshot::Sender<AppResponse>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    /// Connects. Broadcasts come through the receiver, which closes when the link does.
    pub async fn connect(
        network: &Network,
        route: &Route,
        player: Player,
    ) -> Result<(Link, mpsc::Receiver<AppBroadcast>), ConnectError> {
        let stream = timeout(CONNECT_DEADLINE, open(network, route)).await.map_err(|_| ConnectError::TimedOut)??;
        let (requests, outgoing) = mpsc::channel(REQUESTS);
        let (broadcasts, received) = mpsc::channel(BROADCASTS);
        actix::spawn(run(stream, player, outgoing, broadcasts));
        Ok((Link { requests }, received))
    }

    /// Sends a request (number and player are filled in) and waits for its answer.
    pub async fn ask(&self, request: AppRequest, deadline: Duration) -> Result<AppResponse, AskError> {
        let (answer, answered) = oneshot::channel();
        let exchange = async {
            self.requests.send(Outgoing { request, answer }).await.map_err(|_| AskError::Closed)?;
            answered.await.map_err(|_| AskError::Closed)
        };
        let response = timeout(deadline, exchange).await.map_err(|_| AskError::TimedOut)??;
        match response.error {
            Some(error) => Err(AskError::Refused(error.error.chars().take(64).collect())),
            None => Ok(response),
        }
    }
}

type WebSocket = WebSocketStream<MaybeTlsStream<Stream>>;

async fn open(network: &Network, route: &Route) -> Result<WebSocket, ConnectError> {
    let (url, host, port) = match &route.proxy {
        Some(proxy) => {
            let url = format!("{proxy}/{}/{}", route.host, route.port);
            let parsed = url::Url::parse(&url).map_err(|error| ConnectError::Handshake(error.to_string()))?;
            let host = parsed.host_str().unwrap_or_default().to_owned();
            let port = parsed.port_or_known_default().unwrap_or(443);
            (url, host, port)
        }
        None => {
            let host = if route.host.contains(':') { format!("[{}]", route.host) } else { route.host.clone() };
            (format!("ws://{host}:{}/", route.port), route.host.clone(), route.port)
        }
    };
    // The proxy is configured by the operator; a game server's address comes from outside.
    let allow_private = route.allow_private || route.proxy.is_some();
    let stream = network.connect(&host, port, if allow_private { |_| true } else { is_public }).await?;
    let config = WebSocketConfig::default()
        .read_buffer_size(8 * 1024)
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_LIMIT))
        .max_frame_size(Some(MESSAGE_LIMIT));
    match client_async_tls_with_config(url, stream, Some(config), None).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Protocol(ProtocolError::HttparseError(_))) => Err(ConnectError::Refused),
        Err(tungstenite::Error::Protocol(ProtocolError::HandshakeIncomplete)) => Err(ConnectError::Refused),
        Err(error) => Err(ConnectError::Handshake(error.to_string())),
    }
}

async fn run(
    mut socket: WebSocket,
    player: Player,
    mut outgoing: mpsc::Receiver<Outgoing>,
    broadcasts: mpsc::Sender<AppBroadcast>,
) {
    let mut waiting: HashMap<u32, oneshot::Sender<AppResponse>> = HashMap::new();
    let mut seq = 0u32;
    let mut last_received = Instant::now();
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = socket.next() => {
                let Some(Ok(message)) = message else { break };
                last_received = Instant::now();
                let Message::Binary(payload) = message else { continue };
                // Rubbish is skipped: a link that brings nothing else ends by its deadlines.
                let Ok(message) = AppMessage::decode(payload) else { continue };
                if let Some(response) = message.response
                    && let Some(answer) = waiting.remove(&response.seq)
                {
                    // Whoever gave up waiting is gone; nobody misses the answer.
                    let _ = answer.send(response);
                }
                if let Some(broadcast) = message.broadcast
                    && broadcasts.send(broadcast).await.is_err()
                {
                    break;
                }
            }
            next = outgoing.recv() => {
                let Some(Outgoing { mut request, answer }) = next else { break };
                seq = seq.checked_add(1).unwrap_or(1);
                request.seq = seq;
                request.player_id = player.id;
                request.player_token = *player.token.expose_secret();
                waiting.retain(|_, answer| !answer.is_closed());
                waiting.insert(seq, answer);
                if !write(&mut socket, Message::Binary(Bytes::from(request.encode_to_vec()))).await {
                    break;
                }
            }
            _ = pings.tick() => {
                if last_received.elapsed() > 2 * PING_INTERVAL || !write(&mut socket, Message::Ping(Bytes::new())).await {
                    break;
                }
            }
            () = broadcasts.closed() => break,
        }
    }
    // A courtesy: the peer may be gone.
    let _ = timeout(Duration::from_secs(1), socket.close(None)).await;
}

async fn write(socket: &mut WebSocket, message: Message) -> bool {
    matches!(timeout(WRITE_DEADLINE, socket.send(message)).await, Ok(Ok(())))
}
