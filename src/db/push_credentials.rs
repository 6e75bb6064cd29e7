//! Push credentials: per user the bundle in use and, beside a proven one, the newer upload that has yet to prove
//! itself. Both stay sealed here, for (`push_credentials`, `sealed`, the user's id), so that one can replace
//! the other.

use chrono::Duration;
use diesel::dsl::exists;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::push_credentials,
    },
    domain::{
        credential::{SAID_AFTER, WARN_BEFORE},
        ids::UserId,
        time::Timestamp,
    },
};

/// A user's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushCredential {
    pub user_id: UserId,
    pub in_use: SealedBundle,
    /// When the bundle in use last logged in; `None`: not yet.
    pub proven_at: Option<Timestamp>,
    pub staged: Option<SealedBundle>,
}

impl PushCredential {
    /// True while the bundle that was uploaded then is in use or staged.
    pub fn has(&self, uploaded_at: Option<Timestamp>) -> bool {
        let known = [Some(&self.in_use), self.staged.as_ref()];
        known.into_iter().flatten().any(|bundle| Some(bundle.uploaded_at) == uploaded_at)
    }
}

/// One of the two bundles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedBundle {
    pub sealed: Vec<u8>,
    /// The number of the key that sealed it.
    pub key_version: i32,
    /// Different for every bundle of a user.
    pub uploaded_at: Timestamp,
    /// The label that its helper device had.
    pub uploaded_by: Option<String>,
    pub expires_at: Timestamp,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    InUse,
    Staged,
}

impl PushCredential {
    /// The bundle in this slot.
    pub fn bundle(&self, slot: Slot) -> Option<&SealedBundle> {
        match slot {
            Slot::InUse => Some(&self.in_use),
            Slot::Staged => self.staged.as_ref(),
        }
    }
}

/// The row as it is stored; the staged columns are all null or none.
#[derive(Queryable, Selectable)]
#[diesel(table_name = push_credentials)]
pub(in crate::db) struct CredentialRow {
    #[diesel(deserialize_as = String)]
    user_id: UserId,
    sealed: Vec<u8>,
    key_version: i32,
    uploaded_at: Timestamp,
    uploaded_by: Option<String>,
    expires_at: Timestamp,
    proven_at: Option<Timestamp>,
    staged_sealed: Option<Vec<u8>>,
    staged_key_version: Option<i32>,
    staged_uploaded_at: Option<Timestamp>,
    staged_uploaded_by: Option<String>,
    staged_expires_at: Option<Timestamp>,
}

impl From<CredentialRow> for PushCredential {
    fn from(row: CredentialRow) -> Self {
        let staged = || {
            Some(SealedBundle {
                sealed: row.staged_sealed?,
                key_version: row.staged_key_version?,
                uploaded_at: row.staged_uploaded_at?,
                uploaded_by: row.staged_uploaded_by,
                expires_at: row.staged_expires_at?,
            })
        };
        Self {
            user_id: row.user_id,
            in_use: SealedBundle {
                sealed: row.sealed,
                key_version: row.key_version,
                uploaded_at: row.uploaded_at,
                uploaded_by: row.uploaded_by,
                expires_at: row.expires_at,
            },
            proven_at: row.proven_at,
            staged: staged(),
        }
    }
}

/// Clears the staged slot.
#[derive(AsChangeset, Default)]
#[diesel(table_name = push_credentials, treat_none_as_null = true)]
struct NothingStaged {
    staged_sealed: Option<Vec<u8>>,
    staged_key_version: Option<i32>,
    staged_uploaded_at: Option<Timestamp>,
    staged_uploaded_by: Option<String>,
    staged_expires_at: Option<Timestamp>,
}

