//! Dashboards: each has a socket at one node, watches all servers of its user, and connects again whenever the socket ends.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use actix_web::rt::{self, task::JoinHandle};
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::{Client, header::COOKIE};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::{
    crash::Addresses,
    records::{SeenRaid, SocketId, WatchedState},
};

/// Time for a new socket. A node that was stopped may take longer.
const CONNECTED_WITHIN: Duration = Duration::from_secs(20);
/// Pause before the next attempt.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Everything that the sockets of a dashboard have received.
pub struct Seen {
    /// The last one.
    socket: SocketId,
    pub raids: Vec<SeenRaid>,
    /// By server, of the socket of now.
    pub states: BTreeMap<String, WatchedState>,
    /// When it knew first of an alarm, by message or state: by server and name.
    pub known: BTreeMap<(String, String), Duration>,
    /// Errors that were answered, by code.
    pub errors: BTreeMap<String, usize>,
    /// Messages that broke what the relay promises.
    pub faults: Vec<String>,
}

fn text<'a>(message: &'a Value, field: &str) -> &'a str {
    message[field].as_str().unwrap_or_default()
}

fn number(message: &Value, field: &str) -> u64 {
    message[field].as_u64().unwrap_or_default()
}

impl Seen {
    /// Nothing yet.
    pub fn new(user: usize, node: usize) -> Self {
        Self {
            socket: SocketId { user, node, number: 0 },
            raids: Vec::new(),
            states: BTreeMap::new(),
            known: BTreeMap::new(),
            errors: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    /// The number of sockets so far.
    pub fn sockets(&self) -> u32 {
        self.socket.number
    }

    fn begin(&mut self) {
        self.socket.number += 1;
    }

    fn end(&mut self) {
        self.states.clear();
    }

    /// Takes a message. False if the socket is to be closed: its stream does not go on.
    pub fn take(&mut self, message: &Value, at: Duration) -> bool {
        let server = text(message, "serverId").to_owned();
        match text(message, "type") {
            "snapshot" => {
                let (epoch, seq, state) = (number(message, "epoch"), number(message, "seq"), message["state"].clone());
                self.states.insert(server.clone(), WatchedState { epoch, seq, state });
                self.note_shown(&server, at);
            }
            "patch" => match self.apply(&server, message) {
                Ok(()) => self.note_shown(&server, at),
                Err(fault) => {
                    self.faults.push(format!("{}, {server}: {fault}", self.socket));
                    return false;
                }
            },
            "raid" => {
                let raid = SeenRaid {
                    socket: self.socket,
                    incident: text(message, "incident").to_owned(),
                    alarm_id: text(message, "alarmId").to_owned(),
                    alarm_name: text(message, "alarmName").to_owned(),
                    count: number(message, "count"),
                    update: message["update"] == true,
                    server: server.clone(),
                    at,
                };
                self.known.entry((server, raid.alarm_name.clone())).or_insert(at);
                self.raids.push(raid);
            }
            "error" => {
                *self.errors.entry(text(message, "code").to_owned()).or_default() += 1;
                return false;
            }
            _ => {}
        }
        true
    }

    fn apply(&mut self, server: &str, message: &Value) -> Result<(), String> {
        let known = self.states.get_mut(server).ok_or("a patch came before a snapshot")?;
        let (epoch, base) = (number(message, "epoch"), number(message, "base"));
        if (known.epoch, known.seq) != (epoch, base) {
            let (at_epoch, at) = (known.epoch, known.seq);
            return Err(format!("a patch from {base} of epoch {epoch} does not follow {at} of epoch {at_epoch}"));
        }
        let patch: json_patch::Patch = serde_json::from_value(message["patch"].clone()).map_err(|e| e.to_string())?;
        json_patch::patch(&mut known.state, &patch).map_err(|e| e.to_string())?;
        known.seq = number(message, "seq");
        Ok(())
    }

    fn note_shown(&mut self, server: &str, at: Duration) {
        for name in self.states.get(server).into_iter().flat_map(WatchedState::alarm_names) {
            self.known.entry((server.to_owned(), name.to_owned())).or_insert(at);
        }
    }
}

/// Needs of a dashboard.
pub struct WatcherStart {
    pub user: usize,
    pub node: usize,
    pub http: Client,
    pub addresses: Addresses,
    pub cookie: String,
    pub servers: Vec<String>,
    /// Zero of the times.
    pub began: Instant,
}

/// A dashboard, until it is dropped.
pub struct Watcher {
    pub user: usize,
    pub node: usize,
    seen: Rc<RefCell<Seen>>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Starts it on this thread.
    pub fn start(start: WatcherStart) -> Self {
        let (user, node) = (start.user, start.node);
        let seen = Rc::new(RefCell::new(Seen::new(user, node)));
        let task = rt::spawn(Dashboard { start, seen: seen.clone() }.live());
        Self { user, node, seen, task }
    }

    /// Looks at what it has received.
    pub fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.borrow())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Dashboard {
    start: WatcherStart,
    seen: Rc<RefCell<Seen>>,
}

impl Dashboard {
    async fn live(self) {
        loop {
            let connected = timeout(CONNECTED_WITHIN, self.connect()).await;
            if let Ok(Some(socket)) = connected {
                self.seen.borrow_mut().begin();
                self.watch(socket).await;
                self.seen.borrow_mut().end();
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    async fn connect(&self) -> Option<WebSocketStream<TcpStream>> {
        let WatcherStart { http, addresses, cookie, servers, .. } = &self.start;
        let minted = http.post(format!("{}/relay/token", addresses.api)).header(COOKIE, cookie).send().await.ok()?;
        if minted.status() != 200 {
            return None;
        }
        let answer: Value = minted.json().await.ok()?;
        let url = format!("ws://{}/v1?token={}", addresses.relay, text(&answer, "token"));
        let stream = TcpStream::connect(addresses.relay).await.ok()?;
        let (mut socket, _) = client_async(url, stream).await.ok()?;
        for server in servers {
            let subscribe = json!({ "type": "subscribe", "serverId": server });
            socket.send(Message::text(subscribe.to_string())).await.ok()?;
        }
        Some(socket)
    }

    /// Until the socket ends.
    async fn watch(&self, mut socket: WebSocketStream<TcpStream>) {
        while let Some(Ok(message)) = socket.next().await {
            let Message::Text(message) = message else { continue };
            let message: Value = serde_json::from_str(&message).expect("the relay sends JSON");
            if !self.seen.borrow_mut().take(&message, self.start.began.elapsed()) {
                return;
            }
        }
    }
}
