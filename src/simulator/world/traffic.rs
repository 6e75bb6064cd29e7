//! Ships, helicopters and the travelling vendor: markers that travel a route and are gone at its end.

use std::{collections::VecDeque, f32::consts::TAU};

use super::markers::Markers;
use crate::{
    game::wire::{AppMarker, AppMarkerType},
    simulator::{
        point::Point,
        rng::Rng,
        terrain::{CENTRE, MAP_SIZE, Terrain},
    },
};

/// Everything that travels.
#[derive(Debug, Default)]
pub struct Traffic {
    journeys: Vec<Journey>,
}

/// The rest of a marker's route.
#[derive(Debug)]
struct Journey {
    marker: u64,
    legs: VecDeque<Leg>,
    /// Seconds until it goes on.
    resting: f32,
}

#[derive(Clone, Copy, Debug)]
struct Leg {
    to: Point,
    /// Metres per second.
    speed: f32,
    /// Seconds of rest on arrival.
    pause: f32,
}

impl Traffic {
    /// Everything travels for this many seconds.
    pub fn advance(&mut self, markers: &mut Markers, seconds: f32) {
        self.journeys.retain_mut(|journey| journey.advance(markers, seconds));
    }

    /// A cargo ship comes from the open sea, docks at both harbours and leaves. Returns its marker id, as below.
    pub fn send_cargo_ship(&mut self, markers: &mut Markers, terrain: &Terrain) -> u64 {
        const SPEED: f32 = 15.0;
        let sail = |to| Leg { to, speed: SPEED, pause: 0.0 };
        let harbours = ["harbor_display_name", "harbor_2_display_name"].map(|token| terrain.monument(token));
        let angle = CENTRE.bearing(harbours[0]);
        let mut legs = Vec::new();
        let mut sailed = angle;
        for harbour in harbours {
            let towards = CENTRE.bearing(harbour);
            legs.extend(around(sailed, towards).map(sail));
            legs.push(Leg { to: harbour.towards(towards, 60.0), speed: SPEED, pause: 240.0 });
            legs.push(sail(at_sea(towards)));
            sailed = towards;
        }
        legs.push(sail(beyond(sailed)));
        self.send(markers, AppMarkerType::CargoShipMarker, beyond(angle), legs)
    }

    /// A patrol helicopter comes, circles and leaves, or goes down over land.
    pub fn send_helicopter(&mut self, markers: &mut Markers, terrain: &Terrain, rng: &mut Rng, shot_down: bool) -> u64 {
        let fly = |to, pause| Leg { to, speed: 45.0, pause };
        let angle = rng.angle();
        // The monuments inland.
        let monuments: Vec<Point> = terrain.monuments()[7..].iter().map(|monument| monument.at).collect();
        let mut legs = Vec::new();
        for _ in 0..4 + rng.below(4) {
            let over = monuments[rng.below(monuments.len())];
            legs.push(fly(over, rng.between(2.0, 12.0)));
        }
        legs.push(fly(if shot_down { terrain.land(rng) } else { beyond(rng.angle()) }, 0.0));
        self.send(markers, AppMarkerType::PatrolHelicopterMarker, beyond(angle), legs)
    }

    /// A Chinook brings scientists to the oil rig with this token, or crosses the map.
    pub fn send_chinook(&mut self, markers: &mut Markers, terrain: &Terrain, rng: &mut Rng, rig: Option<&str>) -> u64 {
        let fly = |to, pause| Leg { to, speed: 40.0, pause };
        let angle = rng.angle();
        let (from, legs) = match rig {
            Some(rig) => {
                let rig = terrain.monument(rig);
                let seaward = CENTRE.bearing(rig);
                (rig.towards(seaward, 480.0), vec![fly(rig, 20.0), fly(beyond(seaward + 0.4), 0.0)])
            }
            None => {
                let drop = terrain.monument("launchsite");
                (beyond(angle), vec![fly(drop, 15.0), fly(beyond(angle + 2.0), 0.0)])
            }
        };
        self.send(markers, AppMarkerType::Ch47Marker, from, legs)
    }

    /// A travelling vendor drives from stop to stop.
    pub fn send_vendor(&mut self, markers: &mut Markers, rng: &mut Rng) -> u64 {
        let mut stops = Vec::new();
        let mut angle = rng.angle();
        for _ in 0..15 {
            angle += rng.between(0.2, 0.5);
            let to = CENTRE.towards(angle, rng.between(0.2, 0.28) * MAP_SIZE);
            stops.push(Leg { to, speed: 7.0, pause: rng.between(15.0, 40.0) });
        }
        let from = stops.remove(0).to;
        self.send(markers, AppMarkerType::TravellingVendorMarker, from, stops)
    }

