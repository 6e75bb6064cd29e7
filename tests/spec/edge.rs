//! What holds for every request: problem documents, request ids, CSRF, CORS, rate limits, health.

use reqwest::{
    Method,
    header::{CONTENT_TYPE, ORIGIN, REFERER},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::harness::{
    app::{ADMIN, BASE, FRONTEND, TestApp},
    browser::Answer,
    relay_client::PATIENCE,
};

const ALICE: &str = "76561198000000001";

#[actix_web::test]
async fn every_failure_is_a_problem_document() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    alice.get("/no-such-path").await.expect_problem(404, "not_found");
    alice.get("/paired-servers/%FF").await.expect_problem(404, "not_found");

    let answer = alice.delete("/me").await;
    answer.expect_problem(405, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("GET, HEAD"));

    let post = |body: String, content_type: &str| {
        let request = alice.request(Method::POST, "/paired-servers").header(ORIGIN, FRONTEND);
        request.header(CONTENT_TYPE, content_type).body(body)
    };
    let requests = [
        (post("{".into(), "application/json"), 400, "malformed_json"),
        (post(String::new(), "application/json"), 400, "malformed_json"),
        (post("[]".into(), "application/json"), 400, "invalid_request"),
        (post("{}".into(), "application/json"), 400, "invalid_request"),
        (post("{}".into(), "text/plain"), 415, "unsupported_media_type"),
        (post(format!("\"{}\"", "x".repeat(64 * 1024)), "application/json"), 413, "body_too_large"),
    ];
    for (request, status, code) in requests {
        alice.send(request).await.expect_problem(status, code);
    }
}

#[actix_web::test]
async fn a_valid_request_id_comes_back_and_another_is_replaced() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let request = browser.request(Method::GET, "/me").header("x-request-id", "trace-1");
    let answer = browser.send(request).await;
    assert_eq!(answer.expect_problem(401, "unauthenticated")["requestId"], "trace-1");
    let request = browser.request(Method::GET, "/health").header("x-request-id", "no spaces");
    let own = browser.send(request).await.header("x-request-id").unwrap().to_owned();
    assert_eq!(own.len(), 36, "{own}");
}

