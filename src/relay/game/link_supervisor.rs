//! Keeps the link of one game connection up: connects, resynchronises, polls within the game's token buckets, and
//! connects again after every loss (protocol §1.8, §3.2, §3.5). Reports what it learns and waits until each report is
//! handled.

mod credentials;
mod devices;

use std::{
    cell::{Cell, RefCell},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix::{Message, Recipient};
use chrono::TimeDelta;
use futures_util::{FutureExt as _, future::try_join_all};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    domain::{
        backoff::Backoff,
        ids::{GameServerId, ServerId},
        link_reason::LinkReason,
        outbound::Target,
        server_state::ConnectionState,
        time::Timestamp,
    },
    game::{
        budget::{Priority, cost},
        decoding::DecodingPermit,
        link::{Answered, AskError, Broadcasts, Link, LinkEnded, Route},
        paced_link::PacedLink,
        wire::{AppEmpty, AppInfo, AppMap, AppRequest, AppResponse},
    },
    panics::{self, Part},
    relay::{
        game::{
            link_end::{LinkEnd, is_dead},
            poll_plan::{Poll, PollPlan, silent_after},
        },
        shared::{connect_pacer::ConnectPermit, context::RelayContext},
        state::game_update::{GameUpdate, TeamUpdate, WorldUpdate},
    },
};

const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// The game thread may need long for the map. One that comes later may be larger than is accepted by then.
const MAP_DEADLINE: Duration = Duration::from_secs(120);
/// Other questions wait this long for the alarms to be asked first; there may be more of them than tokens.
const ALARMS_FIRST: Duration = Duration::from_secs(5);
/// Answers that may fail to come in a row before the link counts as dead.
const SILENT_ANSWERS: u32 = 2;

/// To the game connection, in order. Answered with whether the map must be asked for.
#[derive(Message)]
#[rtype(result = "bool")]
pub enum LinkReport {
    /// The game server that answers, and what it says of itself.
    Up(PacedLink, GameServerId, AppInfo),
    Down {
        state: ConnectionState,
        reason: LinkReason,
        next_attempt_at: Timestamp,
    },
    Update(GameUpdate),
    /// Everything that is polled was asked once since the link is up, the team last.
    Resynced,
    /// The map of the game server, which may be large: the turn goes along until it is stored.
    Map {
        map: AppMap,
        address: String,
        port: u16,
        turn: Option<DecodingPermit>,
    },
    /// The server is no longer paired: there is no link to hold.
    ServerGone,
}

/// Signals that wake the supervisor.
#[derive(Default)]
pub struct Wake {
    /// A user asks for the link: try at once. One that is up stays.
    pub retry: Notify,
    /// Address or credentials changed: open the link again at once.
    pub replaced: Notify,
    is_watched: AtomicBool,
    /// A user begins to watch.
    watched: Notify,
}

impl Wake {
    /// Sets whether a user watches: then more is asked for, and at once.
    pub fn watch(&self, is_watched: bool) {
        if !self.is_watched.swap(is_watched, Ordering::Relaxed) && is_watched {
            self.watched.notify_one();
        }
    }

    /// Completes when a link is asked for, once for all that asked until then.
    async fn asked_for(&self) {
        tokio::select! {
            () = self.retry.notified() => {}
            () = self.replaced.notified() => {}
        }
        self.answered();
    }

    /// Clears all calls for a new attempt until now: this is it.
    fn answered(&self) {
        self.retry.notified().now_or_never();
        self.replaced.notified().now_or_never();
    }
}

/// Runs until the game connection is gone. No async function, which would have room for its arguments twice.
pub fn supervise(
    reports: Recipient<LinkReport>,
    context: Arc<RelayContext>,
    server: ServerId,
    wake: Arc<Wake>,
) -> impl Future<Output = ()> {
    let supervisor = Supervisor {
        reports,
        context,
        server,
        wake,
        silent: Cell::new(0),
        world_reported: Cell::new(false),
        refused: Cell::new(false),
        target: RefCell::new(None),
        answered: Cell::new(false),
        map_wanted: Notify::new(),
        devices_wanted: Notify::new(),
        chat_wanted: Notify::new(),
    };
    async move { supervisor.run().await }
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
    /// An answer of this link was refused, and the log says so.
    refused: Cell<bool>,
    /// The address, once it is known.
    target: RefCell<Option<Target>>,
    /// A game server has answered there.
    answered: Cell<bool>,
    map_wanted: Notify,
    /// A message could not be read: it may have said that a device changed.
    devices_wanted: Notify,
    /// A message could not be read: it may have been a line of chat.
    chat_wanted: Notify,
}

