//! A store of leases in memory, over a network that delays and loses: for simulations, in the order and with the losses that
//! NATS may have.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    cluster::{
        lease_store::{LeaseStore, LeaseStoreError},
        peers::{NO_ENTRY, PeerEntry, PeerState},
    },
    domain::ids::NodeId,
};

/// Older lists that are kept.
const OLD_LISTS: usize = 32;

/// Message of a call that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostMessage {
    Request,
    Answer,
}

/// Treatment of a call by the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallFate {
    pub to_store: Duration,
    pub to_caller: Duration,
    pub lost: Option<LostMessage>,
    /// A list is as old as that many changes.
    pub behind: usize,
}

/// Decides on each call of a node.
pub type CallFates = dyn Fn() -> CallFate + Send + Sync;

/// See the module. Clones share the entries.
#[derive(Clone)]
pub struct MemoryLeases {
    entries: Arc<Mutex<StoredLeases>>,
    fates: Arc<CallFates>,
}

#[derive(Default)]
struct StoredLeases {
    revision: u64,
    entries: BTreeMap<NodeId, (u64, PeerState)>,
    /// Lists before the last changes, the newest last.
    old_lists: VecDeque<Vec<PeerEntry>>,
    /// Writes on their way.
    sent: Vec<SentWrite>,
    /// Writes so far.
    writes: u64,
    /// Answers to writes that have come, until they are fetched.
    answers: BTreeMap<u64, Result<u64, LeaseStoreError>>,
}

struct SentWrite {
    comes_at: Instant,
    number: u64,
    node: NodeId,
    state: PeerState,
    revision: u64,
}

impl Default for MemoryLeases {
    fn default() -> Self {
        Self { entries: Arc::default(), fates: Arc::new(CallFate::default) }
    }
}

impl MemoryLeases {
    /// This store as one node has it, over a network with these fates.
    pub fn over(&self, fates: Arc<CallFates>) -> Self {
        Self { entries: self.entries.clone(), fates }
    }

    /// Loses all entries, as servers do that keep them in memory and all end.
    pub fn lose_everything(&self) {
        let mut stored = self.lock();
        stored.revision = 0;
        stored.entries.clear();
        stored.old_lists.clear();
    }

    fn lock(&self) -> MutexGuard<'_, StoredLeases> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredLeases {
    fn list(&self) -> Vec<PeerEntry> {
        let entry = |(node, (revision, state)): (&NodeId, &(u64, PeerState))| PeerEntry {
            node: node.clone(),
            revision: *revision,
            state: *state,
        };
        self.entries.iter().map(entry).collect()
    }

    /// Takes the writes that have come by now; a caller that has given up does not call its write back.
    fn take_writes(&mut self) {
        let now = Instant::now();
        let (mut come, sent): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sent).into_iter().partition(|write| write.comes_at <= now);
        self.sent = sent;
        come.sort_by_key(|write| (write.comes_at, write.number));
        for write in come {
            let number = write.number;
            let answer = self.take_write(write);
            self.answers.insert(number, answer);
        }
    }

    fn take_write(&mut self, SentWrite { node, state, revision, .. }: SentWrite) -> Result<u64, LeaseStoreError> {
        if self.entries.get(&node).map_or(NO_ENTRY, |(known, _)| *known) != revision {
            return Err(LeaseStoreError::OtherRevision);
        }
        self.old_lists.push_back(self.list());
        if self.old_lists.len() > OLD_LISTS {
            self.old_lists.pop_front();
        }
        self.revision += 1;
        self.entries.insert(node, (self.revision, state));
        Ok(self.revision)
    }
}

impl LeaseStore for MemoryLeases {
    async fn write(&self, node: &NodeId, state: PeerState, revision: u64) -> Result<u64, LeaseStoreError> {
        let fate = (self.fates)();
        if fate.lost == Some(LostMessage::Request) {
            return pending().await;
        }
        let number = {
            let mut stored = self.lock();
            stored.writes += 1;
            let (comes_at, number) = (Instant::now() + fate.to_store, stored.writes);
            stored.sent.push(SentWrite { comes_at, number, node: node.clone(), state, revision });
            number
        };
        sleep(fate.to_store).await;
        let answer = {
            let mut stored = self.lock();
            stored.take_writes();
            stored.answers.remove(&number)
        };
        if fate.lost == Some(LostMessage::Answer) {
            return pending().await;
        }
        sleep(fate.to_caller).await;
        answer.unwrap_or_else(|| Err(LeaseStoreError::Unavailable("the write has not come".to_owned())))
    }

    async fn entries(&self) -> Result<Vec<PeerEntry>, LeaseStoreError> {
        let fate = (self.fates)();
        if fate.lost.is_some() {
            return pending().await;
        }
        sleep(fate.to_store).await;
        let list = {
            let mut stored = self.lock();
            stored.take_writes();
            let old = stored.old_lists.iter().rev().nth(fate.behind.saturating_sub(1)).cloned();
            old.filter(|_| fate.behind > 0).unwrap_or_else(|| stored.list())
        };
        sleep(fate.to_caller).await;
        Ok(list)
    }
}
