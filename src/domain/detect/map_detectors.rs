//! The detectors of the map of one game server.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    cargo::Cargo,
    chinook::Chinooks,
    crate_drop::Crates,
    events::{EventWindow, Events, MapContext},
    explosion::Explosions,
    heli::Heli,
    link_gap::{LinkGap, SHORT_GAP},
    oil_rig::OilRigs,
    shops::Shops,
    vendor::Vendor,
};
use crate::domain::{
    map::{Marker, MarkerKind},
    reporting::{Reported, Reports},
    time::Moment,
    world_event::WorldEvent,
};

/// See the module. As they are handed over, they have no shops, which are many, but say whether there are any.
#[derive(Debug, Serialize, Deserialize)]
pub struct MapDetectors {
    cargo: Cargo,
    heli: Heli,
    chinooks: Chinooks,
    oil_rigs: OilRigs,
    crates: Crates,
    vendor: Vendor,
    explosions: Explosions,
    #[serde(skip, default = "Shops::new")]
    shops: Shops,
    /// The first shops that are shown only show how things are.
    #[serde(skip)]
    shops_unknown: bool,
    /// There are shops, or they are not shown: a process that takes over must not take the first ones that it sees for new.
    has_shops: bool,
    /// Taken from the latest answer, for events that come without one.
    map_size: u32,
    primed: bool,
    #[serde(skip)]
    gap: LinkGap,
    #[serde(skip)]
    reports: Reports,
    /// Start of the time in which answers show neither shops, which they did before, nor events.
    #[serde(skip)]
    silent_since: Option<Moment>,
}

impl Default for MapDetectors {
    /// Nothing known; the first answer primes.
    fn default() -> Self {
        Self {
            cargo: Cargo::new(),
            heli: Heli::new(),
            chinooks: Chinooks::new(),
            oil_rigs: OilRigs::new(),
            crates: Crates::new(),
            vendor: Vendor::new(),
            explosions: Explosions::new(),
            shops: Shops::new(),
            shops_unknown: false,
            has_shops: false,
            map_size: 0,
            primed: false,
            gap: LinkGap::default(),
            reports: Reports::default(),
            silent_since: None,
        }
    }
}

impl MapDetectors {
    /// Goes on with what the detectors of another process followed, whose link was lost then.
    pub fn take_over(&mut self, other: Self, lost_at: Moment, now: Moment) {
        let Self { cargo, heli, chinooks, oil_rigs, crates, vendor, explosions, has_shops, map_size, primed, .. } =
            other;
        self.cargo.take_over(cargo, now);
        self.heli.take_over(heli, now);
        self.chinooks.take_over(chinooks, now);
        self.oil_rigs.take_over(oil_rigs, now);
        self.crates.take_over(crates, now);
        self.vendor.take_over(vendor, now);
        self.explosions.take_over(explosions, now);
        (self.map_size, self.primed) = (map_size, primed);
        (self.shops_unknown, self.has_shops) = (has_shops, has_shops);
        self.link_lost(lost_at);
    }

