//! Answers the commands that this connection was chosen for.

use actix::prelude::*;

use super::super::GameConnection;
use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        map_notes::{self, StoredNote},
        team_chat_settings,
    },
    domain::{
        bot::bot_messages::BotMessages,
        limits::MAP_NOTES_PER_SERVER,
        team_command::{
            answers::{TeamReply, TeamView, answer},
            device_order::DeviceOrder,
            durations,
            settings::{Audience, CommandWord, TeamChatSettings, TeamRoles},
            speaker::LineUse,
            vocabulary::UnderstoodCommand,
        },
        time::Timestamp,
    },
    relay::{
        game::commands::AskServer,
        shared::teams::{TeamKey, TeamNews},
    },
};

/// Lines of one answer.
const LINES: usize = 4;

impl Handler<TeamNews> for GameConnection {
    type Result = ();

    fn handle(&mut self, news: TeamNews, ctx: &mut Self::Context) {
        match news {
            TeamNews::Asked { author, command } => self.command_asked(author, command, ctx),
            TeamNews::Muted { author, until } => self.muted_elsewhere(author, until, ctx),
            TeamNews::Timers => self.timers_changed(ctx),
            TeamNews::Noticed(notice) => {
                log::warn!(server = self.server.as_str(), notice = notice.word(); "team chat");
                self.noticed(notice, ctx);
            }
        }
    }
}

impl Handler<AskServer> for GameConnection {
    type Result = ResponseActFuture<Self, Option<Vec<String>>>;

    fn handle(&mut self, AskServer { command, texts, .. }: AskServer, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.read_travels(command).into_actor(self).map(move |travels, connection, _| {
            if !connection.recall(travels) {
                return Some(vec![texts.say("team.failed", &[])]);
            }
            match connection.reply(0, command, "", &texts) {
                TeamReply::Say(lines) if connection.held.reading.is_some() => Some(lines),
                _ => None,
            }
        }))
    }
}

impl GameConnection {
    /// A player has given a command; over the rates and without the right there is silence.
    fn command_asked(&mut self, author: u64, command: UnderstoodCommand, ctx: &mut Context<Self>) {
        let Some(key) = &self.commands.key else { return };
        let settings = &self.commands.settings;
        let audience = match &command {
            UnderstoodCommand::Devices(..) => settings.devices,
            UnderstoodCommand::BuiltIn(word, _) => settings.audience(*word),
        };
        let (teams, now) = (&self.context.teams, self.context.clock.moment());
        let is_admitted = || match &command {
            UnderstoodCommand::BuiltIn(CommandWord::Ack, _) => teams.admit_acknowledgement(key, author, now),
            _ => teams.admit(key, author, &command.key(author), now),
        };
        if !self.may_give(key, author, audience) || !is_admitted() {
            return;
        }
        match command {
            UnderstoodCommand::BuiltIn(word, argument) => {
                let recalled = self.read_travels(word).into_actor(self).map(move |travels, connection, ctx| {
                    if !connection.recall(travels) {
                        return connection.say_failed(ctx);
                    }
                    connection.with_texts(ctx, move |connection, texts, ctx| {
                        connection.carry_out(author, word, &argument, texts, ctx);
                    });
                });
                ctx.spawn(recalled);
            }
            UnderstoodCommand::Devices(command, argument) => {
                self.with_texts(ctx, move |connection, texts, ctx| match DeviceOrder::read(&argument) {
                    Some(order) => connection.order_devices(command, order, texts, ctx),
                    None => {
                        let usage = texts.say("team.device.usage", &[("word", &command.word)]);
                        connection.say(&usage, LineUse::Answer);
                    }
                });
            }
        }
    }

    /// True if the owner lets this player give commands that are for these.
    fn may_give(&self, key: &TeamKey, author: u64, audience: Audience) -> bool {
        let users = self.commands.users.union(&self.context.teams.players(key)).copied().collect();
        let roles = TeamRoles { owner: self.commands.player, users };
        // The team as the game shows it decides: a player who was kicked is in it no longer.
        let is_member = author == roles.owner || self.feed.live.state().members.get(&author).is_some();
        roles.may(&self.commands.settings, author, audience, is_member)
    }

    fn carry_out(
        &mut self,
        author: u64,
        word: CommandWord,
        argument: &str,
        texts: &BotMessages,
        ctx: &mut Context<Self>,
    ) {
        match self.reply(author, word, argument, texts) {
            TeamReply::Say(lines) => {
                lines.iter().take(LINES).for_each(|line| self.say(line, LineUse::Answer));
            }
            TeamReply::Promote(player) => self.promote(author, player, texts, ctx),
            TeamReply::StartTimer { lasts, text } => self.start_timer(lasts, text, ctx),
            TeamReply::EndTimer(number) => self.end_timer(number, ctx),
            TeamReply::AddNote { category, label, x, y } => self.add_note(category, label, (x, y), ctx),
            TeamReply::Mute(lasts) => {
                let until = self.context.clock.now() + lasts;
                self.mute(author, Some(until), texts.say("team.mute", &[("time", &durations::shown(lasts))]), ctx);
            }
            TeamReply::Unmute => self.mute(author, None, texts.say("team.unmute", &[]), ctx),
            TeamReply::Acknowledge(incidents) => self.acknowledge(author, incidents, ctx),
        }
    }

    fn reply(&self, author: u64, word: CommandWord, argument: &str, texts: &BotMessages) -> TeamReply {
        let now = self.context.clock.moment();
        let live = &self.feed.live;
        let view = TeamView {
            state: live.state(),
            now: now.stamp,
            asker: author,
            info_at: live.info_at(),
            clock: live.day().clock(now),
            speeds: live.day().speeds(),
            memory: &self.commands.memory,
            vocabulary: &self.commands.vocabulary,
            texts,
        };
        answer(word, argument, &view)
    }

