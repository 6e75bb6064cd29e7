//! Actor: one paired game server. Started by the hub, on one of the threads for game links; receives what its
//! [`link_supervisor`] learns, keeps the [`LiveState`], and publishes what follows. Stops when the paired server is
//! deleted or the service drains.

mod acknowledgements;
mod alive;
mod cameras;
mod chat;
mod devices;
mod due;
mod last_heard;
mod looks;
mod maps;
mod notes;
mod places;
pub mod players;
mod shops;

use std::{cell::RefCell, rc::Rc, sync::Arc};

use actix::prelude::*;

pub use self::last_heard::LastHeard;
use crate::{
    config::GameLinkPolicy,
    domain::{
        ids::{GameServerId, ServerId, UserId},
        link_reason::LinkReason,
        server_state::ConnectionState,
        time::{Moment, Timestamp},
        world_event::EventKind,
    },
    game::{map_picture, paced_link::PacedLink},
    panics::{self, Part},
    relay::{
        alarms::alarm_delivery::{AlarmDelivery, DrillOutcome, PushedAlarm},
        game::{
            camera_capture::CameraCapture,
            commands::{AwaitedEcho, UnplacedDevice},
            device_refreshes::DeviceRefreshes,
            link_supervisor::{self, LinkReport, Wake},
            toggles::Toggles,
        },
        market::shop_watcher::ShopWatcher,
        shared::context::RelayContext,
        state::live_state::{GameUpdate, LiveState, Outcome},
        wire::{
            protocol::{KnownEvent, ServerMessage},
            publication::{AllowedUsers, Lane, Position, Publication},
            publisher::Publisher,
        },
    },
};

/// The senders bound what waits here: one supervisor that waits for each answer, one message per subscriber and
/// snapshot, commands that wait for their answers.
const MAILBOX: usize = 1_024;

/// Publish to this subscriber. A snapshot comes when it is asked for.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Subscribe {
    pub subscriber: Recipient<Publication>,
}

/// Publish to it no longer.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Unsubscribe {
    pub subscriber: Recipient<Publication>,
}

/// Send this subscriber a snapshot.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RequestSnapshot {
    pub subscriber: Recipient<Publication>,
}

/// A socket that came back has the state of this position.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StateTaken(pub Position);

/// From now on only these may watch.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SetWatchers(pub AllowedUsers);

/// A push reports an alarm of this server.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DeliverPushedAlarm(pub PushedAlarm, pub tokio::time::Instant);

/// A user has taken note of an incident, and the ledger has it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ShowAcknowledgement {
    pub incident: String,
    pub user: UserId,
    pub at: Timestamp,
}

/// Send a test alarm the whole way, from the ledger to the sockets. None if the ledger cannot be written.
#[derive(Message)]
#[rtype(result = "Option<DrillOutcome>")]
pub struct Drill;

/// Try the link again at once; one that is up stays, unless address or credentials changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RetryLink {
    pub changed: bool,
}

/// The list of devices changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReloadDevices;

/// End the link and the actor.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopConnection;

/// The link to one game server, as users see it.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    pub state: ConnectionState,
    pub since: Timestamp,
    pub reason: Option<LinkReason>,
    pub next_attempt_at: Option<Timestamp>,
}

/// News of a game connection, for the hub.
#[derive(Message)]
#[rtype(result = "()")]
pub enum ConnectionEvent {
    /// The status of its link changed.
    Status { server: ServerId, status: LinkStatus },
    /// The server is no longer paired.
    ServerGone { server: ServerId },
    /// The connection has ended by a panic.
    Failed { server: ServerId, connection: Addr<GameConnection> },
}

/// Start of a game connection.
#[derive(Clone, Debug)]
pub struct ConnectionStart {
    /// Greater than that of every connection of this server before.
    pub epoch: u64,
    /// A user asks for it now: its link waits for no turn.
    pub asked_for: bool,
    pub heard: LastHeard,
}

/// See the module.
pub struct GameConnection {
    server: ServerId,
    context: Arc<RelayContext>,
    hub: Recipient<ConnectionEvent>,
    asked_for: bool,
    heard: LastHeard,
    live: Rc<RefCell<LiveState>>,
    publisher: Rc<RefCell<Publisher>>,
    alarms: Rc<AlarmDelivery>,
    shops: Rc<ShopWatcher>,
    link: Option<PacedLink>,
    /// Peer of the link, or of the last one.
    game_server: Option<GameServerId>,
    looks: DeviceRefreshes,
    toggles: Toggles,
    unplaced: Vec<UnplacedDevice>,
    /// When it was last stored that the link was up, and until when.
    alive_kept: Option<(Moment, Timestamp)>,
    /// Lines that users say, in their order.
    echoes: Vec<AwaitedEcho>,
    /// Version of the latest question for the stored notes.
    notes_version: u64,
    /// Version of the latest question for the stored devices.
    devices_version: u64,
    /// Set by the first look through a camera.
    cameras: std::cell::OnceCell<Rc<CameraCapture>>,
    /// The look whether a camera is still wanted.
    camera_end: Option<SpawnHandle>,
    /// The next tick, and when it is planned for.
    planned: Option<(SpawnHandle, Moment)>,
    supervisor: Option<SpawnHandle>,
    wake: Arc<Wake>,
}

