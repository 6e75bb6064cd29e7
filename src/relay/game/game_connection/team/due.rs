//! Commands with an end in time: timers, switches that turn back, leadership that is to change.

use std::sync::Arc;

use actix::prelude::*;
use chrono::TimeDelta;

use super::super::GameConnection;
use crate::{
    db::{engine::pool::Db, team_timers},
    domain::{
        chat_answers::BotMessages,
        team_command::{desk::ChatNotice, durations, reply, speaker::LineUse},
        team_timer::{TeamTimer, TimerEnd, free_number},
        time::Timestamp,
    },
    relay::{
        game::team_speech,
        shared::{teams::line_ends::EndedTimers, write_behind::Record},
        state::game_update::OwnUpdate,
    },
};

/// Time of a notice of a loop, which is that of the silence.
const NOTICED_FOR: std::time::Duration = std::time::Duration::from_secs(60);

/// The words for the end of a timer; `None`: it is not said any longer.
fn ended(texts: &BotMessages, timer: &TeamTimer, now: Timestamp) -> Option<String> {
    let text = timer.text.as_str();
    match timer.end(now) {
        TimerEnd::OnTime => Some(texts.say("team.timer.ended", &[("text", text)])),
        TimerEnd::Late(late) => {
            Some(texts.say("team.timer.late", &[("late", &durations::shown(late)), ("text", text)]))
        }
        TimerEnd::TooLate => None,
    }
}

impl GameConnection {
    /// Plans a look at the commands for when something is due.
    pub(super) fn plan_commands(&mut self, ctx: &mut Context<Self>) {
        let now = self.context.clock.moment();
        let timers = self.feed.live.state().timers.iter().map(|(_, timer)| timer.ends_at);
        let due = self.commands.unplanned(timers, now);
        let Some(due) = due.filter(|_| self.is_ready()) else { return };
        let clock = self.context.clock.clone();
        let reached = async move { clock.reach(due).await };
        let look = ctx.spawn(reached.into_actor(self).map(|(), connection, ctx| {
            connection.commands.reach_plan();
            connection.commands_due(ctx);
        }));
        if let Some(before) = self.commands.plan(look, due) {
            ctx.cancel_future(before);
        }
    }

    fn commands_due(&mut self, ctx: &mut Context<Self>) {
        // Commands that are due without a link wait for the next one.
        if !self.is_ready() {
            return;
        }
        self.timers_due(ctx);
        self.turn_back_due(ctx);
        if self.commands.has_failed_to_promote(self.context.clock.moment()) {
            self.with_texts(ctx, |connection, texts, _| {
                connection.say(&texts.say("team.leader.failed", &[]), LineUse::Answer);
            });
        }
        self.plan_commands(ctx);
    }

    /// The team has another leader, or a leader at all.
    pub(super) fn leader_seen(&mut self, ctx: &mut Context<Self>) {
        let leader = self.feed.live.state().team.leader_id.as_deref().and_then(|id| id.parse::<u64>().ok());
        if self.commands.led_by(leader) {
            let name = self.member_name(leader.unwrap_or_default());
            self.with_texts(ctx, move |connection, texts, _| {
                connection.say(&texts.say("team.leader.done", &[("name", &name)]), LineUse::Answer);
            });
        }
    }

    fn timers(&self) -> Vec<(Arc<str>, TeamTimer)> {
        let timers = self.feed.live.state().timers.iter();
        timers.map(|(id, timer)| (id.clone(), TeamTimer::clone(timer))).collect()
    }

