use std::collections::{BTreeSet, HashMap};

use chrono::TimeDelta;
use proptest::prelude::*;

use super::{AlarmOutcome, IncidentChange, Raids, TriggerTime};
use crate::domain::{
    incident::{AlarmPath, DevicePlace, Raid},
    time::{Moment, Timestamp},
};

mod joined;
mod merging;
mod unseen;

fn at(milliseconds: i64) -> Moment {
    (Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(milliseconds)).into()
}

struct Timeline {
    raids: Raids,
    /// Devices that have the title of a push as their name.
    named: BTreeSet<String>,
    next: u32,
}

impl Timeline {
    fn new() -> Self {
        Self { raids: Raids::new(), named: BTreeSet::new(), next: 0 }
    }

    fn new_id(&mut self) -> String {
        self.next += 1;
        format!("incident-{:03}", self.next)
    }

    fn alarm(&mut self, id: &str, milliseconds: i64) -> Vec<Raid> {
        self.named_alarm(id, "Front door", milliseconds)
    }

    fn named_alarm(&mut self, id: &str, name: &str, milliseconds: i64) -> Vec<Raid> {
        let new = self.new_id();
        messages(alarm(&mut self.raids, id, name, at(milliseconds), &new).changes)
    }

    /// An alarm that the first answer of a link shows to be on, which was off when the link before was lost.
    fn unseen(&mut self, id: &str, name: &str, since: i64, milliseconds: i64) -> AlarmOutcome {
        self.alarm_of(id, name, TriggerTime::AfterGap(at(since)), milliseconds)
    }

    /// An alarm by a broadcast that may have waited since then.
    fn waited(&mut self, id: &str, name: &str, since: i64, milliseconds: i64) -> AlarmOutcome {
        self.alarm_of(id, name, TriggerTime::Waited(at(since)), milliseconds)
    }

    fn alarm_of(&mut self, id: &str, name: &str, time: TriggerTime, milliseconds: i64) -> AlarmOutcome {
        let new = self.new_id();
        self.raids.alarm(id, name, &DevicePlace::default(), time, at(milliseconds), || new)
    }

    fn pushed(&mut self, title: &str, milliseconds: i64) -> Vec<Raid> {
        messages(self.pushed_late(title, milliseconds, milliseconds).changes)
    }

    fn pushed_late(&mut self, title: &str, sent: i64, milliseconds: i64) -> AlarmOutcome {
        let new = self.new_id();
        self.raids.pushed(title, &self.named, at(sent).stamp, at(milliseconds), || new)
    }

    fn tick(&mut self, milliseconds: i64) -> Vec<Raid> {
        let now = at(milliseconds);
        let due = self.raids.next_due(now);
        let changes = self.raids.tick(now);
        assert!(changes.is_empty() || due.is_some_and(|due| due <= now), "it was due");
        // Incidents that have just ended may be too many to be shown, once that is stored.
        while self.raids.next_due(now).is_some_and(|due| due <= now) {
            assert!(messages(self.raids.tick(now)).is_empty(), "it was said");
        }
        messages(changes)
    }
}

fn alarm(raids: &mut Raids, id: &str, name: &str, now: Moment, new: &str) -> AlarmOutcome {
    raids.alarm(id, name, &DevicePlace::default(), TriggerTime::Now, now, || new.to_owned())
}

fn messages(changes: Vec<IncidentChange>) -> Vec<Raid> {
    changes.into_iter().filter_map(|change| change.message).collect()
}

fn seen(raids: &[Raid]) -> Vec<(&str, u32, bool)> {
    raids.iter().map(|raid| (raid.incident.as_str(), raid.count, raid.update)).collect()
}

#[test]
fn the_first_trigger_is_announced_at_once_and_repeats_every_ten_seconds() {
    let mut timeline = Timeline::new();
    assert_eq!(seen(&timeline.alarm("7", 0)), [("incident-001", 1, false)]);
    assert!(timeline.alarm("7", 2_000).is_empty());
    assert!(timeline.alarm("7", 4_000).is_empty());
    assert!(timeline.tick(9_999).is_empty());
    assert_eq!(seen(&timeline.tick(10_000)), [("incident-001", 3, true)]);
    assert!(timeline.tick(20_000).is_empty());
    assert_eq!(seen(&timeline.alarm("7", 30_000)), [("incident-001", 4, true)]);
}

