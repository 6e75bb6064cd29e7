//! Helper devices: programs that act for a user with a long-lived token, whose hash is stored. An overlay is one that
//! may only watch one server.

use chrono::Duration;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*, stored_server::StoredServer},
        pairing_codes::CodePurpose,
        schema::helper_devices,
    },
    domain::{
        ids::{HelperDeviceId, ServerId, UserId},
        time::Timestamp,
    },
};

/// The precision of the stored last use.
const TOUCH_INTERVAL: Duration = Duration::minutes(1);
/// Time after which the user's channels announce a new device that is not seen: a dashboard that is open is quicker.
pub const ANNOUNCED_AFTER: Duration = Duration::minutes(1);

/// A machine or an overlay that was paired by a code, and acts for its user.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = helper_devices)]
pub struct HelperDevice {
    #[diesel(deserialize_as = String)]
    pub id: HelperDeviceId,
    #[diesel(deserialize_as = String)]
    pub user_id: UserId,
    pub label: Option<String>,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    /// An overlay of this server; `None`: a helper.
    #[diesel(column_name = server_id, deserialize_as = StoredServer)]
    pub overlay: Option<ServerId>,
    /// The keys of the state that an overlay shows; `None`: all.
    pub sections: Option<String>,
    /// When the user said that they know of it.
    pub seen_at: Option<Timestamp>,
}

impl HelperDevice {
    /// True if [`touch`] would write.
    pub fn wants_touch(&self, now: Timestamp) -> bool {
        self.last_used_at.is_none_or(|at| at <= now - TOUCH_INTERVAL)
    }
}

