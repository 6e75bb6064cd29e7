//! The ledger of alarms, by incident: what clients are shown as `state.raids`, and whether anybody heard of it.
//!
//! An incident is `unheard` until a socket took the bytes of its message (`delivered`) or of a snapshot that holds it
//! (`delivered_later`); a user's acknowledgement makes it `acknowledged`; unheard for a day it has `expired`. No other
//! state is an end.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    db::{
        PURGE_BATCH,
        alarms::{self, Arrival},
        error::DbError,
        paired_servers,
        pool::Db,
        schema::{incident_acks, incidents, smart_devices},
        timestamp::{StoredTimestamp, StoredTimestampOption},
    },
    domain::{
        ids::{ServerId, UserId},
        incident::{AlarmPath, DevicePlace, Incident},
        raid,
        time::Timestamp,
    },
};

/// The states in which an incident can be, in the order in which it passes them.
pub const UNHEARD: &str = "unheard";
pub const DELIVERED: &str = "delivered";
pub const DELIVERED_LATER: &str = "delivered_later";
pub const ACKNOWLEDGED: &str = "acknowledged";
pub const EXPIRED: &str = "expired";
pub const STATES: [&str; 5] = [UNHEARD, DELIVERED, DELIVERED_LATER, ACKNOWLEDGED, EXPIRED];

/// What the alarms of one server want stored, all of it at once. Storing it again changes nothing, and an older one
/// never undoes a newer one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LedgerWrite {
    /// By id, with the title of its pushes.
    pub incidents: BTreeMap<String, (Incident, Option<String>)>,
    /// By id.
    pub arrivals: BTreeMap<String, Arrival>,
    /// Incidents that somebody heard of.
    pub heard: BTreeMap<String, HeardBy>,
    /// The last values of alarms, by device id.
    pub values: BTreeMap<String, bool>,
}

/// How somebody heard of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeardBy {
    /// Sockets that took the message; 0: it was in a snapshot.
    pub sockets: usize,
    pub at: Timestamp,
}

impl LedgerWrite {
    /// Adds what is newer.
    pub fn extend(&mut self, newer: LedgerWrite) {
        self.incidents.extend(newer.incidents);
        self.arrivals.extend(newer.arrivals);
        for (incident, heard) in newer.heard {
            self.heard.entry(incident).or_insert(heard);
        }
        self.values.extend(newer.values);
    }

    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Stores all of it. `NotFound` if the paired server is gone, and its ledger with it.
pub fn write(db: &mut Db, server: &ServerId, write: &LedgerWrite) -> Result<(), DbError> {
    let owner = paired_servers::get(db, server)?.owner_id;
    for (id, (incident, title)) in &write.incidents {
        put(db, server, id, incident, title.as_deref())?;
    }
    for arrival in write.arrivals.values() {
        let arrival = Arrival { user: owner.clone(), ..arrival.clone() };
        alarms::receive(db, &arrival)?;
        if let Some(incident) = &arrival.incident {
            alarms::assign(db, &arrival.id, arrival.state, incident, arrival.received_at)?;
        }
    }
    for (id, heard) in &write.heard {
        let unheard = incidents::table.find(id).filter(incidents::state.eq(UNHEARD));
        let state = if heard.sockets > 0 { DELIVERED } else { DELIVERED_LATER };
        let set = (
            incidents::state.eq(state),
            incidents::sockets.eq(i64::try_from(heard.sockets).unwrap_or(i64::MAX)),
            incidents::heard_at.eq(heard.at.naive_utc()),
        );
        diesel::update(unheard).set(set).execute(db)?;
    }
    for (device, value) in &write.values {
        let device = smart_devices::table.find((server.as_str(), device));
        diesel::update(device).set(smart_devices::last_value.eq(value)).execute(db)?;
    }
    Ok(())
}

fn put(db: &mut Db, server: &ServerId, id: &str, incident: &Incident, title: Option<&str>) -> Result<(), DbError> {
    let paths: Vec<&str> = incident.paths.iter().map(|path| path.word()).collect();
    let news = (
        incidents::alarm_id.eq(&incident.alarm_id),
        incidents::alarm_name.eq(&incident.alarm_name),
        incidents::title.eq(title),
        incidents::x.eq(incident.place.x),
        incidents::y.eq(incident.place.y),
        incidents::grid.eq(&incident.place.grid),
        incidents::last_at.eq(incident.last_at.naive_utc()),
        incidents::ended_at.eq(incident.ended_at.map(|at| at.naive_utc())),
        incidents::count.eq(i64::from(incident.count)),
        incidents::paths.eq(paths.join(",")),
    );
    let first = (
        incidents::id.eq(id),
        incidents::server_id.eq(server.as_str()),
        incidents::first_at.eq(incident.first_at.naive_utc()),
        incidents::late.eq(incident.late),
        incidents::drill.eq(incident.drill),
        incidents::state.eq(UNHEARD),
        incidents::sockets.eq(0),
    );
    let known = incidents::table.find(id).select((incidents::count, incidents::ended_at.is_not_null()));
    let known: Option<(i64, bool)> = known.first(db).optional()?;
    match known {
        None => diesel::insert_into(incidents::table).values((first, news)).execute(db)?,
        Some((count, ended)) if count > i64::from(incident.count) || (ended && incident.ended_at.is_none()) => 0,
        Some(_) => diesel::update(incidents::table.find(id)).set(news).execute(db)?,
    };
    Ok(())
}

/// An incident as the ledger has it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredIncident {
    pub id: String,
    pub incident: Incident,
    /// Of its pushes.
    pub title: Option<String>,
    pub state: String,
    /// Sockets that took its message.
    pub sockets: i64,
    pub heard_at: Option<Timestamp>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = incidents)]
