//! Rotation of CREDS_ENCRYPTION_KEY: on thousands of rows, through a wrong previous key, a kill and damaged rows, while
//! uploads go on.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use chrono::Duration;
use companion::{
    config::Database,
    crypto::{
        keys::Key32,
        random::Random,
        sealer::{SealContext, Sealer},
    },
    db::{
        encryption_keys,
        engine::pool::Pool,
        paired_servers,
        push_credentials::{self, SealedBundle, Slot},
        users,
    },
    domain::{ids::UserId, time::Timestamp},
    vault::SecretKind,
};
use serde_json::json;

use crate::harness::{app::TestApp, binary, database::Postgres};

const USERS: usize = 400;
const ALICE: &str = "76561198000000001";
/// Both slots are one place.
const BUNDLE: SecretKind = SecretKind::PushBundle(Slot::InUse);
const TOKEN: SecretKind = SecretKind::PlayerToken;

fn key(number: u8) -> Key32 {
    Key32::new([number; 32])
}

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn user(number: usize) -> UserId {
    format!("user-{number:04}").into()
}

/// Users with a bundle in use, a staged one and a paired server each, all sealed by the key 1. The bundle of user 7 is
/// damaged, the player token of user 8 is sealed by a key that is lost. Player tokens are not bound to their game server yet.
fn fill(pool: &Pool) {
    let sealer = Sealer::new(&key(1), None, 1, Random::system());
    let lost = Sealer::new(&key(99), None, 1, Random::system());
    pool.write_blocking(|db| {
        assert_eq!(encryption_keys::take_into_use(db, &key(1).fingerprint(), now())?, 1);
        for number in 0..USERS {
            let (id, server) = (user(number), format!("server-{number:04}"));
            users::sign_in(db, &id, &id.as_str().into(), None, now())?;
            let bundle = |at: Timestamp| {
                let mut sealed = sealer.seal(&BUNDLE.context(id.as_str()), bundle_of(&id).as_bytes());
                sealed[20] ^= u8::from(number == 7 && at == now());
                SealedBundle { sealed, key_version: 1, uploaded_at: at, uploaded_by: None, expires_at: at }
            };
            push_credentials::upload(db, &id, &bundle(now()))?;
            push_credentials::mark_proven(db, &id, now(), now())?;
            push_credentials::upload(db, &id, &bundle(now() + Duration::seconds(1)))?;
            let pairing = paired_servers::StoredPairing {
                owner: id,
                game_server_id: None,
                name: "Test".into(),
                address: "192.0.2.1".into(),
                port: 28082,
                player_id: ALICE.into(),
                player_token_sealed: if number == 8 { &lost } else { &sealer }.seal(&TOKEN.context(&server), b"1234"),
                key_version: 1,
            };
            paired_servers::put(db, &server.as_str().into(), &pairing, now())?;
        }
        Ok(())
    })
    .unwrap();
}

/// A bundle with which a login can be tried.
fn bundle_of(id: &UserId) -> String {
    json!({ "of": id, "gcm": { "androidId": "1", "securityToken": "2" } }).to_string()
}

/// Every secret: where, sealed bytes, key version.
type Secrets = BTreeMap<String, (Vec<u8>, i32)>;

fn secrets(pool: &Pool) -> Secrets {
    pool.read_blocking(|db| {
        let mut secrets = Secrets::new();
        for number in 0..USERS {
            let row = push_credentials::get(db, &user(number))?.unwrap();
            for slot in [Slot::InUse, Slot::Staged] {
                let bundle = row.bundle(slot).unwrap();
                secrets.insert(format!("{slot:?} {}", row.user_id), (bundle.sealed.clone(), bundle.key_version));
            }
        }
        for id in paired_servers::list_ids(db)? {
            let server = paired_servers::get(db, &id)?;
            secrets.insert(format!("Token {}", server.id), (server.player_token_sealed, server.key_version));
        }
        Ok(secrets)
    })
    .unwrap()
}

/// Number of secrets with this key version.
fn sealed_by(secrets: &Secrets, key_version: i32) -> usize {
    secrets.values().filter(|(_, version)| *version == key_version).count()
}

fn never_lower(before: &Secrets, after: &Secrets) {
    for (name, (_, version)) in before {
        assert!(after[name].1 >= *version, "{name}");
    }
}

/// The binary with these keys.
fn companion(directory: &Path, database_url: &str, current: u8, previous: Option<u8>) -> Command {
    let mut command = binary::companion(directory);
    command
        .env("DATABASE_URL", database_url)
        .env("GAME_LINK_POLICY", "subscribed")
        .env("CREDS_ENCRYPTION_KEY", key(current).to_base64())
        .env("CREDS_ENCRYPTION_KEY_PREV", previous.map_or(String::new(), |previous| key(previous).to_base64()))
        .env("RUST_LOG", "info,companion::rotation=debug");
    command
}

/// Runs the service until it has logged this the given number of times, and kills it.
fn serve_until(mut command: Command, text: &str, times: usize) {
    command.args(["serve", "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0", "--push-address=127.0.0.1:9"]);
    let mut process: Child = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
    let logged = lines.filter(|line| line.contains(text)).take(times).count();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(logged, times, "{text}");
}

