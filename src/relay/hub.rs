//! Actor: the registry of live connections, and the only door from the API and the push worker into the relay. Started
//! once, by [`relay::start`](super::start); knows which game connections live and who is present; closes what a
//! revocation ends. Stops with the process.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use actix::prelude::*;

use crate::{
    config::GameLinkPolicy,
    db::{
        access,
        error::DbError,
        helper_devices,
        incidents::{self, StoredIncident},
        paired_servers,
        pool::Db,
        sessions,
    },
    domain::{
        access::Action,
        ids::{ServerId, SessionId, UserId},
        server_state::ConnectionState,
    },
    relay::{
        admission::{Admission, Close, SocketEvent},
        close::Reason,
        commands::UserCommand,
        context::RelayContext,
        game_connection::{
            DeliverPushedAlarm, Drill, GameConnection, LinkStatusChanged, ReloadDevices, RetryLink, SetWatchers,
            ShowAcknowledgement, StopConnection,
        },
        presence::Presence,
        publication::AllowedUsers,
        relay_worker::{FindServer, FoundServer},
    },
};

pub use crate::relay::{
    alarm_delivery::{DrillOutcome, PushedAlarm},
    commands::{AcknowledgeRaid, CommandError},
    game_connection::LinkStatus,
};

/// A game server was paired, perhaps again: open its link now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ServerPaired {
    pub server: ServerId,
    /// Address or credentials are not what they were: a link that is up must be opened again.
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

/// The status of these servers' links; a server without a link is absent.
#[derive(Message)]
#[rtype(result = "HashMap<ServerId, LinkStatus>")]
pub struct LinkStatuses {
    pub servers: Vec<ServerId>,
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

/// A push reports an alarm of this server.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AlarmPushed {
    pub server: ServerId,
    pub alarm: PushedAlarm,
}

/// Send a test alarm the whole way to this server's watchers. None if it could not be stored.
#[derive(Message)]
#[rtype(result = "Option<DrillOutcome>")]
pub struct StartDrill {
    pub server: ServerId,
}

/// Refuse new sockets, close the open ones, end the links. Answered at once; sockets then close by themselves.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain;

/// What `GET /health` of the relay reports, readable from every thread.
#[derive(Default)]
pub struct RelayHealth {
    /// Sockets open now.
    pub active: AtomicUsize,
}

/// See the module.
pub struct Hub {
    context: Arc<RelayContext>,
    health: Arc<RelayHealth>,
    /// Threads on which game connections live.
    arbiters: Vec<ArbiterHandle>,
    connections: HashMap<ServerId, Addr<GameConnection>>,
    link_statuses: HashMap<ServerId, LinkStatus>,
    presence: Presence,
    /// Of the latest look at who may watch.
    access_version: u64,
    draining: bool,
}

impl Hub {
    /// A hub whose game connections live on these threads (at least one).
    pub fn new(context: Arc<RelayContext>, health: Arc<RelayHealth>, arbiters: Vec<ArbiterHandle>) -> Self {
        Self {
            context,
            health,
            arbiters,
            connections: HashMap::new(),
            link_statuses: HashMap::new(),
            presence: Presence::default(),
            access_version: 0,
            draining: false,
        }
    }

    /// The game connection of this server, started if need be.
    fn connection(&mut self, server: &ServerId, ctx: &Context<Self>) -> Addr<GameConnection> {
        if let Some(connection) = self.connections.get(server).filter(|connection| connection.connected()) {
            return connection.clone();
        }
        let status = LinkStatus {
            state: ConnectionState::Connecting,
            since: self.context.clock.now(),
            reason: None,
            next_attempt_at: None,
        };
        self.link_statuses.insert(server.clone(), status);
        let (id, context, hub) = (server.clone(), self.context.clone(), ctx.address().recipient());
        let arbiter = &self.arbiters[self.connections.len() % self.arbiters.len()];
        let connection = GameConnection::start_in_arbiter(arbiter, move |_| GameConnection::new(id, context, hub));
        self.connections.insert(server.clone(), connection.clone());
        connection
    }

    /// Who may watch. The version is that of the question, so that the answer to a later one has a higher version,
    /// whichever comes first.
    fn allowed_users(&mut self, server: ServerId) -> impl Future<Output = Result<AllowedUsers, DbError>> + use<> {
        self.access_version += 1;
        let (version, pool) = (self.access_version, self.context.pool.clone());
        async move {
            let users = pool.read(move |db| access::watchers(db, &server)).await?;
            Ok(AllowedUsers { version, users: Arc::new(users.into_iter().collect()) })
        }
    }

