//! The node that has a part next.

use tokio::time::Instant;

use crate::{cluster::placement::place, domain::ids::PartId, ownership::Ownership};

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::node_lease::NodeView, domain::ids::NodeId, ownership::NodeSeat};

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
}
