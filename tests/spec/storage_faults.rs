//! Faults of what the service stores in, as its operator meets them: none is silent, and no alarm is lost by one.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use diesel::{
    Connection as _, PgConnection, QueryableByName, RunQueryDsl as _, SqliteConnection,
    connection::SimpleConnection as _,
    sql_query,
    sql_types::{BigInt, Text},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::harness::{
    app::TestApp,
    binary::companion,
    database::Postgres,
    game::{self, ALICE},
};

#[derive(QueryableByName)]
struct RootPage {
    #[diesel(sql_type = BigInt)]
    offset: i64,
}

/// A connection that waits: those of a service that has ended may close a moment later.
fn patient(path: &Path) -> SqliteConnection {
    let mut db = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    db.batch_execute("PRAGMA busy_timeout = 30000").unwrap();
    db
}

/// Overwrites the first page of this table. The service does not run.
fn damage(path: &Path, table: &str) {
    let mut db = patient(path);
    db.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let query = format!(
        "SELECT (rootpage - 1) * page_size AS offset FROM sqlite_master, pragma_page_size WHERE name = '{table}'"
    );
    let RootPage { offset } = sql_query(query).get_result(&mut db).unwrap();
    drop(db);
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[0xff; 64], offset as u64).unwrap();
}

fn database(app: &TestApp) -> PathBuf {
    app.directory().join("test.db")
}

