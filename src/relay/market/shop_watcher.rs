//! One paired server's share of its game server's market: feeds it with the answers of its link, and reports to its
//! watchers what becomes of the offers that its owner watches.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix::Message;

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        markets, shop_watches,
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
        shared::{context::RelayContext, fact_sink::Fact, markets::SharedMarket},
        state::live_state::LiveState,
        wire::{
            protocol::{KnownEvent, ServerMessage},
            publication::Lane,
            publisher::Publisher,
        },
    },
};

/// The owner of a paired server added, edited or deleted a watch.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ShopWatchesChanged {
    pub server: ServerId,
}

/// See the module.
pub struct ShopWatcher {
    server: ServerId,
    context: Arc<RelayContext>,
    live: Rc<RefCell<LiveState>>,
    publisher: Rc<RefCell<Publisher>>,
    market: RefCell<Option<Arc<SharedMarket>>>,
    /// `None` until the database has said which there are.
    watches: RefCell<Option<Vec<ShopWatch>>>,
    /// The version of the market in which they were looked at.
    judged: Cell<Option<u64>>,
    is_loading: Cell<bool>,
    /// Findings that were sent.
    told: RefCell<Window>,
    start: Moment,
}

/// Findings sent in any minute: a game server whose prices never rest must not fill its watchers' sockets. A finding
/// that is not sent is still stored as the latest one.
const TOLD: usize = 30;
const TOLD_SPAN: Duration = Duration::from_secs(60);

impl ShopWatcher {
    /// Knows no market yet.
    pub fn new(
        server: ServerId,
        context: Arc<RelayContext>,
        live: Rc<RefCell<LiveState>>,
        publisher: Rc<RefCell<Publisher>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            told: RefCell::new(Window::new(TOLD, TOLD_SPAN)),
            start: context.clock.moment(),
            server,
            context,
            live,
            publisher,
            market: RefCell::default(),
            watches: RefCell::default(),
            judged: Cell::default(),
            is_loading: Cell::default(),
        })
    }

    /// The link is to this game server. The returned future must be run: it reads what is missing from the database.
    pub fn linked(self: &Rc<Self>, game_server: &GameServerId) -> Option<impl Future<Output = ()> + use<>> {
        let is_other = |market: &Arc<SharedMarket>| market.game_server() != game_server;
        if self.market.borrow().as_ref().is_none_or(is_other) {
            self.market.replace(Some(self.context.markets.join(game_server)));
            self.judged.take();
        }
        self.to_load()
    }

    /// The live state has a complete answer of the map. The returned future must be run: it reads what is missing from
    /// the database, and until then nothing is compared.
    pub fn answered(self: &Rc<Self>, now: Moment) -> Option<impl Future<Output = ()> + use<>> {
        let to_load = self.to_load();
        let market = self.market.borrow().clone()?;
        if !self.is_loaded(&market) {
            return to_load;
        }
        // The first comparison of a market finds much that is new: while many markets wait, this one waits, too.
        let turn = self.context.facts.turn_of_market();
        if turn.is_none() && market.read(Market::answered_at).is_none() {
            return None;
        }
        let is_fed = {
            let live = self.live.borrow();
            let markers = live.state().map_markers.iter().map(|(_, marker)| marker);
            let is_populated = live.state().server.players.is_some_and(|players| players > 0);
            market.answer(&self.server, (live.world(), is_populated), live.ground(), markers, now)
        };
        let new_id = || self.context.random.id(now.stamp);
        if is_fed
            && let Some(turn) = turn
            && let Some(step) = market.take_unwritten(now.stamp, new_id)
            && let Err(step) = self.context.facts.store_market(step, turn)
        {
            market.put_back(*step);
        }
        self.judge(&market, now);
        None
    }

    /// The reports of the game server, if it is known which one it is.
    pub fn reports(&self) -> Option<Reports> {
        let market = self.market.borrow().clone().filter(|market| market.is_loaded())?;
        Some(market.read(|market| market.reports().reports()))
    }

    fn is_loaded(&self, market: &SharedMarket) -> bool {
        market.is_loaded() && self.watches.borrow().is_some()
    }

    fn to_load(self: &Rc<Self>) -> Option<impl Future<Output = ()> + use<>> {
        let market = self.market.borrow().clone()?;
        let is_wanted = !self.is_loaded(&market) && !self.is_loading.replace(true);
        is_wanted.then(|| self.clone().load(market))
    }

    /// Its owner added, edited or deleted a watch.
    pub async fn reload(self: Rc<Self>) {
        let server = self.server.clone();
        match self.context.pool.read(move |db| shop_watches::list(db, &server)).await {
            Ok(mut stored) => {
                let known = self.watches.take().unwrap_or_default();
                for watch in &mut stored {
                    // Later findings may not be stored yet.
                    if let Some(known) =
                        known.iter().find(|known| (&known.id, known.version) == (&watch.id, watch.version))
                    {
                        watch.clone_from(known);
                    }
                }
                self.watches.replace(Some(stored));
                self.judged.take();
            }
            Err(error) => {
                // They are read with the next answer.
                self.watches.take();
                log::warn!(server = self.server.as_str(); "the watched shops could not be read: {error}");
            }
        }
    }

    async fn load(self: Rc<Self>, market: Arc<SharedMarket>) {
        let (server, game_server) = (self.server.clone(), market.game_server().clone());
        let (wanted, gone_since) = (!market.is_loaded(), self.context.clock.now() - REMEMBERED);
        let read = move |db: &mut Db| -> Result<_, DbError> {
            let stored = wanted.then(|| markets::load(db, &game_server, gone_since)).transpose()?;
            Ok((stored, shop_watches::list(db, &server)?))
        };
        match self.context.pool.read(read).await {
            Ok((stored, watches)) => {
                stored.into_iter().for_each(|stored| market.restore(stored));
                self.watches.borrow_mut().get_or_insert(watches);
            }
            Err(error) => log::warn!(server = self.server.as_str(); "the shops could not be read: {error}"),
        }
        self.is_loading.set(false);
    }

    /// Looks at the watched offers, if the market has changed, and reports what is new.
    fn judge(&self, market: &SharedMarket, now: Moment) {
        let mut found: Vec<(ShopWatch, Option<WorldEvent>)> = Vec::new();
        market.read(|market| {
            // Before the first answer nothing is missing.
            if market.answered_at().is_none() || self.judged.replace(Some(market.version())) == Some(market.version()) {
                return;
            }
            let mut watches = self.watches.borrow_mut();
            let mut watches = watches.iter_mut().flatten().peekable();
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
                    watch.event(action, shop, now.stamp)
                });
                found.push((watch.clone(), event));
            }
        });
        for (watch, event) in found {
            self.context.facts.store(Fact::Finding(watch));
            if let Some(event) = event {
                self.tell(&event, now);
            }
        }
    }

    fn tell(&self, event: &WorldEvent, now: Moment) {
        let mut told = self.told.borrow_mut();
        let millis = u64::try_from((now - self.start).num_milliseconds()).unwrap_or_default();
        if told.available_at(millis, TOLD).is_some() {
            return;
        }
        told.record(millis);
        let id = self.context.record(&self.server, None, event);
        let event = KnownEvent { id: id.as_deref(), event };
        let message = ServerMessage::Event { server_id: &self.server, event };
        self.publisher.borrow_mut().deliver(Lane::Event, &message);
    }
}