    /// A complete answer of markers, by the game's marker id.
    pub fn markers<'a>(
        &mut self,
        around: &MapContext,
        markers: impl Iterator<Item = (u64, &'a Arc<Marker>)> + Clone,
        now: Moment,
        window: &mut EventWindow,
    ) -> Vec<WorldEvent> {
        self.map_size = around.map_size;
        let is_shown = |kind: MarkerKind| kind == MarkerKind::VendingMachine || kind.is_event();
        if self.shops.is_any_known() && !markers.clone().any(|(_, marker)| is_shown(marker.kind)) {
            self.silent_since.get_or_insert(now);
            return Vec::new();
        }
        if self.silent_since.take().is_some_and(|since| now - since > SHORT_GAP) {
            self.primed = false;
        }
        let priming = !self.primed;
        let mut events = Events::new(around, now, priming, window);
        self.primed = true;
        for (id, marker) in markers.clone() {
            match marker.kind {
                MarkerKind::CargoShip => self.cargo.see(id, marker, &mut events),
                MarkerKind::PatrolHelicopter => self.heli.see(id, marker, &mut events),
                MarkerKind::Chinook => self.chinooks.see(id, marker, &mut self.oil_rigs, &mut events),
                MarkerKind::Crate => self.crates.see(id, marker, &mut events),
                MarkerKind::TravellingVendor => self.vendor.see(id, marker, &mut events),
                _ => {}
            }
        }
        self.cargo.sweep(&mut events);
        self.heli.sweep(&mut events);
        self.chinooks.sweep(&mut events);
        self.crates.sweep(&mut events);
        self.vendor.sweep(&mut events);
        // After the helicopter, whose crash they may be.
        for (id, marker) in markers.clone().filter(|(_, marker)| marker.kind == MarkerKind::Explosion) {
            self.explosions.see(id, marker, &self.heli, &mut events);
        }
        self.explosions.sweep(&mut events);
        // The first that are shown again have been there all the while.
        events.priming = priming || self.shops_unknown || self.reports.shops == Reported::No;
        // The many come last, so that they crowd out nothing when the events of a call run out.
        self.shops.answer(markers.filter(|(_, marker)| marker.kind == MarkerKind::VendingMachine), &mut events);
        self.shops_unknown &= !self.shops.is_any_known();
        self.has_shops = self.shops_unknown || self.shops.is_any_known() || self.reports.shops == Reported::No;
        events.finish()
    }

    /// When a timer comes due; none run without a link.
    pub fn next_due(&self) -> Option<Moment> {
        let timers = [self.oil_rigs.next_due(), self.cargo.next_due()];
        timers.into_iter().flatten().min().filter(|_| !self.gap.is_open())
    }

    /// Timers that come due without an answer (oil rig crates, the cargo ship's turn); call it when one does.
    pub fn tick(&mut self, now: Moment, window: &mut EventWindow) -> Vec<WorldEvent> {
        if self.gap.is_open() {
            return Vec::new();
        }
        let around = MapContext { map_size: self.map_size, monuments: &[] };
        let mut events = Events::new(&around, now, false, window);
        self.oil_rigs.tick(&mut events);
        self.cargo.tick(&mut events);
        events.finish()
    }

    /// Sets the kinds of things that the game server reports. When it stops reporting one, all markers are forgotten
    /// without events, and none of their timers comes due.
    pub fn set_reports(&mut self, reports: Reports) {
        let stops = |before, after| before != Reported::No && after == Reported::No;
        if stops(self.reports.events, reports.events) || stops(self.reports.shops, reports.shops) {
            let Self { cargo, heli, chinooks, oil_rigs, crates, vendor, explosions, shops, .. } = Self::default();
            (self.cargo, self.heli, self.chinooks, self.oil_rigs) = (cargo, heli, chinooks, oil_rigs);
            (self.crates, self.vendor, self.explosions, self.shops) = (crates, vendor, explosions, shops);
            (self.primed, self.silent_since) = (false, None);
        }
        self.reports = reports;
    }

    /// The link was lost: timers pause.
    pub fn link_lost(&mut self, now: Moment) {
        self.gap.begin(now);
    }

    /// The link is back. After a short gap the next answer is compared with the last known one, else it primes, and
    /// timers that came due in between are passed over.
    pub fn link_up(&mut self, now: Moment) {
        if self.gap.end(now) {
            self.primed = false;
            self.oil_rigs.skip(now);
            self.cargo.skip(now);
        }
    }

