//! One client connection to one game server: requests matched with answers, deadlines, liveness (protocol §1).
//!
//! Above 500 lines: requests, answers and broadcasts of one socket, whose order is one.
//!
//! No actor and no policy: the caller says when to connect, what to ask and how often. A task owns the
//! WebSocket; it ends when the peer does, when the link is silent for too long, or when the last [`Link`] or the
//! [`Broadcasts`] are dropped.
//!
//! Broadcasts and answers keep their order: an answer is handed over when the broadcasts that came before it are
//! handled, and has the number of those that came before its request.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt, io, iter,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures_channel::mpsc;
use futures_util::{
    SinkExt as _, StreamExt as _,
    future::{LocalBoxFuture, OptionFuture},
};
use prost::Message as _;
use rustls::ClientConfig;
use secrecy::{ExposeSecret as _, SecretBox};
use tokio::{
    sync::{Mutex, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::tungstenite::{self, error::ProtocolError};
use tokio_util::either::Either;

use crate::{
    game::{
        counting::Repeated,
        decoding::{DecodeError, DecodingPermit, MessageDecoder, SMALL, decode},
        outbound::Outbound,
        web_socket::{Incoming, ReceiveError, WebSocket},
        wire::{AppBroadcast, AppMessage, AppRequest, AppResponse},
    },
    net::{Network, NetworkError, tls_config},
};

/// Resolving, connecting and the handshake, together.
const CONNECT_DEADLINE: Duration = Duration::from_secs(15);
/// A write that the peer does not take ends the link.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// The game server may take so long to close its end.
const CLOSE_DEADLINE: Duration = Duration::from_secs(1);
/// After this long without a sign of life the peer is pinged; after as long again the link has ended.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Bytes of a message while a map is awaited: its picture is megabytes.
const MAP_LIMIT: usize = 32 * 1024 * 1024;
/// Bytes of every other message; nothing real comes near.
const MESSAGE_LIMIT: usize = 4 * 1024 * 1024;
/// Requests handed over and not yet taken to be written.
const REQUESTS: usize = 64;
/// Broadcasts read and not yet taken; when full, reading waits and the game server feels it.
const BROADCASTS: usize = 256;

/// Address of a game server, and the way to it.
#[derive(Clone)]
pub struct Route {
    /// Host name or address of the game server.
    pub host: String,
    /// Its companion port.
    pub port: u16,
    /// Base URL of the publisher's proxy, if connections go through it.
    pub proxy: Option<String>,
    /// Addresses that may be connected to.
    pub outbound: Arc<Outbound>,
}

/// Addresses between which a link is made. Its end is the end of `slot`, too.
pub struct Way<S> {
    /// Addresses of the game server, one after the other; none behind a proxy and in a simulated network.
    pub peers: Vec<SocketAddr>,
    /// Our address; none: the system chooses.
    pub own: Option<IpAddr>,
    /// Dropped when the game server knows that the link has ended.
    pub slot: S,
}

/// Player who makes the requests. The token is the player's secret.
pub struct Player {
    /// SteamID64.
    pub id: u64,
    pub token: SecretBox<i32>,
}

/// Failure of a connection attempt.
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

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The game server's own word (protocol §1.6), for example `not_found` or `rate_limit`.
    #[error("the game server answered {0}")]
    Refused(String),
    #[error("no answer in time")]
    TimedOut,
    #[error("the answer has more than {limit} {0}", limit = .0.limit())]
    TooMany(Repeated),
    #[error("the link is closed")]
    Closed,
}

/// Cause of a link's end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkEnded {
    #[error("the game server closed it")]
    Closed,
    #[error("{0}")]
    Broken(String),
    #[error("no sign of life")]
    Silent,
    #[error("the game server does not read")]
    Stuck,
    #[error("a message was larger than what is awaited")]
    TooLarge,
    #[error("it is not needed")]
    Unneeded,
}

/// Answer of a game server.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered<T> {
    /// Number of broadcasts that this link had received when the request was sent. A later broadcast may be newer.
    pub asked_after: u64,
    pub content: T,
}

/// A live link; clones share it.
#[derive(Clone)]
pub struct Link {
    /// One sender for all callers: each clone would add a slot, which the request of a caller who gave up may fill.
    requests: Arc<Mutex<mpsc::Sender<Outgoing>>>,
    /// Number of broadcasts handled.
    handled: watch::Receiver<u64>,
    /// SteamID64.
    player: u64,
    peer: Option<SocketAddr>,
}

