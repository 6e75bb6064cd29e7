//! Values that endpoints share. Built once by `server.rs` for all workers.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicUsize},
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
        answer::{chat_problem::ChatProblem, error::ApiError, registration_problem::RegistrationProblem},
        caches::{
            activity::ActivityCounts,
            admin_overview::AdminOverview,
            avatars::Avatars,
            camera_drawing::RenderLimit,
            image_uploads::Images,
            item_responses::ItemsAnswer,
            map_pictures::MapPictures,
            service_health::{self, ServiceHealth, WriteState},
            short_cache::ShortCache,
            store_responses::StoreAnswers,
        },
        rate_limits::RateLimits,
    },
    billing::context::BillingContext,
    catalogue::CatalogueKeeper,
    channels::Channels,
    clients::{chat::ChatClient, identity::IdentityClient, payments::ProviderPrice, relay_health::RelayHealthClient},
    clock::Clock,
    config::{Environment, GameLinkPolicy, PublicUrls},
    crypto::{
        account_mark::AccountMarks,
        interaction_signature::InteractionKey,
        invite_token::InviteTokens,
        keys::{KeyDerivation, Purpose},
        random::Random,
        relay_token::RelayTokens,
        sealer::Sealer,
        session_cookie::{SESSION_COOKIE, SealedCookie},
    },
    db::{
        engine::pool::Pool,
        files::{erasure_list::ErasureNotes, journal::Journal},
        usage::Usage,
    },
    domain::{
        clock_skew::ClockSkew,
        ids::{PlatformId, ServerId, UserId},
        money::plan::Plan,
        outbound::Confirmations,
        time::Timestamp,
    },
    game::outbound::Outbound,
    net::{connections::Connections, refusals::RefusalLog},
    ownership::Ownership,
    push::{
        registrar::Registrar,
        session_status::PushSession,
        worker::{PushSessions, PushWorker},
    },
    relay::hub::{
        BudgetExhausted, ChatTexts, Hub, LinkStatus, LinkStatuses, Markets, OnlineUsers, ReadPushSession, RelayHealth,
    },
    tracking::worker::TrackingWorker,
    uploads::ImageStore,
    vault::Vault,
    web::pages::BundledPages,
};

/// Longest wait of a request for an actor.
pub const ACTOR_DEADLINE: Duration = Duration::from_secs(2);

/// Time for which admins are shown the same totals: less than the pause between two questions of a portal.
const STATUS_KEPT: TimeDelta = TimeDelta::seconds(10);
/// Time for which admins are shown the same analytics.
const USAGE_KEPT: TimeDelta = TimeDelta::seconds(60);
/// Time for which clients get the same prices, also that they are not known.
const PRICES_KEPT: TimeDelta = TimeDelta::minutes(1);

/// The values that endpoints share.
pub struct ApiContext {
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    pub settings: ApiSettings,
    pub keys: ApiKeys,
    pub limits: ApiLimits,
    pub services: ApiServices,
    pub caches: ApiCaches,
    pub health: ApiHealth,
}

/// Settings, as they are for as long as the process runs.
pub struct ApiSettings {
    pub environment: Environment,
    pub urls: PublicUrls,
    /// Accounts that may use the admin routes; empty: the routes are off.
    pub admins: Vec<PlatformId>,
    /// Longest age of the sign-in with which an admin pays back or deletes; `None`: any age.
    pub fresh_sign_in: Option<TimeDelta>,
    pub pairing_code_prefix: String,
    pub link_policy: GameLinkPolicy,
    /// Users are held to what their tier unlocks.
    pub enforce_tiers: bool,
    pub data_dir: PathBuf,
    /// Threads of each listener.
    pub workers: usize,
    /// Connections that one client address is meant to have.
    pub connections_per_address: usize,
    /// Token that `/metrics` requires; `None`: in development for this machine only, in production off.
    pub metrics_token: Option<SecretString>,
    pub pages: Arc<BundledPages>,
    /// JSON Schema of the relay's messages, as clients read it.
    pub relay_schema: Bytes,
}

