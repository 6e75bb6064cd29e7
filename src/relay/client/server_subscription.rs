//! Actor: a paired server on one worker thread. Started by the first socket of that thread that subscribes; receives
//! the publications of its game connection and writes straight to the sockets that watch. When the game connection
//! fails, it asks the hub for the one that takes its place. Stops when no one has watched for a while, or when the
//! paired server is gone.

use std::{
    cell::{Cell, Ref, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix::prelude::*;
use futures_util::FutureExt as _;
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};

use crate::{
    domain::{
        backoff::Backoff,
        ids::UserId,
        sections::{Sections, StateKey},
    },
    panics::{self, Part},
    relay::{
        client::{
            announced_alarms::{AnnouncedAlarm, AnnouncedAlarms},
            feed::{Feed, FeedRequest},
            send_queue::QueuedFrame,
            server_lookup::{FeedSource, FindServer, FoundServer},
            socket::{Socket, with_read_ahead},
            sockets::{BATCH, Sockets},
            watchers::Watchers,
        },
        game::game_connection::{RequestSnapshot, StateTaken, Subscribe, Unsubscribe},
        wire::{
            close::Reason,
            frame::SharedFrame,
            protocol::Refusal,
            publication::{AllowedUsers, Announcement, Lane, Publication},
            receipt::{DeliveryCount, Receipt},
        },
    },
};

/// Publications that wait for this thread; beyond it steps are left out, and a snapshot makes up for them.
pub const MAILBOX: usize = 1_024;
/// Time between two checks whether any socket still watches, at which old steps are forgotten.
const LINGER: Duration = Duration::from_secs(30);
/// Longest pause between two questions for a game connection: the server may have passed from node to node again and again.
const ASKED_WITHIN: Duration = Duration::from_secs(10);
/// A random byte for pauses that need not differ: one thread asks for one server.
const NO_JITTER: u8 = 128;

/// A subscription as the sockets of its thread share it.
pub struct Subscription {
    pub feed: Rc<Feed>,
    pub watchers: Watchers,
    source: RefCell<FeedSource>,
    /// The actor has stopped or is about to; a socket that wants to watch starts another one.
    ended: Cell<bool>,
}

impl Subscription {
    /// True if its actor runs.
    pub fn is_live(&self) -> bool {
        !self.ended.get()
    }

    fn source(&self) -> Ref<'_, FeedSource> {
        self.source.borrow()
    }

    /// Replaces who may watch, unless a newer version is known; the watch of all others ends.
    pub fn set_watchers(&self, allowed: AllowedUsers) {
        for socket in self.watchers.allow(allowed) {
            self.end_watch(&socket);
        }
    }

    fn end_watch(&self, socket: &Rc<Socket>) {
        socket.queue.borrow_mut().unwatch(&self.feed.server, socket.now());
        socket.push(Lane::Reply, Refusal::unknown_server(self.feed.server.clone()).frame());
    }
}

/// See the module.
pub struct ServerSubscription {
    subscription: Rc<Subscription>,
    servers: Recipient<FindServer>,
    sockets: Rc<Sockets>,
    mailbox: usize,
    /// Sockets that are still to be served for the last news.
    pass: VecDeque<u32>,
    announced: AnnouncedAlarms,
    /// No socket watched at the last check.
    idle: bool,
    /// Its game connection is gone, and another is being asked for.
    searching: bool,
    /// Since when it has its game connection.
    since: Instant,
    backoff: Backoff,
}

impl ServerSubscription {
    /// Starts on this thread, with room for `mailbox` publications. `servers` is asked again if the connection fails.
    pub fn start(
        feed: Rc<Feed>,
        found: FoundServer,
        servers: Recipient<FindServer>,
        sockets: Rc<Sockets>,
        mailbox: usize,
    ) -> Rc<Subscription> {
        let subscription = Rc::new(Subscription {
            feed,
            watchers: Watchers::new(found.allowed),
            source: RefCell::new(found.feed),
            ended: Cell::new(false),
        });
        Actor::start(Self {
            subscription: subscription.clone(),
            servers,
            sockets,
            mailbox,
            pass: VecDeque::new(),
            announced: AnnouncedAlarms::default(),
            idle: false,
            searching: false,
            since: Instant::now(),
            backoff: Backoff::between(Backoff::FIRST, ASKED_WITHIN),
        });
        subscription
    }

    fn subscribe(&self, ctx: &mut Context<Self>) {
        let subscribe = Subscribe { subscriber: ctx.address().recipient() };
        let subscribed = self.subscription.source().subscribe.send(subscribe);
        ctx.spawn(subscribed.into_actor(self).map(|subscribed, actor, ctx| {
            if subscribed.is_err() {
                actor.search(ctx);
            }
        }));
    }

