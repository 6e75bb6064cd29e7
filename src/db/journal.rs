//! The journal of alarms: a file that keeps what the database did not take in time, until it does. A kill meanwhile
//! loses nothing: [`replay`] stores it at the next start.
//!
//! One line for each write, as JSON. The file is bounded, and each paired server has a share of it: when that is used up,
//! the file is written anew with one merged line per server. An alarm that then has no room is delivered without being
//! kept. Once everything in the file is in the database, it is emptied.
//!
//! Above 500 lines: its tests look into it.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    db::{
        error::DbError,
        incidents::{self, LedgerWrite},
        pool::Pool,
        unkept::Unkept,
    },
    domain::ids::ServerId,
};

/// Name of the file in the data directory.
pub const JOURNAL: &str = "alarms.journal";
/// Where what the database refuses, and what cannot be read, is kept for a person to look at. As large as the journal.
pub const REFUSED: &str = "alarms.refused";
/// Where it is written anew, before it takes that name.
const REWRITTEN: &str = "alarms.journal.new";
/// Bytes that the file may have: tens of thousands of alarms.
const LARGEST: u64 = 16 << 20;
/// Bytes of it for the lines of one server: hundreds of incidents.
const SHARE: u64 = 256 << 10;
/// Servers with fewer bytes than `SMALL` have the last part of the file for themselves.
const SMALL: u64 = 16 << 10;
const FOR_THE_SMALL: u64 = 4 << 20;
/// The file is written anew at the earliest when it has grown by so much.
const GROWN: u64 = SHARE / 4;
/// Bytes of the disk that belong to the file before it needs them, for hundreds of alarms: a disk that is full is when
/// the database takes none.
const RESERVED: u64 = 256 << 10;
/// Lines that wait for the disk.
const WAITING: usize = 1_024;

#[derive(Serialize, Deserialize)]
struct Line {
    server: ServerId,
    write: LedgerWrite,
}

impl Line {
    fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self).map_err(io::Error::other)?;
        text.push(b'\n');
        Ok(text)
    }
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
    settled: Settled,
    /// What neither the database nor this has yet.
    pub unkept: Unkept,
}

/// By server: lines that are in the database, and not yet counted as such.
type Settled = Arc<Mutex<HashMap<ServerId, usize>>>;

enum JournalJob {
    Append {
        line: NewLine,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Look at what is settled.
    Settle,
}

struct NewLine {
    server: ServerId,
    text: Vec<u8>,
}

struct OpenJournal {
    directory: PathBuf,
    file: File,
    /// Where the last whole line ends.
    end: u64,
    /// A write that failed may have left something behind that end.
    torn: bool,
    /// Where that end was when the file was last written anew.
    rewritten: u64,
    /// Of servers with lines in the file.
    shares: HashMap<ServerId, Share>,
}

#[derive(Default)]
struct Share {
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
        let file = open_file(&directory.join(JOURNAL))?;
        if let Err(error) = reserve(&file) {
            log::warn!("no room on the disk is reserved for the journal of alarms: {error}");
        }
        let end = file.metadata()?.len();
        let (directory, shares) = (directory.to_owned(), HashMap::new());
        let open = OpenJournal { directory, file, end, torn: false, rewritten: 0, shares };
        let (settled, unkept) = (Settled::default(), Unkept::default());
        Ok(Self { open: Arc::new(Mutex::new(open)), jobs: None, settled, unkept })
    }

    /// Keeps a write; once this resolves to success it survives a kill.
    pub async fn append(&self, server: &ServerId, write: &LedgerWrite) -> io::Result<()> {
        let text = Line { server: server.clone(), write: write.clone() }.text()?;
        let line = NewLine { server: server.clone(), text };
        let Some(jobs) = &self.jobs else {
            let mut appended = lock(&self.open).append(&[line]);
            return appended.pop().unwrap_or(Ok(()));
        };
        let (done, written) = oneshot::channel();
        let append = JournalJob::Append { line, done };
        jobs.try_send(append).map_err(|_| io::Error::other("too many writes wait for the disk"))?;
        written.await.map_err(|_| io::Error::other("the journal is closed"))?
    }

