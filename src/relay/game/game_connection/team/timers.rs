//! Timers that players set in their team's chat. All connections of a team have the same ones.

use std::sync::Arc;

use actix::prelude::*;
use chrono::TimeDelta;

use super::super::GameConnection;
use crate::{
    db::{
        engine::pool::Db,
        team_timers::{self, StoredTimer},
    },
    domain::{
        bot::bot_messages::BotMessages,
        team_command::{durations, reply, speaker::LineUse},
        team_timer::{TeamTimer, TimerEnd, TimerTeam},
        time::Timestamp,
    },
    relay::{game::team_speech, shared::teams::line_ends::EndedTimers, state::game_update::OwnUpdate},
};

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
    /// The stored timers are read, once.
    pub(super) fn load_timers(&mut self, stored: Vec<StoredTimer>, ctx: &mut Context<Self>) {
        self.commands.team = stored.iter().find_map(|timer| timer.team.clone());
        self.context.team_timers.open(&self.server, stored, ctx.address().recipient());
        self.show_timers(ctx);
    }

    /// Takes note of the team as the game shows it: one who has left it has none of its timers.
    pub(super) fn see_team(&mut self) {
        if !self.is_ready() {
            return;
        }
        let Some(player) = self.held.own_link().map(|link| link.player()) else { return };
        let state = self.feed.live.state();
        let leader = state.team.leader_id.as_deref().and_then(|id| id.parse().ok());
        let team = TimerTeam::new(leader, state.members.iter().map(|(member, _)| *member));
        let (timers, write_behind) = (&self.context.team_timers, &self.context.write_behind);
        if team.is_unknown() || !timers.see(&self.server, player, &team) {
            return;
        }
        let before = self.commands.team.replace(team.clone());
        if before.is_some_and(|before| before.is_left(&team, player)) {
            timers.leave(&self.server, write_behind);
        } else {
            timers.set_team(&self.server, &team, write_behind);
        }
        // This one's timers are others now, perhaps; and mates share them once each sees the other.
        if let Some(key) = &self.commands.key {
            self.context.teams.pass_timers_on(key);
        }
    }

    /// True if a link reads that has said who is in the team. Until then it may be another than the last known one: its
    /// timers are neither said nor shared.
    pub(in super::super) fn knows_team(&self) -> bool {
        self.is_ready() && self.held.reading.is_some() && self.feed.live.knows_team()
    }

    /// The team has timers that are not known here, or fewer, or it is known only now.
    pub(in super::super) fn timers_changed(&mut self, ctx: &mut Context<Self>) {
        if let Some(key) = self.commands.key.as_ref().filter(|_| self.knows_team()) {
            let linked = self.context.teams.mates(key, &self.server);
            self.context.team_timers.share(&self.server, &linked, &self.context.write_behind);
        }
        self.show_timers(ctx);
        self.plan_commands(ctx);
    }

    fn show_timers(&mut self, ctx: &mut Context<Self>) {
        let timers = self.context.team_timers.of(&self.server);
        self.update(OwnUpdate::Timers(timers), ctx);
    }

    pub(super) fn start_timer(&mut self, lasts: TimeDelta, text: String, ctx: &mut Context<Self>) {
        // The text is for this team alone.
        let Some(key) = self.commands.key.clone() else { return };
        let (now, timers) = (self.context.clock.now(), &self.context.team_timers);
        let id: Arc<str> = self.context.random.id::<String>(now).into();
        let timer = TeamTimer { number: 0, text, ends_at: now + lasts };
        let set = StoredTimer { id: id.clone(), timer, created_at: now, team: self.commands.team.clone() };
        let set = timers.set(&self.server, set);
        self.show_timers(ctx);
        let (pool, server) = (self.context.pool.clone(), self.server.clone());
        // A mate's connection may have stored it meanwhile, under another number.
        let added = async move { pool.write(move |db: &mut Db| team_timers::add(db, &server, &set)).await };
        ctx.spawn(added.into_actor(self).map(move |added, connection, ctx| {
            let (timers, write_behind) = (&connection.context.team_timers, &connection.context.write_behind);
            let Some(timer) = timers.stored(&connection.server, &id, write_behind) else { return };
            if added.is_err() {
                // Perhaps it is stored all the same: the answer alone may be lost.
                connection.cancel_timer(&id, ctx);
                return connection.say_failed(ctx);
            }
            connection.plan_commands(ctx);
            // The team has it still, perhaps with another leader.
            let key = connection.commands.key.clone().unwrap_or(key);
            connection.context.teams.pass_timers_on(&key);
            connection.with_texts(ctx, move |connection, texts, _| {
                let (number, left) = (timer.number.to_string(), durations::shown(lasts));
                let places = [("number", number.as_str()), ("text", timer.text.as_str()), ("left", left.as_str())];
                let answer = texts.say("team.timer", &places);
                team_speech::say_later(&connection.context, &key, &connection.server, &answer, LineUse::Answer);
            });
        }));
    }

    pub(super) fn end_timer(&mut self, number: u32, ctx: &mut Context<Self>) {
        let timers = self.context.team_timers.of(&self.server);
        let Some((id, _)) = timers.into_iter().find(|(_, timer)| timer.number == number) else { return };
        self.cancel_timer(&id, ctx);
        self.with_texts(ctx, move |connection, texts, _| {
            connection.say(&texts.say("team.timer.off", &[("number", &number.to_string())]), LineUse::Answer);
        });
    }

    pub(super) fn timers_due(&mut self, ctx: &mut Context<Self>) {
        if !self.knows_team() {
            return;
        }
        let now: Timestamp = self.context.clock.now();
        let has_mates = self.commands.team.as_ref().is_some_and(|team| !team.is_one());
        let due = self.context.team_timers.take_due(&self.server, has_mates, now);
        if due.is_empty() {
            return;
        }
        self.show_timers(ctx);
        self.with_texts(ctx, move |connection, texts, _| {
            let (ends, due): (Vec<_>, Vec<_>) = due.into_iter().unzip();
            let said: Vec<String> = due.iter().filter_map(|timer| ended(texts, timer, now)).collect();
            let (server, timers) = (connection.server.as_str(), due.len() - said.len());
            if timers > 0 {
                log::warn!(server, timers; "the ends of timers were not said in the team's chat: they are too old");
            }
            let Some(key) = &connection.commands.key else { return };
            let ended = Arc::new(EndedTimers::new(ends, &connection.context.write_behind));
            for line in reply::lines(said) {
                team_speech::say_ended(&connection.context, key, &connection.server, &line, &ended);
            }
        });
    }

    /// The world is another since then: the database drops the timers with its notes.
    pub(super) fn timers_wiped(&mut self, at: Timestamp, ctx: &mut Context<Self>) {
        self.context.team_timers.wipe(&self.server, at, &self.context.write_behind);
        self.show_timers(ctx);
    }

    /// Its rows are deleted once the database takes that: otherwise the timer would end once more after a start.
    fn cancel_timer(&mut self, id: &Arc<str>, ctx: &mut Context<Self>) {
        self.context.team_timers.cancel(&self.server, id, &self.context.write_behind);
        self.show_timers(ctx);
    }
}
