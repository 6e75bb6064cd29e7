//! Actor: a paired server whose game connection is on another node, for the subscriptions of this one. Started by the hub, for
//! the first of them; asks the other node for what the game connection publishes, and passes it on. Subscriptions find gaps
//! themselves, and ask for a snapshot. Stops when no one watches, or when the other node has the server no longer: its
//! subscriptions find the server again.
//!
//! Most servers do nothing most of the time, so little is asked. When no step has followed the last one for a moment, the other
//! node says whether that was the last; afterwards it is asked each 6 s, by which it knows that this node still watches, and a
//! step that was lost since is found. Alarms do not wait for that: the other node sends each again until it is answered. Nor
//! does the end of the other node: the hub sees it by its lease.

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

/// Time between two looks whether there is something to ask, and silence after which the last step may have been lost.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The first look after so long asks whether the other node still has the server.
const UNASKED_FOR: Duration = Duration::from_secs(5);
/// Without an answer for so long, it has not.
const SILENT_FOR: Duration = Duration::from_secs(20);
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
    /// The other node has said that this is its last step.
    is_last: bool,
    /// When the last message came; `None`: none yet.
    heard_at: Option<Instant>,
    /// When the other node was asked last.
    asked_at: Instant,
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
        Self {
            start,
            subscribers,
            allowed,
            alarms,
            position,
            is_last: false,
            heard_at,
            asked_at: now,
            started_at: now,
            wanted_at,
            idle_since: now,
        }
    }

    fn send(&self, content: RemoteContent) {
        let FeedStart { server, owner, process, outbox, .. } = &self.start;
        let message = RemoteMessage { server: server.clone(), from: process.clone(), content };
        for part in message.write(&[], 0) {
            outbox.send(owner, part);
        }
    }

    /// True at its start, while the subscriptions for which it was started are on their way.
    fn awaits_subscribers(&self) -> bool {
        self.subscribers.is_empty() && self.started_at.elapsed() < ANSWERS_WITHIN
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

    /// True if the other node may have sent more than has come, or is to hear that this one still watches.
    fn is_question_due(&self) -> bool {
        let is_silent = || self.heard_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        (!self.is_last && is_silent()) || self.asked_at.elapsed() >= UNASKED_FOR
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
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
        if self.is_question_due() {
            self.asked_at = Instant::now();
            self.send(RemoteContent::Watch);
        }
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
        self.is_last = at.is_some() && at == self.position;
        let is_behind = at.is_some() && !self.is_last;
        if is_behind && self.wanted_at.is_none() && !self.subscribers.is_empty() {
            self.want_snapshot();
        }
    }

    fn advance(&mut self, epoch: u64, base: u64, changes: Vec<RemoteChange>, frame: &Bytes) {
        self.is_last = false;
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
        (self.wanted_at, self.position, self.is_last) = (None, Some(position), false);
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
        ctx.run_interval(LOOK_EVERY, Self::look);
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
            RemoteContent::AskTaken { alarm } if !self.report_taken(alarm) => {
                self.send(RemoteContent::WantAlarm { alarm });
            }
            // Sent again by its node, and then they are here.
            RemoteContent::Alarm { .. } if self.awaits_subscribers() => {}
            RemoteContent::Alarm { alarm, .. } if self.report_taken(alarm) => {}
            RemoteContent::Alarm { alarm, about, acknowledged } => {
                let (frame, taken) = (SharedFrame::text(&frame), DeliveryCount::since(None));
                let (number, acknowledged, counted) = (Some(alarm), acknowledged.into(), taken.clone());
                let publication = Publication::DeliverAlarm { frame, about, number, acknowledged, taken: counted };
                self.confirm(alarm, taken.clone());
                self.deliver_alarm(alarm, publication, taken, ctx);
            }
            // Answered, or sent by watchers only.
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
mod tests;
