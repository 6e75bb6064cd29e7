//! `companion helper`, as a process beside the service and the sites: pairing, login, steps, upload, and its file. It logs
//! everything, and nothing of that has a secret.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use actix_web::rt::task::spawn_blocking;
use chrono::TimeDelta;
use clap::Parser as _;
use companion::{
    clock::Clock,
    helper::{self, HelperOptions},
    simulator::registration::{SIMULATED_API_KEY, browser},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::harness::{
    app::TestApp,
    binary::{companion, http},
    browser::Browser,
    canary,
    game::{ALICE, BOB},
    push::session_is,
    registration::RegistrationTest,
    relay_client::PATIENCE,
};

/// A setting of the sites.
const API_KEY: &str = "REGISTRATION_API_KEY";
/// File for standard error of the helper, in its directory.
const ERRORS: &str = "errors.txt";

/// The sites run at the real time, as the command does.
async fn beside() -> (RegistrationTest, Browser, TempDir) {
    let test = RegistrationTest::start_at(Clock::system(), None).await;
    let alice = test.app.signed_in(ALICE).await;
    (test, alice, TempDir::new().unwrap())
}

/// As the player starts it, who has no key of the game's app.
fn helper(test: &RegistrationTest, directory: &Path, arguments: &[&str]) -> Command {
    helper_of(test, &test.app, directory, arguments)
}

/// The helper of another service than the test's.
fn helper_of(test: &RegistrationTest, app: &TestApp, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = companion(directory);
    command.envs(test.sites.settings()).env_remove(API_KEY).env("RUST_LOG", "trace");
    command.arg("helper").arg(format!("http://{}", app.address));
    command.args(arguments).arg("--data-dir").arg(directory.join("data"));
    // Nothing reads a pipe while it runs, and it logs more than one holds.
    let errors = File::create(directory.join(ERRORS)).unwrap();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    command
}

/// Everything that it has printed and logged, in which no secret may be.
fn printed(directory: &Path, output: &str) -> String {
    let text = output.to_owned() + &fs::read_to_string(directory.join(ERRORS)).unwrap();
    canary::keep_output(&text);
    text
}

/// Its file in this directory.
fn state_file(directory: &Path) -> Option<PathBuf> {
    let mut files = fs::read_dir(directory).ok()?.map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|kind| kind == "json"))
}

/// The content of its file.
fn stored(directory: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(state_file(directory)?).ok()?).ok()
}

async fn code(alice: &mut Browser) -> String {
    alice.post("/pairing/device/code", None).await.json()["code"].as_str().unwrap().to_owned()
}

/// Runs it to its end.
async fn output(mut command: Command) -> (i32, String) {
    let directory = command.get_current_dir().unwrap().to_owned();
    let Output { status, stdout, .. } = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (status.code().unwrap(), printed(&directory, &String::from_utf8(stdout).unwrap()))
}

/// The output up to the address of the login, and that.
async fn login_address(mut child: Child) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let read = move || {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended: {seen}");
            if let Some((_, url)) = line.split_once("sign in: ") {
                return (lines, url.trim().to_owned());
            }
            seen += &line;
        }
    };
    let (lines, url) = spawn_blocking(read).await.unwrap();
    (child, lines, url)
}

/// Signs this player in at a helper that waits for it; exit code and the rest of its output.
async fn signed_in(mut command: Command, player: &str, by_paste: bool) -> (i32, String) {
    let directory = command.get_current_dir().unwrap().to_owned();
    let (mut child, mut lines, url) = login_address(command.spawn().unwrap()).await;
    let address = browser::sign_in(&url, player.parse().unwrap()).await.unwrap().unwrap();
    if by_paste {
        writeln!(child.stdin.as_mut().unwrap(), "nonsense\n{address}").unwrap();
    } else {
        let shown = http().get(&address).send().await.unwrap();
        assert_eq!(shown.status(), 200);
        assert_eq!(shown.headers()["cache-control"], "no-store");
    }
    let rest = move || {
        let mut text = String::new();
        lines.read_to_string(&mut text).unwrap();
        (child.wait().unwrap().code().unwrap(), printed(&directory, &text))
    };
    spawn_blocking(rest).await.unwrap()
}

