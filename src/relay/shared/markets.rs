//! The markets of the game servers that this process has links to: one for each, however many have paired it.
//!
//! Several links to one game server see the same shops. One of them feeds the market, as long as it gets answers; so no
//! older answer comes after a newer one, and no shop is compared twice.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use chrono::TimeDelta;

use crate::{
    db::markets::{MarketStep, StoredMarket},
    domain::{
        detect::wipe::World,
        doubling::Doubling,
        ids::{GameServerId, ServerId},
        map::Marker,
        reporting::KnownReports,
        shop::{MarketGround, Shop, market::Market},
        time::{Moment, Timestamp},
    },
};

/// A link without an answer for this long no longer feeds the market.
const FEEDS_FOR: TimeDelta = TimeDelta::seconds(30);
/// The wipe time of one world differs by less.
const SAME_WIPE: TimeDelta = TimeDelta::seconds(60);

/// Markets of which those that no one holds are not looked for.
const FEW: usize = 64;

/// See the module. Shared by all game connections of the process; a market lives as long as one of them holds it.
#[derive(Default)]
pub struct Markets(Mutex<HeldMarkets>);

struct HeldMarkets {
    markets: HashMap<GameServerId, Weak<SharedMarket>>,
    searched: Doubling,
}

impl Default for HeldMarkets {
    fn default() -> Self {
        Self { markets: HashMap::new(), searched: Doubling::new(FEW) }
    }
}

/// The market of one game server.
pub struct SharedMarket {
    game_server: GameServerId,
    state: Mutex<MarketState>,
}

#[derive(Default)]
struct MarketState {
    /// The stored market is known: before, nothing is compared, or all shops would be new after each start.
    is_loaded: bool,
    wipe: i32,
    wipe_unwritten: bool,
    world: Option<World>,
    market: Market,
    feeder: Option<(ServerId, Moment)>,
}

impl Markets {
    /// The market of this game server.
    pub fn join(&self, game_server: &GameServerId) -> Arc<SharedMarket> {
        let HeldMarkets { markets, searched } = &mut *self.lock();
        if let Some(known) = markets.get(game_server).and_then(Weak::upgrade) {
            return known;
        }
        if searched.is_reached(markets.len()) {
            markets.retain(|_, market| market.strong_count() > 0);
            searched.searched(markets.len());
        }
        let fresh = Arc::new(SharedMarket { game_server: game_server.clone(), state: Mutex::default() });
        markets.insert(game_server.clone(), Arc::downgrade(&fresh));
        fresh
    }

    /// The market of this game server with the shops that are there, if this process knows more of it than the
    /// database.
    pub fn current(&self, game_server: &GameServerId) -> Option<StoredMarket> {
        let market = self.get(game_server)?;
        let state = market.lock();
        (state.is_loaded && state.market.answered_at().is_some()).then(|| StoredMarket {
            wipe: state.wipe,
            world: state.world.clone(),
            reports: state.market.reports().clone(),
            shops: state.market.shops().filter(Shop::is_there).collect(),
        })
    }

    /// The reports of this game server, if this process has them from its answers.
    pub fn reports(&self, game_server: &GameServerId) -> Option<KnownReports> {
        let market = self.get(game_server)?;
        let state = market.lock();
        state.is_loaded.then(|| state.market.reports().clone())
    }

    /// When shops of this game server were last seen.
    pub fn answered_at(&self, game_server: &GameServerId) -> Option<Timestamp> {
        self.get(game_server)?.read(Market::answered_at)
    }

    fn get(&self, game_server: &GameServerId) -> Option<Arc<SharedMarket>> {
        self.lock().markets.get(game_server).and_then(Weak::upgrade)
    }

    fn lock(&self) -> MutexGuard<'_, HeldMarkets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedMarket {
    /// The game server of this market.
    pub fn game_server(&self) -> &GameServerId {
        &self.game_server
    }

    /// True if the stored market is known.
    pub fn is_loaded(&self) -> bool {
        self.lock().is_loaded
    }

    /// Takes over the stored market, unless one is known already: that is newer.
    pub fn restore(&self, stored: StoredMarket) {
        let mut state = self.lock();
        if !state.is_loaded {
            let StoredMarket { wipe, world, reports, shops } = stored;
            let market = Market::restore(shops, reports);
            *state = MarketState { is_loaded: true, wipe, world, market, ..MarketState::default() };
        }
    }

