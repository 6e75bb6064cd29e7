//! What of the incidents comes due: updates that were held back, ends, and that they are shown no longer.

use chrono::TimeDelta;

use super::{DRILL_SHOWN_FOR, DRILLS_SHOWN, QUIET, RaidChange, Raids, SHOWN, SHOWN_FOR, Tracked, UPDATE_EVERY};
use crate::domain::time::Moment;

impl Raids {
    /// When an update, an end or the oblivion of an incident comes due.
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let mut shown = [0; 2];
        let due = self.incidents.values().map(|tracked| {
            let lane = usize::from(tracked.incident.drill);
            shown[lane] += 1;
            let is_one_too_many = shown[lane] > [SHOWN, DRILLS_SHOWN][lane];
            if is_one_too_many { now } else { tracked.next_due() }
        });
        due.min()
    }

    /// Updates that have become due, ends, and incidents that are shown no longer; call it when something comes due.
    pub fn tick(&mut self, now: Moment) -> Vec<RaidChange> {
        let mut changes: Vec<RaidChange> =
            self.incidents.iter_mut().filter_map(|(id, tracked)| tracked.tick(id, now)).collect();
        changes.extend(self.forget(now));
        changes
    }

    /// Forgets what is shown no longer.
    fn forget(&mut self, now: Moment) -> Vec<RaidChange> {
        let mut shown = [SHOWN, DRILLS_SHOWN];
        let stays = |tracked: &Tracked, shown: &mut [usize; 2]| {
            let lane = usize::from(tracked.incident.drill);
            let stays = now - tracked.last_trigger < tracked.shown_for() && shown[lane] > 0;
            shown[lane] -= usize::from(stays);
            stays
        };
        // The newest first.
        let gone: Vec<String> = self
            .incidents
            .iter()
            .rev()
            .filter(|(_, tracked)| !stays(tracked, &mut shown))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &gone {
            self.incidents.remove(id);
        }
        gone.into_iter().map(|incident| RaidChange { incident, message: None }).collect()
    }
}

impl Tracked {
    fn shown_for(&self) -> TimeDelta {
        if self.incident.drill { DRILL_SHOWN_FOR } else { SHOWN_FOR }
    }

    /// When there is something to say of it, or nothing any more.
    fn next_due(&self) -> Moment {
        let update = self.changed.then(|| self.last_sent + UPDATE_EVERY);
        let end = self.incident.ended_at.is_none().then(|| self.last_heard + QUIET + TimeDelta::nanoseconds(1));
        let gone = self.last_trigger + self.shown_for();
        update.into_iter().chain(end).fold(gone, Moment::min)
    }

    fn tick(&mut self, id: &str, now: Moment) -> Option<RaidChange> {
        self.end(id, now).or_else(|| {
            let message = self.due(id, now)?;
            Some(RaidChange { incident: id.to_owned(), message: Some(message) })
        })
    }

    /// Ends it if it has been quiet for long; with the last word, if something is still to be said.
    pub(super) fn end(&mut self, id: &str, now: Moment) -> Option<RaidChange> {
        if self.incident.ended_at.is_some() || now - self.last_heard <= QUIET {
            return None;
        }
        self.incident.ended_at = Some(self.incident.last_at + QUIET);
        let message = self.changed.then(|| self.update(id, now));
        Some(RaidChange { incident: id.to_owned(), message })
    }
}
