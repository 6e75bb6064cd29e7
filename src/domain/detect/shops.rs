//! Vending machines: opened, removed, sold out, restocked, other prices.
//!
//! A machine is known by its exact place, because its marker id changes. Machines at one place are one shop. Those
//! outside of the map are the game's own and come and go.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    events::Events,
    presence::{Sighting, Sightings},
};
use crate::domain::{
    items::{self, ItemNames},
    map::{Marker, SellOrder},
    plain_text::plain_text,
    world_event::EventKind,
};

/// Shops that are followed.
const MAX_SHOPS: usize = 5_000;

/// Orders of a shop that are followed; a machine of the game has seven.
const MAX_LISTINGS: usize = 64;

/// No shop at all after more than this many were known is a truncated answer…
const MANY: usize = 5;

/// …unless it is repeated this often.
const REALLY_EMPTY: u32 = 5;

/// Characters of a shop's name in a title.
const LONGEST_NAME: usize = 80;

/// A place, as the bits of its coordinates.
type ShopPlace = (u64, u64);

/// What a shop sells for which currency, best offer first among several.
#[derive(Clone, Debug, PartialEq)]
struct Listing {
    /// Item, whether it is a blueprint, currency, whether that is a blueprint.
    key: (i32, bool, i32, bool),
    quantity: i32,
    cost: i32,
    in_stock: i64,
}

#[derive(Debug)]
struct KnownShop {
    x: f64,
    y: f64,
    name: String,
    /// By key.
    listings: Vec<Listing>,
}

/// A shop as an answer shows it.
struct Seen<'a> {
    id: u64,
    marker: &'a Marker,
    listings: Vec<Listing>,
}

#[derive(Debug)]
pub(super) struct Shops {
    known: Sightings<ShopPlace, KnownShop>,
    empty_answers: u32,
}

impl Shops {
    pub(super) fn new() -> Self {
        Self { known: Sightings::new(MAX_SHOPS), empty_answers: 0 }
    }

    /// All vending machines of a complete answer.
    pub(super) fn answer<'a>(&mut self, machines: impl Iterator<Item = (u64, &'a Marker)>, events: &mut Events) {
        let mut seen = BTreeMap::<ShopPlace, Seen>::new();
        for (id, marker) in machines.filter(|(_, marker)| !events.around.is_beyond(0.0, marker.x, marker.y)) {
            let place = (marker.x.to_bits(), marker.y.to_bits());
            let shop = seen.entry(place).or_insert_with(|| Seen { id, marker, listings: Vec::new() });
            shop.listings.extend(marker.sell_orders.iter().take(MAX_LISTINGS).map(|order| listing(order, marker)));
        }
        if seen.is_empty() && self.known.present().nth(MANY).is_some() {
            self.empty_answers += 1;
            if self.empty_answers < REALLY_EMPTY {
                return;
            }
        } else {
            self.empty_answers = 0;
        }
        for (place, mut shop) in seen {
            merge(&mut shop.listings);
            self.see(place, shop, events);
        }
        self.known.sweep(events.now, events.priming, |_, shop| {
            // One that never sold anything is a label of a modded server.
            if !shop.listings.is_empty() {
                let data = json!({ "name": shop.name });
                let title = |place: &str| format!("{} was removed {place}", shop.name);
                events.report(EventKind::Shop, "removed", Some((shop.x, shop.y)), data, title);
            }
        });
    }

    fn see(&mut self, place: ShopPlace, Seen { id, marker, listings }: Seen, events: &mut Events) {
        let (x, y) = (marker.x, marker.y);
        let fresh = || KnownShop { x, y, name: shop_name(marker), listings: Vec::new() };
        let Some((sighting, shop)) = self.known.see(place, fresh) else { return };
        let before = std::mem::replace(&mut shop.listings, listings);
        if sighting == Sighting::Known && before == shop.listings {
            return;
        }
        shop.name = shop_name(marker);
        let (action, verb) = match sighting {
            Sighting::Known => {
                changes(id, shop, &before, events);
                return;
            }
            Sighting::New => ("opened", "opened"),
            Sighting::Back => ("returned", "is still"),
        };
        if !shop.listings.is_empty() {
            let data = json!({ "name": shop.name, "markerId": id.to_string(), "itemIds": item_ids(&shop.listings) });
            events.report(EventKind::Shop, action, Some((x, y)), data, |place| format!("{} {verb} {place}", shop.name));
        }
    }
}

