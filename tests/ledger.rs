//! No alarm is lost and none is announced twice: the real binary is killed again and again, while alarms come by push
//! and link, twice and late, and sockets come, go and stop reading; then the ledger and what the sockets heard must
//! agree.
//!
//! `cargo test --test ledger -- --alarms 10000 --seed 7`; the seed decides all that is done to the service.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, ExitCode, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use chrono::{TimeDelta, Utc};
use clap::Parser as _;
use companion::{
    clock::Clock,
    config::{Config, Database, Settings},
    db::{
        paired_servers,
        pool::Pool,
        push_credentials::{self, SealedBundle},
        schema, sessions, smart_devices, users,
    },
    domain::{
        ids::{PlatformId, ServerId, SessionId, UserId},
        time::Timestamp,
    },
    push::credentials,
    server::Server,
    simulator::{
        game_server::{GameServer, GameServerOptions, Limits},
        push_service::{DEMO_ANDROID_ID as ACCOUNT, DEMO_SECURITY_TOKEN, PushService, PushedServer},
        world::{SimulatedDevice, SimulatedWorld, TEAM},
    },
};
use diesel::prelude::*;
use futures_util::{SinkExt as _, StreamExt as _, future::join_all};
use reqwest::header::COOKIE;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::{mpsc, watch},
    time::{interval, timeout},
};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};
use uuid::Uuid;

const NAME: &str = "ledger_under_fire";
const ALARMS: usize = 150;
const SEED: u64 = 20_261_121;
/// Longest wait for anything; only a run that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(90);
const STEADY: usize = 3;
/// Come and go; every second one also stops reading for a while.
const FICKLE: usize = 4;
const FIRST_ALARM: u64 = 9_000_001;
const ALARM_DEVICES: u64 = 8;
const RECURRING: [&str; 3] = ["You're getting raided!", "Roof", "Alarm 9000003"];
/// Messages that the push service holds for the service; it forgets those above a thousand.
const WAITING: usize = 300;
/// A session or link that is cut comes back later each time.
const CUTS_PER_LIFE: u32 = 2;

/// Faults that are printed one by one.
const FAULTS: usize = 20;

struct Options {
    alarms: usize,
    seed: u64,
}

/// None if another test is asked for.
fn options() -> Option<Options> {
    let mut options = Options { alarms: ALARMS, seed: SEED };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|number| number.parse().ok()).expect("a number follows");
        match arg.as_str() {
            "--alarms" => options.alarms = number() as usize,
            "--seed" => options.seed = number(),
            "--list" => return None,
            // What libtest takes a value for.
            "--test-threads" | "--format" | "--color" | "--skip" | "-Z" => drop(args.next()),
            filter if !filter.starts_with('-') && !NAME.contains(filter) => return None,
            _ => {}
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        println!("test result: ok. 0 passed, 0 failed");
        return ExitCode::SUCCESS;
    };
    println!("{NAME}: {} alarms, seed {}", options.alarms, options.seed);
    let began = Instant::now();
    let broken = actix_web::rt::System::new().block_on(run(&options));
    for fault in broken.iter().take(FAULTS) {
        println!("  {fault}");
    }
    if broken.len() > FAULTS {
        println!("  and {} more", broken.len() - FAULTS);
    }
    let (word, passed, failed) = if broken.is_empty() { ("ok", 1, 0) } else { ("FAILED", 0, 1) };
    println!("test result: {word}. {passed} passed, {failed} failed; in {:.1} s", began.elapsed().as_secs_f64());
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    settings: Settings,
}

/// Where the service of this run lives, and its neighbours.
struct Place {
    directory: TempDir,
    pushes: SocketAddr,
}

impl Place {
    fn database(&self) -> std::path::PathBuf {
        self.directory.path().join("ledger.db")
    }

