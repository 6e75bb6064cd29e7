//! The journal at a start, and between two runs: what is in it goes into the database, and what no database takes is
//! kept aside.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use super::{
    file::{JOURNAL, JournalError, LARGEST, open_file, replace},
    line::{Line, lengths, read, without},
};
use crate::{
    db::{
        alarms::incidents::{self, LedgerWrite},
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
    },
    domain::ids::ServerId,
};

/// Where what the database refuses, and what cannot be read, is kept for a person to look at. As large as the journal.
pub const REFUSED: &str = "alarms.refused";

/// Bytes of [`REFUSED`] in this directory.
pub fn refused_bytes(directory: &Path) -> io::Result<u64> {
    match fs::metadata(directory.join(REFUSED)) {
        Ok(file) => Ok(file.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The number of writes in the journal of this directory; `None`: nothing has served from it yet.
pub fn waiting(directory: &Path) -> io::Result<Option<usize>> {
    match fs::read(directory.join(JOURNAL)) {
        Ok(text) => Ok(Some(lengths(&text).count())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores what a process before this one kept in this directory and could not store, one transaction for each server,
/// and empties its journal. What can never be stored is kept in [`REFUSED`], and so are alarms of a server that the database
/// does not know, unless it is one of the `deleted` ones: the database may be an older one, or another. While the database
/// has transient trouble, this is an error and the journal stays. Blocks. Call it before anything reads the ledger.
pub fn replay(directory: &Path, pool: &Pool, deleted: &BTreeSet<ServerId>) -> Result<(), JournalError> {
    replay_by(directory, pool, deleted, incidents::write)
}

/// [`replay`] on a node: another one may have these servers by now, and takes up the alarms.
pub fn replay_on_node(directory: &Path, pool: &Pool, deleted: &BTreeSet<ServerId>) -> Result<(), JournalError> {
    replay_by(directory, pool, deleted, incidents::write_for_another_node)
}

type LedgerWriter = fn(&mut Db, &ServerId, &LedgerWrite) -> Result<(), DbError>;

fn replay_by(
    directory: &Path,
    pool: &Pool,
    deleted: &BTreeSet<ServerId>,
    write: LedgerWriter,
) -> Result<(), JournalError> {
    fs::create_dir_all(directory)?;
    let path = directory.join(JOURNAL);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut stored = 0;
    let (lines, mut refused) = read(&text);
    if !refused.is_empty() {
        log::error!(lines = refused.len(); "lines of the journal of alarms cannot be read: they are cut short, or damaged");
    }
    let mut by_server: BTreeMap<ServerId, Vec<Line>> = BTreeMap::new();
    for line in lines {
        by_server.entry(line.server.clone()).or_default().push(line);
    }
    for (server, lines) in by_server {
        let mut merged = LedgerWrite::default();
        lines.iter().for_each(|line| merged.extend(line.write.clone()));
        match store(pool, &server, &merged, write)? {
            Replayed::All => stored += 1,
            Replayed::ServerUnknown if deleted.contains(&server) => {
                log::info!(server = server.as_str(); "alarms of a deleted server are dropped");
            }
            Replayed::ServerUnknown => {
                log::error!(
                    server = server.as_str(), lines = lines.len();
                    "alarms of the journal are of a server that the database does not know: it is older than they are, or \
                     another one"
                );
                for line in lines {
                    refused.push(without_end(line)?);
                }
            }
            // Only the lines that are at fault.
            Replayed::Refused => {
                for line in lines {
                    if let Replayed::Refused = store(pool, &server, &line.write, write)? {
                        refused.push(without_end(line)?);
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

/// Takes the lines of these servers, whose owners are erased, out of the journal of this directory and out of
/// [`REFUSED`]. Blocks. Call it while no journal is open there.
pub fn take_out(directory: &Path, servers: &BTreeSet<ServerId>) -> io::Result<()> {
    for name in [JOURNAL, REFUSED] {
        let text = match fs::read(directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        let kept = without(&text, servers);
        if kept.len() != text.len() {
            replace(directory, name, &kept, |_| ())?;
        }
    }
    File::open(directory)?.sync_all()
}

fn without_end(line: Line) -> io::Result<Vec<u8>> {
    let mut text = line.text()?;
    text.pop();
    Ok(text)
}

/// Outcome of a write at the start.
enum Replayed {
    All,
    ServerUnknown,
    /// The write can never be stored.
    Refused,
}

fn store(pool: &Pool, server: &ServerId, of_server: &LedgerWrite, write: LedgerWriter) -> Result<Replayed, DbError> {
    match pool.write_blocking(|db| write(db, server, of_server)) {
        Ok(()) => Ok(Replayed::All),
        Err(DbError::NotFound) => Ok(Replayed::ServerUnknown),
        Err(error @ (DbError::Query(_) | DbError::Malformed(_) | DbError::Conflict)) => {
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
