//! Rules of every request: problem documents, request ids, CSRF, CORS, rate limits, health.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use reqwest::{
    Method,
    header::{CONTENT_TYPE, ORIGIN},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::harness::{
    app::{ADA, ADMINS, BASE, FRONTEND, TestApp},
    binary,
    browser::Answer,
    documented,
    relay_client::PATIENCE,
};

const ALICE: &str = "76561198000000001";

#[actix_web::test]
async fn every_failure_is_a_problem_document() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    alice.get("/no-such-path").await.expect_problem(404, "not_found");
    alice.get("/paired-servers/%FF").await.expect_problem(404, "not_found");

    let answer = alice.delete("/openapi.json").await;
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
async fn what_an_operation_does_not_know_is_refused_on_every_route_alike() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let mut ada = app.signed_in(ADA).await;
    // The bundled pages read their address themselves.
    let others = |path: &&str| !path.starts_with("/auth/platform") && !["/", "/invite", "/overlay"].contains(path);
    let paths = documented::paths_with("get").filter(others);
    for path in paths {
        // The path need not lead to something: nothing is looked up before.
        let path = path.replace(['{', '}'], "");
        let problem = ada.get(&format!("{path}?misspelt=secret")).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"], json!([{ "path": "misspelt", "message": "is no parameter of this operation" }]));
    }
    for limit in ["x", "1.5", "-1", "99999999999999999999", ""] {
        let problem = ada.get(&format!("/admin/users?limit={limit}")).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], "limit", "{problem}");
        assert!(!problem.to_string().contains("u32") && !problem.to_string().contains("i64"), "{problem}");
    }
    let body = json!({ "address": "192.0.2.1", "port": "x", "playerToken": 1 });
    let problem = ada.post("/paired-servers", Some(&body)).await.expect_problem(400, "invalid_request");
    assert!(!problem.to_string().contains("u16"), "{problem}");
    let body = json!({ "platformId": ALICE, "tier": "SCOUT", "Note": "misspelt" });
    let problem = ada.post("/admin/beta-testers", Some(&body)).await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"], json!([{ "path": "Note", "message": "is no field of this object" }]));
    let problem = ada.post("/pairing/device/code", Some(&json!({ "lable": "x" }))).await;
    assert_eq!(problem.expect_problem(400, "invalid_request")["errors"][0]["path"], "lable");
    // Routes of the provider at sign-in, and of the payment provider.
    assert_eq!(ada.get("/auth/platform?more=1").await.status, 302);
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

/// The head of the answer to a request with this head and no body.
async fn ask(stream: &mut TcpStream, head: &str) -> String {
    stream.write_all(format!("{head}\r\nHost: companion\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(timeout(PATIENCE, stream.read_u8()).await.expect("an answer").unwrap());
    }
    String::from_utf8(answer).unwrap()
}

/// A proxy that keeps connections sends a request on one of them at any time.
#[actix_web::test]
async fn an_idle_connection_is_kept() {
    let app = TestApp::start().await;
    let mut kept = TcpStream::connect(app.address).await.unwrap();
    assert!(ask(&mut kept, "HEAD /health HTTP/1.1").await.starts_with("HTTP/1.1 200 "));
    // The service itself says that ten seconds are over.
    let mut late = TcpStream::connect(app.address).await.unwrap();
    let unfinished = "POST /pairing/device/activate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9";
    assert!(ask(&mut late, unfinished).await.starts_with("HTTP/1.1 408 "));
    assert!(ask(&mut kept, "HEAD /health HTTP/1.1").await.starts_with("HTTP/1.1 200 "));
}

#[actix_web::test]
async fn answers_carry_security_headers() {
    let strict = "default-src 'none'; frame-ancestors 'none'";
    for base in [BASE, "https://api.companion.test"] {
        let app = TestApp::start_with(&[&format!("--base-url={base}")]).await;
        let mut alice = app.signed_in(ALICE).await;
        // Status, and who may keep it and show it.
        for (path, status, caching, shown) in [
            ("/health", 200, "no-store", "same-site"),
            ("/me", 200, "no-store", "same-site"),
            ("/items", 200, "private, no-cache", "same-site"),
            ("/wiki/tree", 200, "public, no-cache", "cross-origin"),
            ("/no-such-path", 404, "no-store", "same-site"),
            ("/admin/ping", 503, "no-store", "same-site"),
            ("/auth/platform", 302, "no-store", "same-site"),
        ] {
            let answer = alice.get(path).await;
            assert_eq!(answer.status, status, "{path}");
            let transport = base.starts_with("https").then_some("max-age=31536000");
            for (name, value) in [
                ("x-content-type-options", Some("nosniff")),
                ("referrer-policy", Some("no-referrer")),
                ("x-frame-options", Some("DENY")),
                ("content-security-policy", Some(strict)),
                ("cross-origin-opener-policy", Some("same-origin")),
                ("cache-control", Some(caching)),
                ("cross-origin-resource-policy", Some(shown)),
                ("strict-transport-security", transport),
            ] {
                assert_eq!(answer.header(name), value, "{path} {name}");
            }
        }
        let page = alice.get("/").await;
        let policy = page.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
        let refused = app.relay_browser().get("/v1").await;
        assert_eq!((refused.status, refused.header("content-security-policy")), (401, Some(strict)));
    }
}

#[actix_web::test]
async fn a_failed_sign_in_is_a_page_for_a_browser() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let navigation = |accept: &str| browser.request(Method::GET, "/auth/platform/callback").header("accept", accept);
    let requests = [navigation("text/html,application/xhtml+xml,*/*;q=0.8"), navigation("*/*")];
    let [page, problem] = requests;
    let page = browser.send(page).await;
    assert_eq!((page.status, page.header("content-type")), (400, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("Sign in again") && page.text().contains(FRONTEND), "{}", page.text());
    browser.send(problem).await.expect_problem(400, "sign_in_rejected");
}

#[actix_web::test]
async fn the_trace_of_a_caller_goes_on_to_the_neighbours_of_the_request() {
    let app = TestApp::start().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (sent, expected) in [(Some(format!("00-{trace}-00f067aa0ba902b7-01")), true), (None, false)] {
        let mut browser = app.browser();
        let login = browser.get("/auth/platform").await;
        let assertion = app.provider.confirm(login.location(), ALICE, app.clock.now());
        let mut request = browser.request(Method::GET, &assertion.path());
        if let Some(sent) = &sent {
            request = request.header("traceparent", sent);
        }
        assert_eq!(browser.send(request).await.status, 302);
        let passed_on = app.provider.traces().last().unwrap().clone();
        assert_eq!(passed_on.starts_with(&format!("00-{trace}-")), expected, "{passed_on}");
        assert!(passed_on.len() == 55 && Some(&passed_on) != sent.as_ref());
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
    assert!(refused.header("ratelimit").unwrap().contains("\"user\";r=0;t="));
    assert_eq!(alice.post("/auth/signout", None).await.status, 204, "no one is held");
}

#[actix_web::test]
async fn answers_say_what_is_left_of_each_budget() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let answer = alice.get("/me").await;
    let policies = "\"address\";q=6000;w=60, \"user\";q=300;w=60";
    assert_eq!(answer.header("ratelimit-policy"), Some(policies));
    assert_eq!(answer.header("ratelimit"), Some("\"address\";r=5997;t=1, \"user\";r=299;t=1"));
    assert_eq!(alice.get("/me").await.header("ratelimit"), Some("\"address\";r=5996;t=1, \"user\";r=298;t=1"));
    let toggle = "/paired-servers/none/devices/1/toggle";
    let unknown = alice.post(toggle, None).await;
    assert!(unknown.status == 404 && unknown.header("ratelimit").is_some(), "a refusal of another kind says it, too");
    assert_eq!(alice.get("/health").await.header("ratelimit"), None, "it is free");
}

#[actix_web::test]
async fn health_routes_report_their_state() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let health = browser.get("/health").await.json();
    assert_eq!(health["ok"], true);
    assert!(health["uptime"].is_u64());
    assert_eq!(browser.get("/health/db").await.json(), json!({ "ok": true }));
    assert_eq!(browser.get("/ready").await.json(), json!({ "ok": true, "warnings": [] }));
}

