//! What lives on one worker thread of the relay: its subscriptions, found by paired server.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
};

use actix::Addr;

use crate::{
    domain::ids::{ServerId, UserId},
    relay::{
        feed::Feed,
        hub::{Hub, Watch},
        server_subscription::ServerSubscription,
    },
};

/// See the module.
pub struct Worker {
    pub hub: Addr<Hub>,
    subscriptions: RefCell<HashMap<ServerId, Subscription>>,
}

/// A subscription of this thread, and who may watch it.
#[derive(Clone)]
pub struct Subscription {
    pub actor: Addr<ServerSubscription>,
    pub feed: Rc<Feed>,
    pub watchers: Arc<HashSet<UserId>>,
}

impl Worker {
    /// A thread without subscriptions.
    pub fn new(hub: Addr<Hub>) -> Rc<Self> {
        Rc::new(Self { hub, subscriptions: RefCell::default() })
    }

    /// The subscription of this server, started if need be; none if this user may not watch it. Asks the hub only
    /// when this thread does not know the server yet.
    pub async fn subscription(
        self: &Rc<Self>,
        server: &ServerId,
        user: &UserId,
    ) -> Result<Option<Subscription>, WatchFailed> {
        if let Some(known) = self.subscriptions.borrow().get(server) {
            return Ok(known.watchers.contains(user).then(|| known.clone()));
        }
        let watch = Watch { server: server.clone() };
        let Some(access) = self.hub.send(watch).await.map_err(|_| WatchFailed)?.map_err(|_| WatchFailed)? else {
            return Ok(None);
        };
        if !access.watchers.contains(user) {
            return Ok(None);
        }
        // Another socket of this thread may have been quicker.
        let mut subscriptions = self.subscriptions.borrow_mut();
        let subscription = subscriptions.entry(server.clone()).or_insert_with(|| {
            let feed = Feed::new(server.clone());
            let actor = ServerSubscription::start(server.clone(), access.connection, self.clone(), feed.clone());
            Subscription { actor, feed, watchers: access.watchers }
        });
        Ok(subscription.watchers.contains(user).then(|| subscription.clone()))
    }

    /// Replaces who may watch.
    pub fn allow(&self, server: &ServerId, watchers: Arc<HashSet<UserId>>) {
        if let Some(subscription) = self.subscriptions.borrow_mut().get_mut(server) {
            subscription.watchers = watchers;
        }
    }

    /// The subscription has stopped.
    pub fn forget(&self, server: &ServerId) {
        self.subscriptions.borrow_mut().remove(server);
    }
}

/// The database did not answer; try again.
#[derive(Debug)]
pub struct WatchFailed;
