//! Actor: one paired game server. Started by the hub, on one of the threads for game links; owns the live state, turns
//! what its [`link_keeper`] learns into steps, events, chat and raids, and hands each, encoded
//! once, to the subscriptions. Stops when the paired server is deleted or the service drains.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use actix::prelude::*;
use bytes::Bytes;
use chrono::TimeDelta;
use futures_util::future::join_all;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    config::GameLinkPolicy,
    db::{
        alarms::{self, AlarmPath, Arrival},
        error::DbError,
        paired_servers::{self, Baseline},
        pool::Db,
    },
    domain::{
        detect::{
            Detectors, Surroundings,
            alarm::Alarms,
            wipe::{Wipe, World},
        },
        ids::ServerId,
        monument::Monument,
        plain_text::plain_text,
        raid::{Heard, Raid, Raids},
        server_state::{
            Change, ConnectionState, Device, DeviceKind, MapNote, Marker, MarkerKind, Reachable, Section, ServerState,
        },
        time::{self, Timestamp},
        world_event::{EventKind, WorldEvent},
    },
    game::{
        budget::{Priority, cost},
        link::AskError,
        reading,
        wire::{
            AppBroadcast, AppEntityInfo, AppInfo, AppMap, AppMapMarkers, AppRequest, AppSetEntityValue, AppTeamChat,
            AppTeamInfo, AppTeamMessage, AppTime,
        },
    },
    relay::{
        feed::{Position, Step},
        hub::Connection,
        link_keeper::{self, Asker, Wake},
        outbox::Lane,
        protocol::{self, ChatLine, ServerMessage},
        server_subscription::{Advance, Allow, ServerSubscription, Skipped, Snapshot, Tell},
        state::RelayState,
    },
};

/// Everything that waits here is bounded by its sender: one keeper that waits for each answer, one message per thread
/// of the relay and snapshot, commands that wait for theirs.
const MAILBOX: usize = 1_024;
const TICK: Duration = Duration::from_secs(1);
/// A command waits this long for the game server.
const COMMAND_DEADLINE: Duration = Duration::from_secs(5);
/// A tool cupboard computes its upkeep anew after its contents changed (protocol §3.4).
const UPKEEP_DELAY: Duration = Duration::from_secs(2);
/// Chat lines told in any ten seconds; a game server that sends more loses the rest, and nobody is flooded.
const CHAT_LINES: u32 = 100;
const CHAT_SPAN: TimeDelta = TimeDelta::seconds(10);
/// Lines remembered, so that none is told twice.
const CHAT_REMEMBERED: usize = 256;
/// Shops that may well vanish together, and answers without any after which more are believed to have.
const FEW_SHOPS: usize = 5;
const TRUNCATED_BELIEVED: u32 = 5;
/// How long untold alarms of a crash wait for somebody to listen; dashboards come back within a minute.
const RECOVER_AFTER: Duration = Duration::from_secs(60);
const DEATH_NOTE_LIFE: TimeDelta = TimeDelta::minutes(30);
/// An alarm is done with after this long, even if a socket has not taken it: two windows of its frames.
const WRITTEN_WITHIN: Duration = Duration::from_secs(20);
/// A blind interval shorter than this is not worth an event.
const GAP_WORTH_TELLING: TimeDelta = TimeDelta::seconds(30);

/// Watch this server from one worker thread. A snapshot comes when it is asked for.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Join {
    pub subscriber: Addr<ServerSubscription>,
}

/// Watch no longer.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Leave {
    pub subscriber: Addr<ServerSubscription>,
}

/// Send this subscriber a snapshot.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TakeSnapshot {
    pub subscriber: Addr<ServerSubscription>,
}

/// Switch a smart switch over; answers with the value seen afterwards.
#[derive(Message)]
#[rtype(result = "Result<bool, ToggleFailed>")]
pub struct Switch {
    pub device: String,
}

/// Why a switch was not switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToggleFailed {
    UnknownServer,
    UnknownDevice,
    NotASwitch,
    /// There is no link, or the game server refused.
    Unavailable,
    TimedOut,
    Internal,
}

/// A push tells of an alarm of this server; it stands in the ledger under this id already.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AlarmPushed {
    pub id: String,
    pub title: String,
}

/// Send a test alarm the whole way, from the ledger to the sockets. None if the ledger cannot be written.
#[derive(Message)]
#[rtype(result = "Option<Drilled>")]
pub struct Drill;

/// How far a test alarm came.
#[derive(Clone, Debug)]
pub struct Drilled {
    pub incident: String,
    /// Sockets it was written to.
    pub sockets: usize,
}

/// Try the link again at once; one that is up stays, unless address or credentials changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Retry {
    pub changed: bool,
}

/// The list of devices changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReloadDevices;

/// End the link and the actor.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Stop;