/// Keys, each inside the only part that seals, signs or hashes with it.
pub struct ApiKeys {
    /// Player tokens and push credentials, as they are stored.
    pub vault: Vault,
    pub session_cookie: SealedCookie,
    /// Holds the login state while the browser is at the identity provider.
    pub login_cookie: SealedCookie,
    pub relay_tokens: Arc<RelayTokens>,
    pub invite_tokens: InviteTokens,
    /// Seals the answers that are kept for an `Idempotency-Key`: some hold a token.
    pub kept_answers: Arc<Sealer>,
    /// Marks of erased accounts.
    pub account_marks: AccountMarks,
}

/// Limits of what clients can make this service do, with their counts.
pub struct ApiLimits {
    pub rate_limits: RateLimits,
    pub connections: Arc<Connections>,
    pub refusals: Arc<RefusalLog>,
    /// Limits of what users can make this service connect to.
    pub outbound: Arc<Outbound>,
    /// Sign-ins for which the identity provider was asked.
    pub confirmations: Mutex<Confirmations>,
    pub render_limit: RenderLimit,
}

/// Other parts of the service that endpoints ask, and clients of its neighbours.
pub struct ApiServices {
    pub hub: Addr<Hub>,
    /// The shops of game servers, as the relay knows them.
    pub markets: Arc<Markets>,
    pub chat_texts: Arc<ChatTexts>,
    pub push: Addr<PushWorker>,
    /// `None`: the service registers nothing itself.
    pub registrar: Option<Arc<Registrar>>,
    /// `None`: no player-statistics service is configured.
    pub tracking: Option<Addr<TrackingWorker>>,
    /// `None`: payments are off.
    pub billing: Option<Arc<BillingContext>>,
    /// `None`: there is no support bot.
    pub chat_bot: Option<ChatBot>,
    pub identity: IdentityClient,
    pub channels: Arc<Channels>,
}

/// Values that are kept in memory, so that most requests neither compute nor fetch them.
pub struct ApiCaches {
    pub map_pictures: MapPictures,
    pub avatars: Avatars,
    pub images: Images,
    pub store_responses: StoreAnswers,
    pub items_answer: ItemsAnswer,
    pub catalogue: Arc<CatalogueKeeper>,
    /// State of all members and of the relay, for admins.
    pub overview: ShortCache<AdminOverview>,
    pub usage: ShortCache<Usage>,
    /// Prices of the plans at the payment provider; a plan whose price is not known is absent.
    pub plan_prices: ShortCache<Vec<(Plan, ProviderPrice)>>,
    /// Actions of users that are not stored yet.
    pub activity: ActivityCounts,
}

