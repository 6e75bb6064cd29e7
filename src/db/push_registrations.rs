//! Devices for the game's pushes that the service registers itself: one for each user, with the registration under way
//! or the one that holds. Secrets stay sealed here, for (`push_registrations`, `sealed`, the user's id).

use crate::{
    db::{
        PURGE_BATCH,
        engine::{error::DbError, pool::Db, prelude::*},
        push_credentials,
        schema::push_registrations,
    },
    domain::{ids::UserId, registration::RegistrationStep, time::Timestamp},
};

/// A user's registration.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = push_registrations)]
pub struct PushRegistration {
    #[diesel(deserialize_as = String)]
    pub user_id: UserId,
    /// Id of the newest login that was asked for.
    pub id: String,
    /// The newest login was asked for with renewal; in force once it has come back.
    pub renew_asked: bool,
    /// The service renews the registration, and keeps the account's token for that.
    pub renew: bool,
    /// The newest login has to come back before.
    pub closes_at: Timestamp,
    #[diesel(embed)]
    pub progress: StoredProgress,
    #[diesel(embed)]
    pub device: SealedDevice,
    /// The upload time of the bundle that was made of the device.
    pub bundle_at: Option<Timestamp>,
    /// End of the registration at the game; `None`: it is being made.
    pub ends_at: Option<Timestamp>,
    /// When the service goes on by itself; `None`: never.
    pub due_at: Option<Timestamp>,
}

impl PushRegistration {
    /// True if nothing is registered or asked for: the row keeps the device for the user's next registration.
    pub fn is_device_only(&self) -> bool {
        self.progress.step.is_none() && self.ends_at.is_none()
    }
}

/// The next step, and the failure that it had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Queryable, Selectable, AsChangeset)]
#[diesel(table_name = push_registrations, treat_none_as_null = true)]
pub struct StoredProgress {
    /// Its word; `None`: all are made.
    pub step: Option<String>,
    /// The word of its fault.
    pub fault: Option<String>,
    /// A word of the other side.
    pub answer: Option<String>,
    /// Failures in a row.
    pub failures: i32,
}

/// A device that is registered for a player's pushes; its secrets are sealed.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable, AsChangeset)]
#[diesel(table_name = push_registrations)]
pub struct SealedDevice {
    pub sealed: Vec<u8>,
    /// The number of the key that sealed it.
    pub key_version: i32,
}

/// The user's registration.
pub fn get(db: &mut Db, user: &UserId) -> Result<Option<PushRegistration>, DbError> {
    let row = push_registrations::table.find(user.as_str());
    Ok(row.select(PushRegistration::as_select()).first(db).optional()?)
}