#[actix_web::test]
async fn a_machine_is_registered_and_handed_over_once() {
    let (test, mut alice, directory) = beside().await;
    let code_of_alice = code(&mut alice).await;
    let command = helper(&test, directory.path(), &["--code", &code_of_alice, "--no-browser", "--once"]);
    let (status, shown) = signed_in(command, ALICE, false).await;
    assert_eq!(status, 0, "{shown}");
    assert!(shown.contains(&format!("signed in as {ALICE}")) && shown.contains("Pair with Server"), "{shown}");
    session_is(&mut alice, "connected").await;
    let counts = test.sites.counts();
    assert_eq!((counts.check_ins, counts.registrations, counts.violations.len()), (1, 1, 0));

    // Once more: nothing is repeated, and no one signs in.
    let (status, again) = output(helper(&test, directory.path(), &["--once"])).await;
    assert_eq!(status, 0, "{again}");
    assert_eq!(test.sites.counts(), counts);

    let (status, renewed) = output(helper(&test, directory.path(), &["renew"])).await;
    assert_eq!((status, test.sites.counts().registrations), (0, 2), "{renewed}");
    let settled = |shown: &Value| shown["staged"].is_null() && shown["session"]["state"] == "connected";
    alice.get_until("/credentials/push", settled).await;
    let (status, status_text) = output(helper(&test, directory.path(), &["status"])).await;
    assert!(status == 0 && status_text.contains(ALICE) && status_text.contains("connected"), "{status_text}");

    // Its file alone has what is secret.
    let data = directory.path().join("data");
    let file = state_file(&data).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let stored = fs::read_to_string(&file).unwrap();
    let token = serde_json::from_str::<Value>(&stored).unwrap()["deviceToken"].as_str().unwrap().to_owned();
    canary::note(&token);
    assert!(![&shown, &again, &renewed, &status_text].iter().any(|text| text.contains(&token)));
    let secrets: BTreeSet<String> = test.sites.secrets().into_iter().collect();
    let kept = secrets.iter().filter(|secret| stored.contains(*secret)).count();
    assert_eq!(kept, 4, "identity, address, Expo's token and the newest of the login");
    for secret in test.sites.secrets() {
        assert!(![&shown, &again, &renewed, &status_text].iter().any(|text| text.contains(&secret)));
    }

    // A second installation is a device of its own.
    let other = TempDir::new().unwrap();
    let second = code(&mut alice).await;
    let command = helper(&test, other.path(), &["--code", &second, "--paste", "--once"]);
    let (status, pasted) = signed_in(command, ALICE, true).await;
    assert_eq!(status, 0, "{pasted}");
    assert_eq!(test.sites.devices(ALICE.parse().unwrap()).len(), 2);

    let (status, forgotten) = output(helper(&test, directory.path(), &["forget"])).await;
    assert_eq!(status, 0, "{forgotten}");
    assert_eq!(test.sites.devices(ALICE.parse().unwrap()).len(), 1);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    assert_eq!(output(helper(&test, directory.path(), &["status"])).await.0, 1);
}

#[actix_web::test]
async fn another_account_registers_nothing() {
    let (test, mut alice, directory) = beside().await;
    let code = code(&mut alice).await;
    let command = helper(&test, directory.path(), &["--code", &code, "--paste", "--once"]);
    let (status, shown) = signed_in(command, BOB, true).await;
    assert!(status == 1 && shown.contains("another account"), "{shown}");
    assert_eq!((test.sites.counts().check_ins, test.sites.counts().registrations), (0, 0));
}

#[actix_web::test]
async fn a_refusal_says_what_to_do_and_ends_with_its_code() {
    let (test, mut alice, directory) = beside().await;
    let (status, shown) = output(helper(&test, directory.path(), &["--once"])).await;
    assert!(status == 2 && shown.contains("--code"), "{shown}");
    let code = code(&mut alice).await;
    test.set_faults(|faults| faults.installation_refused = Some("API_KEY_SERVICE_BLOCKED".to_owned()));
    let command = helper(&test, directory.path(), &["--code", &code, "--no-browser", "--once"]);
    let (status, shown) = signed_in(command, ALICE, false).await;
    assert!(
        status == 1 && shown.contains("has closed this way") && shown.contains("API_KEY_SERVICE_BLOCKED"),
        "{shown}"
    );
    let (_, shown) = output(helper(&test, directory.path(), &["status"])).await;
    assert!(shown.contains("last failure") && shown.contains("closed this way"), "{shown}");

    test.set_faults(|faults| faults.game_status = Some(403));
    let (status, shown) = output(helper(&test, directory.path(), &["--once"])).await;
    assert!(status == 3 && shown.contains("sign in again"), "{shown}");
}

