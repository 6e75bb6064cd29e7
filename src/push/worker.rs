//! Actor: supervises one push session per stored credential, and is the only way from the API into the push worker.
//! Starts a session for every stored credential, paced, and for every uploaded one, at once. Reports to the relay's hub
//! what arrived. Stops first when the service stops.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::prelude::*;
use tokio::{task::AbortHandle, time::sleep};

use crate::{
    db::push_credentials,
    domain::ids::UserId,
    push::{
        context::PushContext,
        session_status::{PushSession, SessionReport},
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

/// See the module.
pub struct PushWorker {
    context: Arc<PushContext>,
    sessions: HashMap<UserId, SupervisedSession>,
    generation: u64,
}

struct SupervisedSession {
    session: PushSession,
    generation: u64,
    supervisor: AbortHandle,
}

/// Starts the worker on the calling thread.
pub fn start(context: Arc<PushContext>) -> Addr<PushWorker> {
    PushWorker { context, sessions: HashMap::new(), generation: 0 }.start()
}

impl PushWorker {
    /// Starts the supervisor of a user's session, in place of one that may run.
    fn supervise(&mut self, user: UserId, delay: Duration, ctx: &mut Context<Self>) {
        self.generation += 1;
        let reports = ctx.address().recipient();
        let supervised = session_supervisor::supervise(reports, self.context.clone(), user.clone(), self.generation);
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
        let users = async move { context.pool.read(push_credentials::list_users).await };
        ctx.spawn(users.into_actor(self).map(|users, worker, ctx| match users {
            Ok(users) => {
                for (place, user) in (0u32..).zip(users) {
                    worker.supervise(user, PACE * place, ctx);
                }
            }
            Err(error) => log::error!("push credentials could not be read, no session is started: {error}"),
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
