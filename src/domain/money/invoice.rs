//! Payments for a subscription, by the payment provider's invoices (Stripe's API, in its current and its older shapes).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::domain::money::payment::id_at;

/// The prices that the newest of these invoices with a payment was for, the one that cost most first. An invoice of a
/// change gives back what is left of one price and charges another. The newest invoice is the first.
pub fn paid_prices(invoices: &[Value]) -> Vec<String> {
    let Some(paid) = invoices.iter().find(|invoice| invoice["amount_paid"].as_i64().is_some_and(|paid| paid > 0))
    else {
        return Vec::new();
    };
    let mut amounts: BTreeMap<String, i64> = BTreeMap::new();
    for line in paid["lines"]["data"].as_array().map_or(&[][..], Vec::as_slice) {
        let price = ["/pricing/price_details/price", "/price", "/plan"].into_iter().find_map(|path| id_at(line, path));
        if let Some(price) = price {
            let amount = amounts.entry(price).or_default();
            *amount = amount.saturating_add(line["amount"].as_i64().unwrap_or(0));
        }
    }
    let mut prices: Vec<(String, i64)> = amounts.into_iter().filter(|(_, amount)| *amount > 0).collect();
    prices.sort_by_key(|(_, amount)| -amount);
    prices.into_iter().map(|(price, _)| price).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(price: &str, amount: i64) -> Value {
        json!({ "amount": amount, "pricing": { "price_details": { "price": price } } })
    }

    fn invoice(paid: i64, lines: &[Value]) -> Value {
        json!({ "amount_paid": paid, "lines": { "data": lines } })
    }

    #[test]
    fn the_newest_invoice_with_a_payment_counts() {
        let trial = invoice(0, &[line("dear", 0)]);
        let cheap = invoice(300, &[line("cheap", 300)]);
        assert_eq!(paid_prices(&[trial.clone(), cheap]), ["cheap"]);
        assert!(paid_prices(&[trial]).is_empty() && paid_prices(&[]).is_empty());
        assert!(paid_prices(&[json!({ "amount_paid": 1 })]).is_empty(), "without lines");
    }

    #[test]
    fn of_a_change_the_new_price_counts() {
        let up = invoice(900, &[line("cheap", -150), line("dear", 1_050)]);
        assert_eq!(paid_prices(&[up]), ["dear"]);
        let there_and_back = invoice(10, &[line("dear", 1_050), line("dear", -1_040), line("cheap", 140)]);
        assert_eq!(paid_prices(&[there_and_back]), ["cheap", "dear"]);
    }

    #[test]
    fn older_shapes_are_read() {
        let with = |line: Value| paid_prices(&[invoice(300, &[line])]);
        assert_eq!(with(json!({ "amount": 300, "price": { "id": "a" }, "plan": { "id": "b" } })), ["a"]);
        assert_eq!(with(json!({ "amount": 300, "plan": { "id": "b" } })), ["b"]);
    }
}
