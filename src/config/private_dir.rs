//! Directories that hold secrets, and the one that a process has for itself.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

/// Name of the file in the data directory that says that it is in use.
pub const LOCK_FILE: &str = "companion.lock";

/// Makes the directory and its parents where missing, for this user only.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes the data directory, which is made where missing, for this process alone, for as long as the file is held.
/// `None`: another process has it.
pub fn take_data_dir(path: &Path) -> io::Result<Option<File>> {
    create_private_dir(path)?;
    let file = File::create(path.join(LOCK_FILE))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
