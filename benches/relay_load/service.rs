//! The service: the binary of this build in a process of its own, with a paired game server in this one, and users who
//! may watch it.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, Once},
    thread,
    time::{Duration, Instant},
};

use chrono::Utc;
use companion::{
    config::Config,
    crypto::{
        keys::{KeyDerivation, Purpose},
        random::Random,
        relay_token::{RelayClaims, RelayTokens},
        sealer::Sealer,
    },
    db::{
        encryption_keys,
        engine::pool::{Db, Pool},
        paired_servers::{self, StoredPairing},
        schema::guests,
        sessions, smart_devices,
        users::{self, StoredProfile},
    },
    demo::default_settings,
    domain::{
        device::DeviceKind,
        ids::{PlatformId, ServerId, SessionId, UserId},
        limits::{CONNECTIONS_PER_USER, HANDFUL_OF_RAIDS},
        relay_access::RelayAccess,
        time::Timestamp,
    },
    vault::Vault,
};
use diesel::{ExpressionMethods as _, RunQueryDsl as _};
use rustix::process::{Pid, Signal, kill_process};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    game::{Game, PLAYER},
    process::Result,
};

/// Alarms of the server, numbered from 1, each for one raid. The messages of more in ten seconds leave room for patches,
/// which show them first.
pub const ALARMS: u64 = HANDFUL_OF_RAIDS as u64;
pub const SERVER: &str = "01929f3a-7b1c-7def-8123-456789abcdef";
const STARTS_WITHIN: Duration = Duration::from_secs(30);

pub struct Service {
    process: Child,
    pub game: Game,
    pub relay: SocketAddr,
    /// A line for each socket that its users may open. They are good for five minutes.
    pub tokens: PathBuf,
    _directory: TempDir,
}

impl Service {
    /// Starts it for this many sockets. Its world is up when this returns.
    pub fn start(sockets: usize, markers: u64, workers: usize, deflate: bool) -> Result<Self> {
        let directory = TempDir::with_prefix("companion-bench-")?;
        let data = directory.path().join("data");
        let tokens = directory.path().join("tokens");
        let game = Game::start(markers)?;
        fs::write(&tokens, prepare(&data, sockets, game.address)?.join("\n"))?;
        let log = directory.path().join("log");
        let process = Command::new(env!("CARGO_BIN_EXE_companion"))
            .arg("serve")
            .env_clear()
            .env("DATA_DIR", &data)
            .env("API_LISTEN", "127.0.0.1:0")
            .env("RELAY_LISTEN", "127.0.0.1:0")
            .env("WORKERS", workers.to_string())
            .env("RELAY_DEFLATE", deflate.to_string())
            .env("ALLOW_PRIVATE_GAME_SERVERS", "true")
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        end_with(process.id(), directory.path());
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut service = Self { process, game, relay: nowhere, tokens, _directory: directory };
        service.wait_until_up(&log).map_err(|error| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            format!("the service does not start: {error}\n{log}")
        })?;
        Ok(service)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn wait_until_up(&mut self, log: &Path) -> Result<()> {
        let start = Instant::now();
        while self.relay.port() == 0 || !self.game.is_known() {
            if let Some(status) = self.process.try_wait()? {
                return Err(status.to_string().into());
            } else if start.elapsed() > STARTS_WITHIN {
                return Err(format!("its game server was asked {} times, not for all", self.game.asked()).into());
            }
            thread::sleep(Duration::from_millis(20));
            // The last thing that it says before it serves.
            if let Some((_, address)) = fs::read_to_string(log)?.split_once("ws://") {
                self.relay = address.split_whitespace().next().unwrap_or_default().parse()?;
            }
        }
        // Time to store what it keeps of the world.
        thread::sleep(Duration::from_secs(1));
        Ok(())
    }

