//! The journal of alarms: a file that keeps what the database did not take in time, until it does. A kill meanwhile
//! loses nothing: [`replay()`] stores it at the next start.
//!
//! One line for each write, as JSON. The file is bounded, and each paired server has a share of it: when that is used up,
//! the file is written again with one merged line per server. An alarm that then has no room is delivered without being
//! kept. Once everything in the file is in the database, it is emptied. A file that was removed, renamed or
//! cut short meanwhile is written again before the next line is.

mod file;
mod line;
mod replay;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use futures_util::future::LocalBoxFuture;
use rustix::fs::{FallocateFlags, fallocate};
use tokio::{sync::oneshot, time::Instant};

pub use self::{
    file::{JOURNAL, JournalError, check},
    replay::{REFUSED, refused_bytes, replay, replay_on_node, take_out, waiting},
};
use self::{
    file::{LARGEST, open_file, replace},
    line::{Line, lengths, read},
};
use crate::{
    db::{alarms::incidents::LedgerWrite, files::unsaved_alarms::UnsavedAlarms},
    domain::ids::ServerId,
};

/// Bytes of it for the lines of one server: thousands of incidents.
const SHARE: u64 = 1 << 20;
/// Servers with fewer bytes than `SMALL` have the last part of the file for themselves.
const SMALL: u64 = 16 << 10;
const FOR_THE_SMALL: u64 = 4 << 20;
/// Lines are merged at the earliest when the file has grown by so much.
const GROWN: u64 = SHARE / 4;
/// Bytes of the disk that belong to the file before it needs them, for hundreds of alarms: a disk that is full is when
/// the database takes none.
const RESERVED: u64 = 256 << 10;
/// Lines that wait for the disk: a burst of several servers at once.
const WAITING: usize = 4_096;
/// Deleted servers that are remembered, the newest. A write for one ends within seconds of its deletion.
const DELETED: usize = 1_000;

/// A simulated disk beneath the journal: it takes a line when it comes to it, or fails after some of its bytes.
pub type JournalDisk = dyn Fn(&[u8]) -> LocalBoxFuture<'static, Result<(), usize>> + Send + Sync;

/// The open journal; clones share it.
#[derive(Clone)]
pub struct Journal {
    open: Arc<Mutex<OpenJournal>>,
    /// To the thread that writes; none where its caller does.
    jobs: Option<SyncSender<JournalJob>>,
    /// In a simulation.
    disk: Option<Arc<JournalDisk>>,
    settled: Settled,
    deleted: Deleted,
    /// Since when the oldest write waits, as of the last question.
    oldest: Arc<Mutex<Option<Instant>>>,
    /// Writes that are neither in the database nor here yet.
    pub unsaved_alarms: UnsavedAlarms,
}

/// By server: lines that are in the database, and not yet counted as such.
type Settled = Arc<Mutex<HashMap<ServerId, usize>>>;
/// Servers that were deleted since the start.
type Deleted = Arc<Mutex<VecDeque<ServerId>>>;

enum JournalJob {
    Append {
        line: NewLine,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Look at what is settled.
    Settle,
    /// Remove the lines of a server that was deleted.
    Forget(ServerId),
}

struct NewLine {
    server: ServerId,
    text: Vec<u8>,
}

struct OpenJournal {
    directory: PathBuf,
    file: File,
    /// The whole lines of the file, which it may lose.
    text: Vec<u8>,
    /// A write that failed may have left something behind them.
    torn: bool,
    /// Their length when they were last merged.
    merged: u64,
    /// Shares of the servers with lines in the file.
    shares: HashMap<ServerId, Share>,
    deleted: Deleted,
}

#[derive(Default)]
struct Share {
    bytes: u64,
    /// Lines that are not in the database.
    unsettled: usize,
    /// When the first line came since there was none.
    since: Option<Instant>,
}

impl Journal {
    /// Opens the journal of this directory, which is made where missing. A thread writes it. Blocks.
    #[allow(clippy::disallowed_methods, reason = "a disk that hangs must hold up neither the relay nor the database")]
    pub fn open(directory: &Path) -> io::Result<Self> {
        let journal = Self::open_simulated(directory)?;
        let (sender, jobs) = sync_channel(WAITING);
        let (open, settled) = (journal.open.clone(), journal.settled.clone());
        thread::spawn(move || work(&open, &settled, &jobs));
        Ok(Self { jobs: Some(sender), ..journal })
    }

