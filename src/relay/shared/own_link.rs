//! The own link of a paired player, over which alone something is done as this player: it is up, or it rests because
//! another link reads for the player, too, and is made when something is to be done.

use std::net::SocketAddr;

use actix::{Message, Recipient};
use tokio::sync::watch;

use crate::game::acting_link::ActingLink;

/// Something is done over the link now: it must be up, and stay for a while.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LinkUsed;

/// Can something be done as the player now? Of the link that a paired server has for itself.
#[derive(Clone, Default)]
pub enum OwnLinkState {
    /// There is none, or no longer.
    #[default]
    Down,
    /// The link is made as soon as it is used. The number is that of the attempts so far.
    Resting(u64),
    Up(ActingLink),
}

/// See the module; clones share the link. Its player has been accepted by the game server at this address.
#[derive(Clone)]
pub struct OwnLink {
    player: u64,
    peer: Option<SocketAddr>,
    state: watch::Receiver<OwnLinkState>,
    used: Option<Recipient<LinkUsed>>,
}

impl OwnLink {
    /// The own link of the player of this one. `used` gets to know when it is used.
    pub fn new(proof: &ActingLink, state: watch::Receiver<OwnLinkState>, used: Recipient<LinkUsed>) -> Self {
        Self { player: proof.player(), peer: proof.peer(), state, used: Some(used) }
    }

    /// A link of this player that has ended.
    #[cfg(test)]
    pub fn ended(player: u64, peer: Option<SocketAddr>) -> Self {
        Self { player, peer, state: watch::channel(OwnLinkState::Down).1, used: None }
    }

    /// A link of this player that is up.
    #[cfg(test)]
    pub fn up(player: u64) -> Self {
        let state = watch::channel(OwnLinkState::Up(ActingLink::ended(player, None))).1;
        Self { player, peer: None, state, used: None }
    }

    /// SteamID64 of the player.
    pub fn player(&self) -> u64 {
        self.player
    }

    /// Address at which the game server has answered; `None` behind a proxy and in a simulated network.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// True if it is up.
    pub fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), OwnLinkState::Up(_))
    }

    /// The link, once it is up; none if there is none, or it could not be made. The caller sets the deadline.
    pub async fn acting(&self) -> Option<ActingLink> {
        let mut state = self.state.clone();
        if !matches!(*state.borrow(), OwnLinkState::Down)
            && let Some(used) = &self.used
        {
            used.do_send(LinkUsed);
        }
        let first = match &*state.borrow_and_update() {
            OwnLinkState::Up(link) => return Some(link.clone()),
            OwnLinkState::Down => return None,
            OwnLinkState::Resting(attempts) => *attempts,
        };
        loop {
            state.changed().await.ok()?;
            match &*state.borrow_and_update() {
                OwnLinkState::Up(link) => return Some(link.clone()),
                OwnLinkState::Resting(attempts) if *attempts == first => {}
                OwnLinkState::Resting(_) | OwnLinkState::Down => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn own(player: u64) -> (watch::Sender<OwnLinkState>, OwnLink) {
        let (sender, state) = watch::channel(OwnLinkState::Down);
        (sender, OwnLink { player, peer: None, state, used: None })
    }

    #[actix_web::test]
    async fn a_resting_link_is_waited_for_until_it_is_up_or_could_not_be_made() {
        let (state, own) = own(7);
        assert!(own.acting().await.is_none(), "there is none");
        for (next, is_made) in [
            (OwnLinkState::Up(ActingLink::ended(7, None)), true),
            (OwnLinkState::Resting(4), false),
            (OwnLinkState::Down, false),
        ] {
            state.send_replace(OwnLinkState::Resting(3));
            let mut acting = Box::pin(own.acting());
            assert!((&mut acting).now_or_never().is_none(), "it rests");
            state.send_replace(next);
            assert_eq!(acting.await.map(|link| link.player()), is_made.then_some(7));
        }
        state.send_replace(OwnLinkState::Up(ActingLink::ended(7, None)));
        assert!(own.acting().await.is_some(), "it is up");
    }
}
