//! The session cookie `rp_sess`, POST /auth/signout, POST /relay/token.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::future::join_all;
use serde_json::{Value, json};

use reqwest::Method;

use crate::harness::{
    app::{ADA, ADMINS, TestApp},
    database::Postgres,
    on_each_database,
    relay_client::RelayClient,
};

const ALICE: &str = "76561198000000001";
const BOB: &str = "76561198000000002";

#[actix_web::test]
async fn without_a_session_there_is_no_me() {
    let app = TestApp::start().await;
    app.browser().get("/me").await.expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn reads_do_not_wait_for_a_database_that_takes_nothing() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    // Her last use is to be stored, and is not.
    app.clock.advance(chrono::Duration::minutes(2));
    let mut bob = app.signed_in(BOB).await;
    let _lock = app.freeze();
    let reads = async {
        for path in ["/me", "/paired-servers", "/me"] {
            assert_eq!(alice.get(path).await.status, 200);
        }
    };
    let change = json!({ "locale": "de-CH" });
    tokio::select! {
        biased;
        () = reads => {}
        answer = bob.patch("/me", &change) => panic!("a write was answered first: {}", answer.text()),
    }
}

#[actix_web::test]
async fn reads_of_a_database_that_refuses_are_unavailable_until_it_takes_them_again() {
    let Some(postgres) = Postgres::create() else { return };
    let app = TestApp::start_on(postgres.url(), &[]).await;
    let mut alice = app.signed_in(ALICE).await;
    postgres.admit(false);
    postgres.end("");
    // The first ones find out, each on a connection that is gone.
    for path in ["/me", "/me/sessions", "/me/tokens", "/paired-servers", "/channels"].repeat(3) {
        alice.get(path).await.expect_problem(503, "unavailable");
    }
    postgres.admit(true);
    while alice.get("/me").await.status != 200 {
        app.clock.advance(chrono::Duration::seconds(1));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    app.stop().await;
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

on_each_database!(sessions_are_listed_and_ended_one_by_one_with_their_sockets, |app| {
    let mut first = app.signed_in(ALICE).await;
    app.clock.advance(chrono::Duration::minutes(5));
    let (mut second, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let list = second.get("/me/sessions").await.json();
    let sessions = list["sessions"].as_array().unwrap();
    let shown: Vec<_> = sessions.iter().map(|session| (&session["createdAt"], &session["current"])).collect();
    let [earlier, later] = ["2026-11-21T12:00:00.000Z", "2026-11-21T12:05:00.000Z"].map(Value::from);
    assert_eq!(shown, [(&later, &json!(true)), (&earlier, &json!(false))]);
    let path = |place: usize| format!("/me/sessions/{}", sessions[place]["id"].as_str().unwrap());
    let page = second.get("/me/sessions?limit=1").await.json();
    let next = page["next"].as_str().unwrap();
    let page = second.get(&format!("/me/sessions?limit=1&before={next}")).await.json();
    assert_eq!((&page["sessions"][0], &page["next"]), (&sessions[1], &Value::Null));

    bob.delete(&path(1)).await.expect_problem(404, "not_found");
    let mut socket = RelayClient::connect(&app, &mut first).await;
    assert_eq!(second.delete(&path(1)).await.json(), json!({ "ok": true }));
    assert_eq!(socket.expect_close().await, 4501);
    first.get("/me").await.expect_problem(401, "unauthenticated");
    second.delete(&path(1)).await.expect_problem(404, "not_found");

    let answer = second.delete(&path(0)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.set_cookie("rp_sess").unwrap().contains("Max-Age=0"), "it was the one that asked");
    second.get("/me").await.expect_problem(401, "unauthenticated");
});

on_each_database!(all_other_sessions_end_and_devices_if_wished, |app| {
    let (mut here, mut there) = (app.signed_in(ALICE).await, app.signed_in(ALICE).await);
    let mut bob = app.signed_in(BOB).await;
    let mut helper = app.paired(&mut here).await;
    let mut theirs = app.paired(&mut bob).await;
    let mut socket = RelayClient::connect(&app, &mut there).await;
    assert_eq!(here.delete("/me/sessions").await.json(), json!({ "ok": true, "sessions": 1, "devices": 0 }));
    assert_eq!(socket.expect_close().await, 4501);
    there.get("/me").await.expect_problem(401, "unauthenticated");
    assert_eq!(helper.send(helper.request(Method::POST, "/relay/token")).await.status, 200);

    here.delete("/me/sessions?devices=perhaps").await.expect_problem(400, "invalid_request");
    let ended = here.delete("/me/sessions?devices=true").await.json();
    assert_eq!(ended, json!({ "ok": true, "sessions": 0, "devices": 1 }));
    assert_eq!(helper.send(helper.request(Method::POST, "/relay/token")).await.status, 401);
    assert_eq!(theirs.send(theirs.request(Method::POST, "/relay/token")).await.status, 200);
    assert_eq!((here.get("/me").await.status, bob.get("/me").await.status), (200, 200));

    // Each ends the others at once: one stays.
    let mut sessions = [here, app.signed_in(ALICE).await, app.signed_in(ALICE).await];
    join_all(sessions.iter_mut().map(|browser| browser.delete("/me/sessions"))).await;
    let mut stayed = 0;
    for browser in &mut sessions {
        stayed += usize::from(browser.get("/me").await.status == 200);
    }
    assert_eq!(stayed, 1);
});

#[actix_web::test]
async fn an_erasure_needs_a_sign_in_of_the_last_quarter_of_an_hour() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    app.clock.advance(chrono::Duration::minutes(15) + chrono::Duration::seconds(1));
    let erasure = json!({ "confirm": ALICE });
    let request = alice.request(Method::DELETE, "/me").json(&erasure);
    let refused = alice.send(request).await;
    refused.expect_problem(401, "fresh_sign_in_required");
    assert!(refused.header("www-authenticate").unwrap().contains("insufficient_user_authentication"));
    assert_eq!(alice.get("/me").await.status, 200, "the session goes on");
    app.sign_in(&mut alice, ALICE).await;
    let request = alice.request(Method::DELETE, "/me").json(&erasure);
    assert_eq!(alice.send(request).await.status, 200);
}

#[actix_web::test]
async fn admins_sign_in_again_before_they_pay_back_or_delete_where_the_operator_says_so() {
    for (flags, stale) in [(vec![ADMINS], 404), (vec![ADMINS, "--fresh-sign-in-minutes=5"], 401)] {
        let app = TestApp::start_with(&flags).await;
        let mut ada = app.signed_in(ADA).await;
        let refund = json!({ "chargeId": "ch_none" });
        for (minutes, expected) in [(5, 404), (1, stale)] {
            app.clock.advance(chrono::Duration::minutes(minutes));
            for path in ["/admin/users/none/paired-servers", "/admin/beta-testers/76561198000000003"] {
                assert_eq!(ada.delete(path).await.status, expected, "{flags:?} {path}");
            }
            // Nothing can be bought here, which is said after that.
            let expected = if expected == 404 { 503 } else { expected };
            assert_eq!(ada.post("/admin/refund", Some(&refund)).await.status, expected);
            assert_eq!(ada.put("/admin/store/faq", &json!({ "data": 1 })).await.status, 200, "nothing is lost by it");
        }
        app.sign_in(&mut ada, ADA).await;
        assert_eq!(ada.delete("/admin/beta-testers/76561198000000003").await.status, 404);
    }
}

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

#[actix_web::test]
async fn ending_all_that_each_page_lists_ends_all() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    for number in 0..7 {
        app.clock.advance(chrono::Duration::seconds(1));
        app.signed_in(ALICE).await;
        app.paired(&mut alice).await;
        let token = json!({ "label": format!("Token {number}"), "scopes": ["read"] });
        assert_eq!(alice.post("/me/tokens", Some(&token)).await.status, 201);
    }
    for (path, list) in [("/me/sessions", "sessions"), ("/pairing/device", "devices"), ("/me/tokens", "tokens")] {
        let mut before = String::new();
        loop {
            let page = alice.get(&format!("{path}?limit=3{before}")).await.json();
            for entry in page[list].as_array().unwrap() {
                if entry["current"] != true {
                    let ended = alice.delete(&format!("{path}/{}", entry["id"].as_str().unwrap())).await;
                    assert!(matches!(ended.status, 200 | 204), "{}", ended.text());
                }
            }
            let Some(next) = page["next"].as_str() else { break };
            before = format!("&before={next}");
        }
        let left = alice.get(path).await.json()[list].as_array().unwrap().len();
        assert_eq!(left, usize::from(path == "/me/sessions"), "{path}");
    }
}

#[actix_web::test]
async fn a_body_where_none_is_taken_is_refused() {
    let app = TestApp::start().await;
    let (mut here, mut there) = (app.signed_in(ALICE).await, app.signed_in(ALICE).await);
    for (method, path) in [(Method::DELETE, "/me/sessions"), (Method::POST, "/relay/token"), (Method::GET, "/me")] {
        let with_body = here.request(method.clone(), path).json(&json!({ "devices": true }));
        let problem = here.send(with_body).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], "devices", "{method} {path}");
    }
    assert_eq!(there.get("/me").await.status, 200, "nothing was done");
    // No body, and an empty one.
    assert_eq!(here.post("/relay/token", None).await.status, 200);
    let empty = here.request(Method::POST, "/relay/token").header("content-type", "application/json").body("");
    assert_eq!(here.send(empty).await.status, 200);
    let unknown = here.request(Method::POST, "/no-such-path").json(&json!({ "a": 1 }));
    here.send(unknown).await.expect_problem(404, "not_found");
}
