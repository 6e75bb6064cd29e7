//! A dashboard: connects, subscribes, applies what it gets with a JSON Patch library, and comes back with a backoff.
//! The judge gets all that it sees.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use companion::{
    domain::{ids::SessionId, relay_access::RelayAccess},
    net::Memory,
};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    life::session,
    overlays::Overlay,
    random::Stream,
    script::HEALTHY_FROM,
    wire::Wire,
    world::{PAIRED, USERS, World, world},
};

/// A socket of which nothing comes for so long is dead: the service pings more often.
const SILENCE: Duration = Duration::from_secs(75);

/// Knowledge of one server.
#[derive(Clone, Debug)]
pub struct Known {
    pub epoch: u64,
    pub seq: u64,
    pub state: Value,
    /// When the last message changed it.
    pub changed: Instant,
}

pub struct Dashboard {
    pub number: usize,
    pub user: usize,
    /// Its rights, if it is no dashboard but an overlay.
    pub overlay: Option<Rc<Overlay>>,
    /// Indexes of the paired servers that it watches.
    pub watches: RefCell<Vec<usize>>,
    /// Which of the user's sessions it uses.
    session: Cell<u32>,
    /// On its next connection it says what it has.
    pub comes_back: Cell<bool>,
    pub known: RefCell<BTreeMap<String, Known>>,
    /// The open socket, and the session that it came from.
    pub wire: RefCell<Option<(Rc<Wire>, SessionId)>>,
    /// Its own decisions.
    random: RefCell<Stream>,
    /// Messages to send on the open socket.
    outgoing: RefCell<Option<mpsc::UnboundedSender<Value>>>,
}

impl Dashboard {
    pub fn start(number: usize, user: usize, watches: Vec<usize>, overlay: Option<Rc<Overlay>>) -> Rc<Self> {
        let dashboard = Rc::new(Self {
            number,
            user,
            overlay,
            watches: RefCell::new(watches),
            session: Cell::new(0),
            comes_back: Cell::new(false),
            known: RefCell::default(),
            wire: RefCell::new(None),
            random: RefCell::new(Stream::of(world().seed, &format!("wishes of dashboard {number}"))),
            outgoing: RefCell::new(None),
        });
        tokio::task::spawn_local(dashboard.clone().run());
        dashboard
    }

    pub fn session(&self) -> SessionId {
        session(self.user, self.session.get())
    }

    /// The session of its relay token and what that is for; nothing for an overlay that was not made yet.
    fn token(&self) -> Option<(SessionId, RelayAccess)> {
        match &self.overlay {
            Some(overlay) => overlay.token(),
            None => Some((self.session(), RelayAccess::Session)),
        }
    }

    /// From now on it signs in as this session of its user.
    pub fn use_session(&self, number: u32) {
        self.session.set(number);
    }

    /// The open wire.
    pub fn open_wire(&self) -> Option<Rc<Wire>> {
        self.wire.borrow().as_ref().map(|(wire, _)| wire.clone())
    }

    pub fn send(&self, message: Value) {
        if let Some(outgoing) = &*self.outgoing.borrow() {
            let _ = outgoing.send(message);
        }
    }

    pub fn subscribe(&self, paired: usize) {
        if !self.watches.borrow().contains(&paired) {
            self.watches.borrow_mut().push(paired);
        }
        self.send_subscribe(paired, false);
    }

    pub fn unsubscribe(&self, paired: usize) {
        self.watches.borrow_mut().retain(|watched| *watched != paired);
        if let Some(server) = world().judge.borrow().server(PAIRED[paired].0) {
            self.send(json!({ "type": "unsubscribe", "serverId": server }));
        }
    }

    /// With `back` it says what it has, so that it gets what is new.
    pub fn send_subscribe(&self, paired: usize, back: bool) {
        let Some(server) = world().judge.borrow().server(PAIRED[paired].0) else { return };
        let mut subscribe = json!({ "type": "subscribe", "serverId": server });
        if let Some(known) = self.known.borrow().get(server.as_str()).filter(|_| back) {
            (subscribe["epoch"], subscribe["seq"]) = (known.epoch.into(), known.seq.into());
        }
        self.send(subscribe);
    }