    /// A wipe: everything known is of another world.
    pub fn wiped(&mut self) {
        *self = Self { reports: self.reports, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::{EventWindow, MapContext, MapDetectors};
    use crate::domain::{
        detect::testing::{Timeline, at, marker, monument, shop},
        map::{Marker, MarkerKind},
    };

    #[test]
    fn the_first_answer_is_no_news() {
        let mut timeline = Timeline::new(3000);
        let all = [
            (1, marker(MarkerKind::CargoShip, -900.0, 0.0)),
            (2, marker(MarkerKind::PatrolHelicopter, 10.0, 0.0)),
            (3, marker(MarkerKind::Explosion, 10.0, 0.0)),
            (4, shop(10.0, 0.0, "Wood", &[(1, 10, 5, 3)])),
        ];
        assert_eq!(timeline.actions(0, &all), [""; 0]);
    }

    #[test]
    fn after_a_short_gap_answers_are_compared_with_what_was_known() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        timeline.link_lost(10);
        timeline.link_up(70);
        assert_eq!(timeline.actions(71, &[(1, marker(MarkerKind::CargoShip, 10.0, 0.0))]), ["located"]);
    }

    #[test]
    fn after_a_long_gap_answers_prime_and_nothing_left() {
        let mut timeline = Timeline::new(3000);
        timeline.actions(0, &[(1, marker(MarkerKind::CargoShip, 10.0, 0.0))]);
        timeline.link_lost(10);
        timeline.link_lost(60);
        timeline.link_up(71);
        assert_eq!(timeline.actions(72, &[(2, marker(MarkerKind::PatrolHelicopter, 10.0, 0.0))]), [""; 0]);
        for seconds in [80, 90, 100, 110] {
            assert_eq!(timeline.actions(seconds, &[(2, marker(MarkerKind::PatrolHelicopter, 10.0, 0.0))]), [""; 0]);
        }
    }

    #[test]
    fn another_process_goes_on_as_after_a_short_gap_but_for_shops() {
        let mut timeline = Timeline::new(3000).with(monument("large_oil_rig", 100.0, 100.0));
        timeline.primed();
        let ship = (1, marker(MarkerKind::CargoShip, -900.0, 0.0));
        let wood = (3, shop(10.0, 0.0, "Wood", &[(1, 10, 5, 3)]));
        let before = [ship.clone(), (2, marker(MarkerKind::Chinook, 100.0, 100.0)), wood.clone()];
        assert_eq!(timeline.actions(5, &before), ["entered", "called", "opened"]);
        timeline.hand_over(10, 13);
        let stone = (4, shop(20.0, 0.0, "Stone", &[(2, 10, 5, 3)]));
        let after = [ship.clone(), (5, marker(MarkerKind::PatrolHelicopter, 10.0, 0.0)), wood, stone.clone()];
        assert_eq!(timeline.actions(13, &after), ["located"], "the chinook may come back");
        assert_eq!(timeline.tick(5 + 300), ["crate_unlocks_soon"]);
        assert_eq!(timeline.tick(5 + 3_000), ["ready", "egress"]);
        // Once they are known.
        assert_eq!(timeline.actions(3_006, &[ship, stone, (6, shop(30.0, 0.0, "Ore", &[(3, 1, 5, 3)]))]), ["opened"]);
    }

    #[test]
    fn the_first_shop_of_a_fresh_wipe_is_news_also_after_the_server_has_passed_on() {
        let mut timeline = Timeline::new(3000);
        timeline.actions(0, &[(1, shop(10.0, 0.0, "Wood", &[(1, 10, 5, 3)]))]);
        timeline.wiped();
        assert_eq!(timeline.actions(5, &[]), [""; 0]);
        timeline.hand_over(10, 13);
        assert_eq!(timeline.actions(13, &[]), [""; 0]);
        let stone = (2, shop(20.0, 0.0, "Stone", &[(2, 10, 5, 3)]));
        assert_eq!(timeline.actions(900, std::slice::from_ref(&stone)), ["opened"]);
        // Two nodes on, of which the first has had no answer.
        timeline.hand_over(905, 908);
        timeline.hand_over(910, 913);
        assert_eq!(timeline.actions(913, &[]), [""; 0]);
        assert_eq!(timeline.actions(920, std::slice::from_ref(&stone)), [""; 0], "it was there all the while");
    }

    #[test]
    fn after_a_wipe_nothing_is_known() {
        let mut timeline = Timeline::new(3000).with(monument("large_oil_rig", 100.0, 100.0));
        timeline.primed();
        assert_eq!(timeline.actions(0, &[(1, marker(MarkerKind::Chinook, 100.0, 100.0))]), ["called"]);
        timeline.wiped();
        assert_eq!(timeline.actions(10, &[(2, marker(MarkerKind::CargoShip, 100.0, 100.0))]), [""; 0]);
        assert_eq!(timeline.tick(900), [""; 0]);
    }

    #[test]
    fn a_server_that_changes_everything_gets_a_hundred_events_and_a_count() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        let shops: Vec<_> = (0..10_000_u64)
            .map(|id| (id, shop((id % 100) as f64, (id / 100) as f64, "Shop", &[(1, 1, 1, 1)])))
            .chain([(99_999, marker(MarkerKind::CargoShip, 10.0, 10.0))])
            .collect();
        let actions = timeline.actions(5, &shops);
        assert_eq!((actions.len(), actions[0]), (100, "located"), "the ship is not crowded out");
        assert_eq!(timeline.last().data["suppressed"], 5_001 - 100, "5 000 shops are followed");
    }

