//! Users who have taken note of an incident.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::incident_acks,
    },
    domain::time::Timestamp,
};

/// The users who have taken note of this incident, and when.
pub(super) fn of(db: &mut Db, incident: &str) -> Result<Vec<(String, Timestamp)>, DbError> {
    let acks = incident_acks::table.filter(incident_acks::incident_id.eq(incident));
    Ok(acks.select((incident_acks::user_id, incident_acks::at)).load(db)?)
}

/// Stores that this user has taken note; the first time counts.
pub(super) fn take_note(db: &mut Db, incident: &str, user: &str, at: Timestamp) -> Result<(), DbError> {
    let row = (incident_acks::incident_id.eq(incident), incident_acks::user_id.eq(user), incident_acks::at.eq(at));
    let insert = diesel::insert_into(incident_acks::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    Ok(())
}
