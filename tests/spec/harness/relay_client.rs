//! A relay client as a dashboard is one: applies the patches, and checks with every frame what the relay promises.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    net::SocketAddr,
    sync::LazyLock,
    time::{Duration, Instant},
};

use companion::relay::wire::schema;
use futures_util::{SinkExt as _, StreamExt as _};
use jsonschema::Validator;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{timeout, timeout_at},
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        self, Message,
        client::IntoClientRequest as _,
        handshake::client::{Request, Response},
        http::HeaderValue,
        protocol::WebSocketConfig,
    },
};

use super::{app::TestApp, browser::Browser, canary};

/// Longest wait for anything; only a test that fails waits this long.
pub const PATIENCE: Duration = Duration::from_secs(45);
/// The relay counts frames as they leave, we as they are read: a test on a busy machine may read a little late.
const READ_LATE: Duration = Duration::from_secs(2);
const FRAMES: usize = 60;
const FRAMES_SPAN: Duration = Duration::from_secs(10);
const SNAPSHOT_SPAN: Duration = Duration::from_secs(5);

/// The published schema of the service's messages.
static SERVER_MESSAGES: LazyLock<Validator> = LazyLock::new(|| {
    let mut schema = schema::document();
    schema["oneOf"] = json!([{ "$ref": "#/$defs/ServerMessage" }]);
    jsonschema::draft202012::new(&schema).unwrap()
});

/// The kinds of these messages, as the schema has them: `ClientMessage` or `ServerMessage`.
pub fn published_kinds(messages: &str) -> BTreeSet<String> {
    let document = schema::document();
    let messages = document["$defs"][messages]["oneOf"].as_array().unwrap();
    messages.iter().map(|message| kind_of(message).unwrap_or_else(|| panic!("{message} has a type"))).collect()
}

/// The `type` of a message's schema.
pub fn kind_of(message: &Value) -> Option<String> {
    let parts = message["allOf"].as_array();
    let own = message["properties"]["type"]["enum"][0].as_str().map(str::to_owned);
    own.or_else(|| parts?.iter().find_map(kind_of))
}

/// A server's state as this client knows it.
#[derive(Clone, Debug)]
pub struct Known {
    pub epoch: u64,
    pub seq: u64,
    pub state: Value,
    /// Patches applied, also before its latest snapshot.
    pub patches: usize,
    /// On this connection.
    snapshot_at: Option<Instant>,
}

pub struct RelayClient {
    socket: WebSocketStream<TcpStream>,
    /// By server id; kept after an unsubscribe.
    pub known: HashMap<String, Known>,
    /// Arrival of the latest data frames.
    arrivals: VecDeque<Instant>,
    /// Data frames so far.
    pub frames: usize,
    /// Messages other than snapshots and patches, in order, until they are expected.
    pub waiting: VecDeque<Value>,
    /// All frames so far, if they are to be kept.
    pub kept: Option<String>,
}

/// End of a socket: its close code, 1006 when there was none.
pub type CloseCode = u16;
/// The socket did not end, and nothing came either.
const NOTHING_CAME: CloseCode = 0;

/// A token for the relay.
pub async fn token(browser: &mut Browser) -> String {
    let answer = browser.post("/relay/token", None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["token"].as_str().unwrap().to_owned()
}

/// The opening request with the token in the query; without one if there is none.
pub fn request(relay: SocketAddr, token: Option<&str>) -> Request {
    token.into_iter().for_each(canary::note);
    let query = token.map(|token| format!("?token={token}")).unwrap_or_default();
    format!("ws://{relay}/v1{query}").into_client_request().unwrap()
}

/// The request with one more header.
pub fn with_header(mut request: Request, name: &'static str, value: &str) -> Request {
    request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    request
}

/// Opens a socket, or the HTTP answer that refused it.
pub async fn open(relay: SocketAddr, request: Request) -> Result<(RelayClient, Response), Box<Refused>> {
    let stream = TcpStream::connect(relay).await.unwrap();
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    match timeout(PATIENCE, client_async_with_config(request, stream, Some(config))).await.expect("an answer in time") {
        Ok((socket, response)) => Ok((
            RelayClient {
                socket,
                known: HashMap::new(),
                arrivals: VecDeque::new(),
                frames: 0,
                waiting: VecDeque::new(),
                kept: None,
            },
            response,
        )),
        Err(tungstenite::Error::Http(response)) => {
            let (parts, body) = response.into_parts();
            let body = body.unwrap_or_default();
            Err(Box::new(Refused {
                status: parts.status.as_u16(),
                problem: serde_json::from_slice(&body).unwrap_or_default(),
            }))
        }
        Err(error) => panic!("the handshake: {error}"),
    }
}

/// An answer other than a 101.
#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub problem: Value,
}

