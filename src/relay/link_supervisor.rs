//! Keeps the link of one game connection up: connects, resynchronises, polls within the game's token buckets, and
//! connects again after every loss (protocol §1.8, §3.2, §3.5). Reports what it learns and waits until each report is
//! handled.

use std::{cell::Cell, collections::HashMap, sync::Arc, time::Duration};

use actix::{Message, Recipient};
use chrono::TimeDelta;
use futures_util::FutureExt as _;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, MissedTickBehavior, interval, interval_at, timeout},
};

use crate::{
    db::{error::DbError, paired_servers, smart_devices},
    domain::{backoff::Backoff, ids::ServerId, server_state::ConnectionState, time::Timestamp},
    game::{
        asker::Asker,
        budget::{Priority, cost},
        link::{AskError, ConnectError, Link, Player, Route},
        wire::{AppBroadcast, AppEmpty, AppInfo, AppRequest, AppResponse},
    },
    panics,
    relay::{
        connect_turns::ConnectTurn,
        context::RelayContext,
        live_state::{GameUpdate, PairedDevice},
    },
    vault::VaultError,
};

const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// The game thread may need long for the map.
const MAP_DEADLINE: Duration = Duration::from_secs(60);
const MARKERS_EVERY: Duration = Duration::from_secs(3);
const TEAM_EVERY: Duration = Duration::from_secs(5);
const TIME_EVERY: Duration = Duration::from_secs(60);
/// Also the probe: a hung game thread still answers pings.
const INFO_EVERY: Duration = Duration::from_secs(60);
/// Devices that are gone are asked again, those that are there too: a missed broadcast heals.
const DEVICES_EVERY: Duration = Duration::from_secs(300);
/// Answers that may fail to come in a row before the link counts as dead.
const SILENT_ANSWERS: u32 = 2;
/// How often a device is asked again that was refused for the rate.
const RATE_REFUSALS: u32 = 3;

/// The game server's limits or a ban: come back in minutes, not seconds.
const PAUSE_REFUSED: Duration = Duration::from_secs(60);
/// A refused token is tried again now and then, as the refusal may be a passing fault of the game server.
const PAUSE_REJECTED: Duration = Duration::from_secs(3_600);

/// To the game connection, in order. Answered with whether the map must be asked for.
#[derive(Message)]
#[rtype(result = "bool")]
pub enum LinkReport {
    Up(Asker, AppInfo),
    Down {
        state: ConnectionState,
        reason: String,
        next_attempt_at: Timestamp,
    },
    Update(GameUpdate),
    /// The server is not paired any more: there is no link to hold.
    ServerGone,
}

/// Why there is no link, or no longer.
struct LinkEnd {
    state: ConnectionState,
    reason: String,
    /// Least time until the next attempt.
    pause: Duration,
}

impl LinkEnd {
    fn unreachable(reason: impl ToString) -> Self {
        Self { state: ConnectionState::Unreachable, reason: reason.to_string(), pause: Duration::ZERO }
    }

    fn rejected(reason: &str) -> Self {
        Self { state: ConnectionState::Rejected, reason: reason.to_owned(), pause: PAUSE_REJECTED }
    }

    /// A request whose failure the link does not survive.
    fn by(error: AskError) -> Self {
        match error {
            AskError::Refused(word) if word == "not_found" || word == "banned" => Self::rejected(&word),
            AskError::TimedOut => Self::unreachable("the game server does not answer"),
            error => Self::unreachable(error),
        }
    }
}

/// What may wake the supervisor.
#[derive(Default)]
pub struct Wake {
    /// A user asks for the link: try at once. One that is up stays.
    pub retry: Notify,
    /// Address or credentials changed: open the link again at once.
    pub replaced: Notify,
    /// The list of devices changed.
    pub devices: Notify,
}

impl Wake {
    /// Completes when a link is asked for, once for all that asked until then.
    async fn asked_for(&self) {
        tokio::select! {
            () = self.retry.notified() => {}
            () = self.replaced.notified() => {}
        }
        self.answered();
    }

    /// Whatever called for a new attempt until now has it.
    fn answered(&self) {
        self.retry.notified().now_or_never();
        self.replaced.notified().now_or_never();
    }
}

