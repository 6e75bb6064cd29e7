//! One push session: a login at Google's MCS, then whatever is pushed, until either side ends it.
//!
//! No task and no policy: the caller asks for what comes next, and says by asking again that it has dealt with what came
//! before; only then is that acknowledged. What was not acknowledged comes again at a later login.

use std::{fmt, io, sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use chrono::DateTime;
use rustls::{ClientConfig, pki_types::ServerName};
use secrecy::{ExposeSecret as _, SecretBox};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    select,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    config::PushAddress,
    domain::{plain_text::plain_text, time::Timestamp},
    push::{
        mcs::{Decoder, Frame, FrameError, VERSION},
        wire::{
            DataMessageStanza, Extension, HeartbeatAck, HeartbeatPing, IqStanza, LoginRequest, LoginResponse, Setting,
            iq_stanza,
        },
    },
};

/// Resolving, connecting, TLS and the login, together.
const LOGIN_DEADLINE: Duration = Duration::from_secs(15);
/// A write that the peer does not take ends the session.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// Between two heartbeats of ours.
const PING_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Without a frame for this long the session is dead, whatever TCP believes.
const SILENCE: Duration = Duration::from_secs(12 * 60);
/// A burst is acknowledged in portions of this many messages.
const MESSAGES_PER_ACK: u32 = 10;
/// Bytes kept to read into while nothing comes.
const IDLE_BUFFER: usize = 1024;
/// Ids that one login names.
pub const RECEIVED_IDS: usize = 1000;
/// Bytes of a persistent id; Google's have about 40.
const PERSISTENT_ID: usize = 256;
/// Extension of an [`IqStanza`] that acknowledges what was received.
const STREAM_ACK: i32 = 13;
/// What the login is checked against: an Android id and its token.
const ANDROID_ID: i32 = 2;

/// Whose pushes.
pub struct Login {
    pub android_id: u64,
    pub security_token: SecretBox<u64>,
    /// Persistent ids that need not come again, the newest first; [`RECEIVED_IDS`] of them are sent.
    pub received: Vec<String>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no connection: {0}")]
    Unreachable(String),
    #[error("no answer in time")]
    TimedOut,
    /// The credential is dead; its owner has to register anew.
    #[error("the login is refused (code {0})")]
    Refused(i32),
    /// A fault of the push service (5xx), which says nothing about the credential.
    #[error("the push service is out of order (code {0})")]
    OutOfOrder(i32),
    #[error("the answer is not the protocol: {0}")]
    Protocol(String),
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    #[error("the push service closed the connection")]
    Closed,
    /// Another session for the same credential began, for example.
    #[error("the push service reports a stream error: {0}")]
    StreamError(String),
    #[error("nothing came for 12 minutes")]
    Silent,
    #[error("the push service takes nothing more")]
    Stuck,
    #[error("the connection broke: {0}")]
    Broken(io::ErrorKind),
    #[error("what came is not the protocol: {0}")]
    Protocol(#[from] FrameError),
}

/// What came.
#[derive(Debug)]
pub enum Received {
    Message(Message),
    /// A message that cannot be read; it will not come again.
    Unreadable,
    /// A sign of life.
    Heartbeat,
}

/// A push. It may hold secrets, and `Debug` keeps them.
#[derive(Clone)]
pub struct Message {
    /// By which a message that comes again is known; `None` if absent or longer than any of Google's.
    pub persistent_id: Option<String>,
    /// When it was sent; it may have waited for four weeks.
    pub sent: Option<Timestamp>,
    /// The keys and values that [`Notification::read`](super::notification::Notification::read) reads.
    pub app_data: Vec<(String, String)>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("persistent_id", &self.persistent_id)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl From<DataMessageStanza> for Message {
    fn from(stanza: DataMessageStanza) -> Self {
        Self {
            persistent_id: stanza.persistent_id.filter(|id| !id.is_empty() && id.len() <= PERSISTENT_ID),
            sent: stanza.sent.filter(|sent| *sent > 0).and_then(DateTime::from_timestamp_millis),
            app_data: stanza.app_data.into_iter().map(|data| (data.key, data.value)).collect(),
        }
    }
}

/// A session that is logged in; dropping it closes the connection.
pub struct Session<S = TlsStream<TcpStream>> {
    stream: S,
    decoder: Decoder,
    inbox: BytesMut,
    outbox: BytesMut,
    /// Until when the outbox must be taken; `None` while there is nothing to write.
    write_by: Option<Instant>,
    /// Frames received, the login's answer included.
    received: i32,
    /// Messages handed over since the last acknowledgement.
    unacknowledged: u32,
    heard: Instant,
    ping_at: Instant,
}

impl<S> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("received", &self.received).finish_non_exhaustive()
    }
}

