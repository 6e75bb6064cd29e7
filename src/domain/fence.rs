//! The right of a node to write for a part that it has.

use crate::domain::ids::{NodeId, PartId};

/// The right of a node to write for a part. Its number rises with each node that takes the part over, so that a node which
/// was away meanwhile, and does not know it yet, is refused where it writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    pub part: PartId,
    pub node: NodeId,
    /// From 1 on.
    pub number: i64,
}