/// Runs until the game connection is gone.
pub async fn supervise(reports: Recipient<LinkReport>, context: Arc<RelayContext>, server: ServerId, wake: Arc<Wake>) {
    let supervisor =
        Supervisor { reports, context, server, wake, silent: Cell::new(0), world_reported: Cell::new(false) };
    let context = &supervisor.context;
    let mut backoff = Backoff::new();
    let mut asked_for = false;
    loop {
        // Many that start, or lose the network, together do not all connect in the same instant.
        let turn = match asked_for {
            true => ConnectTurn::at_once(),
            false => tokio::select! {
                biased;
                () = supervisor.wake.asked_for() => ConnectTurn::at_once(),
                turn = context.connect_turns.next(&context.random) => turn,
            },
        };
        let started = Instant::now();
        let held = panics::caught("game_link", supervisor.server.as_str(), supervisor.hold(turn)).await;
        let Err(end) = held.unwrap_or_else(|| Err(LinkEnd::unreachable("an internal error"))) else { return };
        let pause = backoff.after(started.elapsed(), end.pause, context.random.byte());
        let next_attempt_at = context.clock.now() + TimeDelta::from_std(pause).unwrap_or_default();
        let down = LinkReport::Down { state: end.state, reason: end.reason, next_attempt_at };
        if supervisor.report(down).await.is_err() {
            return;
        }
        asked_for = timeout(pause, supervisor.wake.asked_for()).await.is_ok();
        if asked_for {
            backoff = Backoff::new();
        }
    }
}

struct Supervisor {
    reports: Recipient<LinkReport>,
    context: Arc<RelayContext>,
    server: ServerId,
    wake: Arc<Wake>,
    /// Answers that did not come, in a row.
    silent: Cell<u32>,
    /// The game connection has the world as it was stored.
    world_reported: Cell<bool>,
}

/// The game connection is gone, so is the need for a link.
struct Unneeded;

impl Supervisor {
    /// One link from beginning to end. Ok when nobody needs it any more.
    async fn hold(&self, turn: ConnectTurn) -> Result<Unneeded, LinkEnd> {
        self.silent.set(0);
        self.wake.answered();
        let Some((route, player)) = self.read().await? else {
            let _ = self.report(LinkReport::ServerGone).await;
            return Ok(Unneeded);
        };
        let (id, budget) = (player.id, self.context.budgets.of(&route));
        let connected = turn.connect(Link::connect(&self.context.network, &route, player)).await;
        let (link, broadcasts) = connected.map_err(|error| {
            let pause = if matches!(error, ConnectError::Refused) { PAUSE_REFUSED } else { Duration::ZERO };
            LinkEnd { pause, ..LinkEnd::unreachable(error) }
        })?;
        // Asked for while it was made: it is here.
        self.wake.retry.notified().now_or_never();
        let asker = Asker::new(link, budget, id);
        // Broadcasts go their own way: none waits behind a poll.
        tokio::select! {
            end = self.talk(&asker) => end,
            () = self.forward(broadcasts) => Err(LinkEnd::unreachable("the game server closed the link")),
        }
    }

    /// Where to connect to, and as which player; `None` if the server is not paired any more. The token is open only from
    /// here to the end of the link.
    async fn read(&self) -> Result<Option<(Route, Player)>, LinkEnd> {
        let no_credentials = |reason: &str| LinkEnd {
            state: ConnectionState::NoCredentials,
            reason: reason.to_owned(),
            pause: PAUSE_REJECTED,
        };
        let (row, token) = match self.context.vault.player_token(&self.server).await {
            Ok(read) => read,
            Err(VaultError::Missing) => return Ok(None),
            Err(VaultError::Unreadable(error)) => {
                log::error!(server = self.server.as_str(); "a player token cannot be opened: {error}");
                return Err(no_credentials("the stored player token cannot be read: pair again"));
            }
            Err(VaultError::Malformed) => {
                return Err(no_credentials("the stored player token makes no sense: pair again"));
            }
            Err(error) => return Err(LinkEnd::unreachable(format!("our database: {error}"))),
        };
        if !self.world_reported.get() {
            let server = self.server.clone();
            let monuments = match self.context.pool.read(move |db| paired_servers::monuments(db, &server)).await {
                Ok(monuments) => monuments,
                Err(DbError::NotFound) => return Ok(None),
                Err(error) => return Err(LinkEnd::unreachable(format!("our database: {error}"))),
            };
            if self.update(GameUpdate::StoredWorld { world: row.baseline.world(), monuments }).await.is_err() {
                return Err(LinkEnd::unreachable("nobody needs the link"));
            }
            self.world_reported.set(true);
        }
        let Ok(id) = row.player_id.parse() else {
            return Err(no_credentials("the stored player token makes no sense: pair again"));
        };
        let game = &self.context.game;
        let route = Route {
            host: row.address,
            port: row.port,
            proxy: game.proxy_url.as_ref().map(ToString::to_string),
            allow_private: game.allow_private_servers,
        };
        Ok(Some((route, Player { id, token })))
    }

