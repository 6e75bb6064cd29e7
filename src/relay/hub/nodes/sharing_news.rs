//! On a node of several: what users did at this node reaches the sockets and links of the others, and the other way round.
//! News are rows of the database, which each node reads twice a second. Some may be lost all the same: now and then, and
//! after a while without an answer, a node checks which sessions go on and who may watch.

use std::time::Duration;

use actix::prelude::*;
use chrono::TimeDelta;
use tokio::time::Instant;

use super::super::{Hub, ServerPaired, ServerRemoved};
use super::SeveralNodes;
use crate::{
    db::{
        engine::{error::DbError, query_failures::log_failure},
        node_news::{self, StoredNews},
        notices::early_changes::EndedWay,
    },
    domain::{ids::ServerId, node_news::NodeNews},
    net::shared_guesses::WrongGuess,
    relay::{
        game::{
            commands::{AcknowledgementsErased, AlarmPathChanged, DevicesChanged, NotesChanged, PlaceDevice},
            game_connection::{GameConnection, ShowAcknowledgement},
        },
        market::shop_watcher::ShopWatchesChanged,
    },
};

/// Time between two reads of news.
pub(super) const READ_EVERY: Duration = Duration::from_millis(500);
/// Pause before a write that failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Own news are kept for so long.
const KEPT: TimeDelta = TimeDelta::minutes(5);

impl Hub {
    /// Stores news for other nodes, if there are any.
    pub(in super::super) fn share(&mut self, news: NodeNews, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { others, .. }) = &mut self.nodes else { return };
        let id = self.context.random.id(self.context.clock.now());
        if !others.keep(id, news) {
            log::error!("other nodes do not hear of what users do here: the database has taken nothing for too long");
        }
        self.write_news(ctx);
    }

    fn write_news(&mut self, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { others, .. }) = &mut self.nodes else { return };
        let (next, node) = (others.next(), others.process.clone());
        if next.is_empty() || std::mem::replace(&mut others.is_writing, true) {
            return;
        }
        let (pool, now, count) = (self.context.pool.clone(), self.context.clock.now(), next.len());
        let write = async move { pool.write(move |db| node_news::add(db, &node, &next, now)).await };
        ctx.spawn(write.into_actor(self).map(move |written: Result<(), DbError>, hub, ctx| {
            let Some(SeveralNodes { others, .. }) = &mut hub.nodes else { return };
            others.is_writing = false;
            match written {
                Ok(()) => {
                    others.stored(count);
                    hub.write_news(ctx);
                }
                Err(error) => {
                    log_failure("other nodes hear later of what users do here", &error);
                    ctx.run_later(AGAIN_AFTER, Self::write_news);
                }
            }
        }));
    }

    /// Shares what waits, and reads the news of other nodes; one read at a time.
    pub(super) fn read_news(&mut self, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { guesses, .. }) = &self.nodes else { return };
        for WrongGuess { what, from } in guesses.take_made() {
            self.share(NodeNews::WrongGuess { what, from }, ctx);
        }
        let Some(SeveralNodes { others, .. }) = &mut self.nodes else { return };
        if std::mem::replace(&mut others.is_reading, true) {
            return;
        }
        let pool = self.context.pool.clone();
        let read = async move { pool.read(node_news::list).await };
        ctx.spawn(read.into_actor(self).map(|read, hub, ctx| hub.news_read(read, ctx)));
    }

    fn news_read(&mut self, read: Result<Vec<StoredNews>, DbError>, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { others, .. }) = &mut self.nodes else { return };
        others.is_reading = false;
        let (all, now) = match read {
            Ok(all) => (all, Instant::now()),
            Err(error) => return log_failure("news of other nodes are read later", &error),
        };
        let is_due = others.is_check_due(now);
        for news in others.read(all, now) {
            self.hear(news, ctx);
        }
        if is_due {
            self.check_all(now, ctx);
        }
        let servers = self.nodes.as_mut().map_or_else(Vec::new, |nodes| nodes.others.unchecked());
        for server in servers {
            self.access_changed(server, ctx);
        }
    }

    /// Checks which sessions go on, and by and by who may watch.
    fn check_all(&mut self, now: Instant, ctx: &mut Context<Self>) {
        for (session, user) in self.presence.users_of_sessions() {
            self.check_later(user, session, ctx);
        }
        let Some(SeveralNodes { others, remote, .. }) = &mut self.nodes else { return };
        let watched = self.connections.iter().filter(|(_, known)| known.allowed.is_some());
        let watched = watched.map(|(server, _)| server).chain(remote.feeds.keys());
        let watched: Vec<ServerId> = watched.cloned().collect();
        others.check(watched, now);
        let (pool, node, now) = (self.context.pool.clone(), others.process.clone(), self.context.clock.now());
        let purge = async move { pool.write(move |db| node_news::purge(db, &node, now - KEPT)).await };
        ctx.spawn(purge.into_actor(self).map(|purged: Result<(), DbError>, _, _| {
            if let Err(error) = purged {
                log_failure("news of nodes are removed later", &error);
            }
        }));
    }

    /// Does what follows from news of another node here.
    fn hear(&mut self, news: NodeNews, ctx: &mut Context<Self>) {
        match news {
            NodeNews::SessionEnded { session } => self.end_session(&session),
            NodeNews::UserErased { user } => {
                self.end_user(&user);
                // No alarm rings for them from the memory of this node.
                self.context.early_alarms.changes.end(EndedWay::User(user));
            }
            NodeNews::AccessChanged { server } => self.access_changed(server, ctx),
            NodeNews::ServerRemoved { server } => self.removed(ServerRemoved { server }),
            NodeNews::ServerPaired { server } => self.paired(ServerPaired { server, changed: false }, ctx),
            NodeNews::DevicesChanged { server } => self.pass(&server, DevicesChanged),
            NodeNews::AlarmPathChanged { server } => self.pass(&server, AlarmPathChanged),
            NodeNews::ShopWatchesChanged { server } => self.pass(&server, ShopWatchesChanged),
            NodeNews::NotesChanged { server, deleted } => self.pass(&server, NotesChanged { deleted }),
            NodeNews::PlaceDevice { server, device, player, sent } => {
                self.pass(&server, PlaceDevice { device, player, sent });
            }
            NodeNews::AcknowledgementsErased { server, user } => self.pass(&server, AcknowledgementsErased { user }),
            NodeNews::Acknowledged { server, incident, user, at } => {
                self.pass(&server, ShowAcknowledgement { incident, user, at });
            }
            NodeNews::WrongGuess { what, from } => {
                if let Some(nodes) = &self.nodes {
                    nodes.guesses.heard(WrongGuess { what, from });
                }
            }
            NodeNews::Unknown => {
                if let Some(nodes) = &mut self.nodes {
                    nodes.remote.unreadable_came(Instant::now());
                }
            }
        }
    }

    fn pass<M>(&self, server: &ServerId, message: M)
    where
        M: Message<Result = ()> + Send + 'static,
        GameConnection: Handler<M>,
    {
        if let Some(connection) = self.connections.get(server) {
            connection.address.do_send(message);
        }
    }
}
