//! What endpoints share. Built once by `server.rs` for all workers.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::{Addr, MailboxError};
use actix_web::{HttpRequest, web};
use tokio::time::{Instant, timeout};

use crate::{
    api::{
        camera_drawing::DrawingTurns,
        error::{ApiError, FieldError},
        map_pictures::MapPictures,
        rate_limits::RateLimits,
    },
    billing::context::BillingContext,
    clients::identity::IdentityClient,
    clock::Clock,
    config::{Environment, PublicUrls},
    crypto::{random::Random, relay_token::RelayTokens, session_cookie::SealedCookie},
    db::{pool::Pool, users},
    domain::ids::{ServerId, UserId},
    net::connections::Connections,
    push::{
        session_status::PushSession,
        worker::{PushSessions, PushWorker, SessionsLoaded},
    },
    relay::hub::{Hub, LinkStatus, LinkStatuses, LinksLoaded, Markets, RelayHealth},
    tracking::worker::TrackingWorker,
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
    pub drawing_turns: DrawingTurns,
    pub map_pictures: MapPictures,
    pub connections: Arc<Connections>,
    pub hub: Addr<Hub>,
    pub push: Addr<PushWorker>,
    /// `None`: no player-statistics service is configured.
    pub tracking: Option<Addr<TrackingWorker>>,
    /// `None`: payments are off.
    pub billing: Option<Arc<BillingContext>>,
    /// Users are held to what their tier unlocks.
    pub enforce_tiers: bool,
    pub relay_health: Arc<RelayHealth>,
    /// The shops of game servers, as the relay knows them.
    pub markets: Arc<Markets>,
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
        in_time(self.hub.send(LinkStatuses { servers })).await
    }

    /// The push session of this user; `None` without a credential.
    pub async fn push_session(&self, user: &UserId) -> Result<Option<PushSession>, ApiError> {
        let mut sessions = in_time(self.push.send(PushSessions { users: vec![user.clone()] })).await?;
        Ok(sessions.remove(user))
    }

    /// What is not ready yet, each by its name and why; empty when everything is.
    pub async fn not_ready(&self) -> Vec<FieldError> {
        let (database, links, sessions) = tokio::join!(
            timeout(ACTOR_DEADLINE, self.ping()),
            in_time(self.hub.send(LinksLoaded)),
            in_time(self.push.send(SessionsLoaded)),
        );
        let database = matches!(database, Ok(Ok(()))).then_some(true).ok_or(());
        [("database", database), ("gameLinks", links.map_err(drop)), ("pushSessions", sessions.map_err(drop))]
            .into_iter()
            .filter_map(|(path, state)| {
                let message = match state {
                    Ok(true) => return None,
                    Ok(false) => "not loaded yet",
                    Err(()) => "no answer",
                };
                Some(FieldError { path: path.to_owned(), message: message.to_owned() })
            })
            .collect()
    }
}

/// The answer of an actor, if it comes in time.
async fn in_time<T>(answer: impl Future<Output = Result<T, MailboxError>>) -> Result<T, ApiError> {
    match timeout(ACTOR_DEADLINE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(stopped)) => Err(ApiError::Unavailable(stopped.into())),
        Err(elapsed) => Err(ApiError::Unavailable(elapsed.into())),
    }
}
