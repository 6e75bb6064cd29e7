//! The team's chat at a game connection: lines are delivered and kept, and users say something themselves.

use std::time::Duration;

use actix::prelude::*;
use tokio::time::timeout;

use super::GameConnection;
use crate::{
    domain::chat::StoredLine,
    game::budget::Priority,
    relay::{
        game::commands::{self, COMMAND_DEADLINE, ChatError, SayInTeam},
        shared::write_behind::Record,
        state::team_chat::{ReceivedLine, shown_text},
    },
};

/// Longest wait of an answer for the database; with [`COMMAND_DEADLINE`] less than its caller waits.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);

impl GameConnection {
    /// Delivers the lines that are news, and keeps all.
    pub(super) fn hear_chat(&mut self, lines: Vec<ReceivedLine>) {
        if lines.is_empty() {
            return;
        }
        let player = self.held.own_link().map(|link| link.player());
        for ReceivedLine { stored, author, is_news, .. } in lines {
            if is_news {
                self.feed.deliver_line(&stored);
            }
            self.context.write_behind.store(Record::Chat(self.server.clone(), stored.clone()));
            if is_news && player == Some(author) {
                self.held.echoes.hear(stored);
            }
        }
    }
}

impl Handler<SayInTeam> for GameConnection {
    type Result = ResponseActFuture<Self, Result<StoredLine, ChatError>>;

    fn handle(&mut self, SayInTeam { text }: SayInTeam, _: &mut Self::Context) -> Self::Result {
        let Some(link) = self.held.own_link() else {
            return Box::pin(actix::fut::ready(Err(ChatError::Unavailable)));
        };
        let echo = self.held.echoes.wait_for(shown_text(&text));
        let said = async move {
            let link = link.acting().await.ok_or(ChatError::Unavailable)?;
            commands::say(&link, &text, Priority::Toggle).await?;
            // The game says no more than that it has taken it.
            echo.await.map_err(|_| ChatError::TimedOut)
        };
        let write_behind = self.context.write_behind.clone();
        let said = async move {
            let said = timeout(COMMAND_DEADLINE, said).await.unwrap_or(Err(ChatError::TimedOut));
            if said.is_ok() {
                // A user whose line is confirmed finds it in the stored chat. It is said, however long the write takes.
                write_behind.flush(FLUSHED_WITHIN).await;
            }
            said
        };
        Box::pin(said.into_actor(self).map(|said, connection, _| {
            connection.held.echoes.drop_ended();
            said
        }))
    }
}
