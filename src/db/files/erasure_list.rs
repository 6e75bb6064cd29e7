//! Users who have erased themselves, by their ids, in a file of the data directory: outside of the database, so that
//! they stay erased when an older backup of it is restored. An id says nothing of a user whose rows are gone.
//!
//! An erasure is noted before it is committed and after it, so that a kill between both does not keep it off the list.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use chrono::TimeDelta;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        personal_data,
        schema::users,
        users::User,
    },
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
};

/// Name of the file.
pub const ERASURES: &str = "erasures.list";
/// Ids that are looked up at once.
const LOOKED_UP: usize = 500;
/// The longest time that an erasure may take to be committed: far more than the database gives it.
const LONGEST: TimeDelta = TimeDelta::hours(1);

/// A step of an erasure, as a line of the list notes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErasureStep {
    /// Committed next, if nothing goes wrong.
    Begun,
    /// Committed: the only step that keeps a user erased.
    Done,
    /// Rolled back.
    Undone,
}

/// Erasures of which the list does not say how they ended, each with its begin, if that can be read.
pub type OpenErasures = BTreeMap<UserId, Option<Timestamp>>;

/// Notes a step of an erasure, and waits until it is on disk.
pub fn note(data_dir: &Path, step: ErasureStep, user: &UserId, now: Timestamp) -> io::Result<()> {
    let word = match step {
        ErasureStep::Begun => "pending ",
        ErasureStep::Done => "",
        ErasureStep::Undone => "undone ",
    };
    let mut list = OpenOptions::new().append(true).create(true).mode(0o600).open(data_dir.join(ERASURES))?;
    // The line before may have been cut off.
    list.write_all(format!("\n{word}{} {user}\n", now.to_wire()).as_bytes())?;
    list.sync_data()
}

/// The steps of a list, each with the word of its time.
fn steps(list: &str) -> impl Iterator<Item = (ErasureStep, &str, UserId)> {
    list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (step, time) = match words.next()? {
            "pending" => (ErasureStep::Begun, words.next()?),
            "undone" => (ErasureStep::Undone, words.next()?),
            time => (ErasureStep::Done, time),
        };
        Some((step, time, words.next()?.into()))
    })
}

/// The ids of a list whose erasure is committed.
pub fn ids(list: &str) -> Vec<UserId> {
    steps(list).filter_map(|(step, _, user)| (step == ErasureStep::Done).then_some(user)).collect()
}

/// The ids of a list that a person names, which may be another file; on failure, the line that is of no such list.
pub fn checked_ids(list: &str) -> Result<Vec<UserId>, String> {
    match list.lines().position(|line| !is_of_a_list(line)) {
        Some(before) => Err(format!("line {} is of no list of erasures, such as {ERASURES} of DATA_DIR", before + 1)),
        None => Ok(ids(list)),
    }
}

/// True if a note, or the begin of one that was cut off, is all that is in this line.
fn is_of_a_list(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let noted = match words.as_slice() {
        ["pending" | "undone", noted @ ..] => noted,
        noted => noted,
    };
    match noted {
        [] => true,
        [cut] => {
            let is_of_a_time = |character: char| character.is_ascii_digit() || "-:.TZ".contains(character);
            cut.chars().all(is_of_a_time) || ["pending", "undone"].iter().any(|word| word.starts_with(cut))
        }
        [time, _] => Timestamp::parse_rfc3339(time).is_some(),
        _ => false,
    }
}

fn open_erasures(list: &str) -> OpenErasures {
    let mut open = OpenErasures::new();
    for (step, time, user) in steps(list) {
        match step {
            ErasureStep::Begun => open.insert(user, Timestamp::parse_rfc3339(time)),
            ErasureStep::Done | ErasureStep::Undone => open.remove(&user),
        };
    }
    open
}

/// The users of these that the database has. `None`: it has no user at all, and may be another one than before.
pub fn present(db: &mut Db, asked: &[UserId]) -> Result<Option<BTreeSet<UserId>>, DbError> {
    // In a form that an index can serve.
    let first = users::table.select(users::id).filter(users::id.gt("")).order(users::id);
    if first.first::<String>(db).optional()?.is_none() {
        return Ok(None);
    }
    let mut present = BTreeSet::new();
    for some in asked.chunks(LOOKED_UP) {
        let ids: Vec<&str> = some.iter().map(UserId::as_str).collect();
        let found: Vec<String> = users::table.filter(users::id.eq_any(ids)).select(users::id).load(db)?;
        present.extend(found.iter().map(|id| UserId::from(id.as_str())));
    }
    Ok(Some(present))
}

/// Keeps the list whole while the service runs.
#[derive(Debug)]
pub struct ErasureNotes {
    /// The list may lack an erasure, or leave one open.
    is_behind: AtomicBool,
    /// Committed erasures that the disk did not take; no more than there are users.
    unlisted: Mutex<BTreeSet<UserId>>,
    /// Erasures of other nodes that are on the list, as of the last look.
    copied: Mutex<BTreeSet<UserId>>,
}

