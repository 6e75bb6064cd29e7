//! Who may watch one paired server, and which sockets of this thread do. The one owner of both.

use std::{cell::RefCell, rc::Rc};

use crate::{
    domain::ids::UserId,
    relay::{publication::AllowedUsers, socket::Socket},
};

/// See the module.
pub struct Watchers {
    allowed: RefCell<AllowedUsers>,
    sockets: RefCell<Vec<Rc<Socket>>>,
}

impl Watchers {
    /// Nobody watches yet.
    pub fn new(allowed: AllowedUsers) -> Self {
        Self { allowed: RefCell::new(allowed), sockets: RefCell::default() }
    }

    /// Whether this user may watch.
    pub fn may_watch(&self, user: &UserId) -> bool {
        self.allowed.borrow().users.contains(user)
    }

    /// Whether anybody may watch; if not, the paired server is gone.
    pub fn nobody_may_watch(&self) -> bool {
        self.allowed.borrow().users.is_empty()
    }

    /// Replaces who may watch, unless what is known is newer; returns the sockets whose watch ends thereby.
    pub fn allow(&self, allowed: AllowedUsers) -> Vec<Rc<Socket>> {
        if allowed.version < self.allowed.borrow().version {
            return Vec::new();
        }
        let (stay, end) = self.sockets.take().into_iter().partition(|socket| allowed.users.contains(&socket.user));
        *self.sockets.borrow_mut() = stay;
        *self.allowed.borrow_mut() = allowed;
        end
    }

    /// Adds a socket, once.
    pub fn add(&self, socket: &Rc<Socket>) {
        let mut sockets = self.sockets.borrow_mut();
        if !sockets.iter().any(|known| Rc::ptr_eq(known, socket)) {
            sockets.push(socket.clone());
        }
    }

    /// Removes a socket.
    pub fn remove(&self, socket: &Rc<Socket>) {
        let mut sockets = self.sockets.borrow_mut();
        if let Some(index) = sockets.iter().position(|known| Rc::ptr_eq(known, socket)) {
            sockets.swap_remove(index);
        }
    }

    /// Removes all sockets and returns them.
    pub fn remove_all(&self) -> Vec<Rc<Socket>> {
        self.sockets.take()
    }

    /// Whether no socket watches.
    pub fn is_empty(&self) -> bool {
        self.sockets.borrow().is_empty()
    }

    /// Calls this for every socket, which must not change who watches.
    pub fn for_each(&self, call: impl FnMut(&Rc<Socket>)) {
        self.sockets.borrow().iter().for_each(call);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{net::Memory, relay::socket::SocketThread};

    fn allowed(version: u64, users: &[&str]) -> AllowedUsers {
        AllowedUsers { version, users: Arc::new(users.iter().map(|user| UserId::from(*user)).collect()) }
    }

    fn socket(user: &str) -> Rc<Socket> {
        Socket::new(SocketThread::new(Default::default()), 0, user.into(), Memory::pair(64).0.into())
    }

    #[tokio::test]
    async fn who_may_no_longer_watch_is_returned() {
        let watchers = Watchers::new(allowed(1, &["alice", "bob"]));
        let (alice, bob) = (socket("alice"), socket("bob"));
        for socket in [&alice, &bob, &bob] {
            watchers.add(socket);
        }
        let ended = watchers.allow(allowed(2, &["alice"]));
        assert!(matches!(&ended[..], [socket] if Rc::ptr_eq(socket, &bob)));
        assert!(watchers.may_watch(&"alice".into()) && !watchers.may_watch(&"bob".into()));
        let mut left = Vec::new();
        watchers.for_each(|socket| left.push(socket.user.to_string()));
        assert_eq!(left, ["alice"]);
        watchers.remove(&alice);
        assert!(watchers.is_empty());
    }

    #[tokio::test]
    async fn an_older_answer_never_replaces_a_newer_one() {
        let watchers = Watchers::new(allowed(5, &["alice"]));
        watchers.add(&socket("alice"));
        assert!(watchers.allow(allowed(4, &[])).is_empty());
        assert!(watchers.may_watch(&"alice".into()) && !watchers.is_empty());
        assert_eq!(watchers.allow(allowed(6, &[])).len(), 1);
        assert!(watchers.nobody_may_watch() && watchers.is_empty());
        assert!(watchers.allow(allowed(5, &["alice"])).is_empty());
        assert!(!watchers.may_watch(&"alice".into()), "revoked for good");
    }
}
