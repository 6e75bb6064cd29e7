//! `companion demo`: the service and its simulated neighbours in one process, with a signed-in user, a paired game
//! server and smart devices, ready to watch. Needs no account, key, network or file.

mod neighbour_settings;
mod pairing;
mod phone;
mod ports;
mod teams;
mod tour;
pub mod user;

use std::{
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use actix_web::web;
use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, builder::Resettable};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use self::{
    neighbour_settings::{chat_settings, payment_settings, registration_settings},
    pairing::{DemoPairingError, RegisteredPhone},
    ports::PortTaken,
    teams::{DemoPlayer, DemoTeams},
    tour::TourFacts,
};
use crate::{
    api::context::ApiContext,
    billing::checkout::{self, CheckoutError},
    clock::Clock,
    config::{self, Config, InvalidSettings, Settings},
    crypto::random::Random,
    db::{engine::error::DbError, incidents, users},
    domain::{
        billing_interval::BillingInterval,
        device::DeviceKind,
        ids::{ServerId, UserId},
        plan::Plan,
        tier::Tier,
        time::Timestamp,
    },
    server::{Server, StartError},
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
        world::{SimulatedDevice, SimulatedWorld, TEAM},
    },
    terminal::{self, LiveLine},
};

/// The name of the simulated game server in its pushes.
const SERVER_NAME: &str = "Demo Island";
/// Interval at which the line on the terminal is renewed.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// From the first watcher to the first raid, and from each raid to the next.
const FIRST_RAID: Duration = Duration::from_secs(10);
const NEXT_RAID: Duration = Duration::from_secs(120);

/// Options of the demo.
#[derive(clap::Args)]
pub struct DemoOptions {
    /// Seed of the simulated world: the same seed gives the same events
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Port of the API; the relay, the game server, the identity provider, the push service, the player-statistics service, the payment provider, the chat platform, the sites of a registration for pushes, the phone and the push service of a browser get the next ten. 0 for free ports
    #[arg(long, default_value_t = 8080, value_parser = clap::value_parser!(u16).range(..=65525))]
    pub port: u16,
    /// URL of a dashboard of your own: its pages may call with cookies, and a sign-in may return there [default: the API]
    #[arg(long)]
    pub frontend_url: Option<String>,
    /// Print requests to try, too
    #[arg(long)]
    pub tour: bool,
    /// Teams on the game server, with three users each; their members talk, leave, join and are kicked [default: the demo user alone]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub teams: Option<u8>,
    /// Directory from which the dashboard is read at each request, for those who write it [default: as it was built]
    #[arg(long, env)]
    pub web_dir: Option<PathBuf>,
    /// Where to store everything [default: a temporary directory that is removed when the demo ends]
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
}

