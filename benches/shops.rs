//! Costs of the shops of 200 game servers with 300 shops each, polled all at once: CPU for each poll of one game
//! server, from its decoded answer to what has to be stored, and rows written to SQLite. Polls in which nothing changed,
//! in which only the marker ids did, and in which one shop in a hundred trades.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::TimeDelta;
use companion::{
    config::Database,
    crypto::random::Random,
    db::{
        engine::pool::Pool,
        markets::{self, StoredMarket},
    },
    domain::{
        ids::GameServerId,
        time::{Moment, Timestamp},
    },
    game::wire::{AppInfo, AppMapMarkers, AppMarker, AppMarkerType, app_marker::SellOrder},
    relay::{
        shared::markets::{Markets, SharedMarket},
        state::{
            game_update::{GameUpdate, WorldUpdate},
            live_state::LiveState,
        },
    },
};

const GAME_SERVERS: usize = 200;
const SHOPS: u64 = 300;
const ROUNDS: u64 = 20;
/// Between two polls of a game server.
const POLL: Duration = Duration::from_secs(5);

struct Polled {
    id: GameServerId,
    live: LiveState,
    market: Arc<SharedMarket>,
    markers: AppMapMarkers,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    Ids,
    Trade,
}

fn shop(id: u64) -> AppMarker {
    let order = |n: u64| SellOrder {
        item_id: -151_838_493 + (id * n % 40) as i32,
        quantity: 1_000,
        currency_id: -932_201_673,
        cost_per_item: 20 + n as i32,
        amount_in_stock: 5,
        ..Default::default()
    };
    AppMarker {
        id,
        r#type: AppMarkerType::VendingMachineMarker as i32,
        x: (id * 13 % 4_000) as f32,
        y: (id * 7_919 % 4_000) as f32 + 0.25,
        name: Some(format!("Shop {id}")),
        sell_orders: (1..=3).map(order).collect(),
        ..Default::default()
    }
}

fn change(markers: &mut AppMapMarkers, change: Change, round: u64) {
    match change {
        Change::Nothing => {}
        Change::Ids => markers.markers.iter_mut().for_each(|marker| marker.id += SHOPS),
        Change::Trade => {
            for marker in markers.markers.iter_mut().skip(round as usize % 100).step_by(100) {
                let order = &mut marker.sell_orders[0];
                order.amount_in_stock = (order.amount_in_stock + 4) % 6;
            }
        }
    }
}

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pool = Pool::open(&Database::Sqlite(directory.path().join("bench.db"))).expect("SQLite opens");
    let (markets, random) = (Markets::default(), Random::seeded(7));
    let start = Timestamp::UNIX_EPOCH + TimeDelta::days(20_000);
    let mut servers: Vec<Polled> = (0..GAME_SERVERS)
        .map(|n| {
            let id = GameServerId::at("192.0.2.1", n as u16);
            let market = markets.join(&id);
            market.restore(StoredMarket::default());
            let mut live = LiveState::new(start);
            live.update(GameUpdate::Connected(AppInfo { map_size: 4_000, ..Default::default() }), start.into());
            Polled { id, live, market, markers: AppMapMarkers { markers: (1..=SHOPS).map(shop).collect() } }
        })
        .collect();
    println!("{GAME_SERVERS} game servers with {SHOPS} shops of 3 offers, each polled every {} s", POLL.as_secs());
    let mut now: Moment = start.into();
    let all = [("first answer", Change::Nothing, 1), ("unchanged", Change::Nothing, ROUNDS)];
    let all = all
        .into_iter()
        .chain([("other marker ids", Change::Ids, ROUNDS), ("1 % of shops trade", Change::Trade, ROUNDS)]);
    for (name, kind, rounds) in all {
        let (mut live, mut market, mut writing) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let (mut steps, mut rows) = (0, 0);
        for round in 0..rounds {
            now = now + TimeDelta::seconds(POLL.as_secs() as i64);
            let mut batch = Vec::new();
            for server in &mut servers {
                change(&mut server.markers, kind, round);
                let answer = server.markers.clone();
                let begun = Instant::now();
                server.live.update(WorldUpdate::Markers(answer), now);
                live += begun.elapsed();
                let begun = Instant::now();
                let markers = server.live.state().map_markers.iter().map(|(_, marker)| marker);
                let (link, ground) = (server.id.as_str().into(), server.live.ground());
                let new_id = || random.id(now.stamp);
                if server.market.answer(&link, (server.live.world(), true), ground, markers, now) {
                    batch.extend(server.market.take_unwritten(now.stamp, new_id));
                }
                market += begun.elapsed();
            }
            steps += batch.len();
            rows += batch.iter().map(|step| step.write.shops.len() + step.write.records.len()).sum::<usize>();
            if !batch.is_empty() {
                let begun = Instant::now();
                let write = |db: &mut _| batch.iter().try_for_each(|step| markets::write(db, step));
                pool.write_blocking(write).expect("SQLite writes");
                writing += begun.elapsed();
            }
        }
        let polls = (rounds as usize * GAME_SERVERS) as u32;
        let per_second = |count: usize| count as f64 / (rounds as f64 * POLL.as_secs_f64());
        let load = (live + market + writing).as_secs_f64() / (rounds as f64 * POLL.as_secs_f64());
        println!(
            "{name:>20}: live state {:>9.1?}, market {:>8.1?} a poll; {:>7.1} writes and {:>8.1} rows a second in {:>8.1?} \
             each round; {:.2} % of one core",
            live / polls,
            market / polls,
            per_second(steps),
            per_second(rows),
            writing / rounds as u32,
            load * 100.0,
        );
    }
}
