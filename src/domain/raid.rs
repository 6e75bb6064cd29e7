//! Alarms to raid incidents: the first trigger is told at once, repeats raise its count, and none is lost.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::Serialize;

use crate::domain::{
    plain_text::plain_text,
    time::{self, Timestamp},
};

/// After this long without a trigger the next one is a new incident.
const QUIET: TimeDelta = TimeDelta::seconds(90);

/// Least time between two messages about one incident.
const UPDATE_EVERY: TimeDelta = TimeDelta::seconds(10);

/// A trigger seen on the live link and a push message this close are the same one.
const SAME_TRIGGER: TimeDelta = TimeDelta::seconds(10);

/// Incidents known only from pushes, by title; titles are free text, so further ones share an incident.
const MAX_PUSHED: usize = 64;

/// Characters of a push message's title.
const LONGEST_TITLE: usize = 128;

/// What to tell about an incident.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Raid {
    /// Id of the incident; the same in all its updates.
    pub incident: String,
    /// The device id of the alarm, or `push` and `push:<title>` where only the push message knows of it.
    pub alarm_id: String,
    pub alarm_name: String,
    /// Of the first trigger.
    #[serde(serialize_with = "time::wire")]
    pub ts: Timestamp,
    /// Triggers so far.
    pub count: u32,
    /// False on the first message of the incident.
    pub update: bool,
    /// Asked for by the user; nothing happens in the game.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drill: bool,
}

#[derive(Debug)]
struct Incident {
    /// As it would be told now.
    raid: Raid,
    last_trigger: Timestamp,
    last_told: Timestamp,
    /// Something changed since it was told.
    changed: bool,
    /// The latest trigger, while only this path has reported it.
    unmatched: Option<(Path, Timestamp)>,
    /// Title of the push messages that turned out to be this alarm's.
    title: Option<String>,
}

/// What came of an alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// The one incident this alarm belongs to.
    pub incident: String,
    /// It opened that incident; otherwise it was merged into it.
    pub opened: bool,
    /// What to tell at once: nothing, or an update, or the new incident after the last update of the one before it.
    pub tell: Vec<Raid>,
}

/// How a trigger reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Link,
    Push,
}

/// The raid incidents of one game server.
#[derive(Debug, Default)]
pub struct Raids {
    /// By alarm id.
    incidents: BTreeMap<String, Incident>,
}

impl Raids {
    /// No incident.
    pub fn new() -> Self {
        Self::default()
    }

    /// An alarm seen on the live link.
    pub fn alarm(&mut self, id: &str, name: &str, now: Timestamp, new_id: impl FnOnce() -> String) -> Heard {
        if let Some(incident) = self.incidents.get_mut(id)
            && incident.is_open(now)
        {
            let reported = incident.is_unmatched(Path::Push, now);
            let tell = if reported { incident.matched() } else { incident.repeat(Path::Link, name, now) };
            return incident.merged(tell);
        }
        if let Some(pushed) = self.unmatched(Path::Push, name, now)
            && let Some(mut incident) = self.incidents.remove(&pushed)
        {
            // The push came first: its incident is this alarm's, and the trigger is counted already.
            incident.matched();
            incident.title = Some(std::mem::replace(&mut incident.raid.alarm_name, name.to_owned()));
            incident.raid.alarm_id = id.to_owned();
            incident.changed = true;
            let into = incident.raid.incident.clone();
            let before = self.incidents.insert(id.to_owned(), incident);
            return Heard {
                incident: into,
                opened: false,
                tell: before.and_then(Incident::close).into_iter().collect(),
            };
        }
        self.open(Path::Link, id, name, now, new_id)
    }

