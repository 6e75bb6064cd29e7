//! The right to one open socket, and what a socket and whoever admitted it say to each other.

use std::sync::Arc;

use actix::{Message, WeakRecipient};
use smallvec::SmallVec;

use crate::{
    domain::ids::{ServerId, SessionId, UserId},
    net::connections::ConnectionPermit,
    relay::close::Reason,
};

/// May this token's holder open one more socket?
#[derive(Message)]
#[rtype(result = "Result<Admission, AdmitRefused>")]
pub struct Admit {
    pub user: UserId,
    pub session: SessionId,
    /// The one server that it may watch, if it is an overlay.
    pub overlay: Option<ServerId>,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitRefused {
    /// The session has ended since the token was issued.
    SignedOut,
    TooManyConnections,
    /// The service restarts, or its database does not answer.
    Unavailable,
}

/// End this connection.
#[derive(Message, Clone, Copy)]
#[rtype(result = "()")]
pub struct Close(pub Reason);

/// An admitted socket is open or gone.
#[derive(Message)]
#[rtype(result = "()")]
pub enum SocketEvent {
    /// It is open, and this closes it.
    Opened {
        connection: u64,
        close: WeakRecipient<Close>,
    },
    Closed {
        connection: u64,
    },
}

/// The right to one open socket; given back when dropped. Small, because there is one per connection.
pub struct Admission {
    /// The one server that this socket may watch, if it is an overlay's.
    pub overlay: Option<ServerId>,
    connection: u64,
    events: Arc<WeakRecipient<SocketEvent>>,
    /// Of its connection, and of its client behind a proxy.
    permits: SmallVec<[ConnectionPermit; 1]>,
}

impl Admission {
    /// For the connection of this number; `events` gets what becomes of it.
    pub fn new(connection: u64, events: Arc<WeakRecipient<SocketEvent>>) -> Self {
        Self { overlay: None, connection, events, permits: SmallVec::new() }
    }

    /// The same for an overlay of this server, if there is one.
    pub fn of_overlay(mut self, overlay: Option<ServerId>) -> Self {
        self.overlay = overlay;
        self
    }

    /// Keeps this permit as long as the socket is open.
    pub fn hold(&mut self, permit: ConnectionPermit) {
        self.permits.push(permit);
    }

    /// For pauses that should not be the same for all sockets.
    pub fn jitter(&self) -> u8 {
        self.connection as u8
    }

    /// The socket is open.
    pub fn opened(&self, close: WeakRecipient<Close>) {
        self.tell(SocketEvent::Opened { connection: self.connection, close });
    }

    fn tell(&self, event: SocketEvent) {
        // Without whoever admitted it there is nobody to tell.
        if let Some(events) = self.events.upgrade() {
            events.do_send(event);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.tell(SocketEvent::Closed { connection: self.connection });
    }
}
