//! Knowledge of a game server before the link is up: the records of earlier links.

use crate::{
    db::{
        day_speeds,
        engine::{error::DbError, pool::Db},
        maps, markets,
        paired_servers::{self, PairedServer},
    },
    domain::{ids::GameServerId, reporting::KnownReports, team_command::daylight::DaySpeeds},
    relay::state::game_update::GameUpdate,
};

/// The stored world. Its monuments are left out where the map is not kept, so that they come with it again. `NotFound`
/// if the server is no longer paired.
pub fn read(db: &mut Db, server: &PairedServer) -> Result<GameUpdate, DbError> {
    let world = server.baseline.clone().world();
    let mut monuments = paired_servers::monuments(db, &server.id)?;
    if let (Some(world), true) = (&world, monuments.is_some())
        && !maps::is_stored(db, &server.address, server.port, world)?
    {
        monuments = None;
    }
    let reports = match server.is_accepted() {
        true => markets::reports(db, &GameServerId::at(&server.address, server.port))?,
        false => KnownReports::default(),
    };
    let speeds = match server.is_accepted() {
        true => day_speeds::get(db, &GameServerId::at(&server.address, server.port))?,
        false => DaySpeeds::default(),
    };
    let (alive_until, reports) = (server.link_alive_at, reports.reports());
    Ok(GameUpdate::StoredWorld { world, monuments, alive_until, reports, speeds })
}