impl Default for ErasureNotes {
    fn default() -> Self {
        // The process before this one may have been killed.
        Self { is_behind: true.into(), unlisted: Mutex::default(), copied: Mutex::default() }
    }
}

impl ErasureNotes {
    /// Notes an erasure that is committed next.
    pub fn begin(&self, data_dir: &Path, user: &UserId, now: Timestamp) {
        self.is_behind.store(true, Ordering::Relaxed);
        if let Err(error) = note(data_dir, ErasureStep::Begun, user, now) {
            log::warn!(user:%; "an erasure begins, and {ERASURES} does not take it: {error}");
        }
    }

    /// Notes an erasure that is committed; if that fails, [`catch_up`](Self::catch_up) tries it again.
    pub fn end(&self, data_dir: &Path, user: &UserId, now: Timestamp) {
        // Before the lock, for which a probe may wait: a file system may hang.
        let noted = note(data_dir, ErasureStep::Done, user, now);
        let mut unlisted = self.unlisted();
        match noted {
            Ok(()) => {
                unlisted.remove(user);
            }
            Err(error) => {
                self.is_behind.store(true, Ordering::Relaxed);
                if unlisted.insert(user.clone()) {
                    log::error!(user:%; "an erasure is not on the list that restored backups are held against: {error}");
                }
            }
        }
    }

    fn unlisted(&self) -> MutexGuard<'_, BTreeSet<UserId>> {
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of committed erasures that are not on the list.
    pub fn count_unlisted(&self) -> usize {
        self.unlisted().len()
    }

    /// Notes what the disk did not take before, and reads what the list leaves open, unless nothing has changed. Blocks.
    pub fn catch_up(&self, data_dir: &Path, now: Timestamp) -> io::Result<OpenErasures> {
        if !self.is_behind.swap(false, Ordering::Relaxed) {
            return Ok(OpenErasures::new());
        }
        let unlisted = self.unlisted().clone();
        unlisted.iter().for_each(|user| self.end(data_dir, user, now));
        let open = text(data_dir).map(|list| open_erasures(&list));
        if !open.as_ref().is_ok_and(OpenErasures::is_empty) {
            // Until all of them are settled.
            self.is_behind.store(true, Ordering::Relaxed);
        }
        open
    }

    /// Notes the users among these, erased at any node, who are not on the list. Blocks.
    pub fn copy(&self, data_dir: &Path, erased: BTreeSet<UserId>, now: Timestamp) -> io::Result<()> {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        if !erased.is_subset(&copied) {
            let listed = BTreeSet::from_iter(read(data_dir)?);
            erased.difference(&listed).for_each(|user| self.end(data_dir, user, now));
        }
        *copied = erased;
        Ok(())
    }

    /// Notes how the open erasures ended, by the users who are in the database. Blocks.
    pub fn settle(&self, data_dir: &Path, open: &OpenErasures, present: &BTreeSet<UserId>, now: Timestamp) {
        for (user, began) in open {
            if !present.contains(user) {
                self.end(data_dir, user, now);
            } else if began.is_none_or(|began| now - began > LONGEST)
                && let Err(error) = note(data_dir, ErasureStep::Undone, user, now)
            {
                log::warn!(user:%; "an erasure that was not committed is not noted as such: {error}");
            }
        }
    }
}

/// Erasures of users that an older backup had brought back.
#[derive(Debug, Default)]
pub struct RepeatedErasures {
    /// Number of users.
    pub users: usize,
    /// Their paired servers.
    pub servers: BTreeSet<ServerId>,
}

/// Erases the users of the list that an older backup has brought back. Call it before
/// anybody is served.
pub fn apply(db: &mut Db, listed: &[UserId], now: Timestamp) -> Result<RepeatedErasures, DbError> {
    let mut erased = RepeatedErasures::default();
    for some in listed.chunks(LOOKED_UP) {
        let ids: Vec<&str> = some.iter().map(UserId::as_str).collect();
        let back: Vec<User> = users::table.filter(users::id.eq_any(ids)).select(User::as_select()).load(db)?;
        for user in back {
            let gone = db.transaction::<_, DbError, _>(|db| personal_data::erase(db, &user, now))?;
            erased.users += 1;
            erased.servers.extend(gone.servers);
        }
    }
    Ok(erased)
}

/// The list of this data directory; empty where there is none.
pub fn read(data_dir: &Path) -> io::Result<Vec<UserId>> {
    text(data_dir).map(|list| ids(&list))
}

