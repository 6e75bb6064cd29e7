//! Actor: one watch per game server at which players are tracked, and the way from the API to the player-statistics
//! service. Started by `server.rs` on a thread of its own, if a service is configured. A game server is looked at as long
//! as a player is tracked there: the API reports new ones, and a watch reports pairings that need it no longer.

use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
    sync::{Arc, PoisonError},
    time::Duration,
};

use actix::prelude::*;
use futures_util::{
    FutureExt as _,
    future::{AbortHandle, Abortable},
};
use tokio::time::sleep;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, query_failures::log_failure, start_reads::read_until_answered},
        paired_servers, player_stats_spending, tracked_players,
    },
    domain::ids::ServerId,
    panics::{self, Part},
    tracking::{
        aliases::{AliasError, AliasFinder, Aliases, FindAliases},
        context::TrackingContext,
        server_watch::{self, GamePlace, WatchedPairings},
    },
};

/// Interval at which the spent budget is stored.
const STORE_EVERY: Duration = Duration::from_secs(30);

/// Players are tracked at this paired server.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TrackingChanged {
    pub server: ServerId,
}

/// Look no more, and store what was spent. Answered when that is done.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopTracking;

/// These paired servers are no longer at this place, or track no player.
#[derive(Message)]
#[rtype(result = "()")]
struct PlaceLeft {
    place: GamePlace,
    servers: Vec<ServerId>,
}

/// See the module.
pub struct TrackingWorker {
    context: Arc<TrackingContext>,
    watches: HashMap<GamePlace, PlaceWatch>,
    aliases: Rc<AliasFinder>,
}

/// The watch of a game server; ends when dropped.
struct PlaceWatch {
    pairings: WatchedPairings,
    watching: AbortHandle,
}

impl Drop for PlaceWatch {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Starts the worker on this thread.
pub fn start(context: TrackingContext, arbiter: &ArbiterHandle) -> Addr<TrackingWorker> {
    let context = Arc::new(context);
    TrackingWorker::start_in_arbiter(arbiter, |_| {
        let aliases = AliasFinder::new(context.clone());
        TrackingWorker { context, watches: HashMap::new(), aliases }
    })
}

/// Where the server is, if players are tracked at it.
fn tracked_place(db: &mut Db, server: &ServerId) -> Result<Option<GamePlace>, DbError> {
    if tracked_players::count(db, server)? == 0 {
        return Ok(None);
    }
    match paired_servers::get(db, server) {
        Ok(paired) => Ok(Some(GamePlace { address: paired.address, port: paired.port })),
        Err(DbError::NotFound) => Ok(None),
        // The others go on.
        Err(error @ DbError::Malformed(_)) => {
            log::error!(server = server.as_str(); "its players are not looked for: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl TrackingWorker {
    /// Looks at this place for this server too, for the first time after `delay`.
    fn watch(&mut self, place: GamePlace, server: ServerId, delay: Duration, ctx: &Context<Self>) {
        if let Some(known) = self.watches.get(&place) {
            known.pairings.lock().unwrap_or_else(PoisonError::into_inner).insert(server);
            return;
        }
        let pairings = WatchedPairings::new(BTreeSet::from([server]).into());
        let (watching, registration) = AbortHandle::new_pair();
        let (context, worker) = (self.context.clone(), ctx.address());
        let (watched, at, left) = (pairings.clone(), place.clone(), place.clone());
        let watch = async move {
            sleep(delay).await;
            let report = |servers| worker.do_send(PlaceLeft { place: left.clone(), servers });
            server_watch::watch(context, at, watched, report).await;
        };
        actix::spawn(Abortable::new(watch, registration).map(drop));
        self.watches.insert(place, PlaceWatch { pairings, watching });
    }

    /// Stores what was spent since the last time.
    fn store_spending(&self) -> impl Future<Output = ()> + use<> {
        let context = self.context.clone();
        async move {
            let (day, changes) = {
                let mut budget = context.budget();
                (budget.day(), budget.take_changes())
            };
            if changes.is_empty() {
                return;
            }
            // If this fails, it is stored with what is spent next.
            if let Err(error) = context.pool.write(move |db| player_stats_spending::put(db, day, &changes)).await {
                log_failure("what was spent at the player-statistics service was not stored", &error);
            }
        }
    }
}

impl Actor for TrackingWorker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(STORE_EVERY, |worker, ctx| {
            ctx.spawn(worker.store_spending().into_actor(worker));
        });
        let context = self.context.clone();
        let day = context.budget().day();
        let read = move |db: &mut Db| {
            let servers = tracked_players::list_servers(db)?;
            let place = |server: ServerId| Ok(tracked_place(db, &server)?.map(|place| (place, server)));
            let places = servers.into_iter().map(place).collect::<Result<Vec<_>, DbError>>()?;
            Ok((places, player_stats_spending::list(db, day)?))
        };
        let read = async move { read_until_answered(&context.pool, &context.random, "tracked players", read).await };
        ctx.spawn(read.into_actor(self).map(|(places, spent), worker, ctx| {
            worker.context.budget().restore(spent, worker.context.clock.now());
            let total = places.len();
            for (number, (place, server)) in places.into_iter().flatten().enumerate() {
                let delay = worker.context.poll_every.mul_f64(number as f64 / total as f64);
                worker.watch(place, server, delay, ctx);
            }
        }));
    }

    fn stopping(&mut self, _: &mut Self::Context) -> Running {
        panics::notice(Part::TrackingWorker, "");
        Running::Stop
    }
}

impl Handler<StopTracking> for TrackingWorker {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: StopTracking, _: &mut Self::Context) -> Self::Result {
        self.watches.clear();
        Box::pin(self.store_spending().into_actor(self).map(|(), _, ctx| ctx.stop()))
    }
}

impl Handler<TrackingChanged> for TrackingWorker {
    type Result = ();

    fn handle(&mut self, TrackingChanged { server }: TrackingChanged, ctx: &mut Self::Context) {
        let (pool, asked) = (self.context.pool.clone(), server.clone());
        let place = async move { pool.read(move |db| tracked_place(db, &asked)).await };
        ctx.spawn(place.into_actor(self).map(|place, worker, ctx| match place {
            Ok(Some(place)) => worker.watch(place, server, Duration::ZERO, ctx),
            Ok(None) => {}
            Err(error) => log::warn!(server = server.as_str(); "tracked players are not looked for yet: {error}"),
        }));
    }
}

impl Handler<PlaceLeft> for TrackingWorker {
    type Result = ();

    fn handle(&mut self, PlaceLeft { place, servers }: PlaceLeft, ctx: &mut Self::Context) {
        if let Some(watch) = self.watches.get(&place) {
            let is_empty = {
                let mut pairings = watch.pairings.lock().unwrap_or_else(PoisonError::into_inner);
                pairings.retain(|server| !servers.contains(server));
                pairings.is_empty()
            };
            if is_empty {
                self.watches.remove(&place);
            }
        }
        // Perhaps they are elsewhere now.
        for server in servers {
            ctx.notify(TrackingChanged { server });
        }
    }
}

impl Handler<FindAliases> for TrackingWorker {
    type Result = ResponseFuture<Result<Aliases, AliasError>>;

    fn handle(&mut self, question: FindAliases, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.aliases.clone().find(question))
    }
}
