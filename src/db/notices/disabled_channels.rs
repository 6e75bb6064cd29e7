//! Channels that were switched off after a day of failures, until their users have been warned of it by others.

use chrono::TimeDelta;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::channels,
    },
    domain::{channels::user_channel::ChannelState, ids::ChannelId, time::Timestamp},
};

/// Pause before a warning that no channel took is sent again.
const WARNED_AGAIN_AFTER: TimeDelta = TimeDelta::hours(1);

/// Channels of which their users are to be warned now, the longest due first, at most `limit`.
pub fn list_to_warn(db: &mut Db, now: Timestamp, limit: i64) -> Result<Vec<ChannelId>, DbError> {
    let due = channels::table
        .filter(channels::warn_at.le(now))
        .filter(channels::state.eq(ChannelState::Disabled.word()))
        .order(channels::warn_at)
        .limit(limit);
    let ids: Vec<String> = due.select(channels::id).load(db)?;
    Ok(ids.into_iter().map(ChannelId::from).collect())
}

/// True if a warning is planned for later than any is: the clock was set back since.
pub fn are_any_ahead(db: &mut Db, now: Timestamp) -> Result<bool, DbError> {
    let ahead = channels::table.filter(channels::warn_at.gt(now + WARNED_AGAIN_AFTER));
    let ahead: Option<String> = ahead.select(channels::id).first(db).optional()?;
    Ok(ahead.is_some())
}

/// Makes all warnings due that are planned for later.
pub fn hasten_all(db: &mut Db, now: Timestamp) -> Result<(), DbError> {
    let planned = channels::table.filter(channels::warn_at.gt(now));
    diesel::update(planned).set(channels::warn_at.eq(now)).execute(db)?;
    Ok(())
}

/// Puts the warning of this channel off, as if all others had failed: its outcome comes later.
pub fn put_off(db: &mut Db, id: &ChannelId, now: Timestamp) -> Result<(), DbError> {
    let due = channels::table.find(id.as_str()).filter(channels::warn_at.le(now));
    diesel::update(due).set(channels::warn_at.eq(now + WARNED_AGAIN_AFTER)).execute(db)?;
    Ok(())
}

/// Stores that the user was warned of this channel, which fails since then: nothing more is due, unless all others failed.
pub fn warn_next(
    db: &mut Db,
    id: &ChannelId,
    since: Timestamp,
    all_failed: bool,
    now: Timestamp,
) -> Result<(), DbError> {
    let next = all_failed.then(|| now + WARNED_AGAIN_AFTER);
    let row = channels::table.find(id.as_str()).filter(channels::failing_since.eq(since));
    diesel::update(row).set(channels::warn_at.eq(next)).execute(db)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            notices::channels::{insert, note_accepted, note_failure, tests::channel},
            testing::{self, later, now},
        },
        domain::channels::user_channel::{ChannelFault, ChannelKind, DISABLED_AFTER_FAILURES},
    };

    #[test]
    fn a_user_is_warned_once_each_time_a_channel_is_switched_off() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            let id = ChannelId::from("a");
            let hook = channel("a", "user", ChannelKind::Webhook, "1");
            pool.write_blocking(|db| insert(db, &hook, 9)).unwrap().unwrap();
            let due = |at| pool.read_blocking(|db| list_to_warn(db, at, 9)).unwrap();
            let fail = |at| {
                let failed = |db: &mut _| note_failure(db, &id, "1", ChannelFault::Unavailable, at);
                pool.write_blocking(failed).unwrap()
            };
            let disable = |from: i64| {
                fail(later(from));
                for _ in 1..DISABLED_AFTER_FAILURES {
                    fail(later(from + 90_000));
                }
            };
            let warned = |since, all_failed, at| {
                pool.write_blocking(|db| warn_next(db, &id, later(since), all_failed, later(at))).unwrap();
            };
            assert_eq!(
                (due(now()), {
                    disable(0);
                    due(later(90_000))
                }),
                (vec![], vec![id.clone()])
            );
            warned(1, false, 90_001);
            assert_eq!(due(later(90_001)), std::slice::from_ref(&id), "the row began at another time");
            warned(0, true, 90_001);
            assert_eq!(
                (due(later(93_600)), due(later(93_601))),
                (vec![], vec![id.clone()]),
                "no other channel took it"
            );
            warned(0, false, 93_601);
            fail(later(93_602));
            assert_eq!(due(later(200_000)), [], "the test of a user failed");

            warned(0, true, 200_000);
            let is_ahead = |at| pool.read_blocking(|db| are_any_ahead(db, at)).unwrap();
            assert!(!is_ahead(later(200_000)), "it is sent again in an hour");
            let back = later(100_000);
            assert!(is_ahead(back));
            pool.write_blocking(|db| hasten_all(db, back)).unwrap();
            assert_eq!(due(back), std::slice::from_ref(&id), "the clock was set back");
            assert!(!is_ahead(back));
            warned(0, false, 100_001);

            let accept = |at| pool.write_blocking(|db| note_accepted(db, &[("a", "1")], at)).unwrap();
            accept(later(200_000));
            disable(200_001);
            assert_eq!(due(later(300_000)), std::slice::from_ref(&id));
            let put_off = |at| pool.write_blocking(|db| put_off(db, &id, later(at))).unwrap();
            put_off(300_000);
            assert_eq!((due(later(303_599)), due(later(303_600))), (vec![], vec![id.clone()]), "it is being sent");
            accept(later(303_601));
            put_off(400_000);
            assert_eq!(due(later(500_000)), [], "it works again");
        });
    }
}
