//! The relay under load, from outside: the binary of this build serves clients in one process and hears of a game server
//! in another, so that only what the service itself costs is counted.
//!
//! ```text
//! cargo bench --bench relay_load -- [PHASE…] [--clients 1000,10000] [--repetitions 1] [--seconds 10] [--workers 1] [--deflate] [--peers]
//! ```
//!
//! Each round starts a new server and new clients. Rounds alternate with those of the limit: a process that writes one
//! encoded frame of the same length to each socket with one call, as often as the relay writes to each. A ratio of 1.00
//! is as good as that; higher is better. With `--peers` other people's servers take part too; they are installed into the
//! target directory. Prints figures, asserts nothing about them. `ulimit -n` must exceed the number of clients by a third.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod clients;
mod game;
mod limit;
mod peers;
#[path = "../process/mod.rs"]
mod process;
mod rounds;
mod service;
mod table;

use std::env;

use clap::{Parser, ValueEnum as _};
use companion::net::descriptors;

use self::{
    process::Result,
    rounds::{Contender, Phase},
    table::Block,
};

#[derive(Parser)]
struct Options {
    /// Phases to measure, in this order [default: everything]
    phases: Vec<Phase>,
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    clients: Vec<usize>,
    /// Rounds of each kind
    #[arg(long, default_value_t = 1)]
    repetitions: usize,
    /// Seconds for which changes come in one round
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Worker threads of the service
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// The service compresses what it sends
    #[arg(long)]
    deflate: bool,
    /// Other servers take part too: from npm and crates.io
    #[arg(long)]
    peers: bool,
    /// Cargo says so
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["clients", address, server, tokens, reading] => {
            clients::run(address.parse()?, server, tokens.as_ref(), reading.parse()?)
        }
        ["limit"] => limit::serve(),
        ref all if !all.contains(&"--bench") => Ok(()), // run as a test: nothing to measure
        _ => measure(&Options::parse()),
    }
}

fn measure(options: &Options) -> Result<()> {
    let most = options.clients.iter().copied().max().unwrap_or_default();
    let (open_files, needed) = (descriptors::raise_limit(), descriptors::limit_for(most, options.workers));
    if open_files < needed {
        return Err(format!("{most} clients need {needed} open files, the limit is {open_files}: ulimit -n").into());
    }
    let mut contenders =
        vec![Contender::Limit, Contender::Service { workers: options.workers, deflate: options.deflate }];
    if options.peers {
        contenders.extend(peers::install().into_iter().map(Contender::Peer));
    }
    let phases = if options.phases.is_empty() { Phase::value_variants() } else { &options.phases };
    println!(
        "{} worker thread(s), {} round(s) of {} s each; ratios to the limit, of 1.00, higher is better",
        options.workers, options.repetitions, options.seconds
    );
    for &count in &options.clients {
        for &phase in phases {
            let mut block = Block::default();
            for round in 1..=options.repetitions {
                for contender in contenders.iter().filter(|contender| phase.concerns(contender)) {
                    eprintln!("{phase:?}, {count} clients, round {round}: {}", contender.name());
                    block.add(contender.name(), rounds::run(phase, contender, count, options.seconds)?);
                }
            }
            println!("\n{phase:?}, {count} clients\n{block}");
        }
    }
    Ok(())
}
