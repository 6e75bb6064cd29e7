//! Links without a watcher: what one costs, how long it takes until all are up, and how long an alarm takes
//! meanwhile.
//!
//! ```text
//! cargo bench --bench links -- [LINKS [MARKERS]]    200 links to game servers with 50 markers unless said
//! ```
//!
//! The service runs in this process, the game servers in a second one, with the clients of a few further links, whose
//! alarms are timed from the game server to the client. Each game server has an address of its own in 127.0.0.0/8; so
//! `ulimit -n` must exceed the number of links in each process. Prints figures, asserts nothing about them.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    rc::Rc,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use actix::Addr;
use companion::{
    clock::Clock,
    config::Config,
    crypto::relay_token::RelayClaims,
    db::{
        engine::error::DbError,
        paired_servers::{self, StoredPairing},
        sessions, smart_devices,
        users::{self, StoredProfile},
    },
    demo::default_settings,
    domain::{
        device::DeviceKind,
        ids::{PlatformId, ServerId, SessionId, UserId},
        relay_access::RelayAccess,
    },
    game::wire::{
        AppBroadcast, AppEntityChanged, AppEntityInfo, AppEntityPayload, AppEntityType, AppError, AppInfo, AppMap,
        AppMapMarkers, AppMarker, AppMarkerType, AppMessage, AppRequest, AppResponse, AppTeamChat, AppTeamInfo,
        AppTime, app_map, app_marker, app_team_info,
    },
    net::descriptors,
    relay::{
        client::server_lookup::FindServer,
        hub::{CountLinks, Hub},
    },
    server::Server,
};
use futures_util::{SinkExt as _, StreamExt as _, stream};
use prost::Message as _;
use tempfile::TempDir;
use tokio::{io::AsyncBufReadExt as _, net::TcpStream};
use tokio_tungstenite::{
    accept_async_with_config, client_async,
    tungstenite::{Message, protocol::WebSocketConfig},
};

mod process;

use process::{Beside, Processor, Result, resident};

/// Links with a client, and the alarms of each.
const WATCHED: usize = 20;
const ALARMS: usize = 30;
/// Alarms of one measurement.
const SAMPLE: usize = 200;
/// Time for which links are left alone while their costs are counted.
const MINUTE: Duration = Duration::from_secs(60);
const PLAYER: u64 = 76_561_197_960_265_728;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["game-servers", markers] => game_servers(markers.parse()?),
        _ if !env::args().any(|argument| argument == "--bench") => Ok(()), // run as a test: nothing to measure
        [] => links(200, 50),
        [count] => links(count.parse()?, 50),
        [count, markers] => links(count.parse()?, markers.parse()?),
        _ => Err("see the head of benches/links.rs".into()),
    }
}

/// The address of a game server.
fn address(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x7f01_0000 + n as u32)
}

fn server_id(n: usize) -> ServerId {
    ServerId::from(format!("01929f3a-7b1c-7def-8123-{n:012x}"))
}

fn links(count: usize, markers: usize) -> Result<()> {
    let directory = TempDir::with_prefix("companion-bench-")?;
    let mut games = Beside::start(&["game-servers", &markers.to_string()])?;
    let service = Service::start(directory.path(), count, games.line()?.parse()?)?;
    println!("{count} links that no one watches, {markers} markers each; {WATCHED} links with a client");
    let clients: Vec<String> =
        service.tokens.iter().enumerate().map(|(n, token)| format!("{token} {}", server_id(n).as_str())).collect();
    let list = directory.path().join("clients");
    fs::write(&list, clients.join("\n"))?;
    games.ask(&format!("watch {} {}", service.relay, list.display()))?;
    service.wait_until_up(WATCHED)?;
    // Every device is asked once, within the game server's limits.
    thread::sleep(Duration::from_secs(15));
    println!("  alarm to client, alone     {}", games.ask("alarms 50")?);
    games.ask("requests")?;
    let alone = Processor::over(MINUTE / 3)?;
    let before = resident()?;

    let every = (count / 50).max(50);
    games.say(&format!("alarms {every}"))?;
    let start = Instant::now();
    service.open(count)?;
    service.wait_until_up(WATCHED + count)?;
    println!("  all are up after           {:>9.1} s", start.elapsed().as_secs_f64());
    println!("  alarm to client, meanwhile {}", games.line()?);
    // The first questions are behind all of them.
    thread::sleep(Duration::from_secs(15));
    games.ask("requests")?;
    let with = Processor::over(MINUTE)?;
    println!("  requests a link and minute {}", games.ask("requests")?);
    let each = |with: f64, alone: f64| (with - 3.0 * alone) * 1e3 / count as f64;
    println!(
        "  CPU per link and minute    {:>9.2} ms ({:.2} user, {:.2} system)",
        each(with.total(), alone.total()),
        each(with.user, alone.user),
        each(with.system, alone.system)
    );
    println!("  resident per link          {:>9.2} KiB", (resident()? - before) / count as f64);
    println!("  alarm to client, while all {}", games.ask("alarms 100")?);
    Ok(())
}

