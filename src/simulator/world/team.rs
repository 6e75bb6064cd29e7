//! One team: its members, its leader and its chat.

use super::{chat::SimulatedChat, error::GameError};
use crate::game::wire::AppTeamMessage;

/// SteamID64 and name of the first team. Its first member is the paired player of the demo and leads.
pub const TEAM: [(u64, &str); 4] = [
    (76561198000000001, "Nox"),
    (76561198000000002, "Marlow"),
    (76561198000000003, "Juniper"),
    (76561198000000004, "Pip"),
];

/// Members of a team at most.
const MEMBERS: usize = 8;

/// The game's number of a team. Clients never see it: an answer has the leader and the members only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimulatedTeamId(pub u64);

/// Players who play together, with their leader and their chat.
#[derive(Debug)]
pub struct SimulatedTeam {
    id: SimulatedTeamId,
    leader: u64,
    /// In the order in which they joined.
    members: Vec<u64>,
    pub(crate) chat: SimulatedChat,
}

impl SimulatedTeam {
    pub(crate) fn new(id: SimulatedTeamId, leader: u64) -> Self {
        Self { id, leader, members: vec![leader], chat: SimulatedChat::default() }
    }

    /// The game's number of it.
    pub fn id(&self) -> SimulatedTeamId {
        self.id
    }

    /// SteamID64 of the leader.
    pub fn leader(&self) -> u64 {
        self.leader
    }

    /// SteamID64 of every member, the leader included.
    pub fn members(&self) -> &[u64] {
        &self.members
    }

    /// The last lines of its chat, oldest first; each has its speaker.
    pub fn lines(&self) -> impl Iterator<Item = &AppTeamMessage> {
        self.chat.lines()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.members.len() >= MEMBERS
    }

    pub(crate) fn add(&mut self, player: u64) {
        self.members.push(player);
    }

    /// Removes a member; when the leader leaves, the one who joined first leads.
    pub fn remove(&mut self, player: u64) {
        self.members.retain(|member| *member != player);
        if self.leader == player
            && let Some(first) = self.members.first()
        {
            self.leader = *first;
        }
    }

    /// Makes a member the leader; true if that was another.
    pub fn lead(&mut self, target: u64) -> bool {
        std::mem::replace(&mut self.leader, target) != target
    }

    /// Refuses a player who does not lead, and a target that is not in the team.
    pub fn may_lead(&self, player: u64, target: u64) -> Result<(), GameError> {
        if self.leader != player {
            return Err("access_denied");
        }
        if self.members.contains(&target) { Ok(()) } else { Err("not_found") }
    }
}
