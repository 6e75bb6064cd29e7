//! `companion helper`, as a process beside the service and the sites: pairing, login, steps, upload, and its file.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use actix_web::rt::task::spawn_blocking;
use companion::{clock::Clock, simulator::registration::browser};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{
    app::TestApp,
    binary::{companion, http},
    browser::Browser,
    game::{ALICE, BOB},
    push::session_is,
    registration::RegistrationTest,
};

/// The sites run at the real time, as the command does.
async fn beside() -> (RegistrationTest, Browser, TempDir) {
    let test = RegistrationTest::start_at(Clock::system(), None).await;
    let alice = test.app.signed_in(ALICE).await;
    (test, alice, TempDir::new().unwrap())
}

fn helper(test: &RegistrationTest, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = companion(directory);
    command.envs(test.sites.settings()).arg("helper").arg(format!("http://{}", test.app.address));
    command.args(arguments).arg("--data-dir").arg(directory.join("data"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn code(alice: &mut Browser) -> String {
    alice.post("/pairing/device/code", None).await.json()["code"].as_str().unwrap().to_owned()
}

/// Runs it to its end.
async fn output(mut command: Command) -> (i32, String) {
    let Output { status, stdout, stderr } = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout) + &text(stderr))
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
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (child.wait().unwrap().code().unwrap(), text)
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
    let file = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path());
    let file = file.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "json")).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let stored = fs::read_to_string(&file).unwrap();
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
    let mut bare = helper(&test, directory.path(), &["status"]);
    let (status, shown) = output({
        bare.env_remove("REGISTRATION_API_KEY");
        bare
    })
    .await;
    assert!(status == 2 && shown.contains("REGISTRATION_API_KEY"), "{shown}");

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
    assert!(status == 1 && shown.contains("does not answer"), "{shown}");
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

/// The helper is killed while a step hangs.
async fn killed_during(step: &'static str, made: [u32; 5]) {
    let (test, mut alice, directory) = beside().await;
    let code = code(&mut alice).await;
    test.set_faults(|faults| faults.hangs = Some(step.to_owned()));
    let mut command = helper(&test, directory.path(), &["--code", &code, "--no-browser", "--once"]);
    let (mut child, _lines, url) = login_address(command.spawn().unwrap()).await;
    let address = browser::sign_in(&url, ALICE.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(http().get(&address).send().await.unwrap().status(), 200);
    test.sites.until_hanging().await;
    child.kill().unwrap();
    child.wait().unwrap();
    test.set_faults(|_| {});
    let (status, shown) = output(helper(&test, directory.path(), &["--once"])).await;
    assert_eq!(status, 0, "{step}: {shown}");
    let counts = test.sites.counts();
    let counted = [counts.check_ins, counts.installations, counts.addresses, counts.expo_tokens, counts.registrations];
    assert_eq!(counted, made, "{step}");
}

#[actix_web::test]
async fn a_crash_repeats_no_step() {
    for (step, made) in [
        ("check_in", [1; 5]),
        ("installation", [1; 5]),
        ("push_address", [1, 2, 1, 1, 1]),
        ("expo_token", [1; 5]),
        ("game_registration", [1; 5]),
    ] {
        killed_during(step, made).await;
    }
}

#[actix_web::test]
async fn the_url_of_a_service_elsewhere_has_to_be_https() {
    let app = TestApp::start().await;
    let directory = TempDir::new().unwrap();
    let mut command = companion(directory.path());
    command.env("REGISTRATION_API_KEY", "AIza").args(["helper", "http://my.host", "--data-dir", "data"]);
    let (status, shown) = output(command).await;
    assert!(status == 2 && shown.contains("https"), "{shown}");
    app.stop().await;
}
