//! Actor: the registry of live connections, and the only door from the API into the relay. Started by the server,
//! once; knows which game connections live and who is present; closes what a revocation ends. Stops with the process.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use actix::prelude::*;

use crate::{
    config::GameLinkPolicy,
    db::{access, error::DbError, helper_devices, paired_servers, pool::Db, sessions},
    domain::{
        access::Action,
        ids::{ServerId, SessionId, UserId},
        limits,
        server_state::ConnectionState,
        time::Timestamp,
    },
    relay::{
        client_socket::Close,
        close::Reason,
        game_connection::{
            AlarmPushed, Drill, Drilled, GameConnection, LinkChanged, ReloadDevices, Retry, Stop, Switch, ToggleFailed,
        },
        server_subscription::Allow,
        state::RelayState,
    },
};

/// A game server was paired, once more perhaps: open its link now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ServerPaired {
    pub server: ServerId,
    /// Address or credentials are not what they were: a link that is up must be opened anew.
    pub changed: bool,
}

/// A paired server was deleted: end its link and every watch of it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ServerRemoved {
    pub server: ServerId,
}

/// Devices of a paired server were added or removed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DevicesChanged {
    pub server: ServerId,
}

/// Who may watch a paired server has changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AccessChanged {
    pub server: ServerId,
}

/// A session signed out, or a helper device ([`SessionId::of_device`]) was deleted: close the sockets that came from it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionEnded {
    pub session: SessionId,
}

/// How the links of these servers stand; a server without a link is absent.
#[derive(Message)]
#[rtype(result = "HashMap<ServerId, Connection>")]
pub struct Connections {
    pub servers: Vec<ServerId>,
}

/// The link to one game server, as users see it.
#[derive(Clone, Debug)]
pub struct Connection {
    pub state: ConnectionState,
    pub since: Timestamp,
    pub reason: Option<String>,
    pub next_attempt_at: Option<Timestamp>,
}

/// May this token's holder open one more socket?
#[derive(Message)]
#[rtype(result = "Result<Admission, AdmitRefused>")]
pub struct Admit {
    pub user: UserId,
    pub session: SessionId,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitRefused {
    /// The session has ended since the token was issued.
    SignedOut,
    TooManyConnections,
    /// The service restarts, or its database does not answer.
    Unavailable,
}

/// The right to one open socket; given back when dropped.
pub struct Admission {
    pub id: u64,
    pub user: UserId,
    hub: Addr<Hub>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.hub.do_send(Left { connection: self.id });
    }
}

/// An admitted socket is open: this is how to close it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Opened {
    pub connection: u64,
    pub close: Recipient<Close>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Left {
    connection: u64,
}

/// Who may watch this server, and the connection that feeds it; none if there is no such paired server.
#[derive(Message)]
#[rtype(result = "Result<Option<Watched>, DbError>")]
pub struct Watch {
    pub server: ServerId,
}

/// The answer to [`Watch`].
pub struct Watched {
    pub connection: Addr<GameConnection>,
    pub watchers: Arc<HashSet<UserId>>,
}

/// Switch a smart switch over, on behalf of a user. Answers with the value seen afterwards.
#[derive(Message)]
#[rtype(result = "Result<bool, ToggleFailed>")]
pub struct Toggle {
    pub server: ServerId,
    pub user: UserId,
    pub device: String,
}

/// A push tells of an alarm of this server; it stands in the ledger under this id already.
#[derive(Message)]
#[rtype(result = "()")]
pub struct PushedAlarm {
    pub server: ServerId,
    pub id: String,
    pub title: String,
}

/// Send a test alarm the whole way to this server's watchers. None if it could not be stored.
#[derive(Message)]
#[rtype(result = "Option<Drilled>")]
pub struct StartDrill {
    pub server: ServerId,
}

/// Refuse new sockets, close the open ones, end the links. Answered at once; sockets then close by themselves.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain;

/// What `GET /health` of the relay reports, readable from every thread.
#[derive(Default)]
pub struct Health {
    /// Sockets open now.
    pub active: AtomicUsize,
}

/// See the module.
pub struct Hub {
    state: Arc<RelayState>,
    health: Arc<Health>,
    /// Threads on which game connections live.
    arbiters: Vec<ArbiterHandle>,
    links: HashMap<ServerId, Addr<GameConnection>>,
    states: HashMap<ServerId, Connection>,
    sockets: HashMap<u64, OpenSocket>,
    per_user: HashMap<UserId, usize>,
    draining: bool,
}

struct OpenSocket {
    user: UserId,
    session: SessionId,
    close: Option<Recipient<Close>>,
    /// The session ended before the socket was open.
    ended: bool,
}

