//! This process as one of several nodes: its way to NATS, its lease, and its parts.

use std::{future::Future, sync::Arc, time::Duration};

use actix_web::rt;
use rustls::ClientConfig;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

use crate::{
    clock::Clock,
    cluster::node_mail::{MailRoute, mail},
    config::NatsServers,
    crypto::random::Random,
    db::engine::pool::Pool,
    ownership::NodeSeat,
    relay::hub::HubNode,
};

/// Time in which a node gives up what it has and says so. Afterwards the others wait for its lease to end.
const LEAVES_WITHIN: Duration = Duration::from_secs(8);

/// The node of this process, which goes on until it [`leave`](Self::leave)s.
pub struct ServingNode {
    leave: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Needs of a node.
pub struct NodeNeeds {
    pub nats: NatsServers,
    pub tls: Arc<ClientConfig>,
    pub pool: Pool,
    pub clock: Clock,
    pub random: Random,
}

impl ServingNode {
    /// Starts it on this thread, and makes the equipment of its hub. It has nothing until NATS answers, which is asked until
    /// it does.
    pub fn start(needs: NodeNeeds) -> (Self, HubNode) {
        let process = needs.random.id::<String>(needs.clock.now());
        let (seat, ownership) = NodeSeat::new(&process);
        let (mail, route) = mail();
        let (leave, leaves) = oneshot::channel::<()>();
        let leaves = async { drop(leaves.await) };
        let node = Self { leave, task: rt::spawn(run(needs, process, (seat, route), leaves)) };
        (node, HubNode { ownership, mail, guesses: Arc::default() })
    }

    /// Completes when its task has ended by itself, as one that has panicked does: nothing renews its lease then.
    pub async fn ended(&mut self) {
        // The panic is in the log.
        let _ = (&mut self.task).await;
    }

    /// Gives up what it has, so that others take it at once. Call it when nothing is done for it any longer.
    pub async fn leave(mut self) {
        if self.task.is_finished() {
            return;
        }
        // A task that has just panicked takes nothing.
        let _ = self.leave.send(());
        if timeout(LEAVES_WITHIN, &mut self.task).await.is_err() {
            log::warn!("this node did not leave in time: the others wait for its lease to end");
            self.task.abort();
        }
    }
}

#[cfg(feature = "cluster")]
async fn run(
    needs: NodeNeeds,
    process: String,
    (seat, route): (NodeSeat, MailRoute),
    leaves: impl Future<Output = ()>,
) {
    use std::{future::pending, pin::pin};

    use crate::{
        cluster::{nats_leases::NatsLeases, nats_mail},
        ownership::nodes,
    };

    let mut leaves = pin!(leaves);
    let client = tokio::select! {
        client = connected(&needs) => client,
        () = &mut leaves => return,
    };
    let NodeNeeds { pool, clock, .. } = needs;
    let carries = async {
        nats_mail::carry(client.clone(), &process, route).await;
        pending::<()>().await;
    };
    let leases = NatsLeases::new(client.clone());
    tokio::select! {
        () = nodes::run(&leases, pool, clock, seat, leaves) => {}
        () = carries => {}
    }
}

/// The connection to NATS, once it answers.
#[cfg(feature = "cluster")]
async fn connected(needs: &NodeNeeds) -> async_nats::Client {
    use secrecy::ExposeSecret as _;

    use crate::{
        cluster::nats_link::{NatsAccess, connect},
        domain::backoff::Backoff,
    };

    let NodeNeeds { nats, tls, random, .. } = needs;
    let mut backoff = Backoff::between(Backoff::FIRST, Duration::from_secs(5));
    loop {
        // The settings were checked: each is a URL with a host.
        let servers = nats.urls.iter().filter_map(|url| url.expose_secret().parse().ok()).collect();
        let access = NatsAccess { servers, credentials: nats.credentials.clone(), tls: tls.clone() };
        match connect(&access, random.byte()).await {
            Ok(client) => return client,
            Err(error) => log::error!("this process is no node yet, and has no links: {error}"),
        }
        tokio::time::sleep(backoff.after(Duration::ZERO, Duration::ZERO, random.byte())).await;
    }
}

/// A build for one node: its settings name no servers of NATS, or they were refused.
#[cfg(not(feature = "cluster"))]
async fn run(needs: NodeNeeds, process: String, unused: (NodeSeat, MailRoute), leaves: impl Future<Output = ()>) {
    let NodeNeeds { nats, tls, pool, clock, random } = needs;
    drop((nats, tls, pool, clock, random, process));
    leaves.await;
    drop(unused);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_web::test]
    async fn a_node_whose_task_has_failed_has_ended_and_has_nothing_to_leave() {
        let (leave, _left) = oneshot::channel();
        let mut node = ServingNode { leave, task: rt::spawn(async { panic!("on purpose") }) };
        node.ended().await;
        node.leave().await;
        let (leave, left) = oneshot::channel::<()>();
        let mut node = ServingNode { leave, task: rt::spawn(async { drop(left.await) }) };
        tokio::select! {
            biased;
            () = node.ended() => panic!("it goes on"),
            () = async {} => {}
        }
        node.leave().await;
    }
}
