//! One link to a game server: connects, holds it, and connects again after every loss (protocol §1.8). Reports what it
//! learns and waits until each report is handled.

mod credentials;

use std::{
    cell::{Cell, RefCell},
    future::pending,
    net::{IpAddr, SocketAddr},
    pin::pin,
    time::Duration,
};

use chrono::TimeDelta;
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::{
    link_end::LinkEnd,
    link_owner::{LinkOwner, LinkPurpose, Unneeded},
    link_report::LinkReport,
    link_slots::{HeldSlot, SlotEnd, SlotTurn},
    link_talk::LinkTalk,
};
use crate::{
    domain::{
        backoff::Backoff, ids::GameServerId, link_reason::LinkReason, link_slots::SlotNumber, outbound::Target,
        server_state::ConnectionState, team_command::election::server_of_link, time::Timestamp,
    },
    game::{
        link::{ConnectError, Link, LinkEnded, Route, Way},
        paced_link::PacedLink,
        reading_link::ReadingLink,
    },
    panics::{self, Part},
    relay::shared::connect_pacer::ConnectPermit,
};

/// Longest look-up of a game server's address.
const FIND_DEADLINE: Duration = Duration::from_secs(6);
/// A turn that comes so soon, or a mate's link that is found, is not reported as a wait before. Callers who act wait no
/// longer, and then the link takes no slot of a mate's.
const UNREPORTED_FOR: Duration = Duration::from_secs(5);

/// See the module.
pub struct PooledLink {
    owner: LinkOwner,
    /// The game connection has the world as it was stored, or knows more of it.
    world_reported: Cell<bool>,
    /// The address, once it is known.
    target: RefCell<Option<Target>>,
    /// A game server has answered there.
    answered: Cell<bool>,
    purpose: Cell<LinkPurpose>,
    /// Version of the credentials that the attempt has read.
    credentials: Cell<Option<i32>>,
}

/// The way to a game server, and a slot there.
struct FoundSlot {
    peers: Vec<SocketAddr>,
    own: Option<IpAddr>,
    slot: Option<HeldSlot>,
    end: Option<SlotEnd>,
    number: Option<SlotNumber>,
    permit: ConnectPermit,
}

/// Completes when the link has to end, as others wait.
async fn given_up(end: &mut Option<SlotEnd>) {
    match end {
        Some(end) => end.given_up().await,
        None => pending().await,
    }
}

impl PooledLink {
    /// Runs until the game connection is gone. No async function, which would have room for its arguments twice.
    pub fn keep(owner: LinkOwner) -> impl Future<Output = ()> {
        let (target, answered, credentials) = Default::default();
        let (purpose, world_reported) = (Cell::new(owner.purpose), Cell::new(owner.knows_world));
        let link = Self { owner, world_reported, target, answered, purpose, credentials };
        async move { link.run().await }
    }