    fn flags(&self) -> Vec<String> {
        vec![
            "--app-env=development".to_owned(),
            format!("--data-dir={}", self.directory.path().display()),
            format!("--database-url=sqlite:{}", self.database().display()),
            "--api-listen=127.0.0.1:0".to_owned(),
            "--relay-listen=127.0.0.1:0".to_owned(),
            format!("--push-address={}", self.pushes),
            format!("--extra-ca-file={}", self.directory.path().join("push-ca.pem").display()),
            "--allow-private-game-servers=true".to_owned(),
            "--workers=2".to_owned(),
        ]
    }
}

/// Where a running service listens.
#[derive(Clone, Debug)]
struct Addresses {
    api: String,
    relay: SocketAddr,
}

/// The service as a process of its own; killed when dropped.
struct Service {
    process: Child,
    addresses: Addresses,
}

impl Service {
    fn start(place: &Place) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_companion"))
            .env_clear()
            .current_dir(place.directory.path())
            .arg("serve")
            .args(place.flags())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut listens = |what: &str| {
            let line = lines.find(|line| line.contains(what)).expect("it starts");
            line.rsplit(' ').next().unwrap().to_owned()
        };
        let api = listens("the API listens on");
        let relay = listens("the relay listens on").trim_start_matches("ws://").parse().unwrap();
        // Somebody must read on, or the service waits for room in the pipe.
        thread::spawn(move || {
            lines
                .filter(|line| line.contains("panicked") || line.contains("ERROR"))
                .for_each(|line| println!("{line}"));
        });
        Self { process, addresses: Addresses { api, relay } }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SIGKILL: no handler, no flush. It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A user with a push credential behind the service's back; the cookie.
async fn furnish(place: &Place) -> (UserId, String) {
    let flags = std::iter::once("companion".to_owned()).chain(place.flags());
    let config = Config::check(Flags::parse_from(flags).settings).unwrap();
    let server = Server::build(config, Clock::system()).unwrap();
    let state = server.state();
    let (user, session, now) = (new_id::<UserId>(), new_id::<SessionId>(), state.clock.now());
    let cookie = format!("{}={}", state.session_cookie.name(), state.session_cookie.seal(session.as_str()));
    let sealer = state.sealer.clone();
    let user = state
        .pool
        .write(move |db| {
            let user = users::sign_in(db, &user, &PlatformId::from(TEAM[0].0.to_string()), None, now)?.id;
            sessions::insert(db, &session, &user, now)?;
            let bundle = json!({
                "platformId": TEAM[0].0.to_string(),
                "fcm_credentials": { "gcm": {
                    "androidId": ACCOUNT.to_string(), "securityToken": DEMO_SECURITY_TOKEN.to_string(),
                } },
            });
            let sealed = sealer.seal(&credentials::place(&user), bundle.to_string().as_bytes());
            let (key_version, expires_at) = (sealer.key_version(), now + TimeDelta::days(14));
            let bundle = SealedBundle { sealed, key_version, uploaded_at: now, expires_at };
            push_credentials::upload(db, &user, &bundle)?;
            Ok(user)
        })
        .await
        .unwrap();
    server.run_until_stopped(std::future::ready(())).await.unwrap();
    (user, cookie)
}

fn new_id<T: From<String>>() -> T {
    Uuid::now_v7().to_string().into()
}

/// What one client is told to do.
enum Order {
    Reconnect,
    /// Reads no more until the next order.
    Stall,
    Resume,
    /// Asks and waits for the answer, which comes after all raids.
    Sync,
}

/// What a client saw.
#[derive(Default)]
struct Seen {
    /// (incident, update).
    raids: Vec<(String, bool)>,
    /// While it was subscribed and reading; the last one may last.
    watched: Vec<(Timestamp, Option<Timestamp>)>,
    state: Option<Value>,
    synced: u32,
    faults: Vec<String>,
}

struct Client {
    orders: mpsc::UnboundedSender<Order>,
    seen: Arc<Mutex<Seen>>,
    changed: watch::Receiver<()>,
}

impl Client {
    fn start(http: &reqwest::Client, cookie: &str, server: &ServerId, up: &watch::Receiver<Option<Addresses>>) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let (change, changed) = watch::channel(());
        let seen = Arc::<Mutex<Seen>>::default();
        let dashboard = Dashboard {
            http: http.clone(),
            cookie: cookie.to_owned(),
            server: server.clone(),
            up: up.clone(),
            orders: received,
            seen: seen.clone(),
            change,
        };
        tokio::spawn(dashboard.live());
        Self { orders, seen, changed }
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("it lives as long as the run");
    }

    fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock().unwrap())
    }

    async fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let mut changed = self.changed.clone();
        let waits = async {
            while !self.seen(&holds) {
                changed.changed().await.expect("it lives as long as the run");
            }
        };
        timeout(PATIENCE, waits).await.unwrap_or_else(|_| panic!("no {what}; state: {}", self.seen(brief)));
    }
}

fn brief(seen: &Seen) -> String {
    let state = seen.state.as_ref();
    state.map_or_else(String::new, |state| format!("{} {}", state["server"], state["devices"]))
}

/// The life of a client: connects, watches, and comes back.
struct Dashboard {
    http: reqwest::Client,
    cookie: String,
    server: ServerId,
    up: watch::Receiver<Option<Addresses>>,
    orders: mpsc::UnboundedReceiver<Order>,
    seen: Arc<Mutex<Seen>>,
    change: watch::Sender<()>,
}

impl Dashboard {
    async fn live(mut self) {
        loop {
            let Ok(addresses) = self.up.wait_for(Option::is_some).await.map(|up| up.clone().expect("it is up")) else {
                return;
            };
            let socket = self.connect(&addresses).await;
            if let Some(socket) = socket {
                self.watch(socket).await;
                self.see(|seen| {
                    if let Some((_, end @ None)) = seen.watched.last_mut() {
                        *end = Some(Utc::now());
                    }
                    seen.state = None;
                });
            } else {
                // It is dead, and the next one is announced.
                let gone = |up: &Option<Addresses>| up.as_ref().is_none_or(|up| up.relay != addresses.relay);
                if self.up.wait_for(gone).await.is_err() {
                    return;
                }
            }
        }
    }

    fn see(&self, see: impl FnOnce(&mut Seen)) {
        see(&mut self.seen.lock().unwrap());
        self.change.send_replace(());
    }

    async fn connect(&self, addresses: &Addresses) -> Option<WebSocketStream<TcpStream>> {
        let minted = self.http.post(format!("{}/relay/token", addresses.api)).header(COOKIE, &self.cookie).send().await;
        let answer = minted.ok()?;
        assert_eq!(answer.status(), 200, "a token");
        let answer: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
        let token = answer["token"].as_str().expect("a token");
        let socket = TcpSocket::new_v4().unwrap();
        // Little room, so that one who does not read is soon noticed.
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let stream = socket.connect(addresses.relay).await.ok()?;
        let (mut socket, _) = client_async(format!("ws://{}/v1?token={token}", addresses.relay), stream).await.ok()?;
        let subscribe = json!({ "type": "subscribe", "serverId": self.server });
        socket.send(Message::text(subscribe.to_string())).await.ok()?;
        Some(socket)
    }

    /// Until the socket ends.
    async fn watch(&mut self, mut socket: WebSocketStream<TcpStream>) {
        loop {
            tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => self.take(&text),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
                order = self.orders.recv() => match order {
                    Some(Order::Reconnect) | None => return,
                    Some(Order::Sync) => {
                        if socket.send(Message::text(r#"{"type":"ping"}"#)).await.is_err() {
                            return;
                        }
                    }
                    Some(Order::Stall) => {
                        self.see(|seen| if let Some((_, end @ None)) = seen.watched.last_mut() {
                            *end = Some(Utc::now());
                        });
                        // What is said to one who is silent is not obeyed, only that it may go on.
                        if !matches!(self.orders.recv().await, Some(Order::Resume)) {
                            return;
                        }
                    }
                    Some(Order::Resume) => {}
                },
            }
        }
    }

