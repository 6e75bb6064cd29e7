//! Actor: a paired server whose game connection is on another node, for the subscriptions of this one. Started by the hub, for
//! the first of them; asks the other node for what the game connection publishes, and passes it on. Subscriptions find gaps
//! themselves, and ask for a snapshot; a last step that was lost is found by the answers of the other node. Stops when no one watches, or when the other node has the server no longer: its
//! subscriptions find the server again.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix::prelude::*;
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::{
    catalogue::SharedCatalogue,
    clock::Clock,
    cluster::node_mail::Outbox,
    domain::{ids::ServerId, sections::Sections},
    relay::{
        game::game_connection::{RequestSnapshot, SetWatchers, StateTaken, Subscribe, Unsubscribe},
        remote::remote_message::{RemoteChange, RemoteContent, RemoteMessage},
        wire::{
            frame::SharedFrame,
            publication::{AllowedUsers, Position, Publication},
            receipt::DeliveryCount,
            steps::{Step, Steps},
        },
    },
};

/// Time between two questions whether the other node still has the server.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// Without an answer for so long, it has not.
const SILENT_FOR: Duration = Duration::from_secs(8);
/// Likewise for the first answer: the node may have been gone before.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// A snapshot that does not come is asked for again.
const SNAPSHOT_AGAIN: Duration = Duration::from_secs(2);
/// Time without a subscriber after which it stops.
const LINGER: Duration = Duration::from_secs(30);
/// Alarms that are remembered: one whose answers are late or lost is asked for, or comes again.
const ALARMS: usize = 1_000;
/// Messages that wait here; what finds no room makes a gap.
const MAILBOX: usize = 1_024;

/// A message of the node that has the game connection.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FromOwner {
    pub content: RemoteContent,
    /// The text of its frame.
    pub frame: Bytes,
}

/// Everything that a feed is made of.
pub struct FeedStart {
    pub server: ServerId,
    /// The process that has the game connection.
    pub owner: String,
    /// This process.
    pub process: String,
    pub outbox: Outbox,
    pub clock: Clock,
    pub catalogue: SharedCatalogue,
}

/// See the module.
pub struct RemoteFeed {
    start: FeedStart,
    subscribers: Vec<FeedSubscriber>,
    allowed: Option<AllowedUsers>,
    /// The last alarms.
    alarms: VecDeque<AlarmHere>,
    /// Where the subscriptions are that have got everything.
    position: Option<Position>,
    /// When the last message came; `None`: none yet.
    heard_at: Option<Instant>,
    started_at: Instant,
    /// Since when a snapshot is wanted that has not come.
    wanted_at: Option<Instant>,
    /// Since when no one watches.
    idle_since: Instant,
}

/// An alarm that has come, and how far it is.
struct AlarmHere {
    alarm: u64,
    taken: Arc<DeliveryCount>,
    /// No more sockets take it.
    ended: bool,
}

struct FeedSubscriber {
    recipient: Recipient<Publication>,
    /// Its mailbox was full: it gets no steps until it has asked for a snapshot.
    behind: bool,
}

impl RemoteFeed {
    /// A feed without subscribers.
    pub fn new(start: FeedStart) -> Self {
        let now = Instant::now();
        let (subscribers, alarms) = (Vec::new(), VecDeque::new());
        let (allowed, position, wanted_at, heard_at) = (None, None, None, None);
        Self { start, subscribers, allowed, alarms, position, heard_at, started_at: now, wanted_at, idle_since: now }
    }

    fn send(&self, content: RemoteContent) {
        let FeedStart { server, owner, process, outbox, .. } = &self.start;
        let message = RemoteMessage { server: server.clone(), from: process.clone(), content };
        for part in message.write(&[], 0) {
            outbox.send(owner, part);
        }
    }

    fn publish(&self, publication: &Publication) {
        self.subscribers.iter().for_each(|subscriber| subscriber.recipient.do_send(publication.clone()));
    }

    /// The other node has the server no longer.
    fn fail(&mut self, ctx: &mut Context<Self>) {
        self.publish(&Publication::ConnectionFailed);
        self.subscribers.clear();
        ctx.stop();
    }

    fn ask(&mut self, ctx: &mut Context<Self>) {
        let is_silent = match self.heard_at {
            Some(at) => at.elapsed() >= SILENT_FOR,
            None => self.started_at.elapsed() >= ANSWERS_WITHIN,
        };
        if is_silent {
            return self.fail(ctx);
        }
        if self.subscribers.is_empty() && self.idle_since.elapsed() >= LINGER {
            self.send(RemoteContent::Unwatch);
            return ctx.stop();
        }
        self.send(RemoteContent::Watch);
        if self.wanted_at.is_some_and(|at| at.elapsed() >= SNAPSHOT_AGAIN) {
            self.want_snapshot();
        }
    }

