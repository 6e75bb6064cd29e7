//! What waits to be written to one WebSocket, and in which order it goes. Pure, with the time as an argument.
//!
//! How much may go is for the [`FrameBudget`] to say. Raids go first, then events, chat and replies, and patches last,
//! merged at the moment they are sent; a lane that must wait holds back none below it, as each has its floor. Over
//! budget nothing is lost but chat: of its lines the oldest that wait are dropped, and how many is told.

use std::{cell::Cell, collections::VecDeque, rc::Rc, sync::Arc};

use smallvec::SmallVec;

use crate::{
    domain::{ids::ServerId, limits},
    relay::{
        feed::{Feed, Round},
        frame::SharedFrame,
        frame_budget::{FrameBudget, Millis, SPAN},
        patch_log::CatchUp,
        publication::{Lane, Position},
        receipt::Receipt,
        send_counts::SendCounts,
    },
};

/// The lanes with a queue, by priority.
const QUEUED: [Lane; 4] = [Lane::Raid, Lane::Event, Lane::Chat, Lane::Reply];

/// Patches of one connection come in a short burst, then evenly, so that no client that is over budget has to look at
/// a still map until its window slides. Burst and pace together stay within the room that the other lanes leave.
const PATCH_PACE: Millis = 250;
const PATCH_BURST: Millis = 4;

/// A frame on its way to one socket.
#[derive(Clone, Debug)]
pub struct QueuedFrame {
    pub frame: SharedFrame,
    /// Present where it is counted which sockets took the frame.
    pub receipt: Option<Rc<Receipt>>,
    /// The server that it is about, if it is about one: it is not sent after the watch of that server has ended.
    pub feed: Option<Rc<Feed>>,
}

impl From<SharedFrame> for QueuedFrame {
    fn from(frame: SharedFrame) -> Self {
        Self { frame, receipt: None, feed: None }
    }
}

/// What to do next.
#[derive(Debug)]
pub enum Next {
    Send(QueuedFrame),
    /// Tell that so many lines of this server's chat were dropped.
    ChatDropped {
        feed: Rc<Feed>,
        lines: u32,
    },
    /// Something waits for its turn until then.
    At(Millis),
    /// Nothing waits, or only for a snapshot on its way.
    Idle,
}

/// Lines of one server's chat that were dropped. They are counted for as long as the window, so that a flood of chat
/// is no flood of events.
struct DroppedChat {
    feed: Rc<Feed>,
    lines: u32,
    due: Millis,
}

/// More messages wait that may not be dropped than the limit allows: the client is too slow.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

/// One watched server.
struct View {
    feed: Rc<Feed>,
    has: Has,
    /// When its last snapshot was sent.
    snapshot_sent: Option<Millis>,
    /// The rounds in which the feed last listed this socket as up to date, and as without a snapshot.
    up_to_date: Cell<Round>,
    without: Cell<Round>,
}

/// What the client has of a server.
#[derive(Clone, Copy)]
enum Has {
    /// Nothing before its first snapshot.
    Nothing,
    /// What it said when it came back; nothing was sent since.
    Said(Position),
    Sent(Position),
}

impl Has {
    fn position(self) -> Option<Position> {
        match self {
            Self::Nothing => None,
            Self::Said(position) | Self::Sent(position) => Some(position),
        }
    }
}

impl View {
    fn new(feed: &Rc<Feed>, position: Option<Position>, snapshot_sent: Option<Millis>) -> Self {
        let (up_to_date, without) = (Cell::default(), Cell::default());
        Self { feed: feed.clone(), has: position.map_or(Has::Nothing, Has::Said), snapshot_sent, up_to_date, without }
    }

    fn unlist(&self, socket: u32) {
        self.feed.up_to_date.remove(socket);
        self.feed.without.remove(socket);
    }

    /// When a snapshot may go out; none = now.
    fn snapshot_at(&self, now: Millis) -> Option<Millis> {
        self.snapshot_sent.map(|sent| sent + limits::SNAPSHOT_SPAN_MS).filter(|at| *at > now)
    }
}

/// What waits.
#[derive(Default)]
struct WaitingMessages {
    lanes: [VecDeque<QueuedFrame>; QUEUED.len()],
    /// One of each server whose chat is too much, the first that is due first.
    dropped: Vec<DroppedChat>,
}

impl WaitingMessages {
    /// How many messages wait that may not be dropped.
    fn undroppable(&self) -> usize {
        QUEUED.into_iter().filter(|lane| *lane != Lane::Chat).map(|lane| self.lanes[lane as usize].len()).sum()
    }

