//! The only wiring: opens everything once, binds, runs, and stops in order.

mod attempts;
mod foundation;
mod listeners;
mod memory;
mod node;
mod opening;
mod own_addresses;
pub mod retention;
mod start_error;
pub mod stopping;
mod tasks;
mod waiting;

use std::{future::Future, io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use actix::Addr;
use actix_web::{dev, rt, web};
use rustls::ClientConfig;
use tokio::task::JoinError;

use crate::{
    api::{
        self,
        caches::camera_drawing::RenderLimit,
        context::{ApiCaches, ApiContext, ApiHealth, ApiKeys, ApiLimits, ApiServices, ApiSettings},
        rate_limits::RateLimits,
    },
    billing,
    catalogue::CatalogueKeeper,
    channels,
    clients::{http, identity::IdentityClient, relay_health::RelayHealthClient},
    clock::Clock,
    config::{Config, PublicUrls},
    crypto::{self, random::Random},
    db::{engine::serving_lock::ServingLock, files::last_run},
    domain::{outbound::Confirmations, sweep::Sweep},
    game::outbound::Outbound,
    net::{
        budgets::{RequestBudgets, TOGGLE, ToggleBudgets},
        connections::Connections,
        tls_config,
    },
    ownership::Ownership,
    push::worker::PushWorker,
    relay::{
        self,
        hub::{Hub, RelayHealth},
        listener::ListenerContext,
        shared::context::RelayContext,
    },
    rotation,
    uploads::ImageStore,
    vault::Vault,
    web::pages::BundledPages,
};

use self::{
    foundation::{Foundation, threads},
    listeners::{Doors, Listeners},
    node::{NodeNeeds, ServingNode},
    opening::InUse,
    stopping::Stopping,
    tasks::Tasks,
};
pub use self::{
    opening::{OpenDatabase, migrate},
    start_error::StartError,
};

/// Interval of the looks whether the hub and the push worker run.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    /// With the parts that it has; `None`: this process is the only one that serves.
    node: Option<(ServingNode, Ownership)>,
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
    pub fn build_on(opened: OpenDatabase, config: Config, clock: Clock) -> Result<Self, StartError> {
        crypto::install();
        // Before anything is counted.
        api::operation::metrics::recorder();
        let OpenDatabase { pool, journal, key_version, in_use, lock, listeners } = opened;
        let listeners = listeners.map_or_else(|| Listeners::bind(&config.listen), Ok)?;
        let Listeners { api_addr, relay_addr, .. } = listeners;
        let tls = tls_config(config.extra_ca_file.as_deref()).map_err(StartError::Client)?;
        let random = Random::system();
        let tls = Arc::new(tls);
        let node = config.nats.clone().map(|nats| {
            let (tls, pool) = (tls.clone(), pool.clone());
            ServingNode::start(NodeNeeds { nats, tls, pool, clock: clock.clone(), random: random.clone() })
        });
        let (node, hub_node) = node.unzip();
        let (ownership, guesses) = hub_node.as_ref().map(|node| (node.ownership.clone(), node.guesses.clone())).unzip();
        let sealer = Arc::new(config.secrets.sealer(key_version, random.clone()));
        let foundation = Foundation {
            vault: Vault::new(pool.clone(), sealer).with_key_lost(config.secrets.credentials_key_lost),
            http: http::client(ClientConfig::clone(&tls)).map_err(StartError::Client)?,
            tls,
            outbound: Arc::new(Outbound::new(clock.clone(), config.game.allow_private_servers)),
            markets: Arc::default(),
            chat_texts: Arc::default(),
            catalogue: CatalogueKeeper::open(pool.clone())?.into(),
            clock,
            random,
            pool,
            journal,
            early_alarms: Arc::default(),
            alarm_routes: Default::default(),
            ownership: ownership.clone(),
        };
        let (deflate, drain) = (config.listen.relay_deflate, config.operation.drain);
        let doors = Doors::new(&config.listen);
        let toggles = ToggleBudgets::new(RequestBudgets::new(TOGGLE, &foundation.clock));
        let rate_limits = RateLimits::new(config.listen.trusted_proxies.clone(), &foundation.clock, toggles.clone());
        let limits = api_limits(&foundation, rate_limits.shared_by(guesses), doors.connections.clone());
        let kept = Arc::new(foundation.relay(config.game.clone()));
        let health = Arc::<RelayHealth>::default();
        // Game links have threads of their own, on every core: a burst of clients does not hold up an alarm, nor the other
        // way round.
        let arbiters = threads(config.listen.workers.get());
        let alarm_routes = foundation.alarm_routes.clone();
        let hub = relay::start(kept.clone(), health.clone(), arbiters, alarm_routes, hub_node);
        let urls = config.urls.clone().listening_at(api_addr, relay_addr);
        let relay_client = RelayHealthClient::new(foundation.http.clone(), relay_addr);
        let journal = foundation.journal.clone();
        let api_health = ApiHealth::new(&foundation.clock, journal, ownership.clone(), health.clone(), relay_client);
        let context = web::Data::new(api_context(config, urls, foundation, limits, hub.clone(), api_health)?);
        let relay_context = listener_context(&context, deflate, toggles, doors.handshakes.clone());
        let (api, relay) = doors.open(listeners, &context, relay_context)?;
        // Last: a start that fails has not served. A disk that is full is no reason not to.
        if let Err(error) = last_run::note_start(&context.settings.data_dir, context.clock.now()) {
            log::warn!("it is not noted that this process runs: {error}");
        }
        let node = node.zip(ownership);
        Ok(Self { api, api_addr, relay, relay_addr, health, hub, kept, drain, context, node, _in_use: in_use, lock })
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
        let mut tasks = Tasks::default();
        tasks.spawn(own_addresses::watch(self.context.clone(), [self.api_addr, self.relay_addr]));
        let data_dir = self.context.settings.data_dir.clone();
        let upkeep = start_upkeep(self.context.clone());
        let mut stopping = Stopping {
            health: self.health,
            hub: self.hub,
            push: self.context.services.push.clone(),
            tracking: self.context.services.tracking.clone(),
            kept: self.kept,
            drain: self.drain,
        };
        let (mut node, ownership) = self.node.unzip();
        start_work(&mut tasks, self.context, ownership);
        let (api_handle, relay_handle) = (self.api.handle(), self.relay.handle());
        let (mut api, mut relay) = (rt::spawn(self.api), rt::spawn(self.relay));
        let mut failure = None;
        tokio::select! {
            ended = &mut api => failure = failure_of(ended),
            ended = &mut relay => failure = failure_of(ended),
            () = shutdown => {}
            () = core_ended(&stopping.hub, &stopping.push) => {
                failure = Some("the relay's hub or the push worker has failed".to_owned());
            }
            () = node_ended(node.as_mut()) => {
                failure = Some("the task that keeps the lease of this node has failed".to_owned());
            }
            reason = lost(self.lock.as_mut()) => {
                log::error!("this process no longer serves: {reason}");
                // Another one may serve already.
                stopping.drain = Duration::ZERO;
                failure = Some(reason);
            }
        }
        tasks.end().await;
        stopping.end_sessions().await;
        if let Some(node) = node {
            node.leave().await;
        }
        tokio::join!(relay_handle.stop(true), api_handle.stop(true));
        stopping.flush().await;
        upkeep.end().await;
        note_end(&data_dir);
        failure.map_or(Ok(()), |reason| Err(io::Error::other(reason)))
    }
}

