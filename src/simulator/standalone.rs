//! The simulator as a program: `companion simulate`.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    chat::ChatService,
    game_server::{DEMO_TOKEN, GameServer, GameServerOptions},
    identity::{IdentityProvider, Person},
    payments::PaymentService,
    player_stats::{ListedGame, PlayerStatsService, regulars},
    push_service::{CertificateAuthority, DEMO_ANDROID_ID, DEMO_SECURITY_TOKEN, PushService},
    registration::RegistrationSites,
    world::{SimulatedWorld, TEAM},
};
use crate::{clock::Clock, crypto::random::Random};

/// Where to listen, and which files to write; the documentation of each field is its help.
#[derive(clap::Args)]
pub struct SimulateOptions {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub listen_ip: IpAddr,
    /// Port of the game server
    #[arg(long, default_value_t = 8082)]
    pub game_port: u16,
    /// Port of the identity provider
    #[arg(long, default_value_t = 8083)]
    pub identity_port: u16,
    /// Port of the push service
    #[arg(long, default_value_t = 8084)]
    pub push_port: u16,
    /// Port of the player-statistics service
    #[arg(long, default_value_t = 8085)]
    pub player_stats_port: u16,
    /// Port of the payment provider
    #[arg(long, default_value_t = 8086)]
    pub payments_port: u16,
    /// Where the payment provider sends its events
    #[arg(long, default_value = "http://127.0.0.1:8080/billing/webhook")]
    pub webhook_url: String,
    /// Port of the chat platform
    #[arg(long, default_value_t = 8087)]
    pub chat_port: u16,
    /// Port of the sites of a registration for pushes
    #[arg(long, default_value_t = 8088)]
    pub registration_port: u16,
    /// Where the chat platform sends the commands of users
    #[arg(long, default_value = "http://127.0.0.1:8080/chat/interactions")]
    pub interactions_url: String,
    /// Seed of everything that happens in the simulated world
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Nothing happens by itself in the simulated world: two who look at it see the same
    #[arg(long)]
    pub still: bool,
    /// Where to keep the certificate authority of the push service: a service that trusts it goes on after a restart
    #[arg(long, default_value = "data/simulator")]
    pub data_dir: PathBuf,
    /// Write the certificate of the push service to this file [default with --env-file: push-ca.pem in the data directory]
    #[arg(long)]
    pub ca_file: Option<PathBuf>,
    /// Write the settings with which `companion serve --env-file FILE` uses these neighbours
    #[arg(long)]
    pub env_file: Option<PathBuf>,
}

/// The command with which this program was started.
pub fn program_as_started() -> String {
    std::env::args().next().unwrap_or_else(|| "companion".to_owned())
}

/// For people: programs read the line on standard output.
fn next_steps(env_file: Option<&Path>) {
    let program = program_as_started();
    match env_file {
        Some(file) => eprintln!(
            "\nThe neighbours run. In another terminal, in this directory, the service that uses them:\n\n    \
             {program} serve --env-file {}\n\nThen sign in, with one click, at http://127.0.0.1:8080/auth/platform.\n\
             Ctrl-C ends the neighbours.\n",
            file.display()
        ),
        None => eprintln!(
            "\nThe neighbours run. With --env-file FILE the settings of a service that uses them are written; then\n\n    \
             {program} serve --env-file FILE\n\nruns it. Ctrl-C ends the neighbours.\n"
        ),
    }
}

/// SteamID64 of the player who is paired.
const PLAYER: u64 = TEAM[0].0;

/// The id of the game server at the player-statistics service.
pub const STATS_SERVER: &str = "7001";

/// The persons of the demo: the team.
pub fn persons() -> Vec<Person> {
    TEAM.into_iter()
        .map(|(platform_id, name)| Person { platform_id, name: name.to_owned(), avatar_url: String::new() })
        .collect()
}

/// Runs a game server, an identity provider, a push service, a player-statistics service, a payment provider, a chat
/// platform and the sites of a registration for pushes until Ctrl-C. The push service has one account, for which the pairings of the game server and its devices
/// wait.
///
/// Prints one line of JSON when all accept connections: `game`, `identity`, `push`, `playerStats`, `payments`, `chat`
/// and `registration` (host and port), `playerId` (decimal text), `playerToken`, `androidId` and `securityToken` (decimal texts),
/// `caFile` (null without `ca_file` and `env_file`), and `devices` (entity id and name of each).
pub async fn simulate(options: SimulateOptions) -> io::Result<()> {
    let neighbours = SimulatedNeighbours::start(&options).await?;
    // A service cannot trust the push service without its certificate.
    let kept = || options.env_file.as_ref().map(|_| options.data_dir.join("push-ca.pem"));
    let ca_file = options.ca_file.clone().or_else(kept).map(std::path::absolute).transpose()?;
    if let Some(path) = &ca_file {
        tokio::fs::write(path, neighbours.push.ca_pem()).await?;
    }
    if let Some(path) = &options.env_file {
        let settings = neighbours.settings(ca_file.as_deref());
        let text: String = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        tokio::fs::write(path, text).await?;
    }
    println!("{}", neighbours.line(ca_file.as_deref()));
    next_steps(options.env_file.as_deref());
    tokio::signal::ctrl_c().await
}

