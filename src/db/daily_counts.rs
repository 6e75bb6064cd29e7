//! Counts of each day, so that analytics cost the same however long the history is: who was there, and counts by kind.
//! Days are UTC's. A day is counted once it is over ([`roll_up`]); what users did is counted as it happens ([`add`]).

use std::collections::BTreeMap;

use chrono::{NaiveDate, NaiveTime, TimeDelta};
use diesel::dsl::count_star;

use crate::{
    db::{
        PURGE_BATCH,
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{active_days, daily_counts, incidents, timeline, users},
    },
    domain::{ids::UserId, time::Timestamp},
};

/// Days that can be looked up, with today.
pub const DAYS: i64 = 30;
/// Events of a day may be stored so much later.
const LATE: TimeDelta = TimeDelta::minutes(5);
/// Days after which counts are deleted.
pub const KEPT_DAYS: i64 = 90;

const ACTIVE: &str = "dau";
const NEW_MEMBERS: &str = "newMembers";
const RAIDS: &str = "raids";
const EVENT: &str = "event:";
const ACTIVITY: &str = "activity:";

/// Counts of the service over one day, made when it is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DayCounts {
    /// Users who were there.
    pub active: i64,
    pub new_members: i64,
    /// Incidents, drills apart.
    pub raids: i64,
    /// Entries of the timeline by kind.
    pub events: BTreeMap<String, i64>,
    /// Actions of users, by kind.
    pub activity: BTreeMap<String, i64>,
}

fn midnight(day: NaiveDate) -> Timestamp {
    day.and_time(NaiveTime::MIN).into()
}

/// The user was there.
pub fn seen(db: &mut Db, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    let row = (active_days::day.eq(midnight(now.date_naive())), active_days::user_id.eq(user.as_str()));
    let seen = diesel::insert_into(active_days::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| seen.execute(db))?;
    Ok(())
}

/// Users did so much of each kind.
pub fn add(db: &mut Db, done: &BTreeMap<&'static str, i64>, now: Timestamp) -> Result<(), DbError> {
    // In one order everywhere, so that no two processes wait for each other.
    for (kind, count) in done {
        let row = (
            daily_counts::day.eq(midnight(now.date_naive())),
            daily_counts::kind.eq(format!("{ACTIVITY}{kind}")),
            daily_counts::count.eq(count),
        );
        let add = diesel::insert_into(daily_counts::table)
            .values(row)
            .on_conflict((daily_counts::day, daily_counts::kind))
            .do_update()
            .set(daily_counts::count.eq(daily_counts::count + count));
        on_backend!(db, |db| add.execute(db))?;
    }
    Ok(())
}

/// Counts a day that is over and was not counted, or deletes a batch of what is no longer needed; returns how many
/// rows, and [`PURGE_BATCH`] when it should be called again.
pub fn roll_up(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    let over = (now - LATE).date_naive();
    let counted = counted_days(db, now)?;
    let closed = (1..DAYS).filter_map(|before| over.checked_sub_signed(TimeDelta::days(before)));
    if let Some(day) = closed.rev().find(|day| !counted.contains(&midnight(*day))) {
        let DayCounts { active, new_members, raids, events, .. } = count(db, day)?;
        let events = events.into_iter().map(|(kind, count)| (format!("{EVENT}{kind}"), count));
        let fixed = [(RAIDS, raids), (NEW_MEMBERS, new_members), (ACTIVE, active)];
        for (kind, count) in events.chain(fixed.map(|(kind, count)| (kind.to_owned(), count))) {
            let row = (daily_counts::day.eq(midnight(day)), daily_counts::kind.eq(kind), daily_counts::count.eq(count));
            let put = diesel::insert_into(daily_counts::table).values(row).on_conflict_do_nothing();
            on_backend!(db, |db| put.execute(db))?;
        }
        return Ok(PURGE_BATCH);
    }
    let old = midnight(over - TimeDelta::days(KEPT_DAYS));
    diesel::delete(daily_counts::table.filter(daily_counts::day.lt(old))).execute(db)?;
    let counted = active_days::table.filter(active_days::day.lt(midnight(over - TimeDelta::days(1))));
    let batch: Vec<(Timestamp, String)> = counted
        .order((active_days::day, active_days::user_id))
        .limit(PURGE_BATCH as i64)
        .select((active_days::day, active_days::user_id))
        .load(db)?;
    let Some((day, _)) = batch.first() else { return Ok(0) };
    let users = batch.iter().filter(|(of, _)| of == day).map(|(_, user)| user);
    let of_day = active_days::table.filter(active_days::day.eq(day)).filter(active_days::user_id.eq_any(users));
    Ok(diesel::delete(of_day).execute(db)?)
}

fn counted_days(db: &mut Db, now: Timestamp) -> Result<Vec<Timestamp>, DbError> {
    let first = midnight(now.date_naive() - TimeDelta::days(DAYS));
    let counted = daily_counts::table.filter(daily_counts::day.ge(first)).filter(daily_counts::kind.eq(ACTIVE));
    Ok(counted.select(daily_counts::day).load(db)?)
}

