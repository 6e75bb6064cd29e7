//! Keeps when the link was last up, so that the next process knows since when no one looked.

use chrono::TimeDelta;

use super::GameConnection;
use crate::relay::shared::fact_sink::Fact;

/// A process that is killed has stored it this long ago at most.
const KEPT_EVERY: TimeDelta = TimeDelta::seconds(60);

impl GameConnection {
    /// Keeps it once a minute, unless the link has been down since. `at_once`: there is no later.
    pub(super) fn keep_alive(&mut self, at_once: bool) {
        let now = self.context.clock.moment();
        if !at_once && self.alive_kept.is_some_and(|(kept, _)| now - kept < KEPT_EVERY) {
            return;
        }
        // In a panic it may be held.
        let Some(alive_at) = self.live.try_borrow().ok().and_then(|live| live.alive_at(now)) else { return };
        if self.alive_kept.is_none_or(|(_, known)| known != alive_at) {
            self.alive_kept = Some((now, alive_at));
            self.context.facts.store(Fact::LinkAlive(self.server.clone(), alive_at));
        }
    }
}
