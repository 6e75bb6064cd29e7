//! Answers about tool cupboards: their upkeep, and decay without it.

use chrono::TimeDelta;

use super::{TeamReply, TeamView};
use crate::domain::{
    device::{Device, DeviceKind, Reachable},
    plain_text::plain_words,
    team_command::{
        decay::{self, DecayAnswer},
        durations, reply,
        vocabulary::folded,
    },
    time::Timestamp,
};

/// Characters of a name in an answer.
const LONGEST_NAME: usize = 32;
/// `!decay` names cupboards with less upkeep.
const SOON: TimeDelta = TimeDelta::hours(6);

/// A tool cupboard's upkeep. The worst is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CupboardUpkeep {
    Decaying,
    Left(TimeDelta),
    /// Its monitor says nothing: none, or the time that was left when it did.
    Unseen(Option<TimeDelta>),
}

/// The label of a device, or else its name, or else its command: one that was added by its id is named like that.
pub fn device_name(device: &Device, command: Option<&str>) -> String {
    let is_id = device.name.chars().all(|character| character.is_ascii_digit());
    let name = device.label.as_deref().or(command.filter(|_| is_id)).unwrap_or(&device.name);
    let name = plain_words(name, LONGEST_NAME);
    if name.is_empty() { "?".to_owned() } else { name }
}

impl TeamView<'_> {
    /// The paired tool cupboards, the worst first.
    fn cupboards(&self, part: &str) -> Vec<(CupboardUpkeep, String)> {
        let part = folded(part);
        let left = |until: Timestamp| until - self.now;
        let monitors = self.state.devices.iter().filter(|(_, device)| device.kind == DeviceKind::StorageMonitor);
        let mut cupboards: Vec<_> = monitors
            .filter_map(|(id, device)| {
                let shown = device.storage.as_ref().filter(|storage| storage.has_protection);
                let upkeep = match (shown, self.memory.upkeep.get(id)) {
                    (Some(storage), _) if device.reachable == Reachable::Ok => {
                        let left = storage.protection_expires_at.map(left).filter(|left| *left > TimeDelta::zero());
                        left.map_or(CupboardUpkeep::Decaying, CupboardUpkeep::Left)
                    }
                    (Some(storage), _) => CupboardUpkeep::Unseen(storage.protection_expires_at.map(left)),
                    (None, Some(until)) => CupboardUpkeep::Unseen(until.map(left)),
                    (None, None) => return None,
                };
                Some((upkeep, device_name(device, self.vocabulary.command_of(id))))
            })
            .filter(|(_, name)| folded(name).contains(&part))
            .collect();
        cupboards.sort();
        cupboards
    }

    pub(super) fn upkeep(&self, argument: &str) -> TeamReply {
        let cupboards = self.cupboards(argument);
        if cupboards.is_empty() {
            return self.say("team.upkeep.none", &[]);
        }
        TeamReply::Say(vec![reply::joined("", cupboards.into_iter().map(|cupboard| self.cupboard(cupboard)))])
    }

    fn cupboard(&self, (upkeep, name): (CupboardUpkeep, String)) -> String {
        match upkeep {
            CupboardUpkeep::Decaying => self.texts.say("team.upkeep.decaying", &[("name", &name)]),
            CupboardUpkeep::Left(left) => format!("{name} {}", durations::shown(left)),
            CupboardUpkeep::Unseen(Some(left)) if left > TimeDelta::zero() => {
                self.texts.say("team.upkeep.noPower", &[("name", &name), ("left", &durations::shown(left))])
            }
            CupboardUpkeep::Unseen(_) => self.texts.say("team.upkeep.unknown", &[("name", &name)]),
        }
    }

    pub(super) fn decay(&self, argument: &str) -> TeamReply {
        if argument.is_empty() {
            let is_soon = |(upkeep, _): &(CupboardUpkeep, String)| match upkeep {
                CupboardUpkeep::Decaying => true,
                CupboardUpkeep::Left(left) => *left < SOON,
                CupboardUpkeep::Unseen(_) => false,
            };
            let cupboards = self.cupboards("");
            let known = !cupboards.is_empty();
            let soon: Vec<_> = cupboards.into_iter().filter(is_soon).collect();
            return match (known, soon.is_empty()) {
                (false, _) => self.say("team.upkeep.none", &[]),
                (true, true) => self.say("team.decay.none", &[]),
                (true, false) => {
                    TeamReply::Say(vec![reply::joined("", soon.into_iter().map(|cupboard| self.cupboard(cupboard)))])
                }
            };
        }
        match decay::decay(argument) {
            DecayAnswer::Part { name, health, full, left } => {
                let health = format!("{health}/{full}");
                self.say("team.decay", &[("part", name), ("health", &health), ("left", &durations::shown(left))])
            }
            DecayAnswer::Nearest(names) => self.say("team.decay.unknown", &[("names", &names.join(", "))]),
        }
    }
}
