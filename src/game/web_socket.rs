//! The WebSocket of a game link: a client's end (RFC 6455) that holds no buffer while it waits.
//!
//! Thousands of links wait nearly all of the time, so each message is read into memory of just its size, which is
//! freed with it. The caller limits the size of each message: one whose head states a larger size is an error before
//! it is read.
//!
//! Whole ends of tungstenite (0.30) keep the room of the largest message for good: with the smallest buffer 5 KiB each
//! after an answer of 5 KB, which takes 20 reads, with one of 4 KiB 9 KiB and 2 reads, and 2 MB after a map of 2 MB in
//! any case. A link takes 28 KiB in all (`docs/sizing.md`).

use std::{
    fmt,
    future::{Future as _, poll_fn},
    io::{self, Cursor},
    mem::{MaybeUninit, take},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use actix_http::ws::{OpCode, Parser};
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio_tungstenite::tungstenite::{
    client::IntoClientRequest,
    error::{Error, ProtocolError},
    handshake::{
        client::{Response, generate_request},
        derive_accept_key,
        machine::TryParse as _,
    },
    http::StatusCode,
    protocol::frame::{
        FrameHeader,
        coding::{Control, Data, OpCode as Kind},
    },
};
use tokio_util::either::Either;

use crate::net::{SecureStream, Stream};

/// Bytes asked from the kernel at a time.
const READ_SIZE: usize = 16 * 1024;
/// Bytes of the answer to the handshake.
const LARGEST_ANSWER: usize = 16 * 1024;
/// Bytes of a control frame's payload.
const CONTROL_LIMIT: usize = 125;
/// Bytes of heads and control frames from one message to the next.
const SLACK: usize = 64 * 1024;

/// The stream below: to a game server in the clear, to a proxy within TLS.
pub type Transport = Either<Stream, SecureStream>;

/// See the module.
#[derive(Debug)]
pub struct WebSocket {
    stream: Transport,
    /// Read and not taken yet; without memory when empty.
    unread: BytesMut,
    /// A message of which more parts come; true if it is binary.
    begun: Option<(bool, BytesMut)>,
    /// Bytes of heads and control frames since the last message.
    beside: usize,
}

/// Message of the peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    Binary(Bytes),
    /// To be answered with a pong of the same bytes.
    Ping(Bytes),
    /// A text message, which the protocol has no use for, or a pong.
    Other,
    Close,
}

