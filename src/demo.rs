//! `companion demo`: the service and its neighbours in one process, with a signed-in user, a paired game server and
//! smart devices, ready to watch. Needs no account, key, network or file.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use chrono::{TimeDelta, Utc};
use clap::{ArgMatches, Args as _, Command, FromArgMatches as _, builder::Resettable};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    api::state::AppState,
    clock::Clock,
    config::{self, Config, Faults, Settings},
    db::{
        error::DbError,
        paired_servers,
        push_credentials::{self, SealedBundle},
        sessions,
        users::{self, Profile},
    },
    domain::{
        ids::{PlatformId, ServerId, SessionId, UserId},
        server_state::DeviceKind,
    },
    push::{credentials, worker::CredentialChanged},
    server::{Server, StartError},
    simulator::{
        self,
        game_server::{GameServer, GameServerOptions},
        identity::IdentityProvider,
        push_service::{DEMO_ANDROID_ID, DEMO_SECURITY_TOKEN, PushService},
        world::{SimulatedDevice, SimulatedWorld, TEAM},
    },
};

/// The simulated game server, as its pushes name it.
const SERVER_NAME: &str = "Demo Island";
const CREDENTIAL_LIFE: TimeDelta = TimeDelta::days(14);
/// A pairing takes a login and a few messages on this machine.
const PAIRING_DEADLINE: Duration = Duration::from_secs(15);

