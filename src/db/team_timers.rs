//! Timers that players set in their team's chat.

use diesel::prelude::*;

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        schema::team_timers,
    },
    domain::{ids::ServerId, team_timer::TeamTimer, time::Timestamp},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = team_timers)]
pub(in crate::db) struct TimerRow {
    id: String,
    number: i32,
    text: String,
    ends_at: Timestamp,
}

/// The timers of the server, by their ids.
pub fn list(db: &mut Db, server: &ServerId) -> Result<Vec<(String, TeamTimer)>, DbError> {
    let timers = team_timers::table.filter(team_timers::server_id.eq(server.as_str())).select(TimerRow::as_select());
    let timer = |TimerRow { id, number, text, ends_at }| {
        (id, TeamTimer { number: u32::try_from(number).unwrap_or_default(), text, ends_at })
    };
    Ok(timers.load(db)?.into_iter().map(timer).collect())
}

/// Adds a timer.
pub fn insert(db: &mut Db, server: &ServerId, id: &str, timer: &TeamTimer, now: Timestamp) -> Result<(), DbError> {
    let row = (
        team_timers::id.eq(id),
        team_timers::server_id.eq(server.as_str()),
        team_timers::number.eq(i32::try_from(timer.number).unwrap_or(i32::MAX)),
        team_timers::text.eq(&timer.text),
        team_timers::created_at.eq(now),
        team_timers::ends_at.eq(timer.ends_at),
    );
    diesel::insert_into(team_timers::table).values(row).execute(db)?;
    Ok(())
}

/// Deletes a timer; false when there was none.
pub fn delete(db: &mut Db, id: &str) -> Result<bool, DbError> {
    Ok(diesel::delete(team_timers::table.find(id)).execute(db)? == 1)
}

/// The world was wiped at this time: earlier timers are about the old one.
pub fn wipe(db: &mut Db, server: &ServerId, at: Timestamp) -> Result<usize, DbError> {
    let timers = team_timers::table.filter(team_timers::server_id.eq(server.as_str()));
    Ok(diesel::delete(timers.filter(team_timers::created_at.lt(at))).execute(db)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn timers_are_kept_until_they_end_or_the_world_does() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            let timer = |number| TeamTimer { number, text: "heli".into(), ends_at: later(600) };
            for (number, created_at) in [(1, now()), (2, later(5)), (3, later(9))] {
                let id = number.to_string();
                pool.write_blocking(|db| insert(db, &server, &id, &timer(number), created_at)).unwrap();
            }
            assert!(pool.write_blocking(|db| delete(db, "3")).unwrap());
            assert!(!pool.write_blocking(|db| delete(db, "3")).unwrap());
            assert_eq!(pool.write_blocking(|db| wipe(db, &server, later(5))).unwrap(), 1);
            assert_eq!(pool.read_blocking(|db| list(db, &server)).unwrap(), [("2".to_owned(), timer(2))]);
        });
    }
}
