//! Google's MCS over TLS with a throw-away certificate authority: keeps pushes until they are acknowledged, and
//! misbehaves on demand.
//!
//! Each connection is one task that takes its orders from its account's queue. All accounts stand behind one lock that
//! is never held across an await.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use chrono::{TimeDelta, Utc};
use prost::Message as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    select,
    sync::{Notify, watch},
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    domain::time::Timestamp,
    push::mcs::{Decoder, Frame, PAYLOAD_LIMIT, VERSION},
    push::wire::{
        AppData, DataMessageStanza, ErrorInfo, Extension, HeartbeatAck, HeartbeatPing, IqStanza, LoginRequest,
        LoginResponse, Setting, iq_stanza,
    },
};

/// The account of the simulated player, and its token.
pub const DEMO_ANDROID_ID: u64 = 5_000_000_000_000_000_001;
pub const DEMO_SECURITY_TOKEN: u64 = 1_234_567_890_123_456_789;

/// What the certificate is for, besides loopback: the name that other people's clients insist on.
const HOST: &str = "mtalk.google.com";
/// The publisher's sender id and package.
const SENDER: &str = "976529667804";
const PACKAGE: &str = "com.facepunch.rust.companion";
/// How long Google keeps a message for a client that is away.
const FOUR_WEEKS: TimeDelta = TimeDelta::weeks(4);
/// For TLS, and then for the login.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(15);
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
const PING_INTERVAL: Duration = Duration::from_secs(30 * 60);
const CONNECTIONS: usize = 20_000;
/// Messages kept for one account, and those kept for a replay; the oldest gives way.
const MESSAGES: usize = 1000;
const VIOLATIONS: usize = 100;
/// Extensions of an `IqStanza`: which ids of the login were understood; what was received.
const SELECTIVE_ACK: i32 = 12;
const STREAM_ACK: i32 = 13;
const UNAUTHORIZED: i32 = 401;

/// How the service misbehaves; the default is not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Every login is refused with this code.
    pub refuse_login: Option<i32>,
    /// No login is answered.
    pub mute_login: bool,
    /// Nothing is delivered and no heartbeat is answered.
    pub frozen: bool,
    /// What is pushed is never delivered.
    pub lose: bool,
    /// What is pushed is delivered this much later.
    pub delay: Option<Duration>,
    /// Every message comes twice.
    pub duplicate: bool,
    /// At login everything comes again, acknowledged or not.
    pub replay: bool,
    /// Instead of a message come bytes that are no frame.
    pub garbage: bool,
    /// Instead of a message comes a frame of its tag that holds no message.
    pub unreadable: bool,
    /// Instead of a message comes a frame that says it is too large.
    pub oversize: bool,
    /// The connection ends in the middle of a message.
    pub truncate: bool,
    /// The service closes the connection after this many messages.
    pub close_after: Option<u32>,
}

/// What clients did so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Logins asked for, and those of them that were refused.
    pub logins: u32,
    pub refused: u32,
    /// Heartbeats of clients.
    pub pings: u32,
    /// Their answers to ours.
    pub pongs: u32,
    pub stream_acks: u32,
    /// What no client of the real service does; the connection was cut.
    pub violations: Vec<String>,
}

/// A running service; ends when dropped.
pub struct PushService {
    addr: SocketAddr,
    ca_pem: String,
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl PushService {
    /// Binds and begins to serve these accounts (Android id and security token); needs a tokio runtime.
    pub async fn start(listen: SocketAddr, logins: Vec<(u64, u64)>) -> io::Result<Self> {
        let (ca_pem, tls) = certificates(listen)?;
        let accounts = logins.into_iter().map(|(android_id, token)| (android_id, Account::new(token)));
        let state = State { accounts: accounts.collect(), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), tls, changed: watch::Sender::new(()) });
        let listener = TcpListener::bind(listen).await?;
        let addr = listener.local_addr()?;
        let listening = tokio::spawn(accept(Arc::clone(&shared), listener));
        Ok(Self { addr, ca_pem, shared, listening: Mutex::new(Some(listening)) })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The certificate that clients must trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Pushes to an account, now or when it is back, and returns the persistent id. An unknown account gets nothing.
    pub fn push(&self, android_id: u64, app_data: Vec<(String, String)>) -> String {
        self.push_at(android_id, app_data, Utc::now(), FOUR_WEEKS)
    }