    fn take(&self, text: &str) {
        let message: Value = serde_json::from_str(text).expect("JSON");
        self.see(|seen| match message["type"].as_str() {
            Some("snapshot") => {
                if seen.watched.last().is_none_or(|(_, end)| end.is_some()) {
                    seen.watched.push((Utc::now(), None));
                }
                seen.state = Some(message["state"].clone());
            }
            Some("patch") => {
                let patch = serde_json::from_value::<json_patch::Patch>(message["patch"].clone()).expect("RFC 6902");
                if let Some(state) = &mut seen.state {
                    json_patch::patch(state, &patch).expect("it fits");
                }
            }
            Some("raid") => {
                let incident = message["incident"].as_str().expect("an incident").to_owned();
                let update = message["update"].as_bool().expect("update");
                if !update && seen.raids.contains(&(incident.clone(), false)) {
                    seen.faults.push(format!("incident {incident} was announced twice to one client"));
                }
                if message["alarmId"].as_str().is_none_or(str::is_empty) {
                    seen.faults.push(format!("a raid without an alarm: {message}"));
                }
                seen.raids.push((incident, update));
            }
            Some("pong") => seen.synced += 1,
            Some("error") => seen.faults.push(format!("an error: {message}")),
            _ => {}
        });
    }
}

/// A trigger that the link must have reported: alarm, and within which time.
struct Trigger {
    alarm: u64,
    from: Timestamp,
    to: Timestamp,
}

struct Run {
    random: Random,
    place: Place,
    game: GameServer,
    pushes: Arc<PushService>,
    as_pushed: PushedServer,
    service: Option<Service>,
    up: watch::Sender<Option<Addresses>>,
    steady: Vec<Client>,
    fickle: Vec<Client>,
    /// Pushes sent, by title.
    sent: BTreeMap<String, usize>,
    pushed: usize,
    triggers: Vec<Trigger>,
    /// Those that may not be stored yet; a kill may take them.
    unsure: Vec<Trigger>,
    /// Alarms of which the game server has sent its one push; its clock stands.
    told: HashSet<u64>,
    next_alarm: u64,
    cuts: u32,
    kills: u32,
}

impl Run {
    fn push(&mut self) {
        let title = match self.random.below(4) {
            0 => RECURRING[self.random.below(RECURRING.len())].to_owned(),
            _ => format!("alarm {}", self.pushed),
        };
        self.push_titled(title);
    }

    fn push_titled(&mut self, title: String) {
        self.pushes.push(ACCOUNT, self.as_pushed.alarm(&title, "Your base is under attack!"));
        *self.sent.entry(title).or_default() += 1;
        self.pushed += 1;
    }

    fn burst(&mut self, most: usize) {
        for _ in 0..=self.random.below(most) {
            self.push();
        }
    }

    fn fire(&mut self, alarm: u64) {
        self.game.world(|world| world.fire_alarm(alarm));
        if self.told.insert(alarm) {
            *self.sent.entry(alarm_name(alarm)).or_default() += 1;
            self.pushed += 1;
        }
    }

    fn next_alarm(&mut self) -> u64 {
        self.next_alarm = (self.next_alarm + 1) % ALARM_DEVICES;
        FIRST_ALARM + self.next_alarm
    }

    /// Waits until so few pushes are not acknowledged.
    async fn drained(&self, to: usize) {
        let drained = self.pushes.until(|pushes| pushes.unacknowledged(ACCOUNT) <= to);
        timeout(PATIENCE, drained).await.unwrap_or_else(|_| {
            let (left, counts) = (self.pushes.unacknowledged(ACCOUNT), self.pushes.counts());
            panic!("{left} pushes were not taken; {counts:?}");
        });
    }

