//! The ledger of alarms, by incident: what clients are shown as `state.raids`, and whether anybody heard of it.
//!
//! An incident is `unheard` until a socket took the bytes of its message (`delivered`) or of a snapshot that holds it
//! (`delivered_later`); a user's acknowledgement makes it `acknowledged`; unheard for a day it has `expired`. No other
//! state is an end.

mod acks;
mod known_incident;
mod ledger_write;
mod merged_incident;
mod shared_acks;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use diesel::dsl::{max, min};
use serde::{Deserialize, Serialize};

pub(in crate::db) use self::merged_incident::merged_into;
use self::{
    acks::take_note,
    known_incident::KnownIncident,
    merged_incident::{merge, note_part},
};
pub use self::{
    ledger_write::{HeardBy, LedgerWrite},
    merged_incident::parts,
};
use crate::{
    db::{
        PURGE_BATCH, access,
        alarms::alarm_ledger::{self, AlarmState, LedgerAlarm},
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{merged_notices, new_notices, notice_queue},
        paired_servers,
        schema::{incident_acks, incidents, smart_devices},
    },
    domain::{
        access::Action,
        ids::{ServerId, UserId},
        incident::{AlarmPath, DevicePlace, Incident, IncidentState},
        raid,
        time::Timestamp,
        timeline::{Cursor, TimelinePage},
    },
};

/// State of an incident that no socket has taken yet.
pub const UNHEARD: &str = IncidentState::Unheard.word();
/// State: a socket has taken its message.
pub const DELIVERED: &str = IncidentState::Delivered.word();
/// State: a socket has taken a live state that holds it, and none its message.
pub const DELIVERED_LATER: &str = IncidentState::DeliveredLater.word();
/// State: a user has acknowledged it.
pub const ACKNOWLEDGED: &str = IncidentState::Acknowledged.word();
/// State: no socket has taken it for as long as it is shown.
pub const EXPIRED: &str = IncidentState::Expired.word();
/// All states, in the order in which an incident passes them.
pub const STATES: [&str; 5] = IncidentState::WORDS;

/// Open incidents of one server that are read at its start, the newest; alarms and titles of pushes bound them far below.
const MOST_OPEN: i64 = 2_000;

/// Incidents of some servers, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentSummary {
    /// Number in each of [`STATES`] that has any.
    pub by_state: BTreeMap<String, i64>,
    /// When the last one began.
    pub last_at: Option<Timestamp>,
}

/// Stores all of it. `NotFound` if the paired server is gone, and its ledger with it.
pub fn write(db: &mut Db, server: &ServerId, write: &LedgerWrite) -> Result<(), DbError> {
    let owner = paired_servers::get(db, server)?.owner_id;
    if !write.merged.is_empty() {
        // For all merges at once, and before counts are said, by messages, too.
        merged_notices::lock_channels(db, write.merged.iter().flat_map(|(id, into)| [id.as_str(), into.as_str()]))?;
    }
    for (id, (incident, title)) in &write.incidents {
        put(db, server, id, incident, title.as_deref())?;
    }
    for alarm in write.alarms.values() {
        alarm_ledger::receive(db, &LedgerAlarm { user: owner.clone(), ..alarm.clone() })?;
    }
    // One that waits is of a node that had the server no longer.
    let handled: Vec<_> = write.alarms.values().filter(|alarm| alarm.state != AlarmState::Received).collect();
    alarm_ledger::lock(db, handled.iter().map(|alarm| alarm.id.as_str()))?;
    for alarm in handled {
        let Some(incident) = &alarm.incident else { continue };
        // Another node has announced it meanwhile, for want of the server.
        if let Some(other) = alarm_ledger::waits_in(db, &alarm.id)?.filter(|other| other != incident) {
            merge(db, &other, incident)?;
            shared_acks::share(db, server, incident)?;
        }
        alarm_ledger::assign(db, server, &alarm.id, alarm.state, incident, alarm.received_at)?;
    }
    for (id, heard) in &write.heard {
        hear(db, id, *heard)?;
    }
    for (device, value) in &write.values {
        let device = smart_devices::table.find((server.as_str(), device));
        diesel::update(device).set(smart_devices::last_value.eq(value)).execute(db)?;
    }
    for (id, into) in &write.merged {
        merge(db, id, into)?;
    }
    for (incident, acks) in &write.acks {
        for (user, at) in acks {
            // Access was perhaps not known when it was kept, and may have changed since.
            if access::role(db, user, server)?.is_some_and(|role| role.may(Action::Acknowledge)) {
                acknowledge(db, server, incident, user, *at)?;
            }
        }
    }
    Ok(())
}

