//! The game connection for which a link is held.

use std::sync::Arc;

use actix::Recipient;
use tokio::time::Instant;

use super::{
    link_report::{LinkReport, ReportOfLink},
    link_slots::LinkSlots,
    wake::Wake,
};
use crate::{
    domain::{ids::ServerId, link_slots::SlotNumber},
    relay::{shared::context::RelayContext, state::game_update::GameUpdate},
};

/// See the module.
pub struct LinkOwner {
    /// Links of the game connection until this one.
    pub number: u64,
    pub reports: Recipient<ReportOfLink>,
    pub context: Arc<RelayContext>,
    pub server: ServerId,
    pub wake: Arc<Wake>,
    pub slots: Arc<LinkSlots>,
    /// The use of the first link; further ones read.
    pub purpose: LinkPurpose,
    /// A link was up before: the game connection knows more of the world than is stored.
    pub knows_world: bool,
    /// Since when a link, which may be a mate's, has read until this one begins; none if none reads.
    pub read_since: Option<Instant>,
}

/// The use of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPurpose {
    /// To read. At a game server that takes no more, it waits for its turn.
    Read,
    /// To ask what its player alone is answered, while a mate's link reads: only where there is room.
    Turn,
    /// Likewise, to do something as its player: it may take the slot of the mate's link.
    Act(SlotNumber),
}

/// The version of a pairing's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialsVersion {
    pub version: i32,
    /// The game server has accepted it before.
    pub is_accepted: bool,
}

/// The game connection is gone, so is the need for a link.
pub struct Unneeded;

impl LinkOwner {
    /// Reports, and waits until that is handled; true if the map must be asked for.
    pub async fn report(&self, report: LinkReport) -> Result<bool, Unneeded> {
        self.reports.send(ReportOfLink { link: self.number, report }).await.map_err(|_| Unneeded)
    }

    /// Reports an update.
    pub async fn update(&self, update: impl Into<GameUpdate>) -> Result<bool, Unneeded> {
        self.report(LinkReport::Update(update.into())).await
    }
}
