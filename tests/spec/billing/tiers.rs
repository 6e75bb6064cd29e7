//! Features that a tier unlocks, where they are enforced.

use companion::{
    config::Database,
    db::{engine::pool::Pool, money::beta_testers},
    domain::money::tier::{BetaEntry, Tier},
    simulator::payments::SubscriptionChange,
};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{
    app::TestApp,
    browser::{Answer, Browser},
    game::{ALICE, BOB},
    payments::PaymentTest,
};

async fn server(alice: &mut Browser) -> String {
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 1 });
    alice.post("/paired-servers", Some(&pairing)).await.json()["id"].as_str().unwrap().to_owned()
}

async fn invite(alice: &mut Browser, server: &str) -> Answer {
    alice.post(&format!("/paired-servers/{server}/guests"), Some(&json!({ "link": true }))).await
}

async fn watch(alice: &mut Browser, server: &str, shop: i32) -> Answer {
    let offer = json!({ "vendorId": format!("{shop}_2"), "itemId": "-151838493" });
    alice.post(&format!("/intel/{server}/shops"), Some(&offer)).await
}

#[actix_web::test]
async fn an_enforced_tier_limits_guests_and_watched_shops_and_a_higher_one_more() {
    let mut test = PaymentTest::start_with(&["--enforce-tiers=true"]).await;
    let server = server(&mut test.alice).await;
    let refused = invite(&mut test.alice, &server).await.expect_problem(409, "limit_reached");
    assert!(refused["detail"].as_str().unwrap().contains("Without a subscription"), "{refused}");
    watch(&mut test.alice, &server, 1).await.expect_problem(409, "limit_reached");

    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    assert_eq!(invite(&mut test.alice, &server).await.status, 201);
    let refused = invite(&mut test.alice, &server).await.expect_problem(409, "limit_reached");
    assert!(refused["detail"].as_str().unwrap().contains("The tier SCOUT has 1 guests"), "{refused}");
    for shop in 0..10 {
        assert_eq!(watch(&mut test.alice, &server, shop).await.status, 201, "{shop}");
    }
    watch(&mut test.alice, &server, 10).await.expect_problem(409, "limit_reached");

    test.provider.change(&id, &companion::simulator::payments::SubscriptionChange::Plan("price_operator".into()));
    let subscription = test.until(|subscription| subscription["tier"] == "OPERATOR").await;
    assert_eq!(subscription["used"], json!({ "guestsPerServer": 1, "watchedShops": 10 }));
    assert_eq!(subscription["entitlements"], json!({ "guestsPerServer": 3, "watchedShops": 50, "enforced": true }));
    assert_eq!(invite(&mut test.alice, &server).await.status, 201);
    assert_eq!(watch(&mut test.alice, &server, 10).await.status, 201);
}

#[actix_web::test]
async fn a_beta_tester_has_the_tier_until_it_expires() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("beta.db");
    let app = TestApp::start_on(format!("sqlite:{}", path.display()), &[]).await;
    let mut alice = app.signed_in(ALICE).await;
    let pool = Pool::open(&Database::Sqlite(path)).unwrap();
    let now = app.clock.now();
    let entry = BetaEntry { tier: Tier::Overlord, expires_at: Some(now + chrono::Duration::days(1)) };
    pool.write_blocking(|db| beta_testers::put(db, &ALICE.into(), &entry, None, now)).unwrap();
    let subscription = alice.get("/me").await.json()["subscription"].clone();
    assert_eq!((&subscription["tier"], &subscription["status"]), (&json!("OVERLORD"), &json!(null)));
    assert_eq!((&subscription["source"], &subscription["paymentSubscriptionId"]), (&json!("beta"), &json!(null)));
    assert_eq!(subscription["entitlements"]["watchedShops"], json!(200));
    let tiers = alice.get("/client-config").await.json()["tiers"].clone();
    let watched: Vec<_> = tiers.as_array().unwrap().iter().map(|tier| &tier["watchedShops"]).collect();
    assert_eq!(watched, [10, 50, 200], "{tiers}");
    assert_eq!(subscription["why"][1], "A beta tester has OVERLORD until 2026-11-22T12:00:00.000Z.");
    let mut bob = app.signed_in(BOB).await;
    assert_eq!(bob.get("/me").await.json()["subscription"]["tier"], json!(null));
    app.clock.advance(chrono::Duration::days(1));
    let subscription = alice.get("/me").await.json()["subscription"].clone();
    assert_eq!(subscription["tier"], json!(null));
    assert_eq!(subscription["why"][1], "The beta test of OVERLORD is over.");
}

