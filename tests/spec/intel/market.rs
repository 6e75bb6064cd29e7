//! A seeded market, through the live state, the market and the scan: what a watch finds is exact, and how good the scan
//! is.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use companion::{
    domain::{
        shop::{
            Shop, VendorId,
            market::Market,
            scan::scan,
            watch::{Finding, PriceDirection, ShopWatch, WatchSide, WatchState},
        },
        time::Timestamp,
    },
    game::wire::{AppMap, AppMarkerType, app_map, app_marker::SellOrder},
    relay::state::{
        game_update::{GameUpdate, WorldUpdate},
        live_state::LiveState,
    },
    simulator::{
        market::{Fake, SeededMarket},
        world::{SimulatedWorld, TEAM},
    },
};

/// A world, and what the service makes of it.
struct Trial {
    world: SimulatedWorld,
    market: SeededMarket,
    live: LiveState,
    known: Market,
    now: Timestamp,
}

/// Offers that the watch must find, worked out from the bare markers.
#[derive(Debug, PartialEq)]
struct Expected {
    state: WatchState,
    sold_out: bool,
}

impl Trial {
    fn start(seed: u64, shops: usize) -> Self {
        let now = Timestamp::from_unix(1_790_000_000).unwrap();
        let mut world = SimulatedWorld::new(seed, now);
        let market = SeededMarket::open(&mut world, seed, shops);
        let mut live = LiveState::new(now);
        live.update(GameUpdate::Connected(world.info()), now.into());
        let monument = |monument: &companion::simulator::terrain::PlacedMonument| app_map::Monument {
            token: monument.token.to_owned(),
            x: monument.at.x,
            y: monument.at.y,
        };
        let monuments = world.terrain().monuments().iter().map(monument).collect();
        live.update(WorldUpdate::Map(AppMap { monuments, ..Default::default() }), now.into());
        Self { world, market, live, known: Market::default(), now }
    }

    /// Polls this many times, ten seconds apart.
    fn poll(&mut self, polls: usize) {
        for _ in 0..polls {
            self.now += TimeDelta::seconds(10);
            let outcome = self.live.update(WorldUpdate::Markers(self.world.map_markers(TEAM[0].0)), self.now.into());
            assert!(outcome.world.shops_seen);
            let markers = self.live.state().map_markers.iter().map(|(_, marker)| marker);
            self.known.answer(self.live.ground(), markers, self.now.into());
        }
    }

