//! Users without a client: what each costs, how long it takes until all are up, and how long an alarm takes
//! meanwhile.
//!
//! Above 500 lines: the service and the game servers beside it, which agree on players, teams and addresses.
//!
//! ```text
//! cargo bench --bench links -- [LINKS [MARKERS [TEAM [SETTLE]]]]    200 users, game servers with 50 markers, teams of 1
//! ```
//!
//! LINKS users have a paired server each. With TEAM, that many of them are a team: they have paired the same game
//! server, and one link reads for all of them. `-- 10000 50 1` and `-- 10000 50 5` compare 10 000 single users with
//! 2 000 teams of 5. Costs are counted SETTLE seconds after all are up, 15 unless said otherwise: maps and shops of the
//! first start are stored for minutes, and as long as `map` is among the requests, they are. `-- 10000 50 1 900` counts
//! what comes after that.
//!
//! Prints how long it takes until all are up, and until mates share links; how many links are open, on average and at
//! the most; requests, CPU, that of the threads of the database and memory, each divided by the users; and how old
//! alarms are at their clients before, meanwhile and after. Asserts nothing about the figures. Single users are measured for a minute, teams for five:
//! in that time each link that rests is made once.
//!
//! The service runs in this process, the game servers in a second one, with the clients of a few further links, whose
//! alarms are timed from the game server to the client. Each game server has an address of its own in 127.0.0.0/8; so
//! `ulimit -n` must exceed the number of links in each process: that of users, who connect before they share.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    ops::Range,
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
        hub::{CountLinks, Hub, LinkCounts},
    },
    server::Server,
};
use futures_util::{SinkExt as _, StreamExt as _, stream};
use image::{ExtendedColorType, codecs::jpeg::JpegEncoder};
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
/// Time from when all are up until then: the first questions are behind all of them.
const SETTLE: Duration = Duration::from_secs(15);
/// Name of the threads of the database.
const DATABASE: &str = "database";
/// SteamID64 of the first player.
const PLAYER: u64 = 76_561_197_960_265_728;
/// A team has at least this many members; those beyond its users do not use the service.
const MEMBERS: usize = 4;
/// The token of every player.
const TOKEN: i32 = 1;
/// Edge length in pixels of the picture of the map: small, for what is kept of it is not the link's.
const PICTURE: u32 = 400;
/// Bits of the address of the first game server.
const FIRST_ADDRESS: u32 = 0x7f01_0000;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["game-servers", markers, team] => game_servers(markers.parse()?, team.parse()?),
        _ if !env::args().any(|argument| argument == "--bench") => Ok(()), // run as a test: nothing to measure
        [] => links(200, 50, 1, SETTLE),
        [count] => links(count.parse()?, 50, 1, SETTLE),
        [count, markers] => links(count.parse()?, markers.parse()?, 1, SETTLE),
        [count, markers, team] => links(count.parse()?, markers.parse()?, team.parse::<NonZeroUsize>()?.get(), SETTLE),
        [count, markers, team, settle] => {
            let (team, settle) = (team.parse::<NonZeroUsize>()?.get(), Duration::from_secs(settle.parse()?));
            links(count.parse()?, markers.parse()?, team, settle)
        }
        _ => Err("see the head of benches/links.rs".into()),
    }
}

/// The address of a game server.
fn address(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_ADDRESS + n as u32)
}

/// The game server that a user has paired. Those with a client share none.
fn game_of(user: usize, team: usize) -> usize {
    if user < WATCHED { user } else { WATCHED + (user - WATCHED) / team }
}

/// The users who have paired a game server.
fn users_of(game: usize, team: usize) -> Range<usize> {
    if game < WATCHED {
        return game..game + 1;
    }
    let first = WATCHED + (game - WATCHED) * team;
    first..first + team
}

fn player(user: usize) -> u64 {
    PLAYER + user as u64
}

fn server_id(n: usize) -> ServerId {
    ServerId::from(format!("01929f3a-7b1c-7def-8123-{n:012x}"))
}

/// Processor time of the service, and of its threads of the database alone.
#[derive(Clone, Copy)]
struct Costs {
    all: Processor,
    database: Processor,
}

impl Costs {
    fn so_far() -> Result<Self> {
        Ok(Self { all: Processor::so_far()?, database: Processor::of_threads(DATABASE)? })
    }

    fn since(before: Self) -> Result<Self> {
        let Self { all, database } = Self::so_far()?;
        Ok(Self { all: all.minus(before.all), database: database.minus(before.database) })
    }

    fn over(span: Duration) -> Result<Self> {
        let before = Self::so_far()?;
        thread::sleep(span);
        Self::since(before)
    }
}

