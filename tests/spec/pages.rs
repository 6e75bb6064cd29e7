//! The bundled pages, as a browser gets them.

use std::fs;

use reqwest::{Method, header};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    app::{BASE, FRONTEND, TestApp},
    browser::Answer,
    game::ALICE,
    relay_client,
};

#[actix_web::test]
async fn the_dashboard_is_at_the_root_and_its_files_are_kept_for_good() {
    let own = format!("--frontend-url={BASE}");
    let app = TestApp::start_with(&[&own]).await;
    let mut browser = app.signed_in(ALICE).await;
    let page = browser.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.header("cache-control"), Some("private, no-store"), "it is the user's own");
    let policy = page.header("content-security-policy").unwrap().to_owned();
    for part in ["default-src 'none'", "script-src 'self';", "; trusted-types service-worker", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(policy.ends_with("trusted-types service-worker"), "one policy, once, and no default: {policy}");
    let overlay = browser.get("/overlay").await.header("content-security-policy").unwrap().to_owned();
    assert!(overlay.ends_with("trusted-types 'none'"), "{overlay}");
    assert!(!policy.contains("unsafe") && !policy.contains("http://*"), "{policy}");
    let invite = browser.get("/invite").await;
    let tag = invite.header("etag").unwrap().to_owned();
    let again = browser.request(Method::GET, "/invite").header(header::IF_NONE_MATCH, tag);
    assert_eq!(browser.send(again).await.status, 304);

    let config = browser.get("/client-config").await.json();
    let root = format!("/_/{}/", config["pages"].as_str().unwrap());
    let text = page.text();
    let files: Vec<String> =
        text.split('"').filter_map(|text| Some(root.clone() + text.split_once(&root)?.1)).collect();
    assert!(files.len() > 10, "{text}");
    for path in files {
        let plain = browser.get(&path).await;
        assert_eq!(plain.status, 200, "{path}");
        assert_eq!(plain.header("cache-control"), Some("public, max-age=31536000, immutable"), "{path}");
        let gzip = browser.request(Method::GET, &path).header(header::ACCEPT_ENCODING, "gzip");
        let gzip = browser.send(gzip).await;
        if gzip.header("content-encoding") == Some("gzip") {
            assert!(gzip.bytes().len() < plain.bytes().len(), "{path}");
        }
        assert_eq!(gzip.header("vary"), Some("accept-encoding"), "{path}");
    }
    for path in
        ["/_/0000000000000000/dashboard/main.js", &format!("{root}none.js"), &format!("{root}../dashboard.html"), "/_/"]
    {
        browser.get(path).await.expect_problem(404, "not_found");
    }
}

/// Bytes of the headers of an answer, as they are sent.
fn headers_of(answer: &Answer) -> usize {
    answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

#[actix_web::test]
async fn files_come_without_the_headers_of_calls() {
    let own = format!("--frontend-url={BASE}");
    let app = TestApp::start_with(&[&own]).await;
    let mut browser = app.browser();
    let root = format!("/_/{}/", browser.get("/client-config").await.json()["pages"].as_str().unwrap());
    for path in ["dashboard/main.js", "style/base.css", "icons/icon.svg"] {
        let request = browser.request(Method::GET, &format!("{root}{path}")).header(header::ORIGIN, BASE);
        let file = browser.send(request.header(header::ACCEPT_ENCODING, "gzip")).await;
        assert_eq!(file.status, 200, "{path}");
        let wanted = [
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "cross-origin"),
        ];
        for (name, value) in wanted {
            assert_eq!(file.header(name), Some(value), "{path} {name}");
        }
        assert!(file.header("x-request-id").is_some() && file.header("etag").is_some(), "{path}");
        assert!(headers_of(&file) < 500, "{path}: {} bytes, {:?}", headers_of(&file), file.headers);
    }
    let request = browser.request(Method::GET, &format!("{root}none.js")).header(header::ORIGIN, BASE);
    let refused = browser.send(request).await;
    for name in ["access-control-allow-origin", "ratelimit", "referrer-policy", "x-frame-options"] {
        assert!(refused.header(name).is_some(), "a refusal has all of them: {name}");
    }
}

#[actix_web::test]
async fn scripts_come_without_comments() {
    let own = format!("--frontend-url={BASE}");
    let app = TestApp::start_with(&[&own]).await;
    let mut browser = app.browser();
    let root = format!("/_/{}/", browser.get("/client-config").await.json()["pages"].as_str().unwrap());
    let (source, served) =
        (include_str!("../../src/web/files/api.js"), browser.get(&format!("{root}api.js")).await.text());
    let is_comment = |line: &&str| line.trim_start().starts_with("//") || line.trim_start().starts_with("/**");
    assert!(source.lines().any(|line| is_comment(&line)) && !served.lines().any(|line| is_comment(&line)));
    assert_eq!(source.lines().count(), served.lines().count(), "an error names the line of the source");
    assert!(browser.get(&format!("{root}icons/shapes.js")).await.text().starts_with("\n/*! From lucide"));
}

