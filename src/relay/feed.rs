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
    /// Numbers of the sockets that are where the log is: the next step is for them. Those that are not, because they may
    /// not send now, come back by themselves; so a step costs nothing for them.
    up_to_date: RefCell<Vec<u32>>,
    /// Of those that wait for a snapshot.
    without: RefCell<Vec<u32>>,
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
            up_to_date: RefCell::default(),
            without: RefCell::default(),
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

    /// This socket has nothing to do before the next step, or the next snapshot if it is `without` one.
    pub fn list(&self, socket: u32, without: bool) {
        let list = if without { &self.without } else { &self.up_to_date };
        list.borrow_mut().push(socket);
    }

    /// Takes this socket off the list that it may be on.
    pub fn unlist(&self, socket: u32) {
        for list in [&self.up_to_date, &self.without] {
            let mut list = list.borrow_mut();
            if let Some(index) = list.iter().position(|listed| *listed == socket) {
                list.swap_remove(index);
            }
        }
    }

    /// The sockets for which a step is news.
    pub fn take_up_to_date(&self) -> Vec<u32> {
        self.up_to_date.take()
    }

    /// The sockets that wait for a snapshot.
    pub fn take_without(&self) -> Vec<u32> {
        self.without.take()
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