impl GameConnection {
    /// A connection that knows nothing yet. `hub` gets what becomes of it.
    pub fn new(
        server: ServerId,
        context: Arc<RelayContext>,
        hub: Recipient<ConnectionEvent>,
        start: ConnectionStart,
    ) -> Self {
        let publisher = Rc::new(RefCell::new(Publisher::new(server.clone(), start.epoch)));
        let live = Rc::new(RefCell::new(LiveState::new(context.clock.now())));
        let alarms = AlarmDelivery::new(server.clone(), context.clone(), live.clone(), publisher.clone());
        let shops = ShopWatcher::new(server.clone(), context.clone(), live.clone(), publisher.clone());
        Self {
            live,
            cameras: Default::default(),
            asked_for: start.asked_for,
            heard: start.heard,
            server,
            context,
            hub,
            publisher,
            alarms,
            shops,
            link: None,
            game_server: None,
            looks: DeviceRefreshes::default(),
            toggles: Toggles::default(),
            unplaced: Vec::new(),
            alive_kept: None,
            echoes: Vec::new(),
            notes_version: 0,
            devices_version: 0,
            camera_end: None,
            planned: None,
            supervisor: None,
            wake: Arc::default(),
        }
    }

    /// Starts or stops the link's supervisor, as the link policy wants it.
    fn supervise_or_pause(&mut self, ctx: &mut Context<Self>) {
        let always = self.context.game.link_policy == GameLinkPolicy::Always;
        let is_watched = self.publisher.borrow().has_subscribers();
        self.wake.watch(is_watched);
        self.live.borrow_mut().watch(is_watched, self.context.clock.moment());
        let wanted = always || is_watched;
        match (wanted, self.supervisor) {
            (true, None) => {
                let (context, server, wake) = (self.context.clone(), self.server.clone(), self.wake.clone());
                if std::mem::take(&mut self.asked_for) {
                    wake.retry.notify_one();
                }
                let supervise = link_supervisor::supervise(ctx.address().recipient(), context, server, wake);
                self.supervisor = Some(ctx.spawn(supervise.into_actor(self)));
                self.disconnected(ConnectionState::Connecting, None, None, ctx);
            }
            (false, supervisor) => {
                if let Some(supervisor) = supervisor {
                    ctx.cancel_future(supervisor);
                    self.supervisor = None;
                }
                self.disconnected(ConnectionState::Paused, Some(LinkReason::NobodyWatches), None, ctx);
            }
            (true, Some(_)) => {}
        }
    }

    fn disconnected(
        &mut self,
        state: ConnectionState,
        reason: Option<LinkReason>,
        next_attempt_at: Option<Timestamp>,
        ctx: &mut Context<Self>,
    ) {
        self.link = None;
        self.echoes.clear();
        self.cameras_link_changed();
        self.update(GameUpdate::Disconnected { state, reason, next_attempt_at }, ctx);
        self.keep_alive(true);
    }

    /// Applies an update and publishes what follows. True if the map must be asked for.
    fn update(&mut self, update: GameUpdate, ctx: &mut Context<Self>) -> bool {
        let outcome = self.live.borrow_mut().update(update, self.context.clock.moment());
        self.publish(outcome, ctx)
    }

    fn publish(&mut self, outcome: Outcome, ctx: &mut Context<Self>) -> bool {
        let Outcome {
            changes,
            events,
            chat,
            alarms,
            alarm_values,
            reported,
            shops_seen,
            death_notes,
            game_notes,
            connection_changed,
            world,
            map_wanted,
            ask_again,
        } = outcome;
        if connection_changed {
            let live = self.live.borrow();
            let head = &live.state().server;
            let status = LinkStatus {
                state: head.connection,
                since: head.since,
                reason: head.reason,
                next_attempt_at: head.next_attempt_at,
            };
            self.hub.do_send(ConnectionEvent::Status { server: self.server.clone(), status });
        }
        for alarm in alarms {
            ctx.spawn(self.alarms.clone().link_alarm(alarm).into_actor(self));
        }
        for (device, value) in alarm_values {
            self.alarms.note_value(&device, value);
        }
        let mut publisher = self.publisher.borrow_mut();
        publisher.advance(changes, self.context.clock.moment());
        for event in &events {
            let id = self.context.record(&self.server, self.game_server.as_ref(), event);
            let event = KnownEvent { id: id.as_deref(), event };
            publisher.deliver(Lane::Event, &ServerMessage::Event { server_id: &self.server, event });
        }
        drop(publisher);
        self.hear_chat(chat);
        if shops_seen {
            self.feed_market(ctx);
        }
        if let Some(wipe) = events.iter().find(|event| event.kind == EventKind::Wipe) {
            self.wipe_notes(wipe.ts);
        }
        self.store_notes(death_notes, game_notes);
        self.store_reported(reported);
        if let Some(world) = world {
            self.store_world(&world, ctx);
        }
        if let Some(device) = ask_again {
            self.want_look(device, ctx);
        }
        self.plan_tick(ctx);
        map_wanted
    }
}

