//! What was answered with success is on disk: the real binary is killed in the middle of a burst of writes, and what
//! it had answered is there when it comes back.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use clap::Parser as _;
use companion::{
    api::context::ApiContext,
    clock::Clock,
    config::{Config, Settings},
    db::{sessions, users},
    domain::ids::{PlatformId, SessionId, UserId},
    server::Server,
};
use futures_util::future::join_all;
use reqwest::{Client, Method, header::COOKIE};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

const ROUNDS: usize = 6;
/// Users who write at the same time; each may pair 50 servers.
const USERS: usize = 4;
const SEED: u64 = 20_261_121;

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    settings: Settings,
}

fn flags(directory: &TempDir) -> Vec<String> {
    vec![
        "--app-env=development".to_owned(),
        format!("--data-dir={}", directory.path().display()),
        format!("--database-url=sqlite:{}", directory.path().join("killed.db").display()),
        "--api-listen=127.0.0.1:0".to_owned(),
        "--relay-listen=127.0.0.1:0".to_owned(),
        "--push-address=127.0.0.1:9".to_owned(),
        "--workers=2".to_owned(),
        // Nothing is dialled: it is the writes that count.
        "--game-link-policy=subscribed".to_owned(),
    ]
}

/// The service as a process of its own; killed when dropped.
struct Service {
    process: Child,
    base: String,
}

impl Service {
    fn start(directory: &TempDir) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_companion"))
            .env_clear()
            .current_dir(directory.path())
            .arg("serve")
            .args(flags(directory))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        let listens = lines.find(|line| line.contains("the API listens on")).expect("it starts");
        let base = listens.rsplit(' ').next().unwrap().to_owned();
        // Somebody must read on, or the service waits for room in the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, base }
    }

    fn kill(&mut self) {
        // SIGKILL: no handler, no flush. It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Signs users in behind the service's back; their cookies.
async fn sign_in(directory: &TempDir) -> Vec<String> {
    let flags = std::iter::once("companion".to_owned()).chain(flags(directory));
    let config = Config::check(Flags::parse_from(flags).settings).unwrap();
    let server = Server::build(config, Clock::system()).unwrap();
    let mut cookies = Vec::new();
    for user in 0..USERS {
        cookies.push(session(server.context(), 76_561_198_000_000_001 + user as u64).await);
    }
    server.run_until_stopped(std::future::ready(())).await.unwrap();
    cookies
}

async fn session(context: &ApiContext, platform_id: u64) -> String {
    let (user, session, now) = (new_id::<UserId>(), new_id::<SessionId>(), context.clock.now());
    let cookie = format!("{}={}", context.session_cookie.name(), context.session_cookie.seal(session.as_str()));
    context
        .pool
        .write(move |db| {
            let user = users::sign_in(db, &user, &PlatformId::from(platform_id.to_string()), None, now)?;
            sessions::insert(db, &session, &user.id, now)
        })
        .await
        .unwrap();
    cookie
}

fn new_id<T: From<String>>() -> T {
    Uuid::now_v7().to_string().into()
}

/// What one user was told: the paired servers with the devices that are there, none = answered as deleted.
type Told = BTreeMap<String, Option<Vec<String>>>;

/// A user who writes for as long as the service answers.
struct Writer {
    http: Client,
    base: String,
    cookie: String,
    told: Told,
    /// Servers whose deletion was asked for and not answered: either is right.
    asked_to_delete: Vec<String>,
    port: u16,
}

impl Writer {
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        let request = self.http.request(method, format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        let bytes = answer.bytes().await.ok()?;
        Some((status, if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).ok()? }))
    }

    /// Pairs a server, adds two devices, and deletes every third one; none once the service is dead.
    async fn write(&mut self, answered: &(impl Fn() + ?Sized)) -> Option<()> {
        self.port += 1;
        let pairing = json!({
            "address": "play.example.com", "port": self.port, "playerId": "76561198000000001", "playerToken": 1
        });
        let (status, server) = self.ask(Method::POST, "/paired-servers", Some(pairing)).await?;
        assert_eq!(status, 201, "{server}");
        let server = server["id"].as_str().unwrap().to_owned();
        self.told.insert(server.clone(), Some(Vec::new()));
        answered();
        for device in 1..=2 {
            let path = format!("/paired-servers/{server}/devices");
            let (status, told) = self.ask(Method::POST, &path, Some(json!({ "entityId": device }))).await?;
            assert_eq!(status, 201, "{told}");
            self.told.get_mut(&server).unwrap().as_mut().unwrap().push(device.to_string());
            answered();
        }
        if self.port.is_multiple_of(3) {
            self.asked_to_delete.push(server.clone());
            let (status, told) = self.ask(Method::DELETE, &format!("/paired-servers/{server}"), None).await?;
            assert_eq!(status, 204, "{told}");
            self.asked_to_delete.pop();
            self.told.insert(server, None);
            answered();
        }
        Some(())
    }

    /// Everything that was answered with success is there, and what was deleted is not.
    async fn check(&mut self) {
        let (_, listed) = self.ask(Method::GET, "/paired-servers", None).await.expect("it is back");
        let listed: Vec<&str> =
            listed["servers"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap()).collect();
        for (server, devices) in &self.told {
            if self.asked_to_delete.contains(server) {
                continue;
            }
            assert_eq!(listed.contains(&server.as_str()), devices.is_some(), "{server}");
            let Some(devices) = devices else { continue };
            let path = format!("/paired-servers/{server}/devices");
            let (_, kept) = self.ask(Method::GET, &path, None).await.expect("it is back");
            let kept = kept["devices"].as_array().unwrap();
            for device in devices {
                assert!(kept.iter().any(|kept| kept["deviceId"] == device.as_str()), "{device} of {server}");
            }
        }
    }

    /// Makes room for the next round.
    async fn clear(&mut self) {
        let (_, listed) = self.ask(Method::GET, "/paired-servers", None).await.expect("it is back");
        for server in listed["servers"].as_array().unwrap() {
            let path = format!("/paired-servers/{}", server["id"].as_str().unwrap());
            assert_eq!(self.ask(Method::DELETE, &path, None).await.expect("it answers").0, 204);
        }
        self.told.clear();
        self.asked_to_delete.clear();
    }
}

