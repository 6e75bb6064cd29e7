//! The doctor: what it says of a service that is well, and of one that is not.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::Output,
};

use actix_web::web;
use tempfile::TempDir;

use crate::harness::{app::TestApp, binary::companion, database::Postgres};

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
