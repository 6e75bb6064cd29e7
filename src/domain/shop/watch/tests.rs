use proptest::prelude::*;

use super::{Finding, ShopWatch, WatchState};
use crate::domain::{
    items::SCRAP,
    map::{Marker, SellOrder},
    shop::{
        Price, Shop, VendorId,
        market::Market,
        testing::{answer, at, id, machine, order, shops},
    },
};

fn watch(expected_price: Option<i32>) -> ShopWatch {
    ShopWatch {
        id: "w".to_owned(),
        vendor: VendorId::at(100.0, 100.0).to_string(),
        item_id: id("wood"),
        expected_price,
        currency_id: None,
        baseline: None,
        finding: Finding::NOTHING,
        as_of: at(0).stamp,
        created_at: at(0).stamp,
        version: 0,
    }
}

/// Looks at a market of these machines, keeps what is found, and gives the news and the state.
fn look(watch: &mut ShopWatch, machines: &[Marker]) -> (Option<&'static str>, WatchState) {
    look_at(watch, &shops(machines))
}

fn look_at(watch: &mut ShopWatch, shops: &[Shop]) -> (Option<&'static str>, WatchState) {
    let own = shops.iter().find(|shop| Some(shop.id) == watch.vendor_id());
    let (finding, baseline) = watch.look(own, shops.iter());
    let news = watch.news(&finding);
    (watch.finding, watch.baseline) = (finding, baseline);
    (news, finding.state)
}

fn bobs(orders: &[SellOrder]) -> Marker {
    machine(100.0, 100.0, "Bob's", orders)
}

fn eves(orders: &[SellOrder]) -> Marker {
    machine(900.0, 100.0, "Eve's", orders)
}

#[test]
fn the_first_price_is_expected_when_none_is_given() {
    let mut watch = watch(None);
    let wood = order("wood", 1000, 10, 5);
    assert_eq!(look(&mut watch, &[bobs(&[wood])]), (Some("ok"), WatchState::Ok));
    assert_eq!(look(&mut watch, &[bobs(&[wood])]), (None, WatchState::Ok));
    assert_eq!(look(&mut watch, &[bobs(&[SellOrder { in_stock: 4, ..wood }])]), (None, WatchState::Ok));
    let dearer = SellOrder { cost: 11, ..wood };
    assert_eq!(look(&mut watch, &[bobs(&[dearer])]), (Some("changed"), WatchState::Changed));
    assert_eq!(look(&mut watch, &[bobs(&[dearer])]), (None, WatchState::Changed));
    assert_eq!(look(&mut watch, &[bobs(&[SellOrder { cost: 12, ..wood }])]).0, Some("changed"), "another price again");
    let half = SellOrder { quantity: 500, cost: 5, ..wood };
    assert_eq!(look(&mut watch, &[bobs(&[half])]), (Some("ok"), WatchState::Ok), "the same by the piece");
}

#[test]
fn an_expected_price_is_compared_from_the_first_sight_on() {
    let mut watch = watch(Some(8));
    assert_eq!(look(&mut watch, &[bobs(&[order("stones", 1, 1, 1)])]), (None, WatchState::Missing));
    assert_eq!(look(&mut watch, &[bobs(&[order("wood", 1000, 10, 5)])]).1, WatchState::Changed);
    assert_eq!(look(&mut watch, &[bobs(&[order("wood", 1000, 8, 5)])]).1, WatchState::Ok);
    assert_eq!(look(&mut watch, &[bobs(&[order("wood", 500, 4, 5)])]).1, WatchState::Ok);
}

#[test]
fn it_is_undercut_by_a_player_who_sells_the_same_for_less() {
    let mut watch = watch(None);
    let wood = order("wood", 1000, 10, 5);
    let cheaper = SellOrder { quantity: 100, cost: 1, in_stock: 1, ..wood };
    assert_eq!(look(&mut watch, &[bobs(&[wood]), eves(&[cheaper])]).1, WatchState::Ok, "the same by the piece");
    let cheaper = SellOrder { quantity: 111, ..cheaper };
    for no_rival in [
        eves(&[SellOrder { in_stock: 0, ..cheaper }]),
        eves(&[SellOrder { item_is_blueprint: true, ..cheaper }]),
        eves(&[SellOrder { condition: Some(50), ..cheaper }]),
        eves(&[SellOrder { currency_id: 7, ..cheaper }]),
        machine(2000.0, 2000.0, "Outpost", &[cheaper]),
    ] {
        assert_eq!(look(&mut watch, &[bobs(&[wood]), no_rival]).1, WatchState::Ok);
    }
    let rivals =
        [bobs(&[wood]), eves(&[cheaper]), machine(1.0, 1.0, "Dear", &[SellOrder { quantity: 105, ..cheaper }])];
    assert_eq!(look(&mut watch, &rivals), (Some("undercut"), WatchState::Undercut));
    let price = Price { cost: 1, quantity: 111 };
    assert_eq!(watch.finding.undercut_by, Some((VendorId::at(900.0, 100.0), price)));
    let event = watch.event("undercut", Some(&shops(&rivals[..1])[0]), at(9).stamp);
    assert_eq!(event.title, "Bob's: Wood is 1000 for 10 Scrap, and elsewhere 111 for 1 Scrap");
    assert_eq!((event.data["watchId"].as_str(), event.data["itemName"].as_str()), (Some("w"), Some("Wood")));
    assert_eq!((event.data["price"].as_i64(), event.x), (Some(10), Some(100.0)));
}

