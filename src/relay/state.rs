//! What the relay's actors may reach.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    clock::Clock,
    config,
    crypto::{random::Random, relay_token::RelayTokens, sealer::Sealer},
    db::pool::Pool,
    game::{budget::Budget, link::Route},
    relay::link_keeper::millis,
};

/// Built once, shared by all.
pub struct RelayState {
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    pub sealer: Arc<Sealer>,
    pub tokens: RelayTokens,
    pub game: config::Game,
    pub budgets: Budgets,
    /// Browser origins that may open a socket.
    pub origins: Vec<String>,
}

/// The mirrored token buckets, one for each game server address: all links to it share them.
#[derive(Default)]
pub struct Budgets(Mutex<HashMap<Address, Arc<Mutex<Budget>>>>);

/// Host and port of a game server.
type Address = (String, u16);

impl Budgets {
    /// The buckets of this game server.
    pub fn of(&self, route: &Route) -> Arc<Mutex<Budget>> {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever holds no link to a server needs no memory of it: buckets refill within seconds.
        budgets.retain(|_, budget| Arc::strong_count(budget) > 1);
        let key = (route.host.clone(), route.port);
        budgets.entry(key).or_insert_with(|| Arc::new(Mutex::new(Budget::new(millis())))).clone()
    }
}
