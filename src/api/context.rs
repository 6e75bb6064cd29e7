//! Values that endpoints share. Built once by `server.rs` for all workers.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use actix::{Addr, MailboxError};
use actix_web::{HttpRequest, web};
use bytes::Bytes;
use chrono::TimeDelta;
use secrecy::SecretString;
use tokio::time::{Instant, timeout};

use crate::{
    api::{
        answer::{chat_problem::ChatProblem, error::ApiError},
        caches::{
            activity::ActivityCounts,
            camera_drawing::RenderLimit,
            image_uploads::Images,
            item_answers::ItemsAnswer,
            map_pictures::MapPictures,
            own_state::{OwnState, WriteState},
            service_status::ServiceStatus,
            short_cache::ShortCache,
            store_answers::StoreAnswers,
        },
        rate_limits::RateLimits,
    },
    billing::context::BillingContext,
    catalogue::CatalogueKeeper,
    clients::{chat::ChatClient, identity::IdentityClient, payments::ProviderPrice, relay_health::RelayHealthClient},
    clock::Clock,
    config::{Environment, GameLinkPolicy, PublicUrls},
    crypto::{
        account_mark::AccountMarks, interaction_signature::InteractionKey, invite_token::InviteTokens, random::Random,
        relay_token::RelayTokens, sealer::Sealer, session_cookie::SealedCookie,
    },
    db::{engine::pool::Pool, journal::Journal, usage::Usage},
    domain::{
        ids::{PlatformId, ServerId, UserId},
        outbound::Confirmations,
        plan::Plan,
        time::Timestamp,
    },
    game::outbound::Outbound,
    net::{connections::Connections, refusals::RefusalLog},
    push::{
        session_status::PushSession,
        worker::{PushSessions, PushWorker},
    },
    relay::hub::{Hub, LinkStatus, LinkStatuses, Markets, OnlineUsers, RelayHealth},
    tracking::worker::TrackingWorker,
    vault::Vault,
};

/// Longest wait of a request for an actor.
pub const ACTOR_DEADLINE: Duration = Duration::from_secs(2);

/// The values that endpoints share.
pub struct ApiContext {
    pub environment: Environment,
    pub urls: PublicUrls,
    /// Accounts that may use the admin routes; empty: the routes are off.
    pub admins: Vec<PlatformId>,
    /// Longest age of the sign-in with which an admin pays back or deletes; `None`: any age.
    pub fresh_sign_in: Option<TimeDelta>,
    pub pairing_code_prefix: String,
    /// Limits of what users can make this service connect to.
    pub outbound: Arc<Outbound>,
    pub refusals: Arc<RefusalLog>,
    /// Sign-ins for which the identity provider was asked.
    pub confirmations: Mutex<Confirmations>,
    pub link_policy: GameLinkPolicy,
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    /// Player tokens and push credentials, as they are stored.
    pub vault: Vault,
    pub session_cookie: SealedCookie,
    /// Holds the login state while the browser is at the identity provider.
    pub login_cookie: SealedCookie,
    pub relay_tokens: RelayTokens,
    pub invite_tokens: InviteTokens,
    /// Seals the answers that are kept for an `Idempotency-Key`: some hold a token.
    pub kept_answers: Arc<Sealer>,
    pub identity: IdentityClient,
    pub rate_limits: RateLimits,
    pub render_limit: RenderLimit,
    pub map_pictures: MapPictures,
    pub images: Images,
    pub store_answers: StoreAnswers,
    pub items_answer: ItemsAnswer,
    pub catalogue: Arc<CatalogueKeeper>,
    pub connections: Arc<Connections>,
    pub hub: Addr<Hub>,
    pub push: Addr<PushWorker>,
    /// `None`: no player-statistics service is configured.
    pub tracking: Option<Addr<TrackingWorker>>,
    /// `None`: payments are off.
    pub billing: Option<Arc<BillingContext>>,
    /// Users are held to what their tier unlocks.
    pub enforce_tiers: bool,
    /// Marks of erased accounts.
    pub account_marks: AccountMarks,
    /// `None`: there is no support bot.
    pub chat_bot: Option<ChatBot>,
    pub relay_health: Arc<RelayHealth>,
    /// State of all members and of the relay, for admins.
    pub service_status: ShortCache<ServiceStatus>,
    pub usage: ShortCache<Usage>,
    /// Prices of the plans at the payment provider; a plan whose price is not known is absent.
    pub plan_prices: ShortCache<Vec<(Plan, ProviderPrice)>>,
    /// JSON Schema of the relay's messages, as clients read it.
    pub relay_schema: Bytes,
    /// Actions of users that are not stored yet.
    pub activity: ActivityCounts,
    /// Client of the relay's health.
    pub relay: RelayHealthClient,
    /// The shops of game servers, as the relay knows them.
    pub markets: Arc<Markets>,
    pub started: Instant,
    pub started_at: Timestamp,
    pub data_dir: PathBuf,
    /// Token that `/metrics` requires; `None`: in development for this machine only, in production off.
    pub metrics_token: Option<SecretString>,
    pub write_state: ShortCache<WriteState>,
    /// The faults of `write_state` that are in the log.
    pub write_faults: Mutex<Vec<String>>,
    /// Alarms that wait for the database.
    pub journal: Journal,
    pub own_state: ShortCache<OwnState>,
}

/// The support bot at the chat platform.
pub struct ChatBot {
    pub client: ChatClient,
    /// Public key of the platform's signatures of interactions.
    pub public_key: InteractionKey,
}

impl ApiContext {
    /// The support bot.
    pub fn chat_bot(&self) -> Result<&ChatBot, ApiError> {
        self.chat_bot.as_ref().ok_or(ApiError::Chat(ChatProblem::Disabled))
    }

    /// The context of the application that serves this request.
    pub fn of(req: &HttpRequest) -> &web::Data<Self> {
        req.app_data().expect("every App is built with its context")
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

    /// The users who are online.
    pub async fn online(&self) -> Result<HashSet<UserId>, ApiError> {
        in_time(self.hub.send(OnlineUsers)).await
    }
}

/// The answer of an actor, if it comes in time.
pub async fn in_time<T>(answer: impl Future<Output = Result<T, MailboxError>>) -> Result<T, ApiError> {
    match timeout(ACTOR_DEADLINE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(stopped)) => Err(ApiError::Unavailable(stopped.into())),
        Err(elapsed) => Err(ApiError::Unavailable(elapsed.into())),
    }
}