    /// The next message; or when to ask again, if any waits.
    fn next(&mut self, budget: &mut FrameBudget, counts: &SendCounts, now: Millis) -> Next {
        let mut wait = None;
        for lane in QUEUED {
            // Before the lines that were said later.
            if lane == Lane::Chat
                && let Some(DroppedChat { due, .. }) = self.dropped.first()
            {
                let not_due = Some(*due).filter(|due| *due > now);
                match budget.available_at(now, Lane::Event).max(not_due) {
                    Some(at) => wait = Some(earlier(wait, at)),
                    None => {
                        let DroppedChat { feed, lines, .. } = self.dropped.remove(0);
                        budget.record(now, Lane::Event);
                        counts.frames(Lane::Event).add(1);
                        return Next::ChatDropped { feed, lines };
                    }
                }
            }
            if self.lanes[lane as usize].is_empty() {
                continue;
            }
            match budget.available_at(now, lane) {
                Some(at) => wait = Some(earlier(wait, at)),
                None => {
                    let queued = self.lanes[lane as usize].pop_front().expect("it is not empty");
                    budget.record(now, lane);
                    counts.waiting(lane).remove(1);
                    counts.frames(lane).add(1);
                    return Next::Send(queued);
                }
            }
        }
        wait.map_or(Next::Idle, Next::At)
    }

    /// Drops what waits of this server.
    fn drop_of(&mut self, server: &ServerId, counts: &SendCounts) {
        self.dropped.retain(|dropped| dropped.feed.server != *server);
        for (lane, waiting) in QUEUED.into_iter().zip(&mut self.lanes) {
            let waited = waiting.len();
            waiting.retain(|queued| queued.feed.as_ref().is_none_or(|feed| feed.server != *server));
            counts.waiting(lane).remove(waited - waiting.len());
        }
    }
}

/// See the module. Small, because there is one per connection.
#[derive(Default)]
pub struct SendQueue {
    /// Of its socket, on its thread.
    number: u32,
    counts: Arc<SendCounts>,
    budget: FrameBudget,
    /// Only while something does.
    waiting: Option<Box<WaitingMessages>>,
    /// Most watch one server.
    views: SmallVec<[View; 1]>,
    /// The view whose turn is next. Of views there are at most [`limits::SUBSCRIPTIONS`].
    turn: u16,
    /// When the last patch would have been due had all come evenly.
    paced: Millis,
    /// Something was watched that is no longer.
    has_left: bool,
    /// When snapshots of servers were sent that are watched no longer. Only those of the last 5 s are kept.
    left: Vec<(ServerId, Millis)>,
}

impl SendQueue {
    /// An empty queue of the socket of this number, which counts here.
    pub fn new(number: u32, counts: Arc<SendCounts>) -> Self {
        let mut queue = Self::default();
        queue.number = number;
        queue.counts = counts;
        queue
    }

    /// Puts a message into the queue of its lane, which is not that of the state. Too many waiting end the connection;
    /// of chat the oldest line is dropped.
    pub fn push(&mut self, lane: Lane, queued: QueuedFrame, now: Millis) -> Result<(), Overflow> {
        let waiting = self.waiting.get_or_insert_default();
        if lane != Lane::Chat && waiting.undroppable() >= limits::WAITING_MESSAGES {
            return Err(Overflow);
        }
        let WaitingMessages { lanes, dropped } = &mut **waiting;
        let waiting = &mut lanes[lane as usize];
        waiting.push_back(queued);
        self.counts.waiting(lane).add(1);
        if lane == Lane::Chat
            && waiting.len() > limits::CHAT_LINES
            && let Some(QueuedFrame { feed: Some(feed), .. }) = waiting.pop_front()
        {
            self.counts.waiting(lane).remove(1);
            match dropped.iter_mut().find(|dropped| Rc::ptr_eq(&dropped.feed, &feed)) {
                Some(dropped) => dropped.lines += 1,
                None => dropped.push(DroppedChat { feed, lines: 1, due: now + SPAN }),
            }
        }
        Ok(())
    }

    /// Starts watching, from the position that the client says it has, if it does; or asks for a fresh snapshot of what is
    /// watched already. Once something was unwatched, what the client says is not relied on: more may be on its way to it.
    pub fn watch(&mut self, feed: &Rc<Feed>, from: Option<Position>) {
        let from = from.filter(|_| !self.has_left);
        match self.views.iter_mut().find(|view| view.feed.server == feed.server) {
            Some(view) => {
                view.unlist(self.number);
                *view = View::new(feed, None, view.snapshot_sent);
            }
            None => {
                let left = self.left.iter().position(|(server, _)| *server == feed.server);
                let snapshot_sent = left.map(|index| self.left.swap_remove(index).1);
                self.views.push(View::new(feed, from, snapshot_sent));
                self.counts.subscriptions.add(1);
            }
        }
    }

    /// Stops watching, and drops what still waits from that server.
    pub fn unwatch(&mut self, server: &ServerId, now: Millis) {
        self.left.retain(|(_, sent)| sent + limits::SNAPSHOT_SPAN_MS > now);
        if let Some(index) = self.views.iter().position(|view| view.feed.server == *server) {
            let view = self.views.remove(index);
            self.has_left = true;
            view.unlist(self.number);
            self.left.extend(view.snapshot_sent.map(|sent| (server.clone(), sent)));
            self.counts.subscriptions.remove(1);
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.drop_of(server, &self.counts);
        }
    }

