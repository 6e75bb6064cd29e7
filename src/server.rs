//! The only wiring: opens everything once, binds, runs, and stops in order.

mod listeners;
mod memory;
mod opening;
mod own_addresses;
mod start_error;
pub mod stopping;
mod waiting;

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use actix::{Addr, Arbiter};
use actix_web::{dev, rt, web};
use chrono::TimeDelta;
use tokio::time::Instant;

use crate::{
    api::{
        self,
        caches::{
            activity::ActivityCounts, camera_drawing::RenderLimit, image_uploads::Images, map_pictures::MapPictures,
            own_state, short_cache::ShortCache,
        },
        context::{ApiContext, ChatBot},
        operation::client_config::PRICES_KEPT,
        rate_limits::RateLimits,
    },
    billing::{self, context::BillingContext},
    catalogue::CatalogueKeeper,
    clients::{
        chat::ChatClient, http, identity::IdentityClient, player_stats::PlayerStatsClient,
        relay_health::RelayHealthClient,
    },
    clock::Clock,
    config::Config,
    crypto::{
        self,
        account_mark::AccountMarks,
        invite_token::InviteTokens,
        keys::Purpose,
        random::Random,
        relay_token::RelayTokens,
        sealer::Sealer,
        session_cookie::{SESSION_COOKIE, SealedCookie},
    },
    db::{
        PURGE_BATCH, alarms, alias_answers, chat_lines, chat_links, daily_counts,
        engine::{error::DbError, pool::Db, serving_lock::ServingLock},
        failed_pushes, guests, idempotency_keys, incidents, map_notes, maps, openid_nonces, pairing_codes,
        payment_events, player_sessions, player_stats_spending, push_seen, refund_attempts, server_matches, sessions,
        shop_history, shops, timeline,
    },
    domain::{
        fair_budget::FairBudget,
        limits::{HISTORY_DAYS, IDEMPOTENCY_HOURS, PAYMENT_EVENT_DAYS, PROVIDER_CLOCK_SKEW, UNPAIRED_MAP_DAYS},
        outbound::Confirmations,
        raid,
        time::Timestamp,
    },
    game::{decoding::MessageDecoder, outbound::Outbound, paced_link::Budgets},
    net::{
        Names, Network,
        budgets::{RequestBudgets, TOGGLE, ToggleBudgets},
        connections::{Connections, SPARE},
        descriptors,
        refusals::{self, RefusalLog},
        tls_config,
    },
    push::{
        context::PushContext,
        login_pacer::LoginPacer,
        worker::{self, PushWorker},
    },
    relay::{
        self,
        hub::{Hub, Markets, RelayHealth},
        listener::ListenerContext,
        shared::{connect_pacer::ConnectPacer, context::RelayContext, fact_sink::FactSink},
    },
    rotation,
    tracking::{self, context::TrackingContext},
    uploads::ImageStore,
    vault::Vault,
};

use self::{
    listeners::{Listeners, connection_limits, handshake_limits},
    opening::InUse,
    stopping::Stopping,
};
pub use self::{opening::OpenDatabase, start_error::StartError};

/// Time that requests under way may take when the process stops, seconds.
const DRAIN: u64 = 5;
/// Interval of the looks whether the hub and the push worker run.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Connections of one worker that are accepted only to be refused.
const SURPLUS: usize = 4;
/// Interval at which expired rows are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Time for which admins are shown the same totals: less than the pause between two questions of a portal.
const STATUS_KEPT: TimeDelta = TimeDelta::seconds(10);
/// Time for which admins are shown the same analytics.
const USAGE_KEPT: TimeDelta = TimeDelta::seconds(60);

/// The service, bound and ready to run.
pub struct Server {
    api: dev::Server,
    api_addr: SocketAddr,
    relay: actix_server::Server,
    relay_addr: SocketAddr,
    health: Arc<RelayHealth>,
    hub: Addr<Hub>,
    kept: Arc<RelayContext>,
    /// The longest time over which open sockets are closed at the end.
    drain: Duration,
    context: web::Data<ApiContext>,
    _in_use: InUse,
    /// The lock of the database, after the data directory: who takes it over finds that free.
    lock: Option<ServingLock>,
}

impl Server {
    /// Opens and binds everything. Call it inside an actix system. The database is opened on the calling thread, which
    /// serves no client yet.
    pub fn build(config: Config, clock: Clock) -> Result<Self, StartError> {
        let opened = OpenDatabase::open(&config, &clock)?;
        Self::build_on(opened, config, clock)
    }

