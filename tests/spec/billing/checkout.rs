//! From no subscription to a tier and back, by the provider's pages.

use companion::simulator::payments::{PaymentFaults, SubscriptionChange};
use futures_util::future::join_all;
use reqwest::header::LOCATION;
use serde_json::{Value, json};

use crate::harness::{
    app::{FRONTEND, TestApp},
    binary,
    database::Postgres,
    game::ALICE,
    payments::PaymentTest,
};

/// Presses a button of a page of the provider; where it leads.
async fn press(url: &str, fields: &[(&str, &str)]) -> String {
    let answer = binary::http().post(url).form(fields).send().await.unwrap();
    assert_eq!(answer.status(), 303, "{url}");
    answer.headers()[LOCATION].to_str().unwrap().to_owned()
}

async fn page(url: &str) -> String {
    let answer = binary::http().get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{url}");
    answer.text().await.unwrap()
}

#[actix_web::test]
async fn without_a_key_payments_are_off_and_everything_else_works() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let checkout = alice.post("/billing/checkout", Some(&json!({ "tier": "SCOUT" }))).await;
    checkout.expect_problem(503, "payments_disabled");
    alice.post("/billing/portal", None).await.expect_problem(503, "payments_disabled");
    app.browser().post("/billing/webhook", Some(&json!({}))).await.expect_problem(503, "payments_disabled");
    let me = alice.get("/me").await.json();
    let subscription = &me["subscription"];
    assert_eq!((&subscription["tier"], &subscription["status"]), (&Value::Null, &Value::Null));
    assert_eq!(subscription["why"], json!(["There is no subscription."]));
    assert_eq!(subscription["entitlements"], json!({ "guestsPerServer": 0, "watchedShops": 0, "enforced": false }));
}

#[actix_web::test]
async fn one_click_pays_and_the_portal_changes_and_ends_it() {
    let mut test = PaymentTest::start().await;
    let session = test.checkout("OPERATOR").await;
    let url = format!("{}/checkout/{session}", test.provider.url());
    assert!(page(&url).await.contains("Pay $7.00 a month"));
    assert_eq!(press(&url, &[]).await, format!("{FRONTEND}/?billing=done&session={session}"));
    let subscription = test.until(|subscription| subscription["status"] == "ACTIVE").await;
    assert_eq!(subscription["tier"], "OPERATOR");
    assert_eq!(subscription["currentPeriodEnd"], "2026-12-21T12:00:00.000Z");
    assert_eq!(subscription["cancelAtPeriodEnd"], false);
    let why = ["The subscription to OPERATOR is active and renews at 2026-12-21T12:00:00.000Z."];
    assert_eq!(subscription["why"], json!(why));
    let entitlements = json!({ "guestsPerServer": 3, "watchedShops": 50, "enforced": false });
    assert_eq!(subscription["entitlements"], entitlements);
    assert_eq!(subscription["used"], json!({ "guestsPerServer": 0, "watchedShops": 0 }));

    let again = test.alice.post("/billing/checkout", Some(&json!({ "tier": "OPERATOR" }))).await;
    again.expect_problem(409, "already_subscribed");
    let answer = test.alice.post("/billing/portal", None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let portal = answer.json()["url"].as_str().unwrap().to_owned();
    assert!(page(&portal).await.contains("Change to OVERLORD"));
    let id = test.provider.events()[0]["data"]["object"]["id"].as_str().unwrap().to_owned();
    for (action, plan, expected) in [
        ("plan", "price_overlord", json!(["OVERLORD", "ACTIVE", false])),
        ("cancel", "", json!(["OVERLORD", "ACTIVE", true])),
        ("keep", "", json!(["OVERLORD", "ACTIVE", false])),
        ("fail", "", json!(["OVERLORD", "PAST_DUE", false])),
        ("pay", "", json!(["OVERLORD", "ACTIVE", false])),
        ("fail", "", json!(["OVERLORD", "PAST_DUE", false])),
        // Unpaid ones are not left to the end of their period.
        ("end", "", json!([null, "CANCELED", false])),
    ] {
        press(&portal, &[("subscription", &id), ("action", action), ("plan", plan)]).await;
        let shown = |one: &Value| json!([one["tier"], one["status"], one["cancelAtPeriodEnd"]]);
        test.until(|subscription| shown(subscription) == expected).await;
    }
    assert!(page(&portal).await.contains("canceled"));
}

#[actix_web::test]
async fn a_stranger_to_a_portal_changes_nothing() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    let theirs = test.provider.subscribe("cus_other", None, "price_scout");
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    let portal = test.alice.post("/billing/portal", None).await.json()["url"].as_str().unwrap().to_owned();
    let fields = [("subscription", theirs.as_str()), ("action", "end")];
    let refused = binary::http().post(&portal).form(&fields).send().await.unwrap();
    assert_eq!(refused.status(), 404);
    let status = |id: &str| test.provider.subscription(id).unwrap()["status"].clone();
    assert_eq!([status(&id), status(&theirs)], ["active", "active"]);
}

