//! What happened, for the user to look up later: pushed notifications with their own text.

use diesel::prelude::*;

use crate::{
    db::{error::DbError, pool::Db, schema::timeline},
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
};

/// One entry.
#[derive(Clone, Debug)]
pub struct TimelineEntry {
    /// Our own id.
    pub id: String,
    pub user: UserId,
    /// `None` where it concerns no paired server.
    pub server: Option<ServerId>,
    /// For example `death`, `login`, `news`.
    pub kind: &'static str,
    /// When it happened, as well as it is known.
    pub ts: Timestamp,
    pub title: String,
    pub message: String,
}

/// Adds an entry.
pub fn insert(db: &mut Db, entry: &TimelineEntry) -> Result<(), DbError> {
    let row = (
        timeline::id.eq(&entry.id),
        timeline::user_id.eq(entry.user.as_str()),
        timeline::server_id.eq(entry.server.as_ref().map(ServerId::as_str)),
        timeline::kind.eq(entry.kind),
        timeline::ts.eq(entry.ts.naive_utc()),
        timeline::title.eq(&entry.title),
        timeline::message.eq(&entry.message),
    );
    diesel::insert_into(timeline::table).values(row).execute(db)?;
    Ok(())
}

/// Deletes a batch of what happened until then; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, timeline, ts, until))
}
