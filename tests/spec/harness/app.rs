//! The service, as `companion serve` builds it, on a free port.

use std::{net::SocketAddr, path::Path, sync::Arc};

use actix_web::rt;
use companion::{clock::Clock, server::Server, simulator::game_server::DEMO_TOKEN};
use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{binary, browser::Browser, canary, database::create_sqlite, helper::HelperDevice, provider::Provider};

/// The public URLs: as behind a reverse proxy, none is where the service listens.
pub const BASE: &str = "http://api.companion.test";
pub const FRONTEND: &str = "https://app.companion.test";
pub const ADMIN: &str = "https://admin.companion.test";

/// Keeps links to game servers whether or not a client watches.
pub const LINKS: &str = "--game-link-policy=always";

/// The account of an admin, and the flag that makes it one.
pub const ADA: &str = "76561198000000009";
pub const ADMINS: &str = "--admin-platform-ids=76561198000000009";

/// These flags, with `more` in place of those of the same name.
pub fn with_flags<'a>(flags: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for flag in more {
        let name = flag.split('=').next().unwrap();
        flags.retain(|known| known.split('=').next() != Some(name));
        flags.push(flag);
    }
    flags
}

pub struct TestApp {
    pub address: SocketAddr,
    pub relay: SocketAddr,
    pub clock: Clock,
    pub provider: Provider,
    http: reqwest::Client,
    flags: Vec<String>,
    directory: Arc<TempDir>,
    stop: oneshot::Sender<()>,
    stopped: JoinHandle<std::io::Result<()>>,
}

impl TestApp {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With further flags.
    pub async fn start_with(flags: &[&str]) -> Self {
        let directory = Arc::new(TempDir::new().unwrap());
        let path = directory.path().join("test.db");
        create_sqlite(&path);
        Self::start_in(directory, format!("sqlite:{}", path.display()), flags).await
    }

    /// Where simulated game servers, which are on loopback, may be paired.
    pub async fn start_beside_games() -> Self {
        Self::start_with(&["--allow-private-game-servers=true", LINKS]).await
    }

    pub async fn start_on(database_url: String, flags: &[&str]) -> Self {
        Self::start_in(Arc::new(TempDir::new().unwrap()), database_url, flags).await
    }

    /// On this data directory.
    pub async fn start_in(directory: Arc<TempDir>, database_url: String, flags: &[&str]) -> Self {
        let provider = Provider::start();
        let mut all = vec![
            "--app-env=development".to_owned(),
            format!("--data-dir={}", directory.path().display()),
            format!("--database-url={database_url}"),
            "--api-listen=127.0.0.1:0".into(),
            "--relay-listen=127.0.0.1:0".into(),
            "--workers=2".into(),
            format!("--base-url={BASE}"),
            format!("--frontend-url={FRONTEND}"),
            format!("--admin-origin={ADMIN}"),
            format!("--identity-login-url={}", provider.endpoint()),
            format!("--identity-claimed-id-prefix={}", provider.claimed_id_prefix()),
            format!("--platform-api-url={}", provider.base()),
        ];
        // A port without a listener: no test may call the real push service.
        if !flags.iter().any(|flag| flag.starts_with("--push-address=")) {
            all.push("--push-address=127.0.0.1:9".into());
        }
        // Tests that pair servers without having one connect to nothing.
        if !flags.contains(&LINKS) {
            all.push("--game-link-policy=subscribed".into());
        }
        let all = with_flags(&all, flags).into_iter().map(str::to_owned).collect();
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        Self::run(directory, all, clock, provider)
    }

    fn run(directory: Arc<TempDir>, flags: Vec<String>, clock: Clock, provider: Provider) -> Self {
        canary::log();
        canary::note_flags(&flags);
        canary::note(&DEMO_TOKEN.to_string());
        let config = binary::config(&flags);
        canary::note_secrets(&config.secrets);
        let server = Server::build(config, clock.clone()).unwrap();
        let (address, relay) = (server.api_addr(), server.relay_addr());
        let (stop, stopping) = oneshot::channel::<()>();
        let stopped = rt::spawn(server.run_until_stopped(async {
            let _ = stopping.await;
        }));
        Self { address, relay, clock, provider, http: binary::http(), flags, directory, stop, stopped }
    }

    /// Stops the service and starts it again on the same directory and database.
    pub async fn restart(self) -> Self {
        self.restart_after(|| {}).await
    }

    /// Restarts, with something done while it does not run.
    pub async fn restart_after(self, meanwhile: impl FnOnce()) -> Self {
        let Self { clock, provider, flags, directory, stop, stopped, .. } = self;
        stop.send(()).unwrap();
        stopped.await.unwrap().unwrap();
        meanwhile();
        Self::run(directory, flags, clock, provider)
    }

    /// A browser without cookies that talks to the relay's listener, which closes an idle connection after seconds: each
    /// question has its own.
    pub fn relay_browser(&self) -> Browser {
        Browser::new(binary::http(), self.relay)
    }

    /// Stops the service.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.stopped.await.unwrap().unwrap();
    }

    /// A helper device that this browser's user paired.
    pub async fn paired(&self, browser: &mut Browser) -> HelperDevice {
        let code = browser.post("/pairing/device/code", None).await.json()["code"].as_str().unwrap().to_owned();
        let mut helper = HelperDevice::new(self.browser(), "192.0.2.1");
        let answer = helper.activate(&code).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        helper
    }

    /// Locks the database, on SQLite, against every writer, until dropped.
    pub fn freeze(&self) -> SqliteConnection {
        let path = self.directory().join("test.db");
        let mut lock = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
        lock.batch_execute("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE").unwrap();
        lock
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where the relay listens.
    pub fn relay_url(&self) -> String {
        format!("ws://{}/v1", self.relay)
    }

    /// A browser without cookies.
    pub fn browser(&self) -> Browser {
        Browser::new(self.http.clone(), self.address)
    }

    /// This browser, after a restart.
    pub fn again(&self, browser: &Browser) -> Browser {
        let mut again = self.browser();
        again.cookies = browser.cookies.clone();
        again
    }

    /// A browser that signed in with this account.
    pub async fn signed_in(&self, account: &str) -> Browser {
        let mut browser = self.browser();
        let answer = self.sign_in(&mut browser, account).await;
        assert_eq!(answer.status, 302, "{}", answer.text());
        browser
    }

    /// All steps of sign-in; the answer of the callback.
    pub async fn sign_in(&self, browser: &mut Browser, account: &str) -> super::browser::Answer {
        let login = browser.get("/auth/platform").await;
        assert_eq!(login.status, 302, "{}", login.text());
        let assertion = self.provider.confirm(login.location(), account, self.clock.now());
        browser.get(&assertion.path()).await
    }
}
