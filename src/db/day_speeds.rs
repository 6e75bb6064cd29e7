//! Speeds of day and night of game servers, as links to them learned.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::day_speeds,
    },
    domain::{ids::GameServerId, team_command::daylight::DaySpeeds},
};

/// The speeds of the game server.
pub fn get(db: &mut Db, game_server: &GameServerId) -> Result<DaySpeeds, DbError> {
    let row = day_speeds::table.find(game_server.as_str()).select((day_speeds::day, day_speeds::night));
    let speeds: Option<(Option<f64>, Option<f64>)> = row.first(db).optional()?;
    Ok(speeds.map(|(day, night)| DaySpeeds { day, night }).unwrap_or_default())
}

/// Stores what is known now.
pub fn put(db: &mut Db, game_server: &GameServerId, speeds: DaySpeeds) -> Result<(), DbError> {
    let given = (day_speeds::day.eq(speeds.day), day_speeds::night.eq(speeds.night));
    let put = diesel::insert_into(day_speeds::table)
        .values((day_speeds::game_server.eq(game_server.as_str()), given))
        .on_conflict(day_speeds::game_server)
        .do_update()
        .set(given);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing;

    #[test]
    fn the_speeds_of_a_game_server_are_those_that_were_learned_last() {
        testing::on_each_database(|pool| {
            let server = GameServerId::at("192.0.2.1", 28_082);
            let read = || pool.read_blocking(|db| get(db, &server)).unwrap();
            assert_eq!(read(), DaySpeeds::default());
            for speeds in [DaySpeeds { day: Some(0.1), night: None }, DaySpeeds { day: Some(0.1), night: Some(0.25) }] {
                pool.write_blocking(|db| put(db, &server, speeds)).unwrap();
                assert_eq!(read(), speeds);
            }
        });
    }
}
