//! Walls of alarms that flap: they cost writes by time and by alarm, not by edge.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::sleep;

use super::*;
use crate::db::engine::{error::DbError, pool::DiskMoment};

const DEVICES: u64 = 60;
/// Every alarm goes off and on again for so long.
const FLAPPING: Duration = Duration::from_secs(20);

impl World {
    /// On virtual time, with the number of writes to its database.
    fn counting() -> (Self, Arc<AtomicUsize>) {
        tokio::time::pause();
        let (directory, writes) = (tempfile::tempdir().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = writes.clone();
        let disk = move |moment: DiskMoment| {
            counted.fetch_add(usize::from(moment == DiskMoment::BeforeWrite), Ordering::Relaxed);
            std::future::ready(Ok::<(), DbError>(())).boxed_local()
        };
        let database = Database::Sqlite(directory.path().join("test.db"));
        let pool = Pool::open_simulated(&database, Arc::new(disk)).unwrap();
        testing::user(&pool, "alice");
        testing::server(&pool, "alice", "one");
        let devices = |db: &mut Db| {
            (0..DEVICES).try_for_each(|device| {
                let (device, kind) = (device.to_string(), DeviceKind::Alarm);
                smart_devices::upsert(db, &"one".into(), &device, kind, "Front door", testing::now())
            })
        };
        pool.write_blocking(devices).unwrap();
        let journal = Journal::open_simulated(directory.path()).unwrap();
        (Self::over(directory, 1, pool, journal, Clock::simulated), writes)
    }

    /// The stored value of each alarm, by its number.
    fn values(&self) -> BTreeMap<u64, Option<bool>> {
        let devices = self.context.pool.read_blocking(|db| smart_devices::list(db, &"one".into())).unwrap();
        devices.into_iter().map(|device| (device.device_id.parse().unwrap(), device.last_value)).collect()
    }
}

/// One alarm goes on and off at its own moments; in the end it has this value.
async fn flap(life: &Life, device: u64, on: Duration, off: Duration, in_the_end: bool) {
    let name = device.to_string();
    sleep(Duration::from_millis(7 * device)).await;
    let until = Instant::now() + FLAPPING;
    while Instant::now() < until {
        life.alarms.note_value(&name, Some(true));
        life.alarm_of(&name).await;
        sleep(on).await;
        life.alarms.note_value(&name, Some(false));
        sleep(off).await;
    }
    life.alarms.note_value(&name, Some(in_the_end));
}

async fn writes_of_a_wall(on: Duration, off: Duration) {
    let (world, writes) = World::counting();
    let life = world.start(0).await;
    let ticks = life.clone();
    let ticks = actix::spawn(async move {
        loop {
            ticks.alarms.clone().due().await;
            ticks.tick().await;
        }
    });
    let (began, before) = (Instant::now(), writes.load(Ordering::Relaxed));
    let is_odd = |device: u64| device % 2 == 1;
    join_all((0..DEVICES).map(|device| flap(&life, device, on, off, is_odd(device)))).await;
    // "On" without an incident of its own is stored when it has been on for ten seconds.
    sleep(Duration::from_secs(12)).await;
    life.alarms.ledger.idle().await;
    let (seconds, made) = (began.elapsed().as_secs() as usize, writes.load(Ordering::Relaxed) - before);
    ticks.abort();
    assert!(made <= DEVICES as usize + seconds + 1, "{made} writes in {seconds} s for {DEVICES} alarms");
    assert_eq!(world.ledger(&life).await.len(), DEVICES as usize, "one incident for each");
    assert_eq!(world.values(), (0..DEVICES).map(|device| (device, Some(is_odd(device)))).collect());
}

#[actix::test]
async fn a_wall_that_flaps_costs_a_write_a_second_and_one_for_each_alarm_that_begins() {
    writes_of_a_wall(Duration::from_millis(500), Duration::from_millis(600)).await;
}

#[actix::test]
async fn a_wall_that_flaps_slowly_costs_no_more() {
    writes_of_a_wall(Duration::from_millis(10_500), Duration::from_millis(300)).await;
}
