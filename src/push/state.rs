//! What the push worker may reach.

use std::sync::Arc;

use actix::Addr;
use rustls::ClientConfig;

use crate::{
    clock::Clock,
    config::PushAddress,
    crypto::{random::Random, sealer::Sealer},
    db::pool::Pool,
    relay::hub::Hub,
};

/// Built once, shared by all sessions.
pub struct PushContext {
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    pub sealer: Arc<Sealer>,
    pub tls: Arc<ClientConfig>,
    pub address: PushAddress,
    /// Private and loopback game servers may be paired.
    pub allow_private: bool,
    /// Told what arrived.
    pub hub: Addr<Hub>,
}
