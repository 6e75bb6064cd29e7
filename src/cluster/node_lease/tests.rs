use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::oneshot, task::JoinHandle};

use super::*;
use crate::{
    cluster::memory_leases::{CallFate, CallFates, LostMessage, MemoryLeases},
    crypto::random::Random,
};

const TIMES: LeaseTimes = LeaseTimes::NODES;

struct RunningNode {
    id: NodeId,
    view: watch::Receiver<NodeView>,
    task: JoinHandle<NodeEnd>,
    leave: oneshot::Sender<()>,
    _owners: watch::Sender<BTreeSet<NodeId>>,
}

impl RunningNode {
    fn start(store: &MemoryLeases, name: &str, owners: &[&str], fates: Arc<CallFates>) -> Self {
        let id = NodeId::from(name);
        let (owners, known) = watch::channel(owners.iter().map(|owner| (*owner).into()).collect());
        let (sees, view) = watch::channel(NodeView::default());
        let lease = NodeLease::new(store.over(fates), id.clone(), TIMES, known, sees);
        let (leave, left) = oneshot::channel::<()>();
        let left = async move {
            if left.await.is_err() {
                pending().await
            }
        };
        Self { id, view, task: actix::spawn(lease.run(left)), leave, _owners: owners }
    }

    fn holds(&self) -> bool {
        self.view.borrow().holds(Instant::now())
    }