    /// An alarm that came as a push message, which does not say which device it was.
    pub fn pushed(&mut self, title: &str, now: Timestamp, new_id: impl FnOnce() -> String) -> Heard {
        let title = plain_text(title, LONGEST_TITLE);
        let title = title.as_str();
        if let Some(id) = self.unmatched(Path::Link, title, now)
            && let Some(incident) = self.incidents.get_mut(&id)
        {
            incident.title = Some(title.to_owned());
            let tell = incident.matched();
            return incident.merged(tell);
        }
        let known = |incident: &&mut Incident| incident.title.as_deref() == Some(title) && incident.is_open(now);
        if let Some(incident) = self.incidents.values_mut().find(known) {
            let name = incident.raid.alarm_name.clone();
            let tell = incident.repeat(Path::Push, &name, now);
            return incident.merged(tell);
        }
        let mut id = format!("push:{title}");
        if !self.incidents.contains_key(&id) && self.incidents.keys().filter(|id| is_pushed(id)).count() >= MAX_PUSHED {
            id = "push".to_owned();
        }
        if let Some(incident) = self.incidents.get_mut(&id)
            && incident.is_open(now)
        {
            let tell = incident.repeat(Path::Push, title, now);
            return incident.merged(tell);
        }
        self.open(Path::Push, &id, title, now, new_id)
    }

    /// Takes up an incident again that another process opened at `ts`, and may have told; `alarm_id` is empty if only a
    /// push knows of it. What to tell.
    pub fn restore(&mut self, incident: &str, alarm_id: &str, name: &str, ts: Timestamp) -> Raid {
        let name = plain_text(name, LONGEST_TITLE);
        let id = if alarm_id.is_empty() { format!("push:{name}") } else { alarm_id.to_owned() };
        let raid = Raid {
            incident: incident.to_owned(),
            alarm_id: id.clone(),
            alarm_name: name,
            ts,
            count: 1,
            update: true,
            drill: false,
        };
        // One that stands there is newer.
        self.incidents.entry(id).or_insert_with(|| Incident {
            raid: raid.clone(),
            last_trigger: ts,
            last_told: ts,
            changed: false,
            unmatched: None,
            title: None,
        });
        raid
    }

    /// Has all incidents told once more with their next update, for those who come back late.
    pub fn repeat(&mut self, now: Timestamp) {
        for incident in self.incidents.values_mut() {
            (incident.last_told, incident.changed) = (now, true);
        }
    }

    /// Updates that have become due; call it every second or at [`Raids::next_due`]. Forgets incidents that are over.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Raid> {
        let mut due = Vec::new();
        self.incidents.retain(|_, incident| {
            if incident.changed && now - incident.last_told >= UPDATE_EVERY {
                due.push(incident.tell(now));
            }
            incident.changed || incident.is_open(now)
        });
        due
    }

    /// When the next update becomes due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let waiting = self.incidents.values().filter(|incident| incident.changed);
        waiting.map(|incident| incident.last_told + UPDATE_EVERY).min()
    }

    fn open(&mut self, path: Path, id: &str, name: &str, now: Timestamp, new_id: impl FnOnce() -> String) -> Heard {
        let raid = Raid {
            incident: new_id(),
            alarm_id: id.to_owned(),
            alarm_name: name.to_owned(),
            ts: now,
            count: 1,
            update: false,
            drill: false,
        };
        let incident = Incident {
            raid: raid.clone(),
            last_trigger: now,
            last_told: now,
            changed: false,
            unmatched: Some((path, now)),
            title: None,
        };
        let before = self.incidents.insert(id.to_owned(), incident);
        let incident = raid.incident.clone();
        Heard { incident, opened: true, tell: before.and_then(Incident::close).into_iter().chain([raid]).collect() }
    }

    /// The incident whose latest trigger only this path reported: by name if there is one, else the newest.
    fn unmatched(&self, path: Path, name: &str, now: Timestamp) -> Option<String> {
        let is_named =
            |incident: &Incident| incident.raid.alarm_name == name || incident.title.as_deref() == Some(name);
        self.incidents
            .iter()
            .filter(|(id, incident)| is_pushed(id) == (path == Path::Push) && incident.is_unmatched(path, now))
            .max_by_key(|(_, incident)| (is_named(incident), incident.last_trigger))
            .map(|(id, _)| id.clone())
    }
}