#[test]
fn a_wall_clock_that_is_set_neither_silences_a_raid_nor_ends_one() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    let set_back = |steady| Moment::new(TimeDelta::seconds(steady), at(-3_600_000).stamp);
    let repeat = alarm(&mut timeline.raids, "7", "Front door", set_back(60), "none");
    assert_eq!(seen(&messages(repeat.changes)), [("incident-001", 2, true)]);
    let later = messages(alarm(&mut timeline.raids, "7", "Front door", set_back(200), "second").changes);
    assert_eq!(seen(&later), [("second", 1, false)]);
    assert_eq!(later[0].ts, at(-3_600_000).stamp, "the wall clock labels");
    let set_forward = Moment::new(TimeDelta::seconds(210), at(3_600_000).stamp);
    let again = alarm(&mut timeline.raids, "7", "Front door", set_forward, "third");
    assert_eq!(again.incident, "second");
}

#[test]
fn after_ninety_quiet_seconds_a_trigger_is_a_new_incident() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    assert_eq!(seen(&timeline.alarm("7", 90_000)), [("incident-001", 2, true)]);
    assert_eq!(seen(&timeline.alarm("7", 180_001)), [("incident-003", 1, false)]);
}

#[test]
fn the_last_update_of_an_incident_is_sent_even_without_a_tick() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    timeline.alarm("7", 1_000);
    assert_eq!(seen(&timeline.alarm("7", 100_000)), [("incident-001", 2, true), ("incident-003", 1, false)]);
}

#[test]
fn alarms_are_incidents_of_their_own() {
    let mut timeline = Timeline::new();
    assert_eq!(seen(&timeline.alarm("7", 0)), [("incident-001", 1, false)]);
    assert_eq!(seen(&timeline.alarm("8", 1)), [("incident-002", 1, false)]);
}

#[test]
fn a_push_after_the_live_trigger_is_the_same_trigger() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    assert!(timeline.pushed("Front door", 3_000).is_empty());
    assert!(timeline.tick(60_000).is_empty(), "nothing new is known");
    assert_eq!(seen(&timeline.pushed("Front door", 61_000)), [("incident-001", 2, true)], "not seen on the link");
    assert_eq!(seen(&timeline.pushed("Front door", 200_000)), [("incident-004", 1, false)], "another raid");
}

#[test]
fn a_live_trigger_after_its_push_continues_the_incident_under_the_alarms_id() {
    let mut timeline = Timeline::new();
    let first = timeline.pushed("Front door", 0);
    assert_eq!((seen(&first), first[0].alarm_id.as_str()), (vec![("incident-001", 1, false)], "push:Front door"));
    assert!(timeline.alarm("7", 2_000).is_empty());
    let update = timeline.tick(10_000);
    assert_eq!((seen(&update), update[0].alarm_id.as_str()), (vec![("incident-001", 1, true)], "7"));
    assert_eq!(seen(&timeline.alarm("7", 20_000)), [("incident-001", 2, true)]);
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
    assert_eq!(seen(&timeline.tick(20_000)), [("incident-001", 3, true)]);
    assert_eq!(timeline.raids.incidents.len(), 1);
}

#[test]
fn a_push_is_matched_by_name_first() {
    let mut timeline = Timeline::new();
    alarm(&mut timeline.raids, "7", "Roof", at(0), "roof");
    alarm(&mut timeline.raids, "8", "Gate", at(1), "gate");
    assert!(timeline.pushed("Roof", 2).is_empty());
    assert!(timeline.pushed("Gate", 3).is_empty());
    timeline.pushed("Roof", 4);
    assert_eq!(seen(&timeline.tick(20_000)), [("roof", 2, true)]);
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
    assert!(timeline.raids.incidents.len() <= 31);
    for raid in timeline.tick(60_000) {
        first.insert(raid.incident.clone(), raid.count);
    }
    assert_eq!(first.values().sum::<u32>(), 1_000);
}

