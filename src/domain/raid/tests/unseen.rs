//! A rise that the link missed, and the pushes of that time.

use super::*;

#[test]
fn a_rise_that_the_link_missed_is_the_trigger_that_a_push_reported() {
    let (lost, back) = (100_000, 900_000);
    // By name, and by a title that is known from before.
    for (title, known) in [("Front door", false), ("You're getting raided!", true)] {
        let mut timeline = Timeline::new();
        if known {
            timeline.alarm("7", 0);
            timeline.pushed(title, 1_000);
        }
        let opened = timeline.pushed(title, lost + 60_000)[0].incident.clone();
        timeline.tick(lost + 200_000);
        assert!(timeline.raids.get(&opened).unwrap().ended_at.is_some(), "it is over by now");
        let update = timeline.unseen("7", "Front door", lost, back);
        assert_eq!((update.incident.as_str(), update.opened, update.first_by_path), (opened.as_str(), false, true));
        assert!(update.changes.iter().all(|change| change.message.as_ref().is_none_or(|raid| raid.update)));
        let incident = timeline.raids.get(&opened).unwrap();
        assert_eq!((incident.alarm_id.as_str(), incident.count, incident.paths.len()), ("7", 1, 2));
        assert!(timeline.named_alarm("7", "Front door", back + 60_000)[0].incident != opened, "a new one rings");
    }
}

#[test]
fn a_rise_that_the_link_missed_is_the_only_push_that_is_open() {
    let mut timeline = Timeline::new();
    let opened = timeline.pushed("You're getting raided!", 110_000)[0].incident.clone();
    let update = timeline.unseen("7", "Smart alarm", 100_000, 170_000);
    assert_eq!((update.incident.as_str(), update.opened), (opened.as_str(), false));
    assert_eq!(seen(&messages(update.changes)), [(opened.as_str(), 1, true)], "said at once: they may be two");
    assert!(timeline.unseen("8", "Smart alarm", 100_000, 170_001).opened, "a second alarm rings");
}

#[test]
fn a_rise_that_the_link_missed_is_one_more_than_an_earlier_push() {
    let mut timeline = Timeline::new();
    let opened = timeline.pushed("Front door", 50_000)[0].incident.clone();
    let update = timeline.unseen("7", "Front door", 100_000, 130_000);
    assert_eq!((update.incident.as_str(), update.opened), (opened.as_str(), false));
    let incident = timeline.raids.get(&opened).unwrap();
    assert_eq!((incident.count, incident.last_at), (2, at(130_000).stamp));
}

#[test]
fn a_rise_that_neither_the_link_nor_a_push_reported_rings() {
    let mut timeline = Timeline::new();
    timeline.pushed("Front door", 50_000);
    assert!(timeline.unseen("7", "Front door", 100_000, 900_000).opened, "the push was before the link was lost");
    timeline.pushed("Gate", 950_000);
    timeline.tick(1_100_000);
    assert!(timeline.unseen("8", "Roof", 940_000, 1_900_000).opened, "the push may be of another, and is over");
    // The link saw the last trigger itself; the alarm was off since.
    timeline.alarm("9", 2_000_000);
    assert!(timeline.unseen("9", "Front door", 2_001_000, 2_300_000).opened);
}

/// At this time another process takes up what this one knew.
fn restart(timeline: &mut Timeline, milliseconds: i64) {
    for (id, tracked) in std::mem::take(&mut timeline.raids).incidents {
        timeline.raids.restore(id, tracked.incident, tracked.title, at(milliseconds));
    }
}

#[test]
fn a_rise_that_the_link_missed_is_not_what_was_pushed_before_the_clock_was_set_back() {
    // By much, and by little more than the quiet time.
    for pushed in [1_600_000, 155_000] {
        for is_linked in [true, false] {
            let mut timeline = Timeline::new();
            if is_linked {
                timeline.named_alarm("7", "Front door", pushed);
            }
            timeline.pushed("Front door", pushed);
            timeline.tick(pushed + 100_000);
            restart(&mut timeline, 150_000);
            let set_back = timeline.unseen("7", "Front door", 100_000, 170_000);
            assert!(set_back.opened, "it would ring for no user: {set_back:?}");
        }
    }
}

#[test]
fn a_delayed_push_is_not_what_was_over_before_the_clock_was_set_back() {
    let mut timeline = Timeline::new();
    timeline.pushed("Front door", 1_600_000);
    timeline.tick(1_700_000);
    restart(&mut timeline, 150_000);
    assert!(timeline.pushed_late("Front door", 100_000, 200_000).opened);
}

#[test]
fn a_rise_that_the_link_missed_goes_on_with_what_was_open_when_the_clock_was_set_back() {
    let mut timeline = Timeline::new();
    let opened = timeline.pushed("Front door", 1_600_000)[0].incident.clone();
    restart(&mut timeline, 150_000);
    let update = timeline.unseen("7", "Front door", 100_000, 170_000);
    assert_eq!((update.incident.as_str(), update.opened), (opened.as_str(), false));
    assert_eq!(timeline.raids.get(&opened).unwrap().count, 2, "it may be another one");
}

#[test]
fn a_broadcast_that_waited_is_the_trigger_that_only_a_push_reported() {
    let (asleep, awake) = (100_000, 900_000);
    let mut timeline = Timeline::new();
    let opened = timeline.pushed("Front door", 150_000)[0].incident.clone();
    timeline.tick(600_000);
    for millisecond in [awake, awake + 2_000] {
        let update = timeline.waited("7", "Front door", asleep, millisecond);
        assert_eq!((update.incident.as_str(), update.opened), (opened.as_str(), false));
    }
    let incident = timeline.raids.get(&opened).unwrap();
    assert_eq!((incident.count, incident.last_at, incident.paths.len()), (1, at(150_000).stamp, 2));
    assert!(timeline.named_alarm("7", "Front door", awake + 10_000)[0].incident != opened, "a new one rings");
}

#[test]
fn a_broadcast_that_waited_rings_if_no_push_was_of_it_alone() {
    let mut timeline = Timeline::new();
    timeline.named_alarm("7", "Front door", 150_000);
    timeline.pushed("Front door", 151_000);
    timeline.tick(600_000);
    assert!(timeline.waited("7", "Front door", 100_000, 900_000).opened, "the link has seen what was pushed");
    timeline.pushed("Gate", 950_000);
    assert!(timeline.waited("8", "Gate", 960_000, 1_500_000).opened, "the push came before");
}
