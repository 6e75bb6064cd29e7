//! The right to one open socket, and the messages between a socket and the actor that admitted it.

use std::sync::Arc;

use actix::{Message, WeakRecipient};
use smallvec::SmallVec;

use crate::{
    domain::{
        ids::{SessionId, UserId},
        relay_access::RelayAccess,
    },
    net::connections::ConnectionPermit,
    relay::wire::{close::Reason, frame::SharedFrame},
};

/// May this token's holder open one more socket?
#[derive(Message)]
#[rtype(result = "Result<Admission, AdmitRefused>")]
pub struct Admit {
    pub user: UserId,
    pub session: SessionId,
    pub access: RelayAccess,
}

/// Reasons against a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitRefused {
    /// The session has ended since the token was issued.
    SignedOut,
    TooManyConnections,
    /// The service restarts, or its database does not answer.
    Unavailable,
}

/// An order to an open socket, on any thread.
#[derive(Message, Clone)]
#[rtype(result = "()")]
pub enum SocketOrder {
    /// End this connection.
    Close(Reason),
    /// Send this message.
    Send(SharedFrame),
}

/// An admitted socket is open or gone.
#[derive(Message)]
#[rtype(result = "()")]
pub enum SocketEvent {
    /// The socket is open, and this recipient reaches it.
    Opened {
        connection: u64,
        socket: WeakRecipient<SocketOrder>,
    },
    Closed {
        connection: u64,
    },
}

/// The right to one open socket; given back when dropped. Small, because there is one per connection.
pub struct Admission {
    /// The permitted actions of this socket.
    pub access: RelayAccess,
    connection: u64,
    events: Arc<WeakRecipient<SocketEvent>>,
    /// Permits of its connection, and of its client behind a proxy.
    permits: SmallVec<[ConnectionPermit; 1]>,
}

impl Admission {
    /// For the connection of this number; `events` gets what becomes of it.
    pub fn new(connection: u64, access: RelayAccess, events: Arc<WeakRecipient<SocketEvent>>) -> Self {
        Self { access, connection, events, permits: SmallVec::new() }
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
    pub fn opened(&self, socket: WeakRecipient<SocketOrder>) {
        self.send_event(SocketEvent::Opened { connection: self.connection, socket });
    }

    fn send_event(&self, event: SocketEvent) {
        // The actor that admitted it may be gone.
        if let Some(events) = self.events.upgrade() {
            events.do_send(event);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.send_event(SocketEvent::Closed { connection: self.connection });
    }
}
