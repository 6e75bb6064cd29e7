//! Stored secrets whose key is not configured: their users are not sent on errands, and nothing replaces them until the
//! operator says that the key is lost.

use std::{process::Command, sync::Arc};

use companion::{
    config::Database,
    crypto::{keys::Key32, random::Random, sealer::Sealer},
    db::{
        engine::pool::Pool,
        paired_servers,
        push_credentials::{self, Slot},
    },
    domain::ids::UserId,
    vault::SecretKind,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    app::{LINKS, TestApp},
    binary::companion,
    browser::{Answer, Browser},
    game::ALICE,
};

const BOB: &str = "76561198000000002";
const REPAIRED: &str = "The operator is repairing this; there is nothing for you to do.";

fn key(number: u8) -> Key32 {
    Key32::new([number; 32])
}

fn flags(number: u8) -> [String; 3] {
    let key = format!("--creds-encryption-key={}", key(number).to_base64());
    [key, LINKS.to_owned(), "--allow-private-game-servers=true".to_owned()]
}

async fn app_with(directory: &Arc<TempDir>, flags: &[String]) -> TestApp {
    let url = format!("sqlite:{}", directory.path().join("test.db").display());
    TestApp::start_in(directory.clone(), url, &flags.iter().map(String::as_str).collect::<Vec<_>>()).await
}

async fn pair(browser: &mut Browser, account: &str) -> Answer {
    let pairing = json!({ "address": "127.0.0.1", "port": 9, "playerId": account, "playerToken": 1 });
    browser.post("/paired-servers", Some(&pairing)).await
}

/// Seals what is stored of this user with another key.
fn seal_elsewhere(directory: &TempDir, user: &UserId) {
    let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
    let sealer = Sealer::new(&key(99), None, 1, Random::system());
    pool.write_blocking(|db| {
        let bundle = push_credentials::get(db, user)?.unwrap().in_use.sealed;
        let other = sealer.seal(&SecretKind::PushBundle(Slot::InUse).context(user.as_str()), b"{}");
        assert!(push_credentials::replace_sealed(db, user, Slot::InUse, &bundle, &other, 1)?);
        for server in paired_servers::list_for(db, user)? {
            let other = sealer.seal(&SecretKind::PlayerToken.context(server.id.as_str()), b"1");
            assert!(paired_servers::replace_token(db, &server.id, &server.player_token_sealed, &other, 1)?);
        }
        Ok(())
    })
    .unwrap();
}

#[actix_web::test]
async fn what_awaits_its_key_is_kept_and_its_user_is_not_sent_to_pair_again() {
    let directory = Arc::new(TempDir::new().unwrap());
    let app = app_with(&directory, &flags(1)).await;
    let mut users = Vec::new();
    for account in [ALICE, BOB] {
        let mut browser = app.signed_in(account).await;
        let mut helper = app.paired(&mut browser).await;
        assert_eq!(helper.upload(&json!({ "platformId": account })).await.status, 200);
        assert_eq!(pair(&mut browser, account).await.status, 201);
        users.push(UserId::from(browser.get("/me").await.json()["id"].as_str().unwrap()));
    }
    app.stop().await;
    seal_elsewhere(&directory, &users[0]);

    // A new key, with the one before it: all that is stored is looked at.
    let mut rotated = flags(2).to_vec();
    rotated.push(format!("--creds-encryption-key-prev={}", key(1).to_base64()));
    let app = app_with(&directory, &rotated).await;
    let mut alice = app.signed_in(ALICE).await;
    let ready = alice.get_until("/ready", |ready| ready["warnings"][0]["path"] == "storedSecrets").await;
    assert_eq!(ready["ok"], true);
    let status = alice.get_until("/status", |status| status["unreadableSecrets"] == 2).await;
    assert_eq!(status["state"], "degraded");

    let server = alice.get("/paired-servers").await.json()["servers"][0]["id"].as_str().unwrap().to_owned();
    let advised = |readiness: &Value| readiness["paths"][0]["advice"] == REPAIRED;
    alice.get_until(format!("/paired-servers/{server}/readiness"), advised).await;
    let shown = alice.get(&format!("/paired-servers/{server}")).await.json();
    assert!(shown["connection"]["reason"].as_str().unwrap().contains("nothing for you to do"), "{shown}");
    pair(&mut alice, ALICE).await.expect_problem(503, "awaits_key");
    let mut helper = app.paired(&mut alice).await;
    helper.upload(&json!({ "platformId": ALICE })).await.expect_problem(503, "awaits_key");
    // Bob's are as they were.
    let mut bob = app.signed_in(BOB).await;
    assert_eq!(pair(&mut bob, BOB).await.status, 200);
    let mut of_bob = app.paired(&mut bob).await;
    assert_eq!(of_bob.upload(&json!({ "platformId": BOB })).await.status, 200);
    app.stop().await;

    let doctor = |lost: &str| {
        let mut command: Command = companion(directory.path());
        let output = command
            .args(["doctor", "--data-dir", "."])
            .env("DATABASE_URL", format!("sqlite:{}", directory.path().join("test.db").display()))
            .env("CREDS_ENCRYPTION_KEY", key(2).to_base64())
            .env("CREDS_ENCRYPTION_KEY_LOST", lost)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = doctor("false");
    assert!(said.lines().any(|line| line.starts_with("FAIL") && line.contains("2 of 4 stored secrets")), "{said}");
    let said = doctor("true");
    assert!(said.lines().any(|line| line.starts_with("warn") && line.contains("2 of 4 stored secrets")), "{said}");

    // The operator gives the key up.
    rotated.push("--creds-encryption-key-lost=true".to_owned());
    let app = app_with(&directory, &rotated).await;
    let mut alice = app.signed_in(ALICE).await;
    let again = |readiness: &Value| readiness["paths"][0]["advice"] != REPAIRED;
    alice.get_until(format!("/paired-servers/{server}/readiness"), again).await;
    assert_eq!(pair(&mut alice, ALICE).await.status, 200);
    let mut helper = app.paired(&mut alice).await;
    assert_eq!(helper.upload(&json!({ "platformId": ALICE })).await.status, 200);
    app.stop().await;
}
