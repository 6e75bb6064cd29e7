//! Write-behind queue of the alarms of one paired server: in order, one transaction at a time.
//!
//! A writer waits for its write no longer than [`STORED_WITHIN`]; then the journal keeps it, and the database gets it
//! as soon as it answers. Waiting writes are merged, so they do not grow with the time that the database is away.
//!
//! Once another node has the server, the incidents of this one are written with the alarms that opened them, if that node
//! does not know these: it takes them up.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use tokio::{
    pin, select,
    sync::{Notify, oneshot},
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    db::{
        alarms::incidents::{self, LedgerWrite},
        engine::{
            error::DbError,
            pool::{Db, Pool},
            query_failures::log_failure,
        },
        files::{journal::Journal, unsaved_alarms::UnsavedGuard},
    },
    domain::ids::ServerId,
    relay::alarms::received_at::{ReceivedAt, STORED_WITHIN},
};

/// Pauses between two attempts to write.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause before a journal that took nothing is asked again, while the process ends.
const JOURNAL_AGAIN: Duration = Duration::from_millis(500);
/// Alarms that wait for the database; the journal has them too.
const ALARMS: usize = 10_000;

/// Least time between two writes of how incidents and alarms of one server go on, and what a kill may lose of it: a wall
/// of alarms costs writes by time, not by edge.
const REPEATS_EVERY: Duration = Duration::from_secs(1);

/// Where a write is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedTo {
    Database,
    Journal,
    /// The paired server was deleted, or neither took it.
    Neither,
}

impl SavedTo {
    /// As the log names it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Journal => "journal",
            Self::Neither => "nowhere",
        }
    }
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
    /// Something new waits.
    news: Notify,
}

#[derive(Default)]
struct Queue {
    pending: LedgerWrite,
    /// Repeats of incidents, and values of alarms, for their next write.
    repeats: LedgerWrite,
    /// A task writes repeats, and ends when there are none.
    writes_repeats: bool,
    /// The write under way to the database.
    writing: LedgerWrite,
    /// Submitted since the journal was last given all that waits; only once the process ends.
    news: LedgerWrite,
    ends: bool,
    /// Number of the writes submitted, and up to which one the last attempt got.
    submitted: u64,
    attempted: u64,
    stored: u64,
    /// The paired server was deleted.
    deleted: bool,
    /// Another node has the paired server.
    passed_on: bool,
    /// Since when the database has owed an answer, or a failed write is tried again.
    busy_since: Option<Instant>,
    /// Writes that their callers wait for, by number; the caller hears from the journal if it gets to it.
    awaited: BTreeMap<u64, (LedgerWrite, oneshot::Sender<bool>)>,
    /// Writes that the journal keeps, by number.
    journaled: VecDeque<u64>,
    /// Up to which one all writes are in the journal.
    kept: u64,
    /// As long as some write is kept nowhere.
    held: Option<UnsavedGuard>,
}

impl Ledger {
    /// The ledger of this server; nothing waits.
    pub fn new(server: ServerId, pool: Pool, journal: Journal) -> Self {
        let (queue, settled, news) = (RefCell::default(), Notify::new(), Notify::new());
        Self(Rc::new(Shared { server, pool, journal, queue, settled, news }))
    }

    /// Submits a write, and waits until it is kept, but not for long.
    pub async fn write(&self, write: LedgerWrite) -> SavedTo {
        self.write_alarm(write, ReceivedAt::now()).await
    }

