//! Alarms at a game connection: see [`alarm_delivery`](crate::relay::alarms::alarm_delivery).

use std::mem::take;

use actix::prelude::*;

use super::{Drill, GameConnection, ShowAcknowledgement, live_feed::LiveFeed};
use crate::{
    db::alarms::incidents::StoredIncident,
    relay::{
        alarms::{
            alarm_delivery::{
                DrillOutcome, FollowedNews, IncidentNews, PushedAlarm, acknowledging::KeptAcknowledgement,
                loading::LoadedAlarms,
            },
            alarm_routes::{AlarmPushed, DeliverPushedAlarm},
            received_at::ReceivedAt,
        },
        game::commands::{AcknowledgementsErased, CommandError, FindRaid, KeepAcknowledgement, Unanswered},
    },
};

impl GameConnection {
    /// Takes up the alarms in the ledger.
    pub(super) fn load_alarms(&mut self, ctx: &mut Context<Self>) {
        ctx.spawn(self.alarms.clone().load().into_actor(self).map(|loaded, connection, ctx| {
            let (LoadedAlarms { news, pushes }, received_at) = (loaded, ReceivedAt::now());
            connection.publish_raids(news, ctx);
            for push in pushes {
                connection.deliver_push(push, received_at, ctx);
            }
        }));
    }

    /// Reports incidents when something is due.
    pub(super) fn await_alarms(&mut self, ctx: &mut Context<Self>) {
        ctx.spawn(self.alarms.clone().due().into_actor(self).map(|(), connection, ctx| {
            let news = connection.alarms.tick();
            connection.publish_raids(news, ctx);
            connection.await_alarms(ctx);
        }));
    }

    /// Publishes an alarm once it is stored.
    pub(super) fn deliver_alarm(
        &mut self,
        stored: impl Future<Output = IncidentNews> + 'static,
        ctx: &mut Context<Self>,
    ) {
        ctx.spawn(stored.into_actor(self).map(|news, connection, ctx| connection.publish_raids(news, ctx)));
    }

    fn deliver_push(&mut self, push: PushedAlarm, received_at: ReceivedAt, ctx: &mut Context<Self>) {
        ctx.spawn(self.alarms.clone().take_up(push, received_at).into_actor(self).map(|taken_up, connection, ctx| {
            let Some(taken_up) = taken_up else { return };
            let named = connection.feed.live.alarms_named(taken_up.title());
            connection.deliver_alarm(connection.alarms.clone().pushed_alarm(taken_up, named), ctx);
        }));
    }

    /// Publishes these, and records who takes them.
    fn publish_raids(&mut self, news: IncidentNews, ctx: &mut Context<Self>) {
        let followed = self.publish_followed(news, ctx);
        ctx.spawn(followed.all.into_actor(self).map(|_, _, _| ()));
    }

    fn publish_followed(&mut self, mut news: IncidentNews, ctx: &mut Context<Self>) -> FollowedNews {
        for raid in news.opened() {
            self.announce_alarm(raid, ctx);
        }
        self.announce_again(take(&mut news.unsaid), ctx);
        let LiveFeed { live, publisher, .. } = &mut self.feed;
        self.alarms.publish(news, live, publisher, self.context.clock.moment())
    }
}

impl Handler<DeliverPushedAlarm> for GameConnection {
    type Result = ();

    fn handle(&mut self, message: DeliverPushedAlarm, ctx: &mut Self::Context) {
        if let Some(AlarmPushed { alarm, received_at, .. }) = message.take() {
            self.deliver_push(alarm, received_at, ctx);
        }
    }
}

impl Handler<Drill> for GameConnection {
    type Result = ResponseActFuture<Self, Option<DrillOutcome>>;

    fn handle(&mut self, _: Drill, _: &mut Self::Context) -> Self::Result {
        Box::pin(self.alarms.clone().drill().into_actor(self).then(|(drill, news), connection, ctx| {
            drill.outcome(connection.publish_followed(news, ctx)).into_actor(connection)
        }))
    }
}

impl Handler<ShowAcknowledgement> for GameConnection {
    type Result = ();

    fn handle(&mut self, acknowledgement: ShowAcknowledgement, ctx: &mut Self::Context) {
        let ShowAcknowledgement { incident, user, at } = acknowledgement;
        let shown = self.alarms.acknowledged(&incident, &user, at);
        self.publish_raids(shown, ctx);
    }
}

impl Handler<KeepAcknowledgement> for GameConnection {
    type Result = ResponseActFuture<Self, Result<StoredIncident, CommandError>>;

    fn handle(&mut self, acknowledgement: KeepAcknowledgement, _: &mut Self::Context) -> Self::Result {
        let KeepAcknowledgement { incident, user, at } = acknowledgement;
        let kept = self.alarms.clone().keep_acknowledgement(incident, user, at);
        Box::pin(kept.into_actor(self).map(|(kept, news), connection, ctx| {
            connection.publish_raids(news, ctx);
            match kept {
                KeptAcknowledgement::Kept(incident) => Ok(*incident),
                KeptAcknowledgement::NotKept => Err(CommandError::Internal),
                KeptAcknowledgement::UnknownIncident => Err(CommandError::UnknownIncident),
            }
        }))
    }
}

impl Handler<FindRaid> for GameConnection {
    type Result = Result<Option<StoredIncident>, Unanswered>;

    fn handle(&mut self, FindRaid { incident, .. }: FindRaid, _: &mut Self::Context) -> Self::Result {
        Ok(self.alarms.find(&incident))
    }
}

impl Handler<AcknowledgementsErased> for GameConnection {
    type Result = ();

    fn handle(&mut self, AcknowledgementsErased { user }: AcknowledgementsErased, ctx: &mut Self::Context) {
        let shown = self.alarms.user_erased(&user);
        self.publish_raids(shown, ctx);
    }
}
