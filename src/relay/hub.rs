//! Actor: the registry of live connections, and the only door from the API and the push worker into the relay. Started
//! once, by [`relay::start`](super::start); knows which game connections live and who is present; closes what a
//! revocation ends; restarts game connections that failed. Stops with the process.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix::{WeakRecipient, prelude::*};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::{
    config::GameLinkPolicy,
    db::{access, engine::error::DbError, paired_servers, start_reads::read_until_answered},
    domain::{
        backoff::Backoff,
        ids::{ServerId, SessionId, UserId},
        sections::Sections,
        server_state::ConnectionState,
    },
    relay::{
        client::{
            admission::{SocketEvent, SocketOrder},
            server_lookup::{FindServer, FoundServer},
        },
        game::game_connection::{
            ConnectionEvent, ConnectionStart, GameConnection, LastHeard, RetryLink, SetWatchers, StopConnection,
        },
        hub::{presence::Presence, recent_changes::RecentChanges},
        shared::context::RelayContext,
        wire::{close::Reason, publication::AllowedUsers, send_counts::ThreadCounts},
    },
};

pub use crate::relay::{
    alarms::alarm_delivery::{DrillOutcome, PushedAlarm},
    alarms::received_at::{ReceivedAt, STORED_WITHIN},
    game::camera_capture::{CameraError, PullCameraFrame},
    game::commands::{
        AcknowledgeRaid, AcknowledgementsErased, AskServer, ChannelLine, ChatError, CommandError, DeviceToggle,
        DevicesChanged, NotesChanged, PlaceDevice, ReadDevices, SayForChannel, SendChat, UserCommand, Wish,
    },
    game::game_connection::{LinkStatus, players::PlayerSeen},
    hub::link_counts::{CountLinks, LinkCounts},
    hub::pairing_news::PairingNews,
    hub::to_connection::ToConnection,
    market::shop_watcher::ShopWatchesChanged,
    shared::chat_texts::ChatTexts,
    shared::markets::Markets,
    state::team_chat::shown_text,
    wire::send_counts::SendTotals,
};

/// Longest wait of a socket for the database where something else may answer for it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

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

/// The users who may watch a paired server have changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AccessChanged {
    pub server: ServerId,
}

/// A session signed out, or a helper device ([`SessionId::of_device`]) was deleted: close its sockets.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionEnded {
    pub session: SessionId,
}

/// This user was erased: close all of their sockets, also one whose session could not be checked yet.
#[derive(Message)]
#[rtype(result = "()")]
pub struct UserErased {
    pub user: UserId,
}

/// The status of these servers' links; a server without a link is absent.
#[derive(Message)]
#[rtype(result = "HashMap<ServerId, LinkStatus>")]
pub struct LinkStatuses {
    pub servers: Vec<ServerId>,
}

/// The users with at least one open socket.
#[derive(Message)]
#[rtype(result = "HashSet<UserId>")]
pub struct OnlineUsers;

/// A push reports an alarm of this server.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AlarmPushed {
    pub server: ServerId,
    pub alarm: PushedAlarm,
    pub received_at: ReceivedAt,
}

/// Send a test alarm the whole way to this server's watchers.
#[derive(Message)]
#[rtype(result = "Result<DrillOutcome, DrillError>")]
pub struct StartDrill {
    pub server: ServerId,
}

/// Failure of a test alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrillError {
    /// The server is no longer paired.
    UnknownServer,
    /// The alarm could not be stored.
    Unavailable,
}

/// Are the links of all paired servers on their way? Not before the database has once said which there are.
#[derive(Message)]
#[rtype(result = "bool")]
pub struct LinksLoaded;

/// Refuse new sockets, and close the open ones one after the other, over this time at the most. Answered when all have
/// got their order; then they close by themselves.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain {
    pub over: Duration,
}

/// End the links. Answered when they have ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct EndLinks;

/// Figures for `GET /health` of the relay and for operators, readable from every thread.
#[derive(Default)]
pub struct RelayHealth {
    /// Sockets open now.
    pub active: AtomicUsize,
    /// Counts of what the worker threads send.
    pub sent: ThreadCounts,
    /// The service is about to end.
    pub draining: AtomicBool,
}

/// See the module.
pub struct Hub {
    context: Arc<RelayContext>,
    health: Arc<RelayHealth>,
    /// Threads on which game connections live.
    arbiters: Vec<ArbiterHandle>,
    connections: HashMap<ServerId, LiveConnection>,
    link_statuses: HashMap<ServerId, LinkStatus>,
    /// Backoff of the servers whose connection failed.
    failed: HashMap<ServerId, Backoff>,
    recent: RecentChanges,
    presence: Presence,
    /// Servers of which the database is asked who may watch; true: it must be asked once more, because that has changed meanwhile.
    access_refreshes: HashMap<ServerId, bool>,
    /// Sessions that are asked for as soon as the database has answered for others.
    pending_checks: Vec<PendingSessionCheck>,
    check_in_flight: bool,
    /// Sessions whose sockets were admitted unchecked, because the database did not answer.
    unchecked: HashMap<SessionId, UserId>,
    /// Where all sockets say that they are open or gone; known once the hub runs.
    socket_events: Option<Arc<WeakRecipient<SocketEvent>>>,
    /// Version of the latest look at who may watch.
    access_version: u64,
    /// Epoch of the latest game connection.
    epoch: u64,
    links_loaded: bool,
    /// No more sockets are admitted; once `ending`, no link begins either.
    draining: bool,
    ending: bool,
}

