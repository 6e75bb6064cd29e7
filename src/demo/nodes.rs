//! `companion demo --nodes`: the demo with several nodes, each a process of its own, on one PostgreSQL and one NATS server.
//! They are there to be killed: what becomes of that is said in a line.
//!
//! The simulated neighbours are in the demo's own process, and all nodes use them. Users are set up before the nodes start
//! (`first_start`). At the end the nodes end first, then NATS, and last the database goes.

mod child;
mod database;
mod first_start;
mod needs;
mod node;

use std::{
    cell::Cell,
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::{self, Path, PathBuf},
    pin::pin,
    process::ExitStatus,
    time::Duration,
};

use futures_util::future::join_all;
use reqwest::Client;
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep, timeout};

use self::{
    child::DemoChild,
    database::DemoDatabase,
    first_start::FirstStart,
    needs::Needs,
    node::{DemoNode, NodeSight, last_lines, own_variables, shares},
};
use super::{
    cast::DemoCast,
    error::DemoError,
    neighbours::{DemoNeighbours, raid_those_who_watch},
    options::{DemoHome, DemoOptions, settings_of},
    ports,
    steps::DemoSteps,
    teams::DemoTeams,
};
use crate::{
    clients::http,
    clock::Clock,
    config::{self, Config, SECRETS_FILE},
    net::tls_config,
    simulator,
    terminal::{self, LiveLine},
};

/// Interval of the looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Pauses while something is waited for that takes a moment.
const SOON: Duration = Duration::from_millis(100);
/// Time in which all nodes have to live by their leases, on a machine that may be busy.
const START_WITHIN: Duration = Duration::from_secs(90);
/// Time in which nodes close their sockets, store what they have and leave.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Runs such a demo until `shutdown` ends; also while it starts. Fails if it does not start. Call it on the main thread,
/// inside an actix system.
pub async fn run(options: DemoOptions, nodes: u8, shutdown: impl Future<Output = ()>) -> Result<(), DemoError> {
    let mut shutdown = pin!(shutdown);
    let mut demo = tokio::select! {
        biased;
        () = &mut shutdown => return Ok(()),
        started = DemoNodes::start(options, nodes) => started?,
    };
    demo.print_steps().map_err(DemoError::io("printing the steps"))?;
    demo.watch_until(shutdown).await;
    Ok(())
}

/// All of a running demo, in the order in which it ends.
struct DemoNodes {
    nodes: Vec<DemoNode>,
    nats: Nats,
    database: DemoDatabase,
    neighbours: DemoNeighbours,
    cast: DemoCast,
    http: Client,
    /// Path of `demo.json`.
    path: PathBuf,
    ready_in: Duration,
    with_tour: bool,
    home: DemoHome,
}

/// The server of NATS.
struct Nats {
    process: DemoChild,
    port: u16,
    log: PathBuf,
}