/// What the keeper of the link has learnt. Answered with whether the map is needed.
#[derive(Message)]
#[rtype(result = "bool")]
pub enum Learnt {
    /// The world as it was stored; comes before the link is up, or a wipe while we were away would go unseen.
    Stored(Baseline),
    /// The link is up and the token is good.
    Opened(Asker, AppInfo),
    Lost(Lost),
    Info(AppInfo),
    Time(AppTime),
    Team(AppTeamInfo),
    Chat(AppTeamChat),
    Markers(AppMapMarkers),
    Map(AppMap),
    /// The devices paired to this server, by device id.
    Devices(HashMap<Arc<str>, LearntDevice>),
    Entity {
        device: Arc<str>,
        answer: Result<Option<AppEntityInfo>, AskError>,
    },
    Broadcast(Box<AppBroadcast>),
}

/// A device as it is stored.
pub struct LearntDevice {
    pub kind: DeviceKind,
    pub name: String,
    pub label: Option<String>,
}

/// Why the link is down, and when it is tried again.
pub struct Lost {
    pub state: ConnectionState,
    pub reason: String,
    pub next_attempt_at: Timestamp,
}

/// The link of a server stands differently now. Emitted to the hub.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LinkChanged {
    pub server: ServerId,
    pub connection: Connection,
}

/// See the module.
pub struct GameConnection {
    server: ServerId,
    shared: Arc<RelayState>,
    hub: Recipient<LinkChanged>,
    subscribers: Vec<Subscriber>,
    /// Who may watch, once it has changed since the start.
    allowed: Option<Allow>,

    state: ServerState,
    position: Position,
    /// The snapshot of the current position, once somebody needed it.
    snapshot: Option<Bytes>,
    monuments: Vec<Monument>,
    /// What the monuments belong to; the map is asked for again when it changes.
    map: Option<World>,
    /// The world as it was last known, also across restarts; another one tells of a wipe.
    world: Option<World>,
    detectors: Detectors,
    alarms: Alarms,
    raids: Raids,
    /// What a crash left untold in the ledger has been seen to.
    recovered: bool,
    /// Alarms on their way from the ledger to the sockets.
    raising: HashSet<String>,
    chat: Chat,
    /// Marker answers without shops in a row.
    truncated: u32,

    link: Option<Asker>,
    keeper: Option<SpawnHandle>,
    wake: Arc<Wake>,
    /// Since when we are blind, if we ever saw.
    blind_since: Option<Timestamp>,
}

/// A frame that tells when the last socket is done with it.
struct Waiting {
    frame: Bytes,
    _until_written: oneshot::Sender<()>,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

/// Chat lines already told.
#[derive(Default)]
struct Chat {
    primed: bool,
    told: VecDeque<(u64, u32, String)>,
    window_start: Option<Timestamp>,
    in_window: u32,
}

impl Chat {
    /// Whether this line is new and may be told.
    fn admit(&mut self, line: &AppTeamMessage, now: Timestamp) -> bool {
        let key = (line.steam_id, line.time, line.message.chars().take(256).collect::<String>());
        if self.told.contains(&key) {
            return false;
        }
        self.told.push_back(key);
        if self.told.len() > CHAT_REMEMBERED {
            self.told.pop_front();
        }
        if self.window_start.is_none_or(|start| now - start >= CHAT_SPAN) {
            (self.window_start, self.in_window) = (Some(now), 0);
        }
        self.in_window += 1;
        self.in_window <= CHAT_LINES
    }
}

impl GameConnection {
    /// A connection that knows nothing yet.
    pub fn new(server: ServerId, shared: Arc<RelayState>, hub: Recipient<LinkChanged>) -> Self {
        let now = shared.clock.now();
        Self {
            state: ServerState::new(now),
            position: Position { epoch: now.timestamp_micros().unsigned_abs(), seq: 0 },
            server,
            shared,
            hub,
            subscribers: Vec::new(),
            allowed: None,
            snapshot: None,
            monuments: Vec::new(),
            map: None,
            world: None,
            detectors: Detectors::new(),
            alarms: Alarms::new(),
            raids: Raids::new(),
            recovered: false,
            raising: HashSet::new(),
            chat: Chat::default(),
            truncated: 0,
            link: None,
            keeper: None,
            wake: Arc::default(),
            blind_since: None,
        }
    }

    /// Starts or stops the keeper, as the link policy wants it.
    fn keep_or_pause(&mut self, ctx: &mut Context<Self>) {
        let wanted = self.shared.game.link_policy == GameLinkPolicy::Always || !self.subscribers.is_empty();
        match (wanted, self.keeper) {
            (true, None) => {
                let keeping =
                    link_keeper::keep(ctx.address(), self.shared.clone(), self.server.clone(), self.wake.clone());
                self.keeper = Some(ctx.spawn(keeping.into_actor(self)));
                self.set_connection(ConnectionState::Connecting, None, None);
            }
            (false, keeper) => {
                if let Some(keeper) = keeper {
                    ctx.cancel_future(keeper);
                    self.keeper = None;
                    self.close_link();
                }
                self.set_connection(ConnectionState::Paused, Some("nobody is watching".to_owned()), None);
            }
            (true, Some(_)) => {}
        }
    }

