//! `/metrics`, and the dashboard and alert rules that read it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use yaml_rust2::{Yaml, YamlLoader};

use super::{User, installation, still_game, until};
use crate::crash::{Service, binary};

fn deployed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

/// The alert rules: name and expression.
fn alerts() -> Vec<(String, String)> {
    let text = fs::read_to_string(deployed("prometheus/alerts.yml")).unwrap();
    let document = YamlLoader::load_from_str(&text).unwrap().remove(0);
    let text = |value: &Yaml, name: &str| value[name].as_str().unwrap_or_else(|| panic!("no {name}")).to_owned();
    let groups = document["groups"].as_vec().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_vec().unwrap());
    rules
        .map(|rule| {
            assert!(["warning", "critical"].contains(&&*text(&rule["labels"], "severity")));
            assert!(!text(&rule["annotations"], "summary").is_empty());
            (text(rule, "alert"), text(rule, "expr"))
        })
        .collect()
}

/// The panels of the dashboard: title and expression.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_slice(&fs::read(deployed("grafana/companion.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels
        .flat_map(|panel| {
            let title = panel["title"].as_str().unwrap();
            let targets = panel["targets"].as_array().into_iter().flatten();
            targets.map(|target| (title.to_owned(), target["expr"].as_str().unwrap().to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

/// The metrics that a PromQL expression reads: its identifiers, without functions, operators and labels.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
    const LABEL_LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
    let mut names = BTreeSet::new();
    let mut rest = expression;
    // `sum(…)`, or `sum by (…) (…)`.
    let is_function = |behind: &str| ["(", "by ", "without "].iter().any(|next| behind.starts_with(next));
    let after = |text: &'_ str, end: char| text.find(end).map_or(text.len(), |at| at + 1);
    while let Some(first) = rest.chars().next() {
        match first {
            '{' => rest = &rest[after(rest, '}')..],
            '[' => rest = &rest[after(rest, ']')..],
            _ if first.is_ascii_digit() => {
                rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
            }
            _ if first.is_ascii_alphabetic() || first == '_' => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
                let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
                rest = behind.trim_start();
                if LABEL_LISTS.contains(&word) {
                    rest = &rest[after(rest, ')')..];
                } else if !is_function(rest) && !OPERATORS.contains(&word) {
                    names.insert(word.to_owned());
                }
            }
            _ => rest = &rest[first.len_utf8()..],
        }
    }
    names
}

#[test]
fn every_alert_has_a_paragraph_that_says_what_to_do() {
    let text = fs::read_to_string(deployed("prometheus/alerts.yml")).unwrap();
    let document = YamlLoader::load_from_str(&text).unwrap().remove(0);
    let manual = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.md")).unwrap();
    let headings: Vec<&str> = manual.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let rules = document["groups"].as_vec().unwrap().iter().flat_map(|group| group["rules"].as_vec().unwrap());
    let mut names = Vec::new();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        let runbook = rule["annotations"]["runbook"].as_str().unwrap_or_else(|| panic!("{name} has no runbook"));
        assert_eq!(runbook, format!("docs/alerts.md#{}", name.to_lowercase()));
        assert!(headings.contains(&name), "docs/alerts.md has no paragraph {name}");
        names.push(name.to_owned());
    }
    for heading in headings.iter().filter(|heading| heading.starts_with("Companion")) {
        assert!(names.iter().any(|name| name == heading), "{heading} rings nowhere");
    }
}

#[test]
fn the_metrics_of_an_expression_are_found() {
    let found =
        metrics_of(r#"histogram_quantile(0.95, sum by (le, a) (rate(b_bucket{c="d(e"}[5m]))) > 1e3 and f:g == 2"#);
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), ["b_bucket", "f:g"]);
    assert_eq!(metrics_of("(time() - a{b=~\"$c\"}) / 3600").len(), 1);
}