    /// Asks for the game connection that takes the place of the one that is gone. Its snapshot brings the sockets on.
    fn search(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.searching, true) {
            self.ask_after_a_pause(ctx);
        }
    }

    fn ask_after_a_pause(&mut self, ctx: &mut Context<Self>) {
        // A connection that fails at once, again and again, does not keep us busy.
        let pause = self.backoff.after(self.since.elapsed(), Duration::ZERO, NO_JITTER);
        self.since = Instant::now();
        let (servers, server) = (self.servers.clone(), self.subscription.feed.server.clone());
        let found = async move {
            sleep(pause).await;
            servers.send(FindServer { server }).await
        };
        ctx.spawn(found.into_actor(self).map(|found, actor, ctx| match found {
            Ok(Ok(Some(found))) => {
                actor.searching = false;
                actor.since = Instant::now();
                *actor.subscription.source.borrow_mut() = found.feed;
                actor.subscription.set_watchers(found.allowed);
                actor.subscribe(ctx);
                actor.subscription.feed.mark_snapshot_wanted();
                actor.ask_if_wanted(ctx);
            }
            Ok(Err(_)) => actor.ask_after_a_pause(ctx),
            // The server was deleted, or the service stops.
            Ok(Ok(None)) | Err(_) => ctx.stop(),
        }));
    }

    /// Serves these sockets, in batches: an alarm that comes meanwhile waits for one batch, not for all sockets.
    fn serve(&mut self, sockets: impl IntoIterator<Item = u32>, ctx: &mut Context<Self>) {
        let idle = self.pass.is_empty();
        self.pass.extend(sockets);
        if idle {
            self.serve_batch(ctx);
        }
    }

    fn serve_batch(&mut self, ctx: &mut Context<Self>) {
        let batch: Vec<u32> = self.pass.drain(..self.pass.len().min(BATCH)).collect();
        for socket in with_read_ahead(&self.sockets.of(&batch)) {
            socket.pump();
        }
        self.ask_if_wanted(ctx);
        if !self.pass.is_empty() {
            ctx.spawn(yield_now().into_actor(self).map(|(), actor, ctx| actor.serve_batch(ctx)));
        }
    }

    fn ask_if_wanted(&self, ctx: &Context<Self>) {
        if self.subscription.feed.take_snapshot_wanted() {
            let request = RequestSnapshot { subscriber: ctx.address().recipient() };
            self.subscription.source().snapshot.do_send(request);
        }
    }

    fn deliver(&mut self, lane: Lane, about: Sections, frame: SharedFrame, ctx: &mut Context<Self>) {
        let queued = QueuedFrame { feed: Some(self.subscription.feed.clone()), ..frame.into() };
        let mut numbers = Vec::new();
        for socket in with_read_ahead(&self.subscription.watchers.all()) {
            if socket.sees.get().contain_all(about) {
                socket.put(lane, queued.clone());
                numbers.push(socket.number);
            }
        }
        self.serve(numbers, ctx);
    }

    /// Delivers an alarm to all but these users, and the sockets that have been sent one that said the same; resolves to the
    /// number of sockets whose kernel buffer took either.
    fn deliver_alarm(
        &mut self,
        frame: SharedFrame,
        (about, number): (Announcement, Option<u64>),
        acknowledged: &[UserId],
        on_all_threads: Arc<DeliveryCount>,
    ) -> impl Future<Output = usize> + use<> {
        let watchers = &self.subscription.watchers;
        let earlier = self.announced.earlier(&about, number);
        let sockets = watchers.after(earlier.to);
        let by_earlier = earlier.count(on_all_threads.clone());
        let (receipt, taken, finished) = Receipt::of_alarm(on_all_threads);
        let feed = Some(self.subscription.feed.clone());
        let update_of = about.update.then(|| about.incident.clone());
        let queued = QueuedFrame { frame, receipt: Some(receipt), feed, update_of };
        for socket in with_read_ahead(&sockets) {
            if !acknowledged.contains(&socket.user) && socket.sees.get().contains(StateKey::Raids) {
                socket.push_raid(queued.clone());
            }
        }
        drop(queued);
        let counted = taken.clone();
        let all = async move {
            // This channel never sends, it only ends: with the last socket that has taken its message or is gone. In a
            // crowd of raids that is minutes later.
            let _ = finished.await;
            counted.get()
        };
        let (all, to) = (all.boxed_local().shared(), watchers.last());
        self.announced.add(AnnouncedAlarm { about, number, to, taken, all: all.clone() });
        async move { by_earlier.await + all.await }
    }
}