    fn want_snapshot(&mut self) {
        self.wanted_at = Some(Instant::now());
        self.send(RemoteContent::WantSnapshot);
    }

    /// The game connection is there, and its last step was to this position.
    fn owner_is_at(&mut self, at: Option<Position>) {
        let is_behind = at.is_some() && at != self.position;
        if is_behind && self.wanted_at.is_none() && !self.subscribers.is_empty() {
            self.want_snapshot();
        }
    }

    fn advance(&mut self, epoch: u64, base: u64, changes: Vec<RemoteChange>, frame: &Bytes) {
        // One that cannot be read makes a gap.
        let Some(changes) = changes.into_iter().map(RemoteChange::read).collect::<Option<Vec<_>>>() else { return };
        if self.position == Some(Position { epoch, seq: base }) {
            self.position = Some(Position { epoch, seq: base + 1 });
        }
        let FeedStart { clock, catalogue, .. } = &self.start;
        let step = Step::new(base, changes, SharedFrame::text(frame), &catalogue.current(), clock.moment());
        for subscriber in self.subscribers.iter_mut().filter(|subscriber| !subscriber.behind) {
            if subscriber.recipient.try_send(Publication::Advance { epoch, step: step.clone() }).is_err() {
                subscriber.behind = true;
                subscriber.recipient.do_send(Publication::Skipped);
            }
        }
    }

    fn snapshot(&mut self, position: Position, changed: &[u64], frame: &Bytes, ctx: &mut Context<Self>) {
        (self.wanted_at, self.position) = (None, Some(position));
        let (frame, steps) = (SharedFrame::text(frame), Steps::none_to(changed));
        let send = |subscriber: &mut FeedSubscriber| {
            subscriber.behind = false;
            subscriber.recipient.send(Publication::Snapshot { position, frame: frame.clone(), steps: steps.clone() })
        };
        let taken = join_all(self.subscribers.iter_mut().map(send).collect::<Vec<_>>());
        ctx.spawn(taken.into_actor(self).map(move |taken, feed, _| {
            if taken.into_iter().filter_map(Result::ok).any(|sockets| sockets > 0) {
                let Position { epoch, seq } = position;
                feed.send(RemoteContent::StateTaken { epoch, seq });
            }
        }));
    }

    /// Reports how many sockets have taken an alarm; false if it has not come yet.
    fn report_taken(&self, alarm: u64) -> bool {
        let Some(known) = self.alarms.iter().rev().find(|known| known.alarm == alarm) else { return false };
        let sockets = known.taken.sockets();
        self.send(RemoteContent::AlarmTaken { alarm, sockets, ended: known.ended });
        true
    }

    /// Remembers an alarm that has come, and confirms it.
    fn confirm(&mut self, alarm: u64, taken: Arc<DeliveryCount>) {
        if self.alarms.len() >= ALARMS {
            self.alarms.pop_front();
        }
        self.alarms.push_back(AlarmHere { alarm, taken, ended: false });
        self.report_taken(alarm);
    }

    fn deliver_alarm(&self, alarm: u64, publication: Publication, taken: Arc<DeliveryCount>, ctx: &mut Context<Self>) {
        let answers = self.subscribers.iter().map(|subscriber| subscriber.recipient.send(publication.clone()));
        let all = join_all(answers.collect::<Vec<_>>());
        // The first socket is what makes the alarm heard.
        let first = async move { taken.first().await };
        let first = ctx.spawn(first.into_actor(self).map(move |(), feed, _| {
            feed.report_taken(alarm);
        }));
        ctx.spawn(all.into_actor(self).map(move |_, feed, ctx| {
            ctx.cancel_future(first);
            feed.alarms.iter_mut().filter(|known| known.alarm == alarm).for_each(|known| known.ended = true);
            feed.report_taken(alarm);
        }));
    }
}

impl Actor for RemoteFeed {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.send(RemoteContent::Watch);
        ctx.run_interval(ASK_EVERY, Self::ask);
    }
}

impl Handler<FromOwner> for RemoteFeed {
    type Result = ();

