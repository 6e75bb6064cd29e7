use std::sync::Arc;

use proptest::prelude::*;

use super::{MAX_GONE, MAX_SHOPS, Market};
use crate::domain::{
    map::{Marker, SellOrder},
    reporting::Reported,
    shop::{
        OfferChange, Price, Shop, VendorId,
        testing::{answer, at, ground, machine, order, shops},
    },
};

fn bobs(orders: &[SellOrder]) -> Marker {
    machine(100.0, 100.0, "Bob's", orders)
}

/// Bob's shop as it is known.
fn bob(market: &Market) -> Shop {
    market.shop(VendorId::at(100.0, 100.0)).expect("it is known")
}

/// News of offers that would be stored.
fn news(market: &mut Market) -> Vec<OfferChange> {
    market
        .take_unwritten()
        .map(|write| write.records.into_iter().map(|record| record.news).collect())
        .unwrap_or_default()
}

#[test]
fn a_shop_is_the_same_whatever_its_marker() {
    let mut market = Market::default();
    assert!(answer(&mut market, 0, &[bobs(&[order("wood", 1000, 10, 5)])]));
    assert_eq!(news(&mut market), [OfferChange::Listed]);
    let known = bob(&market);
    assert_eq!((known.npc, known.first_seen_at, known.offers.len()), (Some(false), at(0).stamp, 1));
    let version = market.version();
    assert!(!answer(&mut market, 10, &[bobs(&[order("wood", 1000, 10, 5)])]));
    assert_eq!((bob(&market), market.version(), market.take_unwritten()), (known, version, None));
    assert_eq!(market.answered_at(), Some(at(10).stamp));
}

#[test]
fn each_change_of_an_offer_is_a_line_of_its_history() {
    let mut market = Market::default();
    let mut step = |seconds, orders: &[SellOrder]| {
        let changed = answer(&mut market, seconds, &[bobs(orders)]);
        let news = news(&mut market);
        assert!(changed || news.is_empty());
        news
    };
    let (wood, stones) = (order("wood", 1000, 10, 5), order("stones", 1000, 10, 5));
    assert_eq!(step(0, &[wood]), [OfferChange::Listed]);
    assert_eq!(step(1, &[SellOrder { cost: 9, ..wood }]), [OfferChange::PriceChanged]);
    assert_eq!(step(2, &[SellOrder { cost: 9, in_stock: 0, ..wood }]), [OfferChange::SoldOut]);
    assert_eq!(
        step(3, &[SellOrder { cost: 8, in_stock: 2, ..wood }]),
        [OfferChange::PriceChanged, OfferChange::Restocked]
    );
    assert_eq!(step(4, &[SellOrder { cost: 8, in_stock: 1, ..wood }]), [], "a sale changes the stock only");
    assert_eq!(step(5, &[stones]), [OfferChange::Listed, OfferChange::Delisted]);
    let offer = &bob(&market).offers[0];
    assert_eq!((offer.first_seen_at, offer.changed_at), (at(5).stamp, at(5).stamp));
    let closed = Marker { out_of_stock: Some(true), ..bobs(&[stones]) };
    assert!(answer(&mut market, 6, &[closed]));
    assert_eq!(news(&mut market), [OfferChange::SoldOut], "the machine's own word counts");
}

#[test]
fn blueprints_conditions_and_currencies_are_apart() {
    let wood = order("wood", 1000, 10, 5);
    let offers = [
        wood,
        SellOrder { item_is_blueprint: true, ..wood },
        SellOrder { currency_id: 1, ..wood },
        SellOrder { currency_is_blueprint: true, ..wood },
        SellOrder { condition: Some(40), cost: 2, ..wood },
        SellOrder { condition: Some(50), cost: 3, ..wood },
        SellOrder { condition: Some(100), cost: 11, ..wood },
    ];
    let shop = &shops(&[bobs(&offers)])[0];
    assert_eq!(shop.offers.len(), 5, "two are worn, and two are as new");
    let worn = shop.offers.iter().find(|offer| offer.key.worn).unwrap();
    assert_eq!((worn.price.cost, worn.condition, worn.in_stock), (2, Some(0.4), 10));
}

#[test]
fn a_shop_is_gone_after_several_answers_and_comes_back() {
    let mut market = Market::default();
    let other = machine(50.0, 50.0, "Other", &[order("stones", 1, 1, 1)]);
    answer(&mut market, 0, &[bobs(&[order("wood", 1000, 10, 5)]), other.clone()]);
    let other = [other];
    news(&mut market);
    for seconds in [10, 20] {
        assert!(!answer(&mut market, seconds, &other));
        assert!(bob(&market).is_there());
    }
    assert!(answer(&mut market, 30, &other));
    assert_eq!(news(&mut market), [OfferChange::Delisted]);
    assert_eq!((bob(&market).gone_at, bob(&market).offers.len()), (Some(at(30).stamp), 1));
    assert!(!answer(&mut market, 40, &other));
    let [other] = other;
    assert!(answer(&mut market, 50, &[bobs(&[order("wood", 1000, 12, 5)]), other]));
    assert_eq!(news(&mut market), [OfferChange::Listed]);
    assert_eq!((bob(&market).returns, bob(&market).first_seen_at, bob(&market).gone_at), (1, at(0).stamp, None));
}

