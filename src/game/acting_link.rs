//! A link over which something is done as its player: a line is said, a switch turned, a camera looked through.

#[cfg(test)]
use std::net::SocketAddr;
use std::{ops::Deref, time::Duration};

use crate::game::{
    budget::Priority,
    link::AskError,
    paced_link::PacedLink,
    reading_link::{GameQuestion, ReadingLink},
    wire::AppInfo,
};

/// See the module; clones share the link. There is none without an answer of the game server to its player: it answers
/// nothing to a token that it does not accept.
#[derive(Clone)]
pub struct ActingLink(PacedLink);

impl ActingLink {
    /// Asks what the game server is, and with that for the right to act; none if it does not say what it is.
    pub async fn prove(link: PacedLink, deadline: Duration) -> Result<Option<(AppInfo, Self)>, AskError> {
        let asked = ReadingLink::new(link.clone()).ask(GameQuestion::Info, Priority::EntitySync, deadline).await?;
        Ok(asked.content.info.map(|info| (info, Self(link))))
    }

    /// A link of this player that has ended.
    #[cfg(test)]
    pub fn ended(player: u64, peer: Option<SocketAddr>) -> Self {
        Self(PacedLink::ended(player, peer))
    }
}

/// Questions and acts share one budget.
impl Deref for ActingLink {
    type Target = PacedLink;

    fn deref(&self) -> &PacedLink {
        &self.0
    }
}