    fn close_link(&mut self) {
        let now = self.shared.clock.now();
        if self.link.take().is_some() {
            self.detectors.link_lost(now);
            self.blind_since = Some(now);
        }
    }

    fn set_connection(&mut self, state: ConnectionState, reason: Option<String>, next_attempt_at: Option<Timestamp>) {
        let now = self.shared.clock.now();
        let mut changes = Vec::new();
        self.state.edit_server(&mut changes, |server| {
            if server.connection != state {
                (server.connection, server.since) = (state, now);
            }
            server.reason = reason;
            server.next_attempt_at = next_attempt_at;
        });
        if !changes.is_empty() {
            self.hub.do_send(LinkChanged { server: self.server.clone(), connection: self.status() });
        }
        self.step(changes);
    }

    /// How the link stands.
    pub fn status(&self) -> Connection {
        let head = &self.state.server;
        Connection {
            state: head.connection,
            since: head.since,
            reason: head.reason.clone(),
            next_attempt_at: head.next_attempt_at,
        }
    }

    /// Takes one step: encoded once, handed to every thread that watches. No change, no step.
    fn step(&mut self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let base = self.position.seq;
        self.position.seq += 1;
        self.snapshot = None;
        if self.subscribers.is_empty() {
            return;
        }
        let Position { epoch, seq } = self.position;
        let frame = protocol::patch(&self.server, epoch, base, seq, &changes);
        let step = Arc::new(Step { base, seq, changes, frame });
        for subscriber in self.subscribers.iter_mut().filter(|subscriber| !subscriber.behind) {
            // A thread that is behind is not waited for: it is told once, and asks for a snapshot when it comes to it.
            if subscriber.address.try_send(Advance { epoch, step: step.clone() }).is_err() {
                subscriber.behind = true;
                subscriber.address.do_send(Skipped);
            }
        }
    }

    /// Tells all who watch. Bounded by the limits on events, chat and raids above, never dropped here.
    fn tell(&self, lane: Lane, message: &ServerMessage<'_>) {
        if self.subscribers.is_empty() {
            return;
        }
        let frame = message.frame();
        for subscriber in &self.subscribers {
            subscriber.address.do_send(Tell { lane, frame: frame.clone() });
        }
    }

    fn tell_events(&mut self, events: Vec<WorldEvent>, now: Timestamp) {
        let mut changes = Vec::new();
        // What changes in shops concerns those who watch an item, not everybody; new and closed shops do.
        let quiet = |event: &WorldEvent| event.kind == EventKind::Shop && !matches!(event.action, "opened" | "removed");
        for event in events.into_iter().filter(|event| !quiet(event)) {
            self.tell(Lane::Live, &ServerMessage::Event { server_id: &self.server, event: &event });
            if event.kind == EventKind::Death
                && let (Some(x), Some(y)) = (event.x, event.y)
            {
                let id = format!(
                    "death:{}:{}",
                    event.data.get("steamId").and_then(|id| id.as_str()).unwrap_or("?"),
                    now.timestamp_millis()
                );
                let note = MapNote {
                    x,
                    y,
                    grid: event.grid,
                    category: "death".to_owned(),
                    label: Some(event.title),
                    source: "detector",
                    author: None,
                    created_at: now,
                    expires_at: Some(now + DEATH_NOTE_LIFE),
                };
                self.state.map_notes.put(Section::MapNotes, id.into(), Some(note), &mut changes);
            }
        }
        self.step(changes);
    }

    /// Tells raids; resolves to how many sockets the last one went to, once the kernel has it for all of them: what
    /// still waits in this process would die with it.
    fn tell_raids(&self, raids: &[Raid]) -> impl Future<Output = usize> + use<> {
        let mut told = Vec::new();
        for raid in raids {
            log::info!(server = self.server.as_str(), incident = raid.incident.as_str(), count = raid.count; "raid alarm");
            let (waiting, written) = oneshot::channel();
            let frame = ServerMessage::Raid { server_id: &self.server, raid }.frame();
            let frame = Bytes::from_owner(Waiting { frame, _until_written: waiting });
            let tell = |known: &Subscriber| known.address.send(Tell { lane: Lane::Raid, frame: frame.clone() });
            told.push((self.subscribers.iter().map(tell).collect::<Vec<_>>(), written));
        }
        async move {
            let mut sockets = 0;
            for (raid, written) in told {
                // A thread whose subscription has just ended watches no longer.
                sockets = join_all(raid).await.into_iter().filter_map(Result::ok).sum();
                // It never sends, it only ends. A socket that takes longer does not read.
                let _ = timeout(WRITTEN_WITHIN, written).await;
            }
            sockets
        }
    }

