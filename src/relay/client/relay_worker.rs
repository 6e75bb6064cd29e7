//! Shared by the sockets of one worker thread: its subscriptions, found by paired server, and the way to the hub.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use actix::{Actor, Addr, Context, Handler, Recipient};

use crate::{
    catalogue::SharedCatalogue,
    clock::Clock,
    domain::ids::{ServerId, UserId},
    net::budgets::ToggleBudgets,
    relay::{
        client::{
            feed::Feed,
            server_lookup::FindServer,
            server_subscription::{MAILBOX, ServerSubscription, Subscription},
            sockets::Sockets,
        },
        game::commands::{AcknowledgeRaid, UserCommand},
    },
};

/// The paired server could not be looked up; try again.
#[derive(Debug)]
pub struct FindFailed;

/// Messages of sockets that the hub takes.
pub struct HubRecipients {
    servers: Recipient<FindServer>,
    pub commands: Recipient<UserCommand>,
    pub acknowledgements: Recipient<AcknowledgeRaid>,
}

impl<A> From<Addr<A>> for HubRecipients
where
    A: Actor<Context = Context<A>> + Handler<FindServer> + Handler<UserCommand> + Handler<AcknowledgeRaid>,
{
    fn from(hub: Addr<A>) -> Self {
        let (servers, commands) = (hub.clone().recipient(), hub.clone().recipient());
        Self { servers, commands, acknowledgements: hub.recipient() }
    }
}

/// See the module.
pub struct RelayWorker {
    pub clock: Clock,
    catalogue: SharedCatalogue,
    pub hub: HubRecipients,
    pub toggles: ToggleBudgets,
    pub sockets: Rc<Sockets>,
    /// Room of a new subscription for publications; a simulation has little.
    pub mailbox: Cell<usize>,
    subscriptions: RefCell<HashMap<ServerId, Rc<Subscription>>>,
}

impl RelayWorker {
    /// A thread without subscriptions.
    pub fn new(
        clock: Clock,
        catalogue: SharedCatalogue,
        hub: HubRecipients,
        toggles: ToggleBudgets,
        sockets: Rc<Sockets>,
    ) -> Rc<Self> {
        Rc::new(Self {
            clock,
            catalogue,
            hub,
            toggles,
            sockets,
            mailbox: Cell::new(MAILBOX),
            subscriptions: RefCell::default(),
        })
    }

    /// The subscription of this server, started if need be; none if this user may not watch it. Asks the hub only
    /// when this thread does not know the server yet, or not that this user may watch it.
    pub async fn subscription(&self, server: &ServerId, user: &UserId) -> Result<Option<Rc<Subscription>>, FindFailed> {
        if let Some(known) = self.known(server)
            && known.watchers.may_watch(user)
        {
            return Ok(Some(known));
        }
        let found = self.hub.servers.send(FindServer { server: server.clone() }).await;
        let Some(found) = found.map_err(|_| FindFailed)?.map_err(|_| FindFailed)? else { return Ok(None) };
        let is_of_now = found.is_of_now;
        let refused = || if is_of_now { Ok(None) } else { Err(FindFailed) };
        // Known before, or by another socket that was quicker; this answer may be newer.
        if let Some(known) = self.known(server) {
            known.set_watchers(found.allowed);
            return if known.watchers.may_watch(user) { Ok(Some(known)) } else { refused() };
        }
        if !found.allowed.users.contains(user) {
            return refused();
        }
        let feed = Feed::new(server.clone(), self.clock.clone(), self.catalogue.clone());
        let (servers, sockets) = (self.hub.servers.clone(), self.sockets.clone());
        let started = ServerSubscription::start(feed, found, servers, sockets, self.mailbox.get());
        let mut subscriptions = self.subscriptions.borrow_mut();
        subscriptions.retain(|_, subscription| subscription.is_live());
        subscriptions.insert(server.clone(), started.clone());
        Ok(Some(started))
    }

    fn known(&self, server: &ServerId) -> Option<Rc<Subscription>> {
        self.subscriptions.borrow().get(server).filter(|known| known.is_live()).cloned()
    }
}
