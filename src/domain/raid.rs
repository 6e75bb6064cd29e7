//! Alarms to raid incidents: the first trigger is announced at once, repeats raise its count, and none is lost.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::Serialize;

use crate::domain::{
    plain_text::plain_text,
    time::{self, Moment, Timestamp},
};

/// After this long without a trigger the next one is a new incident.
const QUIET: TimeDelta = TimeDelta::seconds(90);

/// Least time between two messages about one incident.
const UPDATE_EVERY: TimeDelta = TimeDelta::seconds(10);

/// A trigger seen on the live link and a push message this close are the same one.
const SAME_TRIGGER: TimeDelta = TimeDelta::seconds(10);

/// Incidents known only from pushes, by title; titles are free text, so further ones share an incident.
const MAX_PUSHED: usize = 64;

/// Characters of a push message's title.
const LONGEST_TITLE: usize = 128;

/// A message about an incident.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Raid {
    /// Id of the incident; the same in all its updates.
    pub incident: String,
    /// The device id of the alarm, or `push` and `push:<title>` where only the push message knows of it.
    pub alarm_id: String,
    pub alarm_name: String,
    /// Of the first trigger.
    #[serde(serialize_with = "time::wire")]
    pub ts: Timestamp,
    /// Triggers so far.
    pub count: u32,
    /// False on the first message of the incident.
    pub update: bool,
    /// Asked for by the user; nothing happens in the game.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drill: bool,
}

#[derive(Debug)]
struct Incident {
    /// As it would be sent now.
    raid: Raid,
    last_trigger: Moment,
    last_sent: Moment,
    /// Something changed since it was sent.
    changed: bool,
    /// The latest trigger, while only this path has reported it.
    unmatched: Option<(Path, Moment)>,
    /// Title of the push messages that are this alarm's.
    title: Option<String>,
}

/// What came of an alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct RaidUpdate {
    /// The one incident this alarm belongs to.
    pub incident: String,
    /// It opened that incident; otherwise it was merged into it.
    pub opened: bool,
    /// What to send at once: nothing, or an update, or the new incident after the last update of the one before it.
    pub messages: Vec<Raid>,
}

/// How a trigger reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Link,
    Push,
}

/// The raid incidents of one game server.
#[derive(Debug, Default)]
pub struct Raids {
    /// By alarm id.
    incidents: BTreeMap<String, Incident>,
}

impl Raids {
    /// No incident.
    pub fn new() -> Self {
        Self::default()
    }

    /// An alarm seen on the live link.
    pub fn alarm(&mut self, id: &str, name: &str, now: Moment, new_id: impl FnOnce() -> String) -> RaidUpdate {
        if let Some(incident) = self.incidents.get_mut(id)
            && incident.is_open(now)
        {
            let reported = incident.is_unmatched(Path::Push, now);
            let messages = if reported { incident.matched() } else { incident.repeat(Path::Link, name, now) };
            return incident.merged(messages);
        }
        if let Some(pushed) = self.unmatched(Path::Push, name, now)
            && let Some(mut incident) = self.incidents.remove(&pushed)
        {
            // The push came first: its incident is this alarm's, and the trigger is counted already.
            incident.matched();
            incident.title = Some(std::mem::replace(&mut incident.raid.alarm_name, name.to_owned()));
            incident.raid.alarm_id = id.to_owned();
            incident.changed = true;
            let into = incident.raid.incident.clone();
            let before = self.incidents.insert(id.to_owned(), incident);
            return RaidUpdate {
                incident: into,
                opened: false,
                messages: before.and_then(Incident::close).into_iter().collect(),
            };
        }
        self.open(Path::Link, id, name, now, new_id)
    }

    /// An alarm that came as a push message, which does not say which device it was.
    pub fn pushed(&mut self, title: &str, now: Moment, new_id: impl FnOnce() -> String) -> RaidUpdate {
        let title = plain_text(title, LONGEST_TITLE);
        let title = title.as_str();
        if let Some(id) = self.unmatched(Path::Link, title, now)
            && let Some(incident) = self.incidents.get_mut(&id)
        {
            incident.title = Some(title.to_owned());
            let messages = incident.matched();
            return incident.merged(messages);
        }
        let known = |incident: &&mut Incident| incident.title.as_deref() == Some(title) && incident.is_open(now);
        if let Some(incident) = self.incidents.values_mut().find(known) {
            let name = incident.raid.alarm_name.clone();
            let messages = incident.repeat(Path::Push, &name, now);
            return incident.merged(messages);
        }
        let mut id = format!("push:{title}");
        if !self.incidents.contains_key(&id) && self.incidents.keys().filter(|id| is_pushed(id)).count() >= MAX_PUSHED {
            id = "push".to_owned();
        }
        if let Some(incident) = self.incidents.get_mut(&id)
            && incident.is_open(now)
        {
            let messages = incident.repeat(Path::Push, title, now);
            return incident.merged(messages);
        }
        self.open(Path::Push, &id, title, now, new_id)
    }

