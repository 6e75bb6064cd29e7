//! Pushes of one user that arrived and are not stored yet, in the order in which they came.
//!
//! They outlive the session that brought them, and its supervisor: a session that ends loses nothing that was read. A
//! push that the service sends again at the next login is the same one, as long as it waits here.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::push::{arrived_push::ArrivedPush, message::PushMessage, session::PushReceipt};

/// Pushes that may wait, receipts that a session may owe, and bytes of pushes. With more nothing further is read.
const PUSHES: usize = 1_000;
const BYTES: usize = 8 * 1024 * 1024;

/// See the module.
#[derive(Default)]
pub struct UnstoredPushes {
    queue: Mutex<PushQueue>,
    arrived: Notify,
    stored: Notify,
}

#[derive(Default)]
struct PushQueue {
    waiting: VecDeque<UnstoredPush>,
    bytes: usize,
    /// Receipts of stored pushes, for the session in use.
    stored: Vec<PushReceipt>,
    /// Receipts that the session in use has not got back yet.
    owed: usize,
}

struct UnstoredPush {
    push: Arc<ArrivedPush>,
    /// Receipts of the session in use: none, if it has not received this push.
    receipts: Vec<PushReceipt>,
}

impl UnstoredPushes {
    fn queue(&self) -> MutexGuard<'_, PushQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session: the receipts of the one before mean nothing to it.
    pub fn begin_session(&self) {
        let mut queue = self.queue();
        (queue.stored, queue.owed) = (Vec::new(), 0);
        queue.waiting.iter_mut().for_each(|waiting| waiting.receipts.clear());
    }

    /// Drops all pushes, because their credential is gone.
    pub fn clear(&self) {
        *self.queue() = PushQueue::default();
    }

    /// True if a further push may be taken from the session.
    pub fn has_room(&self) -> bool {
        let queue = self.queue();
        queue.waiting.len() < PUSHES && queue.owed < PUSHES && queue.bytes < BYTES
    }

    /// Adds a message of the session in use; returns its push, unless it waits already.
    pub fn arrive(
        &self,
        message: PushMessage,
        receipt: PushReceipt,
        new: impl FnOnce(PushMessage) -> ArrivedPush,
    ) -> Option<Arc<ArrivedPush>> {
        let mut queue = self.queue();
        queue.owed += 1;
        let known = |waiting: &&mut UnstoredPush| {
            message.persistent_id.is_some() && waiting.push.message.persistent_id == message.persistent_id
        };
        if let Some(waiting) = queue.waiting.iter_mut().find(known) {
            waiting.receipts.push(receipt);
            return None;
        }
        let push = Arc::new(new(message));
        queue.bytes += push.size();
        queue.waiting.push_back(UnstoredPush { push: push.clone(), receipts: vec![receipt] });
        self.arrived.notify_one();
        Some(push)
    }

    /// The push that is to be stored next; it waits on until it [is stored](Self::store_first).
    pub async fn first(&self) -> Arc<ArrivedPush> {
        loop {
            let first = self.queue().waiting.front().map(|waiting| waiting.push.clone());
            match first {
                Some(push) => return push,
                None => self.arrived.notified().await,
            }
        }
    }

    /// True until this push is stored.
    pub fn waits(&self, push: &Arc<ArrivedPush>) -> bool {
        self.queue().waiting.iter().any(|waiting| Arc::ptr_eq(&waiting.push, push))
    }

    /// Removes this push, the first, as it is stored.
    pub fn store_first(&self, push: &Arc<ArrivedPush>) {
        let mut queue = self.queue();
        if let Some(waiting) = queue.waiting.pop_front_if(|waiting| Arc::ptr_eq(&waiting.push, push)) {
            queue.bytes -= push.size();
            queue.stored.extend(waiting.receipts);
            self.stored.notify_one();
        }
    }

    /// Waits until something is stored; returns the receipts that the session in use gave for it.
    pub async fn receipts(&self) -> Vec<PushReceipt> {
        self.stored.notified().await;
        let mut queue = self.queue();
        let stored = std::mem::take(&mut queue.stored);
        queue.owed -= stored.len();
        stored
    }
}
