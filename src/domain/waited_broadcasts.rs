//! Broadcasts that waited in a socket while the machine was suspended: when they were sent is not known. The steady clock stops
//! meanwhile, and the wall clock has leapt ahead of it; one that was set forward looks the same.

use chrono::TimeDelta;

use crate::domain::time::{Moment, Timestamp};

/// The wall clock is corrected by less than this all the time.
const LEAP: TimeDelta = TimeDelta::seconds(10);

/// The looks of one link at the clocks.
#[derive(Debug)]
pub struct WaitedBroadcasts {
    looked_at: Moment,
    doubt: Option<Doubt>,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Broadcasts that are read now may have come at any time since then.
    since: Timestamp,
    noticed_at: Moment,
}

impl WaitedBroadcasts {
    /// A link that is up now.
    pub fn new(now: Moment) -> Self {
        Self { looked_at: now, doubt: None }
    }

    /// Looks before each question and at each broadcast. Returns since when the broadcasts that are read now may have waited;
    /// `None`: they have just come.
    pub fn look(&mut self, now: Moment) -> Option<Timestamp> {
        if -now.set_back_since(self.looked_at) > LEAP {
            let since = self.doubt.map_or(self.looked_at.stamp, |doubt| doubt.since);
            self.doubt = Some(Doubt { since, noticed_at: now });
        }
        self.looked_at = now;
        self.doubt.map(|doubt| doubt.since)
    }

    /// A question is answered, before which the look was at this moment: what had waited by then came before the answer.
    pub fn answered(&mut self, asked_at: Moment) {
        if self.doubt.is_some_and(|doubt| doubt.noticed_at <= asked_at) {
            self.doubt = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steady clock has run for this long, and the wall clock is ahead of it by this.
    fn at(second: i64, ahead: i64) -> Moment {
        let steady = TimeDelta::seconds(second);
        Moment::new(steady, Timestamp::UNIX_EPOCH + steady + TimeDelta::seconds(ahead))
    }

    #[test]
    fn broadcasts_have_waited_from_a_leap_of_the_clock_until_an_answer_to_a_later_question() {
        let mut waited = WaitedBroadcasts::new(at(0, 0));
        assert_eq!(waited.look(at(60, 9)), None, "it is corrected");
        assert_eq!(waited.look(at(65, -600)), None, "it is set back");
        let asked = at(70, -600);
        assert_eq!(waited.look(asked), None);
        let since = Some(asked.stamp);
        assert_eq!(waited.look(at(71, 3_000)), since);
        assert_eq!(waited.look(at(71, 3_000)), since, "so have all that came with it");
        waited.answered(asked);
        assert_eq!(waited.look(at(72, 3_000)), since, "the answer may have waited, too");
        assert_eq!(waited.look(at(73, 9_000)), since, "suspended once more");
        waited.answered(at(72, 3_000));
        assert_eq!(waited.look(at(74, 9_000)), since);
        waited.answered(at(74, 9_000));
        assert_eq!(waited.look(at(75, 9_000)), None);
    }
}