fn links(count: usize, markers: usize, team: usize, settle: Duration) -> Result<()> {
    let directory = TempDir::with_prefix("companion-bench-")?;
    let mut games = Beside::start(&["game-servers", &markers.to_string(), &team.to_string()])?;
    let service = Service::start(directory.path(), (count, team), games.line()?.parse()?)?;
    let teams = count.div_ceil(team);
    println!("{count} users without a client in {teams} teams, {markers} markers each; {WATCHED} users with a client");
    let clients: Vec<String> =
        service.tokens.iter().enumerate().map(|(n, token)| format!("{token} {}", server_id(n).as_str())).collect();
    let list = directory.path().join("clients");
    fs::write(&list, clients.join("\n"))?;
    games.ask(&format!("watch {} {}", service.relay, list.display()))?;
    service.wait_until_up(WATCHED)?;
    // Every device is asked once, within the game server's limits.
    thread::sleep(Duration::from_secs(15));
    println!("  alarm to client, alone     {}", games.ask("alarms 50")?);
    games.ask("requests 1")?;
    let alone = Costs::over(MINUTE / 3)?;
    let before = resident()?;

    let every = (count / 50).max(50);
    games.say(&format!("alarms {every}"))?;
    let start = Instant::now();
    service.open(count)?;
    service.wait_until_up(WATCHED + count)?;
    println!("  all are up after           {:>9.1} s", start.elapsed().as_secs_f64());
    println!("  alarm to client, meanwhile {}", games.line()?);
    if team > 1 {
        service.wait_until_shared(count - teams)?;
        println!("  mates share links after    {:>9.1} s", start.elapsed().as_secs_f64());
    }
    println!("  costs are counted          {:>9} s later", settle.as_secs());
    thread::sleep(settle);
    count_costs(&service, &mut games, (count, team), alone)?;
    println!("  resident per user          {:>9.2} KiB", (resident()? - before) / count as f64);
    println!("  alarm to client, while all {}", games.ask("alarms 100")?);
    Ok(())
}

