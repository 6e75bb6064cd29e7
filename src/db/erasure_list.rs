//! Users who have erased themselves, by their ids, in a file of the data directory: outside of the database, so that
//! they stay erased when an older backup of it is restored. An id says nothing of a user whose rows are gone.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use diesel::prelude::*;

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
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

/// Notes an erasure that is committed, and waits until it is on disk.
pub fn note(data_dir: &Path, user: &UserId, now: Timestamp) -> io::Result<()> {
    let mut list = OpenOptions::new().append(true).create(true).mode(0o600).open(data_dir.join(ERASURES))?;
    // A line of before may have been cut off.
    list.write_all(format!("\n{} {user}\n", now.to_wire()).as_bytes())?;
    list.sync_data()
}

/// The ids of a list: the second word of each line.
pub fn ids(list: &str) -> Vec<UserId> {
    list.lines().filter_map(|line| line.split_whitespace().nth(1)).map(UserId::from).collect()
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
    match fs::read_to_string(data_dir.join(ERASURES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => Ok(ids(&read?)),
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
            note(directory.path(), &"ann".into(), testing::now()).unwrap();
            note(directory.path(), &"gone".into(), testing::now()).unwrap();
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
}
