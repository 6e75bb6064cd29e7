//! On a node of several: a game server passes from one living node to another, with what is known of it, so that nothing is
//! said twice and nothing is missed. Parts pass on when a node leaves, and some each second when one has come.
//!
//! 1. The game connection here ends its link and waits, a second at most, for alarms that are on their way into the ledger
//!    and to sockets. Then it gives its memory
//!    ([`handed_state`](crate::relay::state::handed_state)): the world, the team with its chat, the values of the alarms,
//!    and of incidents and events what the database does not have. Who watches looks for the server again.
//! 2. This hub sends the memory to the process at which the part belongs next, in one message. The right to the part goes
//!    only when all writes for it have ended; then the part is free, and a node takes it as ever, by the next number. No row
//!    is given to a node that does not know of it, and no node waits for a message. Of many servers at once, the memories wait
//!    for room among the messages, half of which is left to others. One that has found none by the end of a drain is lost.
//! 3. The hub there keeps the memory until the server is here, and gives it to the new game connection, also if it comes
//!    late, if the numbers follow: no other node had the server in between. The memory counts once the link is up, and is
//!    dropped after that. For the live state it is as if the link had been lost at the old node and came up at the new one:
//!    what a link finds after a moment without one is handled in one place.
//!
//! A memory that is lost, too large or of another version leaves the new game connection with what is stored, as after a
//! start. A node that has lost its lease hands nothing over: by then, others know more.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::{Hub, LiveConnection};
use super::{SeveralNodes, handed_servers::HandedRight};
use crate::{
    cluster::node_mail::count_lost,
    domain::ids::ServerId,
    relay::{
        game::game_connection::handing_over::{PassOn, TakeOver},
        remote::remote_message::{RemoteContent, RemoteMessage},
    },
};

/// Time in which a memory has to find room. A drain gives links no more.
pub(in super::super) const SENT_WITHIN: Duration = Duration::from_secs(2);

impl Hub {
    /// Ends the game connection of a server, and sends its memory, by then, to the node that is to have the server next.
    pub(in super::super) fn hand_over(
        &self,
        server: ServerId,
        known: &LiveConnection,
        by: Instant,
    ) -> impl Future<Output = ()> + use<> {
        let nodes = self.nodes.as_ref();
        let next = nodes.zip(known.fence.as_ref());
        let next = next.and_then(|(nodes, right)| nodes.owned.next_process(&server, right));
        let way = nodes.map(|SeveralNodes { remote, .. }| (remote.outbox.clone(), remote.process.clone())).zip(next);
        let right = known.fence.as_ref().map(|right| (right.part.clone(), right.number));
        let id = u64::from_le_bytes(self.context.random.bytes());
        let connection = known.address.clone();
        async move {
            // One that has ended before answers nothing.
            let memory = connection.send(PassOn).await.ok().flatten();
            let (Some(((outbox, from), next)), Some((part, number)), Some(memory)) = (way, right, memory) else {
                return;
            };
            let message = RemoteMessage { server, from, content: RemoteContent::HandOver { part, number } };
            outbox.send_with_room(&next, message.write(&memory, id), by).await;
        }
    }

    /// Another node, which had this right, has handed this server over.
    pub(super) fn handed_over(&mut self, server: ServerId, before: HandedRight, memory: Bytes) {
        if let Some(known) = self.connections.get(&server) {
            if known.fence.as_ref().is_some_and(|right| before.is_before(right)) {
                known.address.do_send(TakeOver(memory));
            }
        } else if let Some(nodes) = &mut self.nodes
            && !nodes.remote.handed.keep(server, before, memory, Instant::now())
        {
            count_lost();
        }
    }
}