    /// [`write`](Self::write) for an alarm that was received then and may have waited already.
    pub async fn write_alarm(&self, newer: LedgerWrite, received_at: ReceivedAt) -> SavedTo {
        if newer.is_empty() {
            return SavedTo::Database;
        }
        let shared = self.0.clone();
        let (busy_since, mut write) = {
            let mut queue = shared.queue.borrow_mut();
            // Repeats that wait go along: this may have the count of one, and the next start counts it again if it does
            // not find that its alarm is on.
            (queue.busy_since, std::mem::take(&mut queue.repeats))
        };
        write.extend(newer);
        let number = self.submit(write.clone());
        let alarm = alarm(&write).to_owned();
        let (done, journaled) = oneshot::channel();
        shared.queue.borrow_mut().awaited.insert(number, (write, done));
        // A database that others have waited for in vain is not waited for again.
        let until =
            busy_since.map_or(received_at.stored_by(), |since| received_at.stored_by().min(since + STORED_WITHIN));
        // A task of its own: the journal gets the alarm also when the game connection ends meanwhile.
        let kept = actix::spawn(shared.kept(number, alarm, until, journaled));
        // No answer: its thread ends.
        kept.await.unwrap_or(SavedTo::Neither)
    }

    /// Stores how incidents go on and which values alarms have, the first time at once and then every second; no one
    /// waits for it.
    pub fn write_repeats(&self, repeats: LedgerWrite) {
        if repeats.is_empty() {
            return;
        }
        let mut queue = self.0.queue.borrow_mut();
        queue.repeats.extend(repeats);
        if queue.held.is_none() {
            queue.held = Some(self.0.journal.unsaved_alarms.hold());
        }
        if !std::mem::replace(&mut queue.writes_repeats, true) {
            actix::spawn(self.clone().pace_repeats());
        }
    }

    async fn pace_repeats(self) {
        loop {
            let repeats = std::mem::take(&mut self.0.queue.borrow_mut().repeats);
            if repeats.is_empty() {
                self.0.queue.borrow_mut().writes_repeats = false;
                return;
            }
            self.write(repeats).await;
            select! {
                () = sleep(REPEATS_EVERY) => {}
                () = self.0.journal.unsaved_alarms.ending() => {}
            }
        }
    }

    /// Submits a write that no one waits for.
    pub fn write_later(&self, write: LedgerWrite) {
        if !write.is_empty() {
            self.submit(write);
        }
    }

    /// Waits until nothing waits for the database.
    #[cfg(test)]
    pub async fn idle(&self) {
        let is_busy = |queue: &Queue| queue.busy_since.is_some() || !queue.repeats.is_empty();
        while is_busy(&self.0.queue.borrow()) {
            self.0.settled.notified().await;
            tokio::task::yield_now().await;
        }
    }

    fn submit(&self, write: LedgerWrite) -> u64 {
        let mut queue = self.0.queue.borrow_mut();
        let write = queue.to_write(write);
        // The waiting write is older.
        queue.repeats.incidents.retain(|incident, _| !write.incidents.contains_key(incident));
        queue.repeats.values.retain(|device, _| !write.values.contains_key(device));
        if queue.ends {
            queue.news.extend(write.clone());
        }
        queue.pending.extend(write);
        while queue.pending.alarms.len() > ALARMS {
            queue.pending.alarms.pop_first();
            count_kept_nowhere();
        }
        queue.submitted += 1;
        if queue.held.is_none() {
            queue.held = Some(self.0.journal.unsaved_alarms.hold());
        }
        self.0.news.notify_one();
        if queue.busy_since.is_none() {
            queue.busy_since = Some(Instant::now());
            // A task of its own: what is submitted is written even when the game connection ends.
            actix::spawn(self.0.clone().run());
        }
        queue.submitted
    }
}

/// The key of the write's alarm in the log; a write of repeats has none.
fn alarm(write: &LedgerWrite) -> &str {
    write.alarms.keys().next().map_or("", String::as_str)
}

/// Counts an alarm that is only in memory, or not even there.
fn count_kept_nowhere() {
    metrics::counter!("companion_alarms_kept_nowhere_total").increment(1);
}

