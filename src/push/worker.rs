//! Actor: keeps one push session per stored credential, and is the only door from the API into the push worker.
//! Started by the server, once; starts a session for every credential it finds, paced, and for every one that is
//! uploaded, at once. Tells the relay's hub what arrived. Stops first when the service stops.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::prelude::*;
use serde::Serialize;
use tokio::{task::AbortHandle, time::sleep};

use crate::{
    db::push_credentials,
    domain::{
        ids::UserId,
        time::{self, Timestamp},
    },
    push::{session_keeper, state::PushContext},
};

/// Time between two sessions at start-up: fifty a second do not look like an attack.
const PACE: Duration = Duration::from_millis(20);

/// A user's credential was uploaded or removed: start, replace or end the session now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CredentialChanged {
    pub user: UserId,
}

/// End every session: what is pushed from now on comes at the next start.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Stop;

/// How the push sessions of these users stand; a user without a credential is absent.
#[derive(Message)]
#[rtype(result = "HashMap<UserId, PushSession>")]
pub struct PushSessions {
    pub users: Vec<UserId>,
}

/// Where a push session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PushState {
    Connecting,
    Connected,
    /// The push service cannot be reached; it is tried again.
    Unreachable,
    /// The login is refused: the helper must register anew and upload.
    RefreshNeeded,
    /// The stored bundle cannot be opened or read.
    Unreadable,
}

/// A user's push session, as users see it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PushSession {
    pub state: PushState,
    #[serde(serialize_with = "time::wire")]
    pub since: Timestamp,
    #[serde(serialize_with = "time::wire_option")]
    pub last_heartbeat_at: Option<Timestamp>,
    #[serde(serialize_with = "time::wire_option")]
    pub last_message_at: Option<Timestamp>,
    pub last_error: Option<String>,
}

/// Something about a session changed. From its keeper.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Seen {
    pub user: UserId,
    /// Of the keeper; an older keeper's late word counts for nothing.
    pub generation: u64,
    pub what: Sight,
}

/// What a keeper saw.
pub enum Sight {
    State(PushState, Option<String>),
    Heartbeat,
    Message,
    /// There is no credential any more.
    Gone,
}

/// See the module.
pub struct Worker {
    context: Arc<PushContext>,
    sessions: HashMap<UserId, Kept>,
    generation: u64,
}

struct Kept {
    session: PushSession,
    generation: u64,
    keeper: AbortHandle,
}

impl Worker {
    /// A worker without sessions.
    pub fn new(context: Arc<PushContext>) -> Self {
        Self { context, sessions: HashMap::new(), generation: 0 }
    }

    /// Starts the keeper of a user's session, in place of one that may run.
    fn keep(&mut self, user: UserId, delay: Duration, ctx: &mut Context<Self>) {
        self.generation += 1;
        let keeping = session_keeper::keep(ctx.address(), self.context.clone(), user.clone(), self.generation);
        let keeper = actix::spawn(async move {
            sleep(delay).await;
            keeping.await;
        });
        let session = PushSession {
            state: PushState::Connecting,
            since: self.context.clock.now(),
            last_heartbeat_at: None,
            last_message_at: None,
            last_error: None,
        };
        let kept = Kept { session, generation: self.generation, keeper: keeper.abort_handle() };
        if let Some(before) = self.sessions.insert(user, kept) {
            before.keeper.abort();
        }
    }
}

impl Actor for Worker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Keepers wait for their word to be taken, one each.
        ctx.set_mailbox_capacity(1_024);
        let context = self.context.clone();
        let users = async move { context.pool.read(push_credentials::list_users).await };
        ctx.spawn(users.into_actor(self).map(|users, worker, ctx| match users {
            Ok(users) => {
                for (place, user) in (0u32..).zip(users) {
                    worker.keep(user, PACE * place, ctx);
                }
            }
            Err(error) => log::error!("push credentials could not be read, no session is started: {error}"),
        }));
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        for kept in self.sessions.values() {
            kept.keeper.abort();
        }
    }
}

impl Handler<CredentialChanged> for Worker {
    type Result = ();

    fn handle(&mut self, CredentialChanged { user }: CredentialChanged, ctx: &mut Self::Context) {
        self.keep(user, Duration::ZERO, ctx);
    }
}

impl Handler<Stop> for Worker {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

impl Handler<PushSessions> for Worker {
    type Result = MessageResult<PushSessions>;

    fn handle(&mut self, PushSessions { users }: PushSessions, _: &mut Self::Context) -> Self::Result {
        let known = users.into_iter().filter_map(|user| {
            let session = self.sessions.get(&user)?.session.clone();
            Some((user, session))
        });
        MessageResult(known.collect())
    }
}

impl Handler<Seen> for Worker {
    type Result = ();

    fn handle(&mut self, Seen { user, generation, what }: Seen, _: &mut Self::Context) {
        let now = self.context.clock.now();
        let Some(kept) = self.sessions.get_mut(&user).filter(|kept| kept.generation == generation) else { return };
        match what {
            Sight::State(state, error) => {
                if kept.session.state != state {
                    (kept.session.state, kept.session.since) = (state, now);
                }
                kept.session.last_error = error;
            }
            Sight::Heartbeat => kept.session.last_heartbeat_at = Some(now),
            Sight::Message => kept.session.last_message_at = Some(now),
            Sight::Gone => {
                self.sessions.remove(&user);
            }
        }
    }
}
