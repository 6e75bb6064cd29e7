//! Actor: one paired game server. Started by the hub, on one of the threads for game links; receives what its
//! [`PooledLink`] learns, keeps the [`LiveState`](crate::relay::state::live_state::LiveState), and publishes what
//! follows. Stops when the paired server is deleted or the service drains.

mod alarms;
mod camera_watch;
mod cameras;
mod chat;
mod devices;
mod due;
mod held_link;
mod last_heard;
mod live_feed;
mod looks;
mod maps;
mod notes;
mod paired_devices;
mod placement;
mod places;
pub mod players;
mod shops;
mod stored_notes;
mod team;
mod team_commands;

use std::{rc::Rc, sync::Arc};

use actix::prelude::*;

pub use self::last_heard::LastHeard;
use self::{
    camera_watch::CameraWatch, held_link::HeldLink, live_feed::LiveFeed, paired_devices::DeviceWork,
    team_commands::TeamCommands,
};
use crate::{
    config::GameLinkPolicy,
    domain::{
        ids::{ServerId, UserId},
        link_reason::LinkReason,
        server_state::ConnectionState,
        time::Timestamp,
        world_event::EventKind,
    },
    game::map_picture,
    panics::{self, Part},
    relay::{
        alarms::{
            alarm_delivery::{AlarmDelivery, DrillOutcome, PushedAlarm},
            received_at::ReceivedAt,
        },
        game::pool::{link_owner::LinkOwner, link_report::LinkReport, pooled_link::PooledLink},
        market::shop_watcher::ShopWatcher,
        shared::{context::RelayContext, write_behind::Record},
        state::{
            game_update::{GameUpdate, WorldUpdate},
            outcome::{Outcome, OwnOutcome, TeamOutcome, WorldOutcome},
        },
        wire::publication::{AllowedUsers, Position, Publication},
    },
};

/// The senders bound what waits here: one link that waits for each answer, one message per subscriber and
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
pub struct DeliverPushedAlarm(pub PushedAlarm, pub ReceivedAt);

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

/// See the module. Each part has its own fields and returns what follows from a change; only the actor carries it out.
pub struct GameConnection {
    server: ServerId,
    context: Arc<RelayContext>,
    hub: Recipient<ConnectionEvent>,
    feed: LiveFeed,
    held: HeldLink,
    alarms: Rc<AlarmDelivery>,
    shops: ShopWatcher,
    devices: DeviceWork,
    cameras: CameraWatch,
    commands: TeamCommands,
}

impl GameConnection {
    /// A connection that knows nothing yet. `hub` gets what becomes of it.
    pub fn new(
        server: ServerId,
        context: Arc<RelayContext>,
        hub: Recipient<ConnectionEvent>,
        start: ConnectionStart,
    ) -> Self {
        Self {
            feed: LiveFeed::new(server.clone(), start.epoch, context.catalogue.clone(), context.clock.now()),
            alarms: AlarmDelivery::new(server.clone(), context.clone()),
            shops: ShopWatcher::new(server.clone(), context.clone()),
            held: HeldLink::new(start.heard, start.asked_for),
            devices: DeviceWork::default(),
            cameras: CameraWatch::default(),
            commands: TeamCommands::default(),
            server,
            context,
            hub,
        }
    }