/// The service in threads of its own, with paired servers; the first have a client each.
struct Service {
    relay: SocketAddr,
    hub: Addr<Hub>,
    /// Tokens of the clients.
    tokens: Vec<String>,
    runtime: tokio::runtime::Runtime,
}

impl Service {
    fn start(directory: &Path, count: usize, port: u16) -> Result<Self> {
        let (ready, started) = mpsc::channel();
        let directory = directory.to_owned();
        thread::spawn(move || {
            actix::System::new().block_on(async move {
                match Self::build(&directory, WATCHED + count, port).await {
                    Ok((service, server)) => {
                        ready.send(Ok(service)).expect("the bench waits");
                        server.run_until_stopped(std::future::pending()).await.expect("the service runs");
                    }
                    Err(error) => ready.send(Err(error)).expect("the bench waits"),
                }
            });
        });
        started.recv()?
    }

    async fn build(directory: &Path, count: usize, port: u16) -> Result<(Self, Server)> {
        let mut settings = default_settings();
        settings.database.data_dir = directory.to_owned();
        settings.listen.api_listen = "127.0.0.1:0".to_owned();
        settings.listen.relay_listen = "127.0.0.1:0".to_owned();
        settings.game.allow_private_game_servers = "true".to_owned();
        let config = Config::check(settings).map_err(|faults| faults.to_string())?;
        let server = Server::build(config, Clock::system())?;
        let context = server.context();
        let (now, vault) = (context.clock.now(), context.keys.vault.clone());
        let user = |n: usize| UserId::from(format!("user-{}", n.min(WATCHED)));
        let write = context.pool.write(move |db| -> std::result::Result<_, DbError> {
            for n in 0..=WATCHED {
                let profile = StoredProfile { display_name: format!("Player {n}"), avatar_url: None };
                users::sign_in(db, &user(n), &PlatformId::from((PLAYER + n as u64).to_string()), Some(&profile), now)?;
                sessions::insert(db, &SessionId::from(user(n).as_str()), &user(n), now)?;
            }
            for n in 0..count {
                let id = server_id(n);
                let pairing = StoredPairing {
                    owner: user(n),
                    game_server_id: None,
                    name: format!("Server {n}"),
                    address: address(n).to_string(),
                    port,
                    player_id: (PLAYER + n as u64).to_string(),
                    player_token_sealed: vault.seal_player_token(&id, &address(n).to_string(), port, 1),
                    key_version: 1,
                };
                paired_servers::put(db, &id, &pairing, now)?;
                for alarm in 1..=if n < WATCHED { ALARMS } else { 1 } {
                    smart_devices::upsert(db, &id, &alarm.to_string(), DeviceKind::Alarm, "Alarm", now)?;
                }
            }
            Ok(())
        });
        write.await?;
        let token = |n: usize| {
            let session = SessionId::from(user(n).as_str());
            context.keys.relay_tokens.mint(&RelayClaims { user: user(n), session, access: RelayAccess::Session }, now).0
        };
        let tokens = (0..WATCHED).map(token).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok((Self { relay: server.relay_addr(), hub: server.hub(), tokens, runtime }, server))
    }

