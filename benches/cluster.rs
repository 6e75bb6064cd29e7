//! Several nodes of the service, which share a PostgreSQL and a NATS: what a frame costs at the node that has its game server
//! and at another one, how much later it comes there, and what a link costs that no one watches.
//!
//! ```text
//! TEST_NATS_SERVER=… TEST_POSTGRES_URL=… \
//! cargo bench --bench cluster -- [SOCKETS [GAMES [IDLE]]] [--nodes 1,2,3] [--pace 300] [--seconds 20]
//! ```
//!
//! SOCKETS (6000) watch GAMES (60) game servers, of which each changes once in a pace (milliseconds): at first all sockets at
//! the nodes that have their game servers, then all at others, then spread over all. The fewer sockets a game server has, the
//! more of a frame's cost is that of the step and of the way between nodes: `-- 2000 1000 --pace 500` has two for each. A patch
//! at the node that has its game server is compared with the same one, by epoch and seq, at a socket of another node.
//!
//! At last, IDLE (1000) links on two nodes that no one watches: messages of NATS and transactions of PostgreSQL with and
//! without them.
//!
//! The nodes are processes of this build, with two worker threads each. Sockets and game servers are in this process, so that
//! one clock times both. Asserts nothing about the figures. `ulimit -n` must exceed the number of sockets by a third.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    env,
    num::{NonZeroU64, NonZeroUsize},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use companion::net::descriptors;

#[allow(dead_code, reason = "only tests fill a database through the service")]
#[path = "../tests/crash/mod.rs"]
mod crash;
#[path = "../tests/spec/harness/database.rs"]
mod database;
#[allow(dead_code, reason = "no alarm goes off here")]
#[path = "relay_load/game.rs"]
mod game;
mod nodes;
mod process;
mod watchers;

use game::Game;
use nodes::{Figures, Nodes};
use process::Result;
use watchers::{Patch, Seen, Watchers, stamp};

/// Markers of a game server.
const MARKERS: u64 = 10;
/// Sockets of a user: nodes count those of users with more for one another.
const PER_USER: usize = 2;
/// Worker threads of a node, and open files of this process beside those of connections.
const WORKERS: usize = 2;
const OWN_FILES: usize = 128;
/// After a start, parts of nodes move until all have settled.
const NODES_SETTLE: Duration = Duration::from_secs(20);
/// The first questions to game servers are behind all links, and each node has read which servers there are.
const LINKS_SETTLE: Duration = Duration::from_secs(15);
/// Until nothing is on its way to new sockets, and until the last frames have come.
const SOCKETS_SETTLE: Duration = Duration::from_secs(3);
const FRAMES_COME: Duration = Duration::from_millis(500);
const IDLE_NODES: usize = 2;
const IDLE_SPAN: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Options {
    #[arg(default_value = "6000")]
    sockets: NonZeroUsize,
    #[arg(default_value = "60")]
    games: NonZeroUsize,
    #[arg(default_value = "1000")]
    idle: NonZeroUsize,
    /// Numbers of nodes to measure with, one after the other
    #[arg(long, value_delimiter = ',', default_values = ["1", "2", "3"])]
    nodes: Vec<NonZeroUsize>,
    /// Milliseconds in which each game server changes once
    #[arg(long, default_value = "300")]
    pace: NonZeroU64,
    /// Seconds for which changes come
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Cargo says so
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// Users of the sockets: each has sockets of one game server only.
    fn users(&self) -> usize {
        self.sockets.get().div_ceil(PER_USER).next_multiple_of(self.games.get())
    }

    fn open_files(&self) -> usize {
        // A game server has a listener and a link.
        let here = self.sockets.get() + 2 * self.games.max(self.idle).get() + OWN_FILES;
        descriptors::limit_for(self.sockets.get(), WORKERS).max(here)
    }
}

/// Nodes at which sockets are.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Home,
    Elsewhere,
    Everywhere,
}

