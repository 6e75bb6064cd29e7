//! Several nodes under faults: three processes of the service, three servers of NATS and PostgreSQL, with game servers, a
//! push service and dashboards at all nodes in this process. For a minute, while alarms are raised, a script kills, stops and
//! cuts off what there is; then all faults end, and within two minutes everything must be as promised.
//!
//! - `cargo test --test chaos -- --seeds A..B`: one seed after the other, a minute and a half each.
//! - `… -- --minutes M`: seeds until that time is over, from 0 on or from those of `--seeds`.
//! - `… -- --seed N`: one seed, with each fault printed when it begins.
//! - `… -- --upgrade-from PATH`: in place of faults, an upgrade from the build whose binary is there; with `--seed N` and the
//!   others as well, which decide when alarms are raised.
//!
//! They need TEST_NATS_SERVER (2.11 or later) and TEST_POSTGRES_URL, and Linux, whose loopback has an address for each node.
//! Without any of these arguments only the judges are tested, with histories that are made up. A failing seed prints what does
//! not hold, its faults, and where the logs of the nodes are. The seed decides the faults and alarms and their times, not what the
//! processes make of them: run again, it may pass.
//!
//! # Promises
//! - Each alarm that was raised is in exactly one incident of the ledger, there is no other incident, every stored alarm is
//!   finished, and no journal has one left.
//! - No socket is given the announcement of an incident twice, and what was announced is in the ledger. A node that takes a game
//!   server over may say once more, as an update, an incident of which it does not know that it was heard; within the time of
//!   one node that is a fault, too.
//! - The number of a part rises with each node that has it, in the end each part is at a live node, and each game server has
//!   links from that node alone. Two nodes whose writes both land would make a second incident, or a second announcement.
//! - Links that were lost with a node are made again within a minute. The figure is a lease (8 s) and a few seconds, and it is
//!   printed: PostgreSQL or NATS may be away at that very time.
//! - All dashboards of a paired server, at whichever node, have the same state of it: all of its sections, with the same epoch and
//!   sequence number. Nothing is left out of the comparison.
//! - No node panics or ends by itself.
//!
//! # Alarms that can be counted
//! - A game server says only how a device is now. An alarm that rises while no node has a link is found when the next link asks
//!   for it, if it is on by then: so each device goes off once and stays on until the end. All are known to be off before
//!   the first one goes off: what a link sees first is not taken for news.
//! - Alarms of one device within 90 s are one incident, and a push joins a device that goes off within seconds of it, as it
//!   does not say of which device it is. So each alarm has a device or a title of its own, and a paired server has alarms by one
//!   way alone: by link, by link and push, or by push.
//! - An alarm that a node keeps in its journal, and that another node rings meanwhile, becomes one incident with that only while
//!   the first one is open, for 90 s. So no fault lasts that long, and a node that is killed is started again within seconds.
//! - A new owner of a game server knows what is in the database, and no more: events of the world, such as `wipe` and `login`, are
//!   not judged, nor is the count of an incident.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

#[path = "../crash/mod.rs"]
mod crash;
#[path = "../spec/harness/database.rs"]
mod database;
mod figures;
mod games;
mod nats;
mod nodes;
mod ports;
#[allow(dead_code, reason = "not every test draws everything")]
#[path = "../simulation/random.rs"]
mod random;
mod records;
mod script;
mod self_tests;
mod stored;
mod trial;
mod verdict;
mod watchers;
mod ways;

use std::{
    ops::Range,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use crate::trial::Needs;

const NAME: &str = "chaos_of_several_nodes";
/// Longest wait for anything at the start; only a run that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Broken promises of a seed that are printed one by one.
const PRINTED: usize = 40;

/// Asks until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let ask = async {
        while !holds().await {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(PATIENCE, ask).await.unwrap_or_else(|_| panic!("no {what}"));
}

/// Seeds to run.
struct Options {
    seeds: Range<u64>,
    /// None begins after this time.
    within: Option<Duration>,
    prints: bool,
    /// The binary with which the nodes begin, if they are upgraded.
    earlier: Option<PathBuf>,
}

/// `Err`: another test is asked for. `None`: no seed is.
fn options(args: &[String]) -> Result<Option<Options>, ()> {
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let number = |name: &str| value(name).map(|number| number.parse::<u64>().expect("a number"));
    // Nodes start in directories of their own.
    let earlier = value("--upgrade-from").map(|path| PathBuf::from(path).canonicalize().expect("a binary"));
    if let Some(seed) = number("--seed") {
        return Ok(Some(Options { seeds: seed..seed + 1, within: None, prints: true, earlier }));
    }
    let within = number("--minutes").map(|minutes| Duration::from_secs(60 * minutes));
    let seeds = value("--seeds").map(|range| {
        let (from, to) = range.split_once("..").expect("A..B");
        from.parse().expect("a number")..to.parse().expect("a number")
    });
    if within.is_some() || seeds.is_some() || earlier.is_some() {
        let seeds = seeds.unwrap_or(if within.is_some() { 0..u64::MAX } else { 0..1 });
        return Ok(Some(Options { seeds, within, prints: earlier.is_some(), earlier }));
    }
    // A filter that does not mean this test, or a listing.
    let is_other = |arg: &String| arg == "--list" || !arg.starts_with('-') && !NAME.contains(arg.as_str());
    if args.iter().any(is_other) { Err(()) } else { Ok(None) }
}

/// True if everything holds.
async fn run(options: Options) -> bool {
    let (began, mut failed, mut done) = (Instant::now(), Vec::new(), 0);
    for seed in options.seeds {
        if options.within.is_some_and(|within| began.elapsed() >= within) {
            break;
        }
        let Some(needs) = Needs::find() else { return true };
        let earlier = options.earlier.as_deref();
        let upgrades = earlier.map(|path| format!(" --upgrade-from {}", path.display())).unwrap_or_default();
        println!("seed {seed}: cargo test --test chaos -- --seed {seed}{upgrades}");
        let outcome = trial::run(seed, needs, options.prints, earlier).await;
        done += 1;
        println!("seed {seed}: {}", outcome.figures);
        if outcome.broken.is_empty() {
            continue;
        }
        if !options.prints {
            outcome.story.iter().for_each(|line| println!("  {line}"));
        }
        outcome.broken.iter().take(PRINTED).for_each(|broken| println!("seed {seed} breaks: {broken}"));
        if outcome.broken.len() > PRINTED {
            println!("seed {seed} breaks {} more", outcome.broken.len() - PRINTED);
        }
        println!("seed {seed}: logs are in {}", outcome.logs.display());
        failed.push(seed);
    }
    println!("{done} seeds in {:.0} s, of which {failed:?} failed", began.elapsed().as_secs_f64());
    failed.is_empty()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Ok(options) = options(&args) else {
        println!("test result: ok. 0 passed, 0 failed");
        return ExitCode::SUCCESS;
    };
    println!("{NAME}");
    companion::crypto::install();
    let system = actix_web::rt::System::new();
    // A judge that finds nothing would let everything pass.
    system.block_on(self_tests::run());
    let holds = options.is_none_or(|options| system.block_on(run(options)));
    let (word, passed, failed) = if holds { ("ok", 1, 0) } else { ("FAILED", 0, 1) };
    println!("test result: {word}. {passed} passed, {failed} failed");
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