impl DemoNodes {
    async fn start(options: DemoOptions, count: u8) -> Result<Self, DemoError> {
        let began = Instant::now();
        let Needs { nats_server, postgres } = Needs::find(&options, count).await.map_err(DemoError::Nodes)?;
        ports::are_free(options.port, count.into())?;
        let _line = LiveLine::new(&format!("starting {count} nodes"));
        let home = DemoHome::open(options.data_dir.clone()).map_err(DemoError::io("a temporary directory"))?;
        let shown = home.path.display().to_string();
        let in_home = || DemoError::io(shown.clone());
        // Processes that are started by hand may have another working directory.
        let directory = path::absolute(&home.path).map_err(in_home())?;
        config::create_private_dir(&directory).map_err(in_home())?;
        let database = DemoDatabase::make(&postgres, &directory, home.is_kept());
        let database = database.map_err(|error| DemoError::Nodes(error.to_string()))?;
        let clock = Clock::system();
        let teams = DemoTeams::new(options.teams.map(usize::from));
        let neighbours = DemoNeighbours::start(&options, &teams, &directory, &clock).await?;
        let (ports, nats_port) = ports::of_nodes(options.port, count.into()).map_err(in_home())?;

        let mut variables = neighbours.variables();
        variables.extend(options.variables().map_err(DemoError::io("--web-dir"))?);
        variables.push(("DATABASE_URL", database.url.expose_secret().to_owned()));
        variables.push(("WORKERS", "2".to_owned()));
        let mut of_first = own_variables(1, ports[0], &directory).map_err(in_home())?;
        of_first.extend(variables.iter().cloned());
        let first = FirstStart::begin(Config::check(settings_of(&of_first))?, clock).await?;
        let relay = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0][1]));
        let mut cast = DemoCast::gather(&first.context, relay, &neighbours, &teams).await?;
        first.end().await?;
        let secrets = fs::read_to_string(node::data_dir(1, &directory).join(SECRETS_FILE)).map_err(in_home())?;

        let mut nats = Nats::start(&nats_server, nats_port, &directory).map_err(DemoError::io("NATS"))?;
        variables.push(("NATS_URL", nats.url()));
        variables.extend(no_images());
        let mut nodes = Vec::new();
        for (number, ports) in (1..).zip(ports) {
            let node = DemoNode::start(number, ports, &directory, &variables, &secrets);
            nodes.push(node.map_err(DemoError::io(format!("node {number}")))?);
        }
        let http = tls_config(None).and_then(http::client).map_err(DemoError::io("outgoing connections"))?;
        until_all_live(&mut nodes, &mut nats, &http).await?;
        cast.file.nodes = nodes.iter().map(DemoNode::facts).collect();
        let path = home.path.join("demo.json");
        cast.file.write(&path).map_err(DemoError::io(path.display().to_string()))?;
        let (ready_in, with_tour) = (began.elapsed(), options.tour);
        Ok(Self { nodes, nats, database, neighbours, cast, http, path, ready_in, with_tour, home })
    }

    fn print_steps(&self) -> io::Result<()> {
        let Self { cast, neighbours, path, ready_in, with_tour, .. } = self;
        let (ready_in, with_tour) = (*ready_in, *with_tour);
        let nodes = Some((self.nodes.len(), self.described()?));
        DemoSteps { cast, neighbours, nodes, path, ready_in, with_tour }.print()
    }

    /// The nodes and what is beneath them, how to kill one, and what the demo leaves out.
    fn described(&self) -> io::Result<String> {
        let Self { nodes, nats, database, home, .. } = self;
        let mut out = Vec::<u8>::new();
        for node in nodes {
            let (facts, log) = (node.facts(), node.log.display());
            let (number, api, relay, process) = (node.number, facts.api_url, facts.relay_url, facts.process);
            writeln!(out, "  Node {number}      {api}   (process {process}, relay {relay}, log {log})")?;
        }
        writeln!(out, "  NATS        {}   (process {}, log {})", nats.url(), nats.process.id(), nats.log.display())?;
        let until = if home.is_kept() { "kept for the next demo there" } else { "dropped at the end" };
        writeln!(out, "  PostgreSQL  database {}   ({until})", database.name)?;
        let (program, env_file) = (simulator::program_as_started(), nodes[0].env_file.display());
        let process = nodes[0].process.id();
        write!(
            out,
            "\nThe link signs a browser in at node 1, and so at all nodes: each has a dashboard at its address, and serves every \
             user.\nKill a node with `kill -9 PROCESS`, node 1 with `kill -9 {process}`: a line says that it has ended, dashboards \
             at its address stop, and those of the others go on. Some 9 to 12 s later, a line says which node has its game \
             servers. `kill -STOP PROCESS` makes it hang instead, until `kill -CONT PROCESS`. To start node 1 again:\n\n    \
             {program} serve --env-file {env_file}\n\n\
             Left out: a proxy before the nodes, more than one NATS server, a bucket for uploaded images, browsers as channels.\n"
        )?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Says what becomes of the nodes until `shutdown` ends, and then ends them.
    async fn watch_until(&mut self, shutdown: impl Future<Output = ()>) {
        let Self { nodes, nats, neighbours, http, .. } = self;
        let (neighbours, http, sockets) = (&*neighbours, &*http, Cell::new(0));
        tokio::select! {
            () = shutdown => {}
            () = raid_those_who_watch(&neighbours.game, || sockets.get()) => {}
            () = watch(nodes, nats, neighbours, http, &sockets) => {}
        }
        stop(nodes).await;
    }
}