impl Incident {
    fn is_open(&self, now: Timestamp) -> bool {
        now - self.last_trigger <= QUIET
    }

    fn is_unmatched(&self, path: Path, now: Timestamp) -> bool {
        self.unmatched.is_some_and(|(by, at)| by == path && (now - at).abs() <= SAME_TRIGGER)
    }

    fn merged(&self, tell: Vec<Raid>) -> Heard {
        Heard { incident: self.raid.incident.clone(), opened: false, tell }
    }

    /// The other path reported the trigger as well: nothing new to tell.
    fn matched(&mut self) -> Vec<Raid> {
        self.unmatched = None;
        Vec::new()
    }

    fn repeat(&mut self, path: Path, name: &str, now: Timestamp) -> Vec<Raid> {
        self.raid.count = self.raid.count.saturating_add(1);
        self.raid.alarm_name = name.to_owned();
        self.last_trigger = self.last_trigger.max(now);
        self.unmatched = Some((path, now));
        self.changed = true;
        let due = now - self.last_told >= UPDATE_EVERY;
        if due { vec![self.tell(now)] } else { Vec::new() }
    }

    fn tell(&mut self, now: Timestamp) -> Raid {
        self.last_told = now;
        self.changed = false;
        Raid { update: true, ..self.raid.clone() }
    }

    /// The last word, if something is still to be said.
    fn close(self) -> Option<Raid> {
        self.changed.then_some(Raid { update: true, ..self.raid })
    }
}

