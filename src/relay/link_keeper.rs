//! Keeps the link of one game connection: connects, resynchronises, polls within the game's token buckets, and comes
//! back for ever (protocol §1.8, §3.2, §3.5). What it learns it tells the [`GameConnection`], waiting until it is taken.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix::Addr;
use chrono::TimeDelta;
use futures_util::FutureExt as _;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, MissedTickBehavior, interval, interval_at, sleep, timeout},
};

use crate::{
    db::smart_devices,
    domain::{
        backoff::{Backoff, jittered},
        ids::ServerId,
        server_state::ConnectionState,
    },
    game::{
        budget::{Budget, Priority, cost},
        link::{AskError, ConnectError, Link, Player, Route},
        wire::{AppBroadcast, AppEmpty, AppEntityInfo, AppRequest, AppResponse},
    },
    relay::{
        game_connection::{GameConnection, Learnt, LearntDevice, Lost},
        state::RelayState,
    },
    vault::{Vault, VaultError},
};

const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// The game thread may take its time with the map.
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
const BACKOFF_REFUSED: Duration = Duration::from_secs(60);
/// A refused token is tried again now and then, as the refusal may be a passing fault of the game server.
const BACKOFF_REJECTED: Duration = Duration::from_secs(3_600);

/// Why there is no link, or no longer.
struct Ended {
    state: ConnectionState,
    reason: String,
    /// Least time until the next attempt.
    pause: Duration,
}

impl Ended {
    fn unreachable(reason: impl ToString) -> Self {
        Self { state: ConnectionState::Unreachable, reason: reason.to_string(), pause: Duration::ZERO }
    }

    fn rejected(reason: &str) -> Self {
        Self { state: ConnectionState::Rejected, reason: reason.to_owned(), pause: BACKOFF_REJECTED }
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

/// What may wake the keeper.
#[derive(Default)]
pub struct Wake {
    /// Credentials changed: try again at once.
    pub retry: Notify,
    /// The list of devices changed.
    pub devices: Notify,
}

/// Runs until the actor is gone.
pub async fn keep(connection: Addr<GameConnection>, state: Arc<RelayState>, server: ServerId, wake: Arc<Wake>) {
    // Many servers that start together do not all connect in the same instant.
    sleep(jittered(Backoff::FIRST, state.random.byte()).saturating_sub(Backoff::FIRST.mul_f64(0.8))).await;
    let mut backoff = Backoff::new();
    loop {
        let started = Instant::now();
        let keeper =
            Keeper { connection: &connection, state: &state, server: &server, wake: &wake, silent: Cell::new(0) };
        let Err(ended) = keeper.hold().await else { return };
        let pause = backoff.after(started.elapsed(), ended.pause, state.random.byte());
        let now = state.clock.now();
        let next_attempt_at = now + TimeDelta::from_std(pause).unwrap_or_default();
        let lost = Lost { state: ended.state, reason: ended.reason, next_attempt_at };
        if connection.send(Learnt::Lost(lost)).await.is_err() {
            return;
        }
        if timeout(pause, wake.retry.notified()).await.is_ok() {
            backoff = Backoff::new();
        }
    }
}

struct Keeper<'a> {
    connection: &'a Addr<GameConnection>,
    state: &'a Arc<RelayState>,
    server: &'a ServerId,
    wake: &'a Wake,
    /// Answers that did not come, in a row.
    silent: Cell<u32>,
}

/// The actor is gone, so is the need for a link.
struct Unneeded;

impl Keeper<'_> {
    /// One link from beginning to end. Ok when nobody needs it any more.
    async fn hold(&self) -> Result<Unneeded, Ended> {
        // Whatever called for a new attempt until now, this is it.
        self.wake.retry.notified().now_or_never();
        let (route, player) = self.read().await?;
        let (id, budget) = (player.id, self.state.budgets.of(&route));
        let (link, broadcasts) = Link::connect(&route, player).await.map_err(|error| {
            let pause = if matches!(error, ConnectError::Refused) { BACKOFF_REFUSED } else { Duration::ZERO };
            Ended { pause, ..Ended::unreachable(error) }
        })?;
        let asker = Asker { link, budget, player: id };
        // Broadcasts go their own way: none waits behind a poll.
        tokio::select! {
            ended = self.talk(&asker) => ended,
            () = self.forward(broadcasts) => Err(Ended::unreachable("the game server closed the link")),
        }
    }

