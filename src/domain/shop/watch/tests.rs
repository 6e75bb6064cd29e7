use proptest::prelude::*;

use super::{Finding, PriceDirection, ShopWatch, WatchSide, WatchState};
use crate::domain::{
    items::{Catalogue, SCRAP},
    map::{Marker, SellOrder},
    shop::{
        Price, Shop, VendorId,
        market::Market,
        testing::{answer, at, id, machine, order, shops},
    },
    time::Timestamp,
};

fn watch(expected_price: Option<i32>) -> ShopWatch {
    ShopWatch {
        id: "w".to_owned(),
        vendor: Some(VendorId::at(100.0, 100.0).to_string()),
        item_id: id("wood"),
        side: WatchSide::Sells,
        direction: PriceDirection::Changes,
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
    let (finding, baseline) = watch.look(shops);
    let news = watch.news(&finding);
    (watch.finding, watch.baseline) = (finding, baseline);
    (news, finding.state)
}

fn at_second(second: i64) -> Timestamp {
    at(second).stamp
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
    let event = watch.event("undercut", Some(&shops(&rivals[..1])[0]), Catalogue::embedded(), at(9).stamp);
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
    let machines = [bobs(&[order("wood", 1000, 10, 5)]), eves(&[order("stones", 1, 1, 1)])];
    let others = &machines[1..];
    let mut states = Vec::new();
    for (seconds, machines) in [(0, &machines[..]), (10, others), (20, others), (30, others), (40, &machines)] {
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
fn a_move_of_a_price_is_one_piece_of_news_and_one_of_another_shop_is_none() {
    let mut watch = watch(None);
    let wood = order("wood", 1000, 20, 5);
    let at = |cost| SellOrder { cost, ..wood };
    look(&mut watch, &[bobs(&[wood])]);
    assert_eq!(look(&mut watch, &[bobs(&[at(25)]), eves(&[at(24)])]).0, Some("changed"));
    assert_eq!(look(&mut watch, &[bobs(&[at(25)]), eves(&[at(23)])]).0, None, "hers moved");
    assert_eq!(look(&mut watch, &[bobs(&[SellOrder { quantity: 2000, ..at(50) }])]).0, None, "the same by the piece");
    assert_eq!(look(&mut watch, &[bobs(&[SellOrder { in_stock: 0, ..at(30) }])]).0, Some("changed"), "and sold out");
    assert_eq!(look(&mut watch, &[bobs(&[wood]), eves(&[at(19)])]).0, Some("undercut"));
    assert_eq!(look(&mut watch, &[bobs(&[wood]), eves(&[at(18)])]).0, Some("undercut"));
    let third = machine(50.0, 50.0, "Third", &[at(18)]);
    assert_eq!(look(&mut watch, &[bobs(&[wood]), eves(&[at(18)]), third]).0, None, "another at the same price");
}

#[test]
fn a_bound_is_news_when_it_is_reached_moved_at_or_left() {
    let mut watch = ShopWatch { direction: PriceDirection::AtMost, ..watch(Some(20)) };
    let at = |cost| bobs(&[order("wood", 1000, cost, 5)]);
    let seen = [30, 25, 20, 20, 15, 18, 21, 40].map(|cost| look(&mut watch, &[at(cost)]).0);
    // The first look finds it too dear, which it was not known to be.
    assert_eq!(seen, [Some("changed"), None, Some("ok"), None, Some("ok"), Some("ok"), Some("changed"), None]);
    let mut watch = ShopWatch { direction: PriceDirection::AtLeast, ..super::tests::watch(Some(20)) };
    assert_eq!(
        [19, 20, 21, 19].map(|cost| look(&mut watch, &[at(cost)]).0),
        [Some("changed"), Some("ok"), Some("ok"), Some("changed")]
    );
}

#[test]
fn of_any_shop_the_best_offer_in_stock_is_followed() {
    let mut watch = ShopWatch { vendor: None, direction: PriceDirection::AtMost, ..watch(Some(20)) };
    let wood = order("wood", 1000, 30, 5);
    let at = |cost| SellOrder { cost, ..wood };
    assert_eq!(look(&mut watch, &[bobs(&[wood])]), (None, WatchState::Changed), "there, and too dear");
    assert_eq!(look(&mut watch, &[]), (None, WatchState::Missing));
    assert_eq!(look(&mut watch, &[bobs(&[wood]), eves(&[at(25)])]).0, None);
    assert_eq!(watch.finding.vendor, Some(VendorId::at(900.0, 100.0)));
    let both = [bobs(&[at(18)]), eves(&[at(19)])];
    assert_eq!(look(&mut watch, &both), (Some("ok"), WatchState::Ok), "one piece of news of two shops");
    assert_eq!((watch.finding.vendor, watch.finding.undercut_by), (Some(VendorId::at(100.0, 100.0)), None));
    let event = watch.event("ok", shops(&both).first(), Catalogue::embedded(), at_second(9));
    assert_eq!(
        (event.title.as_str(), event.data["vendorId"].as_str()),
        ("Bob's: Wood is as expected, 1000 for 18 Scrap", Some("10000_10000"))
    );
    let sold_out = bobs(&[SellOrder { in_stock: 0, ..at(18) }]);
    assert_eq!(look(&mut watch, &[sold_out.clone(), eves(&[at(19)])]).0, Some("ok"), "hers is the best now");
    assert_eq!(look(&mut watch, &[sold_out]), (Some("missing"), WatchState::Missing));
    assert_eq!(look(&mut watch, &[machine(2000.0, 2000.0, "Outpost", &[at(20)])]).1, WatchState::Returned);
}

#[test]
fn what_shops_pay_for_an_item_is_watched_from_the_other_side() {
    let buys = |cost, pieces| SellOrder {
        currency_id: id("wood"),
        item_id: SCRAP,
        cost: pieces,
        quantity: cost,
        ..order("wood", 1, 1, 5)
    };
    let buyer =
        |side_price| ShopWatch { side: WatchSide::Buys, direction: PriceDirection::AtLeast, ..watch(side_price) };
    let mut own = buyer(Some(20));
    assert_eq!(look(&mut own, &[bobs(&[order("wood", 1000, 20, 5)])]), (None, WatchState::Missing), "it sells wood");
    assert_eq!(look(&mut own, &[bobs(&[buys(20, 1000)])]), (Some("ok"), WatchState::Ok));
    let (found, baseline) = (own.finding.price.unwrap(), own.baseline.unwrap());
    assert_eq!((found.cost, found.quantity, baseline.currency_id), (20, 1000, SCRAP));
    let event = own.event("ok", shops(&[bobs(&[buys(20, 1000)])]).first(), Catalogue::embedded(), at_second(9));
    assert_eq!(event.title, "Bob's: purchase of Wood is as expected, 1000 for 20 Scrap");
    assert_eq!(look(&mut own, &[bobs(&[buys(15, 1000)])]), (Some("changed"), WatchState::Changed), "it pays less");
    assert_eq!(
        look(&mut own, &[bobs(&[buys(20, 1000)]), eves(&[buys(21, 1000)])]),
        (Some("undercut"), WatchState::Undercut),
        "she pays more"
    );
    let mut any = ShopWatch { vendor: None, ..buyer(None) };
    look(&mut any, &[bobs(&[buys(20, 1000)]), eves(&[buys(21, 1000)])]);
    assert_eq!(any.finding.vendor, Some(VendorId::at(900.0, 100.0)), "the best paid");
}

#[test]
fn states_are_read_as_they_are_written() {
    use WatchState::*;
    for state in [Ok, Changed, Undercut, Missing, Returned] {
        assert_eq!(WatchState::parse(state.word()), Some(state));
        assert_eq!(serde_json::to_value(state).unwrap(), state.word());
    }
    assert_eq!(WatchState::parse("sold_out"), None);
    for direction in [PriceDirection::AtMost, PriceDirection::AtLeast, PriceDirection::Changes] {
        assert_eq!(PriceDirection::parse(direction.word()), Some(direction));
        assert_eq!(serde_json::to_value(direction).unwrap(), direction.word());
    }
    for side in [WatchSide::Sells, WatchSide::Buys] {
        assert_eq!(WatchSide::parse(side.word()), Some(side));
        assert_eq!(serde_json::to_value(side).unwrap(), side.word());
    }
}
