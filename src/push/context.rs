//! Shared state of the push worker and its supervisors.

use std::sync::Arc;

use actix::Addr;
use rustls::ClientConfig;

use crate::{
    clock::Clock, config::PushAddress, crypto::random::Random, db::engine::pool::Pool, game::outbound::Outbound,
    net::Network, push::login_pacer::LoginPacer, relay::hub::Hub, vault::Vault,
};

/// Built once, shared by all sessions.
pub struct PushContext {
    pub clock: Clock,
    pub random: Random,
    pub network: Network,
    pub pool: Pool,
    pub vault: Vault,
    pub tls: Arc<ClientConfig>,
    pub address: PushAddress,
    /// Bounds and spreads the logins of all sessions.
    pub logins: LoginPacer,
    /// Limits on the game servers that may be paired.
    pub outbound: Arc<Outbound>,
    /// Receives what was pushed, once it is stored.
    pub hub: Addr<Hub>,
}
