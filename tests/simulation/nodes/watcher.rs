//! A client that has a socket at one of the nodes, watches servers of either, and goes to the other node if its own refuses it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use companion::{domain::ids::SessionId, net::Memory};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{Nodes, PLACES, gate::Gate};
use crate::{
    dashboard::Known,
    life::session,
    random::Stream,
    wire::Wire,
    world::{PAIRED, USERS},
};

/// Each with its user, the place of its own node, and the paired servers that it watches.
pub const WATCHERS: [(usize, usize, &[usize]); 4] = [(0, 0, &[0, 1]), (0, 1, &[0, 1]), (1, 0, &[2]), (1, 1, &[2])];

/// A node that does not answer for so long is asked no longer.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
/// A socket of which nothing comes for so long is dead: the service pings more often.
const SILENCE: Duration = Duration::from_secs(75);

/// An open socket.
pub struct WatcherSocket {
    /// The number among those of its client.
    pub number: u32,
    pub session: SessionId,
    pub wire: Rc<Wire>,
    /// The gate of its node.
    pub gate: Rc<Gate>,
    pub is_closed: Cell<bool>,
}

pub struct Watcher {
    pub number: usize,
    pub user: usize,
    home: usize,
    pub watches: &'static [usize],
    session: Cell<u32>,
    sockets: Cell<u32>,
    pub socket: RefCell<Option<Rc<WatcherSocket>>>,
    /// By server, the state of its socket.
    pub known: RefCell<BTreeMap<String, Known>>,
}

impl Watcher {
    /// Starts the client of this number.
    pub fn start(nodes: &Rc<Nodes>, number: usize) -> Rc<Self> {
        let (user, home, watches) = WATCHERS[number];
        let (session, sockets) = Default::default();
        let (socket, known) = Default::default();
        let watcher = Rc::new(Self { number, user, home, watches, session, sockets, socket, known });
        tokio::task::spawn_local(watcher.clone().run(nodes.clone()));
        watcher
    }

    pub fn session(&self) -> SessionId {
        session(self.user, self.session.get())
    }

    /// From now on it signs in as this session of its user.
    pub fn use_session(&self, number: u32) {
        self.session.set(number);
    }

    pub fn open_socket(&self) -> Option<Rc<WatcherSocket>> {
        self.socket.borrow().clone()
    }

    /// Its connection breaks.
    pub fn cut(&self) {
        if let Some(socket) = self.open_socket() {
            socket.wire.cut();
        }
    }

    async fn run(self: Rc<Self>, nodes: Rc<Nodes>) {
        let mut random = Stream::of(nodes.world.seed, &format!("watcher {}", self.number));
        let mut place = self.home;
        loop {
            let session = self.session();
            let connecting = nodes.connect(place, USERS[self.user].into(), session.clone());
            if let Ok(Some((memory, wire, gate))) = timeout(CONNECTS_WITHIN, connecting).await {
                let number = self.sockets.get() + 1;
                self.sockets.set(number);
                let socket = Rc::new(WatcherSocket { number, session, wire, gate, is_closed: Cell::new(false) });
                *self.socket.borrow_mut() = Some(socket.clone());
                if random.chance(50) {
                    self.known.borrow_mut().clear();
                }
                self.live(&nodes, memory, &socket).await;
                socket.is_closed.set(true);
                *self.socket.borrow_mut() = None;
                place = self.home;
            } else {
                place = (place + 1) % PLACES;
            }
            sleep(Duration::from_millis(500 + random.below(500))).await;
        }
    }

    /// Until the socket ends.
    async fn live(&self, nodes: &Nodes, memory: Memory, of: &WatcherSocket) {
        let config = WebSocketConfig::default().read_buffer_size(4_096).write_buffer_size(0);
        let mut socket = WebSocketStream::from_raw_socket(memory, Role::Client, Some(config)).await;
        for paired in self.watches {
            let Some(server) = nodes.server(*paired) else { continue };
            let mut subscribe = json!({ "type": "subscribe", "serverId": server });
            if let Some(known) = self.known.borrow().get(&server) {
                (subscribe["epoch"], subscribe["seq"]) = (known.epoch.into(), known.seq.into());
            }
            if socket.send(Message::text(subscribe.to_string())).await.is_err() {
                return;
            }
        }
        while let Ok(Some(Ok(message))) = timeout(SILENCE, socket.next()).await {
            match message {
                Message::Text(text) => {
                    let start: String = text.chars().take(110).collect();
                    nodes.world.trace(&format!("watcher {} at {} < {start}", self.number, of.gate.number));
                    nodes.world.trace_silently(&text);
                    let message: Value = serde_json::from_str(&text).expect("JSON");
                    if !self.receive(nodes, of, &message) {
                        return;
                    }
                }
                Message::Close(_) => return,
                _ => {}
            }
        }
    }

    /// False if it does not go on with this socket.
    fn receive(&self, nodes: &Nodes, of: &WatcherSocket, message: &Value) -> bool {
        let server = message["serverId"].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| message[key].as_u64().unwrap_or_default();
        let (epoch, seq) = (number("epoch"), number("seq"));
        let mut known = self.known.borrow_mut();
        let mut verdict = nodes.verdict.borrow_mut();
        match message["type"].as_str().unwrap_or_default() {
            "snapshot" => {
                let state = message["state"].clone();
                verdict.compare(&server, (epoch, seq), &state);
                known.insert(server, Known { epoch, seq, state, changed: Instant::now() });
            }
            "patch" => {
                let Some(before) = known.get_mut(&server) else {
                    verdict.broken("patches-follow", format!("watcher {}: a patch before a snapshot", self.number));
                    return false;
                };
                if (before.epoch, before.seq) != (epoch, number("base")) {
                    let (at, base) = ((before.epoch, before.seq), (epoch, number("base")));
                    verdict.broken("patches-follow", format!("watcher {} is at {at:?}: {base:?}", self.number));
                    return false;
                }
                let patch = serde_json::from_value::<json_patch::Patch>(message["patch"].clone()).expect("a patch");
                if let Err(error) = json_patch::patch(&mut before.state, &patch) {
                    verdict.broken("patches-follow", format!("watcher {}: {error}", self.number));
                    return false;
                }
                (before.seq, before.changed) = (seq, Instant::now());
                verdict.compare(&server, (epoch, seq), &before.state);
            }
            "raid" => {
                let incident = message["incident"].as_str().unwrap_or_default();
                let is_new = message["update"] == false;
                verdict.hear_of_raid((self.number, of.number), &server, incident, is_new);
            }
            // The client asks again, with another socket.
            "error" => return false,
            _ => {}
        }
        true
    }

    /// Where it is with a paired server, and what it shows.
    pub fn state_of(&self, nodes: &Nodes, paired: usize) -> Option<Known> {
        let server = nodes.server(paired).filter(|_| self.watches.contains(&paired))?;
        self.known.borrow().get(&server).cloned()
    }

    /// In words.
    pub fn label(&self, paired: usize) -> String {
        let place = self.open_socket().map(|socket| socket.gate.number);
        format!("watcher {} of {} at node {place:?}", self.number, PAIRED[paired].0)
    }
}
