//! Task: keeps the lease of this node, looks at those of the others, and marks nodes dead that have lost theirs.

use std::{collections::BTreeSet, future::Future, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    cluster::{
        lease::{HeldLease, LeaseTimes},
        lease_store::{LeaseStore, LeaseStoreError},
        peers::{NO_ENTRY, PeerState, Peers},
    },
    domain::ids::NodeId,
};

/// Time for which a call of the store is waited for.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Longest time between two looks at the others.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause before a renewal or a mark that failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The nodes as this one sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Until then this node has its lease, unless it is renewed; none: it has lost it. It is to be compared with the time
    /// wherever it is used: a process that was stopped has no newer view yet.
    pub holds_until: Option<Instant>,
    /// Nodes that may be given something, this one among them while it has its lease. None until the node has looked at all
    /// of them: it would take itself for the only one.
    pub live: BTreeSet<NodeId>,
    /// Nodes that have nothing any longer, so that this one may take it.
    pub gone: BTreeSet<NodeId>,
}

impl NodeView {
    /// True if this node has its lease.
    pub fn holds(&self, now: Instant) -> bool {
        self.holds_until.is_some_and(|until| now < until)
    }
}

/// The end of a node. Its process may live on as another node, which has nothing: a node that had its lease back would not
/// know what passed to others meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEnd {
    /// By its own word.
    Left,
    /// Its lease was not renewed in time.
    Lost,
    /// Another node has marked it dead.
    MarkedDead,
}

/// See the module.
pub struct NodeLease<S> {
    store: S,
    node: NodeId,
    times: LeaseTimes,
    /// Zero of the times of the rules.
    origin: Instant,
    held: Option<HeldLease>,
    /// A write since the last one that succeeded has had no answer.
    unanswered: bool,
    peers: Peers,
    /// The other nodes of the store of now were looked at.
    has_looked: bool,
    owners: watch::Receiver<BTreeSet<NodeId>>,
    view: watch::Sender<NodeView>,
}

impl<S: LeaseStore> NodeLease<S> {
    /// The lease of this node, which has never had one before. `owners` are the nodes that have something by the database,
    /// also those that no store knows any longer. The process sees the nodes in `view`, also of nodes that it was before.
    pub fn new(
        store: S,
        node: NodeId,
        times: LeaseTimes,
        owners: watch::Receiver<BTreeSet<NodeId>>,
        view: watch::Sender<NodeView>,
    ) -> Self {
        view.send_replace(NodeView::default());
        let (origin, held, peers) = (Instant::now(), None, Peers::default());
        Self { store, node, times, origin, held, unanswered: false, peers, has_looked: false, owners, view }
    }

    /// Keeps the lease until it is lost, or `left` completes. By then the node must have given up all that it had: others
    /// take it at once.
    pub async fn run(mut self, left: impl Future<Output = ()>) -> NodeEnd {
        let end = tokio::select! {
            end = self.keep() => end,
            () = left => NodeEnd::Left,
        };
        let held = self.held.take();
        self.publish();
        match end {
            NodeEnd::Left => self.leave(held).await,
            NodeEnd::Lost if held.is_none() => {
                log::warn!(node = self.node.as_str(); "this node has got no lease, and another one of this process asks for it");
            }
            NodeEnd::Lost => log::error!(node = self.node.as_str(); "this node has lost its lease"),
            NodeEnd::MarkedDead => log::error!(node = self.node.as_str(); "another node has marked this one dead"),
        }
        end
    }

