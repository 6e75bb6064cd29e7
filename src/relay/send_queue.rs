//! What waits to be written to one WebSocket, and when it may be: priorities and the rate limit. Pure, with the time as
//! an argument.
//!
//! The limit is a true sliding window: no 10 seconds ever hold more than 60 data frames. Over budget nothing is lost:
//! raids go first, then events and chat, then replies, and patches last, merged at the moment they are sent. Each
//! lane has a share of the window that the lanes below it cannot use up.

use std::{collections::VecDeque, rc::Rc};

use bytes::Bytes;

use crate::{
    domain::{ids::ServerId, limits, rate::Window},
    relay::{
        feed::Feed,
        patch_log::CatchUp,
        publication::{Lane, Position},
        receipt::Receipt,
    },
};

/// Milliseconds on a monotonic clock.
pub type Millis = u64;

/// How much of the window may be full when a frame of a lane goes out.
const RAID_SHARE: usize = limits::OUTBOUND_FRAMES;
const LIVE_SHARE: usize = RAID_SHARE - 3;
const REPLY_SHARE: usize = LIVE_SHARE - 5;
const PATCH_SHARE: usize = REPLY_SHARE - 7;

/// Patches of one connection come in a short burst, then evenly, so that no client that is over budget has to look at
/// a still map until its window slides. Burst and pace together stay within `PATCH_SHARE`.
const PATCH_PACE: Millis = 250;
const PATCH_BURST: Millis = 4 * PATCH_PACE;

/// A frame on its way to one socket.
#[derive(Clone, Debug)]
pub struct QueuedFrame {
    pub frame: Bytes,
    /// Present where it is counted which sockets took the frame.
    pub receipt: Option<Rc<Receipt>>,
    /// The server that it is about, if it is about one: it is not sent after the watch of that server has ended.
    pub feed: Option<Rc<Feed>>,
}

impl From<Bytes> for QueuedFrame {
    fn from(frame: Bytes) -> Self {
        Self { frame, receipt: None, feed: None }
    }
}

/// What to do next.
#[derive(Debug)]
pub enum Next {
    Send(QueuedFrame),
    /// Something waits for its turn until then.
    At(Millis),
    /// Nothing waits, or only for a snapshot on its way.
    Idle,
}

/// More messages wait that may not be dropped than the limit allows: the client is too slow.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

/// One watched server.
struct View {
    feed: Rc<Feed>,
    /// What the client has; none until its first snapshot.
    position: Option<Position>,
}

/// See the module.
pub struct SendQueue {
    window: Window,
    lanes: [VecDeque<QueuedFrame>; 3],
    views: Vec<View>,
    /// The view whose turn is next.
    turn: usize,
    /// When the last patch would have been due had all come evenly.
    paced: Millis,
    /// When snapshots were sent; outlives unsubscribing. Only those of the last 5 s are kept.
    snapshots: Vec<(ServerId, Millis)>,
}

impl Default for SendQueue {
    fn default() -> Self {
        Self {
            window: Window::new(limits::OUTBOUND_FRAMES, limits::OUTBOUND_SPAN),
            lanes: Default::default(),
            views: Vec::new(),
            turn: 0,
            paced: 0,
            snapshots: Vec::new(),
        }
    }
}

impl SendQueue {
    /// Puts a message into its lane. None is ever dropped; too many waiting end the connection.
    pub fn push(&mut self, lane: Lane, queued: QueuedFrame) -> Result<(), Overflow> {
        if self.lanes.iter().map(VecDeque::len).sum::<usize>() >= limits::WAITING_MESSAGES {
            return Err(Overflow);
        }
        self.lanes[lane as usize].push_back(queued);
        Ok(())
    }

    /// Starts watching, or asks for a fresh snapshot of what is watched already.
    pub fn watch(&mut self, feed: &Rc<Feed>) {
        match self.views.iter_mut().find(|view| view.feed.server == feed.server) {
            Some(view) => *view = View { feed: feed.clone(), position: None },
            None => self.views.push(View { feed: feed.clone(), position: None }),
        }
    }

    /// Stops watching, and drops what still waits from that server.
    pub fn unwatch(&mut self, server: &ServerId) {
        self.views.retain(|view| view.feed.server != *server);
        for lane in &mut self.lanes {
            lane.retain(|queued| queued.feed.as_ref().is_none_or(|feed| feed.server != *server));
        }
    }