    /// Writes an alarm into the ledger, then tells it, then writes down whom it reached. A ledger that cannot be
    /// written does not keep an alarm from being told. `store` answers false if somebody else has seen to the alarm.
    fn raise(
        &mut self,
        id: String,
        heard: Heard,
        store: impl FnOnce(&mut Db) -> Result<bool, DbError> + Send + 'static,
    ) -> ResponseActFuture<Self, Option<Drilled>> {
        self.raising.insert(id.clone());
        let pool = self.shared.pool.clone();
        let stored = async move { pool.write(store).await };
        Box::pin(stored.into_actor(self).then(move |stored, connection, _| {
            if let Err(error) = &stored {
                log::error!(server = connection.server.as_str(); "an alarm is told without the ledger: {error}");
            }
            let is_ours = !matches!(stored, Ok(false));
            let told = connection.tell_raids(if is_ours { &heard.tell } else { &[] });
            let (pool, clock, is_told) =
                (connection.shared.pool.clone(), connection.shared.clock.clone(), heard.opened);
            async move {
                let sockets = told.await;
                if !is_ours {
                    return (id, None);
                }
                let (now, reached) = (clock.now(), is_told.then_some(sockets));
                let row = id.clone();
                let finished = pool.write(move |db| alarms::finish(db, &row, reached, now)).await;
                if let Err(error) = &finished {
                    log::error!("an alarm stays unfinished in the ledger: {error}");
                }
                (id, stored.is_ok().then_some(Drilled { incident: heard.incident, sockets }))
            }
            .into_actor(connection)
            .map(|(id, drilled), connection, _| {
                connection.raising.remove(&id);
                drilled
            })
        }))
    }

    /// An alarm that did not come by a push, and so does not stand in the ledger yet.
    fn raise_new(
        &mut self,
        path: AlarmPath,
        alarm_id: &str,
        name: &str,
        heard: Heard,
        now: Timestamp,
    ) -> ResponseActFuture<Self, Option<Drilled>> {
        let id = uuid::Uuid::now_v7().to_string();
        let (row, server, alarm_id, title) = (id.clone(), self.server.clone(), alarm_id.to_owned(), name.to_owned());
        let (state, incident) = (state_of(&heard), heard.incident.clone());
        self.raise(id, heard, move |db| {
            let arrival = Arrival {
                id: row,
                user: paired_servers::get(db, &server)?.owner_id,
                server: Some(server),
                path,
                alarm_id,
                title,
                message: String::new(),
                state,
                incident: Some(incident),
            };
            alarms::receive(db, &arrival, now).map(|()| true)
        })
    }

    /// An alarm that stands in the ledger as received, since then.
    fn raise_pushed(&mut self, id: String, title: &str, since: Timestamp) -> ResponseActFuture<Self, Option<Drilled>> {
        let heard = self.raids.pushed(title, since, new_incident);
        let (row, state, incident) = (id.clone(), state_of(&heard), heard.incident.clone());
        self.raise(id, heard, move |db| alarms::assign(db, &row, state, &incident))
    }

    /// Sees to what a crash left unfinished, once somebody listens or nobody came for a while. An incident that may
    /// have been told already is told as an update, so that none is announced twice. Whoever comes back a little later
    /// than the first hears of it by the next update.
    fn recover(&mut self, ctx: &mut Context<Self>) {
        if std::mem::replace(&mut self.recovered, true) {
            return;
        }
        let (pool, server) = (self.shared.pool.clone(), self.server.clone());
        let rows = async move { pool.read(move |db| alarms::unfinished(db, &server)).await };
        ctx.spawn(rows.into_actor(self).map(|rows, connection, ctx| {
            let rows = rows.unwrap_or_else(|error| {
                log::error!(server = connection.server.as_str(); "unfinished alarms were not read: {error}");
                Vec::new()
            });
            for row in rows.into_iter().filter(|row| !connection.raising.contains(&row.id)).collect::<Vec<_>>() {
                let Some(incident) = row.incident else {
                    let raised = connection.raise_pushed(row.id, &row.title, row.received_at);
                    ctx.spawn(raised.map(|_, _, _| ()));
                    continue;
                };
                let opened = row.state == alarms::AlarmState::Opened.word();
                let tell = match opened {
                    true if row.path == AlarmPath::Drill.word() => vec![drill(incident.clone(), row.received_at, true)],
                    true => vec![connection.raids.restore(&incident, &row.alarm_id, &row.title, row.received_at)],
                    false => Vec::new(),
                };
                let (id, heard) = (row.id.clone(), Heard { incident, opened, tell });
                let raised = connection.raise(row.id, heard, move |db| alarms::is_unfinished(db, &id));
                ctx.spawn(raised.map(|_, _, _| ()));
            }
            connection.raids.repeat(connection.shared.clock.now());
        }));
    }

    fn map_size(&self) -> u32 {
        self.state.server.map_size.unwrap_or_default()
    }

