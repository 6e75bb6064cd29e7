//! Access to sockets, and the time until which they stay open.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{
    app::{ADMIN, BASE, FRONTEND, TestApp},
    game::{ALICE, BOB},
    relay_client::{self, Refused, RelayClient, open, request, with_header},
};

fn expect_refused(outcome: Result<(RelayClient, impl Sized), Box<Refused>>, status: u16, code: &str) {
    let refused = outcome.map(|_| "a socket").unwrap_err();
    assert_eq!((refused.status, &refused.problem["code"]), (status, &json!(code)), "{:?}", refused.problem);
}

/// The relay's health, as every caller sees it.
async fn health(app: &TestApp) -> Value {
    let answer = app.relay_browser().get("/health").await;
    assert_eq!(answer.status, 200);
    answer.json()
}

#[actix_web::test]
async fn a_bad_token_opens_nothing() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let token = relay_client::token(&mut alice).await;
    let parts: Vec<&str> = token.split('.').collect();
    let flipped = if parts[2].starts_with('A') { 'B' } else { 'A' };
    let tampered = [
        format!("{}.{}.{flipped}{}", parts[0], parts[1], &parts[2][1..]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.e30.{}", parts[0], parts[2]),
        format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{}.", parts[1]),
        format!("{token}x"),
        "garbage".to_owned(),
        String::new(),
    ];
    for bad in &tampered {
        expect_refused(open(app.relay, request(app.relay, Some(bad))).await, 401, "invalid_relay_token");
    }
    expect_refused(open(app.relay, request(app.relay, None)).await, 401, "invalid_relay_token");
    let twice = format!("{token}&token={token}");
    expect_refused(open(app.relay, request(app.relay, Some(&twice))).await, 401, "invalid_relay_token");
    assert!(open(app.relay, request(app.relay, Some(&token))).await.is_ok(), "the token itself is good");
    assert!(open(app.relay, request(app.relay, Some(&token))).await.is_ok(), "and may be used again");

    app.clock.advance(chrono::Duration::seconds(300));
    assert!(open(app.relay, request(app.relay, Some(&token))).await.is_ok(), "five minutes, give or take five seconds");
    app.clock.advance(chrono::Duration::seconds(6));
    expect_refused(open(app.relay, request(app.relay, Some(&token))).await, 401, "invalid_relay_token");
}

#[actix_web::test]
async fn the_token_may_come_as_a_sub_protocol() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let protocol = format!("bearer.{}", relay_client::token(&mut alice).await);
    let offered = with_header(request(app.relay, None), "sec-websocket-protocol", &protocol);
    let (mut client, response) = open(app.relay, offered).await.expect("a 101");
    assert_eq!(response.headers()["sec-websocket-protocol"], protocol.as_str());
    client.ping().await;
    let offered = with_header(request(app.relay, None), "sec-websocket-protocol", "bearer.x");
    expect_refused(open(app.relay, offered).await, 401, "invalid_relay_token");
}

#[actix_web::test]
async fn pages_of_other_origins_open_nothing() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let token = relay_client::token(&mut alice).await;
    for origin in [BASE, FRONTEND, ADMIN] {
        assert!(open(app.relay, with_header(request(app.relay, Some(&token)), "origin", origin)).await.is_ok());
    }
    for origin in ["https://evil.test", "null", "https://app.companion.test.evil.test", "http://app.companion.test"] {
        let foreign = with_header(request(app.relay, Some(&token)), "origin", origin);
        expect_refused(open(app.relay, foreign).await, 403, "foreign_origin");
    }
}

#[actix_web::test]
async fn signing_out_closes_the_sockets_of_that_session() {
    let app = TestApp::start().await;
    let (mut here, mut there) = (app.signed_in(ALICE).await, app.signed_in(ALICE).await);
    let token = relay_client::token(&mut here).await;
    let mut one = RelayClient::connect(&app, &mut here).await;
    let mut two = RelayClient::connect(&app, &mut here).await;
    let mut other = RelayClient::connect(&app, &mut there).await;
    assert_eq!(here.post("/auth/signout", None).await.status, 204);
    assert_eq!((one.expect_close().await, two.expect_close().await), (4501, 4501));
    other.ping().await;
    expect_refused(open(app.relay, request(app.relay, Some(&token))).await, 401, "invalid_relay_token");
}

#[actix_web::test]
async fn a_user_has_twenty_sockets_and_health_counts_them() {
    let app = TestApp::start().await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let token = relay_client::token(&mut alice).await;
    assert_eq!(health(&app).await["activeConnections"], 0);
    // All at once: they must not share the last place.
    let outcomes = join_all((0..30).map(|_| open(app.relay, request(app.relay, Some(&token))))).await;
    let (sockets, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((sockets.len(), refused.len()), (20, 10));
    for outcome in refused {
        expect_refused(outcome, 429, "too_many_connections");
    }
    let mut guest = RelayClient::connect(&app, &mut bob).await;
    guest.ping().await;

    let report = health(&app).await;
    let fields: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["activeConnections", "ok", "serving", "uptime"]);
    assert_eq!(
        (&report["ok"], &report["serving"], &report["activeConnections"]),
        (&json!(true), &json!(true), &json!(21))
    );
    assert!(report["uptime"].is_u64());
}

#[actix_web::test]
async fn without_an_upgrade_there_is_no_stream() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let token = relay_client::token(&mut alice).await;
    let mut plain = app.relay_browser();
    let answer = plain.get(&format!("/v1?token={token}")).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (426, Some("upgrade_required")));
    assert_eq!((answer.header("upgrade"), answer.header("sec-websocket-version")), (Some("websocket"), Some("13")));
    assert!(!answer.text().contains(&token));
    assert_eq!(plain.get("/v1").await.status, 401);
    let twice = plain.get(&format!("/v1?token={token}&token={token}")).await;
    assert_eq!((twice.status, twice.json()["code"].as_str()), (401, Some("invalid_relay_token")));
    assert_eq!(plain.get("/nothing").await.status, 404);
}
