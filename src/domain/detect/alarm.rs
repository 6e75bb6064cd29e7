//! Smart alarms: a rising edge is a trigger.

use std::collections::HashMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::domain::time::Moment;

/// Edges closer than this to the last trigger are contact bounce.
const DEBOUNCE: TimeDelta = TimeDelta::seconds(1);

/// The last known values of a game server's alarms. Only devices that are paired come here, so they bound it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Alarms {
    known: HashMap<String, Alarm>,
    /// When the link before this one was lost.
    link_lost_at: Option<Moment>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Alarm {
    value: bool,
    /// From before the start: what has happened since is not known.
    remembered: bool,
    triggered_at: Option<Moment>,
    /// The broadcast of this link that said it went off; 0 = none did.
    off_with: u64,
    /// This link has said how it is.
    seen_on_link: bool,
    /// When the last link was lost that had said how it is.
    unseen_since: Option<Moment>,
}

impl Alarms {
    /// Nothing known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value as it was last stored, unless more is known.
    pub fn remember(&mut self, device_id: &str, value: bool) {
        if !self.known.contains_key(device_id) {
            self.known.insert(device_id.to_owned(), Alarm { value, remembered: true, ..Alarm::default() });
        }
    }

    /// Takes in what another process knew, which is newer than what was stored.
    pub fn take_over(&mut self, others: Self, now: Moment) {
        let here = |at: Option<Moment>| at.map(|at| now.at(at.stamp));
        let alarms = others.known.into_iter().map(|(device_id, alarm)| {
            let (triggered_at, unseen_since) = (here(alarm.triggered_at), here(alarm.unseen_since));
            (device_id, Alarm { triggered_at, unseen_since, ..alarm })
        });
        self.known.extend(alarms);
        self.link_lost_at = here(others.link_lost_at);
    }

    /// The value as it was last seen or stored.
    pub fn value(&self, device_id: &str) -> Option<bool> {
        self.known.get(device_id).map(|alarm| alarm.value)
    }

    /// When the last link was lost that had said how the alarm is; `None` once this one has. A rise that the first
    /// answer shows may have been at any time since then. Links in between may have ended before they asked.
    pub fn unseen_since(&self, device_id: &str) -> Option<Moment> {
        match self.known.get(device_id) {
            Some(Alarm { seen_on_link: true, .. }) => None,
            Some(Alarm { unseen_since: Some(since), .. }) => Some(*since),
            _ => self.link_lost_at,
        }
    }

    /// The value in an answer about the device; true = it triggers. The very first one only shows how it is; later, an
    /// alarm that went off while there was no link, or no service, triggers now.
    pub fn answered(&mut self, device_id: &str, value: bool, now: Moment) -> bool {
        self.observe(device_id, value, value, false, now)
    }

    /// The value in a broadcast, which is sent because it changed, and the number of that broadcast on its link; true =
    /// it triggers.
    pub fn changed(&mut self, device_id: &str, value: bool, number: u64, now: Moment) -> bool {
        let was_on = self.known.get(device_id).is_none_or(|alarm| alarm.value);
        let triggers = self.observe(device_id, value, false, true, now);
        if let Some(alarm) = self.known.get_mut(device_id).filter(|_| was_on && !value) {
            alarm.off_with = number;
        }
        triggers
    }

    /// The value in an answer that was asked for after `asked_after` broadcasts, and before the last one about the
    /// device: it does not say how the alarm is. But if the alarm was not known to be on at any time since, it went off
    /// unseen; true = it triggers.
    pub fn answered_late(&mut self, device_id: &str, value: bool, asked_after: u64, now: Moment) -> bool {
        let Some(alarm) = self.known.get_mut(device_id) else { return false };
        let triggers = value && !alarm.value && alarm.off_with <= asked_after && !alarm.bounces(now);
        if triggers {
            alarm.triggered_at = Some(now);
        }
        triggers
    }