#[actix_web::test]
async fn an_upgrade_that_is_not_paid_leaves_the_tier_that_was() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    for day in [0, 6, 8] {
        test.advance(chrono::Duration::days(day) - (test.app.clock.now() - test.started()));
        test.provider.change(&id, &SubscriptionChange::FailUpgrade("price_overlord".into()));
        test.provider.delivered().await;
        let subscription = test.until(|subscription| subscription["status"] == "PAST_DUE").await;
        let tier = if day < 7 { json!("SCOUT") } else { json!(null) };
        assert_eq!(subscription["tier"], tier, "on day {day}: {subscription}");
    }
    test.provider.change(&id, &SubscriptionChange::PayAgain);
    test.until(|subscription| subscription["tier"] == "OVERLORD").await;
}

#[actix_web::test]
async fn what_is_first_seen_past_due_gives_what_was_paid() {
    for (trial, changes, tier) in [
        ("0", vec![SubscriptionChange::FailPayment], json!("SCOUT")),
        ("0", vec![SubscriptionChange::FailUpgrade("price_overlord".into())], json!("SCOUT")),
        // Nothing was ever paid.
        ("7", vec![SubscriptionChange::FailPayment], json!(null)),
        ("7", vec![SubscriptionChange::FailUpgrade("price_overlord".into())], json!(null)),
    ] {
        let mut test = PaymentTest::start_with(&[format!("--payment-trial-days={trial}").as_str()]).await;
        test.hold_events();
        let id = test.subscribe("SCOUT").await;
        for change in &changes {
            test.provider.change(&id, change);
        }
        let last = test.provider.take_held().pop().unwrap();
        assert_eq!(test.outcome(&last).await, "applied");
        let shown = test.subscription().await;
        assert_eq!((&shown["status"], &shown["tier"]), (&json!("PAST_DUE"), &tier), "{trial} {changes:?}: {shown}");
    }
}

#[actix_web::test]
async fn a_subscription_of_which_nothing_is_heard_any_longer_gives_no_tier() {
    let mut test = PaymentTest::start().await;
    test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    let end = test.started() + chrono::Duration::days(30);
    for (days, tier) in [(2, json!("SCOUT")), (3, json!(null))] {
        test.advance(end + chrono::Duration::days(days) - test.app.clock.now());
        test.alice = test.app.signed_in(ALICE).await;
        let subscription = test.subscription().await;
        assert_eq!((&subscription["tier"], &subscription["status"]), (&tier, &json!("ACTIVE")), "{days} days later");
    }
}

#[actix_web::test]
async fn what_runs_is_shown_beside_what_has_ended() {
    let mut test = PaymentTest::start().await;
    let old = test.subscribe("OVERLORD").await;
    test.until(|subscription| subscription["status"] == "ACTIVE").await;
    test.provider.change(&old, &SubscriptionChange::EndWithPeriod);
    let ended = test.until(|subscription| subscription["status"] == "CANCELED").await;
    assert_eq!(ended["tier"], "OVERLORD");
    test.advance(chrono::Duration::days(1));
    test.subscribe("SCOUT").await;
    let both = test.until(|subscription| subscription["status"] == "ACTIVE").await;
    assert_eq!(both["tier"], "OVERLORD", "it is paid until its period ends");
    assert_eq!(both["currentPeriodEnd"], "2026-12-22T12:00:00.000Z");
    assert!(both["why"][1].as_str().unwrap().contains("OVERLORD was cancelled; its tier stays until"), "{both}");
}
