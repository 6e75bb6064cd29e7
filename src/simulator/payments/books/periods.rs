//! The course of subscriptions: a period that is over is renewed and charged, or was the last.

use serde_json::json;

use super::{Books, period_of};

impl Books {
    /// Does what was due up to `now`, seconds since 1970. A payment that failed and was not made within its period ends
    /// the subscription.
    pub fn pass_time(&mut self, now: i64) {
        let ids: Vec<String> = self.subscriptions.keys().cloned().collect();
        for id in ids {
            while self.pass_period(&id, now) {}
        }
    }

    /// Renews or ends one whose period is over. False: there is nothing to do.
    fn pass_period(&mut self, id: &str, now: i64) -> bool {
        let Some(subscription) = self.subscriptions.get_mut(id) else { return false };
        let status = subscription["status"].as_str().unwrap_or_default().to_owned();
        let is_last = !subscription["cancel_at"].is_null() || subscription["cancel_at_period_end"] == true;
        let item = &mut subscription["items"]["data"][0];
        let Some(end) = item["current_period_end"].as_i64().filter(|end| *end <= now) else { return false };
        match &*status {
            "active" | "trialing" if !is_last => {
                item["current_period_start"] = json!(end);
                item["current_period_end"] = json!(end + period_of(item));
                subscription["status"] = json!("active");
                self.charge_period(id, end);
                self.updated(id, end);
                return true;
            }
            "active" | "trialing" => {}
            "past_due" => subscription["cancellation_details"]["reason"] = json!("payment_failed"),
            _ => return false,
        }
        subscription["status"] = json!("canceled");
        subscription["ended_at"] = json!(end);
        let ended = subscription.clone();
        self.emit("customer.subscription.deleted", ended, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::payments::change::SubscriptionChange;

    const PERIOD: i64 = 30 * 86_400;

    #[test]
    fn time_renews_and_charges_and_ends_what_was_cancelled_or_not_paid() {
        let mut books = Books::new("x".to_owned());
        let ids = ["cus_1", "cus_2", "cus_3"].map(|customer| books.subscribe(customer, None, "price_scout", 0));
        books.change(&ids[1], &SubscriptionChange::Cancel, 1);
        books.change(&ids[2], &SubscriptionChange::FailPayment, 1);
        books.pass_time(PERIOD - 1);
        let states = |books: &Books| ids.clone().map(|id| books.subscription(&id).unwrap()["status"].clone());
        assert_eq!(states(&books), ["active", "active", "past_due"]);
        books.pass_time(2 * PERIOD + 1);
        assert_eq!(states(&books), ["active", "canceled", "canceled"]);
        let charges = ["cus_1", "cus_2", "cus_3"].map(|customer| books.charges(Some(customer), None).len());
        assert_eq!(charges, [3, 1, 1], "two periods were renewed");
        let end = &books.subscription(&ids[0]).unwrap()["items"]["data"][0]["current_period_end"];
        assert_eq!(*end, json!(3 * PERIOD));
        assert_eq!(books.subscription(&ids[2]).unwrap()["cancellation_details"]["reason"], "payment_failed");
    }
}
