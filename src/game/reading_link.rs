//! A link that only asks, for what a game server says alike to all members of a team. Nothing can be done over it as its
//! player, so others may share it.

use std::time::Duration;

use crate::game::{
    budget::{Priority, cost},
    link::{Answered, AskError},
    paced_link::PacedLink,
    wire::{AppEmpty, AppEntityInfo, AppRequest, AppResponse},
};

/// See the module; clones share the link.
#[derive(Clone)]
pub struct ReadingLink(PacedLink);

/// Questions that change nothing in the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameQuestion {
    Info,
    Time,
    Map,
    Markers,
    Team,
    Chat,
    /// `no_clan` is a normal answer.
    Clan,
}

impl ReadingLink {
    /// Reads over this link.
    pub fn new(link: PacedLink) -> Self {
        Self(link)
    }

    /// See [`PacedLink::was_exhausted`].
    pub fn was_exhausted(&self) -> bool {
        self.0.was_exhausted()
    }

    /// Waits for tokens, then asks.
    pub async fn ask(
        &self,
        question: GameQuestion,
        priority: Priority,
        deadline: Duration,
    ) -> Result<Answered<Box<AppResponse>>, AskError> {
        let cost = if question == GameQuestion::Map { cost::MAP } else { cost::REQUEST };
        self.0.ask(question.request(), cost, priority, deadline).await
    }

    /// Asks for a device, which also subscribes this link to its changes.
    pub async fn entity(
        &self,
        id: u64,
        priority: Priority,
        deadline: Duration,
    ) -> Result<Answered<Option<AppEntityInfo>>, AskError> {
        self.0.entity(id, priority, deadline).await
    }
}

impl GameQuestion {
    fn request(self) -> AppRequest {
        let (mut request, asked) = (AppRequest::default(), Some(AppEmpty {}));
        match self {
            Self::Info => request.get_info = asked,
            Self::Time => request.get_time = asked,
            Self::Map => request.get_map = asked,
            Self::Markers => request.get_map_markers = asked,
            Self::Team => request.get_team_info = asked,
            Self::Chat => request.get_team_chat = asked,
            Self::Clan => request.get_clan_info = asked,
        }
        request
    }
}