    async fn connected(&self, is: bool) {
        let change = self.pushes.until(|pushes| pushes.connected(ACCOUNT) == is);
        timeout(PATIENCE, change).await.unwrap_or_else(|_| panic!("push session up: not {is}"));
    }

    /// Waits until the link is up and all alarms are known, and off.
    async fn linked(&self) {
        let known = |seen: &Seen| {
            let Some(state) = &seen.state else { return false };
            let ready = |alarm: u64| {
                let device = &state["devices"][alarm.to_string()];
                device["reachable"] == "ok" && device["value"] == false
            };
            state["server"]["connection"] == "connected" && (FIRST_ALARM..FIRST_ALARM + ALARM_DEVICES).all(ready)
        };
        self.steady[0].until("link", known).await;
    }

    async fn seen_as(&self, alarm: u64, value: bool) {
        let is = |seen: &Seen| {
            seen.state.as_ref().is_some_and(|state| state["devices"][alarm.to_string()]["value"] == value)
        };
        self.steady[0].until("broadcast of an alarm", is).await;
    }

    /// An alarm goes off while the link is up, often with a push of the same trigger before or after.
    async fn live(&mut self) {
        self.linked().await;
        let (alarm, pushed) = (self.next_alarm(), self.random.below(3));
        if pushed == 1 {
            self.push_titled(alarm_name(alarm));
        }
        let from = Utc::now();
        self.fire(alarm);
        if pushed == 2 {
            self.push_titled(alarm_name(alarm));
        }
        self.seen_as(alarm, true).await;
        let to = Utc::now();
        self.game.world(|world| world.release_alarm(alarm));
        self.seen_as(alarm, false).await;
        self.unsure.push(Trigger { alarm, from, to });
        if self.random.below(2) == 0 {
            self.make_sure().await;
        }
    }

    /// The ledger is written in turn: what is stored before a later push stands in it.
    async fn make_sure(&mut self) {
        if !self.unsure.is_empty() {
            self.push();
        }
        self.drained(0).await;
        self.triggers.append(&mut self.unsure);
    }

    /// Kills the service at one of the moments that count, sends more meanwhile, and starts it anew.
    async fn kill(&mut self) {
        let moment = self.random.below(4);
        let most = 12;
        let heard = self.steady[0].seen(|seen| seen.raids.len());
        self.burst(most);
        let left = self.random.below(most);
        match moment {
            // In the middle of whatever it does.
            0 => {}
            // A push is stored and acknowledged: the hub may not know yet.
            1 => self.drained(left).await,
            // An alarm is told: it may not be finished yet.
            2 => {
                self.push();
                let told = self.steady[0].until("raid", |seen| seen.raids.len() > heard);
                tokio::select! {
                    () = told => {}
                    () = self.drained(0) => {}
                }
            }
            // An alarm goes off on the link, which no push may repeat.
            _ => {
                let alarm = self.next_alarm();
                self.fire(alarm);
                self.game.world(|world| world.release_alarm(alarm));
            }
        }
        self.up.send_replace(None);
        self.service = None;
        for client in &self.steady {
            client.until("end", |seen| seen.state.is_none()).await;
        }
        self.kills += 1;
        self.cuts = 0;
        self.unsure.clear();
        if self.random.below(2) == 0 {
            self.burst(6);
        }
        self.start();
    }

    fn start(&mut self) {
        let service = Service::start(&self.place);
        self.up.send_replace(Some(service.addresses.clone()));
        self.service = Some(service);
    }

