//! The real service under a seed: hub, game connections, links, sockets, push sessions and ledger on virtual time, on
//! one thread, under faults that the seed decides, replaying bit for bit.
//!
//! - `cargo test --release --test simulation -- --seeds A..B`: a child process for each seed, one on each processor.
//! - `… -- --seed N`: one seed with everything that happens printed.
//! - `… -- --shrink N`: the shortest script of a failing seed.
//!
//! Each is of one process. Of some seeds a run of two nodes over one database follows, with a script of its own
//! ([`nodes`]); with `--nodes`, of all, and alone.
//!
//! # Reading a failing seed
//! A failing seed prints the invariant, when and how it was broken, the shrunk script and the command that replays it.
//! `--seed N` then shows every message that every dashboard received around that time; `--keep I,J,…` runs only those
//! steps.
//!
//! # Adding a fault or an invariant
//! A fault is a variant of `script::Act` with its weight in `MENU` and one arm in `run::Run::act`. An invariant is a check in
//! `judge` that calls `broken` with its name. Of nodes: `nodes::script::NodeAct`, `nodes::Nodes::act`, and `nodes::verdict`.

#![allow(unsafe_code, clippy::disallowed_methods, reason = "replaces libc's getrandom; drives the simulation itself")]

mod absence;
mod browser_checks;
mod browsers;
mod bursts;
mod channels;
mod chat_lines;
mod dashboard;
mod early_rings;
mod ending;
mod entropy;
mod erasure;
mod flickers;
mod full_disks;
mod gaps;
mod guests;
mod healthy;
mod judge;
mod life;
mod link_starts;
mod maps;
mod menu;
mod nodes;
mod oracle;
mod overlays;
mod random;
mod records;
mod run;
mod script;
mod shrink;
mod team_alarms;
mod team_commands;
mod teams;
mod wire;
mod wishes;
mod world;
mod writes;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use actix::System;
use tempfile::TempDir;
use tokio::{runtime::Runtime, task::LocalSet};

use crate::{
    life::Service,
    nodes::NodeScript,
    run::Run,
    script::{LENGTH, Script},
    world::World,
};

/// Seeds of a plain `cargo test`, which is not optimized.
const FEW: Range<u64> = 0..4;
/// One of this number of seeds runs twice, and must give the same hash.
const TWICE: u64 = 50;
/// One of this number of seeds has a run of several nodes, too.
const WITH_NODES: u64 = 5;
/// Time on a processor that a seed may take, many times what any needs: one that spins in virtual time takes forever. Time
/// by the clock says nothing on a machine that has more to do.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Time by the clock for a seed that does nothing at all.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(900);
/// The invariant that it does not.
const ENDS: &str = "ends-in-time";

/// Ends this process as a broken promise if its seed is still running then.
fn end_in_time(directory: PathBuf) {
    std::thread::spawn(move || {
        let began = Instant::now();
        while worked() < ENDS_WITHIN && began.elapsed() < GIVEN_UP_AFTER {
            std::thread::sleep(Duration::from_secs(1));
        }
        let reached = world::REACHED.load(Ordering::Relaxed) as f64 / 1_000.0;
        println!("hash none");
        println!("broken {ENDS}: at {reached:.3} s: it has worked for {} s", worked().as_secs());
        let _ = std::fs::remove_dir_all(directory);
        std::process::exit(1);
    });
}

/// The time for which this process has had a processor. Nothing where the system does not say.
fn worked() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may hold anything: the fields from the third on, in hundredths of a second.
    let ticks = stat.rsplit(')').next().into_iter().flat_map(|rest| rest.split_whitespace().skip(11).take(2));
    Duration::from_millis(10 * ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>())
}

/// In memory, if the system has such a file system.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory")
}

/// The runtime of a seed, which this process runs in this directory.
fn runtime(seed: u64, directory: &TempDir) -> Arc<Runtime> {
    end_in_time(directory.path().to_owned());
    entropy::seed(seed);
    world::note_panics();
    companion::crypto::install();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // No I/O driver: a real socket panics.
    Arc::new(builder.enable_time().start_paused(true).build().expect("a runtime"))
}

/// One seed of several nodes from its script to its hash, and what was broken.
fn run_nodes(seed: u64, script: NodeScript, print: bool) -> (u64, BTreeMap<&'static str, String>) {
    let directory = directory();
    let runtime = runtime(seed, &directory);
    let _entered = runtime.enter();
    let neighbours = Rc::new(LocalSet::new());
    let world = neighbours
        .block_on(&runtime, async { World::make(seed, print, neighbours.clone(), directory.path().to_owned()) });
    let system = System::with_tokio_rt(|| runtime.clone());
    system.block_on(neighbours.run_until(nodes::live(world.clone(), script)));
    let verdict = world.judge.borrow().verdict().clone();
    let hash = world.hash();
    drop(system);
    world.forget();
    (hash, verdict)
}

