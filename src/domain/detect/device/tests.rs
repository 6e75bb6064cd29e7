use super::*;
use crate::domain::{
    detect::{
        events::{EventWindow, MapContext},
        testing::at,
    },
    incident::DevicePlace,
};

/// One device and its events.
struct Base {
    devices: Devices,
    window: EventWindow,
    id: Arc<str>,
    device: Device,
}

impl Base {
    fn new(kind: DeviceKind) -> Self {
        let device = Device {
            kind,
            name: "Smart device".into(),
            label: Some("Gate".into()),
            value: None,
            reachable: Reachable::Ok,
            place: DevicePlace::default(),
            storage: None,
            turns_back: None,
        };
        Self { devices: Devices::default(), window: EventWindow::default(), id: "7".into(), device }
    }

    fn events(&mut self, seconds: i64, answered: bool) -> Vec<(&'static str, Value)> {
        let around = MapContext { map_size: 4_000, monuments: &[] };
        let mut events = Events::new(&around, at(seconds), false, &mut self.window);
        self.devices.follow(&self.id, &self.device, &mut events, answered);
        events.finish().into_iter().map(|event| (event.action, Value::Object(event.data))).collect()
    }

    fn words(&mut self, seconds: i64, answered: bool) -> Vec<&'static str> {
        self.events(seconds, answered).into_iter().map(|(action, _)| action).collect()
    }

    fn turned(&mut self, seconds: i64, on: bool) -> Vec<&'static str> {
        self.device.value = Some(on);
        self.words(seconds, true)
    }

    fn stored(&mut self, seconds: i64, used: i32, capacity: i32) -> Vec<&'static str> {
        let storage = Storage { capacity, used, items: Vec::new(), has_protection: false, protection_expires_at: None };
        self.device.storage = Some(storage);
        self.words(seconds, true)
    }

    /// A tool cupboard whose upkeep ends then; `None`: it has none.
    fn protected(&mut self, seconds: i64, until: Option<i64>) -> Vec<&'static str> {
        let storage = Storage {
            capacity: 29,
            used: 4,
            items: Vec::new(),
            has_protection: true,
            protection_expires_at: until.map(|until| at(until).stamp),
        };
        self.device.storage = Some(storage);
        self.words(seconds, true)
    }

    fn due(&self, seconds: i64) -> Option<i64> {
        self.devices.next_due(at(seconds)).map(|due| due.steady().num_seconds())
    }

    /// Restarts with the same devices.
    fn restarted(mut self) -> Self {
        let changed = self.devices.take_changed();
        let mut devices = Devices::default();
        for (id, reported) in changed {
            let stored = serde_json::to_string(&reported).unwrap();
            devices.remember(&id, serde_json::from_str(&stored).unwrap());
        }
        Self { devices, window: EventWindow::default(), ..self }
    }
}

const HOUR: i64 = 3_600;

#[test]
fn a_switch_that_is_turned_is_an_event_and_how_it_is_first_seen_is_none() {
    let mut base = Base::new(DeviceKind::Switch);
    assert_eq!(base.turned(0, true), [""; 0]);
    assert_eq!(base.turned(10, false), ["turned_off"]);
    assert_eq!(base.turned(20, false), [""; 0]);
    let mut base = base.restarted();
    assert_eq!(base.turned(100, false), [""; 0], "a restart repeats nothing");
    let mut base = base.restarted();
    base.devices.remember(&base.id, ReportedFacts { on: Some(false), there: Some(true), ..ReportedFacts::default() });
    assert_eq!(base.turned(200, true), ["turned_on"], "turned while the link was down");
}

