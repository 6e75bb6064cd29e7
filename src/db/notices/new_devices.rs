//! Helper devices that their users have not seen yet, and are notified of.

use chrono::TimeDelta;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        helper_devices::HelperDevice,
        schema::helper_devices,
    },
    domain::{
        ids::{HelperDeviceId, UserId},
        time::Timestamp,
    },
};

/// Pause before a message that no channel took is sent again.
const ANNOUNCED_AGAIN_AFTER: TimeDelta = TimeDelta::hours(1);

/// Devices of which the channels of their users are to announce now, the longest due first, at most `limit`.
pub fn list_to_announce(db: &mut Db, now: Timestamp, limit: i64) -> Result<Vec<HelperDevice>, DbError> {
    let due = helper_devices::table.filter(helper_devices::warn_at.le(now)).order(helper_devices::warn_at).limit(limit);
    Ok(due.select(HelperDevice::as_select()).load(db)?)
}

/// True if a message is planned for later than any is: the clock was set back since.
pub fn are_any_ahead(db: &mut Db, now: Timestamp) -> Result<bool, DbError> {
    let ahead = helper_devices::table.filter(helper_devices::warn_at.gt(now + ANNOUNCED_AGAIN_AFTER));
    let ahead: Option<String> = ahead.select(helper_devices::id).first(db).optional()?;
    Ok(ahead.is_some())
}

/// Makes all messages due that are planned for later.
pub fn hasten_all(db: &mut Db, now: Timestamp) -> Result<(), DbError> {
    let planned = helper_devices::table.filter(helper_devices::warn_at.gt(now));
    diesel::update(planned).set(helper_devices::warn_at.eq(now)).execute(db)?;
    Ok(())
}

/// Stores that the user was notified of the device: nothing more is due, unless all channels failed.
pub fn announce_next(db: &mut Db, id: &HelperDeviceId, all_failed: bool, now: Timestamp) -> Result<(), DbError> {
    let next = all_failed.then(|| now + ANNOUNCED_AGAIN_AFTER);
    // The user may have seen it meanwhile.
    let row = helper_devices::table.find(id.as_str()).filter(helper_devices::seen_at.is_null());
    diesel::update(row).set(helper_devices::warn_at.eq(next)).execute(db)?;
    Ok(())
}

/// Stores that the user knows of their device, which is announced no more; false when they have no such device.
pub fn note_seen(db: &mut Db, user: &UserId, id: &HelperDeviceId, now: Timestamp) -> Result<bool, DbError> {
    let row = helper_devices::table.find(id.as_str()).filter(helper_devices::user_id.eq(user.as_str()));
    let seen = (helper_devices::seen_at.eq(now), helper_devices::warn_at.eq(None::<Timestamp>));
    Ok(diesel::update(row).set(seen).execute(db)? == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        helper_devices::{ANNOUNCED_AFTER, insert, list},
        pairing_codes::CodePurpose,
        testing::{self, later, now},
    };

    fn pair(pool: &Pool, id: &str) {
        let purpose = CodePurpose { user: "user".into(), label: None, overlay: None, sections: None };
        pool.write_blocking(|db| insert(db, &id.into(), &purpose, id, now())).unwrap();
    }

    #[test]
    fn a_user_is_notified_once_of_a_device_that_they_have_not_seen() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            testing::user(pool, "other");
            pair(pool, "seen");
            pair(pool, "new");
            let due = |at| {
                let devices = pool.read_blocking(|db| list_to_announce(db, at, 9)).unwrap();
                devices.into_iter().map(|device| device.id.to_string()).collect::<Vec<_>>()
            };
            let see =
                |user: &str| pool.write_blocking(|db| note_seen(db, &user.into(), &"seen".into(), later(30))).unwrap();
            assert!(!see("other") && see("user"));
            let known = pool.read_blocking(|db| list(db, &"user".into())).unwrap();
            let seen_at = |id: &str| known.iter().find(|device| device.id.as_str() == id).unwrap().seen_at;
            assert_eq!((seen_at("seen"), seen_at("new")), (Some(later(30)), None));
            let at = now() + ANNOUNCED_AFTER;
            assert_eq!((due(at - TimeDelta::seconds(1)), due(at)), (vec![], vec!["new".to_owned()]));
            let announce =
                |id: &str, failed, at| pool.write_blocking(|db| announce_next(db, &id.into(), failed, at)).unwrap();
            announce("new", true, at);
            announce("seen", true, at);
            let again = at + ANNOUNCED_AGAIN_AFTER;
            assert_eq!((due(again - TimeDelta::seconds(1)), due(again)), (vec![], vec!["new".to_owned()]));
            let is_ahead = |at| pool.read_blocking(|db| are_any_ahead(db, at)).unwrap();
            assert!(!is_ahead(at), "it is sent again in an hour");
            let back = at - TimeDelta::seconds(1);
            assert!(is_ahead(back), "the clock was set back");
            pool.write_blocking(|db| hasten_all(db, back)).unwrap();
            assert_eq!((due(back), is_ahead(back)), (vec!["new".to_owned()], false));
            announce("new", false, again);
            assert_eq!(due(again + TimeDelta::days(9)), [""; 0]);
        });
    }
}