#[actix_web::test]
async fn a_request_for_an_upgrade_that_there_is_not_is_answered_and_closed() {
    let app = TestApp::start().await;
    for address in [app.address, app.relay] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "GET /health HTTP/1.1\r\nHost: companion\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                       Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close\r\n"), "{answer}");
        assert!(!answer.contains("connection: upgrade"), "{answer}");
    }
}

#[actix_web::test]
async fn a_body_in_an_encoding_that_is_not_read_is_refused() {
    let app = TestApp::start().await;
    let alice = app.signed_in(ALICE).await;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(b"{}").unwrap();
    let packed = packed.finish().unwrap();
    for (encoding, body, status) in [
        ("br", &b"{}"[..], 415),
        ("gzip, br", b"{}", 415),
        ("x", b"{}", 415),
        ("identity", b"{}", 200),
        ("gzip", &packed, 200),
    ] {
        let request = alice.request(Method::POST, "/pairing/device/code").header(ORIGIN, FRONTEND);
        let request = request.header(CONTENT_TYPE, "application/json").header("content-encoding", encoding);
        let request = request.body(body.to_vec());
        let answer = alice.clone().send(request).await;
        assert_eq!(answer.status, status, "{encoding}: {}", answer.text());
        assert_eq!(answer.header("accept-encoding"), (status == 415).then_some("gzip, identity"));
    }
}

#[actix_web::test]
async fn what_is_the_same_for_everybody_is_compressed_and_sent_once() {
    let app = TestApp::start().await;
    for path in ["/openapi.json", "/docs", "/problems"] {
        let get = async |name: &str, value: &str| {
            let answer = binary::http().get(format!("http://{}{path}", app.address)).header(name, value).send();
            let answer = answer.await.unwrap();
            let header = |name| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            let [encoding, tag, vary] = ["content-encoding", "etag", "vary"].map(header);
            (answer.status().as_u16(), encoding, tag.unwrap(), vary.unwrap(), answer.bytes().await.unwrap().len())
        };
        let (_, none, tag, vary, plain) = get("accept-encoding", "identity").await;
        let (_, encoding, same_tag, _, packed) = get("accept-encoding", "br, gzip").await;
        assert_eq!((none, encoding.as_deref()), (None, Some("gzip")), "{path}");
        assert!(packed * 3 < plain && vary.contains("accept-encoding"), "{path}: {packed} of {plain}, {vary}");
        assert_eq!(tag, same_tag);
        let (status, _, _, _, bytes) = get("if-none-match", &tag).await;
        assert_eq!((status, bytes), (304, 0), "{path}");
    }
}

#[actix_web::test]
async fn browsers_get_a_page_for_every_refusal_and_programs_a_document() {
    let app = TestApp::start_with(&["--admin-platform-ids="]).await;
    for (path, status) in [("/nowhere", 404), ("/me", 401), ("/admin/ping", 503)] {
        for (accept, media_type) in [
            ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"),
            ("*/*", "application/problem+json"),
        ] {
            let request = app.browser().request(Method::GET, path).header("accept", accept);
            let answer = app.browser().send(request).await;
            assert_eq!((answer.status, answer.header("content-type")), (status, Some(media_type)), "{path} {accept}");
        }
    }
}
