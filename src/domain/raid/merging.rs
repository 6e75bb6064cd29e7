//! Alarms that rang before the ledger was known, merged with the incidents that it has, as if those had been known.

use super::{
    MergedIncident, Raids,
    tracked::{QUIET, Tracked},
};
use crate::domain::time::Moment;

impl Raids {
    /// Merges each incident into the older one that would have taken its first trigger.
    pub fn merge(&mut self, now: Moment) -> Vec<MergedIncident> {
        let ids: Vec<String> = self.incidents.keys().cloned().collect();
        let merged = ids.into_iter().filter_map(|id| {
            let newer = self.incidents.get(&id)?;
            let mut older = self.incidents.range(..id.clone()).rev();
            let into = older.find(|(_, older)| older.would_have_taken(newer, now))?.0.clone();
            let newer = self.incidents.remove(&id)?;
            self.incidents.get_mut(&into)?.absorb(newer);
            Some(MergedIncident { id, into })
        });
        merged.collect()
    }
}

impl Tracked {
    fn would_have_taken(&self, newer: &Tracked, now: Moment) -> bool {
        let is_open = self.incident.ended_at.is_none() && (!self.incident.late || newer.incident.late);
        // An end in the future is from before the clock was set back: that incident is the older one, in truth.
        let is_older = newer.incident.ended_at.is_some_and(|end| end > now.stamp);
        let is_drill = self.incident.drill || newer.incident.drill;
        // Triggers of the ledger are taken for those of now if the clock was set back since.
        let (began, last, at) = (self.incident.first_at, self.incident.last_at, newer.incident.first_at);
        let is_near = self.is_near(newer.first_trigger) && at - last <= QUIET && began - at <= QUIET;
        is_open && !is_older && !is_drill && is_near && self.is_of_the_same_alarm(newer)
    }

    /// Two devices may have one name; a push says only that.
    fn is_of_the_same_alarm(&self, newer: &Tracked) -> bool {
        if self.incident.alarm_id == newer.incident.alarm_id {
            return true;
        }
        let is_pushed = self.is_pushed() || newer.is_pushed();
        let is_overflow = self.is_overflow() || newer.is_overflow();
        is_pushed
            && !is_overflow
            && (self.is_named(&newer.incident.alarm_name) || newer.is_named(&self.incident.alarm_name))
    }

    /// Takes over everything from the newer one.
    fn absorb(&mut self, newer: Tracked) {
        let Tracked { incident, last_trigger, last_heard, last_sent, unmatched, title, .. } = newer;
        self.title = self.title.take().or(title);
        if !incident.alarm_id.starts_with("push") {
            if self.is_pushed() {
                self.title.get_or_insert_with(|| self.incident.alarm_name.clone());
            }
            (self.incident.alarm_id, self.incident.alarm_name) = (incident.alarm_id, incident.alarm_name);
            self.incident.place = incident.place;
        }
        self.incident.count = self.incident.count.saturating_add(incident.count);
        self.incident.last_at = self.incident.last_at.max(incident.last_at);
        self.incident.paths.extend(incident.paths);
        for (user, at) in incident.acks {
            self.incident.acks.entry(user).or_insert(at);
        }
        // A push that was sent before the last trigger says nothing of that one.
        if last_trigger >= self.last_trigger {
            (self.last_trigger, self.unmatched) = (last_trigger, unmatched);
        }
        self.last_heard = self.last_heard.max(last_heard);
        (self.last_sent, self.changed) = (last_sent, true);
    }
}