/// Stores what a node has of a server that another one has by now: see [`LedgerWrite::for_another_node`]. Alarms wait for
/// that node, in the incidents that this one has announced. `NotFound` as for [`write()`].
pub fn write_for_another_node(db: &mut Db, server: &ServerId, write: &LedgerWrite) -> Result<(), DbError> {
    let mut write = write.clone().for_another_node();
    let owner = paired_servers::get(db, server)?.owner_id;
    for alarm in write.alarms.values() {
        alarm_ledger::receive(db, &LedgerAlarm { user: owner.clone(), incident: None, ..alarm.clone() })?;
    }
    alarm_ledger::lock(db, write.alarms.keys().map(String::as_str))?;
    let alarms = std::mem::take(&mut write.alarms);
    for (id, (incident, title)) in std::mem::take(&mut write.incidents) {
        let of_it = alarms.values().filter(|alarm| alarm.incident.as_ref() == Some(&id));
        let of_it: Vec<&str> = of_it.map(|alarm| alarm.id.as_str()).collect();
        put_for_another_node(db, server, (&id, &incident, title.as_deref()), &of_it)?;
    }
    self::write(db, server, &write)?;
    write.acks.keys().try_for_each(|incident| shared_acks::share(db, server, incident))
}

/// Stores an incident with these alarms. One that is known is the other node's, and one whose alarms that node has put into
/// an incident is a part of that.
fn put_for_another_node(
    db: &mut Db,
    server: &ServerId,
    (id, incident, title): (&str, &Incident, Option<&str>),
    alarms: &[&str],
) -> Result<(), DbError> {
    if alarms.is_empty() || KnownIncident::find(db, id)?.is_some() || merged_into(db, id)?.is_some() {
        return Ok(());
    }
    match alarm_ledger::incident_of(db, alarms)? {
        Some(whole) if KnownIncident::find(db, &whole)?.is_some() => note_part(db, id, &whole),
        // Perhaps one that is so old that it is deleted.
        Some(_) => Ok(()),
        None => {
            put(db, server, id, incident, title)?;
            alarm_ledger::wait_in(db, alarms, id)
        }
    }
}

fn hear(db: &mut Db, id: &str, heard: HeardBy) -> Result<(), DbError> {
    let unheard = incidents::table.find(id).filter(incidents::state.eq(UNHEARD));
    let state = if heard.sockets > 0 { DELIVERED } else { DELIVERED_LATER };
    let sockets = i64::try_from(heard.sockets).unwrap_or(i64::MAX);
    let set = (incidents::state.eq(state), incidents::sockets.eq(sockets), incidents::heard_at.eq(heard.at));
    if diesel::update(unheard).set(set).execute(db)? == 0 {
        if let Some(into) = merged_into(db, id)? {
            return hear(db, &into, heard);
        }
        // More of them took its message since, or the first did, which a snapshot had overtaken.
        let fewer = incidents::table.find(id).filter(incidents::sockets.lt(sockets));
        diesel::update(fewer).set(incidents::sockets.eq(sockets)).execute(db)?;
        if heard.sockets > 0 {
            let later = incidents::table.find(id).filter(incidents::state.eq(DELIVERED_LATER));
            diesel::update(later).set(incidents::state.eq(DELIVERED)).execute(db)?;
        }
    }
    Ok(())
}

