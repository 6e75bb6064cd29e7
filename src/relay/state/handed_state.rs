//! Memory of a paired server's live state, for the node that has the server next. There it is as if the link had been lost
//! for a moment: an alarm that is on stays on, a line that was heard is no news, nor is a player who was online. Pure.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    domain::{
        detect::{alarm::Alarms, team::TeamMemory, wipe::World},
        server_state::Member,
        time::{self, Timestamp},
    },
    relay::state::team_chat::TeamChat,
};

/// See the module.
#[derive(Clone, Serialize, Deserialize)]
pub struct HandedState {
    /// When the link was last up.
    #[serde(serialize_with = "time::exact")]
    pub lost_at: Timestamp,
    /// The world as it was last known, perhaps not stored yet.
    pub world: Option<World>,
    /// The detectors of its map, as JSON.
    pub map: Option<Box<RawValue>>,
    pub team: HandedTeam,
    /// The alarms, on and off.
    pub alarms: Alarms,
}

/// The team's part of it.
#[derive(Clone, Serialize, Deserialize)]
pub struct HandedTeam {
    /// SteamID64.
    pub leader: Option<String>,
    /// By SteamID64, as they are shown.
    pub members: Vec<(u64, Member)>,
    pub chat: TeamChat,
    pub detector: TeamMemory,
}
