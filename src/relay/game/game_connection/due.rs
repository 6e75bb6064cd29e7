//! The timers of a game connection: it is woken when something is due, and otherwise only by what it hears.

use actix::prelude::*;

use super::GameConnection;

impl GameConnection {
    /// Plans a tick for when something comes due.
    pub(super) fn plan_tick(&mut self, ctx: &mut Context<Self>) {
        let Some(due) = self.feed.plan_tick(self.context.clock.moment()) else { return };
        let clock = self.context.clock.clone();
        let reached = async move { clock.reach(due).await };
        let tick = ctx.spawn(reached.into_actor(self).map(|(), connection, ctx| {
            let outcome = connection.feed.tick(connection.context.clock.moment());
            connection.publish(outcome, ctx);
        }));
        self.feed.planned_tick.replace(tick, ctx);
    }
}
