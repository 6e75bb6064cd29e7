//! What the relay's actors share.

use std::sync::Arc;

use crate::{
    clock::Clock,
    config,
    crypto::{random::Random, sealer::Sealer},
    db::pool::Pool,
    game::asker::Budgets,
    net::Network,
};

/// Built once, shared by all.
pub struct RelayContext {
    pub clock: Clock,
    pub random: Random,
    pub network: Network,
    pub pool: Pool,
    pub sealer: Arc<Sealer>,
    pub game: config::Game,
    pub budgets: Budgets,
}
