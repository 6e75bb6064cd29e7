//! The payment provider's books and ours agree, whatever happens: random walks of users who buy, change, cancel, erase
//! themselves and come back, of an admin who pays back, with a bad way to the provider, events in any order, and a
//! service that is killed. In the end no user has two subscriptions, nothing was paid back that was not asked for, no
//! user has a tier that is not paid, and no user who is gone is charged.
//!
//! - `cargo test --test money -- --seeds A..B`: a walk for each seed, some at a time.
//! - `… -- --seed N`: one seed, with everything that happens printed.
//!
//! A walk on SQLite, and every fourth on PostgreSQL if TEST_POSTGRES_URL is set. A failing seed prints the invariant and
//! the whole story. To add something that is done, see `acts`; an invariant is a check in `verdict` that calls `broke`.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

mod acts;
#[allow(dead_code, reason = "the service is this program, not the binary")]
#[path = "../spec/harness/binary.rs"]
mod binary;
#[path = "../spec/harness/database.rs"]
mod database;
mod erasures;
mod proxy;
#[path = "../simulation/random.rs"]
mod random;
mod refunds;
mod service;
mod verdict;
mod walk;

use std::{collections::BTreeMap, ops::Range, process::ExitCode, time::Instant};

use futures_util::{StreamExt as _, stream};

use crate::{database::Postgres, random::Stream, walk::Walk};

const NAME: &str = "money_over_random_walks";
/// Seeds of a plain `cargo test`.
const FEW: Range<u64> = 0..8;
/// Walks at a time: they mostly wait.
const AT_ONCE: usize = 3;
/// One seed in this many is on PostgreSQL.
const ON_POSTGRES: u64 = 4;

/// One seed: what does not hold, and the story.
async fn walked(seed: u64, prints: bool) -> (u64, BTreeMap<&'static str, String>, Vec<String>) {
    let asked = seed % ON_POSTGRES == ON_POSTGRES - 1 && std::env::var_os("TEST_POSTGRES_URL").is_some();
    let mut walk = Walk::start(seed, asked.then(Postgres::create).flatten(), prints).await;
    let menu = walk.menu();
    for _ in 0..Stream::of(seed, "length").between(30, 70) {
        walk.step(&menu).await;
    }
    walk.end().await;
    for error in service::errors(walk.directory()) {
        if error.contains("panicked") {
            walk.broke("no_panic", error);
        } else {
            walk.say(error);
        }
    }
    (seed, walk.broken, walk.story)
}

/// True if everything holds.
async fn run(range: Range<u64>) -> bool {
    let began = Instant::now();
    let (total, mut done) = (range.end.saturating_sub(range.start), 0);
    let mut failed = BTreeMap::<&str, Vec<u64>>::new();
    let mut walks = stream::iter(range).map(|seed| walked(seed, false)).buffer_unordered(AT_ONCE);
    while let Some((seed, broken, story)) = walks.next().await {
        done += 1;
        if broken.keys().any(|invariant| !failed.contains_key(invariant) && !is_known(invariant)) {
            println!("seed {seed}:");
            story.iter().for_each(|line| println!("  {line}"));
        }
        for (invariant, why) in broken {
            println!("seed {seed} breaks {invariant}: {why}");
            failed.entry(invariant).or_default().push(seed);
        }
        if done % 20 == 0 {
            println!("{done} of {total} seeds in {:.0} s", began.elapsed().as_secs_f64());
        }
    }
    for (invariant, seeds) in &failed {
        let known = if is_known(invariant) { "known: " } else { "" };
        println!("{known}{invariant}: {} of {total} seeds, first {:?}", seeds.len(), &seeds[..seeds.len().min(12)]);
    }
    println!("{total} walks in {:.1} s", began.elapsed().as_secs_f64());
    failed.keys().all(|invariant| is_known(invariant))
}

fn is_known(invariant: &str) -> bool {
    verdict::KNOWN.iter().any(|(known, _)| *known == invariant)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if_eq(service::SERVE).is_some() {
        service::serve(args);
        return ExitCode::SUCCESS;
    }
    let args: Vec<String> = args.collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let system = actix_web::rt::System::new();
    companion::crypto::install();
    if let Some(seed) = value("--seed") {
        let (_, broken, _) = system.block_on(walked(seed.parse().expect("a number"), true));
        return if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let range = value("--seeds").map(|range| {
        let (from, to) = range.split_once("..").expect("A..B");
        from.parse().expect("a number")..to.parse().expect("a number")
    });
    // A filter that does not mean this test, or a listing.
    let filtered = args.iter().any(|arg| arg == "--list" || !arg.starts_with('-') && !NAME.contains(arg.as_str()));
    if range.is_none() && filtered {
        println!("test result: ok. 0 passed, 0 failed");
        return ExitCode::SUCCESS;
    }
    println!("{NAME}");
    let (word, passed, failed) =
        if system.block_on(run(range.unwrap_or(FEW))) { ("ok", 1, 0) } else { ("FAILED", 0, 1) };
    println!("test result: {word}. {passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
