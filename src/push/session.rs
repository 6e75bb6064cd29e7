//! One push session: whatever Google's MCS delivers after the login, until either side ends it.
//!
//! No task and no policy: the caller asks for the next event, and reports when it has stored a message; only then is
//! that acknowledged, with all before it. A message that was not acknowledged comes again at a later login.

use std::{collections::VecDeque, fmt, io, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    select,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    domain::plain_text::plain_text,
    net::SecureStream,
    push::{
        mcs::{Decoder, Frame, FrameError, VERSION},
        message::PushMessage,
        session_status::SessionFault,
        wire::{Extension, HeartbeatAck, HeartbeatPing, IqStanza, iq_stanza},
    },
};

/// A write that the push service does not read for this long ends the session.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// Without a frame for this long a heartbeat of ours asks for a sign of life.
const QUIET: Duration = Duration::from_secs(90);
/// Without a frame for this long after it the session is dead, whatever TCP believes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// A burst is acknowledged in portions of this many messages.
const MESSAGES_PER_ACK: u32 = 10;
/// Bytes of the read buffer of an idle session.
const IDLE_BUFFER: usize = 1024;
/// Extension of an [`IqStanza`] that acknowledges what was received.
const STREAM_ACK: i32 = 13;

/// Cause of a session's end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    #[error("the push service closed the connection")]
    Closed,
    /// Another session for the same credential began, for example.
    #[error("the push service reports a stream error: {0}")]
    StreamError(String),
    #[error("a heartbeat was not answered")]
    Silent,
    #[error("the push service has stopped reading")]
    Stuck,
    #[error("the connection broke: {0}")]
    Broken(io::ErrorKind),
    #[error("what came is not the protocol: {0}")]
    Protocol(#[from] FrameError),
}

impl SessionEnd {
    /// The cause in fixed words.
    pub fn fault(&self) -> SessionFault {
        match self {
            Self::Closed | Self::StreamError(_) => SessionFault::Closed,
            Self::Silent | Self::Stuck => SessionFault::Silent,
            Self::Broken(_) => SessionFault::ConnectionBroke,
            Self::Protocol(_) => SessionFault::Protocol,
        }
    }
}

/// Event from the push service.
#[derive(Debug)]
pub enum Received {
    /// To be acknowledged once it is [`stored`](McsSession::stored).
    Message(PushMessage, PushReceipt),
    /// A message that cannot be read; it will not come again.
    Unreadable,
    /// A ping, or the answer to one of ours.
    Heartbeat,
}

/// Identifies a message of a session: the number of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PushReceipt(i32);

/// A session that is logged in; dropping it closes the connection.
pub struct McsSession<S = SecureStream> {
    stream: S,
    decoder: Decoder,
    inbox: BytesMut,
    outbox: BytesMut,
    /// Until when the outbox must be written; `None` while there is nothing to write.
    write_by: Option<Instant>,
    /// Frames received, the login's answer included.
    received: i32,
    /// Messages given to the caller that are not stored yet, in the order in which they came.
    unstored: VecDeque<PushReceipt>,
    /// Messages stored, or not readable, since the last acknowledgement.
    unacknowledged: u32,
    last_frame_at: Instant,
    /// Until when our heartbeat must be answered; `None` while none is on its way.
    answer_by: Option<Instant>,
}