/// Tells what changed in a shop, order by order.
fn changes(id: u64, shop: &KnownShop, before: &[Listing], events: &mut Events) {
    let KnownShop { x, y, name, listings } = shop;
    let at = Some((*x, *y));
    let has_stock = |listings: &[Listing]| listings.iter().any(|listing| listing.in_stock > 0);
    let sold_out = has_stock(before) && !listings.is_empty() && !has_stock(listings);
    if sold_out {
        let data = json!({ "name": name, "markerId": id.to_string(), "itemIds": item_ids(listings) });
        events.report(EventKind::Shop, "shop_sold_out", at, data, |place| format!("{name} is sold out {place}"));
    }
    let old = |listing: &Listing| {
        before.binary_search_by_key(&listing.key, |before| before.key).ok().map(|index| &before[index])
    };
    for listing in listings {
        let item = listing.item();
        let data = || listing.data(id, name);
        let Some(old) = old(listing) else {
            events.report(EventKind::Shop, "listed", at, data(), |place| format!("{name} now sells {item} {place}"));
            continue;
        };
        if (old.quantity, old.cost) != (listing.quantity, listing.cost) {
            let mut data = data();
            data["previousQuantity"] = json!(old.quantity);
            data["previousCost"] = json!(old.cost);
            let (direction, text) = match listing.price_order(old) {
                std::cmp::Ordering::Less => ("down", "is cheaper"),
                std::cmp::Ordering::Equal => ("same", "comes in another quantity"),
                std::cmp::Ordering::Greater => ("up", "is dearer"),
            };
            data["direction"] = json!(direction);
            events.report(EventKind::Shop, "price_changed", at, data, |place| format!("{name}: {item} {text} {place}"));
        }
        match (old.in_stock > 0, listing.in_stock > 0) {
            (true, false) if !sold_out => {
                events.report(EventKind::Shop, "sold_out", at, data(), |place| {
                    format!("{name}: {item} sold out {place}")
                });
            }
            (false, true) => {
                events.report(EventKind::Shop, "restocked", at, data(), |place| {
                    format!("{name}: {item} is in stock again {place}")
                });
            }
            _ => {}
        }
    }
    let remains = |old: &Listing| listings.binary_search_by_key(&old.key, |listing| listing.key).is_ok();
    for old in before.iter().filter(|old| !remains(old)) {
        let title = |place: &str| format!("{name} no longer sells {} {place}", old.item());
        events.report(EventKind::Shop, "delisted", at, old.data(id, name), title);
    }
}

impl Listing {
    /// Compares what one piece costs, exactly. A quantity below one counts as one.
    fn price_order(&self, other: &Listing) -> std::cmp::Ordering {
        let cross = |cost: i32, quantity: i32| i64::from(cost) * i64::from(quantity.max(1));
        cross(self.cost, other.quantity).cmp(&cross(other.cost, self.quantity))
    }

    fn item(&self) -> String {
        items::in_words(self.key.0, self.key.1)
    }

    fn data(&self, id: u64, name: &str) -> Value {
        let (item, item_is_blueprint, currency, currency_is_blueprint) = self.key;
        json!({
            "name": name,
            "markerId": id.to_string(),
            "itemId": item,
            "itemName": ItemNames::of(item).name,
            "itemIsBlueprint": item_is_blueprint,
            "currencyId": currency,
            "currencyName": ItemNames::of(currency).name,
            "currencyIsBlueprint": currency_is_blueprint,
            "quantity": self.quantity,
            "cost": self.cost,
            "inStock": self.in_stock,
        })
    }
}

fn listing(order: &SellOrder, machine: &Marker) -> Listing {
    let is_empty = machine.out_of_stock == Some(true);
    Listing {
        key: (order.item_id, order.item_is_blueprint, order.currency_id, order.currency_is_blueprint),
        quantity: order.quantity,
        cost: order.cost,
        in_stock: if is_empty { 0 } else { i64::from(order.in_stock.max(0)) },
    }
}

/// One listing per key, in the order of the keys: the cheapest offer, with the stock of all.
fn merge(listings: &mut Vec<Listing>) {
    listings.sort_by(|a, b| {
        a.key.cmp(&b.key).then_with(|| a.price_order(b)).then_with(|| (a.quantity, a.cost).cmp(&(b.quantity, b.cost)))
    });
    listings.dedup_by(|later, first| {
        let same = later.key == first.key;
        if same {
            first.in_stock += later.in_stock;
        }
        same
    });
    listings.truncate(MAX_LISTINGS);
}

fn item_ids(listings: &[Listing]) -> Vec<i32> {
    listings.iter().map(|listing| listing.key.0).collect()
}

