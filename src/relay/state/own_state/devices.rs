//! The devices of a paired server: which are paired, what they answer, what is broadcast about them.

use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;

use super::OwnState;
use crate::{
    domain::{
        change::Section,
        detect::{MapContext, alarm::Alarms},
        device::{Device, DeviceKind, DeviceReport, Reachable, TurnBack},
        grid::{self, GridStyle},
        ids::UserId,
        incident::DevicePlace,
        raid::TriggerTime,
        server_state::ServerState,
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
        state_step::StateStep,
    },
};

/// A device that was heard of within this time does answer, although one question stayed without: no one waits longer.
const HEARD_LATELY: TimeDelta = TimeDelta::seconds(10);

fn device_place(place: Option<(f64, f64)>, map_size: u32) -> DevicePlace {
    let Some((x, y)) = place else { return DevicePlace::default() };
    DevicePlace { x: Some(x), y: Some(y), grid: grid::label(GridStyle::InGame, map_size, x, y) }
}

impl OwnState {
    /// The devices that are paired now.
    pub fn update_devices(
        &mut self,
        known: HashMap<Arc<str>, PairedDevice>,
        around: &MapContext,
        step: &mut StateStep,
    ) {
        self.heard.retain(|id, _| known.contains_key(id));
        self.frames_at.retain(|id, _| known.contains_key(id));
        self.last_broadcasts.retain(|id, _| known.contains_key(id));
        self.said_elsewhere.retain(|id| known.contains_key(id));
        self.devices.retain(|id| known.contains_key(id));
        // One that is paired again is a new one.
        let unpaired = self.alarms.retain(|id| known.contains_key(id));
        step.outcome.own.alarm_values.extend(unpaired.into_iter().map(|id| (id.into(), None)));
        let device = |(id, known): (Arc<str>, PairedDevice)| {
            let PairedDevice { kind, name, label, last_value, reported, place } = known;
            if let Some(value) = last_value {
                self.alarms.remember(&id, value);
            }
            if let Some(reported) = reported {
                self.devices.remember(&id, reported);
            }
            let place = device_place(place, around.map_size);
            let turns_back = self.turn_backs.get(&id).copied();
            let (value, storage, reachable) = (None, None, Reachable::Pending);
            let device = match step.document.devices.get(&id) {
                Some(device) => Device { name, label, place, ..Device::clone(device) },
                None => Device { kind, name, label, place, value, reachable, storage, turns_back },
            };
            (id, device)
        };
        let devices: Vec<_> = known.into_iter().map(device).collect();
        step.document.devices.replace(Section::Devices, devices, &mut step.outcome.changes);
    }

    /// The map has this size now: a place may have another label.
    pub(super) fn label_devices(&self, around: &MapContext, step: &mut StateStep) {
        for (id, device) in all_devices(step.document) {
            let place = device_place(device.place.x.zip(device.place.y), around.map_size);
            show(id, Device { place, ..device }, step);
        }
    }

    /// A new map: all devices are gone.
    pub(super) fn remove_devices(&self, step: &mut StateStep) {
        for (id, device) in all_devices(step.document) {
            show(id, Device { reachable: Reachable::Removed, value: None, storage: None, ..device }, step);
        }
    }

    /// The switches that turn back, all of them.
    pub fn show_turn_backs(&mut self, backs: HashMap<Arc<str>, TurnBack>, step: &mut StateStep) {
        let before = std::mem::replace(&mut self.turn_backs, backs);
        let ids = before.keys().chain(self.turn_backs.keys().filter(|id| !before.contains_key(*id)));
        for id in ids {
            let turns_back = self.turn_backs.get(id).copied();
            if turns_back != before.get(id).copied()
                && let Some(device) = step.document.devices.get(id).map(|device| Device::clone(device))
            {
                show(id.clone(), Device { turns_back, ..device }, step);
            }
        }
    }

    /// The devices, and when each was last heard of.
    pub fn device_reports(&self, document: &ServerState) -> HashMap<Arc<str>, DeviceReport> {
        let report = |(id, device): (&Arc<str>, &Arc<Device>)| {
            let heard = self.heard.get(id).map(|heard| heard.stamp);
            let as_of = heard.or_else(|| self.frames_at.get(id).copied());
            (id.clone(), DeviceReport { device: Device::clone(device), as_of })
        };
        document.devices.iter().map(report).collect()
    }