    /// Opens the links without a watcher, as a start does: they take turns.
    fn open(&self, count: usize) -> Result<()> {
        let find = |n| self.hub.send(FindServer { server: server_id(n) });
        self.runtime.block_on(async {
            let mut found = stream::iter(WATCHED..WATCHED + count).map(find).buffer_unordered(16);
            while let Some(found) = found.next().await {
                found??.ok_or("it was just paired")?;
            }
            Ok(())
        })
    }

    fn wait_until_up(&self, links: usize) -> Result<()> {
        loop {
            let counts = self.runtime.block_on(self.hub.send(CountLinks))?;
            if counts.by_state.iter().any(|(state, count)| *state == "connected" && *count == links) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The process with the game servers: says its port, then answers each command with a line.
fn game_servers(markers: usize) -> Result<()> {
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = process::listener(Ipv4Addr::UNSPECIFIED)?;
        println!("{}", listener.local_addr()?.port());
        let games = Rc::new(Games { answers: Answers::new(markers), ..Games::default() });
        let accepting = games.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let games = accepting.clone();
                tokio::task::spawn_local(async move {
                    // The link sees that it has ended.
                    let _ = games.serve(stream).await;
                });
            }
        });
        let mut commands = tokio::io::BufReader::new(tokio::fs::File::open("/dev/stdin").await?).lines();
        while let Some(command) = commands.next_line().await? {
            match command.split(' ').collect::<Vec<_>>()[..] {
                ["watch", relay, list] => {
                    let clients = fs::read_to_string(list)?;
                    for client in clients.lines() {
                        let (token, server) = client.split_once(' ').ok_or("no server")?;
                        games.watch(relay.parse()?, token, server).await?;
                    }
                    println!("all watch");
                }
                ["alarms", every] => println!("{}", games.alarms(Duration::from_millis(every.parse()?)).await),
                ["requests"] => println!("{}", games.requests()),
                _ => return Err("no such command".into()),
            }
        }
        Ok(())
    })
}

/// Answers, encoded but for the number of the request.
#[derive(Default)]
struct Answers {
    info: Vec<u8>,
    time: Vec<u8>,
    map: Vec<u8>,
    team: Vec<u8>,
    chat: Vec<u8>,
    clan: Vec<u8>,
    device: Vec<u8>,
    /// In one after the other the helicopter is somewhere else.
    markers: Vec<Vec<u8>>,
}