#[test]
fn an_incident_of_the_ledger_goes_on_or_has_ended() {
    let mut timeline = Timeline::new();
    timeline.pushed("Front door", 0);
    let incident = timeline.raids.get("incident-001").unwrap().clone();
    let mut restart = |now| {
        timeline.raids = Raids::new();
        assert!(timeline.raids.restore("incident-001".into(), incident.clone(), None, at(now)));
        assert!(!timeline.raids.restore("incident-001".into(), incident.clone(), None, at(now)), "it is known");
    };
    restart(40_000);
    assert_eq!(seen(&timeline.pushed("Front door", 60_000)), [("incident-001", 2, true)]);
    assert_eq!(timeline.raids.incidents.len(), 1);
    let mut timeline = Timeline::new();
    timeline.raids.restore("incident-001".into(), incident, None, at(100_000));
    assert!(timeline.tick(100_000).is_empty());
    assert_eq!(timeline.raids.get("incident-001").unwrap().ended_at, Some(at(90_000).stamp));
    assert_eq!(seen(&timeline.pushed("Front door", 100_000)), [("incident-001", 1, false)], "another raid");
}

#[test]
fn an_earlier_push_is_not_the_trigger_of_now() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 90_001);
    assert_eq!(seen(&messages(timeline.pushed_late("Front door", 0, 91_000).changes)), [("incident-002", 1, false)]);
    assert_eq!(timeline.raids.get("incident-001").unwrap().ended_at, None, "that of now goes on");
}

#[test]
fn a_push_that_took_its_time_may_be_from_before_the_first_trigger_of_its_incident() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 60_000);
    let update = timeline.pushed_late("Front door", 0, 61_000);
    assert_eq!((update.incident.as_str(), update.opened), ("incident-001", false));
    assert_eq!(seen(&timeline.tick(70_000)), [("incident-001", 2, true)], "the link had not seen it");
    timeline.pushed("Front door", 71_000);
    timeline.pushed("Gate", 1_000_000);
    let update = timeline.pushed_late("Gate", 940_000, 1_001_000);
    assert_eq!((update.incident.as_str(), update.opened), ("incident-004", false), "known by pushes only");
    let incident = timeline.raids.get("incident-004").unwrap();
    assert_eq!((incident.first_at, incident.last_at, incident.count), (at(1_000_000).stamp, at(1_000_000).stamp, 2));
}

#[test]
fn a_delayed_push_belongs_to_the_incident_of_when_it_was_sent() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    timeline.tick(300_000);
    let update = timeline.pushed_late("You're getting raided!", 2_000, 300_000);
    assert_eq!((update.incident.as_str(), update.opened), ("incident-001", false));
    let incident = timeline.raids.get("incident-001").unwrap();
    assert_eq!((incident.count, incident.paths.len()), (1, 2), "the same trigger, by both paths");
    assert_eq!(incident.ended_at, Some(at(90_000).stamp), "it does not begin again");
}

#[test]
fn a_late_push_is_shown_with_the_time_it_was_sent_and_has_ended() {
    let mut timeline = Timeline::new();
    let minute = 60_000;
    let fresh = messages(timeline.pushed_late("Roof", 0, 20 * minute).changes);
    assert_eq!((seen(&fresh), fresh[0].late), (vec![("incident-001", 1, false)], false));
    let late = messages(timeline.pushed_late("Gate", 0, 20 * minute + 1).changes);
    assert_eq!((seen(&late), late[0].late, late[0].ts), (vec![("incident-002", 1, false)], true, at(0).stamp));
    let incident = timeline.raids.get("incident-002").unwrap();
    assert_eq!((incident.ended_at, incident.late), (Some(at(90_000).stamp), true));
    assert_eq!(seen(&timeline.pushed("Gate", 20 * minute + 2)), [("incident-003", 1, false)], "that of now is fresh");
}

