//! The teams of a game server, and which player is in which.

use std::collections::BTreeMap;

use super::{
    error::GameError,
    team::{SimulatedTeam, SimulatedTeamId},
};
use crate::{clock::Clock, domain::time::Timestamp, game::wire::AppTeamMessage};

/// All teams. A player is in one or in none.
#[derive(Debug, Default)]
pub struct SimulatedTeams {
    by_id: BTreeMap<SimulatedTeamId, SimulatedTeam>,
    of_player: BTreeMap<u64, SimulatedTeamId>,
    made: u64,
    /// Lines of chat have its time, if there is one, and not that of their world.
    clock: Option<Clock>,
}

impl SimulatedTeams {
    /// From now on lines have the time of this clock.
    pub fn follow(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    /// Removes the clock of [`SimulatedTeams::follow`].
    pub fn take_clock(&mut self) -> Option<Clock> {
        self.clock.take()
    }

    /// In the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = &SimulatedTeam> {
        self.by_id.values()
    }

    pub(crate) fn get(&self, team: SimulatedTeamId) -> Option<&SimulatedTeam> {
        self.by_id.get(&team)
    }

    /// The player's team.
    pub fn of(&self, player: u64) -> Option<&SimulatedTeam> {
        self.by_id.get(self.of_player.get(&player)?)
    }

    fn of_mut(&mut self, player: u64) -> Option<&mut SimulatedTeam> {
        self.by_id.get_mut(self.of_player.get(&player)?)
    }

    /// A player without a team makes one and leads it; one who has a team stays in it.
    pub fn make(&mut self, player: u64) -> SimulatedTeamId {
        if let Some(team) = self.of_player.get(&player) {
            return *team;
        }
        self.made += 1;
        let id = SimulatedTeamId(self.made);
        self.by_id.insert(id, SimulatedTeam::new(id, player));
        self.of_player.insert(player, id);
        id
    }

    /// A player without a team joins one; false if there is no such team, if it is full, or if the player has one.
    pub fn join(&mut self, player: u64, team: SimulatedTeamId) -> bool {
        let free = !self.of_player.contains_key(&player);
        let Some(joined) = self.by_id.get_mut(&team).filter(|team| free && !team.is_full()) else { return false };
        joined.add(player);
        self.of_player.insert(player, team);
        true
    }

    /// A player leaves their team, which ends with its last member. All who were in it, the player included.
    pub fn leave(&mut self, player: u64) -> Vec<u64> {
        let Some(id) = self.of_player.remove(&player) else { return Vec::new() };
        let Some(team) = self.by_id.get_mut(&id) else { return Vec::new() };
        let before = team.members().to_vec();
        team.remove(player);
        if team.members().is_empty() {
            self.by_id.remove(&id);
        }
        before
    }

    /// `player` asks to make `target` the leader; true if that was another.
    pub fn promote(&mut self, player: u64, target: u64) -> Result<bool, GameError> {
        let team = self.of_mut(player).ok_or("no_team")?;
        team.may_lead(player, target)?;
        Ok(team.lead(target))
    }

    /// `player` asks to remove `target`. All who were in the team.
    pub fn kick(&mut self, player: u64, target: u64) -> Result<Vec<u64>, GameError> {
        self.of(player).ok_or("no_team")?.may_lead(player, target)?;
        if player == target {
            return Err("access_denied");
        }
        Ok(self.leave(target))
    }

    /// A line of the player's team; `None` for a player without a team, and for a line without text.
    pub fn say(&mut self, player: u64, name: &str, text: &str, now: Timestamp) -> Option<AppTeamMessage> {
        let now = self.clock.as_ref().map_or(now, Clock::now);
        self.of_mut(player)?.chat.add(player, name, text, now)
    }
}