/// Stores a registration, in place of one that the user has.
pub fn put(db: &mut Db, registration: &PushRegistration) -> Result<(), DbError> {
    let PushRegistration { user_id, id, renew_asked, renew, closes_at, progress, device, bundle_at, ends_at, due_at } =
        registration;
    let stored = (
        push_registrations::id.eq(id),
        push_registrations::renew_asked.eq(renew_asked),
        push_registrations::renew.eq(renew),
        push_registrations::closes_at.eq(closes_at),
        push_registrations::step.eq(&progress.step),
        push_registrations::fault.eq(&progress.fault),
        push_registrations::answer.eq(&progress.answer),
        push_registrations::failures.eq(progress.failures),
        push_registrations::sealed.eq(&device.sealed),
        push_registrations::key_version.eq(device.key_version),
        push_registrations::bundle_at.eq(bundle_at),
        push_registrations::ends_at.eq(ends_at),
        push_registrations::due_at.eq(due_at),
    );
    let put = diesel::insert_into(push_registrations::table)
        .values((push_registrations::user_id.eq(user_id.as_str()), stored))
        .on_conflict(push_registrations::user_id)
        .do_update()
        .set(stored);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// Stores how far a registration has come; false when a newer login was asked for, or it is gone.
pub fn update(db: &mut Db, registration: &PushRegistration) -> Result<bool, DbError> {
    let row = push_registrations::table.find(registration.user_id.as_str());
    let same = row.filter(push_registrations::id.eq(&registration.id));
    // Locks the row, so that it is not replaced before it is written.
    let locked = diesel::update(same).set(push_registrations::id.eq(push_registrations::id)).execute(db)?;
    if locked == 1 {
        put(db, registration)?;
    }
    Ok(locked == 1)
}

/// Deletes registrations whose login did not come back in time and that hold nothing; the number of rows. One that failed
/// later keeps the identity of its device, also while another login is waited for.
pub fn purge(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    let abandoned = push_registrations::table
        .filter(push_registrations::due_at.is_null())
        .filter(push_registrations::bundle_at.is_null())
        .filter(push_registrations::step.eq(RegistrationStep::SignIn.word()))
        .filter(push_registrations::failures.eq(0))
        .filter(push_registrations::closes_at.le(now))
        .limit(PURGE_BATCH as i64)
        .select(push_registrations::user_id);
    let users: Vec<String> = abandoned.load(db)?;
    if users.is_empty() {
        return Ok(0);
    }
    let rows = push_registrations::table.filter(push_registrations::user_id.eq_any(&users));
    // Another login may have come meanwhile.
    Ok(diesel::delete(rows.filter(push_registrations::closes_at.le(now))).execute(db)?)
}

/// Deletes the user's registration; false when there was none.
pub fn delete(db: &mut Db, user: &UserId) -> Result<bool, DbError> {
    Ok(diesel::delete(push_registrations::table.find(user.as_str())).execute(db)? == 1)
}

/// Makes the renewal of a registration due whose bundle was replaced by another one, so that it is ended.
pub fn end_replaced(db: &mut Db, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    let Some(row) = get(db, user)?.filter(|row| row.renew && row.ends_at.is_some()) else { return Ok(()) };
    if !push_credentials::get(db, user)?.is_some_and(|credential| credential.has(row.bundle_at)) {
        put(db, &PushRegistration { due_at: Some(now), ..row })?;
    }
    Ok(())
}

/// The users with whose registration the service goes on now, the longest due first, at most `limit`.
pub fn list_due(db: &mut Db, now: Timestamp, limit: i64) -> Result<Vec<UserId>, DbError> {
    let due = push_registrations::table
        .filter(push_registrations::due_at.le(now))
        .order(push_registrations::due_at)
        .limit(limit);
    let users: Vec<String> = due.select(push_registrations::user_id).load(db)?;
    Ok(users.into_iter().map(UserId::from).collect())
}

/// Stores the same device, sealed again, unless the row no longer holds `before`; the answer is false then.
pub fn replace_sealed(db: &mut Db, user: &UserId, before: &[u8], after: &SealedDevice) -> Result<bool, DbError> {
    let row = push_registrations::table.find(user.as_str()).filter(push_registrations::sealed.eq(before));
    Ok(diesel::update(row).set(after).execute(db)? == 1)
}

/// Number of devices that are sealed with keys before this one.
pub fn count_older(db: &mut Db, key_version: i32) -> Result<i64, DbError> {
    Ok(push_registrations::table.filter(push_registrations::key_version.lt(key_version)).count().get_result(db)?)
}

/// At most `limit` devices that an older key sealed, by user id, those after this one.
pub fn list_older(
    db: &mut Db,
    key_version: i32,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, SealedDevice)>, DbError> {
    let older = push_registrations::table
        .filter(push_registrations::key_version.lt(key_version))
        .filter(push_registrations::user_id.gt(after))
        .order(push_registrations::user_id)
        .limit(i64::try_from(limit).unwrap_or(i64::MAX));
    Ok(older.select((push_registrations::user_id, SealedDevice::as_select())).load(db)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    fn registration(id: &str, due_at: Option<Timestamp>) -> PushRegistration {
        PushRegistration {
            user_id: "user".into(),
            id: id.to_owned(),
            renew_asked: true,
            renew: false,
            closes_at: later(60),
            progress: StoredProgress { step: Some("sign_in".to_owned()), ..StoredProgress::default() },
            device: SealedDevice { sealed: b"one".to_vec(), key_version: 1 },
            bundle_at: None,
            ends_at: None,
            due_at,
        }
    }

    #[test]
    fn a_user_has_one_registration_and_an_older_one_changes_nothing() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            let write = |registration: &PushRegistration| pool.write_blocking(|db| update(db, registration)).unwrap();
            let stored = || pool.read_blocking(|db| get(db, &"user".into())).unwrap();
            let (first, second) = (registration("first", None), registration("second", Some(later(5))));
            assert!(!write(&first), "there is none yet");
            for opened in [&first, &second] {
                pool.write_blocking(|db| put(db, opened)).unwrap();
                assert_eq!(stored().as_ref(), Some(opened));
            }
            assert!(!write(&first));
            let due = |at| pool.read_blocking(|db| list_due(db, at, 10)).unwrap();
            assert_eq!((due(later(4)), due(later(5))), (vec![], vec!["user".into()]));
            let done = PushRegistration {
                progress: StoredProgress::default(),
                bundle_at: Some(now()),
                ends_at: Some(later(9)),
                due_at: None,
                ..second
            };
            assert!(write(&done));
            assert_eq!((stored(), due(later(99))), (Some(done), vec![]));
            let delete = || pool.write_blocking(|db| delete(db, &"user".into())).unwrap();
            assert!(delete() && !delete());
        });
    }

    #[test]
    fn a_login_that_did_not_come_back_is_forgotten() {
        testing::on_each_database(|pool| {
            for (user, due_at, bundle_at, failures) in [
                ("user", None, None, 0),
                ("going", Some(now()), None, 0),
                ("made", None, Some(now()), 0),
                ("failed", None, None, 1),
            ] {
                testing::user(pool, user);
                let mut row = PushRegistration { user_id: user.into(), bundle_at, ..registration("first", due_at) };
                row.progress.failures = failures;
                pool.write_blocking(|db| put(db, &row)).unwrap();
            }
            let purge = |at| pool.write_blocking(|db| purge(db, at)).unwrap();
            assert_eq!((purge(later(59)), purge(later(60)), purge(later(60))), (0, 1, 0));
            assert!(pool.read_blocking(|db| get(db, &"user".into())).unwrap().is_none());
        });
    }

    #[test]
    fn resealing_does_not_undo_a_step() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            pool.write_blocking(|db| put(db, &registration("first", None))).unwrap();
            let after = |sealed: &str| SealedDevice { sealed: sealed.as_bytes().to_vec(), key_version: 2 };
            let replace = |before: &[u8], sealed| {
                pool.write_blocking(|db| replace_sealed(db, &"user".into(), before, &after(sealed))).unwrap()
            };
            let older = |version, from| pool.read_blocking(|db| list_older(db, version, from, 10)).unwrap().len();
            assert_eq!((older(1, ""), older(2, ""), older(2, "user")), (0, 1, 0));
            assert!(replace(b"one", "two") && !replace(b"one", "three"));
            assert_eq!((older(2, ""), older(3, "")), (0, 1));
        });
    }
}
