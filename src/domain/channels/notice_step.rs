//! The step of a notice that is due: which channels are tried now, and when the next ones are.

use std::collections::BTreeSet;

use crate::domain::{
    access::Role,
    channels::{
        escalation::{AlarmRules, EscalationRound, FIRST_WITHIN, untried},
        user_channel::ChannelKind,
    },
    ids::ChannelId,
    time::Timestamp,
    world_event::EventKind,
};

/// A notice whose step is due, and all that decides about it.
pub struct DueNotice<'a> {
    /// The kind of event that it is about.
    pub kind: EventKind,
    /// `None`: it is no test alarm.
    pub drill: Option<DrillFor>,
    pub rules: &'a AlarmRules,
    /// The user's channels that can be tried.
    pub channels: &'a [(ChannelId, ChannelKind)],
    /// The channels that were tried in this round.
    pub tried: &'a BTreeSet<ChannelId>,
    pub round: EscalationRound,
}

/// The user of a notice about a test alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrillFor {
    /// The owner of the server, who asked for it: no quiet hours hold it up.
    Owner,
    /// A guest: it passes no quiet hours, as nothing happens in the game.
    Guest,
}

impl DrillFor {
    /// The part of a user with this role.
    pub fn of(role: Role) -> Self {
        if role == Role::Owner { Self::Owner } else { Self::Guest }
    }
}

/// The decision about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeStep {
    /// Messages by these channels now; then the step that follows, if one does.
    Send { channels: Vec<ChannelId>, next: Option<(EscalationRound, Timestamp)> },
    /// Nothing yet, for a raid that comes before the first step, or in quiet hours: its round begins when they end, if the
    /// raid still goes on then. Looked at again at `until`.
    Hold { round: EscalationRound, until: Timestamp },
    /// Another event in quiet hours, or a guest's test alarm: it is not sent by these channels, and nothing follows.
    Suppress { channels: Vec<ChannelId> },
}

