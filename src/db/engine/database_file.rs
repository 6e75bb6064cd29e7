//! The files of a SQLite database, as far as SQLite does not look after them: one process serves from them, and they stay
//! at their places.

use std::{
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use crate::{
    config::{self, LockedFile},
    db::engine::error::DbError,
};

/// Ends of the names of SQLite's log and of the index of that, which are behind the name of the file.
const LOGS: [&str; 2] = ["-wal", "-shm"];

/// Device and inode.
type FileId = (u64, u64);

/// Identifies the files that were opened.
#[derive(Debug)]
pub struct DatabaseFile {
    path: PathBuf,
    identity: FileId,
    log_paths: [PathBuf; 2],
    /// Identities of the log and its index; unknown until SQLite has made them.
    logs: OnceLock<[FileId; 2]>,
}

impl DatabaseFile {
    /// The file at this path, with its log if that is there. Blocks.
    pub fn at(path: &Path) -> io::Result<Self> {
        let (identity, log_paths) = (identity(path)?, log_paths(path));
        let file = Self { path: path.to_owned(), identity, log_paths, logs: OnceLock::new() };
        // Notes it.
        let _ = file.check_log();
        Ok(file)
    }

    /// An error if another file, or none, is at its place: what is written then is lost with this process. Blocks.
    pub fn check(&self) -> Result<(), String> {
        check(&self.path, self.identity)
    }

    /// An error if other files, or none, are at the places of the log and its index: a change is lost with this process
    /// unless it is in the file itself. Blocks.
    pub fn check_log(&self) -> Result<(), String> {
        match self.logs.get() {
            Some(logs) => check_logs(&self.log_paths, *logs),
            None => {
                if let Ok(logs) = log_identities(&self.log_paths) {
                    let _ = self.logs.set(logs);
                }
                Ok(())
            }
        }
    }
}

fn identity(path: &Path) -> io::Result<FileId> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino()))
}

fn log_identities([log, index]: &[PathBuf; 2]) -> io::Result<[FileId; 2]> {
    Ok([identity(log)?, identity(index)?])
}

/// Where SQLite has the log and its index: beside the file to which a link leads.
fn log_paths(path: &Path) -> [PathBuf; 2] {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    LOGS.map(|end| {
        let mut name = OsString::from(&path);
        name.push(end);
        name.into()
    })
}

/// An error if another file, or none, is there.
fn check(path: &Path, opened: FileId) -> Result<(), String> {
    let shown = path.display();
    match identity(path) {
        Ok(there) if there == opened => Ok(()),
        Ok(_) => Err(format!("another file took the place of {shown}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("{shown} was removed")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

fn check_logs(paths: &[PathBuf; 2], opened: [FileId; 2]) -> Result<(), String> {
    paths.iter().zip(opened).try_for_each(|(path, opened)| check(path, opened))
}

/// A database that this process has for itself, until this is dropped. SQLite itself lets several processes write.
pub struct TakenFile {
    /// The lock file beside it, in which it is noted which files are open.
    notes: LockedFile,
    /// The file itself, which may have several names.
    file: Arc<File>,
}

impl TakenFile {
    /// Takes the file at this path, which must exist. `None`: another process has it. Blocks.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let Some(notes) = config::take_lock(&lock_path(path))? else { return Ok(None) };
        let Some(file) = config::lock(File::open(path)?)? else { return Ok(None) };
        // A process before this one may have had another file.
        notes.set_len(0)?;
        Ok(Some(Self { notes, file: file.into() }))
    }

    /// The open file. When it is closed, the locks of all SQLite connections of this process to it end (POSIX): hold it
    /// until they are closed.
    pub fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Notes that this process has opened the files that are there now.
    pub fn note_open(&self, path: &Path) -> io::Result<()> {
        let logs = match log_identities(&log_paths(path)) {
            // Not made yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            logs => Some(logs?),
        };
        let lines = [identity(path)?]
            .into_iter()
            .chain(logs.into_iter().flatten())
            .map(|(device, inode)| format!("{device} {inode}\n"));
        (&*self.notes).write_all(lines.collect::<String>().as_bytes())
    }
}

impl Drop for TakenFile {
    fn drop(&mut self) {
        // A pool may hold the file still; the system frees what cannot be unlocked when it is closed.
        let _ = self.file.unlock();
    }
}

/// True if a process has taken it. Not for a process that has it open: see [`TakenFile::file`]. Blocks.
pub fn is_taken(path: &Path) -> bool {
    config::is_locked(&lock_path(path)) || config::is_locked(path)
}

impl fmt::Display for OpenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replaced => "another file took its place",
            Self::Unseen(why) => why,
        })
    }
}

/// A reason why nothing else may open a database from which a process serves.
#[derive(Debug, PartialEq, Eq)]
pub enum OpenFault {
    /// Another file is at its place.
    Replaced,
    /// Its log is not, or it is served from under another name: SQLite would miss changes, and spoil the file.
    Unseen(String),
}