/// This many requests in one go; those that `has_body` says have one.
fn pipelined(count: usize, has_body: impl Fn(usize) -> bool) -> String {
    let request = |number| {
        let (call, body) = if has_body(number) { ("POST /pairing/device/activate", "{}") } else { ("GET /me", "") };
        let (length, close) = (body.len(), if number + 1 == count { "Connection: close\r\n" } else { "" });
        format!(
            "{call} HTTP/1.1\r\nHost: companion\r\nX-Request-Id: number-{number}\r\n{close}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    (0..count).map(request).collect()
}

#[actix_web::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let app = TestApp::start().await;
    let some = |number: usize| number % 7 == 3;
    let kinds: [fn(usize) -> bool; 4] = [some, |_| false, |_| true, |number| number == 0];
    for has_body in kinds {
        let (count, mut answers) = (100, String::new());
        let mut stream = TcpStream::connect(app.address).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        let sent = pipelined(count, has_body);
        let reading = timeout(PATIENCE, reader.read_to_string(&mut answers));
        let (read, written) = tokio::join!(reading, writer.write_all(sent.as_bytes()));
        read.expect("the service closes the connection").unwrap();
        written.unwrap();
        let numbers = answers.lines().filter_map(|line| line.strip_prefix("x-request-id: number-")?.parse().ok());
        assert_eq!(numbers.collect::<Vec<usize>>(), (0..count).collect::<Vec<_>>());
    }
}

#[actix_web::test]
async fn answers_carry_security_headers() {
    let app = TestApp::start().await;
    let answer = app.browser().get("/health").await;
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[actix_web::test]
async fn only_our_own_pages_may_change_something() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let with = |name: &str, value: &str| alice.request(Method::POST, "/relay/token").header(name, value);
    let own = format!("{FRONTEND}/map");
    let allowed = [
        with(ORIGIN.as_str(), FRONTEND),
        with(ORIGIN.as_str(), ADMIN),
        with(ORIGIN.as_str(), BASE),
        with(REFERER.as_str(), &own),
        alice.request(Method::POST, "/relay/token"),
    ];
    let refused = [
        with(ORIGIN.as_str(), "https://evil.test"),
        with(ORIGIN.as_str(), "null"),
        with(REFERER.as_str(), "https://evil.test/"),
        with("sec-fetch-site", "cross-site"),
        with("sec-fetch-site", "same-origin"),
    ];
    for request in allowed {
        assert_eq!(alice.send(request).await.status, 200);
    }
    for request in refused {
        alice.send(request).await.expect_problem(403, "cross_site_request");
    }
    // Reading needs no such proof, and without a cookie there is nothing to abuse.
    let request = alice.request(Method::GET, "/me").header(ORIGIN, "https://evil.test");
    assert_eq!(alice.send(request).await.status, 200);
    let mut nobody = app.browser();
    let request = nobody.request(Method::POST, "/relay/token").header(ORIGIN, "https://evil.test");
    nobody.send(request).await.expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn exactly_two_origins_may_read_with_cookies() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    for (origin, allowed) in [
        (FRONTEND, true),
        (ADMIN, true),
        ("https://evil.test", false),
        ("https://app.companion.test.evil.test", false),
        ("http://app.companion.test", false),
        ("null", false),
    ] {
        // An error must be readable too, or a page cannot show what went wrong.
        let request = browser.request(Method::GET, "/me").header(ORIGIN, origin);
        let answer = browser.send(request).await;
        assert_eq!(answer.header("access-control-allow-origin"), allowed.then_some(origin), "{origin}");
        assert!(answer.header("vary").is_some_and(|vary| vary.to_ascii_lowercase().contains("origin")));
        assert_ne!(answer.header("access-control-allow-origin"), Some("*"));

        let preflight = browser
            .request(Method::OPTIONS, "/paired-servers")
            .header(ORIGIN, origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type");
        let answer = browser.send(preflight).await;
        assert_eq!(answer.header("access-control-allow-origin"), allowed.then_some(origin), "{origin}");
        if allowed {
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
        }
    }
}

#[actix_web::test]
async fn sign_in_is_limited_per_address() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let mut refused: Option<Answer> = None;
    for _ in 0..31 {
        browser.cookies.clear();
        let answer = browser.get("/auth/platform").await;
        assert!(answer.header("ratelimit").is_some() && answer.header("ratelimit-policy").is_some());
        if answer.status != 302 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("the 31st request in a moment is refused");
    refused.expect_problem(429, "rate_limited");
    let wait: i64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait));
    assert_eq!(browser.get("/health").await.status, 200, "nothing else is limited");
    app.clock.advance(chrono::Duration::seconds(wait));
    assert_eq!(browser.get("/auth/platform").await.status, 302);
}

#[actix_web::test]
async fn behind_a_trusted_proxy_each_client_has_its_own_budget() {
    let app = TestApp::start_with(&["--trusted-proxies=127.0.0.1"]).await;
    let mut browser = app.browser();
    for (client, expected) in [("198.51.100.1", 302), ("198.51.100.1", 429), ("198.51.100.2", 302)] {
        let times = if expected == 302 && client == "198.51.100.1" { 30 } else { 1 };
        for _ in 0..times {
            browser.cookies.clear();
            let request = browser.request(Method::GET, "/auth/platform").header("x-forwarded-for", client);
            assert_eq!(browser.send(request).await.status, expected, "{client}");
        }
    }
}

#[actix_web::test]
async fn a_user_is_limited_wherever_they_call_from() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    for _ in 0..300 {
        assert_eq!(alice.get("/me").await.status, 200);
    }
    let refused = alice.get("/me").await;
    refused.expect_problem(429, "rate_limited");
    assert!(refused.header("retry-after").is_some());
}

#[actix_web::test]
async fn health_routes_report_their_state() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let health = browser.get("/health").await.json();
    assert_eq!(health["ok"], true);
    assert!(health["uptime"].is_u64());
    assert_eq!(browser.get("/health/db").await.json(), json!({ "ok": true }));
    assert_eq!(browser.get("/ready").await.json(), json!({ "ok": true }));
}
