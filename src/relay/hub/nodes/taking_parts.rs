//! On a node of several: game connections begin and end as game servers come to this node and go.
//!
//! Other nodes pair and delete servers, too: the places of all are read again and again. An alarm that another node has
//! stored waits in the ledger until it is found here.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use chrono::TimeDelta;
use tokio::time::Instant;

use super::{
    super::{Hub, RetryLink},
    SeveralNodes,
    handing_over::SENT_WITHIN,
    online,
    owned_servers::PlaceChanges,
    sharing_news, watching_remotely,
};
use crate::{
    config::GameLinkPolicy,
    db::{
        alarms::alarm_ledger::{self, WaitingPage},
        engine::{error::DbError, query_failures::log_failure},
        server_places::{self, ServerPlace},
    },
    domain::{fence::Fence, ids::ServerId},
    ownership::Ownership,
    relay::{
        alarms::{
            alarm_delivery::PushedAlarm,
            alarm_routes::{AlarmPushed, DeliverPushedAlarm},
            received_at::ReceivedAt,
        },
        shared::context::RelayContext,
    },
};

/// Time between two reads of places.
const READ_EVERY: Duration = Duration::from_secs(5);
/// A change is read for so long: the clocks of nodes differ by less, and no transaction takes longer.
const CHANGED_WITHIN: TimeDelta = TimeDelta::minutes(2);
/// Time between two looks for alarms that wait.
const ALARMS_EVERY: Duration = Duration::from_secs(2);
/// Alarms of one look. The next one goes on after them: those at its begin may be of servers that no node has.
const ALARMS_AT_ONCE: i64 = 1_000;

impl Hub {
    /// The context of a game connection of this server, and the right by which it writes; `None`: another node has the
    /// server, or none has.
    pub(in super::super) fn context_of(&mut self, server: &ServerId) -> Option<(Arc<RelayContext>, Option<Fence>)> {
        let Some(SeveralNodes { owned, .. }) = &mut self.nodes else { return Some((self.context.clone(), None)) };
        let fence = owned.fence(server)?;
        let right = Fence::clone(&fence);
        Some((owned.context(fence, &self.context), Some(right)))
    }

    /// Opens and ends game connections from now on, as parts come and go.
    pub(in super::super) fn follow_parts(&mut self, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { owned, .. }) = &self.nodes else { return };
        self.await_parts(owned.ownership.clone(), ctx);
        self.read_places(ctx);
        ctx.run_interval(READ_EVERY, Self::read_places);
        ctx.run_interval(ALARMS_EVERY, Self::look_for_alarms);
        self.follow_mail(ctx);
        ctx.run_interval(watching_remotely::GONE_EVERY, Self::forget_gone_nodes);
        ctx.run_interval(online::SOCKETS_EVERY, Self::send_sockets);
        self.read_news(ctx);
        ctx.run_interval(sharing_news::READ_EVERY, Self::read_news);
    }

    fn await_parts(&self, mut ownership: Ownership, ctx: &mut Context<Self>) {
        let changed = async move {
            let goes_on = ownership.changed().await;
            (ownership, goes_on)
        };
        ctx.spawn(changed.into_actor(self).map(|(ownership, goes_on), hub, ctx| {
            hub.take_parts(ctx);
            if goes_on {
                hub.await_parts(ownership, ctx);
            }
        }));
    }

    /// Ends the game connections of servers that this node has no longer, and opens those of servers that it has now.
    fn take_parts(&mut self, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { owned, .. }) = &mut self.nodes else { return };
        owned.forget_unused();
        let is_lost = |server: &ServerId, right: Option<&Fence>| owned.fence(server).as_deref() != right;
        let lost = self.connections.iter().filter(|(server, known)| is_lost(server, known.fence.as_ref()));
        let lost: Vec<ServerId> = lost.map(|(server, _)| server.clone()).collect();
        for server in lost {
            self.alarm_routes.remove(&server);
            if let Some(known) = self.connections.remove(&server) {
                ctx.spawn(self.hand_over(server, &known, Instant::now() + SENT_WITHIN).into_actor(self));
            }
        }
        let Some(nodes) = &mut self.nodes else { return };
        nodes.end_feeds_of_own();
        let owned = &nodes.owned;
        // Also of one that was about to be started again.
        self.link_statuses.retain(|server, _| owned.fence(server).is_some());
        if self.context.game.link_policy == GameLinkPolicy::Always {
            let new = owned.here().filter(|server| !self.connections.contains_key(*server));
            let new: Vec<ServerId> = new.cloned().collect();
            for server in new {
                self.connection(&server, false, ctx);
            }
        }
    }

    /// Reads the places of servers; one read at a time.
    pub(in super::super) fn read_places(&mut self, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { owned, remote, .. }) = &mut self.nodes else { return };
        remote.handed.forget_old(Instant::now());
        if !owned.reading.begin() {
            return;
        }
        let since = (!owned.reads_all()).then(|| self.context.clock.now() - CHANGED_WITHIN);
        let pool = self.context.pool.clone();
        let read = async move { pool.read(move |db| server_places::list(db, since)).await };
        ctx.spawn(read.into_actor(self).map(move |places, hub, ctx| hub.places_read(places, since.is_none(), ctx)));
    }

    fn places_read(&mut self, places: Result<Vec<ServerPlace>, DbError>, all: bool, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { owned, .. }) = &mut self.nodes else { return };
        let again = owned.reading.end();
        match places {
            Ok(places) => {
                let PlaceChanges { gone, renewed, new_parts } = owned.read(places, all);
                // At a start all are new, and the node lists them by itself.
                if self.links_loaded {
                    new_parts.into_iter().for_each(|part| owned.ownership.want(part));
                }
                for server in gone {
                    self.forget(server);
                }
                for connection in renewed.iter().filter_map(|server| self.connections.get(server)) {
                    connection.address.do_send(RetryLink { changed: true });
                }
                self.links_loaded = true;
                self.take_parts(ctx);
            }
            Err(error) => log_failure("servers that other nodes have paired are read later", &error),
        }
        if again {
            self.read_places(ctx);
        }
    }

    /// Delivers the alarms of this node's servers that wait for their incident. One that is on its way already is dropped by
    /// its game connection.
    fn look_for_alarms(&mut self, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { owned, .. }) = &mut self.nodes else { return };
        if std::mem::replace(&mut owned.looks_for_alarms, true) {
            return;
        }
        let (pool, after) = (self.context.pool.clone(), owned.alarms_after.take());
        let waiting = async move { pool.read(move |db| alarm_ledger::all_waiting(db, after, ALARMS_AT_ONCE)).await };
        ctx.spawn(waiting.into_actor(self).map(|waiting, hub, ctx| {
            let Some(SeveralNodes { owned, .. }) = &mut hub.nodes else { return };
            owned.looks_for_alarms = false;
            match waiting {
                Ok(WaitingPage { pushes, last }) => {
                    owned.alarms_after = last;
                    for (server, push) in pushes {
                        if let Some(connection) = hub.connection(&server, false, ctx) {
                            let (alarm, received_at) = (PushedAlarm::from(push), ReceivedAt::now());
                            let pushed = AlarmPushed { server, alarm, received_at };
                            connection.do_send(DeliverPushedAlarm::new(pushed, None));
                        }
                    }
                }
                Err(error) => log_failure("alarms that other nodes have stored are read later", &error),
            }
        }));
    }
}
