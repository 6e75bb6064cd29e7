//! Times at which the values of alarms are stored. An alarm that is on after a start, and was stored as off, went off
//! while the service was away: so "off" is stored soon, with the repeats of its server, and "on" with the count that it
//! raises, or when the alarm has been on for a while without one. Pure bookkeeping.

use std::collections::HashMap;

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// An alarm that is on this long without a count of its own is stored as on: one that bounces is not worth a write each
/// time.
const ON_FOR: TimeDelta = TimeDelta::seconds(10);

/// By device id. Only devices that are paired come here, so they bound it.
#[derive(Default)]
pub struct AlarmValues(HashMap<String, AlarmValue>);

#[derive(Default)]
struct AlarmValue {
    stored: Option<bool>,
    /// When the value "on" is to be stored.
    due: Option<Moment>,
}

impl AlarmValues {
    /// An alarm has this value; `None`: it is no longer paired. True if its value "off" has to be stored.
    pub fn note(&mut self, device: &str, value: Option<bool>, now: Moment) -> bool {
        let Some(value) = value else {
            self.0.remove(device);
            return false;
        };
        let known = self.0.entry(device.to_owned()).or_default();
        let is_news = known.stored != Some(value);
        if value {
            known.due = is_news.then(|| known.due.unwrap_or(now + ON_FOR));
        } else {
            *known = AlarmValue { stored: Some(false), due: None };
        }
        is_news && !value
    }

    /// The value "on" is stored with the incident of this alarm, or its repeat; false: the alarm is off again by now.
    pub fn store_on(&mut self, device: &str) -> bool {
        let known = self.0.entry(device.to_owned()).or_default();
        let is_on = known.stored != Some(false) || known.due.is_some();
        if is_on {
            *known = AlarmValue { stored: Some(true), due: None };
        }
        is_on
    }

    /// Takes the alarms whose value "on" is to be stored now.
    pub fn take_due(&mut self, now: Moment) -> Vec<String> {
        let due = self.0.iter_mut().filter(|(_, known)| known.due.is_some_and(|due| due <= now));
        due.map(|(device, known)| {
            *known = AlarmValue { stored: Some(true), due: None };
            device.clone()
        })
        .collect()
    }

    /// Takes those among them that are to be stored by any time: there is no later.
    pub fn take_all(&mut self, now: Moment) -> Vec<String> {
        self.take_due(now + ON_FOR)
    }

    /// The next time at which there is something to store.
    pub fn next_due(&self) -> Option<Moment> {
        self.0.values().filter_map(|known| known.due).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    proptest! {
        #[test]
        fn one_that_is_off_is_stored_as_off_and_one_that_stays_on_as_on(
            steps in prop::collection::vec((0_i64..15, any::<bool>(), any::<bool>()), 1..100),
        ) {
            let (mut values, mut now, mut since, mut before) = (AlarmValues::default(), 0, 0, None);
            let (mut stored, mut writes) = (None, BTreeMap::<i64, u32>::new());
            for (passed, is_on, with_incident) in steps {
                now += passed;
                for _ in values.take_due(at(now)) {
                    stored = Some(true);
                    *writes.entry(now).or_default() += 1;
                }
                if before == Some(true) && now - since >= 10 {
                    prop_assert_eq!(stored, Some(true));
                }
                if before.replace(is_on) != Some(is_on) {
                    since = now;
                }
                if values.note("7", Some(is_on), at(now)) {
                    stored = Some(false);
                    *writes.entry(now).or_default() += 1;
                }
                if is_on && with_incident && values.store_on("7") {
                    stored = Some(true);
                    writes.clear();
                }
                if !is_on {
                    prop_assert_eq!(stored, Some(false));
                    prop_assert!(!values.store_on("7"), "it is off by now");
                }
                prop_assert!(writes.range(now - 9..).map(|(_, count)| count).sum::<u32>() <= 2);
            }
            values.note("7", None, at(now));
            prop_assert!(values.0.is_empty());
        }
    }
}