/// How to run the demo.
#[derive(clap::Args)]
pub struct DemoOptions {
    /// Decides what happens in the simulated world
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Port of the API; the relay, the game server, the identity provider and the push service take the next four. 0 takes free ones
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Where everything is kept [default: a temporary directory that goes with the demo]
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("{0}")]
    Settings(#[from] Faults),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("the database: {0}")]
    Database(#[from] DbError),
    #[error("the pairing did not arrive")]
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

/// What scripts need to know of a running demo: `demo.json` in its data directory, readable by its owner only.
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
    /// Removed when dropped.
    _temporary: Option<TempDir>,
}

impl Demo {
    /// Starts everything. Call it inside an actix system.
    pub async fn start(options: DemoOptions) -> Result<Self, DemoError> {
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

        let world = SimulatedWorld::new(options.seed, Utc::now());
        let game = GameServerOptions { listen: listen(2), ..GameServerOptions::new(world) };
        let game = GameServer::start(game).await.map_err(DemoError::io(taken(listen(2))))?;
        let identity = IdentityProvider::start(listen(3), simulator::persons()).await;
        let identity = identity.map_err(DemoError::io(taken(listen(3))))?;

        let pushes = PushService::start(listen(4), vec![(DEMO_ANDROID_ID, DEMO_SECURITY_TOKEN)]).await;
        let pushes = Arc::new(pushes.map_err(DemoError::io(taken(listen(4))))?);
        let ca_file = data_dir.join("push-ca.pem");
        let written = config::create_private_dir(&data_dir).and_then(|()| fs::write(&ca_file, pushes.ca_pem()));
        written.map_err(DemoError::io(ca_file.display().to_string()))?;

        let mut settings = default_settings();
        settings.push_address = pushes.addr().to_string();
        settings.extra_ca_file = Some(ca_file);
        settings.data_dir = data_dir.clone();
        settings.api_listen = listen(0).to_string();
        settings.relay_listen = listen(1).to_string();
        settings.identity_login_url = identity.login_url();
        settings.identity_claimed_id_prefix = identity.claimed_id_prefix();
        settings.platform_api_url = identity.platform_api_url();
        settings.platform_api_key = Some("simulated".to_owned().into());
        settings.allow_private_game_servers = "true".to_owned();
        let config = Config::check(settings)?;
        let server = Server::build(config, Clock::system())?;

        let devices: Vec<_> = game.world(|world| {
            world.devices().map(|(id, name, device)| (id.to_string(), kind(device), name.to_owned())).collect()
        });
        let user = furnish(server.state()).await?;
        server.state().push.do_send(CredentialChanged { user: user.clone() });
        game.push_through(pushes.clone(), SERVER_NAME, HashMap::from([(TEAM[0].0, DEMO_ANDROID_ID)]));
        let paired = pair(server.state(), &user, &game, &pushes, &devices).await?;
        let file = DemoFile {
            api_url: server.state().config.urls.base.clone(),
            relay_url: server.state().config.urls.relay.clone(),
            sign_in_url: format!("{}/auth/platform", server.state().config.urls.base),
            cookie: sign_in(server.state(), &user).await?,
            servers: vec![paired],
        };
        let path = data_dir.join("demo.json");
        write(&path, &file).map_err(DemoError::io(path.display().to_string()))?;
        Ok(Self { server, file, path, game, devices, _identity: identity, _temporary: temporary })
    }

    /// Where to look and what to try, for a person.
    pub fn print_steps(&self) -> io::Result<()> {
        let DemoFile { api_url, relay_url, sign_in_url, cookie, servers } = &self.file;
        let (demo, server) = (self.path.display(), &servers[0]);
        let switch = self.devices.iter().find(|(_, kind, _)| *kind == DeviceKind::Switch).map(|(id, ..)| id.as_str());
        let mut out = io::stdout().lock();
        writeln!(out, "\nThe demo runs. Game server \"{}\" is paired; its world lives.\n", server.name)?;
        writeln!(out, "  HTTP API   {api_url}   (described at {api_url}/openapi.json)")?;
        writeln!(out, "  Relay      {relay_url}/v1")?;
        writeln!(out, "  Sign in    {sign_in_url}   (in a browser, one click)\n")?;
        writeln!(out, "In another terminal, in this directory:\n")?;
        writeln!(out, "  Watch live: the map moves, a raid within half a minute")?;
        writeln!(out, "    cargo run --release -- watch {demo}")?;
        if let Some(switch) = switch {
            writeln!(out, "  Switch a light and see it come back as a patch")?;
            writeln!(out, "    cargo run --release -- watch {demo} --toggle {switch}")?;
        }
        writeln!(out, "  Ask the API")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/me")?;
        writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/paired-servers")?;
        writeln!(
            out,
            "  A token for a WebSocket client of your own; then send {{\"type\":\"subscribe\",\"serverId\":\"{}\"}}",
            server.id
        )?;
        writeln!(out, "    curl -s -X POST -H 'Cookie: {cookie}' {api_url}/relay/token")?;
        writeln!(out, "\nScripts find all this in {demo}. Ctrl-C ends the demo.\n")?;
        out.flush()
    }

    /// Serves until `shutdown` ends.
    pub async fn run_until_stopped(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        self.server.run_until_stopped(shutdown).await
    }
}

/// The settings as they are without an environment: a demo must not touch what the shell is set up for.
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

/// The demo user, with a push credential as a helper device would upload it.
async fn furnish(state: &AppState) -> Result<UserId, DbError> {
    let (sealer, now) = (state.sealer.clone(), state.clock.now());
    state
        .pool
        .write(move |db| {
            let (platform_id, name) = TEAM[0];
            let profile = Profile { display_name: name.to_owned(), avatar_url: None };
            let platform = PlatformId::from(platform_id.to_string());
            let user = users::sign_in(db, &new_id(), &platform, Some(&profile), now)?.id;
            let bundle = json!({
                "platformId": platform_id.to_string(),
                "fcm_credentials": { "gcm": {
                    "androidId": DEMO_ANDROID_ID.to_string(), "securityToken": DEMO_SECURITY_TOKEN.to_string(),
                } },
            });
            let sealed = sealer.seal(&credentials::place(&user), bundle.to_string().as_bytes());
            let (key_version, expires_at) = (sealer.key_version(), now + CREDENTIAL_LIFE);
            let bundle = SealedBundle { sealed, key_version, uploaded_at: now, expires_at };
            push_credentials::upload(db, &user, &bundle)?;
            Ok(user)
        })
        .await
}

/// Presses "pair" in the game and at every device, and waits until the pushes have arrived.
async fn pair(
    state: &AppState,
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
    let servers = state.pool.read(move |db| paired_servers::list_for(db, &user)).await?;
    let server = servers.into_iter().find(|server| server.port == port).ok_or(DemoError::Pairing)?;
    Ok(DemoServer { id: server.id, name: server.name })
}

async fn sign_in(state: &AppState, user: &UserId) -> Result<String, DbError> {
    let (id, user, now) = (new_id::<SessionId>(), user.clone(), state.clock.now());
    let cookie = format!("{}={}", state.session_cookie.name(), state.session_cookie.seal(id.as_str()));
    state.pool.write(move |db| sessions::insert(db, &id, &user, now)).await?;
    Ok(cookie)
}

fn new_id<T: From<String>>() -> T {
    Uuid::now_v7().to_string().into()
}

fn write(path: &Path, file: &DemoFile) -> io::Result<()> {
    let text = serde_json::to_string_pretty(file)?;
    if let Some(directory) = path.parent() {
        config::create_private_dir(directory)?;
    }
    // The cookie in it is a key: nobody else may read it, also when an earlier file was readable.
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}