    /// There is a new link, which counts its broadcasts from 1; the one before was lost then.
    pub fn link_up(&mut self, lost_at: Option<Moment>) {
        for alarm in self.known.values_mut() {
            alarm.off_with = 0;
            if std::mem::take(&mut alarm.seen_on_link) || alarm.unseen_since.is_none() {
                alarm.unseen_since = lost_at;
            }
        }
        self.link_lost_at = lost_at;
    }

    /// Forgets devices that are no longer paired; returns their ids.
    pub fn retain(&mut self, is_paired: impl Fn(&str) -> bool) -> Vec<String> {
        self.known.extract_if(|device_id, _| !is_paired(device_id)).map(|(device_id, _)| device_id).collect()
    }

    fn observe(&mut self, device_id: &str, value: bool, if_unknown: bool, is_change: bool, now: Moment) -> bool {
        if !self.known.contains_key(device_id) {
            let alarm = Alarm { value: if_unknown, ..Alarm::default() };
            self.known.insert(device_id.to_owned(), alarm);
        }
        let Some(alarm) = self.known.get_mut(device_id) else { return false };
        // The alarm went off again unseen: a change to on is an edge, whatever was stored.
        let before = std::mem::replace(&mut alarm.value, value) && !(alarm.remembered && is_change);
        (alarm.remembered, alarm.seen_on_link) = (false, true);
        let triggers = value && !before && !alarm.bounces(now);
        if triggers {
            alarm.triggered_at = Some(now);
        }
        triggers
    }
}

impl Alarm {
    fn bounces(&self, now: Moment) -> bool {
        self.triggered_at.is_some_and(|at| (now - at).abs() < DEBOUNCE)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::Alarms;
    use crate::domain::time::{Moment, Timestamp};

    fn at(milliseconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(milliseconds)).into()
    }

    #[test]
    fn a_rising_edge_triggers_and_a_falling_one_does_not() {
        let mut alarms = Alarms::new();
        assert!(!alarms.answered("7", false, at(0)));
        assert!(alarms.changed("7", true, 1, at(10)));
        assert!(!alarms.changed("7", true, 1, at(3_000)));
        assert!(!alarms.changed("7", false, 1, at(4_000)));
        assert!(alarms.changed("7", true, 1, at(5_000)));
    }

    #[test]
    fn edges_within_a_second_of_a_trigger_are_bouncing() {
        let mut alarms = Alarms::new();
        assert!(alarms.changed("7", true, 1, at(0)));
        assert!(!alarms.changed("7", false, 1, at(200)));
        assert!(!alarms.changed("7", true, 1, at(999)));
        assert!(!alarms.changed("7", false, 1, at(999)));
        assert!(alarms.changed("7", true, 1, at(1_000)));
        assert!(alarms.changed("8", true, 1, at(1_000)), "each device for itself");
    }

    #[test]
    fn an_alarm_that_was_on_when_first_asked_is_no_news_but_one_that_went_on_unseen_is() {
        let mut alarms = Alarms::new();
        assert!(!alarms.answered("7", true, at(0)));
        assert!(!alarms.answered("8", false, at(0)));
        assert!(alarms.answered("8", true, at(100_000)));
    }

    #[test]
    fn an_alarm_that_rose_while_the_link_was_down_triggers_at_the_first_answer() {
        let mut alarms = Alarms::new();
        alarms.remember("7", false);
        alarms.remember("8", true);
        alarms.remember("9", true);
        assert!(alarms.answered("7", true, at(0)));
        assert!(!alarms.answered("8", true, at(0)), "it was on before");
        assert!(alarms.changed("9", true, 1, at(0)), "it went off and on");
        alarms.remember("7", false);
        assert!(!alarms.answered("7", true, at(5_000)), "what was seen is newer than what was stored");
        assert_eq!((alarms.value("7"), alarms.value("1")), (Some(true), None));
    }

