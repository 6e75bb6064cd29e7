use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Once},
};

use tempfile::TempDir;
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

use super::*;
use crate::{
    cluster::{
        lease::LeaseTimes,
        nats_link::{self, NatsAccess},
        node_lease::{NodeEnd, NodeLease, NodeView},
        peers::NO_ENTRY,
    },
    crypto, net,
};

/// A program of NATS that is new enough.
const PROGRAM: &str = "TEST_NATS_SERVER";

/// A server of NATS with an address of its own; killed with this value.
struct NatsServer {
    program: PathBuf,
    directory: TempDir,
    port: String,
    child: Child,
}

impl NatsServer {
    /// `None` where the program is not named.
    async fn start() -> Option<Self> {
        let Some(program) = env::var_os(PROGRAM).map(PathBuf::from) else {
            static ONCE: Once = Once::new();
            // Past the test harness, which hides what a passing test prints.
            ONCE.call_once(|| {
                let _ = writeln!(std::io::stderr(), "tests of NATS are SKIPPED: {PROGRAM} is not set (2.11 or later)");
            });
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let child = spawn(&program, "-1", directory.path());
        let mut server = Self { program, directory, port: String::new(), child };
        server.port = server.found_port().await;
        Some(server)
    }

    /// The port that it has chosen, which it writes into a file.
    async fn found_port(&self) -> String {
        let found = async {
            loop {
                let mut files = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
                let file = files.find(|path| path.extension().is_some_and(|end| end == "ports"));
                let ports =
                    file.and_then(|path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).ok()?).ok());
                if let Some(url) = ports.as_ref().and_then(|ports| ports["nats"][0].as_str()) {
                    return url.rsplit(':').next().unwrap().to_owned();
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(30), found).await.expect("NATS starts")
    }

    /// Kills it, and starts it at the same address: what it had in memory is lost.
    fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.program, &self.port, self.directory.path());
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    async fn connect(&self) -> NatsLeases {
        crypto::install();
        let access = NatsAccess {
            servers: vec![format!("nats://127.0.0.1:{}", self.port).parse().unwrap()],
            credentials: None,
            tls: Arc::new(net::tls_config(None).unwrap()),
        };
        NatsLeases::new(nats_link::connect(&access, 0).await.unwrap())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(program: &Path, port: &str, directory: &Path) -> Child {
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", port, "-js", "-sd"]).arg(directory);
    command.arg("--ports_file_dir").arg(directory);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs")
}

fn entry(node: &str, revision: u64, state: PeerState) -> PeerEntry {
    PeerEntry { node: node.into(), revision, state }
}

#[test]
fn an_entry_is_read_as_it_was_written_and_an_unknown_one_is_of_a_node_that_is_there() {
    for (written, word) in WORDS {
        assert_eq!((state(&text(written)), WORDS[written as usize].1), (written, word));
    }
    for unknown in [&br#"{"v":2,"state":"draining","more":1}"#[..], b"", b"[]"] {
        assert_eq!(state(unknown), PeerState::Live);
    }
}

#[actix_web::test]
async fn a_write_succeeds_on_the_revision_that_it_wants_only() {
    let Some(server) = NatsServer::start().await else { return };
    let (one, two) = (server.connect().await, server.connect().await);
    let (node, other) = (NodeId::from("one"), NodeId::from("two"));
    let first = one.write(&node, PeerState::Live, NO_ENTRY).await.unwrap();
    assert_eq!(one.write(&node, PeerState::Live, NO_ENTRY).await, Err(LeaseStoreError::OtherRevision));
    let second = one.write(&node, PeerState::Live, first).await.unwrap();
    assert_eq!(two.write(&node, PeerState::Dead, first).await, Err(LeaseStoreError::OtherRevision));
    let third = two.write(&other, PeerState::Left, NO_ENTRY).await.unwrap();
    assert!(first < second && second < third);
    let dead = two.write(&node, PeerState::Dead, second).await.unwrap();
    assert_eq!(one.write(&node, PeerState::Live, second).await, Err(LeaseStoreError::OtherRevision));
    let mut entries = one.entries().await.unwrap();
    entries.sort_by_key(|entry| entry.revision);
    assert_eq!(entries, [entry("two", third, PeerState::Left), entry("one", dead, PeerState::Dead)]);
}

#[actix_web::test]
async fn a_node_has_its_lease_on_a_server_that_lost_everything() {
    let Some(mut server) = NatsServer::start().await else { return };
    let (_owners, owned) = watch::channel(Default::default());
    let (sees, mut view) = watch::channel(NodeView::default());
    let lease = NodeLease::new(server.connect().await, "one".into(), LeaseTimes::NODES, owned, sees);
    let (leave, left) = oneshot::channel::<()>();
    let task = actix::spawn(lease.run(async move { drop(left.await) }));
    let held = timeout(Duration::from_secs(30), view.wait_for(|view| view.holds_until.is_some()));
    let before = held.await.expect("it comes").expect("the node runs").holds_until;
    server.restart();
    let renewed = timeout(Duration::from_secs(30), view.wait_for(|view| view.holds_until > before));
    drop(renewed.await.expect("it comes").expect("the node runs"));
    let other = server.connect().await;
    assert!(other.entries().await.unwrap().iter().any(|entry| entry.node.as_str() == "one"));
    leave.send(()).unwrap();
    assert_eq!(task.await.unwrap(), NodeEnd::Left);
    let entries = other.entries().await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.state).collect::<Vec<_>>(), [PeerState::Left]);
}
