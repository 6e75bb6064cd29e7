//! Timers that players set in their team's chat. Each paired server of the team has a row of each timer.

use std::sync::Arc;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::team_timers,
    },
    domain::{
        ids::ServerId,
        team_timer::{TeamTimer, TimerTeam},
        time::Timestamp,
    },
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = team_timers)]
pub(in crate::db) struct TimerRow {
    id: String,
    number: i32,
    text: String,
    created_at: Timestamp,
    ends_at: Timestamp,
    team: Option<String>,
}

/// A timer as a paired server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTimer {
    /// All paired servers of the team have it alike.
    pub id: Arc<str>,
    pub timer: TeamTimer,
    pub created_at: Timestamp,
    /// The team of the paired player, as it was last known.
    pub team: Option<TimerTeam>,
}

impl From<TimerRow> for StoredTimer {
    fn from(TimerRow { id, number, text, created_at, ends_at, team }: TimerRow) -> Self {
        let timer = TeamTimer { number: u32::try_from(number).unwrap_or_default(), text, ends_at };
        Self { id: id.into(), timer, created_at, team: team.as_deref().and_then(TimerTeam::parse) }
    }
}

/// The timers of the server.
pub fn list(db: &mut Db, server: &ServerId) -> Result<Vec<StoredTimer>, DbError> {
    let timers = team_timers::table.filter(team_timers::server_id.eq(server.as_str())).select(TimerRow::as_select());
    Ok(timers.load(db)?.into_iter().map(StoredTimer::from).collect())
}

/// Adds a timer. False if there is one of the same id, whose number may be newer.
pub fn add(db: &mut Db, server: &ServerId, stored: &StoredTimer) -> Result<bool, DbError> {
    let StoredTimer { id, timer, created_at, team } = stored;
    let row = (
        team_timers::id.eq(&**id),
        team_timers::server_id.eq(server.as_str()),
        team_timers::number.eq(stored_number(timer)),
        team_timers::text.eq(&timer.text),
        team_timers::created_at.eq(*created_at),
        team_timers::ends_at.eq(timer.ends_at),
        team_timers::team.eq(team.as_ref().map(TimerTeam::to_text)),
    );
    let add = diesel::insert_into(team_timers::table).values(row).on_conflict_do_nothing();
    Ok(on_backend!(db, |db| add.execute(db))? == 1)
}

/// Adds a timer, or gives the one of the same id this number.
pub fn put(db: &mut Db, server: &ServerId, stored: &StoredTimer) -> Result<(), DbError> {
    if !add(db, server, stored)? {
        let timers = team_timers::table.filter(team_timers::server_id.eq(server.as_str()));
        let same = timers.filter(team_timers::id.eq(&*stored.id));
        diesel::update(same).set(team_timers::number.eq(stored_number(&stored.timer))).execute(db)?;
    }
    Ok(())
}

fn stored_number(timer: &TeamTimer) -> i32 {
    i32::try_from(timer.number).unwrap_or(i32::MAX)
}

/// Deletes a timer for all who have it; false when there was none.
pub fn delete(db: &mut Db, id: &str) -> Result<bool, DbError> {
    Ok(diesel::delete(team_timers::table.filter(team_timers::id.eq(id))).execute(db)? > 0)
}

/// This server has the timers with these ids no longer: others keep them.
pub fn leave(db: &mut Db, server: &ServerId, ids: &[Arc<str>]) -> Result<usize, DbError> {
    let timers = team_timers::table.filter(team_timers::server_id.eq(server.as_str()));
    let left = timers.filter(team_timers::id.eq_any(ids.iter().map(|id| &**id)));
    Ok(diesel::delete(left).execute(db)?)
}

/// The team of the paired player has other members, or another leader.
pub fn set_team(db: &mut Db, server: &ServerId, team: &TimerTeam) -> Result<(), DbError> {
    let timers = team_timers::table.filter(team_timers::server_id.eq(server.as_str()));
    diesel::update(timers).set(team_timers::team.eq(team.to_text())).execute(db)?;
    Ok(())
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

    fn stored(number: u32, created_at: Timestamp) -> StoredTimer {
        let timer = TeamTimer { number, text: "heli".into(), ends_at: later(600) };
        let team = Some(TimerTeam::new(Some(7), [7, 8]));
        StoredTimer { id: number.to_string().into(), timer, created_at, team }
    }

    #[test]
    fn timers_are_kept_until_they_end_or_the_world_does() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            for (number, created_at) in [(1, now()), (2, later(5)), (3, later(9))] {
                pool.write_blocking(|db| put(db, &server, &stored(number, created_at))).unwrap();
            }
            assert!(pool.write_blocking(|db| delete(db, "3")).unwrap());
            assert!(!pool.write_blocking(|db| delete(db, "3")).unwrap());
            assert_eq!(pool.write_blocking(|db| wipe(db, &server, later(5))).unwrap(), 1);
            assert_eq!(pool.read_blocking(|db| list(db, &server)).unwrap(), [stored(2, later(5))]);
        });
    }

    #[test]
    fn a_timer_of_a_team_ends_for_all_and_is_left_by_one() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::user(pool, "mate");
            let servers = ["owner", "mate"].map(|owner| testing::server(pool, owner, owner).id);
            let put = |server: &ServerId, timer: &StoredTimer| {
                pool.write_blocking(|db| put(db, server, timer)).unwrap();
            };
            let list = |server: &ServerId| pool.read_blocking(|db| list(db, server)).unwrap();
            for server in &servers {
                [1, 2].iter().for_each(|number| put(server, &stored(*number, now())));
            }
            let mut renumbered = stored(2, now());
            renumbered.timer.number = 5;
            put(&servers[1], &renumbered);
            assert!(
                !pool.write_blocking(|db| add(db, &servers[1], &stored(2, now()))).unwrap(),
                "that number is older"
            );
            let joined = TimerTeam::new(Some(9), [7, 8, 9]);
            pool.write_blocking(|db| set_team(db, &servers[1], &joined)).unwrap();
            renumbered.team = Some(joined);
            assert!(pool.write_blocking(|db| delete(db, "1")).unwrap());
            assert_eq!((list(&servers[0]), list(&servers[1])), (vec![stored(2, now())], vec![renumbered.clone()]));
            put(&servers[0], &stored(3, now()));
            assert_eq!(pool.write_blocking(|db| leave(db, &servers[0], &["2".into()])).unwrap(), 1);
            assert_eq!(
                (list(&servers[0]), list(&servers[1])),
                (vec![stored(3, now())], vec![renumbered]),
                "the third is a later one"
            );
        });
    }
}