#[actix_web::test]
async fn bad_input_is_refused_by_field() {
    let mut test = PaymentTest::start().await;
    for tier in ["scout", "", "FREE", "SCOUT "] {
        let refused = test.alice.post("/billing/checkout", Some(&json!({ "tier": tier }))).await;
        assert_eq!(refused.expect_problem(400, "invalid_request")["errors"][0]["path"], "tier", "{tier}");
    }
    let refused = test.alice.post("/billing/checkout", Some(&json!({}))).await;
    assert_eq!(refused.expect_problem(400, "invalid_request")["errors"][0]["path"], "tier");
    let refused = test.alice.post("/billing/checkout", Some(&json!({ "tier": 1 }))).await;
    refused.expect_problem(400, "invalid_request");
    test.alice.post("/billing/portal", None).await.expect_problem(409, "no_customer");
    let mut visitor = test.app.browser();
    let body = json!({ "tier": "SCOUT" });
    for (path, body) in [("/billing/checkout", Some(&body)), ("/billing/portal", None)] {
        visitor.post(path, body).await.expect_problem(401, "unauthenticated");
    }
}

#[actix_web::test]
async fn a_provider_that_fails_differs_from_one_that_refuses_and_nothing_is_lost() {
    let mut test = PaymentTest::start().await;
    let body = json!({ "tier": "SCOUT" });
    for (status, expected, code) in [
        (500, 503, "payment_provider_unavailable"),
        (429, 503, "payment_provider_unavailable"),
        (302, 503, "payment_provider_unavailable"),
        (401, 502, "payment_provider_refused"),
        (402, 502, "payment_provider_refused"),
    ] {
        test.provider.set_faults(PaymentFaults { status: Some(status), ..Default::default() });
        let problem = test.alice.post("/billing/checkout", Some(&body)).await;
        let detail = problem.expect_problem(expected, code)["detail"].as_str().unwrap().to_owned();
        assert!(!detail.contains("simulated"), "{detail}");
        assert_eq!(problem.header("retry-after").is_some(), expected == 503);
    }
    test.provider.set_faults(PaymentFaults::default());
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;

    // The service is away while the subscription changes, and its events wait.
    test.provider.set_faults(PaymentFaults { status: Some(503), ..Default::default() });
    test.provider.change(&id, &SubscriptionChange::Plan("price_overlord".into()));
    test.provider.delivered().await;
    test.alice.post("/billing/portal", None).await.expect_problem(503, "payment_provider_unavailable");
    assert_eq!(test.subscription().await["tier"], "SCOUT");
    test.provider.set_faults(PaymentFaults::default());
    test.advance(chrono::Duration::hours(1));
    test.until(|subscription| subscription["tier"] == "OVERLORD").await;
}

#[actix_web::test]
async fn only_the_last_checkout_can_be_paid() {
    let mut test = PaymentTest::start().await;
    let first = test.checkout("SCOUT").await;
    let second = test.checkout("OPERATOR").await;
    assert_eq!(test.provider.pay(&first), None);
    assert!(page(&format!("{}/checkout/{first}", test.provider.url())).await.contains("closed"));

    // Many at once: which is the last one is not known, but that there is one.
    let opened = join_all((0..6).map(|_| {
        let mut alice = test.alice.clone();
        async move { alice.post("/billing/checkout", Some(&json!({ "tier": "SCOUT" }))).await }
    }));
    let answers = opened.await;
    assert!(
        answers.iter().any(|answer| answer.status == 200),
        "{:?}",
        answers.iter().map(|a| a.status).collect::<Vec<_>>()
    );
    assert_eq!((test.provider.open_checkouts(), test.provider.pay(&second)), (1, None));

    // One that cannot be closed now is closed later, and no other is opened meanwhile.
    test.provider.set_faults(PaymentFaults { status: Some(500), ..Default::default() });
    let body = json!({ "tier": "SCOUT" });
    let refused = test.alice.post("/billing/checkout", Some(&body)).await;
    refused.expect_problem(503, "payment_provider_unavailable");
    test.provider.set_faults(PaymentFaults::default());
    assert_eq!(test.provider.open_checkouts(), 1);
    test.subscribe("OVERLORD").await;
    assert_eq!(test.provider.open_checkouts(), 0);
    test.until(|subscription| subscription["tier"] == "OVERLORD").await;
}

