//! Alarms to raid incidents: the first trigger is announced at once, repeats raise its count, and none is lost.

mod due;
pub mod handing_over;
mod merging;
mod tracked;

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;

pub use self::tracked::{LATE, TriggerTime};
use self::tracked::{OVERFLOW, QUIET, SAME_TRIGGER, Tracked, heard};
use crate::domain::{
    ids::UserId,
    incident::{AlarmPath, DevicePlace, Incident, Raid},
    plain_text::plain_text,
    time::{Moment, Timestamp},
};

/// For how long an incident that has ended is part of the state. Open ones all are.
pub const SHOWN_FOR: TimeDelta = TimeDelta::hours(24);
/// Most incidents of the state that have ended, the newest.
pub const SHOWN: usize = 50;
/// For how long a drill that has ended is part of the state.
pub const DRILL_SHOWN_FOR: TimeDelta = TimeDelta::minutes(10);
/// Most drills of the state that have ended, the newest.
pub const DRILLS_SHOWN: usize = 10;

/// Incidents known only from pushes, by title; titles are free text, so further ones share an incident.
const MAX_PUSHED: usize = 30;

/// Characters of a push message's title.
const LONGEST_TITLE: usize = 128;

/// The incident that an alarm became part of.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmOutcome {
    /// The one incident this alarm belongs to.
    pub incident: String,
    /// True if the alarm opened that incident; otherwise it was merged into it.
    pub opened: bool,
    /// The first alarm of the incident by this path.
    pub first_by_path: bool,
    /// Changes to store and send at once, in this order.
    pub changes: Vec<IncidentChange>,
}

/// An incident that changed, or is no longer shown.
#[derive(Clone, Debug, PartialEq)]
pub struct IncidentChange {
    pub incident: String,
    /// Message to send besides the state.
    pub message: Option<Raid>,
}

/// An incident that turned out to be a part of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedIncident {
    /// The incident has become a part of another one.
    pub id: String,
    /// The older one, which has its triggers and acknowledgements.
    pub into: String,
}

/// The raid incidents of one game server, of the last day.
#[derive(Debug, Default)]
pub struct Raids {
    /// By the id of the incident; ids ascend.
    incidents: BTreeMap<String, Tracked>,
}

impl Raids {
    /// No incident.
    pub fn new() -> Self {
        Self::default()
    }

    /// The incident as it is now; `None` if it is no longer shown.
    pub fn get(&self, incident: &str) -> Option<&Incident> {
        self.incidents.get(incident).map(|tracked| &tracked.incident)
    }

    /// The title of the push messages that are this incident's, once one is known.
    pub fn title(&self, incident: &str) -> Option<&str> {
        self.incidents.get(incident)?.title.as_deref()
    }

    /// An alarm seen on the live link. One whose time is not known is the trigger that a push has reported since, if any.
    pub fn alarm(
        &mut self,
        id: &str,
        name: &str,
        place: &DevicePlace,
        time: TriggerTime,
        now: Moment,
        new_id: impl FnOnce() -> String,
    ) -> AlarmOutcome {
        let takes = |tracked: &Tracked| tracked.takes_on_link(time, now);
        if let Some((incident, tracked)) = self.find(|tracked| tracked.incident.alarm_id == id && takes(tracked)) {
            if !tracked.is_pushed_as(time) {
                tracked.seen_on_link(now);
            }
            let first = tracked.incident.paths.insert(AlarmPath::Link);
            let renamed = tracked.name(name, place);
            let message = tracked.due(&incident, now);
            return AlarmOutcome::merged(incident, first, renamed, message);
        }
        if let Some((pushed, certainty)) = self.known_by_push(id, name, time, now)
            && let Some(tracked) = self.incidents.get_mut(&pushed)
        {
            // The push came first: its incident is this alarm's.
            if !tracked.is_pushed_as(time) {
                tracked.seen_on_link(now);
            }
            tracked.title.get_or_insert_with(|| tracked.incident.alarm_name.clone());
            tracked.incident.alarm_id = id.to_owned();
            let first = tracked.incident.paths.insert(AlarmPath::Link);
            tracked.name(name, place);
            tracked.changed = true;
            let message = match certainty {
                Certainty::Exact => tracked.due(&pushed, now),
                Certainty::Likely => Some(tracked.update(&pushed, now)),
            };
            return AlarmOutcome::merged(pushed, first, true, message);
        }
        let opened = NewIncident { path: AlarmPath::Link, alarm_id: id, name, place: place.clone(), at: now };
        self.open(opened, now, new_id)
    }

