//! Commands in the team's chat at a game connection: what [`TeamCommands`](super::team_commands::TeamCommands) knows is
//! read, heard, said and stored here, and the link takes its place among those of its team.

mod acknowledging;
mod announcing;
mod answering;
mod devices;
mod due;
mod timers;

use std::time::Duration;

use actix::prelude::*;
use tokio::time::timeout;

use super::{
    GameConnection,
    team_commands::{
        LoadedCommands,
        stored_commands::{self, StoredCommands},
        waiting_lines::EchoedLine,
    },
};
use crate::{
    db::engine::{error::DbError, pool::Db, query_failures::log_failure, start_reads::read_until_answered},
    domain::{
        bot::bot_messages::BotMessages,
        team_command::{election::server_of_link, settings::CommandWord, speaker::LineUse},
        timeline::TimelineEntry,
    },
    relay::{
        game::team_speech::{self, say_later},
        shared::teams::{TeamKey, TeamLink},
        state::team_chat::ReceivedLine,
    },
};

/// Longest wait of an answer for the stored travels.
const RECALLED_WITHIN: Duration = Duration::from_secs(1);

impl GameConnection {
    /// Reads what is stored for the commands.
    pub(super) fn load_commands(&mut self, ctx: &mut Context<Self>) {
        let (context, server) = (self.context.clone(), self.server.clone());
        let stored = async move {
            let read = move |db: &mut Db| StoredCommands::read(db, &server);
            read_until_answered(&context.pool, &context.random, "chat settings", read).await
        };
        let read = ctx.spawn(stored.into_actor(self).map(|stored, connection, ctx| connection.loaded(stored, ctx)));
        self.commands.begin_read();
        self.commands.read.replace(read, ctx);
    }

    fn loaded(&mut self, stored: StoredCommands, ctx: &mut Context<Self>) {
        let LoadedCommands { timers, has_other_prefix } = self.commands.load(stored);
        if let Some(timers) = timers {
            self.load_timers(timers, ctx);
            self.show_turn_backs(ctx);
        }
        if has_other_prefix {
            self.other_bot_gone(ctx);
        }
        // Last: an update hears the lines that wait, and the team does not know the new commands before.
        self.commands.end_read();
        self.commands_ready(ctx);
    }

    /// The stored travels of ship and helicopter, if this command is about them and the first that is. Few players ask,
    /// and none waits for a database that is slow.
    fn read_travels(
        &self,
        command: CommandWord,
    ) -> impl Future<Output = Result<Option<Vec<TimelineEntry>>, DbError>> + use<> {
        let is_about_them = matches!(command, CommandWord::Cargo | CommandWord::Heli);
        let (pool, server) = (self.context.pool.clone(), self.server.clone());
        let read = (is_about_them && !self.commands.knows_travels()).then_some(async move {
            let travels = pool.read(move |db: &mut Db| stored_commands::travels(db, &server));
            let late = |_| DbError::Unavailable(format!("no answer within {} s", RECALLED_WITHIN.as_secs()));
            timeout(RECALLED_WITHIN, travels).await.map_err(late)?
        });
        async move {
            match read {
                Some(read) => read.await.map(Some),
                None => Ok(None),
            }
        }
    }

    /// False if the travels could not be read: an answer would perhaps be wrong.
    fn recall(&mut self, travels: Result<Option<Vec<TimelineEntry>>, DbError>) -> bool {
        match travels {
            Ok(Some(travels)) => self.commands.recall(&travels, self.feed.live.state().server.wiped_at),
            Ok(None) => {}
            Err(error) => {
                log_failure("the travels of ship and helicopter are read with the next question", &error);
                return false;
            }
        }
        true
    }

    /// The link is up, and everything was asked once: the team is known, if there is one.
    pub(super) fn commands_resynced(&mut self, ctx: &mut Context<Self>) {
        self.commands.resynced();
        self.commands_ready(ctx);
    }

