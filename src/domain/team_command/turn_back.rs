//! Switches that turn back after a time, and how often that is tried.

use chrono::TimeDelta;

use crate::domain::time::Timestamp;

/// A switch that did not turn back is tried again after this time.
const TRIED_AGAIN: TimeDelta = TimeDelta::seconds(30);
/// Tries with a link, an hour of them; then it is given up.
const MOST_TRIES: u32 = 120;

/// The turning back of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingTurnBack {
    /// The value that it gets.
    pub value: bool,
    /// The end of the time that a player has set, however often it is tried.
    pub due_at: Timestamp,
    next_try: Timestamp,
    tries: u32,
}

impl PendingTurnBack {
    /// A switch that gets this value then.
    pub fn new(value: bool, due_at: Timestamp) -> Self {
        Self { value, due_at, next_try: due_at, tries: 0 }
    }

    /// The time of the next try.
    pub fn next_try(&self) -> Timestamp {
        self.next_try
    }

    /// True if it is tried now. Without a success, it is tried again a while later.
    pub fn begin_try(&mut self, now: Timestamp) -> bool {
        let is_time = self.next_try <= now;
        if is_time {
            (self.next_try, self.tries) = (now + TRIED_AGAIN, self.tries + 1);
        }
        is_time
    }

    /// True once it was tried for so long that it is given up.
    pub fn is_hopeless(&self) -> bool {
        self.tries >= MOST_TRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn it_is_tried_for_an_hour_with_a_link_and_stays_due_since_then() {
        let mut back = PendingTurnBack::new(true, at(60));
        assert!(!back.begin_try(at(59)));
        // The link was down for a day.
        let up = 86_400;
        assert!(back.begin_try(at(up)) && !back.begin_try(at(up + 29)));
        assert!(!back.is_hopeless(), "one try is no hour");
        let mut last = up;
        while !back.is_hopeless() {
            last = (back.next_try() - at(0)).num_seconds();
            assert!(back.begin_try(at(last)));
        }
        assert_eq!((last - up, back.due_at), (119 * 30, at(60)));
    }
}
