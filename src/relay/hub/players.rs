//! Tracked players through the hub: every watcher of a server gets its players' coming and going. Those of one look at a game
//! server go to another node together: when it starts again, all of its players go at once.

use std::collections::BTreeMap;

use actix::prelude::*;

use super::{Hub, PlayerSeen, PlayersSeen, nodes::remote_commands::READ_WITHIN};
use crate::{
    domain::ids::{PartId, ServerId},
    relay::remote::remote_question::{RemotePlayer, RemoteQuestion},
};

impl Handler<PlayersSeen> for Hub {
    type Result = ();

    fn handle(&mut self, PlayersSeen(players): PlayersSeen, ctx: &mut Self::Context) {
        let mut elsewhere: BTreeMap<PartId, Vec<(ServerId, RemotePlayer)>> = BTreeMap::new();
        for seen in players {
            match self.connection(&seen.server, false, ctx) {
                Some(connection) => connection.do_send(seen),
                None => {
                    let PlayerSeen { server, event } = seen;
                    if let Some(part) = self.nodes.as_ref().and_then(|nodes| nodes.owned.part(&server)) {
                        elsewhere.entry(part).or_default().push((server, event.into()));
                    }
                }
            }
        }
        for players in elsewhere.into_values() {
            let Some((server, _)) = players.first() else { continue };
            // One that is lost is in the list of players all the same.
            let sent = self.ask_elsewhere(server.clone(), RemoteQuestion::Players { players }, READ_WITHIN);
            ctx.spawn(sent.map(|_, _, _| ()));
        }
    }
}

impl Hub {
    /// Gives the game connections of this node the players that another node has seen; false if none of these is here.
    pub(super) fn take_players(&mut self, players: Vec<(ServerId, RemotePlayer)>, ctx: &Context<Self>) -> bool {
        let mut is_here = false;
        for (server, player) in players {
            if let Some(connection) = self.connection(&server, false, ctx) {
                is_here = true;
                connection.do_send(PlayerSeen { server, event: player.into() });
            }
        }
        is_here
    }
}