/// The fault of the files at this path, if a process serves from them. Not for a process that has them open. Blocks.
pub fn fault(path: &Path) -> Option<OpenFault> {
    if !is_taken(path) {
        return None;
    }
    let lock = lock_path(path);
    if !config::is_locked(&lock) {
        return Some(OpenFault::Unseen(format!("it has another name, too, or {} was removed", lock.display())));
    }
    let text = fs::read_to_string(&lock).ok()?;
    let mut noted = text.lines().map_while(|line| {
        let (device, inode) = line.split_once(' ')?;
        Some((device.parse().ok()?, inode.parse().ok()?))
    });
    if identity(path).ok()? != noted.next()? {
        return Some(OpenFault::Replaced);
    }
    // An older version did not note them.
    check_logs(&log_paths(path), [noted.next()?, noted.next()?]).err().map(OpenFault::Unseen)
}

/// Fails if a process serves from the database at this path and nothing else may open it. Not for a process that has it
/// open. Blocks.
pub fn refuse_unsafe(path: &Path) -> Result<(), DbError> {
    fault(path).map_or(Ok(()), |fault| {
        Err(DbError::Unavailable(format!(
            "a companion serves from {}, and nothing else can open it safely: {fault}; see `companion doctor`",
            path.display()
        )))
    })
}

fn lock_path(path: &Path) -> PathBuf {
    path.with_added_extension("lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database of three files.
    fn database(directory: &Path) -> PathBuf {
        let path = directory.join("test.db");
        for path in log_paths(&path).iter().chain([&path]) {
            fs::write(path, "one").unwrap();
        }
        path
    }

    #[test]
    fn it_is_for_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = database(directory.path());
        assert!(!is_taken(&path));
        let first = TakenFile::take(&path).unwrap();
        assert!(first.is_some() && is_taken(&path) && TakenFile::take(&path).unwrap().is_none());
        drop(first);
        assert!(!is_taken(&path) && TakenFile::take(&path).unwrap().is_some());
    }

    #[test]
    fn it_is_for_one_process_whatever_its_name_and_without_its_lock_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = database(directory.path());
        let linked = directory.path().join("linked.db");
        fs::hard_link(&path, &linked).unwrap();
        let first = TakenFile::take(&path).unwrap().unwrap();
        assert!(TakenFile::take(&linked).unwrap().is_none() && matches!(fault(&linked), Some(OpenFault::Unseen(_))));
        fs::remove_file(lock_path(&path)).unwrap();
        assert!(TakenFile::take(&path).unwrap().is_none() && matches!(fault(&path), Some(OpenFault::Unseen(_))));
        // A pool that is not closed yet holds the file.
        let held = first.file();
        drop(first);
        assert!(TakenFile::take(&path).unwrap().is_some() && fault(&path).is_none());
        drop(held);
    }

    #[test]
    fn the_lock_says_whether_the_files_are_those_that_are_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = database(directory.path());
        let taken = TakenFile::take(&path).unwrap().unwrap();
        assert_eq!(fault(&path), None, "nothing is noted yet");
        taken.note_open(&path).unwrap();
        assert_eq!(fault(&path), None);
        for log in log_paths(&path) {
            let aside = directory.path().join("aside");
            fs::rename(&log, &aside).unwrap();
            let Some(OpenFault::Unseen(why)) = fault(&path) else { panic!("{}", log.display()) };
            assert!(why.ends_with("was removed"), "{why}");
            fs::write(&log, "two").unwrap();
            assert!(matches!(fault(&path), Some(OpenFault::Unseen(_))));
            fs::rename(&aside, &log).unwrap();
        }
        fs::rename(&path, directory.path().join("moved.db")).unwrap();
        assert_eq!(fault(&path), None, "it is not there");
        fs::write(&path, "two").unwrap();
        assert_eq!(fault(&path), Some(OpenFault::Replaced));
        drop(taken);
        assert_eq!(fault(&path), None, "it is not open");
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (database(directory.path()), directory.path().join("moved.db"));
        let file = DatabaseFile::at(&path).unwrap();
        let logs = log_paths(&path);
        let check = || file.check().and(file.check_log());
        for changed in [&path, &logs[0], &logs[1]] {
            assert_eq!(check(), Ok(()));
            fs::rename(changed, &moved).unwrap();
            assert!(check().is_err_and(|fault| fault.ends_with("was removed")));
            fs::write(changed, "two").unwrap();
            assert!(check().is_err_and(|fault| fault.starts_with("another file")));
            fs::rename(&moved, changed).unwrap();
            assert_eq!(check(), Ok(()));
        }
    }

    #[test]
    fn a_log_is_known_once_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        fs::write(&path, "one").unwrap();
        let file = DatabaseFile::at(&path).unwrap();
        assert_eq!(file.check_log(), Ok(()));
        database(directory.path());
        assert_eq!(file.check_log(), Ok(()));
        fs::remove_file(&log_paths(&path)[0]).unwrap();
        assert!(file.check_log().is_err());
    }
}
