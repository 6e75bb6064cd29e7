//! Events that are announced in the team's chat, if the owner switched that on, and those that answers remember.

use actix::prelude::*;

use super::super::GameConnection;
use crate::{
    domain::{
        bot::bot_messages::BotMessages,
        change::{Change, Section},
        channels::{
            spoken_alarm::{SpokenFault, SpokenLine, SpokenState, is_unsaid},
            user_channel::ChannelFault,
        },
        incident::Raid,
        team_command::speaker::LineUse,
        world_event::{EventKind, WorldEvent},
    },
    relay::{
        game::{
            commands::{ChannelLine, SayForChannel},
            team_speech,
        },
        shared::{teams::line_ends::AlarmLine, write_behind::Record},
    },
};

impl Handler<SayForChannel> for GameConnection {
    type Result = ();

    fn handle(&mut self, SayForChannel { line, answer }: SayForChannel, ctx: &mut Self::Context) {
        let fault = match &line {
            _ if !self.is_ready() => Some(ChannelFault::NoLink),
            ChannelLine::Event(_) if self.is_muted() => Some(ChannelFault::Muted),
            _ => None,
        };
        if let Some(fault) = fault {
            // The channel may have stopped waiting.
            let _ = answer.send(Err(fault));
            return;
        }
        let noted = AlarmLine::of_channel(answer, &self.context.clock);
        match line {
            ChannelLine::Event(text) => self.say_noted(text.trim(), LineUse::Announcement, noted),
            ChannelLine::Alarm { name, grid, drill } => self.with_texts(ctx, move |connection, texts, _| {
                connection.say_noted(&alarm_text(texts, &name, &grid, drill), LineUse::Alarm, noted);
            }),
        }
    }
}

/// The words of an alarm.
fn alarm_text(texts: &BotMessages, name: &str, grid: &str, is_drill: bool) -> String {
    let text = if is_drill { "team.announce.drill" } else { "team.announce.raid" };
    let place = if grid.is_empty() { String::new() } else { format!(" at {grid}") };
    texts.say(text, &[("alarm", name), ("place", &place)])
}

impl GameConnection {
    /// Takes note of changes of the state, before they are published.
    pub(in super::super) fn commands_see(&mut self, changes: &[Change], ctx: &mut Context<Self>) {
        let has = |section| changes.iter().any(|change: &Change| change.section == section);
        if has(Section::Devices) {
            let devices = self.feed.live.state().devices.iter();
            self.commands.memory.see(devices.map(|(id, device)| (id, &**device)));
        }
        if has(Section::Team) || has(Section::Members) {
            self.see_team();
        }
        if has(Section::Team) {
            self.join_team(ctx.address());
            self.leader_seen(ctx);
        }
    }

    /// Takes note of an event, and announces it if it is wanted.
    pub(in super::super) fn commands_note(&mut self, event: &WorldEvent, ctx: &mut Context<Self>) {
        self.commands.memory.note(event);
        if event.kind == EventKind::Wipe {
            self.timers_wiped(event.ts, ctx);
        }
        let wanted = &self.commands.settings.announcements;
        let is_wanted = match (event.kind, event.action) {
            (EventKind::Login, "login") => wanted.login,
            (EventKind::Death, _) => wanted.death,
            (EventKind::Device, "upkeep_low" | "decaying") => wanted.upkeep,
            (EventKind::Device, "turned_on" | "turned_off") => wanted.device && !self.was_turned(event),
            _ => false,
        };
        if is_wanted {
            self.announce(event.title.trim());
        }
    }

    /// The switch was turned from the chat, where its answer is said.
    fn was_turned(&self, event: &WorldEvent) -> bool {
        let device = event.data.get("deviceId").and_then(|id| id.as_str());
        device.is_some_and(|id| self.commands.switch_backs.was_turned(id))
    }

    /// Says something that no player has asked for, unless they want silence or none is there to read it.
    fn announce(&self, text: &str) {
        let is_read = self.feed.live.state().members.iter().any(|(_, member)| member.online);
        if !self.is_muted() && is_read {
            self.say(text, LineUse::Announcement);
        }
    }

    /// True while players want no announcements.
    fn is_muted(&self) -> bool {
        self.commands.settings.muted_until.is_some_and(|until| self.context.clock.now() < until)
    }

    /// Says this in the team's chat when its turn comes, and notes how far it came.
    fn say_noted(&self, text: &str, purpose: LineUse, noted: AlarmLine) {
        match &self.commands.key {
            Some(key) => team_speech::say_noted(&self.context, key, &self.server, (text, purpose), noted),
            None => noted.end(SpokenState::Failed, Some(SpokenFault::NoTeam)),
        }
    }

    /// Alarms whose lines an earlier process, or another node, has not said: they are said once the team is known.
    pub(in super::super) fn announce_again(&mut self, unsaid: Vec<Raid>, ctx: &mut Context<Self>) {
        self.commands.leave_unsaid(unsaid, self.context.clock.now());
        self.announce_unsaid(ctx);
    }

    pub(super) fn announce_unsaid(&mut self, ctx: &mut Context<Self>) {
        if !self.is_ready() || self.commands.is_reading() {
            return;
        }
        let now = self.context.clock.now();
        for raid in self.commands.take_unsaid() {
            // One that has become a part of another one meanwhile is no alarm of its own.
            if is_unsaid(raid.ts, None, now) && self.alarms.whole_of(&raid.incident).is_none() {
                self.announce_alarm(&raid, ctx);
            }
        }
    }

    /// An alarm goes off: no player silences it. After a start it waits for the settings and the team, where they are not known
    /// yet.
    pub(in super::super) fn announce_alarm(&mut self, raid: &Raid, ctx: &mut Context<Self>) {
        let (is_ready, now) = (self.is_ready(), self.context.clock.now());
        let waits = self.commands.wait_for_team(raid, is_ready, now);
        if !self.commands.settings.announcements.raid {
            return;
        }
        let context = &self.context;
        if waits {
            // The owner sees that it does.
            let line = SpokenLine::queued(now);
            context.write_behind.store(Record::Spoken(self.server.clone(), raid.incident.as_str().into(), line));
            return;
        }
        let alarm = AlarmLine::queued(&self.server, &raid.incident, &context.clock, &context.write_behind);
        let (name, grid) = (raid.alarm_name.clone(), raid.place.grid.clone());
        let drill = raid.drill;
        self.with_texts(ctx, move |connection, texts, _| {
            connection.say_noted(&alarm_text(texts, &name, &grid, drill), LineUse::Alarm, alarm);
        });
    }
}
