//! What an endpoint may reach. Built once by `server.rs`, shared by all workers.

use std::time::Instant;

use actix::Addr;
use url::Url;

use crate::{
    api::middleware::rate_limit::RateLimits,
    clients::identity::Identity,
    clock::Clock,
    config::Config,
    crypto::{relay_token::RelayTokens, sealer::Sealer, session_cookie::SealedCookie},
    db::pool::Pool,
    relay::hub::Hub,
};

/// See the module.
pub struct AppState {
    pub config: Config,
    pub clock: Clock,
    pub pool: Pool,
    /// For what is stored: player tokens, push credentials.
    pub sealer: std::sync::Arc<Sealer>,
    pub session_cookie: SealedCookie,
    /// The login state, between leaving for the identity provider and coming back.
    pub login_cookie: SealedCookie,
    pub relay_tokens: RelayTokens,
    pub identity: Identity,
    pub rate_limits: RateLimits,
    pub hub: Addr<Hub>,
    pub started: Instant,
    /// FRONTEND_URL, ADMIN_ORIGIN and our own: whose pages may change something.
    pub own_origins: Vec<Url>,
}

impl AppState {
    /// How the links of these servers stand.
    pub async fn connections(&self, servers: Vec<ServerId>) -> Result<HashMap<ServerId, Connection>, ApiError> {
        match tokio::time::timeout(HUB_DEADLINE, self.hub.send(Connections { servers })).await {
            Ok(Ok(connections)) => Ok(connections),
            Ok(Err(stopped)) => Err(ApiError::Unavailable(stopped.into())),
            Err(elapsed) => Err(ApiError::Unavailable(elapsed.into())),
        }
    }
}