/// Links, requests and CPU of these users for some minutes; `alone`: the costs of a third of one without them.
fn count_costs(service: &Service, games: &mut Beside, (count, team): (usize, usize), alone: Costs) -> Result<()> {
    games.ask("requests 1")?;
    let minutes = if team == 1 { 1 } else { 5 };
    let (began, mut open) = (Costs::so_far()?, Vec::new());
    for _ in 0..6 * minutes {
        thread::sleep(MINUTE / 6);
        open.push(service.counts()?.slots.open.saturating_sub(WATCHED));
    }
    let with = Costs::since(began)?;
    let mean = open.iter().sum::<usize>() as f64 / open.len() as f64;
    println!("  links open                 {mean:>9.1} (at most {})", open.iter().max().unwrap_or(&0));
    let requests = games.ask(&format!("requests {}", (WATCHED + count) * minutes))?;
    println!("  requests a user and minute {requests}");
    let each = |with: f64, alone: f64| (with / minutes as f64 - 3.0 * alone) * 1e3 / count as f64;
    println!(
        "  CPU per user and minute    {:>9.2} ms ({:.2} user, {:.2} system; {:.2} of the database)",
        each(with.all.total(), alone.all.total()),
        each(with.all.user, alone.all.user),
        each(with.all.system, alone.all.system),
        each(with.database.total(), alone.database.total())
    );
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
    fn start(directory: &Path, (count, team): (usize, usize), port: u16) -> Result<Self> {
        let (ready, started) = mpsc::channel();
        let directory = directory.to_owned();
        thread::spawn(move || {
            actix::System::new().block_on(async move {
                match Self::build(&directory, (WATCHED + count, team), port).await {
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

    async fn build(directory: &Path, (count, team): (usize, usize), port: u16) -> Result<(Self, Server)> {
        let mut settings = default_settings();
        settings.database.data_dir = directory.to_owned();
        settings.listen.api_listen = "127.0.0.1:0".to_owned();
        settings.listen.relay_listen = "127.0.0.1:0".to_owned();
        settings.game.allow_private_game_servers = "true".to_owned();
        let config = Config::check(settings).map_err(|faults| faults.to_string())?;
        let server = Server::build(config, Clock::system())?;
        let context = server.context();
        let (now, vault) = (context.clock.now(), context.keys.vault.clone());
        let user = |n: usize| UserId::from(format!("user-{n}"));
        let write = context.pool.write(move |db| -> std::result::Result<_, DbError> {
            for n in 0..count {
                let profile = StoredProfile { display_name: format!("Player {n}"), avatar_url: None };
                users::sign_in(db, &user(n), &PlatformId::from(player(n).to_string()), Some(&profile), now)?;
                if n < WATCHED {
                    sessions::insert(db, &SessionId::from(user(n).as_str()), &user(n), now)?;
                }
                let (id, game) = (server_id(n), address(game_of(n, team)).to_string());
                let pairing = StoredPairing {
                    owner: user(n),
                    game_server_id: None,
                    name: format!("Server {n}"),
                    player_token_sealed: vault.seal_player_token(&id, &game, port, TOKEN),
                    address: game,
                    port,
                    player_id: player(n).to_string(),
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

    fn counts(&self) -> Result<LinkCounts> {
        Ok(self.runtime.block_on(self.hub.send(CountLinks))?)
    }

    /// Waits until all but a tenth of these read over a mate's link: now and then each makes its own for some seconds.
    fn wait_until_shared(&self, servers: usize) -> Result<()> {
        while self.counts()?.shared * 10 < servers * 9 {
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn wait_until_up(&self, links: usize) -> Result<()> {
        loop {
            let counts = self.counts()?;
            if counts.by_state.iter().any(|(state, count)| *state == "connected" && *count == links) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The process with the game servers: says its port, then answers each command with a line.
fn game_servers(markers: usize, team: usize) -> Result<()> {
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = process::listener(Ipv4Addr::UNSPECIFIED)?;
        println!("{}", listener.local_addr()?.port());
        let games = Rc::new(Games { answers: Answers::new(markers), team, ..Games::default() });
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
                ["requests", parts] => println!("{}", games.requests(parts.parse()?)),
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
    chat: Vec<u8>,
    clan: Vec<u8>,
    device: Vec<u8>,
    /// In one after the other the helicopter is somewhere else.
    markers: Vec<Vec<u8>>,
}

impl Answers {
    fn new(markers: usize) -> Self {
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
            width: PICTURE,
            height: PICTURE,
            jpg_image: picture().into(),
            ocean_margin: 100,
            monuments: (0..40).map(monument).collect(),
            ..Default::default()
        };
        let payload = AppEntityPayload { value: Some(false), ..Default::default() };
        let device = AppEntityInfo { r#type: AppEntityType::Alarm as i32, payload };
        let all = |moved: usize| AppMapMarkers { markers: (0..markers).map(|id| marker(id, moved)).collect() };
        Self {
            info: encode(AppResponse { info: Some(info), ..empty() }),
            time: encode(AppResponse { time: Some(time), ..empty() }),
            map: encode(AppResponse { map: Some(map), ..empty() }),
            chat: encode(AppResponse { team_chat: Some(AppTeamChat::default()), ..empty() }),
            clan: encode(AppResponse { error: Some(AppError { error: "no_clan".to_owned() }), ..empty() }),
            device: encode(AppResponse { entity_info: Some(device), ..empty() }),
            markers: (0..16).map(|moved| encode(AppResponse { map_markers: Some(all(moved)), ..empty() })).collect(),
        }
    }
}

/// A picture of the map, of one colour. A map without one would be asked for again at each link.
fn picture() -> Vec<u8> {
    let mut jpeg = Vec::new();
    let pixels = vec![64; (PICTURE * PICTURE * 3) as usize];
    let encoded = JpegEncoder::new(&mut jpeg).encode(&pixels, PICTURE, PICTURE, ExtendedColorType::Rgb8);
    encoded.expect("a picture");
    jpeg
}

/// A response without the number of its request.
fn encode(response: AppResponse) -> Vec<u8> {
    response.encode_to_vec().split_off(2)
}

/// The answer about the team of these users, whose members are all online.
fn team_of(users: Range<usize>) -> Vec<u8> {
    let strangers = 1_000_000..1_000_000 + MEMBERS.saturating_sub(users.len());
    let member = |n: usize| app_team_info::Member {
        steam_id: player(n),
        name: format!("Member {n}"),
        x: 1_000.0,
        y: 1_000.0,
        is_online: true,
        spawn_time: 1_790_000_000,
        is_alive: true,
        ..Default::default()
    };
    let leader_steam_id = player(users.start);
    let members = users.chain(strangers).map(member).collect();
    let team = AppTeamInfo { leader_steam_id, members, ..Default::default() };
    encode(AppResponse { team_info: Some(team), ..Default::default() })
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
    /// Users in each team.
    team: usize,
    /// By what was asked, since the last report.
    asked: RefCell<HashMap<&'static str, usize>>,
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
        let users = users_of((own.to_bits() - FIRST_ADDRESS) as usize, self.team);
        let (players, team) = (player(users.start)..player(users.end), team_of(users));
        let mut moved = usize::from(own.octets()[3]);
        loop {
            let answer = tokio::select! {
                message = socket.next() => match message.ok_or("it has ended")?? {
                    Message::Binary(request) => {
                        let request = AppRequest::decode(request)?;
                        if !players.contains(&request.player_id) || request.player_token != TOKEN {
                            return Err("no player of this game server".into());
                        }
                        self.answer(&request, &team, &mut moved)
                    }
                    _ => continue,
                },
                Some(broadcast) = broadcast.recv() => broadcast,
            };
            socket.send(Message::Binary(answer.into())).await?;
        }
    }

    fn answer(&self, request: &AppRequest, team: &[u8], moved: &mut usize) -> Vec<u8> {
        let answers = &self.answers;
        let (what, answer): (_, &[u8]) = if request.get_map_markers.is_some() {
            *moved += 1;
            ("markers", &answers.markers[*moved % answers.markers.len()])
        } else if request.get_team_info.is_some() {
            ("team", team)
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
        [&message[..], &seq, answer].concat()
    }

    /// Requests since the last time, divided by this.
    fn requests(&self, parts: usize) -> String {
        let mut asked: Vec<_> = self.asked.take().into_iter().collect();
        asked.sort_unstable();
        asked.iter().map(|(what, count)| format!("{what} {:.2}  ", *count as f64 / parts as f64)).collect()
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
