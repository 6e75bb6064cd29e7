//! Due changes of incidents: updates that were held back, ends, and the removal from the state.

use chrono::TimeDelta;

use super::{
    DRILL_SHOWN_FOR, DRILLS_SHOWN, IncidentChange, Raids, SHOWN, SHOWN_FOR,
    tracked::{QUIET, Tracked, UPDATE_EVERY},
};
use crate::domain::time::Moment;

impl Raids {
    /// Time at which an update, an end or the removal of an incident comes due.
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let mut room = Room::default();
        // The newest first, as they are kept.
        let due = self.incidents.values().rev().map(|tracked| match room.take(tracked) {
            true => tracked.next_due(),
            false => now,
        });
        due.min()
    }

    /// Updates that have become due, ends, and incidents that are no longer shown; call it when something comes due.
    pub fn tick(&mut self, now: Moment) -> Vec<IncidentChange> {
        // An incident that ends now is forgotten at the next call: its end has to be stored first.
        let mut changes = self.forget(now);
        changes.extend(self.incidents.iter_mut().filter_map(|(id, tracked)| tracked.tick(id, now)));
        changes
    }

    /// Forgets incidents that are no longer shown.
    fn forget(&mut self, now: Moment) -> Vec<IncidentChange> {
        let mut room = Room::default();
        let mut stays = |tracked: &Tracked| {
            let is_recent = now - tracked.last_trigger < tracked.shown_for();
            (tracked.is_open() || is_recent) && room.take(tracked)
        };
        // The newest first.
        let gone: Vec<String> =
            self.incidents.iter().rev().filter(|(_, tracked)| !stays(tracked)).map(|(id, _)| id.clone()).collect();
        for id in &gone {
            self.incidents.remove(id);
        }
        gone.into_iter().map(|incident| IncidentChange { incident, message: None }).collect()
    }
}

/// Room for incidents in the state. An open raid takes none of it: alarms and titles of pushes bound those.
struct Room {
    ended: usize,
    drills: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { ended: SHOWN, drills: DRILLS_SHOWN }
    }
}

impl Room {
    /// Takes room for this incident; false if none is left.
    fn take(&mut self, tracked: &Tracked) -> bool {
        let places = match tracked.incident.drill {
            true => &mut self.drills,
            false if tracked.is_open() => return true,
            false => &mut self.ended,
        };
        let left = places.checked_sub(1);
        *places = left.unwrap_or(0);
        left.is_some()
    }
}

impl Tracked {
    /// A raid that has not ended.
    fn is_open(&self) -> bool {
        !self.incident.drill && self.incident.ended_at.is_none()
    }

    fn shown_for(&self) -> TimeDelta {
        if self.incident.drill { DRILL_SHOWN_FOR } else { SHOWN_FOR }
    }

    /// Time of its next update, end or removal.
    fn next_due(&self) -> Moment {
        let update = self.changed.then(|| self.last_sent + UPDATE_EVERY);
        let end = self.incident.ended_at.is_none().then(|| self.last_heard + QUIET + TimeDelta::nanoseconds(1));
        let gone = self.last_trigger + self.shown_for();
        let last = end.map_or(gone, |end| if self.is_open() { end } else { end.min(gone) });
        update.map_or(last, |update| update.min(last))
    }

    fn tick(&mut self, id: &str, now: Moment) -> Option<IncidentChange> {
        self.end(id, now).or_else(|| {
            let message = self.due(id, now)?;
            Some(IncidentChange { incident: id.to_owned(), message: Some(message) })
        })
    }

    /// Ends it if it has been quiet for long; with the last word, if something is still to be said.
    pub(super) fn end(&mut self, id: &str, now: Moment) -> Option<IncidentChange> {
        if self.incident.ended_at.is_some() || now - self.last_heard <= QUIET {
            return None;
        }
        self.incident.ended_at = Some(self.incident.last_at + QUIET);
        let message = self.changed.then(|| self.update(id, now));
        Some(IncidentChange { incident: id.to_owned(), message })
    }
}