fn is_pushed(alarm_id: &str) -> bool {
    alarm_id.starts_with("push")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::{Raid, Raids};
    use crate::domain::time::Timestamp;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(milliseconds)
    }

    struct Timeline {
        raids: Raids,
        next: u32,
    }

    impl Timeline {
        fn new() -> Self {
            Self { raids: Raids::new(), next: 0 }
        }

        fn new_id(&mut self) -> String {
            self.next += 1;
            format!("incident-{}", self.next)
        }

        fn alarm(&mut self, id: &str, milliseconds: i64) -> Vec<Raid> {
            let new = self.new_id();
            self.raids.alarm(id, "Front door", at(milliseconds), || new).tell
        }

        fn pushed(&mut self, title: &str, milliseconds: i64) -> Vec<Raid> {
            let new = self.new_id();
            self.raids.pushed(title, at(milliseconds), || new).tell
        }

        fn tick(&mut self, milliseconds: i64) -> Vec<Raid> {
            self.raids.tick(at(milliseconds))
        }
    }

    fn told(raids: &[Raid]) -> Vec<(&str, u32, bool)> {
        raids.iter().map(|raid| (raid.incident.as_str(), raid.count, raid.update)).collect()
    }

    #[test]
    fn the_first_trigger_is_told_at_once_and_repeats_every_ten_seconds() {
        let mut timeline = Timeline::new();
        assert_eq!(told(&timeline.alarm("7", 0)), [("incident-1", 1, false)]);
        assert!(timeline.alarm("7", 2_000).is_empty());
        assert!(timeline.alarm("7", 4_000).is_empty());
        assert_eq!(timeline.raids.next_due(), Some(at(10_000)));
        assert!(timeline.tick(9_999).is_empty());
        assert_eq!(told(&timeline.tick(10_000)), [("incident-1", 3, true)]);
        assert!(timeline.tick(20_000).is_empty());
        assert_eq!(told(&timeline.alarm("7", 30_000)), [("incident-1", 4, true)]);
        assert_eq!(timeline.raids.next_due(), None);
    }

    #[test]
    fn after_ninety_quiet_seconds_a_trigger_is_a_new_incident() {
        let mut timeline = Timeline::new();
        timeline.alarm("7", 0);
        assert_eq!(told(&timeline.alarm("7", 90_000)), [("incident-1", 2, true)]);
        assert_eq!(told(&timeline.alarm("7", 180_001)), [("incident-3", 1, false)]);
    }

    #[test]
    fn the_last_update_of_an_incident_is_told_even_when_nobody_ticked() {
        let mut timeline = Timeline::new();
        timeline.alarm("7", 0);
        timeline.alarm("7", 1_000);
        assert_eq!(told(&timeline.alarm("7", 100_000)), [("incident-1", 2, true), ("incident-3", 1, false)]);
    }

    #[test]
    fn alarms_are_incidents_of_their_own() {
        let mut timeline = Timeline::new();
        assert_eq!(told(&timeline.alarm("7", 0)), [("incident-1", 1, false)]);
        assert_eq!(told(&timeline.alarm("8", 1)), [("incident-2", 1, false)]);
    }

    #[test]
    fn a_push_after_the_live_trigger_is_the_same_trigger() {
        let mut timeline = Timeline::new();
        timeline.alarm("7", 0);
        assert!(timeline.pushed("Front door", 3_000).is_empty());
        assert!(timeline.tick(60_000).is_empty(), "nothing new is known");
        assert_eq!(told(&timeline.pushed("Front door", 61_000)), [("incident-1", 2, true)], "not seen on the link");
        assert_eq!(told(&timeline.pushed("Front door", 200_000)), [("incident-4", 1, false)], "another raid");
    }

    #[test]
    fn a_live_trigger_after_its_push_continues_the_incident_under_the_alarms_id() {
        let mut timeline = Timeline::new();
        let first = timeline.pushed("Front door", 0);
        assert_eq!((told(&first), first[0].alarm_id.as_str()), (vec![("incident-1", 1, false)], "push:Front door"));
        assert!(timeline.alarm("7", 2_000).is_empty());
        let update = timeline.tick(10_000);
        assert_eq!((told(&update), update[0].alarm_id.as_str()), (vec![("incident-1", 1, true)], "7"));
        assert_eq!(told(&timeline.alarm("7", 20_000)), [("incident-1", 2, true)]);
    }

    #[test]
    fn once_a_push_title_is_known_both_paths_feed_one_incident_in_any_order() {
        let mut timeline = Timeline::new();
        timeline.pushed("You're getting raided!", 0);
        timeline.alarm("7", 1_000);
        assert!(timeline.pushed("You're getting raided!", 5_000).is_empty(), "the push is first again");
        assert!(timeline.alarm("7", 6_000).is_empty());
        assert!(timeline.alarm("7", 8_000).is_empty(), "the link is first");
        assert!(timeline.pushed("You're getting raided!", 9_000).is_empty());
        assert_eq!(told(&timeline.tick(20_000)), [("incident-1", 3, true)]);
        assert_eq!(timeline.raids.incidents.len(), 1);
    }

    #[test]
    fn a_push_is_matched_by_name_first() {
        let mut timeline = Timeline::new();
        timeline.raids.alarm("7", "Roof", at(0), || "roof".into());
        timeline.raids.alarm("8", "Gate", at(1), || "gate".into());
        assert!(timeline.pushed("Roof", 2).is_empty());
        assert!(timeline.pushed("Gate", 3).is_empty());
        timeline.pushed("Roof", 4);
        assert_eq!(told(&timeline.tick(20_000)), [("roof", 2, true)]);
    }

    #[test]
    fn any_number_of_push_titles_is_bounded_and_counted() {
        let mut timeline = Timeline::new();
        let mut first = HashMap::new();
        for number in 0..1_000 {
            for raid in timeline.pushed(&format!("title {number}"), number) {
                first.insert(raid.incident.clone(), raid.count);
            }
        }
        assert!(timeline.raids.incidents.len() <= 65);
        for raid in timeline.tick(60_000) {
            first.insert(raid.incident.clone(), raid.count);
        }
        assert_eq!(first.values().sum::<u32>(), 1_000);
    }

    #[test]
    fn an_incident_of_a_process_that_died_goes_on() {
        let mut timeline = Timeline::new();
        let raid = timeline.raids.restore("before", "", "Front door", at(0));
        assert_eq!((raid.alarm_id.as_str(), raid.update), ("push:Front door", true));
        timeline.raids.repeat(at(40_000));
        assert!(timeline.tick(49_999).is_empty());
        assert_eq!(told(&timeline.tick(50_000)), [("before", 1, true)], "for those who came back late");
        assert_eq!(told(&timeline.pushed("Front door", 60_000)), [("before", 2, true)]);
        assert!(timeline.raids.incidents.len() == 1);
    }

    #[test]
    fn a_push_of_before_is_not_the_trigger_of_now() {
        let mut timeline = Timeline::new();
        timeline.alarm("7", 60_000);
        assert_eq!(told(&timeline.pushed("Front door", 0)), [("incident-2", 1, false)]);
    }

    #[test]
    fn incidents_that_are_over_are_forgotten() {
        let mut timeline = Timeline::new();
        timeline.alarm("7", 0);
        timeline.tick(90_001);
        assert!(timeline.raids.incidents.is_empty());
    }

    proptest! {
        #[test]
        fn every_trigger_is_in_exactly_one_incident_and_the_last_count_told_is_right(
            steps in prop::collection::vec((prop_oneof![0_i64..3_000, 0_i64..120_000], 0_u8..3, any::<bool>()), 1..200),
        ) {
            let mut timeline = Timeline::new();
            let mut now = 0;
            let mut triggers = HashMap::<u8, u32>::new();
            let mut last_told = HashMap::<String, Raid>::new();
            let mut sent_at = HashMap::<String, i64>::new();
            let mut expected = HashMap::<(u8, u32), u32>::new(); // (alarm, which of its incidents) → triggers
            let mut last = HashMap::<u8, i64>::new();
            for (advance, alarm, ticks) in steps {
                now += advance;
                if ticks {
                    for raid in timeline.tick(now) {
                        if let Some(before) = sent_at.insert(raid.incident.clone(), now) {
                            prop_assert!(now - before >= 10_000);
                        }
                        last_told.insert(raid.incident.clone(), raid);
                    }
                }
                if last.insert(alarm, now).is_none_or(|before| now - before > 90_000) {
                    *triggers.entry(alarm).or_default() += 1;
                }
                *expected.entry((alarm, triggers[&alarm])).or_default() += 1;
                for raid in timeline.alarm(&alarm.to_string(), now) {
                    prop_assert_eq!(raid.update, last_told.contains_key(&raid.incident));
                    sent_at.insert(raid.incident.clone(), now);
                    last_told.insert(raid.incident.clone(), raid);
                }
            }
            for raid in timeline.tick(now + 10_000) {
                last_told.insert(raid.incident.clone(), raid);
            }
            let mut counts: Vec<_> = last_told.values().map(|raid| raid.count).collect();
            let mut wanted: Vec<_> = expected.into_values().collect();
            counts.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(counts, wanted);
        }

        #[test]
        fn over_both_paths_a_trigger_counts_once_or_twice_and_never_not_at_all(
            steps in prop::collection::vec((0_i64..40_000, 0_u8..3, any::<bool>()), 1..200),
        ) {
            let mut timeline = Timeline::new();
            let (mut now, mut linked, mut pushed) = (0, 0, 0);
            let mut last_told = HashMap::<String, u32>::new();
            for (advance, alarm, on_link) in steps {
                now += advance;
                let mut raids = timeline.tick(now);
                if on_link {
                    linked += 1;
                    raids.extend(timeline.alarm(&alarm.to_string(), now));
                } else {
                    pushed += 1;
                    raids.extend(timeline.pushed(&format!("title {alarm}"), now));
                }
                for raid in raids {
                    let before = last_told.insert(raid.incident, raid.count);
                    prop_assert!(raid.update == before.is_some() && before.is_none_or(|before| before <= raid.count));
                }
            }
            last_told.extend(timeline.tick(now + 10_000).into_iter().map(|raid| (raid.incident, raid.count)));
            let told = last_told.values().sum::<u32>();
            prop_assert!((linked.max(pushed)..=linked + pushed).contains(&told));
        }
    }
}