    /// What the game server says of itself. True if the map must be asked for.
    fn learn_info(&mut self, info: &AppInfo, ctx: &mut Context<Self>) -> bool {
        let now = self.shared.clock.now();
        let seen = reading::world(info);
        let wipe = self.world.as_ref().and_then(|known| known.compare(&seen));
        let world = self.world.clone().unwrap_or_default().updated(seen);
        if self.world.as_ref() != Some(&world) {
            let (pool, server, row) = (self.shared.pool.clone(), self.server.clone(), baseline(&world));
            self.world = Some(world.clone());
            let saved = async move { pool.write(move |db| paired_servers::save_baseline(db, &server, &row)).await };
            ctx.spawn(saved.into_actor(self).map(|saved, connection, _| {
                if let Err(error) = saved {
                    log::warn!(server = connection.server.as_str(); "the map's baseline was not stored: {error}");
                }
            }));
        }
        let mut changes = Vec::new();
        self.state.edit_server(&mut changes, |server| {
            server.name = Some(plain_text(&info.name, 128)).filter(|name| !name.is_empty());
            server.map_size = Some(info.map_size).filter(|size| *size != 0);
            server.players = Some(info.players);
            server.max_players = Some(info.max_players);
            server.queued_players = Some(info.queued_players);
            server.wiped_at = time::from_unix(info.wipe_time);
        });
        self.step(changes);
        if let Some(wipe) = wipe {
            self.wiped(&wipe, now);
        }
        self.map.as_ref() != Some(&world)
    }

    /// A new map: nothing that stood on the old one is there any more.
    fn wiped(&mut self, wipe: &Wipe, now: Timestamp) {
        self.detectors.wiped();
        self.monuments.clear();
        self.map = None;
        let mut changes = Vec::new();
        self.state.map_markers.replace(Section::MapMarkers, [], &mut changes);
        self.state.map_notes.replace(Section::MapNotes, [], &mut changes);
        let gone: Vec<_> = self.state.devices.iter().map(|(id, device)| (id.clone(), Device::clone(device))).collect();
        for (id, device) in gone {
            let removed = Device { reachable: Reachable::Removed, value: None, storage: None, ..device };
            self.state.devices.put(Section::Devices, id, Some(removed), &mut changes);
        }
        self.step(changes);
        self.tell_events(vec![wipe.event(now)], now);
    }

    fn learn_time(&mut self, time: &AppTime) {
        // A tenth of an hour is what a clock face shows.
        let hour = |hour: f32| (0.0..=24.0).contains(&hour).then(|| (f64::from(hour) * 10.0).round() / 10.0);
        let mut changes = Vec::new();
        self.state.edit_server(&mut changes, |server| {
            server.hour = hour(time.time);
            server.sunrise = hour(time.sunrise);
            server.sunset = hour(time.sunset);
        });
        self.step(changes);
    }

    fn learn_team(&mut self, team: AppTeamInfo) {
        let now = self.shared.clock.now();
        let map_size = self.map_size();
        let notes = reading::notes(&team, map_size);
        let (leader, members) = reading::team(team, map_size);
        let mut changes = Vec::new();
        self.state.edit_team(&mut changes, |head| head.leader_id = leader);
        self.state.members.replace(Section::Members, members, &mut changes);
        // Notes of the game come and go with the team's answer; those of other sources stay.
        let others: Vec<_> = self.state.map_notes.iter().filter(|(_, note)| note.source != "game").collect();
        let others: Vec<_> = others.into_iter().map(|(id, note)| (id.clone(), MapNote::clone(note))).collect();
        let notes = notes.into_iter().map(|(id, seen)| {
            let id = Arc::from(id);
            let since = self.state.map_notes.get(&id).map_or(now, |note| note.created_at);
            (id, seen.since(since))
        });
        let notes: Vec<_> = others.into_iter().chain(notes).collect();
        self.state.map_notes.replace(Section::MapNotes, notes, &mut changes);
        self.step(changes);
        let around = Surroundings { map_size, monuments: &self.monuments };
        let members = self.state.members.iter().map(|(id, member)| (*id, &**member));
        let leader = self.state.team.leader_id.as_deref();
        let events = self.detectors.team(&around, leader, members, now);
        self.tell_events(events, now);
    }

    fn learn_markers(&mut self, markers: AppMapMarkers) {
        let now = self.shared.clock.now();
        let map_size = self.map_size();
        let markers = reading::markers(markers, map_size);
        if self.is_truncated(&markers) {
            return;
        }
        let mut changes = Vec::new();
        self.state.map_markers.replace(Section::MapMarkers, markers, &mut changes);
        self.step(changes);
        let around = Surroundings { map_size, monuments: &self.monuments };
        let markers = self.state.map_markers.iter().map(|(id, marker)| (*id, &**marker));
        let events = self.detectors.markers(&around, markers, now);
        self.tell_events(events, now);
    }

    /// Whether an answer has lost its shops on the way: all gone at once is not believed at first (protocol §4.1).
    fn is_truncated(&mut self, markers: &[(u64, Marker)]) -> bool {
        let is_shop = |marker: &Marker| marker.kind == MarkerKind::VendingMachine;
        let known = self.state.map_markers.iter().filter(|(_, marker)| is_shop(marker)).count();
        let truncated = known > FEW_SHOPS && !markers.iter().any(|(_, marker)| is_shop(marker));
        self.truncated = if truncated { self.truncated + 1 } else { 0 };
        (1..TRUNCATED_BELIEVED).contains(&self.truncated)
    }