    /// Starts or stops the link, as the link policy wants it.
    fn link_or_pause(&mut self, ctx: &mut Context<Self>) {
        let always = self.context.game.link_policy == GameLinkPolicy::Always;
        let is_watched = self.feed.publisher.has_subscribers();
        self.held.wake.watch(is_watched);
        self.feed.live.watch(is_watched, self.context.clock.moment());
        match (always || is_watched, self.held.task) {
            (true, None) => {
                self.held.begin();
                let (context, server, wake) = (self.context.clone(), self.server.clone(), self.held.wake.clone());
                let link = PooledLink::keep(LinkOwner { reports: ctx.address().recipient(), context, server, wake });
                self.held.task = Some(ctx.spawn(link.into_actor(self)));
                self.disconnected(ConnectionState::Connecting, None, None, ctx);
            }
            (false, task) => {
                if let Some(task) = task {
                    ctx.cancel_future(task);
                    self.held.task = None;
                }
                self.disconnected(ConnectionState::Paused, Some(LinkReason::Unwatched), None, ctx);
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
        self.held.drop_link();
        self.cameras.link_changed();
        self.commands_link_down();
        self.update(GameUpdate::Disconnected { state, reason, next_attempt_at }, ctx);
        self.keep_alive(true);
    }

    /// Stores once a minute when the link was last up, so that the next process knows since when no one looked.
    /// `at_once`: there is no later.
    fn keep_alive(&mut self, at_once: bool) {
        let now = self.context.clock.moment();
        if let Some(at) = self.held.alive_to_store(self.feed.live.alive_at(now), now, at_once) {
            self.context.write_behind.store(Record::LinkAlive(self.server.clone(), at));
        }
    }

    /// Applies an update and publishes what follows. True if the map must be asked for.
    fn update(&mut self, update: impl Into<GameUpdate>, ctx: &mut Context<Self>) -> bool {
        let outcome = self.feed.live.update(update, self.context.clock.moment());
        self.publish(outcome, ctx)
    }

    fn publish(&mut self, outcome: Outcome, ctx: &mut Context<Self>) -> bool {
        let Outcome { changes, events, world, team, own } = outcome;
        let WorldOutcome { shops_seen, learned, speeds, map_wanted } = world;
        let TeamOutcome { chat } = team;
        let OwnOutcome { alarms, alarm_values, reported, death_notes, game_notes, connection_changed, ask_again } = own;
        if connection_changed {
            let head = &self.feed.live.state().server;
            let status = LinkStatus {
                state: head.connection,
                since: head.since,
                reason: head.reason,
                next_attempt_at: head.next_attempt_at,
            };
            self.hub.do_send(ConnectionEvent::Status { server: self.server.clone(), status });
        }
        for alarm in alarms {
            self.deliver_alarm(self.alarms.clone().link_alarm(alarm), ctx);
        }
        for (device, value) in alarm_values {
            self.alarms.note_value(&device, value);
        }
        self.commands_see(&changes, ctx);
        self.feed.publisher.advance(changes, self.context.clock.moment());
        for event in &events {
            let id = self.context.record(&self.server, self.held.game_server.as_ref(), event);
            self.feed.deliver_event(id.as_deref(), event);
            self.commands_note(event, ctx);
        }
        self.hear_commands(&chat);
        self.hear_chat(chat);
        if shops_seen {
            self.feed_market(ctx);
        }
        // Notes from before a wipe are of another world.
        let wipe = events.iter().find(|event| event.kind == EventKind::Wipe);
        let wiped = wipe.map(|wipe| Record::NotesWiped(self.server.clone(), wipe.ts)).into_iter();
        let notes = stored_notes::to_store(&self.server, death_notes, game_notes);
        let facts = wiped.chain(notes).chain(paired_devices::to_store(&self.server, reported));
        facts.for_each(|fact| self.context.write_behind.store(fact));
        if let Some(world) = learned {
            self.store_world(&world, ctx);
        }
        if let Some((game_server, speeds)) = self.held.game_server.clone().zip(speeds) {
            self.context.write_behind.store(Record::DaySpeeds(game_server, speeds));
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
        self.load_alarms(ctx);
        self.await_alarms(ctx);
        self.load_notes(ctx);
        self.load_devices(ctx);
        self.load_commands(ctx);
        self.link_or_pause(ctx);
    }

    fn stopping(&mut self, ctx: &mut Self::Context) -> Running {
        if panics::notice(Part::GameConnection, self.server.as_str()) {
            self.keep_alive(true);
            // First to the hub, so that no one who asks for the server now finds this connection.
            self.hub.do_send(ConnectionEvent::Failed { server: self.server.clone(), connection: ctx.address() });
            self.feed.publisher.fail();
        }
        self.commands_link_down();
        Running::Stop
    }
}

impl Handler<LinkReport> for GameConnection {
    type Result = bool;

    fn handle(&mut self, report: LinkReport, ctx: &mut Self::Context) -> bool {
        match report {
            LinkReport::Up { reading, acting, game_server, info } => {
                self.held.heard.note(self.context.clock.now());
                (self.held.reading, self.held.acting) = (Some(reading), Some(acting));
                self.join_market(&game_server, ctx);
                self.held.game_server = Some(game_server);
                self.cameras.link_changed();
                log::info!(server = self.server.as_str(); "connected to the game server");
                let wanted = self.update(GameUpdate::Connected(info), ctx);
                self.commands.connected(self.context.clock.moment());
                self.keep_alive(false);
                wanted
            }
            LinkReport::Resynced => {
                self.commands_resynced(ctx);
                false
            }
            LinkReport::Down { state, reason, next_attempt_at } => {
                self.disconnected(state, Some(reason), Some(next_attempt_at), ctx);
                false
            }
            LinkReport::Update(mut update) => {
                self.held.heard.note(self.context.clock.now());
                self.cameras.take_frame(&mut update);
                let wanted = self.update(update, ctx);
                self.place_devices(ctx);
                self.keep_alive(false);
                wanted
            }
            LinkReport::Map { map, address, port, turn } => {
                let drawing = map_picture::read(&map);
                let wanted = self.update(WorldUpdate::Map(map), ctx);
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
        self.feed.publisher.subscribe(subscriber);
        self.link_or_pause(ctx);
        self.plan_tick(ctx);
    }
}

impl Handler<Unsubscribe> for GameConnection {
    type Result = ();

    fn handle(&mut self, Unsubscribe { subscriber }: Unsubscribe, ctx: &mut Self::Context) {
        self.feed.publisher.unsubscribe(&subscriber);
        self.link_or_pause(ctx);
    }
}

impl Handler<RequestSnapshot> for GameConnection {
    type Result = ();

    fn handle(&mut self, RequestSnapshot { subscriber }: RequestSnapshot, ctx: &mut Self::Context) {
        let taken = self.feed.send_snapshot(&subscriber, self.context.clock.moment());
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

    fn handle(&mut self, SetWatchers(allowed): SetWatchers, ctx: &mut Self::Context) {
        self.feed.publisher.set_watchers(allowed);
        self.load_commands(ctx);
    }
}

impl Handler<RetryLink> for GameConnection {
    type Result = ();

    fn handle(&mut self, RetryLink { changed }: RetryLink, _: &mut Self::Context) {
        self.held.retry(changed);
    }
}

impl Handler<StopConnection> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: StopConnection, ctx: &mut Self::Context) {
        self.keep_alive(true);
        ctx.stop();
    }
}
