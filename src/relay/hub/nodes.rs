//! The part of the hub that it has on a node of several: the servers of this node, those of the others, and the news and
//! messages between nodes.

mod handed_servers;
pub mod handing_over;
pub mod online;
mod other_nodes;
mod owned_servers;
pub mod push_session_reads;
mod push_sessions;
pub mod remote_commands;
mod remote_servers;
mod sharing_news;
mod taking_parts;
mod watching_remotely;

use std::sync::Arc;

use self::{other_nodes::OtherNodes, owned_servers::OwnedServers, remote_servers::RemoteServers};
use crate::{
    cluster::node_mail::NodeMail,
    domain::ids::{PartId, ServerId},
    net::shared_guesses::SharedGuesses,
    ownership::Ownership,
};

/// Equipment of the hub of one node of several.
pub struct HubNode {
    pub ownership: Ownership,
    pub mail: NodeMail,
    /// Wrong guesses of clients, here and at other nodes.
    pub guesses: Arc<SharedGuesses>,
}

/// See the module.
pub struct SeveralNodes {
    pub owned: OwnedServers,
    pub others: OtherNodes,
    pub remote: RemoteServers,
    /// See [`HubNode::guesses`].
    pub guesses: Arc<SharedGuesses>,
}

impl SeveralNodes {
    /// Nothing is known yet.
    pub fn new(HubNode { ownership, mail, guesses }: HubNode) -> Self {
        let process = ownership.process();
        let (others, remote) = (OtherNodes::new(process.to_owned()), RemoteServers::new(process, mail));
        Self { owned: OwnedServers::new(ownership), others, remote, guesses }
    }

    /// The part of this server, if another node has it or none has; `None` also for one that was not read yet.
    pub fn part_elsewhere(&self, server: &ServerId) -> Option<PartId> {
        self.owned.part(server).filter(|_| self.owned.fence(server).is_none())
    }

    /// Ends the feeds of servers that are here now.
    pub fn end_feeds_of_own(&mut self) {
        let Self { owned, remote, .. } = self;
        remote.end_feeds(|server, _| owned.fence(server).is_some());
    }

    /// Ends the feeds from nodes that are gone, and what their sockets watch here.
    pub fn forget_gone(&mut self) {
        let Self { owned, remote, .. } = self;
        remote.end_feeds(|_, known| owned.ownership.is_gone(&known.owner));
        remote.end_watches(|process| owned.ownership.is_gone(process));
    }
}