/// Stores an upload: beside a bundle that has proven itself it is staged, otherwise it replaces what is stored.
/// Returns the slot, and the time of the upload as stored (later by a microsecond when another one had the same).
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn upload(db: &mut Db, user: &UserId, bundle: &SealedBundle) -> Result<(Slot, Timestamp), DbError> {
    let first = (
        push_credentials::user_id.eq(user.as_str()),
        push_credentials::sealed.eq(&bundle.sealed),
        push_credentials::key_version.eq(bundle.key_version),
        push_credentials::uploaded_at.eq(bundle.uploaded_at),
        push_credentials::uploaded_by.eq(&bundle.uploaded_by),
        push_credentials::expires_at.eq(bundle.expires_at),
    );
    let insert = diesel::insert_into(push_credentials::table).values(first).on_conflict_do_nothing();
    if on_backend!(db, |db| insert.execute(db))? == 1 {
        return Ok((Slot::InUse, bundle.uploaded_at));
    }
    let row = push_credentials::table.find(user.as_str());
    // Locks the row: it cannot be proven or promoted between being read and being written.
    diesel::update(row).set(push_credentials::user_id.eq(push_credentials::user_id)).execute(db)?;
    let known = get(db, user)?.ok_or(DbError::Conflict)?;
    let newest =
        known.staged.as_ref().map_or(known.in_use.uploaded_at, |s| s.uploaded_at.max(known.in_use.uploaded_at));
    let uploaded_at = bundle.uploaded_at.max(newest + Duration::microseconds(1));
    if known.proven_at.is_some() {
        let staged = (
            push_credentials::staged_sealed.eq(&bundle.sealed),
            push_credentials::staged_key_version.eq(bundle.key_version),
            push_credentials::staged_uploaded_at.eq(uploaded_at),
            push_credentials::staged_uploaded_by.eq(&bundle.uploaded_by),
            push_credentials::staged_expires_at.eq(bundle.expires_at),
        );
        diesel::update(row).set(staged).execute(db)?;
        return Ok((Slot::Staged, uploaded_at));
    }
    let replaced = (
        push_credentials::sealed.eq(&bundle.sealed),
        push_credentials::key_version.eq(bundle.key_version),
        push_credentials::uploaded_at.eq(uploaded_at),
        push_credentials::uploaded_by.eq(&bundle.uploaded_by),
        push_credentials::expires_at.eq(bundle.expires_at),
        push_credentials::warn_at.eq(None::<Timestamp>),
        NothingStaged::default(),
    );
    diesel::update(row).set(replaced).execute(db)?;
    Ok((Slot::InUse, uploaded_at))
}

/// The user's credential.
pub fn get(db: &mut Db, user: &UserId) -> Result<Option<PushCredential>, DbError> {
    let row = push_credentials::table.find(user.as_str()).select(CredentialRow::as_select()).first(db).optional()?;
    Ok(row.map(PushCredential::from))
}

/// All users that have a credential.
pub fn list_users(db: &mut Db) -> Result<Vec<UserId>, DbError> {
    let users: Vec<String> =
        push_credentials::table.order(push_credentials::user_id).select(push_credentials::user_id).load(db)?;
    Ok(users.into_iter().map(UserId::from).collect())
}

/// All users that have a credential, and when each has uploaded the newest bundle of it.
pub fn list_uploads(db: &mut Db) -> Result<Vec<(UserId, Timestamp)>, DbError> {
    let columns = (push_credentials::user_id, push_credentials::uploaded_at, push_credentials::staged_uploaded_at);
    let rows: Vec<(String, Timestamp, Option<Timestamp>)> = push_credentials::table.select(columns).load(db)?;
    let newest = |(user, in_use, staged): (String, Timestamp, Option<Timestamp>)| {
        (user.into(), staged.map_or(in_use, |staged| staged.max(in_use)))
    };
    Ok(rows.into_iter().map(newest).collect())
}

/// Deletes both bundles; false when there was none.
pub fn delete(db: &mut Db, user: &UserId) -> Result<bool, DbError> {
    Ok(diesel::delete(push_credentials::table.find(user.as_str())).execute(db)? == 1)
}

/// Stores that the bundle in use, uploaded then, has logged in; false when it is no longer the one in use.
pub fn mark_proven(db: &mut Db, user: &UserId, uploaded_at: Timestamp, now: Timestamp) -> Result<bool, DbError> {
    let row = push_credentials::table.find(user.as_str()).filter(push_credentials::uploaded_at.eq(uploaded_at));
    Ok(diesel::update(row).set(push_credentials::proven_at.eq(now)).execute(db)? == 1)
}

