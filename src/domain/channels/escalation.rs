//! Escalation: which channels of a user are tried for an alarm, and when, until the user has acknowledged it.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{
    channels::{
        quiet_hours::{QuietFault, QuietHours},
        user_channel::ChannelKind,
    },
    ids::ChannelId,
    time::Timestamp,
    world_event::EventKind,
};

/// Steps of the rules of one server.
pub const MOST_STEPS: usize = 10;
/// Channels of one step.
pub const MOST_OF_STEP: usize = 20;
/// Longest time from an alarm to the first step: one that goes off once is over after [`QUIET_AFTER`].
pub const FIRST_WITHIN: TimeDelta = TimeDelta::minutes(10);
/// Nothing more is sent once an alarm has been quiet for so long, unless the rules have [later steps](AlarmRules::raid_end).
pub const QUIET_AFTER: TimeDelta = TimeDelta::minutes(15);
/// A step that is later than this moves what follows by as much.
const LATE_AFTER: TimeDelta = TimeDelta::seconds(5);
/// A step that is due in the last moment of a raid is made all the same.
const LAST_STEP_WITHIN: TimeDelta = TimeDelta::minutes(1);
/// Pause between the first steps of the default.
const DEFAULT_PAUSE: u32 = 60;

/// Rules of a user for the alarms of a paired server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AlarmRules {
    /// False: alarms of this server use no channel.
    pub enabled: bool,
    /// In the order of their time. Empty: browsers at once, then the other channels one by one, a minute apart.
    #[schema(max_items = 10)]
    pub steps: Vec<EscalationStep>,
    /// Seconds from the last step until all of them are repeated.
    #[schema(minimum = 60, maximum = 3600)]
    pub repeat_seconds: u32,
    /// Number of times that the steps are made in all.
    #[schema(minimum = 1, maximum = 10)]
    pub rounds: u32,
    /// Kinds of events that are sent: `raid`, and those of the timeline. An event that is no raid is sent once, by the
    /// channels of the first step, and quietly.
    #[serde(default = "only_raids")]
    #[schema(value_type = Vec<EventKind>, max_items = 20)]
    pub kinds: BTreeSet<EventKind>,
    /// Null: there are none.
    #[serde(default)]
    #[schema(required)]
    pub quiet: Option<QuietHours>,
}

impl Default for AlarmRules {
    fn default() -> Self {
        Self { enabled: true, steps: Vec::new(), repeat_seconds: 180, rounds: 10, kinds: only_raids(), quiet: None }
    }
}

/// The kinds of rules that name none.
pub fn only_raids() -> BTreeSet<EventKind> {
    [EventKind::Raid].into()
}

/// A step: channels that are tried together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EscalationStep {
    /// Seconds after the alarm.
    #[schema(maximum = 3600)]
    pub after_seconds: u32,
    /// Ids of channels.
    #[schema(value_type = Vec<String>, max_items = 20)]
    pub channels: Vec<ChannelId>,
}

/// The reason why a user's rules are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesFault {
    #[error("has more than {MOST_STEPS} steps")]
    TooManySteps,
    #[error("has a step without a channel, or with more than {MOST_OF_STEP}")]
    ChannelsOfStep,
    #[error("has a step more than an hour after the alarm, or not after the one before")]
    TimeOfStep,
    #[error("has its first step more than ten minutes after the alarm")]
    TimeOfFirst,
    #[error("names a channel twice, or one that is not yours or not for this server")]
    UnknownChannel,
    #[error("must be between 60 and 3600")]
    Repeat,
    #[error("must be between 1 and 10")]
    Rounds,
    #[error("names no kind: with `enabled` false no alarm is sent")]
    Kinds,
    #[error("{0}")]
    Quiet(QuietFault),
}