#[test]
fn a_shop_that_moves_is_recognised_by_its_name_and_prices() {
    let mut market = Market::default();
    let orders = [order("wood", 1000, 10, 5), order("stones", 1000, 12, 5)];
    let other = machine(50.0, 50.0, "Other", &orders);
    answer(&mut market, 0, &[bobs(&orders), other.clone()]);
    let moved = |x, name| machine(x, 900.0, name, &[SellOrder { in_stock: 1, ..orders[1] }, orders[0]]);
    answer(&mut market, 10, &[moved(900.0, "Bob's"), moved(950.0, "Eve's"), other]);
    let from = |x| market.shop(VendorId::at(x, 900.0)).unwrap().moved_from;
    assert_eq!((from(900.0), from(950.0)), (Some(VendorId::at(100.0, 100.0)), None));
}

#[test]
fn the_owner_of_a_shop_is_shown_once_the_map_is_known() {
    let mut market = Market::default();
    let machines = [machine(2010.0, 2000.0, "Outpost", &[order("wood", 1, 1, 1)]), bobs(&[order("wood", 1, 1, 1)])];
    let markers: Vec<Arc<Marker>> = machines.iter().cloned().map(Arc::new).collect();
    market.answer(super::MarketGround::default(), markers.iter(), at(0));
    assert!(market.shops().all(|shop| shop.npc.is_none()));
    market.take_unwritten();
    assert!(market.answer(ground(), markers.iter(), at(10)));
    let npcs: Vec<_> = market.take_unwritten().unwrap().shops.iter().map(|shop| shop.npc).collect();
    assert_eq!(npcs, [Some(false), Some(true)]);
    assert!(!market.answer(super::MarketGround::default(), markers.iter(), at(20)), "what was known stays known");
}

#[test]
fn labels_of_modded_servers_are_no_shops() {
    let mut market = Market::default();
    assert!(!answer(&mut market, 0, &[machine(1.0, 1.0, "RAIDABLE BASE", &[])]));
    assert_eq!((market.shops().count(), market.reports().reports().shops), (0, Reported::Unknown));
}

#[test]
fn a_server_without_shops_is_known_after_a_while_and_believed_when_it_has_one() {
    let mut market = Market::default();
    for poll in 0..60 {
        answer(&mut market, poll * 10, &[]);
    }
    assert!(market.take_unwritten().is_none(), "not even ten minutes");
    assert!(answer(&mut market, 600, &[]));
    let known = market.take_unwritten().unwrap().reports.unwrap().shops.unwrap();
    assert_eq!((known.reported, known.as_of), (false, at(600).stamp));
    assert!(known.words.contains("61 answers of the map since 2026-11-21T12:00:00.000Z"), "{}", known.words);
    assert!(!answer(&mut market, 610, &[]));
    assert_eq!(market.answered_at(), None, "nothing was seen of its shops");
    answer(&mut market, 620, &[bobs(&[order("wood", 1, 1, 1)])]);
    assert_eq!(market.reports().reports().shops, Reported::Yes);
    market.take_unwritten();
    for poll in 0..200 {
        answer(&mut market, 700 + poll * 10, &[]);
    }
    assert_eq!(market.reports().reports().shops, Reported::No);
    assert!(bob(&market).is_there(), "silence takes no shop away");
    assert_eq!((market.answered_at(), news(&mut market).len()), (Some(at(620).stamp), 0));
    let next = market.wiped();
    assert_eq!((next.shops().count(), next.reports()), (0, market.reports()), "that outlives the world");
}

#[test]
fn a_restored_market_goes_on_where_it_was() {
    let mut market = Market::default();
    let all = [bobs(&[order("wood", 1000, 10, 5)]), machine(5.0, 5.0, "A", &[order("stones", 1, 1, 1)])];
    answer(&mut market, 0, &all);
    let write = market.take_unwritten().unwrap();
    let mut restored = Market::restore(write.shops, write.reports.unwrap());
    assert!(!answer(&mut restored, 100, &all));
    assert_eq!(restored.take_unwritten(), None);
    for seconds in [110, 120, 130] {
        answer(&mut restored, seconds, &all[..1]);
    }
    assert_eq!(news(&mut restored), [OfferChange::Delisted]);
}

