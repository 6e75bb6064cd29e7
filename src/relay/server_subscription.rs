//! Actor: a paired server on one worker thread. Started by the first socket of that thread that subscribes; receives the
//! publications of its [`GameConnection`] and writes straight to the sockets that watch. Stops when nobody has watched
//! for a while, or when the paired server is gone.

use std::{cell::Cell, rc::Rc, time::Duration};

use actix::prelude::*;
use bytes::Bytes;
use tokio::time::timeout;

use crate::{
    clock::Clock,
    domain::ids::ServerId,
    relay::{
        feed::{Feed, SnapshotWanted},
        game_connection::{GameConnection, RequestSnapshot, Subscribe, Unsubscribe},
        protocol::Refusal,
        publication::{AllowedUsers, Lane, Publication},
        send_queue::{QueuedFrame, Receipt},
        socket::Socket,
        watchers::Watchers,
    },
};

/// Publications that wait for this thread; beyond it steps are left out, and a snapshot makes up for them.
const MAILBOX: usize = 1_024;
/// How often it is checked whether anybody still watches, and old steps are forgotten.
const LINGER: Duration = Duration::from_secs(30);
/// An alarm is answered after this long, even if a socket has not taken it: two windows of its frames.
const WRITTEN_WITHIN: Duration = Duration::from_secs(20);

/// A subscription as the sockets of its thread share it.
pub struct Subscription {
    pub feed: Rc<Feed>,
    pub watchers: Watchers,
    connection: Addr<GameConnection>,
    /// The actor has stopped or is about to; whoever wants to watch starts another one.
    ended: Cell<bool>,
}

impl Subscription {
    /// Whether its actor runs, and a game connection that feeds it.
    pub fn is_live(&self) -> bool {
        !self.ended.get() && self.connection.connected()
    }

    /// Replaces who may watch, unless what is known is newer; the watch of everybody else ends.
    pub fn set_watchers(&self, allowed: AllowedUsers) {
        for socket in self.watchers.allow(allowed) {
            self.end_watch(&socket);
        }
    }

    fn end_watch(&self, socket: &Rc<Socket>) {
        socket.queue.borrow_mut().unwatch(&self.feed.server);
        socket.push(Lane::Reply, Refusal::unknown_server(self.feed.server.clone()).frame());
    }
}

/// See the module.
pub struct ServerSubscription {
    subscription: Rc<Subscription>,
    /// Nobody watched at the last check.
    idle: bool,
}

impl ServerSubscription {
    /// Starts on this thread.
    pub fn start(
        server: ServerId,
        clock: Clock,
        connection: Addr<GameConnection>,
        allowed: AllowedUsers,
    ) -> Rc<Subscription> {
        let subscription = Rc::new(Subscription {
            feed: Feed::new(server, clock),
            watchers: Watchers::new(allowed),
            connection,
            ended: Cell::new(false),
        });
        Actor::start(Self { subscription: subscription.clone(), idle: false });
        subscription
    }

    /// Writes what is new to everybody who watches, and asks for a snapshot if somebody needs one.
    fn fan_out(&self, ctx: &Context<Self>) {
        self.subscription.watchers.for_each(|socket| socket.pump());
        self.ask_if_wanted(ctx);
    }

    fn ask_if_wanted(&self, ctx: &Context<Self>) {
        if self.subscription.feed.take_snapshot_wanted() {
            self.subscription.connection.do_send(RequestSnapshot { subscriber: ctx.address().recipient() });
        }
    }

    fn deliver(&self, lane: Lane, frame: Bytes, receipt: Option<Rc<Receipt>>) {
        let queued = QueuedFrame { frame, receipt, feed: Some(self.subscription.feed.clone()) };
        self.subscription.watchers.for_each(|socket| socket.push(lane, queued.clone()));
    }

    /// Delivers an alarm; resolves to the number of sockets whose kernel buffer took it.
    fn deliver_alarm(&self, frame: Bytes) -> impl Future<Output = usize> + use<> {
        let (receipt, taken, finished) = Receipt::new();
        self.deliver(Lane::Raid, frame, Some(receipt));
        async move {
            // It never sends, it only ends. A socket that takes longer does not read.
            let _ = timeout(WRITTEN_WITHIN, finished).await;
            taken.get()
        }
    }
}

impl Actor for ServerSubscription {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.subscription.connection.do_send(Subscribe { subscriber: ctx.address().recipient() });
        self.subscription.feed.connect(ctx.address().recipient());
        self.ask_if_wanted(ctx);
        ctx.run_interval(LINGER, |actor, ctx| {
            let feed = &actor.subscription.feed;
            feed.log.borrow_mut().forget_old(feed.clock.moment());
            let idle = actor.subscription.watchers.is_empty();
            if (idle && actor.idle) || !actor.subscription.is_live() {
                ctx.stop();
            }
            actor.idle = idle;
        });
    }

    fn stopping(&mut self, ctx: &mut Self::Context) -> Running {
        self.subscription.ended.set(true);
        self.subscription.connection.do_send(Unsubscribe { subscriber: ctx.address().recipient() });
        for socket in self.subscription.watchers.remove_all() {
            self.subscription.end_watch(&socket);
        }
        self.subscription.feed.log.borrow_mut().clear();
        Running::Stop
    }
}

impl Handler<Publication> for ServerSubscription {
    type Result = Response<usize>;

    fn handle(&mut self, publication: Publication, ctx: &mut Self::Context) -> Response<usize> {
        let feed = &self.subscription.feed;
        match publication {
            Publication::Advance { epoch, step } => {
                if !feed.log.borrow_mut().advance(epoch, step, feed.clock.moment()) {
                    feed.mark_snapshot_wanted();
                }
                self.fan_out(ctx);
            }
            Publication::Snapshot { position, frame } => {
                feed.log.borrow_mut().restart(position, frame);
                self.fan_out(ctx);
            }
            Publication::Deliver { lane, frame } => self.deliver(lane, frame, None),
            Publication::DeliverAlarm { frame } => return Response::fut(self.deliver_alarm(frame)),
            Publication::Skipped => {
                feed.mark_snapshot_wanted();
                self.ask_if_wanted(ctx);
            }
            Publication::SetWatchers(allowed) => {
                self.subscription.set_watchers(allowed);
                if self.subscription.watchers.nobody_may_watch() {
                    ctx.stop();
                }
            }
        }
        Response::reply(0)
    }
}

impl Handler<SnapshotWanted> for ServerSubscription {
    type Result = ();

    fn handle(&mut self, _: SnapshotWanted, ctx: &mut Self::Context) {
        self.ask_if_wanted(ctx);
    }
}