    /// Drops everything that waits and stops watching: the connection is being closed.
    pub fn clear(&mut self) {
        self.lanes = Default::default();
        self.views.clear();
    }

    /// Whether this server is watched.
    pub fn watches(&self, server: &ServerId) -> bool {
        self.views.iter().any(|view| view.feed.server == *server)
    }

    /// How many servers are watched.
    pub fn watching(&self) -> usize {
        self.views.len()
    }

    /// The next message, which the caller then writes; or when to ask again.
    pub fn next(&mut self, now: Millis) -> Next {
        for (lane, share) in [(Lane::Raid, RAID_SHARE), (Lane::Live, LIVE_SHARE), (Lane::Reply, REPLY_SHARE)] {
            if self.lanes[lane as usize].is_empty() {
                continue;
            }
            // A lane that must wait holds back those below it: they could only make it wait longer.
            if let Some(at) = self.window.available_at(now, share) {
                return Next::At(at);
            }
            let queued = self.lanes[lane as usize].pop_front().expect("it is not empty");
            self.window.record(now);
            return Next::Send(queued);
        }
        self.next_view(now)
    }

    /// The next snapshot or patch, the views taking turns.
    fn next_view(&mut self, now: Millis) -> Next {
        let mut wait: Option<Millis> = None;
        for offset in 0..self.views.len() {
            let index = (self.turn + offset) % self.views.len();
            let View { feed, position } = &self.views[index];
            let mut log = feed.log.borrow_mut();
            let catch_up = position.map_or(CatchUp::Snapshot, |from| log.since(from));
            let catch_up = match catch_up {
                // If the smaller snapshot may not come yet: better a large patch than a map that does not move.
                CatchUp::Patch { large: true, .. } if self.snapshot_at(&feed.server, now).is_none() => {
                    CatchUp::Snapshot
                }
                other => other,
            };
            let (frame, is_snapshot) = match catch_up {
                CatchUp::Nothing => continue,
                CatchUp::Patch { frame, .. } => {
                    if let Some(at) = self.patch_at(now) {
                        return Next::At(wait.map_or(at, |earlier| earlier.min(at)));
                    }
                    (frame, false)
                }
                CatchUp::Snapshot => {
                    if let Some(at) = self.snapshot_at(&feed.server, now) {
                        wait = Some(wait.map_or(at, |earlier| earlier.min(at)));
                        continue;
                    }
                    if let Some(at) = self.window.available_at(now, PATCH_SHARE) {
                        return Next::At(wait.map_or(at, |earlier| earlier.min(at)));
                    }
                    match log.snapshot() {
                        Some(frame) => (frame.clone(), true),
                        None => {
                            feed.want_snapshot();
                            continue;
                        }
                    }
                }
            };
            let reached = log.position();
            drop(log);
            let receipt = is_snapshot.then(|| feed.snapshot_receipt()).flatten();
            if is_snapshot {
                let server = feed.server.clone();
                self.snapshots.retain(|(_, at)| at + limits::SNAPSHOT_SPAN_MS > now);
                self.snapshots.push((server, now));
            } else {
                self.paced = self.paced.max(now) + PATCH_PACE;
            }
            self.window.record(now);
            self.views[index].position = Some(reached);
            self.turn = index + 1;
            return Next::Send(QueuedFrame { frame, receipt, feed: None });
        }
        wait.map_or(Next::Idle, Next::At)
    }

    /// When a patch may go out; none = now.
    fn patch_at(&self, now: Millis) -> Option<Millis> {
        let paced = (self.paced + PATCH_PACE).checked_sub(PATCH_BURST).filter(|at| *at > now);
        self.window.available_at(now, PATCH_SHARE).max(paced)
    }

    /// When a snapshot of this server may go out; none = now.
    fn snapshot_at(&self, server: &ServerId, now: Millis) -> Option<Millis> {
        let last = self.snapshots.iter().rev().find(|(sent, _)| sent == server)?.1;
        Some(last + limits::SNAPSHOT_SPAN_MS).filter(|at| *at > now)
    }
}

#[cfg(test)]
mod tests;