fn keys_status(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.args(["keys", "status"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&stderr).contains("panicked"));
    (status.code(), String::from_utf8(stdout).unwrap())
}

async fn rotate(database: &Database, database_url: &str) {
    let directory = tempfile::tempdir().unwrap();
    let run = |current, previous| companion(directory.path(), database_url, current, previous);
    let pool = Pool::open(database).unwrap();
    fill(&pool);
    let original = secrets(&pool);
    let (all, readable) = (3 * USERS, 3 * USERS - 2);
    assert_eq!(original.len(), all);

    let (code, printed) = keys_status(run(2, Some(1)));
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains(&format!("key 1: {all} stored credentials, waiting")), "{printed}");

    // A wrong previous key is refused, and reported where the right one is said to be lost; no row is changed.
    let refused = run(2, Some(50)).arg("serve").output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(1) && text.contains(&format!("none of {all} stored secrets opens")),
        "{text}"
    );
    let mut lost = run(2, Some(50));
    lost.env("CREDS_ENCRYPTION_KEY_LOST", "true");
    serve_until(lost, &format!("{all} stored secrets cannot be opened"), 1);
    assert_eq!(secrets(&pool), original);
    let (code, printed) = keys_status(run(2, Some(50)));
    assert_eq!((code, printed.matches("cannot be opened: ").count()), (Some(1), all));

    // The right one, and the service is killed half-way.
    serve_until(run(2, Some(1)), "rows with key 2", 3);
    let halfway = secrets(&pool);
    never_lower(&original, &halfway);
    let moved = sealed_by(&halfway, 2);
    assert!(0 < moved && moved < readable, "{moved}");
    let (code, printed) = keys_status(run(2, Some(1)));
    assert_eq!(code, Some(1));
    for line in [format!("key 1: {} ", all - moved), format!("key 2: {moved} ")] {
        assert!(printed.contains(&line), "{printed}");
    }
    assert_eq!(printed.matches("cannot be opened: ").count(), 2, "{printed}");

    // Started again, while a helper uploads.
    let keys = [
        format!("--creds-encryption-key={}", key(2).to_base64()),
        format!("--creds-encryption-key-prev={}", key(1).to_base64()),
    ];
    let app = TestApp::start_on(database_url.to_owned(), &keys.each_ref().map(String::as_str)).await;
    let mut alice = app.signed_in(ALICE).await;
    let mut helper = app.paired(&mut alice).await;
    let (mut uploads, mut before) = (0, halfway);
    loop {
        // Within the budget of one user.
        app.clock.advance(Duration::seconds(1));
        let uploaded = helper.upload(&json!({ "platformId": ALICE, "number": uploads })).await;
        assert_eq!(uploaded.status, 200, "{}", uploaded.text());
        uploads += 1;
        let after = secrets(&pool);
        never_lower(&before, &after);
        if sealed_by(&after, 2) == readable {
            break;
        }
        before = after;
    }
    println!("{readable} secrets moved during {uploads} uploads");
    app.stop().await;

    // The previous key is no longer needed, player tokens are bound to their game server, and the two rows are as they were.
    let last = secrets(&pool);
    for name in ["InUse user-0007", "Token server-0008"] {
        assert_eq!(last[name], original[name]);
    }
    let only_new = Sealer::new(&key(2), None, 2, Random::system());
    for (name, (sealed, _)) in &last {
        let id = name.rsplit(' ').next().unwrap();
        let opened = match name.starts_with("Token") {
            true => only_new.open(&SealContext { peer: Some("192.0.2.1:28082"), ..TOKEN.context(id) }, sealed),
            false => only_new.open(&BUNDLE.context(id), sealed),
        };
        assert_eq!(
            opened.is_ok_and(|opened| opened.current),
            !["InUse user-0007", "Token server-0008"].contains(&name.as_str()),
            "{name}"
        );
    }
    let (code, printed) = keys_status(run(2, None));
    assert_eq!(code, Some(1));
    for name in ["push credential of user user-0007: ", "player token of paired server server-0008: "] {
        assert!(printed.contains(&format!("cannot be opened: {name}")), "{printed}");
    }

    // New uploads and pairings replace the unreadable ones.
    pool.write_blocking(|db| {
        push_credentials::delete(db, &user(7))?;
        paired_servers::delete(db, &user(8), &"server-0008".into())
    })
    .unwrap();
    let (code, printed) = keys_status(run(2, Some(1)));
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        !printed.contains("waiting") && printed.contains("CREDS_ENCRYPTION_KEY_PREV is no longer needed"),
        "{printed}"
    );
}

#[actix_web::test]
async fn a_rotation_always_ends_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("test.db");
    rotate(&Database::Sqlite(file.clone()), &format!("sqlite:{}", file.display())).await;
}

#[actix_web::test]
async fn a_rotation_always_ends_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    rotate(&Database::Postgres(database.url().into()), &database.url()).await;
}