impl Actor for ServerSubscription {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox);
        self.subscribe(ctx);
        self.subscription.feed.connect(ctx.address().recipient());
        self.ask_if_wanted(ctx);
        ctx.run_interval(LINGER, |actor, ctx| {
            let feed = &actor.subscription.feed;
            feed.log.borrow_mut().forget_old(feed.clock.moment());
            let idle = actor.subscription.watchers.is_empty();
            if idle && actor.idle {
                ctx.stop();
            } else if !actor.subscription.source().subscribe.connected() {
                actor.search(ctx);
            }
            actor.idle = idle;
        });
    }

    fn stopping(&mut self, ctx: &mut Self::Context) -> Running {
        self.subscription.ended.set(true);
        self.subscription.source().unsubscribe.do_send(Unsubscribe { subscriber: ctx.address().recipient() });
        let failed = panics::notice(Part::ServerSubscription, self.subscription.feed.server.as_str());
        for socket in self.subscription.watchers.remove_all() {
            match failed {
                // Its client comes back and finds the server again. Later, and each by itself: it may be this very
                // socket that panics.
                true => drop(actix::spawn(async move { socket.close(Reason::Failed) })),
                false => self.subscription.end_watch(&socket),
            }
        }
        self.subscription.feed.log.borrow_mut().clear();
        self.subscription.feed.drop_receipts();
        Running::Stop
    }
}

impl Handler<Publication> for ServerSubscription {
    type Result = Response<usize>;

    fn handle(&mut self, publication: Publication, ctx: &mut Self::Context) -> Response<usize> {
        let feed = self.subscription.feed.clone();
        match publication {
            Publication::Advance { epoch, step } => {
                let changed = step.sections();
                let follows = feed.log.borrow_mut().advance(epoch, step);
                if follows {
                    self.serve(feed.idle.take_changed(changed), ctx);
                } else {
                    feed.mark_snapshot_wanted();
                    self.ask_if_wanted(ctx);
                }
            }
            Publication::Snapshot { position, frame, steps } => {
                let is_news = feed.log.borrow_mut().restart(position, frame, steps);
                let (receipt, first) = Receipt::of_first();
                feed.set_snapshot_receipt(receipt);
                let mut sockets = feed.awaiting_snapshot.take();
                if is_news {
                    sockets.extend(feed.idle.take());
                }
                self.serve(sockets, ctx);
                return Response::fut(async move { usize::from(first.await.is_ok()) });
            }
            Publication::Deliver { lane, about, frame } => self.deliver(lane, about, frame, ctx),
            Publication::DeliverAlarm { frame, about, number, acknowledged, taken } => {
                return Response::fut(self.deliver_alarm(frame, (about, number), &acknowledged, taken));
            }
            Publication::Skipped => {
                feed.mark_snapshot_wanted();
                self.ask_if_wanted(ctx);
            }
            Publication::ConnectionFailed => self.search(ctx),
            Publication::SetWatchers(allowed) => {
                self.subscription.set_watchers(allowed);
                if self.subscription.watchers.no_one_may_watch() {
                    ctx.stop();
                }
            }
        }
        Response::reply(0)
    }
}

impl Handler<FeedRequest> for ServerSubscription {
    type Result = ();

