//! The doctor: what it says of a service that is well, and of one that is not.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::Output,
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, rt, web};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{app::TestApp, binary::companion, chat_platform, database::Postgres};

async fn run(arguments: Vec<String>) -> (Option<i32>, String) {
    let run = move || companion(&std::env::temp_dir()).args(arguments).output().unwrap();
    let Output { status, stdout, stderr } = web::block(run).await.unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

/// The lines about this.
fn lines<'a>(text: &'a str, subject: &str) -> Vec<&'a str> {
    let lines: Vec<&str> =
        text.lines().filter(|line| line.get(6..).is_some_and(|rest| rest.starts_with(subject))).collect();
    assert!(!lines.is_empty(), "{subject}: {text}");
    lines
}

fn flags(app: &TestApp, database_url: &str, push: &str) -> Vec<String> {
    vec![
        format!("--data-dir={}", app.directory().display()),
        format!("--database-url={database_url}"),
        format!("--api-listen={}", app.address),
        format!("--relay-listen={}", app.relay),
        format!("--identity-login-url={}", app.provider.endpoint()),
        format!("--push-address={push}"),
        "--connections-per-address=8".into(),
    ]
}

#[actix_web::test]
async fn a_service_that_runs_is_found_well_and_a_neighbour_that_is_away_is_named_with_what_to_do() {
    let postgres = Postgres::create();
    for database in [None, postgres.as_ref().map(Postgres::url)].into_iter().take(1 + usize::from(postgres.is_some())) {
        let app = match &database {
            Some(url) => TestApp::start_on(url.clone(), &[]).await,
            None => TestApp::start().await,
        };
        fs::set_permissions(app.directory(), Permissions::from_mode(0o700)).unwrap();
        let url = database.unwrap_or_else(|| format!("sqlite:{}", app.directory().join("test.db").display()));
        let (code, text) = run([vec!["doctor".into()], flags(&app, &url, "127.0.0.1:9")].concat()).await;
        assert_eq!(code, Some(1), "{text}");
        for subject in ["settings", "data dir", "open files", "database", "sign-in", "port"] {
            assert!(lines(&text, subject).iter().all(|line| line.starts_with("ok ")), "{subject}: {text}");
        }
        assert!(lines(&text, "data dir")[0].contains("a companion serves from it"), "{text}");
        let in_use = lines(&text, "in use");
        assert!(in_use.len() == 1 && in_use[0].contains("MiB of memory") && in_use[0].contains("cores"), "{text}");
        assert_eq!(lines(&text, "port").iter().filter(|line| line.contains("a companion answers")).count(), 2);
        let push = lines(&text, "push");
        assert!(push[0].starts_with("FAIL") && push[0].contains("127.0.0.1:9"), "{text}");

        let (code, text) = run([vec!["health".into()], flags(&app, &url, "127.0.0.1:9")].concat()).await;
        assert_eq!(code, Some(0), "{text}");
        let stopped = flags(&app, &url, "127.0.0.1:9");
        app.stop().await;
        let (code, text) = run([vec!["health".into()], stopped].concat()).await;
        assert!(code == Some(1) && text.contains("API_LISTEN"), "{text}");
    }
}

