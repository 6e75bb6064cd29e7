//! Answers about the members of the team.

use std::sync::Arc;

use super::{TeamReply, TeamView};
use crate::domain::{
    plain_text::plain_words,
    server_state::Member,
    team_command::{durations, reply, vocabulary::folded},
};

/// Characters of a name in an answer.
const LONGEST_NAME: usize = 32;
/// Names that are said when several are meant.
const NAMES: usize = 3;

/// The name as it is said.
pub(super) fn name_of(member: &Member) -> String {
    let name = plain_words(&member.name, LONGEST_NAME);
    if name.is_empty() { "?".to_owned() } else { name }
}

impl TeamView<'_> {
    /// The member that is meant by a part of the name, or the answer that none is, or several are.
    fn member(&self, part: &str) -> Result<(u64, &Arc<Member>), TeamReply> {
        let part = folded(part);
        let is_meant = |(_, member): &(&u64, &Arc<Member>)| folded(&name_of(member)).contains(&part);
        let meant: Vec<_> = self.state.members.iter().filter(is_meant).collect();
        let exact = meant.iter().find(|(_, member)| folded(&name_of(member)) == part);
        match (exact, meant.as_slice()) {
            (Some((id, member)), _) | (None, [(id, member)]) => Ok((**id, member)),
            (None, []) => Err(self.say("team.member.unknown", &[("name", &plain_words(&part, LONGEST_NAME))])),
            (None, several) => {
                let names =
                    several.iter().take(NAMES).map(|(_, member)| name_of(member)).collect::<Vec<_>>().join(", ");
                Err(self.say("team.member.several", &[("names", &names)]))
            }
        }
    }

    pub(super) fn alive(&self, argument: &str) -> TeamReply {
        if !argument.is_empty() {
            return self.member(argument).map_or_else(|answer| answer, |(_, member)| self.life(member));
        }
        let living = self.state.members.iter().filter(|(_, member)| member.alive);
        let mut living: Vec<_> = living.filter_map(|(_, member)| Some((member.spawned_at?, name_of(member)))).collect();
        living.sort();
        if living.is_empty() {
            return self.say("team.alive.none", &[]);
        }
        let lives = living.into_iter().map(|(since, name)| format!("{name} {}", durations::shown(self.now - since)));
        TeamReply::Say(vec![reply::joined("", lives)])
    }

    fn life(&self, member: &Member) -> TeamReply {
        let name = name_of(member);
        match (member.alive, member.spawned_at, member.died_at) {
            (true, Some(since), _) => {
                self.say("team.alive.since", &[("name", &name), ("time", &durations::shown(self.now - since))])
            }
            (false, _, Some(at)) => {
                let grid = self.death_place(member).map(|grid| format!(" at {grid}")).unwrap_or_default();
                let time = durations::shown(self.now - at);
                self.say("team.alive.died", &[("name", &name), ("time", &time), ("place", &grid)])
            }
            _ => self.say("team.alive.unknown", &[("name", &name)]),
        }
    }

    /// Where the member died: the dead have no place of their own.
    fn death_place(&self, member: &Member) -> Option<String> {
        let deaths = self.state.map_notes.iter().filter(|(_, note)| note.category == "death");
        let own = deaths.filter(|(_, note)| note.label.as_deref().is_some_and(|label| label.contains(&member.name)));
        let last = own.max_by_key(|(_, note)| note.created_at).map(|(_, note)| note.grid.clone());
        last.or_else(|| Some(member.grid.clone())).filter(|grid| !grid.is_empty())
    }

    pub(super) fn afk(&self) -> TeamReply {
        let mut still: Vec<_> =
            self.state.members.iter().filter_map(|(_, member)| Some((member.afk_since?, name_of(member)))).collect();
        still.sort();
        if still.is_empty() {
            return self.say("team.afk.none", &[]);
        }
        let times = still.into_iter().map(|(since, name)| format!("{name} {}", durations::shown(self.now - since)));
        TeamReply::Say(vec![reply::joined(&(self.texts.say("team.afk", &[]) + " "), times)])
    }

    pub(super) fn team(&self) -> TeamReply {
        let online: Vec<_> = self.state.members.iter().filter(|(_, member)| member.online).collect();
        let count = format!("{}/{}", online.len(), self.state.members.len());
        let before = self.texts.say("team.team", &[("count", &count)]);
        let names = online.iter().map(|(_, member)| {
            let grid = if member.grid.is_empty() { String::new() } else { format!(" {}", member.grid) };
            format!("{}{grid}{}", name_of(member), if member.alive { "" } else { " (dead)" })
        });
        TeamReply::Say(vec![reply::joined(&(before + " "), names)])
    }

    pub(super) fn leader(&self, argument: &str) -> TeamReply {
        let wanted = match argument {
            "" => Ok((self.asker, self.state.members.get(&self.asker))),
            part => self.member(part).map(|(id, member)| (id, Some(member))),
        };
        match wanted {
            Err(answer) => answer,
            Ok((_, None)) => self.say("team.member.unknown", &[("name", "you")]),
            Ok((id, Some(member))) if self.leader_id() == Some(id) => {
                self.say("team.leader.already", &[("name", &name_of(member))])
            }
            Ok((id, _)) => TeamReply::Promote(id),
        }
    }

    /// SteamID64 of the leader.
    fn leader_id(&self) -> Option<u64> {
        self.state.team.leader_id.as_deref()?.parse().ok()
    }
}