    /// The same, as if sent at another time; `ttl` after it, the message is forgotten.
    pub fn push_at(&self, android_id: u64, app_data: Vec<(String, String)>, sent: Timestamp, ttl: TimeDelta) -> String {
        let mut state = self.shared.lock();
        state.pushed += 1;
        let persistent_id = format!("0:{}%{:08x}", sent.timestamp_micros(), state.pushed);
        let faults = state.faults;
        if !faults.lose
            && let Some(account) = state.accounts.get_mut(&android_id)
        {
            let stanza = DataMessageStanza {
                id: Some(format!("{:08X}", account.history.len())),
                from: SENDER.to_owned(),
                category: PACKAGE.to_owned(),
                token: Some("simulated".to_owned()),
                app_data: app_data.into_iter().map(|(key, value)| AppData { key, value }).collect(),
                persistent_id: Some(persistent_id.clone()),
                ttl: Some(i32::try_from(ttl.num_seconds()).unwrap_or(i32::MAX)),
                sent: Some(sent.timestamp_millis()),
                ..DataMessageStanza::default()
            };
            let message = Message {
                stanza,
                due: Instant::now() + faults.delay.unwrap_or_default(),
                expires: sent + ttl,
                at: None,
            };
            keep(&mut account.history, message.clone());
            keep(&mut account.waiting, message);
            account.wake();
        }
        persistent_id
    }

    /// Makes another account, or gives a known one another token.
    pub fn set_token(&self, android_id: u64, security_token: u64) {
        let mut state = self.shared.lock();
        state.accounts.entry(android_id).or_insert_with(|| Account::new(security_token)).token = security_token;
    }

    /// Changes how the service misbehaves.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut state = self.shared.lock();
        change(&mut state.faults);
        state.accounts.values().for_each(Account::wake);
    }

    /// Sends a heartbeat that the client must answer; real ones come every half hour.
    pub fn ping(&self, android_id: u64) {
        if let Some(line) = self.shared.lock().accounts.get_mut(&android_id).and_then(|account| account.line.as_mut()) {
            line.pings += 1;
            line.wake.notify_one();
        }
    }

    /// What clients did so far.
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts.clone()
    }

    /// Whether the account is logged in.
    pub fn connected(&self, android_id: u64) -> bool {
        self.shared.lock().accounts.get(&android_id).is_some_and(|account| account.line.is_some())
    }

    /// Messages of the account that are not yet acknowledged.
    pub fn unacknowledged(&self, android_id: u64) -> usize {
        self.shared.lock().accounts.get(&android_id).map_or(0, |account| account.waiting.len())
    }

    /// Waits until something holds that clients bring about.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        while !holds(self) {
            changed.changed().await.expect("the sender lives in self");
        }
    }

    /// Cuts every session without a word.
    pub fn drop_connections(&self) {
        for account in self.shared.lock().accounts.values_mut() {
            account.wake();
            account.line = None;
        }
    }

    /// Stops listening and cuts every connection; accounts and messages stay.
    pub async fn stop(&self) {
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listening) = listening {
            listening.abort();
            // The address is free when the listener is gone; an aborted task has nothing else to tell.
            let _ = listening.await;
        }
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

impl Drop for PushService {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            listening.abort();
        }
    }
}

/// A game server as its pushes name it.
#[derive(Clone, Debug)]
pub struct PushedServer {
    /// A GUID.
    pub id: String,
    pub name: String,
    /// Host name or address.
    pub ip: String,
    pub port: u16,
}

impl PushedServer {
    /// "Pair with server" was pressed.
    pub fn pairing(&self, player_id: u64, player_token: i32) -> Vec<(String, String)> {
        let body = json!({
            "type": "server", "playerId": player_id.to_string(), "playerToken": player_token.to_string(),
        });
        self.app_data("pairing", &self.name, "Tap to pair with this server.", body)
    }

