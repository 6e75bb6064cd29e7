//! What the relay's actors share.

use crate::{
    clock::Clock,
    config,
    crypto::random::Random,
    db::pool::Pool,
    game::{asker::Budgets, decoding::MessageDecoder},
    net::Network,
    vault::Vault,
};

/// Built once, shared by all.
pub struct RelayContext {
    pub clock: Clock,
    pub random: Random,
    pub network: Network,
    pub pool: Pool,
    pub vault: Vault,
    pub game: config::Game,
    pub budgets: Budgets,
    pub decoder: MessageDecoder,
}
