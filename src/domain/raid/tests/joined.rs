//! Which reports of the link and of pushes are one alarm.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::{Timeline, alarm, at, seen};

#[test]
fn an_alarm_is_not_taken_for_one_that_a_user_has_acknowledged() {
    let mut timeline = Timeline::new();
    timeline.pushed("Compound wall", 0);
    timeline.raids.acknowledge("incident-001", &"alice".into(), at(1_000).stamp);
    let vault = timeline.named_alarm("8", "Vault door", 5_000);
    assert_eq!(seen(&vault), [("incident-002", 1, false)]);
    assert_eq!(timeline.raids.get("incident-001").unwrap().alarm_name, "Compound wall");
    // A push is not taken for an acknowledged alarm either.
    timeline.raids.acknowledge("incident-002", &"alice".into(), at(6_000).stamp);
    assert_eq!(seen(&timeline.pushed("Raid!", 7_000)), [("incident-003", 1, false)]);
    // A match by name is certain nevertheless.
    assert!(timeline.pushed("Vault door", 8_000).is_empty());
}

#[test]
fn two_reports_that_only_their_time_joins_are_announced_at_once() {
    let mut timeline = Timeline::new();
    timeline.named_alarm("7", "Roof", 0);
    let wall = timeline.pushed("Wall is under attack", 2_000);
    assert_eq!(seen(&wall), [("incident-001", 1, true)]);
    assert_eq!(wall[0].alarm_name, "Roof");
    assert_eq!(timeline.raids.title("incident-001"), Some("Wall is under attack"));
    assert!(timeline.pushed("Roof", 3_000).is_empty(), "its own push, known by its name");
    assert_eq!(timeline.raids.incidents.len(), 1);
    assert_eq!(timeline.raids.title("incident-001"), Some("Roof"), "so that one is not this device's");
    assert_eq!(seen(&timeline.pushed("Wall is under attack", 4_000)), [("incident-004", 1, false)]);

    let mut timeline = Timeline::new();
    timeline.pushed("Wall is under attack", 0);
    let wall = timeline.named_alarm("8", "Wall", 2_000);
    assert_eq!((seen(&wall), wall[0].alarm_name.as_str()), (vec![("incident-001", 1, true)], "Wall"));
    assert_eq!(timeline.raids.title("incident-001"), Some("Wall is under attack"));
    assert!(timeline.tick(60_000).is_empty(), "that was all");
}

#[test]
fn with_several_that_time_could_join_each_is_its_own() {
    let mut timeline = Timeline::new();
    timeline.named_alarm("7", "Roof", 0);
    timeline.named_alarm("8", "Gate", 1_000);
    assert_eq!(seen(&timeline.pushed("Raid!", 2_000)), [("incident-003", 1, false)]);
    let mut timeline = Timeline::new();
    timeline.pushed("Raid!", 0);
    timeline.pushed("Help!", 1_000);
    assert_eq!(seen(&timeline.named_alarm("7", "Roof", 2_000)), [("incident-003", 1, false)]);
}

#[test]
fn a_title_that_is_one_devices_is_no_other_devices() {
    let mut timeline = Timeline::new();
    timeline.pushed("Roof is under attack", 0);
    timeline.named_alarm("7", "Roof", 1_000);
    // An hour later.
    let hour = 3_600_000;
    timeline.named_alarm("8", "Gate", hour);
    assert_eq!(seen(&timeline.pushed("Roof is under attack", hour + 1_000)), [("incident-004", 1, false)]);
    assert!(timeline.named_alarm("7", "Roof", hour + 2_000).is_empty(), "learnt");
    assert_eq!(timeline.raids.get("incident-004").unwrap().alarm_id, "7");
    assert!(timeline.raids.get("incident-005").is_none());
    // Another title is not that device's, nor is the name of a device another one's.
    timeline.named_alarm("7", "Roof", 2 * hour);
    assert_eq!(seen(&timeline.pushed("Something", 2 * hour + 1)), [("incident-007", 1, false)]);
    assert!(timeline.pushed("Roof is under attack", 2 * hour + 2).is_empty());
    timeline.named_alarm("9", "Shed", 3 * hour);
    assert_eq!(seen(&timeline.pushed("Gate", 3 * hour + 1)), [("incident-010", 1, false)]);
    // This holds after a restart.
    let mut restarted = Timeline { next: 100, ..Timeline::new() };
    for (id, tracked) in &timeline.raids.incidents {
        restarted.raids.restore(id.clone(), tracked.incident.clone(), tracked.title.clone(), at(4 * hour));
    }
    restarted.named_alarm("8", "Gate", 5 * hour);
    assert_eq!(seen(&restarted.pushed("Roof is under attack", 5 * hour + 1)), [("incident-102", 1, false)]);
}