    fn handle(&mut self, FromOwner { content, frame }: FromOwner, ctx: &mut Self::Context) {
        self.heard_at = Some(Instant::now());
        match content {
            RemoteContent::NotHere => self.fail(ctx),
            RemoteContent::Here { at } => self.owner_is_at(at),
            RemoteContent::Step { epoch, base, changes } => self.advance(epoch, base, changes, &frame),
            RemoteContent::Snapshot { epoch, seq, changed } => {
                self.snapshot(Position { epoch, seq }, &changed, &frame, ctx);
            }
            RemoteContent::Deliver { lane, about } => {
                let (lane, about, frame) = (lane.into(), Sections::from(about), SharedFrame::text(&frame));
                self.publish(&Publication::Deliver { lane, about, frame });
            }
            RemoteContent::AskTaken { alarm } => {
                if !self.report_taken(alarm) {
                    self.send(RemoteContent::WantAlarm { alarm });
                }
            }
            RemoteContent::Alarm { alarm, .. } if self.report_taken(alarm) => {}
            RemoteContent::Alarm { alarm, about, acknowledged } => {
                let (frame, taken) = (SharedFrame::text(&frame), DeliveryCount::since(None));
                let (number, acknowledged, counted) = (Some(alarm), acknowledged.into(), taken.clone());
                let publication = Publication::DeliverAlarm { frame, about, number, acknowledged, taken: counted };
                self.confirm(alarm, taken.clone());
                self.deliver_alarm(alarm, publication, taken, ctx);
            }
            // Sent by watchers only.
            _ => {}
        }
    }
}

impl Handler<Subscribe> for RemoteFeed {
    type Result = ();

    fn handle(&mut self, Subscribe { subscriber }: Subscribe, _: &mut Self::Context) {
        if let Some(allowed) = &self.allowed {
            subscriber.do_send(Publication::SetWatchers(allowed.clone()));
        }
        self.subscribers.push(FeedSubscriber { recipient: subscriber, behind: false });
    }
}

impl Handler<Unsubscribe> for RemoteFeed {
    type Result = ();

    fn handle(&mut self, Unsubscribe { subscriber }: Unsubscribe, _: &mut Self::Context) {
        self.subscribers.retain(|known| known.recipient != subscriber);
        self.idle_since = Instant::now();
    }
}

impl Handler<RequestSnapshot> for RemoteFeed {
    type Result = ();

    fn handle(&mut self, _: RequestSnapshot, _: &mut Self::Context) {
        if self.wanted_at.is_none() {
            self.want_snapshot();
        }
    }
}

impl Handler<StateTaken> for RemoteFeed {
    type Result = ();

    fn handle(&mut self, StateTaken(Position { epoch, seq }): StateTaken, _: &mut Self::Context) {
        self.send(RemoteContent::StateTaken { epoch, seq });
    }
}

impl Handler<SetWatchers> for RemoteFeed {
    type Result = ();

