//! Every reason for which the relay ends a WebSocket, with its close code.
//!
//! 44xx: come back after a backoff. 45xx: do not come back with this sign-in. The others are RFC 6455's.

use actix_http::ws::{CloseCode, CloseReason, OpCode, Parser};
use bytes::{Bytes, BytesMut};

/// Reasons for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The peer said goodbye; see [`answer`].
    Goodbye,
    /// The client does not take what it is sent.
    TooSlow,
    /// The service restarts.
    Restarting,
    /// The client sends more than it may.
    Flooding,
    /// The session this socket came from has signed out.
    SignedOut,
    /// A message is larger than 64 KiB.
    TooBig,
    /// Something failed on our side; a new connection finds everything again.
    Failed,
    /// Not a WebSocket frame.
    Protocol,
    /// A text message that is not UTF-8.
    NotText,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::Goodbye,
        Self::TooSlow,
        Self::Restarting,
        Self::Flooding,
        Self::SignedOut,
        Self::TooBig,
        Self::Failed,
        Self::Protocol,
        Self::NotText,
    ];

    /// The code on the wire.
    pub fn code(self) -> u16 {
        match self {
            Reason::Goodbye => 1000,
            Reason::TooSlow => 4408,
            Reason::Restarting => 4412,
            Reason::Flooding => 4429,
            Reason::SignedOut => 4501,
            Reason::TooBig => 1009,
            Reason::Failed => 1011,
            Reason::Protocol => 1002,
            Reason::NotText => 1007,
        }
    }

    /// The words on the wire.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Goodbye => "goodbye",
            Reason::TooSlow => "too slow",
            Reason::Restarting => "service restarting",
            Reason::Flooding => "too many messages",
            Reason::SignedOut => "signed out",
            Reason::TooBig => "message too big",
            Reason::Failed => "internal error",
            Reason::Protocol => "protocol error",
            Reason::NotText => "not UTF-8",
        }
    }

    /// The close frame.
    pub fn frame(self) -> Bytes {
        let mut frame = BytesMut::new();
        let reason = CloseReason { code: CloseCode::from(self.code()), description: Some(self.text().into()) };
        Parser::write_close(&mut frame, Some(reason), false);
        frame.freeze()
    }
}

/// The answer to the peer's close frame: its own code, and none where it gave none (RFC 6455, 5.5.1), so that a client
/// gets back the code with which it closed.
pub fn answer(said: Option<CloseReason>) -> Bytes {
    let mut frame = BytesMut::new();
    Parser::write_close(&mut frame, said.map(|CloseReason { code, .. }| code.into()), false);
    frame.freeze()
}

/// A ping without a payload.
pub const PING: Bytes = Bytes::from_static(&[0x89, 0]);

/// The answer to a ping.
pub fn pong(payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    Parser::write_message(&mut frame, payload, OpCode::Pong, true, false);
    frame.freeze()
}
