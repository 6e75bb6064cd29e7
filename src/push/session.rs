//! One push session: a login at Google's MCS, then whatever is pushed, until either side ends it.
//!
//! No task and no policy: the caller asks for what comes next, and says by asking again that it has dealt with what came
//! before; only then is that acknowledged. What was not acknowledged comes again at a later login.

use std::{fmt, io, str::FromStr, sync::Arc, time::Duration};

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

/// Where the push service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushAddress {
    /// Host name or IP address; the certificate must be for it.
    pub host: String,
    pub port: u16,
}

impl FromStr for PushAddress {
    type Err = &'static str;

    /// Reads `host:port`; an IPv6 address stands in brackets.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.rsplit_once(':').ok_or("it is not host:port")?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| "its port is not a number up to 65535")?;
        Ok(Self { host: host.to_owned(), port })
    }
}

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