/// The game connection is gone, so is the need for a link.
struct Unneeded;

/// Result of a poll that the link survives.
#[derive(PartialEq, Eq)]
enum Polled {
    /// Perhaps with a refusal.
    Answered,
    Silent,
    Unneeded,
}

impl Supervisor {
    /// One link after the other, until none is needed.
    async fn run(&self) {
        let context = &self.context;
        let mut backoff = Backoff::new();
        let mut asked_for = false;
        // A link begins because its server is paired, or because a user begins to watch.
        let mut is_first = true;
        loop {
            let permit = if asked_for { ConnectPermit::at_once() } else { Box::pin(self.connect_permit()).await };
            let started = Instant::now();
            let is_asked_for = asked_for || is_first;
            let held = panics::caught(Part::GameLink, self.server.as_str(), self.hold(permit, is_asked_for)).await;
            let Err(end) = held.unwrap_or_else(|| Err(LinkEnd::unreachable(LinkReason::OurFault, "it panicked")))
            else {
                return;
            };
            let LinkEnd { state, reason, detail, pause } = end;
            log::info!(server = self.server.as_str(), state:? = state; "no link to the game server: {reason} ({detail})");
            let shown = if self.answered.get() { reason } else { reason.before_any_answer() };
            // The time of the next attempt must not reveal more than the reason does.
            let least = if shown == reason { pause } else { Duration::ZERO };
            let (held, random) = (started.elapsed(), context.random.byte());
            let pause = match &*self.target.borrow() {
                Some(target) => context.outbound.end(target, held, least, random),
                None => backoff.after(held, least, random),
            };
            let next_attempt_at = context.clock.now() + TimeDelta::from_std(pause).unwrap_or_default();
            let down = LinkReport::Down { state, reason: shown, next_attempt_at };
            if Box::pin(self.report(down)).await.is_err() {
                return;
            }
            asked_for = Box::pin(timeout(pause, self.wake.asked_for())).await.is_ok();
            is_first = false;
        }
    }

    /// Many that start, or lose the network, together do not all connect in the same instant.
    async fn connect_permit(&self) -> ConnectPermit {
        tokio::select! {
            biased;
            () = self.wake.asked_for() => ConnectPermit::at_once(),
            permit = self.context.connect_pacer.next(&self.context.random) => permit,
        }
    }

    /// One link from beginning to end. Ok when it is no longer needed.
    async fn hold(&self, permit: ConnectPermit, is_asked_for: bool) -> Result<Unneeded, LinkEnd> {
        self.silent.set(0);
        self.refused.set(false);
        self.map_wanted.notified().now_or_never();
        self.wake.answered();
        // Steps that run once a link, or now and then, are in a box, which is freed at their end: a link that waits for
        // its next poll costs only the rest.
        let Some((route, player, credentials)) = Box::pin(self.read()).await? else {
            let _ = self.report(LinkReport::ServerGone).await;
            return Ok(Unneeded);
        };
        let (id, budget) = (player.id, self.context.budgets.of(&route));
        let context = &self.context;
        let connecting = async {
            if is_asked_for {
                let wait = self.target.borrow().as_ref().map(|target| context.outbound.ask(target));
                sleep(wait.unwrap_or_default()).await;
            }
            Link::connect(&context.network, &context.decoder, &route, player).await
        };
        // The pause is a part of the connect: one that is long gives the permit to another link.
        let (link, broadcasts) = Box::pin(permit.connect(connecting)).await?;
        // Asked for while it was made: it is here.
        self.wake.retry.notified().now_or_never();
        let paced_link = PacedLink::new(link, budget, id);
        // Broadcasts go their own way: none waits behind a poll.
        let mut forwarded = pin!(self.forward(broadcasts));
        let talked = tokio::select! {
            ended = &mut forwarded => return Err(ended.into()),
            talked = self.talk(&paced_link, &route, credentials) => talked,
        };
        match talked {
            // The link knows better why.
            Err(end) if end.reason == LinkReason::Closed => Err(forwarded.await.into()),
            talked => talked,
        }
    }