impl DueNotice<'_> {
    /// The decision at this time.
    pub fn step(&self, now: Timestamp) -> NoticeStep {
        let plan = self.rules.plan(self.kind, self.channels);
        let steps = untried(&plan, self.tried);
        let channels = steps.first().map(|step| step.channels.clone()).unwrap_or_default();
        match (self.kind, self.held_until(now)) {
            (EventKind::Raid, Some(_)) if self.drill.is_some() => NoticeStep::Suppress { channels },
            (EventKind::Raid, Some(until)) if !channels.is_empty() => {
                NoticeStep::Hold { round: EscalationRound { began_at: until, ..self.round }, until }
            }
            (EventKind::Raid, None) if let Some(until) = self.first_due(now) => {
                NoticeStep::Hold { round: self.round, until }
            }
            (EventKind::Raid, _) => {
                let round = steps.first().map_or(self.round, |step| self.round.with_late(step, now));
                let next = steps.get(1).map(|step| (round, round.due_at(step)));
                let again = || {
                    let next = round.next(&plan, self.rules).filter(|_| self.drill.is_none())?;
                    Some((next, plan.first().map_or(next.began_at, |step| next.due_at(step))))
                };
                NoticeStep::Send { channels, next: next.or_else(again) }
            }
            (_, Some(_)) => NoticeStep::Suppress { channels },
            (_, None) => NoticeStep::Send { channels, next: None },
        }
    }

    /// When the first step of the round is due, if that is later: a user may want none at once. Channels that are left
    /// when the first is gone wait no longer for that.
    fn first_due(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.round.began_at + self.rules.first_after().min(FIRST_WITHIN);
        (self.tried.is_empty() && due > now).then_some(due)
    }

    /// When the quiet hours end that keep this from the user now.
    fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.drill {
            None => self.rules.held_until(self.kind, now),
            Some(DrillFor::Owner) => None,
            Some(DrillFor::Guest) => self.rules.quiet.as_ref()?.end(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::domain::channels::{escalation::EscalationStep, quiet_hours::QuietHours};

    fn channels() -> Vec<(ChannelId, ChannelKind)> {
        vec![("phone".into(), ChannelKind::WebPush), ("ntfy".into(), ChannelKind::Ntfy)]
    }

    fn rules(raids_pierce: bool) -> AlarmRules {
        let quiet = QuietHours { from: "22:00".into(), to: "06:00".into(), time_zone: "UTC".into(), raids_pierce };
        let kinds = [EventKind::Raid, EventKind::Death].into();
        AlarmRules { kinds, quiet: Some(quiet), rounds: 2, ..AlarmRules::default() }
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).unwrap()
    }

    fn step(kind: EventKind, rules: &AlarmRules, tried: &[&str], now: Timestamp) -> NoticeStep {
        let tried = tried.iter().map(|id| ChannelId::from(*id)).collect();
        let round = EscalationRound { number: 0, began_at: now };
        DueNotice { kind, drill: None, rules, channels: &channels(), tried: &tried, round }.step(now)
    }

    fn sent(step: &NoticeStep) -> &[ChannelId] {
        match step {
            NoticeStep::Send { channels, .. } => channels,
            _ => &[],
        }
    }

    #[test]
    fn a_raid_goes_from_step_to_step_and_begins_again() {
        let (now, day) = (at("2026-11-26T12:00:00Z"), rules(true));
        let round = EscalationRound { number: 0, began_at: now };
        let first = step(EventKind::Raid, &day, &[], now);
        let next = Some((round, now + TimeDelta::seconds(60)));
        assert_eq!(first, NoticeStep::Send { channels: vec!["phone".into()], next });
        let second = step(EventKind::Raid, &day, &["phone"], now);
        let again = EscalationRound { number: 1, began_at: now + TimeDelta::seconds(240) };
        assert_eq!(second, NoticeStep::Send { channels: vec!["ntfy".into()], next: Some((again, again.began_at)) });
    }

    #[test]
    fn a_step_that_is_late_moves_all_that_follows() {
        let (planned, day) = (at("2026-11-26T12:00:00Z"), rules(true));
        let round = EscalationRound { number: 0, began_at: planned };
        let step = |tried: &[&str], now| {
            let tried = tried.iter().map(|id| ChannelId::from(*id)).collect();
            let (channels, kind) = (channels(), EventKind::Raid);
            DueNotice { kind, drill: None, rules: &day, channels: &channels, tried: &tried, round }.step(now)
        };
        let next_of = |step| if let NoticeStep::Send { next, .. } = step { next } else { None };
        let up = planned + TimeDelta::minutes(10);
        let moved = EscalationRound { began_at: up, ..round };
        assert_eq!(next_of(step(&[], up)), Some((moved, up + TimeDelta::seconds(60))));
        let again = EscalationRound { number: 1, began_at: up + TimeDelta::seconds(180) };
        assert_eq!(next_of(step(&["phone"], up)), Some((again, again.began_at)));
        let soon = planned + TimeDelta::seconds(5);
        assert_eq!(next_of(step(&[], soon)), Some((round, planned + TimeDelta::seconds(60))), "on time, or nearly");
    }

    #[test]
    fn a_raid_pierces_quiet_hours_unless_the_user_says_otherwise() {
        let night = at("2026-11-26T23:00:00Z");
        assert_eq!(sent(&step(EventKind::Raid, &rules(true), &[], night)), [ChannelId::from("phone")]);
        let round = EscalationRound { number: 0, began_at: at("2026-11-27T06:00:00Z") };
        let held = NoticeStep::Hold { round, until: round.began_at };
        assert_eq!(step(EventKind::Raid, &rules(false), &[], night), held);
    }

    #[test]
    fn a_first_step_that_is_not_at_once_is_waited_for_unless_another_one_failed() {
        let began_at = at("2026-11-26T12:00:00Z");
        let after = |after_seconds, channel: &str| EscalationStep { after_seconds, channels: vec![channel.into()] };
        let rules = AlarmRules { steps: vec![after(30, "phone"), after(90, "ntfy")], ..AlarmRules::default() };
        let round = EscalationRound { number: 0, began_at };
        let step = |tried: &[&str], seconds| {
            let tried = tried.iter().map(|id| ChannelId::from(*id)).collect();
            let (channels, kind) = (channels(), EventKind::Raid);
            DueNotice { kind, drill: None, rules: &rules, channels: &channels, tried: &tried, round }
                .step(began_at + TimeDelta::seconds(seconds))
        };
        let until = began_at + TimeDelta::seconds(30);
        assert_eq!(step(&[], 0), NoticeStep::Hold { round, until });
        let next = Some((round, began_at + TimeDelta::seconds(90)));
        assert_eq!(step(&[], 30), NoticeStep::Send { channels: vec!["phone".into()], next });
        assert_eq!(sent(&step(&["phone"], 40)), [ChannelId::from("ntfy")], "hastened");
        let left = [channels().remove(1)];
        let tried = BTreeSet::new();
        let due =
            DueNotice { kind: EventKind::Raid, drill: None, rules: &rules, channels: &left, tried: &tried, round };
        let now = began_at + TimeDelta::seconds(30);
        assert_eq!(sent(&due.step(now)), [ChannelId::from("ntfy")], "it does not wait for its own time");
    }

    #[test]
    fn a_drill_is_one_round_that_passes_only_its_owners_quiet_hours() {
        let night = at("2026-11-26T23:00:00Z");
        let (kind, round) = (EventKind::Raid, EscalationRound { number: 0, began_at: night });
        let drill = |drill, tried: &[&str], pierce, now| {
            let tried = tried.iter().map(|id| ChannelId::from(*id)).collect();
            DueNotice { kind, drill: Some(drill), rules: &rules(pierce), channels: &channels(), tried: &tried, round }
                .step(now)
        };
        for pierce in [true, false] {
            assert_eq!(
                sent(&drill(DrillFor::Owner, &[], pierce, night)),
                [ChannelId::from("phone")],
                "it is asked for"
            );
            let suppressed = NoticeStep::Suppress { channels: vec!["phone".into()] };
            assert_eq!(drill(DrillFor::Guest, &[], pierce, night), suppressed, "{pierce}");
        }
        let last = NoticeStep::Send { channels: vec!["ntfy".into()], next: None };
        assert_eq!(drill(DrillFor::Owner, &["phone"], true, night), last);
        assert_eq!(drill(DrillFor::Guest, &["phone"], true, at("2026-11-26T12:00:00Z")), last);
    }

    #[test]
    fn another_event_is_sent_once_by_the_first_step_and_never_in_quiet_hours() {
        let (day, night) = (at("2026-11-26T12:00:00Z"), at("2026-11-26T23:00:00Z"));
        let phone = vec![ChannelId::from("phone")];
        let send = NoticeStep::Send { channels: phone.clone(), next: None };
        assert_eq!(step(EventKind::Death, &rules(true), &[], day), send);
        assert_eq!(step(EventKind::Death, &rules(true), &[], night), NoticeStep::Suppress { channels: phone });
        let nothing = NoticeStep::Send { channels: Vec::new(), next: None };
        assert_eq!(step(EventKind::Login, &rules(true), &[], day), nothing, "a kind that is not wanted");
    }

    proptest! {
        /// No rule lets another event escalate, or a raid be lost: it is sent, held up with a time, or not wanted.
        #[test]
        fn a_raid_that_is_wanted_is_sent_or_held_and_nothing_else_rings_again(
            minute in 0..1_440_i64, pierce: bool, is_raid: bool, tried in 0..2_usize,
        ) {
            let now = at("2026-11-26T00:00:00Z") + TimeDelta::minutes(minute);
            let kind = if is_raid { EventKind::Raid } else { EventKind::Death };
            let is_quiet = !(360..1_320).contains(&minute);
            match step(kind, &rules(pierce), &["phone"][..tried], now) {
                NoticeStep::Hold { round, until } => {
                    prop_assert!(is_raid && is_quiet && !pierce && round.began_at == until && until > now);
                }
                NoticeStep::Suppress { .. } => prop_assert!(!is_raid && is_quiet),
                NoticeStep::Send { channels, next } => {
                    prop_assert_eq!(channels.len(), 1);
                    prop_assert_eq!(next.is_some(), is_raid);
                    prop_assert!(!is_quiet || is_raid && pierce);
                }
            }
        }
    }
}