    /// Cuts the push session or the link, in one of many ways.
    async fn cut(&mut self) {
        self.cuts += 1;
        if self.cuts > CUTS_PER_LIFE {
            return;
        }
        match self.random.below(4) {
            0 => {
                self.linked().await;
                // It may be back before the client is told that it was gone.
                let since = |seen: &Seen| seen.state.as_ref().map(|state| state["server"]["since"].clone());
                let before = self.steady[0].seen(since);
                self.game.drop_connections();
                let lost = |seen: &Seen| seen.state.is_some() && since(seen) != before;
                self.steady[0].until("loss of the link", lost).await;
            }
            1 => self.pushes.drop_connections(),
            2 => {
                self.connected(true).await;
                self.pushes.faults(|faults| faults.truncate = true);
                self.push();
                self.connected(false).await;
                self.pushes.faults(|faults| faults.truncate = false);
            }
            _ => {
                self.connected(true).await;
                self.pushes.faults(|faults| faults.replay = true);
                self.pushes.drop_connections();
                self.connected(true).await;
                self.pushes.faults(|faults| faults.replay = false);
            }
        }
    }

    fn bother_a_client(&mut self) {
        let which = self.random.below(FICKLE);
        let order = match self.random.below(3) {
            0 if which.is_multiple_of(2) => Order::Stall,
            1 => Order::Resume,
            _ => Order::Reconnect,
        };
        self.fickle[which].order(order);
    }

    async fn act(&mut self, most: usize) {
        match self.random.below(20) {
            0..=7 => self.burst(most),
            8..=9 => self.make_sure().await,
            10..=12 => self.live().await,
            13..=14 => self.bother_a_client(),
            15 => {
                let duplicate = self.random.below(2) == 0;
                self.pushes.faults(|faults| faults.duplicate = duplicate);
            }
            16..=17 => self.cut().await,
            _ => self.kill().await,
        }
        if self.pushes.unacknowledged(ACCOUNT) > WAITING {
            self.drained(WAITING / 4).await;
        }
    }

    /// Everything is healthy, and all that was sent has been taken, told and heard.
    async fn settle(&mut self, pool: &Pool) {
        self.pushes.faults(|faults| *faults = Default::default());
        self.fickle.iter().for_each(|client| client.order(Order::Resume));
        self.drained(0).await;
        self.linked().await;
        // The database sends no word when it changes.
        let mut looks = interval(Duration::from_millis(20));
        let finished = async {
            while unfinished(pool) > 0 {
                looks.tick().await;
            }
        };
        if timeout(PATIENCE, finished).await.is_err() {
            println!("{} alarms stay unfinished", unfinished(pool));
        }
        for client in &self.steady {
            client.order(Order::Sync);
            client.until("pong", |seen| seen.synced > 0).await;
        }
        self.up.send_replace(None);
        self.service = None;
        for client in self.steady.iter().chain(&self.fickle) {
            client.order(Order::Resume);
            client.until("end", |seen| seen.state.is_none()).await;
        }
    }
}

fn alarm_name(alarm: u64) -> String {
    format!("Alarm {alarm}")
}

/// A row of the ledger.
#[derive(Queryable)]
struct Row {
    path: String,
    alarm_id: String,
    title: String,
    state: String,
    incident: Option<String>,
    received_at: chrono::NaiveDateTime,
    sockets: Option<i64>,
    finished_at: Option<chrono::NaiveDateTime>,
}

fn rows(pool: &Pool) -> Vec<Row> {
    use schema::alarms::dsl as row;
    let columns = (
        row::path,
        row::alarm_id,
        row::title,
        row::state,
        row::incident,
        row::received_at,
        row::sockets,
        row::finished_at,
    );
    pool.read_blocking(|db| Ok(row::alarms.select(columns).order(row::received_at).load(db)?)).unwrap()
}

fn unfinished(pool: &Pool) -> i64 {
    use schema::alarms::dsl as row;
    pool.read_blocking(|db| Ok(row::alarms.filter(row::finished_at.is_null()).count().get_result(db)?)).unwrap()
}

