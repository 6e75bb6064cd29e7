//! The devices in the live state: which are paired, what they answer, what is broadcast about them.

use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;

use super::{AlarmTrigger, LiveState, Outcome, PairedDevice};
use crate::{
    domain::{
        change::Section,
        detect::alarm::Alarms,
        device::{Device, DeviceKind, Reachable},
        incident::DevicePlace,
        time::Moment,
    },
    game::{
        link::{Answered, AskError},
        reading,
        wire::{AppEntityChanged, AppEntityInfo},
    },
};

/// A device that was heard of within this time does answer, although one question stayed without: nobody waits longer.
const HEARD_LATELY: TimeDelta = TimeDelta::seconds(10);

impl LiveState {
    pub(super) fn update_devices(&mut self, known: HashMap<Arc<str>, PairedDevice>, outcome: &mut Outcome) {
        self.freshness.devices.retain(|id, _| known.contains_key(id));
        self.device_broadcasts.retain(|id, _| known.contains_key(id));
        let device = |(id, known): (Arc<str>, PairedDevice)| {
            if let Some(value) = known.last_value {
                self.alarms.remember(&id, value);
            }
            let device = match self.state.devices.get(&id) {
                Some(device) => Device { name: known.name, label: known.label, ..Device::clone(device) },
                None => Device {
                    kind: known.kind,
                    name: known.name,
                    label: known.label,
                    value: None,
                    reachable: Reachable::NoResponse,
                    storage: None,
                },
            };
            (id, device)
        };
        let devices: Vec<_> = known.into_iter().map(device).collect();
        self.state.devices.replace(Section::Devices, devices, &mut outcome.changes);
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
                self.freshness.devices.insert(id.clone(), now);
                match self.device_broadcasts.get(&id) {
                    Some(&number) if number > asked_after => {
                        self.answered_late(&id, &mut device, info, asked_after, number, now, outcome);
                    }
                    _ => {
                        device.kind = reading::device_kind(info.r#type);
                        reading::read_payload(&mut device, info.payload);
                        if let Some(value) = alarm_value(&device) {
                            let triggers = self.observe(&id, outcome, |alarms| alarms.answered(&id, value, now));
                            trigger_if(triggers, &id, &device, outcome);
                        }
                    }
                }
            }
            Err(AskError::Refused(word)) if word == "not_found" => {
                self.freshness.devices.insert(id.clone(), now);
                device = Device { reachable: Reachable::Removed, value: None, storage: None, ..device };
            }
            Ok(_) | Err(_) => {
                if self.freshness.devices.get(&id).is_none_or(|heard| now - *heard > HEARD_LATELY) {
                    device.reachable = Reachable::NoResponse;
                }
            }
        }
        self.state.devices.put(Section::Devices, id, Some(device), &mut outcome.changes);
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
            // It was not known to be an alarm when the broadcast came.
            DeviceKind::Alarm if was_unknown => {
                let value = device.value;
                let changed = |alarms: &mut Alarms| value.is_some_and(|value| alarms.changed(id, value, number, now));
                let triggers = self.observe(id, outcome, changed);
                trigger_if(triggers, id, device, outcome);
            }
            DeviceKind::Alarm => {
                let triggers = answered.is_some_and(|value| self.alarms.answered_late(id, value, asked_after, now));
                trigger_if(triggers, id, device, outcome);
            }
            _ => {}
        }
    }

    /// Lets the detector observe an alarm, and notes the value that is new; true if it triggers.
    fn observe(&mut self, id: &str, outcome: &mut Outcome, observe: impl FnOnce(&mut Alarms) -> bool) -> bool {
        let before = self.alarms.value(id);
        let triggers = observe(&mut self.alarms);
        if let Some(value) = self.alarms.value(id).filter(|value| before != Some(*value)) {
            outcome.alarm_values.push((id.into(), value));
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
        self.freshness.devices.insert(id.clone(), now);
        self.device_broadcasts.insert(id.clone(), number);
        reading::read_payload(&mut device, changed.payload);
        if device.storage.as_ref().is_some_and(|storage| storage.has_protection) {
            outcome.ask_again = Some(id.clone());
        }
        if let Some(value) = alarm_value(&device) {
            let triggers = self.observe(&id, outcome, |alarms| alarms.changed(&id, value, number, now));
            trigger_if(triggers, &id, &device, outcome);
        }
        self.state.devices.put(Section::Devices, id, Some(device), &mut outcome.changes);
    }
}

fn alarm_value(device: &Device) -> Option<bool> {
    device.value.filter(|_| device.kind == DeviceKind::Alarm)
}

fn trigger_if(triggers: bool, id: &Arc<str>, device: &Device, outcome: &mut Outcome) {
    if triggers {
        let name = device.label.clone().unwrap_or_else(|| device.name.clone());
        outcome.alarms.push(AlarmTrigger { device: id.clone(), name, place: DevicePlace::default() });
    }
}
