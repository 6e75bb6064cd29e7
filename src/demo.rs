//! `companion demo`: the service and its simulated neighbours in one process, with a signed-in user, a paired game
//! server and smart devices, ready to watch. Needs no account, key, network or file.

pub mod user;

use std::{
    collections::HashMap,
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use actix_web::web;
use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, builder::Resettable};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    api::context::ApiContext,
    billing::checkout::{self, CheckoutError},
    clock::Clock,
    config::{self, ChatSettings, Config, InvalidSettings, PaymentSettings, Settings},
    crypto::random::Random,
    db::{engine::error::DbError, incidents, paired_servers, users},
    domain::{
        billing_interval::BillingInterval,
        device::DeviceKind,
        ids::{ServerId, UserId},
        plan::Plan,
        tier::Tier,
    },
    push::worker::CredentialChanged,
    server::{Server, StartError},
    simulator::{
        self, STATS_SERVER,
        chat::ChatService,
        game_server::{GameServer, GameServerOptions},
        identity::IdentityProvider,
        payments::PaymentService,
        player_stats::{ListedGame, PlayerStatsService, regulars},
        push_service::{CertificateAuthority, DEMO_ANDROID_ID, DEMO_SECURITY_TOKEN, PushService},
        world::{SimulatedDevice, SimulatedWorld, TEAM, TURNING_CAMERA},
    },
    terminal::{self, LiveLine},
};

