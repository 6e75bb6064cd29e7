//! Calls from other places: CORS, forged requests of other sites, and the origins of sockets.

use std::net::SocketAddr;

use reqwest::{Method, header::AUTHORIZATION};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::harness::{
    app::{ADA, ADMIN, ADMINS, BASE, FRONTEND, TestApp},
    browser::Browser,
    game::ALICE,
    relay_client::PATIENCE,
};

type CallerHeaders = &'static [(&'static str, &'static str)];

/// Other headers of a request, as a browser of this kind or another client sends it; true if it may change something
/// with a cookie.
const CALLERS: [(&str, CallerHeaders, bool); 25] = [
    ("a page of the front end", &[("origin", FRONTEND), ("sec-fetch-site", "same-site")], true),
    ("a page of the admins", &[("origin", ADMIN), ("sec-fetch-site", "same-site")], true),
    ("a page of the service itself", &[("origin", BASE), ("sec-fetch-site", "same-origin")], true),
    ("the default port, written out", &[("origin", "https://app.companion.test:443")], true),
    ("a page of ours that says its address", &[("referer", "https://app.companion.test/map?x=1")], true),
    ("no browser", &[], true),
    ("no browser, with a user agent", &[("user-agent", "curl/8")], true),
    ("another site", &[("origin", "https://evil.test"), ("sec-fetch-site", "cross-site")], false),
    ("an old browser on another site", &[("origin", "https://evil.test")], false),
    ("a sandboxed frame or a data URL", &[("origin", "null"), ("sec-fetch-site", "cross-site")], false),
    ("no origin from a sandbox, with our address", &[("origin", "null"), ("referer", FRONTEND)], false),
    ("another port", &[("origin", "https://app.companion.test:8443")], false),
    ("another scheme", &[("origin", "http://app.companion.test")], false),
    (
        "a neighbour of the same site",
        &[("origin", "https://blog.companion.test"), ("sec-fetch-site", "same-site")],
        false,
    ),
    ("a longer name", &[("origin", "https://app.companion.test.evil.test")], false),
    ("our name as a user", &[("origin", "https://app.companion.test@evil.test")], false),
    ("an empty origin", &[("origin", "")], false),
    ("two origins in one", &[("origin", "https://app.companion.test https://evil.test")], false),
    ("another site that says its address", &[("referer", "https://evil.test/https://app.companion.test")], false),
    ("an address that is none", &[("referer", "app.companion.test")], false),
    ("a browser that hides where it is", &[("sec-fetch-site", "cross-site")], false),
    ("a browser that hides it, of the same site", &[("sec-fetch-site", "same-site")], false),
    ("a browser that hides it, on our page", &[("sec-fetch-site", "same-origin")], false),
    ("a page that was typed in", &[("sec-fetch-site", "none")], false),
    ("another site, with a token of nobody", &[("origin", "https://evil.test"), ("authorization", "Bearer x")], false),
];

#[actix_web::test]
async fn a_cookie_changes_something_for_our_own_pages_only() {
    let app = TestApp::start().await;
    for (caller, fields, may) in CALLERS {
        // Sign-in has a budget.
        app.clock.advance(chrono::Duration::seconds(10));
        let mut alice = app.signed_in(ALICE).await;
        let with = |mut request: reqwest::RequestBuilder| {
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            request
        };
        for (method, path) in [(Method::POST, "/pairing/device/code"), (Method::DELETE, "/credentials/push")] {
            let request = with(alice.request(method, path));
            let answer = alice.send(request).await;
            match may {
                true => assert_ne!(answer.status, 403, "{caller}: {}", answer.text()),
                false => drop(answer.expect_problem(403, "cross_site_request")),
            }
        }
        // Reading changes nothing, and without a cookie there is nothing to abuse.
        let request = with(alice.request(Method::GET, "/me"));
        assert_eq!(alice.send(request).await.status, 200, "{caller}");
        let mut visitor = app.browser();
        let request = with(visitor.request(Method::POST, "/pairing/device/code"));
        visitor.send(request).await.expect_problem(401, "unauthenticated");
        let request = with(alice.request(Method::POST, "/auth/signout"));
        assert_eq!(alice.send(request).await.status, if may { 204 } else { 403 }, "{caller}");
    }
}

