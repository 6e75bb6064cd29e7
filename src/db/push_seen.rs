//! Push messages already received, by the push service's persistent id, so that none is handled twice.

use chrono::Duration;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::push_seen,
    },
    domain::{
        ids::UserId,
        limits::{PUSH_SEEN_DAYS, PUSH_SEEN_PER_USER},
        time::Timestamp,
    },
};

/// Stores the message's id; false when it was received before. Only the newest [`PUSH_SEEN_PER_USER`] are kept.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn insert(db: &mut Db, user: &UserId, persistent_id: &str, now: Timestamp) -> Result<bool, DbError> {
    let row = (
        push_seen::user_id.eq(user.as_str()),
        push_seen::persistent_id.eq(persistent_id),
        push_seen::received_at.eq(now),
    );
    let insert = diesel::insert_into(push_seen::table).values(row).on_conflict_do_nothing();
    if on_backend!(db, |db| insert.execute(db))? == 0 {
        return Ok(false);
    }
    let surplus: Vec<String> = newest_first(user)
        .offset(PUSH_SEEN_PER_USER as i64)
        .limit(PUSH_SEEN_PER_USER as i64)
        .select(push_seen::persistent_id)
        .load(db)?;
    for id in surplus {
        diesel::delete(push_seen::table.find((user.as_str(), id))).execute(db)?;
    }
    Ok(true)
}

/// The ids to send to the push service at login, newest first, at most [`PUSH_SEEN_PER_USER`].
pub fn list(db: &mut Db, user: &UserId) -> Result<Vec<String>, DbError> {
    Ok(newest_first(user).limit(PUSH_SEEN_PER_USER as i64).select(push_seen::persistent_id).load(db)?)
}

/// Deletes a batch of the messages that are [`PUSH_SEEN_DAYS`] old; returns how many.
pub fn purge(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, push_seen, received_at, now - Duration::days(PUSH_SEEN_DAYS)))
}

#[diesel::dsl::auto_type(no_type_alias)]
fn newest_first<'a>(user: &'a UserId) -> _ {
    let user: &'a str = user.as_str();
    push_seen::table
        .filter(push_seen::user_id.eq(user))
        .order((push_seen::received_at.desc(), push_seen::persistent_id.desc()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn a_message_is_new_once_per_user() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            testing::user(pool, "other");
            let insert = |user: &str, id: &str, at| pool.write_blocking(|db| insert(db, &user.into(), id, at)).unwrap();
            assert!(insert("user", "0:1", now()));
            assert!(!insert("user", "0:1", later(1)));
            assert!(insert("other", "0:1", now()));
            assert!(insert("user", "0:2", later(1)));
            assert_eq!(pool.read_blocking(|db| list(db, &"user".into())).unwrap(), ["0:2", "0:1"]);

            let purge = |at| pool.write_blocking(|db| purge(db, at)).unwrap();
            assert_eq!(purge(later(-1) + Duration::days(PUSH_SEEN_DAYS)), 0);
            assert_eq!(purge(now() + Duration::days(PUSH_SEEN_DAYS)), 2);
            assert_eq!(pool.read_blocking(|db| list(db, &"user".into())).unwrap(), ["0:2"]);
        });
    }

    #[test]
    fn the_newest_thousand_are_kept() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            pool.write_blocking(|db| {
                for second in 0..PUSH_SEEN_PER_USER as i64 + 3 {
                    assert!(insert(db, &"user".into(), &second.to_string(), later(second))?);
                }
                Ok(())
            })
            .unwrap();
            let kept: i64 = pool.read_blocking(|db| Ok(push_seen::table.count().get_result(db)?)).unwrap();
            assert_eq!(kept, PUSH_SEEN_PER_USER as i64);
            let list = pool.read_blocking(|db| list(db, &"user".into())).unwrap();
            assert_eq!((list[0].as_str(), list.last().unwrap().as_str()), ("1002", "3"));
        });
    }
}