    /// "Pair" was pressed at a smart device; `kind` is 1 for a switch, 2 for an alarm, 3 for a storage monitor.
    pub fn entity_pairing(
        &self,
        player_id: u64,
        player_token: i32,
        entity_id: u64,
        kind: u8,
        name: &str,
    ) -> Vec<(String, String)> {
        let body = json!({
            "type": "entity", "playerId": player_id.to_string(), "playerToken": player_token.to_string(),
            "entityId": entity_id.to_string(), "entityType": kind.to_string(), "entityName": name,
        });
        self.app_data("pairing", name, "Tap to pair with this device.", body)
    }

    /// A smart alarm fired.
    pub fn alarm(&self, title: &str, message: &str) -> Vec<(String, String)> {
        self.app_data("alarm", title, message, json!({ "type": "alarm" }))
    }

    /// The player was killed while offline; `by` is SteamID64 (0 for an animal) and name.
    pub fn death(&self, by: (u64, &str)) -> Vec<(String, String)> {
        let id = if by.0 == 0 { String::new() } else { by.0.to_string() };
        let body = json!({ "type": "death", "targetId": id, "targetName": by.1 });
        self.app_data("player", &format!("You were killed by {}", by.1), &self.name, body)
    }

    /// A teammate came online; SteamID64 and name.
    pub fn login(&self, who: (u64, &str)) -> Vec<(String, String)> {
        let body = json!({ "type": "login", "targetId": who.0.to_string(), "targetName": who.1 });
        self.app_data("team", &format!("{} is now online", who.1), &self.name, body)
    }

    fn app_data(&self, channel: &str, title: &str, message: &str, mut body: Value) -> Vec<(String, String)> {
        let server = json!({
            "id": self.id, "name": self.name, "desc": "", "img": "", "logo": "", "url": "",
            "ip": self.ip, "port": self.port.to_string(),
        });
        if let (Value::Object(body), Value::Object(mut server)) = (&mut body, server) {
            body.append(&mut server);
        }
        app_data(channel, title, message, &body)
    }
}

/// News of the publisher.
pub fn news(title: &str, message: &str) -> Vec<(String, String)> {
    app_data("news", title, message, &Value::Object(Map::new()))
}

fn app_data(channel: &str, title: &str, message: &str, body: &Value) -> Vec<(String, String)> {
    let body = body.to_string();
    [
        ("projectId", "49451aca-a822-41e6-ad59-955718d0ff9c"),
        ("channelId", channel),
        ("title", title),
        ("message", message),
        ("body", &body),
        ("experienceId", "@facepunch/RustCompanion"),
        ("scopeKey", "@facepunch/RustCompanion"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

struct Shared {
    state: Mutex<State>,
    tls: TlsAcceptor,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    accounts: HashMap<u64, Account>,
    faults: Faults,
    counts: Counts,
    /// Makes persistent ids and connection numbers.
    pushed: u64,
    connections: u64,
}

struct Account {
    token: u64,
    /// Neither acknowledged nor named at a login.
    waiting: VecDeque<Message>,
    history: VecDeque<Message>,
    line: Option<Line>,
}

/// The one session of an account; a newer login takes its place.
struct Line {
    connection: u64,
    wake: Arc<Notify>,
    /// Messages delivered on it.
    delivered: u32,
    /// Heartbeats to send.
    pings: u32,
}

#[derive(Clone)]
struct Message {
    stanza: DataMessageStanza,
    due: Instant,
    expires: Timestamp,
    /// The frame of the present session that carried it.
    at: Option<i32>,
}

/// What a connection does next.
enum Order {
    Deliver(Box<DataMessageStanza>),
    Ping,
    Close,
    /// Without a word.
    Cut,
    Wait(Option<Instant>),
}

impl Account {
    fn new(token: u64) -> Self {
        Self { token, waiting: VecDeque::new(), history: VecDeque::new(), line: None }
    }

    fn wake(&self) {
        if let Some(line) = &self.line {
            line.wake.notify_one();
        }
    }
}

fn keep(messages: &mut VecDeque<Message>, message: Message) {
    if messages.len() == MESSAGES {
        messages.pop_front();
    }
    messages.push_back(message);
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what [`PushService::until`] looks at.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_replace(());
        result
    }
}

/// A certificate authority in PEM, and TLS with a certificate of it.
fn certificates(listen: SocketAddr) -> io::Result<(String, TlsAcceptor)> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "companion simulator, not to be trusted");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().map_err(io::Error::other)?);
    let authority = authority.map_err(io::Error::other)?;

    let names = [HOST, "localhost", "127.0.0.1", "::1", &listen.ip().to_string()].map(str::to_owned);
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, HOST);
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = params.signed_by(&key, &authority).map_err(io::Error::other)?;

    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key))
        .map_err(io::Error::other)?;
    Ok((authority.pem(), TlsAcceptor::from(Arc::new(config))))
}