    /// All shops on the map: by place, their orders.
    fn shops(&self) -> BTreeMap<VendorId, Vec<SellOrder>> {
        let markers = self.world.map_markers(TEAM[0].0).markers.into_iter();
        let machines = markers.filter(|marker| marker.r#type == AppMarkerType::VendingMachineMarker as i32);
        machines.map(|marker| (VendorId::at(marker.x.into(), marker.y.into()), marker.sell_orders)).collect()
    }
}

/// Cheapest order of an item for a currency; the prices of the market are small enough for floating point.
fn cheapest(orders: &[SellOrder], item: i32, currency: i32) -> Option<(f64, i32)> {
    let same = |order: &&SellOrder| (order.item_id, order.currency_id) == (item, currency);
    let price = |order: &SellOrder| f64::from(order.cost_per_item) / f64::from(order.quantity);
    let stock = orders.iter().filter(same).map(|order| order.amount_in_stock).sum();
    orders.iter().filter(same).map(price).min_by(f64::total_cmp).map(|price| (price, stock))
}

#[test]
fn what_a_watch_finds_is_what_the_market_shows() {
    let mut findings = BTreeMap::<&str, usize>::new();
    for seed in 0..3 {
        let mut trial = Trial::start(seed, 60);
        trial.market.plant(&mut trial.world, 12);
        trial.poll(3);
        let fakes: Vec<VendorId> = trial.market.fakes().map(|(at, _)| VendorId::at(at.x.into(), at.y.into())).collect();
        let is_player = |trial: &Trial, id: VendorId| trial.known.shop(id).is_some_and(|shop| shop.npc == Some(false));
        let mut watched: Vec<(ShopWatch, f64, i32)> = Vec::new();
        for (id, orders) in trial.shops().into_iter().filter(|(id, _)| !fakes.contains(id) && is_player(&trial, *id)) {
            let order = orders[0];
            let Some((price, _)) = cheapest(&orders, order.item_id, order.currency_id) else { continue };
            let watch = ShopWatch {
                id: id.to_string(),
                vendor: Some(id.to_string()),
                item_id: order.item_id,
                side: WatchSide::Sells,
                direction: PriceDirection::Changes,
                expected_price: None,
                currency_id: Some(order.currency_id),
                baseline: None,
                finding: Finding::NOTHING,
                as_of: trial.now,
                created_at: trial.now,
                version: 0,
            };
            watched.push((watch, price, order.currency_id));
        }
        assert!(watched.len() > 50);
        for _ in 0..20 {
            let shops = trial.shops();
            for (watch, baseline, currency) in &mut watched {
                let id = watch.vendor_id().unwrap();
                let (price, stock) = cheapest(&shops[&id], watch.item_id, *currency).unwrap();
                let rivals = shops.iter().filter(|(other, _)| **other != id && is_player(&trial, **other));
                let undercut = rivals
                    .filter_map(|(_, orders)| cheapest(orders, watch.item_id, *currency))
                    .any(|(other, stock)| stock > 0 && other < price);
                let state = match undercut {
                    _ if price != *baseline => WatchState::Changed,
                    true => WatchState::Undercut,
                    false => WatchState::Ok,
                };
                let shops: Vec<Shop> = trial.known.shops().collect();
                let (finding, pinned) = watch.look(&shops);
                (watch.finding, watch.baseline) = (finding, pinned);
                let found = Expected { state: finding.state, sold_out: finding.sold_out };
                assert_eq!(found, Expected { state, sold_out: stock <= 0 }, "seed {seed}, {id}");
                *findings.entry(finding.state.word()).or_default() += 1;
            }
            trial.market.step(&mut trial.world);
            // Long enough for those that vanish to be gone.
            trial.poll(4);
        }
    }
    println!("findings, all exact: {findings:?}");
    assert!(["ok", "changed", "undercut"].iter().all(|state| findings[state] > 20), "{findings:?}");
}

#[test]
fn the_scan_finds_the_fakes_and_little_else() {
    let (mut found, mut right, mut fakes) = (0, 0, 0);
    let mut missed = BTreeMap::<String, usize>::new();
    for seed in 0..10 {
        let mut trial = Trial::start(seed, 80);
        trial.poll(3);
        trial.now += TimeDelta::hours(2);
        trial.market.plant(&mut trial.world, 12);
        trial.poll(3);
        for _ in 0..20 {
            trial.market.step(&mut trial.world);
            trial.poll(4);
        }
        let place = |x: f32, y: f32| VendorId::at(x.into(), y.into());
        let mut truth: BTreeMap<VendorId, Option<Fake>> =
            trial.market.fakes().map(|(at, fake)| (place(at.x, at.y), Some(fake))).collect();
        // The world has one of its own.
        let markers = trial.world.map_markers(TEAM[0].0).markers;
        let bait = markers.iter().find(|marker| marker.name.as_deref() == Some("Closing down!!!")).unwrap();
        truth.insert(place(bait.x, bait.y), None);
        let shops: Vec<Shop> = trial.known.shops().collect();
        truth.retain(|id, _| shops.iter().any(|shop| shop.id == *id && shop.is_there() && shop.npc == Some(false)));
        let suspects = scan(&shops, companion::domain::items::Catalogue::embedded());
        found += suspects.len();
        right += suspects.iter().filter(|suspect| truth.contains_key(&suspect.shop.id)).count();
        fakes += truth.len();
        for (id, fake) in &truth {
            if !suspects.iter().any(|suspect| suspect.shop.id == *id) {
                *missed.entry(format!("{fake:?}")).or_default() += 1;
            }
        }
        let false_alarms = suspects.iter().filter(|suspect| !truth.contains_key(&suspect.shop.id));
        for suspect in false_alarms {
            println!("seed {seed}: {} {:?}", suspect.shop.name, suspect.reasons);
        }
        assert!(suspects.iter().all(|suspect| suspect.shop.npc == Some(false)));
    }
    let (precision, recall) =
        (f64::from(right as u32) / f64::from(found as u32), f64::from(right as u32) / f64::from(fakes as u32));
    println!(
        "of {fakes} fakes {right} were found among {found}: precision {precision:.3}, recall {recall:.3}; missed {missed:?}"
    );
    assert!(
        fakes >= 120 && precision >= 0.95 && recall >= 0.9,
        "precision {precision}, recall {recall}, missed {missed:?}"
    );
}