/// A new device, for what its code was issued for, whose token has this hash.
pub fn insert(
    db: &mut Db,
    id: &HelperDeviceId,
    purpose: &CodePurpose,
    token_hash: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    let CodePurpose { user, label, overlay, sections } = purpose;
    diesel::insert_into(helper_devices::table)
        .values((
            helper_devices::id.eq(id.as_str()),
            helper_devices::user_id.eq(user.as_str()),
            helper_devices::token_hash.eq(token_hash),
            helper_devices::label.eq(label),
            helper_devices::created_at.eq(now),
            helper_devices::server_id.eq(overlay.as_ref().map(ServerId::as_str)),
            helper_devices::sections.eq(sections.as_ref()),
            helper_devices::warn_at.eq(now + ANNOUNCED_AFTER),
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

/// The devices among these that exist, with their users.
pub fn owners(db: &mut Db, ids: &[HelperDeviceId]) -> Result<Vec<(HelperDeviceId, UserId)>, DbError> {
    let owners: Vec<(String, String)> = helper_devices::table
        .filter(helper_devices::id.eq_any(ids.iter().map(HelperDeviceId::as_str)))
        .select((helper_devices::id, helper_devices::user_id))
        .load(db)?;
    Ok(owners.into_iter().map(|(id, user)| (id.into(), user.into())).collect())
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

/// Number of devices of the user.
pub fn count(db: &mut Db, user: &UserId) -> Result<usize, DbError> {
    let count: i64 = helper_devices::table.filter(helper_devices::user_id.eq(user.as_str())).count().get_result(db)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Stores that the device was used; writes at most once a minute.
pub fn touch(db: &mut Db, id: &HelperDeviceId, now: Timestamp) -> Result<(), DbError> {
    let stale = helper_devices::last_used_at
        .is_null()
        .or(helper_devices::last_used_at.le(now - TOUCH_INTERVAL).assume_not_null());
    diesel::update(helper_devices::table.find(id.as_str()).filter(stale))
        .set(helper_devices::last_used_at.eq(now))
        .execute(db)?;
    Ok(())
}

/// Deletes the user's device, and with it its token; false when they have no such device.
pub fn delete(db: &mut Db, user: &UserId, id: &HelperDeviceId) -> Result<bool, DbError> {
    let device = helper_devices::table.find(id.as_str()).filter(helper_devices::user_id.eq(user.as_str()));
    Ok(diesel::delete(device).execute(db)? == 1)
}

/// Deletes all devices of the user, overlays among them; returns them.
pub fn delete_all(db: &mut Db, user: &UserId) -> Result<Vec<HelperDeviceId>, DbError> {
    let all = helper_devices::table.filter(helper_devices::user_id.eq(user.as_str()));
    let deleted: Vec<String> = diesel::delete(all).returning(helper_devices::id).load(db)?;
    Ok(deleted.into_iter().map(HelperDeviceId::from).collect())
}

/// Deletes the user's overlays of this server, and with them their tokens.
pub fn delete_overlays(db: &mut Db, user: &UserId, server: &ServerId) -> Result<(), DbError> {
    let overlays = helper_devices::table
        .filter(helper_devices::server_id.eq(server.as_str()))
        .filter(helper_devices::user_id.eq(user.as_str()));
    diesel::delete(overlays).execute(db)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later, now},
    };

    fn add(pool: &Pool, id: &str, user: &str, at: Timestamp) -> Result<(), DbError> {
        add_for(
            pool,
            id,
            CodePurpose { user: user.into(), label: Some("PC".into()), overlay: None, sections: None },
            at,
        )
    }

    fn add_for(pool: &Pool, id: &str, purpose: CodePurpose, at: Timestamp) -> Result<(), DbError> {
        pool.write_blocking(|db| insert(db, &id.into(), &purpose, &format!("hash of {id}"), at))
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
            let owners = || pool.read_blocking(|db| owners(db, &["none".into(), "one".into()])).unwrap();
            assert_eq!(owners(), [("one".into(), "user".into())]);

            let delete = |user: &str| pool.write_blocking(|db| delete(db, &user.into(), &"one".into())).unwrap();
            assert!(!delete("other"));
            assert!(delete("user") && !delete("user"));
            add(pool, "foreign", "other", now()).unwrap();
            let all = || pool.write_blocking(|db| delete_all(db, &"user".into())).unwrap();
            assert_eq!((all(), all()), (vec!["two".into()], vec![]));
            assert!(by_token(pool, "hash of foreign").is_some());
            assert_eq!(by_token(pool, "hash of one"), None);
            assert_eq!(owners(), []);
        });
    }

    #[test]
    fn an_overlay_knows_its_server_and_ends_with_it_or_alone() {
        testing::on_each_database(|pool| {
            for user in ["user", "other"] {
                testing::user(pool, user);
            }
            let servers = ["one", "two"].map(|id| testing::server(pool, id_owner(id), id).id);
            for (id, user, server) in [("a", "user", 0), ("b", "user", 1), ("c", "other", 0), ("d", "other", 1)] {
                let overlay = Some(servers[server].clone());
                add_for(pool, id, CodePurpose { user: user.into(), label: None, overlay, sections: None }, now())
                    .unwrap();
            }
            add(pool, "helper", "user", now()).unwrap();
            assert_eq!(by_token(pool, "hash of a").unwrap().overlay.as_ref(), Some(&servers[0]));
            assert_eq!(by_token(pool, "hash of helper").unwrap().overlay, None);
            pool.write_blocking(|db| delete_overlays(db, &"user".into(), &servers[0])).unwrap();
            let left = || ["a", "b", "c", "d", "helper"].map(|id| by_token(pool, &format!("hash of {id}")).is_some());
            assert_eq!(left(), [false, true, true, true, true]);
            let owner = id_owner("two").into();
            pool.write_blocking(|db| crate::db::paired_servers::delete(db, &owner, &servers[1])).unwrap();
            assert_eq!(left(), [false, false, true, false, true]);
        });
    }

    /// Two servers of one owner could not share an address.
    fn id_owner(server: &str) -> &'static str {
        if server == "one" { "user" } else { "other" }
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
