//! A file of the data directory that is there while a process serves from it: one that is found at a start was left by a
//! process that was killed, crashed, or lost its power.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use crate::domain::time::Timestamp;

/// Name of the file.
const RUNNING: &str = "running";

/// An end that was no stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UncleanEnd {
    /// When the process was last alive, to the minute; none if the file does not say.
    pub last_alive: Option<Timestamp>,
}

impl fmt::Display for UncleanEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last_alive {
            Some(at) => write!(f, "last alive {}", at.to_wire()),
            None => f.write_str("last alive at a time that is not known"),
        }
    }
}

/// The end of the process before this one, if it was not stopped.
pub fn unclean_end(data_dir: &Path) -> io::Result<Option<UncleanEnd>> {
    match fs::read_to_string(data_dir.join(RUNNING)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => Ok(Some(UncleanEnd { last_alive: read?.trim().parse().ok() })),
    }
}

/// Notes that this process serves now.
pub fn note_start(data_dir: &Path, now: Timestamp) -> io::Result<()> {
    // Whole or not at all: a kill may come meanwhile.
    let unfinished = data_dir.join(format!("{RUNNING}.new"));
    fs::write(&unfinished, now.to_wire())?;
    fs::rename(unfinished, data_dir.join(RUNNING))
}

/// Notes that this process is alive, if it is not stopped meanwhile: call it once a minute or more often.
pub fn note_alive(data_dir: &Path, now: Timestamp) -> io::Result<()> {
    match OpenOptions::new().write(true).open(data_dir.join(RUNNING)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // One write, as long as the one before: a kill leaves either.
        opened => opened?.write_all(now.to_wire().as_bytes()),
    }
}

/// Notes that this process was stopped.
pub fn note_end(data_dir: &Path) -> io::Result<()> {
    fs::remove_file(data_dir.join(RUNNING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{later, now};

    #[test]
    fn an_end_that_is_not_noted_is_found_with_the_last_time_of_life() {
        let directory = tempfile::tempdir().unwrap();
        let found = || unclean_end(directory.path()).unwrap();
        assert_eq!(found(), None);
        for (at, note) in [(now(), note_start as fn(&Path, Timestamp) -> io::Result<()>), (later(60), note_alive)] {
            note(directory.path(), at).unwrap();
            assert_eq!(found().unwrap().last_alive.unwrap().timestamp(), at.timestamp());
        }
        note_end(directory.path()).unwrap();
        // One that was on its way while the process ended.
        note_alive(directory.path(), later(61)).unwrap();
        assert_eq!(found(), None);
        fs::write(directory.path().join(RUNNING), "").unwrap();
        assert_eq!(found(), Some(UncleanEnd { last_alive: None }));
    }
}