struct Outgoing {
    request: Box<AppRequest>,
    answer: oneshot::Sender<Result<OrderedAnswer, AskError>>,
}

struct OrderedAnswer {
    answered: Answered<Box<AppResponse>>,
    /// Number of broadcasts before the answer.
    after: u64,
}

/// Broadcasts of a game server, in order.
pub struct Broadcasts {
    received: mpsc::Receiver<Heard>,
    /// Number of broadcasts handed over.
    number: u64,
    handled: watch::Sender<u64>,
    /// Permit of the broadcast that is handled now.
    permit: Option<DecodingPermit>,
    link: JoinHandle<LinkEnded>,
    /// Dropping it ends the link.
    _taken: oneshot::Sender<Infallible>,
}

struct Heard {
    /// `None` for a message that could not be read: it may have been a broadcast.
    broadcast: Option<Box<AppBroadcast>>,
    permit: Option<DecodingPermit>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Route {
    /// Addresses of the game server that may be connected to; none behind a proxy and in a simulated network.
    pub async fn find(&self, network: &Network) -> Result<Vec<SocketAddr>, ConnectError> {
        match self.proxy {
            Some(_) => Ok(Vec::new()),
            None => Ok(network.find(&self.host, self.port, |address| self.outbound.allows(address)).await?),
        }
    }
}

impl Link {
    /// Connects. Nothing is answered unless the broadcasts are taken.
    pub async fn connect<S: 'static>(
        network: &Network,
        decoder: &MessageDecoder,
        route: &Route,
        way: Way<S>,
        player: Player,
    ) -> Result<(Link, Broadcasts), ConnectError> {
        let Way { peers, own, slot } = way;
        let open = open(network, route, &peers, own);
        let (socket, peer) = timeout(CONNECT_DEADLINE, open).await.map_err(|_| ConnectError::TimedOut)??;
        let (requests, outgoing) = mpsc::channel(REQUESTS);
        let requests = Arc::new(Mutex::new(requests));
        let (broadcasts, received) = mpsc::channel(BROADCASTS);
        let (handled, is_handled) = watch::channel(0);
        let id = player.id;
        let exchange = Exchange { player, waiting: HashMap::new(), seq: 0, map_request: None, broadcasts, heard: 0 };
        let (taken, untaken) = oneshot::channel();
        let link = actix::spawn(run(socket, decoder.clone(), exchange, outgoing, untaken, slot));
        let broadcasts = Broadcasts { received, number: 0, handled, permit: None, link, _taken: taken };
        Ok((Link { requests, handled: is_handled, player: id, peer }, broadcasts))
    }

    /// A link of this player that has ended.
    #[cfg(test)]
    pub fn ended(player: u64, peer: Option<SocketAddr>) -> Self {
        Self { requests: Arc::new(Mutex::new(mpsc::channel(1).0)), handled: watch::channel(0).1, player, peer }
    }

    /// A link of this player to a game server that answers so.
    #[cfg(test)]
    pub fn answering(player: u64, answers: fn(&AppRequest) -> AppResponse) -> Self {
        let (requests, mut outgoing) = mpsc::channel::<Outgoing>(REQUESTS);
        actix::spawn(async move {
            while let Some(Outgoing { request, answer }) = outgoing.next().await {
                let answered = Answered { asked_after: 0, content: Box::new(answers(&request)) };
                let _ = answer.send(Ok(OrderedAnswer { answered, after: 0 }));
            }
        });
        Self { requests: Arc::new(Mutex::new(requests)), ..Self::ended(player, None) }
    }

    /// SteamID64 of the player who asks.
    pub fn player(&self) -> u64 {
        self.player
    }

    /// Address at which the game server has answered; `None` behind a proxy and in a simulated network.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Sends a request (number and player are filled in) and waits for its answer.
    pub async fn ask(&self, request: AppRequest, deadline: Duration) -> Result<Answered<Box<AppResponse>>, AskError> {
        let (answer, answered) = oneshot::channel();
        let request = Box::new(request);
        let exchange = async {
            let outgoing = Outgoing { request, answer };
            self.requests.lock().await.feed(outgoing).await.map_err(|_| AskError::Closed)?;
            let OrderedAnswer { answered, after } = answered.await.map_err(|_| AskError::Closed)??;
            self.handled.clone().wait_for(|handled| *handled >= after).await.map_err(|_| AskError::Closed)?;
            Ok(answered)
        };
        let answered = timeout(deadline, exchange).await.map_err(|_| AskError::TimedOut)??;
        match &answered.content.error {
            Some(error) => Err(AskError::Refused(error.error.chars().take(64).collect())),
            None => Ok(answered),
        }
    }
}

