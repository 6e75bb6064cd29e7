//! Notices of new incidents: opened in the transaction that stores the incident, so that none is missed.

use crate::{
    db::{
        access,
        engine::{error::DbError, pool::Db, prelude::*},
        notices::channels,
        schema::notices,
    },
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
};

/// The facts of a notice that is to be opened.
#[derive(Clone, Copy)]
pub(in crate::db) struct NewNotice<'a> {
    /// Id of the incident, or of the event.
    pub incident: &'a str,
    /// When the alarm or event came: the time of the first step counts from then.
    pub opened_at: Timestamp,
    /// The first look at it.
    pub due_at: Timestamp,
    /// An event that is no raid, as JSON.
    pub event: Option<&'a str>,
}

/// Opens a notice for each user who may watch the server and has a channel. The first step is due at once.
pub fn open(db: &mut Db, server: &ServerId, incident: &str, opened_at: Timestamp) -> Result<(), DbError> {
    let watchers = access::watchers(db, server)?;
    let new = NewNotice { incident, opened_at, due_at: opened_at, event: None };
    for user in channels::reachable(db, &watchers)? {
        open_for(db, server, &user, new)?;
    }
    Ok(())
}

/// Opens a notice for this user, unless there is one.
pub(in crate::db) fn open_for(
    db: &mut Db,
    server: &ServerId,
    user: &UserId,
    NewNotice { incident, opened_at, due_at, event }: NewNotice<'_>,
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