/// Moves the end of the bundle that was uploaded then, in either slot; false when there is none.
pub fn extend(db: &mut Db, user: &UserId, uploaded_at: Timestamp, expires_at: Timestamp) -> Result<bool, DbError> {
    let row = push_credentials::table.find(user.as_str());
    let in_use = row.filter(push_credentials::uploaded_at.eq(uploaded_at));
    let staged = row.filter(push_credentials::staged_uploaded_at.eq(uploaded_at));
    let moved = (push_credentials::expires_at.eq(expires_at), push_credentials::warn_at.eq(None::<Timestamp>));
    let extended = diesel::update(in_use).set(moved).execute(db)?
        + diesel::update(staged).set(push_credentials::staged_expires_at.eq(expires_at)).execute(db)?;
    Ok(extended > 0)
}

/// Puts the staged bundle, uploaded then, into use, because it has logged in. False when it is no longer the one
/// staged.
pub fn promote_staged(db: &mut Db, user: &UserId, uploaded_at: Timestamp, now: Timestamp) -> Result<bool, DbError> {
    let row = push_credentials::table.find(user.as_str()).filter(push_credentials::staged_uploaded_at.eq(uploaded_at));
    // The right-hand sides are the values before the update.
    let promoted = (
        push_credentials::sealed.eq(push_credentials::staged_sealed.assume_not_null()),
        push_credentials::key_version.eq(push_credentials::staged_key_version.assume_not_null()),
        push_credentials::uploaded_at.eq(push_credentials::staged_uploaded_at.assume_not_null()),
        push_credentials::uploaded_by.eq(push_credentials::staged_uploaded_by),
        push_credentials::expires_at.eq(push_credentials::staged_expires_at.assume_not_null()),
        push_credentials::proven_at.eq(now),
        push_credentials::warn_at.eq(None::<Timestamp>),
        NothingStaged::default(),
    );
    Ok(diesel::update(row).set(promoted).execute(db)? == 1)
}

/// Deletes the staged bundle, uploaded then, because it does not work; the one in use stays. False when it is no longer
/// the one staged.
pub fn drop_staged(db: &mut Db, user: &UserId, uploaded_at: Timestamp) -> Result<bool, DbError> {
    let row = push_credentials::table.find(user.as_str()).filter(push_credentials::staged_uploaded_at.eq(uploaded_at));
    Ok(diesel::update(row).set(NothingStaged::default()).execute(db)? == 1)
}

/// Stores the same bundle, sealed again, unless the slot no longer holds `before`: then another writer was faster, and
/// the answer is false.
pub fn replace_sealed(
    db: &mut Db,
    user: &UserId,
    slot: Slot,
    before: &[u8],
    after: &[u8],
    key_version: i32,
) -> Result<bool, DbError> {
    let row = push_credentials::table.find(user.as_str());
    let replaced = match slot {
        Slot::InUse => diesel::update(row.filter(push_credentials::sealed.eq(before)))
            .set((push_credentials::sealed.eq(after), push_credentials::key_version.eq(key_version)))
            .execute(db)?,
        Slot::Staged => diesel::update(row.filter(push_credentials::staged_sealed.eq(before)))
            .set((push_credentials::staged_sealed.eq(after), push_credentials::staged_key_version.eq(key_version)))
            .execute(db)?,
    };
    Ok(replaced == 1)
}

/// Users who are to be warned now of the end of their bundle in use, with that end, the soonest first, at most `limit`.
pub fn list_to_warn(db: &mut Db, now: Timestamp, limit: i64) -> Result<Vec<(UserId, Timestamp)>, DbError> {
    let is_due = push_credentials::warn_at.is_null().or(push_credentials::warn_at.le(now));
    let ends = push_credentials::table
        .filter(push_credentials::expires_at.gt(now - SAID_AFTER))
        .filter(push_credentials::expires_at.le(now + WARN_BEFORE))
        .filter(is_due)
        .order(push_credentials::expires_at)
        .limit(limit);
    let users: Vec<(String, Timestamp)> =
        ends.select((push_credentials::user_id, push_credentials::expires_at)).load(db)?;
    Ok(users.into_iter().map(|(user, expires_at)| (user.into(), expires_at)).collect())
}

/// Stores when the user is warned next of this end; one that has moved meanwhile is left alone.
pub fn warn_next(db: &mut Db, user: &UserId, expires_at: Timestamp, at: Timestamp) -> Result<(), DbError> {
    let row = push_credentials::table.find(user.as_str()).filter(push_credentials::expires_at.eq(expires_at));
    diesel::update(row).set(push_credentials::warn_at.eq(at)).execute(db)?;
    Ok(())
}

