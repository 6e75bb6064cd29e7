use chrono::TimeDelta;

use super::{Suspect, THRESHOLD, look_of, scan};
use crate::domain::{
    items::Catalogue,
    map::{MapPlace, Marker, SellOrder},
    shop::{
        Shop, VendorId,
        testing::{at, id, machine, order, shops},
    },
};

/// Honest shops that each sell ten of the item for one of these costs, 100 m apart.
fn honest(costs: &[i32], item: &str) -> Vec<Marker> {
    let shop = |(n, cost): (usize, &i32)| {
        machine(100.0 + 100.0 * n as f64, 500.0, &format!("Honest {n}"), &[order(item, 10, *cost, 5)])
    };
    costs.iter().enumerate().map(shop).collect()
}

/// The reasons why this machine is suspicious among the others.
fn reasons(market: &[Marker], machine: Marker) -> Vec<&'static str> {
    let vendor = VendorId::of(&machine);
    let all: Vec<_> = market.iter().cloned().chain([machine]).collect();
    of(&scan(&shops(&all), Catalogue::embedded()), vendor)
}

fn of(suspects: &[Suspect], vendor: VendorId) -> Vec<&'static str> {
    let suspect = suspects.iter().find(|suspect| suspect.shop.id == vendor);
    suspect.map(|suspect| suspect.reasons.iter().map(|reason| reason.reason.word()).collect()).unwrap_or_default()
}

fn fake(orders: &[SellOrder]) -> Marker {
    machine(3000.0, 3000.0, "Fake", orders)
}

#[test]
fn an_honest_market_is_not_suspicious() {
    let market = honest(&[80, 90, 100, 110, 120, 125], "cloth");
    assert_eq!(scan(&shops(&market), Catalogue::embedded()), []);
}

#[test]
fn a_price_far_from_the_median_of_the_others_is() {
    let market = honest(&[96, 100, 104], "cloth");
    assert_eq!(reasons(&market, fake(&[order("cloth", 10, 24, 1)])), ["far_below_median"]);
    assert_eq!(reasons(&market, fake(&[order("cloth", 10, 25, 1)])), [""; 0], "half the median alone is a bargain");
    assert_eq!(reasons(&market, fake(&[order("cloth", 10, 2_000, 1)])), [""; 0], "a dear shop alone is no trap");
    assert_eq!(reasons(&market[..2], fake(&[order("cloth", 10, 1, 1)])), [""; 0], "two others are no market");
    let worn = SellOrder { condition: Some(10), ..order("cloth", 10, 1, 1) };
    assert_eq!(reasons(&market, fake(&[worn])), [""; 0], "worn goods are compared with worn goods");
}

#[test]
fn a_price_below_what_the_ingredients_cost_is() {
    // Low grade fuel of 3 animal fat (here 20 each) and 1 cloth (10), four at once: 17.5 each.
    let mut market = honest(&[200, 200, 200], "fat.animal");
    let cloth = honest(&[100, 100, 100], "cloth").into_iter();
    market.extend(cloth.map(|shop| Marker { place: MapPlace { north: 70_000, ..shop.place }, ..shop }));
    assert_eq!(reasons(&market, fake(&[order("lowgradefuel", 10, 87, 1)])), ["below_crafting_cost"]);
    assert_eq!(reasons(&market, fake(&[order("lowgradefuel", 10, 88, 1)])), [""; 0]);
    // Where all shops ask as little, it is the price.
    let fuel = honest(&[50, 50, 50], "lowgradefuel").into_iter();
    market.extend(fuel.map(|shop| Marker { place: MapPlace { north: 90_000, ..shop.place }, ..shop }));
    assert_eq!(reasons(&market, fake(&[order("lowgradefuel", 10, 50, 1)])), [""; 0]);
}

#[test]
fn what_is_paid_in_an_ingredient_has_a_bound_without_a_market() {
    // A rocket takes 10 explosives of 110 sulfur each, and gunpowder of 300.
    let for_sulfur = |cost| SellOrder { currency_id: id("sulfur"), ..order("ammo.rocket.basic", 1, cost, 1) };
    assert_eq!(reasons(&[], fake(&[for_sulfur(699)])), ["below_crafting_cost"]);
    assert_eq!(reasons(&[], fake(&[for_sulfur(700)])), [""; 0]);
    assert_eq!(reasons(&[], fake(&[order("gears", 5, 1, 1)])), [""; 0], "components are loot");
}

#[test]
fn more_in_stock_than_a_machine_holds_is_unless_all_have_it() {
    // Twice 30 slots of 1000.
    assert_eq!(reasons(&[], fake(&[order("wood", 1000, 20, 61)])), ["impossible_stock"]);
    assert_eq!(reasons(&[], fake(&[order("wood", 1000, 20, 60)])), [""; 0]);
    assert_eq!(reasons(&[], fake(&[SellOrder { item_id: 7, ..order("wood", 1000, 20, i32::MAX) }])), [""; 0]);
    let large: Vec<_> = honest(&[1, 1], "wood")
        .into_iter()
        .map(|shop| Marker { sell_orders: [order("wood", 1000, 20, 90)].into(), ..shop })
        .collect();
    assert_eq!(reasons(&large, fake(&[order("wood", 1000, 20, 61)])), [""; 0], "the server has larger stacks");
    assert_eq!(reasons(&[], fake(&[order("wood", 1000, 0, 3)])), ["impossible_price"]);
    assert_eq!(reasons(&[], fake(&[order("wood", 0, 10, 3)])), ["impossible_price"]);
}

