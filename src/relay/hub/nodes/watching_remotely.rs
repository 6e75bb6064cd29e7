//! On a node of several: sockets watch servers of other nodes, and sockets of others those of this one.

use std::time::Duration;

use actix::{fut::ready, prelude::*};
use bytes::Bytes;
use tokio::{sync::mpsc, time::Instant};

use super::super::{Hub, finding::FindAnswer};
use super::{SeveralNodes, handed_servers::HandedRight, remote_servers::KnownFeed};
use crate::{
    cluster::node_mail::count_lost,
    db::held_parts::{self, PartHolder},
    domain::ids::ServerId,
    relay::{
        client::server_lookup::{FindError, FoundServer},
        game::game_connection::SetWatchers,
        remote::{
            remote_feed::{FeedStart, FromOwner, RemoteFeed},
            remote_message::{RemoteContent, RemoteMessage},
            remote_watchers::{FromWatcher, RemoteWatchers, WatchersStart},
        },
        wire::{frame::SharedFrame, publication::AllowedUsers},
    },
};

/// Messages that are taken at once.
const AT_ONCE: usize = 64;
/// Time between two looks whether nodes are gone.
pub(super) const GONE_EVERY: Duration = Duration::from_secs(1);

impl Hub {
    /// Takes the messages of other nodes from now on. Call it once.
    pub(super) fn follow_mail(&mut self, ctx: &mut Context<Self>) {
        if let Some(inbox) = self.nodes.as_mut().and_then(|nodes| nodes.remote.inbox.take()) {
            self.await_mail(inbox, ctx);
        }
    }

    fn await_mail(&self, mut inbox: mpsc::Receiver<Bytes>, ctx: &mut Context<Self>) {
        let come = async move {
            let mut messages = Vec::with_capacity(AT_ONCE);
            inbox.recv_many(&mut messages, AT_ONCE).await;
            (inbox, messages)
        };
        ctx.spawn(come.into_actor(self).map(|(inbox, messages), hub, ctx| {
            let goes_on = !messages.is_empty();
            for message in messages {
                hub.receive(message, ctx);
            }
            if goes_on {
                hub.await_mail(inbox, ctx);
            }
        }));
    }

    fn receive(&mut self, message: Bytes, ctx: &mut Context<Self>) {
        let Some(SeveralNodes { remote, .. }) = &mut self.nodes else { return };
        let Some(message) = remote.parts.take(message) else { return };
        let Some((RemoteMessage { server, from, content }, frame)) = RemoteMessage::read(message) else {
            return remote.unreadable_came(Instant::now());
        };
        if let RemoteContent::ToBrowsers { user } = &content {
            return self.send_to_browsers(user, &SharedFrame::text(&frame));
        }
        if let RemoteContent::HandOver { part, number } = content {
            return self.handed_over(server, HandedRight { part, number }, frame);
        }
        let Some(content) = self.take_question(&server, &from, content, ctx) else { return };
        if content.is_of_watcher() {
            return self.watched_by(server, from, content, ctx);
        }
        let known = self.nodes.as_mut().and_then(|nodes| nodes.remote.feed(&server));
        if let Some(known) = known.filter(|known| known.owner == from) {
            let is_alarm = matches!(content, RemoteContent::Alarm { .. });
            match known.feed.try_send(FromOwner { content, frame }) {
                // Its sender bounds them, and nothing makes up for one that is lost.
                Err(SendError::Full(alarm)) if is_alarm => known.feed.do_send(alarm),
                Err(_) => count_lost(),
                Ok(()) => {}
            }
        }
    }