impl RelayClient {
    /// Mints a token and connects.
    pub async fn connect(app: &TestApp, browser: &mut Browser) -> Self {
        let token = token(browser).await;
        open(app.relay, request(app.relay, Some(&token))).await.expect("a 101").0
    }

    /// Connects, subscribes and waits for the state.
    pub async fn watching(app: &TestApp, browser: &mut Browser, server: &str) -> Self {
        let mut client = Self::connect(app, browser).await;
        client.subscribe(server).await;
        client.expect_snapshot(server).await;
        client
    }

    pub async fn send(&mut self, message: Value) {
        self.send_raw(Message::text(message.to_string())).await;
    }

    pub async fn send_raw(&mut self, message: Message) {
        self.try_send(message).await.expect("the socket is open");
    }

    /// For messages to a socket that may be closing.
    pub async fn try_send(&mut self, message: Message) -> Result<(), tungstenite::Error> {
        timeout(PATIENCE, self.socket.send(message)).await.expect("the relay reads")
    }

    pub async fn subscribe(&mut self, server: &str) {
        self.send(json!({ "type": "subscribe", "serverId": server })).await;
    }

    /// Subscribes, going on from what was known on another connection.
    pub async fn resume(&mut self, server: &str, known: Known) {
        let Known { epoch, seq, .. } = known;
        self.known.insert(server.to_owned(), Known { snapshot_at: None, ..known });
        self.send(json!({ "type": "subscribe", "serverId": server, "epoch": epoch, "seq": seq })).await;
    }

    pub async fn unsubscribe(&mut self, server: &str) {
        self.send(json!({ "type": "unsubscribe", "serverId": server })).await;
    }

    /// Sends a ping and waits for its pong: the relay has handled what was sent before.
    pub async fn ping(&mut self) {
        self.send(json!({ "type": "ping" })).await;
        self.expect("pong").await;
    }

    /// The state of this server as this client knows it.
    #[track_caller]
    pub fn state(&self, server: &str) -> &Value {
        &self.known[server].state
    }

