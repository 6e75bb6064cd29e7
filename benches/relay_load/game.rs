//! Game servers whose worlds are still but for their ordered broadcasts, on a thread of this process.

use std::{
    cell::RefCell,
    net::{Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use companion::game::wire::{
    AppBroadcast, AppEntityChanged, AppEntityInfo, AppEntityPayload, AppEntityType, AppError, AppInfo, AppMap,
    AppMapMarkers, AppMarker, AppMarkerType, AppMessage, AppRequest, AppResponse, AppTeamChanged, AppTeamChat,
    AppTeamInfo, AppTime, app_team_info::Member,
};
use futures_util::{SinkExt as _, StreamExt as _, future::join_all};
use prost::Message as _;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{accept_async, tungstenite::Message};

use crate::process::Result;

/// The paired player, who is the whole team.
pub const PLAYER: u64 = 76_561_197_960_265_728;

pub struct Game {
    pub address: SocketAddr,
    broadcasts: mpsc::UnboundedSender<Vec<AppBroadcast>>,
    is_known: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Game {
    pub fn start(markers: u64) -> Result<Self> {
        Ok(Self::start_several(1, markers)?.remove(0))
    }

    /// This many, all on one thread.
    pub fn start_several(count: usize, markers: u64) -> Result<Vec<Self>> {
        let (mut games, mut worlds) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let (broadcasts, waiting) = mpsc::unbounded_channel();
            let (is_known, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
            let name = RefCell::new("Nobody".to_owned());
            let world = World { markers, name, is_known: is_known.clone(), asked: asked.clone() };
            worlds.push((listener, world, waiting));
            games.push(Self { address, broadcasts, is_known, asked });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || {
            let serve = |(listener, world, waiting): (std::net::TcpListener, World, Waiting)| async move {
                let served = async {
                    let listener = TcpListener::from_std(listener)?;
                    world.serve(&listener, waiting).await
                };
                if let Err(error) = served.await {
                    eprintln!("the game server has ended: {error}");
                }
            };
            runtime.block_on(join_all(worlds.into_iter().map(serve)));
        });
        Ok(games)
    }

    /// True if the service has asked for all that there is.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Number of requests to it.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// The player's name changes to each of these numbers, one broadcast for each, all at once.
    pub fn rename(&self, names: RangeInclusive<u64>) -> Result<()> {
        let renamed = |name: u64| {
            let team_changed = Some(AppTeamChanged { player_id: PLAYER, team_info: team(name.to_string()) });
            AppBroadcast { team_changed, ..Default::default() }
        };
        Ok(self.broadcasts.send(names.map(renamed).collect())?)
    }

    /// Power reaches this alarm.
    pub fn fire(&self, alarm: u64) -> Result<()> {
        let payload = AppEntityPayload { value: Some(true), ..Default::default() };
        let entity_changed = Some(AppEntityChanged { entity_id: alarm, payload });
        Ok(self.broadcasts.send(vec![AppBroadcast { entity_changed, ..Default::default() }])?)
    }
}

fn team(name: String) -> AppTeamInfo {
    let player = Member {
        steam_id: PLAYER,
        name,
        x: 1_000.0,
        y: 1_000.0,
        spawn_time: 1_790_000_000,
        is_alive: true,
        ..Default::default()
    };
    AppTeamInfo { leader_steam_id: PLAYER, members: vec![player], ..Default::default() }
}

struct World {
    markers: u64,
    /// The player's.
    name: RefCell<String>,
    is_known: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl World {
    /// One link after the other, until the bench drops its end.
    async fn serve(&self, listener: &TcpListener, mut waiting: Waiting) -> Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            // The service may be gone, or connect again.
            if self.talk(stream, &mut waiting).await.is_ok() {
                return Ok(());
            }
        }
    }

    async fn talk(&self, stream: TcpStream, waiting: &mut Waiting) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut socket = accept_async(stream).await?;
        loop {
            tokio::select! {
                message = socket.next() => if let Message::Binary(request) = message.ok_or("it is closed")?? {
                    let response = Some(self.answer(&AppRequest::decode(request)?));
                    let answer = AppMessage { response, ..Default::default() };
                    socket.send(Message::Binary(answer.encode_to_vec().into())).await?;
                },
                broadcasts = waiting.recv() => {
                    let Some(broadcasts) = broadcasts else { return Ok(()) };
                    for broadcast in broadcasts {
                        if let Some(changed) = &broadcast.team_changed {
                            self.name.replace(changed.team_info.members[0].name.clone());
                        }
                        let message = AppMessage { broadcast: Some(broadcast), ..Default::default() };
                        socket.feed(Message::Binary(message.encode_to_vec().into())).await?;
                    }
                    socket.flush().await?;
                }
            }
        }
    }

    fn answer(&self, request: &AppRequest) -> AppResponse {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = AppResponse { seq: request.seq, ..Default::default() };
        if request.get_map_markers.is_some() {
            let markers = (0..self.markers).map(shop).collect();
            AppResponse { map_markers: Some(AppMapMarkers { markers }), ..answer }
        } else if request.get_team_info.is_some() {
            // This is the last of the requests after a connect.
            self.is_known.store(true, Ordering::Relaxed);
            AppResponse { team_info: Some(team(self.name.borrow().clone())), ..answer }
        } else if request.get_time.is_some() {
            let time =
                AppTime { day_length_minutes: 60.0, sunrise: 6.0, sunset: 18.0, time: 12.0, ..Default::default() };
            AppResponse { time: Some(time), ..answer }
        } else if request.get_info.is_some() {
            let info = AppInfo {
                name: "Bench".to_owned(),
                map: "Procedural Map".to_owned(),
                map_size: 4_000,
                wipe_time: 1_790_000_000,
                max_players: 200,
                ..Default::default()
            };
            AppResponse { info: Some(info), ..answer }
        } else if request.get_entity_info.is_some() {
            let payload = AppEntityPayload { value: Some(false), ..Default::default() };
            let alarm = AppEntityInfo { r#type: AppEntityType::Alarm as i32, payload };
            AppResponse { entity_info: Some(alarm), ..answer }
        } else if request.get_map.is_some() {
            // Without a picture.
            AppResponse { map: Some(AppMap { width: 2_000, height: 2_000, ..Default::default() }), ..answer }
        } else if request.get_team_chat.is_some() {
            AppResponse { team_chat: Some(AppTeamChat::default()), ..answer }
        } else {
            AppResponse { error: Some(AppError { error: "no_clan".to_owned() }), ..answer }
        }
    }
}

type Waiting = mpsc::UnboundedReceiver<Vec<AppBroadcast>>;

fn shop(id: u64) -> AppMarker {
    AppMarker {
        id: id + 1,
        r#type: AppMarkerType::VendingMachineMarker as i32,
        x: (id * 37 % 4_000) as f32,
        y: (id * 61 % 4_000) as f32,
        name: Some(format!("Shop {id}")),
        out_of_stock: Some(false),
        ..Default::default()
    }
}