#[test]
fn a_raid_that_goes_on_rings_however_much_of_it_came_late() {
    let mut timeline = Timeline::new();
    let (minute, now) = (60_000, 25 * 60_000 + 5_000);
    let opened: Vec<_> = (0..=25)
        .filter(|sent| timeline.pushed_late("Gate", sent * minute, now).opened)
        .map(|sent| sent * minute)
        .collect();
    assert_eq!(opened, [0, 6 * minute, 24 * minute], "what is late, what is over, and what goes on");
    let ends = |timeline: &Timeline| {
        let incidents = timeline.raids.incidents.values().map(|tracked| &tracked.incident);
        incidents.map(|incident| (incident.late, incident.count, incident.ended_at)).collect::<Vec<_>>()
    };
    let over = |last: i64| Some(at(last * minute + 90_000).stamp);
    assert_eq!(ends(&timeline), [(true, 6, over(5)), (false, 18, over(23)), (false, 2, None)]);
    timeline.named_alarm("7", "Gate", now + 1_000);
    timeline.named_alarm("7", "Gate", now + 60_000);
    assert_eq!(ends(&timeline)[2], (false, 3, None));
    // Pushes that are always late by a minute, or a clock that is: one raid nevertheless.
    let mut timeline = Timeline::new();
    let opened = (0..20).filter(|n| {
        timeline.tick(n * 20_000 + minute);
        timeline.pushed_late("Gate", n * 20_000, n * 20_000 + minute).opened
    });
    assert_eq!(opened.count(), 1);
    // A report of the same trigger by the other path belongs to the ended incident.
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    timeline.tick(90_001);
    assert!(!timeline.pushed_late("Front door", 5_000, 94_000).opened);
    assert!(timeline.pushed_late("Front door", 15_000, 94_000).opened);
}

#[test]
fn the_link_takes_over_an_incident_of_that_name_as_long_as_it_is_open() {
    let mut timeline = Timeline::new();
    timeline.pushed("Front door", 0);
    assert_eq!(seen(&timeline.alarm("7", 60_000)), [("incident-001", 2, true)], "the link was down until now");
    assert_eq!(timeline.raids.get("incident-001").unwrap().alarm_id, "7");
    assert_eq!(seen(&timeline.alarm("7", 160_000)), [("incident-003", 1, false)]);
}

#[test]
fn a_quiet_incident_ends_and_is_shown_for_a_day() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    assert!(timeline.raids.tick(at(90_000)).is_empty());
    assert_eq!(timeline.raids.tick(at(90_001)), [IncidentChange { incident: "incident-001".into(), message: None }]);
    assert_eq!(timeline.raids.get("incident-001").unwrap().ended_at, Some(at(90_000).stamp));
    assert!(timeline.raids.tick(at(90_002)).is_empty(), "once");
    let day = 24 * 3_600_000;
    assert!(timeline.raids.tick(at(day - 1)).is_empty());
    assert_eq!(timeline.raids.tick(at(day)).len(), 1, "it is gone");
    assert!(timeline.raids.get("incident-001").is_none());
}

#[test]
fn the_newest_are_shown_and_drills_apart_for_ten_minutes() {
    let mut timeline = Timeline::new();
    timeline.raids.drill(at(0), || "0".into());
    for number in 0..60 {
        alarm(&mut timeline.raids, &number.to_string(), "Roof", at(1), &format!("{number:02}"));
    }
    timeline.tick(2);
    assert_eq!(timeline.raids.incidents.len(), 60 + 1, "all that are open");
    timeline.tick(100_000);
    assert_eq!(timeline.raids.incidents.len(), 50 + 1);
    assert!(timeline.raids.get("09").is_none() && timeline.raids.get("10").is_some());
    timeline.tick(600_000);
    assert!(timeline.raids.get("0").is_none() && timeline.raids.get("10").is_some());
}

#[test]
fn alarms_that_flap_at_the_same_time_are_one_incident_each_and_all_of_them_end() {
    let mut timeline = Timeline::new();
    let alarms = 60;
    for second in 0..20 {
        for number in 0..alarms {
            timeline.alarm(&number.to_string(), second * 1_000 + number);
        }
        timeline.tick(second * 1_000 + 999);
    }
    let incidents = || timeline.raids.incidents.values().map(|tracked| &tracked.incident);
    assert_eq!(incidents().count(), 60);
    assert!(incidents().all(|incident| incident.count == 20 && incident.ended_at.is_none()));
    let first = timeline.raids.incidents.keys().next().unwrap().clone();
    timeline.raids.acknowledge(&first, &"alice".into(), at(20_000).stamp);
    let repeat = alarm(&mut timeline.raids, "0", "Front door", at(60_000), "another");
    assert_eq!((repeat.incident, repeat.opened), (first, false), "who took note is not woken");
    let ended = timeline.raids.tick(at(200_000));
    assert_eq!(ended.len(), 60);
    assert!(timeline.raids.incidents.values().all(|tracked| tracked.incident.ended_at.is_some()));
}

