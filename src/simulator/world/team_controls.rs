//! Controls of the players and the teams, for the script and for tests, and what the game answers about them.

use chrono::TimeDelta;

use super::{
    SimulatedWorld, WorldChange,
    error::GameError,
    players::{PLAYER_NOTE, sleeper},
    script::{ScriptEvent, TEAM_LIFE},
    team::{SimulatedTeam, SimulatedTeamId},
};
use crate::{
    clock::Clock,
    game::wire::{
        AppMapMarkers, AppMarker, AppMarkerType, AppTeamChat, AppTeamInfo,
        app_team_info::{Member, Note},
    },
    simulator::point::Point,
};

/// Name of a player who is not known to the world.
const STRANGER: &str = "Loner";

impl SimulatedWorld {
    // Teams

    /// Adds a team with a base of its own, with devices as [`TEAM`](super::TEAM) has them ([`SimulatedWorld::device_of`]).
    /// The first of the founders leads. From now on only those are authorised at the cupboard of a base who founded it.
    pub fn found_team(&mut self, founders: &[(u64, String)]) -> SimulatedTeamId {
        if self.founders.len() == 1 {
            let team: Vec<u64> = self.founders[0].iter().map(|(player, _)| *player).collect();
            self.devices.close_base(0, &team);
        }
        let (base, owners) = (self.founders.len(), founders.iter().map(|(player, _)| *player).collect::<Vec<_>>());
        self.devices.build_base(base, &owners, self.now);
        self.devices.close_base(base, &owners);
        self.founders.push(founders.to_vec());
        self.settle(base)
    }

    /// From now on things happen among the teams: lines of chat, raids, members who leave, join, lead and are kicked.
    pub fn enliven_teams(&mut self) {
        self.lively = true;
        self.script.add(self.now + TimeDelta::seconds(TEAM_LIFE), ScriptEvent::TeamLife(0));
    }

    /// The founders of this base become a team around it; the game's number of the team.
    pub(super) fn settle(&mut self, base: usize) -> SimulatedTeamId {
        let at = self.terrain.base_of(base);
        let founders = &self.founders[base];
        self.players.settle(founders, at, self.now);
        let team = self.teams.make(founders[0].0);
        for (player, _) in &founders[1..] {
            self.teams.join(*player, team);
        }
        team
    }

    /// All teams, in the order in which they were made.
    pub fn teams(&self) -> impl Iterator<Item = &SimulatedTeam> {
        self.teams.iter()
    }

    /// The team of this player.
    pub fn team_of(&self, player: u64) -> Option<&SimulatedTeam> {
        self.teams.of(player)
    }

    /// The players that a change of this player's team concerns: its members, or the player alone.
    fn mates(&self, player: u64) -> Vec<u64> {
        self.teams.of(player).map_or_else(|| vec![player], |team| team.members().to_vec())
    }

    /// A player without a team makes one and leads it; one who has a team stays in it.
    pub fn make_team(&mut self, player: u64) -> SimulatedTeamId {
        self.know(player);
        let team = self.teams.make(player);
        self.team_changed(vec![player]);
        team
    }

    /// The player leaves their team, if they have one, and joins another; false if there is no such team or it is full.
    pub fn join_team(&mut self, player: u64, team: SimulatedTeamId) -> bool {
        let is_open = self.teams.get(team).is_some_and(|team| !team.is_full() && !team.members().contains(&player));
        if is_open {
            self.know(player);
            self.leave_team(player);
            // The joined team is there yet: only a team that the player was in can have ended.
            self.teams.join(player, team);
            self.team_changed(self.mates(player));
        }
        is_open
    }

    /// The player leaves their team; when they led it, the one who joined first leads.
    pub fn leave_team(&mut self, player: u64) {
        let concerned = self.teams.leave(player);
        self.team_changed(concerned);
    }

    /// `player` asks to make `target` the leader.
    pub fn promote(&mut self, player: u64, target: u64) -> Result<(), GameError> {
        if self.teams.promote(player, target)? {
            self.team_changed(self.mates(player));
        }
        Ok(())
    }

    /// `player` asks to remove `target` from the team.
    pub fn kick(&mut self, player: u64, target: u64) -> Result<(), GameError> {
        let concerned = self.teams.kick(player, target)?;
        self.team_changed(concerned);
        Ok(())
    }

