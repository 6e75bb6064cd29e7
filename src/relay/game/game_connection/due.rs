//! The timers of a game connection: it is woken when something is due, and otherwise only by what it hears.

use actix::prelude::*;

use super::GameConnection;

impl GameConnection {
    /// Plans a tick for when something comes due. One that is planned for before stays and looks again: what comes due
    /// moves away with most answers, and the timer does not have to.
    pub(super) fn plan_tick(&mut self, ctx: &mut Context<Self>) {
        let Some(due) = self.live.borrow().next_due(self.context.clock.moment()) else { return };
        if self.planned.is_some_and(|(_, planned)| planned <= due) {
            return;
        }
        let clock = self.context.clock.clone();
        let reached = async move { clock.reach(due).await };
        let tick = ctx.spawn(reached.into_actor(self).map(|(), connection, ctx| {
            connection.planned = None;
            let outcome = connection.live.borrow_mut().tick(connection.context.clock.moment());
            connection.publish(outcome, ctx);
        }));
        if let Some((before, _)) = self.planned.replace((tick, due)) {
            ctx.cancel_future(before);
        }
    }

    /// Reports incidents when something is due.
    pub(super) fn await_alarms(&mut self, ctx: &mut Context<Self>) {
        ctx.spawn(self.alarms.clone().due().into_actor(self).map(|(), connection, ctx| {
            if let Some(updates) = connection.alarms.tick() {
                ctx.spawn(updates.into_actor(connection));
            }
            connection.await_alarms(ctx);
        }));
    }
}
