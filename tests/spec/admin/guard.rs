//! The door: 503 without admins, 401 without a session, 403 for everybody else, on every admin route.

use reqwest::header::ORIGIN;
use serde_json::json;

use super::start;
use crate::{
    harness::{
        app::{ADA, ADMIN, FRONTEND, TestApp},
        browser::Browser,
        game::ALICE,
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
async fn without_admins_every_admin_route_is_off_whoever_calls() {
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
