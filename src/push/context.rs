//! Shared state of the push worker and its supervisors.

use std::sync::Arc;

use actix::Addr;
use rustls::ClientConfig;

use crate::{
    clock::Clock,
    config::PushAddress,
    crypto::random::Random,
    db::engine::pool::Pool,
    domain::fence::Fence,
    game::outbound::Outbound,
    net::Network,
    push::login_pacer::LoginPacer,
    relay::hub::{AlarmPushed, AlarmRoutes, Hub},
    vault::Vault,
};

/// Built once, shared by all sessions. A clone shares everything with it.
#[derive(Clone)]
pub struct PushContext {
    pub clock: Clock,
    pub random: Random,
    pub network: Network,
    pub pool: Pool,
    pub vault: Vault,
    pub tls: Arc<ClientConfig>,
    pub address: PushAddress,
    /// Bounds and spreads the logins of all sessions.
    pub logins: Arc<LoginPacer>,
    /// Limits on the game servers that may be paired.
    pub outbound: Arc<Outbound>,
    /// Receives what was pushed, once it is stored.
    pub hub: Addr<Hub>,
    pub alarm_routes: AlarmRoutes,
}

impl PushContext {
    /// Delivers a pushed alarm to the game connection of its server. One that is delivered twice is dropped there.
    pub fn deliver(&self, alarm: AlarmPushed) {
        self.alarm_routes.deliver(alarm, self.hub.clone().recipient());
    }

    /// This context for a session that this node has: nothing is stored through it once another node has it.
    pub fn fenced_by(&self, fence: Arc<Fence>) -> Self {
        Self { pool: self.pool.clone().fenced_by(fence), ..self.clone() }
    }
}
