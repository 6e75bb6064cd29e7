//! Alarms that are kept nowhere yet, neither in the database nor in the journal, and those that sockets have not taken
//! yet: the end of the process waits for them.

use std::time::Duration;

use tokio::{sync::watch, time::timeout};

/// Counts what is not kept yet, and what is not delivered yet; clones share it.
#[derive(Clone, Default)]
pub struct UnsavedAlarms {
    count: watch::Sender<usize>,
    undelivered: watch::Sender<usize>,
    ending: watch::Sender<bool>,
}

/// Something that is not kept or not delivered yet, while it lives.
pub struct UnsavedGuard(watch::Sender<usize>);

impl UnsavedAlarms {
    /// One more that is not kept.
    pub fn hold(&self) -> UnsavedGuard {
        UnsavedGuard::of(&self.count)
    }

    /// One more that is not delivered.
    pub fn hold_undelivered(&self) -> UnsavedGuard {
        UnsavedGuard::of(&self.undelivered)
    }

    /// Resolves when the process ends: what the database does not have by then goes into the journal.
    pub async fn ending(&self) {
        // This never fails: the sender is ours.
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    /// True once the process ends.
    pub fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Waits until all is saved: `patience` for the database, then `deadline` for the journal. False if something is not.
    pub async fn flush(&self, patience: Duration, deadline: Duration) -> bool {
        let mut count = self.count.subscribe();
        if timeout(patience, count.wait_for(|count| *count == 0)).await.is_ok() {
            return true;
        }
        self.ending.send_replace(true);
        timeout(deadline, count.wait_for(|count| *count == 0)).await.is_ok()
    }

    /// Waits until sockets have taken all, but no longer than this for one that does not read.
    pub async fn deliver_all(&self, deadline: Duration) {
        let mut undelivered = self.undelivered.subscribe();
        let _ = timeout(deadline, undelivered.wait_for(|undelivered| *undelivered == 0)).await;
    }
}

impl UnsavedGuard {
    fn of(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for UnsavedGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
