//! Users who may watch one paired server, and sockets of this thread that do. The one owner of both.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use crate::{
    domain::ids::UserId,
    relay::{client::socket::Socket, wire::publication::AllowedUsers},
};

/// See the module.
pub struct Watchers {
    allowed: RefCell<AllowedUsers>,
    /// By their numbers, each with its place in the order in which they began to watch.
    sockets: RefCell<BTreeMap<u32, (u64, Rc<Socket>)>>,
    /// The last of these places.
    last: Cell<u64>,
}

impl Watchers {
    /// No socket watches yet.
    pub fn new(allowed: AllowedUsers) -> Self {
        Self { allowed: RefCell::new(allowed), sockets: RefCell::default(), last: Cell::new(0) }
    }

    /// True if this user may watch.
    pub fn may_watch(&self, user: &UserId) -> bool {
        self.allowed.borrow().users.contains(user)
    }

    /// True if no user may watch: the paired server is gone.
    pub fn no_one_may_watch(&self) -> bool {
        self.allowed.borrow().users.is_empty()
    }

    /// Replaces who may watch, unless a newer version is known; returns the sockets whose watch ends thereby.
    pub fn allow(&self, allowed: AllowedUsers) -> Vec<Rc<Socket>> {
        if allowed.version < self.allowed.borrow().version {
            return Vec::new();
        }
        let mut sockets = self.sockets.borrow_mut();
        let end = sockets.extract_if(.., |_, (_, socket)| !allowed.users.contains(&socket.user));
        let end = end.map(|(_, (_, socket))| socket).collect();
        *self.allowed.borrow_mut() = allowed;
        end
    }

    /// Adds a socket.
    pub fn add(&self, socket: &Rc<Socket>) {
        let mut sockets = self.sockets.borrow_mut();
        // One that is here keeps its place.
        if !sockets.get(&socket.number).is_some_and(|(_, known)| Rc::ptr_eq(known, socket)) {
            self.last.set(self.last.get() + 1);
            sockets.insert(socket.number, (self.last.get(), socket.clone()));
        }
    }

    /// Removes a socket.
    pub fn remove(&self, socket: &Socket) {
        self.sockets.borrow_mut().remove(&socket.number);
    }

    /// Removes all sockets and returns them.
    pub fn remove_all(&self) -> Vec<Rc<Socket>> {
        self.sockets.take().into_values().map(|(_, socket)| socket).collect()
    }

    /// True if no socket watches.
    pub fn is_empty(&self) -> bool {
        self.sockets.borrow().is_empty()
    }

    /// All sockets, by their numbers.
    pub fn all(&self) -> Vec<Rc<Socket>> {
        self.after(0)
    }

    /// The sockets that began to watch after this place, by their numbers.
    pub fn after(&self, place: u64) -> Vec<Rc<Socket>> {
        let sockets = self.sockets.borrow();
        sockets.values().filter(|(at, _)| *at > place).map(|(_, socket)| socket.clone()).collect()
    }

    /// The place of the socket that began to watch last.
    pub fn last(&self) -> u64 {
        self.last.get()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{net::Memory, relay::client::socket::SocketThread};

    fn allowed(version: u64, users: &[&str]) -> AllowedUsers {
        let users = Arc::new(users.iter().map(|user| UserId::from(*user)).collect());
        AllowedUsers { version, users, ..AllowedUsers::default() }
    }

    fn socket(number: u32, user: &str) -> Rc<Socket> {
        Socket::new(SocketThread::new(Default::default()), number, user.into(), Memory::pair(64).0.into(), false)
    }

    #[tokio::test]
    async fn who_may_no_longer_watch_is_returned() {
        let watchers = Watchers::new(allowed(1, &["alice", "bob"]));
        let (alice, bob) = (socket(0, "alice"), socket(1, "bob"));
        for socket in [&alice, &bob, &bob] {
            watchers.add(socket);
        }
        let ended = watchers.allow(allowed(2, &["alice"]));
        assert!(matches!(&ended[..], [socket] if Rc::ptr_eq(socket, &bob)));
        assert!(watchers.may_watch(&"alice".into()) && !watchers.may_watch(&"bob".into()));
        assert_eq!(watchers.last(), 2, "one that watches already keeps its place");
        assert_eq!([0, 1].map(|place| watchers.after(place).len()), [1, 0]);
        assert!(matches!(&watchers.all()[..], [socket] if Rc::ptr_eq(socket, &alice)));
        watchers.remove(&alice);
        assert!(watchers.is_empty());
    }

    #[tokio::test]
    async fn an_older_answer_never_replaces_a_newer_one() {
        let watchers = Watchers::new(allowed(5, &["alice"]));
        watchers.add(&socket(0, "alice"));
        assert!(watchers.allow(allowed(4, &[])).is_empty());
        assert!(watchers.may_watch(&"alice".into()) && !watchers.is_empty());
        assert_eq!(watchers.allow(allowed(6, &[])).len(), 1);
        assert!(watchers.no_one_may_watch() && watchers.is_empty());
        assert!(watchers.allow(allowed(5, &["alice"])).is_empty());
        assert!(!watchers.may_watch(&"alice".into()), "revoked for good");
    }
}