    async fn forward(&self, mut broadcasts: Broadcasts) -> LinkEnded {
        loop {
            match broadcasts.next().await {
                Ok((_, None)) => {
                    self.devices_wanted.notify_one();
                    self.chat_wanted.notify_one();
                }
                Ok((number, Some(broadcast))) => {
                    // In a box, as they are seldom.
                    if Box::pin(self.update(GameUpdate::Broadcast(number, broadcast))).await.is_err() {
                        return LinkEnded::Unneeded;
                    }
                }
                Err(ended) => return ended,
            }
        }
    }

    fn count_silence(&self, silent: bool) {
        self.silent.set(if silent { self.silent.get() + 1 } else { 0 });
    }

    async fn report(&self, report: LinkReport) -> Result<bool, Unneeded> {
        self.reports.send(report).await.map_err(|_| Unneeded)
    }

    async fn update(&self, update: GameUpdate) -> Result<bool, Unneeded> {
        self.report(LinkReport::Update(update)).await
    }

    /// Resynchronises, then polls. Alarms come first; after them the map and the devices, which may take long, hold up
    /// nothing else.
    async fn talk(&self, paced_link: &PacedLink, route: &Route, credentials: Option<i32>) -> Result<Unneeded, LinkEnd> {
        let info = AppRequest { get_info: EMPTY, ..Default::default() };
        let asked = Box::pin(paced_link.ask(info, cost::REQUEST, Priority::EntitySync, ANSWER_DEADLINE));
        // No name for the answer, which would be held as long as the link.
        let asked = asked.await;
        if matches!(asked, Ok(_) | Err(AskError::Refused(_))) {
            self.answered.set(true);
        }
        let Some(info) = asked.map_err(LinkEnd::by)?.content.info else {
            return Err(LinkEnd::unreachable(LinkReason::NoCompanion, "it does not say what it is"));
        };
        Box::pin(self.accepted(credentials)).await;
        let at = GameServerId::at(&route.host, route.port);
        match Box::pin(self.report(LinkReport::Up(paced_link.clone(), at, info))).await {
            Ok(true) => self.map_wanted.notify_one(),
            Ok(false) => {}
            Err(Unneeded) => return Ok(Unneeded),
        }
        let alarms_asked = Notify::new();
        let others = async {
            // Late is no failure: it is only the order that is lost.
            let _ = timeout(ALARMS_FIRST, alarms_asked.notified()).await;
            tokio::select! {
                end = self.keep_polling(paced_link) => end,
                end = self.keep_map(paced_link, route) => end,
            }
        };
        tokio::select! {
            end = others => end,
            end = self.keep_devices(paced_link, &alarms_asked) => end,
            () = self.wake.replaced.notified() => {
                Err(LinkEnd::unreachable(LinkReason::OtherCredentials, "the credentials were replaced"))
            }
        }
    }

    async fn keep_polling(&self, paced_link: &PacedLink) -> Result<Unneeded, LinkEnd> {
        for poll in [Poll::Time, Poll::Chat, Poll::Clan, Poll::Markers, Poll::Team] {
            if self.poll_all(paced_link, &[poll]).await?.is_err() {
                return Ok(Unneeded);
            }
        }
        if self.report(LinkReport::Resynced).await.is_err() {
            return Ok(Unneeded);
        }
        let mut plan = PollPlan::new(Instant::now(), self.context.random.byte());
        loop {
            let is_watched = self.wake.is_watched.load(Ordering::Relaxed);
            let (_, at) = plan.next(is_watched);
            tokio::select! {
                () = sleep_until(at) => {}
                () = self.wake.watched.notified() => continue,
                () = self.chat_wanted.notified() => {
                    plan.miss_chat();
                    continue;
                }
            }
            let now = Instant::now();
            let polls = plan.due(now, is_watched);
            polls.iter().for_each(|poll| plan.asked(*poll, now));
            if self.poll_all(paced_link, &polls).await?.is_err() {
                return Ok(Unneeded);
            }
        }
    }

    /// Asks these things together and reports the answers. Silence counts once, however many were asked: a game server
    /// that pauses for a moment is not dead.
    async fn poll_all(&self, paced_link: &PacedLink, polls: &[Poll]) -> Result<Result<(), Unneeded>, LinkEnd> {
        let asked = try_join_all(polls.iter().map(|poll| self.poll(paced_link, *poll)));
        // In a box, which is freed when they are answered: what waits for the next poll is small.
        let polled = Box::pin(asked).await?;
        if polled.contains(&Polled::Unneeded) {
            return Ok(Err(Unneeded));
        }
        let answers = polled.iter().map(|polled| *polled == Polled::Answered);
        self.silent.set(silent_after(self.silent.get(), polls.iter().copied().zip(answers)));
        match self.silent.get() {
            0..SILENT_ANSWERS => Ok(Ok(())),
            _ => Err(LinkEnd::by(AskError::TimedOut)),
        }
    }