#[actix_web::test]
async fn a_renewal_that_finds_no_network_is_tried_again_and_the_registration_stays_known() {
    let (test, mut alice, directory) = beside().await;
    let code = code(&mut alice).await;
    // A time so short that it is due at once.
    test.set_faults(|faults| faults.token_seconds = Some(3 * 24 * 60 * 60));
    let command = helper(&test, directory.path(), &["--code", &code, "--no-browser", "--once"]);
    let (status, shown) = signed_in(command, ALICE, false).await;
    assert_eq!(status, 0, "{shown}");
    test.set_faults(|faults| faults.game_status = Some(429));
    let (status, shown) = output(helper(&test, directory.path(), &["--once"])).await;
    assert!(status == 1 && shown.contains("does not answer") && shown.contains("port 443"), "{shown}");
    let (_, shown) = output(helper(&test, directory.path(), &["status"])).await;
    assert!(shown.contains("registered     until"), "{shown}");
    let mut child = helper(&test, directory.path(), &[]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let waits = move || lines.map_while(Result::ok).any(|line| line.contains("trying again"));
    assert!(spawn_blocking(waits).await.unwrap(), "it has ended");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[actix_web::test]
async fn after_a_refused_renewal_the_player_signs_in_again() {
    let (test, mut alice, directory) = beside().await;
    let code = code(&mut alice).await;
    let command = helper(&test, directory.path(), &["--code", &code, "--no-browser", "--once"]);
    let (status, shown) = signed_in(command, ALICE, false).await;
    assert_eq!(status, 0, "{shown}");
    test.set_faults(|faults| faults.game_status = Some(403));
    let (status, shown) = output(helper(&test, directory.path(), &["renew"])).await;
    assert!(status == 3 && shown.contains("sign in again"), "{shown}");
    test.set_faults(|_| {});
    let (status, shown) = signed_in(helper(&test, directory.path(), &["--no-browser", "--once"]), ALICE, false).await;
    assert!(status == 0 && shown.contains("handed over"), "{shown}");
    assert_eq!(test.sites.devices(ALICE.parse().unwrap()).len(), 1);
}

/// Runs the helper with this code until a site hangs, and kills it there.
async fn kill_while_hanging(test: &RegistrationTest, directory: &Path, code: &str) {
    let mut command = helper(test, directory, &["--code", code, "--no-browser", "--once"]);
    let (mut child, _lines, url) = login_address(command.spawn().unwrap()).await;
    let address = browser::sign_in(&url, ALICE.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(http().get(&address).send().await.unwrap().status(), 200);
    test.sites.until_hanging().await;
    child.kill().unwrap();
    child.wait().unwrap();
    printed(directory, "");
}

/// The helper is killed while a step hangs.
async fn killed_during(step: &'static str) {
    let (test, mut alice, directory) = beside().await;
    let code = code(&mut alice).await;
    test.set_faults(|faults| faults.hangs = Some(step.to_owned()));
    kill_while_hanging(&test, directory.path(), &code).await;
    test.set_faults(|_| {});
    let (status, shown) = output(helper(&test, directory.path(), &["--once"])).await;
    assert_eq!(status, 0, "{step}: {shown}");
    let counts = test.sites.counts();
    let counted = [counts.check_ins, counts.installations, counts.addresses, counts.expo_tokens, counts.registrations];
    assert_eq!(counted, [1; 5], "{step}");
}

#[actix_web::test]
async fn a_crash_repeats_no_step() {
    for step in ["check_in", "installation", "push_address", "expo_token", "game_registration"] {
        killed_during(step).await;
    }
}

#[actix_web::test]
async fn a_crash_after_the_registration_leaves_one_device_and_hands_it_over() {
    let (test, mut alice, directory) = beside().await;
    let code = code(&mut alice).await;
    test.set_faults(|faults| faults.answer_lost = true);
    kill_while_hanging(&test, directory.path(), &code).await;
    let player = ALICE.parse().unwrap();
    let registered = test.sites.devices(player);
    assert_eq!(registered.len(), 1, "the game knows it, and the helper does not");
    test.set_faults(|_| {});
    let (status, shown) = output(helper(&test, directory.path(), &["--once"])).await;
    assert!(status == 0 && shown.contains("handed over"), "{shown}");
    assert_eq!((test.sites.devices(player), test.sites.counts().registrations), (registered, 2));

    // As a crash before the upload leaves it.
    let path = state_file(&directory.path().join("data")).unwrap();
    let mut state = stored(&directory.path().join("data")).unwrap();
    state["uploadedAt"] = Value::Null;
    fs::write(&path, state.to_string()).unwrap();
    let (status, shown) = output(helper(&test, directory.path(), &["--once"])).await;
    assert!(status == 0 && shown.contains("handed over"), "{shown}");
    assert_eq!(test.sites.counts().registrations, 2);
}

#[actix_web::test]
async fn the_game_s_app_is_that_of_the_service_unless_the_player_names_its_key() {
    let (test, mut alice, directory) = beside().await;
    let code_of_alice = code(&mut alice).await;
    let mut other = helper(&test, directory.path(), &["--code", &code_of_alice, "--no-browser", "--once"]);
    other.env(API_KEY, "AIzaOfThePlayer");
    let (status, shown) = signed_in(other, ALICE, false).await;
    assert!(status == 1 && shown.contains("API_KEY_INVALID") && !shown.contains("AIzaOfThePlayer"), "{shown}");
    let (status, shown) = output(helper(&test, directory.path(), &["--once"])).await;
    assert!(status == 0 && !shown.contains(SIMULATED_API_KEY), "{shown}");

    // A service without the key: the player learns it before the login.
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let code_there = code(&mut alice).await;
    let directory = TempDir::new().unwrap();
    let (status, shown) = output(helper_of(&test, &app, directory.path(), &["--code", &code_there, "--once"])).await;
    assert!(status == 2 && shown.contains(API_KEY) && !shown.contains("sign in"), "{shown}");
    let mut own = helper_of(&test, &app, directory.path(), &["--no-browser"]);
    own.env(API_KEY, SIMULATED_API_KEY);
    let (mut child, lines, url) = login_address(own.spawn().unwrap()).await;
    let address = browser::sign_in(&url, ALICE.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(http().get(&address).send().await.unwrap().status(), 200);
    // Nothing there receives pushes.
    let handed_over = move || lines.lines().map_while(Result::ok).any(|line| line.contains("handed over"));
    assert!(spawn_blocking(handed_over).await.unwrap(), "it has ended");
    child.kill().unwrap();
    child.wait().unwrap();
    printed(directory.path(), "");
    app.stop().await;
}

#[actix_web::test]
async fn the_browser_is_opened_and_without_one_the_address_is_enough() {
    let (test, mut alice, _) = beside().await;
    for has_browser in [false, true] {
        let (directory, programs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        for name in ["xdg-open", "open"].iter().filter(|_| has_browser) {
            let path = programs.path().join(name);
            fs::write(&path, "#!/bin/sh\nprintf '%s\\n' \"$1\" > \"${0%/*}/opened\"\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let code = code(&mut alice).await;
        let mut command = helper(&test, directory.path(), &["--code", &code, "--once"]);
        let (child, mut lines, url) = login_address(command.env("PATH", programs.path()).spawn().unwrap()).await;
        if has_browser {
            let opened = async {
                let file = programs.path().join("opened");
                // A request gives the program time.
                while fs::read_to_string(&file).unwrap_or_default() != format!("{url}\n") {
                    alice.get("/me").await;
                }
            };
            timeout(PATIENCE, opened).await.expect("it gets the address of the login");
        }
        let address = browser::sign_in(&url, ALICE.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(http().get(&address).send().await.unwrap().status(), 200);
        let rest = move || {
            let mut text = String::new();
            lines.read_to_string(&mut text).unwrap();
            (child.wait_with_output().unwrap().status.code(), text)
        };
        let (status, shown) = spawn_blocking(rest).await.unwrap();
        assert_eq!((status, shown.contains("opened in your browser")), (Some(0), has_browser), "{shown}");
        printed(directory.path(), &shown);
    }
}

#[derive(clap::Parser)]
struct HelperCommandLine {
    #[command(flatten)]
    options: HelperOptions,
}

/// In the test's own process, so that it goes by the test's clock.
#[actix_web::test]
async fn as_long_as_it_runs_the_registration_is_renewed_before_its_end() {
    let test = RegistrationTest::start().await;
    let player = ALICE.parse().unwrap();
    let mut alice = test.app.signed_in(ALICE).await;
    let token = test.app.paired(&mut alice).await.token;
    let directory = TempDir::new().unwrap();
    // Paired and signed in already.
    let device = json!({ "deviceId": "01980000-0000-7000-8000-000000000001", "identity": null, "pushAddress": null,
        "expoToken": null, "authToken": test.sites.token(player), "expiresAt": null });
    let state = json!({ "deviceToken": token, "device": device, "uploadedAt": null, "lastError": null });
    let name = test.app.address.to_string().replace(':', "_");
    fs::write(directory.path().join(format!("{name}.json")), state.to_string()).unwrap();
    let mut line = vec!["helper".to_owned(), format!("http://{}", test.app.address)];
    line.push(format!("--data-dir={}", directory.path().display()));
    let sites = test.sites.settings().into_iter().filter(|(name, _)| *name != API_KEY);
    line.extend(sites.map(|(name, value)| format!("--{}={value}", name.to_lowercase().replace('_', "-"))));
    let options = HelperCommandLine::parse_from(line).options;
    let running = actix_web::rt::spawn(helper::run(options, test.app.clock.clone()));

    let ends = |shown: &Value| shown["expiresAt"].as_str().unwrap_or_default().to_owned();
    let connected = |shown: &Value| shown["session"]["state"] == "connected" && shown["staged"].is_null();
    let mut known = ends(&alice.get_until("/credentials/push", connected).await);
    let registered = || test.sites.counts().registrations;
    // A request gives the helper time after each step of the clock.
    let pass = async |span| {
        test.advance(span);
        test.app.browser().get("/health").await;
        assert!(!test.sites.devices(player).is_empty(), "it has ended");
    };
    for renewal in 1..=3 {
        let begun = test.app.clock.now();
        while registered() == renewal {
            pass(TimeDelta::hours(6)).await;
        }
        assert!(test.app.clock.now() - begun > TimeDelta::days(9), "too early");
        let mut alice = test.app.signed_in(ALICE).await;
        known = ends(&alice.get_until("/credentials/push", |shown| ends(shown) > known && connected(shown)).await);
    }

    // The game is away: the registration stays known, and it is tried again a minute later.
    test.set_faults(|faults| faults.game_status = Some(429));
    let before = registered();
    while registered() == before {
        pass(TimeDelta::hours(6)).await;
    }
    let failed = async {
        while stored(directory.path()).is_none_or(|state| state["lastError"].is_null()) {
            test.app.browser().get("/health").await;
        }
    };
    timeout(PATIENCE, failed).await.expect("the failure is stored");
    test.set_faults(|_| {});
    let before = registered();
    while registered() == before {
        pass(TimeDelta::minutes(1)).await;
    }
    let mut alice = test.app.signed_in(ALICE).await;
    alice.get_until("/credentials/push", |shown| ends(shown) > known).await;

    // The login is withdrawn: only the player can go on.
    test.set_faults(|faults| faults.game_status = Some(403));
    while !running.is_finished() {
        pass(TimeDelta::hours(6)).await;
    }
    assert_eq!(running.await.unwrap().unwrap_err().exit_code(), 3);
    assert_eq!(test.sites.counts().check_ins, 1);
}

#[actix_web::test]
async fn the_url_of_a_service_elsewhere_has_to_be_https() {
    let app = TestApp::start().await;
    let directory = TempDir::new().unwrap();
    let mut command = companion(directory.path());
    command.args(["helper", "http://my.host", "--data-dir", "data"]);
    command.stderr(File::create(directory.path().join(ERRORS)).unwrap());
    let (status, shown) = output(command).await;
    assert!(status == 2 && shown.contains("https"), "{shown}");
    app.stop().await;
}