/// One seed from its script to its hash, and what was broken.
fn run(seed: u64, script: Script, print: bool) -> (u64, BTreeMap<&'static str, String>) {
    let directory = directory();
    let runtime = runtime(seed, &directory);
    // Time outside of `block_on` is virtual too.
    let _entered = runtime.enter();
    let neighbours = Rc::new(LocalSet::new());
    let (world, play) = neighbours.block_on(&runtime, async {
        let world = World::make(seed, print, neighbours.clone(), directory.path().to_owned());
        Service::open(&world, 0).furnish(&world);
        let play = Rc::new(Run::new(world.clone()));
        tokio::task::spawn_local(play.clone().play(script));
        (world, play)
    });
    let end = world.origin + Duration::from_millis(LENGTH);
    let mut life = 0;
    loop {
        life += 1;
        let system = System::with_tokio_rt(|| runtime.clone());
        let service = Service::open(&world, life);
        world.judge.borrow_mut().check_kept(&service.pool);
        world.judge.borrow_mut().check_incidents_kept(&service.pool);
        world.receiver.note_accepted(&service.pool);
        world.receiver.browsers.note_gone(&service.pool);
        let (pool, living) = (service.pool.clone(), world.clone());
        let over = system.block_on(async {
            tokio::select! {
                biased;
                () = service.live(living) => false,
                () = world.death() => false,
                () = tokio::time::sleep_until(end) => true,
                // Not in the System: the neighbours' tasks live on.
                () = neighbours.run_until(std::future::pending()) => false,
            }
        });
        if over {
            let mut judge = world.judge.borrow_mut();
            judge.end(&world, &pool, &play.dashboards, &play.overlays);
        }
        world.kill(if over { "the end" } else { "dead" });
        world.judge.borrow_mut().oracle.end_life();
        drop(system);
        world.check_nothing_left();
        if over {
            break;
        }
        let pause = Duration::from_millis(random::Stream::of(seed, &format!("pause {life}")).below(3_000));
        neighbours.block_on(&runtime, async { tokio::time::sleep(pause).await });
    }
    let verdict = world.judge.borrow().verdict().clone();
    let hash = world.hash();
    world.forget();
    (hash, verdict)
}

/// True if this seed is known to break it.
fn is_known(invariant: &str, seed: u64) -> bool {
    judge::KNOWN.iter().any(|(known, by, _)| *known == invariant && *by == seed)
}

/// Report of a child.
struct Report {
    hash: String,
    /// Invariant and details.
    broken: Vec<(String, String)>,
}

fn report(output: &str) -> Option<Report> {
    let hash = output.lines().find_map(|line| line.strip_prefix("hash "))?.to_owned();
    let broken = output.lines().filter_map(|line| line.strip_prefix("broken ")?.split_once(": "));
    Some(Report { hash, broken: broken.map(|(name, why)| (name.to_owned(), why.to_owned())).collect() })
}

fn child(seed: u64, has_nodes: bool, keep: Option<&[usize]>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--child", &seed.to_string()]);
    if has_nodes {
        command.arg("--nodes");
    }
    if let Some(keep) = keep {
        command.args(["--keep", &keep.iter().map(usize::to_string).collect::<Vec<_>>().join(",")]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
}

/// Its report, or how it ended without one.
fn finish(child: Child) -> Result<Report, String> {
    let output = child.wait_with_output().expect("its output");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    report(&text).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        let panic: Vec<&str> = error.lines().filter(|line| !line.trim_start().starts_with("at ")).take(6).collect();
        format!("it panicked: {}", panic.join(" | "))
    })
}

/// Begins the names of promises that a run of several nodes breaks.
const OF_NODES: &str = "nodes: ";

/// Promises that a seed breaks, each with how.
fn attempt(seed: u64, only_nodes: bool) -> Vec<(String, String)> {
    let mut broken = if only_nodes { Vec::new() } else { attempt_one(seed, false) };
    if only_nodes || seed.is_multiple_of(WITH_NODES) {
        let of_nodes = attempt_one(seed, true);
        broken.extend(of_nodes.into_iter().map(|(name, why)| (format!("{OF_NODES}{name}"), why)));
    }
    broken
}

fn attempt_one(seed: u64, has_nodes: bool) -> Vec<(String, String)> {
    let first = match finish(child(seed, has_nodes, None)) {
        Ok(report) => report,
        Err(error) => return vec![(error, String::new())],
    };
    let mut broken = first.broken;
    if seed.is_multiple_of(TWICE) {
        match finish(child(seed, has_nodes, None)) {
            Ok(second) if second.hash == first.hash => {}
            Ok(_) => broken.push(("replay".to_owned(), "another hash".to_owned())),
            Err(error) => broken.push((error, String::new())),
        }
    }
    broken
}

