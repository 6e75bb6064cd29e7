//! Pushes that could not be handled, by their own fault: how often so far, in all sessions. One that was given up is a
//! dead letter; it is kept for the operator and never handled again.

use chrono::Duration;
use diesel::dsl::count_star;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::failed_pushes,
    },
    domain::{
        ids::UserId,
        limits::{DEAD_LETTERS_PER_USER, HISTORY_DAYS},
        time::Timestamp,
    },
};

/// A push that could not be stored by its own fault, with the number of attempts.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = failed_pushes)]
pub struct FailedPush {
    #[diesel(deserialize_as = String)]
    pub user_id: UserId,
    /// The push service's persistent id, or a digest of the push.
    pub push_id: String,
    pub attempts: i32,
    /// Reason of the last failure, in a fixed word.
    pub reason: String,
    /// Content of the push, without secrets.
    pub content: String,
    pub failed_at: Timestamp,
}

/// Counts one more failure of this push; returns how many there are.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn count(db: &mut Db, user: &UserId, push_id: &str, reason: &str, now: Timestamp) -> Result<i32, DbError> {
    let row = failed_pushes::table.find((user.as_str(), push_id));
    let failure = (failed_pushes::reason.eq(reason), failed_pushes::failed_at.eq(now));
    let again = (failed_pushes::attempts.eq(failed_pushes::attempts + 1), failure);
    if diesel::update(row).set(again).execute(db)? == 0 {
        let first = (
            failed_pushes::user_id.eq(user.as_str()),
            failed_pushes::push_id.eq(push_id),
            failed_pushes::attempts.eq(1),
            failed_pushes::content.eq(""),
            failed_pushes::dead.eq(false),
            failure,
        );
        diesel::insert_into(failed_pushes::table).values(first).execute(db)?;
    }
    Ok(row.select(failed_pushes::attempts).first(db)?)
}

/// Makes a dead letter of a push that failed. Only the newest [`DEAD_LETTERS_PER_USER`] are kept.
pub fn give_up(db: &mut Db, user: &UserId, push_id: &str, content: &str) -> Result<(), DbError> {
    let row = failed_pushes::table.find((user.as_str(), push_id));
    diesel::update(row).set((failed_pushes::dead.eq(true), failed_pushes::content.eq(content))).execute(db)?;
    let surplus: Vec<String> = failed_pushes::table
        .filter(failed_pushes::user_id.eq(user.as_str()))
        .filter(failed_pushes::dead)
        .order((failed_pushes::failed_at.desc(), failed_pushes::push_id.desc()))
        .offset(DEAD_LETTERS_PER_USER as i64)
        .limit(DEAD_LETTERS_PER_USER as i64)
        .select(failed_pushes::push_id)
        .load(db)?;
    for id in surplus {
        diesel::delete(failed_pushes::table.find((user.as_str(), id))).execute(db)?;
    }
    Ok(())
}

/// Number of dead letters, and the newest `limit` of them.
pub fn dead_letters(db: &mut Db, limit: usize) -> Result<(i64, Vec<FailedPush>), DbError> {
    let dead = || failed_pushes::table.filter(failed_pushes::dead);
    let newest = dead()
        .order((failed_pushes::failed_at.desc(), failed_pushes::push_id.desc()))
        .limit(limit as i64)
        .select(FailedPush::as_select())
        .load(db)?;
    Ok((dead().select(count_star()).first(db)?, newest))
}

/// Deletes what last failed more than [`HISTORY_DAYS`] ago; returns how many.
pub fn purge(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, failed_pushes, failed_at, now - Duration::days(HISTORY_DAYS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn failures_are_counted_and_a_push_that_is_given_up_is_listed_until_it_is_history() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            testing::user(pool, "other");
            let count = |user: &str, id: &str, reason: &str, at| {
                pool.write_blocking(|db| count(db, &user.into(), id, reason, at)).unwrap()
            };
            assert_eq!((count("user", "0:1", "conflict", now()), count("user", "0:1", "panicked", later(1))), (1, 2));
            assert_eq!((count("user", "0:2", "conflict", now()), count("other", "0:1", "conflict", now())), (1, 1));
            let dead = || pool.read_blocking(|db| dead_letters(db, 10)).unwrap();
            assert_eq!(dead(), (0, vec![]));
            pool.write_blocking(|db| give_up(db, &"user".into(), "0:1", "a raid")).unwrap();
            let expected = FailedPush {
                user_id: "user".into(),
                push_id: "0:1".into(),
                attempts: 2,
                reason: "panicked".into(),
                content: "a raid".into(),
                failed_at: later(1),
            };
            assert_eq!(dead(), (1, vec![expected]));

            let purge = |at| pool.write_blocking(|db| purge(db, at)).unwrap();
            assert_eq!(purge(later(-1) + Duration::days(HISTORY_DAYS)), 0);
            assert_eq!(purge(now() + Duration::days(HISTORY_DAYS)), 2);
            assert_eq!(dead().0, 1);
            assert_eq!((purge(later(1) + Duration::days(HISTORY_DAYS)), dead().0), (1, 0));
        });
    }

    #[test]
    fn the_newest_dead_letters_of_a_user_are_kept() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            pool.write_blocking(|db| {
                for second in 0..DEAD_LETTERS_PER_USER as i64 + 3 {
                    count(db, &"user".into(), &second.to_string(), "conflict", later(second))?;
                    give_up(db, &"user".into(), &second.to_string(), "")?;
                }
                Ok(())
            })
            .unwrap();
            let (kept, newest) = pool.read_blocking(|db| dead_letters(db, 1)).unwrap();
            assert_eq!((kept, newest[0].push_id.as_str()), (DEAD_LETTERS_PER_USER as i64, "102"));
        });
    }
}
