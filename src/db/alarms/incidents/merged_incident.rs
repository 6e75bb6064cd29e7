//! Incidents that are found to be one: the parts become one row, and their ids lead to it.

use std::collections::{BTreeSet, HashMap};

use super::acks::{self, take_note};
use crate::{
    db::{
        alarms::alarm_ledger,
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{merged_notices, notice_queue},
        schema::{incidents, merged_incidents},
    },
    domain::{incident::IncidentState, time::Timestamp},
};

/// Parts of an incident that a message names.
const MOST_PARTS: usize = 8;

/// The incident that this one is a part of.
pub(in crate::db) fn merged_into(db: &mut Db, id: &str) -> Result<Option<String>, DbError> {
    Ok(merged_incidents::table.find(id).select(merged_incidents::incident_id).first(db).optional()?)
}

/// The parts of these incidents, by incident: the newest of each, newest first.
pub fn parts(db: &mut Db, incidents: &BTreeSet<&str>) -> Result<HashMap<String, Vec<String>>, DbError> {
    let parts = merged_incidents::table.filter(merged_incidents::incident_id.eq_any(incidents.iter().copied()));
    let parts = parts.order(merged_incidents::id.desc()).select((merged_incidents::incident_id, merged_incidents::id));
    let mut by_incident: HashMap<String, Vec<String>> = HashMap::new();
    for (incident, part) in parts.load::<(String, String)>(db)? {
        let parts = by_incident.entry(incident).or_default();
        if parts.len() < MOST_PARTS {
            parts.push(part);
        }
    }
    Ok(by_incident)
}

/// Stores that this incident is a part of that one.
pub(super) fn note_part(db: &mut Db, id: &str, whole: &str) -> Result<(), DbError> {
    let row = (merged_incidents::id.eq(id), merged_incidents::incident_id.eq(whole));
    let insert = diesel::insert_into(merged_incidents::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    Ok(())
}

/// Gives the alarms of an incident, who heard of it and who took note to the one that it is a part of.
pub(super) fn merge(db: &mut Db, id: &str, into: &str) -> Result<(), DbError> {
    let known = merged_into(db, into)?;
    let into = known.as_deref().unwrap_or(into);
    let fate = |db: &mut Db, id: &str| -> Result<Option<(String, i64, Option<Timestamp>)>, DbError> {
        let fate = incidents::table.find(id).select((incidents::state, incidents::sockets, incidents::heard_at));
        Ok(fate.first(db).optional()?)
    };
    let (Some((state, sockets, heard_at)), Some((known, ..))) = (fate(db, id)?, fate(db, into)?) else {
        return Ok(());
    };
    if known == IncidentState::Unheard.word() || state == IncidentState::Acknowledged.word() {
        let fate = (incidents::state.eq(state), incidents::sockets.eq(sockets), incidents::heard_at.eq(heard_at));
        diesel::update(incidents::table.find(into)).set(fate).execute(db)?;
    }
    for (user, at) in acks::of(db, id)? {
        take_note(db, into, &user, at)?;
    }
    note_part(db, id, into)?;
    // The parts of a part are parts of the whole, or they would go with it.
    let parts = merged_incidents::table.filter(merged_incidents::incident_id.eq(id));
    diesel::update(parts).set(merged_incidents::incident_id.eq(into)).execute(db)?;
    alarm_ledger::merge(db, id, into)?;
    merged_notices::merge(db, id, into)?;
    let rang_at: Timestamp = incidents::table.find(id).select(incidents::last_at).first(db)?;
    diesel::delete(incidents::table.find(id)).execute(db)?;
    // Channels by which the one has rung hear of acknowledgements of the other.
    let acks = acks::of(db, into)?;
    acks.into_iter()
        .try_for_each(|(user, at)| notice_queue::queue_acknowledged(db, into, &user.into(), at.max(rang_at)))
}
