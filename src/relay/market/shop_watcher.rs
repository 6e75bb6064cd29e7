//! One paired server's share of its game server's market: feeds it with the answers of its link, and finds
//! what becomes of the offers that its owner watches.

use std::{sync::Arc, time::Duration};

use actix::Message;

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        markets::{self, StoredMarket},
        shop_watches,
    },
    domain::{
        ids::{GameServerId, ServerId},
        rate::Window,
        reporting::Reports,
        shop::{
            Shop,
            market::{Market, REMEMBERED},
            watch::ShopWatch,
        },
        time::Moment,
        world_event::WorldEvent,
    },
    relay::{
        shared::{context::RelayContext, markets::SharedMarket, write_behind::Record},
        state::live_state::LiveState,
    },
};

/// The owner of a paired server added, edited or deleted a watch.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ShopWatchesChanged;

/// See the module.
pub struct ShopWatcher {
    server: ServerId,
    context: Arc<RelayContext>,
    market: Option<Arc<SharedMarket>>,
    /// `None` until the database has said which there are.
    watches: Option<Vec<ShopWatch>>,
    /// The version of the market in which they were looked at.
    judged: Option<u64>,
    is_loading: bool,
    /// Findings that were sent.
    sent: Window,
    start: Moment,
}

/// The missing shops of a market, and its watches.
pub struct StoredShops {
    market: Arc<SharedMarket>,
    /// Shops, where they were missing, and watches.
    read: Result<(Option<StoredMarket>, Vec<ShopWatch>), DbError>,
}

/// Findings sent in any minute: a game server whose prices never rest must not fill its watchers' sockets. A finding
/// that is not sent is still stored as the latest one.
const SENT: usize = 30;
const SENT_SPAN: Duration = Duration::from_secs(60);

impl ShopWatcher {
    /// Knows no market yet.
    pub fn new(server: ServerId, context: Arc<RelayContext>) -> Self {
        Self {
            sent: Window::new(SENT, SENT_SPAN),
            start: context.clock.moment(),
            server,
            context,
            market: None,
            watches: None,
            judged: None,
            is_loading: false,
        }
    }

    /// The link is to this game server.
    pub fn linked(&mut self, game_server: &GameServerId) {
        if self.market.as_ref().is_none_or(|market| market.game_server() != game_server) {
            self.market = Some(self.context.markets.join(game_server));
            self.judged = None;
        }
    }

    /// The live state has a complete answer of the map. Returns the events of the watched offers, to be delivered.
    pub fn answered(&mut self, live: &LiveState, now: Moment) -> Vec<WorldEvent> {
        let Some(market) = self.market.clone().filter(|market| self.is_loaded(market)) else { return Vec::new() };
        // The first comparison of a market finds much that is new: while many markets wait, this one waits, too.
        let turn = self.context.write_behind.turn_of_market();
        if turn.is_none() && market.read(Market::answered_at).is_none() {
            return Vec::new();
        }
        let markers = live.state().map_markers.iter().map(|(_, marker)| marker);
        let is_populated = live.state().server.players.is_some_and(|players| players > 0);
        let is_fed = market.answer(&self.server, (live.world(), is_populated), live.ground(), markers, now);
        let new_id = || self.context.random.id(now.stamp);
        if is_fed
            && let Some(turn) = turn
            && let Some(step) = market.take_unwritten(now.stamp, new_id)
            && let Err(step) = self.context.write_behind.store_market(step, turn)
        {
            market.requeue(*step);
        }
        self.judge(&market, now)
    }

    /// The reports of the game server, if it is known which one it is.
    pub fn reports(&self) -> Option<Reports> {
        let market = self.market.as_ref().filter(|market| market.is_loaded())?;
        Some(market.read(|market| market.reports().reports()))
    }

    fn is_loaded(&self, market: &SharedMarket) -> bool {
        market.is_loaded() && self.watches.is_some()
    }