    async fn keep(&mut self) -> NodeEnd {
        loop {
            if self.is_due()
                && let Some(end) = self.renew().await
            {
                return end;
            }
            if self.has_lost() {
                return NodeEnd::Lost;
            }
            self.publish();
            let awaited = self.awaits_renewal();
            if let Some(end) = self.look().await {
                return end;
            }
            self.publish();
            // A node that was just seen to be marked is gone with the next renewal.
            if awaited || !self.awaits_renewal() {
                sleep(self.pause()).await;
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The lease, while this node has it.
    fn holding(&self) -> Option<HeldLease> {
        self.held.filter(|held| held.holds(self.times, self.now()))
    }

    /// True if it had a lease, which has ended. One of which it does not know may end, too: others may mark this node.
    fn has_lost(&self) -> bool {
        match self.held {
            Some(_) => self.holding().is_none(),
            None => self.unanswered && self.now() >= self.times.held_for(),
        }
    }

    /// True if a mark counts once the lease is renewed.
    fn awaits_renewal(&self) -> bool {
        self.held.is_some_and(|held| self.peers.awaits_renewal(held.sent_at()))
    }

    fn is_due(&self) -> bool {
        self.held.is_none_or(|held| self.now() >= held.renew_at(self.times)) || self.awaits_renewal()
    }

    /// Time until the next renewal or look. The next look is when the wait for another node is over, if that is sooner.
    fn pause(&self) -> Duration {
        let Some(held) = self.held.filter(|_| !self.is_due()) else { return AGAIN_AFTER };
        let now = self.now();
        let over_in = self.peers.next_over(self.times, now).map(|at| at.saturating_sub(now).max(AGAIN_AFTER));
        held.renew_at(self.times).saturating_sub(now).min(LOOK_EVERY).min(over_in.unwrap_or(LOOK_EVERY))
    }

    async fn renew(&mut self) -> Option<NodeEnd> {
        let revision = self.held.map_or(NO_ENTRY, |held| held.revision);
        match self.write_own(revision).await {
            Ok(()) => None,
            Err(LeaseStoreError::OtherRevision) => self.renew_what_is_there().await,
            Err(LeaseStoreError::Unavailable(reason)) => {
                log::warn!("the lease of this node is not renewed yet: {reason}");
                None
            }
        }
    }

    async fn write_own(&mut self, revision: u64) -> Result<(), LeaseStoreError> {
        let sent_at = self.now();
        let written = answered(self.store.write(&self.node, PeerState::Live, revision)).await;
        self.unanswered = match written {
            Ok(_) => false,
            Err(LeaseStoreError::Unavailable(_)) => true,
            Err(LeaseStoreError::OtherRevision) => self.unanswered,
        };
        let revision = written?;
        if self.held.is_none() {
            // A node that was seen before may be of a store that has lost everything meanwhile.
            self.forget_others();
        }
        // One that has ended meanwhile does not come back.
        if !self.has_lost() {
            self.held = Some(HeldLease::written(revision, sent_at));
        }
        Ok(())
    }

    /// Renews an entry that has another revision than is known: a write of which there was no answer has succeeded, the
    /// store has lost everything, or the node is marked dead.
    async fn renew_what_is_there(&mut self) -> Option<NodeEnd> {
        let Ok(entries) = answered(self.store.entries()).await else { return None };
        let (revision, is_known) = match entries.iter().find(|entry| entry.node == self.node) {
            Some(own) if own.state != PeerState::Live => return Some(NodeEnd::MarkedDead),
            // An old write may have made it in a store that has lost everything meanwhile.
            Some(own) => (own.revision, self.unanswered),
            None => (NO_ENTRY, false),
        };
        if !is_known {
            self.forget_others();
        }
        // One that fails is tried again.
        let _ = self.write_own(revision).await;
        None
    }

    fn forget_others(&mut self) {
        self.peers.forget_all();
        self.has_looked = false;
    }

    /// Looks at the other nodes, and marks those that have lost their lease.
    async fn look(&mut self) -> Option<NodeEnd> {
        let Ok(mut entries) = answered(self.store.entries()).await else { return None };
        if entries.iter().any(|entry| entry.node == self.node && entry.state != PeerState::Live) {
            return Some(NodeEnd::MarkedDead);
        }
        entries.retain(|entry| entry.node != self.node);
        let mut owners = self.owners.borrow().clone();
        owners.remove(&self.node);
        let now = self.now();
        self.peers.see(&entries, &owners, now);
        self.has_looked = true;
        // A node without a lease cannot say of others that they have none.
        self.holding()?;
        let marks = self.peers.overdue(self.times, now).into_iter().map(|(node, revision)| {
            let store = &self.store;
            async move {
                let marked = answered(store.write(&node, PeerState::Dead, revision)).await;
                (node, marked)
            }
        });
        let marks = join_all(marks).await;
        let now = self.now();
        for (node, marked) in marks {
            if let Ok(revision) = marked {
                log::warn!(node = node.as_str(); "a node has not renewed its lease, and is marked dead");
                self.peers.marked(&node, revision, now);
            }
        }
        None
    }

    fn publish(&self) {
        // A node that has forgotten the others goes on with those that it knew until it has looked again.
        let mut live = if self.has_looked { self.peers.live() } else { self.view.borrow().live.clone() };
        let view = match self.holding() {
            Some(held) => {
                if self.has_looked {
                    live.insert(self.node.clone());
                }
                let gone = self.peers.gone(self.times, held.sent_at(), self.now());
                NodeView { holds_until: Some(self.origin + held.ends_at(self.times)), live, gone }
            }
            None => NodeView { live, ..NodeView::default() },
        };
        self.view.send_if_modified(|known| {
            let has_changed = *known != view;
            *known = view;
            has_changed
        });
    }

    /// Says that the node has nothing any longer. Without an answer, others wait until they mark it.
    async fn leave(&self, held: Option<HeldLease>) {
        let Some(held) = held else { return };
        let mut revision = held.revision;
        // The second time with the revision of a renewal that was under way.
        for _ in 0..2 {
            match answered(self.store.write(&self.node, PeerState::Left, revision)).await {
                Err(LeaseStoreError::OtherRevision) => {}
                Ok(_) => return,
                Err(LeaseStoreError::Unavailable(reason)) => {
                    log::warn!("the other nodes do not know that this one has left: {reason}");
                    return;
                }
            }
            let Ok(entries) = answered(self.store.entries()).await else { return };
            match entries.into_iter().find(|entry| entry.node == self.node && entry.state == PeerState::Live) {
                Some(own) => revision = own.revision,
                None => return,
            }
        }
    }
}

async fn answered<T>(call: impl Future<Output = Result<T, LeaseStoreError>>) -> Result<T, LeaseStoreError> {
    let late = |_| Err(LeaseStoreError::Unavailable("no answer in time".to_owned()));
    timeout(ANSWERED_WITHIN, call).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests;