    /// Where to connect to, and as whom. The token is open only from here to the end of the link.
    async fn read(&self) -> Result<(Route, Player), Ended> {
        let no_credentials = |reason: &str| Ended {
            state: ConnectionState::NoCredentials,
            reason: reason.to_owned(),
            pause: BACKOFF_REJECTED,
        };
        let vault = Vault::new(self.state.pool.clone(), self.state.sealer.clone());
        let (row, token) = vault.player_token(self.server).await.map_err(|error| match error {
            VaultError::Unreadable(error) => {
                log::error!(server = self.server.as_str(); "a player token cannot be opened: {error}");
                no_credentials("the stored player token cannot be read: pair again")
            }
            VaultError::Malformed => no_credentials("the stored player token makes no sense: pair again"),
            error => Ended::unreachable(format!("our database: {error}")),
        })?;
        if self.tell(Learnt::Stored(row.baseline.clone())).await.is_err() {
            return Err(Ended::unreachable("nobody needs the link"));
        }
        let Ok(id) = row.player_id.parse() else {
            return Err(no_credentials("the stored player token makes no sense: pair again"));
        };
        let game = &self.state.game;
        let route = Route {
            host: row.address,
            port: row.port,
            proxy: game.proxy_url.clone(),
            allow_private: game.allow_private_servers,
        };
        Ok((route, Player { id, token }))
    }

    async fn forward(&self, mut broadcasts: mpsc::Receiver<AppBroadcast>) {
        while let Some(broadcast) = broadcasts.recv().await {
            if self.connection.send(Learnt::Broadcast(Box::new(broadcast))).await.is_err() {
                return;
            }
        }
    }

    fn count_silence<T>(&self, answer: &Result<T, AskError>) {
        let silent = matches!(answer, Err(AskError::TimedOut));
        self.silent.set(if silent { self.silent.get() + 1 } else { 0 });
    }

    async fn tell(&self, learnt: Learnt) -> Result<bool, Unneeded> {
        self.connection.send(learnt).await.map_err(|_| Unneeded)
    }

    /// Resynchronises, then polls.
    async fn talk(&self, asker: &Asker) -> Result<Unneeded, Ended> {
        let info = AppRequest { get_info: EMPTY, ..Default::default() };
        let response =
            asker.ask(info, cost::REQUEST, Priority::EntitySync, ANSWER_DEADLINE).await.map_err(Ended::by)?;
        let Some(info) = response.info else {
            return Err(Ended::unreachable("the game server does not say what it is"));
        };
        let Ok(map_wanted) = self.tell(Learnt::Opened(asker.clone(), info)).await else { return Ok(Unneeded) };
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
                () = self.wake.retry.notified() => return Err(Ended::unreachable("the credentials were replaced")),
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

    /// Asks one thing and tells the answer. The answer to [`Learnt::Info`] says whether the map is needed.
    async fn poll(&self, asker: &Asker, poll: Poll) -> Result<Result<bool, Unneeded>, Ended> {
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
            Err(error) => return Err(Ended::by(error)),
        };
        let learnt = match response {
            AppResponse { info: Some(info), .. } => Learnt::Info(info),
            AppResponse { time: Some(time), .. } => Learnt::Time(time),
            AppResponse { team_info: Some(team), .. } => Learnt::Team(team),
            AppResponse { team_chat: Some(chat), .. } => Learnt::Chat(chat),
            AppResponse { map_markers: Some(markers), .. } => Learnt::Markers(markers),
            // An answer without content, or the clan's, asked for only to hear of it: nothing to tell.
            _ => return Ok(Ok(false)),
        };
        Ok(self.tell(learnt).await)
    }

