//! Invitations that a user does not want: refused ones, by server, and those of inviters that the user blocks.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{blocked_inviters, refused_invites, users},
        users::{self as user_rows, User},
    },
    domain::{
        ids::{ServerId, UserId},
        limits::BLOCKED_INVITERS_PER_USER,
        time::Timestamp,
    },
};

/// The reason why no user was blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRefused {
    /// There is no such user, or it is the user themselves.
    Unknown,
    /// The user blocks [`BLOCKED_INVITERS_PER_USER`].
    Full,
}

/// Remembers that the user refuses invitations to this server.
pub fn refuse(db: &mut Db, user: &UserId, server: &ServerId, now: Timestamp) -> Result<(), DbError> {
    let row = (
        refused_invites::user_id.eq(user.as_str()),
        refused_invites::server_id.eq(server.as_str()),
        refused_invites::refused_at.eq(now),
    );
    let put = diesel::insert_into(refused_invites::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// Forgets that the user refused invitations to this server.
pub fn withdraw(db: &mut Db, user: &UserId, server: &ServerId) -> Result<(), DbError> {
    diesel::delete(refused_invites::table.find((user.as_str(), server.as_str()))).execute(db)?;
    Ok(())
}

/// Blocks the invitations of another user; a second time it changes nothing.
pub fn block(
    db: &mut Db,
    user: &UserId,
    blocked: &UserId,
    now: Timestamp,
) -> Result<Result<(), BlockRefused>, DbError> {
    if user == blocked || !user_rows::lock(db, user)? || user_rows::find(db, blocked)?.is_none() {
        return Ok(Err(BlockRefused::Unknown));
    }
    if is_blocked(db, user, blocked)? {
        return Ok(Ok(()));
    }
    let count: i64 =
        blocked_inviters::table.filter(blocked_inviters::user_id.eq(user.as_str())).count().get_result(db)?;
    if usize::try_from(count).unwrap_or(usize::MAX) >= BLOCKED_INVITERS_PER_USER {
        return Ok(Err(BlockRefused::Full));
    }
    let row = (
        blocked_inviters::user_id.eq(user.as_str()),
        blocked_inviters::blocked_user_id.eq(blocked.as_str()),
        blocked_inviters::blocked_at.eq(now),
    );
    diesel::insert_into(blocked_inviters::table).values(row).execute(db)?;
    Ok(Ok(()))
}

/// Ends a block; false when there was none.
pub fn unblock(db: &mut Db, user: &UserId, blocked: &UserId) -> Result<bool, DbError> {
    Ok(diesel::delete(blocked_inviters::table.find((user.as_str(), blocked.as_str()))).execute(db)? == 1)
}

/// True when the user blocks the invitations of the other.
pub fn is_blocked(db: &mut Db, user: &UserId, other: &UserId) -> Result<bool, DbError> {
    let row = blocked_inviters::table.find((user.as_str(), other.as_str())).select(blocked_inviters::user_id);
    Ok(row.first::<String>(db).optional()?.is_some())
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = blocked_inviters)]
pub(in crate::db) struct BlockRow {
    blocked_at: Timestamp,
}

/// The users whose invitations this user blocks and since when, the latest first.
pub fn blocked(db: &mut Db, user: &UserId) -> Result<Vec<(User, Timestamp)>, DbError> {
    let rows: Vec<(User, BlockRow)> = blocked_inviters::table
        .filter(blocked_inviters::user_id.eq(user.as_str()))
        .inner_join(users::table)
        .order((blocked_inviters::blocked_at.desc(), blocked_inviters::blocked_user_id.desc()))
        .select((User::as_select(), BlockRow::as_select()))
        .load(db)?;
    Ok(rows.into_iter().map(|(user, BlockRow { blocked_at })| (user, blocked_at)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn a_user_blocks_a_limited_number_of_inviters_each_once() {
        testing::on_each_database(|pool| {
            for user in ["user", "other"] {
                testing::user(pool, user);
            }
            let block =
                |blocked: &str, at| pool.write_blocking(|db| block(db, &"user".into(), &blocked.into(), at)).unwrap();
            let listed = || pool.read_blocking(|db| blocked(db, &"user".into())).unwrap();
            for unknown in ["user", "stranger"] {
                assert_eq!(block(unknown, now()), Err(BlockRefused::Unknown), "{unknown}");
            }
            assert_eq!((block("other", now()), block("other", later(5))), (Ok(()), Ok(())));
            assert_eq!(
                listed().iter().map(|(user, at)| (user.id.as_str(), *at)).collect::<Vec<_>>(),
                [("other", now())]
            );
            let is_blocked =
                |user: &str, other: &str| pool.read_blocking(|db| is_blocked(db, &user.into(), &other.into())).unwrap();
            assert_eq!([is_blocked("user", "other"), is_blocked("other", "user")], [true, false]);
            for number in 1..BLOCKED_INVITERS_PER_USER {
                testing::user(pool, &format!("inviter {number}"));
                assert_eq!(block(&format!("inviter {number}"), later(10)), Ok(()));
            }
            testing::user(pool, "one more");
            assert_eq!(block("one more", later(20)), Err(BlockRefused::Full));
            assert_eq!(block("other", later(20)), Ok(()), "it is there");
            let unblock = || pool.write_blocking(|db| unblock(db, &"user".into(), &"other".into())).unwrap();
            assert_eq!((unblock(), unblock(), is_blocked("user", "other")), (true, false, false));
            assert_eq!(block("one more", later(20)), Ok(()));
            assert_eq!(listed()[0].0.id.as_str(), "one more");
        });
    }
}