/// Owns the connections: they end with it.
async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) if connections.len() < CONNECTIONS => {
                    connections.spawn(serve(Arc::clone(&shared), socket));
                }
                Ok(_) => {}
                // Out of descriptors, mostly: one that ends gives one back.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(shared: Arc<Shared>, socket: TcpStream) {
    // Deliveries are small and must not wait for each other; without it they are only slower.
    let _ = socket.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(HANDSHAKE_DEADLINE, shared.tls.accept(socket)).await else { return };
    let mut peer = Peer { stream, decoder: Decoder::default(), inbox: BytesMut::new(), greeted: false, sent: 0 };
    if let Err(End::Violation(what)) = peer.session(&shared).await {
        shared.change(|state| {
            if state.counts.violations.len() < VIOLATIONS {
                state.counts.violations.push(what);
            }
        });
    }
    // A courtesy: the peer may be gone.
    let _ = timeout(Duration::from_secs(1), peer.stream.shutdown()).await;
}

/// Why a connection is over.
enum End {
    Gone,
    Violation(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

fn violation(what: impl Into<String>) -> End {
    End::Violation(what.into())
}

struct Peer {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
    inbox: BytesMut,
    /// The client's first frame is here.
    greeted: bool,
    /// Frames sent.
    sent: i32,
}

/// The account is online until this is dropped.
struct Online<'a> {
    shared: &'a Shared,
    android_id: u64,
    connection: u64,
}

impl Drop for Online<'_> {
    fn drop(&mut self) {
        self.shared.change(|state| {
            if let Some(account) = state.accounts.get_mut(&self.android_id) {
                account.line.take_if(|line| line.connection == self.connection);
            }
        });
    }
}

impl Peer {
    async fn session(&mut self, shared: &Shared) -> Result<(), End> {
        let first = timeout(HANDSHAKE_DEADLINE, self.next()).await.map_err(|_| violation("no login in time"))??;
        let Frame::LoginRequest(login) = first else { return Err(violation(format!("{first:?} before the login"))) };
        self.greeted = true;
        let android_id = check(&login)?;
        shared.change(|state| state.counts.logins += 1);
        let faults = shared.lock().faults;
        if faults.mute_login {
            loop {
                self.next().await?;
            }
        }
        let known =
            shared.lock().accounts.get(&android_id).is_some_and(|known| known.token.to_string() == login.auth_token);
        if let Some(code) = faults.refuse_login.or((!known).then_some(UNAUTHORIZED)) {
            let error = Some(ErrorInfo { code, message: Some("refused".to_owned()), ..ErrorInfo::default() });
            let answer = LoginResponse { id: login.id, error, ..LoginResponse::default() };
            let written = self.greet(answer).await;
            shared.change(|state| state.counts.refused += 1);
            return written;
        }

        let wake = Arc::new(Notify::new());
        let received: HashSet<String> = login.received_persistent_id.into_iter().collect();
        let online = shared.log_in(android_id, &received, Arc::clone(&wake));
        self.greet(LoginResponse {
            id: login.id,
            jid: Some(format!("{android_id}@mcs.android.com/{android_id}")),
            stream_id: Some(1),
            last_stream_id_received: Some(1),
            server_timestamp: Some(Utc::now().timestamp_millis()),
            ..LoginResponse::default()
        })
        .await?;
        if !received.is_empty() {
            self.send(&Frame::IqStanza(selective_ack(received))).await?;
        }
        self.converse(shared, &online, &wake).await
    }

