//! The clients that are connected to a game server.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    net::IpAddr,
};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::observed::ObservedClient;

/// Messages that wait for one client; a client for which more wait is cut.
const OUTBOX: usize = 1024;

/// One connected client.
pub struct GameClient {
    pub address: IpAddr,
    /// Player whose team broadcasts it gets: set by the first valid request.
    pub player: Option<u64>,
    /// Entities whose entityChanged it gets.
    pub entities: HashSet<u64>,
    outbox: mpsc::Sender<Bytes>,
    /// Its connection ends when this is dropped.
    _cut: oneshot::Sender<Infallible>,
}

/// Queues of a client's connection.
pub struct ClientQueue {
    pub id: u64,
    pub outbox: mpsc::Sender<Bytes>,
    pub queue: mpsc::Receiver<Bytes>,
    /// Completes when the client is cut.
    pub cut: oneshot::Receiver<Infallible>,
}

/// The connected clients by number.
#[derive(Default)]
pub struct GameClients {
    by_id: HashMap<u64, GameClient>,
    admitted: u64,
}

impl GameClients {
    /// Adds a client from this address; its messages come out of the queue.
    pub fn admit(&mut self, address: IpAddr) -> ClientQueue {
        self.admitted += 1;
        let id = self.admitted;
        let (outbox, queue) = mpsc::channel(OUTBOX);
        let (cut_off, cut) = oneshot::channel();
        let client =
            GameClient { address, player: None, entities: HashSet::new(), outbox: outbox.clone(), _cut: cut_off };
        self.by_id.insert(id, client);
        ClientQueue { id, outbox, queue, cut }
    }

    pub(crate) fn get(&self, id: u64) -> Option<&GameClient> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut GameClient> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    /// Cuts every connection.
    pub fn clear(&mut self) {
        self.by_id.clear();
    }

    /// Numbers of the clients of this player.
    pub fn of_player(&self, player: u64) -> Vec<u64> {
        self.by_id.iter().filter(|(_, client)| client.player == Some(player)).map(|(id, _)| *id).collect()
    }

    /// Each client, in the order of their numbers.
    pub fn observed(&self) -> Vec<ObservedClient> {
        let observed = |(id, client): (&u64, &GameClient)| ObservedClient {
            connection: *id,
            address: client.address,
            player: client.player,
        };
        let mut clients: Vec<_> = self.by_id.iter().map(observed).collect();
        clients.sort_unstable_by_key(|client| client.connection);
        clients
    }

    pub(crate) fn count(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn count_of(&self, address: IpAddr) -> usize {
        self.by_id.values().filter(|client| client.address == address).count()
    }

    /// Sends the same bytes to every client of this audience, if there is one; clients that do not read are cut.
    pub fn broadcast(&mut self, audience: impl Fn(&GameClient) -> bool, encode: impl FnOnce() -> Bytes) {
        if self.by_id.values().any(&audience) {
            let data = encode();
            self.by_id.retain(|_, client| !audience(client) || client.outbox.try_send(data.clone()).is_ok());
        }
    }
}
