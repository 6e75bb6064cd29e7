//! Nodes with their leases and their parts, on virtual time, while nodes end, messages are late or lost, and the store of
//! the leases loses everything.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;

use super::*;
use crate::{
    cluster::memory_leases::{CallFate, CallFates, LostMessage, MemoryLeases},
    config::Database,
    crypto::random::Random,
    db::engine::pool::DiskMoment,
};

/// A process as it runs; once it was killed, all that it had last stays until its lease ends.
struct NodeProcess {
    ownership: Ownership,
    task: JoinHandle<()>,
}

impl NodeProcess {
    fn start(pool: &Pool, store: MemoryLeases, random: &Random) -> Self {
        let (process, clock) = (random.id::<String>(testing::now()), Clock::simulated(testing::now()));
        let ((seat, ownership), pool) = (NodeSeat::new(&process), pool.clone());
        let run = async move { nodes::run(&store, pool, clock, seat, pending()).await };
        Self { ownership, task: actix::spawn(run) }
    }
}

/// A network that delays, loses and shows old lists by chance, until it is calm.
fn fates(random: Random, is_calm: Arc<AtomicBool>) -> Arc<CallFates> {
    Arc::new(move || {
        let [to_store, to_caller, lost, behind] = random.bytes();
        if is_calm.load(Ordering::Relaxed) {
            return CallFate { to_store: Duration::from_millis(2), ..CallFate::default() };
        }
        CallFate {
            to_store: Duration::from_millis(u64::from(to_store) * 4),
            to_caller: Duration::from_millis(u64::from(to_caller)),
            lost: match lost {
                0..8 => Some(LostMessage::Request),
                8..16 => Some(LostMessage::Answer),
                _ => None,
            },
            behind: usize::from(behind % 3),
        }
    })
}

/// A database that answers on virtual time, after this number of milliseconds at each moment.
fn database(directory: &Path, millis: impl Fn(DiskMoment) -> u64 + Send + Sync + 'static) -> Pool {
    let disk = move |moment: DiskMoment| {
        let wait = Duration::from_millis(millis(moment));
        sleep(wait).map(|()| Ok::<(), DbError>(())).boxed_local()
    };
    Pool::open_simulated(&Database::Sqlite(directory.join("test.db")), Arc::new(disk)).unwrap()
}

/// Lives through two minutes of this seed; gives how often a part has passed to another node.
async fn live_through(seed: u64, directory: &Path) -> usize {
    tokio::time::pause();
    let pool = database(directory, |_| 3);
    let parts = pair(&pool, 1..13);
    let (store, random, is_calm) = (MemoryLeases::default(), Random::seeded(seed), Arc::new(AtomicBool::new(false)));
    let mut processes: Vec<NodeProcess> = Vec::new();
    let (mut places, mut passed) = (BTreeMap::<PartId, usize>::new(), 0);
    for step in 0.. {
        let living = processes.iter().filter(|process| !process.task.is_finished()).count();
        for _ in living..3 {
            let store = store.over(fates(random.clone(), is_calm.clone()));
            processes.push(NodeProcess::start(&pool, store, &random));
        }
        if step < 1_200 && random.byte() == 0 {
            processes[usize::from(random.byte()) % processes.len()].task.abort();
        }
        if step < 1_200 && random.byte() == 0 {
            store.lose_everything();
        }
        is_calm.store(step >= 1_200, Ordering::Relaxed);
        sleep(Duration::from_millis(100)).await;
        let mut owned = 0;
        for part in &parts {
            let has = |place: &usize| processes[*place].ownership.fence(part).is_some();
            let having: Vec<usize> = (0..processes.len()).filter(has).collect();
            assert!(having.len() <= 1, "seed {seed}: {part} is of {having:?}");
            let Some(&place) = having.first() else { continue };
            owned += 1;
            passed += usize::from(places.insert(part.clone(), place).is_some_and(|before| before != place));
        }
        if step > 1_200 && owned == parts.len() {
            break;
        }
        assert!(step < 2_400, "seed {seed}: {owned} of {} parts have a node when all is calm", parts.len());
    }
    processes.iter().for_each(|process| process.task.abort());
    passed
}

#[test]
fn no_part_has_two_nodes_and_in_the_end_each_has_one() {
    let live = |seed| {
        let directory = tempfile::tempdir().unwrap();
        actix::System::new().block_on(live_through(seed, directory.path()))
    };
    assert!((0..6).map(live).sum::<usize>() > 0, "some pass to another node");
}

/// The numbers of the parts, once their number is this one.
async fn numbers(ownership: &Ownership, count: usize) -> Vec<i64> {
    let mut held = ownership.held.clone();
    let seen = timeout(seconds(60), held.wait_for(|held| held.len() == count)).await;
    seen.unwrap().unwrap().values().map(|fence| fence.number).collect()
}

#[test]
fn a_process_that_was_cut_off_goes_on_as_another_node_until_it_leaves() {
    let directory = tempfile::tempdir().unwrap();
    actix::System::new().block_on(async {
        tokio::time::pause();
        let pool = database(directory.path(), |_| 3);
        let parts = pair(&pool, 1..3);
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = is_cut.clone();
        let fates = move || CallFate {
            lost: cut.load(Ordering::Relaxed).then_some(LostMessage::Request),
            ..CallFate::default()
        };
        let (store, (seat, ownership)) = (MemoryLeases::default().over(Arc::new(fates)), NodeSeat::new("process"));
        let (leave, left) = oneshot::channel::<()>();
        let run = async move {
            nodes::run(&store, pool, Clock::simulated(testing::now()), seat, left.map(drop)).await;
        };
        let task = actix::spawn(run);
        assert_eq!(numbers(&ownership, 2).await, [1, 1]);
        is_cut.store(true, Ordering::Relaxed);
        assert_eq!(numbers(&ownership, 0).await, [0_i64; 0]);
        is_cut.store(false, Ordering::Relaxed);
        assert_eq!(numbers(&ownership, 2).await, [2, 2]);
        leave.send(()).unwrap();
        timeout(seconds(60), task).await.unwrap().unwrap();
        assert!(parts.iter().all(|part| ownership.fence(part).is_none()));
    });
}

#[test]
fn a_part_that_is_given_up_after_a_slow_look_has_its_time_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    actix::System::new().block_on(async {
        tokio::time::pause();
        let millis = Arc::new(AtomicU64::new(0));
        let reads_in = millis.clone();
        let pool = database(directory.path(), move |moment| {
            if moment == DiskMoment::BeforeRead { reads_in.load(Ordering::Relaxed) } else { 0 }
        });
        let parts = pair(&pool, 1..25);
        let ([mut one], _) = TestNode::start_all(&pool, ["one"]).await;
        one.sees(&["one", "two"], &[]);
        one.look(Instant::now()).await;
        let (both, at_two) = (nodes(&["one", "two"]), NodeId::from("two"));
        let used = parts.iter().find(|part| place(part, &both) == Some(&at_two)).expect("some move");
        let right = one.ownership.fence(used).unwrap();
        sleep(seconds(10)).await;
        millis.store(3_000, Ordering::Relaxed);
        one.look(Instant::now()).await;
        assert!(one.ownership.fence(used).is_none());
        millis.store(0, Ordering::Relaxed);
        one.look(Instant::now()).await;
        assert!(one.keeper.ending.iter().any(|ending| ending.fence == right), "it is used still");
    });
}