impl Shared {
    /// Waits until this write is kept: by the database until then, and by the journal for a while after.
    async fn kept(
        self: Rc<Self>,
        number: u64,
        alarm: String,
        until: Instant,
        journaled: oneshot::Receiver<bool>,
    ) -> SavedTo {
        let attempted = select! {
            biased;
            attempted = timeout_at(until, self.attempted(number)) => attempted.ok().flatten(),
            () = self.journal.unsaved_alarms.ending() => None,
        };
        if let Some(kept) = attempted {
            return kept;
        }
        self.give_to_journal(number);
        match timeout(STORED_WITHIN, journaled).await {
            Ok(Ok(true)) => return SavedTo::Journal,
            Ok(_) => {}
            Err(_) => {
                let server = self.server.as_str();
                log::error!(server, alarm = alarm.as_str(); "the journal does not keep an alarm in time");
            }
        }
        if !alarm.is_empty() {
            count_kept_nowhere();
        }
        SavedTo::Neither
    }

    /// Resolves when an attempt to store this write has ended; none if it failed.
    async fn attempted(&self, number: u64) -> Option<SavedTo> {
        loop {
            let settled = self.settled.notified();
            {
                let queue = self.queue.borrow();
                if queue.stored >= number {
                    return Some(if queue.deleted { SavedTo::Neither } else { SavedTo::Database });
                }
                if queue.attempted >= number {
                    return None;
                }
            }
            settled.await;
        }
    }

    /// Gives this write to the journal, and before it those that are older: an alarm that joins an incident is not kept
    /// without the one that opened it.
    fn give_to_journal(self: &Rc<Self>, number: u64) {
        let mut queue = self.queue.borrow_mut();
        let newer = queue.awaited.split_off(&(number + 1));
        for (number, (write, done)) in std::mem::replace(&mut queue.awaited, newer) {
            let (shared, write) = (self.clone(), queue.to_write(write));
            // A task of its own: a line that is written late is counted, too.
            actix::spawn(async move {
                // A caller that waits no longer has delivered without it.
                let _ = done.send(shared.keep_in_journal(number, write).await);
            });
        }
    }

    /// Gives this write to the journal; true if that keeps it.
    async fn keep_in_journal(&self, number: u64, write: LedgerWrite) -> bool {
        let kept = self.journal.append(&self.server, &write).await;
        match &kept {
            Ok(()) => self.note_journaled(number, false),
            Err(error) => {
                let server = self.server.as_str();
                log::error!(server, alarm = alarm(&write); "the journal does not keep an alarm: {error}");
            }
        }
        kept.is_ok()
    }

    /// Writes until nothing waits. Once the process ends, the journal keeps what waits meanwhile.
    async fn run(self: Rc<Self>) {
        let written = self.write_until_idle();
        pin!(written);
        select! {
            biased;
            () = &mut written => return,
            () = self.journal.unsaved_alarms.ending() => {}
        }
        select! {
            biased;
            () = &mut written => {}
            () = self.keep_what_waits() => {}
        }
    }

    /// Writes all that waits into the journal, and then what is new, whenever there is more. It does not end.
    async fn keep_what_waits(&self) {
        let mut waiting = {
            let mut queue = self.queue.borrow_mut();
            (queue.ends, queue.news) = (true, LedgerWrite::default());
            let mut waiting = queue.writing.clone();
            waiting.extend(queue.pending.clone());
            waiting
        };
        loop {
            let number = {
                let mut queue = self.queue.borrow_mut();
                waiting.extend(std::mem::take(&mut queue.news));
                queue.submitted
            };
            if !waiting.is_empty() {
                match self.journal.append(&self.server, &waiting).await {
                    Ok(()) => {
                        waiting = LedgerWrite::default();
                        self.note_journaled(number, true);
                    }
                    Err(error) => {
                        log::error!(server = self.server.as_str(); "the journal does not keep what waits: {error}");
                    }
                }
            }
            match waiting.is_empty() {
                true => self.news.notified().await,
                // A disk that takes it again before the process has ended is not missed.
                false => drop(timeout(JOURNAL_AGAIN, self.news.notified()).await),
            }
        }
    }

