//! Smart devices: turned, gone, without power, full, empty, upkeep that runs out. The current facts of a device are
//! compared with those in its events, which are stored, so that a restart repeats nothing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    events::{EventWindow, Events, MapContext},
    link_gap::LinkGap,
};
use crate::domain::{
    device::{Device, DeviceKind, Reachable, Storage},
    device_event::{DeviceAction, DeviceEvent},
    ids::UserId,
    rate::Window,
    time::{Moment, Timestamp},
    world_event::{EventKind, WorldEvent},
};

/// All facts but on and off must last this long: contents move in steps, and a device that is gone is asked once more.
const SETTLED: TimeDelta = TimeDelta::seconds(5);
/// Most events of one device in any span: a blinking light is no news. Its last fact is reported when there is room.
const EVENTS: usize = 6;
const SPAN: Duration = Duration::from_secs(600);
/// An event without room is tried again after this.
const TRIED_AGAIN: TimeDelta = TimeDelta::seconds(10);
/// The time after a toggle in which a change of its switch is by its user.
const TOGGLE: TimeDelta = TimeDelta::seconds(10);
const DAY: TimeDelta = TimeDelta::hours(24);
const QUARTER: TimeDelta = TimeDelta::hours(6);
/// Upkeep above a limit by less than this, or by less than a tenth, has not risen.
const LITTLE_UPKEEP: TimeDelta = TimeDelta::minutes(10);

/// The facts of a device as its events reported them, or as it was first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    there: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    powered: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fill: Option<Fill>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upkeep: Option<Upkeep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fill {
    Empty,
    Between,
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Upkeep {
    Decaying,
    UnderQuarter,
    UnderDay,
    Enough,
}

impl Upkeep {
    fn of(left: TimeDelta) -> Self {
        match left {
            left if left <= TimeDelta::zero() => Self::Decaying,
            left if left <= QUARTER => Self::UnderQuarter,
            left if left <= DAY => Self::UnderDay,
            _ => Self::Enough,
        }
    }

    /// The level falls at each limit, and rises only well above it.
    fn after(before: Option<Self>, left: TimeDelta) -> Self {
        let Some(before) = before else { return Self::of(left) };
        let fallen = Self::of(left).min(before);
        Self::of(left - (left / 10).max(LITTLE_UPKEEP)).max(fallen)
    }
}

/// One fact of a device: its current value and since when, and its reported value.
#[derive(Debug)]
struct Topic<T> {
    reported: Option<T>,
    seen: Option<(T, Moment)>,
}

impl<T> Default for Topic<T> {
    fn default() -> Self {
        Self { reported: None, seen: None }
    }
}

impl<T: Copy + PartialEq> Topic<T> {
    /// Records a value; the first one is not news. True = the value is new.
    fn see(&mut self, value: T, now: Moment) -> bool {
        self.reported.get_or_insert(value);
        let is_new = self.seen.is_none_or(|(seen, _)| seen != value);
        if is_new {
            self.seen = Some((value, now));
        }
        is_new
    }

    /// Time at which the current, unreported value will have lasted for `lasts`.
    fn due(&self, lasts: TimeDelta) -> Option<Moment> {
        let (value, since) = self.seen?;
        (self.reported != Some(value)).then(|| since + lasts)
    }

    /// The value to report, if it has lasted long enough.
    fn news(&self, lasts: TimeDelta, now: Moment) -> Option<T> {
        self.due(lasts).filter(|due| *due <= now).and(self.seen).map(|(value, _)| value)
    }
}

/// The devices of one game server. Only those that are paired come here, so they bound it.
#[derive(Debug, Default)]
pub struct Devices {
    /// Each in a box: a map has room for four at the least, and most servers have fewer.
    watched: HashMap<Arc<str>, Box<WatchedDevice>>,
    /// Devices that events have reported on since they were last taken.
    changed: Vec<Arc<str>>,
    gap: LinkGap,
}

#[derive(Debug)]
struct WatchedDevice {
    on: Topic<bool>,
    there: Topic<bool>,
    powered: Topic<bool>,
    fill: Topic<Fill>,
    upkeep: Topic<Upkeep>,
    /// On a tool cupboard with upkeep.
    expires_at: Option<Timestamp>,
    /// A toggle: the wanted value, of which user, when.
    toggle: Option<(Option<bool>, UserId, Moment)>,
    /// The user who has turned it to its current value.
    by: Option<UserId>,
    /// The device has answered on this link: due events may be reported.
    heard: bool,
    reported: Window,
    /// There was no room for an event before.
    not_before: Option<Moment>,
}

impl WatchedDevice {
    fn new(ReportedFacts { on, there, powered, fill, upkeep }: ReportedFacts) -> Self {
        Self {
            on: Topic { reported: on, seen: None },
            there: Topic { reported: there, seen: None },
            powered: Topic { reported: powered, seen: None },
            fill: Topic { reported: fill, seen: None },
            upkeep: Topic { reported: upkeep, seen: None },
            expires_at: None,
            toggle: None,
            by: None,
            heard: false,
            reported: Window::new(EVENTS, SPAN),
            not_before: None,
        }
    }

