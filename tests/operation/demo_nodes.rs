//! `companion demo --nodes`: what it says where something is missing, and nodes that serve one user until the demo ends.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use diesel::{
    Connection as _, PgConnection, QueryableByName, RunQueryDsl as _, sql_query,
    sql_types::{BigInt, Text},
};
use reqwest::{
    Method,
    header::{COOKIE, LOCATION, SET_COOKIE},
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{sync::mpsc, time::timeout};
use url::Url;

use super::{Addresses, User, binary, until};

/// Longest start of a demo, on a machine that is busy; only a test that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(180);
/// Redirects of a sign-in, and some more.
const REDIRECTS: usize = 10;

/// A demo as a process of its own; killed when dropped, and its nodes with it.
struct RunningDemo {
    process: Child,
    lines: mpsc::UnboundedReceiver<String>,
    seen: Vec<String>,
}

impl RunningDemo {
    fn start(directory: &Path, flags: &[String]) -> Self {
        let mut command = binary::companion(directory);
        command.arg("demo").args(flags).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(process.stdout.take().unwrap()), Box::new(process.stderr.take().unwrap())];
        for output in outputs {
            let sender = sender.clone();
            thread::spawn(move || {
                // Read on after the test has ended, or the demo waits for room in the pipe.
                BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
            });
        }
        Self { process, lines, seen: Vec::new() }
    }

    /// The next line with this text.
    async fn expect(&mut self, text: &str) -> String {
        let find = async {
            while let Some(line) = self.lines.recv().await {
                self.seen.push(line.clone());
                if line.contains(text) {
                    return Some(line);
                }
            }
            None
        };
        let found = timeout(PATIENCE, find).await.ok().flatten();
        found.unwrap_or_else(|| panic!("no line with {text:?}:\n{}", self.seen.join("\n")))
    }
}

impl Drop for RunningDemo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Databases of this name.
fn databases(server: &str, name: &str) -> i64 {
    let mut connection = PgConnection::establish(server).unwrap();
    let query = sql_query("SELECT count(*) AS count FROM pg_database WHERE datname = $1").bind::<Text, _>(name);
    query.get_result::<Count>(&mut connection).unwrap().count
}

/// Follows the link as a browser does, whose cookies are for all ports of this machine; the cookie of the session.
async fn sign_in(link: &str) -> String {
    let (http, mut url) = (binary::http(), Url::parse(link).unwrap());
    let mut cookies = BTreeMap::<String, String>::new();
    for _ in 0..REDIRECTS {
        let sent: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let answer = http.get(url.clone()).header(COOKIE, sent.join("; ")).send().await.unwrap();
        for cookie in answer.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = cookie.split_once('=').unwrap();
            cookies.insert(name.to_owned(), value.to_owned());
        }
        let Some(location) = answer.headers().get(LOCATION) else { break };
        url = url.join(location.to_str().unwrap()).unwrap();
    }
    format!("rp_sess={}", cookies.get("rp_sess").expect("the link signs in"))
}

/// Where a node listens, by its place in `demo.json`.
fn addresses(node: &Value) -> Addresses {
    let text = |name: &str| node[name].as_str().unwrap();
    let relay = text("relayUrl").trim_start_matches("ws://").parse().unwrap();
    Addresses { api: text("apiUrl").to_owned(), relay }
}

fn process(node: &Value) -> Pid {
    Pid::from_raw(node["process"].as_i64().unwrap().try_into().unwrap()).unwrap()
}

#[test]
fn all_that_a_demo_with_nodes_lacks_is_said_before_anything_starts() {
    let directory = TempDir::new().unwrap();
    let missing = ["--nats-server=/none/nats-server", "--database-url=postgres://u:hunter2@127.0.0.1:1/none"];
    let output = binary::companion(directory.path())
        .args(["demo", "--nodes=2", "--data-dir=it"])
        .args(missing)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for words in [
        "the demo does not start: --nodes needs what is not here:\n",
        "\n- a NATS server: /none/nats-server: No such file or directory",
        "install nats-server 2.11 or later",
        "\n- a PostgreSQL that answers: ",
        "name another by --database-url or DATABASE_URL",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("hunter2") && output.stdout.is_empty(), "{text}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

    for nodes in ["1", "10"] {
        let output = binary::companion(directory.path()).args(["demo", "--nodes", nodes]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{nodes}");
    }
}

#[actix_web::test]
async fn each_node_of_a_demo_serves_its_user_and_all_end_with_it() {
    let (Some(nats), Ok(server)) = (env::var_os("TEST_NATS_SERVER"), env::var("TEST_POSTGRES_URL")) else {
        eprintln!("SKIPPED, a demo with nodes: TEST_NATS_SERVER (2.11 or later) or TEST_POSTGRES_URL is not set");
        return;
    };
    // The demo has a working directory of its own.
    let nats = std::path::absolute(nats).unwrap();
    let directory = TempDir::new().unwrap();
    let flags = [
        "--nodes=2".to_owned(),
        "--port=0".to_owned(),
        format!("--nats-server={}", nats.display()),
        format!("--database-url={server}"),
    ];
    let mut demo = RunningDemo::start(directory.path(), &flags);
    demo.expect("The demo is running on 2 nodes").await;
    let link = demo.expect("  Dashboard   ").await;
    let file = demo.expect("  Terminal    ").await;
    let database = demo.expect("  PostgreSQL  database ").await;
    let file = fs::read_to_string(file.split_whitespace().last().unwrap()).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    let nodes = file["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    let database = database.split_whitespace().nth(2).unwrap();
    assert_eq!(databases(&server, database), 1);

    let cookie = sign_in(link.split_whitespace().nth(1).unwrap()).await;
    let paired = file["servers"][0]["id"].as_str().unwrap();
    let (first, second) = (User::new(&addresses(&nodes[0]), &cookie), User::new(&addresses(&nodes[1]), &cookie));
    let (status, me) = first.ask(Method::GET, "/me", None).await.unwrap();
    assert_eq!(status, 200, "{me}");
    let snapshot = second.open().await.subscribe(paired).await;
    assert_eq!(snapshot["serverId"], paired);

    kill_process(process(&nodes[0]), Signal::KILL).unwrap();
    let ended = demo.expect("Node 1 (process ").await;
    assert!(ended.contains("has ended: signal: 9"), "{ended}");
    demo.expect("Game servers: node 1 does not answer, node 2 has 1.").await;
    let path = format!("/paired-servers/{paired}");
    until("the link", || async {
        let (_, server) = second.ask(Method::GET, &path, None).await.unwrap();
        server["connection"]["state"] == "connected"
    })
    .await;

    kill_process(Pid::from_child(&demo.process), Signal::TERM).unwrap();
    assert_eq!(demo.process.wait().unwrap().code(), Some(0));
    assert!(test_kill_process(process(&nodes[1])).is_err(), "it is gone");
    assert_eq!(databases(&server, database), 0);
}