    /// Passes on the message of another node whose sockets watch this server.
    fn watched_by(&mut self, server: ServerId, from: String, content: RemoteContent, ctx: &mut Context<Self>) {
        let connection = self.connection(&server, false, ctx);
        let Some(SeveralNodes { remote, .. }) = &mut self.nodes else { return };
        let Some(connection) = connection else {
            let content = RemoteContent::NotHere;
            let message = RemoteMessage { server, from: remote.process.clone(), content };
            return message.write(&[], 0).into_iter().for_each(|part| remote.outbox.send(&from, part));
        };
        if !remote.watching.contains(&from) {
            remote.watching.insert(from.clone());
        }
        if let Some(known) = remote.watchers.get(&server).filter(|known| known.connected()) {
            if known.try_send(FromWatcher { from, content }).is_err() {
                // Its sender sends it again.
                count_lost();
            }
            return;
        }
        remote.forget_ended();
        let (process, outbox) = (remote.process.clone(), remote.outbox.clone());
        let numbers_from = u64::from_le_bytes(self.context.random.bytes());
        let catalogue = self.context.catalogue.clone();
        let start = WatchersStart { server: server.clone(), connection, process, outbox, catalogue, numbers_from };
        let arbiter = &self.arbiters[remote.watchers.len() % self.arbiters.len()];
        let watchers = RemoteWatchers::start_in_arbiter(arbiter, move |_| RemoteWatchers::new(start));
        watchers.do_send(FromWatcher { from, content });
        remote.watchers.insert(server, watchers);
    }

    /// Finds the node that has this server, and the feed from there.
    pub(in super::super) fn find_elsewhere(
        &mut self,
        server: ServerId,
        allowed: AllowedUsers,
        is_of_now: bool,
    ) -> FindAnswer {
        if let Some(known) = self.nodes.as_mut().and_then(|nodes| nodes.remote.feed(&server)) {
            known.allowed = allowed.clone();
            let feed = known.feed.clone().into();
            return Box::pin(ready(Ok(Some(FoundServer { feed, allowed, is_of_now }))));
        }
        let Some(part) = self.nodes.as_ref().and_then(|nodes| nodes.owned.part(&server)) else {
            return Box::pin(ready(Err(FindError::NoNode)));
        };
        let pool = self.context.pool.clone();
        let holder = async move { pool.read(move |db| held_parts::holder(db, &part)).await };
        Box::pin(holder.into_actor(self).map(move |holder, hub, _| -> Result<Option<FoundServer>, FindError> {
            let Some(PartHolder::Node(holder)) = holder? else { return Err(FindError::NoNode) };
            let feed = hub.feed_from(server, holder.process(), &allowed).ok_or(FindError::NoNode)?;
            Ok(Some(FoundServer { feed: feed.into(), allowed, is_of_now }))
        }))
    }

    /// Ends the feeds from nodes that are gone, and what their sockets watch here.
    pub(super) fn forget_gone_nodes(&mut self, _: &mut Context<Self>) {
        if let Some(nodes) = &mut self.nodes {
            nodes.forget_gone();
        }
    }

    /// The feed of a server that this other process has; `None` if it is this one, or is gone.
    fn feed_from(&mut self, server: ServerId, owner: &str, allowed: &AllowedUsers) -> Option<Addr<RemoteFeed>> {
        let SeveralNodes { owned, remote, .. } = self.nodes.as_mut()?;
        if remote.process == owner || owned.ownership.is_gone(owner) {
            return None;
        }
        if let Some(known) = remote.feed(&server) {
            return Some(known.feed.clone());
        }
        remote.forget_ended();
        let start = FeedStart {
            server: server.clone(),
            owner: owner.to_owned(),
            process: remote.process.clone(),
            outbox: remote.outbox.clone(),
            clock: self.context.clock.clone(),
            catalogue: self.context.catalogue.clone(),
        };
        let arbiter = &self.arbiters[remote.feeds.len() % self.arbiters.len()];
        let feed = RemoteFeed::start_in_arbiter(arbiter, move |_| RemoteFeed::new(start));
        let known = KnownFeed { feed: feed.clone(), owner: owner.to_owned(), allowed: allowed.clone() };
        remote.feeds.insert(server, known);
        Some(feed)
    }

    /// From now on only these may watch this server of another node.
    pub(in super::super) fn set_remote_watchers(&mut self, server: &ServerId, allowed: &AllowedUsers) {
        if let Some(known) = self.nodes.as_mut().and_then(|nodes| nodes.remote.feed(server)) {
            known.allowed = allowed.clone();
            known.feed.do_send(SetWatchers(allowed.clone()));
        }
    }
}