    async fn forward(&self, mut broadcasts: mpsc::Receiver<AppBroadcast>) {
        while let Some(broadcast) = broadcasts.recv().await {
            if self.update(GameUpdate::Broadcast(Box::new(broadcast))).await.is_err() {
                return;
            }
        }
    }

    fn count_silence<T>(&self, answer: &Result<T, AskError>) {
        let silent = matches!(answer, Err(AskError::TimedOut));
        self.silent.set(if silent { self.silent.get() + 1 } else { 0 });
    }

    async fn report(&self, report: LinkReport) -> Result<bool, Unneeded> {
        self.reports.send(report).await.map_err(|_| Unneeded)
    }

    async fn update(&self, update: GameUpdate) -> Result<bool, Unneeded> {
        self.report(LinkReport::Update(update)).await
    }

    /// Resynchronises, then polls.
    async fn talk(&self, asker: &Asker) -> Result<Unneeded, LinkEnd> {
        let info = AppRequest { get_info: EMPTY, ..Default::default() };
        let response =
            asker.ask(info, cost::REQUEST, Priority::EntitySync, ANSWER_DEADLINE).await.map_err(LinkEnd::by)?;
        let Some(info) = response.info else {
            return Err(LinkEnd::unreachable("the game server does not say what it is"));
        };
        let Ok(map_wanted) = self.report(LinkReport::Up(asker.clone(), info)).await else { return Ok(Unneeded) };
        if map_wanted && self.map(asker).await?.is_err() {
            return Ok(Unneeded);
        }
        for poll in [Poll::Time, Poll::Chat, Poll::Clan, Poll::Markers, Poll::Team] {
            if self.poll(asker, poll).await?.is_err() {
                return Ok(Unneeded);
            }
        }
        let every = |period| {
            let mut every = interval_at(Instant::now() + period, period);
            every.set_missed_tick_behavior(MissedTickBehavior::Delay);
            every
        };
        let (mut markers, mut team) = (every(MARKERS_EVERY), every(TEAM_EVERY));
        let (mut time, mut info) = (every(TIME_EVERY), every(INFO_EVERY));
        let mut devices = interval(DEVICES_EVERY);
        loop {
            let poll = tokio::select! {
                _ = markers.tick() => Poll::Markers,
                _ = team.tick() => Poll::Team,
                _ = time.tick() => Poll::Time,
                _ = info.tick() => Poll::Info,
                _ = devices.tick() => Poll::Devices,
                () = self.wake.devices.notified() => Poll::Devices,
                () = self.wake.replaced.notified() => return Err(LinkEnd::unreachable("the credentials were replaced")),
            };
            match self.poll(asker, poll).await? {
                Ok(map_wanted) if map_wanted => {
                    if self.map(asker).await?.is_err() {
                        return Ok(Unneeded);
                    }
                }
                Ok(_) => {}
                Err(Unneeded) => return Ok(Unneeded),
            }
        }
    }

