//! The patrol helicopter: on the map, gone, or shot down.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    events::Events,
    presence::{Sighting, Sightings},
};
use crate::domain::{grid::CELL, map::Marker, time::Moment, world_event::EventKind};

/// A new helicopter further out than this has just been made, metres beyond the edge.
const ARRIVES_BEYOND: f64 = 4.0 * CELL;

/// The last look before it leaves usually lies inside the border still, but not further inside than this, metres.
const LEAVING_BAND: f64 = CELL;

/// An explosion this close to where it was lost is its crash, metres.
const CRASH_REACH: f64 = 400.0;

#[derive(Debug, Serialize, Deserialize)]
struct Helicopter {
    x: f64,
    y: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Heli(Sightings<u64, Helicopter>);

impl Heli {
    pub(super) fn new() -> Self {
        Self(Sightings::new(16))
    }

    pub(super) fn take_over(&mut self, other: Self, now: Moment) {
        self.0.take_over(other.0, now);
    }

    pub(super) fn see(&mut self, id: u64, marker: &Marker, events: &mut Events) {
        let at @ (x, y) = marker.place.metres();
        let Some((sighting, helicopter)) = self.0.see(id, || Helicopter { x, y }) else { return };
        *helicopter = Helicopter { x, y };
        let (action, verb) = match sighting {
            Sighting::Known => return,
            Sighting::New if events.around.is_beyond(ARRIVES_BEYOND, x, y) => ("entered", "is coming in"),
            Sighting::New => ("located", "is"),
            Sighting::Back => ("returned", "is still flying"),
        };
        let data = json!({ "markerId": id.to_string() });
        events.report(EventKind::Heli, action, Some(at), data, |place| format!("Patrol helicopter {verb} {place}"));
    }

    pub(super) fn sweep(&mut self, events: &mut Events) {
        self.0.sweep(events.now, events.priming, |id, helicopter| {
            let at @ (x, y) = (helicopter.x, helicopter.y);
            let (action, text) = if events.around.is_beyond(-LEAVING_BAND, x, y) {
                ("left", "left, last seen")
            } else {
                ("shot_down", "was probably shot down")
            };
            let data = json!({ "markerId": id.to_string() });
            events.report(EventKind::Heli, action, Some(at), data, |place| format!("Patrol helicopter {text} {place}"));
        });
    }

    /// True if a helicopter was lost around here in the last minutes.
    pub(super) fn was_lost_near(&self, x: f64, y: f64) -> bool {
        self.0.absent().any(|helicopter| (helicopter.x - x).hypot(helicopter.y - y) <= CRASH_REACH)
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::{
        detect::testing::{Timeline, marker},
        map::Marker,
        map::MarkerKind::PatrolHelicopter,
        world_event::EventKind,
    };

    fn heli(x: f64, y: f64) -> (u64, Marker) {
        (6, marker(PatrolHelicopter, x, y))
    }

    fn gone(timeline: &mut Timeline, from: i64) -> Vec<&'static str> {
        (0..3).flat_map(|poll| timeline.actions(from + 5 * poll, &[])).collect()
    }

    #[test]
    fn a_helicopter_lost_inside_the_map_was_shot_down_there() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        assert_eq!(timeline.actions(5, &[heli(-700.0, 1500.0)]), ["entered"]);
        assert_eq!(timeline.actions(10, &[heli(1500.0, 1500.0)]), [""; 0]);
        assert_eq!(gone(&mut timeline, 15), ["shot_down"]);
        let event = timeline.last();
        assert_eq!(
            (event.kind, event.x, event.y, event.grid.as_str()),
            (EventKind::Heli, Some(1500.0), Some(1500.0), "K10")
        );
        assert_eq!(event.title, "Patrol helicopter was probably shot down in K10");
    }

    #[test]
    fn a_helicopter_lost_at_the_edge_has_left() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        assert_eq!(timeline.actions(5, &[heli(1500.0, 1500.0)]), ["located"]);
        timeline.actions(10, &[heli(100.0, 1500.0)]);
        assert_eq!(gone(&mut timeline, 15), ["left"]);
    }

    #[test]
    fn a_wrong_shot_down_is_taken_back() {
        let mut timeline = Timeline::new(3000);
        timeline.actions(0, &[heli(1500.0, 1500.0)]);
        assert_eq!(gone(&mut timeline, 5), ["shot_down"]);
        assert_eq!(timeline.actions(60, &[heli(1600.0, 1500.0)]), ["returned"]);
    }
}
