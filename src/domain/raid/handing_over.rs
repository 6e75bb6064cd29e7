//! Facts about incidents that the ledger does not have, for the node that has their server next.

use serde::{Deserialize, Serialize};

use super::{Raids, tracked::Tracked};
use crate::domain::{incident::AlarmPath, time::Moment};

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandedRaid {
    incident: String,
    /// Something changed since it was sent.
    changed: bool,
    /// The latest trigger, while only this path has reported it.
    unmatched: Option<(AlarmPath, Moment)>,
}

impl Raids {
    /// The facts about all incidents.
    pub fn hand_over(&self) -> Vec<HandedRaid> {
        let is_more = |tracked: &Tracked| tracked.changed || tracked.unmatched.is_some();
        let known = self.incidents.iter().filter(|(_, tracked)| is_more(tracked));
        let handed = known.map(|(incident, tracked)| HandedRaid {
            incident: incident.clone(),
            changed: tracked.changed,
            unmatched: tracked.unmatched,
        });
        handed.collect()
    }

    /// Takes in the facts that another node has handed over, about the incidents that are known here.
    pub fn take_over(&mut self, handed: Vec<HandedRaid>, now: Moment) {
        for HandedRaid { incident, changed, unmatched } in handed {
            if let Some(tracked) = self.incidents.get_mut(&incident) {
                tracked.changed |= changed;
                let unmatched = unmatched.map(|(path, at)| (path, now.at(at.stamp)));
                tracked.unmatched = tracked.unmatched.or(unmatched);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chrono::TimeDelta;

    use super::*;
    use crate::domain::{incident::DevicePlace, raid::TriggerTime, time::Timestamp};

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    #[test]
    fn the_push_of_a_trigger_that_another_node_saw_is_no_second_one_and_its_update_is_sent() {
        let mut before = Raids::new();
        let place = DevicePlace::default();
        for seconds in [0, 3] {
            before.alarm("7", "Front door", &place, TriggerTime::Now, at(seconds), || "one".to_owned());
        }
        let incident = before.get("one").expect("it was opened").clone();
        let handed = serde_json::to_string(&before.hand_over()).unwrap();
        for (handed, count) in [(handed.as_str(), 2), ("[]", 3)] {
            let mut after = Raids::new();
            assert!(after.restore("one".to_owned(), incident.clone(), None, at(5)));
            after.take_over(serde_json::from_str(handed).unwrap(), at(5));
            let pushed = after.pushed("Front door", &BTreeSet::new(), at(4).stamp, at(6), || "two".to_owned());
            assert_eq!(pushed.incident, "one");
            let sent: Vec<u32> =
                after.tick(at(16)).into_iter().filter_map(|change| Some(change.message?.count)).collect();
            assert_eq!(sent, [count], "{handed}");
        }
    }
}