/// Numbers connections within the process.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Hub {
    /// A hub whose game connections live on these threads.
    pub fn new(state: Arc<RelayState>, health: Arc<Health>, arbiters: Vec<ArbiterHandle>) -> Self {
        Self {
            state,
            health,
            arbiters,
            links: HashMap::new(),
            states: HashMap::new(),
            sockets: HashMap::new(),
            per_user: HashMap::new(),
            draining: false,
        }
    }

    /// The game connection of this server, started if need be.
    fn link(&mut self, server: &ServerId, ctx: &Context<Self>) -> Addr<GameConnection> {
        if let Some(link) = self.links.get(server).filter(|link| link.connected()) {
            return link.clone();
        }
        let connection = GameConnection::new(server.clone(), self.state.clone(), ctx.address().recipient());
        self.states.insert(server.clone(), connection.status());
        let arbiter = &self.arbiters[self.links.len() % self.arbiters.len()];
        let link = GameConnection::start_in_arbiter(arbiter, move |_| connection);
        self.links.insert(server.clone(), link.clone());
        link
    }

    fn leave(&mut self, connection: u64) {
        let Some(socket) = self.sockets.remove(&connection) else { return };
        self.health.active.store(self.sockets.len(), Ordering::Relaxed);
        if let Some(count) = self.per_user.get_mut(&socket.user) {
            *count -= 1;
            if *count == 0 {
                self.per_user.remove(&socket.user);
            }
        }
    }

    fn watchers_of(&self, server: ServerId) -> impl Future<Output = Result<HashSet<UserId>, DbError>> + use<> {
        let pool = self.state.pool.clone();
        async move { Ok(pool.read(move |db| access::watchers(db, &server)).await?.into_iter().collect()) }
    }
}

impl Actor for Hub {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Admissions and goodbyes of tens of thousands of sockets pass here.
        ctx.set_mailbox_capacity(4_096);
        if self.state.game.link_policy != GameLinkPolicy::Always {
            return;
        }
        let pool = self.state.pool.clone();
        let servers = async move { pool.read(paired_servers::list_all).await };
        ctx.spawn(servers.into_actor(self).map(|servers, hub, ctx| match servers {
            Ok(servers) => {
                log::info!(servers = servers.len(); "game links are opened");
                for server in servers {
                    hub.link(&server.id, ctx);
                }
            }
            Err(error) => log::error!("paired servers could not be read, their links stay closed: {error}"),
        }));
    }
}

impl Handler<ServerPaired> for Hub {
    type Result = ();

    fn handle(&mut self, ServerPaired { server, changed }: ServerPaired, ctx: &mut Self::Context) {
        match self.links.get(&server) {
            Some(link) => link.do_send(Retry { changed }),
            // A new connection reads its credentials anyway; one that waits for a watcher starts with that.
            None if self.state.game.link_policy == GameLinkPolicy::Always => {
                self.link(&server, ctx);
            }
            None => {}
        }
    }
}

impl Handler<ServerRemoved> for Hub {
    type Result = ();

    fn handle(&mut self, ServerRemoved { server }: ServerRemoved, _: &mut Self::Context) {
        self.states.remove(&server);
        if let Some(link) = self.links.remove(&server) {
            link.do_send(Allow { watchers: Arc::default() });
            link.do_send(Stop);
        }
    }
}

impl Handler<DevicesChanged> for Hub {
    type Result = ();

    fn handle(&mut self, DevicesChanged { server }: DevicesChanged, _: &mut Self::Context) {
        if let Some(link) = self.links.get(&server) {
            link.do_send(ReloadDevices);
        }
    }
}

impl Handler<AccessChanged> for Hub {
    type Result = ();

    fn handle(&mut self, AccessChanged { server }: AccessChanged, ctx: &mut Self::Context) {
        let Some(link) = self.links.get(&server).cloned() else { return };
        let watchers = self.watchers_of(server);
        ctx.spawn(watchers.into_actor(self).map(move |watchers, _, _| {
            // If the database does not answer, nobody keeps what may have been taken away.
            let watchers = watchers.unwrap_or_else(|error| {
                log::error!("access could not be read, all watches of the server end: {error}");
                HashSet::new()
            });
            link.do_send(Allow { watchers: Arc::new(watchers) });
        }));
    }
}

impl Handler<SessionEnded> for Hub {
    type Result = ();

    fn handle(&mut self, SessionEnded { session }: SessionEnded, _: &mut Self::Context) {
        for socket in self.sockets.values_mut().filter(|socket| socket.session == session) {
            socket.ended = true;
            if let Some(close) = &socket.close {
                close.do_send(Close(Reason::SignedOut));
            }
        }
    }
}

impl Handler<Connections> for Hub {
    type Result = MessageResult<Connections>;

    fn handle(&mut self, Connections { servers }: Connections, _: &mut Self::Context) -> Self::Result {
        let known = servers.into_iter().filter_map(|server| {
            let state = self.states.get(&server)?.clone();
            Some((server, state))
        });
        MessageResult(known.collect())
    }
}

impl Handler<Admit> for Hub {
    type Result = ResponseActFuture<Self, Result<Admission, AdmitRefused>>;

