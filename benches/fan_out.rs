//! The real relay, loaded: what a connection costs, and how long news take from the game connection to a socket.
//!
//! ```text
//! cargo bench --bench fan_out -- [CLIENTS]       idle and paced and saturated clients, 1 000 unless said
//! cargo bench --bench fan_out -- slow [CLIENTS]  clients that never read, in a world of 10 000 markers
//! ```
//!
//! The service runs in this process with one worker thread, its clients in a second process (so `ulimit -n` must exceed
//! the number of clients). News enter where the game link hands over what it has learnt; each carries the time at which
//! it did, so that a client knows how old it is. Prints figures, asserts nothing about them.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    cell::RefCell,
    collections::HashMap,
    env, fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    rc::Rc,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use actix::Addr;
use companion::{
    clock::Clock,
    config::Config,
    crypto::relay_token::RelayClaims,
    db::{
        paired_servers::{self, StoredPairing},
        sessions, smart_devices,
        users::{self, StoredProfile},
    },
    demo::default_settings,
    domain::{
        device::DeviceKind,
        ids::{PlatformId, ServerId, SessionId, UserId},
        limits::CONNECTIONS_PER_USER,
    },
    game::wire::{AppBroadcast, AppEntityChanged, AppEntityPayload, AppMapMarkers, AppMarker, AppMarkerType},
    relay::{
        game_connection::{GameConnection, SetWatchers},
        link_supervisor::LinkReport,
        live_state::{GameUpdate, PairedDevice},
        publication::AllowedUsers,
        server_lookup::FindServer,
    },
    server::Server,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
};

mod process;

use process::{Beside, Processor, Result, resident};

/// Within the permitted 4 patches a second.
const PACE: Duration = Duration::from_millis(300);
/// Far beyond it.
const SATURATION: Duration = Duration::from_millis(50);
/// Alarms that go off, each an incident of its own.
const RAIDS: usize = 20;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["clients", address, server, tokens, kind] => {
            clients(address.parse()?, server, &fs::read_to_string(tokens)?, kind)
        }
        _ if !env::args().any(|argument| argument == "--bench") => Ok(()), // run as a test: nothing to measure
        ["slow"] => slow(1_000),
        ["slow", count] => slow(count.parse()?),
        [] => fan_out(1_000),
        [count] => fan_out(count.parse()?),
        _ => Err("see the head of benches/fan_out.rs".into()),
    }
}

fn fan_out(count: usize) -> Result<()> {
    let limit = limit(count)?;
    let relay = Relay::start(count, 100)?;
    let mut clients = relay.clients(0..count, "reading")?;
    relay.let_watch(&mut clients)?;
    let before = resident()?;
    let connected: f64 = clients.ask("go")?.parse()?;
    let subscribed: f64 = clients.line()?.parse()?;
    thread::sleep(Duration::from_secs(3));
    let each = (resident()? - before) / count as f64;
    println!("{count} clients, one worker thread");
    println!("  connections/s              {:>9.0}", count as f64 / connected);
    println!("  all have their snapshot    {:>9.0} ms", subscribed * 1e3);
    println!("  resident per idle client   {each:>9.2} KiB");

    let mut phase = |name: &str, every: Duration, raids: bool| -> Result<()> {
        clients.ask("report")?;
        let (before, start) = (Processor::so_far()?, Instant::now());
        relay.live(Duration::from_secs(20), every, raids);
        let (cpu, elapsed) = (Processor::since(before)?.total(), start.elapsed().as_secs_f64());
        let report = Report::read(&clients.ask("report")?)?;
        println!("  {name}, a change every {} ms", every.as_millis());
        println!("    deliveries               {:>9}", report.frames);
        println!("    frames/s per client      {:>9.2}", report.frames as f64 / elapsed / count as f64);
        let each = cpu * 1e6 / report.frames as f64;
        println!("    CPU per delivery         {each:>9.2} µs, {:.2} of the limit", limit / each);
        println!("    of a core                {:>9.2}", cpu / elapsed);
        println!("    patch, change to socket  {}", report.patches);
        if raids {
            println!("    raid, alarm to socket    {}", report.raids);
        }
        Ok(())
    };
    phase("paced", PACE, false)?;
    phase("saturated", SATURATION, true)
}

