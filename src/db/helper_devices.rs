//! Helper devices: programs that act for a user with a long-lived token, whose hash is stored.

use chrono::Duration;
use diesel::prelude::*;

use crate::{
    db::{
        error::DbError,
        pool::Db,
        schema::helper_devices,
        timestamp::{StoredTimestamp, StoredTimestampOption},
    },
    domain::{
        ids::{HelperDeviceId, UserId},
        time::Timestamp,
    },
};

/// How precisely the last use is stored.
const TOUCH_INTERVAL: Duration = Duration::minutes(1);

/// A helper device.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = helper_devices)]
pub struct HelperDevice {
    #[diesel(deserialize_as = String)]
    pub id: HelperDeviceId,
    #[diesel(deserialize_as = String)]
    pub user_id: UserId,
    pub label: Option<String>,
    #[diesel(deserialize_as = StoredTimestamp)]
    pub created_at: Timestamp,
    #[diesel(deserialize_as = StoredTimestampOption)]
    pub last_used_at: Option<Timestamp>,
}

impl HelperDevice {
    /// Whether [`touch`] would write.
    pub fn wants_touch(&self, now: Timestamp) -> bool {
        self.last_used_at.is_none_or(|at| at <= now - TOUCH_INTERVAL)
    }
}

/// A new device whose token has this hash.
pub fn insert(
    db: &mut Db,
    id: &HelperDeviceId,
    user: &UserId,
    token_hash: &str,
    label: Option<&str>,
    now: Timestamp,
) -> Result<(), DbError> {
    diesel::insert_into(helper_devices::table)
        .values((
            helper_devices::id.eq(id.as_str()),
            helper_devices::user_id.eq(user.as_str()),
            helper_devices::token_hash.eq(token_hash),
            helper_devices::label.eq(label),
            helper_devices::created_at.eq(now.naive_utc()),
        ))
        .execute(db)?;
    Ok(())
}

/// The device whose token has this hash.
pub fn find_by_token(db: &mut Db, token_hash: &str) -> Result<Option<HelperDevice>, DbError> {
    let device = helper_devices::table
        .filter(helper_devices::token_hash.eq(token_hash))
        .select(HelperDevice::as_select())
        .first(db)
        .optional()?;
    Ok(device)
}

/// Whether the user has this device.
pub fn belongs_to(db: &mut Db, user: &UserId, id: &HelperDeviceId) -> Result<bool, DbError> {
    let device = helper_devices::table
        .find(id.as_str())
        .filter(helper_devices::user_id.eq(user.as_str()))
        .select(helper_devices::id);
    Ok(device.first::<String>(db).optional()?.is_some())
}

/// The user's devices, oldest first.
pub fn list(db: &mut Db, user: &UserId) -> Result<Vec<HelperDevice>, DbError> {
    let devices = helper_devices::table
        .filter(helper_devices::user_id.eq(user.as_str()))
        .order((helper_devices::created_at, helper_devices::id))
        .select(HelperDevice::as_select())
        .load(db)?;
    Ok(devices)
}

/// How many devices the user has.
pub fn count(db: &mut Db, user: &UserId) -> Result<usize, DbError> {
    let count: i64 = helper_devices::table.filter(helper_devices::user_id.eq(user.as_str())).count().get_result(db)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Stores that the device was used; writes at most once a minute.
pub fn touch(db: &mut Db, id: &HelperDeviceId, now: Timestamp) -> Result<(), DbError> {
    let stale = helper_devices::last_used_at
        .is_null()
        .or(helper_devices::last_used_at.le((now - TOUCH_INTERVAL).naive_utc()).assume_not_null());
    diesel::update(helper_devices::table.find(id.as_str()).filter(stale))
        .set(helper_devices::last_used_at.eq(now.naive_utc()))
        .execute(db)?;
    Ok(())
}

/// Deletes the user's device, and with it its token; false when they have no such device.
pub fn delete(db: &mut Db, user: &UserId, id: &HelperDeviceId) -> Result<bool, DbError> {
    let device = helper_devices::table.find(id.as_str()).filter(helper_devices::user_id.eq(user.as_str()));
    Ok(diesel::delete(device).execute(db)? == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        pool::Pool,
        testing::{self, later, now},
    };

    fn add(pool: &Pool, id: &str, user: &str, at: Timestamp) -> Result<(), DbError> {
        pool.write_blocking(|db| insert(db, &id.into(), &user.into(), &format!("hash of {id}"), Some("PC"), at))
    }

    fn by_token(pool: &Pool, hash: &str) -> Option<HelperDevice> {
        pool.read_blocking(|db| find_by_token(db, hash)).unwrap()
    }

    #[test]
    fn a_device_is_found_by_its_token_until_its_owner_deletes_it() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            testing::user(pool, "other");
            add(pool, "one", "user", now()).unwrap();
            add(pool, "two", "user", later(1)).unwrap();
            assert!(matches!(add(pool, "one", "other", now()), Err(DbError::Conflict)));
            let device = by_token(pool, "hash of one").unwrap();
            assert_eq!((device.id.as_str(), device.user_id.as_str()), ("one", "user"));
            assert_eq!((device.label.as_deref(), device.last_used_at), (Some("PC"), None));
            assert_eq!(by_token(pool, "one"), None);

            let list = pool.read_blocking(|db| list(db, &"user".into())).unwrap();
            assert_eq!(list.iter().map(|device| device.id.as_str()).collect::<Vec<_>>(), ["one", "two"]);
            assert_eq!(pool.read_blocking(|db| count(db, &"user".into())).unwrap(), 2);
            let belongs = |user: &str| pool.read_blocking(|db| belongs_to(db, &user.into(), &"one".into())).unwrap();
            assert!(belongs("user") && !belongs("other"));

            let delete = |user: &str| pool.write_blocking(|db| delete(db, &user.into(), &"one".into())).unwrap();
            assert!(!delete("other"));
            assert!(delete("user") && !delete("user"));
            assert_eq!(by_token(pool, "hash of one"), None);
            assert!(!belongs("user"));
        });
    }

    #[test]
    fn the_last_use_is_stored_to_the_minute() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            add(pool, "one", "user", now()).unwrap();
            let used_at = |at| {
                assert_eq!(
                    by_token(pool, "hash of one").unwrap().wants_touch(at),
                    pool.write_blocking(|db| {
                        let before = find_by_token(db, "hash of one")?;
                        touch(db, &"one".into(), at)?;
                        Ok(before != find_by_token(db, "hash of one")?)
                    })
                    .unwrap()
                );
                by_token(pool, "hash of one").unwrap().last_used_at
            };
            assert_eq!(used_at(now()), Some(now()));
            assert_eq!(used_at(later(59)), Some(now()));
            assert_eq!(used_at(later(60)), Some(later(60)));
        });
    }
}
