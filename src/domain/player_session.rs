//! When a tracked player was on the game server: successive looks at who is online become sessions.
//!
//! A player counts as gone after two looks without them, because a list may miss one once. A time without looks is no
//! evidence: changes during it are no news.

use chrono::{DurationRound as _, TimeDelta, Timelike as _};

use crate::domain::time::Timestamp;

/// Looks without the player before they count as gone.
const MISSED: i32 = 2;
/// After a longer time without a look, changes are no news.
pub const BLIND_AFTER: TimeDelta = TimeDelta::minutes(15);

/// A session that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSession {
    pub began_at: Timestamp,
    /// The last look that found the player.
    pub seen_at: Timestamp,
    /// Looks since then.
    pub missed: i32,
}

/// News of a player, for all who watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayerTransition {
    CameOnline,
    WentOffline,
}

/// Changes that follow from a look; none if the player was and is offline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStep {
    /// The open session ended when the player was last seen.
    pub ends: bool,
    /// A session begins now.
    pub begins: bool,
    /// Number of looks for which the player is missing by now, in the open session.
    pub missed: Option<i32>,
    /// The player, who was missing, is back in the open session.
    pub is_back: bool,
    pub news: Option<PlayerTransition>,
}

/// A look at who is online at `now`. `known_at` is the last look before it that says whether the player was online;
/// `None` if there was none since the player is tracked.
pub fn look(open: Option<OpenSession>, online: bool, known_at: Option<Timestamp>, now: Timestamp) -> SessionStep {
    let in_time = |before: Timestamp| now - before <= BLIND_AFTER;
    let seen = known_at.is_some_and(in_time);
    let step = SessionStep::default();
    match (open, online) {
        (None, false) => step,
        (None, true) => SessionStep { begins: true, news: seen.then_some(PlayerTransition::CameOnline), ..step },
        (Some(session), true) if in_time(session.seen_at) => SessionStep { is_back: session.missed > 0, ..step },
        (Some(_), true) => SessionStep { ends: true, begins: true, ..step },
        (Some(session), false) if seen && in_time(session.seen_at) => match session.missed + 1 {
            missed if missed < MISSED => SessionStep { missed: Some(missed), ..step },
            _ => SessionStep { ends: true, news: Some(PlayerTransition::WentOffline), ..step },
        },
        (Some(_), false) => SessionStep { ends: true, ..step },
    }
}

/// Seconds of play in each hour of the day (UTC), from the first of these instants to the second.
pub fn play_time_by_hour(sessions: impl IntoIterator<Item = (Timestamp, Timestamp)>) -> [i64; 24] {
    let mut hours = [0; 24];
    for (mut from, to) in sessions {
        while from < to {
            let Some(next) =
                from.duration_trunc(TimeDelta::hours(1)).ok().map(|hour| Timestamp::from(hour) + TimeDelta::hours(1))
            else {
                break;
            };
            hours[from.hour() as usize] += (next.min(to) - from).num_seconds();
            from = next;
        }
    }
    hours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        "2026-11-21T12:00:00Z".parse::<Timestamp>().unwrap() + TimeDelta::minutes(minutes)
    }

    fn open(seen: i64, missed: i32) -> Option<OpenSession> {
        Some(OpenSession { began_at: at(0), seen_at: at(seen), missed })
    }

    #[test]
    fn a_player_who_was_offline_and_is_online_came_online() {
        let step = look(None, true, Some(at(0)), at(1));
        assert_eq!(step, SessionStep { begins: true, news: Some(PlayerTransition::CameOnline), ..Default::default() });
        assert_eq!(look(None, false, Some(at(0)), at(1)), SessionStep::default());
    }

    #[test]
    fn the_first_look_does_not_show_who_came_online() {
        let quiet = SessionStep { begins: true, ..Default::default() };
        assert_eq!(look(None, true, None, at(1)), quiet);
        assert_eq!(look(None, true, Some(at(0)), at(16)), quiet, "nor after a time without looks");
    }

    #[test]
    fn one_look_without_the_player_is_not_the_end() {
        let missing = SessionStep { missed: Some(1), ..Default::default() };
        assert_eq!(look(open(1, 0), false, Some(at(1)), at(2)), missing);
        let back = SessionStep { is_back: true, ..Default::default() };
        assert_eq!(look(open(1, 1), true, Some(at(2)), at(3)), back);
        assert_eq!(look(open(1, 0), true, Some(at(1)), at(2)), SessionStep::default());
        let gone = SessionStep { ends: true, news: Some(PlayerTransition::WentOffline), ..Default::default() };
        assert_eq!(look(open(1, 1), false, Some(at(2)), at(3)), gone);
    }

    #[test]
    fn a_blind_time_ends_a_session_without_news() {
        assert_eq!(look(open(1, 0), false, Some(at(1)), at(17)), SessionStep { ends: true, ..Default::default() });
        let again = SessionStep { ends: true, begins: true, ..Default::default() };
        assert_eq!(look(open(1, 0), true, Some(at(1)), at(17)), again);
        assert_eq!(
            look(open(1, 0), true, Some(at(1)), at(16)),
            SessionStep::default(),
            "a short one is played through"
        );
    }

    #[test]
    fn play_time_is_shown_by_the_hour_of_the_day() {
        let hours =
            play_time_by_hour([(at(30), at(90)), (at(24 * 60), at(24 * 60 + 5)), (at(7), at(7)), (at(9), at(8))]);
        assert_eq!((hours[12], hours[13]), (35 * 60, 30 * 60));
        assert_eq!(hours.iter().sum::<i64>(), 65 * 60);
        let midnight = play_time_by_hour([(at(11 * 60 + 59), at(12 * 60 + 1))]);
        assert_eq!((midnight[23], midnight[0]), (60, 60));
    }
}