impl Broadcasts {
    /// The next broadcast and its number, counted from 1, or the cause of the link's end. `None` for a message that
    /// could not be read: it may have been a broadcast. The call marks the broadcast before as handled.
    pub async fn next(&mut self) -> Result<(u64, Option<Box<AppBroadcast>>), LinkEnded> {
        self.permit = None;
        self.handled.send_replace(self.number);
        let Some(Heard { broadcast, permit }) = self.received.next().await else {
            return Err((&mut self.link).await.unwrap_or(LinkEnded::Closed));
        };
        self.permit = permit;
        self.number += 1;
        Ok((self.number, broadcast))
    }
}

/// TLS configuration that checks a proxy's certificate.
static PROXY_TLS: LazyLock<Arc<ClientConfig>> =
    LazyLock::new(|| Arc::new(tls_config(None).expect("only a file of certificates can be wrong")));

async fn open(
    network: &Network,
    route: &Route,
    peers: &[SocketAddr],
    own: Option<IpAddr>,
) -> Result<(WebSocket, Option<SocketAddr>), ConnectError> {
    let (url, stream, peer) = match &route.proxy {
        Some(proxy) => {
            let url = format!("{proxy}/{}/{}", route.host, route.port);
            let parsed = url::Url::parse(&url).map_err(|error| ConnectError::Handshake(error.to_string()))?;
            let host = parsed.host_str().unwrap_or_default();
            let port = parsed.port_or_known_default().unwrap_or(443);
            // The proxy is configured by the operator; a game server's address comes from outside.
            let stream = match parsed.scheme() {
                "wss" => Either::Right(network.connect_secure(host, port, PROXY_TLS.clone()).await?),
                _ => Either::Left(network.connect(host, port, |_| true).await?),
            };
            (url, stream, None)
        }
        None => {
            let host = if route.host.contains(':') { format!("[{}]", route.host) } else { route.host.clone() };
            let stream = network.connect_from(own, &route.host, route.port, peers).await?;
            let peer = stream.peer();
            (format!("ws://{host}:{}/", route.port), Either::Left(stream), peer)
        }
    };
    match WebSocket::open(stream, &url).await {
        Ok(socket) => Ok((socket, peer)),
        Err(tungstenite::Error::Protocol(ProtocolError::HttparseError(_))) => Err(ConnectError::Refused),
        Err(tungstenite::Error::Protocol(ProtocolError::HandshakeIncomplete)) => Err(ConnectError::Refused),
        Err(error) => Err(ConnectError::Handshake(error.to_string())),
    }
}

/// Requests, answers and broadcasts of a link.
struct Exchange {
    player: Player,
    waiting: HashMap<u32, Waiting>,
    /// Number of the last request.
    seq: u32,
    /// The last request for the map.
    map_request: Option<u32>,
    broadcasts: mpsc::Sender<Heard>,
    /// Broadcasts so far.
    heard: u64,
}

struct Waiting {
    asked_after: u64,
    answer: oneshot::Sender<Result<OrderedAnswer, AskError>>,
}

impl Exchange {
    /// The bytes of a request that is about to be written.
    fn begin(&mut self, Outgoing { mut request, answer }: Outgoing) -> Vec<u8> {
        self.seq = self.seq.checked_add(1).unwrap_or(1);
        request.seq = self.seq;
        request.player_id = self.player.id;
        request.player_token = *self.player.token.expose_secret();
        self.waiting.retain(|_, waiting| !waiting.answer.is_closed());
        self.waiting.insert(self.seq, Waiting { asked_after: self.heard, answer });
        if request.get_map.is_some() {
            self.map_request = Some(self.seq);
        }
        request.encode_to_vec()
    }

