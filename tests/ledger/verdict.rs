//! Agreement of the ledger, what was sent and what the clients received.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use companion::{
    db::{engine::pool::Pool, schema},
    domain::time::Timestamp,
};
use diesel::prelude::*;

use crate::{
    trial::{QUIET, Trial, Trigger},
    wall::Wall,
};

/// A row of the ledger.
#[derive(Queryable)]
pub struct Row {
    pub path: String,
    title: String,
    pub state: String,
    incident: Option<String>,
    received_at: Timestamp,
    finished_at: Option<Timestamp>,
}

/// An incident of the ledger.
#[derive(Queryable)]
pub struct IncidentRow {
    pub id: String,
    pub alarm_id: String,
    paths: String,
    first_at: Timestamp,
    last_at: Timestamp,
    pub state: String,
    sockets: i64,
    heard_at: Option<Timestamp>,
}

/// The incidents of the ledger, oldest first.
pub fn incidents(pool: &Pool) -> Vec<IncidentRow> {
    use schema::incidents::dsl as row;
    let columns =
        (row::id, row::alarm_id, row::paths, row::first_at, row::last_at, row::state, row::sockets, row::heard_at);
    pool.read_blocking(|db| Ok(row::incidents.select(columns).order(row::id).load(db)?)).unwrap()
}

/// Incidents that are a part of an older one.
pub fn parts(pool: &Pool) -> Vec<String> {
    use schema::merged_incidents::dsl as row;
    pool.read_blocking(|db| Ok(row::merged_incidents.select(row::id).load(db)?)).unwrap()
}

/// The ledger, oldest first.
pub fn rows(pool: &Pool) -> Vec<Row> {
    use schema::alarms::dsl as row;
    let columns = (row::path, row::title, row::state, row::incident, row::received_at, row::finished_at);
    pool.read_blocking(|db| Ok(row::alarms.select(columns).order(row::received_at).load(db)?)).unwrap()
}

/// Number of unfinished rows.
pub fn unfinished(pool: &Pool) -> i64 {
    use schema::alarms::dsl as row;
    pool.read_blocking(|db| Ok(row::alarms.filter(row::finished_at.is_null()).count().get_result(db)?)).unwrap()
}

/// Number of incidents that no client has heard of.
pub fn unheard(pool: &Pool) -> i64 {
    use schema::incidents::dsl as row;
    pool.read_blocking(|db| Ok(row::incidents.filter(row::state.eq("unheard")).count().get_result(db)?)).unwrap()
}

/// Clients watch, so every incident has been heard of.
fn judge_unheard(incidents: &[IncidentRow]) -> impl Iterator<Item = String> {
    let unheard = incidents.iter().filter(|row| row.state == "unheard");
    unheard.map(|row| format!("incident {} of alarm {} of {} is unheard", row.id, row.alarm_id, row.first_at))
}

/// The invariants that do not hold for a wall of devices.
pub fn judge_wall(wall: &Wall) -> Vec<String> {
    let mut broken: Vec<String> = judge_unheard(&wall.incidents).collect();
    for device in wall.fired.keys() {
        let count = wall.incidents.iter().filter(|row| row.alarm_id == *device).count();
        if count != 1 {
            broken.push(format!("alarm {device} of the wall has {count} incidents"));
        }
    }
    for (index, client) in wall.clients.iter().enumerate() {
        client.received(|received| {
            broken.extend(received.faults.iter().cloned());
            let unknown = wall.incidents.iter().filter(|row| !received.known.contains_key(&row.id));
            broken.extend(unknown.map(|row| format!("client {index} does not know incident {} of the wall", row.id)));
        });
    }
    broken
}