    /// The journal has this write; with `all`, and all before it.
    fn note_journaled(&self, number: u64, all: bool) {
        let mut queue = self.queue.borrow_mut();
        if all || queue.kept.max(queue.stored) + 1 == number {
            queue.kept = number;
        }
        queue.release();
        if queue.stored >= number {
            // The database was quicker after all.
            drop(queue);
            return self.journal.settle(&self.server, 1);
        }
        queue.journaled.push_back(number);
    }

    async fn write_until_idle(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let (copy, number, passed_on) = {
                let mut queue = self.queue.borrow_mut();
                if queue.pending.is_empty() {
                    // The last of it may have been nothing for another node.
                    let number = queue.submitted;
                    if queue.stored < number {
                        self.note_stored(&mut queue, number);
                        self.settled.notify_waiters();
                    }
                    queue.busy_since = None;
                    return;
                }
                queue.writing = std::mem::take(&mut queue.pending);
                (queue.writing.clone(), queue.submitted, queue.passed_on)
            };
            let (server, fenced) = (self.server.clone(), self.pool.clone());
            let pool = if passed_on { fenced.unfenced() } else { fenced };
            let write: fn(&mut Db, &ServerId, &LedgerWrite) -> Result<(), DbError> =
                if passed_on { incidents::write_for_another_node } else { incidents::write };
            let written = pool.write_first(move |db| write(db, &server, &copy), |()| {}).await;
            let retry = self.note_attempt(number, written);
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
    fn note_attempt(&self, number: u64, written: Result<(), DbError>) -> bool {
        let mut queue = self.queue.borrow_mut();
        let write = std::mem::take(&mut queue.writing);
        if matches!(written, Err(DbError::Fenced)) {
            let (server, alarms) = (self.server.as_str(), write.alarms.len());
            log::warn!(server, alarms; "another node has the server of these alarms by now, and takes them up");
            queue.passed_on = true;
            let newer = std::mem::replace(&mut queue.pending, write);
            queue.pending.extend(newer);
            queue.pending = std::mem::take(&mut queue.pending).for_another_node();
            return true;
        }
        queue.attempted = number;
        match written {
            Ok(()) => {}
            // Its ledger is gone with it.
            Err(DbError::NotFound) if self.journal.is_deleted(&self.server) => queue.deleted = true,
            Err(error) => {
                let (server, alarms) = (self.server.as_str(), write.alarms.len());
                match error {
                    // An older database, or another one; or its deletion is not known yet.
                    DbError::NotFound => {
                        log::error!(server, alarms; "the database does not know the server of these alarms: written later");
                    }
                    error => log_failure("the ledger of alarms is written later", &error),
                }
                let newer = std::mem::replace(&mut queue.pending, write);
                queue.pending.extend(newer);
                return true;
            }
        }
        self.note_stored(&mut queue, number);
        false
    }

    /// Up to this number, all writes are in the database.
    fn note_stored(&self, queue: &mut Queue, number: u64) {
        queue.stored = number;
        queue.awaited = queue.awaited.split_off(&(number + 1));
        queue.busy_since = Some(Instant::now());
        let settled = queue.journaled.iter().take_while(|journaled| **journaled <= number).count();
        queue.journaled.drain(..settled);
        queue.release();
        self.journal.settle(&self.server, settled);
    }
}

impl Queue {
    /// The part of a write that is to be stored.
    fn to_write(&self, write: LedgerWrite) -> LedgerWrite {
        if self.passed_on { write.for_another_node() } else { write }
    }

    /// Releases the hold once all writes are kept.
    fn release(&mut self) {
        if self.kept.max(self.stored) >= self.submitted && self.repeats.is_empty() {
            self.held = None;
        }
    }
}

#[cfg(test)]
mod tests;
