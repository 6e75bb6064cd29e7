//! One connection of a push service, over any stream.

use std::{collections::HashSet, io, sync::Arc, time::Duration};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    select,
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{
    accounts::{Counts, Instruction, LoggedIn, SharedAccounts},
    faults::PushServiceFaults,
    login,
};
use crate::{
    push::mcs::{Decoder, Frame, PAYLOAD_LIMIT, VERSION},
    push::wire::{HeartbeatAck, HeartbeatPing, LoginResponse, iq_stanza},
};

const LOGIN_DEADLINE: Duration = Duration::from_secs(15);
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
const PING_INTERVAL: Duration = Duration::from_secs(30 * 60);
/// Extension of an `IqStanza`: how many frames the client has received.
const STREAM_ACK: i32 = 13;
const UNAUTHORIZED: i32 = 401;

/// Cause of a connection's end.
enum End {
    Gone,
    /// The client did what no client of the real service does.
    Violation(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

fn violation(what: impl Into<String>) -> End {
    End::Violation(what.into())
}

/// Serves a client from its login to the end of the connection.
pub async fn serve<S>(shared: &SharedAccounts, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection =
        PushConnection { stream, decoder: Decoder::default(), inbox: BytesMut::new(), greeted: false, sent: 0 };
    if let Err(End::Violation(what)) = connection.session(shared).await {
        shared.change(|accounts| accounts.counts.add_violation(what));
    }
    // A courtesy: the client may be gone.
    let _ = timeout(Duration::from_secs(1), connection.stream.shutdown()).await;
}

struct PushConnection<S> {
    stream: S,
    decoder: Decoder,
    inbox: BytesMut,
    /// The client's first frame is here.
    greeted: bool,
    /// Frames sent.
    sent: i32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> PushConnection<S> {
    async fn session(&mut self, shared: &SharedAccounts) -> Result<(), End> {
        let first = timeout(LOGIN_DEADLINE, self.next()).await.map_err(|_| violation("no login in time"))??;
        let Frame::LoginRequest(login) = first else { return Err(violation(format!("{first:?} before the login"))) };
        self.greeted = true;
        let android_id = login::check(&login).map_err(End::Violation)?;
        shared.change(|accounts| accounts.counts.logins += 1);
        let faults = shared.lock().faults;
        if faults.mute_login {
            loop {
                self.next().await?;
            }
        }
        let known =
            shared.lock().by_id.get(&android_id).is_some_and(|account| account.token.to_string() == login.auth_token);
        if let Some(code) = faults.refuse_login.or((!known).then_some(UNAUTHORIZED)) {
            let written = self.greet(login::refused(login.id, code)).await;
            shared.change(|accounts| accounts.counts.refused += 1);
            return written;
        }

        let wake = Arc::new(Notify::new());
        let received: HashSet<String> = login.received_persistent_id.into_iter().collect();
        let account = shared.log_in(android_id, &received, Arc::clone(&wake));
        self.greet(login::accepted(login.id, android_id, shared.clock.now().timestamp_millis())).await?;
        if !received.is_empty() {
            self.send(&Frame::IqStanza(login::selective_ack(received))).await?;
        }
        self.converse(&account, &wake).await
    }

    async fn converse(&mut self, account: &LoggedIn<'_>, wake: &Notify) -> Result<(), End> {
        let mut pings = interval(PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        loop {
            let (instruction, faults) = account.instruction(self.sent + 1);
            let due = match instruction {
                Instruction::Deliver(stanza) => {
                    self.deliver(&Frame::DataMessage(*stanza), faults).await?;
                    continue;
                }
                Instruction::Ping => {
                    self.ping().await?;
                    continue;
                }
                Instruction::Close => return self.send(&Frame::Close).await,
                Instruction::Cut => return Ok(()),
                Instruction::Wait(due) => due,
            };
            let frame = select! {
                biased;
                () = wake.notified() => continue,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
                frame = self.next() => frame?,
                _ = pings.tick() => {
                    self.ping().await?;
                    continue;
                }
            };
            match frame {
                Frame::HeartbeatPing(ping) => {
                    self.received(account, ping.last_stream_id_received, |counts| counts.pings += 1)?;
                    if !faults.frozen {
                        let last_stream_id_received = Some(self.sent);
                        let ack = HeartbeatAck { last_stream_id_received, ..HeartbeatAck::default() };
                        self.send(&Frame::HeartbeatAck(ack)).await?;
                    }
                }
                Frame::HeartbeatAck(ack) => {
                    self.received(account, ack.last_stream_id_received, |counts| counts.pongs += 1)?;
                }
                Frame::IqStanza(iq) => {
                    let is_ack = iq.r#type == i32::from(iq_stanza::Type::Set)
                        && iq.extension.as_ref().is_some_and(|extension| extension.id == STREAM_ACK)
                        && iq.last_stream_id_received.is_some();
                    if !is_ack {
                        return Err(violation(format!("{iq:?} is no stream acknowledgement")));
                    }
                    self.received(account, iq.last_stream_id_received, |counts| counts.stream_acks += 1)?;
                }
                Frame::Close => return Ok(()),
                other => return Err(violation(format!("{other:?} of a client"))),
            }
        }
    }

    /// The client says that it has received all frames up to `last`.
    fn received(&self, account: &LoggedIn<'_>, last: Option<i32>, count: impl FnOnce(&mut Counts)) -> Result<(), End> {
        let last = last.unwrap_or_default();
        if !(0..=self.sent).contains(&last) {
            return Err(violation(format!("{last} frames received of {} sent", self.sent)));
        }
        account.acknowledge(last, count);
        Ok(())
    }

    async fn deliver(&mut self, frame: &Frame, faults: PushServiceFaults) -> Result<(), End> {
        if faults.garbage {
            return self.write(&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).await;
        }
        if faults.unreadable {
            self.sent += 1;
            // A text of nine bytes, of which there is one.
            return self.write(&[8, 3, 0x1a, 9, b'a']).await;
        }
        if faults.oversize {
            let mut header = vec![8];
            prost::encode_length_delimiter(PAYLOAD_LIMIT + 1, &mut header).expect("a Vec grows");
            return self.write(&header).await;
        }
        if faults.truncate {
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            self.write(&bytes[..bytes.len() / 2]).await?;
            return Err(End::Gone);
        }
        self.send(frame).await?;
        if faults.duplicate {
            self.send(frame).await?;
        }
        Ok(())
    }

    async fn ping(&mut self) -> Result<(), End> {
        let stream_id = Some(self.sent + 1);
        self.send(&Frame::HeartbeatPing(HeartbeatPing { stream_id, ..HeartbeatPing::default() })).await
    }

    async fn greet(&mut self, answer: LoginResponse) -> Result<(), End> {
        self.write(&[VERSION]).await?;
        self.send(&Frame::LoginResponse(answer)).await
    }

    async fn send(&mut self, frame: &Frame) -> Result<(), End> {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.sent += 1;
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(WRITE_DEADLINE, write).await.map_err(|_| End::Gone)?.map_err(End::from)
    }

    /// The client's next frame; may be dropped while it waits.
    async fn next(&mut self) -> Result<Frame, End> {
        loop {
            // Some clients write the version before later frames, too; it is no tag.
            while self.greeted && self.inbox.first() == Some(&VERSION) {
                self.inbox.advance(1);
            }
            let frame = self.decoder.next(&mut self.inbox).map_err(|error| violation(error.to_string()))?;
            if let Some(frame) = frame {
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.inbox).await? == 0 {
                return Err(End::Gone);
            }
        }
    }
}