impl Place {
    /// All that there are, in this order: what is watched at other nodes goes on for a while after its last socket.
    fn of(nodes: usize) -> &'static [Self] {
        if nodes == 1 { &[Self::Home] } else { &[Self::Home, Self::Elsewhere, Self::Everywhere] }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Home => "all sockets at the node of their game server",
            Self::Elsewhere => "all sockets at other nodes",
            Self::Everywhere => "sockets at all nodes",
        }
    }

    /// The node of a game server's socket of this number.
    fn node(self, home: usize, number: usize, nodes: usize) -> usize {
        match self {
            Self::Home => home,
            Self::Elsewhere => (home + 1 + number % (nodes - 1)) % nodes,
            Self::Everywhere => (home + number) % nodes,
        }
    }
}

fn main() -> Result<()> {
    if !env::args().any(|argument| argument == "--bench") {
        return Ok(()); // run as a test: nothing to measure
    }
    let options = Options::parse();
    if let Some(variable) = nodes::missing() {
        println!("SKIPPED: {variable} is not set, and nodes share a NATS (2.11 or later) and a PostgreSQL");
        return Ok(());
    }
    let (open_files, needed) = (descriptors::raise_limit(), options.open_files());
    if open_files < needed {
        return Err(format!("this needs {needed} open files, the limit is {open_files}: ulimit -n").into());
    }
    for count in &options.nodes {
        watched(&options, count.get())?;
    }
    idle(options.idle.get())
}

/// Sockets with this number of nodes.
fn watched(options: &Options, count: usize) -> Result<()> {
    let users = options.users();
    let nodes = Nodes::start(count, users)?;
    let games = Game::start_several(options.games.get(), MARKERS)?;
    let homes = nodes.pair(&games, users)?;
    thread::sleep(LINKS_SETTLE);
    let of_each = (0..count).map(|node| homes.iter().filter(|home| **home == node).count() as f64);
    println!(
        "\n{count} node(s): {} sockets, {} game servers ({} at each node) that change every {} ms",
        options.sockets,
        games.len(),
        listed(of_each, 0),
        options.pace
    );
    println!("    {:<24}{} MiB", "memory without sockets", listed(nodes.memory()?, 1));
    let mut at_home = None;
    for place in Place::of(count) {
        let cost = watch(&nodes, &games, &homes, options, *place, at_home)?;
        at_home = at_home.or(Some(cost));
    }
    Ok(())
}

/// Prints the figures of sockets at these nodes; the microseconds of processors for each frame.
fn watch(
    nodes: &Nodes,
    games: &[Game],
    homes: &[usize],
    options: &Options,
    place: Place,
    at_home: Option<f64>,
) -> Result<f64> {
    let (count, each, users) = (nodes.count(), games.len(), options.users());
    let node = |socket: usize| place.node(homes[socket % each], socket / each, count);
    let at: Vec<usize> = (0..options.sockets.get()).map(node).collect();
    let seat = |(socket, node): (usize, &usize)| nodes.seat(*node, socket % users, socket % each);
    let watchers = Watchers::open(at.iter().enumerate().map(seat).collect())?;
    thread::sleep(SOCKETS_SETTLE);
    watchers.take();
    let before = nodes.figures()?;
    change(games, options)?;
    thread::sleep(FRAMES_COME);
    let (used, seen) = (nodes.figures()?.since(&before), watchers.take());

    let mut frames = vec![0.0; count];
    for (seen, node) in seen.iter().zip(&at) {
        frames[*node] += seen.frames as f64;
    }
    let all: f64 = frames.iter().sum();
    let cost = used.nodes.iter().sum::<f64>() * 1e6 / all;
    let costs = used.nodes.iter().zip(&frames).map(|(processor, frames)| processor * 1e6 / frames);
    let ratio = at_home.map(|at_home| format!(", ×{:.2}", cost / at_home)).unwrap_or_default();
    println!("  {}", place.name());
    println!("    {:<24}{:.0}", "frames a second", all / used.seconds);
    println!("    {:<24}{cost:.2} µs{ratio} ({} at each node)", "processors for a frame", listed(costs, 2));
    let ages = seen.iter().flat_map(|seen| &seen.patches).map(|patch| patch.age as f64 / 1e3);
    println!("    {:<24}{}", "age of a patch", distribution(ages.collect()));
    if place == Place::Everywhere {
        println!("    {:<24}{}", "  added by the way", distribution(added(&seen, each, count)));
    }
    println!(
        "    {:<24}{:.1} messages a second of {:.2} KiB, {:.3} of a core",
        "NATS",
        used.received / used.seconds,
        used.bytes / used.received / 1_024.0,
        used.nats / used.seconds
    );
    println!("    {:<24}{:.1} transactions a second", "PostgreSQL", used.transactions / used.seconds);
    println!("    {:<24}{} MiB", "memory", listed(nodes.memory()?, 1));
    Ok(cost)
}

