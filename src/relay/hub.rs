//! Actor: the registry of live connections, and the only door from the API and the push worker into the relay, but for
//! alarms whose game connection runs ([`AlarmRoutes`]). Started once, by [`relay::start`](super::start); knows which game
//! connections live and who is present; closes what a revocation ends; restarts game connections that failed. Stops with
//! the process.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix::prelude::*;
use tokio::time::Instant;

use crate::{
    config::GameLinkPolicy,
    db::{
        access,
        engine::{error::DbError, start_reads::read_until_answered},
        paired_servers,
    },
    domain::{
        backoff::Backoff,
        fence::Fence,
        ids::{ServerId, SessionId, UserId},
        one_at_a_time::OneAtATime,
        sections::Sections,
        server_state::ConnectionState,
    },
    relay::{
        client::admission::SocketOrder,
        game::{
            game_connection::{
                ConnectionStart, GameConnection, LastHeard, RetryLink, SetWatchers, StopConnection,
                handing_over::TakeOver,
            },
            pool::link_slots::LinkSlots,
            team_hosts::TeamHosts,
        },
        hub::{
            admitting::admissions::Admissions, nodes::SeveralNodes, presence::Presence, recent_changes::RecentChanges,
        },
        shared::context::RelayContext,
        wire::{close::Reason, publication::AllowedUsers, send_counts::ThreadCounts},
    },
};

pub use crate::relay::{
    alarms::alarm_delivery::{DrillOutcome, PushedAlarm},
    alarms::alarm_routes::{AlarmPushed, AlarmRoutes},
    alarms::received_at::{ReceivedAt, STORED_WITHIN},
    game::camera_capture::{CameraError, PullCameraFrame},
    game::commands::{
        AcknowledgeRaid, AcknowledgementsErased, AlarmPathChanged, AskServer, ChannelLine, ChatError, CommandError,
        DeviceToggle, DevicesChanged, FindRaid, NotesChanged, PlaceDevice, ReadDevices, SayForChannel, SendChat,
        Unanswered, UserCommand, Wish,
    },
    game::game_connection::{
        LinkStatus,
        link_budget::BudgetExhausted,
        players::{PLAYERS_AT_ONCE, PlayerSeen, PlayersSeen},
    },
    hub::counting::link_counts::{CountLinks, LinkCounts},
    hub::nodes::HubNode,
    hub::nodes::push_session_reads::{PushSessionsAt, ReadPushSession},
    hub::pairing::pairing_news::PairingNews,
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

/// The status of these servers' links; a server without a link is absent. One whose node does not answer has
/// [`LinkReason::NodeSilent`](crate::domain::link_reason::LinkReason::NodeSilent).
#[derive(Message)]
#[rtype(result = "HashMap<ServerId, LinkStatus>")]
pub struct LinkStatuses {
    pub servers: Vec<ServerId>,
}

/// The users with at least one open socket.
#[derive(Message)]
#[rtype(result = "HashSet<UserId>")]
pub struct OnlineUsers;

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

/// End the links; on a node of several, hand their servers over. Answered when they have ended.
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
    /// Links that may read for others.
    hosts: Arc<TeamHosts>,
    /// Turns of all links.
    slots: Arc<LinkSlots>,
    /// `None`: this process is the only one that serves, and has all servers.
    nodes: Option<SeveralNodes>,
    /// Threads on which game connections live.
    arbiters: Vec<ArbiterHandle>,
    connections: HashMap<ServerId, LiveConnection>,
    /// Ways to these connections, for pushed alarms.
    alarm_routes: AlarmRoutes,
    link_statuses: HashMap<ServerId, LinkStatus>,
    /// Backoff of the servers whose connection failed.
    failed: HashMap<ServerId, Backoff>,
    recent: RecentChanges,
    presence: Presence,
    /// Servers of which the database is asked who may watch.
    access_refreshes: HashMap<ServerId, OneAtATime>,
    admissions: Admissions,
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
    /// The right by which it writes, on a node of several.
    fence: Option<Fence>,
}

