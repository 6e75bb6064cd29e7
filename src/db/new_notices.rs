//! Notices of new incidents: opened in the transaction that stores the incident, so that none is missed.

use diesel::prelude::*;

use crate::{
    db::{
        access, channels,
        engine::{error::DbError, pool::Db},
        schema::notices,
    },
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
};

/// Opens a notice for each user who may watch the server and has a channel. The first step is due at once.
pub fn open(db: &mut Db, server: &ServerId, incident: &str, opened_at: Timestamp) -> Result<(), DbError> {
    let watchers = access::watchers(db, server)?;
    for user in channels::reachable(db, &watchers)? {
        open_for(db, server, &user, incident, opened_at, opened_at, None)?;
    }
    Ok(())
}

/// Opens a notice for this user, unless there is one; of an incident, or of an event that is no raid, as JSON. It is
/// looked at at `due_at`, and the time of its first step counts from `opened_at`, when the alarm or event came.
pub(in crate::db) fn open_for(
    db: &mut Db,
    server: &ServerId,
    user: &UserId,
    incident: &str,
    opened_at: Timestamp,
    due_at: Timestamp,
    event: Option<&str>,
) -> Result<(), DbError> {
    let new = (
        notices::incident_id.eq(incident),
        notices::server_id.eq(server.as_str()),
        notices::user_id.eq(user.as_str()),
        notices::opened_at.eq(opened_at),
        notices::round.eq(0),
        notices::round_at.eq(opened_at),
        notices::due_at.eq(due_at),
        notices::event.eq(event),
    );
    let insert = diesel::insert_into(notices::table).values(new).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    Ok(())
}

/// Gives the notices of an incident to the one that it is a part of.
pub fn merge(db: &mut Db, incident: &str, into: &str) -> Result<(), DbError> {
    let known: Vec<String> = notices::table.filter(notices::incident_id.eq(into)).select(notices::user_id).load(db)?;
    let of_part = notices::table.filter(notices::incident_id.eq(incident));
    diesel::delete(of_part.filter(notices::user_id.eq_any(known))).execute(db)?;
    diesel::update(of_part).set(notices::incident_id.eq(into)).execute(db)?;
    Ok(())
}