/// Changes each game server once in a pace, one after the other.
fn change(games: &[Game], options: &Options) -> Result<()> {
    let (began, each) = (Instant::now(), Duration::from_millis(options.pace.get()) / games.len() as u32);
    let due = (1..).map(|change| each * change).take_while(|due| due.as_secs() < options.seconds);
    for (due, game) in due.zip(games.iter().cycle()) {
        thread::sleep(due.saturating_sub(began.elapsed()));
        let news = stamp();
        game.rename(news..=news)?;
    }
    Ok(())
}

/// Milliseconds by which patches came later at sockets of other nodes. The sockets of a game server are at its own node and
/// at the others in turn; each is compared with the one at its own node that is next before it.
fn added(seen: &[Seen], games: usize, nodes: usize) -> Vec<f64> {
    let mut added = Vec::new();
    for (socket, elsewhere) in seen.iter().enumerate() {
        let turn = socket / games % nodes;
        if turn == 0 {
            continue;
        }
        let at_home = &seen[socket - turn * games].patches;
        added.extend(elsewhere.patches.iter().filter_map(|patch| {
            let same = at_home.binary_search_by_key(&patch.position(), Patch::position).ok()?;
            Some((patch.at as f64 - at_home[same].at as f64) / 1e3)
        }));
    }
    added
}

/// Links that no one watches.
fn idle(count: usize) -> Result<()> {
    let nodes = Nodes::start(IDLE_NODES, count)?;
    thread::sleep(NODES_SETTLE);
    let without = nodes.over(IDLE_SPAN)?;
    let games = Game::start_several(count, MARKERS)?;
    nodes.pair(&games, count)?;
    thread::sleep(LINKS_SETTLE);
    let with = nodes.over(IDLE_SPAN)?;
    println!("\n{count} links on {IDLE_NODES} nodes that no one watches, in a second");
    let line = |name: &str, of: fn(&Figures) -> f64| {
        let (without, with) = (of(&without) / without.seconds, of(&with) / with.seconds);
        let each = (with - without) / count as f64;
        println!("    {name:<24}{without:.3} without them, {with:.3} with them: {each:.6} for each");
    };
    // The target is that a link costs none of these.
    line("messages to NATS", |used| used.received);
    line("messages from NATS", |used| used.sent);
    line("PostgreSQL", |used| used.transactions);
    line("processors, seconds", |used| used.nodes.iter().sum());
    Ok(())
}

fn listed(values: impl IntoIterator<Item = f64>, digits: usize) -> String {
    values.into_iter().map(|value| format!("{value:.digits$}")).collect::<Vec<_>>().join(", ")
}

fn distribution(mut milliseconds: Vec<f64>) -> String {
    milliseconds.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| match milliseconds.len() {
        0 => f64::NAN,
        count => milliseconds[((count - 1) as f64 * share) as usize],
    };
    format!("p50 {:.2} ms, p99 {:.2} ms ({} patches)", at(0.5), at(0.99), milliseconds.len())
}
