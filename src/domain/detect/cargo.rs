//! The cargo ship: on its way in, docking at harbours, leaving.

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    events::Events,
    presence::{Sighting, Sightings},
    track::{Track, Turn},
};
use crate::domain::{grid::CELL, map::Marker, time::Moment, world_event::EventKind};

/// A new ship further out than this has just been made, metres beyond the edge.
const ARRIVES_BEYOND: f64 = 4.0 * CELL;

/// A ship that lies still this close to a harbour is docked, metres.
const DOCK_REACH: f64 = 300.0;

/// A docked ship that is this far from its berth has left it, metres.
const CASTS_OFF: f64 = 2.0;

/// From its arrival until it turns to leave the map (the game's default).
const EGRESS_AFTER: TimeDelta = TimeDelta::minutes(50);

#[derive(Debug, Serialize, Deserialize)]
struct Ship {
    track: Track,
    /// When it turns to leave; `None` when that was reported or its arrival was not seen.
    egress_at: Option<Moment>,
    dock: Option<Dock>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Dock {
    harbor: String,
    x: f64,
    y: f64,
    /// `None` when its coming was not seen.
    since: Option<Moment>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cargo(Sightings<u64, Ship>);

impl Cargo {
    pub(super) fn new() -> Self {
        Self(Sightings::new(16))
    }

    pub(super) fn take_over(&mut self, mut other: Self, now: Moment) {
        let here = |at: Option<Moment>| at.map(|at| now.at(at.stamp));
        for ship in other.0.present_mut() {
            ship.track.bring_to(now);
            ship.egress_at = here(ship.egress_at);
            if let Some(dock) = &mut ship.dock {
                dock.since = here(dock.since);
            }
        }
        self.0.take_over(other.0, now);
    }

    pub(super) fn see(&mut self, id: u64, marker: &Marker, events: &mut Events) {
        let (x, y) = marker.place.metres();
        let (at, now) = (Some((x, y)), events.now);
        let fresh = || Ship { track: Track::new(marker, now), egress_at: None, dock: None };
        let Some((sighting, ship)) = self.0.see(id, fresh) else { return };
        let data = json!({ "markerId": id.to_string() });
        match sighting {
            Sighting::New if !events.priming && events.around.is_beyond(ARRIVES_BEYOND, x, y) => {
                ship.egress_at = Some(now + EGRESS_AFTER);
                let data = json!({ "markerId": id.to_string(), "egressAt": (now + EGRESS_AFTER).stamp.to_wire() });
                events
                    .report(EventKind::Cargo, "entered", at, data, |place| format!("Cargo ship is coming in {place}"));
            }
            Sighting::New => {
                events.report(EventKind::Cargo, "located", at, data, |place| format!("Cargo ship is {place}"));
            }
            Sighting::Back => {
                events.report(EventKind::Cargo, "returned", at, data, |place| format!("Cargo ship is still {place}"));
            }
            Sighting::Known => {}
        }
        let turn = ship.track.follow(marker, now);
        match &ship.dock {
            None if ship.track.moving == Some(false) => {
                let harbor = events.around.nearest(DOCK_REACH, x, y, |monument| monument.is_harbor());
                if let Some(harbor) = harbor {
                    // A ship that never moved before our eyes has been there for an unknown time: no events.
                    let since = (turn == Some(Turn::Halted)).then_some(now);
                    ship.dock = Some(Dock { harbor: harbor.name().to_owned(), x, y, since });
                    if since.is_some() {
                        let data = json!({ "markerId": id.to_string(), "harbor": harbor.name() });
                        events
                            .report(EventKind::Cargo, "docked", at, data, |place| format!("Cargo ship docked {place}"));
                    }
                }
            }
            Some(dock) if (x - dock.x).hypot(y - dock.y) > CASTS_OFF => {
                let data = json!({
                    "markerId": id.to_string(),
                    "harbor": dock.harbor,
                    "dockedSeconds": dock.since.map(|since| (now - since).num_seconds()),
                });
                events.report(EventKind::Cargo, "undocked", at, data, |place| {
                    format!("Cargo ship left the harbor {place}")
                });
                ship.dock = None;
            }
            _ => {}
        }
    }

    pub(super) fn sweep(&mut self, events: &mut Events) {
        self.0.sweep(events.now, events.priming, |id, ship| {
            let (at, data) = ((ship.track.x, ship.track.y), json!({ "markerId": id.to_string() }));
            let title = |place: &str| format!("Cargo ship is gone, last seen {place}");
            events.report(EventKind::Cargo, "left", Some(at), data, title);
            ship.dock = None;
        });
    }

    /// When a ship turns to leave.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.0.present().filter_map(|(_, ship)| ship.egress_at).min()
    }

    pub(super) fn tick(&mut self, events: &mut Events) {
        for ship in self.0.present_mut() {
            if ship.egress_at.is_some_and(|at| at <= events.now) {
                ship.egress_at = None;
                let title = |place: &str| format!("Cargo ship turns to leave the map {place}");
                events.report(EventKind::Cargo, "egress", Some((ship.track.x, ship.track.y)), json!({}), title);
            }
        }
    }

    /// Passes over the turn that came due unseen.
    pub(super) fn skip(&mut self, now: Moment) {
        for ship in self.0.present_mut() {
            ship.egress_at = ship.egress_at.filter(|at| *at > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::{
        detect::testing::{Timeline, marker, monument},
        map::Marker,
        map::MarkerKind::CargoShip,
        world_event::EventKind,
    };

    fn ship(x: f64, y: f64) -> (u64, Marker) {
        (5, marker(CargoShip, x, y))
    }

    #[test]
    fn a_whole_visit_is_reported_step_by_step() {
        let mut timeline = Timeline::new(3000).with(monument("harbor_display_name", 1000.0, 100.0));
        timeline.primed();
        assert_eq!(timeline.actions(10, &[ship(4000.0, 100.0)]), ["entered"]);
        assert_eq!(timeline.actions(20, &[ship(3000.0, 100.0)]), [""; 0]);
        assert_eq!(timeline.actions(30, &[ship(1090.0, 100.0)]), [""; 0]);
        assert_eq!(timeline.actions(40, &[ship(1090.0, 100.2)]), ["docked"]);
        assert_eq!(timeline.last().title, "Cargo ship docked at Harbor");
        assert_eq!(timeline.actions(50, &[ship(1090.0, 100.2)]), [""; 0]);
        assert_eq!(timeline.actions(100, &[ship(1095.0, 100.0)]), ["undocked"]);
        assert_eq!(timeline.last().data["dockedSeconds"], 60);
        assert_eq!(timeline.tick(3009), [""; 0]);
        assert_eq!(timeline.tick(3010), ["egress"]);
        assert_eq!(timeline.tick(3020), [""; 0]);
        assert_eq!(timeline.actions(3030, &[]), [""; 0]);
        assert_eq!(timeline.actions(3040, &[]), [""; 0]);
        assert_eq!(timeline.actions(3050, &[]), ["left"]);
        assert_eq!(timeline.last().kind, EventKind::Cargo);
    }

    #[test]
    fn a_ship_that_was_under_way_has_no_known_egress() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        assert_eq!(timeline.actions(10, &[ship(3300.0, 100.0)]), ["located"]);
        assert_eq!(timeline.tick(9_000), [""; 0]);
    }

    #[test]
    fn a_ship_in_the_first_answer_is_no_news_even_when_it_lies_docked() {
        let mut timeline = Timeline::new(3000).with(monument("harbor_display_name", 1000.0, 100.0));
        for seconds in [0, 10, 20] {
            assert_eq!(timeline.actions(seconds, &[ship(1090.0, 100.0)]), [""; 0]);
        }
        assert_eq!(timeline.actions(30, &[ship(1120.0, 100.0)]), ["undocked"]);
        assert!(timeline.last().data["dockedSeconds"].is_null());
    }

    #[test]
    fn a_ship_that_stops_at_sea_is_not_docked() {
        let mut timeline = Timeline::new(3000).with(monument("harbor_display_name", 1000.0, 100.0));
        timeline.primed();
        timeline.actions(10, &[ship(2500.0, 100.0)]);
        timeline.actions(20, &[ship(2400.0, 100.0)]);
        assert_eq!(timeline.actions(30, &[ship(2400.0, 100.0)]), [""; 0]);
    }

    #[test]
    fn leaving_is_taken_back_when_the_ship_returns() {
        let mut timeline = Timeline::new(3000);
        timeline.actions(0, &[ship(10.0, 100.0)]);
        let reported: Vec<_> = [10, 20, 30].into_iter().flat_map(|seconds| timeline.actions(seconds, &[])).collect();
        assert_eq!(reported, ["left"]);
        assert_eq!(timeline.actions(40, &[ship(20.0, 100.0)]), ["returned"]);
    }
}