    /// The oldest answer of a device.
    pub fn devices_heard_at(&self) -> Option<Moment> {
        self.heard.values().min().copied()
    }

    /// A device's answer, or why there is none.
    pub fn update_device(
        &mut self,
        id: Arc<str>,
        answer: Result<Answered<Option<AppEntityInfo>>, AskError>,
        around: &MapContext,
        step: &mut StateStep,
    ) {
        let Some(device) = step.document.devices.get(&id) else { return };
        let mut device = Device::clone(device);
        let now = step.now;
        match answer {
            Ok(Answered { asked_after, content: Some(info) }) => {
                self.heard.insert(id.clone(), now);
                let last = self.last_broadcasts.get(&id).map(|(number, _)| *number);
                if self.said_elsewhere.remove(&id) {
                    // The other link may have said something newer: an alarm that is off by now would ring once more.
                    device.reachable = Reachable::Ok;
                    step.outcome.own.ask_again = Some(id.clone());
                } else if let Some(number) = last.filter(|number| *number > asked_after) {
                    self.answered_late(&id, &mut device, info, asked_after, number, step);
                } else {
                    device.kind = reading::device_kind(info.r#type);
                    reading::read_payload(&mut device, info.payload);
                    if let Some(value) = alarm_value(&device) {
                        let time = self.alarms.unseen_since(&id).map_or(TriggerTime::Now, TriggerTime::AfterGap);
                        let triggers = self.observe(&id, step.outcome, |alarms| alarms.answered(&id, value, now));
                        trigger_if(triggers, &id, &device, time, step.outcome);
                    }
                }
            }
            Err(AskError::Refused(word)) if word == "not_found" => {
                self.heard.insert(id.clone(), now);
                // The device is asked once more before an event says so.
                step.outcome.own.ask_again = (device.reachable != Reachable::Removed).then(|| id.clone());
                device = Device { reachable: Reachable::Removed, value: None, storage: None, ..device };
            }
            Ok(_) | Err(_) => {
                if self.heard.get(&id).is_none_or(|heard| now - *heard > HEARD_LATELY) {
                    device.reachable = Reachable::NoResponse;
                }
            }
        }
        show(id.clone(), device, step);
        self.see(&id, around, step);
    }

    /// Events about a device that has answered, or about which something was broadcast.
    fn see(&mut self, id: &Arc<str>, around: &MapContext, step: &mut StateStep) {
        let StateStep { document, window, outcome, now } = step;
        if let Some(device) = document.devices.get(id) {
            outcome.events.extend(self.devices.answered(around, id, device, *now, window));
        }
    }

    /// When an event about a device comes due without an answer.
    pub fn devices_next_due(&self, now: Moment) -> Option<Moment> {
        self.devices.next_due(now)
    }

    /// Events about devices that are due without an answer.
    pub fn devices_due(&mut self, around: &MapContext, step: &mut StateStep) {
        let StateStep { document, window, outcome, now } = step;
        for (id, device) in document.devices.iter() {
            outcome.events.extend(self.devices.due(around, id, device, *now, window));
        }
    }

    /// A user toggles a switch: what changes is by that user.
    pub fn toggled(&mut self, id: &str, value: Option<bool>, by: UserId, now: Moment) {
        self.devices.toggled(id, value, by, now);
    }

    /// Notes the facts that events have reported, where they differ from the stored ones.
    pub fn report_facts(&mut self, step: &mut StateStep) {
        step.outcome.own.reported = self.devices.take_changed();
    }

    /// A camera showed a frame of this time, or none.
    pub fn camera_seen(
        &mut self,
        id: Arc<str>,
        reachable: Reachable,
        frame_at: Option<Timestamp>,
        step: &mut StateStep,
    ) {
        let known = step.document.devices.get(&id).filter(|device| device.kind == DeviceKind::Camera);
        if let Some(device) = known {
            if let Some(at) = frame_at {
                self.frames_at.insert(id.clone(), at);
            }
            let device = Device { reachable, ..Device::clone(device) };
            show(id, device, step);
        }
    }

    /// An answer that was asked for before the last broadcast about the device, and may be older: what the broadcast
    /// said stays.
    fn answered_late(
        &mut self,
        id: &Arc<str>,
        device: &mut Device,
        info: AppEntityInfo,
        asked_after: u64,
        number: u64,
        step: &mut StateStep,
    ) {
        let StateStep { outcome, now, .. } = step;
        let now = *now;
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
                outcome.own.ask_again = Some(id.clone());
            }
            // The device was not known to be an alarm when the broadcast came.
            DeviceKind::Alarm if was_unknown => {
                let value = device.value;
                let changed = |alarms: &mut Alarms| value.is_some_and(|value| alarms.changed(id, value, number, now));
                let triggers = self.observe(id, outcome, changed);
                trigger_if(triggers, id, device, TriggerTime::Now, outcome);
            }
            DeviceKind::Alarm => {
                let triggers = answered.is_some_and(|value| self.alarms.answered_late(id, value, asked_after, now));
                if triggers {
                    // The value is that of the broadcast by now.
                    outcome.own.alarm_values.extend(device.value.map(|value| (id.clone(), Some(value))));
                }
                trigger_if(triggers, id, device, TriggerTime::Now, outcome);
            }
            _ => {}
        }
    }

    /// Lets the detector observe an alarm, and notes the value that is new; true if it triggers.
    fn observe(&mut self, id: &str, outcome: &mut Outcome, observe: impl FnOnce(&mut Alarms) -> bool) -> bool {
        let before = self.alarms.value(id);
        let triggers = observe(&mut self.alarms);
        if let Some(value) = self.alarms.value(id).filter(|value| before != Some(*value)) {
            outcome.own.alarm_values.push((id.into(), Some(value)));
        }
        triggers
    }

    /// The broadcast of this number is about a device; 0: it is one of another link than this.
    pub fn device_changed(
        &mut self,
        changed: AppEntityChanged,
        number: u64,
        around: &MapContext,
        step: &mut StateStep,
    ) {
        let now = step.now;
        let id: Arc<str> = changed.entity_id.to_string().into();
        let Some(device) = step.document.devices.get(&id) else { return };
        let mut device = Device::clone(device);
        self.heard.insert(id.clone(), now);
        // One of a mate's link counts apart.
        let (last, heard) = self.last_broadcasts.entry(id.clone()).or_insert((number, now));
        (*last, *heard) = (number.max(*last), now);
        if number == 0 {
            self.said_elsewhere.insert(id.clone());
        }
        reading::read_payload(&mut device, changed.payload);
        if device.storage.as_ref().is_some_and(|storage| storage.has_protection) {
            step.outcome.own.ask_again = Some(id.clone());
        }
        if let Some(value) = alarm_value(&device) {
            let triggers = self.observe(&id, step.outcome, |alarms| alarms.changed(&id, value, number, now));
            let time = self.waited_since.map_or(TriggerTime::Now, |since| TriggerTime::Waited(now.at(since)));
            trigger_if(triggers, &id, &device, time, step.outcome);
        }
        show(id.clone(), device, step);
        self.see(&id, around, step);
    }
}

fn all_devices(document: &ServerState) -> Vec<(Arc<str>, Device)> {
    document.devices.iter().map(|(id, device)| (id.clone(), Device::clone(device))).collect()
}

fn show(id: Arc<str>, device: Device, step: &mut StateStep) {
    step.document.devices.put(Section::Devices, id, Some(device), &mut step.outcome.changes);
}

fn alarm_value(device: &Device) -> Option<bool> {
    device.value.filter(|_| device.kind == DeviceKind::Alarm)
}

fn trigger_if(triggers: bool, id: &Arc<str>, device: &Device, time: TriggerTime, outcome: &mut Outcome) {
    if triggers {
        let name = device.label.clone().unwrap_or_else(|| device.name.clone());
        outcome.own.alarms.push(AlarmTrigger { device: id.clone(), name, place: device.place.clone(), time });
    }
}
