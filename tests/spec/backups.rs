//! Backups: taken while the service writes, restored into a service that goes on, and refused when they are not whole.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    time::{Duration, Instant},
};

use actix_web::web;
use chrono::TimeDelta;
use companion::{clock::Clock, config::Database, crypto::digest::sha256_hex};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    harness::{
        app::{ADA, ADMINS, BASE, TestApp},
        binary::companion,
        browser::Browser,
        database::Postgres,
        game::{ALICE, BOB, pair_port},
        pictures::png,
        relay_client::PATIENCE,
    },
    upgrade::{connected, count},
};

/// Where the archive's first file, the database, begins.
const DATABASE_BYTES: usize = 512;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Runs the binary beside the service of this test.
async fn run(arguments: Vec<String>) -> Output {
    web::block(move || companion(&std::env::temp_dir()).args(arguments).output().unwrap()).await.unwrap()
}

fn backup_of(app: &TestApp, file: &Path) -> Vec<String> {
    let directory = app.directory().display();
    vec![
        "backup".into(),
        file.display().to_string(),
        format!("--data-dir={directory}"),
        format!("--database-url=sqlite:{directory}/test.db"),
    ]
}

fn verify(file: &Path) -> Vec<String> {
    vec!["restore".into(), "--verify".into(), file.display().to_string()]
}

fn restore(file: &Path, into: &Path) -> Vec<String> {
    vec!["restore".into(), file.display().to_string(), format!("--data-dir={}", into.display())]
}

async fn give(ada: &mut Browser, account: &str) -> u16 {
    ada.post("/admin/beta-testers", Some(&json!({ "platformId": account, "tier": "SCOUT" }))).await.status
}

#[actix_web::test]
async fn a_backup_that_was_taken_under_load_restores_all_that_was_acknowledged_before() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let mut ada = app.signed_in(ADA).await;
    let icon = ada.upload("/admin/items/upload-icon", &png(1)).await.json()["url"].as_str().unwrap().to_owned();
    assert!([200, 201].contains(&give(&mut ada, ALICE).await));

    let elsewhere = TempDir::new().unwrap();
    let file = elsewhere.path().join("it.tar");
    let mut taking = std::pin::pin!(run(backup_of(&app, &file)));
    let mut written = 0;
    let taken = loop {
        let account = format!("{}", 76_561_198_100_000_000_u64 + written);
        tokio::select! {
            biased;
            taken = &mut taking => break taken,
            status = give(&mut ada, &account) => assert!([200, 201, 429].contains(&status), "{status}"),
        }
        written += 1;
    };
    assert!(taken.status.success() && written > 0, "{}", text(&taken));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1, "nothing else is left");
    let output = text(&taken);
    assert!(output.contains("not in it: SESSION_SECRET, SESSION_SALT, CREDS_ENCRYPTION_KEY"), "{output}");
    let verified = run(verify(&file)).await;
    assert!(verified.status.success() && text(&verified).contains("The backup is whole"), "{}", text(&verified));
    app.stop().await;

    let directory = Arc::new(TempDir::new().unwrap());
    let restored = run(restore(&file, directory.path())).await;
    assert!(restored.status.success(), "{}", text(&restored));
    assert!(!directory.path().join("secrets.env").exists());
    let url = format!("sqlite:{}", directory.path().join("companion.db").display());
    let app = TestApp::start_in(directory, url, &[ADMINS]).await;
    let mut ada = app.signed_in(ADA).await;
    let testers = ada.get("/admin/beta-testers").await.json();
    let known = |account: &str| testers["betaTesters"].as_array().unwrap().iter().any(|t| t["platformId"] == account);
    assert!(known(ALICE), "{testers}");
    assert_eq!(app.browser().get(icon.strip_prefix(BASE).unwrap()).await.status, 200);
    assert!([200, 201].contains(&give(&mut ada, "76561198999999999").await), "it goes on");
}