/// The invariants that do not hold.
pub fn judge(trial: &Trial, rows: &[Row], incidents: &[IncidentRow]) -> Vec<String> {
    let mut broken = Vec::new();

    let mut stored = BTreeMap::<&str, usize>::new();
    for row in rows.iter().filter(|row| row.path == "push") {
        *stored.entry(&row.title).or_default() += 1;
    }
    let titles: BTreeSet<&str> = trial.sent.keys().map(String::as_str).chain(stored.keys().copied()).collect();
    for title in titles {
        let (sent, stored) = (trial.sent.get(title).copied().unwrap_or(0), stored.get(title).copied().unwrap_or(0));
        if sent != stored {
            broken.push(format!("{title:?} was pushed {sent} times and is in the ledger {stored} times"));
        }
    }

    let mut opened = HashMap::<&str, &Row>::new();
    for row in rows {
        let label = format!("{} {:?} {} of {}", row.path, row.title, row.state, row.received_at);
        if row.finished_at.is_none() {
            broken.push(format!("{label} is not finished"));
        }
        match (row.state.as_str(), &row.incident) {
            ("unmatched", None) | ("merged", Some(_)) => {}
            ("opened", Some(incident)) => {
                if opened.insert(incident, row).is_some() {
                    broken.push(format!("{label} opens an incident that another row has opened"));
                }
            }
            (_, incident) => broken.push(format!("{label} has incident {incident:?}")),
        }
    }
    let orphans =
        rows.iter().filter_map(|row| row.incident.as_deref()).filter(|incident| !opened.contains_key(incident));
    for incident in orphans.collect::<BTreeSet<_>>() {
        broken.push(format!("incident {incident} was opened by no row"));
    }

    broken.extend(judge_unheard(incidents));
    let clients = || trial.steady.iter().chain(&trial.fickle);
    for client in clients() {
        client.received(|received| broken.extend(received.faults.iter().cloned()));
    }
    let received_by: Vec<HashSet<String>> = clients()
        .map(|client| client.received(|received| received.raids.iter().map(|(incident, _)| incident.clone()).collect()))
        .collect();
    let parts = parts(&trial.pool);
    for incident in received_by.iter().flatten().collect::<BTreeSet<_>>() {
        if !opened.contains_key(incident.as_str()) && !parts.contains(incident) {
            broken.push(format!("a client received incident {incident}, which is not in the ledger"));
        }
    }
    let known: HashMap<&str, &IncidentRow> = incidents.iter().map(|row| (&*row.id, row)).collect();
    for (incident, row) in &opened {
        let what = format!("incident {incident} ({} {:?}, {})", row.path, row.title, row.received_at);
        let Some(of_ledger) = known.get(incident) else {
            broken.push(format!("{what} has no row of its own"));
            continue;
        };
        if of_ledger.sockets > 0 && !received_by.iter().any(|incidents| incidents.contains(*incident)) {
            broken.push(format!("{what} was delivered to {} sockets, and no client received it", of_ledger.sockets));
        }
        let Some(heard) = of_ledger.heard_at else { continue };
        let (from, to) = (row.received_at, heard);
        // A fickle client may leave before it has read everything.
        for (index, client) in trial.steady.iter().enumerate() {
            let (watched, is_known) = client.received(|received| {
                let covers =
                    |(start, end): &(Timestamp, Option<Timestamp>)| *start <= from && end.is_none_or(|end| to <= end);
                (received.watched.iter().any(covers), received.known.contains_key(*incident))
            });
            // A kill may be between the patch that shows many and their messages.
            if watched && !is_known {
                broken.push(format!(
                    "{what}, {} by {} sockets at {heard}, was not received by client {index}, which watched all the time",
                    of_ledger.state, of_ledger.sockets
                ));
            }
        }
    }

    for Trigger { alarm, from, to } in &trial.triggers {
        // A repeat is counted by its incident, which is stored at most every ten seconds.
        let covers = |row: &&IncidentRow| {
            let is_open = row.first_at <= *to && *from <= row.last_at + QUIET;
            row.alarm_id == alarm.to_string() && row.paths.contains("link") && is_open
        };
        if !incidents.iter().any(|row| covers(&row)) {
            let of_alarm = incidents.iter().filter(|row| row.alarm_id == alarm.to_string());
            let known: Vec<String> =
                of_alarm.map(|row| format!("{} to {} by {}", row.first_at, row.last_at, row.paths)).collect();
            broken.push(format!("alarm {alarm} of {from} to {to} on the link is in none of its incidents {known:?}"));
        }
    }
    broken
}
