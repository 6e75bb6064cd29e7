//! A client of the relay that watches the server, obeys orders, and remembers what it received.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use chrono::Utc;
use companion::domain::{ids::ServerId, time::Timestamp};
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header::COOKIE;
use serde_json::{Value, json};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::{PATIENCE, crash::Addresses};

/// Orders to a client.
pub enum Order {
    Reconnect,
    /// Reads no more until the next order.
    Stall,
    Resume,
    /// Sends a ping; its pong comes after all raids.
    Sync,
}

/// Messages that a client received.
#[derive(Default)]
pub struct Received {
    /// (incident, update).
    pub raids: Vec<(String, bool)>,
    /// Incidents of a message or a state, and when the first came: when many wait, a patch that shows them goes ahead of
    /// their messages.
    pub known: HashMap<String, Timestamp>,
    /// When it was subscribed and reading, from and to; the last one may go on.
    pub watched: Vec<(Timestamp, Option<Timestamp>)>,
    pub state: Option<Value>,
    pub synced: u32,
    pub faults: Vec<String>,
}

impl Received {
    /// The state shows these raids.
    fn know_shown(&mut self, now: Timestamp) {
        let shown = self.state.as_ref().and_then(|state| state["raids"].as_object());
        for incident in shown.into_iter().flat_map(|raids| raids.keys()) {
            if !self.known.contains_key(incident) {
                self.known.insert(incident.clone(), now);
            }
        }
    }
}

/// A running client.
pub struct Client {
    orders: mpsc::UnboundedSender<Order>,
    received: Arc<Mutex<Received>>,
    changed: watch::Receiver<()>,
}

impl Client {
    pub fn start(
        http: &reqwest::Client,
        cookie: &str,
        server: &ServerId,
        up: &watch::Receiver<Option<Addresses>>,
    ) -> Self {
        let (orders, obeyed) = mpsc::unbounded_channel();
        let (change, changed) = watch::channel(());
        let received = Arc::<Mutex<Received>>::default();
        let dashboard = Dashboard {
            http: http.clone(),
            cookie: cookie.to_owned(),
            server: server.clone(),
            up: up.clone(),
            orders: obeyed,
            received: received.clone(),
            change,
        };
        tokio::spawn(dashboard.live());
        Self { orders, received, changed }
    }

    pub fn order(&self, order: Order) {
        self.orders.send(order).expect("it lives as long as the trial");
    }

    pub fn received<T>(&self, look: impl FnOnce(&Received) -> T) -> T {
        look(&self.received.lock().unwrap())
    }

    /// Waits until this holds for what was received.
    pub async fn until(&self, what: &str, holds: impl Fn(&Received) -> bool) {
        let mut changed = self.changed.clone();
        let waits = async {
            while !self.received(&holds) {
                changed.changed().await.expect("it lives as long as the trial");
            }
        };
        timeout(PATIENCE, waits).await.unwrap_or_else(|_| panic!("no {what}; state: {}", self.received(brief)));
    }
}

fn brief(received: &Received) -> String {
    let state = received.state.as_ref();
    state.map_or_else(String::new, |state| format!("{} {}", state["server"], state["devices"]))
}

/// A client that connects, watches, and connects again.
struct Dashboard {
    http: reqwest::Client,
    cookie: String,
    server: ServerId,
    up: watch::Receiver<Option<Addresses>>,
    orders: mpsc::UnboundedReceiver<Order>,
    received: Arc<Mutex<Received>>,
    change: watch::Sender<()>,
}

impl Dashboard {
    async fn live(mut self) {
        loop {
            let Ok(addresses) = self.up.wait_for(Option::is_some).await.map(|up| up.clone().expect("it is up")) else {
                return;
            };
            let socket = self.connect(&addresses).await;
            if let Some(socket) = socket {
                self.watch(socket).await;
                self.note(|received| {
                    if let Some((_, end @ None)) = received.watched.last_mut() {
                        *end = Some(Utc::now().into());
                    }
                    received.state = None;
                });
            } else {
                // This service was killed; the next one is announced.
                let gone = |up: &Option<Addresses>| up.as_ref().is_none_or(|up| up.relay != addresses.relay);
                if self.up.wait_for(gone).await.is_err() {
                    return;
                }
            }
        }
    }

    fn note(&self, note: impl FnOnce(&mut Received)) {
        note(&mut self.received.lock().unwrap());
        self.change.send_replace(());
    }

    async fn connect(&self, addresses: &Addresses) -> Option<WebSocketStream<TcpStream>> {
        let minted = self.http.post(format!("{}/relay/token", addresses.api)).header(COOKIE, &self.cookie).send().await;
        let answer = minted.ok()?;
        assert_eq!(answer.status(), 200, "a token");
        let answer: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
        let token = answer["token"].as_str().expect("a token");
        let socket = TcpSocket::new_v4().unwrap();
        // A small buffer, so that the relay soon notices a client that does not read.
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let stream = socket.connect(addresses.relay).await.ok()?;
        let (mut socket, _) = client_async(format!("ws://{}/v1?token={token}", addresses.relay), stream).await.ok()?;
        let subscribe = json!({ "type": "subscribe", "serverId": self.server });
        socket.send(Message::text(subscribe.to_string())).await.ok()?;
        Some(socket)
    }

    /// Until the socket ends.
    async fn watch(&mut self, mut socket: WebSocketStream<TcpStream>) {
        loop {
            tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => self.take(&text),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                order = self.orders.recv() => match order {
                    Some(Order::Reconnect) | None => return,
                    Some(Order::Sync) => {
                        if socket.send(Message::text(r#"{"type":"ping"}"#)).await.is_err() {
                            return;
                        }
                    }
                    Some(Order::Stall) => {
                        self.note(|received| if let Some((_, end @ None)) = received.watched.last_mut() {
                            *end = Some(Utc::now().into());
                        });
                        // Any order but to read on ends the socket.
                        if !matches!(self.orders.recv().await, Some(Order::Resume)) {
                            return;
                        }
                    }
                    Some(Order::Resume) => {}
                },
            }
        }
    }

    fn take(&self, text: &str) {
        let message: Value = serde_json::from_str(text).expect("JSON");
        let now: Timestamp = Utc::now().into();
        self.note(|received| match message["type"].as_str() {
            Some("snapshot") => {
                if received.watched.last().is_none_or(|(_, end)| end.is_some()) {
                    received.watched.push((now, None));
                }
                received.state = Some(message["state"].clone());
                received.know_shown(now);
            }
            Some("patch") => {
                let patch = serde_json::from_value::<json_patch::Patch>(message["patch"].clone()).expect("RFC 6902");
                if let Some(state) = &mut received.state {
                    json_patch::patch(state, &patch).expect("it fits");
                }
                received.know_shown(now);
            }
            Some("raid") => {
                let incident = message["incident"].as_str().expect("an incident").to_owned();
                let update = message["update"].as_bool().expect("update");
                if !update && received.raids.contains(&(incident.clone(), false)) {
                    received.faults.push(format!("incident {incident} was announced twice to one client"));
                }
                if message["alarmId"].as_str().is_none_or(str::is_empty) {
                    received.faults.push(format!("a raid without an alarm: {message}"));
                }
                received.known.entry(incident.clone()).or_insert(now);
                received.raids.push((incident, update));
            }
            Some("pong") => received.synced += 1,
            Some("error") => received.faults.push(format!("an error: {message}")),
            _ => {}
        });
    }
}