    /// Sockets that it counts.
    pub fn sockets(&self) -> Result<usize> {
        let mut stream = TcpStream::connect(self.relay)?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
        let report: serde_json::Value = serde_json::from_str(body)?;
        Ok(report["activeConnections"].as_u64().ok_or("no count")? as usize)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ends this process of the service, and its directory, when a signal ends us, which drops nothing. The others end by
/// themselves when their connections are gone.
fn end_with(service: u32, directory: &Path) {
    static SERVICE: Mutex<Option<(Pid, PathBuf)>> = Mutex::new(None);
    static LISTENING: Once = Once::new();
    let service = Pid::from_raw(service as i32).map(|service| (service, directory.to_owned()));
    *SERVICE.lock().expect("no one panics with it") = service;
    LISTENING.call_once(|| {
        let wait = || -> Result<()> {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                let mut terminate = signal(SignalKind::terminate())?;
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = tokio::signal::ctrl_c() => {}
                }
                if let Some((service, directory)) = &*SERVICE.lock().expect("no one panics with it") {
                    // Both may be gone.
                    let _ = kill_process(*service, Signal::KILL);
                    let _ = fs::remove_dir_all(directory);
                }
                std::process::exit(130)
            })
        };
        thread::spawn(move || wait().map_err(|error| eprintln!("signals are not heard: {error}")));
    });
}

/// Fills a new data directory; returns the tokens.
fn prepare(data: &Path, sockets: usize, game: SocketAddr) -> Result<Vec<String>> {
    let mut settings = default_settings();
    settings.database.data_dir = data.to_owned();
    // Makes the secrets, which the service finds in the directory.
    let config = Config::check(settings).map_err(|faults| faults.to_string())?;
    let (secrets, random, now) = (config.secrets, Random::system(), Timestamp::from(Utc::now()));
    let pool = Pool::open(&config.database)?;
    let fingerprint = secrets.credentials_key.fingerprint();
    let key_version = pool.write_blocking(|db| encryption_keys::take_into_use(db, &fingerprint, now))?;
    let sealer = Sealer::new(&secrets.credentials_key, None, key_version, random.clone());
    let server = ServerId::from(SERVER);
    let player_token_sealed =
        Vault::new(pool.clone(), Arc::new(sealer)).seal_player_token(&server, &game.ip().to_string(), game.port(), 1);
    let users: Vec<UserId> =
        (0..sockets.div_ceil(CONNECTIONS_PER_USER)).map(|n| UserId::from(format!("user-{n}"))).collect();
    pool.write_blocking(|db: &mut Db| {
        for (n, user) in users.iter().enumerate() {
            let profile = StoredProfile { display_name: format!("Player {n}"), avatar_url: None };
            users::sign_in(db, user, &PlatformId::from((PLAYER + n as u64).to_string()), Some(&profile), now)?;
            sessions::insert(db, &SessionId::from(user.as_str()), user, now)?;
        }
        let pairing = StoredPairing {
            owner: users[0].clone(),
            game_server_id: None,
            name: "Bench".to_owned(),
            address: game.ip().to_string(),
            port: game.port(),
            player_id: PLAYER.to_string(),
            player_token_sealed: player_token_sealed.clone(),
            key_version,
        };
        paired_servers::put(db, &server, &pairing, now)?;
        for alarm in 1..=ALARMS {
            smart_devices::upsert(db, &server, &alarm.to_string(), DeviceKind::Alarm, "Alarm", now)?;
        }
        // More than may be invited: only so do ten thousand watch one server.
        for (n, user) in users.iter().enumerate().skip(1) {
            let guest = (
                guests::id.eq(format!("guest-{n}")),
                guests::server_id.eq(SERVER),
                guests::user_id.eq(user.as_str()),
                guests::invited_at.eq(now),
                guests::since.eq(now),
            );
            diesel::insert_into(guests::table).values(guest).execute(db)?;
        }
        Ok(())
    })?;
    let keys = KeyDerivation::new(secrets.session_secret.expose_secret(), secrets.session_salt.expose_secret());
    let tokens = RelayTokens::new(&keys.key(Purpose::RelayToken), random);
    let token = |n: usize| {
        let user = users[n / CONNECTIONS_PER_USER].clone();
        let session = SessionId::from(user.as_str());
        tokens.mint(&RelayClaims { user, session, access: RelayAccess::Session }, now).0
    };
    Ok((0..sockets).map(token).collect())
}
