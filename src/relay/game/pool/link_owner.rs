//! The game connection for which a link is held.

use std::sync::Arc;

use actix::Recipient;

use super::{link_report::LinkReport, wake::Wake};
use crate::{
    domain::ids::ServerId,
    relay::{shared::context::RelayContext, state::game_update::GameUpdate},
};

/// See the module.
pub struct LinkOwner {
    pub reports: Recipient<LinkReport>,
    pub context: Arc<RelayContext>,
    pub server: ServerId,
    pub wake: Arc<Wake>,
}

/// The game connection is gone, so is the need for a link.
pub struct Unneeded;

impl LinkOwner {
    /// Reports, and waits until that is handled; true if the map must be asked for.
    pub async fn report(&self, report: LinkReport) -> Result<bool, Unneeded> {
        self.reports.send(report).await.map_err(|_| Unneeded)
    }

    /// Reports an update.
    pub async fn update(&self, update: impl Into<GameUpdate>) -> Result<bool, Unneeded> {
        self.report(LinkReport::Update(update.into())).await
    }
}
