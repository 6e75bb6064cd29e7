//! The journal of alarms: a file that keeps what the database did not take in time, until it does. A kill meanwhile
//! loses nothing: [`replay`] stores it at the next start.
//!
//! One line for each write, as JSON. The file is bounded; beyond that an alarm is delivered without being kept. Once
//! everything in it is in the database, it is emptied.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    db::{
        error::DbError,
        incidents::{self, LedgerWrite},
        pool::Pool,
    },
    domain::ids::ServerId,
};

/// Name of the file in the data directory.
pub const JOURNAL: &str = "alarms.journal";
/// Bytes that the file may have: tens of thousands of alarms.
const LARGEST: u64 = 16 << 20;
/// Lines that wait for the disk.
const WAITING: usize = 1_024;

#[derive(Serialize, Deserialize)]
struct Line {
    server: ServerId,
    write: LedgerWrite,
}

/// Why the journal was not opened, or not taken over into the database.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the file cannot be used: {0}")]
    File(#[from] io::Error),
    #[error("it could not be stored: {0}")]
    Database(#[from] DbError),
}

/// The open journal; clones share it.
#[derive(Clone)]
pub struct Journal {
    open: Arc<Mutex<OpenJournal>>,
    /// To the thread that writes; none where its caller does.
    jobs: Option<SyncSender<JournalJob>>,
    /// Lines that are in the database, and not yet counted as such.
    settled: Arc<AtomicUsize>,
}

enum JournalJob {
    Append {
        line: Vec<u8>,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Look at what is settled.
    Settle,
}

struct OpenJournal {
    file: File,
    bytes: u64,
    /// Lines that are not in the database.
    unsettled: usize,
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

    /// The same for a simulation on one thread: the caller's thread writes.
    pub fn open_simulated(directory: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(directory.join(JOURNAL))?;
        let bytes = file.metadata()?.len();
        let open = OpenJournal { file, bytes, unsettled: 0 };
        Ok(Self { open: Arc::new(Mutex::new(open)), jobs: None, settled: Arc::default() })
    }

    /// Keeps a write; once this resolves to success it survives a kill.
    pub async fn append(&self, server: &ServerId, write: &LedgerWrite) -> io::Result<()> {
        let line = Line { server: server.clone(), write: write.clone() };
        let mut line = serde_json::to_vec(&line).map_err(io::Error::other)?;
        line.push(b'\n');
        let Some(jobs) = &self.jobs else { return lock(&self.open).append(&[&line]) };
        let (done, written) = oneshot::channel();
        let append = JournalJob::Append { line, done };
        jobs.try_send(append).map_err(|_| io::Error::other("too many writes wait for the disk"))?;
        written.await.map_err(|_| io::Error::other("the journal is closed"))?
    }

    /// So many writes that were kept are in the database now.
    pub fn settle(&self, count: usize) {
        if count == 0 {
            return;
        }
        self.settled.fetch_add(count, Ordering::Relaxed);
        match &self.jobs {
            // A thread that has no room for this looks anyway.
            Some(jobs) => drop(jobs.try_send(JournalJob::Settle)),
            None => lock(&self.open).settle(&self.settled),
        }
    }
}

fn lock(open: &Mutex<OpenJournal>) -> MutexGuard<'_, OpenJournal> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what comes until the journal is closed; lines that wait together share one flush.
fn work(open: &Mutex<OpenJournal>, settled: &AtomicUsize, jobs: &Receiver<JournalJob>) {
    while let Ok(first) = jobs.recv() {
        let (mut lines, mut waiting) = (Vec::new(), Vec::new());
        for job in std::iter::once(first).chain(jobs.try_iter().take(WAITING)) {
            if let JournalJob::Append { line, done } = job {
                lines.push(line);
                waiting.push(done);
            }
        }
        let mut open = lock(open);
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        let written = if lines.is_empty() { Ok(()) } else { open.append(&lines) };
        let written = written.map_err(|error| (error.kind(), error.to_string()));
        for done in waiting {
            // Whoever does not wait any more has delivered without it.
            let _ = done.send(written.clone().map_err(|(kind, text)| io::Error::new(kind, text)));
        }
        open.settle(settled);
    }
}

impl OpenJournal {
    fn append(&mut self, lines: &[&[u8]]) -> io::Result<()> {
        let text = lines.concat();
        if self.bytes + text.len() as u64 > LARGEST {
            return Err(io::Error::other("it is full"));
        }
        // A line that an error cut short ends here; whoever reads it skips it.
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        self.bytes = self.file.metadata()?.len();
        written?;
        self.unsettled += lines.len();
        Ok(())
    }

    fn settle(&mut self, settled: &AtomicUsize) {
        self.unsettled = self.unsettled.saturating_sub(settled.swap(0, Ordering::Relaxed));
        if self.unsettled == 0 && self.bytes > 0 {
            match self.file.set_len(0) {
                Ok(()) => self.bytes = 0,
                Err(error) => log::warn!("the journal of alarms was not emptied: {error}"),
            }
        }
    }
}

/// Stores what a process before this one kept in this directory and could not store, and empties its journal. Blocks.
/// Call it before anything reads the ledger.
pub fn replay(directory: &Path, pool: &Pool) -> Result<(), JournalError> {
    fs::create_dir_all(directory)?;
    let path = directory.join(JOURNAL);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut stored = 0;
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        let Ok(Line { server, write }) = serde_json::from_slice(&line) else {
            log::warn!(bytes = line.len(); "a line of the journal of alarms is cut short, it is skipped");
            continue;
        };
        match pool.write_blocking(|db| incidents::write(db, &server, &write)) {
            Ok(()) => stored += 1,
            Err(DbError::NotFound) => log::info!(server = server.as_str(); "alarms of a deleted server are dropped"),
            Err(error) => return Err(error.into()),
        }
    }
    OpenOptions::new().write(true).truncate(true).open(&path)?.sync_all()?;
    if stored > 0 {
        log::info!(writes = stored; "alarms of the journal are stored");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::testing,
        domain::incident::{DevicePlace, Incident},
    };

    fn write(id: &str) -> LedgerWrite {
        let incident = Incident {
            alarm_id: "7".into(),
            alarm_name: "Roof".into(),
            place: DevicePlace::default(),
            first_at: testing::now(),
            last_at: testing::now(),
            ended_at: None,
            count: 1,
            paths: Default::default(),
            late: false,
            drill: false,
            acks: Default::default(),
        };
        LedgerWrite { incidents: [(id.to_owned(), (incident, None))].into(), ..Default::default() }
    }

    fn length(directory: &Path) -> u64 {
        fs::metadata(directory.join(JOURNAL)).unwrap().len()
    }

    #[tokio::test]
    async fn what_is_kept_is_stored_at_the_next_start_also_behind_a_line_cut_short() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        for (server, id) in [("one", "a"), ("gone", "b"), ("one", "c")] {
            journal.append(&server.into(), &write(id)).await.unwrap();
        }
        let path = directory.path().join(JOURNAL);
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"server\":\"one\",\"wri");
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            fs::write(&path, &text).unwrap();
            replay(directory.path(), pool).unwrap();
            let stored = pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 10)).unwrap();
            assert_eq!(stored.iter().map(|stored| &*stored.id).collect::<Vec<_>>(), ["c", "a"]);
            assert_eq!(length(directory.path()), 0);
            replay(directory.path(), pool).unwrap();
        });
    }

    #[tokio::test]
    async fn it_is_emptied_once_all_of_it_is_in_the_database() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        let (server, a, b) = ("one".into(), write("a"), write("b"));
        let (first, second) = tokio::join!(journal.append(&server, &a), journal.append(&server, &b));
        first.and(second).unwrap();
        journal.settle(1);
        // Once this is written, that was counted.
        journal.append(&server, &a).await.unwrap();
        assert!(length(directory.path()) > 0);
        journal.settle(2);
        while length(directory.path()) > 0 {
            tokio::task::yield_now().await;
        }
        journal.append(&server, &b).await.unwrap();
        assert!(length(directory.path()) > 0);
    }

    #[tokio::test]
    async fn it_is_bounded_and_for_its_user_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        let mode = fs::metadata(directory.path().join(JOURNAL)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        lock(&journal.open).bytes = LARGEST;
        assert!(journal.append(&"one".into(), &write("a")).await.is_err());
        assert_eq!(length(directory.path()), 0);
    }
}