#[test]
fn an_acknowledgement_is_noted_once_for_each_user() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    let mut acknowledge = |user: &str, after| timeline.raids.acknowledge("incident-001", &user.into(), at(after).stamp);
    assert!(acknowledge("alice", 5).is_some());
    assert!(acknowledge("alice", 6).is_none());
    assert!(acknowledge("bob", 7).is_some());
    let acks = &timeline.raids.get("incident-001").unwrap().acks;
    assert_eq!((acks.len(), acks[&"alice".into()]), (2, at(5).stamp));
    assert!(timeline.raids.acknowledge("another", &"alice".into(), at(8).stamp).is_none());
    assert_eq!(seen(&timeline.alarm("7", 20_000)), [("incident-001", 2, true)], "it silences no other user");
}

#[test]
fn what_a_user_who_is_gone_took_note_of_is_forgotten() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    timeline.alarm("8", 1);
    for user in ["alice", "bob"] {
        timeline.raids.acknowledge("incident-001", &user.into(), at(5).stamp);
    }
    let changes = timeline.raids.forget_user(&"alice".into());
    assert_eq!(changes, [IncidentChange { incident: "incident-001".into(), message: None }]);
    let acks = &timeline.raids.get("incident-001").unwrap().acks;
    assert_eq!(acks.keys().collect::<Vec<_>>(), [&"bob".into()]);
}

#[test]
fn a_path_or_name_that_is_new_is_shown_at_once_and_rings_no_one() {
    let mut timeline = Timeline::new();
    timeline.alarm("7", 0);
    let update = timeline.pushed_late("Front door", 1_000, 1_000);
    assert_eq!(update.changes, [IncidentChange { incident: "incident-001".into(), message: None }]);
    let paths = &timeline.raids.get("incident-001").unwrap().paths;
    assert_eq!(paths.iter().copied().collect::<Vec<_>>(), [AlarmPath::Link, AlarmPath::Push]);
    assert!(timeline.pushed_late("Front door", 2_000, 2_000).changes.is_empty(), "a repeat waits for its turn");
}

proptest! {
    #[test]
    fn every_trigger_is_in_exactly_one_incident_and_the_last_count_sent_is_right(
        steps in prop::collection::vec((prop_oneof![0_i64..3_000, 0_i64..120_000], 0_u8..3, any::<bool>()), 1..200),
    ) {
        let mut timeline = Timeline::new();
        let mut now = 0;
        let mut triggers = HashMap::<u8, u32>::new();
        let mut last_sent = HashMap::<String, Raid>::new();
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
                    last_sent.insert(raid.incident.clone(), raid);
                }
            }
            if last.insert(alarm, now).is_none_or(|before| now - before > 90_000) {
                *triggers.entry(alarm).or_default() += 1;
            }
            *expected.entry((alarm, triggers[&alarm])).or_default() += 1;
            for raid in timeline.alarm(&alarm.to_string(), now) {
                prop_assert_eq!(raid.update, last_sent.contains_key(&raid.incident));
                sent_at.insert(raid.incident.clone(), now);
                last_sent.insert(raid.incident.clone(), raid);
            }
        }
        for raid in timeline.tick(now + 10_000) {
            last_sent.insert(raid.incident.clone(), raid);
        }
        let mut counts: Vec<_> = last_sent.values().map(|raid| raid.count).collect();
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
        let mut last_sent = HashMap::<String, u32>::new();
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
                let before = last_sent.insert(raid.incident, raid.count);
                prop_assert!(raid.update == before.is_some() && before.is_none_or(|before| before <= raid.count));
            }
        }
        last_sent.extend(timeline.tick(now + 10_000).into_iter().map(|raid| (raid.incident, raid.count)));
        let seen = last_sent.values().sum::<u32>();
        prop_assert!((linked.max(pushed)..=linked + pushed).contains(&seen));
    }
}
