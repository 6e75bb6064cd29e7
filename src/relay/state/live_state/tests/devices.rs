//! Devices: their alarms, answers that came late, and their age.

use super::*;

#[test]
fn an_alarm_that_goes_off_triggers_once_with_its_label() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    assert!(watched.update(answer(AppEntityType::Alarm, value(false))).own.alarms.is_empty());
    watched.now = 1;
    let trigger = AlarmTrigger {
        device: "42".into(),
        name: "Front door".into(),
        place: Default::default(),
        time: TriggerTime::Now,
    };
    assert_eq!(watched.update(changed(value(true))).own.alarms, [trigger]);
    assert_eq!(watched.client["devices"]["42"]["value"], true);
    assert!(watched.update(answer(AppEntityType::Alarm, value(true))).own.alarms.is_empty(), "it is still on");
    watched.update(OwnUpdate::Device { device: "42".into(), answer: Err(AskError::Refused("not_found".into())) });
    assert_eq!(watched.client["devices"]["42"]["reachable"], "removed");
    assert!(
        watched.update(OwnUpdate::Device { device: "9".into(), answer: Err(AskError::TimedOut) }).changes.is_empty(),
        "unknown"
    );
}

#[test]
fn a_rise_after_a_time_without_a_link_is_unseen_since_its_first_moment() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    watched.update(answer(AppEntityType::Alarm, value(false)));
    watched.now = 10;
    watched.update(GameUpdate::Unread);
    assert_eq!(watched.client["server"]["connection"], "connected", "a moment is not shown");
    watched.now = 15;
    let (state, reason) = (ConnectionState::Waiting, Some(LinkReason::NoSlot));
    watched.update(GameUpdate::Disconnected { state, reason, next_attempt_at: None });
    watched.now = 180;
    watched.update(GameUpdate::Connected(info(1_000)));
    let alarms = watched.update(answer(AppEntityType::Alarm, value(true))).own.alarms;
    assert_eq!(alarms[0].time, TriggerTime::AfterGap(at(10).into()));
}

#[test]
fn a_rise_by_a_broadcast_that_waited_may_have_been_at_any_time_since() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    watched.update(answer(AppEntityType::Alarm, value(false)));
    watched.now = 3_600;
    watched.update(GameUpdate::Waited(Some(at(10))));
    let alarms = watched.update(changed(value(true))).own.alarms;
    assert_eq!(alarms[0].time, TriggerTime::Waited(at(10).into()));
    watched.update(changed(value(false)));
    watched.now = 3_700;
    watched.update(GameUpdate::Waited(None));
    assert_eq!(watched.update(changed(value(true))).own.alarms[0].time, TriggerTime::Now);
}

#[test]
fn a_broadcast_over_the_link_of_a_mate_makes_no_late_answer_new() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    watched.update(answer_after(0, AppEntityType::Alarm, value(false)));
    watched.now = 10;
    assert_eq!(watched.update(changed_with(5, value(true))).own.alarms.len(), 1);
    watched.update(changed_with(0, value(true)));
    // The first does not count at all.
    for _ in 0..2 {
        watched.update(answer_after(4, AppEntityType::Alarm, value(false)));
        assert_eq!(watched.client["devices"]["42"]["value"], true);
    }
}

#[test]
fn an_answer_that_the_link_before_has_overtaken_is_no_alarm_and_is_asked_for_again() {
    // The link of the mate has said by then that the alarm is off, or has not.
    for is_repeated in [true, false] {
        let mut watched = Watched::connected();
        watched.update(paired(DeviceKind::Alarm));
        watched.update(answer_after(0, AppEntityType::Alarm, value(true)));
        watched.now = 10;
        watched.update(changed_with(7, value(false)));
        watched.update(GameUpdate::LinkSwitched { asked_since: at(9).into() });
        if is_repeated {
            watched.update(changed_with(1, value(false)));
        }
        let own = watched.update(answer_after(0, AppEntityType::Alarm, value(true))).own;
        assert_eq!((own.alarms.len(), own.ask_again.as_deref()), (0, Some("42")), "{is_repeated}");
        assert_eq!(watched.client["devices"]["42"]["value"], false);
        watched.now = 12;
        let own = watched.update(answer_after(1, AppEntityType::Alarm, value(true))).own;
        assert_eq!((own.alarms.len(), own.ask_again), (1, None), "it has gone on since: {is_repeated}");
    }
}

#[test]
fn an_answer_that_was_asked_for_after_the_last_word_of_the_link_before_is_newer() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    watched.update(answer_after(0, AppEntityType::Alarm, value(true)));
    watched.now = 10;
    watched.update(changed_with(7, value(false)));
    watched.now = 12;
    watched.update(GameUpdate::LinkSwitched { asked_since: at(11).into() });
    assert_eq!(watched.update(answer_after(0, AppEntityType::Alarm, value(true))).own.alarms.len(), 1);
}