    /// Takes a complete answer of this server's link; `is_populated`: players are on. True if it feeds the market.
    pub fn answer<'a>(
        &self,
        feeder: &ServerId,
        (world, is_populated): (Option<&World>, bool),
        ground: MarketGround,
        markers: impl Iterator<Item = &'a Arc<Marker>> + Clone,
        now: Moment,
    ) -> bool {
        let mut state = self.lock();
        let is_fed = state.is_loaded && state.is_fed_by(feeder, now) && state.see(world);
        if is_fed {
            let events = markers.clone().filter(|marker| marker.kind.is_event()).count();
            state.market.see_events(events, is_populated, now);
            state.market.answer(ground, markers, now);
        }
        is_fed
    }

    /// The verdicts to store since the last call; `None` if there are none.
    pub fn take_unwritten(&self, now: Timestamp, new_id: impl FnMut() -> String) -> Option<MarketStep> {
        let mut state = self.lock();
        let write = state.market.take_unwritten();
        if write.is_none() && !std::mem::take(&mut state.wipe_unwritten) {
            return None;
        }
        state.wipe_unwritten = false;
        let write = write.unwrap_or_default();
        let record_ids = std::iter::repeat_with(new_id).take(write.records.len()).collect();
        let (wipe, world) = (state.wipe, state.world.clone());
        Some(MarketStep { game_server: self.game_server.clone(), wipe, world, write, record_ids, at: now })
    }

    /// Puts back a step that could not be stored: it comes again with the next answer.
    pub fn requeue(&self, step: MarketStep) {
        let mut state = self.lock();
        if state.wipe == step.wipe {
            state.market.requeue(step.write);
            state.wipe_unwritten = true;
        }
    }

    /// Reads the market.
    pub fn read<T>(&self, read: impl FnOnce(&Market) -> T) -> T {
        read(&self.lock().market)
    }

    fn lock(&self) -> MutexGuard<'_, MarketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MarketState {
    fn is_fed_by(&mut self, link: &ServerId, now: Moment) -> bool {
        let other_feeds = self.feeder.as_ref().is_some_and(|(feeder, at)| feeder != link && now - *at < FEEDS_FOR);
        if !other_feeds {
            self.feeder = Some((link.clone(), now));
        }
        !other_feeds
    }

    /// Compares the world of an answer: another one is a wipe, and begins an empty market. False for a world that was
    /// before the known one.
    fn see(&mut self, seen: Option<&World>) -> bool {
        let Some(seen) = seen else { return true };
        let known = self.world.take().unwrap_or_default();
        let is_before = known.wiped_at.zip(seen.wiped_at).is_some_and(|(known, seen)| known - seen > SAME_WIPE);
        if is_before {
            self.world = Some(known);
            return false;
        }
        if known.compare(seen).is_some() {
            self.wipe += 1;
            self.wipe_unwritten = true;
            self.market = self.market.wiped();
        }
        self.world = Some(known.updated(seen.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::shop::testing::{at, ground, machine, order};

    fn world(seed: u32, wiped_at: i64) -> World {
        World { seed: Some(seed), wiped_at: Some(at(wiped_at).stamp), ..World::default() }
    }

    fn feed(market: &SharedMarket, link: &str, world: &World, shops: u32, seconds: i64) -> Option<MarketStep> {
        let shop = |n| Arc::new(machine(f64::from(n), 1.0, "Shop", &[order("wood", 1, 1, 1)]));
        let markers: Vec<_> = (0..shops).map(shop).collect();
        let mut number = 0;
        let new_id = || {
            number += 1;
            number.to_string()
        };
        let now = at(seconds);
        let is_fed = market.answer(&link.into(), (Some(world), true), ground(), markers.iter(), now);
        is_fed.then(|| market.take_unwritten(now.stamp, new_id)).flatten()
    }

    #[test]
    fn links_to_one_game_server_share_its_market_and_one_feeds_it() {
        let markets = Markets::default();
        let market = markets.join(&"a:1".into());
        assert!(Arc::ptr_eq(&market, &markets.join(&"a:1".into())));
        assert!(feed(&market, "alice", &world(1, 0), 2, 0).is_none(), "what is stored is not known yet");
        market.restore(StoredMarket::default());
        let step = feed(&market, "alice", &world(1, 0), 2, 10).unwrap();
        assert_eq!((step.write.shops.len(), step.record_ids.len(), step.wipe), (2, 2, 0));
        assert!(feed(&market, "alice", &world(1, 0), 2, 20).is_none(), "nothing changed");
        assert!(feed(&market, "bob", &world(1, 0), 3, 25).is_none(), "alice feeds it");
        assert_eq!(markets.answered_at(&"a:1".into()), Some(at(20).stamp));
        assert_eq!(markets.current(&"a:1".into()).unwrap().shops, step.write.shops);
        assert!(feed(&market, "bob", &world(1, 0), 3, 50).is_some(), "her link is silent");
        drop(market);
        assert_eq!(markets.answered_at(&"a:1".into()), None);
        for number in 0..10 * FEW {
            markets.join(&format!("b:{number}").into());
        }
        assert!(markets.lock().markets.len() <= FEW, "those that are not held are forgotten");
    }

    #[test]
    fn a_wipe_begins_an_empty_market_and_an_answer_from_before_is_late() {
        let market = Markets::default().join(&"a:1".into());
        market.restore(StoredMarket { wipe: 4, world: Some(world(1, 0)), ..StoredMarket::default() });
        assert_eq!(feed(&market, "alice", &world(1, 0), 2, 10).unwrap().wipe, 4);
        let step = feed(&market, "alice", &world(2, 600), 0, 700).unwrap();
        assert_eq!((step.wipe, step.write.shops.len(), &step.world), (5, 0, &Some(world(2, 600))));
        assert!(feed(&market, "alice", &world(1, 0), 2, 710).is_none());
        assert_eq!(market.read(|market| market.shops().count()), 0);
        market.requeue(step);
        assert_eq!(feed(&market, "alice", &world(2, 600), 0, 720).unwrap().wipe, 5, "it is stored after all");
    }
}
