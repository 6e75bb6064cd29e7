//! The file of the journal: its name, its bounds, and why it is not used.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::{config::write_remedy, db::engine::error::DbError};

/// Name of the file in the data directory.
pub const JOURNAL: &str = "alarms.journal";
/// Bytes that the file may have: tens of thousands of alarms.
pub const LARGEST: u64 = 16 << 20;

/// Failure to open the journal, or to take it over into the database.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("alarms.journal in DATA_DIR cannot be used: {0}{remedy}", remedy = write_remedy(.0))]
    File(#[from] io::Error),
    #[error("it could not be stored: {0}")]
    Database(#[from] DbError),
}

/// Fails if the journal of this directory is there and cannot be written. Blocks.
pub fn check(directory: &Path) -> Result<(), String> {
    match OpenOptions::new().append(true).open(directory.join(JOURNAL)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("has a file {JOURNAL} that cannot be written: {error}{}", write_remedy(&error)))
        }
        _ => Ok(()),
    }
}

/// Writes a file of this directory again, whole or not at all, and returns it, open to append to it. `prepare` is applied
/// to the new file while it is empty. Until the directory is flushed, a power cut may bring the earlier one back.
pub fn replace(directory: &Path, name: &str, text: &[u8], prepare: fn(&File)) -> io::Result<File> {
    let unfinished = directory.join(format!("{name}.new"));
    // A failed attempt may have left it.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open_file(&unfinished)?;
    prepare(&file);
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&unfinished, directory.join(name))?;
    Ok(file)
}

/// Opens the journal to append to it; made if absent, for its owner alone.
pub fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
