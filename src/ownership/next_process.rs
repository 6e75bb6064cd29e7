//! Processes of other nodes: the one that has a part next, and those that are gone.

use tokio::time::Instant;

#[cfg(test)]
use crate::ownership::NodeSeat;
use crate::{
    cluster::placement::place,
    domain::ids::{NodeId, PartId},
    ownership::Ownership,
};

impl Ownership {
    /// The process at which this part belongs once this one has given it up; `None` while this one has no lease, or sees no
    /// other.
    pub fn next_process(&self, part: &PartId) -> Option<String> {
        let view = self.view.borrow();
        if !view.holds(Instant::now()) {
            return None;
        }
        let others = view.live.iter().filter(|node| node.process() != &*self.process);
        place(part, others).map(|node| node.process().to_owned())
    }

    /// True if this process has had a node, and has none any longer, as far as this one sees.
    pub fn is_gone(&self, process: &str) -> bool {
        let (view, is_its) = (self.view.borrow(), |node: &NodeId| node.process() == process);
        view.gone.iter().any(is_its) && !view.live.iter().any(is_its)
    }
}

#[cfg(test)]
impl NodeSeat {
    /// These nodes have nothing any longer, as far as this one sees.
    pub fn sees_gone(&self, gone: &[&str]) {
        self.view.send_modify(|view| view.gone = gone.iter().map(|node| NodeId::from(*node)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::node_lease::NodeView;

    #[tokio::test]
    async fn a_part_belongs_at_one_of_the_other_processes_next() {
        let (seat, ownership) = NodeSeat::new("here");
        let part = PartId::from("links:192.0.2.1:28082");
        let next = || ownership.next_process(&part);
        seat.seat([]);
        assert_eq!(next(), None, "no other is known");
        seat.sees(&["here-1"]);
        assert_eq!(next(), None);
        seat.sees(&["here-1", "there-3"]);
        assert_eq!(next().as_deref(), Some("there"));
        seat.sees(&["here-1", "there-3", "yonder-2"]);
        let others = ["there-3", "yonder-2"].map(NodeId::from);
        assert_eq!(next().as_deref(), place(&part, &others).map(NodeId::process));
        seat.view.send_modify(|view| *view = NodeView { holds_until: None, ..view.clone() });
        assert_eq!(next(), None, "its lease has ended");
    }

    #[tokio::test]
    async fn a_process_is_gone_when_all_of_its_nodes_are() {
        let (seat, ownership) = NodeSeat::new("here");
        seat.sees(&["here-1", "there-1"]);
        assert!(!ownership.is_gone("there") && !ownership.is_gone("yonder"), "one may not have been seen yet");
        seat.sees_gone(&["there-1"]);
        assert!(!ownership.is_gone("there"));
        seat.sees(&["here-1"]);
        assert!(ownership.is_gone("there") && !ownership.is_gone("here"));
        seat.sees(&["here-1", "there-2"]);
        assert!(!ownership.is_gone("there"), "it goes on as another node");
    }
}