    async fn converse(&mut self, shared: &Shared, online: &Online<'_>, wake: &Notify) -> Result<(), End> {
        let mut pings = interval(PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        loop {
            let (order, faults) = shared.order(online, self.sent + 1);
            let due = match order {
                Order::Deliver(stanza) => {
                    self.deliver(&Frame::DataMessage(*stanza), faults).await?;
                    continue;
                }
                Order::Ping => {
                    self.ping().await?;
                    continue;
                }
                Order::Close => return self.send(&Frame::Close).await,
                Order::Cut => return Ok(()),
                Order::Wait(due) => due,
            };
            let frame = select! {
                frame = self.next() => frame?,
                () = wake.notified() => continue,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
                _ = pings.tick() => {
                    self.ping().await?;
                    continue;
                }
            };
            match frame {
                Frame::HeartbeatPing(ping) => {
                    self.received(shared, online, ping.last_stream_id_received, |counts| counts.pings += 1)?;
                    if !faults.frozen {
                        let last_stream_id_received = Some(self.sent);
                        let ack = HeartbeatAck { last_stream_id_received, ..HeartbeatAck::default() };
                        self.send(&Frame::HeartbeatAck(ack)).await?;
                    }
                }
                Frame::HeartbeatAck(ack) => {
                    self.received(shared, online, ack.last_stream_id_received, |counts| counts.pongs += 1)?;
                }
                Frame::IqStanza(iq) => {
                    let is_ack = iq.r#type == i32::from(iq_stanza::Type::Set)
                        && iq.extension.as_ref().is_some_and(|extension| extension.id == STREAM_ACK)
                        && iq.last_stream_id_received.is_some();
                    if !is_ack {
                        return Err(violation(format!("{iq:?} is no stream acknowledgement")));
                    }
                    self.received(shared, online, iq.last_stream_id_received, |counts| counts.stream_acks += 1)?;
                }
                Frame::Close => return Ok(()),
                other => return Err(violation(format!("{other:?} of a client"))),
            }
        }
    }

    /// The client has all frames up to `last`.
    fn received(
        &self,
        shared: &Shared,
        online: &Online<'_>,
        last: Option<i32>,
        count: impl FnOnce(&mut Counts),
    ) -> Result<(), End> {
        let last = last.unwrap_or_default();
        if !(0..=self.sent).contains(&last) {
            return Err(violation(format!("{last} frames received of {} sent", self.sent)));
        }
        shared.change(|state| {
            count(&mut state.counts);
            if let Some(account) = state.accounts.get_mut(&online.android_id)
                && account.line.as_ref().is_some_and(|line| line.connection == online.connection)
            {
                account.waiting.retain(|message| message.at.is_none_or(|at| at > last));
            }
        });
        Ok(())
    }

    async fn deliver(&mut self, frame: &Frame, faults: Faults) -> Result<(), End> {
        if faults.garbage {
            return self.write(&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).await;
        }
        if faults.unreadable {
            self.sent += 1;
            // A text of nine bytes, of which there is one.
            return self.write(&[8, 3, 0x1a, 9, b'a']).await;
        }
        if faults.oversize {
            let mut header = vec![8];
            prost::encode_length_delimiter(PAYLOAD_LIMIT + 1, &mut header).expect("a Vec grows");
            return self.write(&header).await;
        }
        if faults.truncate {
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            self.write(&bytes[..bytes.len() / 2]).await?;
            return Err(End::Gone);
        }
        self.send(frame).await?;
        if faults.duplicate {
            self.send(frame).await?;
        }
        Ok(())
    }

    async fn ping(&mut self) -> Result<(), End> {
        let stream_id = Some(self.sent + 1);
        self.send(&Frame::HeartbeatPing(HeartbeatPing { stream_id, ..HeartbeatPing::default() })).await
    }

    async fn greet(&mut self, answer: LoginResponse) -> Result<(), End> {
        self.write(&[VERSION]).await?;
        self.send(&Frame::LoginResponse(answer)).await
    }

    async fn send(&mut self, frame: &Frame) -> Result<(), End> {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.sent += 1;
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(WRITE_DEADLINE, write).await.map_err(|_| End::Gone)?.map_err(End::from)
    }

    /// The client's next frame; may be dropped while it waits.
    async fn next(&mut self) -> Result<Frame, End> {
        loop {
            // Some clients write the version before later frames, too; it is no tag.
            while self.greeted && self.inbox.first() == Some(&VERSION) {
                self.inbox.advance(1);
            }
            let frame = self.decoder.next(&mut self.inbox).map_err(|error| violation(error.to_string()))?;
            if let Some(frame) = frame {
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.inbox).await? == 0 {
                return Err(End::Gone);
            }
        }
    }
}

impl Shared {
    fn log_in(&self, android_id: u64, received: &HashSet<String>, wake: Arc<Notify>) -> Online<'_> {
        self.change(|state| {
            state.connections += 1;
            let (connection, replay) = (state.connections, state.faults.replay);
            if let Some(account) = state.accounts.get_mut(&android_id) {
                if replay {
                    account.waiting = account.history.clone();
                } else {
                    let known = |message: &Message| {
                        message.stanza.persistent_id.as_ref().is_some_and(|id| received.contains(id))
                    };
                    account.waiting.retain(|message| !known(message));
                }
                account.waiting.iter_mut().for_each(|message| message.at = None);
                account.wake(); // whoever was there before finds the line taken
                account.line = Some(Line { connection, wake, delivered: 0, pings: 0 });
            }
            Online { shared: self, android_id, connection }
        })
    }

