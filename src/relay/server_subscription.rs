//! Actor: a paired server on one worker thread. Started by the first socket of that thread that subscribes; hears its
//! [`GameConnection`] and writes straight to the sockets that watch; knows
//! who may watch and ends a watch when access ends. Stops when nobody has watched for a while, or when the paired
//! server is gone.

use std::{collections::HashSet, rc::Rc, sync::Arc, time::Duration};

use actix::prelude::*;
use bytes::Bytes;

use crate::{
    domain::ids::{ServerId, UserId},
    relay::{
        feed::{Feed, Position, Step},
        game_connection::{GameConnection, Join, Leave, TakeSnapshot},
        outbox::Lane,
        protocol::Refusal,
        socket::Socket,
        worker::Worker,
    },
};

/// News that wait for this thread; beyond it steps are skipped, and a snapshot makes up for them.
const MAILBOX: usize = 1_024;
/// How often it is looked whether anybody still watches.
const LINGER: Duration = Duration::from_secs(30);

/// The state took a step.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Advance {
    pub epoch: u64,
    pub step: Arc<Step>,
}

/// A snapshot that was asked for.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Snapshot {
    pub position: Position,
    pub frame: Bytes,
}

/// A raid, an event or a line of chat, for all who watch. Answered with how many sockets that were.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct Tell {
    pub lane: Lane,
    pub frame: Bytes,
}

/// Steps were skipped because this thread was too busy.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Skipped;

/// From now on only these may watch; nobody at all once the paired server is gone.
#[derive(Message, Clone)]
#[rtype(result = "()")]
pub struct Allow {
    pub watchers: Arc<HashSet<UserId>>,
}

/// See the module.
pub struct ServerSubscription {
    server: ServerId,
    connection: Addr<GameConnection>,
    worker: Rc<Worker>,
    feed: Rc<Feed>,
    /// Nobody watched when it was last looked.
    idle: bool,
}

impl ServerSubscription {
    /// Starts on this thread.
    pub fn start(server: ServerId, connection: Addr<GameConnection>, worker: Rc<Worker>, feed: Rc<Feed>) -> Addr<Self> {
        Actor::start(Self { server, connection, worker, feed, idle: false })
    }

    /// Writes what is new to everybody who watches, and asks for a snapshot if somebody needs one.
    fn fan_out(&self, ctx: &Context<Self>) {
        for socket in self.feed.watchers.borrow().iter() {
            socket.pump();
        }
        self.ask_if_wanted(ctx);
    }

    fn ask_if_wanted(&self, ctx: &Context<Self>) {
        if self.feed.snapshot_wanted.take() {
            self.connection.do_send(TakeSnapshot { subscriber: ctx.address() });
        }
    }

    fn end_watch(&self, socket: &Rc<Socket>) {
        socket.outbox.borrow_mut().unwatch(&self.server);
        socket.push(Lane::Reply, Refusal::unknown_server(self.server.clone()).frame());
    }
}

impl Actor for ServerSubscription {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.connection.do_send(Join { subscriber: ctx.address() });
        // Set once: the feed starts and ends with this actor.
        let _ = self.feed.source.set(ctx.address().recipient());
        self.ask_if_wanted(ctx);
        ctx.run_interval(LINGER, |subscription, ctx| {
            let idle = subscription.feed.watchers.borrow().is_empty();
            if idle && subscription.idle {
                ctx.stop();
            }
            subscription.idle = idle;
        });
    }

    fn stopping(&mut self, ctx: &mut Self::Context) -> Running {
        self.worker.forget(&self.server);
        self.connection.do_send(Leave { subscriber: ctx.address() });
        for socket in self.feed.watchers.take() {
            self.end_watch(&socket);
        }
        Running::Stop
    }
}

impl Handler<Advance> for ServerSubscription {
    type Result = ();

    fn handle(&mut self, advance: Advance, ctx: &mut Self::Context) {
        if !self.feed.stream.borrow_mut().advance(advance.epoch, advance.step) {
            self.feed.snapshot_wanted.set(true);
        }
        self.fan_out(ctx);
    }
}

impl Handler<Snapshot> for ServerSubscription {
    type Result = ();

    fn handle(&mut self, snapshot: Snapshot, ctx: &mut Self::Context) {
        self.feed.stream.borrow_mut().restart(snapshot.position, snapshot.frame);
        self.fan_out(ctx);
    }
}

impl Handler<Tell> for ServerSubscription {
    type Result = usize;

    fn handle(&mut self, tell: Tell, _: &mut Self::Context) -> usize {
        let watchers = self.feed.watchers.borrow();
        for socket in watchers.iter() {
            socket.push(tell.lane, tell.frame.clone());
        }
        watchers.len()
    }
}

impl Handler<Skipped> for ServerSubscription {
    type Result = ();

    fn handle(&mut self, _: Skipped, ctx: &mut Self::Context) {
        self.feed.snapshot_wanted.set(true);
        self.ask_if_wanted(ctx);
    }
}

impl Handler<Allow> for ServerSubscription {
    type Result = ();

    fn handle(&mut self, allow: Allow, ctx: &mut Self::Context) {
        self.worker.allow(&self.server, allow.watchers.clone());
        let watchers = self.feed.watchers.take();
        let (stay, end): (Vec<_>, Vec<_>) =
            watchers.into_iter().partition(|socket| allow.watchers.contains(&socket.user));
        *self.feed.watchers.borrow_mut() = stay;
        for socket in end {
            self.end_watch(&socket);
        }
        if allow.watchers.is_empty() {
            ctx.stop();
        }
    }
}

/// A socket on this thread needs a snapshot that is not here yet.
#[derive(Message)]
#[rtype(result = "()")]
pub struct WantSnapshot;

impl Handler<WantSnapshot> for ServerSubscription {
    type Result = ();

    fn handle(&mut self, _: WantSnapshot, ctx: &mut Self::Context) {
        self.ask_if_wanted(ctx);
    }
}