    /// An alarm that came as a push message sent at `sent`; it does not name the device. `named` are the paired devices
    /// that have its title as their name: if there are any, the message is of one of them.
    pub fn pushed(
        &mut self,
        title: &str,
        named: &BTreeSet<String>,
        sent: Timestamp,
        now: Moment,
        new_id: impl FnOnce() -> String,
    ) -> AlarmOutcome {
        let title = plain_text(title, LONGEST_TITLE);
        // A delayed push counts at the time when it was sent.
        let delayed = now.stamp - sent > SAME_TRIGGER;
        let at = if delayed { now.at(sent) } else { now };
        if let Some((id, certainty)) = self.known_by_title(&title, named, at, now)
            && let Some(tracked) = self.incidents.get_mut(&id)
        {
            let is_same = !tracked.is_pushed() && tracked.is_unmatched(AlarmPath::Link, at);
            // A trigger before the first one was not seen on the link; one that the link has counted is no new trigger.
            let is_before = tracked.first_trigger - at > SAME_TRIGGER;
            if is_same {
                tracked.unmatched = None;
            } else if !delayed || is_before || !tracked.incident.paths.contains(&AlarmPath::Link) {
                tracked.repeat(AlarmPath::Push, at, now);
            }
            let titled = tracked.take_title(title);
            let first = tracked.incident.paths.insert(AlarmPath::Push);
            let message = match certainty {
                Certainty::Exact if is_same => None,
                Certainty::Exact => tracked.due(&id, now),
                Certainty::Likely => Some(tracked.update(&id, now)),
            };
            return AlarmOutcome::merged(id, first, titled, message);
        }
        let mut alarm_id = format!("push:{title}");
        let takes = |tracked: &Tracked| tracked.takes(AlarmPath::Push, at, now);
        if self.incidents.values().filter(|tracked| tracked.is_pushed() && takes(tracked)).count() >= MAX_PUSHED {
            OVERFLOW.clone_into(&mut alarm_id);
            if let Some((id, tracked)) = self.find(|tracked| tracked.incident.alarm_id == alarm_id && takes(tracked)) {
                tracked.incident.alarm_name = title;
                tracked.repeat(AlarmPath::Push, at, now);
                let message = tracked.due(&id, now);
                return AlarmOutcome::merged(id, false, false, message);
            }
        }
        let opened =
            NewIncident { path: AlarmPath::Push, alarm_id: &alarm_id, name: &title, place: DevicePlace::default(), at };
        self.open(opened, now, new_id)
    }

    /// A test alarm: an incident of its own, so that a drill is not merged into a raid, nor a raid into a drill.
    pub fn drill(&mut self, now: Moment, new_id: impl FnOnce() -> String) -> AlarmOutcome {
        let opened = NewIncident {
            path: AlarmPath::Drill,
            alarm_id: "drill",
            name: "Drill",
            place: DevicePlace::default(),
            at: now,
        };
        self.open(opened, now, new_id)
    }

    /// Takes up an incident as the ledger has it, unless it is known here, which is newer. True if it was taken up.
    pub fn restore(&mut self, id: String, incident: Incident, title: Option<String>, now: Moment) -> bool {
        if self.incidents.contains_key(&id) {
            return false;
        }
        // A clock that was set back since would put it into the future: see `Tracked::is_from_ahead`.
        let [first_trigger, last_trigger] = [incident.first_at, incident.last_at].map(|at| now.at(at.min(now.stamp)));
        let tracked = Tracked {
            incident,
            first_trigger,
            last_trigger,
            last_heard: last_trigger,
            last_sent: now,
            changed: false,
            unmatched: None,
            title,
        };
        self.incidents.insert(id, tracked);
        true
    }

