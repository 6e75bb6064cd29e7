//! How whoever publishes a frame learns which sockets took it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::sync::oneshot;

/// Shared by the copies of one frame on this thread: counts the sockets whose kernel buffer took it, and reports.
#[derive(Debug)]
pub struct Receipt {
    taken: Rc<Cell<usize>>,
    /// Sent on at the first socket, or dropped with the last copy.
    first: RefCell<Option<oneshot::Sender<()>>>,
    /// Never sent on: dropping it is the report.
    _finished: Option<oneshot::Sender<()>>,
}

impl Receipt {
    /// A receipt, its count, and what ends when every copy is gone, written or not.
    pub fn new() -> (Rc<Self>, Rc<Cell<usize>>, oneshot::Receiver<()>) {
        let (sender, finished) = oneshot::channel();
        let taken = Rc::new(Cell::new(0));
        let receipt = Self { taken: taken.clone(), first: RefCell::new(None), _finished: Some(sender) };
        (Rc::new(receipt), taken, finished)
    }

    /// A receipt, and what is sent on when a first socket took the frame; it ends without if none will.
    pub fn of_first() -> (Rc<Self>, oneshot::Receiver<()>) {
        let (sender, first) = oneshot::channel();
        (Rc::new(Self { taken: Rc::default(), first: RefCell::new(Some(sender)), _finished: None }), first)
    }

    /// One socket took the frame.
    pub fn confirm(&self) {
        self.taken.set(self.taken.get() + 1);
        if let Some(first) = self.first.borrow_mut().take() {
            // Nobody may want to know any more.
            let _ = first.send(());
        }
    }
}