impl Nats {
    fn start(program: &Path, port: u16, directory: &Path) -> io::Result<Self> {
        let log = directory.join("nats-server.log");
        let arguments = [
            "--addr=127.0.0.1".to_owned(),
            format!("--port={port}"),
            "--jetstream".to_owned(),
            format!("--store_dir={}", directory.join("nats").display()),
        ];
        Ok(Self { process: DemoChild::start(program.as_os_str(), &arguments, &log)?, port, log })
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

/// Nodes refuse to keep images in a directory, so they have a bucket at which nothing answers.
fn no_images() -> [(&'static str, String); 4] {
    [
        ("IMAGES_S3_BUCKET", "none"),
        ("IMAGES_S3_ENDPOINT", "http://127.0.0.1:9"),
        ("IMAGES_S3_ACCESS_KEY_ID", "none"),
        ("IMAGES_S3_SECRET_ACCESS_KEY", "none"),
    ]
    .map(|(variable, value)| (variable, value.to_owned()))
}

async fn look_at(nodes: &[DemoNode], http: &Client) -> Vec<NodeSight> {
    join_all(nodes.iter().map(|node| node.look(http))).await
}

/// Waits until each node lives, and knows that all others do. Fails if one has ended.
async fn until_all_live(nodes: &mut [DemoNode], nats: &mut Nats, http: &Client) -> Result<(), DemoError> {
    let all_live = async {
        loop {
            if let Some(end) = nats.process.end() {
                return Err(has_ended("NATS", end, &nats.log));
            }
            for node in nodes.iter_mut() {
                if let Some(end) = node.process.end() {
                    return Err(has_ended(&format!("node {}", node.number), end, &node.log));
                }
            }
            let sights = look_at(nodes, http).await;
            if sights.iter().all(|sight| matches!(sight, NodeSight::Serves { live, .. } if *live == nodes.len())) {
                return Ok(());
            }
            sleep(SOON).await;
        }
    };
    if let Ok(live) = timeout(START_WITHIN, all_live).await {
        return live;
    }
    let sights = look_at(nodes, http).await;
    let late = nodes.iter().zip(sights).find(|(_, sight)| !matches!(sight, NodeSight::Serves { .. }));
    let late = late.map_or(&nodes[0], |(node, _)| node);
    Err(DemoError::Nodes(format!(
        "the nodes do not know one another after {} s; the last lines of the log of node {}:\n{}",
        START_WITHIN.as_secs(),
        late.number,
        last_lines(&late.log)
    )))
}

fn has_ended(process: &str, end: ExitStatus, log: &Path) -> DemoError {
    DemoError::Nodes(format!("{process} has ended ({end}); the last lines of its log:\n{}", last_lines(log)))
}

/// Says which processes have ended, and who has how many game servers when that has changed, without end. Counts the open
/// sockets of all nodes. The neighbours call the first node that answers.
async fn watch(
    nodes: &mut [DemoNode],
    nats: &mut Nats,
    neighbours: &DemoNeighbours,
    http: &Client,
    sockets: &Cell<usize>,
) {
    let mut shown = String::new();
    loop {
        for node in nodes.iter_mut() {
            if let Some(end) = node.process.end() {
                say(&format!("Node {} (process {}) has ended: {end}.", node.number, node.process.id()));
            }
        }
        if let Some(end) = nats.process.end() {
            say(&format!("NATS has ended: {end}. In 8 s no node has game servers any longer: start the demo again."));
        }
        let sights = look_at(nodes, http).await;
        let open = |sight: &NodeSight| if let NodeSight::Serves { sockets, .. } = sight { *sockets } else { 0 };
        sockets.set(sights.iter().map(open).sum());
        let mut answering = nodes.iter().zip(&sights).filter(|(_, sight)| **sight != NodeSight::Silent);
        if let Some((node, _)) = answering.next() {
            neighbours.call(&node.facts().api_url);
        }
        let line = shares(&sights);
        if line != shown {
            say(&line);
            shown = line;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Ends the nodes. Those that take too long are killed later.
async fn stop(nodes: &mut [DemoNode]) {
    nodes.iter_mut().for_each(|node| node.process.terminate());
    let all_ended = async {
        while nodes.iter_mut().any(|node| node.process.runs()) {
            sleep(SOON).await;
        }
    };
    if timeout(STOP_WITHIN, all_ended).await.is_err() {
        say("Some nodes have not ended in time, and are killed.");
    }
}

/// Prints a line. A reader that is gone is no reason to end.
fn say(line: &str) {
    terminal::above(|| drop(writeln!(io::stdout(), "{line}")));
}
