//! Changes of the world that a game server broadcasts.

use crate::game::wire::{AppEntityPayload, AppTeamMessage};

/// A change of the world that clients of the game server hear of.
#[derive(Clone, Debug, PartialEq)]
pub enum WorldChange {
    /// The team of these players changed; those who left it are among them.
    Team { players: Vec<u64> },
    /// A line of the chat of the team that has these members.
    Chat { players: Vec<u64>, line: AppTeamMessage },
    /// A device changed.
    Entity { entity_id: u64, payload: AppEntityPayload },
    /// An alarm went off; these players want a push message about it.
    Alarm { entity_id: u64, title: String, subscribers: Vec<u64> },
    /// A new map. The game server restarts for it.
    Wiped,
}
