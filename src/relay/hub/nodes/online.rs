//! Users who are online, at this node and at others.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use actix::prelude::*;
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::{
    super::{Hub, OnlineUsers},
    SeveralNodes,
    remote_commands::READ_WITHIN,
};
use crate::{
    domain::ids::{ServerId, UserId},
    relay::remote::{
        remote_message::RemoteContent,
        remote_question::{RemoteAnswer, RemoteQuestion},
    },
};

/// Time between two looks at who has several sockets.
pub(super) const SOCKETS_EVERY: Duration = Duration::from_secs(1);
/// Numbers that have not changed are sent again after this time: a message may be lost.
const SENT_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A message that is for a whole node is of no server.
pub fn of_none() -> ServerId {
    ServerId::from("")
}

impl Hub {
    /// The users with an open socket at this node.
    pub(super) fn users_online(&self) -> HashSet<UserId> {
        self.presence.online().cloned().collect()
    }

    /// The processes of the other nodes that live.
    pub(in super::super) fn other_processes(&self) -> BTreeSet<String> {
        self.nodes.as_ref().map(|nodes| nodes.owned.ownership.other_processes()).unwrap_or_default()
    }

    /// Lets the other nodes know who has several sockets here, so that they count them.
    pub(super) fn send_sockets(&mut self, _: &mut Context<Self>) {
        let processes = self.other_processes();
        self.presence.keep_only(&processes);
        let several = self.presence.several();
        let Some(SeveralNodes { remote, .. }) = &mut self.nodes else { return };
        let is_sent =
            |(sent, at): &(Vec<(UserId, usize)>, Instant)| *sent == several && at.elapsed() < SENT_AGAIN_AFTER;
        if remote.sockets_sent.as_ref().is_some_and(is_sent) {
            return;
        }
        remote.sockets_sent = Some((several.clone(), Instant::now()));
        for process in processes {
            self.mail(&process, of_none(), RemoteContent::Sockets { of: several.clone() });
        }
    }
}

impl Handler<OnlineUsers> for Hub {
    type Result = ResponseActFuture<Self, HashSet<UserId>>;

    fn handle(&mut self, _: OnlineUsers, _: &mut Self::Context) -> Self::Result {
        let mut online = self.users_online();
        let processes = self.other_processes();
        let asked =
            processes.iter().filter_map(|process| self.send_question(of_none(), process, RemoteQuestion::Online));
        let asked: Vec<_> = asked.map(|asked| timeout(READ_WITHIN, asked)).collect();
        let all = async move {
            for answer in join_all(asked).await {
                if let Ok(Ok(RemoteAnswer::Online(users))) = answer {
                    online.extend(users);
                }
            }
            online
        };
        Box::pin(all.into_actor(self))
    }
}