#[test]
fn who_toggles_a_switch_has_turned_it_and_no_one_else_has() {
    let mut base = Base::new(DeviceKind::Switch);
    base.turned(0, false);
    let by = |events: Vec<(&'static str, Value)>| events[0].1["by"].clone();
    let toggled = |base: &mut Base, seconds, value| base.devices.toggled("7", value, "ann".into(), at(seconds));
    toggled(&mut base, 10, Some(true));
    base.device.value = Some(true);
    assert_eq!(by(base.events(11, true)), "ann");
    base.device.value = Some(false);
    assert_eq!(by(base.events(12, true)), Value::Null, "it was turned in the game");
    toggled(&mut base, 20, None);
    base.device.value = Some(true);
    assert_eq!(by(base.events(31, true)), Value::Null, "that was long ago");
    toggled(&mut base, 40, Some(true));
    base.device.value = Some(false);
    assert_eq!(by(base.events(41, true)), Value::Null, "she wanted the opposite");
}

#[test]
fn a_switch_that_blinks_is_a_few_events_and_then_as_it_stays() {
    let mut base = Base::new(DeviceKind::Switch);
    base.turned(0, false);
    let events: usize = (1..=601).map(|second| base.turned(second, second % 2 == 1).len()).sum();
    assert!((EVENTS..=EVENTS + 1).contains(&events), "{events}");
    assert_eq!(base.turned(602, false), [""; 0]);
    base.turned(603, true);
    let mut now = 603;
    let mut last = Vec::new();
    while let Some(due) = base.due(now) {
        assert!(due > now, "it is not due all the time");
        now = due;
        last.extend(base.words(now, false));
    }
    assert!(last.is_empty() || last == ["turned_on"] || last == ["turned_off"], "{last:?}");
    assert_eq!(base.devices.watched["7"].reported().on, Some(true));
}

#[test]
fn a_device_that_is_gone_is_unreachable_after_a_moment_and_silence_says_nothing() {
    let mut base = Base::new(DeviceKind::Switch);
    base.turned(0, true);
    for silent in [Reachable::NoResponse, Reachable::Pending] {
        base.device.reachable = silent;
        assert_eq!(base.words(100, true), [""; 0]);
        assert_eq!(base.due(100), None);
    }
    base.device.reachable = Reachable::Removed;
    assert_eq!(base.words(200, true), [""; 0]);
    assert_eq!(base.due(200), Some(205));
    base.device.reachable = Reachable::Ok;
    assert_eq!(base.words(202, true), [""; 0], "it was there after all");
    assert_eq!(base.due(202), None);
    base.device.reachable = Reachable::Removed;
    base.words(300, true);
    assert_eq!(base.words(305, false), ["unreachable"]);
    let mut base = base.restarted();
    assert_eq!(base.words(400, true), [""; 0]);
    base.device.reachable = Reachable::Ok;
    base.words(500, true);
    assert_eq!(base.words(505, false), ["reachable"]);
}

#[test]
fn without_a_link_nothing_is_due_and_what_was_due_waits_for_an_answer() {
    let mut base = Base::new(DeviceKind::StorageMonitor);
    base.protected(0, Some(25 * HOUR));
    assert_eq!(base.due(0), Some(HOUR));
    base.devices.link_lost(at(5));
    assert_eq!(base.due(10), None);
    assert_eq!(base.words(2 * HOUR, false), [""; 0]);
    assert_eq!(base.protected(2 * HOUR, Some(40 * HOUR)), [""; 0], "it was refilled meanwhile");
}

#[test]
fn after_a_wipe_devices_are_gone_without_a_word() {
    let mut base = Base::new(DeviceKind::Alarm);
    base.turned(0, true);
    base.devices.take_changed();
    base.devices.wiped();
    assert_eq!(base.devices.take_changed().len(), 1);
    base.device.reachable = Reachable::Removed;
    assert_eq!(base.words(10, true), [""; 0]);
    assert_eq!(base.due(10), None);
}

#[test]
fn a_container_is_full_once_until_a_tenth_is_free_and_empty_once() {
    let mut base = Base::new(DeviceKind::StorageMonitor);
    assert_eq!(base.stored(0, 47, 48), [""; 0]);
    assert_eq!(base.stored(10, 48, 48), [""; 0], "it may be on its way");
    assert_eq!(base.words(15, false), ["full"]);
    for (seconds, used) in [(20, 46), (30, 48), (40, 45), (50, 48)] {
        base.stored(seconds, used, 48);
        assert_eq!(base.words(seconds + 6, false), [""; 0]);
    }
    base.stored(60, 44, 48);
    assert_eq!(base.words(66, false), [""; 0]);
    base.stored(70, 48, 48);
    assert_eq!(base.words(76, false), ["full"]);
    base.stored(80, 0, 48);
    assert_eq!(base.words(86, false), ["empty"]);
}

#[test]
fn a_storage_monitor_without_power_says_nothing_of_its_contents() {
    let mut base = Base::new(DeviceKind::StorageMonitor);
    base.stored(0, 10, 48);
    base.stored(10, 0, 0);
    assert_eq!(base.due(10), Some(15));
    assert_eq!(base.words(15, false), ["power_lost"]);
    assert_eq!(base.due(15), None);
    base.stored(20, 10, 48);
    assert_eq!(base.words(25, false), [""; 0]);
    base.stored(30, 0, 0);
    base.stored(31, 10, 48);
    assert_eq!(base.words(40, false), [""; 0], "it flickered");
}

#[test]
fn upkeep_is_low_at_each_limit_once_and_again_after_it_was_refilled() {
    let mut base = Base::new(DeviceKind::StorageMonitor);
    let end = 26 * HOUR;
    assert_eq!(base.protected(0, Some(end)), [""; 0]);
    let (mut now, mut said) = (0, Vec::new());
    while let Some(due) = base.due(now) {
        assert!(due > now);
        now = due;
        said.extend(base.events(now, false).into_iter().map(|(action, data)| (now, action, data["hours"].clone())));
    }
    let said: Vec<_> = said.iter().map(|(at, action, hours)| (at - 5, *action, hours.as_i64())).collect();
    let expected =
        [(2 * HOUR, "upkeep_low", Some(24)), (20 * HOUR, "upkeep_low", Some(6)), (26 * HOUR, "decaying", None)];
    assert_eq!(said, expected);
    // A little more is not enough.
    base.protected(now + 10, Some(now + 300));
    assert_eq!(base.words(now + 20, false), [""; 0]);
    base.protected(now + 30, None);
    assert_eq!(base.words(now + 40, false), [""; 0], "that was said");
    base.protected(now + 50, Some(now + 50 + HOUR));
    assert_eq!(base.words(now + 60, false), [""; 0]);
    base.protected(now + 70, None);
    assert_eq!(base.words(now + 80, false), ["decaying"]);
}

#[test]
fn no_room_for_an_event_is_no_loop() {
    let mut base = Base::new(DeviceKind::Switch);
    base.turned(0, false);
    for _ in 0..300 {
        base.window.record(at(1));
    }
    assert_eq!(base.turned(1, true), [""; 0]);
    assert_eq!(base.due(1), Some(11));
    assert_eq!(base.words(62, false), ["turned_on"]);
}
