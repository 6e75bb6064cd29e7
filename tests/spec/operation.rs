//! Questions of operators to a running service: whether it is ready, how it is, and its metrics by token.

use std::{fs, future::pending, net::SocketAddr};

use actix_web::{App, HttpResponse, HttpServer, rt, web};
use chrono::TimeDelta;
use companion::{
    api::context::ApiContext,
    clock::Clock,
    db::engine::{error::DbError, pool::Db},
    server::Server,
};
use diesel::connection::SimpleConnection as _;
use reqwest::{
    Method,
    header::{ACCEPT, AUTHORIZATION},
};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{
    app::{TestApp, with_flags},
    binary,
    browser::Browser,
    game::{self, ALICE, pair},
    provider::{Mood, Provider},
};

/// A service with its inside at hand.
struct Opened {
    clock: Clock,
    context: web::Data<ApiContext>,
    browser: Browser,
    _provider: Provider,
    _directory: TempDir,
}

impl Opened {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let provider = Provider::start();
        let flags = [
            format!("--data-dir={}", directory.path().display()),
            format!("--identity-login-url={}", provider.endpoint()),
        ];
        let more =
            ["--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0", "--workers=1", "--push-address=127.0.0.1:9"];
        let flags: Vec<String> = with_flags(&flags, &more).into_iter().map(str::to_owned).collect();
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let server = Server::build(binary::config(&flags), clock.clone()).unwrap();
        let (context, address): (_, SocketAddr) = (server.context().clone(), server.api_addr());
        rt::spawn(server.run_until_stopped(pending()));
        Self {
            clock,
            context,
            browser: Browser::new(binary::http(), address),
            _provider: provider,
            _directory: directory,
        }
    }

    /// Lets no table of the database grow, or lets them again.
    async fn set_full(&self, full: bool) {
        let execute = |statement: &'static str| {
            self.context.pool.write(move |db: &mut Db| -> Result<_, DbError> {
                let Db::Sqlite(db) = db else { panic!("it is an SQLite file") };
                Ok(db.batch_execute(statement)?)
            })
        };
        if !full {
            return execute("PRAGMA max_page_count = 1000000").await.unwrap();
        }
        execute("CREATE TABLE filler (bytes BLOB)").await.unwrap();
        // The limit never falls below the present pages; free space within them is used up first.
        execute("PRAGMA max_page_count = 1").await.unwrap();
        while execute("INSERT INTO filler VALUES (zeroblob(2000))").await.is_ok() {}
    }
}

#[actix_web::test]
async fn a_full_database_is_noticed_and_so_is_its_end() {
    let mut opened = Opened::start();
    // Stored links and sessions are loaded at first.
    while opened.browser.get("/ready").await.status != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    opened.browser.get_until("/health/db", |answer| answer["ok"] == true).await;
    opened.set_full(true).await;
    assert_eq!(opened.browser.get("/ready").await.status, 200, "one look counts for a moment");
    opened.clock.advance(TimeDelta::seconds(5));
    let problem = opened.browser.get("/ready").await.expect_problem(503, "not_ready");
    assert_eq!(problem["errors"], json!([{ "path": "database", "message": "takes nothing that is written" }]));
    opened.browser.get("/health/db").await.expect_problem(503, "unavailable");
    let status = opened.browser.get("/status").await.json();
    assert_eq!((&status["state"], &status["database"]), (&json!("degraded"), &json!(false)));
    let metrics = opened.browser.get("/metrics").await;
    assert_eq!(metrics.status, 200, "also then");
    assert_eq!(opened.browser.get("/health").await.status, 200);

    opened.set_full(false).await;
    opened.clock.advance(TimeDelta::seconds(5));
    for path in ["/ready", "/health/db"] {
        assert_eq!(opened.browser.get(path).await.status, 200, "{path}");
    }
    assert_eq!(opened.browser.get("/status").await.json()["state"], "ok");
}

#[actix_web::test]
async fn alarms_that_nothing_keeps_are_counted() {
    let app = TestApp::start_beside_games().await;
    let (game, mut alice) = (game::still(&app).await, app.signed_in(ALICE).await);
    let server = pair(&mut alice, &game).await;
    let drill = format!("/paired-servers/{server}/drill");
    assert_eq!(alice.post(&drill, None).await.status, 200);
    let count = async || {
        let metrics = app.browser().get("/metrics").await.text();
        let lines = metrics.lines().find_map(|line| line.strip_prefix("companion_alarms_kept_nowhere_total "));
        lines.expect("it is 0 at first").parse::<u64>().unwrap()
    };
    let before = count().await;
    // The database takes nothing, and where the journal would be written again is something else.
    let _lock = app.freeze();
    fs::remove_file(app.directory().join("alarms.journal")).unwrap();
    fs::create_dir(app.directory().join("alarms.journal.new")).unwrap();
    alice.post(&drill, None).await.expect_problem(503, "unavailable");
    assert!(count().await > before);

    fs::remove_dir(app.directory().join("alarms.journal.new")).unwrap();
    assert_eq!(alice.post(&drill, None).await.status, 200, "the journal keeps it");
}

#[actix_web::test]
async fn each_neighbour_is_counted_before_it_is_asked() {
    let app = TestApp::start().await;
    let metrics = app.browser().get("/metrics").await.text();
    for neighbour in ["sign_in", "profiles", "payments", "player_stats", "chat", "images"] {
        for outcome in ["answered", "refused", "failed"] {
            let series =
                format!("companion_neighbour_requests_total{{neighbour=\"{neighbour}\",outcome=\"{outcome}\"}} ");
            assert!(metrics.lines().any(|line| line.starts_with(&series)), "{series}");
        }
    }
    app.stop().await;
}