    /// The first history only primes; after a gap, what was said meanwhile is told.
    fn learn_chat(&mut self, chat: AppTeamChat) {
        let mut lines = chat.messages;
        lines.sort_by_key(|line| line.time);
        let first = !std::mem::replace(&mut self.chat.primed, true);
        for line in lines {
            self.learn_line(line, !first);
        }
    }

    fn learn_line(&mut self, line: AppTeamMessage, tell: bool) {
        let now = self.shared.clock.now();
        if !self.chat.admit(&line, now) || !tell {
            return;
        }
        let ts = time::from_unix(line.time).unwrap_or(now);
        let line = ChatLine { author: plain_text(&line.name, 64), text: plain_text(&line.message, 256), ts };
        self.tell(Lane::Live, &ServerMessage::Chat { server_id: &self.server, chat: &line });
    }

    fn learn_devices(&mut self, known: HashMap<Arc<str>, LearntDevice>) {
        let devices: Vec<_> = known
            .into_iter()
            .map(|(id, known)| {
                let device = match self.state.devices.get(&id) {
                    Some(device) => Device { name: known.name, label: known.label, ..Device::clone(device) },
                    None => Device {
                        kind: known.kind,
                        name: known.name,
                        label: known.label,
                        value: None,
                        reachable: Reachable::NoResponse,
                        storage: None,
                    },
                };
                (id, device)
            })
            .collect();
        let mut changes = Vec::new();
        self.state.devices.replace(Section::Devices, devices, &mut changes);
        self.step(changes);
    }

    fn learn_entity(&mut self, id: Arc<str>, answer: Result<Option<AppEntityInfo>, AskError>, ctx: &mut Context<Self>) {
        let Some(device) = self.state.devices.get(&id) else { return };
        let mut device = Device::clone(device);
        match answer {
            Ok(Some(info)) => {
                device.kind = reading::device_kind(info.r#type);
                reading::read_payload(&mut device, info.payload);
            }
            Err(AskError::Refused(word)) if word == "not_found" => {
                device = Device { reachable: Reachable::Removed, value: None, storage: None, ..device };
            }
            Ok(None) | Err(_) => device.reachable = Reachable::NoResponse,
        }
        self.put_device(id, device, Alarms::answered, ctx);
    }

    /// Stores a device and raises the alarm if it is one that went off, by the rule for an answer or for a broadcast.
    fn put_device(
        &mut self,
        id: Arc<str>,
        device: Device,
        triggers: fn(&mut Alarms, &str, bool, Timestamp) -> bool,
        ctx: &mut Context<Self>,
    ) {
        let now = self.shared.clock.now();
        let (kind, value) = (device.kind, device.value);
        let name = device.label.clone().unwrap_or_else(|| device.name.clone());
        if kind == DeviceKind::Alarm
            && let Some(value) = value
            && triggers(&mut self.alarms, &id, value, now)
        {
            let heard = self.raids.alarm(&id, &name, now, new_incident);
            let raised = self.raise_new(AlarmPath::Link, &id, &name, heard, now);
            ctx.spawn(raised.map(|_, _, _| ()));
        }
        let mut changes = Vec::new();
        self.state.devices.put(Section::Devices, id, Some(device), &mut changes);
        self.step(changes);
    }

    fn learn_broadcast(&mut self, broadcast: AppBroadcast, ctx: &mut Context<Self>) {
        if let Some(changed) = broadcast.entity_changed {
            let id: Arc<str> = changed.entity_id.to_string().into();
            if let Some(device) = self.state.devices.get(&id) {
                let mut device = Device::clone(device);
                reading::read_payload(&mut device, changed.payload);
                let cupboard = device.storage.as_ref().is_some_and(|storage| storage.has_protection);
                self.put_device(id.clone(), device, Alarms::changed, ctx);
                if cupboard {
                    ctx.run_later(UPKEEP_DELAY, move |connection, ctx| connection.look_at(id, ctx));
                }
            }
        }
        if let Some(changed) = broadcast.team_changed {
            self.learn_team(changed.team_info);
        }
        if let Some(said) = broadcast.team_message {
            self.learn_line(said.message, true);
        }
    }

    /// Asks a device how it is.
    fn look_at(&mut self, id: Arc<str>, ctx: &mut Context<Self>) {
        let (Some(link), Ok(entity)) = (self.link.clone(), id.parse::<u64>()) else { return };
        let look = async move { link.entity(entity, Priority::EntitySync, COMMAND_DEADLINE).await };
        ctx.spawn(look.into_actor(self).map(|answer, connection, ctx| {
            if answer.is_ok() {
                connection.learn_entity(id, answer, ctx);
            }
        }));
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        let now = self.shared.clock.now();
        let updates = self.raids.tick(now);
        if !updates.is_empty() {
            let told = self.tell_raids(&updates);
            ctx.spawn(told.into_actor(self).map(|_, _, _| ()));
        }
        let events = self.detectors.tick(now);
        self.tell_events(events, now);
        let expired: Vec<_> =
            self.state.map_notes.iter().filter(|(_, note)| note.expires_at.is_some_and(|at| at <= now)).collect();
        let expired: Vec<Arc<str>> = expired.into_iter().map(|(id, _)| id.clone()).collect();
        let mut changes = Vec::new();
        for id in expired {
            self.state.map_notes.put(Section::MapNotes, id, None, &mut changes);
        }
        self.step(changes);
    }

    fn opened(&mut self, link: Asker, info: &AppInfo, ctx: &mut Context<Self>) -> bool {
        let now = self.shared.clock.now();
        self.link = Some(link);
        self.detectors.link_up(now);
        let map_wanted = self.learn_info(info, ctx);
        self.set_connection(ConnectionState::Connected, None, None);
        log::info!(server = self.server.as_str(); "connected to the game server");
        if let Some(since) = self.blind_since.take()
            && now - since >= GAP_WORTH_TELLING
        {
            let mut data = serde_json::Map::new();
            data.insert("from".to_owned(), time::to_wire(since).into());
            data.insert("to".to_owned(), time::to_wire(now).into());
            let seconds = (now - since).num_seconds();
            let gap = WorldEvent {
                kind: EventKind::Gap,
                action: "ended",
                grid: String::new(),
                x: None,
                y: None,
                ts: now,
                title: format!("No news from the game server for {seconds} s"),
                data,
            };
            self.tell_events(vec![gap], now);
        }
        map_wanted
    }
}

/// The world as it is stored.
fn baseline(world: &World) -> Baseline {
    Baseline {
        wipe_time: world.wiped_at.map(|at| at.timestamp()),
        seed: world.seed.map(i64::from),
        salt: world.salt.map(i64::from),
        map_size: world.map_size.map(i64::from),
        level_name: world.level.clone(),
    }
}

/// The world as it was stored; none if it never was.
fn world(baseline: Baseline) -> Option<World> {
    let number = |stored: Option<i64>| stored.and_then(|number| u32::try_from(number).ok());
    let world = World {
        wiped_at: number(baseline.wipe_time).and_then(time::from_unix),
        seed: number(baseline.seed),
        salt: number(baseline.salt),
        map_size: number(baseline.map_size),
        level: baseline.level_name,
    };
    (world != World::default()).then_some(world)
}

/// One worker thread that watches.
struct Subscriber {
    address: Addr<ServerSubscription>,
    /// Its mailbox was full: it gets no steps until it has asked for a snapshot.
    behind: bool,
}

impl Actor for GameConnection {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        ctx.run_interval(TICK, Self::tick);
        ctx.run_later(RECOVER_AFTER, Self::recover);
        self.keep_or_pause(ctx);
    }
}

impl Handler<Join> for GameConnection {
    type Result = ();