    /// So many writes of this server that were kept are in the database now.
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

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn reserve(file: &File) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::KEEP_SIZE, 0, RESERVED)?)
}

/// Does what comes until the journal is closed; lines that wait together share one flush.
fn work(open: &Mutex<OpenJournal>, settled: &Settled, jobs: &Receiver<JournalJob>) {
    while let Ok(first) = jobs.recv() {
        let (mut lines, mut waiting) = (Vec::new(), Vec::new());
        for job in std::iter::once(first).chain(jobs.try_iter().take(WAITING)) {
            if let JournalJob::Append { line, done } = job {
                lines.push(line);
                waiting.push(done);
            }
        }
        let mut open = lock(open);
        for (done, written) in waiting.into_iter().zip(open.append(&lines)) {
            // Whoever does not wait any more has delivered without it.
            let _ = done.send(written);
        }
        open.settle(settled);
    }
}

/// Writes and flushes.
fn write(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    file.sync_data()
}

impl OpenJournal {
    /// What became of each line.
    fn append(&mut self, lines: &[NewLine]) -> Vec<io::Result<()>> {
        self.append_by(lines, write)
    }

    fn append_by(
        &mut self,
        lines: &[NewLine],
        write: impl FnOnce(&mut File, &[u8]) -> io::Result<()>,
    ) -> Vec<io::Result<()>> {
        let grown = self.end.saturating_sub(self.rewritten) >= GROWN;
        if grown
            && lines.iter().any(|line| self.has_room(line, 0).is_err())
            && let Err(error) = self.rewrite()
        {
            log::warn!("the journal of alarms was not written anew: {error}");
        }
        let mut text = Vec::new();
        let mut admit = |line: &NewLine| {
            self.has_room(line, text.len() as u64)?;
            text.extend_from_slice(&line.text);
            let share = self.shares.entry(line.server.clone()).or_default();
            share.bytes += line.text.len() as u64;
            share.unsettled += 1;
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
                self.end += text.len() as u64;
            }
            Err(error) => {
                for (line, admitted) in lines.iter().zip(&mut admitted).filter(|(_, admitted)| admitted.is_ok()) {
                    if let Some(share) = self.shares.get_mut(&line.server) {
                        share.bytes -= line.text.len() as u64;
                        share.unsettled -= 1;
                    }
                    *admitted = Err(io::Error::new(error.kind(), error.to_string()));
                }
                // If this fails, too, it is tried again before the next line.
                let _ = self.cut_stump();
            }
        }
        admitted
    }

    /// Whether the line fits behind so many bytes that are not written yet.
    fn has_room(&self, line: &NewLine, before: u64) -> io::Result<()> {
        let length = line.text.len() as u64;
        let used = self.shares.get(&line.server).map_or(0, |share| share.bytes) + length;
        if used > SHARE {
            return Err(io::Error::other("the share of this server is used up"));
        }
        let limit = if used <= SMALL { LARGEST } else { LARGEST - FOR_THE_SMALL };
        if self.end + before + length > limit {
            return Err(io::Error::other("it is full"));
        }
        Ok(())
    }

    /// Removes what a failed write left: the next line would be glued to it.
    fn cut_stump(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.end)?;
            self.torn = false;
        }
        Ok(())
    }

    /// Writes the file anew with one line per server, without those whose lines are all in the database.
    fn rewrite(&mut self) -> io::Result<()> {
        self.cut_stump()?;
        let mut merged = merge(File::open(self.directory.join(JOURNAL))?)?;
        merged.retain(|server, _| self.shares.get(server).is_some_and(|share| share.unsettled > 0));
        let (mut text, mut bytes) = (Vec::new(), HashMap::new());
        for (server, write) in merged {
            let line = Line { server: server.clone(), write }.text()?;
            bytes.insert(server, line.len() as u64);
            text.extend_from_slice(&line);
        }
        let path = self.directory.join(REWRITTEN);
        // Of an attempt that failed.
        let _ = fs::remove_file(&path);
        let mut file = open_file(&path)?;
        let _ = reserve(&file);
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&path, self.directory.join(JOURNAL))?;
        self.file = file;
        self.end = text.len() as u64;
        self.rewritten = self.end;
        self.shares.retain(|server, share| {
            share.bytes = bytes.get(server).copied().unwrap_or_default();
            share.unsettled > 0
        });
        // Without this a power cut may bring the longer one back, which says the same.
        File::open(&self.directory)?.sync_all()
    }

    fn settle(&mut self, settled: &Settled) {
        for (server, count) in lock(settled).drain() {
            if let Some(share) = self.shares.get_mut(&server) {
                share.unsettled = share.unsettled.saturating_sub(count);
            }
        }
        if self.end > 0 && self.shares.values().all(|share| share.unsettled == 0) {
            match self.file.set_len(0) {
                Ok(()) => {
                    (self.end, self.rewritten, self.torn) = (0, 0, false);
                    self.shares.clear();
                    // Some file systems cannot; that was said when it was opened.
                    let _ = reserve(&self.file);
                }
                Err(error) => log::warn!("the journal of alarms was not emptied: {error}"),
            }
        }
    }
}