    /// Waits for the next frame and applies it. Its message, or how the socket ended.
    async fn receive(&mut self) -> Result<Value, CloseCode> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            // Pings do not count: they never end.
            let Ok(next) = timeout_at(deadline, self.socket.next()).await else { return Err(NOTHING_CAME) };
            match next {
                Some(Ok(Message::Text(text))) => {
                    let message: Value = serde_json::from_str(&text).expect("JSON");
                    self.count(Instant::now());
                    if let Some(kept) = &mut self.kept {
                        kept.push_str(&text);
                    }
                    if let Err(fault) = SERVER_MESSAGES.validate(&message) {
                        panic!("not in the schema: {fault}: {message}");
                    }
                    self.take(&message);
                    return Ok(message);
                }
                Some(Ok(Message::Binary(_))) => panic!("the relay sends text"),
                Some(Ok(Message::Close(close))) => {
                    // Answers the close frame and waits for the end.
                    while let Some(Ok(_)) = timeout(PATIENCE, self.socket.next()).await.expect("the end in time") {}
                    return Err(close.map_or(1005, |close| close.code.into()));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(_)) | None => return Err(1006),
            }
        }
    }

    fn count(&mut self, now: Instant) {
        self.frames += 1;
        self.arrivals.push_back(now);
        while self.arrivals.front().is_some_and(|first| now - *first >= FRAMES_SPAN - READ_LATE) {
            self.arrivals.pop_front();
        }
        assert!(self.arrivals.len() <= FRAMES, "{} data frames within ten seconds", self.arrivals.len());
    }

    fn take(&mut self, message: &Value) {
        let text = |field: &str| message[field].as_str().unwrap_or_else(|| panic!("{field}: {message}")).to_owned();
        let number = |field: &str| message[field].as_u64().unwrap_or_else(|| panic!("{field}: {message}"));
        match text("type").as_str() {
            "snapshot" => {
                let (server, now) = (text("serverId"), Instant::now());
                // The sections that were subscribed to.
                let state = message["state"].as_object().expect("a state");
                for section in ["mapMarkers", "devices", "mapNotes"] {
                    assert!(state.get(section).is_none_or(Value::is_object), "{section} is keyed by id");
                }
                assert!(state.get("team").is_none_or(|team| team["members"].is_object()), "members are keyed by id");
                let (epoch, seq, state) = (number("epoch"), number("seq"), message["state"].clone());
                let patches = self.known.get(&server).map_or(0, |before| before.patches);
                let known = Known { epoch, seq, state, patches, snapshot_at: Some(now) };
                let before = self.known.insert(server, known);
                if let Some(before) = before.and_then(|before| before.snapshot_at) {
                    let apart = now - before;
                    assert!(apart >= SNAPSHOT_SPAN - READ_LATE, "two snapshots within {apart:?}");
                }
            }
            "patch" => {
                let known = self.known.get_mut(&text("serverId")).expect("a snapshot came first");
                assert_eq!(
                    (known.epoch, known.seq),
                    (number("epoch"), number("base")),
                    "it follows what was last sent"
                );
                let patch: json_patch::Patch = serde_json::from_value(message["patch"].clone()).expect("RFC 6902");
                // A client that came back to the state that it had is notified of that.
                assert!(number("seq") > known.seq || patch.0.is_empty(), "it leads on");
                json_patch::patch(&mut known.state, &patch).expect("the patch fits");
                known.seq = number("seq");
                known.patches += 1;
            }
            "event" | "chat" | "raid" | "pong" | "ack" | "error" | "pairingRequest" | "devicePaired" => {
                self.waiting.push_back(message.clone());
            }
            other => panic!("there is no message {other}"),
        }
    }

    /// Applies the next frame, whatever it is.
    pub async fn next_frame(&mut self) {
        self.receive().await.expect("the socket stays open");
    }

    /// The next message that was not expected before and is neither snapshot nor patch.
    pub async fn next_message(&mut self) -> Value {
        while self.waiting.is_empty() {
            self.next_frame().await;
        }
        self.waiting.pop_front().expect("one waits")
    }

    /// The next message of this type that was not expected before; those before it that are neither snapshots nor
    /// patches are forgotten.
    #[track_caller]
    pub fn expect(&mut self, kind: &str) -> impl Future<Output = Value> {
        self.expect_where(kind, |_| true)
    }

    /// Expects the first message for which this holds.
    #[track_caller]
    pub fn expect_where(&mut self, kind: &str, holds: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let expected = |message: &Value| message["type"] == kind && holds(message);
                if let Some(message) = self.waiting.iter().position(expected).and_then(|at| self.waiting.remove(at)) {
                    return message;
                }
                assert!(Instant::now() < deadline, "no {kind} came, expected at {caller}");
                if let Err(code) = self.receive().await {
                    panic!("the socket closed with {code} instead of {kind}, expected at {caller}");
                }
            }
        }
    }

    /// An error of this code.
    #[track_caller]
    pub fn expect_error(&mut self, code: &str) -> impl Future<Output = Value> {
        self.expect_where("error", move |message| {
            assert!(message["message"].as_str().is_some_and(|text| !text.is_empty()), "{message}");
            message["code"] == code
        })
    }

    /// The next snapshot of this server.
    pub async fn expect_snapshot(&mut self, server: &str) -> Known {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "no snapshot came");
            let message = self.receive().await.expect("the socket stays open");
            if message["type"] == "snapshot" && message["serverId"] == server {
                return self.known[server].clone();
            }
        }
    }

    /// The next patch of this server, applied.
    pub async fn expect_patch(&mut self, server: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "no patch came");
            let message = self.receive().await.expect("the socket stays open");
            if message["type"] == "patch" && message["serverId"] == server {
                return message;
            }
        }
    }

    /// Applies frames until this holds for the state of the server.
    #[track_caller]
    pub fn until(&mut self, server: &str, holds: impl Fn(&Value) -> bool) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = Instant::now() + PATIENCE;
            while !self.known.get(server).is_some_and(|known| holds(&known.state)) {
                let state = self.known.get(server).map(|known| brief(&known.state));
                assert!(Instant::now() < deadline, "the state never became what {caller} waits for: {state:?}");
                if let Err(code) = self.receive().await {
                    panic!("the socket closed with {code}, at {caller}: {state:?}");
                }
            }
        }
    }

    /// Applies frames until the socket ends.
    pub async fn expect_close(&mut self) -> CloseCode {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "the socket stayed open");
            if let Err(code) = self.receive().await {
                return code;
            }
        }
    }

    /// The payload of the next pong on the WebSocket's own level.
    pub async fn expect_control_pong(&mut self) -> Vec<u8> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("a frame in time") {
                Some(Ok(Message::Pong(payload))) => return payload.to_vec(),
                Some(Ok(_)) => {}
                ended => panic!("the socket ended: {ended:?}"),
            }
        }
    }
}

/// A state to be printed: without its many markers.
fn brief(state: &Value) -> String {
    let mut brief = state.clone();
    if let Some(markers) = brief["mapMarkers"].as_object() {
        brief["mapMarkers"] = json!(markers.len());
    }
    brief.to_string()
}
