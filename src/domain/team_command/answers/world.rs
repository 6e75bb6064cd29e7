//! Answers about the game server and its world.

use chrono::TimeDelta;

use super::{TeamReply, TeamView};
use crate::domain::{
    map::MarkerKind,
    reporting::Reported,
    team_command::{durations, memory::LastEvent},
};

/// Older answers of the game server are said with their age.
const FRESH: TimeDelta = TimeDelta::seconds(60);

impl TeamView<'_> {
    pub(super) fn pop(&self) -> TeamReply {
        let head = &self.state.server;
        let (Some(players), Some(most)) = (head.players, head.max_players) else {
            return self.say("team.pop.unknown", &[]);
        };
        let queue = match head.queued_players {
            Some(queued @ 1..) => self.texts.say("team.pop.queue", &[("queued", &queued.to_string())]),
            _ => String::new(),
        };
        // The next poll takes its time to be answered.
        let age = self.info_at.map(|at| self.now - at).filter(|age| *age > FRESH + TimeDelta::seconds(10));
        let age = age.map(|age| format!(" ({} ago)", durations::shown(age))).unwrap_or_default();
        let (players, most) = (players.to_string(), most.to_string());
        self.say("team.pop", &[("players", &players), ("most", &most), ("queue", &queue), ("age", &age)])
    }

    pub(super) fn time(&self) -> TeamReply {
        let Some((clock, is_day)) = self.clock.and_then(|clock| Some((clock, clock.is_day()?))) else {
            return self.say("team.time.unknown", &[]);
        };
        let minutes = (clock.hour * 60.0) as u32 % (24 * 60);
        let face = format!("{:02}:{:02}", minutes / 60, minutes % 60);
        match self.speeds.left(clock) {
            Some(left) => {
                let text = if is_day { "team.time.day" } else { "team.time.night" };
                self.say(text, &[("time", &face), ("left", &durations::shown(left))])
            }
            None => self.say("team.time", &[("time", &face)]),
        }
    }

    pub(super) fn wipe(&self) -> TeamReply {
        match self.state.server.wiped_at {
            Some(at) => self.say("team.wipe", &[("time", &durations::shown(self.now - at))]),
            None => self.say("team.wipe.unknown", &[]),
        }
    }

    pub(super) fn cargo(&self) -> TeamReply {
        let leaves = self.memory.cargo_leaves_at.filter(|at| *at > self.now);
        let leaves =
            leaves.map(|at| self.texts.say("team.cargo.leaves", &[("left", &durations::shown(at - self.now))]));
        self.traveller(MarkerKind::CargoShip, "cargo", &leaves.unwrap_or_default(), self.memory.cargo.as_ref())
    }

    pub(super) fn heli(&self) -> TeamReply {
        self.traveller(MarkerKind::PatrolHelicopter, "heli", "", self.memory.heli.as_ref())
    }

    /// A ship or helicopter: where it is, or what became of it.
    fn traveller(&self, kind: MarkerKind, name: &str, leaves: &str, last: Option<&LastEvent>) -> TeamReply {
        let text = |end: &str| format!("team.{name}{end}");
        if let Some((_, marker)) = self.state.map_markers.iter().find(|(_, marker)| marker.kind == kind) {
            return self.say(&text(""), &[("grid", &marker.grid()), ("leaves", leaves)]);
        }
        // Silence of a server that reports no events is no absence.
        if self.state.server.reports.events == Reported::No {
            return self.say("team.events.unreported", &[]);
        }
        let Some(last) = last else { return self.say(&text(".unseen"), &[]) };
        let end = match last.action.as_str() {
            "shot_down" => ".downed",
            "left" => ".left",
            // No link has seen its end.
            _ => ".seen",
        };
        self.say(&text(end), &[("time", &durations::shown(self.now - last.at)), ("grid", &last.grid)])
    }
}
