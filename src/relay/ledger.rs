//! What the alarms of one paired server want stored, on its way to the database: in order, one transaction at a time.
//!
//! Whoever writes waits for it no longer than [`STORED_WITHIN`]; then the journal keeps it, and the database gets it as
//! soon as it answers. What waits is merged, so it does not grow with the time that the database is away.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    db::{
        error::DbError,
        incidents::{self, LedgerWrite},
        journal::Journal,
        pool::Pool,
    },
    domain::ids::ServerId,
};

/// An alarm waits for the database no longer than this, and for the journal as long once more.
pub const STORED_WITHIN: Duration = Duration::from_millis(500);
/// Between two attempts to write.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Arrivals that wait for the database; the journal has them too.
const ARRIVALS: usize = 10_000;

/// Where a write is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Database,
    Journal,
    /// The paired server is gone, or neither took it.
    Nowhere,
}

/// See the module. Clones share it.
#[derive(Clone)]
pub struct Ledger(Rc<Shared>);

struct Shared {
    server: ServerId,
    pool: Pool,
    journal: Journal,
    queue: RefCell<Queue>,
    /// An attempt has ended.
    settled: Notify,
}

#[derive(Default)]
struct Queue {
    pending: LedgerWrite,
    /// How many writes were submitted, and up to which one the last attempt got.
    submitted: u64,
    attempted: u64,
    stored: u64,
    /// The paired server is gone.
    gone: bool,
    /// Since when the database has owed an answer, or what it failed with is tried again.
    busy_since: Option<Instant>,
    /// Writes that the journal keeps, by number.
    journaled: VecDeque<u64>,
}

impl Ledger {
    /// The ledger of this server; nothing waits.
    pub fn new(server: ServerId, pool: Pool, journal: Journal) -> Self {
        let (queue, settled) = (RefCell::default(), Notify::new());
        Self(Rc::new(Shared { server, pool, journal, queue, settled }))
    }

    /// Submits a write, and waits until it is kept, but not for long.
    pub async fn write(&self, write: LedgerWrite) -> Kept {
        if write.is_empty() {
            return Kept::Database;
        }
        let shared = &self.0;
        let busy_since = shared.queue.borrow().busy_since;
        let number = self.submit(write.clone());
        // One that others have waited for in vain is not waited for again.
        let until = busy_since.unwrap_or_else(Instant::now) + STORED_WITHIN;
        if let Ok(Some(kept)) = timeout_at(until, shared.attempted(number)).await {
            return kept;
        }
        let kept = timeout(STORED_WITHIN, shared.journal.append(&shared.server, &write)).await;
        let kept = kept.unwrap_or_else(|_| Err(std::io::Error::other("the disk does not answer")));
        match kept {
            Ok(()) => {
                let mut queue = shared.queue.borrow_mut();
                match queue.stored >= number {
                    // The database was quicker after all.
                    true => {
                        drop(queue);
                        shared.journal.settle(1);
                    }
                    false => queue.journaled.push_back(number),
                }
                Kept::Journal
            }
            Err(error) => {
                log::error!(server = shared.server.as_str(); "the journal does not keep an alarm: {error}");
                Kept::Nowhere
            }
        }
    }

    /// Submits a write that nobody waits for.
    pub fn write_later(&self, write: LedgerWrite) {
        if !write.is_empty() {
            self.submit(write);
        }
    }

    /// Waits until nothing waits for the database.
    #[cfg(test)]
    pub async fn idle(&self) {
        while self.0.queue.borrow().busy_since.is_some() {
            self.0.settled.notified().await;
            tokio::task::yield_now().await;
        }
    }

    fn submit(&self, write: LedgerWrite) -> u64 {
        let mut queue = self.0.queue.borrow_mut();
        queue.pending.extend(write);
        while queue.pending.arrivals.len() > ARRIVALS {
            queue.pending.arrivals.pop_first();
        }
        queue.submitted += 1;
        if queue.busy_since.is_none() {
            queue.busy_since = Some(Instant::now());
            // A task of its own: what is submitted is written even when the game connection ends.
            actix::spawn(self.0.clone().run());
        }
        queue.submitted
    }
}

impl Shared {
    /// Resolves when an attempt to store this write has ended; none if it failed.
    async fn attempted(&self, number: u64) -> Option<Kept> {
        loop {
            let settled = self.settled.notified();
            {
                let queue = self.queue.borrow();
                if queue.stored >= number {
                    return Some(if queue.gone { Kept::Nowhere } else { Kept::Database });
                }
                if queue.attempted >= number {
                    return None;
                }
            }
            settled.await;
        }
    }

    /// Writes until nothing waits any more.
    async fn run(self: Rc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let (write, number) = {
                let mut queue = self.queue.borrow_mut();
                if queue.pending.is_empty() {
                    queue.busy_since = None;
                    return;
                }
                (std::mem::take(&mut queue.pending), queue.submitted)
            };
            let (server, copy) = (self.server.clone(), write.clone());
            let written = self.pool.write_first(move |db| incidents::write(db, &server, &copy)).await;
            let retry = self.note_attempt(number, write, written);
            self.settled.notify_waiters();
            if retry {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            } else {
                pause = FIRST_PAUSE;
            }
        }
    }

    /// An attempt has ended; true if it must be made again.
    fn note_attempt(&self, number: u64, write: LedgerWrite, written: Result<(), DbError>) -> bool {
        let mut queue = self.queue.borrow_mut();
        queue.attempted = number;
        match written {
            Ok(()) => {}
            // Its ledger is gone with it.
            Err(DbError::NotFound) => queue.gone = true,
            Err(error) => {
                log::error!(server = self.server.as_str(); "the ledger of alarms is written later: {error}");
                let newer = std::mem::replace(&mut queue.pending, write);
                queue.pending.extend(newer);
                return true;
            }
        }
        queue.stored = number;
        queue.busy_since = Some(Instant::now());
        let settled = queue.journaled.iter().take_while(|journaled| **journaled <= number).count();
        queue.journaled.drain(..settled);
        self.journal.settle(settled);
        false
    }
}

#[cfg(test)]
mod tests;
