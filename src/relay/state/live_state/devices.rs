//! The devices in the live state: which are paired, what they answer, what is broadcast about them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use chrono::TimeDelta;

use super::LiveState;
use crate::{
    domain::{
        change::{Change, Section},
        detect::alarm::Alarms,
        device::{Device, DeviceKind, DeviceReport, Reachable, TurnBack},
        grid::{self, GridStyle},
        ids::UserId,
        incident::DevicePlace,
        time::{Moment, Timestamp},
    },
    game::{
        link::{Answered, AskError},
        reading,
        wire::{AppEntityChanged, AppEntityInfo},
    },
    relay::state::{
        game_update::PairedDevice,
        outcome::{AlarmTrigger, Outcome},
    },
};

/// A device that was heard of within this time does answer, although one question stayed without: no one waits longer.
const HEARD_LATELY: TimeDelta = TimeDelta::seconds(10);

fn device_place(place: Option<(f64, f64)>, map_size: u32) -> DevicePlace {
    let Some((x, y)) = place else { return DevicePlace::default() };
    DevicePlace { x: Some(x), y: Some(y), grid: grid::label(GridStyle::InGame, map_size, x, y) }
}

impl LiveState {
    pub(super) fn update_devices(&mut self, known: HashMap<Arc<str>, PairedDevice>, outcome: &mut Outcome) {
        self.heard.retain(|id, _| known.contains_key(id));
        self.frames_at.retain(|id, _| known.contains_key(id));
        self.device_broadcasts.retain(|id, _| known.contains_key(id));
        self.detectors.devices.retain(|id| known.contains_key(id));
        // One that is paired again is a new one.
        let unpaired = self.alarms.retain(|id| known.contains_key(id));
        outcome.alarm_values.extend(unpaired.into_iter().map(|id| (id.into(), None)));
        let map_size = self.map_size();
        let device = |(id, known): (Arc<str>, PairedDevice)| {
            let PairedDevice { kind, name, label, last_value, reported, place } = known;
            if let Some(value) = last_value {
                self.alarms.remember(&id, value);
            }
            if let Some(reported) = reported {
                self.detectors.devices.remember(&id, reported);
            }
            let place = device_place(place, map_size);
            let turns_back = self.turn_backs.get(&id).copied();
            let (value, storage, reachable) = (None, None, Reachable::Pending);
            let device = match self.state.devices.get(&id) {
                Some(device) => Device { name, label, place, ..Device::clone(device) },
                None => Device { kind, name, label, place, value, reachable, storage, turns_back },
            };
            (id, device)
        };
        let devices: Vec<_> = known.into_iter().map(device).collect();
        self.state.devices.replace(Section::Devices, devices, &mut outcome.changes);
    }

    /// The map has this size now: a place may have another label.
    pub(super) fn label_devices(&mut self, changes: &mut Vec<Change>) {
        let map_size = self.map_size();
        let all: Vec<_> = self.state.devices.iter().map(|(id, device)| (id.clone(), Device::clone(device))).collect();
        for (id, device) in all {
            let place = device_place(device.place.x.zip(device.place.y), map_size);
            self.state.devices.put(Section::Devices, id, Some(Device { place, ..device }), changes);
        }
    }

    pub(super) fn show_turn_backs(&mut self, backs: HashMap<Arc<str>, TurnBack>, changes: &mut Vec<Change>) {
        let before = std::mem::replace(&mut self.turn_backs, backs);
        let ids = before.keys().chain(self.turn_backs.keys().filter(|id| !before.contains_key(*id)));
        for id in ids {
            let turns_back = self.turn_backs.get(id).copied();
            if turns_back != before.get(id).copied()
                && let Some(device) = self.state.devices.get(id).map(|device| Device::clone(device))
            {
                self.state.devices.put(Section::Devices, id.clone(), Some(Device { turns_back, ..device }), changes);
            }
        }
    }