fn put(db: &mut Db, server: &ServerId, id: &str, incident: &Incident, title: Option<&str>) -> Result<(), DbError> {
    let known = KnownIncident::find(db, id)?;
    let title = known.as_ref().map_or(title, |known| known.title(incident, title));
    let paths: Vec<&str> = incident.paths.iter().map(|path| path.word()).collect();
    let news = (
        incidents::alarm_id.eq(&incident.alarm_id),
        incidents::alarm_name.eq(&incident.alarm_name),
        incidents::title.eq(title),
        incidents::x.eq(incident.place.x),
        incidents::y.eq(incident.place.y),
        incidents::grid.eq(&incident.place.grid),
        incidents::last_at.eq(incident.last_at),
        incidents::ended_at.eq(incident.ended_at),
        incidents::count.eq(i64::from(incident.count)),
        incidents::paths.eq(paths.join(",")),
    );
    let first = (
        incidents::id.eq(id),
        incidents::server_id.eq(server.as_str()),
        incidents::first_at.eq(incident.first_at),
        incidents::late.eq(incident.late),
        incidents::drill.eq(incident.drill),
        incidents::state.eq(UNHEARD),
        incidents::sockets.eq(0),
    );
    match &known {
        // A write from before the merge comes again after a crash.
        None if merged_into(db, id)?.is_some() => 0,
        None => {
            diesel::insert_into(incidents::table).values((first, news)).execute(db)?;
            new_notices::open(db, server, id, incident.first_at)?;
            1
        }
        Some(known) if known.is_newer_than(incident) => 0,
        Some(known) => {
            known.note_triggers(db, id, incident)?;
            diesel::update(incidents::table.find(id)).set(news).execute(db)?
        }
    };
    Ok(())
}

/// An incident as the ledger has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredIncident {
    pub id: String,
    pub incident: Incident,
    /// Title of its pushes.
    pub title: Option<String>,
    pub state: String,
    /// Sockets that took its message.
    pub sockets: i64,
    pub heard_at: Option<Timestamp>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = incidents)]
pub(in crate::db) struct IncidentRow {
    id: String,
    alarm_id: String,
    alarm_name: String,
    title: Option<String>,
    x: Option<f64>,
    y: Option<f64>,
    grid: String,
    first_at: Timestamp,
    last_at: Timestamp,
    ended_at: Option<Timestamp>,
    count: i64,
    paths: String,
    late: bool,
    drill: bool,
    state: String,
    sockets: i64,
    heard_at: Option<Timestamp>,
}

impl StoredIncident {
    /// One that no socket has taken yet.
    pub fn unheard(id: String, incident: Incident) -> Self {
        Self { id, incident, title: None, state: UNHEARD.to_owned(), sockets: 0, heard_at: None }
    }

    fn new(row: IncidentRow, acks: BTreeMap<UserId, Timestamp>) -> Self {
        let paths: BTreeSet<AlarmPath> = row.paths.split(',').filter_map(AlarmPath::parse).collect();
        let incident = Incident {
            alarm_id: row.alarm_id,
            alarm_name: row.alarm_name,
            place: DevicePlace { x: row.x, y: row.y, grid: row.grid },
            first_at: row.first_at,
            last_at: row.last_at,
            ended_at: row.ended_at,
            count: u32::try_from(row.count).unwrap_or(u32::MAX),
            paths,
            late: row.late,
            drill: row.drill,
            acks,
        };
        Self { id: row.id, incident, title: row.title, state: row.state, sockets: row.sockets, heard_at: row.heard_at }
    }
}

/// The server's incidents, newest first: `limit` of those before this one.
pub fn list(db: &mut Db, server: &ServerId, before: Option<&str>, limit: i64) -> Result<Vec<StoredIncident>, DbError> {
    let mut query = incidents::table.filter(incidents::server_id.eq(server.as_str())).into_boxed();
    if let Some(before) = before {
        query = query.filter(incidents::id.lt(before.to_owned()));
    }
    let rows: Vec<IncidentRow> =
        query.order(incidents::id.desc()).limit(limit).select(IncidentRow::as_select()).load(db)?;
    with_acks(db, rows)
}

/// An incident.
pub fn get(db: &mut Db, id: &str) -> Result<Option<StoredIncident>, DbError> {
    let row: Option<IncidentRow> = incidents::table.find(id).select(IncidentRow::as_select()).first(db).optional()?;
    Ok(with_acks(db, row.into_iter().collect())?.pop())
}

/// This incident, or the one that it is a part of, and its server.
pub fn whole(db: &mut Db, id: &str) -> Result<Option<(StoredIncident, ServerId)>, DbError> {
    let into = merged_into(db, id)?;
    let whole = into.as_deref().unwrap_or(id);
    let server = incidents::table.find(whole).select(incidents::server_id).first::<String>(db).optional()?;
    Ok(get(db, whole)?.zip(server.map(ServerId::from)))
}

