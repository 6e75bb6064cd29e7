//! Directories that hold secrets, and the one that a process has for itself.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    ops::Deref,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
};

/// Name of the file in the data directory that says that it is in use.
pub const LOCK_FILE: &str = "companion.lock";

/// Makes the directory and its parents where missing, for this user only.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Ok if this process could write there, or make the directory where it is missing; otherwise the reason. Changes nothing.
pub fn is_writable(path: &Path) -> Result<(), String> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let nearest = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let shown = nearest.display();
    if !nearest.is_dir() {
        return Err(format!("leads to {shown}, which is no directory"));
    }
    let as_who_runs = AtFlags::EACCESS;
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, nearest, wanted, as_who_runs).map_err(|error| match error {
        Errno::ROFS => format!(
            "cannot be written: {shown} is on a read-only file system; `mount` shows it, and the kernel's log may say why"
        ),
        error => format!("cannot be written: {shown}: {}; the service's user must own it", io::Error::from(error)),
    })
}

/// Advice where this error kept something from being written, to follow its text; empty if that says enough.
pub fn write_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; the service's user must own it",
        io::ErrorKind::ReadOnlyFilesystem => "; `mount` shows its file system, and the kernel's log may say why",
        _ => "",
    }
}

/// A file that this process has locked, until this is dropped.
#[derive(Debug)]
pub struct LockedFile(File);

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // To close it is not enough: a child process has a copy until it runs its own program.
        let _ = self.0.unlock();
    }
}

/// Takes the data directory, which is made where missing, for this process alone, for as long as the file is held.
/// `None`: another process has it.
pub fn take_data_dir(path: &Path) -> io::Result<Option<LockedFile>> {
    create_private_dir(path)?;
    take_lock(&path.join(LOCK_FILE))
}

/// True if a process has taken this data directory.
pub fn is_data_dir_taken(path: &Path) -> bool {
    is_locked(&path.join(LOCK_FILE))
}

/// Locks the file at this path, which is made where missing, for as long as it is held. `None`: another process has it.
pub fn take_lock(path: &Path) -> io::Result<Option<LockedFile>> {
    // Notes of another process in it stay.
    Ok(lock(OpenOptions::new().write(true).create(true).truncate(false).open(path)?)?.map(LockedFile))
}

/// Locks an open file until it is unlocked, or closed everywhere. `None`: another process has it.
pub fn lock(file: File) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// True if a process has locked the file at this path.
pub fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}
