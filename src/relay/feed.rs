//! One paired server as the sockets of one thread see it: the patch log, and where snapshots come from.

use std::{
    cell::{Cell, OnceCell, RefCell},
    fmt,
    rc::Rc,
};

use actix::{Message, Recipient};

use crate::{
    clock::Clock,
    domain::ids::ServerId,
    relay::{patch_log::PatchLog, receipt::Receipt},
};

/// A socket of this thread needs a snapshot that is not here yet.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SnapshotWanted;

/// Shared on one thread by the subscription that fills it and the sockets that read it.
pub struct Feed {
    pub server: ServerId,
    pub clock: Clock,
    pub log: RefCell<PatchLog>,
    snapshot_wanted: Cell<bool>,
    /// Of the newest snapshot.
    receipt: RefCell<Option<Rc<Receipt>>>,
    /// Set once the subscription has started.
    source: OnceCell<Recipient<SnapshotWanted>>,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Feed {
    /// A feed that nobody fills yet.
    pub fn new(server: ServerId, clock: Clock) -> Rc<Self> {
        Rc::new(Self {
            log: RefCell::new(PatchLog::new(server.clone())),
            server,
            clock,
            snapshot_wanted: Cell::new(false),
            receipt: RefCell::new(None),
            source: OnceCell::new(),
        })
    }

    /// From now on this is asked for snapshots.
    pub fn connect(&self, source: Recipient<SnapshotWanted>) {
        // A feed has one subscription, which starts once.
        let _ = self.source.set(source);
    }

    /// The newest snapshot is confirmed on this; none: nobody wants to know any more.
    pub fn set_snapshot_receipt(&self, receipt: Option<Rc<Receipt>>) {
        *self.receipt.borrow_mut() = receipt;
    }

    /// Where the newest snapshot is confirmed.
    pub fn snapshot_receipt(&self) -> Option<Rc<Receipt>> {
        self.receipt.borrow().clone()
    }

    /// Asks for a snapshot of now. Asked again before the answer, it is one request.
    pub fn want_snapshot(&self) {
        if !self.snapshot_wanted.replace(true)
            && let Some(source) = self.source.get()
        {
            source.do_send(SnapshotWanted);
        }
    }

    /// Notes that a snapshot is needed; the subscription looks after it has handled its message.
    pub fn mark_snapshot_wanted(&self) {
        self.snapshot_wanted.set(true);
    }

    /// Whether a snapshot is wanted; from then on it counts as asked for.
    pub fn take_snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.take()
    }
}
