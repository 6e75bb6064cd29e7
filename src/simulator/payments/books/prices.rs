//! The prices that are for sale.

use serde_json::{Value, json};

/// Something to subscribe to.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedPrice {
    pub id: &'static str,
    /// The setting of a service that sells it.
    pub variable: &'static str,
    pub name: &'static str,
    /// `month` or `year`.
    pub interval: &'static str,
    /// Cents for one of them.
    pub amount: i64,
}

const DAY: i64 = 24 * 60 * 60;
/// Seconds of a month, which has 30 days here.
const MONTH: i64 = 30 * DAY;

/// The prices that there are.
#[rustfmt::skip]
pub const PRICES: [SimulatedPrice; 6] = [
    SimulatedPrice { id: "price_scout", variable: "PAYMENT_PRICE_SCOUT", name: "SCOUT", interval: "month", amount: 300 },
    SimulatedPrice { id: "price_operator", variable: "PAYMENT_PRICE_OPERATOR", name: "OPERATOR", interval: "month", amount: 700 },
    SimulatedPrice { id: "price_overlord", variable: "PAYMENT_PRICE_OVERLORD", name: "OVERLORD", interval: "month", amount: 1_500 },
    SimulatedPrice { id: "price_scout_yearly", variable: "PAYMENT_PRICE_SCOUT_YEARLY", name: "SCOUT", interval: "year", amount: 3_000 },
    SimulatedPrice { id: "price_operator_yearly", variable: "PAYMENT_PRICE_OPERATOR_YEARLY", name: "OPERATOR", interval: "year", amount: 7_000 },
    SimulatedPrice { id: "price_overlord_yearly", variable: "PAYMENT_PRICE_OVERLORD_YEARLY", name: "OVERLORD", interval: "year", amount: 15_000 },
];

impl SimulatedPrice {
    /// Seconds of a period: a month has 30 days.
    fn period(&self) -> i64 {
        if self.interval == "year" { 365 * DAY } else { MONTH }
    }

    /// As a page shows it.
    pub fn shown_amount(&self) -> String {
        format!("${}.{:02} a {}", self.amount / 100, self.amount % 100, self.interval)
    }
}

/// The price of this id.
pub fn price(id: &str) -> Option<&'static SimulatedPrice> {
    PRICES.iter().find(|price| price.id == id)
}

/// Seconds of a period of what is subscribed to by this item.
pub fn period_of(item: &Value) -> i64 {
    item["price"]["id"].as_str().and_then(price).map_or(MONTH, SimulatedPrice::period)
}

/// A price, as the API shows it.
pub fn shown_price(price: &SimulatedPrice) -> Value {
    json!({
        "id": price.id, "object": "price", "active": true, "billing_scheme": "per_unit", "currency": "usd",
        "livemode": false, "metadata": {}, "nickname": price.name, "product": format!("prod_{}", price.id),
        "recurring": { "interval": price.interval, "interval_count": 1, "usage_type": "licensed" },
        "type": "recurring", "unit_amount": price.amount,
    })
}

/// The price of this id, as the API shows it, also one that is not known.
pub fn shown_plan(id: &str) -> Value {
    price(id).map_or_else(|| json!({ "id": id, "object": "price" }), shown_price)
}