    /// Leadership is passed on by the leader alone: over the leader's link, if the leader uses this service and allows
    /// it, or asks.
    fn promote(&mut self, author: u64, player: u64, texts: &BotMessages, ctx: &mut Context<Self>) {
        let Some(key) = self.commands.key.clone() else { return };
        let now = self.context.clock.moment();
        if self.commands.is_promoting(now) {
            return self.say(&texts.say("team.leader.soon", &[]), LineUse::Answer);
        }
        let links = self.context.teams.links_of(&key, key.leader);
        let willing = links.iter().find(|link| link.passes_leadership || author == key.leader);
        let Some(willing) = willing else {
            let text = if links.is_empty() { "team.leader.noUser" } else { "team.leader.noConsent" };
            let name = self.member_name(key.leader);
            return self.say(&texts.say(text, &[("name", &name)]), LineUse::Answer);
        };
        let link = willing.link.clone();
        self.commands.promote(player, now);
        self.plan_commands(ctx);
        let asked = crate::relay::game::commands::promote(link, player);
        // The answer is what the team then says; without it, time ends the wait.
        ctx.spawn(asked.into_actor(self));
    }

    pub(super) fn member_name(&self, player: u64) -> String {
        let member = self.feed.live.state().members.get(&player);
        member.map_or_else(|| "?".to_owned(), |member| member.name.clone())
    }

    fn add_note(&mut self, category: &str, label: String, (x, y): (f64, f64), ctx: &mut Context<Self>) {
        let now = self.context.clock.now();
        let note = StoredNote {
            id: self.context.random.id(now),
            author_id: None,
            source: "user".to_owned(),
            x,
            y,
            category: category.to_owned(),
            label: Some(label),
            created_at: now,
            expires_at: None,
        };
        let (pool, server) = (self.context.pool.clone(), self.server.clone());
        let added = async move {
            let add = move |db: &mut Db| -> Result<Option<usize>, DbError> {
                let known = map_notes::count(db, &server)?;
                if known >= MAP_NOTES_PER_SERVER {
                    return Ok(None);
                }
                map_notes::insert(db, &server, &note)?;
                Ok(Some(known + 1))
            };
            pool.write(add).await
        };
        ctx.spawn(added.into_actor(self).map(move |added, connection, ctx| {
            if matches!(added, Ok(Some(_))) {
                connection.load_notes(ctx);
            }
            connection.with_texts(ctx, move |connection, texts, _| {
                let grid = connection.feed.live.grid_of(x, y);
                let text = match added {
                    Ok(Some(number)) => {
                        texts.say("team.note.added", &[("number", &number.to_string()), ("grid", &grid)])
                    }
                    Ok(None) => texts.say("team.note.full", &[]),
                    Err(_) => texts.say("team.failed", &[]),
                };
                connection.say(&text, LineUse::Answer);
            });
        }));
    }

    /// Announcements are left out until then, also those of the team's other links.
    fn mute(&mut self, author: u64, until: Option<Timestamp>, said: String, ctx: &mut Context<Self>) {
        if let Some(key) = &self.commands.key {
            self.context.teams.pass_mute_on(key, &self.server, author, until);
        }
        let stored = self.keep_mute(until);
        ctx.spawn(stored.into_actor(self).map(move |stored, connection, ctx| {
            connection.mute_ended(ctx);
            match stored {
                Ok(()) => connection.say(&said, LineUse::Answer),
                Err(_) => connection.say_failed(ctx),
            }
        }));
    }

    /// A player has muted the team at another link, which answers. It holds here if the owner lets the player mute.
    fn muted_elsewhere(&mut self, author: u64, until: Option<Timestamp>, ctx: &mut Context<Self>) {
        let word = if until.is_some() { CommandWord::Mute } else { CommandWord::Unmute };
        let settings = &self.commands.settings;
        let may_give = |key: &TeamKey| self.may_give(key, author, settings.audience(word));
        if !settings.commands.contains(&word) || !self.commands.key.as_ref().is_some_and(may_give) {
            return;
        }
        let stored = self.keep_mute(until);
        ctx.spawn(stored.into_actor(self).map(|stored, connection, ctx| {
            connection.mute_ended(ctx);
            if let Err(error) = stored {
                log::warn!(server = connection.server.as_str(); "a mute was not stored: {error}");
            }
        }));
    }

    /// Leaves announcements out from now on, and stores it.
    fn keep_mute(&mut self, until: Option<Timestamp>) -> impl Future<Output = Result<(), DbError>> + use<> {
        self.commands.begin_mute(until);
        let (pool, server) = (self.context.pool.clone(), self.server.clone());
        let mute = move |db: &mut Db| {
            let settings = team_chat_settings::get(db, &server)?;
            team_chat_settings::put(db, &server, &TeamChatSettings { muted_until: until, ..settings })
        };
        async move { pool.write(mute).await }
    }

    /// A mute is stored, or was not. A read that began before may be older than it.
    fn mute_ended(&mut self, ctx: &mut Context<Self>) {
        self.commands.end_mute();
        self.load_commands(ctx);
    }

    /// Says that a command did not work.
    pub(super) fn say_failed(&self, ctx: &mut Context<Self>) {
        self.with_texts(ctx, |connection, texts, _| connection.say(&texts.say("team.failed", &[]), LineUse::Answer));
    }
}
