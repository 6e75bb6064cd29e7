//! The players: where they are and walk, whether they live, and their map notes.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use super::time::unix;
use crate::{
    domain::time::Timestamp,
    game::wire::app_team_info::{Member, Note},
    simulator::{point::Point, rng::Rng, terrain::Terrain},
};

/// Metres per second.
const WALKING_SPEED: f32 = 4.5;
/// `Note.type`.
const DEATH_NOTE: i32 = 0;
pub(crate) const PLAYER_NOTE: i32 = 1;

/// The players by SteamID64, in a team or not.
#[derive(Debug, Default)]
pub struct SimulatedPlayers {
    by_id: BTreeMap<u64, SimulatedPlayer>,
}

#[derive(Debug)]
struct SimulatedPlayer {
    member: Member,
    /// Where they wake up, and walk around.
    home: Point,
    /// Where they walk; `None` for one who stays.
    goal: Option<Point>,
    notes: Vec<Note>,
}

impl SimulatedPlayers {
    /// The founders of a team, alive around their base, without notes. The first of them sleeps in it, because cameras
    /// work for offline players only; the others walk.
    pub fn settle(&mut self, founders: &[(u64, String)], base: Point, now: Timestamp) {
        let spawned_at = now - TimeDelta::hours(3);
        for (index, (steam_id, name)) in founders.iter().enumerate() {
            let sleeps = index == 0;
            let at = if sleeps { base } else { base.towards(index as f32 * 2.0, 30.0 * index as f32) };
            let member = Member { is_online: !sleeps, ..sleeper(*steam_id, name, at, spawned_at) };
            let goal = (!sleeps).then_some(base);
            self.by_id.insert(*steam_id, SimulatedPlayer { member, home: base, goal, notes: Vec::new() });
        }
    }

    /// Adds a player who sleeps at this place; one who is known stays as they are.
    pub fn add(&mut self, steam_id: u64, name: &str, home: Point, now: Timestamp) {
        let member = sleeper(steam_id, name, home, now);
        self.by_id.entry(steam_id).or_insert(SimulatedPlayer { member, home, goal: None, notes: Vec::new() });
    }

    pub(crate) fn get(&self, steam_id: u64) -> Option<&Member> {
        self.by_id.get(&steam_id).map(|player| &player.member)
    }

    /// In the order of their SteamIDs.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.by_id.values().map(|player| &player.member)
    }

    /// Every player who is alive and online walks for this many seconds, from one point near their base to the next.
    pub fn walk(&mut self, terrain: &Terrain, rng: &mut Rng, seconds: f32) {
        for SimulatedPlayer { member, home, goal, .. } in self.by_id.values_mut() {
            let Some(goal) = goal.as_mut().filter(|_| member.is_online && member.is_alive) else { continue };
            let at = Point::new(member.x, member.y);
            if at.distance(*goal) < 5.0 {
                let (angle, metres) = (rng.angle(), rng.between(20.0, 600.0));
                *goal = home.towards(angle, metres);
                if terrain.height(*goal) < 1.0 {
                    *goal = *home;
                }
            }
            let at = at.step(*goal, WALKING_SPEED * seconds);
            (member.x, member.y) = (at.x, at.y);
        }
    }

    /// Moves a player; they stay there until they walk on.
    pub fn move_to(&mut self, steam_id: u64, to: Point) {
        if let Some(SimulatedPlayer { member, goal, .. }) = self.by_id.get_mut(&steam_id) {
            (member.x, member.y) = (to.x, to.y);
            *goal = goal.map(|_| to);
        }
    }

    /// The player dies and leaves a death note. True if anything changed, here and below.
    pub fn kill(&mut self, steam_id: u64, now: Timestamp) -> bool {
        let Some(SimulatedPlayer { member, notes, .. }) = self.living(steam_id, true) else { return false };
        (member.is_alive, member.death_time) = (false, unix(now));
        let (x, y) = (member.x, member.y);
        let note = Note { r#type: DEATH_NOTE, x, y, icon: Some(6), colour_index: Some(3), label: None };
        notes.retain(|note| note.r#type != DEATH_NOTE);
        notes.push(note);
        true
    }

    /// The dead player wakes up in the base.
    pub fn respawn(&mut self, steam_id: u64, now: Timestamp) -> bool {
        let Some(SimulatedPlayer { member, home, .. }) = self.living(steam_id, false) else { return false };
        (member.is_alive, member.spawn_time, member.x, member.y) = (true, unix(now), home.x, home.y);
        true
    }

    /// The player, if they are alive or, with false, dead.
    fn living(&mut self, steam_id: u64, alive: bool) -> Option<&mut SimulatedPlayer> {
        self.by_id.get_mut(&steam_id).filter(|player| player.member.is_alive == alive)
    }

    /// The player logs in or out.
    pub fn set_online(&mut self, steam_id: u64, online: bool) -> bool {
        let player = self.by_id.get_mut(&steam_id);
        player.is_some_and(|player| std::mem::replace(&mut player.member.is_online, online) != online)
    }

    /// Puts a note on the player's map; false for one who is not known.
    pub fn add_note(&mut self, steam_id: u64, note: Note) -> bool {
        self.by_id.get_mut(&steam_id).map(|player| player.notes.push(note)).is_some()
    }

    /// Notes of the player's map.
    pub fn notes(&self, steam_id: u64) -> &[Note] {
        self.by_id.get(&steam_id).map_or(&[], |player| &player.notes)
    }
}

/// A player who is alive and offline.
pub fn sleeper(steam_id: u64, name: &str, at: Point, spawned_at: Timestamp) -> Member {
    Member {
        steam_id,
        name: name.to_owned(),
        x: at.x,
        y: at.y,
        is_online: false,
        spawn_time: unix(spawned_at),
        is_alive: true,
        death_time: 0,
    }
}