    fn handle(&mut self, Join { subscriber }: Join, ctx: &mut Self::Context) {
        if let Some(allow) = &self.allowed {
            subscriber.do_send(allow.clone());
        }
        self.subscribers.push(Subscriber { address: subscriber, behind: false });
        self.keep_or_pause(ctx);
        self.recover(ctx);
    }
}

impl Handler<Leave> for GameConnection {
    type Result = ();

    fn handle(&mut self, Leave { subscriber }: Leave, ctx: &mut Self::Context) {
        self.subscribers.retain(|known| known.address != subscriber);
        self.keep_or_pause(ctx);
    }
}

impl Handler<Allow> for GameConnection {
    type Result = ();

    fn handle(&mut self, allow: Allow, _: &mut Self::Context) {
        for subscriber in &self.subscribers {
            subscriber.address.do_send(allow.clone());
        }
        self.allowed = Some(allow);
    }
}

impl Handler<TakeSnapshot> for GameConnection {
    type Result = ();

    fn handle(&mut self, TakeSnapshot { subscriber }: TakeSnapshot, _: &mut Self::Context) {
        let Position { epoch, seq } = self.position;
        let frame =
            self.snapshot.get_or_insert_with(|| protocol::snapshot(&self.server, epoch, seq, &self.state)).clone();
        if let Some(known) = self.subscribers.iter_mut().find(|known| known.address == subscriber) {
            known.behind = false;
        }
        subscriber.do_send(Snapshot { position: self.position, frame });
    }
}

impl Handler<Switch> for GameConnection {
    type Result = ResponseActFuture<Self, Result<bool, ToggleFailed>>;

