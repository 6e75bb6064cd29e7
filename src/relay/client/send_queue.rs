//! The messages that wait to be written to one WebSocket, and their order. Pure, with the time as an argument.
//!
//! The [`FrameBudget`] limits how much may go. Raids go first, then events, chat and replies, and patches last, merged
//! at the moment they are sent; a lane that must wait holds back none below it, as each has its floor. Over budget
//! nothing is lost but chat: of its lines the oldest that wait are dropped, and their number is reported. Of the
//! updates of an incident only the newest waits, so that a wall of flapping alarms fills no queue.
//!
//! When more than a handful of raids wait, a patch that shows all of them goes ahead.

mod waiting;

use std::{cell::Cell, rc::Rc, sync::Arc};

use smallvec::SmallVec;

use self::waiting::{DroppedChat, QUEUED, WaitingMessages, earlier};
pub use self::waiting::{Next, QueuedFrame};
use crate::{
    domain::{
        ids::ServerId,
        limits,
        sections::{Sections, StateKey},
    },
    relay::{
        client::{
            feed::{Feed, Generation},
            frame_budget::{FrameBudget, Millis, SPAN},
            patch_log::{CatchUp, PatchLog},
        },
        wire::{
            protocol,
            publication::{Lane, Position},
            send_counts::SendCounts,
        },
    },
};

/// Patches of one connection come in a short burst, then evenly, so that no client that is over budget has to look at
/// a still map until its window slides. Burst and pace together stay within the room that the other lanes leave.
const PATCH_PACE: Millis = 250;
/// Patches may come earlier by this than evenly: four at once at the full pace, fewer at a slower one.
const PATCH_BURST: Millis = 3 * PATCH_PACE;

/// More messages wait that may not be dropped than the limit allows: the client is too slow.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

/// One watched server.
struct View {
    feed: Rc<Feed>,
    /// The keys of the state that the client wants.
    sections: Sections,
    position: ClientPosition,
    /// When its last snapshot was sent.
    snapshot_sent: Option<Millis>,
    /// The generations of the feed's lists in which this socket last was: of idle ones, and of those that await a snapshot.
    idle: Cell<Generation>,
    awaiting_snapshot: Cell<Generation>,
}

/// State of a server at the client.
#[derive(Clone, Copy)]
enum ClientPosition {
    /// Nothing before its first snapshot.
    None,
    /// Position that it said when it came back; nothing was sent since.
    Claimed(Position),
    Sent(Position),
}

impl ClientPosition {
    fn position(self) -> Option<Position> {
        match self {
            Self::None => None,
            Self::Claimed(position) | Self::Sent(position) => Some(position),
        }
    }
}

impl View {
    fn new(feed: &Rc<Feed>, position: Option<Position>, sections: Sections, snapshot_sent: Option<Millis>) -> Self {
        let (idle, awaiting_snapshot) = (Cell::default(), Cell::default());
        let position = position.map_or(ClientPosition::None, ClientPosition::Claimed);
        Self { feed: feed.clone(), sections, position, snapshot_sent, idle, awaiting_snapshot }
    }

    fn unlist(&self, socket: u32) {
        self.feed.idle.of(self.sections).remove(socket);
        self.feed.awaiting_snapshot.remove(socket);
    }

    /// True if the client has said where it is, and nothing was sent to it since.
    fn came_back(&self) -> bool {
        matches!(self.position, ClientPosition::Claimed(_))
    }

    /// The state that the client lacks. `ahead`: a large patch is no reason for a snapshot, as raids wait for it.
    fn catch_up(&self, log: &mut PatchLog, ahead: bool, now: Millis) -> CatchUp {
        let catch_up = self.position.position().map_or(CatchUp::Snapshot, |from| log.since(from, self.sections));
        match catch_up {
            // If the smaller snapshot may not come yet: better a large patch than a map that does not move.
            CatchUp::Patch { large: true, .. } if !ahead && self.snapshot_at(now).is_none() => CatchUp::Snapshot,
            CatchUp::Nothing if self.came_back() => {
                CatchUp::Patch { frame: log.unchanged(self.sections), large: false }
            }
            // The raid came and went before it was sent.
            CatchUp::Patch { frame, .. }
                if !self.came_back() && !self.sections.is_all() && protocol::is_empty_patch(&frame) =>
            {
                CatchUp::Nothing
            }
            other => other,
        }
    }

    /// When a snapshot may go out; none = now.
    fn snapshot_at(&self, now: Millis) -> Option<Millis> {
        self.snapshot_sent.map(|sent| sent + limits::SNAPSHOT_SPAN_MS).filter(|at| *at > now)
    }
}