#[test]
fn a_shop_that_comes_and_goes_or_moves_is() {
    let scan_with = |change: &dyn Fn(&mut Shop)| {
        let mut shops = shops(&[fake(&[order("wood", 1000, 20, 1)])]);
        change(&mut shops[0]);
        of(&scan(&shops, Catalogue::embedded()), VendorId::at(3000.0, 3000.0))
    };
    assert_eq!(scan_with(&|shop| shop.returns = 3), [""; 0]);
    assert_eq!(scan_with(&|shop| shop.returns = 4), ["appears_and_vanishes"]);
    let moved = |shop: &mut Shop| shop.moved_from = Some(VendorId::at(1.0, 1.0));
    assert_eq!(scan_with(&moved), [""; 0]);
    assert_eq!(scan_with(&|shop| (shop.returns = 2, moved(shop)).1), ["appears_and_vanishes", "moved"]);
}

#[test]
fn a_name_that_looks_like_an_older_one_elsewhere_is() {
    let imitates = |known: &Marker, name: &str, x: f64| {
        let copy = machine(x, 500.0, name, &[order("wood", 1000, 20, 1)]);
        let mut all = shops(&[known.clone(), copy]);
        let vendor = VendorId::at(x, 500.0);
        let copy = all.iter_mut().find(|shop| shop.id == vendor).unwrap();
        copy.first_seen_at += TimeDelta::minutes(1);
        of(&scan(&all, Catalogue::embedded()), vendor) == ["imitates_name"]
    };
    let known = |name: &str| machine(500.0, 500.0, name, &[order("wood", 1000, 20, 1)]);
    assert!(imitates(&known("Metal Mart"), "Metall Mart!", 900.0));
    assert!(imitates(&known("Oil & Rust"), "0il Rust", 900.0));
    assert!(imitates(&known("Metal Mart"), "Меtаl Mart", 900.0), "with Cyrillic letters");
    assert!(!imitates(&known("Metal Mart"), "Metall Mart", 530.0), "next door is the same owner");
    assert!(!imitates(&known("Metal Mart"), "metal mart ", 900.0), "the same name is the same owner");
    assert!(!imitates(&known("Metal Mart"), "Metal Market", 900.0));
    assert!(!imitates(&known("A Shop"), "A  Shop!", 900.0), "what the game calls it");
    let npc = machine(2000.0, 2000.0, "Outpost", &[order("wood", 1000, 20, 1)]);
    assert!(imitates(&npc, "Outpost", 900.0), "no other is the map's own shop");
    assert!(!imitates(&known("Metal Mart"), "Outpost", 900.0));
}

#[test]
fn the_maps_own_shops_are_never_suspicious_and_no_market() {
    let npc = |x: f64| machine(2000.0 + x, 2000.0, "Outpost", &[order("cloth", 10, 100, 10_000)]);
    assert_eq!(scan(&shops(&[npc(0.0), npc(1.0), npc(2.0)]), Catalogue::embedded()), []);
    assert_eq!(reasons(&[npc(0.0), npc(1.0), npc(2.0)], fake(&[order("cloth", 10, 1, 1)])), [""; 0]);
    let mut unknown = shops(&[fake(&[order("wood", 1000, 0, 3)])]);
    unknown[0].npc = None;
    assert_eq!(scan(&unknown, Catalogue::embedded()), [], "whose shop it is, is not known yet");
}

#[test]
fn the_worst_come_first_with_their_heaviest_reason() {
    let market = honest(&[100, 100, 100, 100], "cloth");
    let bad = machine(3000.0, 3000.0, "Bad", &[order("cloth", 10, 10, 1)]);
    let worse = machine(3100.0, 3000.0, "Worse", &[order("cloth", 10, 10, 1_000_000)]);
    let all: Vec<_> = market.into_iter().chain([bad, worse]).collect();
    let shops = shops(&all);
    let found = scan(&shops, Catalogue::embedded());
    let scores: Vec<_> = found.iter().map(|suspect| (suspect.shop.name.as_str(), suspect.score)).collect();
    assert_eq!(scores, [("Worse", 85), ("Bad", 45)]);
    assert!(found.iter().all(|suspect| suspect.score >= THRESHOLD));
    assert_eq!(found[0].reasons[0].detail, "Cloth: 10 for 10 Scrap, and elsewhere mostly 10 for 100 Scrap");
    assert_eq!(at(0), at(0));
}

#[test]
fn lookalikes_are_one() {
    assert_eq!(look_of("M3TAL  Mart"), look_of("metal-maart"));
    assert_ne!(look_of("Shop 2"), look_of("Shop 3"));
}
