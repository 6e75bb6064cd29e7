//! Tiers by the year, beside those by the month.

use companion::simulator::payments::SubscriptionChange;
use reqwest::header::LOCATION;
use serde_json::{Value, json};

use crate::harness::{
    app::{ADA, ADMINS},
    binary,
    browser::Answer,
    payments::PaymentTest,
};

async fn ask(test: &mut PaymentTest, tier: &str, interval: &str) -> Answer {
    test.alice.post("/billing/checkout", Some(&json!({ "tier": tier, "interval": interval }))).await
}

async fn page(url: &str) -> String {
    binary::http().get(url).send().await.unwrap().text().await.unwrap()
}

#[actix_web::test]
async fn a_tier_is_bought_by_the_year_and_every_shape_says_so() {
    let mut test = PaymentTest::start_with(&[ADMINS]).await;
    let opened = ask(&mut test, "OPERATOR", "year").await;
    assert_eq!(opened.status, 200, "{}", opened.text());
    let url = opened.json()["url"].as_str().unwrap().to_owned();
    assert!(page(&url).await.contains("Pay $70.00 a year"));
    let session = url.rsplit('/').next().unwrap().to_owned();
    assert_eq!(test.provider.asked_of_checkout(&session).unwrap()["metadata[interval]"], "year");
    let paid = binary::http().post(&url).send().await.unwrap();
    assert!(paid.headers()[LOCATION].to_str().unwrap().contains("billing=done"));
    let subscription = test.until(|subscription| subscription["status"] == "ACTIVE").await;
    assert_eq!((&subscription["tier"], &subscription["interval"]), (&json!("OPERATOR"), &json!("year")));
    assert_eq!(subscription["currentPeriodEnd"], "2027-11-21T12:00:00.000Z");
    let why = "The yearly subscription to OPERATOR is active and renews at 2027-11-21T12:00:00.000Z.";
    assert_eq!(subscription["why"], json!([why]));

    let me = test.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    let mut ada = test.app.signed_in(ADA).await;
    let detail = ada.get(&format!("/admin/users/{me}")).await.json();
    assert_eq!(detail["user"]["subscription"]["interval"], "year", "{detail}");
    let fetched = ada.post(&format!("/admin/users/{me}/subscriptions/fetch"), None).await.json();
    assert_eq!(fetched["subscriptions"][0]["interval"], "year", "{fetched}");
    let export = test.alice.get("/me/export").await.json();
    assert_eq!(export["subscriptions"][0]["billingInterval"], "year");
}

#[actix_web::test]
async fn prices_are_shown_for_a_month_and_for_a_year() {
    let mut test = PaymentTest::start_with(&["--payment-price-overlord-yearly="]).await;
    let tiers = test.alice.get("/client-config").await.json()["tiers"].clone();
    let amounts = |field: &str| -> Vec<Value> {
        tiers.as_array().unwrap().iter().map(|tier| tier[field]["amount"].clone()).collect()
    };
    assert_eq!(amounts("price"), [300, 700, 1_500]);
    assert_eq!(amounts("yearlyPrice"), [json!(3_000), json!(7_000), Value::Null]);

    let problem = ask(&mut test, "OVERLORD", "year").await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["path"], "interval", "{problem}");
    for interval in [json!("week"), json!(1), json!("YEAR"), json!("")] {
        let body = json!({ "tier": "SCOUT", "interval": interval });
        let refused = test.alice.post("/billing/checkout", Some(&body)).await;
        let problem = refused.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], "interval", "{problem}");
    }
}

#[actix_web::test]
async fn a_subscriber_to_another_interval_gets_the_page_of_that_change() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    let monthly = test.until(|subscription| subscription["tier"] == "SCOUT").await;
    assert_eq!(monthly["interval"], "month");
    let refused = ask(&mut test, "SCOUT", "month").await;
    refused.expect_problem(409, "already_subscribed");
    let url = ask(&mut test, "SCOUT", "year").await.json()["url"].as_str().unwrap().to_owned();
    assert!(page(&url).await.contains("Change to SCOUT ($30.00 a year)"));
    let fields = [("subscription", id.as_str()), ("action", "plan"), ("plan", "price_scout_yearly")];
    assert_eq!(binary::http().post(&url).form(&fields).send().await.unwrap().status(), 303);
    let yearly = test.until(|subscription| subscription["interval"] == "year").await;
    assert_eq!((&yearly["tier"], &yearly["currentPeriodEnd"]), (&json!("SCOUT"), &json!("2027-11-21T12:00:00.000Z")));
    ask(&mut test, "SCOUT", "year").await.expect_problem(409, "already_subscribed");
    // An unpaid change leaves what was.
    test.provider.change(&id, &SubscriptionChange::FailUpgrade("price_overlord_yearly".into()));
    let failed = test.until(|subscription| subscription["status"] == "PAST_DUE").await;
    assert_eq!((&failed["tier"], &failed["interval"]), (&json!("SCOUT"), &json!("year")));
}