/// Processor time in µs of one delivery that is nothing but one write to one socket, and prints how long it takes.
fn limit(count: usize) -> Result<f64> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let directory = TempDir::with_prefix("companion-bench-")?;
    let tokens = vec!["none"; count];
    let mut clients = clients_beside(directory.path(), listener.local_addr()?, "none", &tokens, "bare")?;
    clients.say("go")?;
    let mut streams = Vec::with_capacity(count);
    while streams.len() < count {
        streams.push(listener.accept()?.0);
    }
    clients.line()?;
    clients.line()?;
    let (before, start) = (Processor::so_far()?, Instant::now());
    for update in 1..=20 {
        thread::sleep((PACE * update).saturating_sub(start.elapsed()));
        // As long as the relay's patch for one marker.
        let text = format!(r#"{{"type":"patch","pad":"{:90}","steamId","value":"{}"}}"#, "", stamp());
        let frame = [&[0x81, 126], &(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
        for stream in &mut streams {
            stream.write_all(&frame)?;
        }
    }
    let cpu = Processor::since(before)?.total();
    thread::sleep(PACE);
    let report = Report::read(&clients.ask("report")?)?;
    let each = cpu * 1e6 / report.frames as f64;
    println!("the limit: one write to each of {count} sockets, every {} ms", PACE.as_millis());
    println!("    CPU per delivery         {each:>9.2} µs");
    println!("    update to socket         {}", report.patches);
    Ok(each)
}

fn slow(count: usize) -> Result<()> {
    const READERS: usize = 100;
    let relay = Relay::start(READERS + count, 10_000)?;
    let mut readers = relay.clients(0..READERS, "reading")?;
    relay.let_watch(&mut readers)?;
    readers.ask("go")?;
    readers.line()?;
    let mut latency = |name: &str| -> Result<()> {
        readers.ask("report")?;
        relay.live(Duration::from_secs(8), PACE, false);
        println!("  readers {name:<19} {}", Report::read(&readers.ask("report")?)?.patches);
        Ok(())
    };
    println!("{count} clients that never read, {READERS} that do, 10 000 markers");
    latency("alone")?;
    let (before, kernel) = (resident()?, kernel_memory()?);
    let mut stuck = relay.clients(READERS..READERS + count, "stuck")?;
    stuck.ask("go")?;
    let opened = Instant::now();
    latency("with them")?;
    let each = |now: f64, before: f64| (now - before) / count as f64;
    println!("  resident per stuck client  {:>9.2} KiB", each(resident()?, before));
    println!("  of the kernel, both ends   {:>9.2} KiB", each(kernel_memory()?, kernel));
    while relay.active()? > READERS + 1 {
        thread::sleep(Duration::from_millis(100));
    }
    println!("  closed after               {:>9.1} s", opened.elapsed().as_secs_f64());
    latency("after them")?;
    println!("  resident per stuck client  {:>9.2} KiB after them", each(resident()?, before));
    Ok(())
}

/// The service in threads of its own, with a paired server, and users who may watch it.
struct Relay {
    address: SocketAddr,
    server: ServerId,
    connection: Addr<GameConnection>,
    users: Vec<UserId>,
    /// The owner's token, then as many for every user as may connect.
    tokens: Vec<String>,
    markers: u64,
    directory: TempDir,
}

impl Relay {
    fn start(clients: usize, markers: u64) -> Result<Self> {
        let (ready, started) = mpsc::channel();
        thread::spawn(move || {
            actix::System::new().block_on(async move {
                match Self::build(clients, markers).await {
                    Ok((relay, server)) => {
                        ready.send(Ok(relay)).expect("the bench waits");
                        server.run_until_stopped(std::future::pending()).await.expect("the service runs");
                    }
                    Err(error) => ready.send(Err(error)).expect("the bench waits"),
                }
            });
        });
        let relay = started.recv()??;
        relay.markers(0);
        Ok(relay)
    }

    async fn build(clients: usize, markers: u64) -> Result<(Self, Server)> {
        let directory = TempDir::with_prefix("companion-bench-")?;
        let mut settings = default_settings();
        settings.database.data_dir = directory.path().to_owned();
        settings.listen.api_listen = "127.0.0.1:0".to_owned();
        settings.listen.relay_listen = "127.0.0.1:0".to_owned();
        settings.listen.workers = Some("1".to_owned());
        // Clients of one address may have half of the files that may be open; these come through a proxy.
        settings.listen.trusted_proxies = Some("127.0.0.1".to_owned());
        let config = Config::check(settings).map_err(|faults| faults.to_string())?;
        let server = Server::build(config, Clock::system())?;
        let context = server.context();
        let now = context.clock.now();
        let users: Vec<UserId> =
            (0..=clients.div_ceil(CONNECTIONS_PER_USER)).map(|n| UserId::from(format!("user-{n}"))).collect();
        let (all, vault) = (users.clone(), context.vault.clone());
        let id = ServerId::from("01929f3a-7b1c-7def-8123-456789abcdef");
        let paired = id.clone();
        let write = context.pool.write(move |db| {
            for (n, user) in all.iter().enumerate() {
                let profile = StoredProfile { display_name: format!("Player {n}"), avatar_url: None };
                let platform = PlatformId::from((76_561_197_960_265_728 + n as u64).to_string());
                users::sign_in(db, user, &platform, Some(&profile), now)?;
                sessions::insert(db, &SessionId::from(user.as_str()), user, now)?;
            }
            let pairing = StoredPairing {
                owner: all[0].clone(),
                game_server_id: None,
                name: "Bench".to_owned(),
                address: "127.0.0.1".to_owned(), // refused by the link: all news come from here
                port: 1,
                player_id: "76561197960265728".to_owned(),
                player_token_sealed: vault.seal_player_token(&paired, 1),
                key_version: 1,
            };
            paired_servers::put(db, &paired, &pairing, now)?;
            for alarm in 1..=RAIDS {
                smart_devices::upsert(db, &paired, &alarm.to_string(), DeviceKind::Alarm, "Alarm", now)?;
            }
            Ok(())
        });
        write.await?;
        let token = |user: &UserId| {
            let session = SessionId::from(user.as_str());
            context.relay_tokens.mint(&RelayClaims { user: user.clone(), session, overlay: None }, now).0
        };
        let each = users[1..].iter().flat_map(|user| std::iter::repeat_n(user, CONNECTIONS_PER_USER));
        let tokens = std::iter::once(&users[0]).chain(each).map(token).collect();
        let watched = server.hub().send(FindServer { server: id.clone() }).await??.ok_or("it was just paired")?;
        let address = server.relay_addr();
        Ok((Self { address, server: id, connection: watched.connection, users, tokens, markers, directory }, server))
    }

    /// A process with clients that use these of the users' tokens; the first one also opens the owner's socket.
    fn clients(&self, which: std::ops::Range<usize>, kind: &str) -> Result<Beside> {
        let owner = if which.start == 0 { &self.tokens[..1] } else { &[] };
        let tokens: Vec<&str> = owner.iter().chain(&self.tokens[1..][which]).map(String::as_str).collect();
        clients_beside(self.directory.path(), self.address, self.server.as_str(), &tokens, kind)
    }

    /// Lets everybody watch what only its owner may, as soon as the owner's socket has made the subscription.
    fn let_watch(&self, clients: &mut Beside) -> Result<()> {
        clients.line()?;
        let users = Arc::new(self.users.iter().cloned().collect());
        self.connection.do_send(SetWatchers(AllowedUsers { version: u64::MAX, users }));
        // It passes two mailboxes that nothing else fills.
        thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    /// One answer of the game server: only marker 0 has changed, and carries `stamp`.
    fn markers(&self, stamp: u64) {
        let marker = |id: u64| AppMarker {
            id: id + 1,
            r#type: AppMarkerType::VendingMachineMarker as i32,
            x: (id % 4_000) as f32,
            y: (id * 7 % 4_000) as f32,
            name: Some(format!("Shop {id}")),
            steam_id: (id == 0).then_some(stamp),
            ..Default::default()
        };
        let markers = (0..self.markers).map(marker).collect();
        self.connection.do_send(LinkReport::Update(GameUpdate::Markers(AppMapMarkers { markers })));
    }

    /// Labels the alarm with the time at which it will go off, so that its raid carries it.
    fn arm(&self, alarm: usize, due: u64) {
        let device = |id: usize| {
            let label = (id == alarm).then(|| due.to_string());
            (
                id.to_string().into(),
                PairedDevice {
                    kind: DeviceKind::Alarm,
                    name: "Alarm".to_owned(),
                    label,
                    last_value: None,
                    place: None,
                },
            )
        };
        let devices = (1..=RAIDS).map(device).collect::<HashMap<_, _>>();
        self.connection.do_send(LinkReport::Update(GameUpdate::Devices(devices)));
    }

    fn go_off(&self, alarm: usize) {
        let payload = AppEntityPayload { value: Some(true), ..Default::default() };
        let changed = AppEntityChanged { entity_id: alarm as u64, payload };
        let broadcast = AppBroadcast { entity_changed: Some(changed), ..Default::default() };
        self.connection.do_send(LinkReport::Update(GameUpdate::Broadcast(alarm as u64, Box::new(broadcast))));
    }

    /// Lets things happen for that long. Alarms go off right behind a change, when every socket is busy.
    fn live(&self, long: Duration, every: Duration, raids: bool) {
        let (start, started) = (Instant::now(), stamp());
        let changes = (long.as_micros() / every.as_micros()) as usize;
        let period = (changes / RAIDS).max(3);
        for change in 1..=changes {
            let due = every * change as u32;
            thread::sleep(due.saturating_sub(start.elapsed()));
            self.markers(stamp());
            let alarm = change / period;
            match change % period {
                0 if raids => self.arm(alarm, started + (due + every * 2).as_micros() as u64),
                2 if raids => self.go_off(alarm),
                _ => {}
            }
        }
    }

    /// Sockets that the relay counts.
    fn active(&self) -> Result<usize> {
        let mut stream = std::net::TcpStream::connect(self.address)?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
        let report: serde_json::Value = serde_json::from_str(body)?;
        Ok(report["activeConnections"].as_u64().ok_or("no count")? as usize)
    }
}

/// A process with one client for each token; `kind` is `reading`, `stuck` or `bare` (no WebSocket handshake).
fn clients_beside(directory: &Path, address: SocketAddr, server: &str, tokens: &[&str], kind: &str) -> Result<Beside> {
    let path = directory.join(kind);
    fs::write(&path, tokens.join("\n"))?;
    let path = path.to_str().ok_or("a path that is no text")?;
    Beside::start(&["clients", &address.to_string(), server, path, kind])
}

/// What the clients saw since the last report: `frames` and two distributions, one line of text.
struct Report {
    frames: u64,
    patches: String,
    raids: String,
}

impl Report {
    fn read(line: &str) -> Result<Self> {
        let mut parts = line.splitn(3, '|');
        let mut next = || parts.next().ok_or("not a report");
        Ok(Self { frames: next()?.parse()?, patches: next()?.to_owned(), raids: next()?.to_owned() })
    }
}

/// Microseconds since 1970, the same clock in both processes.
fn stamp() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// What the kernel holds in TCP buffers, KiB.
fn kernel_memory() -> Result<f64> {
    let statistics = fs::read_to_string("/proc/net/sockstat")?;
    let line = statistics.lines().find(|line| line.starts_with("TCP:")).ok_or("no TCP")?;
    let pages = line.rsplit(' ').next().ok_or("no pages")?;
    Ok(pages.parse::<f64>()? * 4.0)
}

/// The process full of clients, which connect at `go`; of reading ones the first goes ahead alone, as the owner's, and
/// says `ready` when it has its snapshot.
fn clients(relay: SocketAddr, server: &str, tokens: &str, kind: &str) -> Result<()> {
    let (reading, stuck, bare) = (kind == "reading", kind == "stuck", kind == "bare");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    let tokens: Vec<String> = tokens.lines().map(str::to_owned).collect();
    tasks.block_on(&runtime, async {
        let mut commands = tokio::io::BufReader::new(tokio::fs::File::open("/dev/stdin").await?).lines();
        let seen = Rc::new(Seen::default());
        let mut tokens = tokens.into_iter();
        if reading {
            let mut owner = connect(relay, &tokens.next().ok_or("no token")?).await?;
            subscribe(&mut owner, server).await?;
            tokio::task::spawn_local(read(owner, seen.clone()));
            seen.snapshots(1).await;
            println!("ready");
        }
        commands.next_line().await?;
        let count = tokens.len();
        let at_once = Rc::new(Semaphore::new(64));
        let start = Instant::now();
        let connecting: Vec<_> = tokens
            .map(|token| {
                let at_once = at_once.clone();
                tokio::task::spawn_local(async move {
                    let _permit = at_once.acquire().await;
                    if bare { Ok(TcpStream::connect(relay).await?) } else { connect(relay, &token).await }
                })
            })
            .collect();
        let mut streams = Vec::with_capacity(count);
        for stream in connecting {
            streams.push(stream.await??);
        }
        let connected = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let mut held = Vec::new();
        for mut stream in streams {
            if !bare {
                subscribe(&mut stream, server).await?;
            }
            if stuck {
                held.push(stream);
            } else {
                tokio::task::spawn_local(read(stream, seen.clone()));
            }
        }
        if reading {
            seen.snapshots(count + 1).await;
        }
        println!("{connected}\n{}", start.elapsed().as_secs_f64());
        while commands.next_line().await?.is_some() {
            println!("{}", seen.report());
        }
        Ok(())
    })
}

async fn connect(relay: SocketAddr, token: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(relay).await?;
    let client = Ipv4Addr::from_bits(0x0a00_0000 | u32::from(stream.local_addr()?.port()));
    let request = format!(
        "GET /v1?token={token} HTTP/1.1\r\nHost: relay\r\nX-Forwarded-For: {client}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::with_capacity(512);
    // Nothing follows the head until we subscribe.
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    if head.starts_with(b"HTTP/1.1 101") { Ok(stream) } else { Err(String::from_utf8_lossy(&head).into()) }
}

async fn subscribe(stream: &mut TcpStream, server: &str) -> io::Result<()> {
    stream.write_all(&masked(0x1, format!(r#"{{"type":"subscribe","serverId":"{server}"}}"#).as_bytes())).await
}

/// A client's frame with a short payload; a mask of zeros is a mask.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

/// What all clients have seen.
#[derive(Default)]
struct Seen {
    frames: RefCell<u64>,
    snapshots: RefCell<usize>,
    more: tokio::sync::Notify,
    /// Microseconds.
    patches: RefCell<Vec<u64>>,
    raids: RefCell<Vec<u64>>,
}

impl Seen {
    async fn snapshots(&self, count: usize) {
        while *self.snapshots.borrow() < count {
            self.more.notified().await;
        }
    }

    /// One data frame; `text` is its beginning.
    fn take(&self, text: &[u8], now: u64) {
        *self.frames.borrow_mut() += 1;
        if text.starts_with(br#"{"type":"snapshot""#) {
            *self.snapshots.borrow_mut() += 1;
            self.more.notify_one();
        }
        // The patch that shows the raid comes later, in its turn.
        let (key, ages) = match text.starts_with(br#"{"type":"raid""#) {
            true => (&b"alarmName\":\""[..], &self.raids),
            false => (&b"steamId\",\"value\":\""[..], &self.patches),
        };
        if let Some(stamp) = number_after(text, key) {
            ages.borrow_mut().push(now.saturating_sub(stamp));
        }
    }

    fn report(&self) -> String {
        let [patches, raids] = [&self.patches, &self.raids].map(|ages| distribution(ages.take()));
        format!("{}|{patches}|{raids}", self.frames.take())
    }
}

fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    let start = text.windows(key.len()).position(|window| window == key)? + key.len();
    let digits = text[start..].split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn distribution(mut ages: Vec<u64>) -> String {
    ages.sort_unstable();
    let at = |share: f64| match ages.len() {
        0 => f64::NAN,
        count => ages[((count - 1) as f64 * share) as usize] as f64 / 1e3,
    };
    format!("p50 {:>7.2} ms, p99 {:>7.2} ms, max {:>7.2} ms ({})", at(0.5), at(0.99), at(1.0), ages.len())
}

/// Reads one client's frames until its connection ends. Keeps only the beginning of each: a snapshot is large.
async fn read(mut stream: TcpStream, seen: Rc<Seen>) {
    const KEPT: usize = 8 * 1024;
    thread_local!(static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1024]));
    let mut frame = Vec::new();
    // Of the frame's payload: still to come, once its head is whole.
    let mut missing: Option<usize> = None;
    loop {
        if stream.readable().await.is_err() {
            return;
        }
        let now = stamp();
        let mut pongs = 0;
        let open = BUFFER.with_borrow_mut(|buffer| {
            let mut bytes = match stream.try_read(buffer) {
                Ok(0) => return false,
                Ok(count) => &buffer[..count],
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            };
            while !bytes.is_empty() {
                if let Some(left) = missing {
                    let (here, later) = bytes.split_at(left.min(bytes.len()));
                    frame.extend_from_slice(&here[..here.len().min(KEPT.saturating_sub(frame.len()))]);
                    (bytes, missing) = (later, Some(left - here.len()));
                } else {
                    frame.push(bytes[0]);
                    bytes = &bytes[1..];
                    missing = payload_length(&frame);
                }
                if missing == Some(0) {
                    match frame[0] & 0xf {
                        0x1 => seen.take(&frame[head_length(frame[1])..], now),
                        0x9 => pongs += 1,
                        _ => {}
                    }
                    frame.clear();
                    missing = None;
                }
            }
            true
        });
        if !open || (pongs > 0 && stream.write_all(&masked(0xa, b"")).await.is_err()) {
            return;
        }
    }
}

/// Of a server's frame, which is never masked; none while its head is not whole.
fn payload_length(head: &[u8]) -> Option<usize> {
    let length = *head.get(1)?;
    let long = head.get(2..head_length(length))?;
    match length {
        0..126 => Some(usize::from(length)),
        _ => Some(long.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))),
    }
}

fn head_length(length: u8) -> usize {
    match length {
        0..126 => 2,
        126 => 4,
        _ => 10,
    }
}
