//! PostgreSQL as the judges read it, past the ways of the nodes: the ledger, and which node has which part.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use companion::db::schema::{alarms, held_parts, incidents, merged_incidents, smart_devices};
use diesel::{PgConnection, prelude::*};
use diesel_migrations::{FileBasedMigrations, MigrationHarness as _};

use crate::records::{AlarmRow, HolderChange, Holders, IncidentRow, StoredLedger};

/// Time between two looks at who has what.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const ANSWERS: &str = "PostgreSQL answers the test";

/// A connection to this database.
pub fn connect(url: &str) -> PgConnection {
    PgConnection::establish(url).expect(ANSWERS)
}

/// The steps that the schema of this database has, the newest first.
pub fn steps(connection: &mut PgConnection) -> Vec<String> {
    connection.applied_migrations().expect(ANSWERS).iter().map(ToString::to_string).collect()
}

/// Takes back the newest steps of the schema, until it has none but these. Gives how many there were.
pub fn take_back(connection: &mut PgConnection, known: &[String]) -> usize {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
    let source = FileBasedMigrations::from_path(source).expect("the repository has the steps");
    let mut taken_back = 0;
    while steps(connection).first().is_some_and(|newest| !known.contains(newest)) {
        connection.revert_last_migration(source.clone()).expect("the way back of a step works");
        taken_back += 1;
    }
    taken_back
}

/// The ledger of alarms.
pub fn ledger(connection: &mut PgConnection) -> StoredLedger {
    let of_incidents = (incidents::id, incidents::server_id, incidents::alarm_name, incidents::count);
    let rows: Vec<(String, String, String, i64)> =
        incidents::table.order(incidents::id).select(of_incidents).load(connection).expect(ANSWERS);
    let incident = |(id, server, alarm_name, count)| IncidentRow { id, server, alarm_name, count };
    let incidents = rows.into_iter().map(incident).collect();
    let of_alarms =
        (alarms::path, alarms::server_id, alarms::title, alarms::incident, alarms::finished_at.is_not_null());
    let rows = alarms::table.order(alarms::received_at).select(of_alarms).load(connection).expect(ANSWERS);
    let alarm = |(path, server, title, incident, is_finished)| AlarmRow { path, server, title, incident, is_finished };
    let alarms = rows.into_iter().map(alarm).collect();
    let parts: Vec<String> = merged_incidents::table.select(merged_incidents::id).load(connection).expect(ANSWERS);
    StoredLedger { incidents, alarms, parts: parts.into_iter().collect() }
}

/// The number of devices that are not known to be off.
pub fn unknown_devices(connection: &mut PgConnection) -> i64 {
    let off: i64 =
        smart_devices::table.filter(smart_devices::last_value.eq(false)).count().get_result(connection).expect(ANSWERS);
    let all: i64 = smart_devices::table.count().get_result(connection).expect(ANSWERS);
    all - off
}

fn holders(connection: &mut PgConnection) -> Holders {
    let columns = (held_parts::part, held_parts::node, held_parts::number);
    let rows: Vec<(String, String, i64)> = held_parts::table.select(columns).load(connection).expect(ANSWERS);
    rows.into_iter().map(|(part, node, number)| (part, (node, number))).collect()
}

/// The differences between two looks.
fn changes(before: &Holders, now: &Holders, at: Duration) -> Vec<HolderChange> {
    let changed = now.iter().filter(|(part, holder)| before.get(*part) != Some(*holder));
    let change = |(part, (node, number)): (&String, &(String, i64))| HolderChange {
        part: part.clone(),
        node: node.clone(),
        number: *number,
        at,
    };
    changed.map(change).collect()
}

#[derive(Default)]
struct Looks {
    holders: Holders,
    changes: Vec<HolderChange>,
}

impl Looks {
    fn note(&mut self, now: Holders, at: Duration) {
        self.changes.extend(changes(&self.holders, &now, at));
        self.holders = now;
    }
}

/// Looks at the holders again and again, on a thread of its own, until it is dropped.
pub struct HolderWatch {
    looks: Arc<Mutex<Looks>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HolderWatch {
    /// Begins, with times since `began`.
    pub fn start(url: String, began: Instant) -> Self {
        let (looks, ends) = (Arc::<Mutex<Looks>>::default(), Arc::<AtomicBool>::default());
        let (looked, ended) = (looks.clone(), ends.clone());
        let thread = thread::spawn(move || {
            let mut connection = connect(&url);
            while !ended.load(Ordering::Relaxed) {
                let (now, at) = (holders(&mut connection), began.elapsed());
                looked.lock().unwrap().note(now, at);
                thread::sleep(LOOK_EVERY);
            }
        });
        Self { looks, ends, thread: Some(thread) }
    }

    /// The holders of now.
    pub fn holders(&self) -> Holders {
        self.looks.lock().unwrap().holders.clone()
    }

    /// All changes so far, the oldest first.
    pub fn changes(&self) -> Vec<HolderChange> {
        self.looks.lock().unwrap().changes.clone()
    }

    /// True if it does not look any longer.
    pub fn is_blind(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for HolderWatch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it is on stderr already.
            let _ = thread.join();
        }
    }
}