    /// One link after the other, until none is needed.
    async fn run(&self) {
        let LinkOwner { context, server, wake, .. } = &self.owner;
        let mut backoff = Backoff::new();
        // Since when nothing has failed. A link that takes over from a mate's goes on with the time of that, and one after
        // a link that was given up likewise: own links that rest soon after they are up would only make the pauses grow.
        let mut since = self.owner.read_since;
        let mut asked_for = false;
        // A link begins because its server is paired, or because a user begins to watch.
        let mut is_first = true;
        loop {
            let permit = if asked_for { ConnectPermit::at_once() } else { Box::pin(self.connect_permit()).await };
            let started = *since.get_or_insert_with(Instant::now);
            let is_asked_for = asked_for || is_first;
            let held = panics::caught(Part::GameLink, server.as_str(), self.hold(permit, is_asked_for)).await;
            let Err(end) = held.unwrap_or_else(|| Err(LinkEnd::unreachable(LinkReason::OurFault, "it panicked")))
            else {
                return;
            };
            let LinkEnd { state, reason, detail, pause } = end;
            self.purpose.set(LinkPurpose::Read);
            // Credentials that were replaced are not those of the next attempt.
            let credentials = self.credentials.take().filter(|_| reason != LinkReason::OtherCredentials);
            if state == ConnectionState::Waiting {
                // Its slice is over. It waits for the next one at once.
                log::debug!(server = server.as_str(); "the link is given up: others wait for the game server");
                if Box::pin(self.owner.report(LinkReport::GivenUp)).await.is_err() {
                    return;
                }
                asked_for = true;
                continue;
            }
            log::info!(server = server.as_str(), state:? = state; "no link to the game server: {reason} ({detail})");
            let shown = if self.answered.get() { reason } else { reason.before_any_answer() };
            // The time of the next attempt must not reveal more than the reason does.
            let least = if shown == reason { pause } else { Duration::ZERO };
            since = None;
            let (held, random) = (started.elapsed(), context.random.byte());
            let pause = match &*self.target.borrow() {
                Some(target) => context.outbound.end(target, held, least, random),
                None => backoff.after(held, least, random),
            };
            let next_attempt_at = context.clock.now() + TimeDelta::from_std(pause).unwrap_or_default();
            let down = LinkReport::Down { state, reason: shown, next_attempt_at };
            let paused = wake.pause(credentials);
            if Box::pin(self.owner.report(down)).await.is_err() {
                return;
            }
            asked_for = Box::pin(timeout(pause, wake.asked_for())).await.is_ok();
            drop(paused);
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
        self.credentials.set(Some(credentials.version));
        let FoundSlot { peers, own, slot, mut end, number, permit } =
            Box::pin(self.find_slot(&route, credentials.version, permit)).await?;
        let budget = context.budgets.of(&route, own);
        let connecting = async {
            if is_asked_for {
                let wait = self.target.borrow().as_ref().map(|target| context.outbound.ask(target));
                sleep(wait.unwrap_or_default()).await;
            }
            let way = Way { peers, own, slot };
            Link::connect(&context.network, &context.decoder, &route, way, player).await
        };
        // The pause is a part of the connect: one that is long gives the permit to another link.
        let (link, broadcasts) = tokio::select! {
            connected = Box::pin(permit.connect(connecting)) => connected?,
            () = given_up(&mut end) => return Err(LinkEnd::waiting()),
        };
        // Asked for while it was made: it is here.
        wake.retry.notified().now_or_never();
        let link = PacedLink::new(link, budget);
        let reading = ReadingLink::new(link.clone());
        let owner = (&self.owner, self.purpose.get());
        let talk = LinkTalk::new(owner, reading, &route, number, credentials, &self.answered);
        tokio::select! {
            held = talk.hold(link, broadcasts) => held,
            () = given_up(&mut end) => Err(LinkEnd::waiting()),
        }
    }

    /// The game server's addresses, and a slot there, which is waited for if need be. A proxy has no limit that is known.
    async fn find_slot(&self, route: &Route, credentials: i32, permit: ConnectPermit) -> Result<FoundSlot, LinkEnd> {
        let LinkOwner { context, wake, slots, .. } = &self.owner;
        let find =
            async || timeout(FIND_DEADLINE, route.find(&context.network)).await.unwrap_or(Err(ConnectError::TimedOut));
        let peers = find().await?;
        if route.proxy.is_some() {
            return Ok(FoundSlot { peers, own: None, slot: None, end: None, number: None, permit });
        }
        let peer = peers.first().copied();
        let at = server_of_link(&GameServerId::at(&route.host, route.port), peer);
        let instead_of = match self.purpose.get() {
            LinkPurpose::Turn if !slots.has_room(&at) => return Err(LinkEnd::waiting()),
            LinkPurpose::Turn | LinkPurpose::Read => None,
            LinkPurpose::Act(other) => Some(other),
        };
        let mut slot = slots.ask(&at, peer, wake.clone(), instead_of);
        let (mut permit, mut unreported) = (Some(permit), pin!(sleep(UNREPORTED_FOR)));
        let mut is_reported = false;
        let mut waits = None;
        let own = loop {
            match slot.turn() {
                SlotTurn::Granted(own) => break own,
                SlotTurn::Waits(expected) if is_reported => self.report_waiting(expected).await?,
                SlotTurn::Waits(_) => {}
                SlotTurn::GivenUp => return Err(LinkEnd::waiting()),
            }
            // Another link may connect meanwhile, and a mate's read.
            permit = None;
            waits.get_or_insert_with(|| wake.wait_for_slot(credentials));
            tokio::select! {
                () = slot.changed() => {}
                () = unreported.as_mut(), if !is_reported => match self.purpose.get() {
                    LinkPurpose::Act(_) => return Err(LinkEnd::waiting()),
                    LinkPurpose::Read | LinkPurpose::Turn => is_reported = true,
                },
                () = wake.replaced.notified() => {
                    return Err(LinkEnd::unreachable(LinkReason::OtherCredentials, "the credentials were replaced"));
                }
            }
        };
        drop(waits);
        // A name may be of another place since: no token goes to the old one.
        if permit.is_none()
            && let (Some(peer), Ok(again)) = (peer, find().await)
            && !again.contains(&peer)
        {
            return Err(LinkEnd::waiting());
        }
        let (slot, number, end) = slot.hold();
        let permit = permit.unwrap_or_else(ConnectPermit::at_once);
        Ok(FoundSlot { peers, own, slot: Some(slot), end: Some(end), number: Some(number), permit })
    }

    /// Reports by when the turn of this link comes.
    async fn report_waiting(&self, expected: Timestamp) -> Result<(), LinkEnd> {
        let LinkEnd { state, reason, .. } = LinkEnd::waiting();
        let down = LinkReport::Down { state, reason, next_attempt_at: expected };
        self.owner.report(down).await.map_err(|_| LinkEnded::Unneeded)?;
        Ok(())
    }
}