    /// Time until its view is as wanted.
    async fn until(&mut self, wanted: impl FnMut(&NodeView) -> bool) -> Duration {
        let began = Instant::now();
        let seen = timeout(Duration::from_secs(60), self.view.wait_for(wanted)).await;
        seen.expect("it comes").expect("the node runs");
        began.elapsed()
    }
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A network without faults until it is cut.
fn network() -> (Arc<AtomicBool>, Arc<CallFates>) {
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = cut.clone();
    let fates = move || CallFate {
        to_store: milliseconds(5),
        to_caller: milliseconds(5),
        lost: is_cut.load(Ordering::Relaxed).then_some(LostMessage::Request),
        behind: 0,
    };
    (cut, Arc::new(fates))
}

#[actix_web::test]
async fn a_node_that_dies_is_gone_within_ten_seconds_and_one_that_lives_stays() {
    tokio::time::pause();
    let store = MemoryLeases::default();
    let [mut one, mut two, three] =
        ["one", "two", "three"].map(|name| RunningNode::start(&store, name, &[], network().1));
    one.until(|view| view.live.len() == 3).await;
    sleep(Duration::from_secs(60)).await;
    assert!(one.holds() && two.holds() && three.holds());
    three.task.abort();
    for node in [&mut one, &mut two] {
        let took = node.until(|view| view.gone.contains(&three.id)).await;
        assert!(took <= Duration::from_secs(10), "{took:?}");
        assert_eq!(node.view.borrow().live, BTreeSet::from([NodeId::from("one"), NodeId::from("two")]));
    }
    sleep(Duration::from_secs(60)).await;
    assert!(one.holds() && two.holds() && one.view.borrow().gone.len() == 1);
}

#[actix_web::test]
async fn a_node_does_not_take_itself_for_the_only_one_before_it_has_looked() {
    tokio::time::pause();
    let store = MemoryLeases::default();
    let mut one = RunningNode::start(&store, "one", &[], network().1);
    one.until(|view| view.live.len() == 1).await;
    let mut two = RunningNode::start(&store, "two", &[], network().1);
    let mut counts = Vec::new();
    while counts.last() != Some(&2) {
        two.view.changed().await.expect("the node runs");
        counts.push(two.view.borrow().live.len());
    }
    assert!(!counts.contains(&1), "{counts:?}");
}

#[actix_web::test]
async fn a_node_that_leaves_is_gone_at_once() {
    tokio::time::pause();
    let store = MemoryLeases::default();
    let [mut one, mut two] = ["one", "two"].map(|name| RunningNode::start(&store, name, &[], network().1));
    one.until(|view| view.live.len() == 2).await;
    two.until(|view| view.holds(Instant::now())).await;
    two.leave.send(()).unwrap();
    assert_eq!(two.task.await.unwrap(), NodeEnd::Left);
    let took = one.until(|view| view.gone.contains(&two.id)).await;
    assert!(took <= Duration::from_secs(2), "{took:?}");
}

#[actix_web::test]
async fn a_node_that_is_cut_off_has_nothing_before_others_take_it() {
    tokio::time::pause();
    let store = MemoryLeases::default();
    let (cut, fates) = network();
    let mut one = RunningNode::start(&store, "one", &[], network().1);
    let mut two = RunningNode::start(&store, "two", &[], fates);
    one.until(|view| view.live.len() == 2).await;
    two.until(|view| view.holds(Instant::now())).await;
    cut.store(true, Ordering::Relaxed);
    while two.holds() {
        assert!(!one.view.borrow().gone.contains(&two.id));
        sleep(milliseconds(50)).await;
    }
    assert_eq!(two.task.await.unwrap(), NodeEnd::Lost);
    one.until(|view| view.gone.contains(&two.id)).await;
}

#[actix_web::test]
async fn a_store_that_loses_everything_costs_no_node_its_lease() {
    tokio::time::pause();
    let store = MemoryLeases::default();
    let names = ["one", "two", "three"];
    let mut nodes = names.map(|name| RunningNode::start(&store, name, &names, network().1));
    for node in &mut nodes {
        node.until(|view| view.live.len() == 3).await;
    }
    store.lose_everything();
    for _ in 0..600 {
        sleep(milliseconds(50)).await;
        assert!(nodes.iter().all(|node| node.holds() && node.view.borrow().gone.is_empty()));
    }
    assert!(nodes.iter().all(|node| node.view.borrow().live.len() == 3));
}

#[actix_web::test]
async fn an_owner_that_no_store_knows_is_gone_after_a_lease() {
    tokio::time::pause();
    let store = MemoryLeases::default();
    let mut one = RunningNode::start(&store, "one", &["of an earlier time", "one"], network().1);
    let earlier = NodeId::from("of an earlier time");
    let took = one.until(|view| view.gone.contains(&earlier)).await;
    assert!(took > TIMES.lease && took < Duration::from_secs(12), "{took:?}");
}

#[actix_web::test]
async fn a_node_forgets_the_nodes_that_it_saw_before_its_lease_in_a_store_that_lost_everything() {
    tokio::time::pause();
    let store = MemoryLeases::default();
    let earlier = RunningNode::start(&store, "earlier", &[], network().1);
    // Its first write never comes; it sees the others.
    let writes_are_lost = Arc::new(AtomicBool::new(true));
    let are_lost = writes_are_lost.clone();
    let fates = move || CallFate {
        lost: are_lost.swap(false, Ordering::Relaxed).then_some(LostMessage::Request),
        ..CallFate::default()
    };
    let mut one = RunningNode::start(&store, "one", &[], Arc::new(fates));
    one.until(|view| view.live.contains(&earlier.id)).await;
    earlier.task.abort();
    store.lose_everything();
    one.until(|view| view.holds(Instant::now())).await;
    one.until(|view| view.live == BTreeSet::from([NodeId::from("one")])).await;
    sleep(Duration::from_secs(30)).await;
    assert!(one.holds());
}

/// A network that delays, loses and shows old lists, by chance.
fn wild(random: Random) -> Arc<CallFates> {
    Arc::new(move || {
        let [to_store, to_caller, lost, behind] = random.bytes();
        CallFate {
            to_store: milliseconds(u64::from(to_store) * 5),
            to_caller: milliseconds(u64::from(to_caller)),
            lost: match lost {
                0..12 => Some(LostMessage::Request),
                12..24 => Some(LostMessage::Answer),
                _ => None,
            },
            behind: usize::from(behind % 3),
        }
    })
}

/// Nodes end and begin, the store loses everything now and then, and the network is wild. No node may take for gone one that
/// has its lease.
#[actix_web::test]
async fn no_node_takes_what_another_one_has() {
    tokio::time::pause();
    let mut gone = 0;
    for seed in 0..40 {
        let (store, random) = (MemoryLeases::default(), Random::seeded(seed));
        let names: Vec<String> = (0..12).map(|number| format!("node {number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut started = 0;
        // Earlier nodes may have something by the database; one that never ran has nothing.
        let mut start = || {
            started += 1;
            let (name, owners) = (names.get(started - 1)?, &names[..started]);
            Some(RunningNode::start(&store, name, owners, wild(random.clone())))
        };
        let mut nodes: Vec<RunningNode> = [start(), start(), start()].into_iter().flatten().collect();
        for _ in 0..2_400 {
            sleep(milliseconds(50)).await;
            if random.byte() == 0 && random.byte() < 64 {
                store.lose_everything();
            }
            if random.byte() == 0 && random.byte() < 64 {
                let dies = usize::from(random.byte()) % nodes.len().max(1);
                if let Some(node) = nodes.get(dies) {
                    node.task.abort();
                }
                nodes.extend(start());
            }
            let running: Vec<_> = nodes.iter().filter(|node| !node.task.is_finished()).collect();
            for node in &running {
                let view = node.view.borrow();
                gone += view.gone.len();
                let wrong = running.iter().find(|other| view.gone.contains(&other.id) && other.holds());
                assert!(wrong.is_none() || !view.holds(Instant::now()), "seed {seed}: {} and {:?}", node.id, view);
            }
        }
        nodes.iter().for_each(|node| node.task.abort());
    }
    assert!(gone > 0, "some are gone");
}