    /// Drops everything that waits and stops watching: the connection is being closed.
    pub fn clear(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            for (lane, waiting) in QUEUED.into_iter().zip(&waiting.lanes) {
                self.counts.waiting(lane).remove(waiting.len());
            }
        }
        self.counts.subscriptions.remove(self.views.len());
        for view in self.views.drain(..) {
            view.unlist(self.number);
        }
    }

    /// Whether this server is watched.
    pub fn watches(&self, server: &ServerId) -> bool {
        self.views.iter().any(|view| view.feed.server == *server)
    }

    /// How many servers are watched.
    pub fn watching(&self) -> usize {
        self.views.len()
    }

    /// Reads some of what [`SendQueue::next`] will read.
    pub fn read_ahead(&self) -> impl Sized {
        let view = self.views.first();
        (
            view.and_then(|view| view.has.position()),
            view.map(|view| view.without.get()),
            self.paced,
            self.budget.read_ahead(),
        )
    }

    /// The next message, which the caller then writes; or when to ask again.
    pub fn next(&mut self, now: Millis) -> Next {
        let mut wait = None;
        if let Some(waiting) = &mut self.waiting {
            match waiting.next(&mut self.budget, &self.counts, now) {
                Next::At(at) => wait = Some(at),
                Next::Idle => self.waiting = None,
                next => return next,
            }
        }
        self.next_view(now, wait)
    }

    /// The next snapshot or patch, the views taking turns; or when to ask again, if nothing else wants to earlier.
    fn next_view(&mut self, now: Millis, mut wait: Option<Millis>) -> Next {
        for offset in 0..self.views.len() {
            let index = (usize::from(self.turn) + offset) % self.views.len();
            let view = &self.views[index];
            let View { feed, has, up_to_date, without, .. } = view;
            let (position, came_back) = (has.position(), matches!(has, Has::Said(_)));
            let mut log = feed.log.borrow_mut();
            let catch_up = position.map_or(CatchUp::Snapshot, |from| log.since(from));
            let catch_up = match catch_up {
                // If the smaller snapshot may not come yet: better a large patch than a map that does not move.
                CatchUp::Patch { large: true, .. } if view.snapshot_at(now).is_none() => CatchUp::Snapshot,
                CatchUp::Nothing if came_back => CatchUp::Patch { frame: log.unchanged(), large: false },
                other => other,
            };
            let (frame, is_snapshot) = match catch_up {
                CatchUp::Nothing => {
                    feed.up_to_date.add(self.number, up_to_date);
                    continue;
                }
                CatchUp::Patch { frame, .. } => {
                    if let Some(at) = patch_at(&mut self.budget, &mut self.paced, now) {
                        return Next::At(earlier(wait, at));
                    }
                    (frame, false)
                }
                CatchUp::Snapshot => {
                    if let Some(at) = view.snapshot_at(now) {
                        wait = Some(earlier(wait, at));
                        continue;
                    }
                    if let Some(at) = self.budget.available_at(now, Lane::State) {
                        return Next::At(earlier(wait, at));
                    }
                    match log.snapshot() {
                        Some(frame) => (frame.clone(), true),
                        None => {
                            feed.want_snapshot();
                            feed.without.add(self.number, without);
                            continue;
                        }
                    }
                }
            };
            let reached = log.position();
            drop(log);
            let receipt = match is_snapshot {
                true => feed.snapshot_receipt(),
                false => came_back.then(|| feed.return_receipt(reached)),
            };
            if is_snapshot {
                self.counts.snapshots.add(1);
            } else {
                self.counts.patches.add(1);
                let is_merged = position.is_some_and(|from| from.seq + 1 < reached.seq);
                self.counts.merged_patches.add(usize::from(is_merged));
                self.paced = self.paced.max(now) + pace(&mut self.budget, now);
            }
            self.budget.record(now, Lane::State);
            let view = &mut self.views[index];
            view.has = Has::Sent(reached);
            if is_snapshot {
                view.snapshot_sent = Some(now);
            }
            self.turn = (index + 1) as u16;
            return Next::Send(QueuedFrame { frame, receipt, feed: None });
        }
        wait.map_or(Next::Idle, Next::At)
    }
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        self.clear();
    }
}

/// When a patch may go out, given when the last would have been due; none = now.
fn patch_at(budget: &mut FrameBudget, paced: &mut Millis, now: Millis) -> Option<Millis> {
    let pace = pace(budget, now);
    // What was sent at a slower pace is not made up for.
    *paced = (*paced).min(now + PATCH_BURST * pace);
    let due = paced.checked_sub((PATCH_BURST - 1) * pace).filter(|at| *at > now);
    budget.available_at(now, Lane::State).max(due)
}

/// Time between two patches: the room that the other lanes leave, spread over the window.
fn pace(budget: &mut FrameBudget, now: Millis) -> Millis {
    let even = budget.room(now, Lane::State).saturating_sub(PATCH_BURST as usize).max(1);
    PATCH_PACE.max(SPAN / even as Millis)
}

/// The earlier of the times to ask again.
fn earlier(wait: Option<Millis>, at: Millis) -> Millis {
    wait.map_or(at, |wait| wait.min(at))
}

#[cfg(test)]
mod lane_tests;
#[cfg(test)]
mod tests;
