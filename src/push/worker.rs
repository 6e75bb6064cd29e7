//! Actor: supervises one push session per stored credential, and is the only way from the API into the push worker.
//! Starts a session for every stored credential, paced, and for every uploaded one, at once, on the threads for push
//! sessions. Sessions report to the relay's hub what arrived, and never wait for this actor. Stops first when the
//! service stops.

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
    db::{push_credentials, start_reads::read_until_answered},
    domain::{backoff::Backoff, ids::UserId},
    panics::{self, Part},
    push::{
        context::PushContext,
        login_pacer,
        session_status::{PushCounts, PushSession, PushState, SessionFault, SessionStatus},
        session_supervisor,
        unstored::UnstoredPushes,
    },
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

/// Starts the worker on the calling thread; its sessions live on these (at least one).
pub fn start(context: Arc<PushContext>, arbiters: Vec<ArbiterHandle>) -> Addr<PushWorker> {
    PushWorker { context, arbiters, sessions: HashMap::new(), started: 0, sessions_loaded: false }.start()
}

impl PushWorker {
    /// Starts the supervisor of a user's session, in place of one that may run.
    fn supervise(&mut self, user: UserId, delay: Duration) {
        let status = Arc::new(SessionStatus::connecting(self.context.clock.now()));
        let (supervisor, registration) = AbortHandle::new_pair();
        let servers_changed = Arc::new(Notify::new());
        let unstored = self.sessions.get(&user).map(|before| before.unstored.clone()).unwrap_or_default();
        let (context, supervised, owner) = (self.context.clone(), status.clone(), user.clone());
        let (changed, waiting) = (servers_changed.clone(), unstored.clone());
        self.arbiters[self.started % self.arbiters.len()].spawn_fn(move || {
            let supervised = async move {
                sleep(delay).await;
                keep_supervised(supervised, context, owner, changed, waiting).await;
            };
            actix::spawn(Abortable::new(supervised, registration).map(drop));
        });
        self.started += 1;
        self.sessions.insert(user, SupervisedSession { status, supervisor, servers_changed, unstored });
        self.context.logins.set_sessions(self.sessions.len());
    }
}

impl Actor for PushWorker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
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

    fn handle(&mut self, CredentialChanged { user }: CredentialChanged, _: &mut Self::Context) {
        self.supervise(user, Duration::ZERO);
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
