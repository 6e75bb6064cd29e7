//! The simulated neighbours of the demo's service, and what a service has to know of them.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use tokio::time::sleep;

use super::{
    error::DemoError,
    options::{DemoOptions, path_text},
    teams::DemoTeams,
};
use crate::{
    clock::Clock,
    config,
    crypto::random::Random,
    simulator::{
        self, STATS_SERVER,
        browser_push::BrowserPushService,
        chat::ChatService,
        game_server::{DEMO_TOKEN, GameServer, GameServerOptions},
        identity::IdentityProvider,
        payments::PaymentService,
        phone::SimulatedPhone,
        player_stats::{ListedGame, PlayerStatsService, regulars},
        push_service::{CertificateAuthority, PushService},
        registration::RegistrationSites,
        world::{SimulatedWorld, TEAM},
    },
};

/// The name of the simulated game server in its pushes.
pub const SERVER_NAME: &str = "Demo Island";
/// Interval at which watchers are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// From the first watcher to the first raid, and from each raid to the next.
const FIRST_RAID: Duration = Duration::from_secs(10);
const NEXT_RAID: Duration = Duration::from_secs(120);

/// All of them; they end when this is dropped.
pub struct DemoNeighbours {
    pub game: GameServer,
    pub identity: IdentityProvider,
    player_stats: PlayerStatsService,
    pub payments: PaymentService,
    pub chat: ChatService,
    pub pushes: Arc<PushService>,
    pub sites: RegistrationSites,
    pub phone: SimulatedPhone,
    pub browsers: BrowserPushService,
    /// Path of the certificate of the push service.
    ca_file: String,
}

impl DemoNeighbours {
    /// Starts them. Call it inside an actix system.
    pub async fn start(
        options: &DemoOptions,
        teams: &DemoTeams,
        data_dir: &Path,
        clock: &Clock,
    ) -> Result<Self, DemoError> {
        let listen = |offset: u16| {
            let port = if options.port == 0 { 0 } else { options.port.saturating_add(offset) };
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        };
        let taken = |address: SocketAddr| DemoError::io(format!("{address} (another --port, or --port 0, may help)"));

        let mut world = SimulatedWorld::new(options.seed, clock.now());
        world.script.cancel_raids();
        teams.found(&mut world);
        let mut game = GameServerOptions { listen: listen(2), ..GameServerOptions::new(world) };
        // The second and third of the team have the same token.
        game.players.extend(TEAM[1..3].iter().map(|(player, _)| (*player, DEMO_TOKEN)));
        game.players.extend(teams.tokens());
        let game = GameServer::start(game).await.map_err(taken(listen(2)))?;
        let persons = simulator::persons().into_iter().chain(teams.persons()).collect();
        let identity = IdentityProvider::start(listen(3), persons, clock.clone(), Random::system()).await;
        let identity = identity.map_err(taken(listen(3)))?;

        let listed = ListedGame::at(STATS_SERVER, SERVER_NAME, game.addr());
        let player_stats =
            PlayerStatsService::start(listen(5), vec![listed], regulars(STATS_SERVER), clock.clone()).await;
        let player_stats = player_stats.map_err(taken(listen(5)))?;

        let payments = PaymentService::start(listen(6), clock.clone(), Random::system()).await;
        let payments = payments.map_err(taken(listen(6)))?;

        let chat = ChatService::start(listen(7), clock.clone()).await.map_err(taken(listen(7)))?;

        let authority = CertificateAuthority::kept(data_dir).map_err(DemoError::io(data_dir.display().to_string()))?;
        let pushes = PushService::start_as(authority, listen(4), Vec::new(), clock.clone()).await;
        let pushes = Arc::new(pushes.map_err(taken(listen(4)))?);
        let sites =
            RegistrationSites::start(listen(8), &identity, pushes.clone(), clock.clone(), Random::system()).await;
        let sites = sites.map_err(taken(listen(8)))?;
        let phone = SimulatedPhone::start(listen(9), clock.clone()).await.map_err(taken(listen(9)))?;
        let browsers = BrowserPushService::start(listen(10), clock.clone(), Random::system()).await;
        let browsers = browsers.map_err(taken(listen(10)))?;
        let ca_file = write_certificate(data_dir, &pushes);
        let ca_file = ca_file.map_err(DemoError::io(data_dir.display().to_string()))?;
        Ok(Self { game, identity, player_stats, payments, chat, pushes, sites, phone, browsers, ca_file })
    }

    /// The variables of a service that uses them, and whose admin the demo user is.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("PUSH_ADDRESS", self.pushes.addr().to_string()),
            ("EXTRA_CA_FILE", self.ca_file.clone()),
            ("RELAY_DEFLATE", "true".to_owned()),
            ("IDENTITY_LOGIN_URL", self.identity.login_url()),
            ("IDENTITY_CLAIMED_ID_PREFIX", self.identity.claimed_id_prefix()),
            ("PLATFORM_API_URL", self.identity.platform_api_url()),
            ("PLATFORM_AVATAR_URL", self.identity.avatar_url()),
            ("PLATFORM_API_KEY", "simulated".to_owned()),
            ("ALLOW_PRIVATE_GAME_SERVERS", "true".to_owned()),
            ("ALLOW_PRIVATE_CHANNEL_TARGETS", "true".to_owned()),
            ("VAPID_SUBJECT", "mailto:operator@demo.example".to_owned()),
            ("PLAYER_STATS_URL", self.player_stats.url()),
            ("PLAYER_STATS_POLL_SECONDS", "10".to_owned()),
            ("ADMIN_PLATFORM_IDS", TEAM[0].0.to_string()),
        ];
        variables.extend(self.payments.settings());
        variables.extend(self.chat.settings());
        variables.extend(self.sites.settings());
        variables
    }

    /// From now on, those that call a service call the one whose API has this URL.
    pub fn call(&self, api: &str) {
        self.chat.set_interactions(format!("{api}/chat/interactions"));
        self.payments.set_webhook(format!("{api}/billing/webhook"));
    }
}

/// Begins a raid some seconds after the first watcher came, and then again and again while there is one. `sockets` counts
/// those that are open.
pub async fn raid_those_who_watch(game: &GameServer, sockets: impl Fn() -> usize) {
    let mut wait = FIRST_RAID;
    loop {
        while sockets() == 0 {
            sleep(LOOK_EVERY).await;
        }
        sleep(wait).await;
        if sockets() > 0 {
            game.world(SimulatedWorld::raid);
        }
        wait = NEXT_RAID;
    }
}

/// Writes the certificate of the push service; its path.
fn write_certificate(data_dir: &Path, pushes: &PushService) -> io::Result<String> {
    let path = data_dir.join("push-ca.pem");
    config::create_private_dir(data_dir)?;
    fs::write(&path, pushes.ca_pem())?;
    path_text(&path)
}