/// See the module. Small, because there is one per connection.
#[derive(Default)]
pub struct SendQueue {
    /// Number of its socket, on its thread.
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
    /// A server was watched that is no longer.
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
    /// of chat the oldest line is dropped. An update takes the place of the one that waits of the same incident.
    pub fn push(&mut self, lane: Lane, queued: QueuedFrame, now: Millis) -> Result<(), Overflow> {
        let waiting = self.waiting.get_or_insert_default();
        if let Some(outdated) = waiting.outdated_by(lane, &queued) {
            *outdated = queued;
            return Ok(());
        }
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

    /// Starts watching these keys of the state, from the position that the client says it has, if it does; or asks for
    /// a fresh snapshot of a server that is watched already. Once a server was unwatched, the client's position is not
    /// relied on: more may be on its way to it.
    pub fn watch(&mut self, feed: &Rc<Feed>, from: Option<Position>, sections: Sections) {
        let from = from.filter(|_| !self.has_left);
        match self.views.iter_mut().find(|view| view.feed.server == feed.server) {
            Some(view) => {
                view.unlist(self.number);
                *view = View::new(feed, None, sections, view.snapshot_sent);
            }
            None => {
                let left = self.left.iter().position(|(server, _)| *server == feed.server);
                let snapshot_sent = left.map(|index| self.left.swap_remove(index).1);
                self.views.push(View::new(feed, from, sections, snapshot_sent));
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

    /// True if this server is watched.
    pub fn watches(&self, server: &ServerId) -> bool {
        self.views.iter().any(|view| view.feed.server == *server)
    }

    /// Number of servers that are watched.
    pub fn watching(&self) -> usize {
        self.views.len()
    }

    /// Reads some of what [`SendQueue::next`] will read.
    pub fn read_ahead(&self) -> impl Sized {
        let view = self.views.first();
        (
            view.and_then(|view| view.position.position()),
            view.map(|view| view.awaiting_snapshot.get()),
            self.paced,
            self.budget.read_ahead(),
        )
    }

    /// The next message, which the caller then writes; or when to ask again.
    pub fn next(&mut self, now: Millis) -> Next {
        let mut wait = None;
        if self.waiting.is_some() {
            if self.raids_waiting() > limits::HANDFUL_OF_RAIDS {
                match self.next_view(now, true) {
                    Next::At(at) => wait = Some(at),
                    Next::Idle => {}
                    next => return next,
                }
            }
            let message = self.waiting.as_mut().map(|waiting| waiting.next(&mut self.budget, &self.counts, now));
            match message {
                Some(Next::At(at)) => wait = Some(earlier(wait, at)),
                Some(Next::Idle) | None => self.waiting = None,
                Some(next) => return next,
            }
        }
        match self.next_view(now, false) {
            Next::At(at) => Next::At(earlier(wait, at)),
            Next::Idle => wait.map_or(Next::Idle, Next::At),
            next => next,
        }
    }

    /// True while a raid waits.
    pub fn has_raids(&self) -> bool {
        self.raids_waiting() > 0
    }

    fn raids_waiting(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.raids().len())
    }

    /// The next snapshot or patch, the views served round-robin; or when to ask again. With `ahead`, of the views alone
    /// that show the raids that wait.
    fn next_view(&mut self, now: Millis, ahead: bool) -> Next {
        let mut wait = None;
        for offset in 0..self.views.len() {
            let index = (usize::from(self.turn) + offset) % self.views.len();
            let view = &self.views[index];
            let View { feed, sections, idle, awaiting_snapshot, .. } = view;
            let sections = *sections;
            let raids_wait = sections.contains(StateKey::Raids)
                && self.waiting.as_ref().is_some_and(|waiting| waiting.has_raids_of(feed));
            if ahead && !raids_wait {
                continue;
            }
            let mut log = feed.log.borrow_mut();
            let (frame, is_snapshot) = match view.catch_up(&mut log, ahead, now) {
                CatchUp::Nothing => {
                    feed.idle.of(sections).add(self.number, idle);
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
                    match log.snapshot(sections) {
                        Some(frame) => (frame, true),
                        None => {
                            feed.want_snapshot();
                            feed.awaiting_snapshot.add(self.number, awaiting_snapshot);
                            continue;
                        }
                    }
                }
            };
            let (reached, now_at) = (log.head(sections), log.position());
            drop(log);
            // The receipt confirms that the client has the incidents.
            let receipt = match is_snapshot {
                _ if !sections.contains(StateKey::Raids) => None,
                true => feed.snapshot_receipt(),
                false => (view.came_back() || raids_wait).then(|| feed.return_receipt(now_at)),
            };
            if raids_wait && let Some(waiting) = &self.waiting {
                waiting.note_shown(feed);
            }
            self.record_state(index, is_snapshot, reached, now);
            return Next::Send(QueuedFrame { receipt, ..frame.into() });
        }
        wait.map_or(Next::Idle, Next::At)
    }

    /// The client of this view is sent a state up to this position; the turn is the next one's.
    fn record_state(&mut self, index: usize, is_snapshot: bool, reached: Position, now: Millis) {
        let view = &mut self.views[index];
        if is_snapshot {
            self.counts.snapshots.add(1);
            view.snapshot_sent = Some(now);
        } else {
            self.counts.patches.add(1);
            let from = view.position.position();
            let is_merged = view.sections.is_all() && from.is_some_and(|from| from.seq + 1 < reached.seq);
            self.counts.merged_patches.add(usize::from(is_merged));
            self.paced = self.paced.max(now) + pace(&mut self.budget, now);
        }
        self.budget.record(now, Lane::State);
        view.position = ClientPosition::Sent(reached);
        self.turn = (index + 1) as u16;
    }
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        self.clear();
    }
}

/// When a patch may go out, given when the last would have been due; none = now.
fn patch_at(budget: &mut FrameBudget, paced: &mut Millis, now: Millis) -> Option<Millis> {
    // Time lost to a slower pace is not made up for.
    *paced = (*paced).min(now + PATCH_BURST + pace(budget, now));
    let due = paced.checked_sub(PATCH_BURST).filter(|at| *at > now);
    budget.available_at(now, Lane::State).max(due)
}

/// Time between two patches: the room that the other lanes leave, spread over the window.
fn pace(budget: &mut FrameBudget, now: Millis) -> Millis {
    PATCH_PACE.max(budget.spread(now, Lane::State))
}

#[cfg(test)]
mod lane_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod update_tests;
