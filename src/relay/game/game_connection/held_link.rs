//! The link of a game connection: the one in use, the task that keeps it, and what the next process is to know of it.

use std::{sync::Arc, time::Duration};

use actix::{Recipient, SpawnHandle};
use chrono::TimeDelta;
use tokio::{sync::watch, time::Instant};

use super::last_heard::LastHeard;
use crate::{
    domain::{
        ids::GameServerId,
        link_slots::SlotNumber,
        time::{Moment, Timestamp},
    },
    game::{acting_link::ActingLink, reading_link::ReadingLink},
    relay::{
        game::{
            echoes::Echoes,
            pool::{link_owner::LinkPurpose, link_slots::LinkSlots, wake::Wake},
        },
        shared::own_link::{LinkUsed, OwnLink, OwnLinkState},
    },
};

/// A player is taken for accepted for this long after the game server has accepted the token, where a mate's link reads.
const PROVEN_FOR: Duration = Duration::from_secs(600);
/// A mate's link reads for a player at most so long after the game server has accepted the token last.
const UNPROVEN_AT_MOST: Duration = Duration::from_secs(3_600);
/// A process that is killed has stored this long ago at most that its link was up.
const ALIVE_EVERY: TimeDelta = TimeDelta::seconds(60);

/// See the module.
pub struct HeldLink {
    pub heard: LastHeard,
    /// The link that reads for this paired server, if one is up.
    pub reading: Option<ReadingLink>,
    /// Since when one reads without a break, the own or a mate's.
    pub read_since: Option<Instant>,
    /// The link of the paired player.
    own: watch::Sender<OwnLinkState>,
    /// Times that it was put to rest.
    rests: u64,
    /// The last link of the paired player that the game server has accepted.
    accepted: Option<ActingLink>,
    /// Version of its credentials.
    credentials: i32,
    /// When that was up last, unless its token may be another since.
    proven_at: Option<Instant>,
    /// The slot of the own link, while it is up.
    pub slot: Option<SlotNumber>,
    /// Own links so far, each counted once more at its end.
    pub links: u64,
    /// Turns of all links.
    pub slots: Arc<LinkSlots>,
    /// The use for which the own link was last begun; one that is tried again reads.
    pub purpose: LinkPurpose,
    /// The connection itself, which is to know when its own link is used.
    pub used: Option<Recipient<LinkUsed>>,
    /// Lines that users said over it.
    pub echoes: Echoes,
    /// Peer of the link, or of the last one.
    pub game_server: Option<GameServerId>,
    /// When it was last stored that the link was up, and until when.
    alive_kept: Option<(Moment, Timestamp)>,
    /// A user asks for the first link: it waits for no turn.
    asked_for: bool,
    /// Keeps the link.
    pub task: Option<SpawnHandle>,
    /// Another node has the game server, or will: no link begins.
    pub has_passed_on: bool,
    pub wake: Arc<Wake>,
}

impl HeldLink {
    /// No link, and no task that keeps one.
    pub fn new(heard: LastHeard, asked_for: bool, slots: Arc<LinkSlots>) -> Self {
        Self {
            heard,
            reading: None,
            read_since: None,
            own: watch::Sender::default(),
            rests: 0,
            accepted: None,
            credentials: 0,
            proven_at: None,
            slot: None,
            links: 0,
            slots,
            purpose: LinkPurpose::Read,
            used: None,
            echoes: Echoes::default(),
            game_server: None,
            alive_kept: None,
            asked_for,
            task: None,
            has_passed_on: false,
            wake: Arc::default(),
        }
    }

    /// The own link is up, and reads.
    pub fn link_up(&mut self, reading: ReadingLink, acting: ActingLink, credentials: i32, slot: Option<SlotNumber>) {
        self.set_reading(Some(reading));
        self.slot = slot;
        self.proven_at = Some(Instant::now());
        (self.accepted, self.credentials) = (Some(acting.clone()), credentials);
        self.own.send_replace(OwnLinkState::Up(acting));
    }

    /// The link is gone; its users' lines are not repeated.
    pub fn drop_link(&mut self) {
        self.set_reading(None);
        self.own_link_ended();
        self.own.send_replace(OwnLinkState::Down);
        self.echoes = Echoes::default();
    }

    /// The own link rests: it is made when it is used. `reading`: the mate's link that reads meanwhile, if one does.
    /// Callers who wait for the own link until now wait no longer.
    pub fn rest(&mut self, reading: Option<ReadingLink>) {
        self.set_reading(reading);
        self.rests += 1;
        self.own_link_ended();
        self.own.send_replace(OwnLinkState::Resting(self.rests));
    }

    /// A mate's link reads from now on, while the own one was not up. Callers who wait for it keep waiting.
    pub fn sit(&mut self, reading: ReadingLink) {
        self.set_reading(Some(reading));
        if !self.is_resting() {
            self.own.send_replace(OwnLinkState::Resting(self.rests));
        }
    }

    /// Another link reads from now on, or none.
    pub fn set_reading(&mut self, reading: Option<ReadingLink>) {
        self.read_since = reading.as_ref().map(|_| self.read_since.unwrap_or_else(Instant::now));
        self.reading = reading;
    }

    fn own_link_ended(&mut self) {
        self.slot = None;
        if self.acting().is_some() {
            // Once its token may be another, the end of the link proves nothing.
            self.proven_at = self.proven_at.map(|_| Instant::now());
        }
    }

    /// True if the game server has accepted the paired player lately.
    pub fn is_proven(&self) -> bool {
        self.proven_at.is_some_and(|at| at.elapsed() < PROVEN_FOR)
    }