/// Reasons for which the demo does not start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("{0}")]
    Settings(#[from] InvalidSettings),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("the database: {0}")]
    Database(#[from] DbError),
    #[error("the checkout: {0}")]
    Checkout(#[from] CheckoutError),
    #[error("{0}")]
    Port(#[from] PortTaken),
    #[error("{0}")]
    Pairing(#[from] DemoPairingError),
    #[error("{what}: {cause}")]
    Io { what: String, cause: io::Error },
}

impl DemoError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |cause| Self::Io { what, cause }
    }
}

/// Facts that scripts need to use a running demo: `demo.json` in its data directory, readable by its owner only.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoFile {
    pub api_url: String,
    pub relay_url: String,
    pub sign_in_url: String,
    /// Opens the dashboard signed in, once.
    pub open_url: String,
    /// `rp_sess=…` of the demo user.
    pub cookie: String,
    /// The simulated push service of browsers; its page is a browser.
    pub browser_push_url: String,
    pub servers: Vec<DemoServer>,
    pub teammate: DemoTeammate,
    /// The further users of `--teams`, by team; the demo user is in the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<Vec<DemoPlayer>>,
}

/// A teammate of the demo user, and the game server, for `companion say`.
#[derive(Serialize, Deserialize)]
pub struct DemoTeammate {
    pub host: String,
    pub port: u16,
    /// SteamID64.
    pub player: u64,
    /// The simulated game server knows it.
    pub token: i32,
}

/// A paired server of the demo.
#[derive(Serialize, Deserialize)]
pub struct DemoServer {
    pub id: ServerId,
    pub name: String,
}

/// A running demo; its neighbours end with it.
pub struct Demo {
    server: Server,
    pub file: DemoFile,
    pub path: PathBuf,
    pub game: GameServer,
    devices: Vec<(String, DeviceKind, String)>,
    _identity: IdentityProvider,
    _player_stats: PlayerStatsService,
    _payments: PaymentService,
    chat: ChatService,
    _sites: RegistrationSites,
    phone: SimulatedPhone,
    /// End of the registration of the user's device for the game's pushes, unless it is renewed.
    registered_until: Timestamp,
    browsers: BrowserPushService,
    user: UserId,
    /// The page on which the demo user pays for OPERATOR with one click; `None` if they have, in an earlier run.
    pub checkout_url: Option<String>,
    /// Removed when dropped.
    _temporary: Option<TempDir>,
    /// From the start of the command.
    ready_in: Duration,
    tour: bool,
}

impl Demo {
    /// Starts everything. Call it inside an actix system.
    pub async fn start(options: DemoOptions) -> Result<Self, DemoError> {
        let began = Instant::now();
        let (data_dir, temporary) = match options.data_dir {
            Some(path) => (path, None),
            None => {
                let directory = TempDir::with_prefix("companion-demo-");
                let directory = directory.map_err(DemoError::io("a temporary directory"))?;
                (directory.path().to_owned(), Some(directory))
            }
        };
        let port = |offset: u16| if options.port == 0 { 0 } else { options.port.saturating_add(offset) };
        let listen = |offset| SocketAddr::from((Ipv4Addr::LOCALHOST, port(offset)));
        let taken = |address: SocketAddr| format!("{address} (another --port, or --port 0, may help)");

        ports::are_free(options.port)?;

        let clock = Clock::system();
        let teams = DemoTeams::new(options.teams.map(usize::from));
        let mut world = SimulatedWorld::new(options.seed, clock.now());
        world.script.cancel_raids();
        teams.found(&mut world);
        let mut game = GameServerOptions { listen: listen(2), ..GameServerOptions::new(world) };
        // The second and third of the team have the same token.
        game.players.extend(TEAM[1..3].iter().map(|(player, _)| (*player, DEMO_TOKEN)));
        game.players.extend(teams.tokens());
        let game = GameServer::start(game).await.map_err(DemoError::io(taken(listen(2))))?;
        let persons = simulator::persons().into_iter().chain(teams.persons()).collect();
        let identity = IdentityProvider::start(listen(3), persons, clock.clone(), Random::system()).await;
        let identity = identity.map_err(DemoError::io(taken(listen(3))))?;

        let listed = ListedGame::at(STATS_SERVER, SERVER_NAME, game.addr());
        let player_stats =
            PlayerStatsService::start(listen(5), vec![listed], regulars(STATS_SERVER), clock.clone()).await;
        let player_stats = player_stats.map_err(DemoError::io(taken(listen(5))))?;

        let payments = PaymentService::start(listen(6), clock.clone(), Random::system()).await;
        let payments = payments.map_err(DemoError::io(taken(listen(6))))?;

        let chat = ChatService::start(listen(7), clock.clone()).await.map_err(DemoError::io(taken(listen(7))))?;

        let authority = CertificateAuthority::kept(&data_dir).map_err(DemoError::io(data_dir.display().to_string()))?;
        let pushes = PushService::start_as(authority, listen(4), Vec::new(), clock.clone()).await;
        let pushes = Arc::new(pushes.map_err(DemoError::io(taken(listen(4))))?);
        let sites =
            RegistrationSites::start(listen(8), &identity, pushes.clone(), clock.clone(), Random::system()).await;
        let sites = sites.map_err(DemoError::io(taken(listen(8))))?;
        let alarmed = SimulatedPhone::start(listen(9), clock.clone()).await.map_err(DemoError::io(taken(listen(9))))?;
        let browsers = BrowserPushService::start(listen(10), clock.clone(), Random::system()).await;
        let browsers = browsers.map_err(DemoError::io(taken(listen(10))))?;
        let ca_file = data_dir.join("push-ca.pem");
        let written = config::create_private_dir(&data_dir).and_then(|()| fs::write(&ca_file, pushes.ca_pem()));
        written.map_err(DemoError::io(ca_file.display().to_string()))?;

        let mut settings = default_settings();
        settings.push.push_address = pushes.addr().to_string();
        settings.trust.extra_ca_file = Some(ca_file);
        settings.database.data_dir = data_dir.clone();
        settings.urls.frontend_url = options.frontend_url;
        settings.listen.api_listen = listen(0).to_string();
        settings.listen.relay_listen = listen(1).to_string();
        settings.listen.relay_deflate = "true".to_owned();
        settings.identity.identity_login_url = identity.login_url();
        settings.identity.identity_claimed_id_prefix = identity.claimed_id_prefix();
        settings.identity.platform_api_url = identity.platform_api_url();
        settings.identity.platform_avatar_url = identity.avatar_url();
        settings.identity.platform_api_key = Some("simulated".to_owned().into());
        settings.game.allow_private_game_servers = "true".to_owned();
        settings.channels.allow_private_channel_targets = "true".to_owned();
        settings.channels.vapid_subject = Some("mailto:operator@demo.example".to_owned());
        settings.player_stats.player_stats_url = Some(player_stats.url());
        settings.player_stats.player_stats_poll_seconds = "10".to_owned();
        // The demo user.
        settings.payments = payment_settings(&payments, settings.payments);
        settings.chat = chat_settings(&chat, settings.chat);
        settings.operation.web_dir = options.web_dir;
        settings.registration = registration_settings(&sites, settings.registration);
        settings.admin.admin_platform_ids = Some(TEAM[0].0.to_string());
        let config = Config::check(settings)?;
        let server = Server::build(config, clock)?;

        let devices: Vec<_> = game.world(|world| {
            world.devices().map(|(id, name, device)| (id.to_string(), kind(device), name.to_owned())).collect()
        });
        let (context, (player, name)) = (server.context(), TEAM[0]);
        let user = user::sign_in(context, player, name).await?;
        let RegisteredPhone { android_id: phone, ends_at } =
            pairing::register(context, &user.id, player, &sites).await?;
        let others = teams.sign_in(context, &sites).await?;
        let mut phones = teams::phones(&others);
        phones.insert(player, phone);
        game.push_through(pushes.clone(), SERVER_NAME, phones);
        let paired = pairing::pair(context, (&user.id, player), &game, (&pushes, phone)).await?;
        let teams = teams::pair(context, others, &game, &pushes).await?;
        phone::add(context, &user.id, &alarmed).await?;
        chat.set_interactions(format!("http://{}/chat/interactions", server.api_addr()));
        payments.set_webhook(format!("http://{}/billing/webhook", server.api_addr()));
        let checkout_url = open_checkout(context, &user.id).await?;
        let (host, port) = (game.addr().ip().to_string(), game.addr().port());
        let teammate = DemoTeammate { host, port, player: TEAM[1].0, token: DEMO_TOKEN };
        let file = DemoFile {
            api_url: context.settings.urls.base.to_string(),
            relay_url: format!("ws://{}", server.relay_addr()),
            sign_in_url: context.settings.urls.base.at("/auth/platform"),
            open_url: identity.one_time_link(&context.settings.urls.base.at("/auth/platform")),
            cookie: user.cookie,
            browser_push_url: browsers.url(),
            servers: vec![DemoServer { id: paired.id, name: paired.name }],
            teammate,
            teams,
        };
        let path = data_dir.join("demo.json");
        write(&path, &file).map_err(DemoError::io(path.display().to_string()))?;
        Ok(Self {
            server,
            file,
            path,
            game,
            devices,
            _identity: identity,
            _player_stats: player_stats,
            _payments: payments,
            chat,
            _sites: sites,
            phone: alarmed,
            registered_until: ends_at,
            browsers,
            user: user.id,
            checkout_url,
            _temporary: temporary,
            ready_in: began.elapsed(),
            tour: options.tour,
        })
    }

    /// Prints where to look, and with `--tour` what else to try.
    pub fn print_steps(&self) -> io::Result<()> {
        let (demo, program) = (self.path.display(), simulator::program_as_started());
        let (name, seconds) = (&self.file.servers[0].name, self.ready_in.as_secs_f64());
        let mut out = io::stdout().lock();
        let until = self.registered_until.format("%Y-%m-%d");
        writeln!(
            out,
            "\nThe demo is running, ready in {seconds:.2} s. The game server \"{name}\" is paired: the user is registered for \
             the game's pushes until {until}, which the service renews.\n"
        )?;
        writeln!(out, "  Dashboard   {}   (opens signed in, once)", self.file.open_url)?;
        writeln!(out, "  Terminal    {program} watch {demo}")?;
        writeln!(out, "  Team chat   {program} say {demo} '!help'")?;
        writeln!(out, "  Phone       {}   (what wakes the player, until they acknowledge)", self.phone.url())?;
        writeln!(out, "  Browser     {}   (takes encrypted pushes, decrypts and shows them)", self.browsers.url())?;
        writeln!(out, "  API         {}/docs   (demo --tour prints requests to try)\n", self.file.api_url)?;
        for (number, team) in (1..).zip(&self.file.teams) {
            let names: Vec<&str> = team.iter().map(|player| player.name.as_str()).collect();
            writeln!(out, "  Team {number:<6} {}   (sign in at {})", names.join(", "), self.file.sign_in_url)?;
        }
        if !self.file.teams.is_empty() {
            writeln!(out)?;
        }
        writeln!(out, "A raid begins ten seconds after one of them watches. Ctrl-C ends the demo.\n")?;
        if self.tour {
            let switch = self.devices.iter().find(|(_, kind, _)| *kind == DeviceKind::Switch);
            let facts = TourFacts {
                api_url: &self.file.api_url,
                sign_in_url: &self.file.sign_in_url,
                cookie: &self.file.cookie,
                server: self.file.servers[0].id.as_str(),
                switch: switch.map(|(id, ..)| id.as_str()),
                checkout_url: self.checkout_url.as_deref(),
                chat_url: self.chat.url(),
                phone_url: self.phone.url(),
                path: demo.to_string(),
            };
            tour::print(&mut out, &facts)?;
        }
        out.flush()
    }

    /// Serves until `shutdown` ends; meanwhile a terminal shows in one line how it is.
    pub async fn run_until_stopped(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let line = terminal::is_shown().then(|| actix::spawn(show(self.server.context().clone())));
        let (context, game) = (self.server.context().clone(), self.game);
        let raids = actix::spawn(async move { raid_those_who_watch(&context, &game).await });
        let (context, user, mut browsers) = (self.server.context().clone(), self.user, self.browsers);
        let browsers = actix::spawn(async move { phone::add_browsers(&context, &user, &mut browsers).await });
        let shutdown = async {
            shutdown.await;
            if let Some(line) = line {
                line.abort();
            }
        };
        let stopped = self.server.run_until_stopped(shutdown).await;
        // Dropped here, while the runtime is there.
        for task in [raids, browsers] {
            task.abort();
            let _ = task.await;
        }
        stopped
    }
}

/// Begins a raid some seconds after the first watcher came, and then again and again while there is one.
async fn raid_those_who_watch(context: &ApiContext, game: &GameServer) {
    let mut wait = FIRST_RAID;
    loop {
        while context.sockets() == 0 {
            sleep(SHOWN_EVERY).await;
        }
        sleep(wait).await;
        if context.sockets() > 0 {
            game.world(SimulatedWorld::raid);
        }
        wait = NEXT_RAID;
    }
}

/// Shows how the service is, without end.
async fn show(context: web::Data<ApiContext>) {
    let line = LiveLine::new("");
    loop {
        let (links, pushes) = (context.link_counts().await, context.push_counts().await);
        let incidents = context.pool.read(incidents::tally).await;
        let link = links.map_or("no answer".to_owned(), |links| states(&links.by_state));
        let push = pushes.map_or("no answer".to_owned(), |pushes| states(&pushes));
        let raids = incidents.map_or(0, |states| states.iter().map(|(_, count)| count).sum());
        let sockets = context.sockets();
        line.say(format!("link: {link} | push: {push} | sockets: {sockets} | raids: {raids}"));
        sleep(SHOWN_EVERY).await;
    }
}

/// The states that there are, each with its count if that is more than one.
fn states(counts: &[(&'static str, usize)]) -> String {
    let shown = |(state, count): &(&str, usize)| match count {
        0 => None,
        1 => Some((*state).to_owned()),
        many => Some(format!("{many} {state}")),
    };
    let there: Vec<String> = counts.iter().filter_map(shown).collect();
    if there.is_empty() { "none".to_owned() } else { there.join(", ").replace('_', " ") }
}

/// The default settings, whatever the environment says: a demo must not use the data of a real service.
pub fn default_settings() -> Settings {
    let command = Settings::augment_args(Command::new("demo")).mut_args(|arg| arg.env(Resettable::Reset));
    let matches: ArgMatches = command.get_matches_from(["demo"]);
    Settings::from_arg_matches(&matches).expect("every setting has a default or may be absent")
}

fn kind(device: &SimulatedDevice) -> DeviceKind {
    match device {
        SimulatedDevice::Switch { .. } => DeviceKind::Switch,
        SimulatedDevice::Alarm { .. } => DeviceKind::Alarm,
        SimulatedDevice::Storage { .. } => DeviceKind::StorageMonitor,
    }
}

/// A checkout of the demo user; the address of its page.
async fn open_checkout(context: &ApiContext, user: &UserId) -> Result<Option<String>, DemoError> {
    let Some(billing) = &context.services.billing else { return Ok(None) };
    let id = user.clone();
    let user = context.pool.read(move |db| users::find(db, &id)?.ok_or(DbError::NotFound)).await?;
    let key = context.random.hex::<16>();
    let plan = Plan { tier: Tier::Operator, interval: BillingInterval::Month };
    let Some(wanted) = billing.prices.sold(plan) else { return Ok(None) };
    match checkout::open_checkout(billing, &user, &wanted, &context.settings.urls.frontend, &key).await {
        Err(CheckoutError::Subscribed) => Ok(None),
        opened => Ok(Some(opened?.url)),
    }
}

fn write(path: &Path, file: &DemoFile) -> io::Result<()> {
    let text = serde_json::to_string_pretty(file)?;
    if let Some(directory) = path.parent() {
        config::create_private_dir(directory)?;
    }
    // The file contains a session cookie. An earlier one may be readable by others, so a new one is created.
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}
