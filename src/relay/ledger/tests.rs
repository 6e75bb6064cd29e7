use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::FutureExt as _;
use tempfile::TempDir;

use super::*;
use crate::{
    config::Database,
    db::{
        incidents::StoredIncident,
        journal::{self, JOURNAL},
        pool::DiskMoment,
        testing,
    },
    domain::incident::{DevicePlace, Incident},
};

/// How the disk of the database is.
#[derive(Clone, Copy, PartialEq)]
enum Disk {
    Works,
    Frozen,
    Refuses,
}

thread_local! {
    static DISK: Cell<Disk> = const { Cell::new(Disk::Works) };
}

struct World {
    directory: TempDir,
    pool: Pool,
    ledger: Ledger,
    writes: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = writes.clone();
        let disk = move |moment| {
            if moment == DiskMoment::BeforeWrite {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            async move {
                while DISK.get() == Disk::Frozen {
                    sleep(Duration::from_secs(1)).await;
                }
                match DISK.get() {
                    Disk::Refuses => Err(DbError::Unavailable("on purpose".to_owned())),
                    _ => Ok(()),
                }
            }
            .boxed_local()
        };
        DISK.set(Disk::Works);
        let database = Database::Sqlite(directory.path().join("test.db"));
        let pool = Pool::open_simulated(&database, Arc::new(disk)).unwrap();
        testing::user(&pool, "alice");
        testing::server(&pool, "alice", "one");
        let journal = Journal::open_simulated(directory.path()).unwrap();
        let ledger = Ledger::new("one".into(), pool.clone(), journal);
        Self { directory, pool, ledger, writes }
    }

    fn stored(&self) -> Vec<StoredIncident> {
        self.pool.read_blocking(|db| incidents::list(db, &"one".into(), None, 100)).unwrap()
    }

    fn journal(&self) -> u64 {
        self.directory.path().join(JOURNAL).metadata().unwrap().len()
    }
}

fn opened(id: &str, count: u32) -> LedgerWrite {
    let incident = Incident {
        alarm_id: "7".into(),
        alarm_name: "Roof".into(),
        place: DevicePlace::default(),
        first_at: testing::now(),
        last_at: testing::now(),
        ended_at: None,
        count,
        paths: Default::default(),
        late: false,
        drill: false,
        acks: Default::default(),
    };
    LedgerWrite { incidents: [(id.to_owned(), (incident, None))].into(), ..Default::default() }
}

#[actix::test]
async fn what_is_written_is_in_the_database() {
    let world = World::new();
    assert_eq!(world.ledger.write(opened("a", 1)).await, Kept::Database);
    assert_eq!(world.stored().len(), 1);
    assert_eq!(world.journal(), 0);
}

#[actix::test]
async fn an_alarm_that_has_waited_already_is_not_held_up_again() {
    let world = World::new();
    DISK.set(Disk::Frozen);
    tokio::time::pause();
    let began = Instant::now();
    assert_eq!(world.ledger.write_alarm(opened("a", 1), began - STORED_WITHIN).await, Kept::Journal);
    assert!(began.elapsed() < STORED_WITHIN);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
}

#[actix::test]
async fn a_frozen_database_is_waited_for_half_a_second_once_and_the_journal_keeps_what_it_misses() {
    let world = World::new();
    DISK.set(Disk::Frozen);
    let began = Instant::now();
    assert_eq!(world.ledger.write(opened("a", 1)).await, Kept::Journal);
    assert!(began.elapsed() >= STORED_WITHIN);
    let frozen = world.ledger.write(opened("b", 1)).now_or_never();
    assert_eq!(frozen, Some(Kept::Journal), "nobody waits in vain twice");
    assert!(world.journal() > 0);
    assert_eq!(world.stored().len(), 0);

    // A kill now: the next start stores them.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(world.directory.path().join(JOURNAL), copy.path().join(JOURNAL)).unwrap();
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!(world.stored().len(), 2, "written as soon as it answers");
    assert_eq!(world.journal(), 0);
    journal::replay(copy.path(), &world.pool).unwrap();
    assert_eq!(world.stored().len(), 2, "stored twice is stored once");
    assert_eq!(world.ledger.write(opened("c", 1)).await, Kept::Database);
}

#[actix::test]
async fn a_database_that_refuses_is_asked_again_and_what_waits_is_merged() {
    let world = World::new();
    DISK.set(Disk::Refuses);
    for count in 1..=50 {
        assert_eq!(world.ledger.write(opened("a", count)).await, Kept::Journal);
    }
    assert!(world.writes.load(Ordering::Relaxed) < 10, "one attempt at a time");
    assert_eq!(world.ledger.0.queue.borrow().pending.incidents.len(), 1);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!(world.stored()[0].incident.count, 50);
    assert_eq!(world.journal(), 0);
}

#[actix::test]
async fn the_ledger_of_a_deleted_server_keeps_nothing() {
    let world = World::new();
    let ledger = Ledger::new("gone".into(), world.pool.clone(), world.ledger.0.journal.clone());
    assert_eq!(ledger.write(opened("a", 1)).await, Kept::Nowhere);
    assert_eq!(world.journal(), 0);
}

#[actix::test]
async fn what_nobody_waits_for_any_more_is_kept_before_the_process_ends() {
    let world = World::new();
    let unkept = world.ledger.0.journal.unkept.clone();
    DISK.set(Disk::Frozen);
    // Its game connection ends before half a second has passed.
    assert_eq!(world.ledger.write(opened("a", 1)).now_or_never(), None);
    world.ledger.write_later(opened("b", 1));
    assert_eq!(world.journal(), 0);
    assert!(unkept.keep_all(Duration::from_millis(10), Duration::from_secs(5)).await);
    world.ledger.write_later(opened("c", 1));
    assert!(unkept.keep_all(Duration::from_millis(10), Duration::from_secs(5)).await);

    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(world.directory.path().join(JOURNAL), copy.path().join(JOURNAL)).unwrap();
    journal::replay(copy.path(), &world.pool).unwrap();
    assert_eq!(world.stored().len(), 3);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!(world.journal(), 0);
}

#[actix::test]
async fn an_incident_that_goes_on_is_journalled_once_a_minute_and_at_its_end() {
    let world = World::new();
    DISK.set(Disk::Refuses);
    tokio::time::pause();
    assert_eq!(world.ledger.write(opened("a", 1)).await, Kept::Journal);
    let first = world.journal();
    for count in 2..=50 {
        assert_eq!(world.ledger.write(opened("a", count)).await, Kept::Journal);
    }
    assert_eq!(world.journal(), first);
    tokio::time::advance(REPEATED_EVERY).await;
    assert_eq!(world.ledger.write(opened("a", 51)).await, Kept::Journal);
    let second = world.journal();
    assert!(second > first);
    let mut ended = opened("a", 51);
    ended.incidents.values_mut().for_each(|(incident, _)| incident.ended_at = Some(testing::now()));
    assert_eq!(world.ledger.write(ended).await, Kept::Journal);
    assert!(world.journal() > second);
}