    /// Asks one thing and reports the answer. True if the map must be asked for.
    async fn poll(&self, asker: &Asker, poll: Poll) -> Result<Result<bool, Unneeded>, LinkEnd> {
        if poll == Poll::Devices {
            return self.devices(asker).await;
        }
        let mut request = AppRequest::default();
        match poll {
            Poll::Info => request.get_info = EMPTY,
            Poll::Time => request.get_time = EMPTY,
            Poll::Team => request.get_team_info = EMPTY,
            Poll::Chat => request.get_team_chat = EMPTY,
            Poll::Clan => request.get_clan_info = EMPTY,
            Poll::Markers => request.get_map_markers = EMPTY,
            Poll::Devices => unreachable!("devices are asked one by one, above"),
        }
        let answer = asker.ask(request, cost::REQUEST, Priority::Polling, ANSWER_DEADLINE).await;
        self.count_silence(&answer);
        let response = match answer {
            Ok(response) => response,
            Err(AskError::Refused(word)) if poll != Poll::Info || !is_dead(&word) => {
                log::debug!(server = self.server.as_str(), poll:? = poll; "the game server refuses: {word}");
                return Ok(Ok(false));
            }
            Err(AskError::TimedOut) if self.silent.get() < SILENT_ANSWERS => return Ok(Ok(false)),
            Err(error) => return Err(LinkEnd::by(error)),
        };
        let update = match response {
            AppResponse { info: Some(info), .. } => GameUpdate::Info(info),
            AppResponse { time: Some(time), .. } => GameUpdate::Time(time),
            AppResponse { team_info: Some(team), .. } => GameUpdate::Team(team),
            AppResponse { team_chat: Some(chat), .. } => GameUpdate::Chat(chat),
            AppResponse { map_markers: Some(markers), .. } => GameUpdate::Markers(markers),
            // An answer without content, or the clan's, asked for only to be sent clan changes: nothing to report.
            _ => return Ok(Ok(false)),
        };
        Ok(self.update(update).await)
    }

    /// The map costs much and changes only with a wipe. Without it there are no monuments; the rest goes on.
    async fn map(&self, asker: &Asker) -> Result<Result<bool, Unneeded>, LinkEnd> {
        let request = AppRequest { get_map: EMPTY, ..Default::default() };
        match asker.ask(request, cost::MAP, Priority::Map, MAP_DEADLINE).await {
            Ok(AppResponse { map: Some(map), .. }) => Ok(self.update(GameUpdate::Map(map)).await),
            Err(AskError::Closed) => Err(LinkEnd::by(AskError::Closed)),
            Ok(_) | Err(_) => Ok(Ok(false)),
        }
    }

    /// Asks every paired device, which also subscribes this link to its changes.
    async fn devices(&self, asker: &Asker) -> Result<Result<bool, Unneeded>, LinkEnd> {
        let server = self.server.clone();
        let rows = match self.context.pool.read(move |db| smart_devices::list(db, &server)).await {
            Ok(rows) => rows,
            Err(error) => {
                log::warn!(server = self.server.as_str(); "the devices could not be read: {error}");
                return Ok(Ok(false));
            }
        };
        let known: HashMap<_, _> = rows
            .iter()
            .map(|row| {
                let known = PairedDevice { kind: row.kind, name: row.name.clone(), label: row.label.clone() };
                (Arc::from(row.device_id.as_str()), known)
            })
            .collect();
        if self.update(GameUpdate::Devices(known)).await.is_err() {
            return Ok(Err(Unneeded));
        }
        for row in rows {
            let Ok(entity) = row.device_id.parse::<u64>() else { continue };
            let mut answer = asker.entity(entity, Priority::EntitySync, ANSWER_DEADLINE).await;
            // Until it has answered, its alarms do not reach us; our predecessor may have spent the tokens before it died.
            for _ in 0..RATE_REFUSALS {
                if !matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit") {
                    break;
                }
                answer = asker.entity(entity, Priority::EntitySync, ANSWER_DEADLINE).await;
            }
            self.count_silence(&answer);
            if matches!(answer, Err(AskError::Closed)) || self.silent.get() >= SILENT_ANSWERS {
                return Err(LinkEnd::unreachable("the game server stopped answering"));
            }
            if self.update(GameUpdate::Device { device: row.device_id.into(), answer }).await.is_err() {
                return Ok(Err(Unneeded));
            }
        }
        Ok(Ok(false))
    }
}

const EMPTY: Option<AppEmpty> = Some(AppEmpty {});

/// Words after which the player token is dead (protocol §1.6).
fn is_dead(word: &str) -> bool {
    matches!(word, "not_found" | "banned")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poll {
    Info,
    Time,
    Team,
    Chat,
    /// Only to be sent clan changes; `no_clan` is a normal answer.
    Clan,
    Markers,
    Devices,
}