    fn reported(&self) -> ReportedFacts {
        ReportedFacts {
            on: self.on.reported,
            there: self.there.reported,
            powered: self.powered.reported,
            fill: self.fill.reported,
            upkeep: self.upkeep.reported,
        }
    }

    fn see(&mut self, device: &Device, now: Moment) {
        let there = device.reachable == Reachable::Ok;
        self.there.see(there, now);
        if !there {
            self.expires_at = None;
            return;
        }
        match (device.kind, device.value, &device.storage) {
            (DeviceKind::Switch | DeviceKind::Alarm, Some(on), _) => {
                let first = self.on.seen.is_none();
                if self.on.see(on, now) && !first {
                    let toggle = self.toggle.take();
                    let is_it = |(value, _, at): &(Option<bool>, UserId, Moment)| {
                        value.is_none_or(|value| value == on) && now - *at <= TOGGLE
                    };
                    self.by = toggle.filter(is_it).map(|(_, by, _)| by);
                }
            }
            (DeviceKind::StorageMonitor, _, Some(storage)) => self.see_storage(storage, now),
            _ => {}
        }
    }

    fn see_storage(&mut self, storage: &Storage, now: Moment) {
        let Storage { capacity, used, .. } = *storage;
        self.powered.see(capacity > 0, now);
        self.expires_at = storage.protection_expires_at.filter(|_| capacity > 0 && storage.has_protection);
        if capacity <= 0 {
            return;
        }
        let is_nearly_full = || self.fill.reported == Some(Fill::Full) && capacity - used < capacity / 10;
        let fill = match used {
            ..=0 => Fill::Empty,
            used if used >= capacity || is_nearly_full() => Fill::Full,
            _ => Fill::Between,
        };
        self.fill.see(fill, now);
        if storage.has_protection {
            let left = storage.protection_expires_at.map_or(TimeDelta::zero(), |at| at - now.stamp);
            self.upkeep.see(Upkeep::after(self.upkeep.reported, left), now);
        }
    }

    /// Reports what is new and has lasted.
    fn report(&mut self, id: &str, device: &Device, events: &mut Events) {
        let now = events.now;
        if self.not_before.is_some_and(|before| before > now) {
            return;
        }
        self.not_before = None;
        if let Some(there) = self.there.news(SETTLED, now) {
            let action = if there { DeviceAction::Reachable } else { DeviceAction::Unreachable };
            if self.say(id, device, action, events) {
                self.there.reported = Some(there);
            }
        }
        if device.reachable != Reachable::Ok {
            return;
        }
        if let Some(on) = self.on.news(TimeDelta::zero(), now) {
            let by = self.by.clone();
            let action = if on { DeviceAction::TurnedOn { by } } else { DeviceAction::TurnedOff { by } };
            if self.say(id, device, action, events) {
                self.on.reported = Some(on);
            }
        }
        if let Some(powered) = self.powered.news(SETTLED, now)
            && (powered || self.say(id, device, DeviceAction::PowerLost, events))
        {
            self.powered.reported = Some(powered);
        }
        // Contents and upkeep are only known with power.
        if let (Some(true), Some(storage)) = (self.powered.reported, &device.storage)
            && storage.capacity > 0
        {
            self.report_storage(id, device, storage, events);
        }
    }

    fn report_storage(&mut self, id: &str, device: &Device, storage: &Storage, events: &mut Events) {
        let (now, capacity) = (events.now, storage.capacity);
        if let Some(fill) = self.fill.news(SETTLED, now) {
            let action = match fill {
                Fill::Full => Some(DeviceAction::Full { capacity }),
                Fill::Empty => Some(DeviceAction::Empty { capacity }),
                Fill::Between => None,
            };
            if action.is_none_or(|action| self.say(id, device, action, events)) {
                self.fill.reported = Some(fill);
            }
        }
        if let Some(upkeep) = self.upkeep.news(SETTLED, now) {
            let low = |hours| self.expires_at.map(|expires_at| DeviceAction::UpkeepLow { hours, expires_at });
            let action = match upkeep {
                upkeep if self.upkeep.reported < Some(upkeep) => None,
                Upkeep::Decaying => Some(DeviceAction::Decaying),
                Upkeep::UnderQuarter => low(6),
                Upkeep::UnderDay => low(24),
                Upkeep::Enough => None,
            };
            if action.is_none_or(|action| self.say(id, device, action, events)) {
                self.upkeep.reported = Some(upkeep);
            }
        }
    }

