//! Subscriptions at the provider of users who are gone, and those that it no longer knows.

use companion::simulator::payments::{PaymentFaults, SubscriptionChange};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    browser::{Answer, Browser},
    database::Postgres,
    game::ALICE,
    payments::PaymentTest,
};

async fn erase(browser: &mut Browser) -> Answer {
    let request = browser.request(Method::DELETE, "/me").json(&json!({ "confirm": ALICE }));
    browser.send(request).await
}

fn status(test: &PaymentTest, id: &str) -> Value {
    test.provider.subscription(id).unwrap()["status"].clone()
}

/// Until the provider has ended it.
async fn until_ended(test: &PaymentTest, id: &str) {
    while status(test, id) != "canceled" {
        tokio::task::yield_now().await;
    }
}

async fn cancelled(test: &mut PaymentTest) -> String {
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["status"] == "ACTIVE").await;
    test.provider.change(&id, &SubscriptionChange::Cancel);
    test.until(|subscription| subscription["cancelAtPeriodEnd"] == true).await;
    id
}

#[actix_web::test]
async fn an_erasure_ends_what_could_renew() {
    let mut test = PaymentTest::start().await;
    let id = cancelled(&mut test).await;
    let erased = erase(&mut test.alice).await;
    assert_eq!((erased.status, erased.json()), (200, json!({ "ok": true, "payments": "ended" })));
    assert_eq!(status(&test, &id), "canceled");
    test.provider.change(&id, &SubscriptionChange::Keep);
    assert_eq!(status(&test, &id), "canceled", "nothing renews it");

    test.alice = test.app.signed_in(ALICE).await;
    let erased = erase(&mut test.alice).await;
    assert_eq!(erased.json(), json!({ "ok": true, "payments": "none" }));
}

async fn an_erasure_while_the_provider_is_away(database_url: Option<String>) {
    let mut test = PaymentTest::start_on(database_url, &[]).await;
    let id = cancelled(&mut test).await;
    test.provider.set_faults(PaymentFaults { status: Some(500), hold_events: true, ..Default::default() });
    let erased = erase(&mut test.alice).await;
    assert_eq!((erased.status, erased.json()), (200, json!({ "ok": true, "payments": "ending" })));
    // Renewed in the portal that is still open.
    test.provider.change(&id, &SubscriptionChange::Keep);
    assert_eq!(status(&test, &id), "active");
    test.provider.set_faults(PaymentFaults::default());
    test.advance(chrono::Duration::minutes(1));
    until_ended(&test, &id).await;
}

#[actix_web::test]
async fn what_could_not_be_ended_with_the_account_is_ended_later() {
    an_erasure_while_the_provider_is_away(None).await;
}

#[actix_web::test]
async fn what_could_not_be_ended_with_the_account_is_ended_later_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    an_erasure_while_the_provider_is_away(Some(database.url())).await;
}

#[actix_web::test]
async fn what_begins_for_a_user_who_is_gone_is_ended_when_its_event_comes() {
    let mut test = PaymentTest::start().await;
    let id = cancelled(&mut test).await;
    let customer = test.provider.subscription(&id).unwrap()["customer"].as_str().unwrap().to_owned();
    assert_eq!(erase(&mut test.alice).await.status, 200);
    let late = test.provider.subscribe(&customer, None, "price_scout");
    let foreign = test.provider.subscribe(&customer, None, "price_of_another_product");
    until_ended(&test, &late).await;
    test.provider.delivered().await;
    assert_eq!(status(&test, &foreign), "active", "it was not sold here");
}

#[actix_web::test]
async fn what_the_provider_has_forgotten_stops_neither_a_checkout_nor_an_erasure() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["status"] == "ACTIVE").await;
    test.provider.forget_subscription(&id);
    test.checkout("OPERATOR").await;
    assert_eq!(erase(&mut test.alice).await.status, 200);
}

#[actix_web::test]
async fn a_key_of_another_account_opens_no_checkout_and_erases_no_paying_user() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["status"] == "ACTIVE").await;
    test.provider.set_faults(PaymentFaults { other_account: true, ..Default::default() });
    let body = json!({ "tier": "OPERATOR" });
    test.alice.post("/billing/checkout", Some(&body)).await.expect_problem(503, "payment_provider_unavailable");
    erase(&mut test.alice).await.expect_problem(409, "subscription_runs");
    test.provider.set_faults(PaymentFaults::default());
    assert_eq!(test.alice.post("/billing/portal", None).await.status, 200, "the customer is as it was");
    assert_eq!(status(&test, &id), "active");
}

#[actix_web::test]
async fn a_checkout_asks_the_provider_what_runs() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["status"] == "ACTIVE").await;
    let customer = test.provider.subscription(&id).unwrap()["customer"].as_str().unwrap().to_owned();
    test.provider.change(&id, &SubscriptionChange::End);
    test.until(|subscription| subscription["status"] == "CANCELED").await;
    test.hold_events();
    test.provider.subscribe(&customer, None, "price_operator");
    let body = json!({ "tier": "OPERATOR" });
    test.alice.post("/billing/checkout", Some(&body)).await.expect_problem(409, "already_subscribed");
    assert_eq!(test.subscription().await["tier"], "OPERATOR", "it is known now");
}

#[actix_web::test]
async fn a_key_that_comes_again_gives_no_page_that_is_closed_or_paid() {
    let mut test = PaymentTest::start().await;
    let open = async |test: &mut PaymentTest, key: &str| {
        let request = test.alice.request(Method::POST, "/billing/checkout").header("idempotency-key", key);
        let answer = test.alice.send(request.json(&json!({ "tier": "SCOUT" }))).await;
        let session = (answer.status == 200)
            .then(|| answer.json()["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned());
        (answer, session)
    };
    let (_, first) = open(&mut test, "one").await;
    assert_eq!(open(&mut test, "one").await.1, first, "it is open");
    let (_, second) = open(&mut test, "two").await;
    open(&mut test, "one").await.0.expect_problem(409, "checkout_closed");
    assert_eq!(open(&mut test, "two").await.1, second);
    test.hold_events();
    let id = test.provider.pay(&second.unwrap()).unwrap();
    open(&mut test, "two").await.0.expect_problem(409, "already_subscribed");
    test.provider.change(&id, &SubscriptionChange::End);
    for event in test.provider.take_held() {
        test.outcome(&event).await;
    }
    open(&mut test, "two").await.0.expect_problem(409, "checkout_closed");
}