impl Hub {
    /// A hub whose game connections live on these threads (at least one); on a node of several, those of its parts. Pushed
    /// alarms find them by these routes.
    pub fn new(
        context: Arc<RelayContext>,
        health: Arc<RelayHealth>,
        arbiters: Vec<ArbiterHandle>,
        alarm_routes: AlarmRoutes,
        node: Option<HubNode>,
    ) -> Self {
        let game = &context.game;
        let slots = LinkSlots::new(game.links_per_server, game.source_addresses.clone(), context.clock.clone());
        Self {
            context,
            health,
            hosts: Arc::default(),
            slots: Arc::new(slots),
            nodes: node.map(SeveralNodes::new),
            arbiters,
            connections: HashMap::new(),
            alarm_routes,
            link_statuses: HashMap::new(),
            failed: HashMap::new(),
            recent: RecentChanges::default(),
            presence: Presence::default(),
            access_refreshes: HashMap::new(),
            admissions: Admissions::default(),
            access_version: 0,
            epoch: 0,
            links_loaded: false,
            draining: false,
            ending: false,
        }
    }

    /// The game connection of this server, started if need be; none if the server was deleted, the service stops or another
    /// node has the server.
    fn connection(&mut self, server: &ServerId, asked_for: bool, ctx: &Context<Self>) -> Option<Addr<GameConnection>> {
        if self.ending || self.recent.is_removed(server) {
            return None;
        }
        if let Some(known) = self.connections.get(server).filter(|known| known.address.connected()) {
            return Some(known.address.clone());
        }
        let (context, fence) = self.context_of(server)?;
        // The epoch only rises, also while the clock is stopped or set back.
        // The numbers between two epochs are for the sections of the first.
        let micros = self.context.clock.now().timestamp_micros().unsigned_abs();
        self.epoch = (self.epoch / Sections::SETS + 1).max(micros / Sections::SETS) * Sections::SETS;
        let heard = LastHeard::default();
        let (hosts, slots) = (self.hosts.clone(), self.slots.clone());
        let start = ConnectionStart { epoch: self.epoch, asked_for, heard: heard.clone(), hosts, slots };
        let (id, hub) = (server.clone(), ctx.address().recipient());
        let arbiter = &self.arbiters[self.connections.len() % self.arbiters.len()];
        let connection = move |_: &mut Context<GameConnection>| GameConnection::new(id, context, hub, start);
        let address = GameConnection::start_in_arbiter(arbiter, connection);
        let handed = self.nodes.as_mut().zip(fence.as_ref());
        if let Some(memory) = handed.and_then(|(nodes, right)| nodes.remote.handed.take(server, right)) {
            address.do_send(TakeOver(memory));
        }
        self.link_statuses.insert(server.clone(), self.connecting());
        self.alarm_routes.add(server.clone(), address.clone().recipient());
        let connection =
            LiveConnection { address: address.clone(), since: Instant::now(), heard, allowed: None, fence };
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
        self.alarm_routes.remove(&server);
        self.failed.remove(&server);
        let none_allowed = AllowedUsers { version: self.access_version, ..AllowedUsers::default() };
        self.close_only_of(&server, &none_allowed);
        self.set_remote_watchers(&server, &none_allowed);
        if let Some(connection) = self.connections.remove(&server) {
            connection.address.do_send(SetWatchers(none_allowed.clone()));
            connection.address.do_send(StopConnection);
        }
        self.recent.remove(server, self.access_version, self.context.clock.moment());
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

    fn count_sockets(&self) {
        self.health.active.store(self.presence.count(), Ordering::Relaxed);
    }
}

impl Actor for Hub {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Admissions and ends of tens of thousands of sockets pass here.
        ctx.set_mailbox_capacity(4_096);
        if self.nodes.is_some() {
            return self.follow_parts(ctx);
        }
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

impl Handler<LinksLoaded> for Hub {
    type Result = bool;

    fn handle(&mut self, _: LinksLoaded, _: &mut Self::Context) -> bool {
        self.links_loaded
    }
}

mod admitting;
mod alarms;
mod cameras;
mod commands;
mod connection_events;
mod counting;
mod ending;
mod finding;
mod link_statuses;
mod nodes;
mod pairing;
mod passing_on;
mod players;
pub mod presence;
pub mod recent_changes;
mod reported_changes;
#[cfg(test)]
mod tests;
mod to_connection;
mod watching;