/// The lines of `companion doctor` about this subject.
async fn doctor(directory: &Path, subject: &str) -> String {
    let mut command = companion(directory);
    let url = format!("--database-url=sqlite:{}", directory.join("test.db").display());
    command.args(["doctor", "--data-dir=.", &url, "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0"]);
    command.args(["--push-address=127.0.0.1:9", "--identity-login-url=http://127.0.0.1:9"]);
    let output = actix_web::web::block(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> =
        text.lines().filter(|line| line.get(6..).is_some_and(|line| line.starts_with(subject))).collect();
    assert!(!lines.is_empty(), "{subject}: {text}");
    lines.join("\n")
}

/// Asks until the metric, which has no labels, has such a value: other tests of this process set the same one.
async fn metric_until(app: &TestApp, name: &str, holds: impl Fn(f64) -> bool) {
    loop {
        let metrics = app.browser().get("/metrics").await.text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        if holds(line.unwrap_or_else(|| panic!("{name} is missing")).parse().unwrap()) {
            return;
        }
        // Probes have a budget.
        sleep(Duration::from_millis(20)).await;
    }
}

#[actix_web::test]
async fn alarms_of_a_damaged_database_stay_in_the_journal() {
    let app = TestApp::start_beside_games().await;
    let (game, mut alice) = (game::still(&app).await, app.signed_in(ALICE).await);
    let server = game::pair(&mut alice, &game).await;
    let path = database(&app);
    let app = app.restart_after(move || damage(&path, "incidents")).await;
    let journal = app.directory().join("alarms.journal");
    let mut alice = app.again(&alice);
    let drill = alice.post(&format!("/paired-servers/{server}/drill"), None).await;
    assert_eq!(drill.status, 200, "the journal keeps it: {}", drill.text());
    let problem = alice.get("/ready").await.expect_problem(503, "not_ready");
    let no_alarms = json!([{ "path": "database", "message": "takes no alarms, which are kept in a file" }]);
    assert_eq!(problem["errors"], no_alarms);
    let status = alice.get("/status").await.json();
    assert_eq!((&status["database"], &status["alarmsStored"]), (&true.into(), &false.into()), "{status}");
    let kept = fs::read_to_string(&journal).unwrap();
    assert!(kept.contains(&server), "{kept}");
    metric_until(&app, "companion_alarms_oldest_unfinished_seconds", |value| value > 0.0).await;

    let app = app.restart().await;
    assert!(fs::read_to_string(&journal).unwrap().contains(&server), "no start sets it aside");
    metric_until(&app, "companion_alarms_oldest_unfinished_seconds", |value| value > 0.0).await;
    metric_until(&app, "companion_alarms_refused_bytes", |value| value == 0.0).await;
    assert!(!app.directory().join("alarms.refused").exists());
    let said = doctor(app.directory(), "database").await;
    assert!(said.contains("FAIL") && said.contains("is damaged") && said.contains("restore a backup"), "{said}");
    let said = doctor(app.directory(), "alarms").await;
    assert!(said.starts_with("warn") && said.contains("alarms.journal"), "{said}");
    app.stop().await;
}

#[actix_web::test]
async fn a_drill_says_when_its_channels_could_not_be_read() {
    let app = TestApp::start_beside_games().await;
    let (game, mut alice) = (game::still(&app).await, app.signed_in(ALICE).await);
    let drill = format!("/paired-servers/{}/drill", game::pair(&mut alice, &game).await);
    assert_eq!(alice.post(&drill, None).await.json()["waysKnown"], true);
    patient(&database(&app)).batch_execute("ALTER TABLE channels RENAME TO channels_gone").unwrap();
    let drilled = alice.post(&drill, None).await;
    assert_eq!((drilled.status, &drilled.json()["waysKnown"]), (200, &false.into()), "{}", drilled.text());
    app.stop().await;
}

#[actix_web::test]
async fn alarms_that_were_set_aside_are_reported_and_can_be_taken_back() {
    let app = TestApp::start_beside_games().await;
    let (game, mut alice) = (game::still(&app).await, app.signed_in(ALICE).await);
    let server = game::pair(&mut alice, &game).await;
    let path = database(&app);
    let app = app.restart_after(move || damage(&path, "incidents")).await;
    let mut alice = app.again(&alice);
    assert_eq!(alice.post(&format!("/paired-servers/{server}/drill"), None).await.status, 200);
    let directory = app.directory().to_owned();
    let (journal, refused) = (directory.join("alarms.journal"), directory.join("alarms.refused"));
    let lines = fs::read(&journal).unwrap();
    fs::write(&refused, &lines).unwrap();
    metric_until(&app, "companion_alarms_refused_bytes", |value| value > 0.0).await;
    let said = doctor(&directory, "alarms").await;
    assert!(said.contains("FAIL") && said.contains("CompanionAlarmsRefused"), "{said}");

    // A repaired database, and the lines where the documentation says.
    let app = app
        .restart_after({
            let path = directory.join("test.db");
            move || {
                let fresh = directory.join("fresh.db");
                let mut db = patient(&path);
                db.batch_execute(&format!(
                    "PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE tbl_name = 'incidents'; \
                     PRAGMA writable_schema = RESET; VACUUM INTO '{}'",
                    fresh.display()
                ))
                .unwrap();
                drop(db);
                // Logs of the old file.
                for log in ["test.db-wal", "test.db-shm"] {
                    let _ = fs::remove_file(path.with_file_name(log));
                }
                fs::remove_file(&journal).unwrap();
                let mut journal = OpenOptions::new().append(true).create(true).open(&journal).unwrap();
                journal.write_all(&fs::read(&refused).unwrap()).unwrap();
                fs::remove_file(&refused).unwrap();
                let schema = table_of_a_new_database("incidents");
                let mut db = SqliteConnection::establish(fresh.to_str().unwrap()).unwrap();
                db.batch_execute(&schema).unwrap();
                fs::rename(&fresh, &path).unwrap();
            }
        })
        .await;
    let mut alice = app.again(&alice);
    let raids = alice.get(&format!("/paired-servers/{server}/alarms")).await.json();
    assert_eq!(raids["alarms"].as_array().map(Vec::len), Some(1), "{raids}");
    app.stop().await;
}

/// Statements that make this table and its indexes.
fn table_of_a_new_database(table: &str) -> String {
    #[derive(QueryableByName)]
    struct Statement {
        #[diesel(sql_type = Text)]
        sql: String,
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("new.db");
    companion::db::engine::pool::Pool::open(&companion::config::Database::Sqlite(path.clone())).unwrap();
    let mut db = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    let query = format!(
        "SELECT sql || ';' AS sql FROM sqlite_master WHERE tbl_name = '{table}' AND sql IS NOT NULL ORDER BY type DESC"
    );
    let statements: Vec<Statement> = sql_query(query).load(&mut db).unwrap();
    statements.into_iter().map(|statement| statement.sql).collect::<Vec<_>>().join("\n")
}

#[actix_web::test]
async fn a_database_file_that_is_gone_is_noticed_while_it_is_open() {
    let directory = Arc::new(TempDir::new().unwrap());
    let url = format!("sqlite:{}", directory.path().join("test.db").display());
    let app = TestApp::start_in(directory.clone(), url, &[]).await;
    let mut browser = app.browser();
    browser.get_until("/ready", |ready| ready["ok"] == true).await;
    let path = database(&app);
    let aside = app.directory().join("aside.db");
    fs::rename(&path, &aside).unwrap();
    app.clock.advance(chrono::TimeDelta::seconds(6));
    let problem = browser.get("/ready").await.expect_problem(503, "not_ready");
    assert_eq!(problem["errors"], json!([{ "path": "database", "message": "takes nothing that is written" }]));
    assert_eq!(browser.get("/status").await.json()["state"], "degraded");
    let said = doctor(app.directory(), "database").await;
    assert!(said.starts_with("FAIL") && said.contains("was removed while a companion serves from it"), "{said}");
    fs::write(&path, "another one").unwrap();
    let said = doctor(app.directory(), "database").await;
    assert!(said.starts_with("FAIL") && said.contains("another file took the place"), "{said}");
    fs::rename(&aside, &path).unwrap();
    app.clock.advance(chrono::TimeDelta::seconds(6));
    assert_eq!(browser.get("/ready").await.status, 200);
    app.stop().await;
    fs::remove_file(&path).unwrap();
    // The last connections of a service that runs in this process may close a moment later.
    loop {
        let said = doctor(directory.path(), "database").await;
        assert!(said.starts_with("FAIL"), "{said}");
        if said.contains("restore a backup") {
            break;
        }
    }
}

/// The exit code and error of this command with the files of a data directory.
async fn run(directory: &Path, command: &'static str) -> (Option<i32>, String) {
    let mut companion = companion(directory);
    let url = format!("--database-url=sqlite:{}", directory.join("test.db").display());
    companion.args([command, "--data-dir=.", &url, "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0"]);
    let output = actix_web::web::block(move || companion.output().unwrap()).await.unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[actix_web::test]
async fn a_data_directory_that_has_lost_its_database_is_not_served_from() {
    let directory = Arc::new(TempDir::new().unwrap());
    let url = format!("sqlite:{}", directory.path().join("test.db").display());
    let app = TestApp::start_in(directory.clone(), url.clone(), &[]).await;
    let path = database(&app);
    assert!(directory.path().join("running").exists());
    app.stop().await;
    assert!(!directory.path().join("running").exists(), "it was stopped");
    for lost in [fs::remove_file(&path), fs::write(&path, "")] {
        lost.unwrap();
        for command in ["serve", "migrate"] {
            let (code, text) = run(directory.path(), command).await;
            assert_eq!(code, Some(1), "{text}");
            assert!(text.contains("restore a backup") && text.contains("move alarms.journal out of"), "{text}");
        }
    }
    fs::rename(directory.path().join("alarms.journal"), directory.path().join("aside")).unwrap();
    let app = TestApp::start_in(directory.clone(), url, &[]).await;
    assert_eq!(app.browser().get("/ready").await.status, 200);
    app.stop().await;
}

#[actix_web::test]
async fn a_row_that_cannot_be_read_is_shown_to_the_operator_and_its_owner_is_not_sent_on_errands() {
    let app = TestApp::start_beside_games().await;
    let (game, mut alice) = (game::still(&app).await, app.signed_in(ALICE).await);
    let server = game::pair(&mut alice, &game).await;
    let path = database(&app);
    let spoil = move || patient(&path).batch_execute("UPDATE paired_servers SET port = 70000").unwrap();
    let app = app.restart_after(spoil).await;
    let mut alice = app.again(&alice);
    let problem = alice.get("/paired-servers").await.expect_problem(500, "unreadable_row");
    assert!(problem["detail"].as_str().unwrap().contains("operator has to repair it"), "{problem}");
    // The gauge is one for all services of this process: a start of another one sets it back.
    // The token of the row does not open either: it is bound to the port.
    let warning = json!({ "path": "storedRows", "message": "1 cannot be read; see `companion doctor`" });
    let is_shown = |ready: &Value| ready["warnings"].as_array().is_some_and(|warnings| warnings.contains(&warning));
    alice.get_until("/ready", is_shown).await;
    let status = alice.get_until("/status", |status| status["unreadableRows"] == 1).await;
    assert_eq!(status["state"], "degraded");
    let said = doctor(app.directory(), "database").await;
    let named = format!("a row of paired_servers cannot be read: {server}");
    assert!(said.lines().any(|line| line.starts_with("FAIL") && line.contains(&named)), "{said}");
    app.stop().await;
}

#[actix_web::test]
async fn a_damaged_page_is_shown_to_the_operator() {
    for table in ["api_tokens", "users"] {
        let app = TestApp::start().await;
        let mut alice = app.signed_in(ALICE).await;
        let token = json!({ "label": "Board", "scopes": ["read"] });
        assert_eq!(alice.post("/me/tokens", Some(&token)).await.status, 201);
        let path = database(&app);
        let app = app.restart_after(move || damage(&path, table)).await;
        let warnings =
            json!([{ "path": "database", "message": "is damaged: restore a backup; see `companion doctor`" }]);
        app.browser().get_until("/ready", |ready| ready["warnings"] == warnings).await;
        let status = app.browser().get_until("/status", |status| status["state"] == "degraded").await;
        let figures = (&status["database"], &status["databaseIntact"], &status["unreadableRows"]);
        assert_eq!(figures, (&true.into(), &false.into(), &0.into()), "{status}");
        metric_until(&app, "companion_database_intact", |value| value == 0.0).await;
        let said = doctor(app.directory(), "database").await;
        assert!(said.contains("FAIL") && said.contains("is damaged") && said.contains("restore a backup"), "{said}");
        app.stop().await;
    }
}

#[actix_web::test]
async fn a_log_that_is_removed_while_it_is_open_loses_nothing() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let (path, directory) = (database(&app), app.directory().to_owned());
    for end in ["-wal", "-shm"] {
        fs::remove_file(directory.join(format!("test.db{end}"))).unwrap();
    }
    let token = json!({ "label": "Board", "scopes": ["read"] });
    assert_eq!(alice.post("/me/tokens", Some(&token)).await.status, 201);
    // As it is found after a kill. Another process copies it: to close it in this one would end locks of SQLite.
    let found = directory.join("found.db");
    assert!(Command::new("cp").args([&path, &found]).status().unwrap().success());
    let query = "SELECT count(*) AS offset FROM api_tokens WHERE label = 'Board'";
    let RootPage { offset: tokens } = sql_query(query).get_result(&mut patient(&found)).unwrap();
    assert_eq!(tokens, 1);

    app.clock.advance(chrono::TimeDelta::seconds(6));
    let ready = app.browser().get("/ready").await.json();
    let warning = "its log was removed: restart the service; see `companion doctor`";
    assert_eq!(ready["warnings"], json!([{ "path": "database", "message": warning }]));
    let status = app.browser().get("/status").await.json();
    let figures = (&status["state"], &status["database"], &status["databaseIntact"]);
    assert_eq!(figures, (&"degraded".into(), &true.into(), &false.into()), "{status}");
    metric_until(&app, "companion_database_intact", |value| value == 0.0).await;
    let said = doctor(&directory, "database").await;
    assert!(said.starts_with("FAIL") && said.contains("was removed") && said.contains("Restart the service"), "{said}");
    let mut backup = companion(&directory);
    let url = format!("--database-url=sqlite:{}", path.display());
    backup.args(["backup", "it.tar", "--data-dir=.", &url]);
    let output = actix_web::web::block(move || backup.output().unwrap()).await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("nothing else can open it safely") && !directory.join("it.tar").exists(), "{text}");

    let app = app.restart().await;
    let mut alice = app.again(&alice);
    assert_eq!(alice.get("/me/tokens").await.json()["tokens"].as_array().map(Vec::len), Some(1));
    assert_eq!(app.browser().get("/status").await.json()["databaseIntact"], true);
    app.stop().await;
}

#[actix_web::test]
async fn a_sqlite_file_is_for_one_service() {
    let app = TestApp::start().await;
    let path = database(&app);
    let linked = app.directory().join("linked.db");
    fs::hard_link(&path, &linked).unwrap();
    refuses_to_serve(&path).await;
    refuses_to_serve(&linked).await;
    fs::remove_file(app.directory().join("test.db.lock")).unwrap();
    refuses_to_serve(&path).await;
    let said = doctor(app.directory(), "database").await;
    assert!(said.starts_with("FAIL") && said.contains("test.db.lock was removed"), "{said}");
    // The first one serves on.
    app.signed_in(ALICE).await;
    app.stop().await;
}

/// A service with a data directory of its own does not start on this database.
async fn refuses_to_serve(path: &Path) {
    let other = TempDir::new().unwrap();
    let mut command = companion(other.path());
    let url = format!("--database-url=sqlite:{}", path.display());
    command.args(["serve", "--data-dir=.", &url, "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0"]);
    command.stderr(Stdio::piped());
    let output = actix_web::web::block(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("another companion serves from this database"), "{text}");
}

#[actix_web::test]
async fn tables_that_another_session_locks_are_a_fault_everywhere() {
    let Some(postgres) = Postgres::create() else { return };
    let app = TestApp::start_on(postgres.url(), &[]).await;
    let mut browser = app.browser();
    browser.get_until("/ready", |ready| ready["ok"] == true).await;
    for table in ["users", "sessions"] {
        let mut other = PgConnection::establish(&postgres.url()).unwrap();
        other.batch_execute(&format!("BEGIN; LOCK TABLE {table}")).unwrap();
        app.clock.advance(chrono::TimeDelta::seconds(6));
        let problem = browser.get("/ready").await.expect_problem(503, "not_ready");
        let fault = json!([{ "path": "database", "message": "does not answer signed-in requests" }]);
        assert_eq!(problem["errors"], fault, "{table}");
        let status = browser.get("/status").await.json();
        assert_eq!((&status["state"], &status["database"]), (&"degraded".into(), &false.into()), "{status}");
        browser.get("/health/db").await.expect_problem(503, "unavailable");
        metric_until(&app, "companion_database_up", |value| value == 0.0).await;
        other.batch_execute("COMMIT").unwrap();
        app.clock.advance(chrono::TimeDelta::seconds(6));
        assert_eq!(browser.get("/ready").await.status, 200);
        assert_eq!(browser.get("/status").await.json()["database"], true);
    }
    app.stop().await;
}

#[actix_web::test]
async fn tables_of_alarms_that_another_session_locks_are_a_fault() {
    let Some(postgres) = Postgres::create() else { return };
    let app = TestApp::start_on(postgres.url(), &[]).await;
    let mut browser = app.browser();
    browser.get_until("/ready", |ready| ready["ok"] == true).await;
    let (kept, waits) =
        ("takes no alarms, which are kept in a file", "does not answer channels, by which alarms wait to be sent");
    for (table, message, answer) in
        [("notices", kept, "alarmsStored"), ("channels", waits, "alarmsSent"), ("deliveries", waits, "alarmsSent")]
    {
        let mut other = PgConnection::establish(&postgres.url()).unwrap();
        other.batch_execute(&format!("BEGIN; LOCK TABLE {table}")).unwrap();
        app.clock.advance(chrono::TimeDelta::seconds(6));
        let problem = browser.get("/ready").await.expect_problem(503, "not_ready");
        assert_eq!(problem["errors"], json!([{ "path": "database", "message": message }]), "{table}");
        let status = browser.get("/status").await.json();
        assert_eq!((&status["state"], &status[answer]), (&"degraded".into(), &false.into()), "{table}: {status}");
        metric_until(&app, "companion_database_up", |value| value == 0.0).await;
        if table == "deliveries" {
            // The worker's look ends, and the clock goes on.
            while !overdue(&app).await {
                app.clock.advance(chrono::TimeDelta::seconds(61));
            }
        }
        other.batch_execute("COMMIT").unwrap();
        app.clock.advance(chrono::TimeDelta::seconds(6));
        assert_eq!(browser.get("/ready").await.status, 200, "{table}");
    }
    app.stop().await;
}

/// True once the metric says that channels are late, though nothing is known to wait.
async fn overdue(app: &TestApp) -> bool {
    let metrics = app.browser().get("/metrics").await.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix("companion_channel_overdue_seconds "));
    line.is_some_and(|value| value.parse::<f64>().unwrap() > 60.0)
}