    /// Binds everything, on a database that was opened with the same settings. Call it inside an actix system.
    #[allow(clippy::disallowed_methods, reason = "the one place that starts threads for game links and push sessions")]
    pub fn build_on(opened: OpenDatabase, config: Config, clock: Clock) -> Result<Self, StartError> {
        crypto::install();
        // Before anything is counted.
        api::operation::metrics::recorder();
        // Taken apart: each part goes only to what needs it, and the secrets end with this function.
        let Config {
            environment,
            data_dir,
            database: _,
            listen,
            operation,
            urls,
            admins,
            fresh_sign_in,
            secrets,
            identity,
            push: push_address,
            extra_ca_file,
            pairing_code_prefix,
            game,
            player_stats,
            payments,
            enforce_tiers,
            chat,
            images,
            warnings: _,
        } = config;
        let workers = listen.workers.get();
        let limits = connection_limits(descriptors::raise_limit(), workers, listen.connections_per_address.get());
        let connections = Connections::new(limits, listen.trusted_proxies.clone());
        let handshakes = Connections::new(handshake_limits(limits), listen.trusted_proxies.clone());
        let random = Random::system();
        let OpenDatabase { pool, journal, key_version, in_use, lock, listeners } = opened;
        let Listeners { api: listener, api_addr, relay: relay_listener, relay_addr } = match listeners {
            Some(listeners) => listeners,
            None => Listeners::bind(&listen)?,
        };
        let urls = urls.listening_at(api_addr, relay_addr);
        let tls = tls_config(extra_ca_file.as_deref()).map_err(StartError::Client)?;
        let http = http::client(tls.clone()).map_err(StartError::Client)?;
        let keys = secrets.keys();
        let sealer = Arc::new(secrets.sealer(key_version, random.clone()));
        let images = Images::new(ImageStore::open(&images, http.clone())?);
        let catalogue = Arc::new(CatalogueKeeper::open(pool.clone())?);
        let vault = Vault::new(pool.clone(), sealer).with_key_lost(secrets.credentials_key_lost);
        let link_policy = game.link_policy;
        let outbound = Arc::new(Outbound::new(clock.clone(), game.allow_private_servers));
        let markets = Arc::<Markets>::default();
        let relay_context = Arc::new(RelayContext {
            markets: markets.clone(),
            facts: FactSink::start(pool.clone(), random.clone()),
            clock: clock.clone(),
            random: random.clone(),
            pool: pool.clone(),
            journal: journal.clone(),
            network: Network::system(),
            vault: vault.clone(),
            game,
            budgets: Budgets::default(),
            connect_pacer: ConnectPacer::default(),
            outbound: outbound.clone(),
            recent_events: Default::default(),
            decoder: MessageDecoder::on_threads(),
        });
        let health = Arc::new(RelayHealth::default());
        // Game links have threads of their own, on every core: a burst of clients does not hold up an alarm, nor the other
        // way round.
        let links = (0..workers).map(|_| Arbiter::new().handle()).collect();
        let hub = relay::start(relay_context.clone(), health.clone(), links);
        let started = Instant::now();
        let refusals = Arc::<RefusalLog>::default();
        let toggles = ToggleBudgets::new(RequestBudgets::new(TOGGLE, &clock));
        let listener_context = ListenerContext {
            refusals: refusals.clone(),
            clock: clock.clone(),
            random: random.clone(),
            tokens: RelayTokens::new(&keys.key(Purpose::RelayToken), random.clone()),
            origins: [&urls.base, &urls.frontend, &urls.admin].map(|url| url.origin().ascii_serialization()).to_vec(),
            deflate: listen.relay_deflate,
            base: urls.base.clone(),
            toggles: toggles.clone(),
            connections: connections.clone(),
            handshakes,
            hub: hub.clone(),
            health: health.clone(),
            started,
        };
        let push_context = Arc::new(PushContext {
            clock: clock.clone(),
            random: random.clone(),
            network: Network::system(),
            pool: pool.clone(),
            vault: vault.clone(),
            tls: Arc::new(tls),
            address: push_address,
            logins: LoginPacer::default(),
            outbound: outbound.clone(),
            hub: hub.clone(),
        });
        // Push sessions too: thousands of logins after a lost network hold up no others.
        let sessions = (0..workers.div_ceil(4)).map(|_| Arbiter::new().handle()).collect();
        let push = worker::start(push_context, sessions);
        // Tracking too: lists of players are large.
        let tracking = player_stats.map(|settings| {
            let tracking_context = TrackingContext {
                clock: clock.clone(),
                random: random.clone(),
                pool: pool.clone(),
                names: Names::system(),
                budget: FairBudget::new(settings.daily_requests, clock.now()).into(),
                poll_every: settings.poll_every,
                client: PlayerStatsClient::new(http.clone(), settings, random.clone()),
                hub: hub.clone().recipient(),
            };
            tracking::worker::start(tracking_context, &Arbiter::new().handle())
        });
        let account_marks = AccountMarks::new(&keys.key(Purpose::AccountMark));
        let billing = payments.map(|settings| {
            let (marks, http, pool) = (account_marks.clone(), http.clone(), pool.clone());
            Arc::new(BillingContext::new(settings, marks, http, pool, clock.clone(), random.clone()))
        });
        let chat_bot = chat.map(|settings| ChatBot {
            public_key: settings.public_key,
            client: ChatClient::new(http.clone(), settings, &urls.base, random.clone()),
        });
        let context = web::Data::new(ApiContext {
            billing,
            account_marks,
            enforce_tiers,
            chat_bot,
            data_dir,
            metrics_token: operation.metrics_token,
            write_state: ShortCache::new(own_state::WRITTEN_FOR),
            write_faults: Default::default(),
            journal,
            own_state: ShortCache::new(own_state::STATUS_FOR),
            started_at: clock.now(),
            service_status: ShortCache::new(STATUS_KEPT),
            usage: ShortCache::new(USAGE_KEPT),
            plan_prices: ShortCache::new(PRICES_KEPT),
            relay_schema: relay::wire::schema::json().into(),
            activity: ActivityCounts::default(),
            markets,
            environment,
            urls,
            admins,
            fresh_sign_in,
            pairing_code_prefix,
            outbound,
            refusals: refusals.clone(),
            confirmations: Confirmations::new(clock.moment()).into(),
            link_policy,
            pool,
            vault,
            session_cookie: SealedCookie::new(SESSION_COOKIE, &keys.key(Purpose::SessionCookie), random.clone()),
            login_cookie: SealedCookie::new("rp_login", &keys.key(Purpose::SignInCookie), random.clone()),
            relay_tokens: RelayTokens::new(&keys.key(Purpose::RelayToken), random.clone()),
            invite_tokens: InviteTokens::new(&keys.key(Purpose::InviteToken), random.clone()),
            kept_answers: Arc::new(Sealer::new(&keys.key(Purpose::KeptAnswer), None, 1, random.clone())),
            relay: RelayHealthClient::new(http.clone(), relay_addr),
            identity: IdentityClient::new(http, identity),
            rate_limits: RateLimits::new(listen.trusted_proxies, &clock, toggles),
            render_limit: RenderLimit::default(),
            map_pictures: MapPictures::default(),
            images,
            store_answers: Default::default(),
            items_answer: Default::default(),
            catalogue,
            connections: connections.clone(),
            hub: hub.clone(),
            push,
            tracking,
            relay_health: health.clone(),
            started,
            clock,
            random,
        });

        // Beyond this none is refused, as refusing needs a descriptor too: the kernel keeps new connections.
        let listening = |connections: usize| {
            let builder = actix_server::Server::build().workers(workers).disable_signals().shutdown_timeout(DRAIN);
            builder.max_concurrent_connections(connections.div_ceil(workers) + SURPLUS)
        };
        let api = api::bind(listening(limits.total + SPARE), listener, connections, context.clone())
            .map_err(|cause| StartError::Bind { variable: "API_LISTEN", address: api_addr, cause })?
            .run();
        log::info!("the API listens on http://{api_addr}");
        // Open sockets are not among these, only handshakes.
        let relay = relay::listener::bind(listening(handshake_limits(limits).total), relay_listener, listener_context)
            .map_err(|cause| StartError::Bind { variable: "RELAY_LISTEN", address: relay_addr, cause })?
            .run();
        log::info!("the relay listens on ws://{relay_addr}");

        let (kept, drain) = (relay_context, operation.drain);
        Ok(Self { api, api_addr, relay, relay_addr, health, hub, kept, drain, context, _in_use: in_use, lock })
    }