/// Text of `GET /metrics`.
async fn scrape(service: &Service) -> String {
    let answer = binary::http().get(format!("{}/metrics", service.addresses.api)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

/// Each series, without its value.
fn series(metrics: &str) -> BTreeSet<String> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

fn value(metrics: &str, name: &str) -> f64 {
    let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

/// A user pairs this game server, watches it and has a test alarm sent.
async fn journey(user: &User, game: std::net::SocketAddr) -> super::Socket {
    let server = user.pair(game).await;
    user.until_alarm_is_known(&server).await;
    let mut socket = user.open().await;
    socket.subscribe(&server).await;
    let drill = format!("/paired-servers/{server}/drill");
    let (status, answer) = user.ask(Method::POST, &drill, Some(json!({}))).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    socket.expect("raid").await;
    socket
}

#[actix_web::test]
async fn dashboards_and_alerts_read_what_there_is_and_more_users_make_no_more_series() {
    const USERS: u64 = 8;
    let (installation, cookies) = installation(USERS, &[]);
    let service = installation.start();
    // A game server takes five connections of one address.
    let games = [still_game().await, still_game().await, still_game().await];
    let first = User::new(&service.addresses, &cookies[0]);
    let mut sockets = vec![journey(&first, games[0].addr()).await];
    // The delivery is stored after a socket took it.
    let delivered = "companion_incidents{state=\"delivered\"}";
    until("the outcome", || async { value(&scrape(&service).await, delivered) >= 1.0 }).await;
    let metrics = scrape(&service).await;
    let names: BTreeSet<&str> =
        metrics.lines().map(|line| line.split(['{', ' ']).next().unwrap()).filter(|name| *name != "#").collect();
    let mut read = BTreeSet::new();
    for (place, expression) in alerts().into_iter().chain(panels()) {
        let metrics = metrics_of(&expression);
        assert!(!metrics.is_empty(), "{place}: {expression}");
        for metric in metrics {
            // Prometheus' own says whether it was answered.
            assert!(names.contains(&*metric) || metric == "up", "{place} reads {metric}, which there is not");
            read.insert(metric);
        }
    }
    assert!(read.len() > 25, "{read:?}");
    for (name, least) in [
        ("companion_ready", 1.0),
        ("companion_database_up", 1.0),
        ("companion_relay_connections", 1.0),
        ("companion_relay_subscriptions", 1.0),
        ("companion_relay_frames_total{kind=\"raid\"}", 1.0),
        ("companion_relay_frames_total{kind=\"snapshot\"}", 1.0),
        ("companion_relay_bytes_total", 1_000.0),
        ("companion_raid_latency_seconds_count", 1.0),
        ("companion_links{state=\"connected\"}", 1.0),
        (delivered, 1.0),
        ("companion_disk_free_bytes", 1.0),
        ("process_resident_memory_bytes", 1e6),
        ("process_open_fds", 10.0),
    ] {
        assert!(value(&metrics, name) >= least, "{name}: {}", value(&metrics, name));
    }
    assert_eq!(value(&metrics, "companion_relay_messages_waiting{lane=\"raid\"}"), 0.0);

    let others = cookies[1..].iter().enumerate().map(|(number, cookie)| {
        let (user, game) = (User::new(&service.addresses, cookie), games[number % games.len()].addr());
        async move { journey(&user, game).await }
    });
    sockets.extend(join_all(others).await);
    let after = scrape(&service).await;
    assert!(value(&after, "companion_relay_connections") >= USERS as f64);
    let (before, after) = (series(&metrics), series(&after));
    let new: Vec<&String> = after.difference(&before).collect();
    assert!(new.is_empty(), "these came with more users and servers: {new:?}");
    assert!(after.len() < 600, "{} series", after.len());
    drop(sockets);
}

/// Answer of `promtool`; `None` where there is none.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    use std::io::Write as _;
    let spawned = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        eprintln!("skipped: promtool is not installed (Debian's package prometheus has it)");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn promtool_takes_the_rules_and_the_expressions_of_the_dashboard() {
    let rules = deployed("prometheus/alerts.yml");
    let Some((passed, said)) = promtool(&["check", "rules", rules.to_str().unwrap()], "") else { return };
    assert!(passed, "{said}");
    // As recording rules, with Grafana's variables filled in.
    let rules: Vec<Value> = panels()
        .iter()
        .enumerate()
        .map(|(number, (_, expr))| {
            json!({ "record": format!("panel:{number}"), "expr": expr.replace("$__rate_interval", "1m") })
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("panels.yml");
    fs::write(&file, json!({ "groups": [{ "name": "panels", "rules": rules }] }).to_string()).unwrap();
    let (passed, said) = promtool(&["check", "rules", file.to_str().unwrap()], "").unwrap();
    assert!(passed, "{said}");
}

#[test]
fn each_alert_rings_for_what_is_wrong_and_for_nothing_else() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operation/alerts_test.yml");
    let text = fs::read_to_string(&cases).unwrap();
    for (name, _) in alerts() {
        assert!(text.contains(&format!("alertname=\"{name}\"")), "{name} is never shown to ring");
    }
    let Some((passed, said)) = promtool(&["test", "rules", cases.to_str().unwrap()], "") else { return };
    assert!(passed, "{said}");
}

#[actix_web::test]
async fn promtool_finds_nothing_wrong_with_the_metrics() {
    if promtool(&["--version"], "").is_none() {
        return;
    }
    let (installation, cookies) = installation(1, &[]);
    let service = installation.start();
    let game = still_game().await;
    let _socket = journey(&User::new(&service.addresses, &cookies[0]), game.addr()).await;
    let (passed, said) = promtool(&["check", "metrics"], &scrape(&service).await).unwrap();
    assert!(passed, "{said}");
}