/// The name of the simulated game server in its pushes.
const SERVER_NAME: &str = "Demo Island";
/// A pairing needs a login and a few messages on this machine.
const PAIRING_DEADLINE: Duration = Duration::from_secs(15);
/// Interval at which the line on the terminal is renewed.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// Options of the demo.
#[derive(clap::Args)]
pub struct DemoOptions {
    /// Seed of the simulated world: the same seed gives the same events
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Port of the API; the relay, the game server, the identity provider, the push service, the player-statistics service, the payment provider and the chat platform get the next seven. 0 for free ports
    #[arg(long, default_value_t = 8080, value_parser = clap::value_parser!(u16).range(..=65528))]
    pub port: u16,
    /// URL of a dashboard of your own: its pages may call with cookies, and a sign-in may return there [default: the API]
    #[arg(long)]
    pub frontend_url: Option<String>,
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
    #[error(
        "--port {port} takes the ports {port} to {}, and {taken} (of {whose}) is in use; another --port, or --port 0 for \
         free ones, helps", port + 7
    )]
    PortTaken { port: u16, taken: u16, whose: &'static str },
    #[error("the push messages of the pairing did not arrive")]
    Pairing,
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
    /// `rp_sess=…` of the demo user.
    pub cookie: String,
    pub servers: Vec<DemoServer>,
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
    /// The page on which the demo user pays for OPERATOR with one click; `None` if they have, in an earlier run.
    pub checkout_url: Option<String>,
    /// Removed when dropped.
    _temporary: Option<TempDir>,
    /// From the start of the command.
    ready_in: Duration,
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

        ports_are_free(options.port)?;

        let clock = Clock::system();
        let world = SimulatedWorld::new(options.seed, clock.now());
        let game = GameServerOptions { listen: listen(2), ..GameServerOptions::new(world) };
        let game = GameServer::start(game).await.map_err(DemoError::io(taken(listen(2))))?;
        let identity = IdentityProvider::start(listen(3), simulator::persons(), clock.clone(), Random::system()).await;
        let identity = identity.map_err(DemoError::io(taken(listen(3))))?;

        let listed = ListedGame::at(STATS_SERVER, SERVER_NAME, game.addr());
        let player_stats =
            PlayerStatsService::start(listen(5), vec![listed], regulars(STATS_SERVER), clock.clone()).await;
        let player_stats = player_stats.map_err(DemoError::io(taken(listen(5))))?;

        let payments = PaymentService::start(listen(6), clock.clone(), Random::system()).await;
        let payments = payments.map_err(DemoError::io(taken(listen(6))))?;

        let chat = ChatService::start(listen(7), clock.clone()).await.map_err(DemoError::io(taken(listen(7))))?;

        let phone = (DEMO_ANDROID_ID, DEMO_SECURITY_TOKEN);
        let authority = CertificateAuthority::kept(&data_dir).map_err(DemoError::io(data_dir.display().to_string()))?;
        let pushes = PushService::start_as(authority, listen(4), vec![phone], clock.clone()).await;
        let pushes = Arc::new(pushes.map_err(DemoError::io(taken(listen(4))))?);
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
        settings.identity.platform_api_key = Some("simulated".to_owned().into());
        settings.game.allow_private_game_servers = "true".to_owned();
        settings.player_stats.player_stats_url = Some(player_stats.url());
        settings.player_stats.player_stats_poll_seconds = "10".to_owned();
        // The demo user.
        settings.payments = payment_settings(&payments, settings.payments);
        settings.chat = chat_settings(&chat, settings.chat);
        settings.admin.admin_platform_ids = Some(TEAM[0].0.to_string());
        let config = Config::check(settings)?;
        let server = Server::build(config, clock)?;

        let devices: Vec<_> = game.world(|world| {
            world.devices().map(|(id, name, device)| (id.to_string(), kind(device), name.to_owned())).collect()
        });
        let (context, (player, name)) = (server.context(), TEAM[0]);
        let user = user::sign_in(context, player, name).await?;
        user::upload_push_credential(context, &user.id, player, phone).await?;
        context.push.do_send(CredentialChanged { user: user.id.clone() });
        game.push_through(pushes.clone(), SERVER_NAME, HashMap::from([(player, DEMO_ANDROID_ID)]));
        let paired = pair(context, &user.id, &game, &pushes, &devices).await?;
        chat.set_interactions(format!("http://{}/chat/interactions", server.api_addr()));
        payments.set_webhook(format!("http://{}/billing/webhook", server.api_addr()));
        let checkout_url = open_checkout(context, &user.id).await?;
        let file = DemoFile {
            api_url: context.urls.base.to_string(),
            relay_url: format!("ws://{}", server.relay_addr()),
            sign_in_url: context.urls.base.at("/auth/platform"),
            cookie: user.cookie,
            servers: vec![paired],
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
            checkout_url,
            _temporary: temporary,
            ready_in: began.elapsed(),
        })
    }

    /// Prints the addresses, and what to try.
    pub fn print_steps(&self) -> io::Result<()> {
        let DemoFile { api_url, relay_url, sign_in_url, cookie, servers } = &self.file;
        let (demo, server, program) = (self.path.display(), &servers[0], simulator::program_as_started());
        let switch = self.devices.iter().find(|(_, kind, _)| *kind == DeviceKind::Switch).map(|(id, ..)| id.as_str());
        let mut out = io::stdout().lock();
        let seconds = self.ready_in.as_secs_f64();
        writeln!(
            out,
            "\nThe demo is running, ready in {seconds:.2} s. The game server \"{}\" is paired.\n",
            server.name
        )?;
        writeln!(out, "  HTTP API   {api_url}   (its description: {api_url}/openapi.json)")?;
        writeln!(out, "  Relay      {relay_url}/v1")?;
        writeln!(out, "  Sign in    {sign_in_url}   (in a browser, with one click)")?;
        if let Some(url) = &self.checkout_url {
            writeln!(out, "  Subscribe  {url}   (to OPERATOR, with one click on \"Pay\")")?;
        }
        writeln!(out)?;
        writeln!(out, "In another terminal, in this directory:\n")?;
        writeln!(out, "  Watch the live state; a raid begins within half a minute")?;
        writeln!(out, "    {program} watch {demo}")?;
        if let Some(switch) = switch {
            writeln!(out, "  Turn a switch, and see its new value arrive as a patch")?;
            writeln!(out, "    {program} watch {demo} --toggle {switch}")?;
        }
        writeln!(out, "  Call the API")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/me")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/paired-servers")?;
        writeln!(
            out,
            "  Open the portal after you have subscribed, to change, cancel or fail a payment; /me says why you have a tier"
        )?;
        writeln!(out, "    curl -s -X POST -H 'Cookie: {cookie}' {api_url}/billing/portal")?;
        let (json, id) = ("Content-Type: application/json", &server.id);
        writeln!(out, "  Track a player who comes and goes every few minutes, and ask for the names they used")?;
        writeln!(
            out,
            "    curl -s -H 'Cookie: {cookie}' -H '{json}' -d '{{\"trackerName\":\"Vex\"}}' {api_url}/intel/{id}/tracking"
        )?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' '{api_url}/intel/{id}/aliases?name=Vex'")?;
        writeln!(out, "  Leave a note on the map, and see it arrive as a patch")?;
        writeln!(
            out,
            "    curl -s -H 'Cookie: {cookie}' -H '{json}' -d '{{\"x\":900,\"y\":1200,\"category\":\"stash\",\"label\":\"Boat base\"}}' {api_url}/intel/{id}/map-notes"
        )?;
        writeln!(out, "  See what the shops sell, and which of them are suspicious")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/paired-servers/{id}/shops")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/intel/{id}/shops/scan")?;
        writeln!(out, "  Say something in the team chat, and get the picture of the map")?;
        writeln!(
            out,
            "    curl -s -H 'Cookie: {cookie}' -H '{json}' -d '{{\"text\":\"hello\"}}' {api_url}/paired-servers/{id}/chat"
        )?;
        writeln!(
            out,
            "    curl -s -H 'Cookie: {cookie}' -o map.jpg '{api_url}/paired-servers/{id}/map/image?size=1024'"
        )?;
        writeln!(out, "  Register the support bot's commands as an admin, and give it some as the chat platform does")?;
        writeln!(out, "    curl -s -X POST -H 'Cookie: {cookie}' {api_url}/admin/chat/register-commands")?;
        let give = format!("{}/give", self.chat.url());
        writeln!(
            out,
            "    curl -s --json '{{\"command\":\"craft\",\"options\":{{\"item\":\"gunpowder\",\"amount\":50}}}}' {give}"
        )?;
        writeln!(
            out,
            "    curl -s --json '{{\"command\":\"raid\",\"options\":{{\"target\":\"garage door\"}}}}' {give}"
        )?;
        writeln!(out, "  Link the account there with a code of the bot, and ask it for prices on your servers")?;
        writeln!(out, "    curl -s --json '{{\"command\":\"link\"}}' {give}")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' --json '{{\"code\":\"THE CODE\"}}' {api_url}/chat/link")?;
        writeln!(out, "    curl -s --json '{{\"command\":\"price\",\"options\":{{\"item\":\"wood\"}}}}' {give}")?;
        let devices = format!("{api_url}/paired-servers/{}/devices", server.id);
        writeln!(out, "  Add a camera of the base, and take a picture through it")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' --json '{{\"cameraId\":\"{TURNING_CAMERA}\"}}' {devices}")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' -o camera.jpg {devices}/{TURNING_CAMERA}/camera-frame")?;
        writeln!(out, "  Read how all of this works: the wiki, and the stores that bots read")?;
        writeln!(out, "    curl -s '{api_url}/wiki/page?slug=welcome'   (all pages: {api_url}/wiki/tree)")?;
        writeln!(out, "    curl -s {api_url}/store/raid   (also faq, crafting, messages)")?;
        writeln!(out, "  See the members as an admin, and what admins did")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/admin/users/overview")?;
        writeln!(
            out,
            "    curl -s -H 'Cookie: {cookie}' --json '{{\"platformId\":\"76561198000000042\",\"tier\":\"SCOUT\"}}' {api_url}/admin/beta-testers"
        )?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/admin/audit")?;
        writeln!(
            out,
            "  Get a token for your own WebSocket client, which then sends {{\"type\":\"subscribe\",\"serverId\":\"{}\"}}",
            server.id
        )?;
        writeln!(out, "    curl -s -X POST -H 'Cookie: {cookie}' {api_url}/relay/token")?;
        writeln!(out, "\nAll of this is also in {demo}, for scripts. Ctrl-C ends the demo.\n")?;
        out.flush()
    }

    /// Serves until `shutdown` ends; meanwhile a terminal shows in one line how it is.
    pub async fn run_until_stopped(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let line = terminal::is_shown().then(|| actix::spawn(show(self.server.context().clone())));
        let shutdown = async {
            shutdown.await;
            if let Some(line) = line {
                line.abort();
            }
        };
        self.server.run_until_stopped(shutdown).await
    }
}