    fn handle(&mut self, request: FeedRequest, ctx: &mut Self::Context) {
        match request {
            FeedRequest::Snapshot => self.ask_if_wanted(ctx),
            FeedRequest::Return { position, taken } => {
                let source = self.subscription.source().taken.clone();
                ctx.spawn(taken.into_actor(self).map(move |taken, _, _| {
                    if taken.is_ok() {
                        source.do_send(StateTaken(position));
                    }
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::{
        catalogue::SharedCatalogue, clock::Clock, domain::time::Timestamp, net::Memory,
        relay::client::server_lookup::FindError,
    };

    /// A game connection that keeps its subscriber, and finds no other.
    struct SubscriberKeeper(Rc<RefCell<Option<Recipient<Publication>>>>);

    impl Actor for SubscriberKeeper {
        type Context = Context<Self>;
    }

    impl Handler<Subscribe> for SubscriberKeeper {
        type Result = ();

        fn handle(&mut self, Subscribe { subscriber }: Subscribe, _: &mut Self::Context) {
            *self.0.borrow_mut() = Some(subscriber);
        }
    }

    impl Handler<Unsubscribe> for SubscriberKeeper {
        type Result = ();

        fn handle(&mut self, _: Unsubscribe, _: &mut Self::Context) {}
    }

    impl Handler<RequestSnapshot> for SubscriberKeeper {
        type Result = ();

        fn handle(&mut self, _: RequestSnapshot, _: &mut Self::Context) {}
    }

    impl Handler<StateTaken> for SubscriberKeeper {
        type Result = ();

        fn handle(&mut self, _: StateTaken, _: &mut Self::Context) {}
    }

    impl Handler<FindServer> for SubscriberKeeper {
        type Result = Result<Option<FoundServer>, FindError>;

        fn handle(&mut self, _: FindServer, _: &mut Self::Context) -> Self::Result {
            Ok(None)
        }
    }

    /// A subscription, and the recipient of what its game connection publishes.
    async fn start(sockets: &Rc<Sockets>) -> (Rc<Subscription>, Recipient<Publication>) {
        let subscriber = Rc::new(RefCell::new(None));
        let source = SubscriberKeeper(subscriber.clone()).start();
        let users = Arc::new(["alice".into()].into());
        let allowed = AllowedUsers { version: 1, users, ..AllowedUsers::default() };
        let found = FoundServer { feed: source.clone().into(), allowed, is_of_now: true };
        let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
        let feed = Feed::new("one".into(), clock, SharedCatalogue::default());
        let subscription = ServerSubscription::start(feed, found, source.recipient(), sockets.clone(), MAILBOX);
        while subscriber.borrow().is_none() {
            yield_now().await;
        }
        let subscribed = subscriber.borrow_mut().take().expect("it has subscribed");
        (subscription, subscribed)
    }

    /// The end of a client that watches.
    fn watch(subscription: &Subscription, sockets: &Sockets) -> Memory {
        let (ours, client) = Memory::pair(1 << 20);
        let socket = sockets.open("alice".into(), ours.into(), false);
        socket.queue.borrow_mut().watch(&subscription.feed, None, Sections::ALL);
        subscription.watchers.add(&socket);
        client
    }

    /// The frames that have arrived.
    fn read(client: &Memory) -> String {
        let mut bytes = BytesMut::new();
        while client.try_read_buf(&mut bytes).is_ok_and(|count| count > 0) {}
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn alarm(about: Announcement, number: Option<u64>, taken: Arc<DeliveryCount>) -> Publication {
        let (frame, acknowledged) = (SharedFrame::text(b"alarm"), Arc::default());
        Publication::DeliverAlarm { frame, about, number, acknowledged, taken }
    }

    #[actix::test]
    async fn an_alarm_that_is_announced_again_is_for_the_sockets_that_have_not_got_it() {
        let sockets = Sockets::start(Arc::default());
        let (subscription, subscribed) = start(&sockets).await;
        let deliver = async |count: u32, again: bool, number: Option<u64>| {
            let about = Announcement { incident: "i".into(), count, update: again, again };
            let taken = DeliveryCount::since(None);
            let answer = subscribed.send(alarm(about, number, taken.clone()));
            assert_eq!(answer.await.expect("it runs"), taken.sockets());
            taken.sockets()
        };
        let alarms = |client: &Memory| read(client).matches("alarm").count();
        let first = watch(&subscription, &sockets);
        assert_eq!([deliver(1, false, Some(7)).await, deliver(1, false, Some(7)).await], [1, 1]);
        assert_eq!(alarms(&first), 1);
        let second = watch(&subscription, &sockets);
        assert_eq!(deliver(1, true, Some(9)).await, 2);
        assert_eq!([&first, &second].map(alarms), [0, 1]);
        assert_eq!([deliver(1, false, None).await, deliver(2, true, None).await], [2, 2]);
        assert_eq!([&first, &second].map(alarms), [2, 2], "both are news");
    }

    #[actix::test]
    async fn an_event_that_an_alarm_has_overtaken_follows_it() {
        let sockets = Sockets::start(Arc::default());
        let (subscription, subscribed) = start(&sockets).await;
        let clients: Vec<Memory> = (0..=BATCH).map(|_| watch(&subscription, &sockets)).collect();
        let event = SharedFrame::text(b"event");
        subscribed.do_send(Publication::Deliver { lane: Lane::Event, about: Sections::ALL, frame: event });
        let about = Announcement { incident: "i".into(), count: 1, update: false, again: false };
        let answer = subscribed.send(alarm(about, None, DeliveryCount::since(None)));
        assert_eq!(answer.await.expect("it runs"), clients.len());
        // Time for the next batch.
        for _ in 0..10 {
            yield_now().await;
        }
        let is_alarm_first = |client: &Memory| {
            let frames = read(client);
            frames.find("alarm").zip(frames.find("event")).map(|(alarm, event)| alarm < event)
        };
        assert_eq!([&clients[0], &clients[BATCH]].map(is_alarm_first), [Some(false), Some(true)]);
    }
}
