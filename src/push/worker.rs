//! Actor: keeps one push session per stored credential, and is the only door from the API into the push worker.

use std::collections::HashMap;

use actix::prelude::*;
use serde::Serialize;

use crate::domain::{
    ids::UserId,
    time::{self, Timestamp},
};

/// A user's credential was uploaded or removed: start, replace or end the session now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CredentialChanged {
    pub user: UserId,
}

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

/// See the module.
#[derive(Default)]
pub struct Worker {
    sessions: HashMap<UserId, PushSession>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Handler<CredentialChanged> for Worker {
    type Result = ();

    fn handle(&mut self, CredentialChanged { user }: CredentialChanged, _: &mut Self::Context) {
        self.sessions.remove(&user);
    }
}

impl Handler<PushSessions> for Worker {
    type Result = MessageResult<PushSessions>;

    fn handle(&mut self, PushSessions { users }: PushSessions, _: &mut Self::Context) -> Self::Result {
        let known = users.into_iter().filter_map(|user| {
            let session = self.sessions.get(&user)?.clone();
            Some((user, session))
        });
        MessageResult(known.collect())
    }
}
