//! The words for what became of a device.

use chrono::TimeDelta;

use super::{answers::upkeep::device_name, durations};
use crate::domain::{
    bot::bot_messages::BotMessages,
    device::{Device, DeviceKind, Reachable},
    time::Timestamp,
};

/// Texts that the owner wrote for a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnWords {
    /// Its command.
    pub command: Option<String>,
    pub on: Option<String>,
    pub off: Option<String>,
}

/// The outcome of a command for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchOutcome {
    /// Turned, and shows this value.
    Turned(bool),
    /// Had this value before.
    Already(bool),
    /// The game no longer knows it, or does not show it to the paired player.
    Removed,
    NoAnswer,
}

/// The turning back of a switch, as it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaidTurnBack {
    /// Time until then.
    pub lasts: TimeDelta,
    /// True once that is stored, so that a restart of the service changes nothing.
    pub is_stored: bool,
}

/// The outcome in words; with `back` it is turned back.
pub fn outcome(
    texts: &BotMessages,
    device: &Device,
    words: &OwnWords,
    outcome: SwitchOutcome,
    back: Option<SaidTurnBack>,
) -> String {
    let name = device_name(device, words.command.as_deref());
    let named = |text: &str| texts.say(text, &[("device", &name)]);
    let (mut said, value) = match outcome {
        SwitchOutcome::Turned(value) => {
            let own = if value { &words.on } else { &words.off };
            let said = own.clone().unwrap_or_else(|| named(if value { "team.device.on" } else { "team.device.off" }));
            (said, value)
        }
        SwitchOutcome::Already(value) => {
            (texts.say("team.device.already", &[("device", &name), ("state", state(value))]), value)
        }
        SwitchOutcome::Removed => return named("team.device.removed"),
        SwitchOutcome::NoAnswer => return named("team.device.noAnswer"),
    };
    if let Some(SaidTurnBack { lasts, is_stored }) = back {
        let text = if value { "team.device.backOff" } else { "team.device.backOn" };
        said += &texts.say(text, &[("time", &durations::shown(lasts))]);
        if !is_stored {
            said += &texts.say("team.device.backUnstored", &[]);
        }
    }
    said
}