impl Actor for GameConnection {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        ctx.spawn(self.alarms.clone().load().into_actor(self));
        self.await_alarms(ctx);
        self.load_notes(ctx);
        self.load_devices(ctx);
        self.supervise_or_pause(ctx);
    }

    fn stopping(&mut self, ctx: &mut Self::Context) -> Running {
        if panics::notice(Part::GameConnection, self.server.as_str()) {
            self.keep_alive(true);
            // First to the hub, so that no one who asks for the server now finds this connection.
            self.hub.do_send(ConnectionEvent::Failed { server: self.server.clone(), connection: ctx.address() });
            if let Ok(publisher) = self.publisher.try_borrow() {
                publisher.fail();
            }
        }
        Running::Stop
    }
}

impl Handler<LinkReport> for GameConnection {
    type Result = bool;

    fn handle(&mut self, report: LinkReport, ctx: &mut Self::Context) -> bool {
        match report {
            LinkReport::Up(link, game_server, info) => {
                self.heard.note(self.context.clock.now());
                self.link = Some(link);
                self.join_market(&game_server, ctx);
                self.game_server = Some(game_server);
                self.cameras_link_changed();
                log::info!(server = self.server.as_str(); "connected to the game server");
                let wanted = self.update(GameUpdate::Connected(info), ctx);
                self.keep_alive(false);
                wanted
            }
            LinkReport::Down { state, reason, next_attempt_at } => {
                self.disconnected(state, Some(reason), Some(next_attempt_at), ctx);
                false
            }
            LinkReport::Update(mut update) => {
                self.heard.note(self.context.clock.now());
                self.take_camera_frame(&mut update);
                let wanted = self.update(update, ctx);
                self.place_devices(ctx);
                self.keep_alive(false);
                wanted
            }
            LinkReport::Map { map, address, port, turn } => {
                let drawing = map_picture::read(&map);
                let wanted = self.update(GameUpdate::Map(map), ctx);
                self.store_map(drawing, address, port, turn);
                wanted
            }
            LinkReport::ServerGone => {
                self.hub.do_send(ConnectionEvent::ServerGone { server: self.server.clone() });
                false
            }
        }
    }
}

impl Handler<Subscribe> for GameConnection {
    type Result = ();

    fn handle(&mut self, Subscribe { subscriber }: Subscribe, ctx: &mut Self::Context) {
        self.publisher.borrow_mut().subscribe(subscriber);
        self.supervise_or_pause(ctx);
        self.plan_tick(ctx);
    }
}

impl Handler<Unsubscribe> for GameConnection {
    type Result = ();

    fn handle(&mut self, Unsubscribe { subscriber }: Unsubscribe, ctx: &mut Self::Context) {
        self.publisher.borrow_mut().unsubscribe(&subscriber);
        self.supervise_or_pause(ctx);
    }
}

impl Handler<RequestSnapshot> for GameConnection {
    type Result = ();

    fn handle(&mut self, RequestSnapshot { subscriber }: RequestSnapshot, ctx: &mut Self::Context) {
        let now = self.context.clock.moment();
        let taken = self.publisher.borrow_mut().send_snapshot(&subscriber, self.live.borrow().state(), now);
        ctx.spawn(taken.into_actor(self).map(|position, connection, _| {
            if let Some(position) = position {
                connection.alarms.state_taken(position);
            }
        }));
    }
}

impl Handler<StateTaken> for GameConnection {
    type Result = ();

    fn handle(&mut self, StateTaken(position): StateTaken, _: &mut Self::Context) {
        self.alarms.state_taken(position);
    }
}

impl Handler<SetWatchers> for GameConnection {
    type Result = ();

    fn handle(&mut self, SetWatchers(allowed): SetWatchers, _: &mut Self::Context) {
        self.publisher.borrow_mut().set_watchers(allowed);
    }
}

impl Handler<DeliverPushedAlarm> for GameConnection {
    type Result = ();

    fn handle(&mut self, DeliverPushedAlarm(alarm, heard_at): DeliverPushedAlarm, ctx: &mut Self::Context) {
        ctx.spawn(self.alarms.clone().pushed_alarm(alarm, heard_at).into_actor(self));
    }
}

impl Handler<Drill> for GameConnection {
    type Result = ResponseActFuture<Self, Option<DrillOutcome>>;

    fn handle(&mut self, _: Drill, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.alarms.clone().drill().into_actor(self))
    }
}

impl Handler<RetryLink> for GameConnection {
    type Result = ();

    fn handle(&mut self, RetryLink { changed }: RetryLink, _: &mut Self::Context) {
        let wake = if changed { &self.wake.replaced } else { &self.wake.retry };
        if changed || self.link.is_none() {
            wake.notify_one();
        }
    }
}

impl Handler<StopConnection> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: StopConnection, ctx: &mut Self::Context) {
        self.keep_alive(true);
        ctx.stop();
    }
}