impl AlarmRules {
    /// Checks them against the user's channels: the field, and its fault.
    pub fn check(&self, known: &BTreeSet<ChannelId>) -> Result<(), (&'static str, RulesFault)> {
        let fault = |fault| Err(("steps", fault));
        if self.steps.len() > MOST_STEPS {
            return fault(RulesFault::TooManySteps);
        }
        if self.steps.iter().any(|step| step.channels.is_empty() || step.channels.len() > MOST_OF_STEP) {
            return fault(RulesFault::ChannelsOfStep);
        }
        let is_sorted = self.steps.is_sorted_by(|one, next| one.after_seconds < next.after_seconds);
        if !is_sorted || self.steps.iter().any(|step| step.after_seconds > 3_600) {
            return fault(RulesFault::TimeOfStep);
        }
        if self.first_after() > FIRST_WITHIN {
            return fault(RulesFault::TimeOfFirst);
        }
        let mut seen = BTreeSet::new();
        if !self.steps.iter().flat_map(|step| &step.channels).all(|id| known.contains(id) && seen.insert(id)) {
            return fault(RulesFault::UnknownChannel);
        }
        if !(60..=3_600).contains(&self.repeat_seconds) {
            return Err(("repeatSeconds", RulesFault::Repeat));
        }
        if !(1..=10).contains(&self.rounds) {
            return Err(("rounds", RulesFault::Rounds));
        }
        let quiet = self.quiet.as_ref().map_or(Ok(()), QuietHours::check);
        quiet.map_err(|fault| ("quiet", RulesFault::Quiet(fault)))?;
        if self.enabled && self.kinds.is_empty() { Err(("kinds", RulesFault::Kinds)) } else { Ok(()) }
    }

    /// The time from an alarm to the first step that the user chose, whichever of its channels are left.
    pub fn first_after(&self) -> TimeDelta {
        self.steps.first().map_or_else(TimeDelta::zero, |step| TimeDelta::seconds(i64::from(step.after_seconds)))
    }

    /// True if events of this kind are sent.
    pub fn sends(&self, kind: EventKind) -> bool {
        self.enabled && self.kinds.contains(&kind)
    }

    /// When the quiet hours end that hold up events of this kind now.
    pub fn held_until(&self, kind: EventKind, now: Timestamp) -> Option<Timestamp> {
        let quiet = self.quiet.as_ref().filter(|quiet| kind != EventKind::Raid || !quiet.raids_pierce)?;
        quiet.end(now)
    }

    /// When a raid whose last trigger was at `last_at` is over for a user with these rules and channels: once it is quiet,
    /// but not before the last step was made, and of the round that follows, if one does, the first.
    pub fn raid_end(&self, last_at: Timestamp, channels: &[(ChannelId, ChannelKind)]) -> Timestamp {
        let plan = self.plan(EventKind::Raid, channels);
        let round = EscalationRound { number: 0, began_at: last_at };
        let last_step = plan.last().map(|step| round.due_at(step));
        let again = round.next(&plan, self).zip(plan.first()).map(|(next, step)| next.due_at(step));
        let quiet = last_at + QUIET_AFTER;
        again.or(last_step).map_or(quiet, |made| quiet.max(made + LAST_STEP_WITHIN))
    }

    /// The steps for an event of this kind and these channels, oldest first, which can be tried: a channel that is gone
    /// leaves its step, and a step without channels goes. Rules of which nothing is left are the default.
    pub fn plan(&self, kind: EventKind, channels: &[(ChannelId, ChannelKind)]) -> Vec<EscalationStep> {
        if !self.sends(kind) {
            return Vec::new();
        }
        let of_step = |step: &EscalationStep| {
            let mut step = step.clone();
            step.channels.retain(|id| channels.iter().any(|(known, _)| known == id));
            (!step.channels.is_empty()).then_some(step)
        };
        let steps: Vec<EscalationStep> = self.steps.iter().filter_map(of_step).collect();
        if !steps.is_empty() {
            return steps;
        }
        let is_browser = |kind: ChannelKind| kind == ChannelKind::WebPush;
        let browsers: Vec<_> =
            channels.iter().filter(|(_, kind)| is_browser(*kind)).map(|(id, _)| id.clone()).collect();
        let others = channels.iter().filter(|(_, kind)| !is_browser(*kind)).map(|(id, _)| vec![id.clone()]);
        let steps = (!browsers.is_empty()).then_some(browsers).into_iter().chain(others);
        let timed = (0..).step_by(DEFAULT_PAUSE as usize).zip(steps);
        timed.map(|(after_seconds, channels)| EscalationStep { after_seconds, channels }).collect()
    }
}