impl<S> fmt::Debug for McsSession<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McsSession").field("received", &self.received).finish_non_exhaustive()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> McsSession<S> {
    /// Writes the protocol's version first; the login comes next.
    pub(super) fn new(stream: S) -> Self {
        let mut outbox = BytesMut::new();
        outbox.put_u8(VERSION);
        Self {
            stream,
            decoder: Decoder::default(),
            inbox: BytesMut::new(),
            outbox,
            write_by: None,
            received: 0,
            unstored: VecDeque::new(),
            unacknowledged: 0,
            last_frame_at: Instant::now(),
            answer_by: None,
        }
    }

    /// Sends a frame and returns the next one that comes.
    pub(super) async fn ask(&mut self, frame: Frame) -> Result<Frame, SessionEnd> {
        self.send(frame);
        self.flush().await?;
        loop {
            if let Some(frame) = self.decode()? {
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    /// Marks a message as stored: a later call of [`next`](Self::next) acknowledges it once all before it are stored.
    pub fn stored(&mut self, receipt: PushReceipt) {
        if let Ok(place) = self.unstored.binary_search(&receipt) {
            self.unstored.remove(place);
            self.unacknowledged += 1;
        }
    }

    /// Waits for the next event, and acknowledges what is stored. The future may be dropped at any time without losing
    /// anything, but heartbeats and deadlines wait until the next call. After an error the session is over.
    pub async fn next(&mut self) -> Result<Received, SessionEnd> {
        loop {
            if self.unacknowledged >= MESSAGES_PER_ACK {
                self.acknowledge();
            }
            self.flush().await?;
            match self.decode()? {
                Some(frame) => {
                    if let Some(received) = self.handle(frame)? {
                        return Ok(received);
                    }
                }
                None if self.unacknowledged > 0 && self.unstored.is_empty() => self.acknowledge(),
                None => self.read().await?,
            }
        }
    }

    fn handle(&mut self, frame: Frame) -> Result<Option<Received>, SessionEnd> {
        Ok(match frame {
            Frame::DataMessage(stanza) => {
                let receipt = PushReceipt(self.received);
                self.unstored.push_back(receipt);
                Some(Received::Message(stanza.into(), receipt))
            }
            Frame::Unreadable(_) => {
                self.unacknowledged += 1;
                Some(Received::Unreadable)
            }
            Frame::HeartbeatPing(_) => {
                let last_stream_id_received = Some(self.acknowledgeable());
                self.send(Frame::HeartbeatAck(HeartbeatAck { last_stream_id_received, ..HeartbeatAck::default() }));
                Some(Received::Heartbeat)
            }
            Frame::HeartbeatAck(_) => Some(Received::Heartbeat),
            Frame::Close => return Err(SessionEnd::Closed),
            Frame::StreamError(error) => return Err(SessionEnd::StreamError(plain_text(&error.r#type, 64))),
            Frame::IqStanza(_) | Frame::Other(_) | Frame::LoginRequest(_) | Frame::LoginResponse(_) => None,
        })
    }

    fn decode(&mut self) -> Result<Option<Frame>, SessionEnd> {
        let frame = self.decoder.next(&mut self.inbox)?;
        if frame.is_some() {
            self.received = self.received.saturating_add(1);
            self.last_frame_at = Instant::now();
            self.answer_by = None;
        }
        Ok(frame)
    }

    fn acknowledge(&mut self) {
        self.unacknowledged = 0;
        self.send(Frame::IqStanza(IqStanza {
            r#type: iq_stanza::Type::Set.into(),
            extension: Some(Extension { id: STREAM_ACK, data: Bytes::new() }),
            last_stream_id_received: Some(self.acknowledgeable()),
            ..IqStanza::default()
        }));
    }

    /// The frame up to which no message is unstored: whatever names a frame to the push service acknowledges it.
    fn acknowledgeable(&self) -> i32 {
        self.unstored.front().map_or(self.received, |PushReceipt(first)| first - 1)
    }

    /// Puts a frame into the outbox.
    fn send(&mut self, frame: Frame) {
        frame.encode(&mut self.outbox);
        self.write_by.get_or_insert_with(|| Instant::now() + WRITE_DEADLINE);
    }

    async fn flush(&mut self) -> Result<(), SessionEnd> {
        let Some(by) = self.write_by else { return Ok(()) };
        let write = async {
            while !self.outbox.is_empty() {
                if self.stream.write_buf(&mut self.outbox).await? == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            self.stream.flush().await
        };
        timeout_at(by, write)
            .await
            .map_err(|_| SessionEnd::Stuck)?
            .map_err(|error| SessionEnd::Broken(error.kind()))?;
        self.outbox = BytesMut::new();
        self.write_by = None;
        Ok(())
    }

    /// Reads some bytes, or does what is due while there are none.
    async fn read(&mut self) -> Result<(), SessionEnd> {
        if self.inbox.is_empty() {
            // A session waits nearly always, and thousands wait: memory for a large message is given back.
            self.inbox = BytesMut::with_capacity(IDLE_BUFFER);
        } else {
            self.inbox.reserve(self.inbox.len());
        }
        let due = self.answer_by.unwrap_or(self.last_frame_at + QUIET);
        select! {
            biased;
            read = self.stream.read_buf(&mut self.inbox) => match read {
                Ok(0) => Err(SessionEnd::Closed),
                Ok(_) => Ok(()),
                // This is how TLS reports that the peer closed the connection without a TLS alert.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(SessionEnd::Closed),
                Err(error) => Err(SessionEnd::Broken(error.kind())),
            },
            () = sleep_until(due) => {
                if self.answer_by.is_some() {
                    return Err(SessionEnd::Silent);
                }
                self.answer_by = Some(Instant::now() + ANSWER_DEADLINE);
                let last_stream_id_received = Some(self.acknowledgeable());
                self.send(Frame::HeartbeatPing(HeartbeatPing { last_stream_id_received, ..HeartbeatPing::default() }));
                // `next` writes the outbox before it reads on, also within a frame.
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::duplex,
        time::{sleep, timeout},
    };

    use super::*;
    use crate::push::{
        login::log_in,
        testing::{Service, ack, bytes, logged_in, login, message, ping, title},
        wire::{LoginResponse, StreamErrorStanza},
    };

    #[tokio::test(start_paused = true)]
    async fn a_message_is_acknowledged_when_it_is_stored() {
        let (mut session, mut service) = logged_in().await;
        service.send(&[message(1)]).await;
        let Received::Message(first, receipt) = session.next().await.expect("a message") else { panic!("no message") };
        assert_eq!(first.app_data[0].1, "1");
        // Not stored yet: nothing is acknowledged, though the next is asked for.
        assert!(timeout(Duration::from_secs(60), session.next()).await.is_err());
        assert!(timeout(Duration::from_secs(20), service.received()).await.is_err());
        session.stored(receipt);
        let mut later = tokio::spawn(async move { session.next().await.map(title) });
        assert_eq!(service.received().await, ack(2));
        assert!(timeout(Duration::from_secs(20), &mut later).await.is_err(), "nothing else came");
        service.send(&[message(2)]).await;
        assert_eq!(later.await.expect("no panic"), Ok("2".to_owned()));
    }

    /// The title of a message, which is stored now.
    fn stored<S: AsyncRead + AsyncWrite + Unpin>(session: &mut McsSession<S>, received: Received) -> String {
        if let Received::Message(_, receipt) = &received {
            session.stored(*receipt);
        }
        title(received)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_that_is_sent_covers_a_message_that_is_not_stored() {
        let (mut session, mut service) = logged_in().await;
        let burst: Vec<Frame> = (1..=12).map(message).collect();
        service.send(&burst).await;
        let mut receipts = Vec::new();
        for _ in 1..=12 {
            let Ok(Received::Message(_, receipt)) = session.next().await else { panic!("no message") };
            receipts.push(receipt);
        }
        // All but the second are stored: the login and the first message are two frames.
        receipts.iter().filter(|receipt| **receipt != receipts[1]).for_each(|receipt| session.stored(*receipt));
        service.send(&[ping(1)]).await;
        assert!(matches!(session.next().await, Ok(Received::Heartbeat)));
        assert_eq!(service.received_beside(&mut session).await, ack(2));
        let expected = HeartbeatAck { last_stream_id_received: Some(2), ..HeartbeatAck::default() };
        assert_eq!(service.received_beside(&mut session).await, Frame::HeartbeatAck(expected));
        assert_eq!(service.received_beside(&mut session).await, ping(2), "our own heartbeat");
        session.stored(receipts[1]);
        assert_eq!(service.received_beside(&mut session).await, ack(14));
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_acknowledged_in_portions_of_what_was_handled() {
        let (mut session, mut service) = logged_in().await;
        let burst: Vec<Frame> = (1..=25).map(message).collect();
        service.send(&burst).await;
        let reading = tokio::spawn(async move {
            let mut titles = Vec::new();
            while let Ok(received) = session.next().await {
                titles.push(stored(&mut session, received));
            }
            titles
        });
        for received in [11, 21, 26] {
            assert_eq!(service.received().await, ack(received));
        }
        service.send(&[Frame::Close]).await;
        assert_eq!(reading.await.expect("no panic"), (1..=25).map(|id| id.to_string()).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_cannot_be_read_is_reported_and_acknowledged() {
        let (mut session, mut service) = logged_in().await;
        service.stream.write_all(&[8, 3, 0x1a, 9, b'a']).await.expect("a reader");
        assert!(matches!(session.next().await, Ok(Received::Unreadable)));
        service.send(&[message(1)]).await;
        let received = session.next().await.expect("a message");
        assert_eq!(stored(&mut session, received), "1");
        let ending = tokio::spawn(async move { session.next().await.map(title) });
        assert_eq!(service.received().await, ack(2));
        assert_eq!(service.received().await, ack(3));
        service.send(&[Frame::Close]).await;
        assert_eq!(ending.await.expect("no panic"), Err(SessionEnd::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_dropped_loses_nothing() {
        let (mut session, mut service) = logged_in().await;
        let whole = bytes(message(7));
        for byte in &whole[..whole.len() - 1] {
            service.stream.write_all(&[*byte]).await.expect("a reader");
            assert!(timeout(Duration::from_millis(1), session.next()).await.is_err());
        }
        service.stream.write_all(&whole[whole.len() - 1..]).await.expect("a reader");
        assert_eq!(title(session.next().await.expect("a message")), "7");
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_are_answered_and_reported() {
        let (mut session, mut service) = logged_in().await;
        service.send(&[ping(1)]).await;
        assert!(matches!(session.next().await, Ok(Received::Heartbeat)));
        tokio::spawn(async move { session.next().await.map(title) });
        let expected = HeartbeatAck { last_stream_id_received: Some(2), ..HeartbeatAck::default() };
        assert_eq!(service.received().await, Frame::HeartbeatAck(expected));
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_heartbeat_leaves_when_nothing_came_for_90_seconds() {
        let (mut session, mut service) = logged_in().await;
        let began = Instant::now();
        let beating = tokio::spawn(async move {
            for _ in 0..5 {
                assert!(matches!(session.next().await, Ok(Received::Heartbeat)));
            }
        });
        for beat in 1..=5 {
            // Whatever comes is a sign of life.
            sleep(Duration::from_secs(60)).await;
            service.send(&[Frame::Other(5)]).await;
            assert_eq!(service.received().await, ping(2 * i32::try_from(beat).expect("small")));
            assert_eq!(began.elapsed().as_secs(), 150 * beat);
            service.send(&[Frame::HeartbeatAck(HeartbeatAck::default())]).await;
        }
        beating.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_heartbeat_ends_it_after_30_seconds() {
        let (mut session, mut service) = logged_in().await;
        service.send(&[Frame::Other(5)]).await;
        // Half a frame is no sign of life.
        service.stream.write_all(&[8, 100, 0]).await.expect("a reader");
        let began = Instant::now();
        assert_eq!(session.next().await.map(title), Err(SessionEnd::Silent));
        assert_eq!(began.elapsed().as_secs(), 90 + 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_ends_it() {
        let (ours, theirs) = duplex(256);
        let mut service = Service::new(theirs);
        let answering = async {
            service.received().await;
            service
                .stream
                .write_all(&[&[VERSION][..], &bytes(Frame::LoginResponse(LoginResponse::default()))].concat())
                .await
                .expect("a reader");
        };
        let (session, ()) = tokio::join!(log_in(ours, login()), answering);
        let mut session = session.expect("a session");
        // Each ping gets an answer longer than itself, and the answers are not read.
        tokio::spawn(async move {
            while service.stream.write_all(&bytes(Frame::HeartbeatPing(HeartbeatPing::default()))).await.is_ok() {}
            // Keeps the connection until the test is over.
            std::future::pending::<()>().await;
        });
        let began = Instant::now();
        let ended = loop {
            match session.next().await {
                Ok(received) => assert!(matches!(received, Received::Heartbeat)),
                Err(ended) => break ended,
            }
        };
        assert_eq!((ended, began.elapsed().as_secs()), (SessionEnd::Stuck, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn every_end_is_reported_by_its_name() {
        let stream_error = StreamErrorStanza { r#type: "conflict".into(), text: Some("no".into()) };
        for (sent, end) in [
            (bytes(Frame::Close), SessionEnd::Closed),
            (vec![], SessionEnd::Closed),
            (vec![8, 100, 1], SessionEnd::Closed),
            (bytes(Frame::StreamError(stream_error)), SessionEnd::StreamError("conflict".to_owned())),
            (vec![8, 0x81, 0x80, 0x10], SessionEnd::Protocol(FrameError::TooLarge(256 * 1024 + 1))),
            (vec![8, 0xff, 0xff, 0xff, 0xff, 0xff], SessionEnd::Protocol(FrameError::Length)),
        ] {
            let (mut session, mut service) = logged_in().await;
            service.stream.write_all(&sent).await.expect("a reader");
            drop(service);
            assert_eq!(session.next().await.map(title), Err(end));
        }
    }
}