    fn handle(&mut self, SetWatchers(allowed): SetWatchers, _: &mut Self::Context) {
        if self.allowed.as_ref().is_none_or(|known| known.version <= allowed.version) {
            self.publish(&Publication::SetWatchers(allowed.clone()));
            self.allowed = Some(allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;
    use crate::{
        cluster::node_mail::{Letter, MailRoute, NodeMail, mail},
        domain::time::Timestamp,
        relay::wire::publication::Announcement,
    };

    /// Notes which positions it gets; one socket takes each alarm.
    struct Watcher(Rc<RefCell<Vec<u64>>>);

    impl Actor for Watcher {
        type Context = Context<Self>;
    }

    impl Handler<Publication> for Watcher {
        type Result = usize;

        fn handle(&mut self, publication: Publication, _: &mut Self::Context) -> usize {
            match publication {
                Publication::Advance { step, .. } => self.0.borrow_mut().push(step.seq),
                Publication::Snapshot { position, .. } => self.0.borrow_mut().push(position.seq),
                Publication::DeliverAlarm { taken, .. } => {
                    self.0.borrow_mut().push(u64::MAX);
                    taken.add();
                }
                _ => {}
            }
            0
        }
    }

    fn content_of(letter: Letter) -> RemoteContent {
        RemoteMessage::read(letter.message).expect("a message").0.content
    }

    /// Messages to the other node so far, in words.
    fn asked(route: &mut MailRoute) -> Vec<&'static str> {
        let letters = std::iter::from_fn(|| route.outgoing.try_recv().ok());
        let word = |content| match content {
            RemoteContent::Watch => "watch",
            RemoteContent::WantSnapshot => "snapshot",
            _ => "other",
        };
        letters.map(|letter| word(content_of(letter))).collect()
    }

    /// The next answer about an alarm: its number, the sockets that took it, and whether no more will.
    async fn taken(route: &mut MailRoute) -> (u64, usize, bool) {
        loop {
            let letter = route.outgoing.recv().await.expect("the feed runs");
            if let RemoteContent::AlarmTaken { alarm, sockets, ended } = content_of(letter) {
                return (alarm, sockets, ended);
            }
        }
    }

    fn alarm_of(alarm: u64) -> RemoteContent {
        let about = Announcement { incident: "i".into(), count: 1, update: false, again: false };
        RemoteContent::Alarm { alarm, about, acknowledged: Vec::new() }
    }

    fn feed_to(mail: &NodeMail) -> Addr<RemoteFeed> {
        let start = FeedStart {
            server: "one".into(),
            owner: "there".into(),
            process: "here".into(),
            outbox: mail.outbox.clone(),
            clock: Clock::simulated(Timestamp::UNIX_EPOCH),
            catalogue: SharedCatalogue::default(),
        };
        RemoteFeed::new(start).start()
    }

    #[actix::test]
    async fn an_alarm_that_comes_again_is_delivered_once_and_answered_with_the_sockets_that_took_it() {
        let (mail, mut route) = mail();
        let (feed, got) = (feed_to(&mail), Rc::default());
        let subscriber = Watcher(Rc::clone(&got)).start().recipient();
        feed.send(Subscribe { subscriber }).await.unwrap();
        let come = async |alarm| {
            feed.send(FromOwner { content: alarm_of(alarm), frame: Bytes::from_static(b"{}") }).await.unwrap();
        };
        for alarm in [7, 8] {
            come(alarm).await;
            assert_eq!(taken(&mut route).await, (alarm, 0, false), "it is here");
            while taken(&mut route).await != (alarm, 1, true) {}
        }
        come(7).await;
        assert_eq!(taken(&mut route).await, (7, 1, true));
        assert_eq!(*got.borrow(), [u64::MAX; 2]);
    }

    #[actix::test]
    async fn a_question_about_an_alarm_is_answered_with_its_sockets_or_with_the_wish_for_it() {
        let (mail, mut route) = mail();
        let feed = feed_to(&mail);
        let from_owner = async |content| {
            feed.send(FromOwner { content, frame: Bytes::from_static(b"{}") }).await.unwrap();
        };
        from_owner(RemoteContent::AskTaken { alarm: 7 }).await;
        let letters = std::iter::from_fn(|| route.outgoing.try_recv().ok());
        let wanted = letters.filter(|letter| {
            let content = content_of(letter.clone());
            matches!(content, RemoteContent::WantAlarm { alarm: 7 })
        });
        assert_eq!(wanted.count(), 1);
        from_owner(alarm_of(7)).await;
        while taken(&mut route).await != (7, 0, true) {}
        from_owner(RemoteContent::AskTaken { alarm: 7 }).await;
        assert_eq!(taken(&mut route).await, (7, 0, true));
    }

    #[actix::test]
    async fn a_last_step_that_was_lost_is_asked_for_once_the_other_node_says_where_it_is() {
        let (mail, mut route) = mail();
        let feed = feed_to(&mail);
        let got = Rc::default();
        let subscriber = Watcher(Rc::clone(&got)).start().recipient();
        feed.send(Subscribe { subscriber: subscriber.clone() }).await.unwrap();
        let from_owner = async |content| {
            feed.send(FromOwner { content, frame: Bytes::from_static(b"{}") }).await.unwrap();
        };
        let here = |seq| RemoteContent::Here { at: Some(Position { epoch: 7, seq }) };
        let step = |base| RemoteContent::Step { epoch: 7, base, changes: Vec::new() };
        from_owner(RemoteContent::Here { at: None }).await;
        assert_eq!(asked(&mut route), ["watch"], "it says nothing of a step");
        from_owner(RemoteContent::Snapshot { epoch: 7, seq: 3, changed: Vec::new() }).await;
        from_owner(step(3)).await;
        from_owner(here(4)).await;
        assert_eq!(asked(&mut route), [""; 0]);
        // The step to 5 was lost.
        from_owner(here(5)).await;
        from_owner(here(5)).await;
        assert_eq!(asked(&mut route), ["snapshot"], "once");
        from_owner(RemoteContent::Snapshot { epoch: 7, seq: 5, changed: Vec::new() }).await;
        from_owner(step(6)).await;
        from_owner(here(7)).await;
        assert_eq!(asked(&mut route), ["snapshot"], "a step that does not follow brings no one there");
        subscriber.send(Publication::Skipped).await.unwrap();
        assert_eq!(*got.borrow(), [3, 4, 5, 7]);
    }
}
