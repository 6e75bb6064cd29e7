//! Timers that players set in chat, as the state shows them.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::time::Timestamp;

/// The end of a timer is said that much later, with how late it is, and no later: by then the team knows better.
const SAID_WITHIN: TimeDelta = TimeDelta::hours(1);
/// An end that is later than this says so.
const LATE: TimeDelta = TimeDelta::seconds(60);

/// Timers of one team.
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

/// The team of a paired player, as far as timers need it: the game has no name for a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerTeam {
    leader: Option<u64>,
    members: BTreeSet<u64>,
}

impl TimerTeam {
    /// SteamID64 of the leader and of all members.
    pub fn new(leader: Option<u64>, members: impl IntoIterator<Item = u64>) -> Self {
        Self { leader, members: members.into_iter().collect() }
    }

    /// True before the game has said who is in it.
    pub fn is_unknown(&self) -> bool {
        self.members.is_empty()
    }

    /// True if this player is in it.
    pub fn has(&self, player: u64) -> bool {
        self.members.contains(&player)
    }

    /// True for a player without mates.
    pub fn is_one(&self) -> bool {
        self.members.len() <= 1
    }

    /// True if `player`, who was in this team, is in another or in none now. A team that loses its last but one member
    /// looks the same to both: each has it still.
    pub fn is_left(&self, now: &Self, player: u64) -> bool {
        if self == now {
            return false;
        }
        let (before, lost) = (self.mates(player).count(), self.mates(player).filter(|mate| !now.has(*mate)).count());
        if now.mates(player).next().is_none() {
            return now.leader.is_none() || before > 1;
        }
        // One who leads was joined by others, perhaps after a mate had left. A leader who lost all of several has made
        // another team.
        let led = self.leader == Some(player) || (self.leader.is_none() && before == 0);
        let leads = led && now.leader == Some(player) && lost <= 1;
        !leads && lost == before
    }

    fn mates(&self, player: u64) -> impl Iterator<Item = u64> {
        self.members.iter().copied().filter(move |member| *member != player)
    }

    /// As [`parse`](Self::parse) reads it.
    pub fn to_text(&self) -> String {
        let ids = std::iter::once(self.leader.unwrap_or_default()).chain(self.members.iter().copied());
        ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Reads what was stored.
    pub fn parse(text: &str) -> Option<Self> {
        let ids = text.split(',').map(|id| id.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
        let (leader, members) = ids.split_first()?;
        Some(Self::new((*leader != 0).then_some(*leader), members.iter().copied()))
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
    fn a_team_is_left_for_another_or_none_and_not_by_a_change_of_its_members() {
        let team = |leader: u64, members: &[u64]| TimerTeam::new((leader != 0).then_some(leader), members.to_vec());
        let before = team(2, &[1, 2, 3]);
        for (now, is_left) in [
            (team(3, &[1, 3]), false),
            (team(3, &[1, 3, 4]), false),
            (team(8, &[1, 8, 9]), true),
            (team(1, &[1, 9]), true),
            (team(1, &[1]), true),
            (team(0, &[1]), true),
        ] {
            assert_eq!(before.is_left(&now, 1), is_left, "{now:?}");
        }
        assert!(![&before, &team(0, &[1])].iter().any(|team| team.is_left(team, 1)), "it is the same");
        let own = team(1, &[1]);
        assert!(!own.is_left(&team(1, &[1, 4]), 1), "others have joined");
        assert!(own.is_left(&team(4, &[1, 4]), 1));
        let none = team(0, &[1]);
        assert!(!none.is_left(&team(1, &[1, 4]), 1), "made a team, which others have joined");
        assert!(none.is_left(&team(4, &[1, 4]), 1));
        let led = team(1, &[1, 2, 3]);
        assert!(led.is_left(&team(1, &[1, 4]), 1), "made another team");
        assert!(!led.is_left(&team(1, &[1, 3, 4]), 1) && !led.is_left(&team(1, &[1, 3]), 1), "one has left");
        let pair = team(1, &[1, 2]);
        assert!(!pair.is_left(&team(1, &[1, 4]), 1), "one has left, and another has joined");
        assert!(!pair.is_left(&own, 1) && !pair.is_left(&team(2, &[2]), 2), "it has ended");
        assert!(pair.is_left(&team(0, &[1]), 1), "the other one has it still");
        assert!(pair.is_left(&team(4, &[2, 4]), 2));
    }

    #[test]
    fn a_team_is_read_as_it_was_written() {
        for team in [TimerTeam::new(Some(2), [3, 2, 1]), TimerTeam::new(None, [1])] {
            assert_eq!(TimerTeam::parse(&team.to_text()), Some(team));
        }
        assert_eq!(TimerTeam::parse("1,x"), None);
        assert_eq!(TimerTeam::parse(""), None);
    }

    #[test]
    fn the_lowest_free_number_is_taken() {
        assert_eq!(
            [&[][..], &[1], &[2], &[3, 1], &[2, 1, 3, 3]].map(|known| free_number(known.iter().copied())),
            [1, 2, 1, 2, 4]
        );
    }
}