#[actix_web::test]
async fn who_has_paid_is_not_sent_to_another_checkout_before_the_event_comes() {
    let mut test = PaymentTest::start().await;
    test.hold_events();
    let id = test.subscribe("SCOUT").await;
    assert_eq!(test.subscription().await["tier"], Value::Null);
    let body = json!({ "tier": "SCOUT" });
    test.alice.post("/billing/checkout", Some(&body)).await.expect_problem(409, "already_subscribed");
    assert_eq!(test.subscription().await["tier"], "SCOUT", "it is known now");
    assert_eq!(test.provider.open_checkouts(), 0);
    // Nor is one whose subscription is over kept from it.
    test.provider.change(&id, &SubscriptionChange::End);
    let events = test.provider.events();
    for event in &events {
        test.outcome(event).await;
    }
    test.subscribe("OPERATOR").await;
}

#[actix_web::test]
async fn a_customer_that_the_provider_forgot_becomes_another_one() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    test.provider.change(&id, &SubscriptionChange::End);
    test.until(|subscription| subscription["status"] == "CANCELED").await;
    let customer = test.provider.subscription(&id).unwrap()["customer"].as_str().unwrap().to_owned();
    test.provider.forget_customer(&customer);
    test.alice.post("/billing/portal", None).await.expect_problem(409, "no_customer");
    let other = test.subscribe("OPERATOR").await;
    assert_ne!(test.provider.subscription(&other).unwrap()["customer"], customer.as_str());
    assert_eq!(test.alice.post("/billing/portal", None).await.status, 200);
    test.until(|subscription| subscription["tier"] == "OPERATOR").await;
}

#[actix_web::test]
async fn a_first_payment_that_may_still_be_done_stops_another_checkout_until_it_cannot() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    test.provider.change(&id, &SubscriptionChange::FirstPaymentOpen);
    let open = test.until(|subscription| subscription["status"] == "INCOMPLETE").await;
    assert_eq!(open["tier"], Value::Null);
    let body = json!({ "tier": "SCOUT" });
    test.alice.post("/billing/checkout", Some(&body)).await.expect_problem(409, "already_subscribed");
    test.provider.change(&id, &SubscriptionChange::FirstPaymentExpired);
    let expired = test.until(|subscription| subscription["status"] == "CANCELED").await;
    assert_eq!(expired["tier"], Value::Null);
    test.subscribe("OPERATOR").await;
    test.until(|subscription| subscription["tier"] == "OPERATOR").await;
}

#[actix_web::test]
async fn a_checkout_is_set_up_as_who_sells_wants_it() {
    let settings = ["--payment-automatic-tax=true", "--payment-promotion-codes=true", "--payment-trial-days=14"];
    let mut test = PaymentTest::start_with(&settings).await;
    let session = test.checkout("SCOUT").await;
    let asked = test.provider.asked_of_checkout(&session).unwrap();
    for (field, value) in [
        ("automatic_tax[enabled]", "true"),
        ("billing_address_collection", "required"),
        ("tax_id_collection[enabled]", "true"),
        ("customer_update[address]", "auto"),
        ("allow_promotion_codes", "true"),
        ("subscription_data[trial_period_days]", "14"),
    ] {
        assert_eq!(asked[field], value, "{field}");
    }
    let name = test.alice.get("/me").await.json()["displayName"].as_str().unwrap().to_owned();
    assert_eq!(test.provider.customer_name(asked["customer"].as_str().unwrap()), Some(name));
    let id = test.provider.pay(&session).unwrap();
    let subscription = test.until(|subscription| subscription["status"] == "TRIALING").await;
    assert_eq!(
        (&subscription["tier"], &subscription["currentPeriodEnd"]),
        (&json!("SCOUT"), &json!("2026-12-05T12:00:00.000Z"))
    );
    // The trial is for the first one.
    test.provider.change(&id, &companion::simulator::payments::SubscriptionChange::End);
    test.until(|subscription| subscription["status"] == "CANCELED").await;
    let second = test.checkout("SCOUT").await;
    let asked = test.provider.asked_of_checkout(&second).unwrap();
    assert_eq!(asked["subscription_data[trial_period_days]"], Value::Null);

    let mut plain = PaymentTest::start().await;
    let session = plain.checkout("SCOUT").await;
    let asked = plain.provider.asked_of_checkout(&session).unwrap();
    assert!(["automatic_tax[enabled]", "allow_promotion_codes"].iter().all(|field| asked[*field].is_null()), "{asked}");
}

