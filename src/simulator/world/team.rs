//! The team: its members, where they walk, who leads, and their map notes.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use super::{error::GameError, time::unix};
use crate::{
    domain::time::Timestamp,
    game::wire::{
        AppTeamInfo,
        app_team_info::{Member, Note},
    },
    simulator::{point::Point, rng::Rng, terrain::Terrain},
};

/// SteamID64 and name of the members. The first one is the paired player and leads; he sleeps in the base, because
/// cameras work for offline players only.
pub const TEAM: [(u64, &str); 4] = [
    (76561198000000001, "Nox"),
    (76561198000000002, "Marlow"),
    (76561198000000003, "Juniper"),
    (76561198000000004, "Pip"),
];

/// Metres per second.
const WALKING_SPEED: f32 = 4.5;
/// `Note.type`.
const DEATH_NOTE: i32 = 0;
const PLAYER_NOTE: i32 = 1;

/// The team of the paired player.
#[derive(Debug)]
pub struct SimulatedTeam {
    leader: u64,
    members: Vec<Member>,
    walks: Vec<Walk>,
    /// Map notes by their owner.
    notes: BTreeMap<u64, Vec<Note>>,
}

/// Where a member is going.
#[derive(Debug)]
struct Walk {
    steam_id: u64,
    goal: Point,
}

impl SimulatedTeam {
    /// All of [`TEAM`] alive around the base, without notes.
    pub fn new(base: Point, now: Timestamp) -> Self {
        let mut team = Self { leader: TEAM[0].0, members: Vec::new(), walks: Vec::new(), notes: BTreeMap::new() };
        for (index, (steam_id, name)) in TEAM.into_iter().enumerate() {
            let sleeps = index == 0;
            let at = if sleeps { base } else { base.towards(index as f32 * 2.0, 30.0 * index as f32) };
            team.members.push(Member {
                steam_id,
                name: name.to_owned(),
                x: at.x,
                y: at.y,
                is_online: !sleeps,
                spawn_time: unix(now - TimeDelta::hours(3)),
                is_alive: true,
                death_time: 0,
            });
            if !sleeps {
                team.walks.push(Walk { steam_id, goal: base });
            }
        }
        team
    }

    /// SteamID64 of every member.
    pub fn players(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.steam_id).collect()
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn member(&self, steam_id: u64) -> Option<&Member> {
        self.members.iter().find(|member| member.steam_id == steam_id)
    }

    fn member_mut(&mut self, steam_id: u64) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.steam_id == steam_id)
    }

    /// Every member who is alive and online walks for this many seconds, from one point near the base to the next.
    pub fn walk(&mut self, terrain: &Terrain, rng: &mut Rng, seconds: f32) {
        let base = terrain.base();
        for walk in &mut self.walks {
            let Some(member) = self.members.iter_mut().find(|member| member.steam_id == walk.steam_id) else {
                continue;
            };
            if !member.is_online || !member.is_alive {
                continue;
            }
            let at = Point::new(member.x, member.y);
            if at.distance(walk.goal) < 5.0 {
                let (angle, metres) = (rng.angle(), rng.between(20.0, 600.0));
                walk.goal = base.towards(angle, metres);
                if terrain.height(walk.goal) < 1.0 {
                    walk.goal = base;
                }
            }
            let at = at.step(walk.goal, WALKING_SPEED * seconds);
            (member.x, member.y) = (at.x, at.y);
        }
    }

    /// Moves a member; he stays there until he walks on.
    pub fn move_to(&mut self, steam_id: u64, to: Point) {
        if let Some(member) = self.member_mut(steam_id) {
            (member.x, member.y) = (to.x, to.y);
        }
        if let Some(walk) = self.walks.iter_mut().find(|walk| walk.steam_id == steam_id) {
            walk.goal = to;
        }
    }

    /// The member dies and leaves a death note. True if anything changed, here and below.
    pub fn kill(&mut self, steam_id: u64, now: Timestamp) -> bool {
        let Some(member) = self.member_mut(steam_id).filter(|member| member.is_alive) else {
            return false;
        };
        (member.is_alive, member.death_time) = (false, unix(now));
        let (x, y) = (member.x, member.y);
        let note = Note { r#type: DEATH_NOTE, x, y, icon: Some(6), colour_index: Some(3), label: None };
        let notes = self.notes.entry(steam_id).or_default();
        notes.retain(|note| note.r#type != DEATH_NOTE);
        notes.push(note);
        true
    }

    /// The dead member wakes up in the base.
    pub fn respawn(&mut self, steam_id: u64, base: Point, now: Timestamp) -> bool {
        let Some(member) = self.member_mut(steam_id).filter(|member| !member.is_alive) else {
            return false;
        };
        (member.is_alive, member.spawn_time, member.x, member.y) = (true, unix(now), base.x, base.y);
        true
    }

    /// The member logs in or out.
    pub fn set_online(&mut self, steam_id: u64, online: bool) -> bool {
        self.member_mut(steam_id).is_some_and(|member| std::mem::replace(&mut member.is_online, online) != online)
    }

    /// `player` asks to make `target` the leader.
    pub fn promote(&mut self, player: u64, target: u64) -> Result<bool, GameError> {
        self.may_lead(player, target)?;
        Ok(std::mem::replace(&mut self.leader, target) != target)
    }

    /// `player` asks to remove `target` from the team.
    pub fn kick(&mut self, player: u64, target: u64) -> Result<(), GameError> {
        self.may_lead(player, target)?;
        if player == target {
            return Err("access_denied");
        }
        self.members.retain(|member| member.steam_id != target);
        self.walks.retain(|walk| walk.steam_id != target);
        Ok(())
    }

    fn may_lead(&self, player: u64, target: u64) -> Result<(), GameError> {
        self.member(player).ok_or("no_team")?;
        if self.leader != player {
            return Err("access_denied");
        }
        self.member(target).map(|_| ()).ok_or("not_found")
    }

    /// Puts a note on the member's map; the whole team sees the notes of its leader.
    pub fn add_note(&mut self, steam_id: u64, note: Note) {
        self.notes.entry(steam_id).or_default().push(note);
    }

    /// The answer to getTeamInfo; `None` for a player who is not in the team.
    pub fn app_team_info(&self, player: u64) -> Option<AppTeamInfo> {
        self.member(player)?;
        let leader_notes = self.notes.get(&self.leader).into_iter().flatten();
        Some(AppTeamInfo {
            leader_steam_id: self.leader,
            members: self.members.clone(),
            map_notes: self.notes(player),
            leader_map_notes: leader_notes.filter(|note| note.r#type == PLAYER_NOTE).cloned().collect(),
        })
    }

    /// The answer to getTeamInfo for a player without a team: himself, asleep in the base.
    pub fn alone(&self, player: u64, base: Point, spawned_at: Timestamp) -> AppTeamInfo {
        let member = Member {
            steam_id: player,
            name: "Loner".to_owned(),
            x: base.x,
            y: base.y,
            spawn_time: unix(spawned_at),
            is_alive: true,
            ..Default::default()
        };
        let map_notes = self.notes(player);
        AppTeamInfo { leader_steam_id: player, members: vec![member], map_notes, ..Default::default() }
    }

    fn notes(&self, player: u64) -> Vec<Note> {
        self.notes.get(&player).cloned().unwrap_or_default()
    }
}
