//! The only wiring: opens everything once, binds, runs, and stops in order.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use actix::{Actor as _, Addr, Arbiter};
use actix_web::{HttpServer, dev, rt, web};
use chrono::TimeDelta;
use secrecy::ExposeSecret as _;
use url::Url;

use crate::{
    api::{
        self,
        middleware::rate_limit::RateLimits,
        state::{AppState, Origins},
    },
    clients::{
        http,
        identity::{Identity, ProfileApi, Provider},
    },
    clock::Clock,
    config::Config,
    crypto::{
        self,
        keys::{KeyDerivation, Purpose},
        random::Random,
        relay_token::RelayTokens,
        sealer::Sealer,
        session_cookie::{SESSION_COOKIE, SealedCookie},
    },
    db::{
        alarms, encryption_keys, error::DbError, openid_nonces, pairing_codes, pool::Pool, push_seen, sessions,
        sign_in_attempts, timeline,
    },
    domain::{
        limits::{HISTORY_DAYS, PROVIDER_CLOCK_SKEW},
        time::Timestamp,
    },
    push::{
        context::PushContext,
        worker::{self, StopPush},
    },
    relay::{
        self,
        hub::{Drain, Health, Hub},
        state::{Budgets, RelayState},
    },
    rotation,
    vault::Vault,
};

