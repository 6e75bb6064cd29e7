//! Faults as an operator meets them, in the log, the probes and what `companion doctor` says: none is silent, and none is
//! answered with wrong advice. The service is the binary itself.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use actix_web::web;
use companion::{clock::Clock, db::files::last_backup};
use diesel::{Connection as _, PgConnection, connection::SimpleConnection as _};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::harness::{
    app::{TestApp, with_flags},
    binary::{self, companion},
    browser::Browser,
    database::Postgres,
};

/// Settings of a service whose neighbours are away.
const ALONE: [&str; 3] =
    ["--data-dir=data", "--push-address=127.0.0.1:9", "--identity-login-url=http://127.0.0.1:9/login"];
const FREE_PORTS: [&str; 2] = ["--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0"];

/// A service that runs; killed when dropped.
struct Served {
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
    /// The lines of the log that were read.
    read: Vec<String>,
}

impl Served {
    fn start(directory: &Path, flags: &[&str]) -> Self {
        let mut command = companion(directory);
        let known: Vec<String> = ALONE.iter().chain(&FREE_PORTS).map(|flag| (*flag).to_owned()).collect();
        command.arg("serve").args(with_flags(&known, flags));
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, log, read: Vec::new() }
    }

    /// The next line of the log with these words.
    fn line(&mut self, words: &str) -> String {
        for line in self.log.by_ref() {
            self.read.push(line.unwrap());
            if let Some(line) = self.read.last().filter(|line| line.contains(words)) {
                return line.clone();
            }
        }
        panic!("{words}: {:#?}", self.read);
    }

    /// A browser at its API, which is about to listen.
    fn browser(&mut self) -> Browser {
        let line = self.line("the API listens on");
        let address: SocketAddr = line.rsplit_once("http://").unwrap().1.parse().unwrap();
        Browser::new(binary::http(), address)
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops it; its exit code and its whole log.
    fn stop(mut self) -> (Option<i32>, String) {
        self.signal("TERM");
        for line in self.log.by_ref() {
            self.read.push(line.unwrap());
        }
        (self.process.wait().unwrap().code(), self.read.join("\n"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The exit code of this command with these further flags, and all that it prints.
async fn run(directory: &Path, name: &str, flags: &[&str]) -> (Option<i32>, String) {
    let mut command = companion(directory);
    let known: Vec<String> = ALONE.iter().chain(&FREE_PORTS).map(|flag| (*flag).to_owned()).collect();
    command.arg(name).args(with_flags(&known, flags));
    let output = web::block(move || command.output().unwrap()).await.unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// The lines of `companion doctor` about this subject.
async fn doctor(directory: &Path, subject: &str) -> String {
    let (_, text) = run(directory, "doctor", &[]).await;
    let is_about = |line: &&str| line.get(6..).is_some_and(|line| line.starts_with(subject));
    text.lines().filter(is_about).collect::<Vec<_>>().join("\n")
}

#[actix_web::test]
async fn an_identity_provider_that_is_away_is_said_everywhere() {
    let directory = TempDir::new().unwrap();
    let mut served = Served::start(directory.path(), &[]);
    let mut browser = served.browser();
    let line = served.line("the identity provider does not answer, and no user can sign in");
    assert!(line.contains("Connection refused") && line.contains("companion doctor"), "{line}");
    let ready = browser.get("/ready").await.json();
    assert_eq!(ready["warnings"][0]["path"], "signIn", "{ready}");
    let status = browser.get_until("/status", |status| status["signIn"] == false).await;
    assert_eq!(status["state"], "degraded");
    let metrics = browser.get("/metrics").await.text();
    assert!(metrics.contains("companion_identity_provider_up 0\n"), "{metrics}");
}

#[actix_web::test]
async fn secrets_that_are_lost_are_not_replaced() {
    let directory = TempDir::new().unwrap();
    let mut served = Served::start(directory.path(), &[]);
    served.browser();
    assert_eq!(served.stop().0, Some(0));
    let file = directory.path().join("data/secrets.env");
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    for command in ["serve", "migrate", "check-config"] {
        let (code, text) = run(directory.path(), command, &[]).await;
        assert_eq!(code, Some(2), "{command}: {text}");
        assert!(text.contains("data/secrets.env") && text.contains("put that file back"), "{command}: {text}");
        assert!(!file.exists(), "{command}");
    }
    let said = doctor(directory.path(), "settings").await;
    assert!(said.starts_with("FAIL") && !said.contains("will be made"), "{said}");
    fs::write(&file, kept).unwrap();
    let mut served = Served::start(directory.path(), &[]);
    served.browser();
}

#[actix_web::test]
async fn a_start_that_fails_is_no_crash() {
    let directory = TempDir::new().unwrap();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--relay-listen={}", other.local_addr().unwrap());
    let mut command = companion(directory.path());
    command.arg("serve").args(ALONE).args(["--api-listen=127.0.0.1:0", &taken]);
    let output = web::block(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("RELAY_LISTEN"), "{text}");
    assert!(!directory.path().join("data/running").exists());
    let mut served = Served::start(directory.path(), &[]);
    served.browser();
    let (code, log) = served.stop();
    assert_eq!(code, Some(0));
    assert!(!log.contains("ended without being stopped"), "{log}");
}

#[actix_web::test]
async fn an_end_that_was_no_stop_is_said_by_doctor_and_at_the_next_start() {
    let directory = TempDir::new().unwrap();
    let mut served = Served::start(directory.path(), &[]);
    served.browser();
    assert_eq!(doctor(directory.path(), "last run").await, "", "it runs");
    drop(served);
    let said = doctor(directory.path(), "last run").await;
    assert!(said.starts_with("warn") && said.contains("ended without being stopped"), "{said}");
    let mut served = Served::start(directory.path(), &[]);
    served.line("ended without being stopped");
}

#[actix_web::test]
async fn a_data_directory_that_is_removed_is_said_and_so_is_a_database_that_is_new() {
    let directory = TempDir::new().unwrap();
    let mut served = Served::start(directory.path(), &[]);
    let mut browser = served.browser();
    assert_eq!(browser.get("/ready").await.status, 200);
    fs::remove_dir_all(directory.path().join("data")).unwrap();
    while !browser.get("/ready").await.text().contains(r#"{"path":"disk","message":"takes no files"}"#) {
        // Probes have a budget.
        sleep(Duration::from_millis(20)).await;
    }
    served.line("data was removed while the service runs; see docs/alerts.md");
    for subject in ["data dir", "database"] {
        let said = doctor(directory.path(), subject).await;
        assert!(said.starts_with("FAIL") && said.contains("was removed while a companion serves from it"), "{said}");
    }
    let said = doctor(directory.path(), "settings").await;
    assert!(!said.contains("will be made"), "its secrets are lost: {said}");
    let said = doctor(directory.path(), "port").await;
    assert!(said.contains("a companion serves from this DATA_DIR"), "{said}");
    let (_, log) = served.stop();
    assert!(log.contains("is gone with it; restore a backup before the next start"), "{log}");

    // Nothing is left that says that there was one.
    let mut served = Served::start(directory.path(), &[]);
    served.line("data/companion.db is new and empty");
    served.browser();
    served.stop();
    let mut served = Served::start(directory.path(), &["--database-url=sqlite:data/another.db"]);
    served.line("a companion has served from");
}

#[actix_web::test]
async fn a_database_that_keeps_connections_out_is_waited_for() {
    let Some(postgres) = Postgres::create() else { return };
    let url = url::Url::parse(&postgres.url()).unwrap();
    let name = url.path().trim_start_matches('/').to_owned();
    let mut server = url.clone();
    server.set_path("postgres");
    let allow = |allow: bool| {
        let mut connection = PgConnection::establish(server.as_str()).unwrap();
        connection.batch_execute(&format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS {allow}")).unwrap();
    };
    allow(false);
    let directory = TempDir::new().unwrap();
    let mut served = Served::start(directory.path(), &[&format!("--database-url={url}")]);
    let line = served.line("the service waits for its database");
    assert!(line.contains("ALLOW_CONNECTIONS true lets them in again"), "{line}");
    allow(true);
    let mut browser = served.browser();
    assert_eq!(browser.get("/ready").await.status, 200);
}

#[actix_web::test]
async fn a_process_that_loses_the_lock_while_a_neighbour_does_not_answer_ends_without_a_panic() {
    let Some(postgres) = Postgres::create() else { return };
    // A neighbour that takes the question whether users can sign in, and never answers.
    let neighbour = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let login = format!("--identity-login-url=http://{}/login", neighbour.local_addr().unwrap());
    let directory = TempDir::new().unwrap();
    let mut served = Served::start(directory.path(), &[&format!("--database-url={}", postgres.url()), &login]);
    served.browser();
    let _asked = neighbour.accept().unwrap();
    let _other = postgres.take_serving_lock();
    let line = served.line("this process no longer serves");
    assert!(line.contains("no companion that serves"), "{line}");
    for line in served.log.by_ref() {
        served.read.push(line.unwrap());
    }
    assert_eq!(served.process.wait().unwrap().code(), Some(1));
    let log = served.read.join("\n");
    assert!(!log.contains("panicked"), "{log}");
}

#[actix_web::test]
async fn an_old_backup_and_a_directory_that_takes_no_images_are_warnings() {
    let directory = Arc::new(TempDir::new().unwrap());
    let data_dir: PathBuf = directory.path().to_owned();
    fs::create_dir(data_dir.join("images")).unwrap();
    fs::write(data_dir.join("images/images"), "no directory").unwrap();
    last_backup::note(&data_dir, "2026-11-20T08:00:00Z".parse().unwrap()).unwrap();
    let url = format!("sqlite:{}", data_dir.join("test.db").display());
    let app = TestApp::start_in(directory.clone(), url, &[]).await;
    let ready = app.browser().get_until("/ready", |ready| ready["warnings"][1]["path"] == "images").await;
    let messages = [0, 1].map(|index| ready["warnings"][index]["message"].as_str().unwrap());
    assert_eq!(messages[0], "the last is 28 h old; see docs/alerts.md, CompanionBackupOld");
    assert!(messages[1].contains("images/images, which is no directory"), "{messages:?}");
    // Other tests of this process set the same one.
    while !app.browser().get("/metrics").await.text().contains("companion_warning{part=\"images\"} 1\n") {
        // Probes have a budget.
        sleep(Duration::from_millis(20)).await;
    }
    app.stop().await;
    last_backup::note(&data_dir, Clock::system().now()).unwrap();
    let (_, text) = run(&data_dir, "doctor", &["--data-dir=."]).await;
    assert!(text.lines().any(|line| line.starts_with("ok    backup        the last is 0 h old")), "{text}");
    let still_to_come = Clock::system().now() + chrono::TimeDelta::hours(1_000);
    last_backup::note(&data_dir, still_to_come).unwrap();
    let (_, said) = run(&data_dir, "doctor", &["--data-dir=."]).await;
    let warned =
        "warn  backup        when the last one was is not known: the file last-backup has a time that is still to come";
    assert!(said.lines().any(|line| line.starts_with(warned)), "{said}");
    assert!(text.lines().any(|line| line.starts_with("FAIL  images        no image can be uploaded")), "{text}");
}
