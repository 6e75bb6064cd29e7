//! Sign-ins that have begun at the identity provider: each may return once.

use chrono::Duration;
use diesel::prelude::*;

use crate::{
    db::{error::DbError, pool::Db, schema::sign_in_attempts},
    domain::time::Timestamp,
};

/// How long a sign-in at the provider may last.
pub const LIFETIME: Duration = Duration::minutes(10);

/// Stores an attempt: the hash of its random state, and the checked URL to which the browser goes afterwards.
pub fn insert(db: &mut Db, state_hash: &str, return_target: &str, now: Timestamp) -> Result<(), DbError> {
    diesel::insert_into(sign_in_attempts::table)
        .values((
            sign_in_attempts::state_hash.eq(state_hash),
            sign_in_attempts::return_target.eq(return_target),
            sign_in_attempts::expires_at.eq((now + LIFETIME).naive_utc()),
        ))
        .execute(db)?;
    Ok(())
}

/// Deletes the attempt and gives its return target; `None` when it was used or has expired.
pub fn take(db: &mut Db, state_hash: &str, now: Timestamp) -> Result<Option<String>, DbError> {
    let attempt = sign_in_attempts::table.find(state_hash).filter(sign_in_attempts::expires_at.gt(now.naive_utc()));
    let target = diesel::delete(attempt).returning(sign_in_attempts::return_target).get_result(db).optional()?;
    Ok(target)
}

/// Deletes the attempts that have expired; returns how many.
pub fn purge(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    let over = sign_in_attempts::expires_at.le(now.naive_utc());
    Ok(diesel::delete(sign_in_attempts::table.filter(over)).execute(db)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, now};

    #[test]
    fn an_attempt_returns_once_and_within_ten_minutes() {
        testing::on_each_database(|pool| {
            let insert = |hash: &str| {
                pool.write_blocking(|db| insert(db, hash, "https://app.test", now())).unwrap();
            };
            let take = |hash: &str, at| pool.write_blocking(|db| take(db, hash, at)).unwrap();
            insert("one");
            insert("two");
            assert_eq!(take("one", now()).as_deref(), Some("https://app.test"));
            assert_eq!(take("one", now()), None);
            assert_eq!(take("two", now() + LIFETIME), None);
            assert_eq!(pool.write_blocking(|db| purge(db, now())).unwrap(), 0);
            assert_eq!(pool.write_blocking(|db| purge(db, now() + LIFETIME)).unwrap(), 1);
        });
    }
}
