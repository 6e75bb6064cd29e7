//! Pure: what a node sees of the others, and which of them it may take for dead.
//!
//! A node that does not renew its lease is marked dead by a write to its entry, on the condition that the entry is what it
//! was for a whole lease by the clock of the node that marks: a renewal meanwhile makes that write fail, and the mark makes
//! every later renewal fail. No clock but the own one counts, neither that of the store.
//!
//! A store that loses everything begins its revisions again, and a condition on an old one may hold by chance. Therefore
//! a mark counts only once the own lease was renewed after the mark was seen: that renewal has a condition, too, which
//! only a store that has lost nothing meets. A node whose own entry is gone forgets all that it has seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{cluster::lease::LeaseTimes, domain::ids::NodeId};

/// Revision of an entry that is not there.
pub const NO_ENTRY: u64 = 0;

/// The state of a node by its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The node had a lease when it wrote this.
    Live,
    /// By its own word, the node has given up all that it had.
    Left,
    /// Another node has marked it so.
    Dead,
}

/// An entry of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEntry {
    pub node: NodeId,
    pub revision: u64,
    pub state: PeerState,
}

/// A node as it was seen.
#[derive(Clone, Copy, Debug)]
struct SeenPeer {
    revision: u64,
    state: PeerState,
    /// When its newest sign of life was seen first.
    alive_at: Duration,
    /// When the mark was seen, if it has one.
    marked_at: Option<Duration>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Peers(BTreeMap<NodeId, SeenPeer>);

impl Peers {
    /// Takes a list of all entries. Lists may be old. `asked` are nodes that still have something: one without an entry has
    /// to be waited for like one that does not renew. A node that has ended is forgotten once it is neither listed nor has
    /// anything.
    pub fn see(&mut self, entries: &[PeerEntry], asked: &BTreeSet<NodeId>, now: Duration) {
        let listed: BTreeSet<&NodeId> = entries.iter().map(|entry| &entry.node).collect();
        self.0.retain(|node, seen| seen.state == PeerState::Live || listed.contains(node) || asked.contains(node));
        for entry in entries {
            self.see_one(&entry.node, entry.revision, entry.state, now);
        }
        for node in asked.iter().filter(|node| !self.0.contains_key(*node)).cloned().collect::<Vec<_>>() {
            self.see_one(&node, NO_ENTRY, PeerState::Live, now);
        }
    }

    /// This node was marked by the own write of this revision.
    pub fn marked(&mut self, node: &NodeId, revision: u64, now: Duration) {
        self.see_one(node, revision, PeerState::Dead, now);
    }

    fn see_one(&mut self, node: &NodeId, revision: u64, state: PeerState, now: Duration) {
        let marked_at = (state == PeerState::Dead).then_some(now);
        let Some(known) = self.0.get_mut(node) else {
            self.0.insert(node.clone(), SeenPeer { revision, state, alive_at: now, marked_at });
            return;
        };
        // Dead and gone are final, and an older entry is of an old list.
        if known.state != PeerState::Live || revision <= known.revision {
            return;
        }
        known.revision = revision;
        known.state = state;
        known.marked_at = marked_at;
        if state == PeerState::Live {
            known.alive_at = now;
        }
    }

    /// Nodes that may be marked now, with the revision on which the mark is conditional.
    pub fn overdue(&self, times: LeaseTimes, now: Duration) -> Vec<(NodeId, u64)> {
        let overdue = self.0.iter().filter(|(_, seen)| seen.state == PeerState::Live && seen.is_over(times, now));
        overdue.map(|(node, seen)| (node.clone(), seen.revision)).collect()
    }

    /// Nodes that count as live for the placement: they had a lease lately.
    pub fn live(&self) -> BTreeSet<NodeId> {
        let live = self.0.iter().filter(|(_, seen)| seen.state == PeerState::Live && seen.revision != NO_ENTRY);
        live.map(|(node, _)| node.clone()).collect()
    }

    /// Nodes that have nothing any longer, so that others may take it. `renewed_at` is when the last renewal of the own
    /// lease was sent that has succeeded.
    pub fn gone(&self, times: LeaseTimes, renewed_at: Duration, now: Duration) -> BTreeSet<NodeId> {
        let is_gone = |seen: &SeenPeer| match seen.state {
            PeerState::Live => false,
            PeerState::Left => true,
            // The mark of another node is no proof: the own wait is.
            PeerState::Dead => {
                seen.marked_at.is_some_and(|marked_at| marked_at < renewed_at) && seen.is_over(times, now)
            }
        };
        self.0.iter().filter(|(_, seen)| is_gone(seen)).map(|(node, _)| node.clone()).collect()
    }

    /// When the wait for one of them is over that is not gone yet: in the past for one that is overdue.
    pub fn next_over(&self, times: LeaseTimes, now: Duration) -> Option<Duration> {
        let is_waited_for = |seen: &&SeenPeer| match seen.state {
            PeerState::Live => true,
            PeerState::Left => false,
            PeerState::Dead => !seen.is_over(times, now),
        };
        self.0.values().filter(is_waited_for).map(|seen| seen.alive_at + times.passes_after()).min()
    }

    /// True if a mark waits for the next renewal of the own lease.
    pub fn awaits_renewal(&self, renewed_at: Duration) -> bool {
        self.0.values().any(|seen| seen.marked_at.is_some_and(|marked_at| marked_at >= renewed_at))
    }

    /// The own entry is gone: nothing that was seen is known of the store of now.
    pub fn forget_all(&mut self) {
        self.0.clear();
    }
}

impl SeenPeer {
    fn is_over(&self, times: LeaseTimes, now: Duration) -> bool {
        now.saturating_sub(self.alive_at) >= times.passes_after()
    }
}

#[cfg(test)]
mod tests;
