//! The team in the live state.

use chrono::TimeDelta;

use super::LiveState;
use crate::{
    domain::{
        change::Section,
        detect::MapContext,
        grid::{self, GridStyle},
        time::Moment,
    },
    game::{reading, wire::AppTeamInfo},
    relay::state::outcome::Outcome,
};

impl LiveState {
    /// The label of the grid cell of this place.
    pub fn grid_of(&self, x: f64, y: f64) -> String {
        grid::label(GridStyle::InGame, self.map_size(), x, y)
    }

    /// Where this member of the team is alive, if an answer not older than this says so.
    pub fn member_place(&self, player: u64, now: Moment, age: TimeDelta) -> Option<(f64, f64)> {
        self.freshness.team.filter(|heard| now - *heard < age)?;
        let member = self.state.members.get(&player).filter(|member| member.alive)?;
        member.x.zip(member.y)
    }

    pub(super) fn update_team(&mut self, team: AppTeamInfo, now: Moment, outcome: &mut Outcome) {
        self.freshness.team = Some(now);
        let map_size = self.map_size();
        self.update_game_notes(&team, now, outcome);
        let (leader, mut members) = reading::team(team, map_size);
        self.stillness.see(&mut members, now);
        let changes = &mut outcome.changes;
        self.state.edit_team(changes, |head| head.leader_id = leader);
        self.state.members.replace(Section::Members, members, changes);
        let around = MapContext { map_size, monuments: &self.monuments };
        let members = self.state.members.iter().map(|(id, member)| (*id, &**member));
        let leader = self.state.team.leader_id.as_deref();
        outcome.events.extend(self.detectors.team(&around, leader, members, now));
    }
}