#[actix_web::test]
async fn the_worker_is_of_all_of_the_service_and_is_asked_for_each_time() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let worker = browser.get("/sw.js").await;
    assert_eq!((worker.status, worker.header("content-type")), (200, Some("text/javascript; charset=utf-8")));
    assert_eq!(worker.header("cache-control"), Some("public, no-cache"));
    let policy = worker.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; connect-src 'self';"), "{policy}");
    assert!(policy.ends_with("trusted-types 'none'") && !policy.contains("script-src"), "{policy}");
    let text = worker.text();
    assert!(!text.contains("\"fetch\"") && !text.contains("caches"), "nothing is cached by it");
    let again = browser.request(Method::GET, "/sw.js").header(header::IF_NONE_MATCH, worker.header("etag").unwrap());
    assert_eq!(browser.send(again).await.status, 304);
    let root = format!("/_/{}/", browser.get("/client-config").await.json()["pages"].as_str().unwrap());
    let icon = text.split("${ROOT}/").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    assert!(text.contains(&format!("\"{}\"", root.trim_end_matches('/'))), "{text}");
    assert_eq!(browser.get(&format!("{root}{icon}")).await.status, 200);
}

/// Answers to what the dashboard asks first, as they came within the page.
fn answers(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"answers\">").unwrap_or_else(|| panic!("{page}"));
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[actix_web::test]
async fn the_dashboard_comes_with_what_it_asks_first() {
    let own = format!("--frontend-url={BASE}");
    let app = TestApp::start_with(&[&own, "--allow-private-game-servers=true"]).await;
    let mut browser = app.signed_in(ALICE).await;
    let server = json!({
        "address": "127.0.0.1", "port": 1, "playerId": ALICE, "playerToken": "1", "name": "</script><b>"
    });
    let paired = browser.request(Method::POST, "/paired-servers").header(header::ORIGIN, BASE).json(&server);
    assert_eq!(browser.send(paired).await.status, 201);
    let page = browser.get("/").await.text();
    let known = answers(&page);
    assert_eq!(known["me"], browser.get("/me").await.json());
    assert_eq!(known["config"], browser.get("/client-config").await.json());
    assert_eq!(known["servers"][0]["name"], "</script><b>");
    // Its connection to the relay needs no question before it.
    let opening = relay_client::request(app.relay, known["relay"]["token"].as_str());
    relay_client::open(app.relay, opening).await.expect("a 101").0.ping().await;
    assert!(!page.contains("rel=\"preload\""), "nothing is asked twice: {page}");

    // A cookie whose session has ended: the page asks itself, and shows the way to sign in.
    let mut other = browser.clone();
    let left = other.request(Method::POST, "/auth/signout").header(header::ORIGIN, BASE);
    assert_eq!(other.send(left).await.status, 204);
    let page = browser.get("/").await.text();
    assert!(!page.contains("id=\"answers\"") && page.contains("rel=\"preload\""), "{page}");
}

#[actix_web::test]
async fn a_browser_without_a_session_learns_what_this_is_without_a_script() {
    let own = format!("--frontend-url={BASE}");
    let app = TestApp::start_with(&[&own]).await;
    let mut browser = app.browser();
    let landing = browser.get("/").await;
    assert!(landing.header("vary").is_some_and(|vary| vary.contains("cookie")));
    let text = landing.text();
    assert!(text.contains("/auth/platform\"") && !text.contains("<script") && !text.contains("did not"), "{text}");
    let cancelled = browser.get("/?signIn=cancelled").await.text();
    assert!(cancelled.contains("You did not sign in. Nothing was changed."), "{cancelled}");

    app.sign_in(&mut browser, ALICE).await;
    let tag = landing.header("etag").unwrap();
    let dashboard = browser.request(Method::GET, "/").header(header::IF_NONE_MATCH, tag);
    let dashboard = browser.send(dashboard).await;
    assert!(dashboard.status == 200 && dashboard.text().contains("dashboard/main.js"), "{}", dashboard.text());
    assert!(browser.get("/invite").await.text().contains("dashboard/main.js"));
}

#[actix_web::test]
async fn another_front_end_switches_the_dashboard_off_and_the_overlay_stays() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    assert!(browser.get("/").await.text().contains("This is the HTTP API"));
    let invite = browser.get("/invite").await;
    assert_eq!((invite.status, invite.location()), (302, &*format!("{FRONTEND}/invite")));
    let overlay = browser.get("/overlay?server=x&show=raid").await;
    assert!(overlay.status == 200 && overlay.text().contains("overlay/main.js"), "{}", overlay.text());
}

#[actix_web::test]
async fn a_directory_is_read_again_at_each_request() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("dashboard.html", "<p>{root}</p>");
    let flags = [format!("--frontend-url={BASE}"), format!("--web-dir={}", directory.path().display())];
    let app = TestApp::start_with(&flags.each_ref().map(String::as_str)).await;
    let mut browser = app.signed_in(ALICE).await;
    let first = browser.get("/").await.text();
    write("dashboard.html", "<p>new {root}</p>");
    let second = browser.get("/").await.text();
    assert!(first.starts_with("<p>/_/") && second.starts_with("<p>new /_/"), "{first} {second}");
    write("late.js", "export {};");
    assert_eq!(browser.get("/_/any/late.js").await.text(), "export {};");
    assert!(browser.get("/client-config").await.json()["pages"].is_null());
}
