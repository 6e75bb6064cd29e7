//! One paired server as the sockets of one thread see it: the patch log, and where snapshots come from.

use std::{
    cell::{Cell, OnceCell, RefCell},
    fmt,
    rc::Rc,
};

use actix::{Message, Recipient};
use tokio::sync::oneshot;

use crate::{
    catalogue::SharedCatalogue,
    clock::Clock,
    domain::{ids::ServerId, sections::Sections},
    relay::{
        client::patch_log::PatchLog,
        wire::{publication::Position, receipt::Receipt},
    },
};

/// Requests of the sockets of a thread to the subscription.
#[derive(Message)]
#[rtype(result = "()")]
pub enum FeedRequest {
    /// One needs a snapshot that is not here yet.
    Snapshot,
    /// Report when the first of the clients that came back has this position.
    Return { position: Position, taken: oneshot::Receiver<()> },
}

/// Generation of an [`IdleList`]; that of a socket that was never listed is 0.
pub type Generation = u32;

/// Numbers of sockets that have nothing to do before the list is taken, which begins the next generation.
pub struct IdleList {
    sockets: RefCell<Vec<u32>>,
    generation: Cell<Generation>,
}

impl Default for IdleList {
    fn default() -> Self {
        Self { sockets: RefCell::default(), generation: Cell::new(1) }
    }
}

impl IdleList {
    /// Adds a socket, once in a generation: `listed` is the generation in which it was added last.
    pub fn add(&self, socket: u32, listed: &Cell<Generation>) {
        let generation = self.generation.get();
        if listed.replace(generation) != generation {
            self.sockets.borrow_mut().push(socket);
        }
    }

    /// Takes a socket off.
    pub fn remove(&self, socket: u32) {
        let mut sockets = self.sockets.borrow_mut();
        if let Some(index) = sockets.iter().position(|listed| *listed == socket) {
            sockets.swap_remove(index);
        }
    }

    /// Takes all. From here on each socket that has nothing to do is listed again.
    pub fn take(&self) -> Vec<u32> {
        // 0 is for sockets that were never listed.
        self.generation.set(self.generation.get().checked_add(1).unwrap_or(1));
        self.sockets.take()
    }
}

/// Sockets that are where the log is, by the keys of the state that they want: a step in other keys costs nothing.
#[derive(Default)]
pub struct IdleLists(RefCell<Vec<(Sections, Rc<IdleList>)>>);

impl IdleLists {
    /// The list of those that want these keys.
    pub fn of(&self, sections: Sections) -> Rc<IdleList> {
        let mut lists = self.0.borrow_mut();
        if let Some((_, list)) = lists.iter().find(|(known, _)| *known == sections) {
            return list.clone();
        }
        let list = Rc::<IdleList>::default();
        lists.push((sections, list.clone()));
        list
    }

    /// Takes the sockets that want any of these keys. Those that want all are always taken.
    pub fn take_changed(&self, changed: Sections) -> Vec<u32> {
        self.take_where(|sections| sections.is_all() || !sections.and(changed).is_empty())
    }

    /// Takes all sockets that wait for news.
    pub fn take(&self) -> Vec<u32> {
        self.take_where(|_| true)
    }

    fn take_where(&self, is_wanted: impl Fn(Sections) -> bool) -> Vec<u32> {
        let lists = self.0.borrow();
        lists.iter().filter(|(sections, _)| is_wanted(*sections)).flat_map(|(_, list)| list.take()).collect()
    }
}

/// Shared on one thread by the subscription that fills it and the sockets that read it.
pub struct Feed {
    pub server: ServerId,
    pub clock: Clock,
    pub log: RefCell<PatchLog>,
    snapshot_wanted: Cell<bool>,
    /// Receipt of the newest snapshot.
    receipt: RefCell<Option<Rc<Receipt>>>,
    /// Receipt of the clients that came back to this position.
    returned: RefCell<Option<(Position, Rc<Receipt>)>>,
    /// The sockets that are where the log is: the next step is for them. Those that are not, because they may not send
    /// now, come back by themselves; so a step costs nothing for them.
    pub idle: IdleLists,
    /// The sockets that wait for a snapshot.
    pub awaiting_snapshot: IdleList,
    /// Set once the subscription has started.
    source: OnceCell<Recipient<FeedRequest>>,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Feed {
    /// A feed that is not filled yet.
    pub fn new(server: ServerId, clock: Clock, catalogue: SharedCatalogue) -> Rc<Self> {
        Rc::new(Self {
            log: RefCell::new(PatchLog::new(server.clone(), catalogue)),
            server,
            clock,
            snapshot_wanted: Cell::new(false),
            receipt: RefCell::new(None),
            returned: RefCell::new(None),
            idle: IdleLists::default(),
            awaiting_snapshot: IdleList::default(),
            source: OnceCell::new(),
        })
    }

    /// From now on this is asked.
    pub fn connect(&self, source: Recipient<FeedRequest>) {
        // A feed has one subscription, which starts once.
        let _ = self.source.set(source);
    }

    /// The newest snapshot is confirmed on this.
    pub fn set_snapshot_receipt(&self, receipt: Rc<Receipt>) {
        *self.receipt.borrow_mut() = Some(receipt);
    }

    /// Drops the receipts: no one waits for them.
    pub fn drop_receipts(&self) {
        *self.receipt.borrow_mut() = None;
        *self.returned.borrow_mut() = None;
    }

    /// Where the newest snapshot is confirmed.
    pub fn snapshot_receipt(&self) -> Option<Rc<Receipt>> {
        self.receipt.borrow().clone()
    }

    /// Where it is confirmed that a client which came back has the state of this position, the newest. One for all.
    pub fn return_receipt(&self, position: Position) -> Rc<Receipt> {
        let mut returned = self.returned.borrow_mut();
        if let Some((at, receipt)) = &*returned
            && *at == position
        {
            return receipt.clone();
        }
        let (receipt, taken) = Receipt::of_first();
        if let Some(source) = self.source.get() {
            source.do_send(FeedRequest::Return { position, taken });
        }
        *returned = Some((position, receipt.clone()));
        receipt
    }

    /// Asks for a snapshot of now. Asked again before the answer, it is one request.
    pub fn want_snapshot(&self) {
        if !self.snapshot_wanted.replace(true)
            && let Some(source) = self.source.get()
        {
            source.do_send(FeedRequest::Snapshot);
        }
    }

    /// Notes that a snapshot is needed; the subscription looks after it has handled its message.
    pub fn mark_snapshot_wanted(&self) {
        self.snapshot_wanted.set(true);
    }

    /// True if a snapshot is wanted; from then on it counts as asked for.
    pub fn take_snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.take()
    }
}