/// Failure after which nothing more is received.
#[derive(Debug)]
pub enum ReceiveError {
    /// A message is larger than it may be.
    TooLarge,
    /// The bytes are not of the protocol.
    Malformed(&'static str),
    Io(io::Error),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("a message is too large"),
            Self::Malformed(what) => f.write_str(what),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl WebSocket {
    /// Makes the handshake on a stream that is connected.
    pub async fn open(mut stream: Transport, url: &str) -> Result<Self, Error> {
        let (request, key) = generate_request(url.into_client_request()?)?;
        stream.write_all(&request).await?;
        stream.flush().await?;
        let mut answer = BytesMut::new();
        loop {
            if let Some((size, response)) = Response::try_parse(&answer)? {
                check(&response, &key)?;
                let unread = BytesMut::from(&answer[size..]);
                return Ok(Self { stream, unread, begun: None, beside: 0 });
            }
            if answer.len() > LARGEST_ANSWER || stream.read_buf(&mut answer).await? == 0 {
                return Err(ProtocolError::HandshakeIncomplete.into());
            }
        }
    }

    /// The next message, of at most `limit` bytes. No byte is lost when this is dropped before it is ready.
    pub async fn next(&mut self, limit: usize) -> Result<Incoming, ReceiveError> {
        loop {
            if let Some(received) = self.take(limit)? {
                return Ok(received);
            }
            if poll_fn(|cx| self.poll_read(cx)).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// Reads what has arrived; 0 at the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // The rest of a frame goes to where it belongs.
        if self.unread.capacity() > self.unread.len() {
            return pin!(self.stream.read_buf(&mut self.unread)).poll(cx);
        }
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut read = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        self.unread.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Takes the next frame out of what is read; `None` if more must be read for it, or for the message it is a part
    /// of.
    fn take(&mut self, limit: usize) -> Result<Option<Incoming>, ReceiveError> {
        loop {
            let Some((head, frame)) = self.take_frame(limit)? else { return Ok(None) };
            return Ok(Some(match head.opcode {
                Kind::Control(Control::Ping) => Incoming::Ping(frame.freeze()),
                Kind::Control(Control::Close) => Incoming::Close,
                Kind::Control(_) => Incoming::Other,
                Kind::Data(kind) => {
                    let (is_binary, message) = match (self.begun.take(), kind) {
                        (None, Data::Continue) => return Err(ReceiveError::Malformed("a part of no message")),
                        (None, kind) => (kind == Data::Binary, frame),
                        (Some((is_binary, mut begun)), Data::Continue) => {
                            begun.extend_from_slice(&frame);
                            (is_binary, begun)
                        }
                        (Some(_), _) => return Err(ReceiveError::Malformed("a message within another")),
                    };
                    if !head.is_final {
                        self.begun = Some((is_binary, message));
                        continue;
                    }
                    self.beside = 0;
                    if is_binary { Incoming::Binary(message.freeze()) } else { Incoming::Other }
                }
            }));
        }
    }

    /// Takes the next frame, if all of it is read.
    fn take_frame(&mut self, limit: usize) -> Result<Option<(FrameHeader, BytesMut)>, ReceiveError> {
        let mut cursor = Cursor::new(&self.unread[..]);
        let head = FrameHeader::parse(&mut cursor).map_err(|_| ReceiveError::Malformed("a frame of no kind"))?;
        let begin = cursor.position() as usize;
        let Some((head, length)) = head else { return Ok(None) };
        if head.mask.is_some() || head.rsv1 || head.rsv2 || head.rsv3 {
            return Err(ReceiveError::Malformed("a frame that no server sends"));
        }
        let is_control = matches!(head.opcode, Kind::Control(_));
        if is_control && (!head.is_final || length > CONTROL_LIMIT as u64) {
            return Err(ReceiveError::Malformed("a control frame that is none"));
        }
        let begun = self.begun.as_ref().map_or(0, |(_, begun)| begun.len());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let beside = self.beside + begin + if is_control { length } else { 0 };
        if beside > SLACK || (!is_control && length > limit.saturating_sub(begun)) {
            return Err(ReceiveError::TooLarge);
        }
        let end = begin + length;
        if self.unread.len() < end {
            // Room for the rest, but never for much more than what came: a peer may announce more than it sends.
            let rest = end - self.unread.len();
            self.unread.reserve(rest.min(self.unread.len().max(READ_SIZE)));
            return Ok(None);
        }
        self.beside = beside;
        // The bytes behind neither hold the memory of a large frame, nor are copied for each of many small ones.
        let mut frame = match self.unread.len() - end {
            0 => take(&mut self.unread),
            rest if rest < end => {
                let rest = BytesMut::from(&self.unread[end..]);
                let mut frame = std::mem::replace(&mut self.unread, rest);
                frame.truncate(end);
                frame
            }
            _ => {
                let frame = BytesMut::from(&self.unread[..end]);
                self.unread.advance(end);
                frame
            }
        };
        frame.advance(begin);
        Ok(Some((head, frame)))
    }

    /// Sends binary messages, in one go.
    pub async fn send(&mut self, messages: impl IntoIterator<Item = Vec<u8>>) -> io::Result<()> {
        let mut frames = BytesMut::new();
        messages.into_iter().for_each(|message| write_frame(&mut frames, OpCode::Binary, &message));
        self.write(&frames).await
    }

    /// Asks for a sign of life.
    pub async fn ping(&mut self) -> io::Result<()> {
        self.write_control(OpCode::Ping, &[]).await
    }

    /// Answers a ping.
    pub async fn pong(&mut self, payload: &[u8]) -> io::Result<()> {
        self.write_control(OpCode::Pong, payload).await
    }

    /// Sends a close frame.
    pub async fn close(&mut self) -> io::Result<()> {
        self.write_control(OpCode::Close, &[]).await
    }

    async fn write_control(&mut self, kind: OpCode, payload: &[u8]) -> io::Result<()> {
        let mut frame = BytesMut::new();
        write_frame(&mut frame, kind, payload);
        self.write(&frame).await
    }

    async fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames).await?;
        self.stream.flush().await
    }
}

/// Writes a frame as clients do: masked.
fn write_frame(frames: &mut BytesMut, kind: OpCode, payload: &[u8]) {
    Parser::write_message(frames, payload, kind, true, true);
}

/// Checks the answer to the handshake (RFC 6455 §4.1).
fn check(response: &Response, key: &str) -> Result<(), Error> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Error::Http(Box::new(response.clone())));
    }
    let is = |name, expected: &str| {
        response.headers().get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(expected.as_bytes()))
    };
    if !is("upgrade", "websocket") {
        return Err(ProtocolError::MissingUpgradeWebSocketHeader.into());
    }
    if !is("connection", "upgrade") {
        return Err(ProtocolError::MissingConnectionUpgradeHeader.into());
    }
    let accept = response.headers().get("sec-websocket-accept");
    if accept.is_none_or(|accept| accept.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(ProtocolError::SecWebSocketAcceptKeyMismatch.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Memory;

    /// A socket after its handshake, and its peer's end.
    fn socket() -> (WebSocket, Memory) {
        let (ours, theirs) = Memory::pair(1 << 20);
        let stream = Either::Left(ours.into());
        (WebSocket { stream, unread: BytesMut::new(), begun: None, beside: 0 }, theirs)
    }

    fn frame(kind: OpCode, payload: &[u8], is_final: bool) -> BytesMut {
        let mut frame = BytesMut::new();
        Parser::write_message(&mut frame, payload, kind, is_final, false);
        frame
    }

    /// Messages received from these bytes, however they are cut, and the error at their end.
    async fn receive(bytes: &[u8], limit: usize) -> (Vec<Incoming>, ReceiveError) {
        let mut outcomes = Vec::new();
        for piece in [1, 3, bytes.len().max(1)] {
            let (mut socket, peer) = socket();
            let mut received = Vec::new();
            let mut pieces = bytes.chunks(piece);
            let error = loop {
                tokio::select! {
                    biased;
                    next = socket.next(limit) => match next {
                        Ok(next) => received.push(next),
                        Err(error) => break error,
                    },
                    () = std::future::ready(()) => match pieces.next() {
                        Some(piece) => assert_eq!(peer.try_write(piece).unwrap(), piece.len()),
                        None => peer.shutdown_write(),
                    },
                }
            };
            outcomes.push((received, error));
        }
        assert!(
            outcomes.iter().all(|(received, error)| {
                (received, error.to_string()) == (&outcomes[0].0, outcomes[0].1.to_string())
            })
        );
        outcomes.swap_remove(0)
    }

    #[tokio::test]
    async fn messages_come_whole_with_control_frames_between_their_parts() {
        let bytes = [
            frame(OpCode::Binary, b"one", true),
            frame(OpCode::Binary, b"t", false),
            frame(OpCode::Ping, b"?", true),
            frame(OpCode::Continue, b"", false),
            frame(OpCode::Continue, b"wo", true),
            frame(OpCode::Text, b"text", true),
            frame(OpCode::Close, &1000_u16.to_be_bytes(), true),
        ]
        .concat();
        let (received, error) = receive(&bytes, 3).await;
        let binary = |text: &'static [u8]| Incoming::Binary(text.into());
        assert!(matches!(error, ReceiveError::TooLarge), "the text");
        assert_eq!(received, [binary(b"one"), Incoming::Ping(b"?"[..].into()), binary(b"two")]);
        let (received, error) = receive(&bytes, 4).await;
        assert!(matches!(error, ReceiveError::Io(_)));
        assert_eq!(received[3..], [Incoming::Other, Incoming::Close]);
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_is_refused_by_its_head() {
        let head = [0x82, 127, 0, 0, 0, 0, 1, 0, 0, 0];
        assert!(matches!(receive(&head, 1 << 20).await, (none, ReceiveError::TooLarge) if none.is_empty()));
        let parts = [frame(OpCode::Binary, &[0; 60], false), frame(OpCode::Continue, &[0; 60], false)].concat();
        assert!(matches!(receive(&parts, 100).await, (none, ReceiveError::TooLarge) if none.is_empty()));
        let endless = frame(OpCode::Continue, &[], false).repeat(SLACK);
        let endless = [frame(OpCode::Binary, &[], false).to_vec(), endless].concat();
        let (mut socket, peer) = socket();
        peer.try_write(&endless).unwrap();
        assert!(matches!(socket.next(100).await, Err(ReceiveError::TooLarge)), "parts without end");
    }

    #[tokio::test]
    async fn what_no_server_sends_is_refused() {
        let mut masked = BytesMut::new();
        Parser::write_message(&mut masked, b"x", OpCode::Binary, true, true);
        let within = [frame(OpCode::Binary, b"x", false), frame(OpCode::Binary, b"x", true)].concat();
        for bytes in [
            &masked[..],
            &within,
            &frame(OpCode::Continue, b"x", true),
            &frame(OpCode::Ping, b"x", false),
            &frame(OpCode::Ping, &[0; 126], true),
            &[0xc2, 0x00],
            &[0x83, 0x00],
        ] {
            let (received, error) = receive(bytes, 100).await;
            assert!(matches!(error, ReceiveError::Malformed(_)) && received.is_empty(), "{bytes:?}: {error:?}");
        }
    }

    #[tokio::test]
    async fn no_memory_is_held_while_nothing_is_half_read() {
        let (mut socket, peer) = socket();
        let large = frame(OpCode::Binary, &vec![7; 500_000], true);
        peer.try_write(&large).unwrap();
        peer.try_write(&[0x82]).unwrap();
        let message = socket.next(1 << 20).await.unwrap();
        assert!(matches!(message, Incoming::Binary(message) if message.len() == 500_000));
        assert!(tokio::time::timeout(std::time::Duration::ZERO, socket.next(9)).await.is_err());
        assert!(socket.unread.capacity() < 2 * READ_SIZE, "the next head has begun");
        peer.try_write(&[1, 7]).unwrap();
        assert_eq!(socket.next(9).await.unwrap(), Incoming::Binary([7][..].into()));
        assert_eq!(socket.unread.capacity(), 0);
    }
}
