//! Movement of a marker.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::domain::{map::Marker, time::Moment};

/// Less than this is no movement, metres.
const STILL: f64 = 0.5;

/// Two looks closer than this in time say nothing about standing still.
const BETWEEN_LOOKS: TimeDelta = TimeDelta::seconds(2);

/// The last place of a mover, and whether it moves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Track {
    pub(super) x: f64,
    pub(super) y: f64,
    /// `None` until two looks have been compared.
    pub(super) moving: Option<bool>,
    since: Moment,
}

/// A change seen between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Halted,
    Resumed,
}

impl Track {
    pub(super) fn new(marker: &Marker, now: Moment) -> Self {
        let (x, y) = marker.place.metres();
        Self { x, y, moving: None, since: now }
    }

    /// Brings a track of another process to the clock of this one.
    pub(super) fn bring_to(&mut self, now: Moment) {
        self.since = now.at(self.since.stamp);
    }

    /// Looks again.
    pub(super) fn follow(&mut self, marker: &Marker, now: Moment) -> Option<Turn> {
        let before = self.moving;
        let (x, y) = marker.place.metres();
        if self.distance(x, y) >= STILL {
            (self.x, self.y, self.since) = (x, y, now);
            self.moving = Some(true);
        } else if now - self.since >= BETWEEN_LOOKS {
            self.moving = Some(false);
        }
        match (before, self.moving) {
            (Some(true), Some(false)) => Some(Turn::Halted),
            (Some(false), Some(true)) => Some(Turn::Resumed),
            _ => None,
        }
    }

    /// Metres from here to there.
    pub(super) fn distance(&self, x: f64, y: f64) -> f64 {
        (x - self.x).hypot(y - self.y)
    }
}

#[cfg(test)]
mod tests {
    use super::{Track, Turn};
    use crate::domain::{
        detect::testing::{at, marker},
        map::MarkerKind::CargoShip,
    };

    #[test]
    fn halting_and_resuming_are_reported_once_each() {
        let mut track = Track::new(&marker(CargoShip, 0.0, 0.0), at(0));
        let turns: Vec<_> = [(5, 40.0), (10, 80.0), (15, 80.1), (20, 80.2), (25, 120.0), (30, 160.0)]
            .into_iter()
            .map(|(seconds, x)| track.follow(&marker(CargoShip, x, 0.0), at(seconds)))
            .collect();
        assert_eq!(turns, [None, None, Some(Turn::Halted), None, Some(Turn::Resumed), None]);
    }

    #[test]
    fn two_looks_in_a_moment_say_nothing() {
        let mut track = Track::new(&marker(CargoShip, 0.0, 0.0), at(0));
        track.follow(&marker(CargoShip, 40.0, 0.0), at(5));
        assert_eq!(track.follow(&marker(CargoShip, 40.0, 0.0), at(6)), None);
        assert_eq!(track.moving, Some(true));
    }
}
