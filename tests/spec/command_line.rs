//! The binary: exit codes, messages, signals.

use std::{
    fs::Permissions,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::harness::binary::companion;

#[test]
fn without_a_command_it_prints_its_help() {
    let output = companion(TempDir::new().unwrap().path()).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for command in
        ["serve", "migrate", "check-config", "openapi", "keys", "audit", "gen-secrets", "backup", "restore", "doctor"]
    {
        assert!(text.contains(command), "{text}");
    }
}

#[test]
fn all_faults_of_the_settings_are_reported_at_once() {
    let directory = TempDir::new().unwrap();
    let output =
        companion(directory.path()).args(["check-config", "--app-env=production", "--workers=0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for variable in ["SESSION_SECRET", "BASE_URL", "WORKERS"] {
        assert!(text.contains(variable), "{text}");
    }
}

/// The directory has nothing in it.
fn untouched(directory: &TempDir) -> bool {
    std::fs::read_dir(directory.path()).unwrap().count() == 0
}

#[test]
fn a_look_makes_nothing_and_says_that_nothing_is_there() {
    for (command, words) in [
        (&["keys", "status"][..], "data/secrets.env"),
        (&["alarms"], "data/companion.db does not exist"),
        (&["audit", "verify"], "data/companion.db does not exist"),
        (&["billing", "parked"], "data/companion.db does not exist"),
        (&["backup", "it.tar"], "data/companion.db does not exist"),
    ] {
        let directory = TempDir::new().unwrap();
        let output = companion(directory.path()).args(command).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {text}");
        assert!(text.contains(words), "{command:?}: {text}");
        assert!(untouched(&directory), "{command:?}");
    }
    let directory = TempDir::new().unwrap();
    for words in ["steps that were missing: ", "was up to date already"] {
        let migrated = companion(directory.path()).arg("migrate").output().unwrap();
        let text = String::from_utf8_lossy(&migrated.stdout).into_owned();
        assert!(migrated.status.success() && text.contains(words), "{text}");
    }
    for command in [&["check-config"][..], &["keys", "status"], &["alarms"], &["audit", "verify"]] {
        assert!(companion(directory.path()).args(command).output().unwrap().status.success(), "{command:?}");
    }
}

fn check_config(directory: &TempDir, variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = companion(directory.path());
    let output = command.arg("check-config").args(arguments).envs(variables.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn settings_of_a_fresh_directory_are_valid() {
    let directory = TempDir::new().unwrap();
    let (code, text) = check_config(&directory, &[], &[]);
    assert!(code == Some(0) && text.contains("SESSION_SECRET") && text.contains("data/secrets.env"), "{text}");
    assert!(untouched(&directory));
}

#[test]
fn an_unknown_name_is_reported_with_the_one_that_was_meant() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("it.env"), "TRUSTED_PROXY=10.0.0.1\nSTEAM=1\nWORKERS=2\n").unwrap();
    for variables in [&[("SESION_SECRET", "a")][..], &[("SESION_SECRET", "a"), ("WORKERS", "none")]] {
        let (code, text) = check_config(&directory, variables, &["--env-file=it.env"]);
        assert_eq!(code, Some(if variables.len() == 1 { 0 } else { 2 }), "{text}");
        for warning in [
            "TRUSTED_PROXY is no setting; did you mean TRUSTED_PROXIES?",
            "STEAM is no setting",
            "SESION_SECRET is no setting; did you mean SESSION_SECRET?",
        ] {
            assert!(text.contains(&format!("warning: {warning}\n")), "{warning}: {text}");
        }
    }
}

#[test]
fn a_name_that_is_set_twice_in_a_file_is_said() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("it.env"), "WORKERS=2\n\nWORKERS=none\n").unwrap();
    let (code, text) = check_config(&directory, &[], &["--env-file=it.env"]);
    assert!(
        code == Some(0) && text.contains("warning: WORKERS is set twice in the file of variables, lines 1, 3"),
        "{text}"
    );
}

