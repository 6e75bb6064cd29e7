//! A game connection whose game server passes to another node, and the one that takes its place there.

use actix::prelude::*;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{GameConnection, LinkDown};
use crate::{
    cluster::node_mail::count_unreadable,
    domain::{ids::GameServerId, raid::handing_over::HandedRaid, server_state::ConnectionState},
    relay::{
        alarms::received_at::STORED_WITHIN,
        shared::recent_events::SeenEvent,
        state::{game_update::GameUpdate, handed_state::HandedState},
    },
};

/// Bytes of the memory of one server. With more, the next node begins with what is stored.
const MOST_BYTES: usize = 1024 * 1024;

/// End the link, and the actor once its alarms are in the ledger, as this node has the game server no longer: who watches has
/// to find it again. Answered with its memory, for [`TakeOver`].
#[derive(Message)]
#[rtype(result = "Option<Bytes>")]
pub struct PassOn;

/// Go on with this memory of the node before, as JSON.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TakeOver(pub Bytes);

#[derive(Serialize, Deserialize)]
struct ConnectionMemory {
    live: Option<HandedState>,
    raids: Vec<HandedRaid>,
    /// Peer of the link, and its newest events.
    game_server: Option<GameServerId>,
    events: Vec<SeenEvent>,
}

impl GameConnection {
    fn memory(&self) -> Option<Bytes> {
        let (raids, live) = (self.alarms.hand_over(), self.feed.live.hand_over(self.context.clock.moment()));
        let game_server = self.held.game_server.clone();
        let events = game_server.as_ref().map(|game_server| self.context.recent_events.newest(game_server));
        let memory = ConnectionMemory { live, raids, game_server, events: events.unwrap_or_default() };
        let memory = serde_json::to_vec(&memory).ok().filter(|memory| memory.len() <= MOST_BYTES);
        memory.map(Bytes::from)
    }
}

impl Handler<PassOn> for GameConnection {
    type Result = ResponseActFuture<Self, Option<Bytes>>;

    fn handle(&mut self, _: PassOn, ctx: &mut Self::Context) -> Self::Result {
        self.held.has_passed_on = true;
        self.end_task(ctx);
        self.leave_seat(ctx);
        self.disconnected(LinkDown::of(ConnectionState::Connecting), ctx);
        // An alarm that came before waits no longer than that for what is known, and is in the ledger then.
        let settled = self.alarms.clone().settled(2 * STORED_WITHIN);
        Box::pin(settled.into_actor(self).map(|(), connection, ctx| {
            let memory = connection.memory();
            connection.feed.publisher.fail();
            ctx.stop();
            memory
        }))
    }
}

impl Handler<TakeOver> for GameConnection {
    type Result = ();

    fn handle(&mut self, TakeOver(memory): TakeOver, ctx: &mut Self::Context) {
        let server = self.server.as_str();
        let Ok(ConnectionMemory { live, raids, game_server, events }) = serde_json::from_slice(&memory) else {
            // Its program is of another version.
            count_unreadable();
            log::warn!(server; "the node before has handed over what this one cannot read: it begins with what is stored");
            return;
        };
        log::debug!(server; "this node goes on with what the one before has handed over");
        self.alarms.take_over(raids);
        if let Some(game_server) = game_server {
            self.context.recent_events.take_over(&game_server, events, self.context.clock.moment());
        }
        if let Some(live) = live {
            self.update(GameUpdate::HandedOver(Box::new(live)), ctx);
        }
    }
}
