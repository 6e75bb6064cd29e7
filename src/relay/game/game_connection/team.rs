//! Commands in the team's chat at a game connection: the settings and words as they are stored, the place of the link
//! among those of its team, and what was seen before.

mod acknowledging;
mod announcing;
mod answering;
mod devices;
mod due;

use std::sync::Arc;

use actix::prelude::*;
use chrono::TimeDelta;

use super::GameConnection;
use crate::{
    db::{
        access, device_groups,
        device_groups::DeviceGroup,
        engine::{error::DbError, pool::Db, start::read_until_answered},
        smart_devices::{self, SmartDevice},
        switch_backs::{self, SwitchBack},
        team_chat_settings, team_timers, timeline,
    },
    domain::{
        chat_answers::BotMessages,
        ids::{ServerId, UserId},
        team_command::{
            device_words::OwnWords,
            election::server_of_link,
            settings::TeamChatSettings,
            speaker::LineUse,
            turn_back::PendingTurnBack,
            vocabulary::{DeviceCommand, Vocabulary, folded},
        },
        team_timer::TeamTimer,
        timeline::{TimelineEntry, TimelinePage},
        world_event::EventKind,
    },
    relay::{
        game::team_speech::{self, say_later},
        shared::teams::{TeamKey, TeamLink},
        state::{live_state::GameUpdate, team_chat::ReceivedLine},
    },
};

/// A line that waited longer is no command.
const FRESH: TimeDelta = TimeDelta::seconds(10);
/// A line of ours whose answer was lost may be in a history until then: it was said within two minutes, by the game's
/// clock.
const ECHO_WITHIN: TimeDelta = TimeDelta::minutes(3);
/// Lines that wait.
const UNREAD: usize = 64;
/// Entries of the timeline in which the last ones of ship and helicopter are.
const RECALLED: usize = 50;

/// Everything that is stored for the commands of a server.
struct StoredCommands {
    settings: TeamChatSettings,
    owner: Option<UserId>,
    accounts: Vec<String>,
    devices: Vec<SmartDevice>,
    groups: Vec<DeviceGroup>,
    timers: Vec<(String, TeamTimer)>,
    switch_backs: Vec<SwitchBack>,
    /// The travels of ship and helicopter, for the first read.
    travels: Vec<TimelineEntry>,
}

fn read(db: &mut Db, server: &ServerId, is_first: bool) -> Result<StoredCommands, DbError> {
    Ok(StoredCommands {
        settings: team_chat_settings::get(db, server)?,
        owner: access::watchers(db, server)?.into_iter().next(),
        accounts: access::watcher_accounts(db, server)?,
        devices: smart_devices::list(db, server)?,
        groups: device_groups::list(db, server)?,
        timers: team_timers::list(db, server)?,
        switch_backs: switch_backs::list(db, server)?,
        travels: if is_first { travels(db, server)? } else { Vec::new() },
    })
}

/// The last entries of ship and helicopter, and of wipes, after which those before are of another world.
fn travels(db: &mut Db, server: &ServerId) -> Result<Vec<TimelineEntry>, DbError> {
    let kinds = [EventKind::Cargo, EventKind::Heli, EventKind::Wipe].map(|kind| kind.word().to_owned());
    let page = TimelinePage { since: None, before: None, kinds: Some(kinds.into()), limit: RECALLED };
    match timeline::list(db, server, &page) {
        // The server is being deleted.
        Err(DbError::NotFound) => Ok(Vec::new()),
        entries => entries,
    }
}

/// The commands of devices and groups.
fn device_commands(devices: &[SmartDevice], groups: &[DeviceGroup]) -> Vec<DeviceCommand> {
    let own = devices.iter().filter_map(|device| {
        let word = folded(device.custom_command.as_ref()?);
        Some(DeviceCommand { word, group: None, devices: vec![device.device_id.as_str().into()] })
    });
    let grouped = groups.iter().filter_map(|group| {
        let word = folded(group.command.as_ref()?);
        let is_known = |id: &&String| devices.iter().any(|device| device.device_id == **id);
        let devices: Vec<Arc<str>> = group.devices.iter().filter(is_known).map(|id| id.as_str().into()).collect();
        (!devices.is_empty()).then(|| DeviceCommand { word, group: Some(group.name.clone()), devices })
    });
    own.chain(grouped).collect()
}

impl GameConnection {
    /// Reads what is stored for the commands.
    pub(super) fn load_commands(&mut self, ctx: &mut Context<Self>) {
        let (context, server) = (self.context.clone(), self.server.clone());
        let is_first = !self.commands.is_loaded;
        let stored = async move {
            let read = move |db: &mut Db| read(db, &server, is_first);
            read_until_answered(&context.pool, &context.random, "chat settings", read).await
        };
        let read = ctx.spawn(stored.into_actor(self).map(|stored, connection, ctx| connection.loaded(stored, ctx)));
        self.commands.is_reading = true;
        // An answer to an earlier question may come later.
        if let Some(before) = self.commands.read.replace(read) {
            ctx.cancel_future(before);
        }
    }