struct LiveConnection {
    address: Addr<GameConnection>,
    since: Instant,
    /// When its game server last said something.
    heard: LastHeard,
    /// Users who may watch, by the last answer of the database.
    allowed: Option<AllowedUsers>,
}

/// A session that a caller asks for, and the caller's channel: true if the session goes on.
struct PendingSessionCheck {
    user: UserId,
    session: SessionId,
    answer: oneshot::Sender<Result<bool, Arc<DbError>>>,
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
            failed: HashMap::new(),
            recent: RecentChanges::default(),
            presence: Presence::default(),
            access_refreshes: HashMap::new(),
            pending_checks: Vec::new(),
            check_in_flight: false,
            unchecked: HashMap::new(),
            socket_events: None,
            access_version: 0,
            epoch: 0,
            links_loaded: false,
            draining: false,
            ending: false,
        }
    }

    /// The game connection of this server, started if need be; none if the server was deleted or the service stops.
    fn connection(&mut self, server: &ServerId, asked_for: bool, ctx: &Context<Self>) -> Option<Addr<GameConnection>> {
        if self.ending || self.recent.is_removed(server) {
            return None;
        }
        if let Some(known) = self.connections.get(server).filter(|known| known.address.connected()) {
            return Some(known.address.clone());
        }
        // The epoch only rises, also while the clock is stopped or set back.
        // The numbers between two epochs are for the sections of the first.
        let micros = self.context.clock.now().timestamp_micros().unsigned_abs();
        self.epoch = (self.epoch / Sections::SETS + 1).max(micros / Sections::SETS) * Sections::SETS;
        let heard = LastHeard::default();
        let start = ConnectionStart { epoch: self.epoch, asked_for, heard: heard.clone() };
        let (id, context, hub) = (server.clone(), self.context.clone(), ctx.address().recipient());
        let arbiter = &self.arbiters[self.connections.len() % self.arbiters.len()];
        let connection = move |_: &mut Context<GameConnection>| GameConnection::new(id, context, hub, start);
        let address = GameConnection::start_in_arbiter(arbiter, connection);
        self.link_statuses.insert(server.clone(), self.connecting());
        let connection = LiveConnection { address: address.clone(), since: Instant::now(), heard, allowed: None };
        self.connections.insert(server.clone(), connection);
        Some(address)
    }

    fn connecting(&self) -> LinkStatus {
        let since = self.context.clock.now();
        LinkStatus { state: ConnectionState::Connecting, since, reason: None, next_attempt_at: None }
    }

    /// Ends the link and every watch of a server that is no longer paired.
    fn forget(&mut self, server: ServerId) {
        self.access_version += 1;
        self.link_statuses.remove(&server);
        self.failed.remove(&server);
        let none_allowed = AllowedUsers { version: self.access_version, ..AllowedUsers::default() };
        self.close_only_of(&server, &none_allowed);
        if let Some(connection) = self.connections.remove(&server) {
            connection.address.do_send(SetWatchers(none_allowed.clone()));
            connection.address.do_send(StopConnection);
        }
        self.recent.remove(server, self.access_version, self.context.clock.moment());
    }

    /// Restarts a game connection that has panicked, after a pause if no one asks for it before.
    fn restart(&mut self, server: ServerId, connection: &Addr<GameConnection>, ctx: &mut Context<Self>) {
        let Some(known) = self.connections.get(&server).filter(|known| known.address == *connection) else { return };
        let lived = known.since.elapsed();
        self.connections.remove(&server);
        self.link_statuses.remove(&server);
        if self.context.game.link_policy == GameLinkPolicy::Always {
            self.link_statuses.insert(server.clone(), self.connecting());
            let backoff = self.failed.entry(server.clone()).or_default();
            let pause = backoff.after(lived, Duration::ZERO, self.context.random.byte());
            ctx.run_later(pause, move |hub, ctx| drop(hub.connection(&server, false, ctx)));
        }
    }

    /// Users who may watch. The version is that of the question, so that the answer to a later one has a higher
    /// version, whichever comes first.
    fn allowed_users(&mut self, server: ServerId) -> impl Future<Output = Result<AllowedUsers, DbError>> + use<> {
        self.access_version += 1;
        let (version, pool) = (self.access_version, self.context.pool.clone());
        async move {
            let users = pool.read(move |db| access::watchers(db, &server)).await?;
            let owner = users.first().cloned();
            Ok(AllowedUsers { version, users: Arc::new(users.into_iter().collect()), owner, is_partial: false })
        }
    }

    /// The connection of a server and who may watch it; none if it is not paired. While the database does not answer,
    /// the users of its last answer may watch.
    fn find(
        &mut self,
        server: ServerId,
    ) -> impl ActorFuture<Self, Output = Result<Option<FoundServer>, DbError>> + use<> {
        let known = self.connections.get(&server).is_some_and(|known| known.allowed.is_some());
        let patience = if known { ANSWERED_WITHIN } else { Duration::MAX };
        let allowed = timeout(patience, self.allowed_users(server.clone()));
        allowed.into_actor(self).map(move |allowed, hub, ctx| {
            let allowed = allowed.unwrap_or_else(|_| Err(DbError::Unavailable("no answer in time".to_owned())));
            let is_of_now = allowed.is_ok();
            let allowed = allowed.or_else(|error| {
                let known = hub.connections.get(&server).and_then(|known| known.allowed.clone());
                // A partial answer does not know the guests: they wait for a full one.
                let known = known.map(|known| hub.recent.newest(&server, known));
                let is_whole = |known: &AllowedUsers| !known.users.is_empty() && !known.is_partial;
                known.filter(|known| is_whole(known) || hub.recent.is_removed(&server)).ok_or(error)
            });
            let allowed = hub.recent.newest(&server, allowed?);
            // Without an owner there is no such paired server.
            let connection = (!allowed.users.is_empty()).then(|| hub.connection(&server, false, ctx)).flatten();
            if let Some(known) = hub.connections.get_mut(&server) {
                known.allowed = Some(allowed.clone());
            }
            Ok(connection.map(|connection| FoundServer { connection, allowed, is_of_now }))
        })
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
            self.links_loaded = true;
            return;
        }
        let context = self.context.clone();
        let servers = async move {
            read_until_answered(&context.pool, &context.random, "paired servers", paired_servers::list_ids).await
        };
        ctx.spawn(servers.into_actor(self).map(|servers, hub, ctx| {
            log::info!(servers = servers.len(); "game links are opened");
            for server in servers {
                hub.connection(&server, false, ctx);
            }
            hub.links_loaded = true;
        }));
    }
}

