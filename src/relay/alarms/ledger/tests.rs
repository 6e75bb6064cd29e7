use std::{
    cell::Cell,
    collections::BTreeSet,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures_util::FutureExt as _;
use tempfile::TempDir;

use super::*;
use crate::{
    config::Database,
    db::{
        alarms::{alarm_ledger, incidents::StoredIncident},
        engine::pool::{Db, DiskMoment},
        files::journal::{self, JOURNAL},
        held_parts, smart_devices,
        testing::{self, incident_write},
    },
    domain::{
        device::DeviceKind,
        fence::Fence,
        ids::{NodeId, PartId},
    },
};

/// Condition of the disk of the database.
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

#[actix::test]
async fn what_is_written_is_in_the_database() {
    let world = World::new();
    assert_eq!(world.ledger.write(incident_write("a", 1)).await, SavedTo::Database);
    assert_eq!(world.stored().len(), 1);
    assert_eq!(world.journal(), 0);
}

/// An alarm of the link that opens this incident.
fn alarm_write(id: &str, incident: &str) -> LedgerWrite {
    let alarms = [(id.to_owned(), testing::opened_alarm(id, incident))].into();
    LedgerWrite { alarms, ..incident_write(incident, 1) }
}

#[actix::test]
async fn alarms_of_a_server_that_another_node_has_wait_for_that_node_in_their_incidents() {
    tokio::time::pause();
    let world = World::new();
    let parts = BTreeSet::from([PartId::from("links:one")]);
    let take = |node: &str, gone: &str| -> Fence {
        let (node, gone) = (NodeId::from(node), BTreeSet::from([NodeId::from(gone)]));
        let take = |db: &mut Db| {
            held_parts::note(db, &parts, testing::now())?;
            held_parts::take(db, &parts, &gone, &node, testing::now())
        };
        world.pool.write_blocking(take).unwrap().remove(0)
    };
    let fenced = world.pool.clone().fenced_by(take("here", "none").into());
    let ledger = Ledger::new("one".into(), fenced, world.ledger.0.journal.clone());
    assert_eq!(ledger.write(alarm_write("a", "first")).await, SavedTo::Database);
    take("there", "here");
    assert_eq!(ledger.write(alarm_write("b", "second")).await, SavedTo::Database);
    assert_eq!(ledger.write(incident_write("first", 2)).await, SavedTo::Database, "nothing of it is left to write");
    assert_eq!(ledger.write(alarm_write("c", "second")).await, SavedTo::Database);
    let stored: Vec<_> = world.stored().into_iter().map(|stored| (stored.id, stored.incident.count)).collect();
    assert_eq!(stored, [("second".to_owned(), 1), ("first".to_owned(), 1)]);
    let waiting = world.pool.read_blocking(|db| alarm_ledger::waiting(db, &"one".into())).unwrap();
    let waiting: Vec<_> = waiting.into_iter().map(|push| (push.id, push.incident)).collect();
    let (b, c) = (("b".to_owned(), Some("second".to_owned())), ("c".to_owned(), None));
    assert_eq!(waiting, [b, c], "the other node knows the incident by now, and counts what it finds");
    assert_eq!(world.journal(), 0);
}

#[actix::test]
async fn an_alarm_that_has_waited_already_is_not_held_up_again() {
    let world = World::new();
    DISK.set(Disk::Frozen);
    tokio::time::pause();
    let began = Instant::now();
    assert_eq!(
        world.ledger.write_alarm(incident_write("a", 1), ReceivedAt(began - STORED_WITHIN)).await,
        SavedTo::Journal
    );
    assert!(began.elapsed() < STORED_WITHIN);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
}

#[actix::test]
async fn the_journal_has_alarms_in_their_order_whichever_has_waited_longer() {
    let world = World::new();
    DISK.set(Disk::Frozen);
    tokio::time::pause();
    let now = Instant::now();
    let first = world.ledger.write_alarm(incident_write("first", 1), ReceivedAt(now));
    // A push that has waited elsewhere: its time is over before that of the alarm that opened its incident.
    let second = world.ledger.write_alarm(incident_write("second", 1), ReceivedAt(now - STORED_WITHIN));
    let (mut first, second) = (pin!(first), pin!(second));
    assert_eq!(futures_util::poll!(first.as_mut()), Poll::Pending);
    assert_eq!(second.await, SavedTo::Journal);
    let text = std::fs::read_to_string(world.directory.path().join(JOURNAL)).unwrap();
    let place = |incident: &str| text.find(&format!("{incident:?}"));
    assert!(place("first").is_some() && place("first") < place("second"), "{text}");
    assert_eq!(first.await, SavedTo::Journal);
    assert_eq!(world.journal(), text.len() as u64, "each is written once");
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!((world.stored().len(), world.journal()), (2, 0));
}

#[actix::test]
async fn a_frozen_database_is_waited_for_half_a_second_once_and_the_journal_keeps_what_it_misses() {
    let world = World::new();
    DISK.set(Disk::Frozen);
    let began = Instant::now();
    assert_eq!(world.ledger.write(incident_write("a", 1)).await, SavedTo::Journal);
    assert!(began.elapsed() >= STORED_WITHIN);
    tokio::time::pause();
    let began = Instant::now();
    assert_eq!(world.ledger.write(incident_write("b", 1)).await, SavedTo::Journal);
    assert!(began.elapsed() < STORED_WITHIN, "the second alarm waits no longer in vain");
    assert!(world.journal() > 0);
    assert_eq!(world.stored().len(), 0);

    // A kill now: the next start stores them.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(world.directory.path().join(JOURNAL), copy.path().join(JOURNAL)).unwrap();
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!(world.stored().len(), 2, "written as soon as it answers");
    assert_eq!(world.journal(), 0);
    journal::replay(copy.path(), &world.pool, &Default::default()).unwrap();
    assert_eq!(world.stored().len(), 2, "stored twice is stored once");
    assert_eq!(world.ledger.write(incident_write("c", 1)).await, SavedTo::Database);
}

#[actix::test]
async fn a_database_that_refuses_is_asked_again_and_what_waits_is_merged() {
    let world = World::new();
    DISK.set(Disk::Refuses);
    for count in 1..=50 {
        assert_eq!(world.ledger.write(incident_write("a", count)).await, SavedTo::Journal);
    }
    assert!(world.writes.load(Ordering::Relaxed) < 10, "one attempt at a time");
    assert_eq!(world.ledger.0.queue.borrow().pending.incidents.len(), 1);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!(world.stored()[0].incident.count, 50);
    assert_eq!(world.journal(), 0);
}

#[actix::test]
async fn an_alarm_waits_for_no_database_once_the_process_ends() {
    let world = World::new();
    let unsaved_alarms = world.ledger.0.journal.unsaved_alarms.clone();
    DISK.set(Disk::Frozen);
    tokio::time::pause();
    let began = Instant::now();
    let (kept, all) = tokio::join!(
        world.ledger.write(incident_write("a", 1)),
        unsaved_alarms.flush(Duration::ZERO, Duration::from_secs(5))
    );
    assert_eq!((kept, all), (SavedTo::Journal, true));
    assert!(began.elapsed() < STORED_WITHIN);
    assert!(world.journal() > 0);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
}

#[actix::test]
async fn what_comes_while_the_process_ends_is_journalled_once() {
    let world = World::new();
    let unsaved_alarms = world.ledger.0.journal.unsaved_alarms.clone();
    DISK.set(Disk::Frozen);
    world.ledger.write_later(incident_write("0", 1));
    assert!(unsaved_alarms.flush(Duration::ZERO, Duration::from_secs(5)).await);
    let first = world.journal();
    for number in 1..100 {
        world.ledger.write_later(incident_write(&number.to_string(), 1));
        assert!(unsaved_alarms.flush(Duration::ZERO, Duration::from_secs(5)).await);
    }
    assert!(world.journal() < 110 * first, "{} of {first}", world.journal());
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!((world.stored().len(), world.journal()), (100, 0));
}

#[actix::test]
async fn the_ledger_of_a_deleted_server_keeps_nothing() {
    let world = World::new();
    let journal = &world.ledger.0.journal;
    let ledger = Ledger::new("gone".into(), world.pool.clone(), journal.clone());
    // Its row is gone before the relay hears of the deletion.
    assert_eq!(ledger.write(incident_write("a", 1)).await, SavedTo::Journal);
    journal.forget(&"gone".into());
    ledger.idle().await;
    assert_eq!(ledger.write(incident_write("b", 1)).await, SavedTo::Neither);
    assert_eq!(world.journal(), 0);
    assert!(journal.unsaved_alarms.flush(Duration::ZERO, Duration::ZERO).await);
}

#[actix::test]
async fn alarms_of_a_server_that_the_database_does_not_know_are_kept_until_it_does() {
    let world = World::new();
    let ledger = Ledger::new("two".into(), world.pool.clone(), world.ledger.0.journal.clone());
    assert_eq!(ledger.write(incident_write("a", 1)).await, SavedTo::Journal);
    assert_eq!(ledger.write(incident_write("b", 1)).await, SavedTo::Journal);
    assert!(world.journal() > 0);
    testing::user(&world.pool, "bob");
    testing::server(&world.pool, "bob", "two");
    ledger.idle().await;
    let stored = world.pool.read_blocking(|db| incidents::list(db, &"two".into(), None, 100)).unwrap();
    assert_eq!((stored.len(), world.journal()), (2, 0));
    assert_eq!(ledger.write(incident_write("c", 1)).await, SavedTo::Database);
}

#[actix::test]
async fn the_journal_keeps_an_alarm_whose_caller_has_given_up_and_after_which_none_comes() {
    let world = World::new();
    DISK.set(Disk::Frozen);
    tokio::time::pause();
    // Its game connection ends before half a second has passed.
    assert_eq!(world.ledger.write(incident_write("a", 1)).now_or_never(), None);
    sleep(2 * STORED_WITHIN).await;
    assert!(world.journal() > 0);

    // A kill now.
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(world.directory.path().join(JOURNAL), copy.path().join(JOURNAL)).unwrap();
    journal::replay(copy.path(), &world.pool, &Default::default()).unwrap();
    assert_eq!(world.stored().len(), 1);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!(world.journal(), 0);
}

#[actix::test]
async fn an_alarm_whose_caller_has_given_up_is_kept_before_the_process_ends() {
    let world = World::new();
    let unsaved_alarms = world.ledger.0.journal.unsaved_alarms.clone();
    DISK.set(Disk::Frozen);
    // Its game connection ends before half a second has passed.
    assert_eq!(world.ledger.write(incident_write("a", 1)).now_or_never(), None);
    world.ledger.write_later(incident_write("b", 1));
    assert_eq!(world.journal(), 0);
    assert!(unsaved_alarms.flush(Duration::from_millis(10), Duration::from_secs(5)).await);
    world.ledger.write_later(incident_write("c", 1));
    assert!(unsaved_alarms.flush(Duration::from_millis(10), Duration::from_secs(5)).await);

    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(world.directory.path().join(JOURNAL), copy.path().join(JOURNAL)).unwrap();
    journal::replay(copy.path(), &world.pool, &Default::default()).unwrap();
    assert_eq!(world.stored().len(), 3);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!(world.journal(), 0);
}

#[actix::test]
async fn a_kill_in_a_frozen_database_loses_the_repeats_of_one_second_at_most() {
    let world = World::new();
    DISK.set(Disk::Frozen);
    tokio::time::pause();
    assert_eq!(world.ledger.write(incident_write("a", 1)).await, SavedTo::Journal);
    let first = world.journal();
    for count in 2..=100 {
        world.ledger.write_repeats(incident_write("a", count));
        sleep(Duration::from_millis(100)).await;
    }
    assert!(world.journal() < 20 * first, "by time, not by edge");
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(world.directory.path().join(JOURNAL), copy.path().join(JOURNAL)).unwrap();
    journal::replay(copy.path(), &world.pool, &Default::default()).unwrap();
    let count = world.stored()[0].incident.count;
    assert!((90..=100).contains(&count), "{count}");
    DISK.set(Disk::Works);
    world.ledger.idle().await;
    assert_eq!((world.stored()[0].incident.count, world.journal()), (100, 0));
}

#[actix::test]
async fn repeats_are_written_once_a_second_and_what_is_newer_is_not_undone() {
    let world = World::new();
    tokio::time::pause();
    let writes = || world.writes.load(Ordering::Relaxed);
    let began = Instant::now();
    for count in 1..=100 {
        world.ledger.write_repeats(incident_write("a", count));
        world.ledger.write_repeats(incident_write("b", count));
        sleep(Duration::from_millis(30)).await;
    }
    world.ledger.idle().await;
    let counts = || world.stored().into_iter().map(|stored| stored.incident.count).collect::<Vec<_>>();
    assert_eq!(counts(), [100, 100]);
    let seconds = began.elapsed().as_secs() as usize;
    assert!((2..=seconds + 2).contains(&writes()), "{} writes in {seconds} s", writes());
    // The title is known with this write, which has the same count.
    world.ledger.write_repeats(incident_write("a", 101));
    world.ledger.write_repeats(incident_write("a", 102));
    let mut titled = incident_write("a", 102);
    titled.incidents.values_mut().for_each(|(_, title)| *title = Some("Title".to_owned()));
    assert_eq!(world.ledger.write(titled).await, SavedTo::Database);
    world.ledger.idle().await;
    let stored = world.stored().into_iter().find(|stored| stored.id == "a").unwrap();
    assert_eq!((stored.incident.count, stored.title.as_deref()), (102, Some("Title")));
}

#[actix::test]
async fn a_value_that_waits_does_not_undo_a_newer_one() {
    let world = World::new();
    tokio::time::pause();
    let device =
        |db: &mut Db| smart_devices::upsert(db, &"one".into(), "7", DeviceKind::Alarm, "Front door", testing::now());
    world.pool.write_blocking(device).unwrap();
    let value = |is_on: bool| LedgerWrite { values: [("7".to_owned(), is_on)].into(), ..Default::default() };
    let stored = || world.pool.read_blocking(|db| smart_devices::list(db, &"one".into())).unwrap()[0].last_value;
    world.ledger.write_repeats(value(true));
    world.ledger.idle().await;
    world.ledger.write_repeats(value(false));
    assert_eq!(stored(), Some(true), "within the same second");
    // With the alarm that it rings.
    let on = LedgerWrite { values: value(true).values, ..incident_write("a", 1) };
    assert_eq!(world.ledger.write(on).await, SavedTo::Database);
    sleep(2 * REPEATS_EVERY).await;
    world.ledger.idle().await;
    assert_eq!(stored(), Some(true));
    world.ledger.write_repeats(value(false));
    world.ledger.idle().await;
    assert_eq!(stored(), Some(false));
}

#[actix::test]
async fn an_alarm_that_joins_the_incident_of_a_repeat_takes_the_value_of_its_device_along() {
    for disk in [Disk::Works, Disk::Frozen] {
        let world = World::new();
        let device = |db: &mut Db| {
            smart_devices::upsert(db, &"one".into(), "7", DeviceKind::Alarm, "Front door", testing::now())
        };
        world.pool.write_blocking(device).unwrap();
        let value = |is_on: bool| LedgerWrite { values: [("7".to_owned(), is_on)].into(), ..Default::default() };
        world.ledger.write_repeats(value(false));
        world.ledger.idle().await;
        DISK.set(disk);
        // The alarm goes off again within the second, and the push of that comes.
        world.ledger.write_repeats(LedgerWrite { values: value(true).values, ..incident_write("a", 2) });
        world.ledger.write(incident_write("a", 2)).await;

        // A kill now: an alarm that is on, and was stored as off, would count at the next start.
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(world.directory.path().join(JOURNAL), copy.path().join(JOURNAL)).unwrap();
        journal::replay(copy.path(), &world.pool, &Default::default()).unwrap();
        let device = world.pool.read_blocking(|db| smart_devices::get(db, &"one".into(), "7")).unwrap();
        assert_eq!((world.stored()[0].incident.count, device.last_value), (2, Some(true)));
        DISK.set(Disk::Works);
        world.ledger.idle().await;
    }
}

#[actix::test]
async fn repeats_that_wait_are_kept_before_the_process_ends() {
    let world = World::new();
    let unsaved_alarms = world.ledger.0.journal.unsaved_alarms.clone();
    world.ledger.write_repeats(incident_write("a", 1));
    world.ledger.idle().await;
    DISK.set(Disk::Frozen);
    world.ledger.write_repeats(incident_write("a", 2));
    assert!(unsaved_alarms.flush(Duration::from_millis(10), Duration::from_secs(5)).await);
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(world.directory.path().join(JOURNAL), copy.path().join(JOURNAL)).unwrap();
    journal::replay(copy.path(), &world.pool, &Default::default()).unwrap();
    assert_eq!(world.stored()[0].incident.count, 2);
    DISK.set(Disk::Works);
    world.ledger.idle().await;
}