impl Session {
    /// Connects and logs in, in 15 seconds or not at all.
    pub async fn connect(address: &PushAddress, tls: Arc<ClientConfig>, login: Login) -> Result<Self, ConnectError> {
        let open = async {
            let name = ServerName::try_from(address.host.clone());
            let name = name.map_err(|_| ConnectError::Unreachable("no such host name".to_owned()))?;
            let unreachable = |error: io::Error| ConnectError::Unreachable(error.to_string());
            let socket = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(unreachable)?;
            socket.set_nodelay(true).map_err(unreachable)?;
            let stream = TlsConnector::from(tls).connect(name, socket).await.map_err(unreachable)?;
            Session::log_in(stream, login).await
        };
        timeout(LOGIN_DEADLINE, open).await.map_err(|_| ConnectError::TimedOut)?
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    async fn log_in(stream: S, login: Login) -> Result<Self, ConnectError> {
        let now = Instant::now();
        let mut session = Self {
            stream,
            decoder: Decoder::default(),
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            write_by: None,
            received: 0,
            unacknowledged: 0,
            heard: now,
            ping_at: now + PING_INTERVAL,
        };
        session.outbox.put_u8(VERSION);
        session.send(Frame::LoginRequest(request(login)));
        match session.answer().await {
            Ok(Frame::LoginResponse(LoginResponse { error: None, .. })) => Ok(session),
            Ok(Frame::LoginResponse(LoginResponse { error: Some(error), .. })) => Err(match error.code {
                500..=599 => ConnectError::OutOfOrder(error.code),
                code => ConnectError::Refused(code),
            }),
            Ok(Frame::Close | Frame::StreamError(_)) => Err(ConnectError::Unreachable(Ended::Closed.to_string())),
            Ok(_) => Err(ConnectError::Protocol("the login is not answered first".to_owned())),
            Err(Ended::Protocol(error)) => Err(ConnectError::Protocol(error.to_string())),
            Err(ended) => Err(ConnectError::Unreachable(ended.to_string())),
        }
    }

    async fn answer(&mut self) -> Result<Frame, Ended> {
        self.flush().await?;
        loop {
            if let Some(frame) = self.decode()? {
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    /// Waits for what comes next; the call acknowledges what came before. It may be dropped at any time without losing
    /// anything, but heartbeats and deadlines stand still while nobody calls it. After an error the session is over.
    pub async fn next(&mut self) -> Result<Received, Ended> {
        loop {
            if self.unacknowledged >= MESSAGES_PER_ACK {
                self.acknowledge();
            }
            self.flush().await?;
            match self.decode()? {
                Some(frame) => {
                    if let Some(received) = self.take(frame)? {
                        return Ok(received);
                    }
                }
                None if self.unacknowledged > 0 => self.acknowledge(),
                None => self.read().await?,
            }
        }
    }

    fn take(&mut self, frame: Frame) -> Result<Option<Received>, Ended> {
        Ok(match frame {
            Frame::DataMessage(stanza) => {
                self.unacknowledged += 1;
                Some(Received::Message(stanza.into()))
            }
            Frame::Unreadable(_) => {
                self.unacknowledged += 1;
                Some(Received::Unreadable)
            }
            Frame::HeartbeatPing(_) => {
                let last_stream_id_received = Some(self.received);
                self.send(Frame::HeartbeatAck(HeartbeatAck { last_stream_id_received, ..HeartbeatAck::default() }));
                Some(Received::Heartbeat)
            }
            Frame::HeartbeatAck(_) => Some(Received::Heartbeat),
            Frame::Close => return Err(Ended::Closed),
            Frame::StreamError(error) => return Err(Ended::StreamError(plain_text(&error.r#type, 64))),
            Frame::IqStanza(_) | Frame::Other(_) | Frame::LoginRequest(_) | Frame::LoginResponse(_) => None,
        })
    }

    fn decode(&mut self) -> Result<Option<Frame>, Ended> {
        let frame = self.decoder.next(&mut self.inbox)?;
        if frame.is_some() {
            self.received = self.received.saturating_add(1);
            self.heard = Instant::now();
        }
        Ok(frame)
    }

    fn acknowledge(&mut self) {
        self.unacknowledged = 0;
        self.send(Frame::IqStanza(IqStanza {
            r#type: iq_stanza::Type::Set.into(),
            extension: Some(Extension { id: STREAM_ACK, data: Bytes::new() }),
            last_stream_id_received: Some(self.received),
            ..IqStanza::default()
        }));
    }

    /// Puts a frame into the outbox.
    fn send(&mut self, frame: Frame) {
        frame.encode(&mut self.outbox);
        self.write_by.get_or_insert_with(|| Instant::now() + WRITE_DEADLINE);
    }

    async fn flush(&mut self) -> Result<(), Ended> {
        let Some(by) = self.write_by else { return Ok(()) };
        let write = async {
            while !self.outbox.is_empty() {
                if self.stream.write_buf(&mut self.outbox).await? == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            self.stream.flush().await
        };
        timeout_at(by, write).await.map_err(|_| Ended::Stuck)?.map_err(|error| Ended::Broken(error.kind()))?;
        self.outbox = BytesMut::new();
        self.write_by = None;
        Ok(())
    }

    /// Reads some bytes, or does what is due while there are none.
    async fn read(&mut self) -> Result<(), Ended> {
        if self.inbox.is_empty() {
            // A session waits nearly always, and thousands wait: what a large message needed is given back.
            self.inbox = BytesMut::with_capacity(IDLE_BUFFER);
        } else {
            self.inbox.reserve(self.inbox.len());
        }
        let dead_at = self.heard + SILENCE;
        select! {
            biased;
            read = self.stream.read_buf(&mut self.inbox) => match read {
                Ok(0) => Err(Ended::Closed),
                Ok(_) => Ok(()),
                // TLS calls it so when the peer closes without saying so in TLS.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Ended::Closed),
                Err(error) => Err(Ended::Broken(error.kind())),
            },
            () = sleep_until(self.ping_at.min(dead_at)) => {
                if Instant::now() >= dead_at {
                    return Err(Ended::Silent);
                }
                self.ping_at = Instant::now() + PING_INTERVAL;
                let last_stream_id_received = Some(self.received);
                self.send(Frame::HeartbeatPing(HeartbeatPing { last_stream_id_received, ..HeartbeatPing::default() }));
                // While a frame is half read, `next` writes before it reads on.
                Ok(())
            }
        }
    }
}

/// The login as Chrome's own client sends it.
fn request(login: Login) -> LoginRequest {
    let android_id = login.android_id.to_string();
    LoginRequest {
        id: "chrome-63.0.3234.0".to_owned(),
        domain: "mcs.android.com".to_owned(),
        user: android_id.clone(),
        resource: android_id,
        auth_token: login.security_token.expose_secret().to_string(),
        device_id: Some(format!("android-{:x}", login.android_id)),
        setting: vec![Setting { name: "new_vc".to_owned(), value: "1".to_owned() }],
        received_persistent_id: login.received.into_iter().take(RECEIVED_IDS).collect(),
        adaptive_heartbeat: Some(false),
        use_rmq2: Some(true),
        auth_service: Some(ANDROID_ID),
        network_type: Some(1),
        ..LoginRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::push::wire::{AppData, ErrorInfo, StreamErrorStanza};

    const TOKEN: u64 = 1_234_567_890_123_456_789;

    fn login() -> Login {
        Login {
            android_id: 5_000_000_000_000_000_001,
            security_token: SecretBox::new(Box::new(TOKEN)),
            received: vec!["0:1700000000000001%abc".to_owned()],
        }
    }

    /// The service's end of a connection: time is paused, so whatever waits for the other side waits no time.
    #[derive(Debug)]
    struct Service {
        stream: DuplexStream,
        decoder: Decoder,
        inbox: BytesMut,
    }

    impl Service {
        fn new(stream: DuplexStream) -> Self {
            Self { stream, decoder: Decoder::default(), inbox: BytesMut::new() }
        }

        async fn heard(&mut self) -> Frame {
            loop {
                if let Some(frame) = self.decoder.next(&mut self.inbox).expect("a frame") {
                    return frame;
                }
                let read = self.stream.read_buf(&mut self.inbox).await.expect("bytes");
                assert_ne!(read, 0, "the session ended");
            }
        }

        async fn say(&mut self, frames: &[Frame]) {
            let mut bytes = BytesMut::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            self.stream.write_all(&bytes).await.expect("a reader");
        }
    }

    fn message(id: u32) -> Frame {
        Frame::DataMessage(DataMessageStanza {
            persistent_id: Some(format!("0:{id}")),
            sent: Some(1_700_000_000_000 + i64::from(id)),
            app_data: vec![AppData { key: "title".into(), value: id.to_string() }],
            ..DataMessageStanza::default()
        })
    }

    fn ack(received: i32) -> Frame {
        Frame::IqStanza(IqStanza {
            r#type: iq_stanza::Type::Set.into(),
            extension: Some(Extension { id: 13, data: Bytes::new() }),
            last_stream_id_received: Some(received),
            ..IqStanza::default()
        })
    }

    fn ping(received: i32) -> Frame {
        Frame::HeartbeatPing(HeartbeatPing { last_stream_id_received: Some(received), ..HeartbeatPing::default() })
    }

    /// The outcome of a login that is answered with these bytes behind the version.
    async fn answered(answer: &[u8]) -> Result<(Session<DuplexStream>, Service), ConnectError> {
        let (ours, theirs) = duplex(4096);
        let mut service = Service::new(theirs);
        let answering = async {
            service.heard().await;
            service.stream.write_all(&[&[VERSION], answer].concat()).await.expect("a reader");
        };
        let (session, ()) = tokio::join!(Session::log_in(ours, login()), answering);
        Ok((session?, service))
    }

    fn bytes(frame: Frame) -> Vec<u8> {
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        out.to_vec()
    }

    async fn logged_in() -> (Session<DuplexStream>, Service) {
        answered(&bytes(Frame::LoginResponse(LoginResponse::default()))).await.expect("a session")
    }

    fn title(received: Received) -> String {
        let Received::Message(message) = received else { panic!("{received:?}") };
        message.app_data[0].1.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn the_login_is_byte_for_byte_what_others_send() {
        let (ours, mut theirs) = duplex(4096);
        let logging_in = tokio::spawn(Session::log_in(ours, login()));
        let mut sent = vec![0; 177];
        theirs.read_exact(&mut sent).await.expect("the login");
        let mut expected = vec![0x29, 2, 0xad, 1];
        expected.extend(b"\x0a\x12chrome-63.0.3234.0\x12\x0fmcs.android.com\x1a\x135000000000000000001");
        expected.extend(b"\x22\x135000000000000000001\x2a\x131234567890123456789\x32\x18android-4563918244f40001");
        expected.extend(
            b"\x42\x0b\x0a\x06new_vc\x12\x011\x52\x160:1700000000000001%abc\x60\0\x70\x01\x80\x01\x02\x88\x01\x01",
        );
        assert_eq!(sent, expected);
        drop(theirs);
        assert!(matches!(logging_in.await.expect("no panic"), Err(ConnectError::Unreachable(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_fails_for_its_own_reason() {
        let refused = |code| {
            let error = Some(ErrorInfo { code, message: Some(TOKEN.to_string()), ..ErrorInfo::default() });
            bytes(Frame::LoginResponse(LoginResponse { error, ..LoginResponse::default() }))
        };
        let failed = async |answer: &[u8]| answered(answer).await.expect_err("no session");
        assert!(matches!(failed(&refused(401)).await, ConnectError::Refused(401)));
        assert!(matches!(failed(&refused(503)).await, ConnectError::OutOfOrder(503)));
        assert!(matches!(failed(&bytes(Frame::Close)).await, ConnectError::Unreachable(_)));
        assert!(matches!(failed(&bytes(message(1))).await, ConnectError::Protocol(_)));
        assert!(matches!(failed(&[3, 0xff, 0xff, 0xff, 0xff, 0xff]).await, ConnectError::Protocol(_)));
        assert!(!failed(&refused(401)).await.to_string().contains(&TOKEN.to_string()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_acknowledged_when_the_next_is_asked_for() {
        let (mut session, mut service) = logged_in().await;
        service.say(&[message(1)]).await;
        assert_eq!(title(session.next().await.expect("a message")), "1");
        // It is not dealt with yet: the service hears nothing.
        assert!(timeout(Duration::from_secs(60), service.heard()).await.is_err());
        let mut later = tokio::spawn(async move { session.next().await.map(title) });
        assert_eq!(service.heard().await, ack(2));
        assert!(timeout(Duration::from_secs(60), &mut later).await.is_err(), "nothing else came");
        service.say(&[message(2)]).await;
        assert_eq!(later.await.expect("no panic"), Ok("2".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_acknowledged_in_portions_of_what_was_dealt_with() {
        let (mut session, mut service) = logged_in().await;
        let burst: Vec<Frame> = (1..=25).map(message).collect();
        service.say(&burst).await;
        let reading = tokio::spawn(async move {
            let mut titles = Vec::new();
            while let Ok(received) = session.next().await {
                titles.push(title(received));
            }
            titles
        });
        for received in [11, 21, 26] {
            assert_eq!(service.heard().await, ack(received));
        }
        service.say(&[Frame::Close]).await;
        assert_eq!(reading.await.expect("no panic"), (1..=25).map(|id| id.to_string()).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_cannot_be_read_is_told_and_acknowledged() {
        let (mut session, mut service) = logged_in().await;
        service.stream.write_all(&[8, 3, 0x1a, 9, b'a']).await.expect("a reader");
        assert!(matches!(session.next().await, Ok(Received::Unreadable)));
        service.say(&[message(1)]).await;
        assert_eq!(title(session.next().await.expect("a message")), "1");
        let ending = tokio::spawn(async move { session.next().await.map(title) });
        assert_eq!(service.heard().await, ack(2));
        assert_eq!(service.heard().await, ack(3));
        service.say(&[Frame::Close]).await;
        assert_eq!(ending.await.expect("no panic"), Err(Ended::Closed));
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
    async fn heartbeats_are_answered_and_told() {
        let (mut session, mut service) = logged_in().await;
        service.say(&[ping(1)]).await;
        assert!(matches!(session.next().await, Ok(Received::Heartbeat)));
        tokio::spawn(async move { session.next().await.map(title) });
        let expected = HeartbeatAck { last_stream_id_received: Some(2), ..HeartbeatAck::default() };
        assert_eq!(service.heard().await, Frame::HeartbeatAck(expected));
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_heartbeat_leaves_every_five_minutes() {
        let (mut session, mut service) = logged_in().await;
        let began = Instant::now();
        let beating = tokio::spawn(async move {
            for _ in 0..5 {
                assert!(matches!(session.next().await, Ok(Received::Heartbeat)));
            }
        });
        for beat in 1..=5 {
            assert_eq!(service.heard().await, ping(i32::try_from(beat).expect("small")));
            assert_eq!(began.elapsed().as_secs(), 300 * beat);
            service.say(&[Frame::HeartbeatAck(HeartbeatAck::default())]).await;
        }
        beating.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_after_twelve_minutes() {
        let (mut session, mut service) = logged_in().await;
        service.say(&[Frame::Other(5)]).await;
        // Half a frame is no sign of life.
        service.stream.write_all(&[8, 100, 0]).await.expect("a reader");
        let began = Instant::now();
        assert_eq!(session.next().await.map(title), Err(Ended::Silent));
        assert_eq!(began.elapsed().as_secs(), 12 * 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_ends_it() {
        let (ours, theirs) = duplex(256);
        let mut service = Service::new(theirs);
        let answering = async {
            service.heard().await;
            service
                .stream
                .write_all(&[&[VERSION][..], &bytes(Frame::LoginResponse(LoginResponse::default()))].concat())
                .await
                .expect("a reader");
        };
        let (session, ()) = tokio::join!(Session::log_in(ours, login()), answering);
        let mut session = session.expect("a session");
        // Each ping is answered with more bytes than it has; nobody reads the answers.
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
        assert_eq!((ended, began.elapsed().as_secs()), (Ended::Stuck, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn every_end_has_its_name() {
        let stream_error = StreamErrorStanza { r#type: "conflict".into(), text: Some("no".into()) };
        for (said, ended) in [
            (bytes(Frame::Close), Ended::Closed),
            (vec![], Ended::Closed),
            (vec![8, 100, 1], Ended::Closed),
            (bytes(Frame::StreamError(stream_error)), Ended::StreamError("conflict".to_owned())),
            (vec![8, 0x81, 0x80, 0x10], Ended::Protocol(FrameError::TooLarge(256 * 1024 + 1))),
            (vec![8, 0xff, 0xff, 0xff, 0xff, 0xff], Ended::Protocol(FrameError::Length)),
        ] {
            let (mut session, mut service) = logged_in().await;
            service.stream.write_all(&said).await.expect("a reader");
            drop(service);
            assert_eq!(session.next().await.map(title), Err(ended));
        }
    }

    #[test]
    fn a_message_is_read_tolerantly_and_prints_no_content() {
        let stanza = DataMessageStanza {
            persistent_id: Some("x".repeat(PERSISTENT_ID + 1)),
            sent: Some(i64::MAX),
            app_data: vec![AppData { key: "body".into(), value: "-77".into() }],
            ..DataMessageStanza::default()
        };
        let message = Message::from(stanza);
        assert_eq!((&message.persistent_id, message.sent), (&None, None));
        assert!(!format!("{:?}", Received::Message(message)).contains("-77"));
    }
}
