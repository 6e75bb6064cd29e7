//! Actor: one paired game server. Started by the hub, on one of the threads for game links; receives what its
//! [`PooledLink`] learns, keeps the [`LiveState`](crate::relay::state::live_state::LiveState), and publishes what
//! follows. Stops when the paired server is deleted or the service drains.

mod alarms;
mod camera_watch;
mod cameras;
mod chat;
mod devices;
mod due;
pub mod handing_over;
mod held_link;
mod last_heard;
mod latest_task;
pub mod link_budget;
mod link_reports;
mod live_feed;
mod looks;
mod maps;
mod mates;
mod notes;
mod own_turns;
mod paired_devices;
mod placement;
mod places;
pub mod players;
mod shared_reading;
mod shops;
mod sitting_down;
mod stored_notes;
mod team;
mod team_commands;

use std::{rc::Rc, sync::Arc};

use actix::prelude::*;
use serde::{Deserialize, Serialize};

pub use self::last_heard::LastHeard;
use self::{
    held_link::HeldLink, live_feed::LiveFeed, paired_devices::DeviceWork, shared_reading::SharedReading,
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
    panics::{self, Part},
    relay::{
        alarms::alarm_delivery::{AlarmDelivery, DrillOutcome},
        game::{
            pool::{
                link_owner::{LinkOwner, LinkPurpose},
                link_slots::LinkSlots,
                pooled_link::PooledLink,
            },
            team_hosts::TeamHosts,
        },
        market::shop_watcher::ShopWatcher,
        shared::{context::RelayContext, write_behind::Record},
        state::{
            game_update::GameUpdate,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    pub state: ConnectionState,
    pub since: Timestamp,
    #[serde(default, deserialize_with = "LinkReason::read")]
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
    /// Links that may read for others, of all game connections.
    pub hosts: Arc<TeamHosts>,
    /// Turns of all links.
    pub slots: Arc<LinkSlots>,
}

/// The end of a link, as users see it.
struct LinkDown {
    state: ConnectionState,
    reason: Option<LinkReason>,
    next_attempt_at: Option<Timestamp>,
}

impl LinkDown {
    fn of(state: ConnectionState) -> Self {
        Self { state, reason: None, next_attempt_at: None }
    }
}

/// See the module. Each part has its own fields and returns what follows from a change; only the actor carries it out.
pub struct GameConnection {
    server: ServerId,
    context: Arc<RelayContext>,
    hub: Recipient<ConnectionEvent>,
    feed: LiveFeed,
    held: HeldLink,
    mates: SharedReading,
    alarms: Rc<AlarmDelivery>,
    shops: ShopWatcher,
    devices: DeviceWork,
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
            held: HeldLink::new(start.heard, start.asked_for, start.slots),
            mates: SharedReading::new(start.hosts),
            devices: DeviceWork::default(),
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
        self.mates.watch(is_watched);
        self.feed.live.watch(is_watched, self.context.clock.moment());
        let is_read = self.held.task.is_some() || self.held.is_resting();
        if (always || is_watched) && !is_read {
            self.begin_link(LinkPurpose::Read, ctx);
            self.disconnected(LinkDown::of(ConnectionState::Connecting), ctx);
        } else if !always && !is_watched {
            self.end_task(ctx);
            self.leave_seat(ctx);
            let reason = Some(LinkReason::Unwatched);
            self.disconnected(LinkDown { reason, ..LinkDown::of(ConnectionState::Paused) }, ctx);
        }
    }

    /// Makes the own link, unless that is under way.
    fn begin_link(&mut self, purpose: LinkPurpose, ctx: &mut Context<Self>) {
        if self.held.task.is_none() && !self.held.has_passed_on {
            self.held.begin();
            self.held.purpose = purpose;
            let (reports, context, server) = (ctx.address().recipient(), self.context.clone(), self.server.clone());
            let (wake, slots) = (self.held.wake.clone(), self.held.slots.clone());
            let (number, read_since) = (self.held.links, self.held.read_since);
            let knows_world = self.feed.live.has_been_up();
            let owner = LinkOwner { number, reports, context, server, wake, slots, purpose, knows_world, read_since };
            let link = PooledLink::keep(owner);
            self.held.task = Some(ctx.spawn(link.into_actor(self)));
        }
    }

    /// Ends the own link.
    fn end_task(&mut self, ctx: &mut Context<Self>) {
        if let Some(task) = self.held.task.take() {
            // Its reports that wait are of no link.
            self.held.links += 1;
            ctx.cancel_future(task);
        }
    }

    /// Ends the own link if it waits for its next attempt: its pause may have grown while a mate's link read.
    fn end_pause(&mut self, ctx: &mut Context<Self>) {
        if self.held.wake.is_paused() {
            self.end_task(ctx);
        }
    }

    fn disconnected(&mut self, LinkDown { state, reason, next_attempt_at }: LinkDown, ctx: &mut Context<Self>) {
        self.held.drop_link();
        // One that waits for its turn had no link before, and may be about to sit down at a mate's.
        if state != ConnectionState::Waiting {
            self.mates_link_down(ctx);
        }
        self.devices.cameras.link_changed();
        self.commands_link_down();
        self.update(GameUpdate::Disconnected { state, reason, next_attempt_at }, ctx);
        self.keep_alive(true);
        match state {
            ConnectionState::Rejected | ConnectionState::NoCredentials => self.held.forget_proof(),
            _ => self.look_for_seat(ctx),
        }
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
        let knew_team = self.knows_team();
        let outcome = self.feed.live.update(update, self.context.clock.moment());
        let map_wanted = self.publish(outcome, ctx);
        if !knew_team && self.knows_team() {
            // Perhaps without a change of the state.
            self.timers_changed(ctx);
        }
        map_wanted && !self.take_shared_map(ctx)
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
            self.mates.seats.pass_markers_on(self.feed.live.state());
            self.feed_market(ctx);
        }
        // Notes from before a wipe are of another world.
        let wipe = events.iter().find(|event| event.kind == EventKind::Wipe);
        let wiped = wipe.map(|wipe| Record::NotesWiped(self.server.clone(), wipe.ts)).into_iter();
        let notes = stored_notes::to_store(&self.server, death_notes, game_notes);
        let facts = wiped.chain(notes).chain(paired_devices::to_store(&self.server, reported));
        facts.for_each(|fact| self.context.write_behind.store(fact));
        if learned {
            self.store_world(ctx);
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
        self.held.used = Some(ctx.address().recipient());
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
        self.withdraw();
        self.commands_link_down();
        self.context.team_timers.close(&self.server, &ctx.address().recipient());
        Running::Stop
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

    fn handle(&mut self, RetryLink { changed }: RetryLink, ctx: &mut Self::Context) {
        if changed {
            if self.mates.seat.is_some() {
                // Another player, or another place: no mate's link reads for this.
                self.end_task(ctx);
                self.leave_seat(ctx);
                self.disconnected(LinkDown::of(ConnectionState::Connecting), ctx);
                self.begin_link(LinkPurpose::Read, ctx);
            }
            self.held.forget_proof();
            self.ask_no_longer(ctx);
        }
        self.mates.forget_refusal();
        self.held.retry(changed);
        self.take_turn(true, ctx);
    }
}

impl Handler<StopConnection> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: StopConnection, ctx: &mut Self::Context) {
        self.keep_alive(true);
        ctx.stop();
    }
}
