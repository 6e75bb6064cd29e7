//! Pure: the node at which a part belongs, and how many parts move in a second.
//!
//! Rendezvous hashing: each node has a score for each part, and the highest one has it. So all nodes that see the same ones
//! agree without a word, and a node that comes or goes moves only its own parts. Nodes of two versions have to agree as well: a
//! part of which each says that it belongs at the other one would have no node.

use std::{collections::VecDeque, time::Duration};

use crate::{
    crypto::digest::sha256,
    domain::ids::{NodeId, PartId},
};

/// The one of these nodes at which the part belongs; none if there are none.
pub fn place<'a>(part: &PartId, nodes: impl IntoIterator<Item = &'a NodeId>) -> Option<&'a NodeId> {
    nodes.into_iter().map(|node| (score(part, node), node)).max().map(|(_, node)| node)
}

fn score(part: &PartId, node: &NodeId) -> Vec<u8> {
    // Neither has a line break.
    sha256(format!("{node}\n{part}").as_bytes())
}

/// Span within which moves are counted.
const SPAN: Duration = Duration::from_secs(1);

/// Bounds the moves of a node while others work: within no second they are more than its limit.
#[derive(Debug)]
pub struct MovePacer {
    most: usize,
    /// Moves of the last second, in order.
    moved_at: VecDeque<Duration>,
}

impl MovePacer {
    /// No more than `most` within a second.
    pub fn new(most: usize) -> Self {
        Self { most, moved_at: VecDeque::with_capacity(most) }
    }

    /// Lets as many of these moves begin as may, and counts them from here on.
    pub fn begin(&mut self, wanted: usize, now: Duration) -> usize {
        while self.moved_at.front().is_some_and(|moved_at| now.saturating_sub(*moved_at) >= SPAN) {
            self.moved_at.pop_front();
        }
        let begin = wanted.min(self.most.saturating_sub(self.moved_at.len()));
        self.moved_at.extend(std::iter::repeat_n(now, begin));
        begin
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::domain::{ids::GameServerId, sweep::Sweep};

    fn parts(count: u16) -> Vec<PartId> {
        (0..count).map(|number| PartId::from(format!("links:203.0.113.7:{number}"))).collect()
    }

    fn nodes(numbers: &BTreeSet<u8>) -> BTreeSet<NodeId> {
        numbers.iter().map(|number| NodeId::from(format!("node {number}"))).collect()
    }

    fn placed<'a>(parts: &'a [PartId], nodes: &'a BTreeSet<NodeId>) -> BTreeMap<&'a PartId, &'a NodeId> {
        parts.iter().filter_map(|part| Some((part, place(part, nodes)?))).collect()
    }

    #[test]
    fn parts_are_spread_evenly_and_without_nodes_have_no_place() {
        let (parts, three) = (parts(3_000), nodes(&[1, 2, 3].into()));
        let mut counts = BTreeMap::<_, usize>::new();
        placed(&parts, &three).into_values().for_each(|node| *counts.entry(node).or_default() += 1);
        assert!(counts.len() == 3 && counts.values().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert_eq!(place(&parts[0], &BTreeSet::new()), None);
    }

    #[test]
    fn nodes_of_all_versions_give_parts_the_same_names_and_places() {
        let links = |address| PartId::links(&GameServerId::at(address, 28_082));
        let parts = [links("203.0.113.7"), links("203.0.113.8"), Sweep::KeyRotation.part()];
        let names = ["links:203.0.113.7:28082", "links:203.0.113.8:28082", "sweep:key-rotation"];
        assert_eq!(parts.each_ref().map(PartId::as_str), names);
        let nodes = ["0193-a-1", "0193-b-1", "0193-c-2"].map(NodeId::from);
        let places = parts.each_ref().map(|part| place(part, &nodes).unwrap().as_str());
        assert_eq!(places, ["0193-a-1", "0193-b-1", "0193-c-2"]);
    }

    proptest! {
        #[test]
        fn a_node_that_comes_or_goes_moves_only_its_own_parts(
            numbers in prop::collection::btree_set(0..20_u8, 1..8),
            other in 20..40_u8,
        ) {
            let (parts, few) = (parts(200), nodes(&numbers));
            let more = nodes(&numbers.iter().copied().chain([other]).collect());
            let other = NodeId::from(format!("node {other}"));
            let (before, after) = (placed(&parts, &few), placed(&parts, &more));
            prop_assert_eq!((before.len(), after.len()), (200, 200));
            for (part, node) in before {
                prop_assert!(after[part] == node || *after[part] == other);
            }
        }

        #[test]
        fn no_second_has_more_moves_than_are_allowed_and_none_is_wasted(
            most in 1..30_usize,
            steps in prop::collection::vec((0..700_u64, 0..50_usize), 1..60),
        ) {
            let (mut pacer, mut moves, mut now) = (MovePacer::new(most), Vec::new(), Duration::ZERO);
            for (pause, wanted) in steps {
                now += Duration::from_millis(pause);
                let within = moves.iter().filter(|at| now - **at < SPAN).count();
                let begun = pacer.begin(wanted, now);
                prop_assert_eq!(begun, wanted.min(most - within));
                moves.extend([now].repeat(begun));
            }
        }
    }
}