/// The neighbours, which all accept connections.
struct SimulatedNeighbours {
    /// Entity id and name.
    devices: Vec<(u64, String)>,
    game: GameServer,
    identity: IdentityProvider,
    push: Arc<PushService>,
    player_stats: PlayerStatsService,
    payments: PaymentService,
    sites: RegistrationSites,
    chat: ChatService,
}

impl SimulatedNeighbours {
    async fn start(options: &SimulateOptions) -> io::Result<Self> {
        let listen = |port| SocketAddr::new(options.listen_ip, port);
        let clock = Clock::system();
        let world = SimulatedWorld::new(options.seed, clock.now());
        let name = world.info().name;
        let devices: Vec<_> = world.devices().map(|(id, name, _)| (id, name.to_owned())).collect();
        let time_scale = if options.still { 0.0 } else { 1.0 };
        let game = GameServerOptions { listen: listen(options.game_port), time_scale, ..GameServerOptions::new(world) };
        let game = GameServer::start(game).await?;
        let identity =
            IdentityProvider::start(listen(options.identity_port), persons(), clock.clone(), Random::system()).await?;
        let account = (DEMO_ANDROID_ID, DEMO_SECURITY_TOKEN);
        let authority = CertificateAuthority::kept(&options.data_dir)?;
        let push = PushService::start_as(authority, listen(options.push_port), vec![account], clock.clone()).await?;
        let push = Arc::new(push);

        game.push_through(push.clone(), &name, HashMap::from([(PLAYER, DEMO_ANDROID_ID)]));
        game.pair(PLAYER, &devices.iter().map(|(id, _)| *id).collect::<Vec<_>>());

        let listed = ListedGame::at(STATS_SERVER, &name, game.addr());
        let (stats_listen, players) = (listen(options.player_stats_port), regulars(STATS_SERVER));
        let player_stats = PlayerStatsService::start(stats_listen, vec![listed], players, clock.clone()).await?;
        let payments = PaymentService::start(listen(options.payments_port), clock.clone(), Random::system()).await?;
        payments.set_webhook(options.webhook_url.clone());
        let (sites_listen, random) = (listen(options.registration_port), Random::system());
        let sites = RegistrationSites::start(sites_listen, &identity, push.clone(), clock.clone(), random).await?;
        let chat = ChatService::start(listen(options.chat_port), clock).await?;
        chat.set_interactions(options.interactions_url.clone());
        Ok(Self { devices, game, identity, push, player_stats, payments, sites, chat })
    }

    /// The settings with which a service uses them.
    fn settings(&self, ca_file: Option<&Path>) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("IDENTITY_LOGIN_URL", self.identity.login_url()),
            ("IDENTITY_CLAIMED_ID_PREFIX", self.identity.claimed_id_prefix()),
            ("PLATFORM_API_URL", self.identity.platform_api_url()),
            ("PLATFORM_AVATAR_URL", self.identity.avatar_url()),
            // With any key the service looks profiles up.
            ("PLATFORM_API_KEY", "simulated".to_owned()),
            ("PLAYER_STATS_URL", self.player_stats.url()),
            ("ALLOW_PRIVATE_GAME_SERVERS", "true".to_owned()),
        ];
        settings.extend(self.payments.settings());
        settings.extend(self.chat.settings());
        settings.extend(self.sites.settings());
        if let Some(ca_file) = ca_file {
            settings.push(("PUSH_ADDRESS", self.push.addr().to_string()));
            settings.push(("EXTRA_CA_FILE", ca_file.display().to_string()));
        }
        settings
    }

    /// The line for programs.
    fn line(&self, ca_file: Option<&Path>) -> Value {
        let named = self.devices.iter().map(|(id, name)| json!({ "entityId": id.to_string(), "name": name }));
        json!({
            "game": self.game.addr().to_string(),
            "identity": self.identity.addr().to_string(),
            "push": self.push.addr().to_string(),
            "playerStats": self.player_stats.addr().to_string(),
            "payments": self.payments.addr().to_string(),
            "chat": self.chat.addr().to_string(),
            "registration": self.sites.addr().to_string(),
            "playerId": PLAYER.to_string(),
            "playerToken": DEMO_TOKEN,
            "androidId": DEMO_ANDROID_ID.to_string(),
            "securityToken": DEMO_SECURITY_TOKEN.to_string(),
            "caFile": ca_file,
            "devices": named.collect::<Vec<_>>(),
        })
    }
}