    fn loaded(&mut self, stored: StoredCommands, ctx: &mut Context<Self>) {
        let StoredCommands { settings, owner, accounts, devices, groups, timers, switch_backs, travels } = stored;
        let commands = &mut self.commands;
        let has_changed = commands.is_loaded && commands.settings.prefix != settings.prefix;
        commands.vocabulary = Vocabulary::new(&settings, device_commands(&devices, &groups)).into();
        commands.settings = settings;
        commands.owner = owner;
        commands.users = accounts.iter().filter_map(|account| account.parse().ok()).collect();
        commands.memory.retain(|id| devices.iter().any(|device| device.device_id == **id));
        let words = |device: SmartDevice| {
            let SmartDevice { device_id, custom_command: command, on_message: on, off_message: off, .. } = device;
            (Arc::from(device_id), OwnWords { command, on, off })
        };
        commands.words = devices.into_iter().map(words).collect();
        // Later changes are made here and then stored: a later read may be older.
        if !std::mem::replace(&mut commands.is_loaded, true) {
            commands.memory.recall(&travels, self.feed.live.state().server.wiped_at);
            let by_id =
                |back: SwitchBack| (Arc::from(back.device_id.as_str()), PendingTurnBack::new(back.value, back.due_at));
            commands.switch_backs = switch_backs.into_iter().map(by_id).collect();
            let timers = timers.into_iter().map(|(id, timer)| (id.into(), timer)).collect();
            self.update(GameUpdate::Timers(timers), ctx);
            self.show_turn_backs(ctx);
        }
        if has_changed {
            self.other_bot_gone(ctx);
        }
        // Last: an update hears the lines that wait, and the team does not know the new commands before.
        self.commands.is_reading = false;
        self.commands_ready(ctx);
    }

    /// The link is up, and everything was asked once: the team is known, if there is one.
    pub(super) fn commands_resynced(&mut self, ctx: &mut Context<Self>) {
        self.commands.is_resynced = true;
        self.commands_ready(ctx);
    }

    /// The link is gone.
    pub(super) fn commands_link_down(&mut self) {
        if let Some(begun) = self.context.teams.leave(&self.server, self.context.clock.moment()) {
            team_speech::begin(&self.context, &begun);
        }
        self.commands.is_resynced = false;
        self.commands.connected_since = None;
        // The next link has them in its history.
        self.commands.echoes.clear();
    }

    /// True if the link, its team and the commands are known.
    fn is_ready(&self) -> bool {
        self.held.link.is_some() && self.commands.is_resynced && self.commands.is_loaded
    }

    /// Something that commands wait for has come.
    fn commands_ready(&mut self, ctx: &mut Context<Self>) {
        self.join_team(ctx.address());
        self.plan_commands(ctx);
        self.hear_unread();
    }

    /// Takes the link's place among those of its team, which may be another than before.
    pub(super) fn join_team(&mut self, own: Addr<Self>) {
        let (Some(link), Some(game_server), true) = (&self.held.link, &self.held.game_server, self.is_ready()) else {
            return;
        };
        let now = self.context.clock.moment();
        let leader = self.feed.live.state().team.leader_id.as_deref().and_then(|id| id.parse().ok());
        let game_server = server_of_link(game_server, link.peer());
        let key = TeamKey { game_server, leader: leader.unwrap_or(link.player()) };
        let link = TeamLink {
            server: self.server.clone(),
            link: link.clone(),
            connected_since: self.commands.connected_since.unwrap_or(now),
            vocabulary: self.commands.vocabulary.clone(),
            passes_leadership: self.commands.settings.pass_leadership,
            news: own.recipient(),
        };
        self.commands.player = link.link.player();
        for begun in self.context.teams.join(&key, link, now) {
            team_speech::begin(&self.context, &begun);
        }
        let left = self.commands.key.replace(key).filter(|left| self.commands.key.as_ref() != Some(left));
        self.hear_echoes(left.as_ref());
    }

    /// Takes lines of the team's chat: commands among those that were just said, and echoes of our own among all.
    pub(super) fn hear_commands(&mut self, lines: &[ReceivedLine]) {
        let now = self.context.clock.moment();
        // The first history of a connection is no news, and may have a line that another connection has lost.
        let may_be_echo =
            |line: &&ReceivedLine| line.is_news || (!line.is_live && now.stamp - line.stored.line.ts < ECHO_WITHIN);
        let echo = |line: &ReceivedLine| {
            let content = &line.stored.line;
            (line.author, content.text.clone(), (!line.is_news).then_some(content.ts))
        };
        self.commands.echoes.extend(lines.iter().filter(may_be_echo).map(echo));
        let surplus = self.commands.echoes.len().saturating_sub(UNREAD);
        self.commands.echoes.drain(..surplus);
        self.hear_echoes(None);
        let live = lines.iter().filter(|line| line.is_live).map(|line| (now, line.clone()));
        self.commands.unread.retain(|(since, _)| now - *since < FRESH);
        self.commands.unread.extend(live);
        self.commands.unread.truncate(UNREAD);
        self.hear_unread();
    }

    /// Says to the team which lines have come, once the link is in it: they may be ours. Also to the team that the link has
    /// left just now: if only its leader has changed, a line of ours waits there.
    fn hear_echoes(&mut self, left: Option<&TeamKey>) {
        let Some(key) = self.commands.key.as_ref().filter(|_| self.is_ready()) else { return };
        let now = self.context.clock.moment();
        for (author, text, old) in std::mem::take(&mut self.commands.echoes) {
            for key in [Some(key), left].into_iter().flatten() {
                self.context.teams.echo(key, author, &text, old, now);
            }
        }
    }

    /// Reads the lines that were said, once it is known what they mean. Those that waited for too long are left alone.
    fn hear_unread(&mut self) {
        let Some(key) = self.commands.key.as_ref().filter(|_| self.is_ready() && !self.commands.is_reading) else {
            return;
        };
        let now = self.context.clock.moment();
        for (since, ReceivedLine { stored, author, .. }) in std::mem::take(&mut self.commands.unread) {
            if now - since < FRESH {
                self.context.teams.hear(key, &stored.id, author, &stored.line.text, now);
            }
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
