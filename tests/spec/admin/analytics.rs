//! Analytics of the service's use.

use chrono::Duration;
use reqwest::{Method, header::ORIGIN};
use serde_json::{Value, json};

use super::start;
use crate::harness::{
    app::{ADA, ADMINS, FRONTEND},
    game::{ALICE, BOB},
    payments::PaymentTest,
};

fn count<'a>(counts: &'a Value, kind: &str) -> &'a Value {
    let found = counts.as_array().unwrap().iter().find(|count| count["type"] == kind);
    found.map_or(&Value::Null, |count| &count["count"])
}

#[actix_web::test]
async fn members_pairings_and_what_users_did_are_counted_by_day() {
    let (app, mut ada) = start().await;
    let mut alice = app.signed_in(ALICE).await;
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 1 });
    let server = alice.post("/paired-servers", Some(&pairing)).await.json()["id"].as_str().unwrap().to_owned();
    let note = json!({ "x": 1, "y": 1, "category": "stash" });
    for key in ["one", "two", "three", "three"] {
        let request = alice.request(Method::POST, &format!("/intel/{server}/map-notes")).header(ORIGIN, FRONTEND);
        let answer = alice.send(request.header("idempotency-key", key).json(&note)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    alice.post(&format!("/intel/{server}/map-notes"), Some(&json!({}))).await.expect_problem(400, "invalid_request");

    let mut declining = app.browser();
    let login = declining.get("/auth/platform").await;
    assert_eq!(declining.get(&app.provider.answer(login.location(), "cancel").path()).await.status, 302);

    let analytics = ada.get("/admin/analytics").await.json();
    assert_eq!(analytics["generatedAt"], "2026-11-21T12:00:00.000Z");
    assert_eq!(analytics["members"], json!({ "total": 2, "dau": 2, "wau": 2, "mau": 2 }));
    assert_eq!(analytics["pairings7d"], 1);
    let activity = &analytics["activityByType7d"];
    assert_eq!(activity[0], json!({ "type": "map_note", "count": 3 }), "most first, and none refused or sent again");
    let counts = ["sign_in", "server_paired"].map(|kind| count(activity, kind));
    assert_eq!(counts, [&json!(2), &json!(1)], "who declines has not signed in");
    let days = analytics["days"].as_array().unwrap();
    assert_eq!(days.len(), 30);
    assert_eq!(days[29], json!({ "date": "2026-11-21", "dau": 2, "newMembers": 2, "raids": 0 }));
    assert_eq!(days[28], json!({ "date": "2026-11-20", "dau": 0, "newMembers": 0, "raids": 0 }));

    app.signed_in(BOB).await;
    assert_eq!(ada.get("/admin/analytics").await.json(), analytics, "it is kept for a minute");
    app.clock.advance(Duration::days(2));
    assert_eq!(alice.get("/me").await.status, 200);
    let analytics = ada.get("/admin/analytics").await.json();
    assert_eq!(analytics["members"], json!({ "total": 3, "dau": 2, "wau": 3, "mau": 3 }), "Ada and Alice came back");
    let days = analytics["days"].as_array().unwrap();
    assert_eq!(days[27], json!({ "date": "2026-11-21", "dau": 3, "newMembers": 3, "raids": 0 }));
    assert_eq!((&days[28]["dau"], &days[29]["dau"]), (&json!(0), &json!(2)));
    assert_eq!(count(&analytics["activityByType7d"], "map_note"), 3);
    app.clock.advance(Duration::days(7));
    let analytics = ada.get("/admin/analytics").await.json();
    assert_eq!((&analytics["activityByType7d"], &analytics["pairings7d"]), (&json!([]), &json!(0)));
}

#[actix_web::test]
async fn subscriptions_are_counted_by_status() {
    let mut test = PaymentTest::start_with(&[ADMINS]).await;
    let mut ada = test.app.signed_in(ADA).await;
    test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    let analytics = ada.get("/admin/analytics").await.json();
    assert_eq!(analytics["subscriptions"], json!({ "active": 1, "trialing": 0, "pastDue": 0 }));
    let overview = ada.get("/admin/users/overview").await.json();
    assert_eq!((&overview["totals"]["paid"], &overview["totals"]["beta"]), (&json!(1), &json!(0)));
}
