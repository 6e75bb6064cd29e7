//! What a tier unlocks, where it is enforced.

use companion::{
    config::Database,
    db::{beta_testers, pool::Pool},
    domain::tier::{BetaEntry, Tier},
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

async fn watch(alice: &mut Browser, server: &str, item: i32) -> Answer {
    let offer = json!({ "vendorId": "1_2", "itemId": item });
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
    for item in 0..10 {
        assert_eq!(watch(&mut test.alice, &server, item).await.status, 201, "{item}");
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
    assert_eq!(subscription["entitlements"]["watchedShops"], json!(null));
    assert_eq!(subscription["why"][1], "A beta tester has OVERLORD until 2026-11-22T12:00:00.000Z.");
    let mut bob = app.signed_in(BOB).await;
    assert_eq!(bob.get("/me").await.json()["subscription"]["tier"], json!(null));
    app.clock.advance(chrono::Duration::days(1));
    let subscription = alice.get("/me").await.json()["subscription"].clone();
    assert_eq!(subscription["tier"], json!(null));
    assert_eq!(subscription["why"][1], "The beta test of OVERLORD is over.");
}
