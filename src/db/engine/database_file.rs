//! The file of a SQLite database, as far as SQLite does not look after it: one process serves from it, and it stays at its
//! place.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::config;

/// Identifies the file that was opened.
#[derive(Debug)]
pub struct DatabaseFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl DatabaseFile {
    /// The file at this path. Blocks.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }

    /// An error if another file, or none, is at its place: what is written then is lost with this process. Blocks.
    pub fn check(&self) -> Result<(), String> {
        let shown = self.path.display();
        match identity(&self.path) {
            Ok(there) if there == self.identity => Ok(()),
            Ok(_) => Err(format!("another file took the place of {shown}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("{shown} was removed")),
            Err(error) => Err(format!("{shown}: {error}")),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Takes the database at this path for this process alone, for as long as the file is held. `None`: another process has it.
/// SQLite itself lets several processes write.
pub fn take(path: &Path) -> io::Result<Option<File>> {
    config::take_lock(&lock_path(path))
}

/// True if a process has taken it.
pub fn is_taken(path: &Path) -> bool {
    config::is_locked(&lock_path(path))
}

fn lock_path(path: &Path) -> PathBuf {
    path.with_added_extension("lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_for_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        assert!(!is_taken(&path));
        let first = take(&path).unwrap();
        assert!(first.is_some() && is_taken(&path) && take(&path).unwrap().is_none());
        drop(first);
        assert!(!is_taken(&path) && take(&path).unwrap().is_some());
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("test.db"), directory.path().join("moved.db"));
        fs::write(&path, "one").unwrap();
        let file = DatabaseFile::at(&path).unwrap();
        assert_eq!(file.check(), Ok(()));
        fs::rename(&path, &moved).unwrap();
        assert!(file.check().is_err_and(|fault| fault.ends_with("was removed")));
        fs::write(&path, "two").unwrap();
        assert!(file.check().is_err_and(|fault| fault.starts_with("another file")));
        fs::rename(&moved, &path).unwrap();
        assert_eq!(file.check(), Ok(()));
    }
}
