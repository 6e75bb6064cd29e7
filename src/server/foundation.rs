//! Values that most parts of the service are built from, and the parts that need little else.

use std::sync::Arc;

use actix::{Addr, Arbiter, ArbiterHandle};
use rustls::ClientConfig;

use crate::{
    api::context::ChatBot,
    billing::context::BillingContext,
    catalogue::CatalogueKeeper,
    channels::Channels,
    clients::{
        channels::ChannelClient, chat::ChatClient, player_stats::PlayerStatsClient, registration::RegistrationClient,
    },
    clock::Clock,
    config::{
        BaseUrl, ChannelPolicy, ChatPlatform, Game, Payments, PlayerStats, PublicUrls, PushAddress, Registration,
    },
    crypto::{
        account_mark::AccountMarks,
        ack_link::AckLinks,
        keys::{KeyDerivation, Purpose},
        random::Random,
    },
    db::{alarms::early_alarms::EarlyAlarms, engine::pool::Pool, files::journal::Journal},
    domain::fair_budget::FairBudget,
    game::{decoding::MessageDecoder, outbound::Outbound},
    net::{Names, Network},
    ownership::Ownership,
    push::{
        context::PushContext,
        registrar::Registrar,
        worker::{self, PushWorker},
    },
    relay::{
        hub::{AlarmRoutes, ChatTexts, Hub, Markets},
        shared::{context::RelayContext, write_behind::WriteBehind},
    },
    server::start_error::StartError,
    tracking::{self, context::TrackingContext, worker::TrackingWorker},
    vault::Vault,
};

/// See the module.
pub struct Foundation {
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    pub journal: Journal,
    pub early_alarms: Arc<EarlyAlarms>,
    pub alarm_routes: AlarmRoutes,
    pub vault: Vault,
    pub tls: Arc<ClientConfig>,
    pub http: reqwest::Client,
    pub outbound: Arc<Outbound>,
    pub markets: Arc<Markets>,
    pub chat_texts: Arc<ChatTexts>,
    pub catalogue: Arc<CatalogueKeeper>,
    /// On a node of several.
    pub ownership: Option<Ownership>,
}

impl Foundation {
    /// The parts that the relay's actors share.
    pub fn relay(&self, game: Game) -> RelayContext {
        RelayContext {
            markets: self.markets.clone(),
            maps: Arc::default(),
            catalogue: self.catalogue.shared().clone(),
            write_behind: WriteBehind::start(self.pool.clone(), self.random.clone()),
            clock: self.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            journal: self.journal.clone(),
            early_alarms: self.early_alarms.clone(),
            network: Network::system(),
            vault: self.vault.clone(),
            game,
            teams: Default::default(),
            chat_texts: self.chat_texts.clone(),
            budgets: Arc::default(),
            connect_pacer: Arc::default(),
            outbound: self.outbound.clone(),
            recent_events: Default::default(),
            team_timers: Default::default(),
            decoder: MessageDecoder::on_threads(),
        }
    }

    /// Starts the push worker. Its sessions have threads of their own: thousands of logins after a lost network hold up
    /// no others.
    pub fn push(&self, address: PushAddress, hub: Addr<Hub>, workers: usize) -> Addr<PushWorker> {
        let context = PushContext {
            clock: self.clock.clone(),
            random: self.random.clone(),
            network: Network::system(),
            pool: self.pool.clone(),
            vault: self.vault.clone(),
            tls: self.tls.clone(),
            address,
            logins: Arc::default(),
            outbound: self.outbound.clone(),
            hub,
            alarm_routes: self.alarm_routes.clone(),
        };
        worker::start(Arc::new(context), threads(workers.div_ceil(4)), self.ownership.clone())
    }

    /// Starts the tracking of players, on a thread of its own: lists of players are large.
    pub fn tracking(&self, settings: PlayerStats, hub: Addr<Hub>) -> Addr<TrackingWorker> {
        let context = TrackingContext {
            clock: self.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            names: Names::system(),
            budget: FairBudget::new(settings.daily_requests, self.clock.now()).into(),
            poll_every: settings.poll_every,
            client: PlayerStatsClient::new(self.http.clone(), settings, self.random.clone()),
            hub: hub.recipient(),
            ownership: self.ownership.clone(),
        };
        tracking::worker::start(context, &thread())
    }

    /// The maker of registrations for pushes.
    pub fn registrar(&self, settings: Registration, worker: Addr<PushWorker>) -> Registrar {
        Registrar {
            client: RegistrationClient::new(self.http.clone(), settings, self.random.clone()),
            clock: self.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            vault: self.vault.clone(),
            worker,
            running: Default::default(),
        }
    }

    /// The parts that payments share.
    pub fn billing(&self, settings: Payments, marks: AccountMarks) -> BillingContext {
        let (http, pool) = (self.http.clone(), self.pool.clone());
        BillingContext::new(settings, marks, http, pool, self.clock.clone(), self.random.clone())
    }

    /// The channels by which alarms reach users without a dashboard.
    pub fn channels(
        &self,
        policy: ChannelPolicy,
        keys: &KeyDerivation,
        urls: &PublicUrls,
        hub: Addr<Hub>,
    ) -> Result<Channels, StartError> {
        let (outbound, allows_private) = (self.outbound.clone(), policy.allows_private);
        let may_reach = Arc::new(move |address| allows_private || outbound.is_foreign(address));
        let (tls, contact) = (ClientConfig::clone(&self.tls), policy.contact(&urls.base));
        let client = ChannelClient::new(Names::system, tls, may_reach, allows_private, contact, self.random.clone());
        Ok(Channels {
            clock: self.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            vault: self.vault.clone(),
            client: client.map_err(StartError::Client)?,
            team_chat: Some(hub.recipient()),
            links: AckLinks::new(&keys.key(Purpose::AckLink)),
            urls: urls.clone(),
            vapid: Default::default(),
            news: Default::default(),
            good_look: Default::default(),
            failing_since: Default::default(),
            early_alarms: self.early_alarms.clone(),
            early: Default::default(),
            gone: Default::default(),
            orphaned: Default::default(),
        })
    }

    /// The support bot.
    pub fn chat_bot(&self, settings: ChatPlatform, own_url: &BaseUrl) -> ChatBot {
        ChatBot {
            public_key: settings.public_key,
            client: ChatClient::new(self.http.clone(), settings, own_url, self.random.clone()),
        }
    }
}

/// Starts threads for actors.
pub fn threads(count: usize) -> Vec<ArbiterHandle> {
    (0..count).map(|_| thread()).collect()
}

#[allow(clippy::disallowed_methods, reason = "the one place that starts threads for actors")]
fn thread() -> ArbiterHandle {
    Arbiter::new().handle()
}
