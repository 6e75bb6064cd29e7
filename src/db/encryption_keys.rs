//! The keys that have sealed rows, by fingerprint, numbered in the order in which they were first used.

use diesel::prelude::*;

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        schema::encryption_keys,
    },
    domain::time::Timestamp,
};

/// The number of the key that the service now runs with: a new key gets the next one, and so does a key that is used
/// again after a newer one. So the key versions of rows only grow.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn take_into_use(db: &mut Db, fingerprint: &str, now: Timestamp) -> Result<i32, DbError> {
    loop {
        let next = match newest(db)? {
            Some((number, known)) if known == fingerprint => return Ok(number),
            Some((number, _)) => number + 1,
            None => 1,
        };
        diesel::delete(encryption_keys::table.filter(encryption_keys::fingerprint.eq(fingerprint))).execute(db)?;
        let row = (
            encryption_keys::number.eq(next),
            encryption_keys::fingerprint.eq(fingerprint),
            encryption_keys::first_seen_at.eq(now),
        );
        let insert = diesel::insert_into(encryption_keys::table).values(row).on_conflict_do_nothing();
        if on_backend!(db, |db| insert.execute(db))? == 1 {
            return Ok(next);
        }
        // Another process stored a key at the same moment; the next round reads it.
    }
}

/// The number and fingerprint of the key that was taken into use last; none in a database from which none has served.
pub fn newest(db: &mut Db) -> Result<Option<(i32, String)>, DbError> {
    let newest = encryption_keys::table
        .order(encryption_keys::number.desc())
        .select((encryption_keys::number, encryption_keys::fingerprint))
        .first(db)
        .optional()?;
    Ok(newest)
}

/// The number of the key with this fingerprint, if the service has run with it.
pub fn number(db: &mut Db, fingerprint: &str) -> Result<Option<i32>, DbError> {
    let number = encryption_keys::table
        .filter(encryption_keys::fingerprint.eq(fingerprint))
        .select(encryption_keys::number)
        .first(db)
        .optional()?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, now};

    #[test]
    fn keys_are_numbered_in_the_order_of_their_first_use() {
        testing::on_each_database(|pool| {
            assert_eq!(pool.read_blocking(newest).unwrap(), None);
            let take = |key: &str| pool.write_blocking(|db| take_into_use(db, key, now())).unwrap();
            assert_eq!([take("a"), take("a"), take("b"), take("b")], [1, 1, 2, 2]);
            // The older key again: a new generation.
            assert_eq!([take("a"), take("a")], [3, 3]);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| assert_eq!(take("d"), 4));
                }
            });
            let number = |key: &str| pool.read_blocking(|db| number(db, key)).unwrap();
            assert_eq!([number("a"), number("b"), number("c")], [Some(3), Some(2), None]);
        });
    }
}