    fn count_sockets(&self) {
        self.health.active.store(self.presence.count(), Ordering::Relaxed);
    }
}

impl Actor for Hub {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Admissions and ends of tens of thousands of sockets pass here.
        ctx.set_mailbox_capacity(4_096);
        if self.context.game.link_policy != GameLinkPolicy::Always {
            return;
        }
        let pool = self.context.pool.clone();
        let servers = async move { pool.read(paired_servers::list_all).await };
        ctx.spawn(servers.into_actor(self).map(|servers, hub, ctx| match servers {
            Ok(servers) => {
                log::info!(servers = servers.len(); "game links are opened");
                for server in servers {
                    hub.connection(&server.id, ctx);
                }
            }
            Err(error) => log::error!("paired servers could not be read, their links stay closed: {error}"),
        }));
    }
}

impl Handler<ServerPaired> for Hub {
    type Result = ();

    fn handle(&mut self, ServerPaired { server, changed }: ServerPaired, ctx: &mut Self::Context) {
        match self.connections.get(&server) {
            Some(connection) => connection.do_send(RetryLink { changed }),
            // A new connection reads its credentials anyway; one that waits for a watcher starts with that.
            None if self.context.game.link_policy == GameLinkPolicy::Always => {
                self.connection(&server, ctx);
            }
            None => {}
        }
    }
}

impl Handler<ServerRemoved> for Hub {
    type Result = ();

    fn handle(&mut self, ServerRemoved { server }: ServerRemoved, _: &mut Self::Context) {
        self.link_statuses.remove(&server);
        if let Some(connection) = self.connections.remove(&server) {
            self.access_version += 1;
            let nobody = AllowedUsers { version: self.access_version, users: Arc::default() };
            connection.do_send(SetWatchers(nobody));
            connection.do_send(StopConnection);
        }
    }
}

impl Handler<DevicesChanged> for Hub {
    type Result = ();

    fn handle(&mut self, DevicesChanged { server }: DevicesChanged, _: &mut Self::Context) {
        if let Some(connection) = self.connections.get(&server) {
            connection.do_send(ReloadDevices);
        }
    }
}

impl Handler<AccessChanged> for Hub {
    type Result = ();

    fn handle(&mut self, AccessChanged { server }: AccessChanged, ctx: &mut Self::Context) {
        let Some(connection) = self.connections.get(&server).cloned() else { return };
        let allowed = self.allowed_users(server);
        // If the database does not answer, nobody keeps what may have been taken away, until a later question is answered.
        let nobody = AllowedUsers { version: self.access_version, users: Arc::default() };
        ctx.spawn(allowed.into_actor(self).map(move |allowed, _, _| {
            let allowed = allowed.unwrap_or_else(|error| {
                log::error!("access could not be read, all watches of the server end: {error}");
                nobody
            });
            connection.do_send(SetWatchers(allowed));
        }));
    }
}

impl Handler<SessionEnded> for Hub {
    type Result = ();

    fn handle(&mut self, SessionEnded { session }: SessionEnded, _: &mut Self::Context) {
        for close in self.presence.end_session(&session) {
            close.do_send(Close(Reason::SignedOut));
        }
    }
}

impl Handler<LinkStatuses> for Hub {
    type Result = MessageResult<LinkStatuses>;

    fn handle(&mut self, LinkStatuses { servers }: LinkStatuses, _: &mut Self::Context) -> Self::Result {
        let known = servers.into_iter().filter_map(|server| {
            let status = self.link_statuses.get(&server)?.clone();
            Some((server, status))
        });
        MessageResult(known.collect())
    }
}

impl Handler<Admit> for Hub {
    type Result = ResponseActFuture<Self, Result<Admission, AdmitRefused>>;