    /// Asks one thing and reports the answer.
    async fn poll(&self, paced_link: &PacedLink, poll: Poll) -> Result<Polled, LinkEnd> {
        let mut request = AppRequest::default();
        match poll {
            Poll::Info => request.get_info = EMPTY,
            Poll::Time => request.get_time = EMPTY,
            Poll::Team => request.get_team_info = EMPTY,
            Poll::Chat => request.get_team_chat = EMPTY,
            Poll::Clan => request.get_clan_info = EMPTY,
            Poll::Markers => request.get_map_markers = EMPTY,
        }
        let answer = paced_link.ask(request, cost::REQUEST, Priority::Polling, ANSWER_DEADLINE).await;
        let Answered { asked_after, content } = match answer {
            Ok(answered) => answered,
            Err(AskError::Refused(word)) if poll != Poll::Info || !is_dead(&word) => {
                log::debug!(server = self.server.as_str(), poll:? = poll; "the game server refuses: {word}");
                return Ok(Polled::Answered);
            }
            // The section becomes stale, which the state says; the rest goes on.
            Err(error @ AskError::TooMany(_)) => {
                self.warn_of_refusal(&error);
                return Ok(Polled::Answered);
            }
            Err(AskError::TimedOut) => return Ok(Polled::Silent),
            Err(error) => return Err(LinkEnd::by(error)),
        };
        let update: GameUpdate = match *content {
            AppResponse { info: Some(info), .. } => WorldUpdate::Info(info).into(),
            AppResponse { time: Some(time), .. } => WorldUpdate::Time(time).into(),
            AppResponse { team_info: Some(content), .. } => {
                TeamUpdate::Members(Answered { asked_after, content }).into()
            }
            AppResponse { team_chat: Some(chat), .. } => TeamUpdate::Chat(chat).into(),
            AppResponse { map_markers: Some(markers), .. } => WorldUpdate::Markers(markers).into(),
            // An answer without content, or the clan's, asked for only to be sent clan changes: nothing to report.
            _ => return Ok(Polled::Answered),
        };
        let Ok(map_wanted) = self.update(update).await else { return Ok(Polled::Unneeded) };
        if map_wanted {
            self.map_wanted.notify_one();
        }
        Ok(Polled::Answered)
    }

    /// Says it once a link, as a game server that sends too much does so at every poll.
    fn warn_of_refusal(&self, error: &AskError) {
        if !self.refused.replace(true) {
            log::warn!(server = self.server.as_str(); "a game server's answer is refused: {error}");
        }
    }

    /// The map costs much and changes only with a wipe. Without it there are no monuments; the rest goes on.
    async fn keep_map(&self, paced_link: &PacedLink, route: &Route) -> Result<Unneeded, LinkEnd> {
        loop {
            self.map_wanted.notified().await;
            if Box::pin(self.map(paced_link, route)).await?.is_err() {
                return Ok(Unneeded);
            }
        }
    }

    /// Asks for the map and reports the answer.
    async fn map(&self, paced_link: &PacedLink, route: &Route) -> Result<Result<(), Unneeded>, LinkEnd> {
        let request = AppRequest { get_map: EMPTY, ..Default::default() };
        let turn = self.context.decoder.turn_of_map().await;
        match paced_link.ask(request, cost::MAP, Priority::Map, MAP_DEADLINE).await {
            Ok(Answered { content, .. }) => {
                let Some(map) = content.map else { return Ok(Ok(())) };
                let report = LinkReport::Map { map, address: route.host.clone(), port: route.port, turn };
                return Ok(self.report(report).await.map(|_| ()));
            }
            Err(AskError::Closed) => return Err(LinkEnd::by(AskError::Closed)),
            Err(error @ AskError::TooMany(_)) => self.warn_of_refusal(&error),
            Err(_) => {}
        }
        Ok(Ok(()))
    }
}

const EMPTY: Option<AppEmpty> = Some(AppEmpty {});