impl Answers {
    fn new(markers: usize) -> Self {
        let encode = |response: AppResponse| response.encode_to_vec().split_off(2);
        let empty = AppResponse::default;
        let info = AppInfo {
            name: "Bench".to_owned(),
            map: "Procedural Map".to_owned(),
            map_size: 4_000,
            wipe_time: 1_790_000_000,
            players: 100,
            max_players: 200,
            ..Default::default()
        };
        let time = AppTime { day_length_minutes: 60.0, sunrise: 6.0, sunset: 18.0, time: 12.0, ..Default::default() };
        let monument = |n: usize| app_map::Monument {
            token: ["lighthouse_display_name", "oil_rig_small", "harbor_display_name", "train_tunnel_display_name"]
                [n % 4]
                .to_owned(),
            x: n as f32 * 90.0,
            y: n as f32 * 70.0,
        };
        let map = AppMap {
            width: 2_000,
            height: 2_000,
            jpg_image: vec![0; 200_000].into(), // no picture: what is kept of it is not the link's
            ocean_margin: 500,
            monuments: (0..40).map(monument).collect(),
            ..Default::default()
        };
        let member = |n: u64| app_team_info::Member {
            steam_id: PLAYER + n,
            name: format!("Member {n}"),
            x: 1_000.0,
            y: 1_000.0,
            spawn_time: 1_790_000_000,
            is_alive: true,
            ..Default::default()
        };
        let team = AppTeamInfo { leader_steam_id: PLAYER, members: (0..4).map(member).collect(), ..Default::default() };
        let payload = AppEntityPayload { value: Some(false), ..Default::default() };
        let device = AppEntityInfo { r#type: AppEntityType::Alarm as i32, payload };
        let all = |moved: usize| AppMapMarkers { markers: (0..markers).map(|id| marker(id, moved)).collect() };
        Self {
            info: encode(AppResponse { info: Some(info), ..empty() }),
            time: encode(AppResponse { time: Some(time), ..empty() }),
            map: encode(AppResponse { map: Some(map), ..empty() }),
            team: encode(AppResponse { team_info: Some(team), ..empty() }),
            chat: encode(AppResponse { team_chat: Some(AppTeamChat::default()), ..empty() }),
            clan: encode(AppResponse { error: Some(AppError { error: "no_clan".to_owned() }), ..empty() }),
            device: encode(AppResponse { entity_info: Some(device), ..empty() }),
            markers: (0..16).map(|moved| encode(AppResponse { map_markers: Some(all(moved)), ..empty() })).collect(),
        }
    }
}

/// A helicopter; of the others, every second one is a shop.
fn marker(id: usize, moved: usize) -> AppMarker {
    let (x, y) = ((id * 37 % 4_000) as f32, (id * 61 % 4_000) as f32);
    if id == 0 {
        let r#type = AppMarkerType::PatrolHelicopterMarker as i32;
        return AppMarker { id: 1, r#type, x: 100.0 * moved as f32, y: 500.0, ..Default::default() };
    } else if id.is_multiple_of(2) {
        let r#type = AppMarkerType::GenericRadiusMarker as i32;
        return AppMarker { id: id as u64 + 1, r#type, x, y, radius: Some(0.5), ..Default::default() };
    }
    let order = |n: usize| app_marker::SellOrder {
        item_id: -932_201_673 + n as i32,
        quantity: 10,
        currency_id: -932_201_673,
        cost_per_item: 25 * n as i32,
        amount_in_stock: 4,
        ..Default::default()
    };
    AppMarker {
        id: id as u64 + 1,
        r#type: AppMarkerType::VendingMachineMarker as i32,
        x,
        y,
        name: Some(format!("Shop {id}")),
        out_of_stock: Some(false),
        sell_orders: (1..=3).map(order).collect(),
        ..Default::default()
    }
}

#[derive(Default)]
struct Games {
    answers: Answers,
    /// By what was asked, since the last report.
    asked: RefCell<HashMap<&'static str, usize>>,
    links: Cell<usize>,
    /// The links that have clients, to send them broadcasts.
    watched: RefCell<HashMap<IpAddr, tokio::sync::mpsc::Sender<Vec<u8>>>>,
    /// Alarms so far.
    alarms: Cell<usize>,
    sent: RefCell<HashMap<(String, String), Instant>>,
    delays: RefCell<Vec<Duration>>,
    heard: tokio::sync::Notify,
}

impl Games {
    async fn serve(&self, stream: TcpStream) -> Result<()> {
        let IpAddr::V4(own) = stream.local_addr()?.ip() else { return Err("not of this bench".into()) };
        stream.set_nodelay(true)?;
        let small = WebSocketConfig::default().read_buffer_size(1_024).write_buffer_size(0);
        let mut socket = accept_async_with_config(stream, Some(small)).await?;
        let (broadcasts, mut broadcast) = tokio::sync::mpsc::channel(4);
        if own < address(WATCHED) {
            self.watched.borrow_mut().insert(own.into(), broadcasts);
        }
        self.links.update(|links| links + 1);
        let mut moved = usize::from(own.octets()[3]);
        loop {
            let answer = tokio::select! {
                message = socket.next() => match message.ok_or("it has ended")?? {
                    Message::Binary(request) => self.answer(&AppRequest::decode(request)?, &mut moved),
                    _ => continue,
                },
                Some(broadcast) = broadcast.recv() => broadcast,
            };
            socket.send(Message::Binary(answer.into())).await?;
        }
    }

    fn answer(&self, request: &AppRequest, moved: &mut usize) -> Vec<u8> {
        let answers = &self.answers;
        let (what, answer) = if request.get_map_markers.is_some() {
            *moved += 1;
            ("markers", &answers.markers[*moved % answers.markers.len()])
        } else if request.get_team_info.is_some() {
            ("team", &answers.team)
        } else if request.get_time.is_some() {
            ("time", &answers.time)
        } else if request.get_info.is_some() {
            ("info", &answers.info)
        } else if request.get_entity_info.is_some() {
            ("device", &answers.device)
        } else if request.get_map.is_some() {
            ("map", &answers.map)
        } else if request.get_team_chat.is_some() {
            ("chat", &answers.chat)
        } else {
            ("clan", &answers.clan)
        };
        *self.asked.borrow_mut().entry(what).or_default() += 1;
        let mut seq = vec![0x08];
        prost::encoding::encode_varint(request.seq.into(), &mut seq);
        let mut message = vec![0x0a];
        prost::encoding::encode_varint((seq.len() + answer.len()) as u64, &mut message);
        [message, seq, answer.clone()].concat()
    }

    /// Requests since the last time, per link.
    fn requests(&self) -> String {
        let mut asked: Vec<_> = self.asked.take().into_iter().collect();
        asked.sort_unstable();
        let links = self.links.get() as f64;
        asked.iter().map(|(what, count)| format!("{what} {:.2}  ", *count as f64 / links)).collect()
    }

    /// A client that notes when alarms arrive.
    async fn watch(self: &Rc<Self>, relay: SocketAddr, token: &str, server: &str) -> Result<()> {
        let stream = TcpStream::connect(relay).await?;
        let (mut socket, _) = client_async(format!("ws://{relay}/v1?token={token}"), stream).await?;
        socket.send(format!(r#"{{"type":"subscribe","serverId":"{server}"}}"#).into()).await?;
        let (games, server) = (self.clone(), server.to_owned());
        tokio::task::spawn_local(async move {
            while let Some(Ok(message)) = socket.next().await {
                let Message::Text(text) = message else { continue };
                if text.starts_with(r#"{"type":"raid""#) {
                    games.hear(&server, &text);
                }
            }
        });
        Ok(())
    }

    fn hear(&self, server: &str, raid: &str) {
        let alarm = raid.split_once(r#""alarmId":""#).and_then(|(_, rest)| rest.split_once('"'));
        let key = alarm.map(|(alarm, _)| (server.to_owned(), alarm.to_owned()));
        // Further news of the same raid are none of it.
        if let Some(sent) = key.and_then(|key| self.sent.borrow_mut().remove(&key)) {
            self.delays.borrow_mut().push(sent.elapsed());
            self.heard.notify_one();
        }
    }

    /// Lets alarms go off, each once, and waits until the clients have heard of them.
    async fn alarms(&self, every: Duration) -> String {
        let mut next = tokio::time::interval(every);
        for _ in 0..SAMPLE {
            next.tick().await;
            let n = self.alarms.replace(self.alarms.get() + 1);
            let (game, alarm) = (n % WATCHED, n / WATCHED + 1);
            let payload = AppEntityPayload { value: Some(true), ..Default::default() };
            let entity_changed = Some(AppEntityChanged { entity_id: alarm as u64, payload });
            let broadcast = AppBroadcast { entity_changed, ..Default::default() };
            let message = AppMessage { broadcast: Some(broadcast), ..Default::default() }.encode_to_vec();
            let link = self.watched.borrow().get(&IpAddr::from(address(game))).cloned();
            let key = (server_id(game).as_str().to_owned(), alarm.to_string());
            self.sent.borrow_mut().insert(key, Instant::now());
            if let Some(link) = link {
                // One that has ended never hears of it.
                let _ = link.send(message).await;
            }
        }
        let all = async {
            while self.delays.borrow().len() < SAMPLE {
                self.heard.notified().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(10), all).await;
        self.sent.take();
        distribution(self.delays.take())
    }
}

fn distribution(mut delays: Vec<Duration>) -> String {
    delays.sort_unstable();
    let at = |share: f64| match delays.len() {
        0 => f64::NAN,
        count => delays[((count - 1) as f64 * share) as usize].as_secs_f64() * 1e3,
    };
    format!("p50 {:>7.2} ms, p99 {:>7.2} ms, max {:>7.2} ms ({})", at(0.5), at(0.99), at(1.0), delays.len())
}