    /// The link is gone.
    pub(super) fn commands_link_down(&mut self) {
        if let Some(begun) = self.context.teams.leave(&self.server, self.context.clock.moment()) {
            team_speech::begin(&self.context, &begun);
        }
        self.commands.link_down();
    }

    /// True if the link, its team and the commands are known.
    fn is_ready(&self) -> bool {
        self.commands.is_known() && self.held.has_own_link()
    }

    /// Something that commands wait for has come.
    fn commands_ready(&mut self, ctx: &mut Context<Self>) {
        self.see_team();
        self.join_team(ctx.address());
        self.plan_commands(ctx);
        self.announce_unsaid(ctx);
        self.hear_unread();
    }

    /// Takes the link's place among those of its team, which may be another than before.
    pub(super) fn join_team(&mut self, own: Addr<Self>) {
        let (Some(link), Some(game_server), true) = (self.held.own_link(), &self.held.game_server, self.is_ready())
        else {
            return;
        };
        let now = self.context.clock.moment();
        let leader = self.feed.live.state().team.leader_id.as_deref().and_then(|id| id.parse().ok());
        let game_server = server_of_link(game_server, link.peer());
        let key = TeamKey { game_server, leader: leader.unwrap_or(link.player()) };
        let link = TeamLink {
            server: self.server.clone(),
            link,
            connected_since: self.commands.connected_since().unwrap_or(now),
            vocabulary: self.commands.vocabulary.clone(),
            passes_leadership: self.commands.settings.pass_leadership,
            news: own.recipient(),
        };
        self.commands.player = link.link.player();
        for begun in self.context.teams.join(&key, link, now) {
            team_speech::begin(&self.context, &begun);
        }
        self.context.teams.pass_timers_on(&key);
        let left = self.commands.key.replace(key).filter(|left| self.commands.key.as_ref() != Some(left));
        self.hear_echoes(left.as_ref());
    }

    /// Takes lines of the team's chat: commands among those that were just said, and echoes of our own among all.
    pub(super) fn hear_commands(&mut self, lines: &[ReceivedLine]) {
        self.commands.lines.add(lines, self.context.clock.moment());
        self.hear_echoes(None);
        self.hear_unread();
    }

    /// Says to the team which lines have come, once the link is in it: they may be ours. Also to the team that the link has
    /// left just now: if only its leader has changed, a line of ours waits there.
    fn hear_echoes(&mut self, left: Option<&TeamKey>) {
        let Some(key) = self.commands.key.as_ref().filter(|_| self.is_ready()) else { return };
        let now = self.context.clock.moment();
        for EchoedLine { author, text, old } in self.commands.lines.take_echoes() {
            for key in [Some(key), left].into_iter().flatten() {
                self.context.teams.echo(key, author, &text, old, now);
            }
        }
    }

    /// Reads the lines that were said, once it is known what they mean. Those that waited for too long are left alone.
    fn hear_unread(&mut self) {
        let Some(key) = self.commands.key.as_ref().filter(|_| self.is_ready() && !self.commands.is_reading()) else {
            return;
        };
        let now = self.context.clock.moment();
        for ReceivedLine { stored, author, .. } in self.commands.lines.take_said(now) {
            self.context.teams.hear(key, &stored.id, author, &stored.line.text, now);
        }
    }

    /// Says this in the team's chat when its turn comes.
    fn say(&self, text: &str, purpose: LineUse) {
        if let Some(key) = &self.commands.key {
            say_later(&self.context, key, &self.server, text, purpose);
        }
    }

    /// Calls this with the texts as admins wrote them.
    fn with_texts(
        &self,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, &BotMessages, &mut Context<Self>) + 'static,
    ) {
        let context = self.context.clone();
        let texts = async move { context.chat_texts.get(&context.pool, context.clock.moment()).await };
        ctx.spawn(texts.into_actor(self).map(|texts, connection, ctx| then(connection, &texts, ctx)));
    }
}