    /// The bytes of this request and of those that wait behind it, which are sent together; those given up meanwhile are not.
    fn begin_all(&mut self, next: Outgoing, outgoing: &mut mpsc::Receiver<Outgoing>) -> Vec<Vec<u8>> {
        let more = iter::from_fn(|| outgoing.try_recv().ok());
        let wanted = iter::once(next).chain(more).filter(|next| !next.answer.is_closed());
        wanted.map(|next| self.begin(next)).collect()
    }

    /// Bytes of the next message: it may be as large as what is awaited.
    fn limit(&self) -> usize {
        let map = self.map_request.and_then(|seq| self.waiting.get(&seq));
        let is_map_awaited = map.is_some_and(|waiting| !waiting.answer.is_closed());
        if is_map_awaited { MAP_LIMIT } else { MESSAGE_LIMIT }
    }

    fn answer(&mut self, seq: u32, response: Result<Box<AppResponse>, AskError>) {
        if let Some(Waiting { asked_after, answer }) = self.waiting.remove(&seq) {
            let after = self.heard;
            let answered = response.map(|content| OrderedAnswer { answered: Answered { asked_after, content }, after });
            // The caller may have given up: then the answer is dropped.
            let _ = answer.send(answered);
        }
    }

    /// Delivers the answer in a message of `bytes` bytes, and returns the broadcast in it. An error ends the link.
    fn take(
        &mut self,
        bytes: usize,
        decoded: Result<(AppMessage, Option<DecodingPermit>), DecodeError>,
    ) -> Result<Option<Heard>, LinkEnded> {
        let seq = match &decoded {
            Ok((message, _)) => message.response.as_ref().map(|response| response.seq),
            Err(DecodeError::TooMany { seq, .. }) => *seq,
            Err(DecodeError::NoMessage) => None,
        };
        if bytes > MESSAGE_LIMIT && (seq.is_none() || seq != self.map_request) {
            return Err(LinkEnded::TooLarge);
        }
        let is_lost = decoded.is_err() && seq.is_none();
        let (message, permit) = match decoded {
            Ok(decoded) => decoded,
            Err(DecodeError::TooMany { repeated, seq }) => {
                log::debug!("a game server's message is refused: it has more than {} {repeated}", repeated.limit());
                if let Some(seq) = seq {
                    self.answer(seq, Err(AskError::TooMany(repeated)));
                }
                (AppMessage::default(), None)
            }
            // A link that brings nothing else ends by its deadlines.
            Err(DecodeError::NoMessage) => (AppMessage::default(), None),
        };
        if let Some(response) = message.response {
            self.answer(response.seq, Ok(Box::new(response)));
        }
        if message.broadcast.is_none() && !is_lost {
            return Ok(None);
        }
        self.heard += 1;
        Ok(Some(Heard { broadcast: message.broadcast.map(Box::new), permit }))
    }
}

/// Signs of life of the peer, without which a link ends.
struct SignsOfLife {
    last: Instant,
    /// None has come since a ping.
    pinged: bool,
}

impl SignsOfLife {
    /// Something has come.
    fn heard(&mut self, now: Instant) {
        *self = Self { last: now, pinged: false };
    }

    /// The time of the next look, and true if the peer is to be pinged now. While a message is decoded, none is read.
    fn look(&mut self, now: Instant, is_decoding: bool) -> Result<(Instant, bool), LinkEnded> {
        let heard = if is_decoding { now } else { self.last };
        if now < heard + PING_INTERVAL {
            return Ok((heard + PING_INTERVAL, false));
        }
        if self.pinged {
            return Err(LinkEnded::Silent);
        }
        self.pinged = true;
        Ok((now + PING_INTERVAL, true))
    }
}

/// A large message that is decoded elsewhere: its size and its content.
type Decoding = LocalBoxFuture<'static, Box<(usize, Result<(AppMessage, Option<DecodingPermit>), DecodeError>)>>;

