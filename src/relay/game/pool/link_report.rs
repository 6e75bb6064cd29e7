//! Reports of a link to its game connection.

use actix::Message;

use crate::{
    domain::{ids::GameServerId, link_reason::LinkReason, server_state::ConnectionState, time::Timestamp},
    game::{
        acting_link::ActingLink,
        decoding::DecodingPermit,
        reading_link::ReadingLink,
        wire::{AppInfo, AppMap},
    },
    relay::state::game_update::GameUpdate,
};

/// To the game connection, in order. Answered with whether the map must be asked for.
#[derive(Message)]
#[rtype(result = "bool")]
pub enum LinkReport {
    /// The game server that answers, and what it says of itself.
    Up {
        reading: ReadingLink,
        acting: ActingLink,
        game_server: GameServerId,
        info: AppInfo,
    },
    Down {
        state: ConnectionState,
        reason: LinkReason,
        next_attempt_at: Timestamp,
    },
    Update(GameUpdate),
    /// Everything that is polled was asked once since the link is up, the team last.
    Resynced,
    /// The map of the game server, which may be large: the turn goes along until it is stored.
    Map {
        map: AppMap,
        address: String,
        port: u16,
        turn: Option<DecodingPermit>,
    },
    /// The server is no longer paired: there is no link to hold.
    ServerGone,
}
