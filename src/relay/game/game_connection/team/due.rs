//! Commands with an end in time: a look at those that are due, leadership that is to change, and notices to the owner.

use actix::prelude::*;

use super::super::GameConnection;
use crate::{
    domain::team_command::{desk::ChatNotice, speaker::LineUse},
    relay::state::game_update::OwnUpdate,
};

/// Time of a notice of a loop, which is that of the silence.
const NOTICED_FOR: std::time::Duration = std::time::Duration::from_secs(60);

impl GameConnection {
    /// Plans a look at the commands for when something is due.
    pub(super) fn plan_commands(&mut self, ctx: &mut Context<Self>) {
        if !self.is_ready() {
            return;
        }
        let (now, knows_team) = (self.context.clock.moment(), self.knows_team());
        let timers = self.feed.live.state().timers.iter().filter(|_| knows_team).map(|(_, timer)| timer.ends_at);
        let Some(due) = self.commands.plan_look(timers, now) else { return };
        let clock = self.context.clock.clone();
        let reached = async move { clock.reach(due).await };
        let look = ctx.spawn(reached.into_actor(self).map(|(), connection, ctx| {
            connection.commands.reach_plan();
            connection.commands_due(ctx);
        }));
        self.commands.planned_look.replace(look, ctx);
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

    /// Shows what the owner should know: another bot for as long as the prefix is the same, a loop until the silence ends.
    pub(super) fn noticed(&mut self, notice: ChatNotice, ctx: &mut Context<Self>) {
        match notice {
            ChatNotice::OtherBot => self.commands.note_other_bot(),
            ChatNotice::Loop => {
                let end = ctx.run_later(NOTICED_FOR, |connection, ctx| {
                    connection.commands.end_loop();
                    connection.show_notice(ctx);
                });
                self.commands.note_loop();
                self.commands.loop_end.replace(end, ctx);
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
