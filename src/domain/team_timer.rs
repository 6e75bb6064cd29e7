//! Timers that players set in chat, as the state shows them.

use chrono::TimeDelta;
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::time::Timestamp;

/// The end of a timer is said that much later, with how late it is, and no later: by then the team knows better.
const SAID_WITHIN: TimeDelta = TimeDelta::hours(1);
/// An end that is later than this says so.
const LATE: TimeDelta = TimeDelta::seconds(60);

/// Timers of one paired server.
pub const MOST_TIMERS: usize = 20;
/// Characters of a timer's text.
pub const LONGEST_TIMER_TEXT: usize = 80;

/// A timer that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamTimer {
    /// The number by which players name it: the lowest that was free.
    pub number: u32,
    pub text: String,
    pub ends_at: Timestamp,
}

/// The end of a timer, as it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerEnd {
    OnTime,
    /// Said so much later, because the service or the link was away.
    Late(TimeDelta),
    /// Not said.
    TooLate,
}

impl TeamTimer {
    /// Its end, if that is said now.
    pub fn end(&self, now: Timestamp) -> TimerEnd {
        match now - self.ends_at {
            late if late < LATE => TimerEnd::OnTime,
            late if late < SAID_WITHIN => TimerEnd::Late(late),
            _ => TimerEnd::TooLate,
        }
    }
}

/// The lowest number that none of these has.
pub fn free_number(numbers: impl Iterator<Item = u32>) -> u32 {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.into_iter().fold(1, |free, number| if number == free { free + 1 } else { free })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_says_how_late_it_is_and_is_not_said_after_an_hour() {
        let ends_at = Timestamp::UNIX_EPOCH;
        let timer = TeamTimer { number: 1, text: "heli".into(), ends_at };
        let end = |seconds| timer.end(ends_at + TimeDelta::seconds(seconds));
        assert_eq!((end(0), end(59)), (TimerEnd::OnTime, TimerEnd::OnTime));
        assert_eq!(end(60), TimerEnd::Late(TimeDelta::seconds(60)));
        assert_eq!((end(3_599), end(3_600)), (TimerEnd::Late(TimeDelta::seconds(3_599)), TimerEnd::TooLate));
    }

    #[test]
    fn the_lowest_free_number_is_taken() {
        assert_eq!(
            [&[][..], &[1], &[2], &[3, 1], &[2, 1, 3, 3]].map(|known| free_number(known.iter().copied())),
            [1, 2, 1, 2, 4]
        );
    }
}
