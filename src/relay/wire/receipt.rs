//! Receipts: the publisher of a frame learns from them which sockets took it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// The sockets that took one alarm so far, on all threads.
#[derive(Debug, Default)]
pub struct DeliveryCount {
    sockets: AtomicUsize,
    first: Notify,
    first_at: OnceLock<Instant>,
    /// When its alarm was received, if it was just now.
    received_at: Option<Instant>,
}

impl DeliveryCount {
    /// None yet; how long each takes is counted from here.
    pub fn since(received_at: Option<Instant>) -> Arc<Self> {
        Arc::new(Self { received_at, ..Self::default() })
    }

    /// Number of the sockets.
    pub fn sockets(&self) -> usize {
        self.sockets.load(Ordering::Relaxed)
    }

    /// Waits for the first socket. Only one task may wait.
    pub async fn first(&self) {
        while self.sockets() == 0 {
            self.first.notified().await;
        }
    }

    /// When the first socket took it.
    pub fn first_at(&self) -> Option<Instant> {
        self.first_at.get().copied()
    }

    /// One more.
    pub fn add(&self) {
        self.first_at.get_or_init(Instant::now);
        self.sockets.fetch_add(1, Ordering::Relaxed);
        self.first.notify_one();
    }

    /// A client knows of the alarm now.
    fn note_latency(&self) {
        if let Some(received_at) = self.received_at {
            metrics::histogram!("companion_raid_latency_seconds").record(received_at.elapsed());
        }
    }
}

/// Shared by the copies of one frame on this thread: counts the sockets whose kernel buffer took it, and reports.
#[derive(Debug)]
pub struct Receipt {
    taken: Rc<Cell<usize>>,
    /// A patch has shown the alarm where its message waits: it is not late when that follows.
    is_shown: Cell<bool>,
    /// For an alarm: counts the sockets of all threads.
    on_all_threads: Option<Arc<DeliveryCount>>,
    /// Sent on at the first socket, or dropped with the last copy.
    first: RefCell<Option<oneshot::Sender<()>>>,
    /// Never sent on: dropping it is the report.
    _finished: Option<oneshot::Sender<()>>,
}

impl Receipt {
    /// A receipt of an alarm, its count, and a channel that ends when every copy is gone, written or not.
    pub fn of_alarm(on_all_threads: Arc<DeliveryCount>) -> (Rc<Self>, Rc<Cell<usize>>, oneshot::Receiver<()>) {
        let (sender, finished) = oneshot::channel();
        let taken = Rc::new(Cell::new(0));
        let receipt = Self {
            taken: taken.clone(),
            is_shown: Cell::new(false),
            on_all_threads: Some(on_all_threads),
            first: RefCell::new(None),
            _finished: Some(sender),
        };
        (Rc::new(receipt), taken, finished)
    }

    /// A receipt, and a channel that is sent on when a first socket took the frame; it ends without if none will.
    pub fn of_first() -> (Rc<Self>, oneshot::Receiver<()>) {
        let (sender, first) = oneshot::channel();
        let receipt = Self {
            taken: Rc::default(),
            is_shown: Cell::new(false),
            on_all_threads: None,
            first: RefCell::new(Some(sender)),
            _finished: None,
        };
        (Rc::new(receipt), first)
    }

    /// A patch goes ahead of this alarm's message, which waits.
    pub fn note_shown(&self) {
        if !self.is_shown.replace(true)
            && let Some(taken) = &self.on_all_threads
        {
            taken.note_latency();
        }
    }

    /// One socket took the frame.
    pub fn confirm(&self) {
        self.taken.set(self.taken.get() + 1);
        if let Some(taken) = &self.on_all_threads {
            taken.add();
            if !self.is_shown.get() {
                taken.note_latency();
            }
        }
        if let Some(first) = self.first.borrow_mut().take() {
            // The receiver may be gone.
            let _ = first.send(());
        }
    }
}
