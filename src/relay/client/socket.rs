//! The stream of one WebSocket, shared on its thread by the actor that reads it and the subscriptions that write it.
//!
//! Writing needs no mailbox: [`Socket::pump`] writes frames of the send queue for as long as the limits allow and the
//! kernel takes them. A slow reader can hold one frame half written (shared with all others), the bounded queue and the
//! kernel's bounded buffer. [`Inbound`] is the reading half, and wakes writing that had to wait.

use std::{
    cell::{Cell, RefCell},
    hint::black_box,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use actix_codec::Decoder as _;
use actix_http::ws::{self, CloseReason, Codec, ProtocolError};
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{sync::Notify, time::Instant};

use crate::{
    domain::{ids::UserId, limits, sections::Sections},
    net::Stream,
    relay::{
        client::{
            frame_budget::Millis,
            send_queue::{Next, QueuedFrame, SendQueue},
            timer_wheel::TimerWheel,
        },
        wire::{
            close::{self, PING, Reason},
            deflate::{Deflate, InflateError},
            frame::RSV1,
            protocol,
            publication::Lane,
            receipt::Receipt,
            send_counts::SendCounts,
        },
    },
};

/// Bytes asked from the kernel at a time; the buffer is given back while nothing is half read.
const READ_SIZE: usize = 4 * 1024;
/// Sockets whose memory is read ahead: few enough that it is still in the cache when their turn comes.
const READ_AHEAD: usize = 32;
/// Longest time until the pong of a ping, and longest wait of a frame for room.
pub const PONG_DEADLINE: Millis = 10_000;
/// Longest wait of a closed socket for the peer to hang up too.
pub const GOODBYE_DEADLINE: Millis = 2_000;
/// No turn.
const NEVER: Millis = Millis::MAX;
/// First byte of a frame that begins a compressed message, without the bit for the last frame of a message.
const DEFLATED_TEXT: u8 = RSV1 | 0x1;
const DEFLATED_BINARY: u8 = RSV1 | 0x2;
/// Bytes of the largest frame that is accepted: its payload, and a header of at most fourteen.
const LARGEST_FRAME: usize = limits::INBOUND_BYTES + 14;

/// Shared by the sockets of one thread.
pub struct SocketThread {
    /// Start of their milliseconds.
    origin: Instant,
    counts: Arc<SendCounts>,
    turns: RefCell<TimerWheel>,
    deflate: Deflate,
    /// The first turn is earlier than it was.
    earlier: Notify,
}

impl SocketThread {
    /// A thread without turns; sent frames and bytes are counted in `counts`.
    pub fn new(counts: Arc<SendCounts>) -> Rc<Self> {
        let (turns, deflate, earlier) = (RefCell::default(), Deflate::default(), Notify::new());
        Rc::new(Self { origin: Instant::now(), counts, turns, deflate, earlier })
    }

    /// Now, for the limits of its sockets.
    pub fn now(&self) -> Millis {
        self.origin.elapsed().as_millis() as Millis
    }

    /// When the first turn comes.
    pub fn first_turn(&self) -> Option<Instant> {
        self.turns.borrow().first().map(|at| self.origin + Duration::from_millis(at))
    }

    /// Waits until there is an earlier turn. Only one task may wait.
    pub async fn earlier_turn(&self) {
        self.earlier.notified().await;
    }

    /// Some sockets whose turn has come, if there are any.
    pub fn take_due(&self) -> Option<Vec<u32>> {
        self.turns.borrow_mut().take_due(self.now())
    }
}

/// See the module.
pub struct Socket {
    pub user: UserId,
    /// Among those of its thread.
    pub number: u32,
    /// The keys of a state that its client may see.
    pub sees: Cell<Sections>,
    /// permessage-deflate is agreed with the client.
    deflates: bool,
    stream: Stream,
    thread: Rc<SocketThread>,
    pub queue: RefCell<SendQueue>,
    /// A frame that the kernel took only in part, and when it last took some of it. Boxed, as it is rare.
    half: Cell<Option<Box<Half>>>,
    /// Ping, pong or close: not data, so not counted, and sent before anything else. One at a time is enough.
    control: Cell<Option<Box<Bytes>>>,
    /// Reason and start of the closing of this socket.
    closing: Cell<Option<(Reason, Millis)>>,
    /// The close frame is written; what the peer still sends is thrown away until it hangs up too. Hanging up over
    /// unread bytes would reset the connection, and the close code could be lost on the way.
    said_goodbye: Cell<bool>,
    /// The peer is gone.
    done: Cell<bool>,
    /// Nothing came since the last ping.
    silent: Cell<bool>,
    /// Frames that begin no message, since the last ping.
    parts: Cell<u16>,
    /// The tick of its next turn; [`NEVER`] if it waits for none.
    turn: Cell<Millis>,
    waker: Cell<Option<Waker>>,
}

struct Half {
    rest: Bytes,
    receipt: Option<Rc<Receipt>>,
    since: Millis,
}

impl Socket {
    /// Owns the stream from after the handshake, in which permessage-deflate was agreed or was not.
    pub fn new(thread: Rc<SocketThread>, number: u32, user: UserId, stream: Stream, deflates: bool) -> Rc<Self> {
        Rc::new(Self {
            user,
            number,
            sees: Cell::new(Sections::ALL),
            deflates,
            stream,
            queue: RefCell::new(SendQueue::new(number, thread.counts.clone())),
            thread,
            half: Cell::new(None),
            control: Cell::new(None),
            closing: Cell::new(None),
            said_goodbye: Cell::new(false),
            done: Cell::new(false),
            silent: Cell::new(false),
            parts: Cell::new(0),
            turn: Cell::new(NEVER),
            waker: Cell::new(None),
        })
    }

    /// Now, for this socket's limits.
    pub fn now(&self) -> Millis {
        self.thread.now()
    }

    /// Puts a message into its lane and writes what may be written.
    pub fn push(&self, lane: Lane, queued: impl Into<QueuedFrame>) {
        self.put(lane, queued);
        self.pump();
    }

    /// Puts a raid into its lane and writes until no raid waits that may go. Frames that wait in other lanes go when the
    /// socket is served next: of thousands of sockets, the last would have its raid after such frames of all.
    pub fn push_raid(&self, queued: QueuedFrame) {
        self.put(Lane::Raid, queued);
        self.pump_while(SendQueue::has_raids);
    }

    /// Puts a message into its lane, for when the socket is served next.
    pub fn put(&self, lane: Lane, queued: impl Into<QueuedFrame>) {
        if self.closing.get().is_none() && self.queue.borrow_mut().push(lane, queued.into(), self.now()).is_err() {
            self.close(Reason::TooSlow);
        }
    }

    /// Writes what may be written now.
    pub fn take_turn(&self) {
        if self.turn.get() <= self.now() {
            self.turn.set(NEVER);
        }
        self.pump();
    }

    /// Waits for a turn at this time, unless one comes before. Turns that were asked for stay, so that one may come
    /// when nothing is to be done.
    fn wait_until(&self, at: Millis) {
        let tick = TimerWheel::tick(at);
        if tick < self.turn.get() {
            self.turn.set(tick);
            if self.thread.turns.borrow_mut().add(tick, self.number) {
                self.thread.earlier.notify_one();
            }
        }
    }

    /// Puts a ping or pong first. One that still waits is replaced: only the newest matters.
    pub fn push_control(&self, frame: Bytes) {
        if self.closing.get().is_none() {
            self.control.set(Some(Box::new(frame)));
            self.pump();
        }
    }

    /// Sends the close frame: everything that waits is dropped but for a frame that is half written.
    pub fn close(&self, reason: Reason) {
        self.end(reason, reason.frame());
    }

    /// Answers the peer's close frame, in the same way.
    pub fn answer_close(&self, said: Option<CloseReason>) {
        self.end(Reason::Goodbye, close::answer(said));
    }

    fn end(&self, reason: Reason, frame: Bytes) {
        if self.closing.get().is_none() {
            let now = self.now();
            self.closing.set(Some((reason, now)));
            self.queue.borrow_mut().clear();
            self.control.set(Some(Box::new(frame)));
            self.wait_until(now + GOODBYE_DEADLINE);
            self.pump();
        }
    }

    /// The reason for closing this socket, if it is being closed.
    pub fn closing(&self) -> Option<Reason> {
        self.closing.get().map(|(reason, _)| reason)
    }

    /// True if a socket that is being closed is over, whatever its peer does.
    fn is_over(&self, now: Millis) -> bool {
        self.done.get() || self.closing.get().is_some_and(|(_, since)| since + GOODBYE_DEADLINE <= now)
    }

    /// Asks the client for a sign of life.
    pub fn ping(&self) {
        self.silent.set(true);
        self.parts.set(0);
        self.push_control(PING);
    }

    /// The client gave a sign of life.
    pub fn heard(&self) {
        self.silent.set(false);
    }

    /// Counts a frame that begins no message. Returns their number since the last ping.
    pub fn heard_part(&self) -> u16 {
        self.parts.update(|parts| parts.saturating_add(1));
        self.parts.get()
    }

    /// Gives up a client that was silent since the last ping, or that does not read: one that talks and does not read
    /// is no better than a silent one.
    pub fn drop_if_dead(&self) {
        let slow = self.blocked_since().is_some_and(|since| since + PONG_DEADLINE <= self.now());
        if slow || self.silent.get() {
            let reason = if slow { "does not read" } else { "is silent" };
            log::debug!(user = self.user.as_str(); "relay socket is dropped: its client {reason}");
            self.give_up();
        }
    }

    /// Since when the kernel takes no more of a frame.
    fn blocked_since(&self) -> Option<Millis> {
        let half = self.half.take();
        let since = half.as_ref().map(|half| half.since);
        self.half.set(half);
        since
    }

    /// Ends the connection as it is.
    pub fn give_up(&self) {
        self.done.set(true);
        self.wake();
    }

    /// Reads what writing will read.
    fn read_ahead(&self) {
        self.stream.read_ahead();
        black_box((self.turn.get(), self.done.get(), self.queue.borrow().read_ahead()));
    }

    /// Writes what the limits allow and the kernel takes.
    pub fn pump(&self) {
        self.pump_while(|_| true);
    }

    /// [`pump`](Self::pump), as long as this holds for the queue.
    fn pump_while(&self, goes_on: impl Fn(&SendQueue) -> bool) {
        let now = self.now();
        self.write(now, goes_on);
        // The task that polls the reading half also waits for room and for the end.
        if self.blocked_since().is_some() || self.is_over(now) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn write(&self, now: Millis, goes_on: impl Fn(&SendQueue) -> bool) {
        while !self.done.get() && goes_on(&self.queue.borrow()) {
            let half = self.half.take().map(|half| *half);
            let next = || self.next(now).map(|(rest, receipt)| Half { rest, receipt, since: now });
            let Some(Half { mut rest, receipt, since }) = half.or_else(next) else { return };
            let written = self.stream.try_write(&rest);
            self.thread.counts.bytes.add(written.as_ref().copied().unwrap_or_default());
            match written {
                Ok(taken) if taken == rest.len() => {
                    if let Some(receipt) = receipt {
                        receipt.confirm();
                    }
                }
                Ok(taken) => {
                    rest.advance(taken);
                    self.half.set(Some(Box::new(Half { rest, receipt, since: now })));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.half.set(Some(Box::new(Half { rest, receipt, since })));
                }
                Err(_) => self.done.set(true),
            }
        }
    }

    /// The bytes that go next, if any may go now, and on what it is confirmed that they went.
    fn next(&self, now: Millis) -> Option<(Bytes, Option<Rc<Receipt>>)> {
        if let Some(frame) = self.control.take() {
            return Some((*frame, None));
        }
        if self.closing.get().is_some() {
            self.say_goodbye();
            return None;
        }
        let next = self.queue.borrow_mut().next(now);
        let QueuedFrame { frame, receipt, .. } = match next {
            Next::Send(queued) => queued,
            Next::ChatDropped { feed, lines } => protocol::chat_dropped(&feed.server, lines, feed.clock.now()).into(),
            Next::At(at) => {
                self.wait_until(at);
                return None;
            }
            Next::Idle => return None,
        };
        let bytes = if self.deflates { frame.deflated(&self.thread.deflate) } else { frame.plain() };
        Some((bytes.clone(), receipt))
    }

    /// A compressed message that the client sent.
    pub fn decompress(&self, payload: &[u8]) -> Result<Vec<u8>, InflateError> {
        if payload.len() > limits::INBOUND_DEFLATED_BYTES {
            return Err(InflateError::TooBig);
        }
        self.thread.deflate.decompress(payload, limits::INBOUND_BYTES)
    }

    fn say_goodbye(&self) {
        if !self.said_goodbye.replace(true) && self.stream.shutdown_write().is_err() {
            self.done.set(true);
        }
    }
}

/// These sockets, in order, for a caller that writes to each. The memory of some is read before any of them is written
/// to: so it arrives together, and is not waited for at every socket. With thousands of sockets, that is most of what a
/// frame costs outside the kernel.
pub fn with_read_ahead(sockets: &[Rc<Socket>]) -> impl Iterator<Item = &Rc<Socket>> {
    sockets.chunks(READ_AHEAD).flat_map(|some| {
        some.iter().for_each(|socket| socket.read_ahead());
        some
    })
}

/// A frame that a client sent.
pub struct ReceivedFrame {
    pub frame: ws::Frame,
    /// The frame begins a compressed message.
    pub is_deflated: bool,
}

/// Frames of a client; ends when the connection does. Holds no buffer while idle.
pub struct Inbound {
    socket: Rc<Socket>,
    codec: Codec,
    buffer: BytesMut,
}

impl Inbound {
    /// Reads this socket, beginning with what arrived behind the handshake.
    pub fn new(socket: Rc<Socket>, early: BytesMut) -> Self {
        Self { socket, codec: Codec::new().max_size(limits::INBOUND_BYTES), buffer: early }
    }

    /// Writes on, if there is room again. Ready when the connection is over.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let socket = &self.socket;
        loop {
            let now = socket.now();
            socket.write(now, |_| true);
            if socket.is_over(now) {
                return Poll::Ready(());
            }
            if socket.blocked_since().is_none() {
                return Poll::Pending;
            }
            match ready!(socket.stream.poll_write_ready(cx)) {
                Ok(()) => {}
                Err(_) => return Poll::Ready(()),
            }
        }
    }
}

impl futures_util::Stream for Inbound {
    type Item = Result<ReceivedFrame, ProtocolError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.socket.waker.set(Some(cx.waker().clone()));
        if this.poll_write(cx).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            if this.socket.closing().is_some() {
                this.buffer.clear();
            }
            if !this.buffer.is_empty() {
                // The codec knows of no compressed messages.
                let first = this.buffer[0];
                let is_deflated = this.socket.deflates && matches!(first & 0x7F, DEFLATED_TEXT | DEFLATED_BINARY);
                if is_deflated {
                    this.buffer[0] &= !RSV1;
                }
                match this.codec.decode(&mut this.buffer).transpose() {
                    Some(frame) => return Poll::Ready(Some(frame.map(|frame| ReceivedFrame { frame, is_deflated }))),
                    // The codec waits for the whole of a frame, however large it claims to be.
                    None if this.buffer.len() > LARGEST_FRAME => {
                        return Poll::Ready(Some(Err(ProtocolError::Overflow)));
                    }
                    // Looked at again when there is more.
                    None => this.buffer[0] = first,
                }
            }
            match this.socket.stream.poll_read_ready(cx) {
                Poll::Pending => {
                    if this.buffer.is_empty() {
                        this.buffer = BytesMut::new();
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(None),
                Poll::Ready(Ok(())) => {}
            }
            this.buffer.reserve(READ_SIZE);
            match this.socket.stream.try_read_buf(&mut this.buffer) {
                Ok(0) => return Poll::Ready(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests;
