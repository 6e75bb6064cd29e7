//! Age of the facts about a game server: a section whose last answer is older than three of its polls is stale, and the
//! state says so. A section without any answer is not stale; it is not there.

use std::{collections::BTreeMap, time::Duration};

use chrono::TimeDelta;
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::time::{Moment, Timestamp};

/// Pauses between two questions about the same thing.
#[derive(Clone, Copy, Debug)]
pub struct PollPace {
    /// While a client watches.
    pub watched: Duration,
    /// While none does: events are noticed, and alarms are broadcast.
    pub unwatched: Duration,
}

impl PollPace {
    const fn seconds(watched: u64, unwatched: u64) -> Self {
        Self { watched: Duration::from_secs(watched), unwatched: Duration::from_secs(unwatched) }
    }

    /// The pause after a question.
    pub fn of(self, is_watched: bool) -> Duration {
        if is_watched { self.watched } else { self.unwatched }
    }
}

/// Polls of the map's markers.
pub const MARKERS_EVERY: PollPace = PollPace::seconds(3, 10);
/// Polls of the team, for the positions of its members.
pub const TEAM_EVERY: PollPace = PollPace::seconds(5, 10);
/// Polls of the time of day.
pub const TIME_EVERY: PollPace = PollPace::seconds(60, 60);
/// Also the probe: a hung game thread still answers pings.
pub const INFO_EVERY: PollPace = PollPace::seconds(60, 60);
/// Devices that are gone are asked again, those that are there too: a missed broadcast heals.
pub const DEVICES_EVERY: PollPace = PollPace::seconds(300, 300);

/// Polls after which a section without an answer is stale.
const STALE_AFTER: i32 = 3;

/// A section that is shown as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaleSection {
    /// When its last answer came.
    pub as_of: Timestamp,
}

/// The stale sections, named as in the state. `server` is what the game server says of itself, with the hour; map notes
/// of the game come with `team`; `devices` is as old as the oldest answer of a device.
pub type StaleSections = BTreeMap<&'static str, StaleSection>;

/// Time of the last answer of each section.
#[derive(Clone, Copy, Debug, Default)]
pub struct Freshness {
    pub info: Option<Moment>,
    pub time: Option<Moment>,
    pub team: Option<Moment>,
    pub markers: Option<Moment>,
    /// The oldest of the devices that ever answered.
    pub devices: Option<Moment>,
    /// Since when a client watches. An older answer is fresh for the same number of polls from then on.
    pub watched_since: Option<Moment>,
}

impl Freshness {
    /// The sections that are stale now.
    pub fn stale(&self, now: Moment) -> StaleSections {
        let stale = self.heard().filter(|(.., fresh_until)| now > *fresh_until);
        // The older part of `server` counts.
        stale.fold(StaleSections::new(), |mut stale, (section, at, _)| {
            let known = stale.entry(section).or_insert(StaleSection { as_of: at.stamp });
            known.as_of = known.as_of.min(at.stamp);
            stale
        })
    }

    /// Time at which more becomes stale, if no answer comes until then.
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let ends = self.heard().map(|(.., fresh_until)| fresh_until + TimeDelta::nanoseconds(1));
        ends.filter(|end| *end > now).min()
    }

    /// Each part that has answered: its section, when, and until when it is fresh.
    fn heard(&self) -> impl Iterator<Item = (&'static str, Moment, Moment)> {
        let parts = [
            ("server", self.info, INFO_EVERY),
            ("server", self.time, TIME_EVERY),
            ("team", self.team, TEAM_EVERY),
            ("mapMarkers", self.markers, MARKERS_EVERY),
            ("devices", self.devices, DEVICES_EVERY),
        ];
        parts.into_iter().filter_map(|(section, at, pace)| {
            let at = at?;
            let span = |every| TimeDelta::from_std(every).unwrap_or(TimeDelta::MAX / STALE_AFTER) * STALE_AFTER;
            let unwatched = at + span(pace.unwatched);
            let watched = self.watched_since.map(|since| at.max(since) + span(pace.watched));
            Some((section, at, watched.map_or(unwatched, |watched| watched.min(unwatched))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(1_800_000_000 + seconds)).into()
    }

    fn names(freshness: &Freshness, now: i64) -> Vec<&'static str> {
        freshness.stale(at(now)).into_keys().collect()
    }

    #[test]
    fn a_section_is_stale_after_three_polls_without_an_answer() {
        let all = Some(at(0));
        let freshness =
            Freshness { info: all, time: all, team: all, markers: all, devices: all, watched_since: Some(at(-100)) };
        assert!(names(&freshness, 9).is_empty());
        assert_eq!(names(&freshness, 10), ["mapMarkers"]);
        assert_eq!(names(&freshness, 16), ["mapMarkers", "team"]);
        assert_eq!(names(&freshness, 181), ["mapMarkers", "server", "team"]);
        assert_eq!(names(&freshness, 901), ["devices", "mapMarkers", "server", "team"]);
        let mut due = Vec::new();
        let mut now = at(0);
        while let Some(next) = freshness.next_due(now) {
            assert_ne!(freshness.stale(next), freshness.stale(now), "not before and not after");
            due.push((next - at(0)).num_seconds());
            now = next;
        }
        assert_eq!(due, [9, 15, 180, 900]);
    }

    #[test]
    fn what_was_not_watched_is_asked_for_again_before_it_is_stale() {
        let mut freshness = Freshness { markers: Some(at(0)), ..Freshness::default() };
        assert_eq!((names(&freshness, 30).len(), names(&freshness, 31)), (0, vec!["mapMarkers"]));
        freshness.watched_since = Some(at(9));
        assert_eq!((names(&freshness, 18).len(), names(&freshness, 19)), (0, vec!["mapMarkers"]));
        freshness.watched_since = Some(at(40));
        assert_eq!(names(&freshness, 41), ["mapMarkers"], "it was stale before");
        freshness.markers = Some(at(42));
        assert_eq!((names(&freshness, 51).len(), names(&freshness, 52)), (0, vec!["mapMarkers"]));
    }

    #[test]
    fn what_was_never_heard_of_is_not_stale() {
        assert!(names(&Freshness::default(), 1_000_000).is_empty());
        let freshness = Freshness { info: Some(at(0)), ..Freshness::default() };
        assert_eq!(names(&freshness, 1_000), ["server"]);
    }

    #[test]
    fn a_wall_clock_that_is_set_makes_nothing_stale() {
        let (steady, hour) = (TimeDelta::seconds, TimeDelta::hours(1));
        let seen = Moment::new(steady(100), at(0).stamp);
        let freshness = Freshness {
            markers: Some(seen),
            watched_since: Some(Moment::new(steady(0), at(0).stamp)),
            ..Freshness::default()
        };
        assert!(freshness.stale(Moment::new(steady(105), at(5).stamp + hour)).is_empty());
        assert_eq!(freshness.stale(Moment::new(steady(110), at(10).stamp - hour)).len(), 1);
    }
}
