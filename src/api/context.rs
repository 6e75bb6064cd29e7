//! What endpoints share. Built once by `server.rs` for all workers.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::Addr;
use actix_web::{HttpRequest, web};
use tokio::time::Instant;

use crate::{
    api::{error::ApiError, rate_limits::RateLimits},
    clients::identity::IdentityClient,
    clock::Clock,
    config::{Environment, PublicUrls},
    crypto::{random::Random, relay_token::RelayTokens, session_cookie::SealedCookie},
    db::{pool::Pool, users},
    domain::ids::{ServerId, UserId},
    net::connections::Connections,
    push::{
        session_status::PushSession,
        worker::{PushSessions, PushWorker},
    },
    relay::hub::{Hub, LinkStatus, LinkStatuses, RelayHealth},
    vault::Vault,
};

/// How long a request waits for an actor.
const ACTOR_DEADLINE: Duration = Duration::from_secs(2);

/// What endpoints share.
pub struct ApiContext {
    pub environment: Environment,
    pub urls: PublicUrls,
    pub pairing_code_prefix: String,
    pub allow_private_servers: bool,
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    /// Player tokens and push credentials, as they are stored.
    pub vault: Vault,
    pub session_cookie: SealedCookie,
    /// Holds the login state while the browser is at the identity provider.
    pub login_cookie: SealedCookie,
    pub relay_tokens: RelayTokens,
    pub identity: IdentityClient,
    pub rate_limits: RateLimits,
    pub connections: Arc<Connections>,
    pub hub: Addr<Hub>,
    pub push: Addr<PushWorker>,
    pub relay_health: Arc<RelayHealth>,
    pub started: Instant,
}

impl ApiContext {
    /// The context of the application that serves this request.
    pub fn of(req: &HttpRequest) -> &web::Data<Self> {
        req.app_data().expect("every App is built with its context")
    }

    /// Runs a small query, to see that the database answers.
    pub async fn ping(&self) -> Result<(), ApiError> {
        self.pool.read(|db| users::find(db, &UserId::from(""))).await?;
        Ok(())
    }

    /// The links of these servers; one without a link is absent.
    pub async fn connections(&self, servers: Vec<ServerId>) -> Result<HashMap<ServerId, LinkStatus>, ApiError> {
        match tokio::time::timeout(ACTOR_DEADLINE, self.hub.send(LinkStatuses { servers })).await {
            Ok(Ok(connections)) => Ok(connections),
            Ok(Err(stopped)) => Err(ApiError::Unavailable(stopped.into())),
            Err(elapsed) => Err(ApiError::Unavailable(elapsed.into())),
        }
    }

    /// The push session of this user; `None` without a credential.
    pub async fn push_session(&self, user: &UserId) -> Result<Option<PushSession>, ApiError> {
        let asked = self.push.send(PushSessions { users: vec![user.clone()] });
        match tokio::time::timeout(ACTOR_DEADLINE, asked).await {
            Ok(Ok(mut sessions)) => Ok(sessions.remove(user)),
            Ok(Err(stopped)) => Err(ApiError::Unavailable(stopped.into())),
            Err(elapsed) => Err(ApiError::Unavailable(elapsed.into())),
        }
    }
}
