//! The admitted sockets, by user and session, and whether one more may come. Pure bookkeeping.

use std::collections::{BTreeSet, HashMap, HashSet};

use actix::{Recipient, WeakRecipient};
use slab::Slab;

use crate::{
    domain::{
        ids::{ServerId, SessionId, UserId},
        limits,
    },
    relay::{client::admission::SocketOrder, wire::close::Reason},
};

/// Nodes count the sockets of users with this number or more for one another: most users have fewer.
const SEVERAL: usize = 3;

/// See the module.
#[derive(Default)]
pub struct Presence {
    /// By the lower half of the connection number.
    sockets: Slab<PresentSocket>,
    per_user: HashMap<UserId, usize>,
    /// Sockets of users who have several at another node, by its process.
    elsewhere: HashMap<String, HashMap<UserId, usize>>,
    /// Number of sockets admitted so far, the upper half of the last number: none is used twice.
    admitted: u32,
}

struct PresentSocket {
    /// See [`Presence::admitted`].
    admitted: u32,
    user: UserId,
    session: SessionId,
    /// The one server that it is for, as an overlay is.
    only: Option<ServerId>,
    /// Present once the socket is open.
    recipient: Option<WeakRecipient<SocketOrder>>,
    /// The session ended before the socket was open.
    session_ended: bool,
}

impl Presence {
    /// Takes a place for one more socket and returns its connection number; none if this user has too many.
    pub fn admit(&mut self, user: &UserId, session: &SessionId, only: Option<&ServerId>) -> Option<u64> {
        let here = self.per_user.get(user).copied().unwrap_or_default();
        let elsewhere: usize = self.elsewhere.values().filter_map(|users| users.get(user)).sum();
        if here + elsewhere >= limits::CONNECTIONS_PER_USER {
            return None;
        }
        self.per_user.insert(user.clone(), here + 1);
        self.admitted = self.admitted.wrapping_add(1);
        let key = self.sockets.insert(PresentSocket {
            admitted: self.admitted,
            user: user.clone(),
            session: session.clone(),
            only: only.cloned(),
            recipient: None,
            session_ended: false,
        });
        Some(u64::from(self.admitted) << 32 | key as u64)
    }

    /// The users who have several sockets here, in order, each with their number.
    pub fn several(&self) -> Vec<(UserId, usize)> {
        let several = self.per_user.iter().filter(|(_, count)| **count >= SEVERAL);
        let mut several: Vec<_> = several.map(|(user, count)| (user.clone(), *count)).collect();
        several.sort();
        several
    }

    /// The process of another node has these users with [`several`](Self::several) sockets, and no others.
    pub fn hear(&mut self, process: &str, of: Vec<(UserId, usize)>) {
        self.elsewhere.insert(process.to_owned(), of.into_iter().collect());
    }

    /// No other processes live than these.
    pub fn keep_only(&mut self, processes: &BTreeSet<String>) {
        self.elsewhere.retain(|process, _| processes.contains(process));
    }

    /// The place of this connection, while it is there.
    fn key(&self, connection: u64) -> Option<usize> {
        let (key, admitted) = (connection as u32 as usize, (connection >> 32) as u32);
        self.sockets.get(key).is_some_and(|socket| socket.admitted == admitted).then_some(key)
    }

    /// A socket is open. Returns why it must be closed at once, if it must.
    pub fn open(&mut self, connection: u64, recipient: WeakRecipient<SocketOrder>) -> Option<Reason> {
        let key = self.key(connection)?;
        let socket = &mut self.sockets[key];
        socket.recipient = Some(recipient);
        socket.session_ended.then_some(Reason::SignedOut)
    }

    /// A socket is gone, or never came.
    pub fn leave(&mut self, connection: u64) {
        let Some(key) = self.key(connection) else { return };
        let socket = self.sockets.remove(key);
        if let Some(count) = self.per_user.get_mut(&socket.user) {
            *count -= 1;
            if *count == 0 {
                self.per_user.remove(&socket.user);
            }
        }
    }

    /// A session ended. Returns what closes its open sockets; those not yet open are closed when they are.
    pub fn end_session(&mut self, session: &SessionId) -> Vec<Recipient<SocketOrder>> {
        self.end(|socket| socket.session == *session)
    }

    /// A user is gone. Returns what closes their open sockets; those not yet open are closed when they are.
    pub fn end_user(&mut self, user: &UserId) -> Vec<Recipient<SocketOrder>> {
        self.end(|socket| socket.user == *user)
    }

    /// The sessions that have a socket, open or about to be.
    pub fn sessions(&self) -> HashSet<&SessionId> {
        self.sockets.iter().map(|(_, socket)| &socket.session).collect()
    }

    /// These sessions, each with its user.
    pub fn users_of_sessions(&self) -> HashMap<SessionId, UserId> {
        self.sockets.iter().map(|(_, socket)| (socket.session.clone(), socket.user.clone())).collect()
    }

    /// Ends the sockets that are for this server only, but for those of users who stay. Returns what closes their open
    /// sockets; those not yet open are closed when they are.
    pub fn end_only_of(&mut self, server: &ServerId, stays: impl Fn(&UserId) -> bool) -> Vec<Recipient<SocketOrder>> {
        self.end(|socket| socket.only.as_ref() == Some(server) && !stays(&socket.user))
    }

    fn end(&mut self, ends: impl Fn(&PresentSocket) -> bool) -> Vec<Recipient<SocketOrder>> {
        let ended = self.sockets.iter_mut().map(|(_, socket)| socket).filter(|socket| ends(socket));
        ended
            .filter_map(|socket| {
                socket.session_ended = true;
                socket.recipient.as_ref()?.upgrade()
            })
            .collect()
    }

