//! Context that the worker, its watches and the search for aliases share.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix::Recipient;

use crate::{
    clients::player_stats::PlayerStatsClient,
    clock::Clock,
    crypto::random::Random,
    db::engine::pool::Pool,
    domain::{fair_budget::FairBudget, ids::UserId, sweep::Sweep},
    net::Names,
    ownership::{Ownership, sweeps},
    relay::hub::PlayersSeen,
};

/// Built once, shared by all.
pub struct TrackingContext {
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    /// Look-ups of game servers that are paired by name.
    pub names: Names,
    pub client: PlayerStatsClient,
    /// Requests to the service that are left this day.
    pub budget: Mutex<FairBudget>,
    /// Between two looks at a game server.
    pub poll_every: Duration,
    /// Receives who came and went, once it is stored.
    pub hub: Recipient<PlayersSeen>,
    /// On a node of several.
    pub ownership: Option<Ownership>,
}

impl TrackingContext {
    /// True if this process is to look at game servers, and not another node.
    pub fn looks_here(&self) -> bool {
        sweeps::is_here(Sweep::Tracking, self.ownership.as_ref())
    }

    /// Pays for one request that serves these users; false if the budget is spent.
    pub fn pay(&self, payers: &[UserId]) -> bool {
        let paid = self.budget().take(payers, self.clock.now());
        let outcome = if paid { "paid" } else { "refused" };
        metrics::counter!("companion_player_stats_requests_total", "budget" => outcome).increment(1);
        paid
    }

    /// The budget of questions, locked.
    pub fn budget(&self) -> MutexGuard<'_, FairBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