#[test]
fn a_setting_that_does_nothing_without_another_one_is_said() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("it.env"), "REGISTRATION_PROJECT=other\nPAYMENT_AUTOMATIC_TAX=false\n")
        .unwrap();
    std::fs::write(directory.path().join("key"), "AIza\n").unwrap();
    let region = [("IMAGES_S3_REGION", "eu-central-1")];
    let (code, text) = check_config(&directory, &region, &["--env-file=it.env", "--player-stats-poll-seconds=30"]);
    for (setting, needed) in [
        ("REGISTRATION_PROJECT", "REGISTRATION_API_KEY"),
        ("IMAGES_S3_REGION", "IMAGES_S3_BUCKET"),
        ("PLAYER_STATS_POLL_SECONDS", "PLAYER_STATS_URL"),
    ] {
        let warning = format!("warning: {setting} is set without {needed}, and is of no use alone\n");
        assert!(code == Some(0) && text.contains(&warning), "{warning}{text}");
    }
    assert!(!text.contains("PAYMENT_AUTOMATIC_TAX"), "it is off: {text}");
    // A key that is in a file is one.
    let key = directory.path().join("key");
    let key = [("REGISTRATION_API_KEY_FILE", key.to_str().unwrap())];
    let (code, text) = check_config(&directory, &key, &["--env-file=it.env"]);
    assert!(code == Some(0) && !text.contains("REGISTRATION_PROJECT"), "{text}");
}

#[test]
fn every_variable_that_is_blank_is_absent() {
    let directory = TempDir::new().unwrap();
    let example = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/.env.example")).unwrap();
    let names = example.lines().filter_map(|line| line.strip_prefix('#')?.split_once('=')).map(|(name, _)| name);
    let mut blank: Vec<(&str, &str)> = names.map(|name| (name, " ")).collect();
    assert!(blank.len() > 50);
    blank.push(("LOG_FORMAT", ""));
    let (code, text) = check_config(&directory, &blank, &[]);
    assert!(code == Some(0) && text.contains("The settings are valid."), "{text}");
    assert!(untouched(&directory));
}

#[test]
fn no_fault_hides_another() {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let variables = [
        ("LOG_FORMAT", "xml"),
        ("SESSION_SALT_FILE", "none"),
        ("DATA_DIR", "file/data"),
        ("ALLOW_PLAIN_DATABASE", "perhaps"),
        ("DATABASE_URL", "mysql://localhost"),
        ("CREDS_ENCRYPTION_KEY_LOST", "perhaps"),
        ("PAYMENT_TRIAL_DAYS", "week"),
        ("PAYMENT_PRICE_SCOUT", "price_1"),
        ("IMAGES_S3_BUCKET", "icons"),
        ("IMAGES_S3_ENDPOINT", "s3.test"),
    ];
    let (code, text) = check_config(&directory, &variables, &[]);
    assert_eq!(code, Some(2), "{text}");
    for variable in variables.map(|(variable, _)| variable) {
        let named = text.lines().any(|line| line.starts_with(variable));
        assert!(named || variable == "IMAGES_S3_BUCKET", "{variable}: {text}");
    }
    assert!(text.contains("IMAGES_S3_ACCESS_KEY_ID is missing"), "{text}");
}

