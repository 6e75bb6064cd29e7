//! Actor: the nodes whose sockets watch a paired server of this node, as one more subscriber of its game connection. Started by
//! the hub when the first node asks; encodes each publication once, and sends it to each of them. A node that does not ask for
//! a while is dropped, and one that has ended as soon as the hub sees that. Stops with the last one, or when the game connection
//! ends.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use actix::prelude::*;
use bytes::Bytes;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    catalogue::SharedCatalogue,
    cluster::node_mail::Outbox,
    domain::ids::ServerId,
    relay::{
        game::game_connection::{GameConnection, RequestSnapshot, StateTaken, Subscribe, Unsubscribe},
        remote::remote_message::{RemoteChange, RemoteContent, RemoteMessage},
        wire::{
            publication::{Position, Publication},
            receipt::DeliveryCount,
        },
    },
};

/// Time between two looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A node that has not asked for so long watches no longer: some questions of each 6 s may be lost.
const ASKS_WITHIN: Duration = Duration::from_secs(20);
/// After this time an alarm is sent again to a node that may not have it, and one whose sockets may still take it is asked.
const ALARM_AGAIN: Duration = Duration::from_millis(1_500);
/// Longest wait for the sockets of other nodes to take an alarm.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Sockets of one node that are counted for one alarm.
const MOST_SOCKETS: usize = 1_000_000;
/// Publications that wait here; beyond it steps are left out, and a snapshot makes up for them.
const MAILBOX: usize = 1_024;

/// A message of a node whose sockets watch.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FromWatcher {
    /// Its process.
    pub from: String,
    pub content: RemoteContent,
}

/// Everything that the watchers of a server are made of.
pub struct WatchersStart {
    pub server: ServerId,
    pub connection: Addr<GameConnection>,
    /// This process.
    pub process: String,
    pub outbox: Outbox,
    pub catalogue: SharedCatalogue,
    /// Its messages have numbers from here on, which no other server's have.
    pub numbers_from: u64,
}

/// See the module.
pub struct RemoteWatchers {
    start: WatchersStart,
    /// When each node has asked last.
    nodes: BTreeMap<String, Instant>,
    /// Nodes that want a snapshot.
    wanting: BTreeSet<String>,
    /// Where the nodes are that have got everything; none before the first snapshot.
    position: Option<Position>,
    alarms: HashMap<u64, AlarmElsewhere>,
    /// Number of the last message in parts, and of the last alarm.
    sent: u64,
}

/// An alarm that other nodes deliver.
struct AlarmElsewhere {
    taken: Arc<DeliveryCount>,
    /// Sockets of each node so far.
    sockets: BTreeMap<String, usize>,
    /// Nodes whose sockets may still take it, or whose answers were lost; true if the node has said that it has it.
    open: BTreeMap<String, bool>,
    /// The message, for those that have not.
    parts: Vec<Bytes>,
    done: oneshot::Sender<usize>,
}

impl RemoteWatchers {
    /// The watchers of a server; no node watches yet.
    pub fn new(start: WatchersStart) -> Self {
        let sent = start.numbers_from;
        Self { start, nodes: BTreeMap::new(), wanting: BTreeSet::new(), position: None, alarms: HashMap::new(), sent }
    }

