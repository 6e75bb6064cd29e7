//! Places on the map of a paired server, as users give them.

use crate::{
    api::answer::error::ApiError,
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers,
    },
    domain::{ids::ServerId, map::BEYOND_THE_MAP},
};

/// Edge length of the server's map, metres; 0 = not known.
pub fn map_size(db: &mut Db, server: &ServerId) -> Result<u32, DbError> {
    let size = paired_servers::get(db, server)?.baseline.map_size;
    Ok(size.and_then(|size| u32::try_from(size).ok()).unwrap_or_default())
}

/// Checks that the place is at most 500 m beyond a map of this size.
pub fn check_place(map_size: u32, x: Option<f64>, y: Option<f64>) -> Result<(), ApiError> {
    let end = f64::from(map_size) + BEYOND_THE_MAP;
    match [("x", x), ("y", y)].into_iter().find(|(_, place)| map_size > 0 && place.is_some_and(|place| place > end)) {
        Some((field, _)) => Err(ApiError::invalid(field, format!("must be at most {end} on this map"))),
        None => Ok(()),
    }
}