/// The steps of a round that are left, with the channels that were not tried in it. A channel that is gone meanwhile moves
/// others to other steps, and no channel is left out for that.
pub fn untried(plan: &[EscalationStep], tried: &BTreeSet<ChannelId>) -> Vec<EscalationStep> {
    let left = plan.iter().map(|step| {
        let channels = step.channels.iter().filter(|id| !tried.contains(*id)).cloned().collect();
        EscalationStep { channels, ..*step }
    });
    left.filter(|step| !step.channels.is_empty()).collect()
}

/// A round of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscalationRound {
    /// Rounds before this one.
    pub number: u32,
    pub began_at: Timestamp,
}

impl EscalationRound {
    /// When this step is due.
    pub fn due_at(self, step: &EscalationStep) -> Timestamp {
        self.began_at + TimeDelta::seconds(i64::from(step.after_seconds))
    }

    /// This round, begun later by as much as this step of it is late. After a downtime the rounds that were missed would
    /// ring at once otherwise, and none would be left.
    pub fn with_late(self, step: &EscalationStep, now: Timestamp) -> Self {
        let late = now - self.due_at(step);
        if late > LATE_AFTER { Self { began_at: self.began_at + late, ..self } } else { self }
    }

    /// The round after this one; `None`: it was the last.
    pub fn next(self, plan: &[EscalationStep], rules: &AlarmRules) -> Option<Self> {
        let number = self.number + 1;
        let began_at = self.due_at(plan.last()?) + TimeDelta::seconds(i64::from(rules.repeat_seconds));
        (number < rules.rounds).then_some(Self { number, began_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: &str) -> ChannelId {
        id.into()
    }

    fn step(after_seconds: u32, channels: &[&str]) -> EscalationStep {
        EscalationStep { after_seconds, channels: channels.iter().map(|channel| id(channel)).collect() }
    }

    fn channels() -> Vec<(ChannelId, ChannelKind)> {
        vec![
            (id("hook"), ChannelKind::Webhook),
            (id("phone"), ChannelKind::WebPush),
            (id("ntfy"), ChannelKind::Ntfy),
            (id("laptop"), ChannelKind::WebPush),
        ]
    }

    #[test]
    fn by_default_browsers_come_first_and_the_others_a_minute_apart() {
        let plan = AlarmRules::default().plan(EventKind::Raid, &channels());
        assert_eq!(plan, [step(0, &["phone", "laptop"]), step(60, &["hook"]), step(120, &["ntfy"])]);
        let without = AlarmRules::default().plan(EventKind::Raid, &channels()[..1]);
        assert_eq!(without, [step(0, &["hook"])]);
        assert!(AlarmRules::default().plan(EventKind::Raid, &[]).is_empty());
        let off = AlarmRules { enabled: false, ..AlarmRules::default() };
        let deaths = AlarmRules { kinds: [EventKind::Death].into(), ..AlarmRules::default() };
        assert!(off.plan(EventKind::Raid, &channels()).is_empty());
        assert!(deaths.plan(EventKind::Raid, &channels()).is_empty());
        assert_eq!(deaths.plan(EventKind::Death, &channels()), plan);
    }

    #[test]
    fn a_channel_that_is_gone_leaves_the_plan() {
        let steps = vec![step(5, &["ntfy", "gone"]), step(30, &["gone-too"]), step(90, &["hook"])];
        let rules = AlarmRules { steps, ..AlarmRules::default() };
        assert_eq!(rules.plan(EventKind::Raid, &channels()), [step(5, &["ntfy"]), step(90, &["hook"])]);
        assert_eq!(
            rules.plan(EventKind::Raid, &channels()[1..2]),
            [step(0, &["phone"])],
            "no step is left: the default"
        );
    }

    #[test]
    fn steps_follow_each_other_and_all_of_them_are_repeated() {
        let began_at = Timestamp::from_timestamp(1_000, 0).unwrap();
        let rules = AlarmRules { rounds: 2, ..AlarmRules::default() };
        let plan = rules.plan(EventKind::Raid, &channels());
        let times = |round: EscalationRound| -> Vec<i64> {
            plan.iter().map(|step| (round.due_at(step) - began_at).num_seconds()).collect()
        };
        let first = EscalationRound { number: 0, began_at };
        let second = first.next(&plan, &rules).unwrap();
        assert_eq!((times(first), times(second)), (vec![0, 60, 120], vec![300, 360, 420]));
        assert_eq!(second.next(&plan, &rules), None);
    }

    #[test]
    fn a_raid_goes_on_until_each_step_and_one_repeat_were_made() {
        let last_at = Timestamp::from_timestamp(1_000, 0).unwrap();
        let end = |steps: &[EscalationStep], repeat_seconds, rounds| {
            let rules = AlarmRules { steps: steps.to_vec(), repeat_seconds, rounds, ..AlarmRules::default() };
            (rules.raid_end(last_at, &channels()) - last_at).num_seconds()
        };
        let (once, twice) = (vec![step(0, &["phone"])], vec![step(0, &["phone"]), step(900, &["ntfy"])]);
        let late = vec![step(600, &["phone"]), step(3_600, &["ntfy"])];
        assert_eq!((end(&[], 180, 10), end(&once, 180, 10), end(&once, 3_600, 1)), (900, 900, 900));
        assert_eq!((end(&once, 839, 2), end(&once, 840, 2), end(&once, 841, 2)), (900, 900, 901));
        assert_eq!((end(&twice, 180, 1), end(&twice, 180, 2), end(&late, 3_600, 10)), (960, 1_140, 7_860));
        let off = AlarmRules { enabled: false, steps: late, ..AlarmRules::default() };
        assert_eq!(off.raid_end(last_at, &channels()), last_at + QUIET_AFTER);
    }

    #[test]
    fn a_channel_that_is_gone_within_a_round_makes_no_other_one_wait_or_be_left_out() {
        let tried = BTreeSet::from([id("phone"), id("laptop")]);
        let all = AlarmRules::default().plan(EventKind::Raid, &channels());
        assert_eq!(untried(&all, &tried), [step(60, &["hook"]), step(120, &["ntfy"])]);
        // Without browsers the others come earlier.
        let others = AlarmRules::default().plan(EventKind::Raid, &[channels()[0].clone(), channels()[2].clone()]);
        assert_eq!(untried(&others, &tried), [step(0, &["hook"]), step(60, &["ntfy"])]);
        assert_eq!(untried(&[step(0, &["phone", "ntfy"])], &tried), [step(0, &["ntfy"])]);
        assert!(untried(&all[..1], &tried).is_empty());
    }

    #[test]
    fn earlier_rules_have_raids_and_no_quiet_hours() {
        let stored = r#"{ "enabled": true, "steps": [], "repeatSeconds": 180, "rounds": 10 }"#;
        assert_eq!(serde_json::from_str::<AlarmRules>(stored).unwrap(), AlarmRules::default());
    }

    #[test]
    fn rules_are_checked() {
        let known = BTreeSet::from([id("a"), id("b")]);
        let check = |rules: AlarmRules| rules.check(&known);
        let with = |steps: Vec<EscalationStep>| check(AlarmRules { steps, ..AlarmRules::default() });
        assert_eq!(with(vec![step(0, &["a"]), step(60, &["b"])]), Ok(()));
        for (steps, fault) in [
            ((0..=10).map(|at| step(at, &["a"])).collect(), RulesFault::TooManySteps),
            (vec![step(0, &[])], RulesFault::ChannelsOfStep),
            (vec![step(60, &["a"]), step(60, &["b"])], RulesFault::TimeOfStep),
            (vec![step(3_601, &["a"])], RulesFault::TimeOfStep),
            (vec![step(601, &["a"]), step(3_600, &["b"])], RulesFault::TimeOfFirst),
            (vec![step(0, &["a"]), step(1, &["a"])], RulesFault::UnknownChannel),
            (vec![step(0, &["another"])], RulesFault::UnknownChannel),
        ] {
            assert_eq!(with(steps), Err(("steps", fault)));
        }
        let rules = AlarmRules::default();
        assert_eq!(
            check(AlarmRules { repeat_seconds: 59, ..rules.clone() }),
            Err(("repeatSeconds", RulesFault::Repeat))
        );
        assert_eq!(check(AlarmRules { rounds: 11, ..rules.clone() }), Err(("rounds", RulesFault::Rounds)));
        let quiet = serde_json::from_str(r#"{ "from": "23:00", "to": "7:00", "timeZone": "UTC" }"#).unwrap();
        assert_eq!(
            check(AlarmRules { quiet: Some(quiet), ..rules }),
            Err(("quiet", RulesFault::Quiet(QuietFault::Time)))
        );
    }
}