    /// Sends this to these nodes, encoded once; gives it as it was sent.
    fn send<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a String>,
        content: RemoteContent,
        frame: &[u8],
    ) -> Vec<Bytes> {
        self.sent = self.sent.wrapping_add(1);
        let parts = self.message(content, frame);
        nodes.for_each(|node| self.send_parts(node, &parts));
        parts
    }

    fn message(&self, content: RemoteContent, frame: &[u8]) -> Vec<Bytes> {
        let WatchersStart { server, process, .. } = &self.start;
        RemoteMessage { server: server.clone(), from: process.clone(), content }.write(frame, self.sent)
    }

    fn send_parts(&self, node: &str, parts: &[Bytes]) {
        parts.iter().for_each(|part| self.start.outbox.send(node, part.clone()));
    }

    fn send_to_all(&mut self, content: RemoteContent, frame: &[u8]) -> Vec<Bytes> {
        let nodes = std::mem::take(&mut self.nodes);
        let parts = self.send(nodes.keys(), content, frame);
        self.nodes = nodes;
        parts
    }

    /// While an alarm may be taken, sends it again and again to nodes that may not have it, and asks the others how many
    /// sockets took it: that answer may have been lost, too.
    fn send_again(&mut self, alarm: u64, ctx: &mut Context<Self>) {
        let Some(known) = self.alarms.get(&alarm) else { return };
        let question = self.message(RemoteContent::AskTaken { alarm }, &[]);
        for (node, has_it) in &known.open {
            self.send_parts(node, if *has_it { &question } else { &known.parts });
        }
        ctx.run_later(ALARM_AGAIN, move |watchers, ctx| watchers.send_again(alarm, ctx));
    }

    /// This node gets the next snapshot.
    fn want_snapshot(&mut self, node: String, ctx: &mut Context<Self>) {
        if self.wanting.is_empty() {
            self.ask_for_snapshot(ctx);
        }
        self.wanting.insert(node);
    }

    fn ask_for_snapshot(&self, ctx: &mut Context<Self>) {
        self.start.connection.do_send(RequestSnapshot { subscriber: ctx.address().recipient() });
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let silent = self.nodes.iter().filter(|(_, asked_at)| asked_at.elapsed() >= ASKS_WITHIN);
        let silent: Vec<String> = silent.map(|(node, _)| node.clone()).collect();
        silent.iter().for_each(|node| self.drop_node(node));
        if self.nodes.is_empty() {
            ctx.stop();
        } else if !self.start.connection.connected() {
            self.end(ctx);
        }
    }

    /// This node watches no longer: none of its sockets takes an alarm that has not.
    fn drop_node(&mut self, node: &str) {
        self.nodes.remove(node);
        self.wanting.remove(node);
        let waited_for = self.alarms.iter_mut().filter_map(|(alarm, known)| {
            let was_last = known.open.remove(node).is_some() && known.open.is_empty();
            was_last.then_some(*alarm)
        });
        waited_for.collect::<Vec<_>>().into_iter().for_each(|alarm| self.alarm_ended(alarm));
    }

    /// The game connection has ended.
    fn end(&mut self, ctx: &mut Context<Self>) {
        self.send_to_all(RemoteContent::NotHere, &[]);
        ctx.stop();
    }

    fn alarm_taken(&mut self, from: String, alarm: u64, sockets: usize, ended: bool) {
        let Some(known) = self.alarms.get_mut(&alarm) else { return };
        let (counted, sockets) = (known.sockets.entry(from.clone()).or_default(), sockets.min(MOST_SOCKETS));
        for _ in *counted..sockets {
            known.taken.add();
        }
        *counted = (*counted).max(sockets);
        if ended {
            known.open.remove(&from);
        } else if let Some(has_it) = known.open.get_mut(&from) {
            *has_it = true;
        }
        if known.open.is_empty() {
            self.alarm_ended(alarm);
        }
    }

    /// A node has begun to watch again since it had this alarm.
    fn alarm_wanted(&mut self, from: &str, alarm: u64) {
        let Some(known) = self.alarms.get_mut(&alarm) else { return };
        let Some(has_it) = known.open.get_mut(from) else { return };
        *has_it = false;
        let parts = known.parts.clone();
        self.send_parts(from, &parts);
    }

    /// No more sockets take this alarm, or they have had their time.
    fn alarm_ended(&mut self, alarm: u64) {
        if let Some(AlarmElsewhere { sockets, done, .. }) = self.alarms.remove(&alarm) {
            // A game connection that has ended asks no longer.
            let _ = done.send(sockets.values().sum());
        }
    }
}