    /// Its user takes note of some alarms, before the healthy minutes.
    fn acknowledge_some(&self, message: &Value) {
        let is_raid = message["type"] == "raid" && message["drill"] != true;
        if is_raid && world().millis() < HEALTHY_FROM - 10_000 && self.random.borrow_mut().chance(20) {
            let (server, incident) = (&message["serverId"], &message["incident"]);
            let request = format!("note {}", incident.as_str().unwrap_or_default());
            self.send(json!({ "type": "raidAck", "serverId": server, "incident": incident, "requestId": request }));
        }
    }

    async fn run(self: Rc<Self>) {
        let world = world();
        let mut random = Stream::of(world.seed, &format!("dashboard {}", self.number));
        let mut backoff = 1_000;
        loop {
            let user = USERS[self.user].into();
            let connecting = async {
                let (session, access) = self.token()?;
                let (memory, wire) = world.connect(&user, &session, access).await?;
                Some((memory, wire, session))
            };
            if let Ok(Some((memory, wire, session))) = timeout(Duration::from_secs(10), connecting).await {
                *self.wire.borrow_mut() = Some((wire, session));
                let since = Instant::now();
                self.live(&world, memory).await;
                if let Some((wire, _)) = self.wire.take() {
                    world.judge.borrow_mut().count_frames(self.number, &wire);
                }
                if since.elapsed() > Duration::from_secs(10) {
                    backoff = 1_000;
                }
            }
            sleep(Duration::from_millis(backoff + random.below(500))).await;
            backoff = (backoff * 2).min(30_000);
        }
    }

    async fn live(&self, world: &World, memory: Memory) {
        let config = WebSocketConfig::default().read_buffer_size(4_096).write_buffer_size(0);
        let mut socket = WebSocketStream::from_raw_socket(memory, Role::Client, Some(config)).await;
        let back = self.random.borrow_mut().chance(60) | self.comes_back.take();
        if !back {
            self.known.borrow_mut().clear();
        }
        let (sender, mut outgoing) = mpsc::unbounded_channel();
        *self.outgoing.borrow_mut() = Some(sender);
        let watches = self.watches.borrow().clone();
        watches.into_iter().for_each(|paired| self.send_subscribe(paired, back));
        if let Some(overlay) = &self.overlay {
            self.overreach(overlay, &mut self.random.borrow_mut());
        }
        loop {
            tokio::select! {
                biased;
                message = timeout(SILENCE, socket.next()) => match message.unwrap_or(None) {
                    Some(Ok(Message::Text(text))) => {
                        world.trace(&format!("dashboard {} < {}", self.number, brief(&text)));
                        world.trace_silently(&text);
                        let message: Value = serde_json::from_str(&text).expect("JSON");
                        world.judge.borrow_mut().check_names(self, &message, &text);
                        world.judge.borrow_mut().receive(self, &message);
                        self.acknowledge_some(&message);
                    }
                    Some(Ok(Message::Close(frame))) => {
                        let code = frame.map_or(0, |frame| u16::from(frame.code));
                        world.trace(&format!("dashboard {} closed with {code}", self.number));
                        world.judge.borrow_mut().closed(self, code);
                        break;
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => {
                        if world.ending.get() {
                            world.judge.borrow_mut().no_goodbye(self);
                        }
                        world.trace(&format!("dashboard {} lost its socket", self.number));
                        break;
                    }
                },
                Some(message) = outgoing.recv() => {
                    if socket.send(Message::text(message.to_string())).await.is_err() {
                        break;
                    }
                }
            }
        }
        *self.outgoing.borrow_mut() = None;
    }
}

fn brief(text: &str) -> String {
    text.chars().take(110).collect()
}