#[actix_web::test]
async fn nothing_that_was_answered_is_lost_when_the_process_is_killed() {
    let directory = TempDir::new().unwrap();
    let cookies = sign_in(&directory).await;
    let http = Client::builder()
        .tls_backend_preconfigured(companion::clients::http::tls_config(None).unwrap())
        .build()
        .unwrap();
    let mut writers: Vec<Writer> = cookies
        .into_iter()
        .map(|cookie| Writer {
            http: http.clone(),
            base: String::new(),
            cookie,
            told: Told::new(),
            asked_to_delete: Vec::new(),
            port: 0,
        })
        .collect();
    let mut random = SEED;
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let kill_after = 1 + (random >> 33) as usize % 60;
        let service = Arc::new(Mutex::new(Service::start(&directory)));
        let answers = Arc::new(AtomicUsize::new(0));
        let base = service.lock().unwrap().base.clone();
        let burst = writers.iter_mut().map(|writer| {
            writer.base.clone_from(&base);
            let (service, answers) = (service.clone(), answers.clone());
            // Whoever gets the answer of that number kills, while the requests of the others are under way.
            let answered = move || {
                if answers.fetch_add(1, Ordering::Relaxed) + 1 == kill_after {
                    service.lock().unwrap().kill();
                }
            };
            async move { while writer.write(&answered).await.is_some() {} }
        });
        join_all(burst).await;
        assert!(answers.load(Ordering::Relaxed) >= kill_after, "round {round}: it died too early");
        acknowledged += answers.load(Ordering::Relaxed);
        drop(service);

        let again = Service::start(&directory);
        for writer in &mut writers {
            writer.base.clone_from(&again.base);
            writer.check().await;
            writer.clear().await;
        }
    }
    assert!(acknowledged >= ROUNDS, "{acknowledged} answers in all");
}
