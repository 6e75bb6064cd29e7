//! Things that happen among the teams of a world with several: each step every team talks, and one of them changes.

use chrono::TimeDelta;

use super::{
    SimulatedWorld,
    chat::CHATTER,
    devices::{BASE_ALARM, device_of},
    script::ScriptEvent,
};

/// Steps until the next team has its turn.
const STEPS: usize = 6;
const ALARM_SECONDS: i64 = 4;

impl SimulatedWorld {
    /// One step. In a turn of six a team gets another leader, loses its last founder to the next team, is raided, and has
    /// the founder back when that other team has kicked them.
    pub(super) fn live(&mut self, step: usize) {
        let teams = self.founders.len();
        if teams < 2 {
            return;
        }
        for base in 1..teams {
            let founders = &self.founders[base];
            let speaker = founders[step % founders.len()].0;
            self.say(speaker, CHATTER[(step + 5 * base) % CHATTER.len()]);
        }
        let base = 1 + step / STEPS % (teams - 1);
        let founders = &self.founders[base];
        let (first, second) = (founders[0].0, founders[1 % founders.len()].0);
        let (traveller, host) = (founders[founders.len() - 1].0, self.founders[(base + 1) % teams][0].0);
        match step % STEPS {
            0 => self.hand_on(first, second),
            1 => self.leave_team(traveller),
            2 => self.follow(traveller, host),
            3 => {
                let alarm = device_of(base, BASE_ALARM);
                self.fire_alarm(alarm);
                self.script.add(self.now + TimeDelta::seconds(ALARM_SECONDS), ScriptEvent::AlarmOff(alarm));
            }
            4 => {
                if let Some(leader) = self.team_of(traveller).map(|team| team.leader()) {
                    // The leader cannot kick himself, which is as well.
                    let _ = self.kick(leader, traveller);
                }
            }
            _ => self.follow(traveller, first),
        }
    }

    /// The leader among these two makes the other one the leader.
    fn hand_on(&mut self, first: u64, second: u64) {
        let leader = self.team_of(first).map(|team| team.leader());
        let (from, to) = if leader == Some(first) { (first, second) } else { (second, first) };
        // Refused while neither of them leads.
        let _ = self.promote(from, to);
    }

    /// The player joins the team of another, if that has one.
    fn follow(&mut self, player: u64, mate: u64) {
        if let Some(team) = self.team_of(mate).map(|team| team.id()) {
            self.join_team(player, team);
        }
    }
}
