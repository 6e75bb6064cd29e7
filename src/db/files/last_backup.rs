//! When the last backup was taken, in a file of the data directory: what restores a backup does not bring it back.

use std::{fs, io, path::Path};

use chrono::TimeDelta;

use crate::domain::time::Timestamp;

/// Name of the file.
const LAST_BACKUP: &str = "last-backup";

/// The longest time that the last one may be ago: a day and two hours, as in the alert rule.
pub const LONGEST_AGE: TimeDelta = TimeDelta::hours(26);

/// Two clocks of one service may be this far apart.
const AHEAD: TimeDelta = TimeDelta::minutes(1);

/// Notes a backup.
pub fn note(data_dir: &Path, at: Timestamp) -> io::Result<()> {
    // Whole or not at all: it is read meanwhile.
    let unfinished = data_dir.join(format!("{LAST_BACKUP}.new"));
    fs::write(&unfinished, at.to_wire())?;
    fs::rename(unfinished, data_dir.join(LAST_BACKUP))
}

/// When it was; none: never. A file with no such time is [`InvalidData`](io::ErrorKind::InvalidData).
pub fn read(data_dir: &Path, now: Timestamp) -> io::Result<Option<Timestamp>> {
    let invalid = |fault: String| {
        let text = format!("the file {LAST_BACKUP} {fault}; the next backup writes it again");
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let noted = match fs::read(data_dir.join(LAST_BACKUP)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let at = str::from_utf8(&noted).ok().and_then(|noted| noted.trim().parse::<Timestamp>().ok());
    let at = at.ok_or_else(|| invalid("has no time in it".to_owned()))?;
    if at - now > AHEAD {
        return Err(invalid(format!("has a time that is still to come, {}: is the clock right", at.to_wire())));
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{later, now};

    #[test]
    fn the_newest_one_is_known() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path(), now()).unwrap(), None);
        for at in [now(), later(60)] {
            note(directory.path(), at).unwrap();
            assert_eq!(read(directory.path(), now()).unwrap().map(|read| read.timestamp()), Some(at.timestamp()));
        }
    }

    #[test]
    fn a_file_without_a_time_that_has_been_is_no_backup() {
        let directory = tempfile::tempdir().unwrap();
        let fault = || {
            let error = read(directory.path(), now()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            error.to_string()
        };
        note(directory.path(), later(61)).unwrap();
        assert!(fault().contains("has a time that is still to come"), "{}", fault());
        for garbage in [&b"yesterday"[..], b"", b"\xff"] {
            fs::write(directory.path().join(LAST_BACKUP), garbage).unwrap();
            assert!(fault().contains("has no time in it"), "{}", fault());
        }
    }
}