/// What does not hold.
fn judge(run: &Run, rows: &[Row]) -> Vec<String> {
    let mut broken = Vec::new();

    let mut stored = BTreeMap::<&str, usize>::new();
    for row in rows.iter().filter(|row| row.path == "push") {
        *stored.entry(&row.title).or_default() += 1;
    }
    let titles: BTreeSet<&str> = run.sent.keys().map(String::as_str).chain(stored.keys().copied()).collect();
    for title in titles {
        let (sent, stored) = (run.sent.get(title).copied().unwrap_or(0), stored.get(title).copied().unwrap_or(0));
        if sent != stored {
            broken.push(format!("{title:?} was pushed {sent} times and stands in the ledger {stored} times"));
        }
    }

    let mut opened = HashMap::<&str, &Row>::new();
    for row in rows {
        let label = format!("{} {:?} {} of {}", row.path, row.title, row.state, row.received_at);
        if row.finished_at.is_none() {
            broken.push(format!("{label} is not finished"));
        }
        match (row.state.as_str(), &row.incident) {
            ("late" | "unmatched", None) | ("merged", Some(_)) => {}
            ("opened", Some(incident)) => {
                if opened.insert(incident, row).is_some() {
                    broken.push(format!("{label} opens an incident that another row has opened"));
                }
            }
            (_, incident) => broken.push(format!("{label} has incident {incident:?}")),
        }
    }
    let orphans =
        rows.iter().filter_map(|row| row.incident.as_deref()).filter(|incident| !opened.contains_key(incident));
    for incident in orphans.collect::<BTreeSet<_>>() {
        broken.push(format!("incident {incident} was opened by no row"));
    }

    let clients = || run.steady.iter().chain(&run.fickle);
    for client in clients() {
        client.seen(|seen| broken.extend(seen.faults.iter().cloned()));
    }
    let heard: Vec<HashSet<String>> = clients()
        .map(|client| client.seen(|seen| seen.raids.iter().map(|(incident, _)| incident.clone()).collect()))
        .collect();
    for incident in heard.iter().flatten().collect::<BTreeSet<_>>() {
        if !opened.contains_key(incident.as_str()) {
            broken.push(format!("a client heard of incident {incident}, which the ledger does not know"));
        }
    }
    for (incident, row) in &opened {
        let what = format!("incident {incident} ({} {:?}, {})", row.path, row.title, row.received_at);
        if row.sockets.is_none_or(|sockets| sockets > 0) && !heard.iter().any(|heard| heard.contains(*incident)) {
            broken.push(format!("{what} was told to {:?} sockets, and no client heard it", row.sockets));
        }
        let Some(finished) = row.finished_at else { continue };
        let (from, to) = (row.received_at.and_utc(), finished.and_utc());
        // What a fickle one had not read when it left, it did not hear.
        for (index, client) in run.steady.iter().enumerate() {
            let watched = client
                .seen(|seen| seen.watched.iter().any(|(start, end)| *start <= from && end.is_none_or(|end| to <= end)));
            if watched && !heard[index].contains(*incident) {
                broken.push(format!("{what} was not heard by client {index}, who watched all the time"));
            }
        }
    }

    for Trigger { alarm, from, to } in &run.triggers {
        let is_it = |row: &&Row| {
            let at = row.received_at.and_utc();
            row.path == "link" && row.alarm_id == alarm.to_string() && (*from..=*to).contains(&at)
        };
        match rows.iter().filter(is_it).count() {
            1 => {}
            count => broken.push(format!("alarm {alarm} of {from} on the link stands in the ledger {count} times")),
        }
    }
    broken
}