    /// The map costs much and changes only with a wipe. Without it there are no monuments; the rest goes on.
    async fn map(&self, asker: &Asker) -> Result<Result<bool, Unneeded>, Ended> {
        let request = AppRequest { get_map: EMPTY, ..Default::default() };
        match asker.ask(request, cost::MAP, Priority::Map, MAP_DEADLINE).await {
            Ok(AppResponse { map: Some(map), .. }) => Ok(self.tell(Learnt::Map(map)).await),
            Err(AskError::Closed) => Err(Ended::by(AskError::Closed)),
            Ok(_) | Err(_) => Ok(Ok(false)),
        }
    }

    /// Asks every paired device how it is, which also subscribes this link to its changes.
    async fn devices(&self, asker: &Asker) -> Result<Result<bool, Unneeded>, Ended> {
        let server = self.server.clone();
        let rows = match self.state.pool.read(move |db| smart_devices::list(db, &server)).await {
            Ok(rows) => rows,
            Err(error) => {
                log::warn!(server = self.server.as_str(); "the devices could not be read: {error}");
                return Ok(Ok(false));
            }
        };
        let known: HashMap<_, _> = rows
            .iter()
            .map(|row| {
                let known = LearntDevice { kind: row.kind, name: row.name.clone(), label: row.label.clone() };
                (Arc::from(row.device_id.as_str()), known)
            })
            .collect();
        if self.tell(Learnt::Devices(known)).await.is_err() {
            return Ok(Err(Unneeded));
        }
        for row in rows {
            let Ok(entity) = row.device_id.parse::<u64>() else { continue };
            let mut answer = asker.entity(entity, Priority::EntitySync, ANSWER_DEADLINE).await;
            // Until it has answered, an alarm is not heard; our predecessor may have spent the tokens before it died.
            for _ in 0..RATE_REFUSALS {
                if !matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit") {
                    break;
                }
                answer = asker.entity(entity, Priority::EntitySync, ANSWER_DEADLINE).await;
            }
            self.count_silence(&answer);
            if matches!(answer, Err(AskError::Closed)) || self.silent.get() >= SILENT_ANSWERS {
                return Err(Ended::unreachable("the game server stopped answering"));
            }
            if self.tell(Learnt::Entity { device: row.device_id.into(), answer }).await.is_err() {
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
    /// Only to hear of clan changes; `no_clan` is a normal answer.
    Clan,
    Markers,
    Devices,
}

/// Asks a game server within its token buckets.
#[derive(Clone)]
pub struct Asker {
    link: Link,
    budget: Arc<Mutex<Budget>>,
    player: u64,
}

impl Asker {
    /// Waits for tokens, then asks. A refusal for the rate empties the mirrored buckets.
    pub async fn ask(
        &self,
        request: AppRequest,
        cost: u32,
        priority: Priority,
        deadline: Duration,
    ) -> Result<AppResponse, AskError> {
        loop {
            let taken = lock(&self.budget).take(self.player, cost, priority, millis());
            match taken {
                Ok(()) => break,
                Err(wait) => sleep(wait.max(Duration::from_millis(1))).await,
            }
        }
        let answer = self.link.ask(request, deadline).await;
        if matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit") {
            lock(&self.budget).refused(self.player, millis());
        }
        answer
    }

    /// Asks a device how it is, which also subscribes this link to its changes.
    pub async fn entity(
        &self,
        id: u64,
        priority: Priority,
        deadline: Duration,
    ) -> Result<Option<AppEntityInfo>, AskError> {
        let request = AppRequest { entity_id: Some(id), get_entity_info: EMPTY, ..Default::default() };
        Ok(self.ask(request, cost::REQUEST, priority, deadline).await?.entity_info)
    }
}

fn lock(budget: &Mutex<Budget>) -> MutexGuard<'_, Budget> {
    // A budget is plain numbers: a panic elsewhere leaves nothing half done in it.
    budget.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds since the process first asked.
pub fn millis() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed().as_millis() as u64
}