#[test]
fn what_could_not_be_stored_is_taken_again() {
    let mut market = Market::default();
    answer(&mut market, 0, &[bobs(&[order("wood", 1000, 10, 5)])]);
    let first = market.take_unwritten().unwrap();
    answer(&mut market, 10, &[bobs(&[order("wood", 1000, 9, 5)])]);
    market.requeue(first);
    let write = market.take_unwritten().unwrap();
    assert_eq!(write.shops, [bob(&market)]);
    assert_eq!(write.records.iter().map(|record| record.price.cost).collect::<Vec<_>>(), [10, 9]);
    assert_eq!(write.reports.unwrap().reports().shops, Reported::Yes);
}

#[test]
fn a_server_that_shows_other_shops_each_time_costs_bounded_memory() {
    let mut market = Market::default();
    for round in 0..12 {
        let machines: Vec<_> = (0..MAX_SHOPS + 10)
            .map(|n| f64::from(n as u32 % 4000))
            .map(|x| machine(x, f64::from(round) + x / 7_000.0, "Shop", &[order("wood", 1, 1, 1)]))
            .collect();
        answer(&mut market, i64::from(round) * 10, &machines);
        market.take_unwritten();
        assert!(market.shops().count() <= 2 * MAX_SHOPS + MAX_GONE, "{}", market.shops().count());
        assert!(market.shops().filter(Shop::is_there).count() <= MAX_SHOPS);
    }
}

fn any_orders() -> impl Strategy<Value = Vec<SellOrder>> {
    let item = prop::sample::select(vec!["wood", "stones", "rocket.launcher", "scrap"]);
    let one = (item, 0_i32..3, any::<i32>(), -1_i32..5, any::<bool>(), prop::option::of(0_u8..100));
    let order = one.prop_map(|(item, quantity, cost, stock, item_is_blueprint, condition)| SellOrder {
        item_is_blueprint,
        condition,
        ..order(item, quantity, cost, stock)
    });
    prop::collection::vec(order, 0..5)
}

fn any_answers() -> impl Strategy<Value = Vec<Vec<Marker>>> {
    let one = (0_u32..6, 0_u32..2, any_orders());
    let one = one.prop_map(|(x, y, orders)| machine(f64::from(x), f64::from(y), &format!("Shop {x}"), &orders));
    prop::collection::vec(prop::collection::vec(one, 0..8), 1..12)
}

proptest! {
    #[test]
    fn the_order_of_arrival_and_the_ids_mean_nothing(answers in any_answers(), turns in prop::collection::vec(any::<u64>(), 12)) {
        let (mut market, mut turned) = (Market::default(), Market::default());
        for ((poll, machines), turn) in answers.into_iter().enumerate().zip(turns) {
            let mut other = machines.clone();
            if !other.is_empty() {
                let by = turn as usize % other.len();
                other.rotate_left(by);
                other.iter_mut().for_each(|machine| machine.sell_orders.reverse());
            }
            let seconds = poll as i64 * 10;
            prop_assert_eq!(answer(&mut market, seconds, &machines), answer(&mut turned, seconds, &other));
            let known = |market: &Market| market.shops().collect::<Vec<_>>();
            prop_assert_eq!(known(&market), known(&turned));
        }
    }

    #[test]
    fn an_answer_that_repeats_itself_leaves_nothing_to_store(answers in any_answers()) {
        let mut market = Market::default();
        for (poll, machines) in answers.iter().enumerate() {
            // At one time of day: no clock may stand in for a comparison.
            market.answer(ground(), machines.iter().cloned().map(Arc::new).collect::<Vec<_>>().iter(), at(0));
            market.take_unwritten();
            market.answer(ground(), machines.iter().cloned().map(Arc::new).collect::<Vec<_>>().iter(), at(0));
            prop_assert_eq!(market.take_unwritten(), None, "answer {}", poll);
        }
    }

    #[test]
    fn what_is_stored_is_what_is_known(answers in any_answers()) {
        let mut market = Market::default();
        let mut stored = std::collections::BTreeMap::new();
        let mut listed = std::collections::BTreeMap::<_, Price>::new();
        for (poll, machines) in answers.iter().enumerate() {
            answer(&mut market, poll as i64 * 10, machines);
            let Some(write) = market.take_unwritten() else { continue };
            stored.extend(write.shops.into_iter().map(|shop| (shop.id, shop)));
            for record in write.records {
                match record.news {
                    OfferChange::Delisted => drop(listed.remove(&(record.vendor, record.key))),
                    _ => drop(listed.insert((record.vendor, record.key), record.price)),
                }
            }
        }
        prop_assert!(market.shops().eq(stored.values().cloned()));
        let there = market.shops().filter(Shop::is_there);
        let offers = there.flat_map(|shop| shop.offers.into_iter().map(move |offer| ((shop.id, offer.key), offer.price)));
        prop_assert!(offers.eq(listed), "the history ends with what is offered");
    }
}
