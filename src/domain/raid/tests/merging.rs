//! Alarms that rang before the ledger was known, and the ledger then.

use super::*;
use crate::domain::{incident::Incident, raid::MergedIncident};

/// The ledger has an incident of this alarm, opened at 0, which Ann has acknowledged.
fn known(alarm_id: &str, name: &str) -> Incident {
    Incident {
        alarm_id: alarm_id.into(),
        alarm_name: name.into(),
        place: DevicePlace::default(),
        first_at: at(0).stamp,
        last_at: at(0).stamp,
        ended_at: None,
        count: 3,
        paths: [AlarmPath::Link].into(),
        late: false,
        drill: false,
        acks: [("ann".into(), at(0).stamp)].into(),
    }
}

/// Restores it and merges.
fn merge(raids: &mut Raids, known: Incident, milliseconds: i64) -> Vec<MergedIncident> {
    assert!(raids.restore("0".into(), known, None, at(milliseconds)));
    raids.merge(at(milliseconds))
}

fn into_known(id: &str) -> Vec<MergedIncident> {
    vec![MergedIncident { id: id.into(), into: "0".into() }]
}

#[test]
fn what_rang_before_the_ledger_was_known_belongs_to_the_known_incident() {
    let mut raids = Raids::new();
    alarm(&mut raids, "7", "Gate", at(30_000), "1");
    alarm(&mut raids, "7", "Gate", at(50_000), "2");
    raids.acknowledge("1", &"bob".into(), at(51_000).stamp);
    assert_eq!(merge(&mut raids, known("7", "Front door"), 60_000), into_known("1"));
    assert!(raids.get("1").is_none());
    let incident = raids.get("0").unwrap().clone();
    assert_eq!((incident.count, incident.alarm_name.as_str()), (5, "Gate"));
    assert_eq!((incident.first_at, incident.last_at), (at(0).stamp, at(50_000).stamp));
    assert_eq!(incident.acks.keys().map(|user| user.as_str()).collect::<Vec<_>>(), ["ann", "bob"]);
    // The incident goes on as one: the next trigger is a repeat, and it ends once.
    assert!(!alarm(&mut raids, "7", "Gate", at(100_000), "3").opened);
    assert_eq!(raids.tick(at(200_000)).len(), 1);
    assert_eq!(raids.get("0").unwrap().ended_at, Some(at(190_000).stamp));
    assert_eq!(raids.merge(at(200_000)), [], "that was all");
}

#[test]
fn a_push_and_a_device_of_one_name_are_one_alarm_and_two_devices_are_not() {
    let (mut linked, mut pushed, mut other) = (Raids::new(), Raids::new(), Raids::new());
    alarm(&mut linked, "7", "Gate", at(1_000), "1");
    assert_eq!(merge(&mut linked, known("push:Gate", "Gate"), 2_000), into_known("1"));
    assert_eq!((linked.get("0").unwrap().alarm_id.as_str(), linked.title("0")), ("7", Some("Gate")));

    pushed.pushed("Gate", &BTreeSet::new(), at(1_000).stamp, at(1_000), || "1".into());
    assert_eq!(merge(&mut pushed, known("7", "Gate"), 2_000), into_known("1"));
    let incident = pushed.get("0").unwrap();
    assert_eq!((incident.alarm_id.as_str(), incident.paths.len()), ("7", 2));

    alarm(&mut other, "8", "Gate", at(1_000), "1");
    assert_eq!(merge(&mut other, known("7", "Gate"), 2_000), []);
}

