//! One link to a game server: connects, holds it, and connects again after every loss (protocol §1.8). Reports what it
//! learns and waits until each report is handled.

mod credentials;

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use chrono::TimeDelta;
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::{
    link_end::LinkEnd,
    link_owner::{LinkOwner, Unneeded},
    link_report::LinkReport,
    link_talk::LinkTalk,
};
use crate::{
    domain::{backoff::Backoff, link_reason::LinkReason, outbound::Target},
    game::{link::Link, paced_link::PacedLink, reading_link::ReadingLink},
    panics::{self, Part},
    relay::shared::connect_pacer::ConnectPermit,
};

/// See the module.
pub struct PooledLink {
    owner: LinkOwner,
    /// The game connection has the world as it was stored.
    world_reported: Cell<bool>,
    /// The address, once it is known.
    target: RefCell<Option<Target>>,
    /// A game server has answered there.
    answered: Cell<bool>,
}

impl PooledLink {
    /// Runs until the game connection is gone. No async function, which would have room for its arguments twice.
    pub fn keep(owner: LinkOwner) -> impl Future<Output = ()> {
        let link =
            Self { owner, world_reported: Cell::new(false), target: RefCell::new(None), answered: Cell::new(false) };
        async move { link.run().await }
    }

    /// One link after the other, until none is needed.
    async fn run(&self) {
        let LinkOwner { context, server, wake, .. } = &self.owner;
        let mut backoff = Backoff::new();
        let mut asked_for = false;
        // A link begins because its server is paired, or because a user begins to watch.
        let mut is_first = true;
        loop {
            let permit = if asked_for { ConnectPermit::at_once() } else { Box::pin(self.connect_permit()).await };
            let started = Instant::now();
            let is_asked_for = asked_for || is_first;
            let held = panics::caught(Part::GameLink, server.as_str(), self.hold(permit, is_asked_for)).await;
            let Err(end) = held.unwrap_or_else(|| Err(LinkEnd::unreachable(LinkReason::OurFault, "it panicked")))
            else {
                return;
            };
            let LinkEnd { state, reason, detail, pause } = end;
            log::info!(server = server.as_str(), state:? = state; "no link to the game server: {reason} ({detail})");
            let shown = if self.answered.get() { reason } else { reason.before_any_answer() };
            // The time of the next attempt must not reveal more than the reason does.
            let least = if shown == reason { pause } else { Duration::ZERO };
            let (held, random) = (started.elapsed(), context.random.byte());
            let pause = match &*self.target.borrow() {
                Some(target) => context.outbound.end(target, held, least, random),
                None => backoff.after(held, least, random),
            };
            let next_attempt_at = context.clock.now() + TimeDelta::from_std(pause).unwrap_or_default();
            let down = LinkReport::Down { state, reason: shown, next_attempt_at };
            if Box::pin(self.owner.report(down)).await.is_err() {
                return;
            }
            asked_for = Box::pin(timeout(pause, wake.asked_for())).await.is_ok();
            is_first = false;
        }
    }

    /// Many that start, or lose the network, together do not all connect in the same instant.
    async fn connect_permit(&self) -> ConnectPermit {
        tokio::select! {
            biased;
            () = self.owner.wake.asked_for() => ConnectPermit::at_once(),
            permit = self.owner.context.connect_pacer.next(&self.owner.context.random) => permit,
        }
    }

    /// One link from beginning to end. Ok when it is no longer needed.
    async fn hold(&self, permit: ConnectPermit, is_asked_for: bool) -> Result<Unneeded, LinkEnd> {
        let LinkOwner { context, wake, .. } = &self.owner;
        wake.answered();
        // Steps that run once a link, or now and then, are in a box, which is freed at their end: a link that waits for
        // its next poll costs only the rest.
        let Some((route, player, credentials)) = Box::pin(self.read()).await? else {
            let _ = self.owner.report(LinkReport::ServerGone).await;
            return Ok(Unneeded);
        };
        let budget = context.budgets.of(&route);
        let connecting = async {
            if is_asked_for {
                let wait = self.target.borrow().as_ref().map(|target| context.outbound.ask(target));
                sleep(wait.unwrap_or_default()).await;
            }
            Link::connect(&context.network, &context.decoder, &route, player).await
        };
        // The pause is a part of the connect: one that is long gives the permit to another link.
        let (link, broadcasts) = Box::pin(permit.connect(connecting)).await?;
        // Asked for while it was made: it is here.
        wake.retry.notified().now_or_never();
        let link = PacedLink::new(link, budget);
        let reading = ReadingLink::new(link.clone());
        LinkTalk::new(&self.owner, reading, &route, credentials, &self.answered).hold(link, broadcasts).await
    }
}