/// These incidents, by id; one that is not known is absent.
pub fn get_all(db: &mut Db, ids: &BTreeSet<String>) -> Result<HashMap<String, StoredIncident>, DbError> {
    let rows: Vec<IncidentRow> =
        incidents::table.filter(incidents::id.eq_any(ids)).select(IncidentRow::as_select()).load(db)?;
    Ok(with_acks(db, rows)?.into_iter().map(|incident| (incident.id.clone(), incident)).collect())
}

/// The raids of this page of the server's timeline, newest first, without who acknowledged them.
pub fn raids(db: &mut Db, server: &ServerId, page: &TimelinePage) -> Result<Vec<StoredIncident>, DbError> {
    let raids = incidents::table.filter(incidents::server_id.eq(server.as_str())).filter(incidents::drill.eq(false));
    let mut query = raids.into_boxed();
    if let Some(since) = page.since {
        query = query.filter(incidents::first_at.ge(since));
    }
    if let Some(Cursor { ts, id }) = &page.before {
        query = query.filter(incidents::first_at.le(ts).and(incidents::first_at.lt(ts).or(incidents::id.lt(id))));
    }
    let newest = query.order((incidents::first_at.desc(), incidents::id.desc())).limit(page.limit as i64);
    let rows: Vec<IncidentRow> = newest.select(IncidentRow::as_select()).load(db)?;
    Ok(rows.into_iter().map(|row| StoredIncident::new(row, BTreeMap::new())).collect())
}

/// The server's incidents that are shown, oldest first: all that are open, and the newest of the last day that have
/// ended; drills for a shorter time, and in no raid's place.
pub fn shown(db: &mut Db, server: &ServerId, now: Timestamp) -> Result<Vec<StoredIncident>, DbError> {
    let open = incidents::table.filter(incidents::server_id.eq(server.as_str())).filter(incidents::ended_at.is_null());
    let open = open.filter(incidents::drill.eq(false)).order(incidents::id.desc()).limit(MOST_OPEN);
    let mut rows: Vec<IncidentRow> = open.select(IncidentRow::as_select()).load(db)?;
    for (drill, span, most) in
        [(false, raid::SHOWN_FOR, 4 * raid::SHOWN), (true, raid::DRILL_SHOWN_FOR, raid::DRILLS_SHOWN)]
    {
        let of_server = incidents::table.filter(incidents::server_id.eq(server.as_str()));
        let of_time = of_server.filter(incidents::last_at.gt(now - span));
        let newest = of_time.filter(incidents::drill.eq(drill)).order(incidents::id.desc()).limit(most as i64);
        rows.extend(newest.select(IncidentRow::as_select()).load(db)?);
    }
    rows.sort_by(|one, other| one.id.cmp(&other.id));
    rows.dedup_by(|one, other| one.id == other.id);
    with_acks(db, rows)
}

/// Ids of the server's incidents with a trigger after this time, the newest; no drills.
pub fn ids_since(db: &mut Db, server: &ServerId, since: Timestamp) -> Result<BTreeSet<String>, DbError> {
    let recent = incidents::table
        .filter(incidents::server_id.eq(server.as_str()))
        .filter(incidents::last_at.gt(since))
        .filter(incidents::drill.eq(false))
        .order(incidents::id.desc())
        .limit(MOST_OPEN);
    let ids: Vec<String> = recent.select(incidents::id).load(db)?;
    Ok(ids.into_iter().collect())
}

fn with_acks(db: &mut Db, rows: Vec<IncidentRow>) -> Result<Vec<StoredIncident>, DbError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let stored: Vec<(String, String, Timestamp)> =
        incident_acks::table.filter(incident_acks::incident_id.eq_any(ids)).load(db)?;
    let mut acks: BTreeMap<String, BTreeMap<UserId, Timestamp>> = BTreeMap::new();
    for (incident, user, at) in stored {
        acks.entry(incident).or_default().insert(user.into(), at);
    }
    Ok(rows
        .into_iter()
        .map(|row| {
            let acks = acks.remove(&row.id).unwrap_or_default();
            StoredIncident::new(row, acks)
        })
        .collect())
}

