//! The door: 503 without admins, 401 without a session, 403 for everybody else, on every admin route.

use reqwest::{
    Method,
    header::{CONTENT_TYPE, ORIGIN},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::start;
use crate::{
    harness::{
        app::{ADA, ADMIN, FRONTEND, TestApp},
        browser::Browser,
        database::Postgres,
        game::ALICE,
        relay_client::PATIENCE,
    },
    openapi::route_table,
};

/// The answer of every admin route to this browser; without a body, which is looked at last.
async fn every_route_refuses(browser: &mut Browser, status: u16, code: &str) {
    let routes: Vec<String> = route_table().into_iter().filter(|route| route.contains(" /admin/")).collect();
    assert!(routes.len() > 3, "{routes:?}");
    for route in routes {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace(['{', '}'], "");
        let request = browser.request(method.parse().unwrap(), &path).header(ORIGIN, FRONTEND);
        let answer = browser.send(request).await;
        assert_eq!(answer.expect_problem(status, code)["status"], status, "{route}");
    }
}

#[actix_web::test]
async fn without_admins_every_admin_route_is_off_for_every_caller() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    every_route_refuses(&mut app.browser(), 503, "admin_disabled").await;
    every_route_refuses(&mut alice, 503, "admin_disabled").await;
    alice.get("/admin/nothing").await.expect_problem(503, "admin_disabled");
}

#[actix_web::test]
async fn only_an_admin_gets_in() {
    let (app, mut ada) = start().await;
    every_route_refuses(&mut app.browser(), 401, "unauthenticated").await;
    every_route_refuses(&mut app.signed_in(ALICE).await, 403, "not_admin").await;
    app.browser().get("/admin/nothing").await.expect_problem(401, "unauthenticated");
    ada.get("/admin/nothing").await.expect_problem(404, "not_found");
    let answer = ada.get("/admin/ping").await;
    assert_eq!(answer.json(), json!({ "admin": true, "platformId": ADA, "allowlistSize": 1 }));
    assert_eq!(ada.post("/auth/signout", None).await.status, 204);
    ada.get("/admin/ping").await.expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn the_admin_pages_may_call_and_other_sites_may_not() {
    let (_app, mut ada) = start().await;
    let tester = json!({ "platformId": ALICE, "tier": "SCOUT" });
    for (origin, status) in [(ADMIN, 201), ("https://evil.test", 403)] {
        let request = ada.request(reqwest::Method::POST, "/admin/beta-testers").header(ORIGIN, origin).json(&tester);
        let answer = ada.send(request).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    let request = ada.request(reqwest::Method::GET, "/admin/ping").header(ORIGIN, ADMIN);
    assert_eq!(ada.send(request).await.header("access-control-allow-origin"), Some(ADMIN));
}

/// A write of an admin whose body ends after the admin has erased themselves.
async fn a_write_that_was_let_in_before_the_erasure(database_url: Option<String>) {
    const EVE: &str = "76561198000000008";
    let admins = format!("--admin-platform-ids={ADA},{EVE}");
    let app = match database_url {
        Some(url) => TestApp::start_on(url, &[&admins]).await,
        None => TestApp::start_with(&[&admins]).await,
    };
    let (ada, mut eve) = (app.signed_in(ADA).await, app.signed_in(EVE).await);
    app.clock.advance(chrono::Duration::minutes(2));
    let body = json!({ "platformId": ALICE, "tier": "SCOUT" }).to_string();
    let (begin, end) = body.split_at(5);
    let head = format!(
        "POST /admin/beta-testers HTTP/1.1\r\nHost: companion\r\nOrigin: {ADMIN}\r\nCookie: rp_sess={}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{begin}",
        ada.cookies["rp_sess"],
        body.len()
    );
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // Users who are let in are seen.
    let seen = |found: &Value| found["users"][0]["lastSeenAt"] == "2026-11-21T12:02:00.000Z";
    eve.get_until(format!("/admin/users?q={ADA}"), seen).await;
    let mut there = ada.clone();
    let erase = there.request(Method::DELETE, "/me").header(ORIGIN, FRONTEND).json(&json!({ "confirm": ADA }));
    assert_eq!(there.send(erase).await.status, 200);
    stream.write_all(end.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("unauthenticated"), "{answer}");
    assert_eq!(eve.get("/admin/audit").await.json()["entries"], json!([]));
    assert_eq!(eve.get("/admin/beta-testers").await.json()["betaTesters"], json!([]));
}

#[actix_web::test]
async fn an_erased_admin_changes_nothing_more() {
    a_write_that_was_let_in_before_the_erasure(None).await;
}

#[actix_web::test]
async fn an_erased_admin_changes_nothing_more_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    a_write_that_was_let_in_before_the_erasure(Some(database.url())).await;
}

#[actix_web::test]
async fn without_admins_nothing_else_is_looked_at() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let post = |path: &str, content_type: &str, body: String| {
        let request = alice.request(Method::POST, path).header(ORIGIN, FRONTEND);
        request.header(CONTENT_TYPE, content_type).body(body)
    };
    let requests = [
        alice.request(Method::GET, "/admin"),
        alice.request(Method::GET, "/admin/"),
        alice.request(Method::GET, "/admin/nothing"),
        alice.request(Method::GET, "/admin/users/%00"),
        alice.request(Method::GET, "/%61dmin/users"),
        alice.request(Method::GET, "/admin/users?limit=x"),
        alice.request(Method::GET, "/admin/users?nothing=1"),
        alice.request(Method::HEAD, "/admin/users"),
        alice.request(Method::DELETE, "/admin/users").header(ORIGIN, "https://evil.test"),
        alice.request(Method::DELETE, "/admin/users").header(ORIGIN, FRONTEND),
        post("/admin/beta-testers", "text/plain", "{}".into()),
        post("/admin/beta-testers", "application/json", "{".into()),
        post("/admin/beta-testers", "application/json", "{}".into()),
        post("/admin/beta-testers", "application/json", "x".repeat(1024 * 1024)),
    ];
    for request in requests {
        let asked = format!("{request:?}");
        let answer = alice.send(request).await;
        assert_eq!(answer.status, 503, "{asked}: {}", answer.text());
    }
    alice.get("/administration").await.expect_problem(404, "not_found");
}