    /// True = the event is out.
    fn say(&mut self, id: &str, device: &Device, action: DeviceAction, events: &mut Events) -> bool {
        let millis = u64::try_from(events.now.steady().num_milliseconds()).unwrap_or_default();
        if self.reported.available_at(millis, EVENTS).is_some() || !events.has_room() {
            self.not_before = Some(events.now + TRIED_AGAIN);
            return false;
        }
        self.reported.record(millis);
        let name = device.label.clone().unwrap_or_else(|| device.name.clone());
        let word = action.word();
        let event = DeviceEvent { device_id: id.to_owned(), device_kind: device.kind, name, action };
        let (at, fields) = (device.place.x.zip(device.place.y), Value::Object(event.fields()));
        events.report(EventKind::Device, word, at, fields, |place| event.title(place));
        true
    }

    fn next_due(&self, now: Moment) -> Option<Moment> {
        if !self.heard {
            return None;
        }
        // An event that is not reported now is not due either.
        let is_there = self.there.seen.is_some_and(|(there, _)| there);
        let has_power = self.powered.reported == Some(true) && self.powered.seen.is_some_and(|(powered, _)| powered);
        let of_device = [self.on.due(TimeDelta::zero()), self.powered.due(SETTLED)].into_iter().filter(|_| is_there);
        let of_storage =
            [self.fill.due(SETTLED), self.upkeep.due(SETTLED)].into_iter().filter(|_| is_there && has_power);
        let news = of_device.chain(of_storage).chain([self.there.due(SETTLED)]).flatten().min();
        let news = news.map(|due| self.not_before.map_or(due, |before| before.max(due)));
        let limits = self.expires_at.into_iter().flat_map(|at| [at - DAY, at - QUARTER, at]);
        let limits = limits.filter(|at| *at > now.stamp).map(|at| now.at(at));
        news.into_iter().chain(limits).min()
    }
}

impl Devices {
    /// Restores the reported facts of a device from before this start, unless more is known.
    pub fn remember(&mut self, id: &Arc<str>, reported: ReportedFacts) {
        self.watched.entry(id.clone()).or_insert_with(|| Box::new(WatchedDevice::new(reported)));
    }

    /// Forgets devices that are no longer paired.
    pub fn retain(&mut self, is_paired: impl Fn(&str) -> bool) {
        self.watched.retain(|id, _| is_paired(id));
    }

    /// A user toggles a switch.
    pub fn toggled(&mut self, id: &str, value: Option<bool>, by: UserId, now: Moment) {
        if let Some(watched) = self.watched.get_mut(id) {
            watched.toggle = Some((value, by, now));
        }
    }

    /// A device has answered, or something was broadcast about it.
    pub fn answered(
        &mut self,
        around: &MapContext,
        id: &Arc<str>,
        device: &Device,
        now: Moment,
        window: &mut EventWindow,
    ) -> Vec<WorldEvent> {
        let mut events = Events::new(around, now, false, window);
        self.follow(id, device, &mut events, true);
        events.finish()
    }

    /// The events that are due about a device without an answer.
    pub fn due(
        &mut self,
        around: &MapContext,
        id: &Arc<str>,
        device: &Device,
        now: Moment,
        window: &mut EventWindow,
    ) -> Vec<WorldEvent> {
        let mut events = Events::new(around, now, false, window);
        self.follow(id, device, &mut events, false);
        events.finish()
    }

    fn follow(&mut self, id: &Arc<str>, device: &Device, events: &mut Events, answered: bool) {
        let unseen = || Box::new(WatchedDevice::new(ReportedFacts::default()));
        let watched = self.watched.entry(id.clone()).or_insert_with(unseen);
        // A poll that failed says nothing, nor does a camera that was looked through.
        let is_known = matches!(device.reachable, Reachable::Ok | Reachable::Removed);
        watched.heard = is_known && device.kind != DeviceKind::Camera && (answered || watched.heard);
        if !watched.heard {
            return;
        }
        let before = watched.reported();
        watched.see(device, events.now);
        watched.report(id, device, events);
        if watched.reported() != before && !self.changed.contains(id) {
            self.changed.push(id.clone());
        }
    }

    /// When something is due without an answer; nothing is without a link.
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let due = self.watched.values().filter_map(|watched| watched.next_due(now)).min();
        due.filter(|_| !self.gap.is_open())
    }

    /// The link was lost: earlier answers may be out of date.
    pub fn link_lost(&mut self, now: Moment) {
        self.gap.begin(now);
        self.watched.values_mut().for_each(|watched| watched.heard = false);
    }

    /// The link is back.
    pub fn link_up(&mut self, now: Moment) {
        self.gap.end(now);
    }

    /// A wipe: all devices are gone, which is no news.
    pub fn wiped(&mut self) {
        self.gap = LinkGap::default();
        for (id, watched) in &mut self.watched {
            **watched = WatchedDevice::new(ReportedFacts { there: Some(false), ..ReportedFacts::default() });
            self.changed.push(id.clone());
        }
    }

    /// The facts that are to be stored.
    pub fn take_changed(&mut self) -> Vec<(Arc<str>, ReportedFacts)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .filter_map(|id| self.watched.get(&id).map(|watched| (id.clone(), watched.reported())))
            .collect()
    }
}

#[cfg(test)]
mod tests;
