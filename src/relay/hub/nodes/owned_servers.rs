//! On a node of several: the paired servers as they are shared out, and the contexts of those that this node has. A game
//! connection writes by the node's right to its game server.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use crate::{
    db::server_places::ServerPlace,
    domain::{
        fence::Fence,
        ids::{PartId, ServerId},
        one_at_a_time::OneAtATime,
        time::Timestamp,
    },
    ownership::Ownership,
    relay::shared::context::RelayContext,
};

/// Reads of changed places between two reads of all places.
const READS_OF_CHANGES: u32 = 12;

/// See the module.
pub struct OwnedServers {
    pub ownership: Ownership,
    places: KnownPlaces,
    /// Contexts of game connections, one for each game server.
    contexts: HashMap<PartId, PartContext>,
    /// Reads of changes until the next one of all places.
    until_all: u32,
    /// The read of places.
    pub reading: OneAtATime,
    /// A look for alarms that wait is under way.
    pub looks_for_alarms: bool,
    /// The alarm after which the next look begins.
    pub alarms_after: Option<(Timestamp, String)>,
}

struct PartContext {
    fence: Fence,
    /// Game connections and their tasks hold it, and by it the right.
    context: Weak<RelayContext>,
}

impl OwnedServers {
    /// No server is known yet.
    pub fn new(ownership: Ownership) -> Self {
        Self {
            ownership,
            places: KnownPlaces::default(),
            contexts: HashMap::new(),
            until_all: 0,
            reading: OneAtATime::default(),
            looks_for_alarms: false,
            alarms_after: None,
        }
    }

    /// The right of this node to this server; `None`: another node has it, or none has, or it was not read yet.
    pub fn fence(&self, server: &ServerId) -> Option<Arc<Fence>> {
        self.ownership.fence(&self.places.0.get(server)?.part)
    }

    /// The part of this server, if it was read.
    pub fn part(&self, server: &ServerId) -> Option<PartId> {
        Some(self.places.0.get(server)?.part.clone())
    }

    /// The process that is to have this server next, which was here by this right; `None`: it is at another game server now,
    /// or here again, or no one knows.
    pub fn next_process(&self, server: &ServerId, right: &Fence) -> Option<String> {
        let is_same = self.places.0.get(server).is_some_and(|place| place.part == right.part);
        let is_here_again = self.fence(server).is_some_and(|held| *held != *right);
        let next = || self.ownership.next_process(&right.part);
        (is_same && !is_here_again).then(next).flatten()
    }

    /// The servers to which this node has the right.
    pub fn here(&self) -> impl Iterator<Item = &ServerId> {
        self.places.0.keys().filter(move |server| self.fence(server).is_some())
    }

    /// The context of game connections at the same game server: the one `of_all`, but it writes by this right.
    pub fn context(&mut self, fence: Arc<Fence>, of_all: &RelayContext) -> Arc<RelayContext> {
        let known = self.contexts.get(&fence.part).filter(|known| known.fence == *fence);
        if let Some(context) = known.and_then(|known| known.context.upgrade()) {
            return context;
        }
        let context = Arc::new(of_all.fenced_by(fence.clone()));
        let known = PartContext { fence: Fence::clone(&fence), context: Arc::downgrade(&context) };
        self.contexts.insert(known.fence.part.clone(), known);
        context
    }

    /// Forgets the contexts that no game connection holds.
    pub fn forget_unused(&mut self) {
        self.contexts.retain(|_, known| known.context.strong_count() > 0);
    }

    /// True if all places are to be read next.
    pub fn reads_all(&self) -> bool {
        self.until_all == 0
    }

    /// Takes the places that were read: all, or those that have changed.
    pub fn read(&mut self, places: Vec<ServerPlace>, all: bool) -> PlaceChanges {
        self.until_all = if all { READS_OF_CHANGES } else { self.until_all.saturating_sub(1) };
        self.places.read(places, all)
    }
}

/// Differences between two reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PlaceChanges {
    /// No longer paired.
    pub gone: Vec<ServerId>,
    /// At the same game server with other credentials.
    pub renewed: Vec<ServerId>,
    /// Parts of servers that were not there before.
    pub new_parts: Vec<PartId>,
}

/// Pure: the places of all paired servers, as far as they were read.
#[derive(Debug, Default)]
struct KnownPlaces(HashMap<ServerId, KnownPlace>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownPlace {
    part: PartId,
    credentials_version: i32,
}

impl KnownPlaces {
    /// Takes what was read; with `all`, a server that is not in it is gone.
    fn read(&mut self, places: Vec<ServerPlace>, all: bool) -> PlaceChanges {
        let mut before = if all { std::mem::take(&mut self.0) } else { HashMap::new() };
        let mut changes = PlaceChanges::default();
        for ServerPlace { server, game_server, credentials_version } in places {
            let place = KnownPlace { part: PartId::links(&game_server), credentials_version };
            let known = if all { before.remove(&server) } else { self.0.remove(&server) };
            match known {
                Some(known) if known == place => {}
                Some(known) if known.part == place.part => changes.renewed.push(server.clone()),
                _ => changes.new_parts.push(place.part.clone()),
            }
            self.0.insert(server, place);
        }
        changes.gone.extend(before.into_keys());
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::GameServerId;

    fn place(server: &str, address: &str, credentials_version: i32) -> ServerPlace {
        ServerPlace { server: server.into(), game_server: GameServerId::at(address, 28082), credentials_version }
    }

    fn part(address: &str) -> PartId {
        PartId::links(&GameServerId::at(address, 28082))
    }

    #[test]
    fn places_are_compared_with_what_was_read_before() {
        let mut known = KnownPlaces::default();
        let first = known.read(vec![place("one", "a", 0), place("two", "b", 0)], true);
        assert_eq!(first, PlaceChanges { new_parts: vec![part("a"), part("b")], ..PlaceChanges::default() });
        let some = known.read(vec![place("two", "b", 1), place("three", "c", 0)], false);
        let renewed = vec!["two".into()];
        assert_eq!(some, PlaceChanges { renewed, new_parts: vec![part("c")], ..PlaceChanges::default() });
        let all = known.read(vec![place("two", "b", 1), place("three", "d", 1)], true);
        let gone = vec!["one".into()];
        assert_eq!(all, PlaceChanges { gone, new_parts: vec![part("d")], ..PlaceChanges::default() });
        assert_eq!(known.0.len(), 2);
        assert_eq!(known.read(vec![place("two", "b", 1)], false), PlaceChanges::default());
    }
}