#[test]
fn a_named_file_of_variables_takes_the_place_of_the_local_one() {
    let directory = TempDir::new().unwrap();
    assert!(companion(directory.path()).arg("migrate").output().unwrap().status.success());
    let run = |arguments: &[&str]| {
        let output = companion(directory.path()).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    std::fs::write(directory.path().join(".env"), "APP_ENV=staging\n").unwrap();
    std::fs::write(directory.path().join("other.env"), "WORKERS=none\n").unwrap();
    let (code, text) = run(&["check-config", "--env-file", "other.env"]);
    assert!(code == Some(2) && text.contains("WORKERS") && !text.contains("APP_ENV"), "{text}");
    let (code, text) = run(&["check-config", "--env-file=none.env"]);
    assert!(code == Some(1) && text.contains("none.env"), "{text}");
    let (code, text) = run(&["keys", "status", "--env-file=other.env", "--workers=1"]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_local_file_sets_variables_and_the_environment_has_precedence() {
    let directory = TempDir::new().unwrap();
    assert!(companion(directory.path()).arg("migrate").output().unwrap().status.success());
    std::fs::write(directory.path().join(".env"), "APP_ENV=staging\n").unwrap();
    let output = companion(directory.path()).arg("check-config").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = companion(directory.path()).env("APP_ENV", "development").arg("check-config").output().unwrap();
    assert!(output.status.success());
}

#[test]
fn it_migrates_and_prints_its_document() {
    let directory = TempDir::new().unwrap();
    assert!(companion(directory.path()).arg("migrate").output().unwrap().status.success());
    assert!(directory.path().join("data/companion.db").exists());
    let output = companion(directory.path()).arg("openapi").output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["info"]["title"], "companion");
}

#[test]
fn its_version_names_the_commit() {
    let output = companion(TempDir::new().unwrap().path()).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let commit = text.trim().strip_prefix(concat!("companion ", env!("CARGO_PKG_VERSION"), " (")).unwrap();
    let commit = commit.strip_suffix(')').unwrap();
    assert!(commit == "unknown" || commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
    let changes = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/CHANGELOG.md")).unwrap();
    assert!(changes.contains(concat!("\n## ", env!("CARGO_PKG_VERSION"), "\n")));
}

/// A repository with a program of this name and version, and `deploy/release` of this one; none without git.
struct Released {
    root: TempDir,
    /// Programs before those of this machine, and the binary that is released.
    programs: TempDir,
}

impl Released {
    fn new() -> Option<Self> {
        if Command::new("git").arg("--version").output().is_err() {
            eprintln!("SKIPPED: git is not installed");
            return None;
        }
        let released = Self { root: TempDir::new().unwrap(), programs: TempDir::new().unwrap() };
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for copied in ["deploy/release", ".gitattributes", "src/build/commit", "LICENSE-MIT", "LICENSE-APACHE"] {
            released.write(copied, "");
            std::fs::copy(here.join(copied), released.root.path().join(copied)).unwrap();
        }
        for page in ["README.md", ".env.example", "docs/operations.md", "src/main.rs"] {
            released.write(page, "fn main() {}\n");
        }
        let name = "[package]\nname = \"companion\"\nversion = \"1.2.3\"\nedition = \"2024\"\n";
        released.write("Cargo.toml", &format!("{name}license = \"MIT/Apache-2.0\"\n"));
        released.write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"companion\"\nversion = \"1.2.3\"\n");
        released.git(&["init", "--quiet"]);
        Some(released)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A program of this name, which is found before others.
    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.programs.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=A", "-c", "user.email=a@example.org"]).args(arguments);
        let output = command.current_dir(self.root.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self, changes: &str) {
        self.write("CHANGELOG.md", &format!("# Changes\n{changes}"));
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message=It"]);
    }

    fn release(&self, binary: &Path) -> Output {
        let path = format!("{}:{}", self.programs.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.arg(self.root.path().join("deploy/release")).arg(binary).env("PATH", path).output().unwrap()
    }

    /// Runs this in the directory of the release: what it prints.
    fn shell(&self, line: &str) -> String {
        let directory = self.root.path().join("target/release-1.2.3");
        let output = Command::new("bash").args(["-e", "-c", line]).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

#[test]
fn a_release_is_refused_while_changes_are_in_no_version_and_when_its_tag_is_there() {
    let Some(released) = Released::new() else { return };
    let refusal = |changes: &str| {
        released.commit(changes);
        let output = released.release(Path::new("./none"));
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let reason = refusal("\n## 1.2.30\n\n- More.\n");
    assert!(reason.contains("says nothing of 1.2.3"), "{reason}");
    let reason = refusal("\n## Unreleased\n\n- More.\n\n## 1.2.3\n\n- This.\n");
    assert!(reason.contains("in no version"), "{reason}");
    for empty in ["", "\n## Unreleased\n"] {
        let reason = refusal(&format!("{empty}\n## 1.2.3\n\n- This.\n"));
        assert!(reason.contains("./none"), "it goes on to the binary, which is not there: {reason}");
    }
    released.git(&["tag", "v1.2.3"]);
    let reason = refusal("\n## 1.2.3\n\n- This.\n");
    assert!(reason.contains("there is a tag v1.2.3"), "{reason}");
}

#[test]
fn a_release_has_source_binary_image_what_is_in_it_and_sums_of_all() {
    let Some(released) = Released::new() else { return };
    released.commit("\n## 1.2.3\n\n- This.\n");
    let commit = released.git(&["rev-parse", "HEAD"]);
    let of_another_commit = released.program("companion", "echo 'companion 1.2.3 (0123456789ab)'");
    let refused = released.release(&of_another_commit);
    let reason = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && reason.contains("says companion 1.2.3 (0123456789ab), not"), "{reason}");

    let version = format!("companion 1.2.3 ({})", &commit[..12]);
    let binary = released.program("companion", &format!("echo '{version}'"));
    released.program("docker", "exit 1");
    // Its last argument of `save` is the image, the one before it where it goes.
    let podman =
        r#"case $1 in save) for last; do into=$was was=$last; done; echo "$last" >"$into" ;; *) echo "$*" ;; esac"#;
    released.program("podman", podman);
    let made = released.release(&binary);
    let said = String::from_utf8_lossy(&made.stdout);
    assert!(made.status.success(), "{said}{}", String::from_utf8_lossy(&made.stderr));
    let built = format!("build --format docker --build-arg COMMIT={} --tag companion:1.2.3 .", &commit[..12]);
    assert!(said.contains(&built), "{said}");
    released.shell("sha256sum --check --strict SHA256SUMS");
    let listed = released.shell("ls | grep -v SHA256SUMS | sort");
    assert_eq!(listed, released.shell("cut -d ' ' -f 3 SHA256SUMS | sort"));
    assert_eq!(released.shell("tar -xzOf companion-1.2.3.tar.gz companion-1.2.3/src/build/commit"), commit);
    let source = released.shell("tar -tzf companion-1.2.3.tar.gz");
    for file in ["Cargo.toml", "Cargo.lock", "src/main.rs", "deploy/release"] {
        assert!(source.lines().any(|line| line == format!("companion-1.2.3/{file}")), "{source}");
    }
    let archive = listed.lines().find(|name| name.contains("-linux-") || name.contains("-apple-")).unwrap();
    assert_eq!(released.shell(&format!("tar -xzf {archive} && companion-1.2.3/companion --version")), version);
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md", ".env.example", "docs", "deploy"] {
        released.shell(&format!("test -e companion-1.2.3/{file}"));
    }
    assert_eq!(released.shell("gzip --decompress --stdout companion-1.2.3-image.tar.gz"), "companion:1.2.3");
    if listed.contains(".cdx.json") {
        let list: serde_json::Value = serde_json::from_str(&released.shell("cat companion-1.2.3.cdx.json")).unwrap();
        let root = &list["metadata"]["component"];
        assert_eq!((&list["bomFormat"], &root["version"]), (&"CycloneDX".into(), &"1.2.3".into()));
        assert_eq!(root["purl"], "pkg:cargo/companion@1.2.3");
        assert_eq!(root["licenses"][0]["expression"], "MIT OR Apache-2.0");
    } else {
        assert!(said.contains("Not made: the SBOM"), "{said}");
    }

    // A registry that cannot be reached leaves a release without an image, and says so.
    released.program("podman", "exit 125");
    let made = released.release(&binary);
    assert!(made.status.success());
    assert!(String::from_utf8_lossy(&made.stdout).contains("Not made: the image\n"));
    assert!(String::from_utf8_lossy(&made.stderr).contains("SKIPPED the image: it could not be built"));
    assert!(!released.shell("sha256sum --check --strict SHA256SUMS").contains("image"));
}

#[test]
fn fresh_secrets_are_fit_for_production_and_differ_each_time() {
    let directory = TempDir::new().unwrap();
    let fresh = || String::from_utf8(companion(directory.path()).arg("gen-secrets").output().unwrap().stdout).unwrap();
    let (first, second) = (fresh(), fresh());
    assert_eq!(first.lines().count(), 3);
    for (one, other) in first.lines().zip(second.lines()) {
        assert_ne!(one, other);
    }
    std::fs::write(directory.path().join(".env"), first).unwrap();
    let urls = ["--base-url", "--frontend-url"].map(|flag| format!("{flag}=https://companion.example"));
    let output =
        companion(directory.path()).args(["check-config", "--app-env=production"]).args(urls).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn without_stored_credentials_the_status_of_the_keys_is_good() {
    let directory = TempDir::new().unwrap();
    assert!(companion(directory.path()).arg("migrate").output().unwrap().status.success());
    let output = companion(directory.path()).args(["keys", "status"]).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("has no number yet"));
}

#[test]
fn a_port_in_use_is_reported_by_one_clear_message() {
    let directory = TempDir::new().unwrap();
    let in_use = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = in_use.local_addr().unwrap().to_string();
    let output = companion(directory.path()).args(["serve", "--api-listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("API_LISTEN") && text.contains(&address), "{text}");
}

#[test]
fn signals_stop_it_in_good_order() {
    for signal in ["TERM", "INT"] {
        let directory = TempDir::new().unwrap();
        let mut process = companion(directory.path())
            .args(["serve", "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0", "--push-address=127.0.0.1:9"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("the API listens on")), "it starts");
        let sent = Command::new("kill").args(["-s", signal, &process.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert!(lines.any(|line| line.contains("stopping")), "it logs that it stops");
        assert_eq!(process.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_database_that_is_down_is_asked_again_until_a_signal_comes() {
    let directory = TempDir::new().unwrap();
    let mut process = companion(directory.path())
        .args(["serve", "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0", "--push-address=127.0.0.1:9"])
        .arg("--database-url=postgres://u:hunter2@127.0.0.1:1/none")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("asks it again until it answers")).expect("it waits");
    assert!(line.contains("Connection refused") && !line.contains("hunter2"), "{line}");
    let sent = Command::new("kill").args(["-s", "TERM", &process.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_database_that_cannot_be_meant_ends_the_start() {
    let directory = TempDir::new().unwrap();
    let output = companion(directory.path())
        .args(["serve", "--database-url=postgres://u:hunter2@127.0.0.1:99999999/none"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("the database") && !text.contains("hunter2"), "{text}");
}

#[test]
fn the_port_that_was_asked_for_is_named_when_one_that_follows_from_it_is_taken() {
    let directory = TempDir::new().unwrap();
    let in_use = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = in_use.local_addr().unwrap().port();
    let asked = (taken - 2).to_string();
    let output = companion(directory.path()).args(["demo", "--port", &asked]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("--port {asked} takes")) && text.contains("is in use"), "{text}");
}

/// Ends with this value.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the binary and waits for a line on its standard output.
fn until_printed(command: &mut Command, text: &str) -> Running {
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(text)), "{text}");
    // Its next output has a reader.
    std::thread::spawn(move || lines.for_each(drop));
    Running(process)
}

#[test]
fn the_settings_that_simulate_writes_lead_to_all_of_its_neighbours() {
    let directory = TempDir::new().unwrap();
    let ports = ["game", "identity", "push", "player-stats", "payments", "chat", "registration"]
        .map(|name| format!("--{name}-port=0"));
    let mut simulate = companion(directory.path());
    simulate.args(["simulate", "--env-file=it.env"]).args(ports);
    let _running = until_printed(&mut simulate, "playerToken");
    let doctor = ["doctor", "--env-file=it.env", "--api-listen=127.0.0.1:0", "--relay-listen=127.0.0.1:0"];
    let output = companion(directory.path()).args(doctor).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let neighbours = ["sign-in", "profiles", "player stats", "payments", "chat", "push"];
    let claims = ["payment key", "price", "bot token", "profile key"];
    for neighbour in neighbours.into_iter().chain(claims) {
        assert!(text.contains(&format!("ok    {neighbour} ")), "{neighbour}: {text}");
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn a_demo_takes_a_dashboard_of_ones_own_and_refuses_what_is_no_address() {
    let directory = TempDir::new().unwrap();
    let output = companion(directory.path()).args(["demo", "--port=0", "--frontend-url=localhost"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("FRONTEND_URL"), "{text}");

    let own = "--frontend-url=http://localhost:5173";
    let mut demo = companion(directory.path());
    let _running = until_printed(demo.args(["demo", "--port=0", "--data-dir=it", own]), "The demo is running");
    let file = std::fs::read_to_string(directory.path().join("it/demo.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    let answer = actix_web::rt::System::new().block_on(async {
        let request = crate::harness::binary::http()
            .get(format!("{}/me", file["apiUrl"].as_str().unwrap().trim_end_matches('/')));
        let request = request.header("cookie", file["cookie"].as_str().unwrap());
        request.header("origin", "http://localhost:5173").send().await.unwrap()
    });
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["access-control-allow-origin"], "http://localhost:5173");
}

#[test]
fn a_device_to_toggle_that_does_not_exist_or_is_no_switch_is_reported() {
    let directory = TempDir::new().unwrap();
    let mut demo = companion(directory.path());
    let registered = "is paired: the user is registered for the game's pushes until 20";
    let _running = until_printed(demo.args(["demo", "--port=0", "--data-dir=it"]), registered);
    for (device, words) in [("999", "there is no device 999"), ("4244", "not_a_switch")] {
        let watch = ["watch", "it/demo.json", "--toggle", device];
        let output = companion(directory.path()).args(watch).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && text.contains(words), "{text}");
    }
}

#[test]
fn a_demo_with_teams_has_users_in_each_who_have_paired_the_devices_of_their_own_base() {
    let directory = TempDir::new().unwrap();
    let mut demo = companion(directory.path());
    let _running = until_printed(demo.args(["demo", "--port=0", "--data-dir=it", "--teams=2"]), "Ash, Briar, Cole");
    let file = std::fs::read_to_string(directory.path().join("it/demo.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    let api = file["apiUrl"].as_str().unwrap().trim_end_matches('/');
    let devices = actix_web::rt::System::new().block_on(async {
        let mut teams = Vec::new();
        for team in file["teams"].as_array().unwrap() {
            let mut users = Vec::new();
            for user in team.as_array().unwrap() {
                let url = format!("{api}/paired-servers/{}/devices", user["serverId"].as_str().unwrap());
                let request =
                    crate::harness::binary::http().get(url).header("cookie", user["cookie"].as_str().unwrap());
                let answer = request.send().await.unwrap().bytes().await.unwrap();
                let devices: serde_json::Value = serde_json::from_slice(&answer).unwrap();
                let ids = devices["devices"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|device| device["deviceId"].as_str().unwrap().to_owned());
                users.push(ids.collect::<std::collections::BTreeSet<_>>());
            }
            teams.push(users);
        }
        teams
    });
    assert_eq!(
        devices.iter().map(Vec::len).collect::<Vec<_>>(),
        [2, 3],
        "the demo user is the third of the first team"
    );
    assert!(devices.iter().flatten().all(|ids| ids.len() == 6), "{devices:?}");
    assert!(devices.iter().all(|team| team.iter().all(|ids| *ids == team[0])), "{devices:?}");
    assert!(devices[0][0].is_disjoint(&devices[1][0]), "{devices:?}");
}
