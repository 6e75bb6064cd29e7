//! Charges: for a period, and for the rest of one when the price changes.

use serde_json::{Value, json};

use super::{
    Books,
    prices::{period_of, shown_plan},
};

/// A line of an invoice: a price, and cents, less than none for what is given back.
type InvoiceLine<'a> = (&'a str, i64);

impl Books {
    /// Charges a subscription for one period at its price.
    pub fn charge_period(&mut self, id: &str, now: i64) {
        let price = self.subscriptions[id]["items"]["data"][0]["price"].clone();
        let amount = price["unit_amount"].as_i64().unwrap_or(0);
        self.take_charge(id, &[(price["id"].as_str().unwrap_or_default(), amount)], now);
    }

    /// Changes the price of a subscription, within its period or, where the interval is another, with a new one. What
    /// is left of the former price is given back against the new one; the difference is charged at once.
    pub fn change_plan(&mut self, id: &str, plan: &str, now: i64) {
        let Some(subscription) = self.subscriptions.get_mut(id) else { return };
        let (status, item) = (subscription["status"].clone(), &mut subscription["items"]["data"][0]);
        let (former, wanted) = (item["price"].clone(), shown_plan(plan));
        let period = period_of(item);
        let left = (item["current_period_end"].as_i64().unwrap_or(now) - now).clamp(0, period);
        let rest = |price: &Value| price["unit_amount"].as_i64().unwrap_or(0) * left / period;
        let changes_interval = former["recurring"]["interval"] != wanted["recurring"]["interval"];
        let back = rest(&former);
        let cost = if changes_interval { wanted["unit_amount"].as_i64().unwrap_or(0) } else { rest(&wanted) };
        item["price"] = wanted;
        // A trial goes on, whatever it is for.
        if status != "active" || former["id"] == plan {
            return;
        }
        if changes_interval {
            item["current_period_start"] = json!(now);
            item["current_period_end"] = json!(now + period_of(item));
        }
        let former = former["id"].as_str().unwrap_or_default();
        if cost > back {
            self.take_charge(id, &[(former, -back), (plan, cost)], now);
        }
    }

    /// Takes the sum of these lines.
    pub fn take_charge(&mut self, subscription: &str, lines: &[InvoiceLine<'_>], now: i64) {
        let (id, payment, invoice) = (self.id("ch"), self.id("pi"), self.id("in"));
        let customer = self.subscriptions[subscription]["customer"].clone();
        let amount: i64 = lines.iter().map(|(_, amount)| amount).sum();
        self.charges.push(json!({
            "id": id, "object": "charge", "amount": amount, "amount_refunded": 0, "currency": "usd", "created": now,
            "customer": customer, "livemode": false, "paid": true, "payment_intent": payment, "refunded": false,
            "status": "succeeded", "disputed": false, "metadata": {},
        }));
        let line = |(price, amount): &InvoiceLine<'_>| {
            json!({
                "object": "line_item", "amount": amount, "currency": "usd",
                "pricing": { "type": "price_details", "price_details": { "price": price } },
            })
        };
        let lines: Vec<Value> = lines.iter().map(line).collect();
        self.invoices.push(json!({
            "id": invoice, "object": "invoice", "created": now, "customer": customer, "livemode": false, "currency": "usd",
            "status": "paid", "amount_due": amount, "amount_paid": amount, "metadata": {},
            "parent": { "type": "subscription_details", "subscription_details": { "subscription": subscription } },
            "lines": { "object": "list", "has_more": false, "data": lines },
        }));
    }

    /// The invoices of this subscription that were paid, newest first.
    pub fn paid_invoices(&self, subscription: Option<&str>) -> Vec<&Value> {
        let of = |invoice: &&Value| {
            let known = &invoice["parent"]["subscription_details"]["subscription"];
            subscription.is_none_or(|subscription| known == subscription)
        };
        self.invoices.iter().rev().filter(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn a_change_charges_what_the_rest_costs_more() {
        let mut books = Books::new("x".to_owned());
        let id = books.subscribe("cus_1", None, "price_scout", 0);
        books.change_plan(&id, "price_overlord", 15 * DAY);
        books.change_plan(&id, "price_scout", 15 * DAY);
        books.change_plan(&id, "price_scout_yearly", 15 * DAY);
        let amounts: Vec<_> = books.charges(None, None).iter().map(|charge| charge["amount"].clone()).collect();
        assert_eq!(amounts, [2_850, 600, 300], "newest first; what became cheaper costs nothing");
        let subscription = books.subscription(&id).unwrap();
        assert_eq!(subscription["items"]["data"][0]["current_period_end"], 380 * DAY);
        let newest = books.paid_invoices(Some(&id))[0];
        assert_eq!((&newest["amount_paid"], &newest["lines"]["data"][0]["amount"]), (&json!(2_850), &json!(-150)));
        assert!(books.paid_invoices(Some("sub_other")).is_empty());
    }
}