    /// Where the API listens; with the real port when the configured one was 0.
    pub fn api_addr(&self) -> SocketAddr {
        self.api_addr
    }

    /// Where the relay listens.
    pub fn relay_addr(&self) -> SocketAddr {
        self.relay_addr
    }

    /// The context of the API.
    pub fn context(&self) -> &web::Data<ApiContext> {
        &self.context
    }

    /// The registry of live connections.
    pub fn hub(&self) -> Addr<Hub> {
        self.hub.clone()
    }

    /// Serves until `shutdown` ends, then stops in order.
    pub async fn run_until_stopped(mut self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let rotation = rt::spawn(rotation::run(self.context.vault.clone()));
        let own_addresses = rt::spawn(own_addresses::watch(self.context.clone(), [self.api_addr, self.relay_addr]));
        let context = self.context.clone();
        let upkeep = rt::spawn(async move {
            tokio::join!(api::operation::metrics::upkeep(), memory::give_back(), context.watch_writes());
        });
        let mut stopping = Stopping {
            health: self.health,
            hub: self.hub,
            push: self.context.push.clone(),
            tracking: self.context.tracking.clone(),
            kept: self.kept,
            drain: self.drain,
        };
        let billing = self.context.billing.clone().map(|billing| rt::spawn(billing::worker::run(billing)));
        let catalogue = self.context.catalogue.clone();
        let catalogue = rt::spawn(async move { catalogue.run().await });
        let sweep = rt::spawn(sweep(self.context));
        let (api_handle, relay_handle) = (self.api.handle(), self.relay.handle());
        let (mut api, mut relay) = (rt::spawn(self.api), rt::spawn(self.relay));
        let mut failure = None;
        tokio::select! {
            ended = &mut api => ended.map_err(io::Error::other)??,
            ended = &mut relay => ended.map_err(io::Error::other)??,
            () = shutdown => {}
            () = core_ended(&stopping.hub, &stopping.push) => {
                failure = Some("the relay's hub or the push worker has failed".to_owned());
            }
            reason = lost(self.lock.as_mut()) => {
                log::error!("this process does not serve any more: {reason}");
                // Another one may serve already.
                stopping.drain = Duration::ZERO;
                failure = Some(reason);
            }
        }
        sweep.abort();
        catalogue.abort();
        rotation.abort();
        own_addresses.abort();
        billing.inspect(|billing| billing.abort());
        stopping.end_sessions().await;
        tokio::join!(relay_handle.stop(true), api_handle.stop(true));
        stopping.keep_all().await;
        upkeep.abort();
        failure.map_or(Ok(()), |reason| Err(io::Error::other(reason)))
    }
}