async fn erase(test: &mut PaymentTest) -> Value {
    let request = test.alice.request(reqwest::Method::DELETE, "/me").json(&json!({ "confirm": ALICE }));
    let erased = test.alice.send(request).await;
    assert_eq!(erased.status, 200, "{}", erased.text());
    test.alice = test.app.signed_in(ALICE).await;
    erased.json()
}

async fn offers_trial(test: &mut PaymentTest) -> bool {
    let session = test.checkout("SCOUT").await;
    !test.provider.asked_of_checkout(&session).unwrap()["subscription_data[trial_period_days]"].is_null()
}

async fn one_trial_for_an_account(database_url: Option<String>) {
    let mut test = PaymentTest::start_on(database_url, &["--payment-trial-days=14"]).await;
    assert!(offers_trial(&mut test).await);
    // The checkout was not paid, and is closed.
    assert_eq!(erase(&mut test).await["payments"], "ended");
    assert!(offers_trial(&mut test).await);
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["status"] == "TRIALING").await;
    test.provider.change(&id, &SubscriptionChange::Cancel);
    test.until(|subscription| subscription["cancelAtPeriodEnd"] == true).await;
    assert_eq!(erase(&mut test).await["payments"], "ended");
    assert!(!offers_trial(&mut test).await, "the account had one");
    erase(&mut test).await;
    assert!(!offers_trial(&mut test).await, "nor after another erasure");
}

#[actix_web::test]
async fn an_account_has_one_trial_as_whichever_user() {
    one_trial_for_an_account(None).await;
}

#[actix_web::test]
async fn an_account_has_one_trial_as_whichever_user_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    one_trial_for_an_account(Some(database.url())).await;
}

#[actix_web::test]
async fn a_checkout_of_which_the_provider_says_nothing_may_have_had_the_trial() {
    let mut test = PaymentTest::start_with(&["--payment-trial-days=14"]).await;
    test.hold_events();
    test.checkout("SCOUT").await;
    test.provider.set_faults(PaymentFaults { status: Some(500), hold_events: true, ..Default::default() });
    assert_eq!(erase(&mut test).await["payments"], "ending");
    test.hold_events();
    assert!(!offers_trial(&mut test).await);
}

#[actix_web::test]
async fn a_subscriber_to_another_tier_gets_the_page_of_that_change() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    let wanted = json!({ "tier": "OVERLORD" });
    let answer = test.alice.post("/billing/checkout", Some(&wanted)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let url = answer.json()["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with(&format!("{}/portal/", test.provider.url())), "{url}");
    let shown = page(&url).await;
    assert!(shown.contains("Change to OVERLORD") && !shown.contains("OPERATOR") && !shown.contains("End"), "{shown}");
    press(&url, &[("subscription", &id), ("action", "plan"), ("plan", "price_overlord")]).await;
    test.until(|subscription| subscription["tier"] == "OVERLORD").await;
    assert_eq!(test.provider.open_checkouts(), 0);
    test.alice.post("/billing/checkout", Some(&wanted)).await.expect_problem(409, "already_subscribed");

    // Where the provider refuses the change, the subscriber is sent to the portal, as before.
    let wanted = json!({ "tier": "SCOUT" });
    for change in [SubscriptionChange::Cancel, SubscriptionChange::FailPayment] {
        test.provider.change(&id, &change);
        test.alice.post("/billing/checkout", Some(&wanted)).await.expect_problem(409, "already_subscribed");
    }
    test.provider.set_faults(PaymentFaults { status: Some(500), ..Default::default() });
    let refused = test.alice.post("/billing/checkout", Some(&wanted)).await;
    refused.expect_problem(503, "payment_provider_unavailable");
}