    /// Acknowledges the incident for this user: it no longer rings for them. `None` if it is not shown, or was
    /// acknowledged before.
    pub fn acknowledge(&mut self, incident: &str, user: &UserId, at: Timestamp) -> Option<IncidentChange> {
        let acks = &mut self.incidents.get_mut(incident)?.incident.acks;
        let is_new = !acks.contains_key(user);
        acks.entry(user.clone()).or_insert(at);
        is_new.then(|| IncidentChange { incident: incident.to_owned(), message: None })
    }

    /// Forgets a deleted user and their acknowledgements.
    pub fn forget_user(&mut self, user: &UserId) -> Vec<IncidentChange> {
        let forgotten = self.incidents.iter_mut().filter_map(|(incident, tracked)| {
            tracked.incident.acks.remove(user)?;
            Some(IncidentChange { incident: incident.clone(), message: None })
        });
        forgotten.collect()
    }

    fn open(&mut self, opened: NewIncident<'_>, now: Moment, new_id: impl FnOnce() -> String) -> AlarmOutcome {
        let NewIncident { path, alarm_id, name, place, at } = opened;
        let late = now.stamp - at.stamp > LATE;
        let incident = Incident {
            alarm_id: alarm_id.to_owned(),
            alarm_name: name.to_owned(),
            place,
            first_at: at.stamp,
            last_at: at.stamp,
            ended_at: None,
            count: 1,
            paths: BTreeSet::from([path]),
            late,
            drill: path == AlarmPath::Drill,
            acks: BTreeMap::new(),
        };
        let id = new_id();
        let message = Raid::new(&id, &incident, false);
        let mut changes = Vec::new();
        // The last update of the incident before.
        for (before, tracked) in &mut self.incidents {
            if tracked.incident.alarm_id == alarm_id && !tracked.incident.drill {
                changes.extend(tracked.end(before, now));
            }
        }
        let tracked = Tracked {
            incident,
            first_trigger: at,
            last_trigger: at,
            last_heard: heard(at, now),
            last_sent: now,
            changed: false,
            unmatched: Some((path, at)),
            title: None,
        };
        let tracked = self.incidents.entry(id.clone()).or_insert(tracked);
        tracked.end(&id, now);
        changes.push(IncidentChange { incident: id.clone(), message: Some(message) });
        AlarmOutcome { incident: id, opened: true, first_by_path: true, changes }
    }

    /// The newest incident for which this holds.
    fn find(&mut self, holds: impl Fn(&Tracked) -> bool) -> Option<(String, &mut Tracked)> {
        let found = self.incidents.iter_mut().rev().find(|(_, tracked)| !tracked.incident.drill && holds(tracked));
        found.map(|(id, tracked)| (id.clone(), tracked))
    }

    /// The incident that only pushes have reported and that is this alarm's.
    fn known_by_push(&self, device: &str, name: &str, time: TriggerTime, now: Moment) -> Option<(String, Certainty)> {
        let pushed = self.incidents.iter().filter(|(_, tracked)| tracked.is_pushed());
        let takes = |tracked: &Tracked| !tracked.is_overflow() && tracked.takes_on_link(time, now);
        let exact = pushed.clone().filter(|(_, tracked)| takes(tracked));
        let exact = exact.filter_map(|(id, tracked)| {
            let is_named = tracked.is_named(name);
            let is_exact = is_named || self.owner(&tracked.incident.alarm_name) == Some(device);
            is_exact.then_some(((is_named, tracked.last_trigger), id))
        });
        if let Some((_, id)) = exact.max() {
            return Some((id.clone(), Certainty::Exact));
        }
        if self.has_title(device) {
            return None;
        }
        let likely = pushed.filter(|(_, tracked)| {
            let is_of_now = tracked.is_unmatched(AlarmPath::Push, now)
                || tracked.incident.ended_at.is_none() && tracked.is_pushed_as(time);
            is_of_now && self.owner(&tracked.incident.alarm_name).is_none()
        });
        only_unanswered(likely)
    }