#[test]
fn of_many_alarms_that_only_one_path_reports_none_is_lost() {
    let mut timeline = Timeline::new();
    let mut rung = Vec::new();
    for number in 0..12 {
        let now = i64::from(number) * 700;
        rung.extend(timeline.pushed(&format!("push {number}"), now));
        let link = timeline.named_alarm(&number.to_string(), &format!("link {number}"), now + 500);
        assert_eq!(link.len(), 1, "announced at once");
        rung.extend(link);
    }
    let rung: BTreeSet<String> = rung.into_iter().map(|raid| raid.alarm_name).collect();
    let kept = timeline.raids.incidents.values();
    let kept: BTreeSet<String> =
        kept.flat_map(|tracked| [Some(tracked.incident.alarm_name.clone()), tracked.title.clone()]).flatten().collect();
    let all: BTreeSet<String> =
        (0..12).flat_map(|number| ["push", "link"].map(|by| format!("{by} {number}"))).collect();
    assert_eq!((&rung, &kept), (&all, &all));
}

#[test]
fn an_incident_that_many_titles_share_is_no_devices() {
    let mut timeline = Timeline::new();
    for number in 0..31 {
        timeline.pushed(&format!("title {number}"), 0);
    }
    assert_eq!(timeline.raids.get("incident-031").unwrap().alarm_id, "push");
    assert_eq!(seen(&timeline.named_alarm("7", "title 30", 60_000)), [("incident-032", 1, false)]);
}

proptest! {
    #[test]
    fn over_both_paths_every_name_is_announced_at_once_or_with_its_incident(
        steps in prop::collection::vec((0_i64..40_000, 0_u8..4, any::<bool>(), any::<bool>()), 1..200),
    ) {
        let mut timeline = Timeline::new();
        let mut now = 0;
        // Names that each incident's messages and matches have reported.
        let mut known = HashMap::<String, BTreeSet<String>>::new();
        for (advance, alarm_number, on_link, acknowledges) in steps {
            now += advance;
            timeline.tick(now);
            let (device, new) = (alarm_number.to_string(), timeline.new_id());
            let said = if on_link { format!("device {device}") } else { format!("title {device}") };
            let update = if on_link {
                alarm(&mut timeline.raids, &device, &said, at(now), &new)
            } else {
                timeline.raids.pushed(&said, &Default::default(), at(now).stamp, at(now), || new)
            };
            let incident = timeline.raids.get(&update.incident).expect("it is shown").clone();
            prop_assert_eq!(update.opened, !known.contains_key(&update.incident));
            let has_message = update.changes.iter()
                .any(|change| change.incident == update.incident && change.message.is_some());
            let names = known.entry(update.incident.clone()).or_default();
            let title = timeline.raids.title(&update.incident).unwrap_or_default();
            let is_learnt = timeline.raids.incidents.iter().any(|(id, other)| {
                *id != update.incident && other.incident.alarm_id == incident.alarm_id
                    && other.title.as_deref() == Some(title)
            });
            prop_assert!(!names.insert(said.clone()) || has_message || is_learnt, "{} is not announced", said);
            prop_assert!(incident.alarm_name == said || title == said, "{} is not kept", said);
            if acknowledges {
                timeline.raids.acknowledge(&update.incident, &"alice".into(), at(now).stamp);
            }
        }
    }
}

#[test]
fn a_push_that_names_another_device_is_not_the_alarm_of_a_moment_ago() {
    let mut timeline = Timeline::new();
    timeline.named_alarm("1", "Base", 0);
    timeline.named = ["2".into()].into();
    assert_eq!(seen(&timeline.pushed("Wall", 3_000)), [("incident-002", 1, false)]);
    timeline.named = ["1".into(), "2".into()].into();
    assert!(timeline.pushed("Smart Alarm", 4_000)[0].update, "one of two of that name was heard of");
}