/// The limits of the API.
fn api_limits(foundation: &Foundation, rate_limits: RateLimits, connections: Arc<Connections>) -> ApiLimits {
    ApiLimits {
        rate_limits,
        connections,
        refusals: Arc::default(),
        outbound: foundation.outbound.clone(),
        confirmations: Confirmations::new(foundation.clock.moment()).into(),
        render_limit: RenderLimit::default(),
    }
}

/// The context of the API. The settings are taken apart: each goes only to what needs it, and the secrets end here.
fn api_context(
    config: Config,
    urls: PublicUrls,
    foundation: Foundation,
    limits: ApiLimits,
    hub: Addr<Hub>,
    health: ApiHealth,
) -> Result<ApiContext, StartError> {
    let images = ImageStore::open(&config.images, foundation.http.clone())?;
    let caches = ApiCaches::new(images, foundation.catalogue.clone(), &foundation.clock);
    let keys = ApiKeys::new(&config.secrets.keys(), foundation.vault.clone(), &foundation.random);
    let push = foundation.push(config.push, hub.clone(), config.listen.workers.get());
    let services = ApiServices {
        registrar: config.registration.map(|settings| foundation.registrar(settings, push.clone()).into()),
        tracking: config.player_stats.map(|settings| foundation.tracking(settings, hub.clone())),
        billing: config.payments.map(|settings| foundation.billing(settings, keys.account_marks.clone()).into()),
        chat_bot: config.chat.map(|settings| foundation.chat_bot(settings, &urls.base)),
        identity: IdentityClient::new(foundation.http.clone(), config.identity),
        channels: foundation.channels(config.channels, &config.secrets.keys(), &urls, hub.clone())?.into(),
        markets: foundation.markets.clone(),
        chat_texts: foundation.chat_texts.clone(),
        hub,
        push,
    };
    let settings = ApiSettings {
        environment: config.environment,
        admins: config.admins,
        fresh_sign_in: config.fresh_sign_in,
        pairing_code_prefix: config.pairing_code_prefix,
        link_policy: config.game.link_policy,
        enforce_tiers: config.enforce_tiers,
        data_dir: config.data_dir,
        workers: config.listen.workers.get(),
        connections_per_address: config.listen.connections_per_address.get(),
        metrics_token: config.operation.metrics_token,
        pages: BundledPages::new(&urls, config.operation.web_dir).into(),
        relay_schema: relay::wire::schema::json().into(),
        urls,
    };
    let Foundation { clock, random, pool, .. } = foundation;
    Ok(ApiContext { clock, random, pool, settings, keys, limits, services, caches, health })
}

