//! Actor: supervises one push session per stored credential, and is the only way from the API into the push worker.
//! Starts a session for every stored credential, paced, and for every uploaded one, at once. Reports to the relay's hub
//! what arrived. Stops first when the service stops.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::prelude::*;
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep},
};

use crate::{
    db::{push_credentials, start::read_until_answered},
    domain::{backoff::Backoff, ids::UserId},
    panics,
    push::{
        context::PushContext,
        session_status::{PushSession, PushState, SessionEvent, SessionReport},
        session_supervisor,
    },
};

/// Time between two sessions at start-up: fifty a second do not look like an attack.
const PACE: Duration = Duration::from_millis(20);

/// A user's credential was uploaded or removed: start, replace or end the session now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CredentialChanged {
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

/// Are the sessions of all stored credentials on their way? Not before the database has once said which there are.
#[derive(Message)]
#[rtype(result = "bool")]
pub struct SessionsLoaded;

/// See the module.
pub struct PushWorker {
    context: Arc<PushContext>,
    sessions: HashMap<UserId, SupervisedSession>,
    generation: u64,
    sessions_loaded: bool,
}

struct SupervisedSession {
    session: PushSession,
    generation: u64,
    supervisor: AbortHandle,
}

/// Starts the worker on the calling thread.
pub fn start(context: Arc<PushContext>) -> Addr<PushWorker> {
    PushWorker { context, sessions: HashMap::new(), generation: 0, sessions_loaded: false }.start()
}

/// Runs a user's supervisor, again whenever it panics, until the credential is gone.
async fn keep_supervised(reports: Recipient<SessionReport>, context: Arc<PushContext>, user: UserId, generation: u64) {
    let mut backoff = Backoff::new();
    loop {
        let started = Instant::now();
        let supervised = session_supervisor::supervise(reports.clone(), context.clone(), user.clone(), generation);
        if panics::caught("push_session", user.as_str(), supervised).await.is_some() {
            return;
        }
        let event = SessionEvent::State(PushState::Unreachable, Some("an internal error".to_owned()));
        // It fails when the worker has stopped, which also aborts this task.
        let _ = reports.send(SessionReport { user: user.clone(), generation, event: Some(event) }).await;
        sleep(backoff.after(started.elapsed(), Duration::ZERO, context.random.byte())).await;
    }
}

impl PushWorker {
    /// Starts the supervisor of a user's session, in place of one that may run.
    fn supervise(&mut self, user: UserId, delay: Duration, ctx: &mut Context<Self>) {
        self.generation += 1;
        let (reports, context, generation) = (ctx.address().recipient(), self.context.clone(), self.generation);
        let supervised = keep_supervised(reports, context, user.clone(), generation);
        let supervisor = actix::spawn(async move {
            sleep(delay).await;
            supervised.await;
        });
        let session = SupervisedSession {
            session: PushSession::connecting(self.context.clock.now()),
            generation: self.generation,
            supervisor: supervisor.abort_handle(),
        };
        if let Some(before) = self.sessions.insert(user, session) {
            before.supervisor.abort();
        }
    }
}

impl Actor for PushWorker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Each supervisor has one report on its way at most.
        ctx.set_mailbox_capacity(1_024);
        let context = self.context.clone();
        let users = async move {
            let query = push_credentials::list_users;
            read_until_answered(&context.pool, &context.random, "push credentials", query).await
        };
        ctx.spawn(users.into_actor(self).map(|users, worker, ctx| {
            for (place, user) in (0u32..).zip(users) {
                // One that was uploaded meanwhile has its session.
                if !worker.sessions.contains_key(&user) {
                    worker.supervise(user, PACE * place, ctx);
                }
            }
            worker.sessions_loaded = true;
        }));
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        for session in self.sessions.values() {
            session.supervisor.abort();
        }
    }
}

impl Handler<CredentialChanged> for PushWorker {
    type Result = ();

    fn handle(&mut self, CredentialChanged { user }: CredentialChanged, ctx: &mut Self::Context) {
        self.supervise(user, Duration::ZERO, ctx);
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
            let session = self.sessions.get(&user)?.session.clone();
            Some((user, session))
        });
        MessageResult(known.collect())
    }
}

impl Handler<SessionsLoaded> for PushWorker {
    type Result = bool;

    fn handle(&mut self, _: SessionsLoaded, _: &mut Self::Context) -> bool {
        self.sessions_loaded
    }
}

impl Handler<SessionReport> for PushWorker {
    type Result = ();

    fn handle(&mut self, SessionReport { user, generation, event }: SessionReport, _: &mut Self::Context) {
        let Some(supervised) = self.sessions.get_mut(&user).filter(|session| session.generation == generation) else {
            return;
        };
        match event {
            Some(event) => supervised.session.apply(event, self.context.clock.now()),
            None => drop(self.sessions.remove(&user)),
        }
    }
}