#[actix_web::test]
async fn what_is_broken_is_named_and_no_password_is() {
    let directory = TempDir::new().unwrap();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    std::thread::spawn(move || while other.accept().is_ok() {});
    let data_dir = directory.path().join("data");
    let (code, text) = run(vec![
        "doctor".into(),
        format!("--data-dir={}", data_dir.display()),
        "--database-url=postgres://u:hunter2@127.0.0.1:1/none".into(),
        format!("--api-listen={address}"),
        "--relay-listen=127.0.0.1:0".into(),
        "--push-address=127.0.0.1:9".into(),
        "--identity-login-url=http://no.such.name.invalid/login".into(),
        "--player-stats-url=http://127.0.0.1:9".into(),
        "--player-stats-token=hunter2".into(),
        "--registration-api-key=hunter2".into(),
        "--registration-google-url=http://127.0.0.1:9".into(),
        "--registration-installations-url=http://127.0.0.1:9".into(),
        "--registration-expo-url=http://127.0.0.1:9".into(),
        "--registration-game-url=http://no.such.name.invalid".into(),
    ])
    .await;
    assert_eq!(code, Some(1), "{text}");
    for neighbour in ["GOOGLE", "INSTALLATIONS", "EXPO", "GAME"] {
        let variable = format!("REGISTRATION_{neighbour}_URL");
        let is_named = |line: &&str| line.starts_with("FAIL") && line.contains(&variable);
        assert!(lines(&text, "registration ").iter().any(is_named), "{variable}: {text}");
    }
    assert!(lines(&text, "registration key")[0].starts_with("warn"), "{text}");
    for subject in ["database", "port", "sign-in", "player stats", "push"] {
        assert!(lines(&text, subject)[0].starts_with("FAIL"), "{subject}: {text}");
    }
    assert!(lines(&text, "data dir")[0].starts_with("warn"), "{text}");
    assert!(lines(&text, "clock")[0].starts_with("warn"), "{text}");
    assert!(lines(&text, "sign-in")[0].contains("IDENTITY_LOGIN_URL"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!data_dir.exists());
}

#[actix_web::test]
async fn each_fault_of_the_settings_is_a_line() {
    let (code, text) = run(["doctor", "--workers=0", "--app-env=production"].map(str::to_owned).to_vec()).await;
    assert_eq!(code, Some(1));
    for variable in ["WORKERS", "SESSION_SECRET", "BASE_URL"] {
        assert!(
            lines(&text, "settings").iter().any(|line| line.starts_with("FAIL") && line.contains(variable)),
            "{text}"
        );
    }
}

/// Answers everything with this status, and JSON.
async fn answering(status: u16) -> String {
    let server = actix_web::HttpServer::new(move || {
        actix_web::App::new().default_service(web::to(move || async move {
            let status = actix_web::http::StatusCode::from_u16(status).unwrap();
            actix_web::HttpResponse::build(status).json(serde_json::json!({ "error": { "code": "invalid_api_key" } }))
        }))
    });
    let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
    let address = server.addrs()[0];
    actix_web::rt::spawn(server.run());
    format!("http://{address}")
}

#[actix_web::test]
async fn keys_that_no_neighbour_takes_are_named_with_what_to_do_and_not_shown() {
    let url = answering(401).await;
    let directory = TempDir::new().unwrap();
    let (code, text) = run(vec![
        "doctor".into(),
        format!("--data-dir={}", directory.path().display()),
        "--api-listen=127.0.0.1:0".into(),
        "--relay-listen=127.0.0.1:0".into(),
        "--push-address=127.0.0.1:9".into(),
        format!("--identity-login-url={url}"),
        format!("--platform-api-url={url}"),
        "--platform-api-key=hunter2".into(),
        format!("--player-stats-url={url}"),
        "--player-stats-token=hunter2".into(),
        format!("--payment-api-url={url}"),
        "--payment-secret-key=sk_test_hunter2".into(),
        "--payment-webhook-secret=whsec_hunter2".into(),
        "--payment-price-scout=price_1".into(),
        "--payment-price-operator=price_2".into(),
        "--payment-price-overlord=price_3".into(),
        format!("--chat-api-url={url}"),
        "--chat-bot-token=hunter2".into(),
        "--chat-application-id=1".into(),
        format!("--chat-public-key={}", "ab".repeat(32)),
        "--images-s3-bucket=icons".into(),
        "--registration-api-key=hunter2".into(),
        format!("--registration-google-url={url}"),
        format!("--registration-installations-url={url}"),
        format!("--registration-expo-url={url}"),
        format!("--registration-game-url={url}"),
        format!("--images-s3-endpoint={url}"),
        "--images-s3-access-key-id=key".into(),
        "--images-s3-secret-access-key=hunter2".into(),
        format!("--base-url={url}"),
    ])
    .await;
    assert_eq!(code, Some(1), "{text}");
    for (subject, variable) in [
        ("payment key", "PAYMENT_SECRET_KEY"),
        ("bot token", "CHAT_BOT_TOKEN"),
        ("profile key", "PLATFORM_API_KEY"),
        ("stats token", "PLAYER_STATS_TOKEN"),
        ("registration key", "REGISTRATION_API_KEY"),
        ("image bucket", "IMAGES_S3_BUCKET"),
    ] {
        let line = lines(&text, subject)[0];
        assert!(line.starts_with("FAIL") && line.contains(variable), "{subject}: {text}");
    }
    assert!(lines(&text, "public URL")[0].contains("BASE_URL"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[actix_web::test]
async fn a_key_of_registrations_is_tried_with_a_request_that_registers_nothing() {
    let url = answering(400).await;
    let directory = TempDir::new().unwrap();
    let (_, text) = run(vec![
        "doctor".into(),
        format!("--data-dir={}", directory.path().display()),
        "--api-listen=127.0.0.1:0".into(),
        "--relay-listen=127.0.0.1:0".into(),
        "--push-address=127.0.0.1:9".into(),
        format!("--identity-login-url={url}"),
        "--registration-api-key=hunter2".into(),
        format!("--registration-google-url={url}"),
        format!("--registration-installations-url={url}"),
        format!("--registration-expo-url={url}"),
        format!("--registration-game-url={url}"),
    ])
    .await;
    let key = lines(&text, "registration key")[0];
    assert!(key.starts_with("ok ") && key.contains("REGISTRATION_API_KEY is taken"), "{text}");
    assert!(lines(&text, "registration ").iter().all(|line| line.starts_with("ok ")), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[actix_web::test]
async fn a_proxy_that_is_not_named_is_noticed() {
    let app = TestApp::start().await;
    let status = async || app.browser().get("/status").await.json()["unnamedProxy"].clone();
    assert_eq!(status().await, false);
    let request = app.browser().request(reqwest::Method::GET, "/client-config");
    let request = request.header("x-forwarded-for", "198.51.100.1");
    assert_eq!(app.browser().send(request).await.status, 200);
    app.clock.advance(chrono::TimeDelta::seconds(6));
    assert_eq!(status().await, true);
    let url = format!("sqlite:{}", app.directory().join("test.db").display());
    let (_, text) = run([vec!["doctor".into()], flags(&app, &url, "127.0.0.1:9")].concat()).await;
    assert!(
        lines(&text, "port").iter().any(|line| line.starts_with("warn") && line.contains("TRUSTED_PROXIES")),
        "{text}"
    );
}

#[actix_web::test]
async fn a_fault_of_the_settings_does_not_hide_the_database() {
    let directory = TempDir::new().unwrap();
    let data_dir = format!("--data-dir={}", directory.path().display());
    let (code, text) = run(vec!["doctor".into(), "--workers=0".into(), data_dir]).await;
    assert_eq!(code, Some(1));
    assert!(lines(&text, "database")[0].contains("does not exist"), "{text}");
    assert!(lines(&text, "disk")[0].starts_with("ok") || text.contains("MiB are free"), "{text}");
}

/// Flags of a service that has no other neighbours than these.
fn beside(directory: &TempDir, neighbours: Vec<String>) -> Vec<String> {
    let own = vec![
        "doctor".into(),
        format!("--data-dir={}", directory.path().display()),
        "--api-listen=127.0.0.1:0".into(),
        "--relay-listen=127.0.0.1:0".into(),
        "--push-address=127.0.0.1:9".into(),
        "--identity-login-url=http://127.0.0.1:9".into(),
    ];
    [own, neighbours].concat()
}

/// Prices of a payment provider that takes one key; the last one is archived.
async fn price(id: web::Path<String>, request: HttpRequest) -> HttpResponse {
    let sent = request.headers().get("authorization").and_then(|sent| sent.to_str().ok());
    if sent != Some("Bearer sk_test_taken") {
        return HttpResponse::Unauthorized().json(json!({ "error": { "code": "invalid_api_key" } }));
    }
    HttpResponse::Ok().json(json!({
        "id": *id, "object": "price", "active": *id != "price_3", "type": "recurring", "currency": "usd",
        "unit_amount": 499, "recurring": { "interval": "month", "interval_count": 1 },
    }))
}

#[actix_web::test]
async fn a_price_that_is_sold_is_distinguished_from_one_that_is_archived() {
    let provider = HttpServer::new(|| App::new().route("/v1/prices/{id}", web::get().to(price)));
    let provider = provider.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", provider.addrs()[0]);
    rt::spawn(provider.run());
    let directory = TempDir::new().unwrap();
    let neighbour = vec![
        format!("--payment-api-url={url}"),
        "--payment-secret-key=sk_test_taken".into(),
        "--payment-webhook-secret=whsec_taken".into(),
        "--payment-price-scout=price_1".into(),
        "--payment-price-operator=price_2".into(),
        "--payment-price-overlord=price_3".into(),
    ];
    let (_, text) = run(beside(&directory, neighbour)).await;
    let key = lines(&text, "payment key");
    assert!(key.iter().any(|line| line.starts_with("ok ") && line.contains("PAYMENT_SECRET_KEY is taken")), "{text}");
    let about = |variable: &str| {
        let named = |line: &&str| line.contains(&format!("{variable} ")) || line.contains(&format!("{variable}:"));
        lines(&text, "price").into_iter().find(named).unwrap_or_else(|| panic!("{variable}: {text}"))
    };
    for variable in ["PAYMENT_PRICE_SCOUT", "PAYMENT_PRICE_OPERATOR"] {
        let line = about(variable);
        assert!(line.starts_with("ok ") && line.contains("is sold for 4.99 usd"), "{line}");
    }
    let line = about("PAYMENT_PRICE_OVERLORD");
    assert!(line.starts_with("FAIL") && line.contains("price_3 is archived"), "{line}");
    assert!(!text.contains("sk_test_taken") && !text.contains("whsec_taken"), "{text}");
}

#[actix_web::test]
async fn a_bot_token_that_is_taken_is_found_well_and_one_of_another_application_is_not() {
    let platform = chat_platform::platform().await;
    let directory = TempDir::new().unwrap();
    let flags = chat_platform::flags(&platform);
    let (_, text) = run(beside(&directory, flags.clone())).await;
    let line = lines(&text, "bot token")[0];
    assert!(line.starts_with("ok ") && line.contains("CHAT_BOT_TOKEN is taken"), "{line}");
    let is_other = |flag: &String| !flag.starts_with("--chat-application-id=");
    let mut flags: Vec<String> = flags.into_iter().filter(is_other).collect();
    flags.push("--chat-application-id=1".into());
    let (_, text) = run(beside(&directory, flags)).await;
    let line = lines(&text, "bot token")[0];
    assert!(line.starts_with("FAIL") && line.contains("CHAT_APPLICATION_ID"), "{line}");
}

/// `tests/peers/images` runs it beside an S3.
#[actix_web::test]
async fn a_bucket_that_can_be_written_is_found_well_and_left_empty() {
    let Ok(s3) = std::env::var("TEST_S3_URL") else {
        eprintln!("SKIPPED a bucket that can be written: TEST_S3_URL is not set");
        return;
    };
    let bucket = format!("tried-out-{}", std::process::id());
    companion::crypto::install();
    let http = reqwest::Client::new();
    let made = http.put(format!("{s3}/{bucket}")).send().await.unwrap();
    assert!(made.status().is_success(), "{made:?}");
    let directory = TempDir::new().unwrap();
    let neighbour = vec![
        format!("--images-s3-endpoint={s3}"),
        format!("--images-s3-bucket={bucket}"),
        "--images-s3-access-key-id=key-of-pictures".into(),
        "--images-s3-secret-access-key=secret-of-pictures".into(),
    ];
    let (_, text) = run(beside(&directory, neighbour)).await;
    let line = lines(&text, "image bucket")[0];
    assert!(line.starts_with("ok ") && line.contains("can be written and deleted from"), "{line}");
    let left = http.get(format!("{s3}/{bucket}?list-type=2")).send().await.unwrap().text().await.unwrap();
    assert!(!left.contains("<Key>"), "{left}");
}