#[test]
fn a_push_that_came_late_belongs_to_the_trigger_that_the_link_saw_after_it_was_sent() {
    for (sent, merged) in [(-1, into_known("1")), (-90_000, into_known("1")), (-90_001, vec![])] {
        let mut raids = Raids::new();
        raids.pushed("Gate", &BTreeSet::new(), at(sent).stamp, at(13_000), || "1".into());
        assert_eq!(raids.get("1").unwrap().first_at, at(sent).stamp, "it counts at the time when it was sent");
        assert_eq!(merge(&mut raids, known("7", "Gate"), 21_000), merged, "{sent}");
        let incident = raids.get("0").unwrap();
        assert_eq!((incident.alarm_id.as_str(), incident.first_at), ("7", at(0).stamp));
        assert_eq!((incident.last_at, incident.ended_at), (at(0).stamp, None), "it goes on from the later trigger");
    }
}

#[test]
fn a_late_push_says_nothing_of_the_trigger_after_it() {
    let mut raids = Raids::new();
    raids.pushed("Gate", &BTreeSet::new(), at(-1_000).stamp, at(13_000), || "1".into());
    assert_eq!(merge(&mut raids, known("7", "Gate"), 14_000), into_known("1"));
    // The push would be the one of a rise that waited in the socket since then; the link has seen this one itself.
    let waited = TriggerTime::Waited(at(-500));
    let again = raids.alarm("7", "Gate", &DevicePlace::default(), waited, at(20_000), || "2".into());
    assert_eq!((again.incident.as_str(), raids.get("0").unwrap().count), ("0", 5), "one more trigger");
}

#[test]
fn what_is_over_late_or_a_drill_takes_nothing() {
    let takes = |change: fn(&mut Incident), milliseconds| {
        let mut raids = Raids::new();
        alarm(&mut raids, "7", "Gate", at(milliseconds), "1");
        let mut known = known("7", "Gate");
        change(&mut known);
        !merge(&mut raids, known, milliseconds).is_empty()
    };
    assert!(takes(|_| {}, 90_000));
    assert!(!takes(|_| {}, 90_001), "it had been quiet");
    assert!(!takes(|known| known.ended_at = Some(known.last_at), 1_000));
    assert!(!takes(|known| known.late = true, 1_000));
    assert!(!takes(|known| known.drill = true, 1_000));
}

#[test]
fn what_takes_one_that_is_over_goes_on() {
    let mut raids = Raids::new();
    let ended = Incident { first_at: at(1_000).stamp, last_at: at(1_000).stamp, ..known("7", "Gate") };
    let ended = Incident { ended_at: Some(at(91_000).stamp), ..ended };
    assert!(raids.restore("1".into(), ended, None, at(100_000)));
    let longer = Incident { last_at: at(20_000).stamp, ..known("7", "Gate") };
    assert_eq!(merge(&mut raids, longer, 100_000), into_known("1"));
    assert_eq!(raids.get("0").unwrap().ended_at, None);
    assert!(!alarm(&mut raids, "7", "Gate", at(105_000), "2").opened, "it has not been quiet");
    raids.tick(at(195_001));
    assert_eq!(raids.get("0").unwrap().ended_at, Some(at(195_000).stamp));
}

#[test]
fn what_is_hours_apart_stays_apart_when_the_clock_was_set_back_since() {
    let mut raids = Raids::new();
    let [one, other] = [7_200_000, 7_290_000].map(|milliseconds| at(milliseconds).stamp);
    let earlier = Incident { first_at: one, last_at: one, ended_at: Some(other), ..known("7", "Gate") };
    assert!(raids.restore("1".into(), earlier, None, at(60_000)));
    assert_eq!(merge(&mut raids, known("7", "Gate"), 60_000), []);
}

#[test]
fn what_was_over_before_the_clock_was_set_back_stays_apart() {
    let mut raids = Raids::new();
    let [first_at, last_at, ended_at] = [73_000, 196_000, 286_000].map(|milliseconds| at(milliseconds).stamp);
    let earlier = Incident { first_at, last_at, ended_at: Some(ended_at), ..known("7", "Gate") };
    assert!(raids.restore("1".into(), earlier, None, at(91_000)));
    let of_now = Incident { last_at: at(6_000).stamp, ..known("7", "Gate") };
    assert_eq!(merge(&mut raids, of_now, 91_000), []);
}