/// What this journal has of each server.
fn merge(file: File) -> io::Result<BTreeMap<ServerId, LedgerWrite>> {
    let (lines, _) = read(file)?;
    let mut merged = BTreeMap::<_, LedgerWrite>::new();
    for Line { server, write } in lines {
        merged.entry(server).or_default().extend(write);
    }
    Ok(merged)
}

/// Its lines, and those that cannot be read.
fn read(file: File) -> io::Result<(Vec<Line>, Vec<Vec<u8>>)> {
    let (mut lines, mut unreadable) = (Vec::new(), Vec::new());
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        match serde_json::from_slice(&line) {
            Ok(line) => lines.push(line),
            Err(_) => unreadable.push(line),
        }
    }
    Ok((lines, unreadable))
}

/// Stores what a process before this one kept in this directory and could not store, one transaction for each server,
/// and empties its journal. What can never be stored is kept in [`REFUSED`]; while the database is in passing trouble,
/// this is an error and the journal stays. Blocks. Call it before anything reads the ledger.
pub fn replay(directory: &Path, pool: &Pool) -> Result<(), JournalError> {
    fs::create_dir_all(directory)?;
    let path = directory.join(JOURNAL);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut stored = 0;
    let (lines, mut refused) = read(file)?;
    let mut by_server: BTreeMap<ServerId, Vec<Line>> = BTreeMap::new();
    for line in lines {
        by_server.entry(line.server.clone()).or_default().push(line);
    }
    for (server, lines) in by_server {
        let mut merged = LedgerWrite::default();
        lines.iter().for_each(|line| merged.extend(line.write.clone()));
        match store(pool, &server, &merged)? {
            Replayed::All => stored += 1,
            Replayed::ServerGone => log::info!(server = server.as_str(); "alarms of a deleted server are dropped"),
            // Only the lines that are at fault.
            Replayed::Refused => {
                for line in lines {
                    if let Replayed::Refused = store(pool, &server, &line.write)? {
                        let mut text = line.text()?;
                        text.pop();
                        refused.push(text);
                    }
                }
            }
        }
    }
    if !refused.is_empty() {
        set_aside(&directory.join(REFUSED), &refused)?;
    }
    OpenOptions::new().write(true).truncate(true).open(&path)?.sync_all()?;
    if stored > 0 {
        log::info!(servers = stored; "alarms of the journal are stored");
    }
    Ok(())
}

/// What became of a write at the start.
enum Replayed {
    All,
    ServerGone,
    /// It can never be stored.
    Refused,
}

fn store(pool: &Pool, server: &ServerId, write: &LedgerWrite) -> Result<Replayed, DbError> {
    match pool.write_blocking(|db| incidents::write(db, server, write)) {
        Ok(()) => Ok(Replayed::All),
        Err(DbError::NotFound) => Ok(Replayed::ServerGone),
        Err(error @ (DbError::Query(_) | DbError::Conflict)) => {
            log::error!(server = server.as_str(); "alarms of the journal are refused: {error}");
            Ok(Replayed::Refused)
        }
        Err(error) => Err(error),
    }
}

