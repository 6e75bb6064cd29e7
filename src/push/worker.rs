//! Actor: supervises one push session per stored credential, and is the only way from the API into the push worker. On a
//! node of several, it has those sessions that are parts of the node.
//! Starts a session for every stored credential, paced, and for every uploaded one, at once, on the threads for push
//! sessions. Sessions report to the relay's hub what arrived, and never wait for this actor. Stops first when the
//! service stops.

mod taking_parts;

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::prelude::*;
use futures_util::{
    FutureExt as _,
    future::{AbortHandle, Abortable},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    db::{
        engine::{pool::Db, start_reads::read_until_answered},
        paired_servers, push_credentials,
    },
    domain::{backoff::Backoff, fence::Fence, ids::UserId},
    ownership::Ownership,
    panics::{self, Part},
    push::{
        context::PushContext,
        login_pacer,
        owned_sessions::OwnedSessions,
        session_status::{PushCounts, PushSession, PushState, SessionFault, SessionStatus},
        session_supervisor,
        unstored::UnstoredPushes,
    },
    relay::hub::{AlarmPathChanged, PushSessionsAt, ReadPushSession, ToConnection},
};

/// A user's credential was uploaded or removed: start, replace or end the session now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CredentialChanged {
    pub user: UserId,
}

/// A user's game servers were paired or deleted, other than by a push: read them again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ServersChanged {
    pub user: UserId,
}

/// End every session: what is pushed after that is delivered at the next start.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopPush;

/// The push sessions of these users; a user without a credential is absent.
#[derive(Message)]
#[rtype(result = "HashMap<UserId, PushSession>")]
pub struct PushSessions {
    pub users: Vec<UserId>,
}

/// Asks if the sessions of all stored credentials are on their way. False until the database has listed these once.
#[derive(Message)]
#[rtype(result = "bool")]
pub struct SessionsLoaded;

/// Asks for the number of push sessions in each state.
#[derive(Message)]
#[rtype(result = "PushCounts")]
pub struct CountSessions;

/// See the module.
pub struct PushWorker {
    context: Arc<PushContext>,
    /// Threads on which sessions live.
    arbiters: Vec<ArbiterHandle>,
    sessions: HashMap<UserId, SupervisedSession>,
    /// `None`: this process is the only one that serves, and has all sessions.
    owned: Option<OwnedSessions>,
    started: usize,
    sessions_loaded: bool,
}

/// A session; ends when dropped.
struct SupervisedSession {
    status: Arc<SessionStatus>,
    supervisor: AbortHandle,
    servers_changed: Arc<Notify>,
    /// Pushes that the next session of this user takes over.
    unstored: Arc<UnstoredPushes>,
    /// The right by which it stores them, on a node of several.
    fence: Option<Fence>,
}

impl Drop for SupervisedSession {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// Runs a user's supervisor, again whenever it panics, until the credential is gone.
async fn keep_supervised(
    status: Arc<SessionStatus>,
    context: Arc<PushContext>,
    user: UserId,
    servers_changed: Arc<Notify>,
    unstored: Arc<UnstoredPushes>,
) {
    let mut backoff = Backoff::new();
    loop {
        let started = Instant::now();
        let (status_of, context_of) = (status.clone(), context.clone());
        let (changed, unstored) = (servers_changed.clone(), unstored.clone());
        let supervised = session_supervisor::supervise(status_of, context_of, user.clone(), changed, unstored);
        if panics::caught(Part::PushSession, user.as_str(), supervised).await.is_some() {
            return;
        }
        status.set_state(PushState::Unreachable, Some(SessionFault::OurFault), context.clock.now());
        sleep(backoff.after(started.elapsed(), Duration::ZERO, context.random.byte())).await;
    }
}

/// Starts the worker on the calling thread; its sessions live on these (at least one). On a node of several, it has the
/// sessions that are parts of the node.
pub fn start(
    context: Arc<PushContext>,
    arbiters: Vec<ArbiterHandle>,
    ownership: Option<Ownership>,
) -> Addr<PushWorker> {
    let (sessions, owned) = (HashMap::new(), ownership.map(OwnedSessions::new));
    PushWorker { context, arbiters, sessions, owned, started: 0, sessions_loaded: false }.start()
}

impl PushWorker {
    /// Starts the supervisor of a user's session, in place of one that may run; not if another node has the session.
    fn supervise(&mut self, user: UserId, delay: Duration) {
        let Some((context, fence)) = self.context_of(&user) else { return };
        let status = Arc::new(SessionStatus::connecting(self.context.clock.now()));
        let (supervisor, registration) = AbortHandle::new_pair();
        let servers_changed = Arc::new(Notify::new());
        let unstored = self.sessions.get(&user).map(|before| before.unstored.clone()).unwrap_or_default();
        let (supervised, owner) = (status.clone(), user.clone());
        let (changed, waiting) = (servers_changed.clone(), unstored.clone());
        self.arbiters[self.started % self.arbiters.len()].spawn_fn(move || {
            let supervised = async move {
                sleep(delay).await;
                keep_supervised(supervised, context, owner, changed, waiting).await;
            };
            actix::spawn(Abortable::new(supervised, registration).map(drop));
        });
        self.started += 1;
        self.sessions.insert(user, SupervisedSession { status, supervisor, servers_changed, unstored, fence });
        self.context.logins.set_sessions(self.sessions.len());
    }