    /// Opens the journal for a simulation on one thread: the caller's thread writes.
    pub fn open_simulated(directory: &Path) -> io::Result<Self> {
        let path = directory.join(JOURNAL);
        let file = open_file(&path)?;
        if let Err(error) = reserve(&file) {
            log::warn!("no room on the disk is reserved for the journal of alarms: {error}");
        }
        let text = fs::read(&path)?;
        let mut shares = HashMap::<_, Share>::new();
        // A damaged database did not take them; the next start tries again.
        for (server, bytes) in lengths(&text) {
            shares.entry(server).or_default().add(bytes);
        }
        let directory = directory.to_owned();
        let (settled, deleted, unsaved_alarms) = (Settled::default(), Deleted::default(), UnsavedAlarms::default());
        let open = OpenJournal { directory, file, text, torn: false, merged: 0, shares, deleted: deleted.clone() };
        let (open, oldest) = (Arc::new(Mutex::new(open)), Arc::default());
        Ok(Self { open, jobs: None, disk: None, settled, deleted, oldest, unsaved_alarms })
    }

    /// Puts the journal on this disk.
    pub fn on_disk(self, disk: Arc<JournalDisk>) -> Self {
        Self { disk: Some(disk), ..self }
    }

    /// Keeps a write; once this resolves to success it survives a kill. Of a deleted server nothing is kept.
    pub async fn append(&self, server: &ServerId, write: &LedgerWrite) -> io::Result<()> {
        let text = Line { server: server.clone(), write: write.clone() }.text()?;
        let line = NewLine { server: server.clone(), text };
        let Some(jobs) = &self.jobs else {
            let Some(disk) = &self.disk else {
                return lock(&self.open).append(&[line]).pop().unwrap_or(Ok(()));
            };
            let (open, written) = (self.open.clone(), disk(&line.text));
            // A caller that waits no longer does not keep the line from being written.
            let appended = actix::spawn(async move {
                let written = written.await;
                let on_disk = |file: &mut File, text: &[u8]| match written {
                    Ok(()) => self::write(file, text),
                    Err(bytes) => {
                        file.write_all(&text[..bytes.min(text.len())])?;
                        Err(io::ErrorKind::StorageFull.into())
                    }
                };
                lock(&open).append_by(&[line], on_disk).pop().unwrap_or(Ok(()))
            });
            return appended.await.map_err(io::Error::other)?;
        };
        let (done, written) = oneshot::channel();
        let append = JournalJob::Append { line, done };
        jobs.try_send(append).map_err(|_| io::Error::other("too many writes wait for the disk"))?;
        written.await.map_err(|_| io::Error::other("the journal is closed"))?
    }

    /// Removes the lines of a server that is deleted: the next start would find that the database does not know it.
    pub fn forget(&self, server: &ServerId) {
        {
            let mut deleted = lock(&self.deleted);
            deleted.push_back(server.clone());
            if deleted.len() > DELETED {
                deleted.pop_front();
            }
        }
        let Some(jobs) = &self.jobs else { return lock(&self.open).forget(server) };
        if jobs.try_send(JournalJob::Forget(server.clone())).is_err() {
            log::warn!(server = server.as_str(); "alarms of a deleted server stay in the journal for now");
        }
    }

    /// True if the server was deleted, and is not only missing in a database that is older than it, or another one.
    pub fn is_deleted(&self, server: &ServerId) -> bool {
        lock(&self.deleted).contains(server)
    }

    /// Brings the file back if it was removed or damaged, before an alarm needs it. Blocks.
    pub fn look_after(&self) {
        if let Err(error) = lock(&self.open).mend() {
            log::error!("the journal of alarms is not written again: {error}");
        }
    }

