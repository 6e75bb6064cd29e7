//! The last bundle of each user that does not work, until a newer one does or its owner has seen it.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::push_refusals,
    },
    domain::{credential::RefusalReason, ids::UserId, time::Timestamp},
};

/// A bundle that does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRefusal {
    /// Identifies the bundle among those of its user.
    pub uploaded_at: Timestamp,
    /// The label of the helper device that uploaded it.
    pub uploaded_by: Option<String>,
    pub reason: RefusalReason,
    pub refused_at: Timestamp,
}

/// Stores that a bundle does not work, in place of an earlier one. What was dismissed stays so until another bundle is
/// refused. Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn put(db: &mut Db, user: &UserId, refusal: &PushRefusal) -> Result<(), DbError> {
    let row = push_refusals::table.find(user.as_str());
    let refused = (push_refusals::reason.eq(refusal.reason.word()), push_refusals::refused_at.eq(refusal.refused_at));
    let same = row.filter(push_refusals::uploaded_at.eq(refusal.uploaded_at));
    if diesel::update(same).set(refused).execute(db)? == 1 {
        return Ok(());
    }
    diesel::delete(row).execute(db)?;
    let new = (
        push_refusals::user_id.eq(user.as_str()),
        push_refusals::uploaded_at.eq(refusal.uploaded_at),
        push_refusals::uploaded_by.eq(&refusal.uploaded_by),
        push_refusals::dismissed.eq(false),
        refused,
    );
    diesel::insert_into(push_refusals::table).values(new).execute(db)?;
    Ok(())
}

/// The refusal that the user has not dismissed.
pub fn get(db: &mut Db, user: &UserId) -> Result<Option<PushRefusal>, DbError> {
    let row: Option<(Timestamp, Option<String>, String, Timestamp)> = push_refusals::table
        .find(user.as_str())
        .filter(diesel::dsl::not(push_refusals::dismissed))
        .select((
            push_refusals::uploaded_at,
            push_refusals::uploaded_by,
            push_refusals::reason,
            push_refusals::refused_at,
        ))
        .first(db)
        .optional()?;
    Ok(row.map(|(uploaded_at, uploaded_by, reason, refused_at)| PushRefusal {
        uploaded_at,
        uploaded_by,
        reason: RefusalReason::of(&reason),
        refused_at,
    }))
}

/// A bundle that was uploaded then works: what was refused before, or is the same, is settled. False when nothing was.
pub fn settle(db: &mut Db, user: &UserId, uploaded_at: Timestamp) -> Result<bool, DbError> {
    let row = push_refusals::table.find(user.as_str());
    Ok(diesel::delete(row.filter(push_refusals::uploaded_at.le(uploaded_at))).execute(db)? == 1)
}

/// The user has seen it; false when there is none to see.
pub fn dismiss(db: &mut Db, user: &UserId) -> Result<bool, DbError> {
    let row = push_refusals::table.find(user.as_str()).filter(diesel::dsl::not(push_refusals::dismissed));
    Ok(diesel::update(row).set(push_refusals::dismissed.eq(true)).execute(db)? == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        push_credentials::{self, SealedBundle},
        testing::{self, later, now},
    };

    fn refusal(uploaded: i64, refused: i64) -> PushRefusal {
        PushRefusal {
            uploaded_at: later(uploaded),
            uploaded_by: Some("PC".into()),
            reason: RefusalReason::UnusableBundle,
            refused_at: later(refused),
        }
    }

    fn with_credential(pool: &Pool) -> UserId {
        testing::user(pool, "user");
        let bundle = SealedBundle {
            sealed: b"sealed".into(),
            key_version: 1,
            uploaded_at: now(),
            uploaded_by: None,
            expires_at: now(),
        };
        pool.write_blocking(|db| push_credentials::upload(db, &"user".into(), &bundle)).unwrap();
        "user".into()
    }

    #[test]
    fn the_last_refusal_is_kept_until_a_bundle_that_is_not_older_works() {
        testing::on_each_database(|pool| {
            let user = with_credential(pool);
            let get = || pool.read_blocking(|db| get(db, &user)).unwrap();
            let put = |refusal| pool.write_blocking(|db| put(db, &user, &refusal)).unwrap();
            let settle = |uploaded| pool.write_blocking(|db| settle(db, &user, later(uploaded))).unwrap();
            assert_eq!(get(), None);
            put(refusal(10, 11));
            assert_eq!(get(), Some(refusal(10, 11)));
            put(refusal(20, 21));
            put(refusal(20, 30));
            assert_eq!(get(), Some(refusal(20, 30)));
            assert!(!settle(19));
            assert_eq!(get(), Some(refusal(20, 30)), "one in use that works settles nothing newer");
            assert!(settle(20) && !settle(20));
            assert_eq!(get(), None);
        });
    }

    #[test]
    fn what_is_dismissed_is_not_shown_again_and_goes_with_its_credential() {
        testing::on_each_database(|pool| {
            let user = with_credential(pool);
            let get = || pool.read_blocking(|db| get(db, &user)).unwrap();
            let put = |refusal| pool.write_blocking(|db| put(db, &user, &refusal)).unwrap();
            let dismiss = || pool.write_blocking(|db| dismiss(db, &user)).unwrap();
            assert!(!dismiss());
            put(refusal(10, 11));
            assert!(dismiss() && !dismiss());
            put(refusal(10, 3_600));
            assert_eq!(get(), None);
            put(refusal(20, 21));
            assert!(get().is_some(), "another bundle");
            pool.write_blocking(|db| push_credentials::delete(db, &user)).unwrap();
            assert_eq!(get(), None);
        });
    }
}
