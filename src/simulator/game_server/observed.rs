//! Records of a game server about its clients, for tests: connections by source address, and acts of players.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use crate::{game::wire::AppRequest, simulator::world::SimulatedTeamId};

/// Acts that are kept; the oldest make room.
const ACTS: usize = 10_000;
/// Addresses that are counted.
const ADDRESSES: usize = 1_024;

/// Use of a game server by one source address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressUse {
    /// Connections now, those in the handshake included.
    pub open: usize,
    /// Most connections at once.
    pub most: usize,
    /// Connections that the limits refused.
    pub refused: usize,
    /// Requests that the token buckets refused.
    pub rate_limited: usize,
    /// Requests without a valid player token.
    pub bad_tokens: usize,
    /// Times that a connection went over from one player to another.
    pub rebound: usize,
}

/// An open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedClient {
    pub connection: u64,
    pub address: IpAddr,
    /// The player of its last valid request.
    pub player: Option<u64>,
}

/// Something that a player did through a client, and not in the game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerAct {
    pub player: u64,
    /// Their team at that time.
    pub team: Option<SimulatedTeamId>,
    /// Number of the connection over which the request came.
    pub connection: u64,
    pub address: IpAddr,
    pub kind: ActKind,
}

/// A change that a client of the game server makes for a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActKind {
    Said(String),
    Turned { entity_id: u64, on: bool },
    Promoted(u64),
    Kicked(u64),
}

impl ActKind {
    /// The act that this request is, once it has succeeded.
    pub fn of(request: &AppRequest) -> Option<Self> {
        if let Some(line) = &request.send_team_message {
            let said = !line.message.trim().is_empty();
            return said.then(|| Self::Said(line.message.clone()));
        }
        if let Some(wanted) = request.set_entity_value {
            return Some(Self::Turned { entity_id: request.entity_id(), on: wanted.value });
        }
        if let Some(target) = request.promote_to_leader {
            return Some(Self::Promoted(target.steam_id));
        }
        request.kick_from_team.map(|target| Self::Kicked(target.steam_id))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Observed {
    addresses: BTreeMap<IpAddr, AddressUse>,
    acts: VecDeque<PlayerAct>,
}

impl Observed {
    /// Counts something of this address.
    pub fn count(&mut self, address: IpAddr, add: impl FnOnce(&mut AddressUse)) {
        if self.addresses.len() < ADDRESSES || self.addresses.contains_key(&address) {
            add(self.addresses.entry(address).or_default());
        }
    }

    /// Keeps an act.
    pub fn act(&mut self, act: PlayerAct) {
        if self.acts.len() >= ACTS {
            self.acts.pop_front();
        }
        self.acts.push_back(act);
    }

    /// Each address from which a client came, with `open` as `now` says.
    pub fn addresses(&self, now: impl Fn(IpAddr) -> usize) -> BTreeMap<IpAddr, AddressUse> {
        self.addresses.iter().map(|(address, usage)| (*address, AddressUse { open: now(*address), ..*usage })).collect()
    }

    /// The acts so far, oldest first.
    pub fn acts(&self) -> Vec<PlayerAct> {
        self.acts.iter().cloned().collect()
    }
}