/// Runs seeds, one at a time on each processor; true if nothing unknown was broken.
fn seeds(range: Range<u64>, only_nodes: bool) -> bool {
    let began = Instant::now();
    let total = range.end - range.start;
    let next = AtomicU64::new(range.start);
    let (sender, attempts) = mpsc::channel();
    let mut failed = BTreeMap::<String, Vec<u64>>::new();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                let seeds = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                for seed in seeds.take_while(|seed| *seed < range.end) {
                    sender.send((seed, attempt(seed, only_nodes))).expect("attempts are received to the end");
                }
            });
        }
        drop(sender);
        for (done, (seed, broken)) in (1_u64..).zip(attempts) {
            for (invariant, why) in broken {
                let seeds = failed.entry(invariant.clone()).or_default();
                if seeds.is_empty() {
                    println!("seed {seed} breaks {invariant} {why}");
                }
                seeds.push(seed);
            }
            if done.is_multiple_of(100) {
                println!("{done} of {total} seeds, {:.1} a second", done as f64 / began.elapsed().as_secs_f64());
            }
        }
    });
    let mut to_minimize = None;
    for (invariant, seeds) in &failed {
        let (known, unknown): (Vec<u64>, Vec<u64>) = seeds.iter().copied().partition(|seed| is_known(invariant, *seed));
        let has_nodes = invariant.starts_with(OF_NODES);
        to_minimize = to_minimize.or(unknown.first().map(|seed| (*seed, has_nodes)));
        for (word, seeds) in [("known: ", known), ("", unknown)] {
            if !seeds.is_empty() {
                println!(
                    "{word}{invariant}: {} of {total} seeds, first {:?}",
                    seeds.len(),
                    &seeds[..seeds.len().min(8)]
                );
            }
        }
    }
    match to_minimize {
        Some((seed, true)) => minimize(seed, true, &nodes::script(seed)),
        Some((seed, false)) => minimize(seed, false, &script::script(seed)),
        None => {}
    }
    println!("{total} seeds in {:.1} s", began.elapsed().as_secs_f64());
    to_minimize.is_none()
}

/// Prints the shortest part of this script that breaks what this seed breaks first.
fn minimize<A: Copy + Debug>(seed: u64, has_nodes: bool, script: &[(u64, A)]) {
    let first = |keep: &[usize]| match finish(child(seed, has_nodes, Some(keep))) {
        Ok(report) => report.broken.into_iter().map(|(name, _)| name).find(|name| !is_known(name, seed)),
        Err(error) => Some(error.chars().take(30).collect()),
    };
    let all: Vec<usize> = (0..script.len()).collect();
    let Some(invariant) = first(&all) else { return println!("seed {seed} breaks nothing") };
    if invariant == ENDS {
        // Each attempt to shorten it would take as long.
        return println!("seed {seed} breaks {ENDS}: --seed {seed} prints where it spins");
    }
    let short = shrink::shrink(all, |fewer| first(fewer).as_ref() == Some(&invariant));
    println!("seed {seed} breaks {invariant} with {} of {} steps:", short.len(), script.len());
    for (millis, act) in short.iter().map(|index| script[*index]) {
        println!("  {:>8.3} s  {act:?}", millis as f64 / 1_000.0);
    }
    let keep: Vec<String> = short.iter().map(usize::to_string).collect();
    let nodes = if has_nodes { " --nodes" } else { "" };
    println!("cargo test --release --test simulation --{nodes} --seed {seed} --keep {}", keep.join(","));
}

/// The steps of a script with these numbers; all without.
fn kept<A: Copy>(script: Vec<(u64, A)>, keep: Option<&str>) -> Vec<(u64, A)> {
    match keep {
        None => script,
        Some(keep) => keep.split(',').filter_map(|n| script.get(n.parse::<usize>().ok()?).copied()).collect(),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let number = |name: &str| value(name).and_then(|number| number.parse::<u64>().ok());
    let (keep, only_nodes) = (value("--keep"), args.iter().any(|arg| arg == "--nodes"));
    if let Some(seed) = number("--child").or(number("--seed")) {
        let print = value("--seed").is_some();
        let (hash, broken) = match only_nodes {
            true => run_nodes(seed, kept(nodes::script(seed), keep.as_deref()), print),
            false => run(seed, kept(script::script(seed), keep.as_deref()), print),
        };
        println!("hash {hash:016x}");
        for (invariant, why) in &broken {
            println!("broken {invariant}: {}", why.replace('\n', " "));
        }
        return if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if let Some(seed) = number("--shrink") {
        match only_nodes {
            true => minimize(seed, true, &nodes::script(seed)),
            false => minimize(seed, false, &script::script(seed)),
        }
        return ExitCode::SUCCESS;
    }
    let range = value("--seeds").and_then(|range| {
        let (from, to) = range.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    // A filter that does not mean this test, or a listing.
    let filtered = args.iter().any(|arg| {
        arg == "--list" || (!arg.starts_with('-') && !arg.contains("..") && !"simulation".contains(arg.as_str()))
    });
    if range.is_none() && filtered {
        println!("test result: ok. 0 passed, 0 failed");
        return ExitCode::SUCCESS;
    }
    let sound = seeds(range.unwrap_or(FEW), only_nodes);
    println!(
        "test result: {}. {} passed, {} failed",
        if sound { "ok" } else { "FAILED" },
        u8::from(sound),
        u8::from(!sound)
    );
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