    fn team_changed(&mut self, players: Vec<u64>) {
        if !players.is_empty() {
            self.changes.push(WorldChange::Team { players });
        }
    }

    // Chat

    /// From now on lines of chat have the time of this clock.
    pub fn chat_follows(&mut self, clock: Clock) {
        self.teams.follow(clock);
    }

    /// A line of team chat as the member writes it in the game: trimmed, cut, and nothing when empty.
    pub fn say(&mut self, steam_id: u64, text: &str) {
        let Some(name) = self.players.get(steam_id).map(|member| &member.name) else { return };
        if let Some(line) = self.teams.say(steam_id, name, text, self.now) {
            self.changes.push(WorldChange::Chat { players: self.mates(steam_id), line });
        }
    }

    // Players

    /// Adds a player who sleeps in the base of the first team, with the name of those who are not known to the world; one
    /// who is known stays as they are.
    fn know(&mut self, player: u64) {
        self.players.add(player, STRANGER, self.terrain.base(), self.wiped_at);
    }

    /// The player dies where they are and leaves a death note.
    pub fn kill(&mut self, steam_id: u64) {
        let died = self.players.kill(steam_id, self.now);
        self.player_changed(steam_id, died);
    }

    /// The dead player wakes up in the base.
    pub fn respawn(&mut self, steam_id: u64) {
        let respawned = self.players.respawn(steam_id, self.now);
        self.player_changed(steam_id, respawned);
    }

    /// The player logs in to the game or out.
    pub fn set_online(&mut self, steam_id: u64, online: bool) {
        let changed = self.players.set_online(steam_id, online);
        self.player_changed(steam_id, changed);
    }

    /// Moves a player; the game does not broadcast movement.
    pub fn move_member(&mut self, steam_id: u64, to: Point) {
        self.players.move_to(steam_id, to);
    }

    /// Puts a note on the player's map; the whole team sees the notes of its leader.
    pub fn add_note(&mut self, steam_id: u64, note: Note) {
        self.know(steam_id);
        let added = self.players.add_note(steam_id, note);
        self.player_changed(steam_id, added);
    }

    fn player_changed(&mut self, player: u64, changed: bool) {
        if changed {
            self.team_changed(self.mates(player));
        }
    }

    // Requests of clients

    /// The player with this SteamID64, in a team or not.
    pub fn member(&self, steam_id: u64) -> Option<&Member> {
        self.players.get(steam_id)
    }

    /// Every player that the world knows, in the order of their SteamIDs.
    pub fn players(&self) -> impl Iterator<Item = &Member> {
        self.players.iter()
    }

    /// The team as this player sees it; a player without a team gets one with only himself in it.
    pub fn team_info(&self, player: u64) -> AppTeamInfo {
        let map_notes = self.players.notes(player).to_vec();
        let Some(team) = self.teams.of(player) else {
            let alone = || sleeper(player, STRANGER, self.terrain.base(), self.wiped_at);
            let member = self.players.get(player).cloned().unwrap_or_else(alone);
            return AppTeamInfo { leader_steam_id: player, members: vec![member], map_notes, ..Default::default() };
        };
        let leader_notes = self.players.notes(team.leader()).iter();
        AppTeamInfo {
            leader_steam_id: team.leader(),
            members: team.members().iter().filter_map(|member| self.players.get(*member)).cloned().collect(),
            map_notes,
            leader_map_notes: leader_notes.filter(|note| note.r#type == PLAYER_NOTE).cloned().collect(),
        }
    }

    /// Chat of the player's team, as the game answers it.
    pub fn team_chat(&self, player: u64) -> Result<AppTeamChat, GameError> {
        Ok(self.teams.of(player).ok_or("no_team")?.chat.app_team_chat())
    }

    /// Everything on the map, the living players of the team included.
    pub fn map_markers(&self, player: u64) -> AppMapMarkers {
        let players =
            self.team_info(player).members.into_iter().filter(|member| member.is_alive).map(|member| AppMarker {
                id: 1_000 + (member.steam_id & 0xFFFF),
                r#type: AppMarkerType::PlayerMarker as i32,
                x: member.x,
                y: member.y,
                steam_id: Some(member.steam_id),
                ..Default::default()
            });
        AppMapMarkers { markers: players.chain(self.markers.iter().cloned()).collect() }
    }
}