    pub(super) fn start_timer(&mut self, lasts: TimeDelta, text: String, ctx: &mut Context<Self>) {
        let now = self.context.clock.now();
        let mut timers = self.timers();
        let number = free_number(timers.iter().map(|(_, timer)| timer.number));
        let (id, timer): (String, _) = (self.context.random.id(now), TeamTimer { number, text, ends_at: now + lasts });
        timers.push((id.as_str().into(), timer.clone()));
        self.update(OwnUpdate::Timers(timers), ctx);
        let (pool, server, stored) = (self.context.pool.clone(), self.server.clone(), (id.clone(), timer.clone()));
        let stored = async move {
            pool.write(move |db: &mut Db| team_timers::insert(db, &server, &stored.0, &stored.1, now)).await
        };
        ctx.spawn(stored.into_actor(self).map(move |stored, connection, ctx| {
            if stored.is_err() {
                // Perhaps it is stored all the same: the answer alone may be lost.
                connection.delete_timer(id.as_str().into(), ctx);
                return connection.say_failed(ctx);
            }
            connection.plan_commands(ctx);
            connection.with_texts(ctx, move |connection, texts, _| {
                let (number, left) = (timer.number.to_string(), durations::shown(lasts));
                let places = [("number", number.as_str()), ("text", timer.text.as_str()), ("left", left.as_str())];
                connection.say(&texts.say("team.timer", &places), LineUse::Answer);
            });
        }));
    }

    pub(super) fn end_timer(&mut self, number: u32, ctx: &mut Context<Self>) {
        let Some((id, _)) = self.timers().into_iter().find(|(_, timer)| timer.number == number) else { return };
        self.delete_timer(id, ctx);
        self.with_texts(ctx, move |connection, texts, _| {
            connection.say(&texts.say("team.timer.off", &[("number", &number.to_string())]), LineUse::Answer);
        });
    }

    fn timers_due(&mut self, ctx: &mut Context<Self>) {
        let now: Timestamp = self.context.clock.now();
        let mut due = self.timers();
        due.retain(|(_, timer)| timer.ends_at <= now);
        due.sort_by_key(|(_, timer)| timer.ends_at);
        if due.is_empty() {
            return;
        }
        self.hide_timers(|id| due.iter().any(|(known, _)| known == id), ctx);
        self.with_texts(ctx, move |connection, texts, _| {
            let (ids, due): (Vec<_>, Vec<_>) = due.into_iter().unzip();
            let said: Vec<String> = due.iter().filter_map(|timer| ended(texts, timer, now)).collect();
            let (server, timers) = (connection.server.as_str(), due.len() - said.len());
            if timers > 0 {
                log::warn!(server, timers; "the ends of timers were not said in the team's chat: they are too old");
            }
            let Some(key) = &connection.commands.key else { return };
            let ended = Arc::new(EndedTimers::new(ids, &connection.context.write_behind));
            for line in reply::lines(said) {
                team_speech::say_ended(&connection.context, key, &connection.server, &line, &ended);
            }
        });
    }

    /// The world is another: the database drops the timers with its notes.
    pub(super) fn timers_wiped(&mut self, ctx: &mut Context<Self>) {
        self.update(OwnUpdate::Timers(Vec::new()), ctx);
    }

    /// Its row is deleted once the database takes it: otherwise the timer would end once more after a start.
    fn delete_timer(&mut self, id: Arc<str>, ctx: &mut Context<Self>) {
        self.hide_timers(|known| *known == id, ctx);
        self.context.write_behind.store(Record::TimerEnded(id));
    }

    /// Takes timers out of the state.
    fn hide_timers(&mut self, is_hidden: impl Fn(&Arc<str>) -> bool, ctx: &mut Context<Self>) {
        let mut timers = self.timers();
        timers.retain(|(id, _)| !is_hidden(id));
        self.update(OwnUpdate::Timers(timers), ctx);
    }

    /// Shows what the owner should know: another bot for as long as the prefix is the same, a loop until the silence ends.
    pub(super) fn noticed(&mut self, notice: ChatNotice, ctx: &mut Context<Self>) {
        match notice {
            ChatNotice::OtherBot => self.commands.note_other_bot(),
            ChatNotice::Loop => {
                let end = ctx.run_later(NOTICED_FOR, |connection, ctx| {
                    connection.commands.end_loop();
                    connection.show_notice(ctx);
                });
                if let Some(before) = self.commands.note_loop(end) {
                    ctx.cancel_future(before);
                }
            }
        }
        self.show_notice(ctx);
    }

    /// The prefix is another, which parts us from the other bot.
    pub(super) fn other_bot_gone(&mut self, ctx: &mut Context<Self>) {
        self.commands.part_from_other_bot();
        self.show_notice(ctx);
    }

    fn show_notice(&mut self, ctx: &mut Context<Self>) {
        self.update(OwnUpdate::ChatNotice(self.commands.notice()), ctx);
    }
}