/// How long requests under way may take when the process stops, seconds.
const DRAIN: u64 = 5;
/// How long open sockets may take to say goodbye.
const GOODBYES: Duration = Duration::from_secs(3);
/// How often what has expired is removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the database: {0}")]
    Database(#[from] DbError),
    #[error("outgoing connections: {0}")]
    Client(io::Error),
    #[error("{variable} {address}: {cause}")]
    Bind { variable: &'static str, address: SocketAddr, cause: io::Error },
    #[error("PUSH_ADDRESS: {0}")]
    PushAddress(&'static str),
    #[error("the settings: {0}")]
    Setting(#[from] url::ParseError),
}

/// The service, bound and ready to run.
pub struct Server {
    api: dev::Server,
    api_addr: SocketAddr,
    relay: actix_server::Server,
    relay_addr: SocketAddr,
    health: Arc<Health>,
    hub: Addr<Hub>,
    state: web::Data<AppState>,
}

impl Server {
    /// Opens and binds everything. Call it inside an actix system. The database is opened on the calling thread, which
    /// serves nobody yet.
    pub fn build(mut config: Config, clock: Clock) -> Result<Self, StartError> {
        crypto::install();
        // Before anything is counted.
        api::metrics::recorder();
        let (listener, api_addr) = bind("API_LISTEN", config.listen.api)?;
        let (relay_listener, relay_addr) = bind("RELAY_LISTEN", config.listen.relay)?;
        config.bound(api_addr, relay_addr);
        let random = Random::system();
        let pool = Pool::open(&config.database)?;
        let tls = http::tls_config(config.extra_ca_file.as_deref()).map_err(StartError::Client)?;
        let http = http::client(tls.clone()).map_err(StartError::Client)?;
        let secrets = &config.secrets;
        let keys = KeyDerivation::new(secrets.session_secret.expose_secret(), secrets.session_salt.expose_secret());
        let (fingerprint, now) = (secrets.credentials_key.fingerprint(), clock.now());
        let key_version = pool.write_blocking(|db| encryption_keys::take_into_use(db, &fingerprint, now))?;
        let previous = secrets.credentials_key_previous.as_ref();
        let sealer = Arc::new(Sealer::new(&secrets.credentials_key, previous, key_version, random.clone()));
        let vault = Vault::new(pool.clone(), sealer.clone());
        let origins = Origins {
            base: Url::parse(&config.urls.base)?,
            frontend: Url::parse(&config.urls.frontend)?,
            admin: Url::parse(&config.urls.admin)?,
        };
        let relay_state = Arc::new(RelayState {
            clock: clock.clone(),
            random: random.clone(),
            pool: pool.clone(),
            sealer,
            tokens: RelayTokens::new(&keys.key(Purpose::RelayToken), random.clone()),
            game: config.game.clone(),
            budgets: Budgets::default(),
            origins: [&origins.base, &origins.frontend, &origins.admin]
                .map(|origin| origin.origin().ascii_serialization())
                .to_vec(),
        });
        let health = Arc::new(Health::default());
        // Game links have threads of their own: a burst of clients does not hold up an alarm, nor the other way round.
        let links = (0..config.listen.workers.get().div_ceil(2)).map(|_| Arbiter::new().handle()).collect();
        let hub = Hub::new(relay_state.clone(), health.clone(), links).start();
        let push = worker::start(Arc::new(PushContext {
            clock: clock.clone(),
            random: random.clone(),
            pool: pool.clone(),
            vault: vault.clone(),
            tls: Arc::new(tls),
            address: config.push_address.parse().map_err(StartError::PushAddress)?,
            allow_private: config.game.allow_private_servers,
            hub: hub.clone(),
        }));
        let provider = Provider {
            endpoint: config.identity.login_url.clone(),
            claimed_id_prefix: config.identity.claimed_id_prefix.clone(),
        };
        let profiles = config
            .identity
            .platform_api_key
            .clone()
            .map(|key| ProfileApi { base_url: config.identity.platform_api_url.clone(), key });
        let state = web::Data::new(AppState {
            pool,
            vault,
            session_cookie: SealedCookie::new(SESSION_COOKIE, &keys.key(Purpose::SessionCookie), random.clone()),
            login_cookie: SealedCookie::new("rp_login", &keys.key(Purpose::SignInCookie), random.clone()),
            relay_tokens: RelayTokens::new(&keys.key(Purpose::RelayToken), random.clone()),
            identity: Identity::new(http, provider, profiles),
            rate_limits: RateLimits::new(config.listen.trusted_proxies.clone(), &clock),
            hub: hub.clone(),
            push,
            relay_health: health.clone(),
            started: Instant::now(),
            origins,
            clock,
            random,
            config,
        });

        let bind_error = |cause| StartError::Bind { variable: "API_LISTEN", address: api_addr, cause };
        let shared = state.clone();
        let api = HttpServer::new(move || api::app(shared.clone()))
            .workers(state.config.listen.workers.get())
            .disable_signals()
            .shutdown_timeout(DRAIN)
            .listen(listener)
            .map_err(bind_error)?
            .run();
        log::info!("the API listens on http://{api_addr}");
        let builder = actix_server::Server::build()
            .workers(state.config.listen.workers.get())
            .backlog(4_096)
            .disable_signals()
            .shutdown_timeout(DRAIN);
        let relay = relay::listener::bind(builder, relay_listener, relay_state, hub.clone(), health.clone())
            .map_err(|cause| StartError::Bind { variable: "RELAY_LISTEN", address: relay_addr, cause })?
            .run();
        log::info!("the relay listens on ws://{relay_addr}");

        Ok(Self { api, api_addr, relay, relay_addr, health, hub, state })
    }

    /// Where the API listens; tells the port when the configured one was 0.
    pub fn api_addr(&self) -> SocketAddr {
        self.api_addr
    }

    /// Where the relay listens.
    pub fn relay_addr(&self) -> SocketAddr {
        self.relay_addr
    }

    /// What the API works with.
    pub fn state(&self) -> &AppState {
        &self.state
    }

    /// The registry of live connections.
    pub fn hub(&self) -> Addr<Hub> {
        self.hub.clone()
    }

    /// Serves until `shutdown` ends, then lets requests under way finish.
    pub async fn run_until_stopped(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let rotation = rt::spawn(rotation::run(self.state.vault.clone()));
        let push = self.state.push.clone();
        let sweep = rt::spawn(sweep(self.state));
        let (api_handle, relay_handle) = (self.api.handle(), self.relay.handle());
        let (mut api, mut relay) = (rt::spawn(self.api), rt::spawn(self.relay));
        tokio::select! {
            ended = &mut api => ended.map_err(io::Error::other)??,
            ended = &mut relay => ended.map_err(io::Error::other)??,
            () = shutdown => {}
        }
        log::info!("stopping");
        sweep.abort();
        rotation.abort();
        // An alarm that came now would find nobody; unacknowledged, it comes again at the next start.
        if let Err(error) = push.send(StopPush).await {
            log::warn!("the push worker had stopped before: {error}");
        }
        // Sockets get their close code first; whoever then still lingers is cut off.
        self.hub.do_send(Drain);
        let deadline = Instant::now() + GOODBYES;
        while self.health.active.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::join!(relay_handle.stop(true), api_handle.stop(true));
        Ok(())
    }
}

/// Binds one of the two listeners.
fn bind(variable: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |cause| StartError::Bind { variable, address, cause };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Removes what has expired, for ever.
async fn sweep(state: web::Data<AppState>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = state.clock.now();
        state.rate_limits.forget_idle(now);
        if let Err(error) = state.pool.write(move |db| purge(db, now)).await {
            log::warn!("expired rows were not removed: {error}");
        }
    }
}

fn purge(db: &mut crate::db::pool::Db, now: Timestamp) -> Result<(), DbError> {
    sessions::purge(db, now)?;
    sign_in_attempts::purge(db, now)?;
    pairing_codes::purge(db, now)?;
    push_seen::purge(db, now)?;
    let history_from = now - TimeDelta::days(HISTORY_DAYS);
    timeline::purge(db, history_from)?;
    alarms::purge(db, history_from)?;
    // A nonce may come back as long as its time passes the check: twice the skew, from one end to the other.
    openid_nonces::purge(db, now - 3 * PROVIDER_CLOCK_SKEW)?;
    Ok(())
}
