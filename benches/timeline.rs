//! Time of a page of a timeline among 1 000 000 entries: the newest 200 of a server, 200 from anywhere, and 200
//! of some kinds. Four fifths of the entries are the server's own or its game server's. On SQLite, and with
//! `TEST_POSTGRES_URL`, a role that may create databases, on PostgreSQL.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::time::Instant;

use chrono::TimeDelta;
use companion::{
    config::Database,
    crypto::random::Random,
    db::{
        engine::pool::Pool,
        paired_servers::{self, StoredPairing},
        timeline, users,
    },
    domain::{
        ids::{GameServerId, ServerId},
        time::Timestamp,
        timeline::{Cursor, TimelineEntry, TimelineOwner, TimelinePage},
    },
};

mod databases;

const ENTRIES: i64 = 1_000_000;
const BATCH: i64 = 10_000;
const PAGE: usize = 200;
const QUERIES: usize = 500;
const KINDS: [&str; 8] = ["cargo", "heli", "crate", "death", "login", "logout", "device", "shop"];

fn start() -> Timestamp {
    Timestamp::UNIX_EPOCH + TimeDelta::days(20_000)
}

/// Seven seconds apart: 1 000 000 of them are 81 days.
fn at(number: i64) -> Timestamp {
    start() + TimeDelta::seconds(7 * number)
}

fn entry(number: i64) -> TimelineEntry {
    TimelineEntry {
        id: format!("{number:032}"),
        kind: KINDS[(number % 8) as usize].to_owned(),
        action: "entered".to_owned(),
        ts: at(number),
        grid: "K12".to_owned(),
        x: Some(1_234.5),
        y: Some(987.25),
        title: "The cargo ship has entered the map in the north-east".to_owned(),
        data: [("markerId".to_owned(), number.to_string().into())].into_iter().collect(),
    }
}

fn fill(pool: &Pool) -> ServerId {
    let server = ServerId::from("server");
    let pairing = StoredPairing {
        owner: "owner".into(),
        game_server_id: None,
        name: "Bench".into(),
        address: "192.0.2.1".into(),
        port: 28_082,
        player_id: "76561198000000001".into(),
        player_token_sealed: b"sealed".to_vec(),
        key_version: 1,
    };
    let paired = pool.write_blocking(|db| {
        let owner = users::sign_in(db, &"owner".into(), &"owner".into(), None, start())?.id;
        paired_servers::put(db, &server, &StoredPairing { owner, ..pairing }, start())?;
        paired_servers::set_accepted(db, &server, 0)
    });
    paired.expect("the server is paired");
    let game = TimelineOwner::GameServer(GameServerId::at("192.0.2.1", 28_082));
    let elsewhere = TimelineOwner::GameServer(GameServerId::at("192.0.2.2", 28_082));
    let own = TimelineOwner::Server(server.clone());
    for begin in (0..ENTRIES).step_by(BATCH as usize) {
        let written = pool.write_blocking(|db| {
            (begin..begin + BATCH).try_for_each(|number| {
                let owner = [&own, &game, &own, &game, &elsewhere][(number % 5) as usize];
                timeline::insert(db, owner, &entry(number))
            })
        });
        written.expect("the entries are stored");
    }
    server
}

fn measure(engine: &str, database: &Database) {
    let pool = Pool::open(database).expect("the database opens");
    let begun = Instant::now();
    let server = fill(&pool);
    databases::vacuum(database);
    println!("{engine}: {ENTRIES} entries in {:.1?}", begun.elapsed());
    let random = Random::seeded(7);
    let anywhere = || {
        let number = (0..4).fold(0, |number, _| number << 8 | i64::from(random.byte())) % ENTRIES;
        Some(Cursor { ts: at(number), id: entry(number).id })
    };
    let kinds = Some(vec!["cargo".to_owned(), "death".to_owned(), "raid".to_owned()]);
    let newest = TimelinePage { since: None, before: None, kinds: None, limit: PAGE };
    type Ask<'a> = Box<dyn Fn() -> TimelinePage + 'a>;
    let all: [(&str, Ask<'_>); 4] = [
        ("newest", Box::new(|| newest.clone())),
        ("before any", Box::new(|| TimelinePage { before: anywhere(), ..newest.clone() })),
        ("since the first", Box::new(|| TimelinePage { since: Some(start()), ..newest.clone() })),
        ("of three kinds", Box::new(|| TimelinePage { before: anywhere(), kinds: kinds.clone(), ..newest.clone() })),
    ];
    for (name, page) in all {
        databases::print_time(name, QUERIES, || {
            let read = pool.read_blocking(|db| timeline::list(db, &server, &page()));
            read.expect("the timeline is read");
        });
    }
}

fn main() {
    databases::on_each(measure);
}
