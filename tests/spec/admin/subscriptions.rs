//! A member's subscriptions, fetched again and ended by an admin.

use companion::simulator::payments::{PaymentFaults, SubscriptionChange};
use reqwest::Method;
use serde_json::{Value, json};

use super::{audited, start};
use crate::harness::{
    app::{ADA, ADMINS},
    browser::{Answer, Browser},
    database::Postgres,
    game::BOB,
    payments::PaymentTest,
};

/// Alice, who subscribes, and Ada.
struct Sold {
    test: PaymentTest,
    ada: Browser,
    user: String,
}

impl Sold {
    async fn start(database_url: Option<String>) -> Self {
        let mut test = PaymentTest::start_on(database_url, &[ADMINS]).await;
        let ada = test.app.signed_in(ADA).await;
        let user = test.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned();
        Self { test, ada, user }
    }

    /// With a subscription that is known.
    async fn with_scout(database_url: Option<String>) -> (Self, String) {
        let mut sold = Self::start(database_url).await;
        let id = sold.test.subscribe("SCOUT").await;
        sold.test.until(|subscription| subscription["status"] == "ACTIVE").await;
        (sold, id)
    }

    async fn fetch(&mut self) -> Answer {
        self.ada.post(&format!("/admin/users/{}/subscriptions/fetch", self.user), None).await
    }

    async fn end(&mut self, id: &str) -> Answer {
        end(&mut self.ada, &self.user, id).await
    }