/// Number of alarms of these servers that are going on, drills aside; a server without one is absent.
pub fn open(db: &mut Db, servers: &[ServerId]) -> Result<BTreeMap<ServerId, i64>, DbError> {
    if servers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let counts: Vec<(String, i64)> = incidents::table
        .filter(incidents::server_id.eq_any(servers.iter().map(ServerId::as_str)))
        .filter(incidents::ended_at.is_null())
        .filter(incidents::drill.eq(false))
        .group_by(incidents::server_id)
        .select((incidents::server_id, diesel::dsl::count_star()))
        .load(db)?;
    Ok(counts.into_iter().map(|(server, count)| (server.into(), count)).collect())
}

/// Stores that a user has taken note of an incident, or of the one that it is a part of; the first time counts. None if the
/// server has no such incident.
pub fn acknowledge(
    db: &mut Db,
    server: &ServerId,
    incident: &str,
    user: &UserId,
    now: Timestamp,
) -> Result<Option<StoredIncident>, DbError> {
    let known = incidents::table.find(incident).filter(incidents::server_id.eq(server.as_str()));
    if diesel::update(known).set(incidents::state.eq(ACKNOWLEDGED)).execute(db)? == 0 {
        return match merged_into(db, incident)? {
            Some(into) => acknowledge(db, server, &into, user, now),
            None => Ok(None),
        };
    }
    take_note(db, incident, user.as_str(), now)?;
    notice_queue::queue_acknowledged(db, incident, user, now)?;
    let row = incidents::table.find(incident).select(IncidentRow::as_select()).first(db)?;
    Ok(with_acks(db, vec![row])?.pop())
}

/// Expires a batch of the incidents that are unheard and older than this time. Returns how many.
pub fn expire(db: &mut Db, since: Timestamp) -> Result<usize, DbError> {
    let unheard = incidents::table.filter(incidents::state.eq(UNHEARD));
    let ids: Vec<String> =
        unheard.filter(incidents::last_at.lt(since)).limit(PURGE_BATCH as i64).select(incidents::id).load(db)?;
    if ids.is_empty() {
        return Ok(0);
    }
    let old = incidents::table.filter(incidents::id.eq_any(ids));
    Ok(diesel::update(old).set(incidents::state.eq(EXPIRED)).execute(db)?)
}

/// Deletes what happened before this time, a batch of it. Returns how many.
pub fn purge(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    let old = incidents::table.filter(incidents::last_at.lt(before));
    let ids: Vec<String> = old.limit(PURGE_BATCH as i64).select(incidents::id).load(db)?;
    if ids.is_empty() {
        return Ok(0);
    }
    Ok(diesel::delete(incidents::table.filter(incidents::id.eq_any(ids))).execute(db)?)
}

/// Summary of the incidents of these servers, drills aside: the number in each state, and when the last one began.
pub fn summary(db: &mut Db, servers: &[ServerId]) -> Result<IncidentSummary, DbError> {
    if servers.is_empty() {
        return Ok(IncidentSummary::default());
    }
    let rows: Vec<(String, i64, Option<Timestamp>)> = incidents::table
        .filter(incidents::server_id.eq_any(servers.iter().map(ServerId::as_str)))
        .filter(incidents::drill.eq(false))
        .group_by(incidents::state)
        .select((incidents::state, diesel::dsl::count_star(), diesel::dsl::max(incidents::first_at)))
        .load(db)?;
    let last_at = rows.iter().filter_map(|(.., last)| *last).max();
    Ok(IncidentSummary { by_state: rows.into_iter().map(|(state, count, _)| (state, count)).collect(), last_at })
}

/// Number of incidents in each state.
pub fn tally(db: &mut Db) -> Result<Vec<(&'static str, i64)>, DbError> {
    let count = |state| Ok((state, incidents::table.filter(incidents::state.eq(state)).count().get_result(db)?));
    STATES.into_iter().map(count).collect()
}

/// Since when the oldest incident has been unheard.
pub fn oldest_unheard(db: &mut Db) -> Result<Option<Timestamp>, DbError> {
    let unheard = incidents::table.filter(incidents::state.eq(UNHEARD));
    let oldest: Option<Timestamp> = unheard.select(min(incidents::first_at)).first(db)?;
    Ok(oldest)
}

/// Time at which a user last heard of an incident.
pub fn last_heard(db: &mut Db) -> Result<Option<Timestamp>, DbError> {
    let last: Option<Timestamp> = incidents::table.select(max(incidents::heard_at)).first(db)?;
    Ok(last)
}

#[cfg(test)]
mod tests;
