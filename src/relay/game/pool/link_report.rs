//! Reports of a link to its game connection.

use actix::Message;

use crate::{
    domain::{
        ids::GameServerId, link_reason::LinkReason, link_slots::SlotNumber, server_state::ConnectionState,
        time::Timestamp,
    },
    game::{
        acting_link::ActingLink,
        decoding::DecodingPermit,
        reading_link::ReadingLink,
        wire::{AppInfo, AppMap},
    },
    relay::state::game_update::GameUpdate,
};

/// A report to the game connection, in order. Answered with whether the map must be asked for.
#[derive(Message)]
#[rtype(result = "bool")]
pub struct ReportOfLink {
    /// Links of the game connection until this one, which may have been ended meanwhile.
    pub link: u64,
    pub report: LinkReport,
}

/// See the module.
pub enum LinkReport {
    /// The game server that answers, and what it says of itself.
    Up {
        reading: ReadingLink,
        acting: ActingLink,
        /// Version of its credentials.
        credentials: i32,
        /// Its slot at the game server; none behind a proxy.
        slot: Option<SlotNumber>,
        game_server: GameServerId,
        info: AppInfo,
    },
    Down {
        state: ConnectionState,
        reason: LinkReason,
        next_attempt_at: Timestamp,
    },
    /// The link has ended, as others wait for the game server, or there was no room for it to begin. It waits for its next
    /// turn.
    GivenUp,
    Update(GameUpdate),
    /// Everything that is polled was asked once since the link is up, the team last; in a turn without what a mate's link
    /// has said just now.
    Resynced,
    /// Every paired device was asked at least once since the link is up.
    DevicesAsked,
    /// A message could not be read: it may have been any broadcast.
    Missed,
    /// A turn to ask for the map has come, as it was wanted.
    MapTurn,
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
