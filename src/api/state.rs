//! What an endpoint may reach. Built once by `server.rs`, shared by all workers.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::Addr;
use url::Url;

use crate::{
    api::{error::ApiError, middleware::rate_limit::RateLimits},
    clients::identity::Identity,
    clock::Clock,
    config::Config,
    crypto::{random::Random, relay_token::RelayTokens, session_cookie::SealedCookie},
    db::{pool::Pool, users},
    domain::ids::{ServerId, UserId},
    push::{
        session_status::PushSession,
        worker::{PushSessions, PushWorker},
    },
    relay::hub::{Connection, Connections, Health, Hub},
    vault::Vault,
};

/// How long a request waits for an actor.
const ACTOR_DEADLINE: Duration = Duration::from_secs(2);

/// See the module.
pub struct AppState {
    pub config: Config,
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    /// Player tokens and push credentials, as they are stored.
    pub vault: Vault,
    pub session_cookie: SealedCookie,
    /// The login state, between leaving for the identity provider and coming back.
    pub login_cookie: SealedCookie,
    pub relay_tokens: RelayTokens,
    pub identity: Identity,
    pub rate_limits: RateLimits,
    pub hub: Addr<Hub>,
    pub push: Addr<PushWorker>,
    pub relay_health: Arc<Health>,
    pub started: Instant,
    pub origins: Origins,
}

/// The public URLs of the configuration, parsed.
pub struct Origins {
    pub base: Url,
    pub frontend: Url,
    pub admin: Url,
}

impl AppState {
    /// Whether the database answers the smallest of its queries.
    pub async fn ping(&self) -> Result<(), ApiError> {
        self.pool.read(|db| users::find(db, &UserId::from(""))).await?;
        Ok(())
    }

    /// How the links of these servers stand.
    pub async fn connections(&self, servers: Vec<ServerId>) -> Result<HashMap<ServerId, Connection>, ApiError> {
        match tokio::time::timeout(ACTOR_DEADLINE, self.hub.send(Connections { servers })).await {
            Ok(Ok(connections)) => Ok(connections),
            Ok(Err(stopped)) => Err(ApiError::Unavailable(stopped.into())),
            Err(elapsed) => Err(ApiError::Unavailable(elapsed.into())),
        }
    }

    /// How the push session of this user stands; `None` when there is none.
    pub async fn push_session(&self, user: &UserId) -> Result<Option<PushSession>, ApiError> {
        let asked = self.push.send(PushSessions { users: vec![user.clone()] });
        match tokio::time::timeout(ACTOR_DEADLINE, asked).await {
            Ok(Ok(mut sessions)) => Ok(sessions.remove(user)),
            Ok(Err(stopped)) => Err(ApiError::Unavailable(stopped.into())),
            Err(elapsed) => Err(ApiError::Unavailable(elapsed.into())),
        }
    }
}