    /// Reads what is missing, if anything is and no read is under way; [`loaded`](Self::loaded) must get the answer.
    pub fn to_load(&mut self) -> Option<impl Future<Output = StoredShops> + use<>> {
        let market = self.market.clone().filter(|market| !self.is_loaded(market))?;
        let (server, game_server, pool) =
            (self.server.clone(), market.game_server().clone(), self.context.pool.clone());
        let (wanted, gone_since) = (!market.is_loaded(), self.context.clock.now() - REMEMBERED);
        if std::mem::replace(&mut self.is_loading, true) {
            return None;
        }
        let read = move |db: &mut Db| -> Result<_, DbError> {
            let stored = wanted.then(|| markets::load(db, &game_server, gone_since)).transpose()?;
            Ok((stored, shop_watches::list(db, &server)?))
        };
        Some(async move { StoredShops { market, read: pool.read(read).await } })
    }

    /// The answer to [`to_load`](Self::to_load).
    pub fn loaded(&mut self, StoredShops { market, read }: StoredShops) {
        self.is_loading = false;
        match read {
            Ok((stored, watches)) => {
                stored.into_iter().for_each(|stored| market.restore(stored));
                self.watches.get_or_insert(watches);
            }
            Err(error) => log::warn!(server = self.server.as_str(); "the shops could not be read: {error}"),
        }
    }

    /// Reads the watches again, as their owner added, edited or deleted one; [`reloaded`](Self::reloaded) must get the
    /// answer.
    pub fn read_watches(&self) -> impl Future<Output = Result<Vec<ShopWatch>, DbError>> + use<> {
        let (pool, server) = (self.context.pool.clone(), self.server.clone());
        async move { pool.read(move |db| shop_watches::list(db, &server)).await }
    }

    /// The answer to [`read_watches`](Self::read_watches).
    pub fn reloaded(&mut self, stored: Result<Vec<ShopWatch>, DbError>) {
        let known = self.watches.take().unwrap_or_default();
        match stored {
            Ok(mut stored) => {
                for watch in &mut stored {
                    // Later findings may not be stored yet.
                    if let Some(known) =
                        known.iter().find(|known| (&known.id, known.version) == (&watch.id, watch.version))
                    {
                        watch.clone_from(known);
                    }
                }
                self.watches = Some(stored);
                self.judged = None;
            }
            // They are read with the next answer.
            Err(error) => log::warn!(server = self.server.as_str(); "the watched shops could not be read: {error}"),
        }
    }

    /// Looks at the watched offers, if the market has changed, and stores what is new.
    fn judge(&mut self, market: &SharedMarket, now: Moment) -> Vec<WorldEvent> {
        let mut found: Vec<(ShopWatch, Option<WorldEvent>)> = Vec::new();
        let catalogue = self.context.catalogue.current();
        market.read(|market| {
            // Before the first answer nothing is missing.
            if market.answered_at().is_none() || self.judged.replace(market.version()) == Some(market.version()) {
                return;
            }
            let mut watches = self.watches.iter_mut().flatten().peekable();
            // Most watch nothing.
            let shops: Vec<Shop> = if watches.peek().is_some() { market.shops().collect() } else { Vec::new() };
            for watch in watches {
                let (finding, baseline) = watch.look(&shops);
                if (finding, baseline) == (watch.finding, watch.baseline) {
                    continue;
                }
                let action = watch.news(&finding);
                let id = finding.vendor.or(watch.vendor_id());
                (watch.finding, watch.baseline) = (finding, baseline);
                if action.is_some() {
                    watch.as_of = now.stamp;
                }
                let event = action.map(|action| {
                    let shop = shops.iter().find(|shop| Some(shop.id) == id);
                    watch.event(action, shop, &catalogue, now.stamp)
                });
                found.push((watch.clone(), event));
            }
        });
        let mut events = Vec::new();
        for (watch, event) in found {
            self.context.write_behind.store(Record::Finding(watch));
            events.extend(event.filter(|_| self.may_send(now)));
        }
        events
    }

    fn may_send(&mut self, now: Moment) -> bool {
        let millis = u64::try_from((now - self.start).num_milliseconds()).unwrap_or_default();
        let may = self.sent.available_at(millis, SENT).is_none();
        if may {
            self.sent.record(millis);
        }
        may
    }
}