    /// Continues an incident that another process opened at `since` and may have announced; `alarm_id` is empty if only a
    /// push knows of it. Returns the message to send.
    pub fn restore(&mut self, incident: &str, alarm_id: &str, name: &str, since: Moment) -> Raid {
        let name = plain_text(name, LONGEST_TITLE);
        let id = if alarm_id.is_empty() { format!("push:{name}") } else { alarm_id.to_owned() };
        let raid = Raid {
            incident: incident.to_owned(),
            alarm_id: id.clone(),
            alarm_name: name,
            ts: since.stamp,
            count: 1,
            update: true,
            drill: false,
        };
        // One that is known already is newer.
        self.incidents.entry(id).or_insert_with(|| Incident {
            raid: raid.clone(),
            last_trigger: since,
            last_sent: since,
            changed: false,
            unmatched: None,
            title: None,
        });
        raid
    }

    /// Sends all incidents once more with their next update, for clients that come back late.
    pub fn repeat(&mut self, now: Moment) {
        for incident in self.incidents.values_mut() {
            (incident.last_sent, incident.changed) = (now, true);
        }
    }

    /// Updates that have become due; call it every second or at [`Raids::next_due`]. Forgets incidents that are over.
    pub fn tick(&mut self, now: Moment) -> Vec<Raid> {
        let mut due = Vec::new();
        self.incidents.retain(|_, incident| {
            if incident.changed && now - incident.last_sent >= UPDATE_EVERY {
                due.push(incident.message(now));
            }
            incident.changed || incident.is_open(now)
        });
        due
    }

    /// When the next update becomes due.
    pub fn next_due(&self) -> Option<Moment> {
        let waiting = self.incidents.values().filter(|incident| incident.changed);
        waiting.map(|incident| incident.last_sent + UPDATE_EVERY).min()
    }

    fn open(&mut self, path: Path, id: &str, name: &str, now: Moment, new_id: impl FnOnce() -> String) -> RaidUpdate {
        let raid = Raid {
            incident: new_id(),
            alarm_id: id.to_owned(),
            alarm_name: name.to_owned(),
            ts: now.stamp,
            count: 1,
            update: false,
            drill: false,
        };
        let incident = Incident {
            raid: raid.clone(),
            last_trigger: now,
            last_sent: now,
            changed: false,
            unmatched: Some((path, now)),
            title: None,
        };
        let before = self.incidents.insert(id.to_owned(), incident);
        let incident = raid.incident.clone();
        RaidUpdate {
            incident,
            opened: true,
            messages: before.and_then(Incident::close).into_iter().chain([raid]).collect(),
        }
    }

    /// The incident whose latest trigger only this path reported: by name if there is one, else the newest.
    fn unmatched(&self, path: Path, name: &str, now: Moment) -> Option<String> {
        let is_named =
            |incident: &Incident| incident.raid.alarm_name == name || incident.title.as_deref() == Some(name);
        self.incidents
            .iter()
            .filter(|(id, incident)| is_pushed(id) == (path == Path::Push) && incident.is_unmatched(path, now))
            .max_by_key(|(_, incident)| (is_named(incident), incident.last_trigger))
            .map(|(id, _)| id.clone())
    }
}

impl Incident {
    fn is_open(&self, now: Moment) -> bool {
        now - self.last_trigger <= QUIET
    }

    fn is_unmatched(&self, path: Path, now: Moment) -> bool {
        self.unmatched.is_some_and(|(by, at)| by == path && (now - at).abs() <= SAME_TRIGGER)
    }

    fn merged(&self, messages: Vec<Raid>) -> RaidUpdate {
        RaidUpdate { incident: self.raid.incident.clone(), opened: false, messages }
    }

    /// The other path reported the trigger as well: nothing new to send.
    fn matched(&mut self) -> Vec<Raid> {
        self.unmatched = None;
        Vec::new()
    }

    fn repeat(&mut self, path: Path, name: &str, now: Moment) -> Vec<Raid> {
        self.raid.count = self.raid.count.saturating_add(1);
        self.raid.alarm_name = name.to_owned();
        self.last_trigger = self.last_trigger.max(now);
        self.unmatched = Some((path, now));
        self.changed = true;
        let due = now - self.last_sent >= UPDATE_EVERY;
        if due { vec![self.message(now)] } else { Vec::new() }
    }

    fn message(&mut self, now: Moment) -> Raid {
        self.last_sent = now;
        self.changed = false;
        Raid { update: true, ..self.raid.clone() }
    }

    /// The last word, if something is still to be said.
    fn close(self) -> Option<Raid> {
        self.changed.then_some(Raid { update: true, ..self.raid })
    }
}

fn is_pushed(alarm_id: &str) -> bool {
    alarm_id.starts_with("push")
}

#[cfg(test)]
mod tests;
