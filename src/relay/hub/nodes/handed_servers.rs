//! Memories of game connections that other nodes have handed over, until their servers are here. Pure.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use crate::domain::{
    fence::Fence,
    ids::{PartId, ServerId},
};

/// A server that is not here by then is elsewhere.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// Bytes of all. A server without room begins with what is stored.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// See the module.
#[derive(Default)]
pub struct HandedServers {
    kept: HashMap<ServerId, HandedMemory>,
    bytes: usize,
}

struct HandedMemory {
    memory: Bytes,
    /// The right by which its game connection wrote.
    right: HandedRight,
    since: Instant,
}

/// Part and number of the right by which a game connection of another node wrote.
pub struct HandedRight {
    pub part: PartId,
    pub number: i64,
}

impl HandedRight {
    /// True if this right came after that one, and no other in between.
    pub fn is_before(&self, right: &Fence) -> bool {
        self.part == right.part && self.number == right.number - 1
    }
}

impl HandedServers {
    /// Keeps the newest memory of a server; false without room.
    pub fn keep(&mut self, server: ServerId, right: HandedRight, memory: Bytes, now: Instant) -> bool {
        self.remove(&server);
        let has_room = self.bytes + memory.len() <= MOST_BYTES;
        if has_room {
            self.bytes += memory.len();
            self.kept.insert(server, HandedMemory { memory, right, since: now });
        }
        has_room
    }

    /// The memory of this server, which is here now by this right, if it is that of the node before.
    pub fn take(&mut self, server: &ServerId, right: &Fence) -> Option<Bytes> {
        self.remove(server).filter(|handed| handed.right.is_before(right)).map(|handed| handed.memory)
    }

    fn remove(&mut self, server: &ServerId) -> Option<HandedMemory> {
        let handed = self.kept.remove(server)?;
        self.bytes -= handed.memory.len();
        Some(handed)
    }

    /// Forgets the servers that are elsewhere.
    pub fn forget_old(&mut self, now: Instant) {
        self.kept.retain(|_, handed| now.saturating_duration_since(handed.since) < KEPT_FOR);
        self.bytes = self.kept.values().map(|handed| handed.memory.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_memory_of_a_server_is_kept_for_a_while_if_there_is_room() {
        let (mut handed, now) = (HandedServers::default(), Instant::now());
        let later = now + Duration::from_secs(10);
        let memory = |bytes: usize| Bytes::from(vec![0; bytes]);
        let right = |number| Fence { part: "links:a:1".into(), node: "here-1".into(), number };
        let before = |number| HandedRight { part: "links:a:1".into(), number };
        assert!(handed.keep("one".into(), before(1), memory(1), now));
        assert!(handed.keep("one".into(), before(3), memory(2), now));
        assert!(!handed.keep("two".into(), before(1), memory(MOST_BYTES - 1), now));
        assert!(handed.keep("two".into(), before(1), memory(MOST_BYTES - 2), later));
        assert_eq!(handed.take(&"two".into(), &right(2)).map(|memory| memory.len()), Some(MOST_BYTES - 2));
        assert!(handed.take(&"two".into(), &right(2)).is_none());
        assert!(handed.keep("two".into(), before(1), memory(3), later));
        handed.forget_old(now + KEPT_FOR);
        assert!(handed.take(&"one".into(), &right(4)).is_none());
        assert_eq!(handed.bytes, 3);
        assert!(handed.take(&"two".into(), &right(3)).is_none(), "another node had it in between");
        let of_another = HandedRight { part: "links:b:1".into(), number: 2 };
        assert!(!of_another.is_before(&right(3)), "the server is at another game server now");
    }
}
