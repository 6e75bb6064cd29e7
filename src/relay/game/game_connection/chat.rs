//! The team's chat at a game connection: lines are delivered and kept, and users say something themselves.

use std::time::Duration;

use actix::prelude::*;
use tokio::{sync::oneshot, time::timeout};

use super::GameConnection;
use crate::{
    domain::chat::KeptLine,
    relay::{
        game::commands::{self, AwaitedEcho, COMMAND_DEADLINE, ChatError, SayInTeam},
        shared::fact_sink::Fact,
        state::team_chat::{HeardLine, shown_text},
        wire::{
            protocol::{KnownLine, ServerMessage},
            publication::Lane,
        },
    },
};

/// Longest wait of an answer for the database; with [`COMMAND_DEADLINE`] less than its caller waits.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);

impl GameConnection {
    /// Delivers the lines that are news, and keeps all.
    pub(super) fn hear_chat(&mut self, lines: Vec<HeardLine>) {
        for HeardLine { kept, author, is_news } in lines {
            if is_news {
                let chat = KnownLine { id: &kept.id, line: &kept.line };
                let message = ServerMessage::Chat { server_id: &self.server, chat };
                self.publisher.borrow_mut().deliver(Lane::Chat, &message);
            }
            self.context.facts.store(Fact::Chat(self.server.clone(), kept.clone()));
            if is_news {
                self.hear_echo(author, kept);
            }
        }
    }

    /// Answers the user of this line, which older game servers cut. The player may say others in the game meanwhile.
    fn hear_echo(&mut self, author: u64, kept: KeptLine) {
        let is_ours = self.link.as_ref().is_some_and(|link| link.player() == author);
        if is_ours && !self.echoes.is_empty() {
            let text = kept.line.text.as_str();
            let whole = self.echoes.iter().position(|awaited| awaited.text == text);
            let cut = || self.echoes.iter().position(|awaited| !text.is_empty() && awaited.text.starts_with(text));
            if let Some(said) = whole.or_else(cut) {
                let _ = self.echoes.remove(said).heard.send(kept);
            }
        }
    }
}

impl Handler<SayInTeam> for GameConnection {
    type Result = ResponseActFuture<Self, Result<KeptLine, ChatError>>;

    fn handle(&mut self, SayInTeam { text }: SayInTeam, _: &mut Self::Context) -> Self::Result {
        let Some(link) = self.link.clone() else {
            return Box::pin(actix::fut::ready(Err(ChatError::Unavailable)));
        };
        let (heard, echo) = oneshot::channel();
        self.echoes.push(AwaitedEcho { text: shown_text(&text), heard });
        let said = async move {
            commands::say(&link, text).await?;
            // The game says no more than that it has taken it.
            echo.await.map_err(|_| ChatError::TimedOut)
        };
        let facts = self.context.facts.clone();
        let said = async move {
            let said = timeout(COMMAND_DEADLINE, said).await.unwrap_or(Err(ChatError::TimedOut));
            if said.is_ok() {
                // A user whose line is confirmed finds it in the stored chat. It is said, however long the write takes.
                facts.flush(FLUSHED_WITHIN).await;
            }
            said
        };
        Box::pin(said.into_actor(self).map(|said, connection, _| {
            connection.echoes.retain(|awaited| !awaited.heard.is_closed());
            said
        }))
    }
}