    fn handle(&mut self, Admit { user, session }: Admit, ctx: &mut Self::Context) -> Self::Result {
        let count = self.per_user.entry(user.clone()).or_default();
        if self.draining || *count >= limits::CONNECTIONS_PER_USER {
            let refused = if self.draining { AdmitRefused::Unavailable } else { AdmitRefused::TooManyConnections };
            return Box::pin(async move { Err(refused) }.into_actor(self));
        }
        // The place is taken before the database is asked, so that many at once cannot share the last one.
        *count += 1;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.sockets.insert(id, OpenSocket { user: user.clone(), session: session.clone(), close: None, ended: false });
        self.health.active.store(self.sockets.len(), Ordering::Relaxed);
        let admission = Admission { id, user: user.clone(), hub: ctx.address() };
        let (pool, now) = (self.state.pool.clone(), self.state.clock.now());
        let checked = async move {
            let holds = move |db: &mut Db| match session.device() {
                Some(device) => helper_devices::belongs_to(db, &user, &device),
                None => Ok(sessions::find(db, &session, now)?.is_some_and(|session| session.user_id == user)),
            };
            match pool.read(holds).await {
                Ok(true) => Ok(admission),
                Ok(false) => Err(AdmitRefused::SignedOut),
                Err(error) => {
                    log::error!("a session could not be checked: {error}");
                    Err(AdmitRefused::Unavailable)
                }
            }
        };
        Box::pin(checked.into_actor(self))
    }
}

impl Handler<Opened> for Hub {
    type Result = ();

    fn handle(&mut self, Opened { connection, close }: Opened, _: &mut Self::Context) {
        if self.draining {
            close.do_send(Close(Reason::Restarting));
        }
        if let Some(socket) = self.sockets.get_mut(&connection) {
            if socket.ended {
                close.do_send(Close(Reason::SignedOut));
            }
            socket.close = Some(close);
        }
    }
}

impl Handler<Left> for Hub {
    type Result = ();

    fn handle(&mut self, Left { connection }: Left, _: &mut Self::Context) {
        self.leave(connection);
    }
}

impl Handler<Watch> for Hub {
    type Result = ResponseActFuture<Self, Result<Option<Watched>, DbError>>;

    fn handle(&mut self, Watch { server }: Watch, _: &mut Self::Context) -> Self::Result {
        let watchers = self.watchers_of(server.clone());
        Box::pin(watchers.into_actor(self).map(move |watchers, hub, ctx| {
            let watchers = watchers?;
            // Without an owner there is no such paired server.
            Ok((!watchers.is_empty() && !hub.draining)
                .then(|| Watched { connection: hub.link(&server, ctx), watchers: Arc::new(watchers) }))
        }))
    }
}

impl Handler<Toggle> for Hub {
    type Result = ResponseActFuture<Self, Result<bool, ToggleFailed>>;

    fn handle(&mut self, Toggle { server, user, device }: Toggle, _: &mut Self::Context) -> Self::Result {
        let pool = self.state.pool.clone();
        let asked = server.clone();
        let role = async move { pool.read(move |db| access::role(db, &user, &asked)).await };
        let allowed = role.into_actor(self).map(move |role, hub, ctx| match role {
            Ok(Some(role)) if role.may(Action::Command) => Ok(hub.link(&server, ctx)),
            Ok(_) => Err(ToggleFailed::UnknownServer),
            Err(error) => {
                log::error!("access could not be read: {error}");
                Err(ToggleFailed::Internal)
            }
        });
        Box::pin(allowed.then(move |link, hub, _| {
            async move { link?.send(Switch { device }).await.map_err(|_| ToggleFailed::Unavailable)? }.into_actor(hub)
        }))
    }
}

impl Handler<PushedAlarm> for Hub {
    type Result = ();

    fn handle(&mut self, PushedAlarm { server, id, title }: PushedAlarm, ctx: &mut Self::Context) {
        if self.draining {
            return; // it waits in the ledger for the next start
        }
        self.link(&server, ctx).do_send(AlarmPushed { id, title });
    }
}

impl Handler<StartDrill> for Hub {
    type Result = ResponseFuture<Option<Drilled>>;

    fn handle(&mut self, StartDrill { server }: StartDrill, ctx: &mut Self::Context) -> Self::Result {
        let link = self.link(&server, ctx);
        Box::pin(async move { link.send(Drill).await.ok().flatten() })
    }
}

impl Handler<LinkChanged> for Hub {
    type Result = ();

    fn handle(&mut self, LinkChanged { server, connection }: LinkChanged, _: &mut Self::Context) {
        if self.links.contains_key(&server) {
            self.states.insert(server, connection);
        }
    }
}

impl Handler<Drain> for Hub {
    type Result = ();

    fn handle(&mut self, _: Drain, _: &mut Self::Context) {
        self.draining = true;
        for socket in self.sockets.values() {
            if let Some(close) = &socket.close {
                close.do_send(Close(Reason::Restarting));
            }
        }
        for link in self.links.values() {
            link.do_send(Stop);
        }
    }
}
