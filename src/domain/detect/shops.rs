//! Vending machines: opened, removed. A change within a shop is no event; the market follows it.
//!
//! A machine is known by its exact place, because its marker id changes. Machines at one place are one shop. Those
//! outside of the map are the game's own and come and go.

use std::sync::Arc;

use serde_json::json;

use super::{
    events::Events,
    presence::{Sighting, Sightings},
};
use crate::domain::{
    map::{MapPlace, Marker},
    plain_text::plain_text,
    world_event::EventKind,
};

/// Shops that are followed.
const MAX_SHOPS: u32 = 5_000;

/// Items of a shop that an event names; a machine of the game has seven.
const MAX_ITEMS: usize = 64;

/// Characters of a shop's name in a title.
const LONGEST_NAME: usize = 80;

#[derive(Debug)]
pub(super) struct Shops {
    /// The machine that represents a shop, shared with the state.
    known: Sightings<MapPlace, Arc<Marker>>,
}

impl Shops {
    pub(super) fn new() -> Self {
        Self { known: Sightings::new(MAX_SHOPS) }
    }

    /// True if there are shops on the map.
    pub(super) fn is_any_known(&self) -> bool {
        self.known.present().next().is_some()
    }

    /// All vending machines of a complete answer.
    pub(super) fn answer<'a>(&mut self, machines: impl Iterator<Item = (u64, &'a Arc<Marker>)>, events: &mut Events) {
        let is_within = |marker: &Marker| {
            let (x, y) = marker.place.metres();
            !events.around.is_beyond(0.0, x, y)
        };
        let mut seen: Vec<(u64, &Arc<Marker>)> = machines.filter(|(_, marker)| is_within(marker)).collect();
        // No shop at all says nothing about those that were there.
        if seen.is_empty() {
            return;
        }
        seen.sort_by_key(|(_, marker)| marker.place);
        for shop in seen.chunk_by(|a, b| a.1.place == b.1.place) {
            self.see(shop, events);
        }
        self.known.sweep(events.now, events.priming, |_, shop| {
            // One that never sold anything is a label of a modded server.
            if sells(shop) {
                let (name, at) = (shop_name(shop), Some(shop.place.metres()));
                let data = json!({ "name": name, "vendorId": shop.place.to_string() });
                events.report(EventKind::Shop, "removed", at, data, |place| format!("{name} was removed {place}"));
            }
        });
    }

    /// The machines of one place.
    fn see(&mut self, shop: &[(u64, &Arc<Marker>)], events: &mut Events) {
        // A machine that sells represents all.
        let (id, machine) = *shop.iter().find(|(_, machine)| sells(machine)).unwrap_or(&shop[0]);
        let Some((sighting, known)) = self.known.see(machine.place, || machine.clone()) else { return };
        if !Arc::ptr_eq(known, machine) {
            *known = machine.clone();
        }
        let (action, verb) = match sighting {
            Sighting::Known => return,
            Sighting::New => ("opened", "opened"),
            Sighting::Back => ("returned", "is still"),
        };
        if sells(machine) && !events.priming {
            let name = shop_name(machine);
            let mut orders: Vec<_> = shop
                .iter()
                .flat_map(|(_, machine)| &machine.sell_orders[..])
                .map(|order| (order.item_id, order.item_is_blueprint, order.currency_id, order.currency_is_blueprint))
                .collect();
            orders.sort_unstable();
            orders.dedup();
            let items: Vec<String> = orders.iter().take(MAX_ITEMS).map(|(item, ..)| item.to_string()).collect();
            let vendor = machine.place.to_string();
            let data = json!({ "name": name, "vendorId": vendor, "markerId": id.to_string(), "itemIds": items });
            let at = Some(machine.place.metres());
            events.report(EventKind::Shop, action, at, data, |place| format!("{name} {verb} {place}"));
        }
    }
}

fn sells(machine: &Marker) -> bool {
    !machine.sell_orders.is_empty()
}