    /// Lets the links of the user's servers look whether alarms come over them alone: by that they take turns where a game
    /// server takes no more of them.
    fn report_to_links(&self, user: UserId, ctx: &mut Context<Self>) {
        let context = self.context.clone();
        let report = async move {
            let read = move |db: &mut Db| paired_servers::list_ids_for(db, &user);
            for server in read_until_answered(&context.pool, &context.random, "paired servers", read).await {
                context.hub.do_send(ToConnection { server, message: AlarmPathChanged });
            }
        };
        ctx.spawn(report.into_actor(self));
    }
}

impl Actor for PushWorker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.owned.is_some() {
            self.context.hub.do_send(PushSessionsAt(ctx.address().recipient()));
            return self.follow_parts(ctx);
        }
        let context = self.context.clone();
        let users = async move {
            let query = push_credentials::list_users;
            read_until_answered(&context.pool, &context.random, "push credentials", query).await
        };
        ctx.spawn(users.into_actor(self).map(|users, worker, _| {
            let total = users.len();
            for (place, user) in users.into_iter().enumerate() {
                // A credential that was uploaded meanwhile has its session.
                if !worker.sessions.contains_key(&user) {
                    worker.supervise(user, login_pacer::spread(total).mul_f64(place as f64 / total as f64));
                }
            }
            worker.sessions_loaded = true;
        }));
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.sessions.clear();
    }
}

impl Handler<CredentialChanged> for PushWorker {
    type Result = ();

    fn handle(&mut self, CredentialChanged { user }: CredentialChanged, ctx: &mut Self::Context) {
        match self.owned {
            Some(_) => self.read_uploads(ctx),
            None => self.supervise(user.clone(), Duration::ZERO),
        }
        self.report_to_links(user, ctx);
    }
}

impl Handler<ServersChanged> for PushWorker {
    type Result = ();

    fn handle(&mut self, ServersChanged { user }: ServersChanged, _: &mut Self::Context) {
        if let Some(session) = self.sessions.get(&user) {
            session.servers_changed.notify_one();
        }
    }
}

impl Handler<StopPush> for PushWorker {
    type Result = ();

    fn handle(&mut self, _: StopPush, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

impl Handler<PushSessions> for PushWorker {
    type Result = MessageResult<PushSessions>;

    fn handle(&mut self, PushSessions { users }: PushSessions, _: &mut Self::Context) -> Self::Result {
        let known = users.into_iter().filter_map(|user| {
            let session = self.sessions.get(&user)?.status.get()?;
            Some((user, session))
        });
        MessageResult(known.collect())
    }
}

/// For another node.
impl Handler<ReadPushSession> for PushWorker {
    type Result = MessageResult<ReadPushSession>;

    fn handle(&mut self, ReadPushSession { user }: ReadPushSession, _: &mut Self::Context) -> Self::Result {
        let session = self.sessions.get(&user).and_then(|session| session.status.get());
        // Its fields are plain.
        MessageResult(Ok(serde_json::to_value(session).unwrap_or_default()))
    }
}

impl Handler<CountSessions> for PushWorker {
    type Result = MessageResult<CountSessions>;

    fn handle(&mut self, _: CountSessions, _: &mut Self::Context) -> Self::Result {
        let mut counts = PushState::WORDS.map(|(_, word)| (word, 0));
        for state in self.sessions.values().filter_map(|session| session.status.state()) {
            let place = PushState::WORDS.iter().position(|(known, _)| *known == state);
            counts[place.expect("every state has a word")].1 += 1;
        }
        MessageResult(counts)
    }
}

impl Handler<SessionsLoaded> for PushWorker {
    type Result = bool;

    fn handle(&mut self, _: SessionsLoaded, _: &mut Self::Context) -> bool {
        self.sessions_loaded
    }
}
