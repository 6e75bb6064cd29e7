//! Pure: which parts of this node move to another one, and when. Nodes come and go together, in a rolling upgrade or when a
//! part of the network is away: nothing moves before they are the same ones for a while, and then some parts each second.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use crate::{
    cluster::placement::MovePacer,
    domain::ids::{NodeId, PartId},
};

/// The live nodes are the same ones for so long before a part moves.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// Parts that begin to move within a second.
const MOST_A_SECOND: usize = 20;

/// See the module.
#[derive(Debug)]
pub struct PartMoves {
    /// The live nodes, and since when they are these.
    live: BTreeSet<NodeId>,
    since: Option<Instant>,
    /// Parts that have still to move; `None`: they are not known yet.
    waiting: Option<Vec<PartId>>,
    pacer: MovePacer,
    /// Zero of the times of the pacer.
    origin: Option<Instant>,
}

impl Default for PartMoves {
    fn default() -> Self {
        let pacer = MovePacer::new(MOST_A_SECOND);
        Self { live: BTreeSet::new(), since: None, waiting: None, pacer, origin: None }
    }
}

impl PartMoves {
    /// The parts that begin to move now. `misplaced` finds those that belong at another one of these nodes.
    pub fn begin(
        &mut self,
        live: BTreeSet<NodeId>,
        now: Instant,
        misplaced: impl FnOnce(&BTreeSet<NodeId>) -> Vec<PartId>,
    ) -> Vec<PartId> {
        if self.live != live {
            (self.live, self.since, self.waiting) = (live, Some(now), None);
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < SETTLED_AFTER {
            return Vec::new();
        }
        let origin = *self.origin.get_or_insert(now);
        let live = &self.live;
        let waiting = self.waiting.get_or_insert_with(|| misplaced(live));
        let begin = self.pacer.begin(waiting.len(), now.saturating_duration_since(origin));
        waiting.split_off(waiting.len() - begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(names: &[&str]) -> BTreeSet<NodeId> {
        names.iter().map(|name| NodeId::from(*name)).collect()
    }

    #[test]
    fn parts_move_when_the_nodes_have_settled_and_some_each_second() {
        let (mut moves, began) = (PartMoves::default(), Instant::now());
        let parts: Vec<PartId> = (0..50).map(|number| PartId::from(format!("part {number:02}"))).collect();
        let mut begin = |live: &[&str], seconds: u64| {
            moves.begin(nodes(live), began + Duration::from_secs(seconds), |_| parts.clone()).len()
        };
        assert_eq!((begin(&["one"], 0), begin(&["one"], 9)), (0, 0));
        assert_eq!((begin(&["one", "two"], 10), begin(&["one", "two"], 19)), (0, 0), "another one has come");
        assert_eq!((begin(&["one", "two"], 20), begin(&["one", "two"], 20)), (20, 0));
        assert_eq!((begin(&["one", "two"], 21), begin(&["one", "two"], 22)), (20, 10));
        assert_eq!(begin(&["one", "two"], 60), 0, "nothing is left to move");
        assert_eq!((begin(&["one"], 61), begin(&["one"], 71)), (0, 20));
    }
}
