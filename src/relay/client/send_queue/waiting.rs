//! The messages that wait for one WebSocket, by lane.

use std::{collections::VecDeque, rc::Rc, sync::Arc};

use crate::{
    domain::ids::ServerId,
    relay::{
        client::{
            feed::Feed,
            frame_budget::{FrameBudget, Millis},
        },
        wire::{frame::SharedFrame, publication::Lane, receipt::Receipt, send_counts::SendCounts},
    },
};

/// The lanes with a queue, by priority.
pub(super) const QUEUED: [Lane; 4] = [Lane::Raid, Lane::Event, Lane::Chat, Lane::Reply];

/// A frame on its way to one socket.
#[derive(Clone, Debug)]
pub struct QueuedFrame {
    pub frame: SharedFrame,
    /// Present where it is counted which sockets took the frame.
    pub receipt: Option<Rc<Receipt>>,
    /// The server that it is about, if it is about one: it is not sent after the watch of that server has ended.
    pub feed: Option<Rc<Feed>>,
    /// The incident, if it is an update of one: a newer update makes up for it while it waits.
    pub update_of: Option<Arc<str>>,
}

impl QueuedFrame {
    fn is_of(&self, feed: &Rc<Feed>) -> bool {
        self.feed.as_ref().is_some_and(|of| Rc::ptr_eq(of, feed))
    }
}

impl From<SharedFrame> for QueuedFrame {
    fn from(frame: SharedFrame) -> Self {
        Self { frame, receipt: None, feed: None, update_of: None }
    }
}

/// The next thing to do.
#[derive(Debug)]
pub enum Next {
    Send(QueuedFrame),
    /// Report that this number of lines of the server's chat were dropped.
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
pub(super) struct DroppedChat {
    pub(super) feed: Rc<Feed>,
    pub(super) lines: u32,
    pub(super) due: Millis,
}

/// Messages that wait for their turn, by lane; the state waits elsewhere.
#[derive(Default)]
pub(super) struct WaitingMessages {
    pub(super) lanes: [VecDeque<QueuedFrame>; QUEUED.len()],
    /// One of each server whose chat is too much, the first that is due first.
    pub(super) dropped: Vec<DroppedChat>,
}

impl WaitingMessages {
    /// The number of messages that wait and may not be dropped.
    pub(super) fn undroppable(&self) -> usize {
        QUEUED.into_iter().filter(|lane| *lane != Lane::Chat).map(|lane| self.lanes[lane as usize].len()).sum()
    }

    pub(super) fn raids(&self) -> &VecDeque<QueuedFrame> {
        &self.lanes[Lane::Raid as usize]
    }

    /// The update that waits of the incident that this message updates. Its place is kept: at the end of a long queue
    /// an update would never be the first.
    pub(super) fn outdated_by(&mut self, lane: Lane, queued: &QueuedFrame) -> Option<&mut QueuedFrame> {
        let incident = queued.update_of.as_ref()?;
        self.lanes[lane as usize].iter_mut().find(|waits| waits.update_of.as_ref() == Some(incident))
    }

    /// True while raids of this feed wait.
    pub(super) fn has_raids_of(&self, feed: &Rc<Feed>) -> bool {
        self.raids().iter().any(|queued| queued.is_of(feed))
    }

    /// The state shows the incidents of this feed whose messages wait.
    pub(super) fn note_shown(&self, feed: &Rc<Feed>) {
        for queued in self.raids().iter().filter(|queued| queued.is_of(feed)) {
            queued.receipt.iter().for_each(|receipt| receipt.note_shown());
        }
    }

    /// The next message; or when to ask again, if any waits.
    pub(super) fn next(&mut self, budget: &mut FrameBudget, counts: &SendCounts, now: Millis) -> Next {
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
    pub(super) fn drop_of(&mut self, server: &ServerId, counts: &SendCounts) {
        self.dropped.retain(|dropped| dropped.feed.server != *server);
        for (lane, waiting) in QUEUED.into_iter().zip(&mut self.lanes) {
            let waited = waiting.len();
            waiting.retain(|queued| queued.feed.as_ref().is_none_or(|feed| feed.server != *server));
            counts.waiting(lane).remove(waited - waiting.len());
        }
    }
}

/// The earlier of the times to ask again.
pub(super) fn earlier(wait: Option<Millis>, at: Millis) -> Millis {
    wait.map_or(at, |wait| wait.min(at))
}
