//! One paired server as one worker thread knows it: where its state stands, the last steps to there, who watches.
//!
//! A client that saw some earlier position gets **one** patch from there to now, shared by all that stand at the same
//! position, or a snapshot when that is smaller or the steps do not reach back. No client keeps a queue of patches.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
};

use actix::Recipient;
use bytes::Bytes;

use crate::{
    domain::{
        ids::ServerId,
        server_state::{self, Change},
    },
    relay::{protocol, server_subscription::WantSnapshot, socket::Socket},
};

/// One edit of the live state, with the frame for all who stand at `base`.
#[derive(Debug)]
pub struct Step {
    pub base: u64,
    pub seq: u64,
    pub changes: Vec<Change>,
    pub frame: Bytes,
}

/// Where a client stands: the last `seq` it was sent, within an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub epoch: u64,
    pub seq: u64,
}

/// What brings a client to now.
#[derive(Debug, PartialEq)]
pub enum CatchUp {
    /// It is there.
    Nothing,
    Patch {
        frame: Bytes,
        /// The last snapshot was smaller.
        large: bool,
    },
    /// The steps do not reach back.
    Snapshot,
}

/// How many steps are kept at the most, and how many changes in all of them: enough for a minute of a busy server.
const STEPS: usize = 512;
const CHANGES: usize = 20_000;

/// The position of a server's state and the way there. Pure.
pub struct Stream {
    server: ServerId,
    position: Position,
    steps: VecDeque<Arc<Step>>,
    changes: usize,
    /// Merged patches to the current position, by the `seq` they start from.
    merged: Vec<(u64, Bytes)>,
    /// The snapshot of the current position, once somebody needed it.
    snapshot: Option<Bytes>,
    /// Bytes of the newest snapshot seen, to compare patches with.
    snapshot_size: usize,
}

impl Stream {
    /// A stream that knows no position yet; only a snapshot gives it one.
    pub fn new(server: ServerId) -> Self {
        Self {
            server,
            position: Position { epoch: 0, seq: 0 },
            steps: VecDeque::new(),
            changes: 0,
            merged: Vec::new(),
            snapshot: None,
            snapshot_size: usize::MAX,
        }
    }

    /// Where the state stands.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The snapshot of this very position, if it is here.
    pub fn snapshot(&self) -> Option<&Bytes> {
        self.snapshot.as_ref()
    }

    /// Takes a step. False if it does not follow: a snapshot is needed.
    pub fn advance(&mut self, epoch: u64, step: Arc<Step>) -> bool {
        if self.position != (Position { epoch, seq: step.base }) {
            return false;
        }
        self.position.seq = step.seq;
        self.changes += step.changes.len();
        self.steps.push_back(step);
        while self.steps.len() > STEPS || (self.changes > CHANGES && self.steps.len() > 1) {
            let oldest = self.steps.pop_front().expect("it was just counted");
            self.changes -= oldest.changes.len();
        }
        self.merged.clear();
        self.snapshot = None;
        true
    }

    /// Takes a snapshot: of now, or of a later position that the steps did not reach.
    pub fn restart(&mut self, position: Position, snapshot: Bytes) {
        if position != self.position {
            self.position = position;
            self.steps.clear();
            self.changes = 0;
            self.merged.clear();
        }
        self.snapshot_size = snapshot.len();
        self.snapshot = Some(snapshot);
    }

    /// What brings a client from `from` to now.
    pub fn since(&mut self, from: Position) -> CatchUp {
        if from == self.position {
            return CatchUp::Nothing;
        }
        let reaches = self.steps.front().is_some_and(|oldest| oldest.base <= from.seq);
        if from.epoch != self.position.epoch || from.seq > self.position.seq || !reaches {
            return CatchUp::Snapshot;
        }
        if let Some(last) = self.steps.back()
            && last.base == from.seq
        {
            return CatchUp::Patch { frame: last.frame.clone(), large: false };
        }
        if let Some((_, frame)) = self.merged.iter().find(|(base, _)| *base == from.seq) {
            return self.patch(frame.clone());
        }
        let first = self.steps.partition_point(|step| step.base < from.seq);
        let changes = server_state::merge(self.steps.range(first..).flat_map(|step| &step.changes));
        let frame = protocol::patch(&self.server, from.epoch, from.seq, self.position.seq, &changes);
        self.merged.push((from.seq, frame.clone()));
        self.patch(frame)
    }

    fn patch(&self, frame: Bytes) -> CatchUp {
        let large = frame.len() > self.snapshot_size;
        CatchUp::Patch { frame, large }
    }
}

/// A stream with those who watch it. Shared on one thread by the subscription that feeds it and the sockets it feeds.
pub struct Feed {
    pub server: ServerId,
    pub stream: RefCell<Stream>,
    pub watchers: RefCell<Vec<Rc<Socket>>>,
    /// Somebody waits for a snapshot that is not here yet.
    pub snapshot_wanted: Cell<bool>,
    /// Who can get one; set once it has started.
    pub source: OnceCell<Recipient<WantSnapshot>>,
}

impl Feed {
    /// A feed that nobody watches yet.
    pub fn new(server: ServerId) -> Rc<Self> {
        Rc::new(Self {
            stream: RefCell::new(Stream::new(server.clone())),
            server,
            watchers: RefCell::new(Vec::new()),
            snapshot_wanted: Cell::new(false),
            source: OnceCell::new(),
        })
    }

    /// Asks for a snapshot of now. Asked again before that is taken up, it stays one request.
    pub fn want_snapshot(&self) {
        if !self.snapshot_wanted.replace(true)
            && let Some(source) = self.source.get()
        {
            source.do_send(WantSnapshot);
        }
    }

    /// Adds a watcher, once.
    pub fn watch(&self, socket: &Rc<Socket>) {
        let mut watchers = self.watchers.borrow_mut();
        if !watchers.iter().any(|watcher| Rc::ptr_eq(watcher, socket)) {
            watchers.push(socket.clone());
        }
    }

    /// Takes a watcher away.
    pub fn unwatch(&self, socket: &Rc<Socket>) {
        let mut watchers = self.watchers.borrow_mut();
        if let Some(index) = watchers.iter().position(|watcher| Rc::ptr_eq(watcher, socket)) {
            watchers.swap_remove(index);
        }
    }
}