    /// The open sockets of this user's browsers; those of devices and API tokens are not among them.
    pub fn browsers(&self, user: &UserId) -> Vec<Recipient<SocketOrder>> {
        let of_user = self.sockets.iter().map(|(_, socket)| socket).filter(|socket| socket.user == *user);
        let browsers = of_user.filter(|socket| socket.session.device().is_none() && socket.session.token().is_none());
        browsers.filter_map(|socket| socket.recipient.as_ref()?.upgrade()).collect()
    }

    /// The recipients of all open sockets.
    pub fn open_sockets(&self) -> impl Iterator<Item = &WeakRecipient<SocketOrder>> {
        self.sockets.iter().filter_map(|(_, socket)| socket.recipient.as_ref())
    }

    /// The users with an open socket, once for each.
    pub fn online(&self) -> impl Iterator<Item = &UserId> {
        self.sockets.iter().filter(|(_, socket)| socket.recipient.is_some()).map(|(_, socket)| &socket.user)
    }

    /// Number of sockets that are present.
    pub fn count(&self) -> usize {
        self.sockets.len()
    }
}

#[cfg(test)]
mod tests {
    use actix::prelude::*;

    use super::*;

    struct Socket;

    impl Actor for Socket {
        type Context = Context<Self>;
    }

    impl Handler<SocketOrder> for Socket {
        type Result = ();

        fn handle(&mut self, _: SocketOrder, _: &mut Self::Context) {}
    }

    #[test]
    fn a_user_has_twenty_places_and_a_socket_that_leaves_frees_one() {
        let mut presence = Presence::default();
        let (alice, bob, session) = ("alice".into(), "bob".into(), "s".into());
        let mut connections: Vec<u64> = Vec::new();
        while let Some(connection) = presence.admit(&alice, &session, None) {
            connections.push(connection);
        }
        assert_eq!(connections.len(), limits::CONNECTIONS_PER_USER);
        assert!(presence.admit(&bob, &session, None).is_some(), "others have their own");
        presence.leave(connections[0]);
        presence.leave(connections[0]);
        let again = presence.admit(&alice, &session, None).expect("one place is free");
        assert!(!connections.contains(&again), "numbers are used once");
        assert!(presence.admit(&alice, &session, None).is_none());
        assert_eq!(presence.count(), limits::CONNECTIONS_PER_USER + 1);
    }

    #[test]
    fn sockets_at_other_nodes_take_places() {
        let (mut presence, alice, session) = (Presence::default(), UserId::from("alice"), "s".into());
        let places = |presence: &mut Presence| {
            let admit = || presence.admit(&alice, &session, None);
            let connections: Vec<u64> = std::iter::from_fn(admit).collect();
            connections.iter().for_each(|connection| presence.leave(*connection));
            connections.len()
        };
        for (process, count) in [("there", 10), ("there", 12), ("yonder", 5)] {
            presence.hear(process, vec![(alice.clone(), count), ("bob".into(), 20)]);
        }
        assert_eq!(places(&mut presence), limits::CONNECTIONS_PER_USER - 17);
        presence.keep_only(&["there".to_owned()].into());
        assert_eq!(places(&mut presence), limits::CONNECTIONS_PER_USER - 12);
        presence.hear("there", Vec::new());
        assert_eq!(places(&mut presence), limits::CONNECTIONS_PER_USER);
        assert_eq!(presence.several(), []);
        for _ in 0..SEVERAL {
            presence.admit(&alice, &session, None).expect("a place");
        }
        presence.admit(&"bob".into(), &session, None).expect("a place");
        assert_eq!(presence.several(), [(alice.clone(), SEVERAL)]);
    }

    #[actix::test]
    async fn an_ended_session_closes_its_sockets_also_those_that_open_later() {
        let mut presence = Presence::default();
        let socket = Socket.start();
        let close = socket.downgrade().recipient();
        let mut admit = |session: &str| presence.admit(&"alice".into(), &session.into(), None).expect("a place");
        let (open, coming, other) = (admit("s"), admit("s"), admit("t"));
        assert_eq!(presence.online().count(), 0, "no one before the socket is open");
        assert_eq!(presence.open(open, close.clone()), None);
        assert_eq!(presence.online().collect::<Vec<_>>(), [&UserId::from("alice")]);
        assert_eq!(presence.open(other, close.clone()), None);
        assert_eq!(presence.end_session(&"s".into()).len(), 1);
        assert_eq!(presence.open(coming, close.clone()), Some(Reason::SignedOut));
        assert_eq!(presence.open_sockets().count(), 3);
        presence.leave(open);
        assert_eq!(presence.open(open, close), None, "it is gone");
        assert_eq!(presence.open_sockets().count(), 2);
    }

    #[actix::test]
    async fn the_overlays_of_a_server_end_for_those_who_may_no_longer_watch() {
        let mut presence = Presence::default();
        let socket = Socket.start();
        let close = socket.downgrade().recipient();
        let mut open = |user: &str, only: Option<&str>| {
            let only = only.map(ServerId::from);
            let connection = presence.admit(&user.into(), &"s".into(), only.as_ref()).expect("a place");
            assert_eq!(presence.open(connection, close.clone()), None);
        };
        for user in ["alice", "bob"] {
            for only in [None, Some("one"), Some("two")] {
                open(user, only);
            }
        }
        let coming = presence.admit(&"bob".into(), &"s".into(), Some(&"one".into())).expect("a place");
        assert_eq!(presence.end_only_of(&"one".into(), |user| user.as_str() == "alice").len(), 1);
        assert_eq!(presence.open(coming, close), Some(Reason::SignedOut));
        assert_eq!(presence.end_only_of(&"two".into(), |_| false).len(), 2);
        assert_eq!(presence.end_user(&"alice".into()).len(), 3, "all, whatever they are for");
    }
}
