//! Push credentials, as the helper uploads them and as their owner sees them.

use chrono::Duration;
use companion::{
    clock::Clock,
    config::Database,
    db::{engine::pool::Pool, push_credentials},
    domain::ids::UserId,
};
use reqwest::{Method, header::CONTENT_TYPE};
use serde_json::{Value, json};

use crate::harness::{app::TestApp, browser::Browser, on_each_database};

const ALICE: &str = "76561198000000001";
const BOB: &str = "76561198000000002";

fn bundle(platform_id: &str) -> Value {
    json!({
        "platformId": platform_id,
        "fcm_credentials": { "gcm": { "androidId": "5000000000000000001", "securityToken": "6000000000000000001" } },
    })
}

async fn shown(browser: &mut Browser) -> Value {
    let answer = browser.get("/credentials/push").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for secret in ["5000000000000000001", "6000000000000000001"] {
        assert!(!answer.text().contains(secret));
    }
    answer.json()
}

on_each_database!(a_helper_uploads_and_the_owner_sees_and_deletes, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let mut helper = app.paired(&mut alice).await;
    assert_eq!(shown(&mut alice).await["state"], "missing");
    alice.delete("/credentials/push").await.expect_problem(404, "not_found");

    let uploaded = helper.upload(&bundle(ALICE)).await;
    assert_eq!(uploaded.status, 200, "{}", uploaded.text());
    let at = "2026-11-21T12:00:00.000Z";
    assert_eq!(uploaded.json(), json!({ "ok": true, "platformId": ALICE, "uploadedAt": at, "staged": false }));
    let mut seen = shown(&mut alice).await;
    seen.as_object_mut().unwrap().remove("session");
    let expected = json!({
        "platformId": ALICE, "state": "unproven", "uploadedAt": at, "expiresAt": "2026-12-05T12:00:00.000Z", "provenAt": null,
        "keyVersion": 1, "staged": null, "refusal": null, "warning": null,
    });
    assert_eq!(seen, expected);

    // The owner is warned from 72 hours before the expiry, and after it.
    app.clock.advance(Duration::days(11) - Duration::seconds(1));
    assert_eq!(shown(&mut alice).await["warning"], Value::Null);
    app.clock.advance(Duration::seconds(1));
    assert_eq!(shown(&mut alice).await["warning"], "expires_soon");
    app.clock.advance(Duration::days(3));
    let mut alice = app.signed_in(ALICE).await;
    assert_eq!(shown(&mut alice).await["warning"], "expired");

    // An expiry that the bundle states.
    let mut stated = bundle(ALICE);
    stated["expire_date"] = json!(app.clock.now().timestamp() + 86_400);
    assert_eq!(helper.upload(&stated).await.status, 200);
    assert_eq!(shown(&mut alice).await["expiresAt"], "2026-12-06T12:00:00.000Z");

    assert_eq!(shown(&mut app.signed_in(BOB).await).await["state"], "missing");
    let deleted = alice.delete("/credentials/push").await;
    assert_eq!((deleted.status, deleted.json()), (200, json!({ "ok": true })));
    assert_eq!(shown(&mut alice).await["state"], "missing");
});

on_each_database!(a_bundle_of_another_account_is_refused_and_changes_nothing, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let mut helper = app.paired(&mut alice).await;
    helper.upload(&bundle(BOB)).await.expect_problem(400, "mismatched_platform_id");
    assert_eq!(shown(&mut alice).await["state"], "missing");
    assert_eq!(helper.upload(&bundle(ALICE)).await.status, 200);
    app.clock.advance(Duration::hours(1));
    helper.upload(&bundle(BOB)).await.expect_problem(400, "mismatched_platform_id");
    assert_eq!(shown(&mut alice).await["uploadedAt"], "2026-11-21T12:00:00.000Z");
});

#[actix_web::test]
async fn an_invalid_bundle_gets_a_clear_error() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut helper = app.paired(&mut alice).await;
    for (body, status, code) in [
        ("", 400, "malformed_json"),
        ("{", 400, "malformed_json"),
        ("[]", 400, "invalid_request"),
        ("{}", 400, "invalid_request"),
        (r#"{"platformId":"alice"}"#, 400, "invalid_request"),
        (r#"{"gcm":{"platformId":"76561198000000001"}}"#, 400, "invalid_request"),
    ] {
        helper.upload_text(body.to_owned()).await.expect_problem(status, code);
    }
    let sized = |size: usize| {
        let head = format!(r#"{{"platformId":"{ALICE}","x":""#);
        format!("{head}{}\"}}", "x".repeat(size - head.len() - 2))
    };
    helper.upload_text(sized(64 * 1024 + 1)).await.expect_problem(413, "body_too_large");
    assert_eq!(helper.upload_text(sized(64 * 1024)).await.status, 200);
    let plain = helper.request(Method::PUT, "/credentials/push").header(CONTENT_TYPE, "text/plain").body("{}");
    helper.send(plain).await.expect_problem(415, "unsupported_media_type");
    // A session uploads nothing. A helper sees whether the service receives its pushes.
    let request = alice.request(Method::PUT, "/credentials/push").json(&bundle(ALICE));
    alice.send(request).await.expect_problem(401, "unauthenticated");
    let request = helper.request(Method::GET, "/credentials/push");
    assert_eq!(helper.send(request).await.json()["state"], "unproven");
}

#[actix_web::test]
async fn beside_a_bundle_that_works_a_new_one_is_staged() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("test.db");
    let app = TestApp::start_on(format!("sqlite:{}", file.display()), &[]).await;
    let mut alice = app.signed_in(ALICE).await;
    let mut helper = app.paired(&mut alice).await;
    assert_eq!(helper.upload(&bundle(ALICE)).await.json()["staged"], false);

    // The credential logs in at the push service.
    let user = UserId::from(alice.get("/me").await.json()["id"].as_str().unwrap());
    let (pool, clock): (_, &Clock) = (Pool::open(&Database::Sqlite(file)).unwrap(), &app.clock);
    let proven = |at| pool.write_blocking(|db| push_credentials::mark_proven(db, &user, at, clock.now())).unwrap();
    assert!(proven(clock.now()));

    clock.advance(Duration::hours(1));
    let second = helper.upload(&bundle(ALICE)).await.json();
    assert_eq!((&second["staged"], &second["uploadedAt"]), (&json!(true), &json!("2026-11-21T13:00:00.000Z")));
    let seen = shown(&mut alice).await;
    assert_eq!((&seen["state"], &seen["uploadedAt"]), (&json!("proven"), &json!("2026-11-21T12:00:00.000Z")));
    let staged = json!({ "uploadedAt": "2026-11-21T13:00:00.000Z", "expiresAt": "2026-12-05T13:00:00.000Z" });
    assert_eq!(seen["staged"], staged);

    let promoted = pool.write_blocking(|db| push_credentials::promote_staged(db, &user, clock.now(), clock.now()));
    assert!(promoted.unwrap());
    let seen = shown(&mut alice).await;
    assert_eq!((&seen["uploadedAt"], &seen["staged"]), (&json!("2026-11-21T13:00:00.000Z"), &Value::Null));
}