/// Completes with the reason when another process serves from this database.
async fn lost(lock: Option<&mut ServingLock>) -> String {
    match lock {
        Some(lock) => lock.lost().await,
        None => std::future::pending().await,
    }
}

/// Completes when the hub or the push worker has ended, which they do by a panic only. Nothing in this process takes
/// their place: it ends with an error, so that its supervisor starts it again.
async fn core_ended(hub: &Addr<Hub>, push: &Addr<PushWorker>) {
    while hub.connected() && push.connected() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Removes what has expired, as long as it runs.
async fn sweep(context: web::Data<ApiContext>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = context.clock.now();
        refusals::log_connections();
        context.rate_limits.forget_idle(context.clock.moment());
        context.images.sweep(&context.pool, now).await;
        context.activity.store(&context.pool, &context.clock).await;
        for purge in PURGES {
            // A transaction for each batch: other writers get a turn in between.
            loop {
                match context.pool.write(move |db| purge(db, now)).await {
                    Ok(PURGE_BATCH..) => {}
                    Ok(_) => break,
                    Err(error) => {
                        log::warn!("expired rows were not removed: {error}");
                        break;
                    }
                }
            }
        }
        if let Err(error) = context.pool.empty_log().await {
            log::warn!("the log of the database still has what was removed: {error}");
        }
    }
}

/// Deletes a batch of what has expired, and gives how many rows that were.
type Purge = fn(&mut Db, Timestamp) -> Result<usize, DbError>;

/// One for each table whose rows expire.
const PURGES: [Purge; 24] = [
    sessions::purge,
    pairing_codes::purge,
    chat_links::purge,
    |db, now| guests::purge(db, now - guests::EXPIRED_KEPT),
    push_seen::purge,
    failed_pushes::purge,
    map_notes::purge,
    |db, now| chat_lines::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| maps::purge(db, now - TimeDelta::days(UNPAIRED_MAP_DAYS)),
    |db, now| timeline::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| shops::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| shop_history::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| alarms::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| incidents::expire(db, now - raid::SHOWN_FOR),
    |db, now| incidents::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| player_sessions::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| server_matches::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| alias_answers::purge(db, now - TimeDelta::days(HISTORY_DAYS)),
    |db, now| player_stats_spending::purge(db, now - TimeDelta::days(2)),
    daily_counts::roll_up,
    |db, now| payment_events::purge(db, now - TimeDelta::days(PAYMENT_EVENT_DAYS)),
    // A nonce may come back as long as its time passes the check: twice the skew, from one end to the other.
    |db, now| openid_nonces::purge(db, now - 3 * PROVIDER_CLOCK_SKEW),
    |db, now| idempotency_keys::purge(db, now - TimeDelta::hours(IDEMPOTENCY_HOURS)),
    |db, now| refund_attempts::purge(db, now - TimeDelta::hours(IDEMPOTENCY_HOURS)),
];