    /// True if the game server has not accepted the paired player for so long that no mate's link may read any longer.
    pub fn is_unproven(&self) -> bool {
        self.proven_at.is_none_or(|at| at.elapsed() > UNPROVEN_AT_MOST)
    }

    /// A link of the paired player that the game server has accepted lately, while the own link waits for a slot or for its
    /// next attempt with the same credentials. One that is made proves itself.
    pub fn proof(&self) -> Option<ActingLink> {
        let is_same = self.wake.waits_with() == Some(self.credentials);
        self.accepted.clone().filter(|_| is_same && self.is_proven())
    }

    /// The token may be another, or was refused.
    pub fn forget_proof(&mut self) {
        self.proven_at = None;
    }

    /// The own link, if it is up.
    pub fn acting(&self) -> Option<ActingLink> {
        match &*self.own.borrow() {
            OwnLinkState::Up(link) => Some(link.clone()),
            OwnLinkState::Down | OwnLinkState::Resting(_) => None,
        }
    }

    /// True if it is made when it is used.
    pub fn is_resting(&self) -> bool {
        matches!(*self.own.borrow(), OwnLinkState::Resting(_))
    }

    /// True if there is an own link, to do something over it.
    pub fn has_own_link(&self) -> bool {
        self.accepted.is_some() && self.used.is_some() && !matches!(*self.own.borrow(), OwnLinkState::Down)
    }

    /// The own link, to do something over it, unless there is none.
    pub fn own_link(&self) -> Option<OwnLink> {
        let (accepted, used) = self.accepted.as_ref().filter(|_| self.has_own_link()).zip(self.used.clone())?;
        Some(OwnLink::new(accepted, self.own.subscribe(), used))
    }

    /// An own link is about to begin.
    pub fn begin(&mut self) {
        self.links += 1;
        if std::mem::take(&mut self.asked_for) {
            self.wake.retry.notify_one();
        }
    }

    /// A user asks for the link; `changed`: address or credentials are not what they were.
    pub fn retry(&self, changed: bool) {
        if changed {
            self.wake.replaced.notify_one();
        } else if self.reading.is_none() {
            self.wake.retry.notify_one();
        }
    }

    /// When the link was last up, if that is to be stored now: once a minute, unless the link has been down since.
    /// `at_once`: there is no later.
    pub fn alive_to_store(&mut self, alive_at: Option<Timestamp>, now: Moment, at_once: bool) -> Option<Timestamp> {
        if !at_once && self.alive_kept.is_some_and(|(kept, _)| now - kept < ALIVE_EVERY) {
            return None;
        }
        let alive_at = alive_at.filter(|alive_at| self.alive_kept.is_none_or(|(_, known)| known != *alive_at))?;
        self.alive_kept = Some((now, alive_at));
        Some(alive_at)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{clock::Clock, game::paced_link::PacedLink};

    #[tokio::test(start_paused = true)]
    async fn reading_goes_on_from_the_own_link_to_a_mates_and_back_until_none_reads() {
        let slots = Arc::new(LinkSlots::new(5, Vec::new(), Clock::system()));
        let mut held = HeldLink::new(LastHeard::default(), false, slots);
        let reading = |player| ReadingLink::new(PacedLink::ended(player, None));
        let began = Instant::now();
        for _ in 0..2 {
            held.link_up(reading(1), ActingLink::ended(1, None), 1, None);
            advance(Duration::from_secs(5)).await;
            held.rest(Some(reading(2)));
            advance(Duration::from_secs(300)).await;
            assert_eq!(held.read_since, Some(began));
        }
        held.rest(None);
        assert_eq!(held.read_since, None);
        held.sit(reading(2));
        assert_eq!(held.read_since, Some(Instant::now()));
        held.drop_link();
        assert_eq!(held.read_since, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_waits_is_proven_by_the_same_credentials_for_ten_minutes() {
        let slots = Arc::new(LinkSlots::new(5, Vec::new(), Clock::system()));
        let mut held = HeldLink::new(LastHeard::default(), false, slots);
        let wake = held.wake.clone();
        let up = |held: &mut HeldLink| {
            let reading = ReadingLink::new(PacedLink::ended(1, None));
            held.link_up(reading, ActingLink::ended(1, None), 7, None);
        };
        up(&mut held);
        held.drop_link();
        assert!(held.proof().is_none(), "it is made");
        for (credentials, is_proven) in [(Some(7), true), (Some(8), false), (None, false)] {
            let paused = wake.pause(credentials);
            assert_eq!(held.proof().is_some(), is_proven, "{credentials:?}");
            drop(paused);
        }
        let _paused = wake.pause(Some(7));
        advance(PROVEN_FOR).await;
        assert!(held.proof().is_none());
        up(&mut held);
        assert!(held.proof().is_some());
        held.forget_proof();
        held.drop_link();
        assert!(held.proof().is_none(), "its end proves nothing");
    }

    #[test]
    fn without_a_link_that_was_accepted_there_is_no_own_one() {
        let slots = Arc::new(LinkSlots::new(5, Vec::new(), Clock::system()));
        let mut held = HeldLink::new(LastHeard::default(), false, slots);
        let is_there = |held: &HeldLink| (held.has_own_link(), held.own_link().is_some());
        assert_eq!(is_there(&held), (false, false));
        held.link_up(ReadingLink::new(PacedLink::ended(1, None)), ActingLink::ended(1, None), 1, None);
        assert_eq!(is_there(&held), (false, false), "no one would know that it is used");
    }
}
