//! Attempts as operators see them: how many users are reached, and lines about those that failed. One user, with however
//! many channels, is one: none makes it look as if the service failed.

use std::collections::HashMap;

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// For so long an attempt counts.
const SPAN: TimeDelta = TimeDelta::minutes(30);
/// In which [`MOST_LINES`] are written.
const LINES_SPAN: TimeDelta = TimeDelta::minutes(1);
/// Failures of which each has a line; the others share one.
const MOST_LINES: u64 = 20;

/// Numbers of users with attempts within half an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReachedCounts {
    /// At least one message was taken.
    pub reached: usize,
    /// All failed.
    pub unreached: usize,
}

/// The newest attempts of a user.
#[derive(Debug, Default)]
struct UserAttempts {
    accepted_at: Option<Moment>,
    failed_at: Option<Moment>,
}

/// Users with attempts within half an hour, by their outcome.
#[derive(Debug)]
pub struct ReachedUsers {
    users: HashMap<String, UserAttempts>,
    /// Begin of the minute whose failures are counted.
    since: Moment,
    failures: u64,
}

/// The report of a minute that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinuteReport {
    pub counts: ReachedCounts,
    /// Failures that had no line of their own.
    pub unsaid: u64,
}

impl ReachedUsers {
    /// Without any attempt yet.
    pub fn new(now: Moment) -> Self {
        Self { users: HashMap::new(), since: now, failures: 0 }
    }

    /// Notes that a message of this user was taken.
    pub fn note_accepted(&mut self, user: &str, now: Moment) {
        self.users.entry(user.to_owned()).or_default().accepted_at = Some(now);
    }

    /// Notes that an attempt failed; true if it has a line of its own.
    pub fn note_failed(&mut self, user: &str, now: Moment) -> bool {
        self.users.entry(user.to_owned()).or_default().failed_at = Some(now);
        self.failures += 1;
        self.failures <= MOST_LINES
    }

    /// The report, once a minute.
    pub fn report(&mut self, now: Moment) -> Option<MinuteReport> {
        if now - self.since < LINES_SPAN {
            return None;
        }
        self.since = now;
        let is_recent = |at: Option<Moment>| at.is_some_and(|at| now - at < SPAN);
        self.users.retain(|_, user| is_recent(user.accepted_at) || is_recent(user.failed_at));
        let reached = self.users.values().filter(|user| is_recent(user.accepted_at)).count();
        let counts = ReachedCounts { reached, unreached: self.users.len() - reached };
        let unsaid = std::mem::take(&mut self.failures).saturating_sub(MOST_LINES);
        Some(MinuteReport { counts, unsaid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    fn at(minute: i64) -> Moment {
        Timestamp::from_timestamp(60 * minute, 0).unwrap().into()
    }

    #[test]
    fn a_user_with_many_channels_that_fail_is_one_and_few_lines() {
        let mut users = ReachedUsers::new(at(0));
        let lines = (0..7_000).filter(|_| users.note_failed("loud", at(0))).count();
        assert_eq!((lines as u64, users.report(at(0))), (MOST_LINES, None));
        users.note_failed("half", at(0));
        users.note_accepted("half", at(0));
        let counts = ReachedCounts { reached: 1, unreached: 1 };
        assert_eq!(users.report(at(1)), Some(MinuteReport { counts, unsaid: 7_001 - MOST_LINES }));
        assert!(users.note_failed("loud", at(2)), "a line again");
        assert_eq!(users.report(at(2)), Some(MinuteReport { counts, unsaid: 0 }));
        let counts = ReachedCounts { reached: 0, unreached: 1 };
        assert_eq!(users.report(at(31)), Some(MinuteReport { counts, unsaid: 0 }));
        assert_eq!(users.report(at(32)).unwrap().counts, ReachedCounts::default());
        assert!(users.users.is_empty());
    }
}
