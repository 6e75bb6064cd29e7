//! No alarm is lost and none is announced twice: the real binary is killed again and again, while alarms come by push
//! and link, twice and late, and sockets open, close and stop reading. In the end the ledger and what the clients
//! received must agree, and every message by a channel must have ended. Then five hundred alarm devices of one server go off
//! within ten seconds: no client misses one.
//!
//! `cargo test --test ledger -- --alarms 10000 --seed 7`; the seed decides all that is done to the service.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

mod channels;
mod client;
#[path = "../crash/mod.rs"]
mod crash;
mod trial;
mod verdict;
mod wall;

use trial::Trial;
use wall::Wall;

const NAME: &str = "ledger_under_fire";
const ALARMS: usize = 150;
/// Alarms that go off at once in the end.
const WALL: usize = 500;
/// Acknowledgements while the messages of those wait.
const ACKS: usize = 20;
const SEED: u64 = 20_261_121;
/// Longest wait for anything; only a run that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(90);
/// Faults that are printed one by one.
const FAULTS: usize = 20;

struct Options {
    alarms: usize,
    seed: u64,
}

/// None if another test is asked for.
fn options() -> Option<Options> {
    let mut options = Options { alarms: ALARMS, seed: SEED };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|number| number.parse().ok()).expect("a number follows");
        match arg.as_str() {
            "--alarms" => options.alarms = number() as usize,
            "--seed" => options.seed = number(),
            "--list" => return None,
            // Flags for which libtest takes a value.
            "--test-threads" | "--format" | "--color" | "--skip" | "-Z" => drop(args.next()),
            filter if !filter.starts_with('-') && !NAME.contains(filter) => return None,
            _ => {}
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        println!("test result: ok. 0 passed, 0 failed");
        return ExitCode::SUCCESS;
    };
    println!("{NAME}: {} alarms, seed {}", options.alarms, options.seed);
    let began = Instant::now();
    let broken = actix_web::rt::System::new().block_on(run(&options));
    for fault in broken.iter().take(FAULTS) {
        println!("  {fault}");
    }
    if broken.len() > FAULTS {
        println!("  and {} more", broken.len() - FAULTS);
    }
    let (word, passed, failed) = if broken.is_empty() { ("ok", 1, 0) } else { ("FAILED", 0, 1) };
    println!("test result: {word}. {passed} passed, {failed} failed; in {:.1} s", began.elapsed().as_secs_f64());
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The invariants that do not hold.
async fn run(options: &Options) -> Vec<String> {
    let mut trial = Trial::start(options.seed).await;
    let began = Instant::now();
    let most = (options.alarms / 25).clamp(6, 60);
    while trial.pushed + trial.triggers.len() < options.alarms {
        trial.act(most).await;
    }
    trial.kill().await;
    trial.wall(WALL).await;
    for _ in 0..ACKS {
        trial.acknowledge().await;
    }
    trial.settle().await;
    let took = began.elapsed();

    let rows = verdict::rows(&trial.pool);
    let incidents = verdict::incidents(&trial.pool);
    let count = |state: &str| rows.iter().filter(|row| row.state == state).count();
    let heard = |state: &str| incidents.iter().filter(|row| row.state == state).count();
    println!(
        "{} pushes and {} triggers on the link, {} kills, {} freezes, {} logins in {:.1} s; \
         {} alarms: {} opened, {} merged; {} incidents: {} delivered, {} later, {} unheard",
        trial.pushed,
        trial.triggers.len(),
        trial.kills,
        trial.freezes,
        trial.pushes.counts().logins,
        took.as_secs_f64(),
        rows.len(),
        count("opened"),
        count("merged"),
        incidents.len(),
        heard("delivered"),
        heard("delivered_later"),
        heard("unheard"),
    );
    println!("{}; {} acknowledgements", channels::figures(&trial.pool, &trial.receiver), trial.acks);
    let known: Vec<String> = incidents.iter().map(|incident| incident.id.clone()).collect();
    let mut broken = verdict::judge(&trial, &rows, &incidents);
    for woken in &trial.woken {
        broken.extend(channels::judge(&trial.pool, woken, &trial.receiver, &known));
    }
    drop(trial);

    let wall = Wall::go_off(options.seed).await;
    println!("{}", wall.figures());
    broken.extend(verdict::judge_wall(&wall));
    broken
}