fn set_aside(path: &Path, lines: &[Vec<u8>]) -> io::Result<()> {
    let mut text = lines.join(&b'\n');
    text.push(b'\n');
    let mut file = open_file(path)?;
    if file.metadata()?.len() + text.len() as u64 > LARGEST {
        log::error!(lines = lines.len(); "lines of the journal of alarms are dropped: {} is full", path.display());
        return Ok(());
    }
    log::error!(lines = lines.len(); "lines of the journal of alarms are kept aside in {}", path.display());
    file.write_all(&text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use diesel::connection::SimpleConnection as _;

    use super::*;
    use crate::{
        db::{pool::Db, testing},
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
            let refused = directory.path().join(REFUSED);
            assert_eq!(fs::read_to_string(&refused).unwrap(), "{\"server\":\"one\",\"wri\n");
            fs::remove_file(refused).unwrap();
            replay(directory.path(), pool).unwrap();
        });
    }

    #[tokio::test]
    async fn what_the_database_refuses_is_kept_aside_and_keeps_nothing_else_out() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        let mut bad = write("bad");
        bad.incidents.get_mut("bad").unwrap().0.alarm_name = "refused".into();
        journal.append(&"one".into(), &bad).await.unwrap();
        journal.append(&"one".into(), &write("beside it")).await.unwrap();
        journal.append(&"two".into(), &write("good")).await.unwrap();
        let path = directory.path().join(JOURNAL);
        let text = fs::read(&path).unwrap();
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            testing::user(pool, "bob");
            testing::server(pool, "bob", "two");
            let refuse = |db: &mut Db| match db {
                Db::Pg(db) => db.batch_execute("ALTER TABLE incidents ADD CHECK (alarm_name <> 'refused')"),
                Db::Sqlite(db) => db.batch_execute(
                    "CREATE TRIGGER refuse BEFORE INSERT ON incidents WHEN new.alarm_name = 'refused'
                     BEGIN SELECT RAISE(ABORT, 'refused'); END",
                ),
            };
            let busy = |db: &mut Db| match db {
                Db::Pg(db) => db.batch_execute(
                    "CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS
                     $$ BEGIN RAISE 'canceling statement due to statement timeout'; END $$;
                     CREATE TRIGGER busy BEFORE INSERT ON incidents FOR EACH ROW EXECUTE FUNCTION busy()",
                ),
                Db::Sqlite(db) => db.batch_execute(
                    "CREATE TRIGGER busy BEFORE INSERT ON incidents BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END",
                ),
            };
            let free = |db: &mut Db| match db {
                Db::Pg(db) => db.batch_execute("DROP TRIGGER busy ON incidents"),
                Db::Sqlite(db) => db.batch_execute("DROP TRIGGER busy"),
            };
            fs::write(&path, &text).unwrap();
            pool.write_blocking(|db| Ok(busy(db)?)).unwrap();
            assert!(matches!(replay(directory.path(), pool), Err(JournalError::Database(DbError::Unavailable(_)))));
            assert_eq!(fs::read(&path).unwrap(), text, "trouble that passes loses nothing");
            pool.write_blocking(|db| Ok(free(db)?)).unwrap();
            pool.write_blocking(|db| Ok(refuse(db)?)).unwrap();
            replay(directory.path(), pool).unwrap();
            let refused = fs::read_to_string(directory.path().join(REFUSED)).unwrap();
            assert!(refused.contains("\"bad\"") && refused.lines().count() == 1, "{refused}");
            fs::remove_file(directory.path().join(REFUSED)).unwrap();
            let stored =
                |server: &str| pool.read_blocking(|db| incidents::list(db, &server.into(), None, 10)).unwrap().len();
            assert_eq!((stored("one"), stored("two")), (1, 1));
        });
    }

    #[tokio::test]
    async fn it_is_emptied_once_all_of_it_is_in_the_database() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        let (server, a, b) = (ServerId::from("one"), write("a"), write("b"));
        let (first, second) = tokio::join!(journal.append(&server, &a), journal.append(&server, &b));
        first.and(second).unwrap();
        journal.settle(&server, 1);
        // Once this is written, that was counted.
        journal.append(&server, &a).await.unwrap();
        assert!(length(directory.path()) > 0);
        journal.settle(&server, 2);
        while length(directory.path()) > 0 {
            tokio::task::yield_now().await;
        }
        journal.append(&server, &b).await.unwrap();
        assert!(length(directory.path()) > 0);
    }

    #[tokio::test]
    async fn room_on_the_disk_is_reserved_for_it_also_once_it_was_emptied() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        if reserve(&open_file(&directory.path().join("probe")).unwrap()).is_err() {
            return eprintln!("skipped: this file system reserves no room");
        }
        let journal = Journal::open_simulated(directory.path()).unwrap();
        let on_disk = || 512 * fs::metadata(directory.path().join(JOURNAL)).unwrap().blocks();
        assert!(on_disk() >= RESERVED);
        journal.append(&"one".into(), &write("a")).await.unwrap();
        journal.settle(&"one".into(), 1);
        assert_eq!(length(directory.path()), 0);
        assert!(on_disk() >= RESERVED);
    }

    #[tokio::test]
    async fn it_is_bounded_and_for_its_user_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        let mode = fs::metadata(directory.path().join(JOURNAL)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        lock(&journal.open).end = LARGEST;
        lock(&journal.open).rewritten = LARGEST;
        assert!(journal.append(&"one".into(), &write("a")).await.is_err());
        assert_eq!(length(directory.path()), 0);
    }

    #[tokio::test]
    async fn a_write_that_was_cut_short_is_reported_and_takes_no_later_one_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open_simulated(directory.path()).unwrap();
        journal.append(&"one".into(), &write("a")).await.unwrap();
        let line =
            NewLine { server: "one".into(), text: Line { server: "one".into(), write: write("b") }.text().unwrap() };
        let full = |file: &mut File, text: &[u8]| {
            file.write_all(&text[..text.len() / 2])?;
            Err(io::ErrorKind::StorageFull.into())
        };
        assert!(lock(&journal.open).append_by(&[line], full).pop().unwrap().is_err());
        journal.append(&"one".into(), &write("c")).await.unwrap();
        let kept = merge(File::open(directory.path().join(JOURNAL)).unwrap()).unwrap();
        assert_eq!(kept[&"one".into()].incidents.keys().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[tokio::test]
    async fn repeats_of_one_server_are_merged_and_it_has_no_more_than_its_share() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open_simulated(directory.path()).unwrap();
        let (loud, quiet) = (ServerId::from("loud"), ServerId::from("quiet"));
        journal.append(&quiet, &write("q")).await.unwrap();
        for _ in 0..5_000 {
            journal.append(&loud, &write("a")).await.unwrap();
        }
        assert!(length(directory.path()) <= 2 * SHARE, "{}", length(directory.path()));
        let mut refused = 0;
        for number in 0..5_000 {
            refused += u32::from(journal.append(&loud, &write(&number.to_string())).await.is_err());
        }
        assert!(refused > 0 && length(directory.path()) <= 2 * SHARE);
        journal.append(&quiet, &write("r")).await.unwrap();
        let kept = merge(File::open(directory.path().join(JOURNAL)).unwrap()).unwrap();
        assert_eq!(kept[&quiet].incidents.len(), 2);
        assert_eq!(kept[&loud].incidents.len() as u32, 5_000 - refused + 1);

        // Once they are stored, the loud one's lines give way, and then all of them.
        journal.settle(&loud, 10_000 - refused as usize);
        for number in 0..200 {
            journal.append(&quiet, &write(&number.to_string())).await.unwrap();
        }
        lock(&journal.open).rewrite().unwrap();
        assert!(length(directory.path()) < SHARE / 2);
        journal.settle(&quiet, 202);
        assert_eq!(length(directory.path()), 0);
    }

    #[tokio::test]
    async fn many_loud_servers_leave_room_for_a_quiet_one() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open_simulated(directory.path()).unwrap();
        lock(&journal.open).end = LARGEST - FOR_THE_SMALL;
        lock(&journal.open).rewritten = LARGEST;
        lock(&journal.open).shares.insert("loud".into(), Share { bytes: SMALL, unsettled: 1 });
        assert!(journal.append(&"loud".into(), &write("a")).await.is_err());
        assert!(journal.append(&"quiet".into(), &write("a")).await.is_ok());
    }
}