    /// The devices, and when each was last heard of.
    pub fn devices(&self) -> HashMap<Arc<str>, DeviceReport> {
        let report = |(id, device): (&Arc<str>, &Arc<Device>)| {
            let heard = self.heard.get(id).map(|heard| heard.stamp);
            let as_of = heard.or_else(|| self.frames_at.get(id).copied());
            (id.clone(), DeviceReport { device: Device::clone(device), as_of })
        };
        self.state.devices.iter().map(report).collect()
    }

    /// The paired alarms of this name.
    pub fn alarms_named(&self, name: &str) -> BTreeSet<String> {
        let is_named = |device: &Device| device.name == name || device.label.as_deref() == Some(name);
        let alarms = self.state.devices.iter().filter(|(_, device)| device.kind == DeviceKind::Alarm);
        alarms.filter(|(_, device)| is_named(device)).map(|(id, _)| id.to_string()).collect()
    }

    pub(super) fn update_device(
        &mut self,
        id: Arc<str>,
        answer: Result<Answered<Option<AppEntityInfo>>, AskError>,
        now: Moment,
        outcome: &mut Outcome,
    ) {
        let Some(device) = self.state.devices.get(&id) else { return };
        let mut device = Device::clone(device);
        match answer {
            Ok(Answered { asked_after, content: Some(info) }) => {
                self.heard.insert(id.clone(), now);
                match self.device_broadcasts.get(&id) {
                    Some(&number) if number > asked_after => {
                        self.answered_late(&id, &mut device, info, asked_after, number, now, outcome);
                    }
                    _ => {
                        device.kind = reading::device_kind(info.r#type);
                        reading::read_payload(&mut device, info.payload);
                        if let Some(value) = alarm_value(&device) {
                            let unseen_since = self.alarms.unseen_since(&id);
                            let triggers = self.observe(&id, outcome, |alarms| alarms.answered(&id, value, now));
                            trigger_if(triggers, &id, &device, unseen_since, outcome);
                        }
                    }
                }
            }
            Err(AskError::Refused(word)) if word == "not_found" => {
                self.heard.insert(id.clone(), now);
                // The device is asked once more before an event says so.
                outcome.ask_again = (device.reachable != Reachable::Removed).then(|| id.clone());
                device = Device { reachable: Reachable::Removed, value: None, storage: None, ..device };
            }
            Ok(_) | Err(_) => {
                if self.heard.get(&id).is_none_or(|heard| now - *heard > HEARD_LATELY) {
                    device.reachable = Reachable::NoResponse;
                }
            }
        }
        self.state.devices.put(Section::Devices, id.clone(), Some(device), &mut outcome.changes);
        self.device_seen(&id, now, outcome);
    }

    fn device_seen(&mut self, id: &Arc<str>, now: Moment, outcome: &mut Outcome) {
        let around = self.world.around();
        if let Some(device) = self.state.devices.get(id) {
            outcome.events.extend(self.detectors.device(&around, id, device, now));
        }
    }

    /// Events about devices that are due without an answer.
    pub(super) fn devices_due(&mut self, now: Moment, outcome: &mut Outcome) {
        let around = self.world.around();
        for (id, device) in self.state.devices.iter() {
            outcome.events.extend(self.detectors.device_due(&around, id, device, now));
        }
    }

    /// A user toggles a switch: what changes is by that user.
    pub fn toggled(&mut self, id: &str, value: Option<bool>, by: UserId, now: Moment) {
        self.detectors.devices.toggled(id, value, by, now);
    }

    /// A camera showed a frame of this time, or none.
    pub(super) fn camera_seen(
        &mut self,
        id: Arc<str>,
        reachable: Reachable,
        frame_at: Option<Timestamp>,
        outcome: &mut Outcome,
    ) {
        let known = self.state.devices.get(&id).filter(|device| device.kind == DeviceKind::Camera);
        if let Some(device) = known {
            if let Some(at) = frame_at {
                self.frames_at.insert(id.clone(), at);
            }
            let device = Device { reachable, ..Device::clone(device) };
            self.state.devices.put(Section::Devices, id, Some(device), &mut outcome.changes);
        }
    }

    /// An answer that was asked for before the last broadcast about the device, and may be older: what the broadcast
    /// said stays.
    #[expect(clippy::too_many_arguments, reason = "the answer in its parts")]
    fn answered_late(
        &mut self,
        id: &Arc<str>,
        device: &mut Device,
        info: AppEntityInfo,
        asked_after: u64,
        number: u64,
        now: Moment,
        outcome: &mut Outcome,
    ) {
        let was_unknown = device.kind == DeviceKind::Unknown;
        let answered = info.payload.value;
        device.kind = reading::device_kind(info.r#type);
        device.reachable = Reachable::Ok;
        match device.kind {
            DeviceKind::StorageMonitor => {
                // Contents cannot be read from a broadcast before the kind is known.
                if was_unknown {
                    device.value = None;
                    reading::read_payload(device, info.payload);
                }
                outcome.ask_again = Some(id.clone());
            }
            // The device was not known to be an alarm when the broadcast came.
            DeviceKind::Alarm if was_unknown => {
                let value = device.value;
                let changed = |alarms: &mut Alarms| value.is_some_and(|value| alarms.changed(id, value, number, now));
                let triggers = self.observe(id, outcome, changed);
                trigger_if(triggers, id, device, None, outcome);
            }
            DeviceKind::Alarm => {
                let triggers = answered.is_some_and(|value| self.alarms.answered_late(id, value, asked_after, now));
                if triggers {
                    // The value is that of the broadcast by now.
                    outcome.alarm_values.extend(device.value.map(|value| (id.clone(), Some(value))));
                }
                trigger_if(triggers, id, device, None, outcome);
            }
            _ => {}
        }
    }

    /// Lets the detector observe an alarm, and notes the value that is new; true if it triggers.
    fn observe(&mut self, id: &str, outcome: &mut Outcome, observe: impl FnOnce(&mut Alarms) -> bool) -> bool {
        let before = self.alarms.value(id);
        let triggers = observe(&mut self.alarms);
        if let Some(value) = self.alarms.value(id).filter(|value| before != Some(*value)) {
            outcome.alarm_values.push((id.into(), Some(value)));
        }
        triggers
    }

    pub(super) fn device_changed(
        &mut self,
        changed: AppEntityChanged,
        number: u64,
        now: Moment,
        outcome: &mut Outcome,
    ) {
        let id: Arc<str> = changed.entity_id.to_string().into();
        let Some(device) = self.state.devices.get(&id) else { return };
        let mut device = Device::clone(device);
        self.heard.insert(id.clone(), now);
        self.device_broadcasts.insert(id.clone(), number);
        reading::read_payload(&mut device, changed.payload);
        if device.storage.as_ref().is_some_and(|storage| storage.has_protection) {
            outcome.ask_again = Some(id.clone());
        }
        if let Some(value) = alarm_value(&device) {
            let triggers = self.observe(&id, outcome, |alarms| alarms.changed(&id, value, number, now));
            trigger_if(triggers, &id, &device, None, outcome);
        }
        self.state.devices.put(Section::Devices, id.clone(), Some(device), &mut outcome.changes);
        self.device_seen(&id, now, outcome);
    }
}

fn alarm_value(device: &Device) -> Option<bool> {
    device.value.filter(|_| device.kind == DeviceKind::Alarm)
}

fn trigger_if(triggers: bool, id: &Arc<str>, device: &Device, unseen_since: Option<Moment>, outcome: &mut Outcome) {
    if triggers {
        let name = device.label.clone().unwrap_or_else(|| device.name.clone());
        outcome.alarms.push(AlarmTrigger { device: id.clone(), name, place: device.place.clone(), unseen_since });
    }
}