fn shop_name(marker: &Marker) -> String {
    let name = plain_text(marker.name.as_deref().unwrap_or_default(), LONGEST_NAME);
    if name.is_empty() { "A shop".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use crate::domain::{
        detect::testing::{Timeline, shop},
        map::Marker,
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
        let mut timeline = knowing(&[(WOOD, 1000, 10, 5)]);
        let reported: Vec<_> = [5, 10, 15].into_iter().flat_map(|seconds| timeline.actions(seconds, &[])).collect();
        assert_eq!(reported, ["removed"]);
        assert_eq!(timeline.actions(20, &[(1, shop(100.0, 100.0, "Bob's", &[(WOOD, 1000, 10, 5)]))]), ["returned"]);
    }

    #[test]
    fn selling_out_and_restocking_are_reported_order_by_order() {
        let mut timeline = knowing(&[(WOOD, 1000, 10, 5), (STONES, 1000, 10, 5)]);
        assert_eq!(then(&mut timeline, &[(WOOD, 1000, 10, 0), (STONES, 1000, 10, 4)]), ["sold_out"]);
        assert_eq!(timeline.last().data["itemId"], WOOD);
        assert_eq!(then(&mut timeline, &[(WOOD, 1000, 10, 3), (STONES, 1000, 10, 4)]), ["restocked"]);
    }

    #[test]
    fn a_shop_that_sells_out_as_a_whole_is_reported_once() {
        let mut timeline = knowing(&[(WOOD, 1000, 10, 5), (STONES, 1000, 10, 5)]);
        assert_eq!(then(&mut timeline, &[(WOOD, 1000, 10, 0), (STONES, 1000, 10, 0)]), ["shop_sold_out"]);

        let mut timeline = knowing(&[(WOOD, 1000, 10, 5)]);
        let closed = Marker { out_of_stock: Some(true), ..shop(100.0, 100.0, "Bob's", &[(WOOD, 1000, 10, 5)]) };
        assert_eq!(timeline.actions(5, &[(1, closed)]), ["shop_sold_out"], "the machine's own word counts");
    }

    #[test]
    fn prices_are_compared_exactly_by_the_piece() {
        let direction = |before: (i32, i32), after: (i32, i32)| {
            let mut timeline = knowing(&[(WOOD, before.0, before.1, 5)]);
            assert_eq!(then(&mut timeline, &[(WOOD, after.0, after.1, 5)]), ["price_changed"]);
            timeline.last().data["direction"].clone()
        };
        assert_eq!(direction((1000, 10), (1000, 9)), "down");
        assert_eq!(direction((1000, 10), (999, 10)), "up");
        assert_eq!(direction((1000, 10), (100, 1)), "same");
        assert_eq!(direction((i32::MAX, i32::MAX), (i32::MAX - 1, i32::MAX)), "up");
        assert_eq!(direction((0, 10), (1, 9)), "down");
    }

    #[test]
    fn orders_that_come_and_go_are_listed_and_delisted_not_sold_out() {
        let mut timeline = knowing(&[(WOOD, 1000, 10, 5)]);
        assert_eq!(then(&mut timeline, &[(STONES, 1000, 10, 5)]), ["listed", "delisted"]);
    }

    #[test]
    fn the_order_in_which_things_arrive_means_nothing() {
        let mut timeline = Timeline::new(3000);
        let a = (1, shop(100.0, 100.0, "A", &[(WOOD, 1000, 10, 5), (WOOD, 100, 2, 1), (STONES, 1, 1, 1)]));
        let b = (2, shop(100.0, 100.0, "B", &[(WOOD, 1000, 12, 0)]));
        timeline.actions(0, &[a.clone(), b.clone()]);
        let mut turned = a;
        turned.1.sell_orders.reverse();
        assert_eq!(timeline.actions(5, &[b, turned]), [""; 0]);
    }

    #[test]
    fn an_answer_without_any_shop_after_many_were_known_is_truncated() {
        let mut timeline = Timeline::new(3000);
        let shops: Vec<_> = (0..6).map(|n| (n, shop(n as f64, 0.0, "Shop", &[(WOOD, 1, 1, 1)]))).collect();
        timeline.actions(0, &shops);
        for seconds in [10, 20, 30, 40] {
            assert_eq!(timeline.actions(seconds, &[]), [""; 0]);
        }
        assert_eq!(timeline.actions(50, &shops), [""; 0]);
        let reported: usize = (6..15).map(|answer| timeline.actions(answer * 10, &[]).len()).sum();
        assert_eq!(reported, 6, "repeated long enough it is believed");
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