fn state(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

/// A switch was turned back after its time, or that is given up.
pub fn turned_back(texts: &BotMessages, device: &Device, words: &OwnWords, value: bool, has_turned: bool) -> String {
    let name = device_name(device, words.command.as_deref());
    let text = if has_turned { "team.device.back" } else { "team.device.backFailed" };
    texts.say(text, &[("device", &name), ("state", state(value))])
}

/// The state of a device in words; `triggered` is when an alarm last went off.
pub fn status(
    texts: &BotMessages,
    device: &Device,
    words: &OwnWords,
    triggered: Option<Timestamp>,
    now: Timestamp,
) -> String {
    let name = device_name(device, words.command.as_deref());
    let named = |text: &str| texts.say(text, &[("device", &name)]);
    match (device.kind, device.reachable) {
        (_, Reachable::Removed | Reachable::NoPrivilege) => named("team.device.removed"),
        (_, Reachable::NoResponse) => named("team.device.noAnswer"),
        (DeviceKind::Alarm, _) => match triggered {
            Some(at) => texts.say("team.device.alarm", &[("device", &name), ("time", &durations::shown(now - at))]),
            None => named("team.device.quiet"),
        },
        (DeviceKind::StorageMonitor, _) => match &device.storage {
            Some(storage) => {
                let stacks = format!("{}/{}", storage.used, storage.capacity);
                texts.say("team.device.storage", &[("device", &name), ("stacks", &stacks)])
            }
            None => named("team.device.unknown"),
        },
        _ => match device.value {
            Some(true) => named("team.device.on"),
            Some(false) => named("team.device.off"),
            None => named("team.device.unknown"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{device::Storage, incident::DevicePlace};

    fn device(kind: DeviceKind, value: Option<bool>) -> Device {
        let (label, place) = (Some("Gate".into()), DevicePlace::default());
        Device {
            kind,
            name: "Smart Switch".into(),
            label,
            value,
            reachable: Reachable::Ok,
            place,
            storage: None,
            turns_back: None,
        }
    }

    #[test]
    fn the_state_that_was_seen_is_said_in_the_words_of_the_owner_if_there_are_any() {
        let (texts, gate) = (BotMessages::default(), device(DeviceKind::Switch, Some(true)));
        let own = OwnWords { on: Some("The gate opens".into()), ..OwnWords::default() };
        let back = |seconds, is_stored| SaidTurnBack { lasts: TimeDelta::seconds(seconds), is_stored };
        let said = |words: &OwnWords, done, seconds: Option<i64>| {
            outcome(&texts, &gate, words, done, seconds.map(|seconds| back(seconds, true)))
        };
        assert_eq!(said(&own, SwitchOutcome::Turned(true), None), "The gate opens");
        assert_eq!(said(&own, SwitchOutcome::Turned(false), None), "Gate is off");
        assert_eq!(said(&OwnWords::default(), SwitchOutcome::Turned(true), Some(60)), "Gate is on, off again in 60s");
        assert_eq!(said(&own, SwitchOutcome::Already(true), None), "Gate is already on");
        assert_eq!(said(&own, SwitchOutcome::Already(false), Some(60)), "Gate is already off, on again in 60s");
        assert_eq!(said(&own, SwitchOutcome::NoAnswer, Some(60)), "Gate does not answer");
        assert_eq!(said(&own, SwitchOutcome::Removed, None), "Gate is gone, or its tool cupboard was lost");
        let unsure = outcome(&texts, &gate, &own, SwitchOutcome::Turned(false), Some(back(60, false)));
        assert_eq!(unsure, "Gate is off, on again in 60s unless the service restarts");
        assert_eq!(turned_back(&texts, &gate, &own, false, true), "Gate is off again");
        let given_up = "Gate does not turn off again, I try no longer";
        assert_eq!(turned_back(&texts, &gate, &own, false, false), given_up);
        let nameless = Device { name: "4242".into(), label: None, ..gate.clone() };
        let own = OwnWords { command: Some("Tor".into()), ..own };
        assert_eq!(outcome(&texts, &nameless, &own, SwitchOutcome::Already(true), None), "Tor is already on");
        assert_eq!(turned_back(&texts, &nameless, &own, false, true), "Tor is off again");
        assert_eq!(turned_back(&texts, &nameless, &OwnWords::default(), false, true), "4242 is off again");
    }

    #[test]
    fn each_kind_of_device_has_a_status() {
        let texts = BotMessages::default();
        let now = Timestamp::UNIX_EPOCH + TimeDelta::hours(1);
        let said = |device: &Device, triggered| status(&texts, device, &OwnWords::default(), triggered, now);
        assert_eq!(said(&device(DeviceKind::Switch, Some(false)), None), "Gate is off");
        assert_eq!(said(&device(DeviceKind::Switch, None), None), "Gate is not known");
        let alarm = device(DeviceKind::Alarm, Some(false));
        assert_eq!(said(&alarm, Some(now - TimeDelta::minutes(12))), "Gate last triggered 12m ago");
        assert_eq!(said(&alarm, None), "Gate was not triggered yet");
        let (capacity, used, items) = (48, 5, Vec::new());
        let storage = Storage { capacity, used, items, has_protection: false, protection_expires_at: None };
        let monitor = Device { storage: Some(storage), ..device(DeviceKind::StorageMonitor, None) };
        assert_eq!(said(&monitor, None), "Gate: 5/48 stacks");
        let gone = Device { reachable: Reachable::Removed, ..monitor };
        assert_eq!(said(&gone, None), "Gate is gone, or its tool cupboard was lost");
    }
}