    #[test]
    fn an_alarm_is_unseen_since_the_last_link_that_said_how_it_is_was_lost() {
        let mut alarms = Alarms::new();
        alarms.answered("7", false, at(0));
        assert_eq!(alarms.unseen_since("7"), None);
        alarms.link_up(Some(at(1_000)));
        assert_eq!(alarms.unseen_since("7"), Some(at(1_000)));
        alarms.remember("8", false);
        assert_eq!(alarms.unseen_since("8"), Some(at(1_000)), "stored before, and read since");
        // The link in between ended before it asked.
        alarms.link_up(Some(at(2_000)));
        assert_eq!(["7", "9"].map(|id| alarms.unseen_since(id)), [Some(at(1_000)), Some(at(2_000))]);
        alarms.answered("7", true, at(3_000));
        assert_eq!(alarms.unseen_since("7"), None);
        alarms.link_up(Some(at(4_000)));
        assert_eq!(alarms.unseen_since("7"), Some(at(4_000)));
    }

    #[test]
    fn an_answer_that_comes_late_neither_invents_an_alarm_nor_swallows_one() {
        let mut alarms = Alarms::new();
        assert!(!alarms.answered("7", false, at(0)));
        assert!(alarms.changed("7", true, 1, at(10_000)));
        assert!(!alarms.answered_late("7", false, 0, at(10_100)), "it is on");
        assert!(!alarms.answered("7", true, at(20_000)), "and known to be");
        assert!(!alarms.changed("7", false, 2, at(30_000)));
        assert!(!alarms.answered_late("7", true, 1, at(30_100)), "it was known to be on when it was asked");
        // Its rise was not seen; the broadcast says that it went off, the answer that it was on.
        alarms.link_up(Some(at(35_000)));
        assert!(!alarms.changed("7", false, 1, at(40_000)));
        assert!(alarms.answered_late("7", true, 0, at(40_100)));
        assert!(alarms.changed("7", true, 2, at(50_000)), "its value was left alone");
    }

    #[test]
    fn a_late_answer_about_an_alarm_that_was_not_known_is_no_news() {
        let mut alarms = Alarms::new();
        assert!(!alarms.answered_late("7", true, 0, at(0)));
        assert!(!alarms.changed("7", false, 1, at(0)));
        assert!(!alarms.answered_late("7", true, 0, at(5_000)), "it was on when first asked");
    }

    #[test]
    fn an_alarm_that_another_process_knew_goes_on() {
        let mut before = Alarms::new();
        assert!(!before.answered("7", false, at(0)) && before.changed("7", true, 1, at(1_000)));
        let others = serde_json::to_string(&before).unwrap();
        // The steady clock of each process is its own.
        let now = Moment::new(TimeDelta::seconds(3), at(60_000).stamp);
        let mut alarms = Alarms::new();
        alarms.remember("7", false);
        alarms.remember("8", true);
        alarms.take_over(serde_json::from_str(&others).unwrap(), now);
        let lost_at = now.at(at(30_000).stamp);
        alarms.link_up(Some(lost_at));
        assert_eq!((alarms.value("8"), alarms.unseen_since("7")), (Some(true), Some(lost_at)));
        assert!(!alarms.answered("7", true, now), "it was on");
        assert!(!alarms.changed("7", false, 1, now) && alarms.changed("7", true, 2, now));
    }

    #[test]
    fn the_first_word_of_an_alarm_may_be_a_broadcast() {
        let mut alarms = Alarms::new();
        assert!(alarms.changed("7", true, 1, at(0)));
        assert_eq!(alarms.retain(|device_id| device_id != "7"), ["7"]);
        assert!(alarms.changed("7", true, 1, at(1)), "forgotten with its debounce");
    }

    proptest! {
        #[test]
        fn triggers_are_a_second_apart_and_no_slow_edge_is_lost(
            steps in prop::collection::vec((0_i64..2_500, any::<bool>()), 1..200),
        ) {
            let mut alarms = Alarms::new();
            let (mut now, mut before, mut last) = (0, false, None);
            for (advance, value) in steps {
                now += advance;
                let triggers = alarms.changed("7", value, 1, at(now));
                let is_slow = last.is_none_or(|last| now - last >= 1_000);
                prop_assert_eq!(triggers, value && !before && is_slow);
                if triggers {
                    last = Some(now);
                }
                before = value;
            }
        }
    }
}