/// Number of bundles that are sealed with keys before this one.
pub fn count_older(db: &mut Db, key_version: i32) -> Result<i64, DbError> {
    let in_use = push_credentials::table.filter(push_credentials::key_version.lt(key_version));
    let staged = push_credentials::table.filter(push_credentials::staged_key_version.lt(key_version));
    Ok(in_use.count().get_result::<i64>(db)? + staged.count().get_result::<i64>(db)?)
}

/// At most `limit` credentials with a bundle that an older key sealed, by user id, those after this one.
pub fn list_older(db: &mut Db, key_version: i32, after: &UserId, limit: usize) -> Result<Vec<PushCredential>, DbError> {
    // Mostly there is none, and then nothing is walked through.
    let in_use = push_credentials::table.filter(push_credentials::key_version.lt(key_version));
    let staged = push_credentials::table.filter(push_credentials::staged_key_version.lt(key_version));
    if !diesel::select(exists(in_use).or(exists(staged))).get_result::<bool>(db)? {
        return Ok(Vec::new());
    }
    let older = push_credentials::key_version
        .lt(key_version)
        .nullable()
        .or(push_credentials::staged_key_version.lt(key_version));
    let rows = push_credentials::table
        .filter(push_credentials::user_id.gt(after.as_str()))
        .filter(older)
        .order(push_credentials::user_id)
        .limit(limit as i64)
        .select(CredentialRow::as_select())
        .load(db)?;
    Ok(rows.into_iter().map(PushCredential::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later, now},
    };

    fn bundle(content: &str, uploaded_at: Timestamp) -> SealedBundle {
        let expires_at = uploaded_at + Duration::days(14);
        let uploaded_by = Some(format!("PC of {content}"));
        SealedBundle { sealed: content.into(), key_version: 1, uploaded_at, uploaded_by, expires_at }
    }

    fn upload_at(pool: &Pool, content: &str, at: Timestamp) -> (Slot, Timestamp) {
        pool.write_blocking(|db| upload(db, &"user".into(), &bundle(content, at))).unwrap()
    }

    fn stored(pool: &Pool) -> PushCredential {
        pool.read_blocking(|db| get(db, &"user".into())).unwrap().unwrap()
    }

    fn prove(pool: &Pool, uploaded_at: Timestamp, at: Timestamp) -> bool {
        pool.write_blocking(|db| mark_proven(db, &"user".into(), uploaded_at, at)).unwrap()
    }

    #[test]
    fn an_upload_replaces_a_bundle_that_has_not_logged_in() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            assert_eq!(pool.read_blocking(|db| get(db, &"user".into())).unwrap(), None);
            assert_eq!(upload_at(pool, "one", now()), (Slot::InUse, now()));
            assert_eq!(upload_at(pool, "two", later(1)), (Slot::InUse, later(1)));
            let expected = PushCredential {
                user_id: "user".into(),
                in_use: bundle("two", later(1)),
                proven_at: None,
                staged: None,
            };
            assert_eq!(stored(pool), expected);
            assert_eq!(pool.read_blocking(list_users).unwrap(), ["user".into()]);
            assert_eq!(pool.read_blocking(list_uploads).unwrap(), [("user".into(), later(1))]);
            assert!(!prove(pool, now(), later(2)), "the first one is no longer in use");
            let delete = || pool.write_blocking(|db| delete(db, &"user".into())).unwrap();
            assert!(delete() && !delete());
            let refused = pool.write_blocking(|db| upload(db, &"stranger".into(), &bundle("one", now())));
            assert!(matches!(refused, Err(DbError::Conflict)));
        });
    }

    #[test]
    fn beside_a_proven_bundle_an_upload_is_staged_until_it_proves_itself() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            upload_at(pool, "one", now());
            assert!(prove(pool, now(), later(1)));
            assert_eq!(upload_at(pool, "two", later(2)), (Slot::Staged, later(2)));
            assert_eq!(upload_at(pool, "three", later(3)), (Slot::Staged, later(3)));
            let row = stored(pool);
            assert_eq!((&row.in_use, row.proven_at), (&bundle("one", now()), Some(later(1))));
            assert_eq!(row.staged, Some(bundle("three", later(3))));

            let promote = |uploaded_at| {
                pool.write_blocking(|db| promote_staged(db, &"user".into(), uploaded_at, later(9))).unwrap()
            };
            assert!(!promote(later(2)), "a newer upload took its place");
            assert!(promote(later(3)));
            let promoted = PushCredential {
                user_id: "user".into(),
                in_use: bundle("three", later(3)),
                proven_at: Some(later(9)),
                staged: None,
            };
            assert_eq!(stored(pool), promoted);
            assert!(!promote(later(3)));
        });
    }

    #[test]
    fn a_staged_bundle_that_does_not_work_leaves_the_one_in_use() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            upload_at(pool, "one", now());
            prove(pool, now(), later(1));
            // At the same instant, and still each has a different time.
            let (_, first) = upload_at(pool, "two", now());
            let (_, second) = upload_at(pool, "three", now());
            assert!(now() < first && first < second);
            let drop = |uploaded_at| pool.write_blocking(|db| drop_staged(db, &"user".into(), uploaded_at)).unwrap();
            assert!(!drop(first));
            assert!(drop(second) && !drop(second));
            let row = stored(pool);
            assert_eq!((row.in_use, row.staged), (bundle("one", now()), None));
        });
    }

    #[test]
    fn a_renewed_bundle_has_a_new_end_in_its_slot() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            upload_at(pool, "one", now());
            prove(pool, now(), later(1));
            upload_at(pool, "two", later(2));
            let extend = |at| pool.write_blocking(|db| extend(db, &"user".into(), at, later(99))).unwrap();
            let ends = || (stored(pool).in_use.expires_at, stored(pool).staged.unwrap().expires_at);
            assert!(extend(now()) && !extend(later(1)));
            assert_eq!(ends(), (later(99), later(2) + Duration::days(14)));
            assert!(extend(later(2)));
            assert_eq!(ends(), (later(99), later(99)));
        });
    }

    #[test]
    fn resealing_does_not_undo_a_newer_upload() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            upload_at(pool, "one", now());
            prove(pool, now(), later(1));
            upload_at(pool, "two", later(2));
            let replace = |slot, before: &str, after: &str| {
                let replaced =
                    |db: &mut Db| replace_sealed(db, &"user".into(), slot, before.as_bytes(), after.as_bytes(), 2);
                pool.write_blocking(replaced).unwrap()
            };
            assert!(replace(Slot::InUse, "one", "one resealed"));
            assert!(!replace(Slot::InUse, "one", "late"));
            assert!(!replace(Slot::Staged, "one resealed", "wrong slot"));
            let older = |version: i32, after: &str| {
                let rows = pool.read_blocking(|db| list_older(db, version, &after.into(), 10)).unwrap();
                rows.len()
            };
            assert_eq!((older(2, ""), older(2, "user"), older(1, "")), (1, 0, 0), "the staged one still waits");
            assert!(replace(Slot::Staged, "two", "two resealed"));
            assert_eq!((older(2, ""), older(3, "")), (0, 1));
            let row = stored(pool);
            assert_eq!((row.in_use.sealed.as_slice(), row.in_use.key_version), (&b"one resealed"[..], 2));
            assert_eq!(row.staged.unwrap().sealed, b"two resealed");
        });
    }

    #[test]
    fn a_user_is_warned_once_of_each_end() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            let (_, at) = upload_at(pool, "one", now());
            let end = stored(pool).in_use.expires_at;
            let due = |now| {
                let due = pool.read_blocking(|db| list_to_warn(db, now, 10)).unwrap();
                due.into_iter().map(|(user, end)| (user.to_string(), end)).collect::<Vec<_>>()
            };
            let of_user = vec![("user".to_owned(), end)];
            let first = end - WARN_BEFORE;
            assert_eq!((due(first - Duration::seconds(1)), due(first)), (vec![], of_user.clone()));
            let next = |end, at| pool.write_blocking(|db| warn_next(db, &"user".into(), end, at)).unwrap();
            next(end - Duration::seconds(1), first + Duration::days(9));
            assert_eq!(due(first), of_user, "that was about another end");
            next(end, end);
            assert_eq!((due(first), due(end)), (vec![], of_user));
            assert_eq!(due(end + SAID_AFTER), vec![], "too late");
            let renewed = end + Duration::hours(1);
            assert!(pool.write_blocking(|db| extend(db, &"user".into(), at, renewed)).unwrap());
            assert_eq!(due(first + Duration::hours(1)), [("user".to_owned(), renewed)], "another end");
        });
    }
}