fn text(data_dir: &Path) -> io::Result<String> {
    match fs::read_to_string(data_dir.join(ERASURES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{testing, users as accounts};

    #[test]
    fn users_on_the_list_are_erased_again_and_no_others() {
        testing::on_each_database(|pool| {
            let directory = tempfile::tempdir().unwrap();
            assert_eq!(read(directory.path()).unwrap(), []);
            for user in ["ann", "ben"] {
                testing::user(pool, user);
            }
            testing::server(pool, "ann", "server");
            // A line that was cut off names no user.
            fs::write(directory.path().join(ERASURES), "2026-11-25T17:00:00.000Z be").unwrap();
            for (step, user) in [
                (ErasureStep::Begun, "ben"),
                (ErasureStep::Done, "ann"),
                (ErasureStep::Undone, "ben"),
                (ErasureStep::Done, "gone"),
            ] {
                note(directory.path(), step, &user.into(), testing::now()).unwrap();
            }
            let listed = read(directory.path()).unwrap();
            assert_eq!(listed, ["be".into(), "ann".into(), "gone".into()]);
            let mut erased = Vec::new();
            for _ in 0..2 {
                erased.push(pool.write_blocking(|db| apply(db, &listed, testing::now())).unwrap().users);
            }
            assert_eq!(erased, [1, 0]);
            let known = |user: &str| pool.read_blocking(|db| accounts::find(db, &user.into())).unwrap().is_some();
            assert!(!known("ann") && known("ben"));
        });
    }

    #[test]
    fn a_file_that_is_no_list_is_refused_by_its_line() {
        let (time, list) = ("2026-11-25T17:00:00.000Z", tempfile::tempdir().unwrap());
        for step in [ErasureStep::Begun, ErasureStep::Undone, ErasureStep::Done] {
            note(list.path(), step, &"ann".into(), testing::now()).unwrap();
        }
        let noted = fs::read_to_string(list.path().join(ERASURES)).unwrap();
        for cut in ["", "pend", "undone", "2026-11", "pending 2026-11", time] {
            assert_eq!(checked_ids(&format!("{cut}{noted}")), Ok(vec!["ann".into()]), "{cut}");
        }
        for other in ["started", "started ann", "[info] ann", "pending ann", &format!("{time} ann left")] {
            let refused = checked_ids(&format!("{time} ben\n{other}\n"));
            assert!(refused.as_ref().is_err_and(|fault| fault.starts_with("line 2 ")), "{other}: {refused:?}");
        }
    }

    #[test]
    fn an_erasure_that_is_begun_is_settled_by_the_rows_of_its_user() {
        testing::on_each_database(|pool| {
            let directory = tempfile::tempdir().unwrap();
            let list = directory.path();
            let asked: Vec<UserId> = ["ann", "ben", "gone"].map(UserId::from).into();
            let present = || pool.read_blocking(|db| present(db, &asked)).unwrap();
            assert_eq!(present(), None, "a database without users settles nothing");
            for user in ["ann", "ben"] {
                testing::user(pool, user);
            }
            // The list keeps milliseconds.
            let began = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();
            let notes = ErasureNotes::default();
            asked.iter().for_each(|user| notes.begin(list, user, began));
            assert_eq!(read(list).unwrap(), [], "nothing of them is committed");
            notes.end(list, &"ben".into(), began);
            let open = notes.catch_up(list, began).unwrap();
            assert_eq!(open, [("ann".into(), Some(began)), ("gone".into(), Some(began))].into());
            notes.settle(list, &open, &present().unwrap(), began);
            assert_eq!(read(list).unwrap(), ["ben".into(), "gone".into()]);
            // The other one may still be under way.
            let open = notes.catch_up(list, began).unwrap();
            assert_eq!(open, [("ann".into(), Some(began))].into());
            let later = began.checked_add_signed(LONGEST + TimeDelta::seconds(1)).unwrap();
            notes.settle(list, &open, &present().unwrap(), later);
            assert_eq!(notes.catch_up(list, later).unwrap(), OpenErasures::new());
            assert_eq!(read(list).unwrap(), ["ben".into(), "gone".into()]);
            assert!(!notes.is_behind.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn erasures_of_other_nodes_are_noted_once() {
        let directory = tempfile::tempdir().unwrap();
        let (list, notes) = (directory.path(), ErasureNotes::default());
        notes.end(list, &"ann".into(), testing::now());
        for erased in [&["ann", "ben"][..], &["ann", "ben"], &[], &["ben", "eve"]] {
            notes.copy(list, erased.iter().map(|user| UserId::from(*user)).collect(), testing::now()).unwrap();
        }
        assert_eq!(read(list).unwrap(), ["ann".into(), "ben".into(), "eve".into()]);
    }

    #[test]
    fn an_erasure_that_the_disk_does_not_take_is_noted_later() {
        let directory = tempfile::tempdir().unwrap();
        let (list, notes) = (directory.path(), ErasureNotes::default());
        fs::create_dir(list.join(ERASURES)).unwrap();
        notes.begin(list, &"ann".into(), testing::now());
        notes.end(list, &"ann".into(), testing::now());
        assert!(notes.catch_up(list, testing::now()).is_err());
        assert_eq!(notes.count_unlisted(), 1);
        fs::remove_dir(list.join(ERASURES)).unwrap();
        assert_eq!(notes.catch_up(list, testing::now()).unwrap(), OpenErasures::new());
        assert_eq!(notes.count_unlisted(), 0);
        assert_eq!(read(list).unwrap(), ["ann".into()]);
    }
}
