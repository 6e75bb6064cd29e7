//! The time without a link, in which detectors pause.

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// After a longer gap the world may be another one: the next answers only show how things are.
pub(super) const SHORT_GAP: TimeDelta = TimeDelta::seconds(60);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LinkGap {
    since: Option<Moment>,
}

impl LinkGap {
    /// The link was lost.
    pub(super) fn begin(&mut self, now: Moment) {
        self.since.get_or_insert(now);
    }

    /// The link is back; true if it was away for long.
    pub(super) fn end(&mut self, now: Moment) -> bool {
        self.since.take().is_some_and(|since| now - since > SHORT_GAP)
    }

    /// True while there is no link, after there was one.
    pub(super) fn is_open(&self) -> bool {
        self.since.is_some()
    }
}