#[test]
fn an_answer_that_the_link_of_a_mate_has_overtaken_is_no_alarm_and_is_asked_for_again() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    watched.update(answer_after(0, AppEntityType::Alarm, value(true)));
    watched.now = 10;
    watched.update(changed_with(0, value(false)));
    watched.update(changed_with(1, value(false)));
    let own = watched.update(answer_after(0, AppEntityType::Alarm, value(true))).own;
    assert_eq!((own.alarms.len(), own.ask_again.as_deref()), (0, Some("42")));
    assert_eq!(watched.client["devices"]["42"]["value"], false);
}

#[test]
fn an_alarm_that_is_paired_again_is_a_new_one() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    watched.update(answer(AppEntityType::Alarm, value(false)));
    let gone = watched.update(OwnUpdate::Devices(HashMap::new()));
    assert_eq!(gone.own.alarm_values, [("42".into(), None)]);
    watched.update(paired(DeviceKind::Alarm));
    assert!(
        watched.update(answer(AppEntityType::Alarm, value(true))).own.alarms.is_empty(),
        "it was on when it was paired"
    );
}

#[test]
fn a_tool_cupboard_is_asked_again_after_a_broadcast() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::StorageMonitor));
    let contents = |has_protection| AppEntityPayload {
        capacity: Some(24),
        has_protection: Some(has_protection),
        ..AppEntityPayload::default()
    };
    watched.update(answer(AppEntityType::StorageMonitor, contents(true)));
    assert_eq!(watched.update(changed(contents(true))).own.ask_again.as_deref(), Some("42"));
    assert_eq!(watched.update(changed(contents(false))).own.ask_again, None);
}

#[test]
fn a_late_answer_of_an_alarm_is_neither_a_second_alarm_nor_the_end_of_the_first() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    watched.update(answer_after(0, AppEntityType::Alarm, value(false)));
    watched.now = 10;
    assert_eq!(watched.update(changed_with(1, value(true))).own.alarms.len(), 1);
    assert!(watched.update(answer_after(0, AppEntityType::Alarm, value(false))).own.alarms.is_empty());
    watched.now = 20;
    assert!(watched.update(answer_after(1, AppEntityType::Alarm, value(true))).own.alarms.is_empty(), "the same alarm");
    assert_eq!(watched.client["devices"]["42"]["value"], true);
}

#[test]
fn a_pulse_that_ended_while_the_alarm_was_asked_is_an_alarm() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Alarm));
    watched.update(answer_after(0, AppEntityType::Alarm, value(false)));
    watched.now = 10;
    assert!(watched.update(changed_with(1, value(false))).own.alarms.is_empty());
    assert_eq!(watched.update(answer_after(0, AppEntityType::Alarm, value(true))).own.alarms.len(), 1);
    assert_eq!(watched.client["devices"]["42"]["value"], false, "it is over");
}

#[test]
fn a_late_answer_says_what_the_device_is() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Unknown));
    watched.update(changed_with(1, value(true)));
    let outcome = watched.update(answer_after(0, AppEntityType::Alarm, value(false)));
    assert_eq!((outcome.own.alarms.len(), outcome.own.ask_again), (1, None), "the broadcast said that it went off");
    assert_eq!(watched.client["devices"]["42"]["value"], true);

    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Unknown));
    let contents = AppEntityPayload { capacity: Some(24), ..AppEntityPayload::default() };
    watched.update(changed_with(1, contents.clone()));
    let outcome = watched.update(answer_after(0, AppEntityType::StorageMonitor, contents));
    assert_eq!(outcome.own.ask_again.as_deref(), Some("42"));
    assert_eq!(watched.client["devices"]["42"]["storage"]["capacity"], 24);
}

#[test]
fn a_device_that_spoke_while_it_was_asked_in_vain_does_answer() {
    let mut watched = Watched::connected();
    watched.update(paired(DeviceKind::Switch));
    watched.update(changed(value(true)));
    let silence = || OwnUpdate::Device { device: "42".into(), answer: Err(AskError::TimedOut) };
    watched.update(silence());
    assert_eq!(watched.client["devices"]["42"]["reachable"], "ok");
    watched.now += 11;
    watched.update(silence());
    assert_eq!(watched.client["devices"]["42"]["reachable"], "no_response");
}

#[test]
fn devices_are_as_old_as_the_oldest_answer_of_one() {
    let mut watched = Watched::connected();
    let both = ["41", "42"].map(|id| (id.into(), device(DeviceKind::Switch)));
    watched.update(OwnUpdate::Devices(HashMap::from(both)));
    for id in ["41", "42"] {
        let content = Some(AppEntityInfo { r#type: AppEntityType::Switch.into(), payload: value(true) });
        watched.update(OwnUpdate::Device { device: id.into(), answer: Ok(Answered { asked_after: 0, content }) });
        watched.now += 100;
    }
    watched.now = 1_000;
    watched.tick();
    assert_eq!(watched.client["server"]["stale"]["devices"]["asOf"], at(0).to_wire());
}