/// Counts a day from what is stored of it.
fn count(db: &mut Db, day: NaiveDate) -> Result<DayCounts, DbError> {
    let (start, end) = (midnight(day), midnight(day + TimeDelta::days(1)));
    let active = active_days::table.filter(active_days::day.eq(start)).count().get_result(db)?;
    let joined = users::table.filter(users::created_at.ge(start)).filter(users::created_at.lt(end));
    let new_members = joined.count().get_result(db)?;
    let raids = incidents::table
        .filter(incidents::drill.eq(false))
        .filter(incidents::first_at.ge(start))
        .filter(incidents::first_at.lt(end))
        .count()
        .get_result(db)?;
    let events: Vec<(String, i64)> = timeline::table
        .filter(timeline::ts.ge(start))
        .filter(timeline::ts.lt(end))
        .group_by(timeline::kind)
        .select((timeline::kind, count_star()))
        .load(db)?;
    Ok(DayCounts { active, new_members, raids, events: events.into_iter().collect(), activity: BTreeMap::new() })
}

/// The last [`DAYS`] days, the oldest first; the last is today so far.
pub fn days(db: &mut Db, now: Timestamp) -> Result<Vec<(NaiveDate, DayCounts)>, DbError> {
    let today = now.date_naive();
    let first = today - TimeDelta::days(DAYS - 1);
    let counted = counted_days(db, now)?;
    let rows: Vec<(Timestamp, String, i64)> = daily_counts::table
        .filter(daily_counts::day.ge(midnight(first)))
        .select((daily_counts::day, daily_counts::kind, daily_counts::count))
        .load(db)?;
    let mut days: BTreeMap<NaiveDate, DayCounts> = BTreeMap::new();
    for day in (0..DAYS).map(|after| first + TimeDelta::days(after)) {
        let is_counted = counted.contains(&midnight(day));
        days.insert(day, if is_counted { DayCounts::default() } else { count(db, day)? });
    }
    for (day, kind, count) in rows {
        let Some(day) = days.get_mut(&day.date_naive()) else { continue };
        if let Some(kind) = kind.strip_prefix(ACTIVITY) {
            day.activity.insert(kind.to_owned(), count);
        } else if let Some(kind) = kind.strip_prefix(EVENT) {
            day.events.insert(kind.to_owned(), count);
        } else {
            match kind.as_str() {
                ACTIVE => day.active = count,
                NEW_MEMBERS => day.new_members = count,
                RAIDS => day.raids = count,
                _ => {}
            }
        }
    }
    Ok(days.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            testing::{self, later, now},
            timeline as timeline_rows,
        },
        domain::timeline::TimelineOwner,
    };

    const DAY: i64 = 86_400;

    #[test]
    fn a_day_counts_the_same_before_and_after_it_is_rolled_up() {
        testing::on_each_database(|pool| {
            testing::user(pool, "ann");
            testing::user(pool, "bob");
            pool.write_blocking(|db| {
                for (id, kind, second) in [("1", "cargo", 0), ("2", "cargo", 1), ("3", "heli", 2), ("4", "heli", DAY)] {
                    let entry = testing::timeline_entry(id, kind, later(second));
                    timeline_rows::insert(db, &TimelineOwner::User("ann".into()), &entry)?;
                }
                for (user, second) in [("ann", 0), ("ann", 60), ("bob", 0), ("ann", DAY)] {
                    seen(db, &user.into(), later(second))?;
                }
                add(db, &BTreeMap::from([("sign_in", 2), ("toggle", 1)]), now())?;
                add(db, &BTreeMap::from([("sign_in", 1)]), now())
            })
            .unwrap();
            let read = || pool.read_blocking(|db| days(db, later(DAY))).unwrap();
            let fresh = read();
            assert_eq!(fresh.len(), DAYS as usize);
            let (_, today) = fresh.last().unwrap();
            assert_eq!((today.active, today.events["heli"], today.new_members), (1, 1, 0));
            let (_, yesterday) = &fresh[fresh.len() - 2];
            assert_eq!((yesterday.active, yesterday.new_members, yesterday.raids), (2, 2, 0));
            assert_eq!(yesterday.events, BTreeMap::from([("cargo".into(), 2), ("heli".into(), 1)]));
            assert_eq!(yesterday.activity, BTreeMap::from([("sign_in".into(), 3), ("toggle".into(), 1)]));
            let roll_up = |at| while pool.write_blocking(|db| roll_up(db, at)).unwrap() == PURGE_BATCH {};
            for _ in 0..2 {
                roll_up(later(DAY));
                assert_eq!(read(), fresh);
            }
            // A counted day is not counted again when its rows are gone.
            roll_up(later(2 * DAY));
            pool.write_blocking(|db| Ok(diesel::delete(timeline::table).execute(db)?)).unwrap();
            assert_eq!(read()[..fresh.len() - 1], fresh[..fresh.len() - 1]);
            roll_up(later(200 * DAY));
            let left: i64 = pool.read_blocking(|db| Ok(active_days::table.count().get_result(db)?)).unwrap();
            assert_eq!(left, 0);
            assert!(read().iter().all(|(_, day)| day.activity.is_empty()), "and not kept for ever");
        });
    }
}
