//! The nodes: processes of the service, each with a directory, ports and ways to its neighbours of its own.

use std::{
    cell::{Cell, RefCell},
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use companion::db::files::journal;
use reqwest::Client;
use rustix::process::Signal;
use serde_json::Value;
use url::Url;

use crate::{
    crash::{Addresses, Installation, Service, binary},
    ports::free_port,
    until,
    ways::{Way, Ways},
};

/// Deadline of a question to a node.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// The line of the log that names the node of a process, and how it names it.
const IS_A_NODE: &str = "this process is a node";
const ITS_NAME: &str = " node=";
/// The metric of messages of other nodes that a process did not understand.
const UNREADABLE: &str = "companion_node_messages_unreadable_total ";
/// Levels of the log's lines that are no news, and words of those about something that another version wrote.
const LEVELS: [&str; 2] = ["WARN", "ERROR"];
const NOT_UNDERSTOOD: [&str; 4] = ["cannot read", "cannot be read", "another version", "newer"];

/// Neighbours of all nodes.
pub struct Neighbours<'a> {
    pub nats: Vec<SocketAddr>,
    pub postgres: Url,
    pub push: SocketAddr,
    /// The certificate of the push service.
    pub push_ca: &'a Path,
}

/// A node, which is killed when this is dropped.
pub struct Node {
    pub number: usize,
    pub installation: Installation,
    pub addresses: Addresses,
    /// To each server of NATS.
    pub nats: Vec<Way>,
    pub postgres: Way,
    logs: PathBuf,
    /// The program of its next process.
    program: RefCell<PathBuf>,
    /// Number of its processes so far.
    lives: Cell<usize>,
    /// None while it is meant to be down.
    service: RefCell<Option<Service>>,
}

/// The address of the server that this URL names.
pub fn address_of(postgres: &Url) -> Option<SocketAddr> {
    let addresses = postgres.socket_addrs(|| Some(5432)).ok()?;
    addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()).copied()
}

impl Node {
    /// A node that was not started yet, with its logs in this directory.
    pub fn new(number: usize, ways: &Ways, neighbours: &Neighbours<'_>, logs: &Path) -> Self {
        let nats: Vec<Way> = neighbours.nats.iter().map(|server| ways.open(*server)).collect();
        let postgres = ways.open(address_of(&neighbours.postgres).expect("it was looked up before"));
        let mut database = neighbours.postgres.clone();
        database.set_host(Some("127.0.0.1")).expect("it names a host");
        database.set_port(Some(postgres.port())).expect("it names a host");
        let urls: Vec<String> = nats.iter().map(|way| format!("nats://127.0.0.1:{}", way.port())).collect();
        let flags = vec![
            format!("--database-url={database}"),
            format!("--nats-url={}", urls.join(",")),
            format!("--game-source-addresses={}", source_address(number)),
            "--allow-private-game-servers=true".to_owned(),
            format!("--push-address={}", neighbours.push),
            format!("--extra-ca-file={}", neighbours.push_ca.display()),
            // No image is asked for.
            "--images-s3-bucket=images".to_owned(),
            "--images-s3-access-key-id=key".to_owned(),
            "--images-s3-secret-access-key=secret".to_owned(),
            "--session-secret=a secret of three nodes, and of no others".to_owned(),
            "--session-salt=their salt, of sixteen bytes or more".to_owned(),
            format!("--creds-encryption-key={}", "5a".repeat(32)),
        ];
        let relay = (Ipv4Addr::LOCALHOST, free_port()).into();
        let addresses = Addresses { api: format!("http://127.0.0.1:{}", free_port()), relay };
        Self {
            number,
            installation: Installation::new(|_| flags),
            addresses,
            nats,
            postgres,
            logs: logs.to_owned(),
            program: RefCell::new(binary::PROGRAM.into()),
            lives: Cell::new(0),
            service: RefCell::new(None),
        }
    }

    /// The address from which it connects to game servers, and no other node does.
    pub fn source_address(&self) -> IpAddr {
        source_address(self.number)
    }