#[allow(clippy::manual_async_fn, reason = "an async function has room for its arguments twice")]
fn run<S>(
    mut socket: WebSocket,
    decoder: MessageDecoder,
    mut exchange: Exchange,
    mut outgoing: mpsc::Receiver<Outgoing>,
    mut untaken: oneshot::Receiver<Infallible>,
    slot: S,
) -> impl Future<Output = LinkEnded> {
    async move {
        let began = Instant::now();
        let mut signs = SignsOfLife { last: began, pinged: false };
        let mut silent = pin!(sleep_until(began + PING_INTERVAL));
        // Messages keep their order: while one is decoded, none is read. Requests go out all the same.
        let mut decoding: Option<Decoding> = None;
        let ended = loop {
            let limit = exchange.limit();
            // Writes are boxed, so that a waiting link holds no memory for them.
            let taken = tokio::select! {
                received = socket.next(limit), if decoding.is_none() => {
                    signs.heard(Instant::now());
                    match received {
                        Ok(Incoming::Binary(payload)) if payload.len() <= SMALL => {
                            exchange.take(payload.len(), decode(payload).map(|message| (message, None)))
                        }
                        Ok(Incoming::Binary(payload)) => {
                            let decoder = decoder.clone();
                            decoding = Some(Box::pin(async move {
                                Box::new((payload.len(), decoder.decode_large(payload).await))
                            }));
                            Ok(None)
                        }
                        Ok(Incoming::Ping(payload)) => Box::pin(in_time(socket.pong(&payload))).await.map(|()| None),
                        Ok(Incoming::Other) => Ok(None),
                        Ok(Incoming::Close) => Err(LinkEnded::Closed),
                        Err(ReceiveError::TooLarge) => Err(LinkEnded::TooLarge),
                        Err(error) => Err(LinkEnded::Broken(error.to_string())),
                    }
                }
                Some(decoded) = OptionFuture::from(decoding.as_mut()) => {
                    let (bytes, decoded) = *decoded;
                    decoding = None;
                    signs.heard(Instant::now());
                    exchange.take(bytes, decoded)
                }
                next = outgoing.next() => match next {
                    Some(next) => {
                        let requests = exchange.begin_all(next, &mut outgoing);
                        Box::pin(in_time(socket.send(requests))).await.map(|()| None)
                    }
                    None => Err(LinkEnded::Unneeded),
                },
                Err(_) = &mut untaken => Err(LinkEnded::Unneeded),
                // The timer is not reset by every message; when it fires, the last message is looked at.
                () = silent.as_mut() => match signs.look(Instant::now(), decoding.is_some()) {
                    Ok((next_look, pings)) => {
                        silent.as_mut().reset(next_look);
                        match pings {
                            true => Box::pin(in_time(socket.ping())).await.map(|()| None),
                            false => Ok(None),
                        }
                    }
                    Err(ended) => Err(ended),
                },
            };
            match taken {
                Ok(None) => {}
                Ok(Some(heard)) => {
                    if exchange.broadcasts.send(heard).await.is_err() {
                        break LinkEnded::Unneeded;
                    }
                }
                Err(ended) => break ended,
            }
        };
        // Ends the requests that wait for an answer.
        drop((exchange, outgoing));
        Box::pin(close(&mut socket, &ended)).await;
        drop(slot);
        ended
    }
}

/// Closes a link that has ended. A courtesy: the peer may be gone. One that is still there counts the link until it has
/// closed its end.
async fn close(socket: &mut WebSocket, ended: &LinkEnded) {
    let closes = async {
        let closed = socket.close().await;
        if closed.is_ok() && *ended == LinkEnded::Unneeded {
            while socket.next(MESSAGE_LIMIT).await.is_ok_and(|incoming| !matches!(incoming, Incoming::Close)) {}
        }
    };
    let _ = timeout(CLOSE_DEADLINE, closes).await;
}

async fn in_time(write: impl Future<Output = io::Result<()>>) -> Result<(), LinkEnded> {
    match timeout(WRITE_DEADLINE, write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(LinkEnded::Broken(error.to_string())),
        Err(_) => Err(LinkEnded::Stuck),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_pinged_and_a_link_without_an_answer_ends() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut signs = SignsOfLife { last: began, pinged: false };
        signs.heard(at(15));
        assert_eq!(signs.look(at(20), false), Ok((at(35), false)), "something has come");
        assert_eq!(signs.look(at(35), false), Ok((at(55), true)));
        signs.heard(at(54));
        assert_eq!(signs.look(at(55), false), Ok((at(74), false)), "the ping was answered");
        assert_eq!(signs.look(at(74), false), Ok((at(94), true)));
        assert_eq!(signs.look(at(94), true), Ok((at(114), false)), "while a message is decoded, none is read");
        assert_eq!(signs.look(at(114), false), Err(LinkEnded::Silent));
    }
}
