//! When the last backup was taken, in a file of the data directory: what restores a backup does not bring it back.

use std::{fs, io, path::Path};

use chrono::TimeDelta;

use crate::domain::time::Timestamp;

/// Name of the file.
const LAST_BACKUP: &str = "last-backup";

/// The longest time that the last one may be ago: a day and two hours, as in the alert rule.
pub const LONGEST_AGE: TimeDelta = TimeDelta::hours(26);

/// Notes a backup.
pub fn note(data_dir: &Path, at: Timestamp) -> io::Result<()> {
    // Whole or not at all: it is read meanwhile.
    let unfinished = data_dir.join(format!("{LAST_BACKUP}.new"));
    fs::write(&unfinished, at.to_wire())?;
    fs::rename(unfinished, data_dir.join(LAST_BACKUP))
}

/// When it was; none: never.
pub fn read(data_dir: &Path) -> io::Result<Option<Timestamp>> {
    match fs::read_to_string(data_dir.join(LAST_BACKUP)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => Ok(read?.trim().parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{later, now};

    #[test]
    fn the_newest_one_is_known() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()).unwrap(), None);
        for at in [now(), later(60)] {
            note(directory.path(), at).unwrap();
            assert_eq!(read(directory.path()).unwrap().map(|read| read.timestamp()), Some(at.timestamp()));
        }
    }
}
