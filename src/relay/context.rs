//! What the relay's actors share.

use crate::{
    clock::Clock,
    config,
    crypto::random::Random,
    db::{journal::Journal, pool::Pool},
    game::{asker::Budgets, decoding::MessageDecoder},
    net::Network,
    relay::connect_turns::ConnectTurns,
    vault::Vault,
};

/// Built once, shared by all.
pub struct RelayContext {
    pub clock: Clock,
    pub random: Random,
    pub network: Network,
    pub pool: Pool,
    pub journal: Journal,
    pub vault: Vault,
    pub game: config::Game,
    pub budgets: Budgets,
    pub connect_turns: ConnectTurns,
    pub decoder: MessageDecoder,
}