#[test]
fn what_goes_missing_returns_until_there_is_something_else_to_say() {
    let mut watch = watch(None);
    let wood = order("wood", 1000, 10, 5);
    look(&mut watch, &[bobs(&[wood])]);
    assert_eq!(look(&mut watch, &[bobs(&[order("stones", 1, 1, 1)])]), (Some("missing"), WatchState::Missing));
    assert_eq!(look(&mut watch, &[]), (None, WatchState::Missing));
    assert_eq!(look(&mut watch, &[bobs(&[wood])]), (Some("returned"), WatchState::Returned));
    assert_eq!(look(&mut watch, &[bobs(&[wood])]), (None, WatchState::Returned));
    let rival = eves(&[SellOrder { cost: 9, ..wood }]);
    assert_eq!(look(&mut watch, &[bobs(&[wood]), rival]).1, WatchState::Undercut);
    assert_eq!(look(&mut watch, &[bobs(&[wood])]), (Some("ok"), WatchState::Ok));
}

#[test]
fn a_shop_that_misses_one_answer_is_not_missing() {
    let (mut market, mut watch) = (Market::default(), watch(None));
    let known = |market: &Market| market.shops().collect::<Vec<_>>();
    let machines = [bobs(&[order("wood", 1000, 10, 5)])];
    let mut states = Vec::new();
    for (seconds, machines) in [(0, &machines[..]), (10, &[]), (20, &[]), (30, &[]), (40, &machines)] {
        answer(&mut market, seconds, machines);
        states.push(look_at(&mut watch, &known(&market)).1);
    }
    use WatchState::*;
    assert_eq!(states, [Ok, Ok, Ok, Missing, Returned]);
}

#[test]
fn selling_out_and_restocking_are_news() {
    let mut watch = watch(None);
    let wood = order("wood", 1000, 10, 5);
    look(&mut watch, &[bobs(&[wood])]);
    assert_eq!(look(&mut watch, &[bobs(&[SellOrder { in_stock: 0, ..wood }])]), (Some("sold_out"), WatchState::Ok));
    assert_eq!(look(&mut watch, &[bobs(&[wood])]), (Some("restocked"), WatchState::Ok));
}

#[test]
fn of_several_offers_the_plain_one_for_scrap_is_watched_and_its_currency_stays() {
    let mut watch = watch(None);
    let wood = order("wood", 1000, 10, 5);
    let sulfur = SellOrder { currency_id: id("sulfur"), cost: 1, ..wood };
    let worn = SellOrder { condition: Some(10), cost: 2, ..wood };
    let blueprint = SellOrder { item_is_blueprint: true, cost: 3, ..wood };
    look(&mut watch, &[bobs(&[sulfur, worn, blueprint, wood])]);
    assert_eq!(watch.baseline.map(|baseline| (baseline.currency_id, baseline.price.cost)), Some((SCRAP, 10)));
    assert_eq!(look(&mut watch, &[bobs(&[sulfur])]).1, WatchState::Missing, "another currency is another offer");

    let mut watch = ShopWatch { currency_id: Some(id("sulfur")), ..super::tests::watch(None) };
    look(&mut watch, &[bobs(&[sulfur, wood])]);
    assert_eq!(watch.finding.price.map(|price| price.cost), Some(1));
}

proptest! {
    #[test]
    fn the_order_of_the_shops_means_nothing(costs in prop::collection::vec((1_i32..6, 0_i32..2), 1..8), turn in any::<usize>()) {
        let machines: Vec<_> = costs
            .iter()
            .enumerate()
            .map(|(n, (cost, stock))| machine(100.0 + n as f64, 100.0, "Shop", &[order("wood", 10, *cost, *stock)]))
            .collect();
        let mut turned = machines.clone();
        let by = turn % turned.len();
        turned.rotate_left(by);
        let (mut one, mut two) = (watch(Some(3)), watch(Some(3)));
        look(&mut one, &machines);
        look(&mut two, &turned);
        prop_assert_eq!(one, two);
    }
}

#[test]
fn states_are_read_as_they_are_written() {
    use WatchState::*;
    for state in [Ok, Changed, Undercut, Missing, Returned] {
        assert_eq!(WatchState::parse(state.as_str()), Some(state));
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
    }
    assert_eq!(WatchState::parse("sold_out"), None);
}