async fn run(options: &Options) -> Vec<String> {
    let alarm = || SimulatedDevice::Alarm { on: false, subscribers: BTreeSet::from([TEAM[0].0]) };
    let mut world = SimulatedWorld::new(options.seed, Utc::now());
    for id in FIRST_ALARM..FIRST_ALARM + ALARM_DEVICES {
        world.add_device(id, &alarm_name(id), alarm());
    }
    // One who comes back every second would spend the real limits in no time.
    let limits = Limits { player_tokens: (1e6, 1e6), address_tokens: (1e6, 1e6), ..Limits::default() };
    let game = GameServerOptions { time_scale: 0.0, limits, ..GameServerOptions::new(world) };
    let game = GameServer::start(game).await.unwrap();
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let pushes =
        Arc::new(PushService::start(listen, vec![(ACCOUNT, DEMO_SECURITY_TOKEN)], Clock::system()).await.unwrap());
    let place = Place { directory: TempDir::new().unwrap(), pushes: pushes.addr() };
    fs::write(place.directory.path().join("push-ca.pem"), pushes.ca_pem()).unwrap();
    // A system of its own: what the service starts within it ends with it, and no second one keeps the push session.
    let (user, cookie) = thread::scope(|scope| {
        scope.spawn(|| actix_web::rt::System::new().block_on(furnish(&place))).join().expect("it does not panic")
    });
    let pool = Pool::open(&Database::Sqlite(place.database())).unwrap();

    let devices: Vec<u64> = (FIRST_ALARM..FIRST_ALARM + ALARM_DEVICES).collect();
    game.push_through(pushes.clone(), "Island", HashMap::from([(TEAM[0].0, ACCOUNT)]));
    game.pair(TEAM[0].0, &devices);
    let service = Service::start(&place);
    let paired = timeout(PATIENCE, pushes.until(|pushes| pushes.unacknowledged(ACCOUNT) == 0)).await;
    paired.expect("the pairings arrive");
    let server = pool.read_blocking(|db| Ok(paired_servers::list_for(db, &user)?.remove(0).id)).unwrap();
    let known = pool.read_blocking(|db| smart_devices::list(db, &server)).unwrap();
    assert_eq!(known.len(), devices.len(), "all alarms are paired");

    let as_pushed = PushedServer {
        id: "5b6ad1f7-7f3c-4a53-9d7e-2f1f6a0c9e11".to_owned(),
        name: "Island".to_owned(),
        ip: game.addr().ip().to_string(),
        port: game.addr().port(),
    };
    let http = reqwest::Client::builder()
        .tls_backend_preconfigured(companion::clients::http::tls_config(None).unwrap())
        .build()
        .unwrap();
    let (up, is_up) = watch::channel(Some(service.addresses.clone()));
    let clients = |count| (0..count).map(|_| Client::start(&http, &cookie, &server, &is_up)).collect::<Vec<_>>();
    let mut run = Run {
        random: Random(options.seed),
        place,
        game,
        pushes,
        as_pushed,
        service: Some(service),
        steady: clients(STEADY),
        fickle: clients(FICKLE),
        up,
        sent: BTreeMap::new(),
        pushed: 0,
        triggers: Vec::new(),
        unsure: Vec::new(),
        told: HashSet::new(),
        next_alarm: 0,
        cuts: 0,
        kills: 0,
    };
    let watching = run.steady.iter().map(|client| client.until("snapshot", |seen| seen.state.is_some()));
    join_all(watching).await;

    let most = (options.alarms / 25).clamp(6, 60);
    let began = Instant::now();
    while run.pushed + run.triggers.len() < options.alarms {
        run.act(most).await;
    }
    run.kill().await;
    run.settle(&pool).await;
    let took = began.elapsed();

    let rows = rows(&pool);
    let count = |state: &str| rows.iter().filter(|row| row.state == state).count();
    let unheard = rows.iter().filter(|row| row.sockets == Some(0)).count();
    println!(
        "{} pushes and {} triggers on the link, {} kills, {} logins in {:.1} s; {} rows: {} opened, {} merged, {} late, {unheard} unheard",
        run.pushed,
        run.triggers.len(),
        run.kills,
        run.pushes.counts().logins,
        took.as_secs_f64(),
        rows.len(),
        count("opened"),
        count("merged"),
        count("late"),
    );
    judge(&run, &rows)
}
