//! The databases that a bench measures, and how it prints what it measured.

use std::{
    env,
    time::{Duration, Instant},
};

use companion::{config::Database, crypto::random::Random};
use diesel::{Connection as _, PgConnection, connection::SimpleConnection as _};
use secrecy::{ExposeSecret as _, SecretString};

/// Measures on a new SQLite database and, with `TEST_POSTGRES_URL`, on a new one of PostgreSQL.
pub fn on_each(measure: impl Fn(&str, &Database)) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    measure("SQLite", &Database::Sqlite(directory.path().join("bench.db")));
    let Ok(url) = env::var("TEST_POSTGRES_URL") else {
        return println!("PostgreSQL is left out: TEST_POSTGRES_URL is not set");
    };
    let name = format!("companion_bench_{}", Random::system().hex::<8>());
    let mut connection = PgConnection::establish(&url).expect("TEST_POSTGRES_URL answers");
    connection.batch_execute(&format!("CREATE DATABASE {name}")).expect("its role may make databases");
    let mut database = url::Url::parse(&url).expect("TEST_POSTGRES_URL is a URL");
    database.set_path(&name);
    measure("PostgreSQL", &Database::Postgres(SecretString::from(String::from(database))));
    connection.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).expect("it can go");
}

/// PostgreSQL does this by itself while a table grows: only then can an index alone answer. And no checkpoint of all
/// that was filled in is to run beside the questions.
pub fn vacuum(database: &Database) {
    if let Database::Postgres(url) = database {
        let mut connection = PgConnection::establish(url.expose_secret()).expect("the database answers");
        connection.batch_execute("VACUUM (ANALYZE)").expect("its owner may");
        // For this the role needs more.
        if let Err(error) = connection.batch_execute("CHECKPOINT") {
            println!("without a checkpoint: {error}");
        }
    }
}

/// Asks this many times and prints how long that took.
#[allow(dead_code, reason = "not every bench asks one question many times")]
pub fn print_time(name: &str, queries: usize, ask: impl Fn()) {
    let time = |_| {
        let begun = Instant::now();
        ask();
        begun.elapsed()
    };
    let mut taken: Vec<Duration> = (0..queries).map(time).collect();
    taken.sort_unstable();
    println!("{name:>20}: p50 {:>8.2?}, p99 {:>8.2?}", taken[queries / 2], taken[queries * 99 / 100]);
}
