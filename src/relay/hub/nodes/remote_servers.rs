//! Paired servers that sockets of this node watch at other nodes, and those of this node that sockets of others watch.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use actix::{Addr, Recipient};
use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{handed_servers::HandedServers, push_session_reads::ReadPushSession};
use crate::{
    cluster::node_mail::{NodeMail, Outbox, count_unreadable},
    domain::ids::{ServerId, UserId},
    relay::{
        remote::{
            remote_feed::{FromOwner, RemoteFeed},
            remote_message::{MessageParts, RemoteContent},
            remote_question::RemoteAnswer,
            remote_watchers::{FromWatcher, RemoteWatchers},
        },
        wire::publication::AllowedUsers,
    },
};

/// Time between two lines of the log about messages that cannot be read.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// See the module.
pub struct RemoteServers {
    /// The name of this process.
    pub process: String,
    pub outbox: Outbox,
    /// Until the hub runs.
    pub inbox: Option<mpsc::Receiver<Bytes>>,
    pub parts: MessageParts,
    /// Feeds of servers of other nodes.
    pub feeds: HashMap<ServerId, KnownFeed>,
    /// Watchers of servers of this node.
    pub watchers: HashMap<ServerId, Addr<RemoteWatchers>>,
    /// Processes whose sockets watch any of these, or have.
    pub watching: HashSet<String>,
    /// Servers that other nodes have handed over to this one, until they are here.
    pub handed: HandedServers,
    /// Questions that other nodes have not answered yet, by their numbers.
    pub asked: HashMap<u64, oneshot::Sender<RemoteAnswer>>,
    /// The push worker of this process.
    pub push_sessions: Option<Recipient<ReadPushSession>>,
    /// The numbers of sockets that other nodes were sent last, and when.
    pub sockets_sent: Option<(Vec<(UserId, usize)>, Instant)>,
    /// When the log said last that a message cannot be read.
    unreadable_said_at: Option<Instant>,
}

/// The feed of a server of another node.
pub struct KnownFeed {
    pub feed: Addr<RemoteFeed>,
    /// The process from which it comes.
    pub owner: String,
    /// Users who may watch, by the last answer of the database.
    pub allowed: AllowedUsers,
}

impl RemoteServers {
    /// None yet.
    pub fn new(process: &str, mail: NodeMail) -> Self {
        let NodeMail { outbox, inbox } = mail;
        Self {
            process: process.to_owned(),
            outbox,
            inbox: Some(inbox),
            parts: MessageParts::default(),
            feeds: HashMap::new(),
            watchers: HashMap::new(),
            watching: HashSet::new(),
            handed: HandedServers::default(),
            asked: HashMap::new(),
            push_sessions: None,
            sockets_sent: None,
            unreadable_said_at: None,
        }
    }

    /// A message of another node has come that this program does not understand.
    pub fn unreadable_came(&mut self, now: Instant) {
        count_unreadable();
        if self.unreadable_said_at.is_none_or(|at| now.saturating_duration_since(at) >= SAID_EVERY) {
            self.unreadable_said_at = Some(now);
            log::warn!("a message of another node cannot be read: that node runs another version");
        }
    }

    /// The feed of this server, if it has not ended.
    pub fn feed(&mut self, server: &ServerId) -> Option<&mut KnownFeed> {
        self.feeds.get_mut(server).filter(|known| known.feed.connected())
    }

    /// Users who may watch this server of another node, by the last answer of the database.
    pub fn allowed(&self, server: &ServerId) -> Option<&AllowedUsers> {
        self.feeds.get(server).map(|known| &known.allowed)
    }

    /// Ends the feeds of which this is true, as their servers are here now or their nodes are gone: their sockets wait for no
    /// answer of the node from which they came.
    pub fn end_feeds(&mut self, ends: impl Fn(&ServerId, &KnownFeed) -> bool) {
        for (_, known) in self.feeds.extract_if(|server, known| ends(server, known)) {
            known.feed.do_send(FromOwner { content: RemoteContent::NotHere, frame: Bytes::new() });
        }
    }

    /// Ends what sockets of these processes watch here, as they are gone: no alarm waits for them.
    pub fn end_watches(&mut self, is_gone: impl Fn(&str) -> bool) {
        for process in self.watching.extract_if(|process| is_gone(process)) {
            for watchers in self.watchers.values() {
                watchers.do_send(FromWatcher { from: process.clone(), content: RemoteContent::Unwatch });
            }
        }
    }

    /// Forgets those that have ended.
    pub fn forget_ended(&mut self) {
        self.feeds.retain(|_, known| known.feed.connected());
        self.watchers.retain(|_, watchers| watchers.connected());
    }
}
