//! Which account of the chat platform is whose, and the codes that link one; expired codes stay until they are purged.

use std::collections::BTreeSet;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{chat_link_codes, chat_links},
    },
    domain::{
        bot::chat_link::LIFETIME,
        ids::{ChatUserId, UserId},
        time::Timestamp,
    },
};

/// Gives this account a code with this hash, in place of one that it has. `Conflict` if another account has the same.
pub fn issue(db: &mut Db, account: &ChatUserId, code_hash: &str, now: Timestamp) -> Result<(), DbError> {
    let given = (chat_link_codes::code_hash.eq(code_hash), chat_link_codes::expires_at.eq(now + LIFETIME));
    let issue = diesel::insert_into(chat_link_codes::table)
        .values((chat_link_codes::chat_user_id.eq(account.as_str()), given))
        .on_conflict(chat_link_codes::chat_user_id)
        .do_update()
        .set(given);
    on_backend!(db, |db| issue.execute(db))?;
    Ok(())
}

/// Deletes the code and returns the account that it was given to; `None` when it was used or has expired.
pub fn take(db: &mut Db, code_hash: &str, now: Timestamp) -> Result<Option<ChatUserId>, DbError> {
    let code = chat_link_codes::table
        .filter(chat_link_codes::code_hash.eq(code_hash))
        .filter(chat_link_codes::expires_at.gt(now));
    let taken: Option<String> =
        diesel::delete(code).returning(chat_link_codes::chat_user_id).get_result(db).optional()?;
    Ok(taken.map(ChatUserId::from))
}

/// Links this account with the user, in place of one that the user has. `Conflict` if the account is another user's.
pub fn link(db: &mut Db, user: &UserId, account: &ChatUserId, now: Timestamp) -> Result<(), DbError> {
    let given = (chat_links::chat_user_id.eq(account.as_str()), chat_links::linked_at.eq(now));
    let link = diesel::insert_into(chat_links::table)
        .values((chat_links::user_id.eq(user.as_str()), given))
        .on_conflict(chat_links::user_id)
        .do_update()
        .set(given);
    on_backend!(db, |db| link.execute(db))?;
    Ok(())
}

/// The user whose account this is.
pub fn user_of(db: &mut Db, account: &ChatUserId) -> Result<Option<UserId>, DbError> {
    let user = chat_links::table.filter(chat_links::chat_user_id.eq(account.as_str())).select(chat_links::user_id);
    Ok(user.first::<String>(db).optional()?.map(UserId::from))
}

/// The users among these who have linked an account.
pub fn linked(db: &mut Db, users: &[UserId]) -> Result<BTreeSet<UserId>, DbError> {
    let users = users.iter().map(UserId::as_str);
    let linked: Vec<String> =
        chat_links::table.filter(chat_links::user_id.eq_any(users)).select(chat_links::user_id).load(db)?;
    Ok(linked.into_iter().map(UserId::from).collect())
}

/// Number of users who have linked an account.
pub fn count(db: &mut Db) -> Result<i64, DbError> {
    Ok(chat_links::table.count().get_result(db)?)
}

/// Ends the user's link; false when there was none.
pub fn unlink(db: &mut Db, user: &UserId) -> Result<bool, DbError> {
    Ok(diesel::delete(chat_links::table.find(user.as_str())).execute(db)? == 1)
}

/// Deletes a batch of the codes that have expired; returns how many.
pub fn purge(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, chat_link_codes, expires_at, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later, now},
    };

    fn issue_at(pool: &Pool, account: &str, hash: &str, at: Timestamp) {
        pool.write_blocking(|db| issue(db, &account.into(), hash, at)).unwrap();
    }

    fn take_at(pool: &Pool, hash: &str, at: Timestamp) -> Option<ChatUserId> {
        pool.write_blocking(|db| take(db, hash, at)).unwrap()
    }

    #[test]
    fn an_account_has_one_code_that_works_once_and_for_ten_minutes() {
        testing::on_each_database(|pool| {
            issue_at(pool, "7", "first", now());
            issue_at(pool, "7", "second", now());
            issue_at(pool, "8", "third", later(1));
            assert_eq!(take_at(pool, "first", now()), None, "replaced");
            assert_eq!(take_at(pool, "second", later(599)), Some("7".into()));
            assert_eq!(take_at(pool, "second", later(599)), None, "used");
            assert_eq!(take_at(pool, "third", later(601)), None, "expired");
            let purge = |at| pool.write_blocking(|db| purge(db, at)).unwrap();
            assert_eq!((purge(later(600)), purge(later(601))), (0, 1));
        });
    }

    #[test]
    fn an_account_is_of_one_user_and_a_user_has_one_account() {
        testing::on_each_database(|pool| {
            for user in ["ada", "bob", "eve"] {
                testing::user(pool, user);
            }
            let link =
                |user: &str, account: &str| pool.write_blocking(|db| link(db, &user.into(), &account.into(), now()));
            let user_of = |account: &str| pool.read_blocking(|db| user_of(db, &account.into())).unwrap();
            link("ada", "7").unwrap();
            link("ada", "7").unwrap();
            assert!(matches!(link("bob", "7"), Err(DbError::Conflict)));
            link("ada", "8").unwrap();
            assert_eq!((user_of("7"), user_of("8")), (None, Some("ada".into())), "the newest");
            link("bob", "7").unwrap();
            let linked = || {
                let all: Vec<UserId> = ["eve", "bob", "ada", "stranger"].map(UserId::from).into();
                pool.read_blocking(|db| linked(db, &all)).unwrap()
            };
            assert_eq!(linked(), ["ada", "bob"].map(UserId::from).into());
            assert_eq!(pool.read_blocking(count).unwrap(), 2);
            let unlink = |user: &str| pool.write_blocking(|db| unlink(db, &user.into())).unwrap();
            assert!(unlink("ada") && !unlink("ada"));
            assert_eq!((user_of("8"), linked()), (None, ["bob".into()].into()));
        });
    }
}