/// A small backup, and its bytes.
async fn small(app: &TestApp, directory: &Path) -> (PathBuf, Vec<u8>) {
    let file = directory.join("it.tar");
    let taken = run(backup_of(app, &file)).await;
    assert!(taken.status.success(), "{}", text(&taken));
    let bytes = fs::read(&file).unwrap();
    (file, bytes)
}

#[actix_web::test]
async fn a_backup_that_was_cut_off_or_changed_is_refused_and_leaves_nothing() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let mut ada = app.signed_in(ADA).await;
    give(&mut ada, ALICE).await;
    let directory = TempDir::new().unwrap();
    let (file, whole) = small(&app, directory.path()).await;
    let position = |part: &[u8]| whole.windows(part.len()).position(|window| window == part).unwrap();
    let (manifest, digest) = (position(b"\"takenAt\""), position(b"manifest.json.sha256"));
    let cut = [0, DATABASE_BYTES, whole.len() / 2, manifest, digest].map(|length| whole[..length].to_vec());
    let flipped = [DATABASE_BYTES + 100, DATABASE_BYTES + 50_000, manifest + 14, digest + 512].map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    });
    for (number, damaged) in cut.into_iter().chain(flipped).enumerate() {
        fs::write(&file, damaged).unwrap();
        let verified = run(verify(&file)).await;
        let output = text(&verified);
        assert!(verified.status.code() == Some(1) && output.contains("the backup is damaged"), "{number}: {output}");
        let into = directory.path().join("restored/deep");
        assert_eq!(run(restore(&file, &into)).await.status.code(), Some(1), "{number}");
        assert!(!directory.path().join("restored").exists(), "{number}");
    }
    let own = directory.path().join("own");
    fs::create_dir(&own).unwrap();
    assert_eq!(run(restore(&file, &own)).await.status.code(), Some(1), "it is damaged");
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
    fs::write(own.join("letter"), "mine").unwrap();
    assert_eq!(run(restore(&file, &own)).await.status.code(), Some(1), "it is not empty");
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
    fs::write(&file, &whole).unwrap();
    let restored = run(restore(&file, &directory.path().join("restored"))).await;
    assert!(restored.status.success(), "{}", text(&restored));
}

/// An archive whose first entry says something of the next one, in this many bytes.
fn with_extension(file: &Path, kind: tar::EntryType, bytes: u64) {
    let mut header = tar::Header::new_gnu();
    header.set_path("././@LongLink").unwrap();
    header.set_entry_type(kind);
    header.set_size(bytes);
    header.set_cksum();
    fs::write(file, header.as_bytes()).unwrap();
    // A hole.
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(bytes + 4_096).unwrap();
}

#[actix_web::test]
async fn an_archive_is_not_read_into_memory_because_it_says_so() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("it.tar");
    for kind in [tar::EntryType::GNULongName, tar::EntryType::GNULongLink, tar::EntryType::XHeader] {
        with_extension(&file, kind, 1_500_000_000);
        let output = text(&run(verify(&file)).await);
        assert!(output.contains("an entry of a kind that no backup has"), "{kind:?}: {:.300}", output);
    }
    let mut header = tar::Header::new_gnu();
    header.set_path("manifest.json").unwrap();
    header.set_size(1_500_000_000);
    header.set_cksum();
    fs::write(&file, header.as_bytes()).unwrap();
    let output = text(&run(verify(&file)).await);
    assert!(output.contains("manifest.json has 1500000000 bytes"), "{output}");
}

/// The backup with another manifest.
fn with_manifest(whole: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut changed = tar::Builder::new(Vec::new());
    let mut change = Some(change);
    for entry in tar::Archive::new(whole).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        match name.as_str() {
            "manifest.json" => {
                let mut manifest: Value = serde_json::from_slice(&content).unwrap();
                change.take().unwrap()(&mut manifest);
                let content = manifest.to_string();
                let digest = format!("{}  manifest.json\n", sha256_hex(content.as_bytes()));
                for (name, content) in [("manifest.json", &content), ("manifest.json.sha256", &digest)] {
                    append(&mut changed, name, content.as_bytes());
                }
            }
            "manifest.json.sha256" => {}
            _ => append(&mut changed, &name, &content),
        }
    }
    changed.into_inner().unwrap()
}

fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, name, content).unwrap();
}

#[actix_web::test]
async fn a_manifest_has_no_control_characters_for_the_terminal() {
    let app = TestApp::start().await;
    let directory = TempDir::new().unwrap();
    let (file, whole) = small(&app, directory.path()).await;
    let clear = "\u{1b}[2J\u{9b}1m";
    let marked = with_manifest(&whole, |manifest| {
        manifest["version"] = json!(clear);
        manifest["secretsLeftOut"] = json!([clear]);
        manifest["takenAt"] = json!(clear);
        manifest["missingImages"] = json!([clear]);
    });
    let newer = with_manifest(&whole, |manifest| {
        manifest["version"] = json!(clear);
        manifest["format"] = json!(99);
    });
    let other = with_manifest(&whole, |manifest| manifest["files"][0]["name"] = json!(clear));
    for (archive, is_whole) in [(marked, true), (newer, false), (other, false)] {
        fs::write(&file, archive).unwrap();
        let verified = run(verify(&file)).await;
        let output = text(&verified);
        assert_eq!(verified.status.success(), is_whole, "{output:?}");
        assert!(output.contains("\\u{1b}[2J\\u{9b}1m"), "{output:?}");
        assert!(output.chars().all(|character| character == '\n' || !character.is_control()), "{output:?}");
    }
}

#[actix_web::test]
async fn a_restore_says_where_images_are_that_the_service_will_not_find() {
    const BUCKET: [&str; 4] = [
        "--images-s3-bucket=pictures",
        "--images-s3-endpoint=http://127.0.0.1:9",
        "--images-s3-access-key-id=key-of-pictures",
        "--images-s3-secret-access-key=secret-of-pictures",
    ];
    let with_bucket = |arguments: Vec<String>| [arguments, BUCKET.map(str::to_owned).into()].concat();
    let app = TestApp::start_with(&[ADMINS]).await;
    app.signed_in(ADA).await.upload("/admin/items/upload-icon", &png(1)).await;
    let directory = TempDir::new().unwrap();
    let (file, _) = small(&app, directory.path()).await;
    let in_bucket = directory.path().join("bucket.tar");
    let taken = run(with_bucket(backup_of(&app, &in_bucket))).await;
    assert!(taken.status.success(), "{}", text(&taken));

    let place = |name: &str| directory.path().join(name);
    let output = async |arguments: Vec<String>| {
        let restored = run(arguments).await;
        assert!(restored.status.success(), "{}", text(&restored));
        text(&restored)
    };
    let said = output(restore(&file, &place("a"))).await;
    assert!(!said.contains("images"), "they are where they were: {said}");
    let said = output(with_bucket(restore(&file, &place("b")))).await;
    let images = place("b").join("images").display().to_string();
    assert!(said.contains(&images) && said.contains("into the bucket pictures"), "{said}");
    assert_eq!(fs::read_dir(place("b").join("images/images")).unwrap().count(), 1);
    let said = output(restore(&in_bucket, &place("c"))).await;
    let images = place("c").join("images").display().to_string();
    assert!(said.contains(&format!("were in S3: copy them into {images}")), "{said}");
    let said = output(with_bucket(restore(&in_bucket, &place("d")))).await;
    assert!(said.contains("looks for them in the bucket pictures"), "{said}");
}

