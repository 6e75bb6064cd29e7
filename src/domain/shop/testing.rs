//! Machines and markets for the tests of shops.

use std::sync::Arc;

use chrono::TimeDelta;

use super::{MarketGround, Shop, market::Market};
use crate::domain::{
    detect::MapContext,
    items::{Catalogue, SCRAP},
    map::{MapPlace, Marker, MarkerKind, SellOrder},
    monument::Monument,
    time::{Moment, Timestamp},
};

/// The id of an item that must be there.
pub(crate) fn id(shortname: &str) -> i32 {
    Catalogue::embedded().by_shortname(shortname).expect("an item of the catalogue").id
}

/// This many seconds after 2026-11-21 12:00 UTC, on both clocks.
pub(crate) fn at(seconds: i64) -> Moment {
    (Timestamp::from_timestamp(1_795_262_400, 0).expect("a time") + TimeDelta::seconds(seconds)).into()
}

/// An order: pieces of an item for scrap, and its stock.
pub(crate) fn order(shortname: &str, quantity: i32, cost: i32, in_stock: i32) -> SellOrder {
    SellOrder {
        item_id: id(shortname),
        quantity,
        currency_id: SCRAP,
        cost,
        in_stock,
        item_is_blueprint: false,
        currency_is_blueprint: false,
        condition: None,
    }
}

/// A vending machine.
pub(crate) fn machine(x: f64, y: f64, name: &str, orders: &[SellOrder]) -> Marker {
    let machine = Marker::new(MarkerKind::VendingMachine, MapPlace::at(x, y), 4_000);
    Marker { name: Some(name.into()), sell_orders: orders.into(), ..machine }
}

/// A map of 4 km with an outpost at (2000, 2000).
pub(crate) fn ground() -> MarketGround {
    let monuments = [Monument::new("outpost", 2000.0, 2000.0).expect("a place")];
    MarketGround::of(&MapContext { map_size: 4000, monuments: &monuments })
}

/// Gives the market an answer with these machines. True if anything changed.
pub(crate) fn answer(market: &mut Market, seconds: i64, machines: &[Marker]) -> bool {
    let machines: Vec<Arc<Marker>> = machines.iter().cloned().map(Arc::new).collect();
    market.answer(ground(), machines.iter(), at(seconds))
}

/// The shops of one answer with these machines.
pub(crate) fn shops(machines: &[Marker]) -> Vec<Shop> {
    let mut market = Market::default();
    answer(&mut market, 0, machines);
    market.shops().collect()
}