struct IncidentRow {
    id: String,
    alarm_id: String,
    alarm_name: String,
    title: Option<String>,
    x: Option<f64>,
    y: Option<f64>,
    grid: String,
    #[diesel(deserialize_as = StoredTimestamp)]
    first_at: Timestamp,
    #[diesel(deserialize_as = StoredTimestamp)]
    last_at: Timestamp,
    #[diesel(deserialize_as = StoredTimestampOption)]
    ended_at: Option<Timestamp>,
    count: i64,
    paths: String,
    late: bool,
    drill: bool,
    state: String,
    sockets: i64,
    #[diesel(deserialize_as = StoredTimestampOption)]
    heard_at: Option<Timestamp>,
}

impl StoredIncident {
    fn new(row: IncidentRow, acks: BTreeMap<UserId, Timestamp>) -> Self {
        let all = [AlarmPath::Link, AlarmPath::Push, AlarmPath::Drill];
        let paths: BTreeSet<AlarmPath> =
            row.paths.split(',').filter_map(|word| all.into_iter().find(|path| path.word() == word)).collect();
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

/// What is shown of the server: the newest incidents of the last day, drills for a shorter time, oldest first.
pub fn shown(db: &mut Db, server: &ServerId, now: Timestamp) -> Result<Vec<StoredIncident>, DbError> {
    let mut stored = list(db, server, None, 4 * raid::SHOWN as i64)?;
    stored.retain(|stored| {
        let span = if stored.incident.drill { raid::DRILL_SHOWN_FOR } else { raid::SHOWN_FOR };
        now - stored.incident.last_at < span
    });
    stored.reverse();
    Ok(stored)
}

fn with_acks(db: &mut Db, rows: Vec<IncidentRow>) -> Result<Vec<StoredIncident>, DbError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let stored: Vec<(String, String, chrono::NaiveDateTime)> =
        incident_acks::table.filter(incident_acks::incident_id.eq_any(ids)).load(db)?;
    let mut acks: BTreeMap<String, BTreeMap<UserId, Timestamp>> = BTreeMap::new();
    for (incident, user, at) in stored {
        acks.entry(incident).or_default().insert(user.into(), at.and_utc());
    }
    Ok(rows
        .into_iter()
        .map(|row| {
            let acks = acks.remove(&row.id).unwrap_or_default();
            StoredIncident::new(row, acks)
        })
        .collect())
}

/// Stores that a user has taken note; the first time counts. None if the server has no such incident.
pub fn acknowledge(
    db: &mut Db,
    server: &ServerId,
    incident: &str,
    user: &UserId,
    now: Timestamp,
) -> Result<Option<StoredIncident>, DbError> {
    let known = incidents::table.find(incident).filter(incidents::server_id.eq(server.as_str()));
    if diesel::update(known).set(incidents::state.eq(ACKNOWLEDGED)).execute(db)? == 0 {
        return Ok(None);
    }
    let row = (
        incident_acks::incident_id.eq(incident),
        incident_acks::user_id.eq(user.as_str()),
        incident_acks::at.eq(now.naive_utc()),
    );
    let insert = diesel::insert_into(incident_acks::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    let row = incidents::table.find(incident).select(IncidentRow::as_select()).first(db)?;
    Ok(with_acks(db, vec![row])?.pop())
}

/// What nobody heard of since this time has expired, a batch of it. Returns how many.
pub fn expire(db: &mut Db, since: Timestamp) -> Result<usize, DbError> {
    let unheard = incidents::table.filter(incidents::state.eq(UNHEARD));
    let ids: Vec<String> = unheard
        .filter(incidents::last_at.lt(since.naive_utc()))
        .limit(PURGE_BATCH as i64)
        .select(incidents::id)
        .load(db)?;
    if ids.is_empty() {
        return Ok(0);
    }
    let old = incidents::table.filter(incidents::id.eq_any(ids));
    Ok(diesel::update(old).set(incidents::state.eq(EXPIRED)).execute(db)?)
}

/// Deletes what happened before this time, a batch of it. Returns how many.
pub fn purge(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    let old = incidents::table.filter(incidents::last_at.lt(before.naive_utc()));
    let ids: Vec<String> = old.limit(PURGE_BATCH as i64).select(incidents::id).load(db)?;
    if ids.is_empty() {
        return Ok(0);
    }
    Ok(diesel::delete(incidents::table.filter(incidents::id.eq_any(ids))).execute(db)?)
}

/// How many incidents are in each state.
pub fn tally(db: &mut Db) -> Result<Vec<(&'static str, i64)>, DbError> {
    let count = |state| Ok((state, incidents::table.filter(incidents::state.eq(state)).count().get_result(db)?));
    STATES.into_iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            alarms::AlarmState,
            pool::Pool,
            testing::{self, later, now},
        },
        domain::device::DeviceKind,
    };