    /// What the connection does next; a message becomes its frame `frame`.
    fn order(&self, online: &Online<'_>, frame: i32) -> (Order, Faults) {
        let mut state = self.lock();
        let faults = state.faults;
        let Some(account) = state.accounts.get_mut(&online.android_id) else { return (Order::Cut, faults) };
        let Some(line) = &mut account.line else { return (Order::Cut, faults) };
        if line.connection != online.connection {
            return (Order::Close, faults);
        }
        if line.pings > 0 {
            line.pings -= 1;
            return (Order::Ping, faults);
        }
        if faults.close_after.is_some_and(|limit| line.delivered >= limit) {
            return (Order::Close, faults);
        }
        let now = Utc::now();
        account.waiting.retain(|message| message.at.is_some() || message.expires > now);
        let next = account.waiting.iter_mut().find(|message| message.at.is_none()).filter(|_| !faults.frozen);
        let order = match next {
            None => Order::Wait(None),
            Some(message) if message.due > Instant::now() => Order::Wait(Some(message.due)),
            Some(message) => {
                line.delivered += 1;
                message.at = Some(frame);
                let stream_id = Some(frame);
                Order::Deliver(Box::new(DataMessageStanza { stream_id, ..message.stanza.clone() }))
            }
        };
        (order, faults)
    }
}

/// The Android id of a login that is as real clients write it; whether it is right is another question.
fn check(login: &LoginRequest) -> Result<u64, End> {
    let android_id: u64 = login.user.parse().map_err(|_| violation("the user is not an Android id"))?;
    let setting = |setting: &Setting| setting.name == "new_vc" && setting.value == "1";
    for (good, what) in [
        (login.id.starts_with("chrome-"), "id"),
        (login.domain == "mcs.android.com", "domain"),
        (login.resource == login.user, "resource"),
        (login.auth_token.parse::<u64>().is_ok(), "auth_token"),
        (login.device_id.as_ref().is_some_and(|id| id.starts_with("android-")), "device_id"),
        (login.setting.iter().any(setting), "setting"),
        (login.use_rmq2 == Some(true), "use_rmq2"),
        (login.auth_service == Some(2), "auth_service"),
        (login.network_type == Some(1), "network_type"),
    ] {
        if !good {
            return Err(violation(format!("{what} of the login is not what clients send")));
        }
    }
    Ok(android_id)
}

/// Says that the ids of the login were understood.
fn selective_ack(ids: HashSet<String>) -> IqStanza {
    #[derive(Clone, PartialEq, prost::Message)]
    struct SelectiveAck {
        #[prost(string, repeated, tag = "1")]
        id: Vec<String>,
    }
    let data = SelectiveAck { id: ids.into_iter().collect() }.encode_to_vec().into();
    IqStanza {
        r#type: iq_stanza::Type::Set.into(),
        extension: Some(Extension { id: SELECTIVE_ACK, data }),
        ..IqStanza::default()
    }
}
