//! Times that tracked players spent on the game server, once they are over.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::player_sessions,
    },
    domain::time::Timestamp,
};

/// A session that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = player_sessions)]
pub struct PastSession {
    pub began_at: Timestamp,
    /// When the player was last seen in it.
    pub ended_at: Timestamp,
}

/// Adds a session; one that begins at the same instant is the same.
pub fn insert(db: &mut Db, player: &str, began_at: Timestamp, ended_at: Timestamp) -> Result<(), DbError> {
    let ended = player_sessions::ended_at.eq(ended_at);
    let row = (player_sessions::player_id.eq(player), player_sessions::began_at.eq(began_at), ended);
    let insert = diesel::insert_into(player_sessions::table)
        .values(row)
        .on_conflict((player_sessions::player_id, player_sessions::began_at))
        .do_update()
        .set(ended);
    on_backend!(db, |db| insert.execute(db))?;
    Ok(())
}

/// The player's newest sessions, the newest first.
pub fn list(db: &mut Db, player: &str, limit: i64) -> Result<Vec<PastSession>, DbError> {
    let sessions = player_sessions::table
        .filter(player_sessions::player_id.eq(player))
        .order(player_sessions::began_at.desc())
        .limit(limit)
        .select(PastSession::as_select())
        .load(db)?;
    Ok(sessions)
}

/// Deletes a batch of those that ended until then; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, player_sessions, ended_at, until))
}