#[actix_web::test]
async fn a_device_token_may_come_from_anywhere() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let helper = app.paired(&mut alice).await;
    let token = format!("Bearer {}", helper.token);
    // No browser adds it by itself.
    for mut browser in [app.browser(), alice.clone()] {
        let request = browser.request(Method::POST, "/relay/token").header("origin", "https://overlay.test");
        assert_eq!(browser.send(request.header(AUTHORIZATION, &token)).await.status, 200);
    }
    // Where the cookie counts, the token beside it changes nothing.
    let request = alice.request(Method::POST, "/pairing/device/code").header("origin", "https://overlay.test");
    alice.send(request.header(AUTHORIZATION, &token)).await.expect_problem(403, "cross_site_request");
}

#[actix_web::test]
async fn an_admin_is_not_attacked_beside_a_token_that_is_none() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let mut ada = app.signed_in(ADA).await;
    for authorization in ["Bearer x", "Bearer ", "bearer 00", "Basic eDp5"] {
        let forged = ada
            .request(Method::POST, "/admin/users/x/sign-out")
            .header("origin", "https://evil.test")
            .header(AUTHORIZATION, authorization);
        ada.send(forged).await.expect_problem(403, "cross_site_request");
    }
}

#[actix_web::test]
async fn scripts_of_exactly_two_origins_may_read_with_cookies() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    for (origin, may) in [
        (FRONTEND, true),
        (ADMIN, true),
        (BASE, false),
        ("https://evil.test", false),
        ("https://app.companion.test:8443", false),
        ("http://app.companion.test", false),
        ("https://app.companion.test.evil.test", false),
        ("null", false),
    ] {
        let simple = alice.request(Method::GET, "/me").header("origin", origin);
        let answer = alice.send(simple).await;
        assert_eq!(answer.header("access-control-allow-origin"), may.then_some(origin), "{origin}");
        assert!(answer.header("vary").is_some_and(|vary| vary.to_ascii_lowercase().contains("origin")));
        if may {
            assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
            let exposed = answer.header("access-control-expose-headers").unwrap().to_ascii_lowercase();
            for field in
                ["x-request-id", "ratelimit", "ratelimit-policy", "retry-after", "idempotency-replayed", "etag"]
            {
                assert!(exposed.split(',').any(|exposed| exposed.trim() == field), "{field}: {exposed}");
            }
        }
        for (method, fields, known) in [
            ("POST", "content-type, idempotency-key, traceparent, x-request-id", true),
            ("PUT", "content-type, if-match", true),
            ("DELETE", "", true),
            ("PATCH", "authorization", true),
            ("TRACE", "", false),
            ("POST", "x-unknown", false),
        ] {
            let mut preflight = alice
                .request(Method::OPTIONS, "/paired-servers")
                .header("origin", origin)
                .header("access-control-request-method", method);
            if !fields.is_empty() {
                preflight = preflight.header("access-control-request-headers", fields);
            }
            let answer = alice.send(preflight).await;
            let allowed = answer.status == 200 && answer.header("access-control-allow-origin") == Some(origin);
            assert_eq!(allowed, may && known, "{origin} {method} {fields}: {}", answer.status);
        }
    }
}

/// Answer to a page of another origin: the status, who may read it, and whether with cookies.
async fn foreign(browser: &mut Browser, method: Method, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let mut request = browser.request(method, path).header("origin", "https://overlay.test");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let answer = browser.send(request).await;
    let text = |name| answer.header(name).unwrap_or_default().to_owned();
    (answer.status, text("access-control-allow-origin"), text("access-control-allow-credentials"))
}

