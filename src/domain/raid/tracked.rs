//! One incident, with the rules for which triggers belong to it and what its next message is.

use chrono::TimeDelta;

use crate::domain::{
    incident::{AlarmPath, DevicePlace, Incident, Raid},
    time::Moment,
};

/// After this long without a trigger the incident has ended, and the next one is a new incident.
pub(super) const QUIET: TimeDelta = TimeDelta::seconds(90);

/// Least time between two messages about one incident.
pub(super) const UPDATE_EVERY: TimeDelta = TimeDelta::seconds(10);

/// A trigger seen on the live link and a push message this close are the same one.
pub(super) const SAME_TRIGGER: TimeDelta = TimeDelta::seconds(10);

/// An alarm that was sent longer ago is late: it is shown with the time it was sent, never as fresh.
pub const LATE: TimeDelta = TimeDelta::minutes(20);

/// `alarmId` of the incident that they share.
pub(super) const OVERFLOW: &str = "push";

/// The time of a trigger on the live link, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerTime {
    Now,
    /// The first answer after a gap shows it: at any time since the link was lost.
    AfterGap(Moment),
    /// A broadcast says it that may have waited since then.
    Waited(Moment),
}

/// An incident, and what decides its next message.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) incident: Incident,
    pub(super) first_trigger: Moment,
    pub(super) last_trigger: Moment,
    /// When it last had a trigger: a push that took a moment keeps it open as a fresh one does.
    pub(super) last_heard: Moment,
    pub(super) last_sent: Moment,
    /// Something changed since it was sent.
    pub(super) changed: bool,
    /// The latest trigger, while only this path has reported it.
    pub(super) unmatched: Option<(AlarmPath, Moment)>,
    /// Title of the push messages that are this alarm's.
    pub(super) title: Option<String>,
}

/// When a trigger was heard of, for the end of its incident.
pub(super) fn heard(at: Moment, now: Moment) -> Moment {
    if now - at <= QUIET { now } else { at }
}

impl Tracked {
    /// True if a trigger at `at` that this path reports `now` belongs to it; an earlier one comes by a delayed push. A
    /// fresh trigger opens an incident rather than to go on with one that is over, or that was late: no user would hear
    /// of it.
    pub(super) fn takes(&self, path: AlarmPath, at: Moment, now: Moment) -> bool {
        let is_over = self.incident.ended_at.is_some() && (now - at <= QUIET || self.is_from_ahead());
        let is_late = self.incident.late && now - at <= LATE;
        let other = if path == AlarmPath::Link { AlarmPath::Push } else { AlarmPath::Link };
        self.is_near(at) && (!is_over && !is_late || self.is_unmatched(other, at))
    }

    /// No long quiet lies between a trigger at `at` and those of this incident. A delayed push may be from before the first.
    pub(super) fn is_near(&self, at: Moment) -> bool {
        at - self.last_trigger <= QUIET && self.first_trigger - at <= QUIET
    }

    /// As [`Self::takes`], for a trigger on the link; one whose time is not known may have been reported by a push at any time
    /// since then, and its incident may be over.
    pub(super) fn takes_on_link(&self, time: TriggerTime, now: Moment) -> bool {
        self.is_pushed_as(time) || self.takes(AlarmPath::Link, now, now)
    }

    /// A push is, or may be, its latest trigger, and is the one of this time. After a leap of the clock only one that the link has
    /// not seen: the clock may have been set, and the trigger be new.
    pub(super) fn is_pushed_as(&self, time: TriggerTime) -> bool {
        match time {
            TriggerTime::Now => false,
            TriggerTime::AfterGap(since) => self.is_pushed_since(since),
            TriggerTime::Waited(since) => {
                // The steady clock stood still meanwhile: the time of day says what was before.
                let is_after = self.last_trigger.stamp >= since.stamp && self.is_pushed_since(since);
                is_after && matches!(self.unmatched, Some((AlarmPath::Push, _)))
            }
        }
    }

    fn is_pushed_since(&self, since: Moment) -> bool {
        let is_after = self.last_trigger - since >= TimeDelta::zero() && !self.is_from_ahead();
        is_after && self.incident.paths.contains(&AlarmPath::Push) && !self.is_overflow()
    }

    /// True if its last trigger was before it seems to have been: the clock was set back since, and an incident of an earlier
    /// process that lay in the future was taken for one of the time when it was taken up.
    fn is_from_ahead(&self) -> bool {
        self.incident.last_at > self.last_trigger.stamp
    }

    pub(super) fn is_unmatched(&self, path: AlarmPath, at: Moment) -> bool {
        self.unmatched.is_some_and(|(by, then)| by == path && (at - then).abs() <= SAME_TRIGGER)
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.incident.alarm_name == name || self.title.as_deref() == Some(name)
    }

    /// Only pushes know of it.
    pub(super) fn is_pushed(&self) -> bool {
        self.incident.alarm_id.starts_with("push")
    }

    /// Many titles share it.
    pub(super) fn is_overflow(&self) -> bool {
        self.incident.alarm_id == OVERFLOW
    }

    /// The link knows of it.
    pub(super) fn is_devices(&self) -> bool {
        !self.incident.drill && !self.is_pushed()
    }

    /// Notes the title of a device's push message; true if it is new. The device's own name is better than a title that
    /// only came at the same time.
    pub(super) fn take_title(&mut self, title: String) -> bool {
        let is_better =
            self.title.is_none() || (self.title.as_ref() != Some(&title) && self.incident.alarm_name == title);
        let is_new = self.is_devices() && is_better;
        if is_new {
            self.title = Some(title);
        }
        is_new
    }

    /// Name and place as the link knows them; true if they are new.
    pub(super) fn name(&mut self, name: &str, place: &DevicePlace) -> bool {
        let renamed = self.incident.alarm_name != name || self.incident.place != *place;
        if renamed {
            (self.incident.alarm_name, self.incident.place) = (name.to_owned(), place.clone());
        }
        renamed
    }

    /// A trigger on the link: one that a push has just reported, or one more.
    pub(super) fn seen_on_link(&mut self, now: Moment) {
        if self.is_unmatched(AlarmPath::Push, now) {
            self.unmatched = None;
        } else {
            self.repeat(AlarmPath::Link, now, now);
        }
    }

    /// One more trigger at `at`.
    pub(super) fn repeat(&mut self, path: AlarmPath, at: Moment, now: Moment) {
        self.last_heard = self.last_heard.max(heard(at, now));
        self.incident.count = self.incident.count.saturating_add(1);
        if at - self.last_trigger >= TimeDelta::zero() {
            self.last_trigger = at;
            // A clock that was set back does not let it end before it began.
            self.incident.last_at = self.incident.last_at.max(at.stamp);
            self.incident.ended_at = self.incident.ended_at.map(|_| self.incident.last_at + QUIET);
            self.unmatched = Some((path, at));
        }
        self.changed = true;
    }

    /// The update, if something is unsent and it is time.
    pub(super) fn due(&mut self, id: &str, now: Moment) -> Option<Raid> {
        let is_due = self.changed && now - self.last_sent >= UPDATE_EVERY;
        is_due.then(|| self.update(id, now))
    }

    pub(super) fn update(&mut self, id: &str, now: Moment) -> Raid {
        (self.last_sent, self.changed) = (now, false);
        Raid::new(id, &self.incident, true)
    }
}