    fn incident(count: u32) -> Incident {
        Incident {
            alarm_id: "7".into(),
            alarm_name: "Roof".into(),
            place: DevicePlace { x: Some(1.5), y: None, grid: "B3".into() },
            first_at: now(),
            last_at: later(i64::from(count)),
            ended_at: None,
            count,
            paths: [AlarmPath::Link, AlarmPath::Push].into(),
            late: false,
            drill: false,
            acks: BTreeMap::new(),
        }
    }

    fn opened(id: &str, incident: Incident) -> LedgerWrite {
        LedgerWrite { incidents: [(id.to_owned(), (incident, Some("Title".to_owned())))].into(), ..Default::default() }
    }

    fn on_each_server(test: impl Fn(&Pool)) {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::user(pool, "bob");
            testing::server(pool, "alice", "one");
            test(pool);
        });
    }

    fn store(pool: &Pool, ledger: &LedgerWrite) {
        pool.write_blocking(|db| write(db, &"one".into(), ledger)).unwrap();
    }

    fn all(pool: &Pool) -> Vec<StoredIncident> {
        pool.read_blocking(|db| list(db, &"one".into(), None, 100)).unwrap()
    }

    #[test]
    fn an_incident_is_stored_as_it_is_and_never_goes_back() {
        on_each_server(|pool| {
            for count in [2, 1] {
                store(pool, &opened("a", incident(count)));
                let [stored] = &all(pool)[..] else { panic!("one incident") };
                assert_eq!((&stored.incident, stored.title.as_deref()), (&incident(2), Some("Title")));
                assert_eq!((stored.state.as_str(), stored.sockets, stored.heard_at), (UNHEARD, 0, None));
            }
            let ended = Incident { ended_at: Some(later(90)), ..incident(2) };
            store(pool, &opened("a", ended.clone()));
            store(pool, &opened("a", incident(2)));
            assert_eq!(all(pool)[0].incident, ended);
        });
    }

    #[test]
    fn who_heard_first_is_kept_and_an_acknowledgement_counts_more() {
        on_each_server(|pool| {
            let heard = |sockets, seconds| LedgerWrite {
                heard: [("a".to_owned(), HeardBy { sockets, at: later(seconds) })].into(),
                ..Default::default()
            };
            store(pool, &opened("a", incident(1)));
            store(pool, &heard(3, 1));
            store(pool, &heard(0, 2));
            let known = |pool: &Pool| all(pool).remove(0);
            assert_eq!((known(pool).state.as_str(), known(pool).sockets), (DELIVERED, 3));
            assert_eq!(known(pool).heard_at, Some(later(1)));
            for (user, seconds) in [("alice", 3), ("alice", 4), ("bob", 5)] {
                let acknowledged =
                    pool.write_blocking(|db| acknowledge(db, &"one".into(), "a", &user.into(), later(seconds)));
                assert!(acknowledged.unwrap().is_some());
            }
            let acks = [("alice".into(), later(3)), ("bob".into(), later(5))].into();
            assert_eq!((known(pool).state.as_str(), known(pool).incident.acks), (ACKNOWLEDGED, acks));
            let other = pool.write_blocking(|db| acknowledge(db, &"two".into(), "a", &"alice".into(), now()));
            assert_eq!(other.unwrap(), None, "of another server");
        });
    }

    #[test]
    fn arrivals_and_values_are_stored_with_their_incident_and_twice_is_once() {
        on_each_server(|pool| {
            pool.write_blocking(|db| {
                use crate::db::smart_devices;
                smart_devices::upsert(db, &"one".into(), "7", DeviceKind::Alarm, "Roof", now())
            })
            .unwrap();
            let arrival = Arrival {
                id: "arrival".into(),
                user: "somebody".into(),
                server: Some("one".into()),
                path: AlarmPath::Link,
                alarm_id: "7".into(),
                title: "Roof".into(),
                message: String::new(),
                state: AlarmState::Opened,
                incident: Some("a".into()),
                received_at: now(),
                sent_at: None,
            };
            let mut ledger = opened("a", incident(1));
            ledger.arrivals.insert(arrival.id.clone(), arrival);
            ledger.values.insert("7".into(), true);
            store(pool, &ledger);
            store(pool, &ledger);
            let tally = pool.read_blocking(alarms::tally).unwrap();
            let counts = vec![("received", 0), ("opened", 1), ("merged", 0), ("unmatched", 0)];
            assert_eq!((tally.counts, tally.oldest_unfinished), (counts, None));
            use crate::db::smart_devices;
            let devices = pool.read_blocking(|db| smart_devices::list(db, &"one".into())).unwrap();
            assert_eq!(devices[0].last_value, Some(true));
            let gone = pool.write_blocking(|db| write(db, &"two".into(), &ledger));
            assert!(matches!(gone, Err(DbError::NotFound)));
        });
    }

    #[test]
    fn the_newest_come_first_in_pages_and_only_the_last_day_is_shown() {
        on_each_server(|pool| {
            for id in ["a", "b", "c", "d"] {
                let drill = id == "d";
                store(pool, &opened(id, Incident { drill, ..incident(1) }));
            }
            let ids = |stored: Vec<StoredIncident>| stored.into_iter().map(|stored| stored.id).collect::<Vec<_>>();
            let page = |before, limit| ids(pool.read_blocking(|db| list(db, &"one".into(), before, limit)).unwrap());
            assert_eq!(
                (page(None, 3), page(Some("b"), 3)),
                (vec!["d".into(), "c".into(), "b".into()], vec!["a".into()])
            );
            let shown = |after| ids(pool.read_blocking(|db| shown(db, &"one".into(), later(after))).unwrap());
            assert_eq!(shown(60), ["a", "b", "c", "d"]);
            assert_eq!(shown(1_000), ["a", "b", "c"]);
            assert!(shown(90_000).is_empty());
        });
    }

    #[test]
    fn what_is_unheard_for_a_day_expires_and_what_is_old_is_deleted() {
        on_each_server(|pool| {
            store(pool, &opened("a", incident(1)));
            store(pool, &opened("b", Incident { last_at: later(100), ..incident(1) }));
            assert_eq!(pool.write_blocking(|db| expire(db, later(50))).unwrap(), 1);
            let tally = pool.read_blocking(tally).unwrap();
            let of = |state| tally.iter().find(|known| known.0 == state).unwrap().1;
            assert_eq!((of(EXPIRED), of(UNHEARD), of(DELIVERED)), (1, 1, 0));
            assert_eq!(pool.write_blocking(|db| purge(db, later(50))).unwrap(), 1);
            assert_eq!(all(pool).len(), 1, "the newer one stays");
            assert_eq!(pool.write_blocking(|db| purge(db, later(200))).unwrap(), 1);
            assert!(all(pool).is_empty());
        });
    }
}
