//! Smart alarms: a rising edge is a trigger.

use std::collections::HashMap;

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// Edges closer than this to the last trigger are the contact's bouncing.
const DEBOUNCE: TimeDelta = TimeDelta::seconds(1);

/// The last known values of a game server's alarms. Only devices that are paired come here, so they bound it.
#[derive(Debug, Default)]
pub struct Alarms(HashMap<String, Alarm>);

#[derive(Debug)]
struct Alarm {
    value: bool,
    /// From before the start: what has happened since is not known.
    remembered: bool,
    triggered_at: Option<Moment>,
}

impl Alarms {
    /// Nothing known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value as it was last stored, unless more is known.
    pub fn remember(&mut self, device_id: &str, value: bool) {
        if !self.0.contains_key(device_id) {
            self.0.insert(device_id.to_owned(), Alarm { value, remembered: true, triggered_at: None });
        }
    }

    /// The value as it was last seen or stored.
    pub fn value(&self, device_id: &str) -> Option<bool> {
        self.0.get(device_id).map(|alarm| alarm.value)
    }

    /// The value in an answer about the device; true = it triggers. The very first one only shows how it is; later, an
    /// alarm that went off while there was no link, or no service, triggers now.
    pub fn answered(&mut self, device_id: &str, value: bool, now: Moment) -> bool {
        self.observe(device_id, value, value, false, now)
    }

    /// The value in a broadcast, which is sent because it changed; true = it triggers.
    pub fn changed(&mut self, device_id: &str, value: bool, now: Moment) -> bool {
        self.observe(device_id, value, false, true, now)
    }

    /// The device is gone.
    pub fn forget(&mut self, device_id: &str) {
        self.0.remove(device_id);
    }

    fn observe(&mut self, device_id: &str, value: bool, if_unknown: bool, is_change: bool, now: Moment) -> bool {
        if !self.0.contains_key(device_id) {
            self.0.insert(device_id.to_owned(), Alarm { value: if_unknown, remembered: false, triggered_at: None });
        }
        let Some(alarm) = self.0.get_mut(device_id) else { return false };
        // It went off again while nobody looked: a change to on is an edge, whatever was stored.
        let before = std::mem::replace(&mut alarm.value, value) && !(alarm.remembered && is_change);
        alarm.remembered = false;
        let bounces = alarm.triggered_at.is_some_and(|at| (now - at).abs() < DEBOUNCE);
        let triggers = value && !before && !bounces;
        if triggers {
            alarm.triggered_at = Some(now);
        }
        triggers
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
        assert!(alarms.changed("7", true, at(10)));
        assert!(!alarms.changed("7", true, at(3_000)));
        assert!(!alarms.changed("7", false, at(4_000)));
        assert!(alarms.changed("7", true, at(5_000)));
    }

    #[test]
    fn edges_within_a_second_of_a_trigger_are_bouncing() {
        let mut alarms = Alarms::new();
        assert!(alarms.changed("7", true, at(0)));
        assert!(!alarms.changed("7", false, at(200)));
        assert!(!alarms.changed("7", true, at(999)));
        assert!(!alarms.changed("7", false, at(999)));
        assert!(alarms.changed("7", true, at(1_000)));
        assert!(alarms.changed("8", true, at(1_000)), "each device for itself");
    }

    #[test]
    fn an_alarm_that_was_on_when_first_asked_is_no_news_but_one_that_went_on_unseen_is() {
        let mut alarms = Alarms::new();
        assert!(!alarms.answered("7", true, at(0)));
        assert!(!alarms.answered("8", false, at(0)));
        assert!(alarms.answered("8", true, at(100_000)));
    }

    #[test]
    fn an_alarm_that_rose_while_nobody_looked_triggers_at_the_first_answer() {
        let mut alarms = Alarms::new();
        alarms.remember("7", false);
        alarms.remember("8", true);
        alarms.remember("9", true);
        assert!(alarms.answered("7", true, at(0)));
        assert!(!alarms.answered("8", true, at(0)), "it was on before");
        assert!(alarms.changed("9", true, at(0)), "it went off and on");
        alarms.remember("7", false);
        assert!(!alarms.answered("7", true, at(5_000)), "what was seen is newer than what was stored");
        assert_eq!((alarms.value("7"), alarms.value("1")), (Some(true), None));
    }

    #[test]
    fn the_first_word_of_an_alarm_may_be_a_broadcast() {
        let mut alarms = Alarms::new();
        assert!(alarms.changed("7", true, at(0)));
        alarms.forget("7");
        assert!(alarms.changed("7", true, at(1)), "forgotten with its debounce");
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
                let triggers = alarms.changed("7", value, at(now));
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