impl Handler<ServerPaired> for Hub {
    type Result = ();

    fn handle(&mut self, ServerPaired { server, changed }: ServerPaired, ctx: &mut Self::Context) {
        self.recent.pair(&server);
        match self.connections.get(&server).filter(|known| known.address.connected()) {
            Some(connection) => connection.address.do_send(RetryLink { changed }),
            // A new connection reads its credentials anyway; one that waits for a watcher starts with that.
            None if self.context.game.link_policy == GameLinkPolicy::Always => {
                self.connection(&server, true, ctx);
            }
            None => {}
        }
    }
}

impl Handler<ServerRemoved> for Hub {
    type Result = ();

    fn handle(&mut self, ServerRemoved { server }: ServerRemoved, _: &mut Self::Context) {
        self.context.journal.forget(&server);
        self.forget(server);
    }
}

impl Handler<SessionEnded> for Hub {
    type Result = ();

    fn handle(&mut self, SessionEnded { session }: SessionEnded, _: &mut Self::Context) {
        for socket in self.presence.end_session(&session) {
            socket.do_send(SocketOrder::Close(Reason::SignedOut));
        }
    }
}

impl Handler<UserErased> for Hub {
    type Result = ();

    fn handle(&mut self, UserErased { user }: UserErased, _: &mut Self::Context) {
        for socket in self.presence.end_user(&user) {
            socket.do_send(SocketOrder::Close(Reason::SignedOut));
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

impl Handler<FindServer> for Hub {
    type Result = ResponseActFuture<Self, Result<Option<FoundServer>, DbError>>;

    fn handle(&mut self, FindServer { server }: FindServer, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.find(server))
    }
}

impl Handler<LinksLoaded> for Hub {
    type Result = bool;

    fn handle(&mut self, _: LinksLoaded, _: &mut Self::Context) -> bool {
        self.links_loaded
    }
}

impl Handler<ConnectionEvent> for Hub {
    type Result = ();

    fn handle(&mut self, event: ConnectionEvent, ctx: &mut Self::Context) {
        match event {
            ConnectionEvent::Status { server, status } => {
                if self.connections.contains_key(&server) {
                    self.link_statuses.insert(server, status);
                }
            }
            ConnectionEvent::ServerGone { server } => self.forget(server),
            ConnectionEvent::Failed { server, connection } => self.restart(server, &connection, ctx),
        }
    }
}

mod admitting;
mod alarms;
mod cameras;
mod commands;
mod counting;
mod ending;
pub mod link_counts;
mod online;
mod pairing;
mod pairing_news;
mod passing_on;
mod players;
pub mod presence;
pub mod recent_changes;
#[cfg(test)]
mod tests;
mod to_connection;
mod watching;
