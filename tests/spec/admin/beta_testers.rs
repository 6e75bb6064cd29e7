//! Tiers for nothing.

use chrono::Duration;
use serde_json::{Value, json};

use super::{audited, done, start};
use crate::harness::game::{ALICE, BOB};

#[actix_web::test]
async fn a_tester_has_the_tier_until_it_expires_or_is_taken_back() {
    let (app, mut ada) = start().await;
    let mut alice = app.signed_in(ALICE).await;
    let first = ada.post("/admin/beta-testers", Some(&json!({ "platformId": ALICE, "tier": "SCOUT" }))).await;
    assert_eq!(first.status, 201);
    let scout = json!({
        "platformId": ALICE, "tier": "SCOUT", "note": null, "expiresAt": null, "active": true,
        "createdAt": "2026-11-21T12:00:00.000Z",
    });
    assert_eq!(first.json(), scout);
    let given =
        json!({ "platformId": ALICE, "tier": "OVERLORD", "note": "a friend", "expiresAt": "2026-11-21T13:00:00Z" });
    let second = ada.post("/admin/beta-testers", Some(&given)).await;
    assert_eq!(second.status, 200, "it is replaced");
    let mut overlord = scout.clone();
    overlord["tier"] = "OVERLORD".into();
    overlord["note"] = "a friend".into();
    overlord["expiresAt"] = "2026-11-21T13:00:00.000Z".into();
    assert_eq!(second.json(), overlord);
    assert_eq!(alice.get("/me").await.json()["subscription"]["tier"], "OVERLORD");

    app.clock.advance(Duration::hours(1));
    assert_eq!(alice.get("/me").await.json()["subscription"]["tier"], Value::Null);
    overlord["active"] = false.into();
    let list = ada.get("/admin/beta-testers").await.json();
    assert_eq!(list, json!({ "total": 1, "betaTesters": [overlord], "next": null }));

    let path = format!("/admin/beta-testers/{ALICE}");
    assert_eq!(ada.delete(&path).await.json(), json!({ "ok": true }));
    ada.delete(&path).await.expect_problem(404, "not_found");
    assert_eq!(ada.get("/admin/beta-testers").await.json(), json!({ "total": 0, "betaTesters": [], "next": null }));

    let mut given = overlord.clone();
    given["active"] = true.into();
    assert_eq!(
        audited(&mut ada, 9).await,
        [
            done("beta_tester.delete", ALICE, overlord, Value::Null),
            done("beta_tester.put", ALICE, scout.clone(), given),
            done("beta_tester.put", ALICE, Value::Null, scout),
        ],
        "and nothing of what was refused"
    );
}

#[actix_web::test]
async fn what_is_no_tier_account_or_end_is_refused_and_leaves_no_entry() {
    let (_app, mut ada) = start().await;
    for (field, value) in [
        ("platformId", json!("7")),
        ("tier", json!("scout")),
        ("note", json!("")),
        ("expiresAt", json!("2026-11-21T12:00:00Z")),
        ("expiresAt", json!("2020-01-01T00:00:00Z")),
        ("expiresAt", json!("2026-12-31T23:59:60Z")),
        ("expiresAt", json!("+10000-01-01T00:00:00Z")),
    ] {
        let mut body = json!({ "platformId": BOB, "tier": "SCOUT" });
        body[field] = value;
        let problem = ada.post("/admin/beta-testers", Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{problem}");
    }
    for query in ["limit=0", "limit=501", "offset=-1"] {
        ada.get(&format!("/admin/beta-testers?{query}")).await.expect_problem(400, "invalid_request");
    }
    assert!(audited(&mut ada, 9).await.is_empty());
}

#[actix_web::test]
async fn testers_are_paged_by_account() {
    let (_app, mut ada) = start().await;
    for account in [BOB, ALICE] {
        let body = json!({ "platformId": account, "tier": "SCOUT" });
        assert_eq!(ada.post("/admin/beta-testers", Some(&body)).await.status, 201);
    }
    for (query, account) in [("limit=1", ALICE), ("limit=1&offset=1", BOB)] {
        let list = ada.get(&format!("/admin/beta-testers?{query}")).await.json();
        assert_eq!((&list["total"], &list["betaTesters"][0]["platformId"]), (&json!(2), &json!(account)));
        assert_eq!(list["betaTesters"].as_array().unwrap().len(), 1);
    }
}