    fn any_marker() -> impl Strategy<Value = (u64, Marker)> {
        let position = || prop_oneof![-1000.0..4000.0_f64, Just(100.0), any::<f64>()];
        let kind = prop::sample::select(vec![
            MarkerKind::CargoShip,
            MarkerKind::PatrolHelicopter,
            MarkerKind::Chinook,
            MarkerKind::Crate,
            MarkerKind::TravellingVendor,
            MarkerKind::Explosion,
            MarkerKind::VendingMachine,
            MarkerKind::Player,
        ]);
        let order = (any::<bool>(), any::<i32>(), any::<i32>(), any::<i32>());
        let orders = prop::collection::vec(order, 0..4).prop_map(|orders| {
            orders.into_iter().map(|(item, quantity, cost, stock)| (i32::from(item), quantity, cost, stock)).collect()
        });
        (0_u64..12, kind, position(), position(), orders).prop_map(|(id, kind, x, y, orders): (_, _, _, _, Vec<_>)| {
            (id, Marker { kind, ..shop(x, y, "Shop", &orders) })
        })
    }

    proptest! {
        #[test]
        fn no_timeline_panics_and_every_event_says_where_and_what(
            map_size in prop_oneof![Just(0_u32), 1000_u32..5000],
            answers in prop::collection::vec((0_i64..30, prop::collection::vec(any_marker(), 0..12)), 1..40),
        ) {
            let monuments = [monument("large_oil_rig", 100.0, 100.0), monument("harbor_display_name", 100.0, 100.0)];
            let around = MapContext { map_size, monuments: &monuments };
            let (mut detectors, mut window, mut now) = (MapDetectors::default(), EventWindow::default(), 0);
            for (advance, answer) in answers {
                now += advance;
                let answer: Vec<_> = answer.into_iter().map(|(id, marker)| (id, Arc::new(marker))).collect();
                let markers = answer.iter().map(|(id, marker)| (*id, marker));
                let seen = detectors.markers(&around, markers, at(now), &mut window);
                for event in seen.into_iter().chain(detectors.tick(at(now), &mut window)) {
                    prop_assert!(!event.title.is_empty() && event.x.is_some_and(f64::is_finite));
                    let json = serde_json::to_value(&event).expect("an event is plain data");
                    prop_assert_eq!(json.as_object().map(|fields| fields.len()), Some(8));
                    prop_assert_eq!(json["data"].as_object().map(|facts| facts.len()), Some(event.data.len()));
                }
            }
        }
    }
}
