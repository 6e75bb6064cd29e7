//! The store of leases in NATS: a key-value bucket of JetStream, one key for each node.
//!
//! The bucket is in memory: leases are worth nothing after a restart of all servers, and JetStream confirms writes to a disk
//! before they are on it. A write with the revision that it wants goes through the servers' Raft. The age of entries, which
//! the servers compare with their own clocks of the day, ends none that matters: it removes what nodes of long ago left.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_nats::{
    Client,
    jetstream::{
        self, Context,
        kv::{Config, Entry, EntryError, Operation, Store, UpdateErrorKind},
        stream::StorageType,
    },
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};

use crate::{
    cluster::{
        lease_store::{LeaseStore, LeaseStoreError},
        peers::{PeerEntry, PeerState},
    },
    domain::ids::NodeId,
};

/// The name of the bucket.
const BUCKET: &str = "companion_nodes";
/// Deadline of each request of the client; the callers have theirs.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Entries that were not written for so long are removed.
const REMOVED_AFTER: Duration = Duration::from_secs(3_600);
/// Bytes of an entry.
const LARGEST: i32 = 4_096;
/// Copies of the bucket, where there are servers for them.
const COPIES: usize = 3;
/// Entries that are read at once.
const READS_AT_ONCE: usize = 32;
/// Version of the entries.
const VERSION: u32 = 1;

/// An entry, as it is stored. Later versions may have more fields.
#[derive(Debug, Serialize, Deserialize)]
struct StoredNode {
    v: u32,
    state: String,
}

/// See the module.
pub struct NatsLeases {
    client: Client,
    context: Context,
    /// None before the first call, and after one that failed: the servers may have lost it.
    bucket: Mutex<Option<Store>>,
}

impl NatsLeases {
    /// The bucket of these servers, which is made when it is needed.
    pub fn new(client: Client) -> Self {
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWERED_WITHIN);
        Self { client, context, bucket: Mutex::default() }
    }

    async fn bucket(&self) -> Result<Store, LeaseStoreError> {
        let known = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(bucket) = known {
            return Ok(bucket);
        }
        let bucket = self.open().await?;
        *self.bucket.lock().unwrap_or_else(PoisonError::into_inner) = Some(bucket.clone());
        Ok(bucket)
    }

    /// Opens the bucket, or makes it. Nodes that make it at once make the same one.
    async fn open(&self) -> Result<Store, LeaseStoreError> {
        if let Ok(bucket) = self.context.get_key_value(BUCKET).await {
            return Ok(bucket);
        }
        // A server that belongs to no cluster has no room for copies. In a cluster of which too few servers run there is no
        // bucket until they do: one with fewer copies would stay so.
        let copies = if self.client.server_info().cluster.is_some() { COPIES } else { 1 };
        let config = Config {
            bucket: BUCKET.to_owned(),
            description: "leases of companion's nodes".to_owned(),
            history: 1,
            max_age: REMOVED_AFTER,
            max_value_size: LARGEST,
            storage: StorageType::Memory,
            num_replicas: copies,
            ..Config::default()
        };
        self.context.create_key_value(config).await.map_err(|error| self.failed(&error))
    }

    /// A call that failed otherwise than by its condition.
    fn failed(&self, error: &dyn std::fmt::Display) -> LeaseStoreError {
        *self.bucket.lock().unwrap_or_else(PoisonError::into_inner) = None;
        LeaseStoreError::Unavailable(format!("NATS: {error}"))
    }
}

impl LeaseStore for NatsLeases {
    async fn write(&self, node: &NodeId, state: PeerState, revision: u64) -> Result<u64, LeaseStoreError> {
        let bucket = self.bucket().await?;
        // Revision 0: the key must not be there.
        bucket.update(node.as_str(), text(state).into(), revision).await.map_err(|error| match error.kind() {
            UpdateErrorKind::WrongLastRevision => LeaseStoreError::OtherRevision,
            _ => self.failed(&error),
        })
    }

    async fn entries(&self) -> Result<Vec<PeerEntry>, LeaseStoreError> {
        let bucket = self.bucket().await?;
        let subjects = bucket.stream.info_with_subjects(format!("{}>", bucket.prefix)).await;
        let subjects = subjects.map_err(|error| self.failed(&error))?;
        let subjects: Vec<(String, usize)> = subjects.try_collect().await.map_err(|error| self.failed(&error))?;
        let keys = subjects.iter().filter_map(|(subject, _)| subject.strip_prefix(&bucket.prefix));
        // Many at once: a node that starts again and again leaves an entry each time, and the list has a deadline.
        let read = stream::iter(keys.map(|key| read_entry(&bucket, key))).buffer_unordered(READS_AT_ONCE);
        let entries: Vec<Option<PeerEntry>> = read.try_collect().await.map_err(|error| self.failed(&error))?;
        Ok(entries.into_iter().flatten().collect())
    }
}

/// The entry of this key; `None` if it was removed meanwhile.
async fn read_entry(bucket: &Store, key: &str) -> Result<Option<PeerEntry>, EntryError> {
    let Some(Entry { value, revision, operation, .. }) = bucket.entry(key).await? else { return Ok(None) };
    // A key that a person has deleted is one without news.
    let state = if operation == Operation::Put { state(&value) } else { PeerState::Live };
    Ok(Some(PeerEntry { node: key.into(), revision, state }))
}

/// Each state with its word.
const WORDS: [(PeerState, &str); 3] = [(PeerState::Live, "live"), (PeerState::Left, "left"), (PeerState::Dead, "dead")];

fn text(state: PeerState) -> Vec<u8> {
    let (_, word) = WORDS[state as usize];
    serde_json::to_vec(&StoredNode { v: VERSION, state: word.to_owned() }).expect("its fields are plain")
}

/// The state of an entry. One that cannot be read is of a node that is there.
fn state(text: &[u8]) -> PeerState {
    let stored = serde_json::from_slice::<StoredNode>(text).ok();
    let known = stored.and_then(|stored| WORDS.into_iter().find(|(_, word)| *word == stored.state));
    known.map_or(PeerState::Live, |(state, _)| state)
}

#[cfg(test)]
mod tests;