#[actix_web::test]
async fn what_is_there_is_not_overwritten_and_secrets_come_when_they_are_asked_for() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let directory = TempDir::new().unwrap();
    let (file, _) = small(&app, directory.path()).await;
    let again = run(backup_of(&app, &file)).await;
    assert!(again.status.code() == Some(1) && text(&again).contains("exists already"), "{}", text(&again));
    let refused = run(restore(&file, app.directory())).await;
    assert!(text(&refused).contains("a companion serves from it"), "{}", text(&refused));
    let used = directory.path().join("used");
    fs::create_dir(&used).unwrap();
    fs::write(used.join("a file"), "").unwrap();
    let refused = run(restore(&file, &used)).await;
    assert!(refused.status.code() == Some(1) && text(&refused).contains("is not empty"), "{}", text(&refused));

    let with_secrets = directory.path().join("with secrets.tar");
    let taken = run([backup_of(&app, &with_secrets), vec!["--with-secrets".into()]].concat()).await;
    assert!(taken.status.success() && !text(&taken).contains("SESSION_SECRET"), "{}", text(&taken));
    let into = directory.path().join("restored");
    assert!(run(restore(&with_secrets, &into)).await.status.success());
    let [before, after] = [app.directory(), &into].map(|directory| fs::read(directory.join("secrets.env")).unwrap());
    assert_eq!(before, after);
    assert_eq!(fs::metadata(into.join("secrets.env")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[actix_web::test]
async fn the_journal_is_kept_without_a_line_that_is_half_written() {
    let directory = TempDir::new().unwrap();
    let [from, into] = ["from", "into"].map(|name| directory.path().join(name));
    let data_dir = format!("--data-dir={}", from.display());
    assert!(run(vec!["migrate".into(), data_dir.clone()]).await.status.success());
    fs::write(from.join("alarms.journal"), "one\ntwo\nthr").unwrap();
    fs::write(from.join("alarms.refused"), "four\n").unwrap();
    let file = directory.path().join("it.tar");
    assert!(run(vec!["backup".into(), file.display().to_string(), data_dir]).await.status.success());
    assert!(run(restore(&file, &into)).await.status.success());
    let kept = ["alarms.journal", "alarms.refused"].map(|name| fs::read_to_string(into.join(name)).unwrap());
    assert_eq!(kept, ["one\ntwo\n", "four\n"]);
}

#[actix_web::test]
async fn a_postgres_is_left_to_its_own_tools() {
    let Some(postgres) = Postgres::create() else { return };
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("it.tar").display().to_string();
    let refused = run(vec!["backup".into(), file, format!("--database-url={}", postgres.url())]).await;
    let output = text(&refused);
    assert_eq!(refused.status.code(), Some(1));
    for word in ["pg_dump", "alarms.journal", "images/"] {
        assert!(output.contains(word), "{output}");
    }
}

async fn erase(browser: &mut Browser, account: &str) {
    let answer = browser.send(browser.request(Method::DELETE, "/me").json(&json!({ "confirm": account }))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Number of accounts in a database that match this one.
fn accounts(database: &Database, account: &str) -> i64 {
    count(&mut connected(database), &format!("users WHERE platform_id = '{account}'"))
}

#[actix_web::test]
async fn who_erased_themselves_since_a_backup_stays_erased_after_its_restore() {
    let app = TestApp::start_beside_games().await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let elsewhere = TempDir::new().unwrap();
    let [of_alice, of_bob] = [pair_port(&mut alice, 9).await, pair_port(&mut bob, 9).await]
        .map(|server| format!("{{\"s\":\"{server}\"}}\n"));
    fs::write(app.directory().join("alarms.refused"), format!("{of_alice}{of_bob}")).unwrap();
    let (file, _) = small(&app, elsewhere.path()).await;
    erase(&mut alice, ALICE).await;
    let newer = elsewhere.path().join("newer.tar");
    assert!(run(backup_of(&app, &newer)).await.status.success());

    // With the list of the earlier directory.
    let list = app.directory().join("erasures.list");
    let into = elsewhere.path().join("a");
    let with_list = [restore(&file, &into), vec![format!("--erasures={}", list.display())]].concat();
    let restored = run(with_list.clone()).await;
    assert!(
        restored.status.success() && text(&restored).contains("1 of them were in the backup"),
        "{}",
        text(&restored)
    );
    assert_eq!(fs::read_to_string(into.join("alarms.refused")).unwrap(), of_bob);
    let database = Database::Sqlite(into.join("companion.db"));
    assert_eq!((accounts(&database, ALICE), accounts(&database, BOB)), (0, 1));
    // The account is on the list of what was restored, too.
    assert!(fs::read_to_string(into.join("erasures.list")).unwrap().lines().count() >= 1);
    // A list that is not there is no empty one.
    let missing =
        [restore(&file, &elsewhere.path().join("m")), vec!["--erasures=missing/erasures.list".into()]].concat();
    assert_eq!(run(missing).await.status.code(), Some(1));
    // Nor is another file one.
    let log = elsewhere.path().join("log");
    fs::write(&log, "started 1\n").unwrap();
    let into = elsewhere.path().join("l");
    let refused = run([restore(&file, &into), vec![format!("--erasures={}", log.display())]].concat()).await;
    assert!(refused.status.code() == Some(1) && text(&refused).contains("line 1 is of no list"), "{}", text(&refused));
    assert!(!into.exists());

    // Or when the service finds the list in its directory.
    let into = Arc::new(TempDir::new().unwrap());
    assert!(run(restore(&file, into.path())).await.status.success());
    let database = Database::Sqlite(into.path().join("companion.db"));
    assert_eq!(accounts(&database, ALICE), 1, "the older backup knows the user");
    fs::copy(&list, into.path().join("erasures.list")).unwrap();
    fs::copy(app.directory().join("secrets.env"), into.path().join("secrets.env")).unwrap();
    let url = format!("sqlite:{}", into.path().join("companion.db").display());
    let again = TestApp::start_in(into, url, &[]).await;
    assert_eq!((accounts(&database, ALICE), accounts(&database, BOB)), (0, 1));
    // An erased user who comes back is a new one, which no list names.
    again.signed_in(ALICE).await;
    let again = again.restart().await;
    assert_eq!(accounts(&database, ALICE), 1);
    again.stop().await;

    // A backup from after it has the list.
    let into = elsewhere.path().join("b");
    assert!(run(restore(&newer, &into)).await.status.success());
    assert!(into.join("erasures.list").exists());
}

#[actix_web::test]
async fn an_erasure_that_a_kill_kept_off_the_list_is_noted_by_the_next_process() {
    let app = TestApp::start_with(&[]).await;
    let alice = app.signed_in(ALICE).await;
    let list = app.directory().join("erasures.list");
    let at_the_kill = list.clone();
    let begun = "pending 2026-11-25T17:00:00.000Z gone\n";
    let app = app.restart_after(move || fs::write(at_the_kill, begun).unwrap()).await;
    let asked = Instant::now();
    while !fs::read_to_string(&list).unwrap().lines().any(|line| line.starts_with("20") && line.ends_with(" gone")) {
        assert!(asked.elapsed() < PATIENCE, "the list stays as it was");
        sleep(Duration::from_millis(20)).await;
    }
    // A disk that takes nothing is said to the operator, and keeps no user from it.
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    let mut alice = app.again(&alice);
    erase(&mut alice, ALICE).await;
    let ready = app.browser().get("/ready").await.json();
    let warnings = ready["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning["path"] == "erasures"), "{ready}");
    app.stop().await;
}

/// Skips, and says so, where a program is not installed.
fn is_installed(program: &str) -> bool {
    let installed = Command::new(program).arg("--version").output().is_ok();
    if !installed {
        eprintln!("SKIPPED: {program} is not installed");
    }
    installed
}

/// `deploy/backup.sh`, for this service.
fn script(app: &TestApp, url: &str, into: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/backup.sh");
    let programs = Path::new(env!("CARGO_BIN_EXE_companion")).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(script);
    command.env_clear().env("PATH", path).env("DATA_DIR", app.directory()).env("DATABASE_URL", url);
    command.env("BACKUP_DIR", into).env("BACKUP_KEEP", "2").output().unwrap()
}

/// Backups that are there, the oldest first.
fn kept(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn last_backup(app: &TestApp) -> f64 {
    // The script notes the time of this machine.
    let behind = Clock::system().now() - app.clock.now();
    app.clock.advance(behind.max(TimeDelta::zero()));
    let metrics = app.browser().get("/metrics").await.text();
    let line =
        metrics.lines().find(|line| line.starts_with("companion_last_backup_timestamp_seconds ")).unwrap().to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[actix_web::test]
async fn the_script_takes_verifies_and_rotates_backups_of_sqlite() {
    let app = TestApp::start().await;
    app.signed_in(ALICE).await;
    assert_eq!(last_backup(&app).await, 0.0);
    let into = TempDir::new().unwrap();
    for old in
        ["companion-2026-01-01T000000Z.tar", "companion-2026-01-02T000000Z.tar", "companion-2026-01-03T000000Z.tar"]
    {
        fs::write(into.path().join(old), "old").unwrap();
    }
    let url = format!("sqlite:{}", app.directory().join("test.db").display());
    let done = script(&app, &url, into.path());
    assert!(done.status.success(), "{}", text(&done));
    let kept = kept(into.path());
    assert_eq!((kept.len(), kept[0].as_str()), (2, "companion-2026-01-03T000000Z.tar"), "{kept:?}");
    let restored = run(restore(&into.path().join(&kept[1]), &into.path().join("restored"))).await;
    assert!(restored.status.success(), "{}", text(&restored));
    assert!(last_backup(&app).await > 0.0);
    fs::remove_dir_all(into.path().join("restored")).unwrap();
    // A failed backup deletes nothing and notes nothing.
    let (before, noted) = (self::kept(into.path()), last_backup(&app).await);
    let failed = script(&app, "sqlite:/nowhere/test.db", into.path());
    assert!(!failed.status.success());
    assert_eq!((self::kept(into.path()), last_backup(&app).await), (before, noted));
}

/// A program that notes how it is called. The call `$FAILING` fails, and so does each pause, which ends the loop.
const STUB: &str = "#!/bin/sh\ncall=\"${0##*/} $1\"\necho \"$call\" >>\"$CALLS\"\n\
                    [ \"${call%% *}\" != sleep ] && [ \"$call\" != \"$FAILING\" ]\n";

/// The calls of one round of `deploy/backup.sh` with `BACKUP_EVERY`, of which this one fails.
fn calls_of_a_round(programs: &Path, url: &str, into: &Path, (failing, every): (&str, &str)) -> Vec<String> {
    let calls = programs.join("calls");
    let _ = fs::remove_file(&calls);
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/backup.sh"));
    command.env_clear().env("PATH", path).env("DATA_DIR", programs).env("DATABASE_URL", url);
    command.env("BACKUP_DIR", into).env("BACKUP_KEEP", "2").env("BACKUP_EVERY", every);
    command.env("CALLS", &calls).env("FAILING", failing).output().unwrap();
    fs::read_to_string(&calls).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_script_finds_the_address_of_the_database_in_a_file_or_a_credential() {
    if !["tar", "sha256sum"].into_iter().all(is_installed) {
        return;
    }
    let (programs, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for program in ["pg_dump", "pg_restore", "companion"] {
        let stub = programs.path().join(program);
        fs::write(&stub, STUB.replace("$1", "$*")).unwrap();
        fs::set_permissions(stub, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (calls, credential) = (programs.path().join("calls"), programs.path().join("DATABASE_URL"));
    fs::write(&credential, "postgres://u:p@db/companion\r\n").unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    for (variable, value) in [("DATABASE_URL_FILE", &*credential), ("CREDENTIALS_DIRECTORY", programs.path())] {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/backup.sh"));
        command.env_clear().env("PATH", &path).env("DATA_DIR", into.path().join("data")).env("DATABASE_URL", " ");
        command.env("BACKUP_DIR", into.path()).env("CALLS", &calls).env("FAILING", "none");
        command.env(variable, value).output().unwrap();
        let called = fs::read_to_string(&calls).unwrap();
        let dump = called.lines().find(|call| call.starts_with("pg_dump ")).unwrap_or_else(|| panic!("{called}"));
        assert!(dump.ends_with(" --dbname=postgres://u@db/companion"), "{variable}: {dump}");
        fs::remove_file(&calls).unwrap();
    }
}

#[test]
fn a_backup_of_the_loop_that_fails_at_any_step_keeps_the_older_ones_and_is_tried_again_soon() {
    if !["tar", "sha256sum"].into_iter().all(is_installed) {
        return;
    }
    let (programs, into) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for program in ["pg_dump", "pg_restore", "sha256sum", "companion", "sleep"] {
        let stub = programs.path().join(program);
        fs::write(&stub, STUB).unwrap();
        fs::set_permissions(stub, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let archives = || -> Vec<String> { kept(into.path()).into_iter().filter(|name| name.ends_with(".tar")).collect() };
    let old = ["companion-2026-01-01T000000Z.tar", "companion-2026-01-02T000000Z.tar"];
    old.iter().for_each(|name| fs::write(into.path().join(name), "old").unwrap());
    let of_sqlite = ["companion backup", "companion restore"];
    let of_postgres = ["pg_dump --format=custom", "pg_restore --file=/dev/null", "sha256sum --check"];
    for (url, steps) in
        [("sqlite:/data/companion.db", &of_sqlite[..]), ("postgres://u:p@db/companion", &of_postgres[..])]
    {
        let round = |of: (&str, &str)| calls_of_a_round(programs.path(), url, into.path(), of);
        for (number, failing) in steps.iter().copied().enumerate() {
            assert_eq!(round((failing, "1")), [&steps[..=number], &["sleep 300"]].concat(), "{url}: {failing}");
            assert_eq!(archives(), old, "{url}: {failing}");
        }
        let store = "companion store-backup";
        assert_eq!(round((store, "1")), [steps, &[store, "sleep 300"]].concat(), "{url}");
        let asked_again = [steps, &[store, "sleep 300", "sleep 300"]].concat();
        assert_eq!(round((store, "86400")), asked_again, "{url}: with a pause of its own before that of the loop");
        assert_eq!(round(("none", "1")), [steps, &[store, "sleep 1"]].concat(), "{url}");
    }
    let found = archives();
    assert!(found.len() == 2 && found[1].as_str() > old[1], "the newest ones stay: {found:?}");
}

#[actix_web::test]
async fn the_script_takes_a_dump_of_postgres_that_is_restored_without_who_erased_themselves_since() {
    if !["pg_dump", "pg_restore", "psql", "tar", "sha256sum"].into_iter().all(is_installed) {
        return;
    }
    let Some(postgres) = Postgres::create() else { return };
    let app = TestApp::start_on(postgres.url(), &[ADMINS]).await;
    let (mut alice, mut ada) = (app.signed_in(ALICE).await, app.signed_in(ADA).await);
    assert_eq!(ada.upload("/admin/items/upload-icon", &png(1)).await.status, 201);
    let into = TempDir::new().unwrap();
    let done = script(&app, &postgres.url(), into.path());
    assert!(done.status.success(), "{}", text(&done));
    assert!(app.directory().join("last-backup").exists());
    erase(&mut alice, ALICE).await;

    let archive = kept(into.path()).remove(0);
    let database = Database::Postgres(postgres.url().into());
    let app = app
        .restart_after(|| {
            assert_eq!(accounts(&database, ALICE), 0);
            let commands = format!(
                "tar --extract --file={archive} && sha256sum --check --quiet SHA256SUMS && ls images/images >images.txt && \
                 {{ echo 'DROP SCHEMA public CASCADE; CREATE SCHEMA public;'; \
                 pg_restore --no-owner --file=- companion.dump; }} | \
                 psql --quiet --single-transaction --set=ON_ERROR_STOP=1 --output=/dev/null {}",
                postgres.url()
            );
            let mut shell = Command::new("bash");
            let shell = shell.args(["-e", "-o", "pipefail", "-c", &commands]).current_dir(into.path());
            let restored = shell.output().unwrap();
            assert!(restored.status.success(), "{}", text(&restored));
            assert_eq!(accounts(&database, ALICE), 1, "the dump knows the user");
        })
        .await;
    assert_eq!((accounts(&database, ALICE), accounts(&database, ADA)), (0, 1));
    assert_eq!(fs::read_to_string(into.path().join("images.txt")).unwrap().lines().count(), 1);
    app.stop().await;
}

#[actix_web::test]
async fn a_backup_is_copied_into_s3_in_pieces_and_the_oldest_go() {
    let Ok(s3) = std::env::var("TEST_S3_URL") else {
        eprintln!("SKIPPED a backup in S3: TEST_S3_URL is not set");
        return;
    };
    let (app, files) = (TestApp::start().await, TempDir::new().unwrap());
    let bucket = format!("backups-{}", std::process::id());
    let store = async |name: &str, bytes: &[u8]| {
        let file = files.path().join(name);
        fs::write(&file, bytes).unwrap();
        let arguments = ["store-backup".to_owned(), file.display().to_string(), "--keep=2".to_owned()];
        let settings = [
            format!("--data-dir={}", app.directory().display()),
            format!("--images-s3-endpoint={s3}"),
            format!("--images-s3-bucket={bucket}"),
            "--images-s3-access-key-id=key-of-backups".to_owned(),
            "--images-s3-secret-access-key=secret-of-backups".to_owned(),
        ];
        run(arguments.into_iter().chain(settings).collect()).await
    };
    let [first, second, third] = ["1", "2", "3"].map(|day| format!("companion-2026-11-0{day}T043000Z.tar"));
    let refused = store(&first, b"first").await;
    assert!(!refused.status.success(), "there is no such bucket: {}", text(&refused));
    assert_eq!(last_backup(&app).await, 0.0);

    let http = reqwest::Client::new();
    let made = http.put(format!("{s3}/{bucket}")).send().await.unwrap();
    assert!(made.status().is_success(), "{made:?}");
    for (name, bytes) in [(&first, "first"), (&second, "second")] {
        let done = store(name, bytes.as_bytes()).await;
        assert!(done.status.success(), "{}", text(&done));
    }
    // A byte more than a piece.
    let large: Vec<u8> = (0..(5 << 20) + 1).map(|index: u32| (index % 251) as u8).collect();
    let done = store(&third, &large).await;
    assert!(done.status.success(), "{}", text(&done));
    let said = format!("copied into the bucket {bucket}: backups/{third}, {} bytes", large.len());
    assert!(text(&done).contains(&said) && text(&done).contains(&format!("deleted there: backups/{first}")));
    assert!(last_backup(&app).await > 0.0);

    let list = http.get(format!("{s3}/{bucket}?list-type=2")).send().await.unwrap().text().await.unwrap();
    let kept = [&first, &second, &third].map(|name| list.contains(&format!("<Key>backups/{name}</Key>")));
    assert_eq!(kept, [false, true, true], "{list}");
    let copy = http.get(format!("{s3}/{bucket}/backups/{third}")).send().await.unwrap();
    // S3 counts the pieces of an object in its tag.
    assert!(copy.headers()["etag"].to_str().unwrap().ends_with("-2\""), "{copy:?}");
    assert!(copy.bytes().await.unwrap() == large);
}
