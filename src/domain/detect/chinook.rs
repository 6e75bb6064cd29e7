//! The chinook: it crosses the map, or it brings heavy scientists to an oil rig, which is all that is ever seen of the
//! rig.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    events::Events,
    oil_rig::OilRigs,
    presence::{Sighting, Sightings},
};
use crate::domain::{grid::CELL, map::Marker, time::Moment, world_event::EventKind};

/// A new chinook this close to a rig was called there, metres.
const NEW_REACH: f64 = 550.0;

/// A chinook already known that comes this close was called there too, metres.
const KNOWN_REACH: f64 = 150.0;

/// A new chinook further out than this has just been made, metres beyond the edge.
const ARRIVES_BEYOND: f64 = 4.0 * CELL;

#[derive(Debug, Serialize, Deserialize)]
struct Chinook {
    x: f64,
    y: f64,
    /// The chinook has been to a rig; each is called once.
    was_called: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Chinooks(Sightings<u64, Chinook>);

impl Chinooks {
    pub(super) fn new() -> Self {
        Self(Sightings::new(32))
    }

    pub(super) fn take_over(&mut self, other: Self, now: Moment) {
        self.0.take_over(other.0, now);
    }

    pub(super) fn see(&mut self, id: u64, marker: &Marker, rigs: &mut OilRigs, events: &mut Events) {
        let at @ (x, y) = marker.place.metres();
        let Some((sighting, chinook)) = self.0.see(id, || Chinook { x, y, was_called: false }) else { return };
        (chinook.x, chinook.y) = at;
        if !chinook.was_called {
            let reach = if sighting == Sighting::New { NEW_REACH } else { KNOWN_REACH };
            let around = events.around;
            if let Some(rig) = around.nearest(reach, x, y, |monument| monument.oil_rig().is_some()) {
                chinook.was_called = true;
                // One that was there from the first answer came at an unknown time: no timer follows from it.
                if !events.priming {
                    rigs.call(rig, events);
                    return;
                }
            }
        }
        let (action, verb) = match sighting {
            Sighting::Known => return,
            Sighting::New if events.around.is_beyond(ARRIVES_BEYOND, x, y) => ("entered", "is coming in"),
            Sighting::New => ("located", "is"),
            Sighting::Back => ("returned", "is still"),
        };
        let data = json!({ "markerId": id.to_string() });
        events.report(EventKind::Chinook, action, Some(at), data, |place| format!("Chinook {verb} {place}"));
    }

    pub(super) fn sweep(&mut self, events: &mut Events) {
        self.0.sweep(events.now, events.priming, |id, chinook| {
            let data = json!({ "markerId": id.to_string(), "calledToOilRig": chinook.was_called });
            let title = |place: &str| format!("Chinook is gone, last seen {place}");
            events.report(EventKind::Chinook, "left", Some((chinook.x, chinook.y)), data, title);
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::{
        detect::testing::{Timeline, marker, monument},
        map::{Marker, MarkerKind},
    };

    fn chinook(id: u64, x: f64, y: f64) -> (u64, Marker) {
        (id, marker(MarkerKind::Chinook, x, y))
    }

    fn at_sea() -> Timeline {
        Timeline::new(3000).with(monument("large_oil_rig", 3200.0, 500.0)).with(monument(
            "oil_rig_small",
            -300.0,
            500.0,
        ))
    }

    #[test]
    fn a_new_chinook_near_a_rig_starts_the_timer_of_its_crate() {
        let mut timeline = at_sea();
        timeline.primed();
        assert_eq!(timeline.actions(0, &[chinook(1, 3500.0, 900.0)]), ["called"]);
        let event = timeline.last();
        assert_eq!((event.data["rig"].as_str(), event.x), (Some("large"), Some(3200.0)));
        assert_eq!(event.data["unlocksAt"], "1970-01-01T00:15:00.000Z");
        assert_eq!(timeline.actions(5, &[chinook(1, 3200.0, 500.0)]), [""; 0]);
        assert_eq!(timeline.tick(299), [""; 0]);
        assert_eq!(timeline.tick(300), ["crate_unlocks_soon"]);
        assert_eq!(timeline.tick(605), ["crate_unlocks_soon"]);
        assert_eq!(timeline.last().data["minutes"], 5);
        assert_eq!(timeline.tick(900), ["crate_unlocked"]);
        assert_eq!(timeline.last().title, "The crate of the Large Oil Rig is unlocked");
        assert_eq!(timeline.tick(1_800), ["ready"]);
        assert_eq!(timeline.tick(9_000), [""; 0]);
    }

    #[test]
    fn a_chinook_crossing_the_map_is_reported_as_such_until_it_reaches_a_rig() {
        let mut timeline = at_sea();
        timeline.primed();
        assert_eq!(timeline.actions(5, &[chinook(1, 1500.0, 4000.0)]), ["entered"]);
        assert_eq!(timeline.actions(10, &[chinook(1, 100.0, 600.0)]), [""; 0], "within 550 m, but known");
        assert_eq!(timeline.actions(15, &[chinook(1, -200.0, 500.0)]), ["called"]);
        assert_eq!(timeline.last().data["rig"], "small");
        assert_eq!(timeline.actions(20, &[chinook(1, 800.0, 500.0)]), [""; 0]);
        assert_eq!(timeline.actions(25, &[chinook(1, -200.0, 500.0)]), [""; 0], "one call a chinook");
    }

    #[test]
    fn a_chinook_in_the_first_answer_starts_no_timer() {
        let mut timeline = at_sea();
        assert_eq!(timeline.actions(0, &[chinook(1, 3200.0, 900.0)]), [""; 0]);
        assert_eq!(timeline.actions(5, &[chinook(1, 3200.0, 500.0)]), [""; 0]);
        assert_eq!(timeline.tick(900), [""; 0]);
    }

    #[test]
    fn a_second_chinook_does_not_restart_a_running_timer() {
        let mut timeline = at_sea();
        timeline.primed();
        timeline.actions(0, &[chinook(1, 3200.0, 500.0)]);
        assert_eq!(timeline.actions(60, &[chinook(1, 3200.0, 500.0), chinook(2, 3200.0, 510.0)]), [""; 0]);
        timeline.tick(300);
        timeline.tick(600);
        assert_eq!(timeline.tick(900), ["crate_unlocked"]);
    }

    #[test]
    fn a_chinook_that_is_gone_has_left() {
        let mut timeline = at_sea();
        timeline.actions(0, &[chinook(1, 1500.0, 1500.0)]);
        let reported: Vec<_> = [5, 10, 15].into_iter().flat_map(|seconds| timeline.actions(seconds, &[])).collect();
        assert_eq!(reported, ["left"]);
    }

    #[test]
    fn after_a_long_gap_only_what_is_still_to_come_is_reported() {
        let mut timeline = at_sea();
        timeline.primed();
        timeline.actions(0, &[chinook(1, 3200.0, 500.0)]);
        timeline.link_lost(60);
        assert_eq!(timeline.tick(400), [""; 0], "frozen");
        timeline.link_up(700);
        assert_eq!(timeline.tick(701), [""; 0], "both warnings fell into the gap");
        assert_eq!(timeline.tick(900), ["crate_unlocked"]);
    }
}
