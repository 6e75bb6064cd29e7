//! Task: this process as a node. When its node has lost its lease, the process goes on as another one, which has nothing.

use std::{
    collections::BTreeSet,
    future::{Future, pending},
    pin::pin,
    time::Duration,
};

use tokio::{
    join, select,
    sync::{oneshot, watch},
    time::sleep,
};

use crate::{
    clock::Clock,
    cluster::{
        lease::LeaseTimes,
        lease_store::LeaseStore,
        node_lease::{NodeEnd, NodeLease},
    },
    db::engine::pool::Pool,
    domain::ids::NodeId,
    ownership::{NodeSeat, PartKeeper},
};

/// Pause before the next node.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Runs one node after the other, until `leaves` completes; the node of then gives up what it has, and then its lease.
pub async fn run<S: LeaseStore>(
    store: &S,
    pool: Pool,
    clock: Clock,
    mut seat: NodeSeat,
    leaves: impl Future<Output = ()>,
) {
    let mut leaves = pin!(leaves);
    for number in 1.. {
        let node = NodeId::of_process(&seat.process, number);
        log::info!(node = node.as_str(); "this process is a node");
        let (holders, known) = watch::channel(BTreeSet::new());
        let lease = NodeLease::new(store, node.clone(), LeaseTimes::NODES, known, seat.view.clone());
        let keeper = PartKeeper::new(pool.clone(), clock.clone(), node, holders, seat);
        let (give_up, is_given_up) = oneshot::channel::<()>();
        let (end_lease, lease_end) = oneshot::channel::<NodeEnd>();
        let keep = async {
            let ends = async {
                select! {
                    () = &mut leaves => NodeEnd::Left,
                    end = lease_end => end.unwrap_or(NodeEnd::Lost),
                }
            };
            let (end, seat) = keeper.run(ends).await;
            if end == NodeEnd::Left {
                let _ = give_up.send(());
            }
            (end, seat)
        };
        let hold = async {
            let left = async {
                if is_given_up.await.is_err() {
                    pending::<()>().await;
                }
            };
            let _ = end_lease.send(lease.run(left).await);
        };
        let ((end, left_behind), ()) = join!(keep, hold);
        if end == NodeEnd::Left {
            return;
        }
        seat = left_behind;
        sleep(AGAIN_AFTER).await;
    }
}
