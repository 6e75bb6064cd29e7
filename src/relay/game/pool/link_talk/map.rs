//! The map, which costs much and changes only with a wipe.

use std::time::Duration;

use super::LinkTalk;
use crate::{
    game::{
        budget::Priority,
        link::{Answered, AskError},
        reading_link::GameQuestion,
    },
    relay::game::pool::{link_end::LinkEnd, link_owner::Unneeded, link_report::LinkReport},
};

/// The game thread may need long for the map. One that comes later may be larger than is accepted by then.
const MAP_DEADLINE: Duration = Duration::from_secs(120);

impl LinkTalk<'_> {
    /// Asks for the map whenever it is wanted. Without it there are no monuments; the rest goes on.
    pub(super) async fn keep_map(&self) -> Result<Unneeded, LinkEnd> {
        loop {
            self.map_wanted.notified().await;
            if Box::pin(self.map()).await?.is_err() {
                return Ok(Unneeded);
            }
        }
    }

    /// Asks for the map and reports the answer, unless another link has it when the turn comes.
    async fn map(&self) -> Result<Result<(), Unneeded>, LinkEnd> {
        let turn = self.owner.context.decoder.turn_of_map().await;
        match self.owner.report(LinkReport::MapTurn).await {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(Unneeded) => return Ok(Err(Unneeded)),
        }
        match self.link.ask(GameQuestion::Map, Priority::Map, MAP_DEADLINE).await {
            Ok(Answered { content, .. }) => {
                let Some(map) = content.map else { return Ok(Ok(())) };
                let (address, port) = (self.route.host.clone(), self.route.port);
                let report = LinkReport::Map { map, address, port, turn };
                return Ok(self.owner.report(report).await.map(|_| ()));
            }
            Err(AskError::Closed) => return Err(LinkEnd::by(AskError::Closed)),
            Err(error @ AskError::TooMany(_)) => self.warn_of_refusal(&error),
            Err(_) => {}
        }
        Ok(Ok(()))
    }
}