/// The parts of the service that the relay's listener uses.
fn listener_context(
    context: &ApiContext,
    deflate: bool,
    toggles: ToggleBudgets,
    handshakes: Arc<Connections>,
) -> ListenerContext {
    let urls = &context.settings.urls;
    ListenerContext {
        clock: context.clock.clone(),
        catalogue: context.caches.catalogue.shared().clone(),
        random: context.random.clone(),
        tokens: context.keys.relay_tokens.clone(),
        origins: [&urls.base, &urls.frontend, &urls.admin].map(|url| url.origin().ascii_serialization()).to_vec(),
        deflate,
        base: urls.base.clone(),
        toggles,
        connections: context.limits.connections.clone(),
        handshakes,
        hub: context.services.hub.clone(),
        health: context.health.relay_health.clone(),
        started: context.health.started,
        refusals: context.limits.refusals.clone(),
    }
}

/// Starts what goes on until everything else has ended.
fn start_upkeep(context: web::Data<ApiContext>) -> Tasks {
    let mut upkeep = Tasks::default();
    upkeep.spawn(async move {
        tokio::join!(
            api::operation::metrics::upkeep(),
            memory::give_back(),
            context.watch_writes(),
            context.watch_rows(),
            context.watch_sign_in()
        );
    });
    upkeep
}

/// Starts the work that no request asks for. On a node of several, a sweep goes on at the node that has it.
fn start_work(tasks: &mut Tasks, context: web::Data<ApiContext>, ownership: Option<Ownership>) {
    let once = |sweep| (sweep, ownership.clone());
    let services = &context.services;
    let vault = context.keys.vault.clone();
    tasks.sweep(once(Sweep::KeyRotation), move || rotation::run(vault.clone()));
    if let Some(billing) = services.billing.clone() {
        tasks.sweep(once(Sweep::Billing), move || billing::worker::run(billing.clone()));
    }
    if let Some(registrar) = services.registrar.clone() {
        tasks.sweep(once(Sweep::Registrations), move || registrar.clone().run());
    }
    if services.tracking.is_some() && ownership.is_some() {
        // The worker itself looks whether it is here.
        tasks.sweep(once(Sweep::Tracking), std::future::pending);
    }
    let shared = || services.channels.clone();
    tasks.spawn(channels::early::run(shared(), ownership.clone()));
    tasks.spawn(channels::emergencies::run_without_rows(shared()));
    let all = shared();
    tasks.sweep(once(Sweep::Channels), move || channels::worker::run(all.clone()));
    let all = shared();
    tasks.sweep(once(Sweep::ExpiryWarnings), move || channels::expiry_warnings::run(all.clone()));
    let all = shared();
    tasks.sweep(once(Sweep::Emergencies), move || channels::emergencies::run(all.clone()));
    let all = shared();
    tasks.sweep(once(Sweep::DisabledWarnings), move || channels::disabled_warnings::run(all.clone()));
    let all = shared();
    tasks.sweep(once(Sweep::DeviceNews), move || channels::device_news::run(all.clone()));
    let catalogue = context.caches.catalogue.clone();
    tasks.spawn(async move { catalogue.run().await });
    tasks.spawn(retention::sweep(context));
}

/// Notes that this process has stopped in order, for its next start.
fn note_end(data_dir: &Path) {
    match last_run::note_end(data_dir) {
        Ok(()) => {}
        Err(_) if !data_dir.exists() => log::error!(
            "DATA_DIR {} was removed while the service ran: what was kept there, also a SQLite file, is gone with it; \
             restore a backup before the next start",
            data_dir.display()
        ),
        Err(error) => log::warn!("the next start will take this stop for a crash: {error}"),
    }
}

/// The reason for which a listener's server ended, if it failed.
fn failure_of(ended: Result<io::Result<()>, JoinError>) -> Option<String> {
    ended.map_err(io::Error::other).flatten().err().map(|error| error.to_string())
}

/// Completes with the reason when another process serves from this database.
async fn lost(lock: Option<&mut ServingLock>) -> String {
    match lock {
        Some(lock) => lock.lost().await,
        None => std::future::pending().await,
    }
}

/// Completes when the node of this process has failed, if it is one.
async fn node_ended(node: Option<&mut ServingNode>) {
    match node {
        Some(node) => node.ended().await,
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