/// State of the service itself, for probes, metrics and operators.
pub struct ApiHealth {
    pub started: Instant,
    pub started_at: Timestamp,
    pub report: ShortCache<ServiceHealth>,
    pub write_state: ShortCache<WriteState>,
    /// The faults of `write_state` that are in the log.
    pub write_faults: Mutex<Vec<String>>,
    /// Parts that need the operator, as of the last minute, and why.
    pub warnings: Mutex<Vec<(&'static str, String)>>,
    /// Reason for which the identity provider does not answer, as of the last question.
    pub identity_fault: Mutex<Option<String>>,
    /// The damage of the database, as of the last look at all rows.
    pub damage: Mutex<Option<String>>,
    /// Rows of the database that cannot be read.
    pub unreadable_rows: AtomicUsize,
    /// Lead of the identity provider's clock over the machine's, as of the last comparison.
    pub clock_skew: Mutex<Option<ClockSkew>>,
    /// Alarms that wait for the database.
    pub journal: Journal,
    pub erasure_notes: Arc<ErasureNotes>,
    /// `None`: this process is the only one that serves.
    pub ownership: Option<Ownership>,
    pub relay_health: Arc<RelayHealth>,
    /// Client of the relay's health, as others see it.
    pub relay: RelayHealthClient,
}

/// The support bot at the chat platform.
pub struct ChatBot {
    pub client: ChatClient,
    /// Public key of the platform's signatures of interactions.
    pub public_key: InteractionKey,
}

impl ApiKeys {
    /// Derives the keys of the API.
    pub fn new(keys: &KeyDerivation, vault: Vault, random: &Random) -> Self {
        let cookie = |name, purpose| SealedCookie::new(name, &keys.key(purpose), random.clone());
        Self {
            vault,
            session_cookie: cookie(SESSION_COOKIE, Purpose::SessionCookie),
            login_cookie: cookie("rp_login", Purpose::SignInCookie),
            relay_tokens: Arc::new(RelayTokens::new(&keys.key(Purpose::RelayToken), random.clone())),
            invite_tokens: InviteTokens::new(&keys.key(Purpose::InviteToken), random.clone()),
            kept_answers: Arc::new(Sealer::new(&keys.key(Purpose::KeptAnswer), None, 1, random.clone())),
            account_marks: AccountMarks::new(&keys.key(Purpose::AccountMark)),
        }
    }
}

impl ApiCaches {
    /// Empty caches, beside the stored images and the catalogue.
    pub fn new(images: ImageStore, catalogue: Arc<CatalogueKeeper>, clock: &Clock) -> Self {
        Self {
            map_pictures: MapPictures::default(),
            avatars: Avatars::new(clock),
            images: Images::new(images),
            store_responses: StoreAnswers::default(),
            items_answer: ItemsAnswer::default(),
            catalogue,
            overview: ShortCache::new(STATUS_KEPT),
            usage: ShortCache::new(USAGE_KEPT),
            plan_prices: ShortCache::new(PRICES_KEPT),
            activity: ActivityCounts::default(),
        }
    }
}

impl ApiHealth {
    /// The state at the start.
    pub fn new(
        clock: &Clock,
        journal: Journal,
        ownership: Option<Ownership>,
        relay_health: Arc<RelayHealth>,
        relay: RelayHealthClient,
    ) -> Self {
        Self {
            ownership,
            started: Instant::now(),
            started_at: clock.now(),
            report: ShortCache::new(service_health::STATUS_FOR),
            write_state: ShortCache::new(service_health::WRITTEN_FOR),
            write_faults: Mutex::default(),
            warnings: Mutex::default(),
            identity_fault: Mutex::default(),
            damage: Mutex::default(),
            unreadable_rows: AtomicUsize::default(),
            clock_skew: Mutex::default(),
            journal,
            erasure_notes: Arc::default(),
            relay_health,
            relay,
        }
    }
}

impl ApiContext {
    /// The support bot.
    pub fn chat_bot(&self) -> Result<&ChatBot, ApiError> {
        self.services.chat_bot.as_ref().ok_or(ApiError::Chat(ChatProblem::Disabled))
    }

    /// The maker of registrations for the game's pushes.
    pub fn registrar(&self) -> Result<&Arc<Registrar>, ApiError> {
        self.services.registrar.as_ref().ok_or(ApiError::Registration(RegistrationProblem::Disabled))
    }

    /// The context of the application that serves this request.
    pub fn of(req: &HttpRequest) -> &web::Data<Self> {
        req.app_data().expect("every App is built with its context")
    }

    /// The links of these servers; one without a link is absent, and one whose node does not answer says so.
    pub async fn connections(&self, servers: Vec<ServerId>) -> Result<HashMap<ServerId, LinkStatus>, ApiError> {
        in_time(self.services.hub.send(LinkStatuses { servers })).await
    }

    /// True if the budget of this server's link was exhausted within the last minute. No answer in time counts as no.
    pub async fn budget_exhausted(&self, server: ServerId) -> bool {
        in_time(self.services.hub.send(BudgetExhausted { server })).await.unwrap_or(false)
    }

    /// The push session of this user; `None` without a credential. One whose node does not answer says so.
    pub async fn push_session(&self, user: &UserId) -> Result<Option<PushSession>, ApiError> {
        let mut sessions = in_time(self.services.push.send(PushSessions { users: vec![user.clone()] })).await?;
        if let Some(session) = sessions.remove(user) {
            return Ok(Some(session));
        }
        if self.health.ownership.is_none() {
            return Ok(None);
        }
        let Ok(elsewhere) = in_time(self.services.hub.send(ReadPushSession { user: user.clone() })).await? else {
            return Ok(Some(PushSession::at_silent_node(self.clock.now())));
        };
        // One of a newer program may have a state that is not known here.
        Ok(serde_json::from_value(elsewhere).unwrap_or_default())
    }

    /// The users who are online.
    pub async fn online(&self) -> Result<HashSet<UserId>, ApiError> {
        in_time(self.services.hub.send(OnlineUsers)).await
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