    /// For how long the oldest write in the file has waited for the database; none if none waits.
    pub fn oldest_wait(&self) -> Option<Duration> {
        let mut oldest = lock(&self.oldest);
        // While a disk holds the file, the last answer counts: the caller must not wait.
        if let Ok(open) = self.open.try_lock() {
            *oldest = open.shares.values().filter_map(|share| share.since).min();
        }
        oldest.map(|since| since.elapsed())
    }

    /// Records that `count` writes of this server that were kept are in the database now.
    pub fn settle(&self, server: &ServerId, count: usize) {
        if count == 0 {
            return;
        }
        *lock(&self.settled).entry(server.clone()).or_default() += count;
        match &self.jobs {
            // A thread that has no room for this looks anyway.
            Some(jobs) => drop(jobs.try_send(JournalJob::Settle)),
            None => lock(&self.open).settle(&self.settled),
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reserve(file: &File) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::KEEP_SIZE, 0, RESERVED)?)
}

/// Does what comes until the journal is closed; lines that wait together share one flush.
fn work(open: &Mutex<OpenJournal>, settled: &Settled, jobs: &Receiver<JournalJob>) {
    while let Ok(first) = jobs.recv() {
        let (mut lines, mut waiting, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        for job in std::iter::once(first).chain(jobs.try_iter().take(WAITING)) {
            match job {
                JournalJob::Append { line, done } => {
                    lines.push(line);
                    waiting.push(done);
                }
                JournalJob::Settle => {}
                JournalJob::Forget(server) => deleted.push(server),
            }
        }
        let mut open = lock(open);
        for (done, written) in waiting.into_iter().zip(open.append(&lines)) {
            // A caller that no longer waits has delivered without it.
            let _ = done.send(written);
        }
        deleted.iter().for_each(|server| open.forget(server));
        open.settle(settled);
    }
}

/// Writes and flushes.
fn write(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    file.sync_data()
}

impl Share {
    /// Counts a line of this many bytes.
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.unsettled += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Counts lines that no longer need to be stored.
    fn settle(&mut self, lines: usize) {
        self.unsettled = self.unsettled.saturating_sub(lines);
        if self.unsettled == 0 {
            self.since = None;
        }
    }
}

impl OpenJournal {
    /// Appends the lines; returns the outcome of each.
    fn append(&mut self, lines: &[NewLine]) -> Vec<io::Result<()>> {
        self.append_by(lines, write)
    }

    fn append_by(
        &mut self,
        lines: &[NewLine],
        write: impl FnOnce(&mut File, &[u8]) -> io::Result<()>,
    ) -> Vec<io::Result<()>> {
        if let Err(error) = self.mend() {
            return lines.iter().map(|_| Err(io::Error::new(error.kind(), error.to_string()))).collect();
        }
        let grown = self.end().saturating_sub(self.merged) >= GROWN;
        if grown
            && lines.iter().any(|line| self.has_room(line, 0).is_err())
            && let Err(error) = self.rewrite()
        {
            log::warn!("the lines of the journal of alarms were not merged: {error}");
        }
        let mut text = Vec::new();
        let mut admit = |line: &NewLine| {
            if lock(&self.deleted).contains(&line.server) {
                return Ok(());
            }
            self.has_room(line, text.len() as u64)?;
            text.extend_from_slice(&line.text);
            self.shares.entry(line.server.clone()).or_default().add(line.text.len() as u64);
            Ok(())
        };
        let mut admitted: Vec<io::Result<()>> = lines.iter().map(&mut admit).collect();
        if text.is_empty() {
            return admitted;
        }
        let written = self.cut_stump().and_then(|()| {
            self.torn = true;
            write(&mut self.file, &text)
        });
        match written {
            Ok(()) => {
                self.torn = false;
                self.text.extend_from_slice(&text);
            }
            Err(error) => {
                for (line, admitted) in lines.iter().zip(&mut admitted).filter(|(_, admitted)| admitted.is_ok()) {
                    if let Some(share) = self.shares.get_mut(&line.server) {
                        share.bytes -= line.text.len() as u64;
                        share.settle(1);
                    }
                    *admitted = Err(io::Error::new(error.kind(), error.to_string()));
                }
                // If this fails, too, it is tried again before the next line.
                let _ = self.cut_stump();
            }
        }
        admitted
    }

    /// Writes the file again if others damaged it.
    fn mend(&mut self) -> io::Result<()> {
        let Some(damage) = self.damage() else { return Ok(()) };
        log::error!("the journal of alarms was {damage}: it is written again from what is not stored yet");
        self.rewrite()
    }

    /// Damage that others did to the file.
    fn damage(&self) -> Option<&'static str> {
        let own = self.file.metadata().ok();
        let is_at_its_place = match (fs::metadata(self.directory.join(JOURNAL)), &own) {
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => false,
            (Ok(there), Some(own)) => (there.dev(), there.ino()) == (own.dev(), own.ino()),
            _ => true,
        };
        if !is_at_its_place {
            return Some("removed, renamed or replaced");
        }
        own.is_some_and(|own| own.len() < self.end()).then_some("cut short")
    }

    /// Where the last whole line ends.
    fn end(&self) -> u64 {
        self.text.len() as u64
    }

    /// Fails if the line has no room behind `before` bytes that are not written yet.
    fn has_room(&self, line: &NewLine, before: u64) -> io::Result<()> {
        let length = line.text.len() as u64;
        let used = self.shares.get(&line.server).map_or(0, |share| share.bytes) + length;
        if used > SHARE {
            return Err(io::Error::other("the share of this server is used up"));
        }
        let limit = if used <= SMALL { LARGEST } else { LARGEST - FOR_THE_SMALL };
        if self.end() + before + length > limit {
            return Err(io::Error::other("it is full"));
        }
        Ok(())
    }

    /// Removes what a failed write left: the next line would be glued to it.
    fn cut_stump(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.end())?;
            self.torn = false;
        }
        Ok(())
    }

    /// Writes the file again with one line per server, without those whose lines are all in the database.
    fn rewrite(&mut self) -> io::Result<()> {
        let mut merged = merge(&self.text);
        merged.retain(|server, _| self.shares.get(server).is_some_and(|share| share.unsettled > 0));
        let (mut text, mut bytes) = (Vec::new(), HashMap::new());
        for (server, write) in merged {
            let line = Line { server: server.clone(), write }.text()?;
            bytes.insert(server, line.len() as u64);
            text.extend_from_slice(&line);
        }
        let file = replace(&self.directory, JOURNAL, &text, |file| drop(reserve(file)))?;
        (self.file, self.torn) = (file, false);
        self.merged = text.len() as u64;
        self.text = text;
        self.shares.retain(|server, share| {
            share.bytes = bytes.get(server).copied().unwrap_or_default();
            share.unsettled > 0
        });
        // Without this a power cut may bring the longer one back, which says the same.
        File::open(&self.directory)?.sync_all()
    }

    /// Removes the lines of a deleted server.
    fn forget(&mut self, server: &ServerId) {
        if self.shares.remove(server).is_some()
            && let Err(error) = self.rewrite()
        {
            log::warn!(server = server.as_str(); "alarms of a deleted server stay in the journal for now: {error}");
        }
    }

    fn settle(&mut self, settled: &Settled) {
        for (server, count) in lock(settled).drain() {
            if let Some(share) = self.shares.get_mut(&server) {
                share.settle(count);
            }
        }
        if !self.text.is_empty() && self.shares.values().all(|share| share.unsettled == 0) {
            match self.file.set_len(0) {
                Ok(()) => {
                    (self.text, self.merged, self.torn) = (Vec::new(), 0, false);
                    self.shares.clear();
                    // Some file systems cannot; that was said when it was opened.
                    let _ = reserve(&self.file);
                }
                Err(error) => log::warn!("the journal of alarms was not emptied: {error}"),
            }
        }
    }
}

/// Merges these lines by server.
fn merge(text: &[u8]) -> BTreeMap<ServerId, LedgerWrite> {
    let mut merged = BTreeMap::<_, LedgerWrite>::new();
    for Line { server, write } in read(text).0 {
        merged.entry(server).or_default().extend(write);
    }
    merged
}

#[cfg(test)]
mod tests;
