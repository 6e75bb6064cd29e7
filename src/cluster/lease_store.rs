//! The store of the leases, and the seam before it: NATS, or memory in simulations.
//!
//! Only the answer to a write is believed. A list may be older than what is stored, and a write of which there was no
//! answer may have succeeded, or succeed later.

use std::future::Future;

use crate::{
    cluster::peers::{PeerEntry, PeerState},
    domain::ids::NodeId,
};

/// Failure of a call of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseStoreError {
    /// The entry has another revision than the write wants; nothing was written.
    #[error("the entry has another revision")]
    OtherRevision,
    /// There was no answer, in these words; the write may have succeeded.
    #[error("{0}")]
    Unavailable(String),
}

/// Entries of nodes, one for each, with the revision of its last write. Revisions rise over all entries of the store, and
/// begin again when it has lost everything.
pub trait LeaseStore {
    /// Writes the entry of this node if its revision is still this one, [`NO_ENTRY`](super::peers::NO_ENTRY) if there is to
    /// be none. Gives the new revision.
    fn write(
        &self,
        node: &NodeId,
        state: PeerState,
        revision: u64,
    ) -> impl Future<Output = Result<u64, LeaseStoreError>>;

    /// All entries, as they are or were a while ago.
    fn entries(&self) -> impl Future<Output = Result<Vec<PeerEntry>, LeaseStoreError>>;
}

impl<S: LeaseStore> LeaseStore for &S {
    async fn write(&self, node: &NodeId, state: PeerState, revision: u64) -> Result<u64, LeaseStoreError> {
        S::write(self, node, state, revision).await
    }

    async fn entries(&self) -> Result<Vec<PeerEntry>, LeaseStoreError> {
        S::entries(self).await
    }
}