/// Before anything starts: a port in use is reported by the number that was asked for.
fn ports_are_free(port: u16) -> Result<(), DemoError> {
    const TAKEN_BY: [&str; 8] = [
        "the API",
        "the relay",
        "the game server",
        "the identity provider",
        "the push service",
        "the player-statistics service",
        "the payment provider",
        "the chat platform",
    ];
    for (whose, taken) in TAKEN_BY.into_iter().zip(port..) {
        if port != 0 && TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).is_err() {
            return Err(DemoError::PortTaken { port, taken, whose });
        }
    }
    Ok(())
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

/// The states that there are; the demo has one link and one push session.
fn states(counts: &[(&'static str, usize)]) -> String {
    let there: Vec<&str> = counts.iter().filter(|(_, count)| *count > 0).map(|(state, _)| *state).collect();
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

/// The settings with which the service uses this provider.
fn payment_settings(payments: &PaymentService, defaults: PaymentSettings) -> PaymentSettings {
    let given: HashMap<&str, String> = payments.settings().into_iter().collect();
    let value = |name: &str| given.get(name).cloned();
    PaymentSettings {
        payment_secret_key: value("PAYMENT_SECRET_KEY").map(Into::into),
        payment_webhook_secret: value("PAYMENT_WEBHOOK_SECRET").map(Into::into),
        payment_price_scout: value("PAYMENT_PRICE_SCOUT"),
        payment_price_operator: value("PAYMENT_PRICE_OPERATOR"),
        payment_price_overlord: value("PAYMENT_PRICE_OVERLORD"),
        payment_price_scout_yearly: value("PAYMENT_PRICE_SCOUT_YEARLY"),
        payment_price_operator_yearly: value("PAYMENT_PRICE_OPERATOR_YEARLY"),
        payment_price_overlord_yearly: value("PAYMENT_PRICE_OVERLORD_YEARLY"),
        payment_api_url: payments.url(),
        ..defaults
    }
}

/// The settings of a service whose bot is known to this platform.
fn chat_settings(chat: &ChatService, defaults: ChatSettings) -> ChatSettings {
    let given: HashMap<&str, String> = chat.settings().into_iter().collect();
    let value = |name: &str| given.get(name).cloned();
    ChatSettings {
        chat_api_url: value("CHAT_API_URL").unwrap_or(defaults.chat_api_url),
        chat_bot_token: value("CHAT_BOT_TOKEN").map(Into::into),
        chat_application_id: value("CHAT_APPLICATION_ID"),
        chat_public_key: value("CHAT_PUBLIC_KEY"),
    }
}

/// A checkout of the demo user; the address of its page.
async fn open_checkout(context: &ApiContext, user: &UserId) -> Result<Option<String>, DemoError> {
    let Some(billing) = &context.billing else { return Ok(None) };
    let id = user.clone();
    let user = context.pool.read(move |db| users::find(db, &id)?.ok_or(DbError::NotFound)).await?;
    let key = context.random.hex::<16>();
    let plan = Plan { tier: Tier::Operator, interval: BillingInterval::Month };
    let Some(wanted) = billing.prices.sold(plan) else { return Ok(None) };
    match checkout::open_checkout(billing, &user, &wanted, &context.urls.frontend, &key).await {
        Err(CheckoutError::Subscribed) => Ok(None),
        opened => Ok(Some(opened?.url)),
    }
}

/// Presses "pair" in the game and at every device, and waits until the pushes have arrived.
async fn pair(
    context: &ApiContext,
    user: &UserId,
    game: &GameServer,
    pushes: &PushService,
    devices: &[(String, DeviceKind, String)],
) -> Result<DemoServer, DemoError> {
    let entities: Vec<u64> = devices.iter().filter_map(|(id, ..)| id.parse().ok()).collect();
    game.pair(TEAM[0].0, &entities);
    let arrived = timeout(PAIRING_DEADLINE, pushes.until(|pushes| pushes.unacknowledged(DEMO_ANDROID_ID) == 0)).await;
    arrived.map_err(|_| DemoError::Pairing)?;
    let (user, port) = (user.clone(), game.addr().port());
    let servers = context.pool.read(move |db| paired_servers::list_for(db, &user)).await?;
    let server = servers.into_iter().find(|server| server.port == port).ok_or(DemoError::Pairing)?;
    Ok(DemoServer { id: server.id, name: server.name })
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
