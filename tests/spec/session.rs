//! The session cookie `rp_sess`, POST /auth/signout, POST /relay/token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::harness::{app::TestApp, on_each_database};

const ALICE: &str = "76561198000000001";

#[actix_web::test]
async fn without_a_session_there_is_no_me() {
    let app = TestApp::start().await;
    app.browser().get("/me").await.expect_problem(401, "unauthenticated");
}

on_each_database!(signing_out_invalidates_every_copy_of_the_cookie, |app| {
    let mut browser = app.signed_in(ALICE).await;
    let mut thief = browser.clone();
    let answer = browser.post("/auth/signout", None).await;
    assert_eq!((answer.status, answer.text().as_str()), (204, ""));
    let cleared = answer.set_cookie("rp_sess").unwrap();
    for attribute in ["Max-Age=0", "HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(cleared.contains(attribute), "{attribute}: {cleared}");
    }
    assert!(!browser.cookies.contains_key("rp_sess"));
    thief.get("/me").await.expect_problem(401, "unauthenticated");
    thief.post("/relay/token", None).await.expect_problem(401, "unauthenticated");
});

#[actix_web::test]
async fn a_session_ends_after_fourteen_idle_days() {
    let app = TestApp::start().await;
    let mut browser = app.signed_in(ALICE).await;
    app.clock.advance(chrono::Duration::days(14) - chrono::Duration::seconds(1));
    assert_eq!(browser.get("/me").await.status, 200);
    app.clock.advance(chrono::Duration::days(14));
    browser.get("/me").await.expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn a_session_ends_thirty_days_after_sign_in_however_busy() {
    let app = TestApp::start().await;
    let mut browser = app.signed_in(ALICE).await;
    for _ in 0..29 {
        app.clock.advance(chrono::Duration::days(1));
        assert_eq!(browser.get("/me").await.status, 200);
    }
    app.clock.advance(chrono::Duration::days(1));
    browser.get("/me").await.expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn a_tampered_cookie_is_no_session() {
    let app = TestApp::start().await;
    let good = app.signed_in(ALICE).await.cookies["rp_sess"].clone();
    let flipped = if good.starts_with('A') { "B" } else { "A" };
    for bad in [format!("{flipped}{}", &good[1..]), format!("{good}x"), "x".into(), String::new(), "é".into()] {
        let mut browser = app.browser();
        browser.cookies.insert("rp_sess".into(), bad.clone());
        assert_eq!(browser.get("/me").await.status, 401, "{bad}");
    }
}

#[actix_web::test]
async fn of_several_cookies_of_the_name_ours_counts() {
    let app = TestApp::start().await;
    let good = app.signed_in(ALICE).await.cookies["rp_sess"].clone();
    let mut browser = app.browser();
    browser.cookies.insert("rp_sess".into(), format!("planted; rp_sess={good}"));
    assert_eq!(browser.get("/me").await.status, 200);
}

on_each_database!(a_restart_keeps_everyone_signed_in, |app| {
    let mut browser = app.signed_in(ALICE).await;
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": -7 });
    assert_eq!(browser.post("/paired-servers", Some(&pairing)).await.status, 201);
    let before = (browser.get("/me").await.json(), browser.get("/paired-servers").await.json());
    let cookies = browser.cookies;
    let app = app.restart().await;
    let mut browser = app.browser();
    browser.cookies = cookies;
    assert_eq!((browser.get("/me").await.json(), browser.get("/paired-servers").await.json()), before);
});

#[actix_web::test]
async fn a_relay_token_names_user_scope_and_expiry() {
    let app = TestApp::start().await;
    let mut browser = app.signed_in(ALICE).await;
    let me = browser.get("/me").await.json();
    let answer = browser.post("/relay/token", None).await;
    assert_eq!(answer.status, 200);
    let exp = answer.json()["exp"].as_i64().unwrap();
    let left = exp - app.clock.now().timestamp();
    assert!((1..=300).contains(&left), "at most five minutes: {left}");

    let token = answer.json()["token"].as_str().unwrap().to_owned();
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(claims["sub"], me["id"]);
    assert_eq!(claims["scope"], "relay");
    assert_eq!(claims["exp"], exp);
}