    fn handle(&mut self, Switch { device: id }: Switch, _: &mut Self::Context) -> Self::Result {
        let id: Arc<str> = id.into();
        let device = self.state.devices.get(&id);
        // Without a link the devices may not even be known yet.
        let ready = match (device, self.link.clone(), id.parse::<u64>()) {
            (_, None, _) => Err(ToggleFailed::Unavailable),
            (None, ..) => Err(ToggleFailed::UnknownDevice),
            (Some(device), ..) if !matches!(device.kind, DeviceKind::Switch | DeviceKind::Unknown) => {
                Err(ToggleFailed::NotASwitch)
            }
            (Some(device), Some(link), Ok(entity)) => Ok((device.value, link, entity)),
            _ => Err(ToggleFailed::Unavailable),
        };
        let switched = async move {
            let (value, link, entity) = ready?;
            let outcome = timeout(COMMAND_DEADLINE, switch_over(&link, entity, value)).await;
            outcome.unwrap_or(Err(ToggleFailed::TimedOut))
        };
        Box::pin(switched.into_actor(self).map(move |outcome, connection, ctx| {
            let seen = outcome?;
            let value = seen.payload.value;
            connection.learn_entity(id, Ok(Some(seen)), ctx);
            value.ok_or(ToggleFailed::Unavailable)
        }))
    }
}

/// Switches to the opposite of what is known, or of what a look at the device shows, and looks again.
async fn switch_over(link: &Asker, entity: u64, value: Option<bool>) -> Result<AppEntityInfo, ToggleFailed> {
    let failed = |error| match error {
        AskError::TimedOut => ToggleFailed::TimedOut,
        AskError::Refused(word) if word == "wrong_type" => ToggleFailed::NotASwitch,
        AskError::Refused(_) | AskError::Closed => ToggleFailed::Unavailable,
    };
    let look = || async {
        let seen = link.entity(entity, Priority::Toggle, COMMAND_DEADLINE).await.map_err(failed)?;
        seen.ok_or(ToggleFailed::Unavailable)
    };
    let value = match value {
        Some(value) => value,
        None => {
            let seen = look().await?;
            if reading::device_kind(seen.r#type) != DeviceKind::Switch {
                return Err(ToggleFailed::NotASwitch);
            }
            seen.payload.value.unwrap_or_default()
        }
    };
    let request = AppRequest {
        entity_id: Some(entity),
        set_entity_value: Some(AppSetEntityValue { value: !value }),
        ..Default::default()
    };
    link.ask(request, cost::REQUEST, Priority::Toggle, COMMAND_DEADLINE).await.map_err(failed)?;
    look().await
}

impl Handler<AlarmPushed> for GameConnection {
    type Result = ();

    fn handle(&mut self, AlarmPushed { id, title }: AlarmPushed, ctx: &mut Self::Context) {
        // Recovery may have found it first.
        if self.raising.contains(&id) {
            return;
        }
        let raised = self.raise_pushed(id, &title, self.shared.clock.now());
        ctx.spawn(raised.map(|_, _, _| ()));
    }
}

impl Handler<Drill> for GameConnection {
    type Result = ResponseActFuture<Self, Option<Drilled>>;

    fn handle(&mut self, _: Drill, _: &mut Self::Context) -> Self::Result {
        let now = self.shared.clock.now();
        // An incident of its own: a drill must not be merged into a raid, nor a raid into a drill.
        let raid = drill(new_incident(), now, false);
        let heard = Heard { incident: raid.incident.clone(), opened: true, tell: vec![raid] };
        self.raise_new(AlarmPath::Drill, "drill", "Drill", heard, now)
    }
}

fn drill(incident: String, ts: Timestamp, update: bool) -> Raid {
    Raid { incident, alarm_id: "drill".to_owned(), alarm_name: "Drill".to_owned(), ts, count: 1, update, drill: true }
}

fn new_incident() -> String {
    uuid::Uuid::now_v7().to_string()
}

fn state_of(heard: &Heard) -> alarms::AlarmState {
    if heard.opened { alarms::AlarmState::Opened } else { alarms::AlarmState::Merged }
}

impl Handler<Retry> for GameConnection {
    type Result = ();

    fn handle(&mut self, Retry { changed }: Retry, _: &mut Self::Context) {
        if changed || self.link.is_none() {
            self.wake.retry.notify_one();
        }
    }
}

impl Handler<ReloadDevices> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: ReloadDevices, _: &mut Self::Context) {
        self.wake.devices.notify_one();
    }
}

impl Handler<Stop> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

impl Handler<Learnt> for GameConnection {
    type Result = bool;

    fn handle(&mut self, learnt: Learnt, ctx: &mut Self::Context) -> bool {
        match learnt {
            // What is known here is newer than what is stored.
            Learnt::Stored(baseline) => self.world = self.world.take().or_else(|| world(baseline)),
            Learnt::Opened(link, info) => return self.opened(link, &info, ctx),
            Learnt::Info(info) => return self.learn_info(&info, ctx),
            Learnt::Lost(Lost { state, reason, next_attempt_at }) => {
                log::info!(server = self.server.as_str(), state:? = state; "no link to the game server: {reason}");
                self.close_link();
                self.set_connection(state, Some(reason), Some(next_attempt_at));
            }
            Learnt::Time(time) => self.learn_time(&time),
            Learnt::Team(team) => self.learn_team(team),
            Learnt::Chat(chat) => self.learn_chat(chat),
            Learnt::Markers(markers) => self.learn_markers(markers),
            Learnt::Map(map) => {
                self.monuments = reading::monuments(&map);
                self.map = self.world.clone();
            }
            Learnt::Devices(known) => self.learn_devices(known),
            Learnt::Entity { device, answer } => self.learn_entity(device, answer, ctx),
            Learnt::Broadcast(broadcast) => self.learn_broadcast(*broadcast, ctx),
        }
        false
    }
}
