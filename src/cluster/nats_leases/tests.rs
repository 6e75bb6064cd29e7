mod nats_server;

use std::sync::Arc;

use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};

use self::nats_server::NatsServer;
use super::*;
use crate::{
    cluster::{
        lease::LeaseTimes,
        nats_link::{self, NatsAccess},
        node_lease::{NodeEnd, NodeLease, NodeView},
        peers::NO_ENTRY,
    },
    crypto, net,
};

impl NatsServer {
    async fn connect(&self) -> NatsLeases {
        crypto::install();
        let access = NatsAccess {
            servers: vec![self.url.parse().unwrap()],
            credentials: None,
            tls: Arc::new(net::tls_config(None).unwrap()),
        };
        NatsLeases::new(nats_link::connect(&access, 0).await.unwrap())
    }
}

fn entry(node: &str, revision: u64, state: PeerState) -> PeerEntry {
    PeerEntry { node: node.into(), revision, state }
}

#[test]
fn an_entry_is_read_as_it_was_written_and_an_unknown_one_is_of_a_node_that_is_there() {
    for (written, word) in WORDS {
        assert_eq!((state(&text(written)), WORDS[written as usize].1), (written, word));
    }
    for unknown in [&br#"{"v":2,"state":"draining","more":1}"#[..], b"", b"[]"] {
        assert_eq!(state(unknown), PeerState::Live);
    }
}

#[actix_web::test]
async fn a_write_succeeds_on_the_revision_that_it_wants_only() {
    let Some(server) = NatsServer::start() else { return };
    let (one, two) = (server.connect().await, server.connect().await);
    let (node, other) = (NodeId::from("one"), NodeId::from("two"));
    let first = one.write(&node, PeerState::Live, NO_ENTRY).await.unwrap();
    assert_eq!(one.write(&node, PeerState::Live, NO_ENTRY).await, Err(LeaseStoreError::OtherRevision));
    let second = one.write(&node, PeerState::Live, first).await.unwrap();
    assert_eq!(two.write(&node, PeerState::Dead, first).await, Err(LeaseStoreError::OtherRevision));
    let third = two.write(&other, PeerState::Left, NO_ENTRY).await.unwrap();
    assert!(first < second && second < third);
    let dead = two.write(&node, PeerState::Dead, second).await.unwrap();
    assert_eq!(one.write(&node, PeerState::Live, second).await, Err(LeaseStoreError::OtherRevision));
    let mut entries = one.entries().await.unwrap();
    entries.sort_by_key(|entry| entry.revision);
    assert_eq!(entries, [entry("two", third, PeerState::Left), entry("one", dead, PeerState::Dead)]);
}

#[actix_web::test]
async fn a_node_has_its_lease_on_a_server_that_lost_everything() {
    let Some(mut server) = NatsServer::start() else { return };
    let (_owners, owned) = watch::channel(Default::default());
    let (sees, mut view) = watch::channel(NodeView::default());
    let lease = NodeLease::new(server.connect().await, "one".into(), LeaseTimes::NODES, owned, sees);
    let (leave, left) = oneshot::channel::<()>();
    let task = actix::spawn(lease.run(async move { drop(left.await) }));
    let held = timeout(Duration::from_secs(30), view.wait_for(|view| view.holds_until.is_some()));
    let before = held.await.expect("it comes").expect("the node runs").holds_until;
    server.restart();
    let renewed = timeout(Duration::from_secs(30), view.wait_for(|view| view.holds_until > before));
    drop(renewed.await.expect("it comes").expect("the node runs"));
    let other = server.connect().await;
    assert!(other.entries().await.unwrap().iter().any(|entry| entry.node.as_str() == "one"));
    leave.send(()).unwrap();
    assert_eq!(task.await.unwrap(), NodeEnd::Left);
    let entries = other.entries().await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.state).collect::<Vec<_>>(), [PeerState::Left]);
}