    fn send(&mut self, markers: &mut Markers, kind: AppMarkerType, from: Point, legs: Vec<Leg>) -> u64 {
        let rotation = legs.first().map(|leg| from.heading(leg.to));
        let marker =
            markers.add(AppMarker { r#type: kind as i32, x: from.x, y: from.y, rotation, ..Default::default() });
        self.journeys.push(Journey { marker, legs: legs.into(), resting: 0.0 });
        marker
    }
}

impl Journey {
    /// False once it has ended and its marker is gone.
    fn advance(&mut self, markers: &mut Markers, mut seconds: f32) -> bool {
        let Some(marker) = markers.get_mut(self.marker) else {
            return false;
        };
        while seconds > 0.0 {
            if self.resting > 0.0 {
                let rest = self.resting.min(seconds);
                self.resting -= rest;
                seconds -= rest;
                continue;
            }
            let Some(leg) = self.legs.front() else {
                markers.remove(self.marker);
                return false;
            };
            let at = Point::new(marker.x, marker.y);
            let (metres, reach) = (at.distance(leg.to), leg.speed * seconds);
            if metres > 0.01 {
                marker.rotation = Some(at.heading(leg.to));
            }
            let next = at.step(leg.to, reach);
            (marker.x, marker.y) = (next.x, next.y);
            if reach < metres {
                return true;
            }
            seconds -= metres / leg.speed;
            self.resting = leg.pause;
            self.legs.pop_front();
        }
        true
    }
}

/// A point on the ring that ships sail.
fn at_sea(angle: f32) -> Point {
    CENTRE.towards(angle, 0.5 * MAP_SIZE)
}

/// A point more than four grid cells outside the map, where ships and helicopters come from.
fn beyond(angle: f32) -> Point {
    let to_edge = MAP_SIZE / 2.0 / angle.cos().abs().max(angle.sin().abs());
    CENTRE.towards(angle, to_edge * (1.0 + 2.0 * 640.0 / MAP_SIZE))
}

/// Points along the ring from one bearing to another, counter-clockwise.
fn around(from: f32, to: f32) -> impl Iterator<Item = Point> {
    let turn = (to - from).rem_euclid(TAU);
    let steps = (turn / 0.26).ceil() as usize;
    (0..=steps).map(move |n| at_sea(from + turn * n as f32 / steps.max(1) as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(markers: &Markers, id: u64) -> Option<Point> {
        markers.iter().find(|marker| marker.id == id).map(|marker| Point::new(marker.x, marker.y))
    }

    /// Travels second by second until this holds; false after `seconds`.
    fn until(
        traffic: &mut Traffic,
        markers: &mut Markers,
        seconds: u32,
        mut holds: impl FnMut(&Markers) -> bool,
    ) -> bool {
        (0..seconds).any(|_| {
            traffic.advance(markers, 1.0);
            holds(markers)
        })
    }

    #[test]
    fn a_cargo_ship_comes_from_outside_docks_and_leaves() {
        let (terrain, mut markers, mut traffic) = (Terrain::new(7), Markers::default(), Traffic::default());
        let ship = traffic.send_cargo_ship(&mut markers, &terrain);
        let outside = |at: Point| [at.x, at.y].iter().any(|edge| !(-585.0..=MAP_SIZE + 585.0).contains(edge));
        assert!(place(&markers, ship).is_some_and(outside));
        let harbour = terrain.monument("harbor_display_name");
        let mut last = None;
        let docked = until(&mut traffic, &mut markers, 1200, |markers| {
            let rests = place(markers, ship).is_some() && place(markers, ship) == last;
            last = place(markers, ship);
            rests && last.is_some_and(|at| at.distance(harbour) < 100.0)
        });
        assert!(docked, "{last:?}");
        let gone = until(&mut traffic, &mut markers, 3600, |markers| {
            last = place(markers, ship).or(last);
            place(markers, ship).is_none()
        });
        assert!(gone && last.is_some_and(outside), "{last:?}");
    }

    #[test]
    fn a_helicopter_that_is_shot_down_ends_over_land() {
        let (terrain, mut rng) = (Terrain::new(7), Rng::new(7));
        let (mut markers, mut traffic) = (Markers::default(), Traffic::default());
        for shot_down in [true, false] {
            let helicopter = traffic.send_helicopter(&mut markers, &terrain, &mut rng, shot_down);
            let mut last = Point::new(0.0, 0.0);
            let gone = until(&mut traffic, &mut markers, 3600, |markers| {
                last = place(markers, helicopter).unwrap_or(last);
                place(markers, helicopter).is_none()
            });
            let inside = [last.x, last.y].iter().all(|edge| (150.0..MAP_SIZE - 150.0).contains(edge));
            assert_eq!((gone, inside), (true, shot_down), "{last:?}");
        }
    }
}