fn shop_name(marker: &Marker) -> String {
    let name = plain_text(marker.name.as_deref().unwrap_or_default(), LONGEST_NAME);
    if name.is_empty() { "A shop".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use crate::domain::{
        detect::testing::{Timeline, marker, shop},
        map::MarkerKind,
    };

    const WOOD: i32 = -151838493;
    const STONES: i32 = -2099697608;

    /// A timeline that knows the shop with these orders.
    fn knowing(orders: &[(i32, i32, i32, i32)]) -> Timeline {
        let mut timeline = Timeline::new(3000);
        timeline.actions(0, &[(1, shop(100.0, 100.0, "Bob's", orders))]);
        timeline
    }

    fn then(timeline: &mut Timeline, orders: &[(i32, i32, i32, i32)]) -> Vec<&'static str> {
        timeline.actions(5, &[(2, shop(100.0, 100.0, "Bob's", orders))])
    }

    #[test]
    fn what_changes_within_a_shop_is_no_event() {
        let mut timeline = knowing(&[(WOOD, 1000, 10, 5)]);
        assert_eq!(then(&mut timeline, &[(STONES, 1000, 10, 0)]), [""; 0]);
        assert_eq!(then(&mut timeline, &[]), [""; 0]);
    }

    #[test]
    fn a_shop_that_opens_names_its_items_once_each() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        let orders = [(WOOD, 1000, 10, 5), (STONES, 1, 1, 1), (WOOD, 100, 2, 1)];
        assert_eq!(timeline.actions(5, &[(7, shop(100.0, 100.0, "A", &orders))]), ["opened"]);
        assert_eq!(timeline.last().data["itemIds"], serde_json::json!([STONES.to_string(), WOOD.to_string()]));
    }

    #[test]
    fn a_shop_is_known_by_its_place_not_by_its_marker() {
        let mut timeline = knowing(&[(WOOD, 1000, 10, 5)]);
        assert_eq!(then(&mut timeline, &[(WOOD, 1000, 10, 5)]), [""; 0]);
        let two = [
            (2, shop(100.0, 100.0, "Bob's", &[(WOOD, 1000, 10, 5)])),
            (1, shop(200.0, 100.0, "<color=red>Eve's</color>", &[(WOOD, 1000, 9, 5)])),
        ];
        assert_eq!(timeline.actions(10, &two), ["opened"]);
        assert_eq!(timeline.last().title, "Eve's opened in B19");
    }

    #[test]
    fn a_removed_shop_is_reported_after_several_answers_and_taken_back() {
        let (bobs, eves) = [(1, 100.0, "Bob's"), (2, 900.0, "Eve's")]
            .map(|(id, x, name)| (id, shop(x, 100.0, name, &[(WOOD, 1000, 10, 5)])))
            .into();
        let mut timeline = Timeline::new(3000);
        timeline.actions(0, &[bobs.clone(), eves.clone()]);
        let without = std::slice::from_ref(&eves);
        let reported: Vec<_> = [5, 10, 15].into_iter().flat_map(|seconds| timeline.actions(seconds, without)).collect();
        assert_eq!(reported, ["removed"]);
        assert_eq!(timeline.actions(20, &[bobs, eves]), ["returned"]);
    }

    #[test]
    fn answers_without_any_shop_take_none_away() {
        let mut timeline = Timeline::new(3000);
        let shops: Vec<_> = (0..6).map(|n| (n, shop(n as f64, 0.0, "Shop", &[(WOOD, 1, 1, 1)]))).collect();
        timeline.actions(0, &shops);
        for seconds in [10, 20, 30, 40] {
            assert_eq!(timeline.actions(seconds, &[]), [""; 0]);
        }
        assert_eq!(timeline.actions(50, &shops), [""; 0]);
        let ship = [(9, marker(MarkerKind::CargoShip, 10.0, 10.0))];
        let reported: usize = (6..15).map(|answer| timeline.actions(answer * 10, &ship).len()).sum();
        assert_eq!(reported, 1, "the ship");
        assert_eq!((0..50).map(|answer| timeline.actions(200 + answer * 10, &[]).len()).sum::<usize>(), 0);
    }

    #[test]
    fn labels_without_orders_and_shops_outside_of_the_map_are_no_news() {
        let mut timeline = Timeline::new(3000);
        timeline.primed();
        let new = [(1, shop(10.0, 10.0, "RAIDABLE BASE", &[])), (2, shop(-50.0, 10.0, "Casino", &[(WOOD, 1, 1, 1)]))];
        assert_eq!(timeline.actions(5, &new), [""; 0]);
        let reported: usize = (2..8).map(|answer| timeline.actions(answer * 5, &[]).len()).sum();
        assert_eq!(reported, 0);
    }
}