    async fn ended(&mut self, id: &str) -> Value {
        let answer = self.end(id).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// The last two entries of the log: that something was begun, and its outcome.
    async fn last(&mut self) -> (Value, Value) {
        let mut entries = audited(&mut self.ada, 2).await;
        let (outcome, begun) = (entries.remove(0), entries.remove(0));
        assert_eq!((&begun["result"], &begun["target"]), (&json!("begun"), &json!(self.user)));
        assert_eq!((&outcome["actor"], &outcome["action"]), (&begun["actor"], &begun["action"]));
        (begun, outcome)
    }

    /// Does it on a provider with these faults, and then on a well one.
    async fn with_faults<T>(&mut self, faults: PaymentFaults, act: impl AsyncFnOnce(&mut Self) -> T) -> T {
        self.test.provider.set_faults(faults);
        let done = act(self).await;
        self.test.provider.set_faults(PaymentFaults::default());
        done
    }

    fn status(&self, id: &str) -> Value {
        self.test.provider.subscription(id).unwrap()["status"].clone()
    }
}

async fn end(ada: &mut Browser, user: &str, id: &str) -> Answer {
    let request = ada.request(Method::DELETE, &format!("/admin/users/{user}/subscriptions/{id}"));
    ada.send(request).await
}

async fn what_no_event_said_is_fetched(database_url: Option<String>) {
    let mut sold = Sold::start(database_url).await;
    let nothing = sold.fetch().await;
    assert_eq!((nothing.status, nothing.json()), (200, json!({ "subscriptions": [], "running": [], "unknown": [] })));
    sold.test.hold_events();
    let id = sold.test.subscribe("OPERATOR").await;
    assert_eq!(sold.test.subscription().await["tier"], Value::Null);
    let fetched = sold.fetch().await.json();
    let stored = &fetched["subscriptions"][0];
    assert_eq!(
        fetched,
        json!({
            "subscriptions": [{
                "id": id, "tier": "OPERATOR", "interval": "month", "paidTier": "OPERATOR", "status": "ACTIVE", "priceId": "price_operator",
                "currentPeriodEnd": stored["currentPeriodEnd"], "cancelAtPeriodEnd": false,
            }],
            "running": [id],
            "unknown": [],
        })
    );
    assert_eq!(sold.test.subscription().await["tier"], "OPERATOR");
    let (begun, outcome) = sold.last().await;
    assert_eq!((&begun["actor"], &begun["action"]), (&json!(ADA), &json!("user.subscriptions.fetch")));
    assert_eq!((&outcome["result"], &outcome["payload"]["after"]), (&json!("done"), &fetched));
    assert_eq!(sold.fetch().await.json(), fetched, "nothing is left to fetch");
}

async fn a_subscription_is_ended_once(database_url: Option<String>) {
    let (mut sold, id) = Sold::with_scout(database_url).await;
    sold.test.hold_events();
    let ended = sold.ended(&id).await;
    assert_eq!((&ended["outcome"], &ended["subscription"]["status"]), (&json!("ended"), &json!("CANCELED")));
    assert_eq!(sold.status(&id), "canceled");
    let subscription = sold.test.subscription().await;
    assert_eq!(
        (&subscription["tier"], &subscription["status"]),
        (&Value::Null, &json!("CANCELED")),
        "without its event"
    );
    let (begun, outcome) = sold.last().await;
    assert_eq!(
        (&begun["action"], &begun["payload"]["asked"]["subscriptionId"]),
        (&json!("subscription.end"), &json!(id))
    );
    assert_eq!((&outcome["result"], &outcome["payload"]["after"]), (&json!("done"), &ended));

    let again = sold.ended(&id).await;
    assert_eq!((&again["outcome"], &again["subscription"]), (&json!("already_ended"), &ended["subscription"]));
    assert_eq!(sold.last().await.1["payload"]["after"]["outcome"], "already_ended");
    sold.test.checkout("SCOUT").await;
}

async fn what_the_provider_does_not_know_is_ended_here(database_url: Option<String>) {
    let (mut sold, id) = Sold::with_scout(database_url).await;
    sold.test.provider.forget_subscription(&id);
    let fetched = sold.fetch().await.json();
    assert_eq!((&fetched["unknown"], &fetched["subscriptions"][0]["status"]), (&json!([id]), &json!("ACTIVE")));
    assert_eq!(sold.ended(&id).await["outcome"], "unknown");
    assert_eq!(sold.test.subscription().await["status"], "CANCELED");
    assert_eq!(sold.ended(&id).await["outcome"], "already_ended");
    let fetched = sold.fetch().await.json();
    assert_eq!((&fetched["unknown"], &fetched["running"]), (&json!([]), &json!([])));
    assert_eq!(fetched["subscriptions"][0]["status"], "CANCELED");
}

async fn what_was_ended_with_the_key_of_another_account_goes_on(database_url: Option<String>) {
    let (mut sold, id) = Sold::with_scout(database_url).await;
    let other = PaymentFaults { other_account: true, ..Default::default() };
    let ended = sold.with_faults(other, async |sold| sold.ended(&id).await).await;
    assert_eq!((&ended["outcome"], &ended["subscription"]["status"]), (&json!("unknown"), &json!("CANCELED")));
    assert_eq!((sold.test.subscription().await["tier"].clone(), sold.status(&id)), (Value::Null, json!("active")));
    // The subscription is paid there, and can be ended there now.
    let fetched = sold.fetch().await.json();
    assert_eq!((&fetched["running"], &fetched["subscriptions"][0]["status"]), (&json!([id]), &json!("ACTIVE")));
    assert_eq!(sold.test.subscription().await["tier"], "SCOUT");
    assert_eq!(sold.ended(&id).await["outcome"], "ended");
    assert_eq!(sold.status(&id), "canceled");
}

async fn a_provider_that_is_away_leaves_an_unknown_outcome(database_url: Option<String>) {
    let (mut sold, id) = Sold::with_scout(database_url).await;
    for (status, answered, code, result) in
        [(500, 503, "payment_provider_unavailable", "unknown"), (402, 502, "payment_provider_refused", "failed")]
    {
        let faults = PaymentFaults { status: Some(status), ..Default::default() };
        let (fetched, ended) = sold.with_faults(faults, async |sold| (sold.fetch().await, sold.end(&id).await)).await;
        fetched.expect_problem(answered, code);
        ended.expect_problem(answered, code);
        let entries = audited(&mut sold.ada, 4).await;
        let results: Vec<_> = entries.iter().map(|entry| entry["result"].as_str().unwrap()).collect();
        assert_eq!(results, [result, "begun", result, "begun"]);
        assert_eq!(sold.status(&id), "active");
    }
    assert_eq!(sold.ended(&id).await["outcome"], "ended");
}

#[actix_web::test]
async fn a_subscription_of_another_or_of_none_is_not_found() {
    let (mut sold, id) = Sold::with_scout(None).await;
    let mut bob = sold.test.app.signed_in(BOB).await;
    let bob = bob.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    let (user, total) = (sold.user.clone(), sold.ada.get("/admin/audit?limit=1").await.json()["total"].clone());
    for (user, id) in [(bob.as_str(), id.as_str()), ("nobody", &id), (&user, "sub_nothing")] {
        end(&mut sold.ada, user, id).await.expect_problem(404, "not_found");
    }
    sold.ada.post("/admin/users/nobody/subscriptions/fetch", None).await.expect_problem(404, "not_found");
    assert_eq!(sold.status(&id), "active");
    assert_eq!(sold.ada.get("/admin/audit?limit=1").await.json()["total"], total, "nothing was begun");
}

#[actix_web::test]
async fn without_a_provider_there_is_nothing_to_fetch_or_end() {
    let (app, mut ada) = start().await;
    let id = ada.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    ada.post(&format!("/admin/users/{id}/subscriptions/fetch"), None).await.expect_problem(503, "payments_disabled");
    end(&mut ada, &id, "sub_1").await.expect_problem(503, "payments_disabled");
    drop(app);
}

#[actix_web::test]
async fn subscriptions_are_fetched_and_ended_on_sqlite() {
    what_no_event_said_is_fetched(None).await;
    a_subscription_is_ended_once(None).await;
    what_the_provider_does_not_know_is_ended_here(None).await;
    what_was_ended_with_the_key_of_another_account_goes_on(None).await;
    a_provider_that_is_away_leaves_an_unknown_outcome(None).await;
}

#[actix_web::test]
async fn subscriptions_are_fetched_and_ended_on_postgres() {
    for act in 0..5 {
        let Some(postgres) = Postgres::create() else { return };
        let url = Some(postgres.url());
        match act {
            0 => what_no_event_said_is_fetched(url).await,
            1 => a_subscription_is_ended_once(url).await,
            2 => what_the_provider_does_not_know_is_ended_here(url).await,
            3 => what_was_ended_with_the_key_of_another_account_goes_on(url).await,
            _ => a_provider_that_is_away_leaves_an_unknown_outcome(url).await,
        }
    }
}

#[actix_web::test]
async fn the_log_says_at_last_what_came_of_an_ending_whose_answer_was_lost() {
    for acted in [false, true] {
        let (mut sold, id) = Sold::with_scout(None).await;
        sold.test.provider.set_faults(PaymentFaults { status: Some(500), ..Default::default() });
        sold.end(&id).await.expect_problem(503, "payment_provider_unavailable");
        assert_eq!(sold.last().await.1["result"], "unknown");
        sold.test.provider.set_faults(PaymentFaults { hold_events: true, ..Default::default() });
        if acted {
            sold.test.provider.change(&id, &SubscriptionChange::End);
        }
        sold.test.advance(chrono::Duration::minutes(2));
        let log = sold.ada.get_until("/admin/audit?limit=9", |log| log["entries"].as_array().unwrap().len() == 3).await;
        let outcome = &log["entries"][0];
        let expected = if acted { "done" } else { "failed" };
        assert_eq!((&outcome["result"], &outcome["payload"]["begun"]), (&json!(expected), &json!("1")));
        let status = if acted { "CANCELED" } else { "ACTIVE" };
        assert_eq!(sold.test.subscription().await["status"], status);
    }
}
