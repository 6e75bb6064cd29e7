//! Requests to the player-statistics service that each user has spent today, so that a restart does not reset the day's
//! budget.

use chrono::{NaiveDate, NaiveTime};

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::player_stats_spending as spending,
    },
    domain::{ids::UserId, time::Timestamp},
};

/// Stores what users have spent on this day, in parts of a request. One who is gone is left out.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn put(db: &mut Db, day: NaiveDate, spent: &[(UserId, u64)]) -> Result<(), DbError> {
    use crate::db::schema::users;
    for (user, spent) in spent {
        let known: Option<String> = users::table.find(user.as_str()).select(users::id).first(db).optional()?;
        if known.is_none() {
            continue;
        }
        let now = (
            spending::day.eq(day.and_time(NaiveTime::MIN)),
            spending::spent.eq(i64::try_from(*spent).unwrap_or(i64::MAX)),
        );
        let put = diesel::insert_into(spending::table)
            .values((spending::user_id.eq(user.as_str()), now))
            .on_conflict(spending::user_id)
            .do_update()
            .set(now);
        on_backend!(db, |db| put.execute(db))?;
    }
    Ok(())
}

/// Requests that each user has spent on this day.
pub fn list(db: &mut Db, day: NaiveDate) -> Result<Vec<(UserId, u64)>, DbError> {
    let rows: Vec<(String, i64)> = spending::table
        .filter(spending::day.eq(day.and_time(NaiveTime::MIN)))
        .select((spending::user_id, spending::spent))
        .load(db)?;
    Ok(rows.into_iter().map(|(user, spent)| (user.into(), u64::try_from(spent).unwrap_or(0))).collect())
}

/// Deletes a batch of days until then; returns how many rows.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    use spending as player_stats_spending;
    Ok(purge_oldest!(db, player_stats_spending, day, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn spending_is_kept_for_its_day() {
        testing::on_each_database(|pool| {
            testing::user(pool, "ann");
            let (today, tomorrow) = (now().date_naive(), later(86_400).date_naive());
            let put = |day, spent: &[(UserId, u64)]| pool.write_blocking(|db| put(db, day, spent)).unwrap();
            let read = |day| pool.read_blocking(|db| list(db, day)).unwrap();
            put(today, &[("ann".into(), 1_500), ("gone".into(), 9)]);
            put(today, &[("ann".into(), 2_000)]);
            assert_eq!((read(today), read(tomorrow)), (vec![("ann".into(), 2_000)], vec![]));
            put(tomorrow, &[("ann".into(), 1)]);
            assert_eq!((read(today), read(tomorrow)), (vec![], vec![("ann".into(), 1)]));
            assert_eq!(pool.write_blocking(|db| purge(db, later(2 * 86_400))).unwrap(), 1);
        });
    }
}