#[actix_web::test]
async fn a_clock_that_differs_from_the_identity_providers_is_a_warning() {
    // A fixed time of long ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = || async { HttpResponse::Ok().insert_header(("date", "Sat, 21 Nov 2020 12:00:00 GMT")).finish() };
    let server = HttpServer::new(move || App::new().default_service(web::to(answer))).workers(1).disable_signals();
    rt::spawn(server.listen(listener).unwrap().run());
    let app = TestApp::start_with(&[&format!("--identity-login-url=http://{address}/login")]).await;
    let ready = app.browser().get_until("/ready", |ready| ready["warnings"][0]["path"] == "clock").await;
    let message = ready["warnings"][0]["message"].as_str().unwrap();
    assert!(message.contains("ahead of that of the identity provider: no user can sign in"), "{message}");
    let status = app.browser().get("/status").await.json();
    assert_eq!((&status["state"], &status["signIn"]), (&json!("degraded"), &json!(false)));
    app.stop().await;
}

#[actix_web::test]
async fn the_status_is_a_page_for_browsers_and_json_for_programs() {
    let app = TestApp::start().await;
    let mut browser = app.browser();
    let answer = browser.get("/status").await;
    let status = answer.json();
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!((&status["state"], &status["sockets"]), (&json!("ok"), &json!(0)));
    assert_eq!(
        (&status["version"], &status["startedAt"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!("2026-11-21T12:00:00.000Z"))
    );
    assert_eq!((&status["links"]["connected"], &status["push"]["connected"]), (&json!(0), &json!(0)));
    assert_eq!(status["lastAlarmDeliveredAt"], json!(null));
    let commit = status["commit"].as_str().unwrap();
    assert!(commit == "unknown" || commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{commit}");

    let request = browser.request(Method::GET, "/status").header(ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8");
    let page = browser.send(request).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("refresh"), Some("15"));
    assert!(page.header("vary").unwrap().starts_with("accept"), "{:?}", page.header("vary"));
    let text = page.text();
    assert!(text.contains("Everything works") && text.contains(commit) && !text.contains("<script"), "{text}");
}

#[actix_web::test]
async fn with_a_token_metrics_are_for_its_bearer() {
    const TOKEN: &str = "0123456789abcdef0123";
    let flag = format!("--metrics-token={TOKEN}");
    let app = TestApp::start_with(&[&flag]).await;
    let mut browser = app.browser();
    for (value, forwarded, expected) in [
        (format!("Bearer {TOKEN}"), false, 200),
        (format!("Bearer {TOKEN}"), true, 200),
        (format!("Bearer {TOKEN}0"), true, 401),
        (TOKEN.to_owned(), true, 401),
        (String::new(), false, 401),
        (String::new(), true, 401),
    ] {
        let mut request = browser.request(Method::GET, "/metrics").header(AUTHORIZATION, &value);
        if forwarded {
            request = request.header("x-forwarded-for", "198.51.100.1");
        }
        let answer = browser.send(request).await;
        assert_eq!(answer.status, expected, "{value:?}, forwarded: {forwarded}");
        assert_eq!(answer.text().contains("companion_build_info"), expected == 200);
    }
}

#[actix_web::test]
async fn production_has_no_metrics_without_a_token() {
    let key = "--creds-encryption-key=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let secrets = ["--session-secret=0123456789abcdefghijklmnopqrstuv", "--session-salt=0123456789abcdef", key];
    let app = TestApp::start_with(
        &[&["--app-env=production", "--base-url=https://api.companion.test"][..], &secrets].concat(),
    )
    .await;
    let answer = app.browser().get("/metrics").await;
    assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("not_found")));
}

/// A network that asks through a proxy; `tests/spec_log.rs` looks for it.
const CLIENT: &str = "203.0.113.77";

#[actix_web::test]
async fn answers_and_sign_ins_are_counted_by_their_outcome() {
    const SERIES: [&str; 9] = [
        r#"companion_http_requests_total{class="account",status="2xx"}"#,
        r#"companion_http_requests_total{class="account",status="4xx"}"#,
        r#"companion_http_requests_total{class="sign-in",status="3xx"}"#,
        r#"companion_http_requests_total{class="sign-in",status="5xx"}"#,
        r#"companion_http_request_seconds_count{class="account"}"#,
        r#"companion_http_request_seconds_count{class="sign-in"}"#,
        r#"companion_sign_ins_total{outcome="signed_in"}"#,
        r#"companion_sign_ins_total{outcome="rejected"}"#,
        r#"companion_sign_ins_total{outcome="failed"}"#,
    ];
    let app = TestApp::start_with(&["--trusted-proxies=127.0.0.1"]).await;
    // Other tests of this process count, too.
    let counted = async || {
        let metrics = app.browser().get("/metrics").await.text();
        let value = |series: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {series}")).parse::<f64>().unwrap()
        };
        SERIES.map(value)
    };
    let before = counted().await;

    let mut alice = app.browser();
    let login = alice.get("/auth/platform").await;
    let assertion = app.provider.confirm(login.location(), ALICE, app.clock.now());
    assert_eq!(alice.get(&assertion.path()).await.status, 302);
    assert_eq!(alice.get(&assertion.path()).await.status, 400, "it was used before");
    let asked = alice.request(Method::GET, "/me").header("x-forwarded-for", CLIENT);
    assert_eq!(alice.send(asked).await.status, 200);
    assert_eq!(app.browser().get("/me").await.status, 401);
    app.provider.set_mood(Mood::Status(500)).await;
    assert_eq!(app.sign_in(&mut app.browser(), ALICE).await.status, 503);

    let after = counted().await;
    for ((series, before), after) in SERIES.iter().zip(before).zip(after) {
        assert!(after > before, "{series}: {before}, then {after}");
    }
    app.stop().await;
}