#[actix_web::test]
async fn nothing_is_written_while_the_lock_of_the_database_is_lost() {
    let Some(postgres) = Postgres::create() else { return };
    let app = TestApp::start_on(postgres.url(), &[]).await;
    let mut alice = app.signed_in(ALICE).await;
    app.browser().get_until("/ready", |ready| ready["ok"] == true).await;
    postgres.admit(false);
    postgres.end("companion serves");
    let token = json!({ "label": "Board", "scopes": ["read"] });
    alice.post("/me/tokens", Some(&token)).await.expect_problem(503, "unavailable");
    app.clock.advance(chrono::TimeDelta::seconds(6));
    let problem = app.browser().get("/ready").await.expect_problem(503, "not_ready");
    assert_eq!(problem["errors"], json!([{ "path": "database", "message": "takes nothing that is written" }]));
    let status = app.browser().get("/status").await.json();
    assert_eq!((&status["state"], &status["database"]), (&"degraded".into(), &false.into()), "{status}");
    metric_until(&app, "companion_database_up", |value| value == 0.0).await;
    postgres.admit(true);
    app.clock.advance(chrono::TimeDelta::seconds(6));
    // The process asks for the lock twice a second.
    while app.browser().get("/ready").await.status != 200 {
        app.clock.advance(chrono::TimeDelta::seconds(6));
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(alice.get("/me/tokens").await.json()["tokens"], json!([]));
    assert_eq!(alice.post("/me/tokens", Some(&token)).await.status, 201);
    app.stop().await;
}