    fn handle(&mut self, Admit { user, session }: Admit, ctx: &mut Self::Context) -> Self::Result {
        // The place is taken before the database is asked, so that many at once cannot share the last one.
        let place = match self.draining {
            true => Err(AdmitRefused::Unavailable),
            false => self.presence.admit(&user, &session).ok_or(AdmitRefused::TooManyConnections),
        };
        self.count_sockets();
        let admission = place.map(|number| Admission::new(user.clone(), number, ctx.address().recipient()));
        let (pool, now) = (self.context.pool.clone(), self.context.clock.now());
        let checked = async move {
            let admission = admission?;
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

impl Handler<SocketEvent> for Hub {
    type Result = ();

    fn handle(&mut self, event: SocketEvent, _: &mut Self::Context) {
        match event {
            SocketEvent::Opened { connection, close } => {
                let reason = self.presence.open(connection, close.clone());
                if let Some(reason) = reason.or(self.draining.then_some(Reason::Restarting)) {
                    close.do_send(Close(reason));
                }
            }
            SocketEvent::Closed { connection } => self.presence.leave(connection),
        }
        self.count_sockets();
    }
}

impl Handler<FindServer> for Hub {
    type Result = ResponseActFuture<Self, Result<Option<FoundServer>, DbError>>;

    fn handle(&mut self, FindServer { server }: FindServer, _: &mut Self::Context) -> Self::Result {
        let allowed = self.allowed_users(server.clone());
        Box::pin(allowed.into_actor(self).map(move |allowed, hub, ctx| {
            let allowed = allowed?;
            // Without an owner there is no such paired server.
            Ok((!allowed.users.is_empty() && !hub.draining)
                .then(|| FoundServer { connection: hub.connection(&server, ctx), allowed }))
        }))
    }
}

impl Handler<UserCommand> for Hub {
    type Result = ResponseActFuture<Self, Result<bool, CommandError>>;

    fn handle(&mut self, UserCommand { server, user, toggle }: UserCommand, _: &mut Self::Context) -> Self::Result {
        let (pool, asked) = (self.context.pool.clone(), server.clone());
        let role = async move { pool.read(move |db| access::role(db, &user, &asked)).await };
        let connection = role.into_actor(self).map(move |role, hub, ctx| match role {
            Ok(Some(role)) if role.may(Action::Command) => Ok(hub.connection(&server, ctx)),
            Ok(Some(_)) => Err(CommandError::OwnerOnly),
            Ok(None) => Err(CommandError::UnknownServer),
            Err(error) => {
                log::error!("access could not be read: {error}");
                Err(CommandError::Internal)
            }
        });
        Box::pin(connection.then(move |connection, hub, _| {
            async move { connection?.send(toggle).await.map_err(|_| CommandError::Unavailable)? }.into_actor(hub)
        }))
    }
}

impl Handler<AcknowledgeRaid> for Hub {
    type Result = ResponseActFuture<Self, Result<StoredIncident, CommandError>>;

    fn handle(&mut self, acknowledge: AcknowledgeRaid, _: &mut Self::Context) -> Self::Result {
        let AcknowledgeRaid { server, user, incident } = acknowledge;
        let (pool, now) = (self.context.pool.clone(), self.context.clock.now());
        let (asked, by, id) = (server.clone(), user.clone(), incident.clone());
        let stored = async move {
            pool.write(move |db| {
                if !access::role(db, &by, &asked)?.is_some_and(|role| role.may(Action::Watch)) {
                    return Ok(Err(CommandError::UnknownServer));
                }
                let known = incidents::acknowledge(db, &asked, &id, &by, now)?;
                Ok(known.ok_or(CommandError::UnknownIncident))
            })
            .await
        };
        Box::pin(stored.into_actor(self).map(move |stored, hub, _| {
            let stored = stored.unwrap_or_else(|error| {
                log::error!("an acknowledgement could not be stored: {error}");
                Err(CommandError::Internal)
            })?;
            if let Some(connection) = hub.connections.get(&server) {
                connection.do_send(ShowAcknowledgement { incident, user, at: now });
            }
            Ok(stored)
        }))
    }
}

impl Handler<AlarmPushed> for Hub {
    type Result = ();

    fn handle(&mut self, AlarmPushed { server, alarm }: AlarmPushed, ctx: &mut Self::Context) {
        if self.draining {
            return; // it waits in the ledger for the next start
        }
        self.connection(&server, ctx).do_send(DeliverPushedAlarm(alarm));
    }
}

impl Handler<StartDrill> for Hub {
    type Result = ResponseFuture<Option<DrillOutcome>>;

    fn handle(&mut self, StartDrill { server }: StartDrill, ctx: &mut Self::Context) -> Self::Result {
        let connection = self.connection(&server, ctx);
        Box::pin(async move { connection.send(Drill).await.ok().flatten() })
    }
}

impl Handler<LinkStatusChanged> for Hub {
    type Result = ();

    fn handle(&mut self, LinkStatusChanged { server, status }: LinkStatusChanged, _: &mut Self::Context) {
        if self.connections.contains_key(&server) {
            self.link_statuses.insert(server, status);
        }
    }
}

impl Handler<Drain> for Hub {
    type Result = ();

    fn handle(&mut self, _: Drain, _: &mut Self::Context) {
        self.draining = true;
        for close in self.presence.open_sockets() {
            close.do_send(Close(Reason::Restarting));
        }
        for connection in self.connections.values() {
            connection.do_send(StopConnection);
        }
    }
}