    /// The incident that is this push message's.
    fn known_by_title(
        &self,
        title: &str,
        named: &BTreeSet<String>,
        at: Moment,
        now: Moment,
    ) -> Option<(String, Certainty)> {
        let owner = self.owner(title);
        let raids = self.incidents.iter().filter(|(_, tracked)| !tracked.incident.drill);
        let exact =
            raids.clone().filter(|(_, tracked)| tracked.takes(AlarmPath::Push, at, now)).filter_map(|(id, tracked)| {
                let is_named = tracked.incident.alarm_name == title;
                let is_exact = is_named || tracked.is_named(title) || owner == Some(tracked.incident.alarm_id.as_str());
                let is_unmatched = !tracked.is_pushed() && tracked.is_unmatched(AlarmPath::Link, at);
                is_exact.then_some(((is_named, is_unmatched, tracked.last_trigger), id))
            });
        if let Some((_, id)) = exact.max() {
            return Some((id.clone(), Certainty::Exact));
        }
        if owner.is_some() {
            return None;
        }
        let likely = raids.filter(|(_, tracked)| {
            !tracked.is_pushed()
                && tracked.is_unmatched(AlarmPath::Link, at)
                && !self.has_title(&tracked.incident.alarm_id)
                && (named.is_empty() || named.contains(tracked.incident.alarm_id.as_str()))
        });
        only_unanswered(likely)
    }

    /// The device that push messages of this title belong to, by the incidents of the last day: the one of that name,
    /// otherwise the one they were matched with.
    fn owner(&self, title: &str) -> Option<&str> {
        let devices = || self.incidents.values().rev().filter(|tracked| tracked.is_devices());
        let mut seen = BTreeSet::new();
        // A device may have had other names before.
        let mut latest = devices().filter(|tracked| seen.insert(tracked.incident.alarm_id.as_str()));
        let named = latest.find(|tracked| tracked.incident.alarm_name == title);
        let owner = named.or_else(|| devices().find(|tracked| tracked.title.as_deref() == Some(title)));
        owner.map(|tracked| tracked.incident.alarm_id.as_str())
    }

    /// True if the title of this device's push messages is known.
    fn has_title(&self, device: &str) -> bool {
        self.incidents.values().any(|tracked| tracked.incident.alarm_id == device && tracked.title.is_some())
    }
}

/// An open incident that is too old to be shown, as it ended while the service was away.
pub fn ended_meanwhile(incident: &Incident, now: Timestamp) -> Option<Incident> {
    let is_left_open = incident.ended_at.is_none() && now - incident.last_at >= SHOWN_FOR;
    is_left_open.then(|| Incident { ended_at: Some(incident.last_at + QUIET), ..incident.clone() })
}

/// Certainty that two reports are of one alarm.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Certainty {
    /// The device, its name or its title say so.
    Exact,
    /// Only the time does. Should they be two after all, the update that goes out at once reports the second.
    Likely,
}

/// The one incident that time alone may give to an alarm. With several candidates it is undecided, and one that a user
/// has acknowledged would swallow the alarm, should it be another.
fn only_unanswered<'a>(mut likely: impl Iterator<Item = (&'a String, &'a Tracked)>) -> Option<(String, Certainty)> {
    let (id, tracked) = likely.next()?;
    let is_alone = likely.next().is_none();
    (is_alone && tracked.incident.acks.is_empty() && !tracked.is_overflow()).then(|| (id.clone(), Certainty::Likely))
}

/// The alarm that opens an incident.
struct NewIncident<'a> {
    path: AlarmPath,
    alarm_id: &'a str,
    name: &'a str,
    place: DevicePlace,
    at: Moment,
}

impl AlarmOutcome {
    /// A merged alarm. A new fact is shown at once, even without a message.
    fn merged(incident: String, first_by_path: bool, renamed: bool, message: Option<Raid>) -> Self {
        let changed = first_by_path || renamed || message.is_some();
        let changes = changed.then(|| IncidentChange { incident: incident.clone(), message }).into_iter().collect();
        Self { incident, opened: false, first_by_path, changes }
    }
}

#[cfg(test)]
mod tests;