#[actix_web::test]
async fn pages_of_other_origins_may_call_with_a_token_and_never_with_a_cookie() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let helper = app.paired(&mut alice).await;
    let token = format!("Bearer {}", helper.token);
    let anybody = |status: u16| (status, "*".to_owned(), String::new());
    let unlisted = |status: u16| (status, String::new(), String::new());
    let preflight =
        |method, headers| [("access-control-request-method", method), ("access-control-request-headers", headers)];
    for (path, method, headers, expected) in [
        ("/relay/token", "POST", "authorization", anybody(200)),
        ("/relay/token", "POST", "content-type, AUTHORIZATION", anybody(200)),
        ("/credentials/push", "PUT", "authorization,content-type", anybody(200)),
        // Without a token there is nothing that such a page may do.
        ("/relay/token", "POST", "content-type", unlisted(400)),
        ("/relay/token", "POST", "", unlisted(400)),
        // Other methods, and routes that take no token.
        ("/relay/token", "DELETE", "authorization", unlisted(400)),
        ("/credentials/push", "DELETE", "authorization", unlisted(400)),
        ("/me", "GET", "authorization", unlisted(400)),
        ("/pairing/device/code", "POST", "authorization", unlisted(400)),
        ("/admin/users", "GET", "authorization", unlisted(400)),
        ("/nothing", "GET", "authorization", unlisted(400)),
    ] {
        let answer = foreign(&mut alice, Method::OPTIONS, path, &preflight(method, headers)).await;
        assert_eq!(answer, expected, "{path} {method} {headers}");
    }
    let post = async |browser: &mut Browser, path: &str, token: &[(&str, &str)]| {
        foreign(browser, Method::POST, path, token).await
    };
    let mut page = app.browser();
    let bearer = [("authorization", token.as_str())];
    let dead = [("authorization", "Bearer 00")];
    assert_eq!(post(&mut page, "/relay/token", &bearer).await, anybody(200));
    assert_eq!(post(&mut page, "/relay/token", &dead).await, anybody(401));
    assert_eq!(post(&mut page, "/relay/token", &[]).await, unlisted(401));
    // The cookie is not looked at where a token is, and no page may read what came with it.
    assert_eq!(post(&mut alice, "/relay/token", &bearer).await, anybody(200));
    assert_eq!(post(&mut alice, "/relay/token", &dead).await, anybody(401));
    assert_eq!(post(&mut alice, "/relay/token", &[]).await, unlisted(403));
    assert_eq!(post(&mut alice, "/pairing/device/code", &bearer).await, unlisted(403));
    assert_eq!(foreign(&mut alice, Method::GET, "/me", &bearer).await, unlisted(200));
    assert_eq!(foreign(&mut page, Method::GET, "/me", &bearer).await, unlisted(401));
    // Our own pages are answered as before, also with a token.
    let own = alice.request(Method::POST, "/relay/token").header("origin", FRONTEND).header(AUTHORIZATION, &token);
    let answer = alice.send(own).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some(FRONTEND));
    assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
}

#[actix_web::test]
async fn a_socket_opens_for_our_pages_and_for_what_is_no_browser() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut helper = app.paired(&mut alice).await;
    let token = alice.post("/relay/token", None).await.json()["token"].as_str().unwrap().to_owned();
    for (origin, status) in [
        (None, 101),
        (Some(FRONTEND), 101),
        (Some(ADMIN), 101),
        (Some(BASE), 101),
        (Some("https://evil.test"), 403),
        (Some("null"), 403),
        (Some("https://app.companion.test:8443"), 403),
        (Some("http://app.companion.test"), 403),
        (Some(""), 403),
    ] {
        let origin_line = origin.map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
        assert_eq!(handshake(app.relay, &token, &origin_line).await, status, "{origin:?}");
        // No cookie minted this one: its page was given a token.
        let minted = helper.send(helper.request(Method::POST, "/relay/token")).await.json();
        let minted = minted["token"].as_str().unwrap();
        assert_eq!(handshake(app.relay, minted, &origin_line).await, 101, "{origin:?}");
        assert_eq!(handshake(app.relay, "none", &origin_line).await, 401, "{origin:?}");
    }
}

/// The status of a handshake with this line in its head.
async fn handshake(relay: SocketAddr, token: &str, line: &str) -> u16 {
    let mut stream = TcpStream::connect(relay).await.unwrap();
    let head = format!(
        "GET /v1?token={token} HTTP/1.1\r\nHost: {relay}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{line}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = String::new();
    timeout(PATIENCE, BufReader::new(stream).read_line(&mut first)).await.unwrap().unwrap();
    first.split(' ').nth(1).unwrap().parse().unwrap()
}