    /// Its processes are of this program, from the next one on.
    pub fn install(&self, program: &Path) {
        *self.program.borrow_mut() = program.to_owned();
    }

    /// Starts its process, and does not wait.
    pub fn start(&self) {
        self.lives.set(self.lives.get() + 1);
        let log = File::create(self.log(self.lives.get())).expect("the directory takes files");
        let service = self.installation.start_logging_at(&self.program.borrow(), self.addresses.clone(), log);
        *self.service.borrow_mut() = Some(service);
    }

    /// SIGKILL: no handler, no flush.
    pub fn kill(&self) {
        // A service is killed when it is dropped.
        drop(self.service.borrow_mut().take());
    }

    /// Sends a signal, if it runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(service) = &*self.service.borrow() {
            service.signal(signal);
        }
    }

    /// SIGTERM, as an operator stops it; the exit code.
    pub async fn stop(&self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.end().await
    }

    /// Waits for the end of its process, which is meant to come; the exit code.
    pub async fn end(&self) -> Option<i32> {
        let mut service = self.service.borrow_mut().take()?;
        until("end of a process", async || service.has_ended()).await;
        service.ended()
    }

    /// True if its process has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.service.borrow_mut().as_mut().is_some_and(Service::has_ended)
    }

    /// The log of the process of this number, from 1 on.
    fn log(&self, life: usize) -> PathBuf {
        self.logs.join(format!("node-{}-{life}.log", self.number))
    }

    /// The node that its process is now, if it is one.
    pub fn id(&self) -> Option<String> {
        last_node(&fs::read_to_string(self.log(self.lives.get())).ok()?).map(str::to_owned)
    }

    /// The panics in the logs of all its processes.
    pub fn panics(&self) -> Vec<String> {
        self.lines(|line| line.contains("panicked"))
    }

    /// The lines in the logs of all its processes of which this is true.
    pub fn lines(&self, is_meant: fn(&str) -> bool) -> Vec<String> {
        let logs = (1..=self.lives.get()).filter_map(|life| fs::read_to_string(self.log(life)).ok());
        let meant =
            |log: String| -> Vec<String> { log.lines().filter(|line| is_meant(line)).map(str::to_owned).collect() };
        logs.flat_map(meant).collect()
    }

    /// Writes of alarms that PostgreSQL does not have yet; `None` if its journal cannot be read.
    pub fn journaled(&self) -> Option<usize> {
        journal::waiting(self.installation.directory()).ok().map(Option::unwrap_or_default)
    }

    /// The number of nodes that live, as it sees them.
    pub async fn live_nodes(&self, http: &Client) -> Option<u64> {
        let asked = http.get(format!("{}/status", self.addresses.api)).timeout(ANSWERED_WITHIN).send().await;
        let status: Value = asked.ok()?.json().await.ok()?;
        status["node"]["live"].as_u64()
    }

    /// The number of messages of other nodes that its process did not understand; `None` if it does not answer.
    pub async fn unreadable_messages(&self, http: &Client) -> Option<u64> {
        let asked = http.get(format!("{}/metrics", self.addresses.api)).timeout(ANSWERED_WITHIN).send().await;
        let metrics = asked.ok()?.error_for_status().ok()?.text().await.ok()?;
        let count = metrics.lines().find_map(|line| line.strip_prefix(UNREADABLE)?.parse().ok());
        // There is no line before the first one.
        Some(count.unwrap_or_default())
    }
}

/// True for a warning or an error of a log about something that another version wrote.
pub fn is_not_understood(line: &str) -> bool {
    LEVELS.iter().any(|level| line.contains(level)) && NOT_UNDERSTOOD.iter().any(|words| line.contains(words))
}

/// Addresses of loopback, of which a machine has many.
fn source_address(number: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, 2 + number as u8).into()
}

/// The node that a log names last.
pub fn last_node(log: &str) -> Option<&str> {
    let line = log.lines().rev().find(|line| line.contains(IS_A_NODE))?;
    line.split_once(ITS_NAME)?.1.split_whitespace().next()
}