impl Actor for RemoteWatchers {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        let subscribed = self.start.connection.send(Subscribe { subscriber: ctx.address().recipient() });
        ctx.spawn(subscribed.into_actor(self).map(|subscribed, watchers, ctx| {
            if subscribed.is_err() {
                watchers.end(ctx);
            }
        }));
        ctx.run_interval(LOOK_EVERY, Self::look);
    }

    fn stopping(&mut self, ctx: &mut Self::Context) -> Running {
        self.start.connection.do_send(Unsubscribe { subscriber: ctx.address().recipient() });
        Running::Stop
    }
}

impl Handler<FromWatcher> for RemoteWatchers {
    type Result = ();

    fn handle(&mut self, FromWatcher { from, content }: FromWatcher, ctx: &mut Self::Context) {
        match content {
            RemoteContent::Watch => {
                self.nodes.insert(from.clone(), Instant::now());
                self.send([&from].into_iter(), RemoteContent::Here { at: self.position }, &[]);
                // Its state from before, if it has one, is unknown here.
                if self.position.is_none() {
                    self.want_snapshot(from, ctx);
                }
            }
            RemoteContent::Unwatch => self.drop_node(&from),
            RemoteContent::WantSnapshot => {
                self.nodes.insert(from.clone(), Instant::now());
                self.want_snapshot(from, ctx);
            }
            RemoteContent::StateTaken { epoch, seq } => {
                self.start.connection.do_send(StateTaken(Position { epoch, seq }));
            }
            RemoteContent::AlarmTaken { alarm, sockets, ended } => self.alarm_taken(from, alarm, sockets, ended),
            RemoteContent::WantAlarm { alarm } => self.alarm_wanted(&from, alarm),
            // Sent by the node of a game connection only.
            _ => {}
        }
    }
}

impl Handler<Publication> for RemoteWatchers {
    type Result = Response<usize>;

    fn handle(&mut self, publication: Publication, ctx: &mut Self::Context) -> Response<usize> {
        match publication {
            Publication::Advance { epoch, step } => {
                // One that does not follow is what the nodes will miss, too.
                self.position = Some(Position { epoch, seq: step.seq });
                if self.nodes.is_empty() {
                    return Response::reply(0);
                }
                let catalogue = &self.start.catalogue.current();
                let changes = step.changes.iter().map(|change| RemoteChange::of(change, catalogue)).collect();
                let content = RemoteContent::Step { epoch, base: step.base, changes };
                self.send_to_all(content, step.frame.text_bytes());
            }
            Publication::Snapshot { position, frame, steps } => {
                self.position = Some(position);
                let Position { epoch, seq } = position;
                let wanting = std::mem::take(&mut self.wanting);
                let content = RemoteContent::Snapshot { epoch, seq, changed: steps.changed().to_vec() };
                self.send(wanting.iter(), content, frame.text_bytes());
            }
            Publication::Deliver { lane, about, frame } => {
                let content = RemoteContent::Deliver { lane: lane.into(), about: about.text() };
                self.send_to_all(content, frame.text_bytes());
            }
            Publication::DeliverAlarm { frame, about, acknowledged, taken, .. } => {
                if self.nodes.is_empty() {
                    return Response::reply(0);
                }
                let alarm = self.sent.wrapping_add(1);
                let (done, sockets) = oneshot::channel();
                let open = self.nodes.keys().map(|node| (node.clone(), false)).collect();
                let content = RemoteContent::Alarm { alarm, about, acknowledged: acknowledged.to_vec() };
                let parts = self.send_to_all(content, frame.text_bytes());
                self.alarms.insert(alarm, AlarmElsewhere { taken, sockets: BTreeMap::new(), open, parts, done });
                ctx.run_later(ALARM_AGAIN, move |watchers, ctx| watchers.send_again(alarm, ctx));
                ctx.run_later(TAKEN_WITHIN, move |watchers, _| watchers.alarm_ended(alarm));
                return Response::fut(async move { sockets.await.unwrap_or_default() });
            }
            Publication::Skipped => {
                self.wanting.extend(self.nodes.keys().cloned());
                self.ask_for_snapshot(ctx);
            }
            Publication::ConnectionFailed => self.end(ctx),
            // Each node reads who may watch.
            Publication::SetWatchers(_) => {}
        }
        Response::reply(0)
    }
}
