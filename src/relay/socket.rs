//! The stream of one WebSocket, shared on its thread by the actor that reads it and the subscriptions that write it.
//!
//! Writing needs no mailbox: [`Socket::pump`] writes frames of the send queue for as long as the limits allow and the
//! kernel takes them. What a slow reader can hold is one frame half written (shared with everybody else), the bounded
//! queue and the kernel's bounded buffer. [`Inbound`] is the reading half, and what wakes writing that had to wait.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use actix_codec::Decoder as _;
use actix_http::ws::{Codec, Frame, ProtocolError};
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::{
    domain::{ids::UserId, limits},
    net::{Stream, Timer},
    relay::{
        close::Reason,
        frame_budget::Millis,
        protocol,
        publication::Lane,
        send_counts::SendCounts,
        send_queue::{Next, QueuedFrame, SendQueue},
    },
};

/// Bytes asked from the kernel at a time; the buffer is given back while nothing is half read.
const READ_SIZE: usize = 4 * 1024;
/// How long a closed socket waits for the peer to hang up too.
const GOODBYE_DEADLINE: Millis = 2_000;
/// Bytes of the largest frame that is accepted: its payload, and a header of at most fourteen.
const LARGEST_FRAME: usize = limits::INBOUND_BYTES + 14;

/// See the module.
pub struct Socket {
    pub user: UserId,
    stream: Stream,
    counts: Arc<SendCounts>,
    /// What the queue's milliseconds count from.
    origin: Instant,
    pub queue: RefCell<SendQueue>,
    /// A frame that the kernel took only in part, and when it last took some of it.
    half: RefCell<Option<Half>>,
    /// Ping, pong or close: not data, so not counted, and sent before anything else. One at a time is enough.
    control: RefCell<Option<Bytes>>,
    /// Why this socket is being closed, and when that began.
    closing: Cell<Option<(Reason, Millis)>>,
    /// The close frame is written; what the peer still sends is thrown away until it hangs up too. Hanging up over
    /// unread bytes would reset the connection, and the close code could be lost on the way.
    said_goodbye: Cell<bool>,
    /// The peer is gone.
    done: Cell<bool>,
    /// When something that waits for its turn may go.
    due: Cell<Option<Millis>>,
    waker: RefCell<Option<Waker>>,
}

struct Half {
    rest: QueuedFrame,
    since: Millis,
}

impl Socket {
    /// Owns the stream from after the handshake; counts what goes out here.
    pub fn new(user: UserId, stream: Stream, counts: Arc<SendCounts>) -> Rc<Self> {
        Rc::new(Self {
            user,
            stream,
            origin: Instant::now(),
            queue: RefCell::new(SendQueue::new(counts.clone())),
            counts,
            half: RefCell::new(None),
            control: RefCell::new(None),
            closing: Cell::new(None),
            said_goodbye: Cell::new(false),
            done: Cell::new(false),
            due: Cell::new(None),
            waker: RefCell::new(None),
        })
    }

    /// Now, for this socket's limits.
    pub fn now(&self) -> Millis {
        self.origin.elapsed().as_millis() as Millis
    }

    /// Puts a message into its lane and writes what may be written.
    pub fn push(&self, lane: Lane, queued: impl Into<QueuedFrame>) {
        if self.closing.get().is_some() {
            return;
        }
        if self.queue.borrow_mut().push(lane, queued.into(), self.now()).is_err() {
            return self.close(Reason::TooSlow);
        }
        self.pump();
    }

    /// Puts a ping or pong first. One that still waits is replaced: only the newest matters.
    pub fn push_control(&self, frame: Bytes) {
        if self.closing.get().is_none() {
            *self.control.borrow_mut() = Some(frame);
            self.pump();
        }
    }

    /// Sends the close frame: everything that waits is dropped but for a frame that is half written.
    pub fn close(&self, reason: Reason) {
        if self.closing.get().is_none() {
            self.closing.set(Some((reason, self.now())));
            self.queue.borrow_mut().clear();
            *self.control.borrow_mut() = Some(reason.frame());
            self.pump();
        }
    }

    /// Why this socket is being closed, if it is.
    pub fn closing(&self) -> Option<Reason> {
        self.closing.get().map(|(reason, _)| reason)
    }

    /// When a socket that is being closed is over, whatever its peer does.
    fn over_at(&self) -> Option<Millis> {
        self.closing.get().map(|(_, since)| since + GOODBYE_DEADLINE)
    }

    /// For how long the kernel has not taken the rest of a frame.
    pub fn blocked_for(&self) -> Duration {
        let since = self.half.borrow().as_ref().map(|half| half.since);
        since.map_or(Duration::ZERO, |since| Duration::from_millis(self.now() - since))
    }

    /// Writes what the limits allow and the kernel takes.
    pub fn pump(&self) {
        let due_before = self.due.get();
        self.write(self.now());
        // Whoever polls the reading half also waits for room and for the next turn.
        if (self.half.borrow().is_some() || self.done.get() || self.due.get() != due_before)
            && let Some(waker) = self.waker.borrow_mut().take()
        {
            waker.wake();
        }
    }

    fn write(&self, now: Millis) {
        self.due.set(None);
        let mut half = self.half.borrow_mut();
        while !self.done.get() {
            if half.is_none() {
                let control = self.control.borrow_mut().take();
                let next = match (control, self.closing.get()) {
                    (Some(frame), _) => frame.into(),
                    (None, Some((_, since))) => {
                        self.due.set(Some(since + GOODBYE_DEADLINE));
                        return self.say_goodbye();
                    }
                    (None, None) => match self.queue.borrow_mut().next(now) {
                        Next::Send(queued) => queued,
                        Next::ChatDropped { feed, lines } => {
                            protocol::chat_dropped(&feed.server, lines, feed.clock.now()).into()
                        }
                        Next::At(at) => return self.due.set(Some(at)),
                        Next::Idle => return,
                    },
                };
                *half = Some(Half { rest: next, since: now });
            }
            let Some(Half { rest, since }) = half.as_mut() else { continue };
            let written = self.stream.try_write(&rest.frame);
            self.counts.bytes.add(written.as_ref().copied().unwrap_or_default());
            match written {
                Ok(taken) if taken == rest.frame.len() => {
                    if let Some(receipt) = &rest.receipt {
                        receipt.confirm();
                    }
                    *half = None;
                }
                Ok(taken) => {
                    let _ = rest.frame.split_to(taken);
                    *since = now;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.done.set(true),
            }
        }
    }

    fn say_goodbye(&self) {
        if !self.said_goodbye.replace(true) && self.stream.shutdown_write().is_err() {
            self.done.set(true);
        }
    }
}

/// What a client sent, frame by frame; ends when the connection does. Holds no buffer while idle.
pub struct Inbound {
    socket: Rc<Socket>,
    codec: Codec,
    buffer: BytesMut,
    turn: Timer,
}

impl Inbound {
    /// Reads this socket, beginning with what arrived behind the handshake.
    pub fn new(socket: Rc<Socket>, early: BytesMut) -> Self {
        Self { socket, codec: Codec::new().max_size(limits::INBOUND_BYTES), buffer: early, turn: Timer::default() }
    }

    /// Writes on, if there is room again or a turn has come. Ready when the connection is over.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.socket.write(self.socket.now());
            if self.socket.done.get() {
                return Poll::Ready(());
            }
            let over_at = self.socket.over_at();
            if over_at.is_some_and(|at| at <= self.socket.now()) {
                return Poll::Ready(());
            }
            if self.socket.half.borrow().is_some() {
                match self.socket.stream.poll_write_ready(cx) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending if over_at.is_none() => return Poll::Pending,
                    Poll::Pending => {}
                }
            }
            let Some(due) = over_at.or(self.socket.due.get()) else {
                self.turn = Timer::default();
                return Poll::Pending;
            };
            let at = self.socket.origin + Duration::from_millis(due);
            if self.turn.poll(at, cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl futures_util::Stream for Inbound {
    type Item = Result<Frame, ProtocolError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        *this.socket.waker.borrow_mut() = Some(cx.waker().clone());
        if this.poll_write(cx).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            if this.socket.closing().is_some() {
                this.buffer.clear();
            }
            if !this.buffer.is_empty() {
                match this.codec.decode(&mut this.buffer).transpose() {
                    Some(frame) => return Poll::Ready(Some(frame)),
                    // The codec waits for the whole of a frame, however large it claims to be.
                    None if this.buffer.len() > LARGEST_FRAME => {
                        return Poll::Ready(Some(Err(ProtocolError::Overflow)));
                    }
                    None => {}
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
mod tests {
    use super::*;
    use crate::{net::Memory, relay::receipt::Receipt};

    /// A socket whose peer takes `room` bytes without reading.
    fn socket(room: usize) -> (Rc<Socket>, Memory) {
        let (ours, theirs) = Memory::pair(room);
        (Socket::new("alice".into(), ours.into(), Arc::default()), theirs)
    }

    fn read(peer: &Memory) -> BytesMut {
        let mut buffer = BytesMut::new();
        while peer.try_read_buf(&mut buffer).is_ok_and(|count| count > 0) {}
        buffer
    }

    #[tokio::test]
    async fn a_frame_is_confirmed_when_the_kernel_has_all_of_it() {
        let (socket, peer) = socket(4);
        let (receipt, taken, mut finished) = Receipt::of_alarm(Default::default());
        socket
            .push(Lane::Raid, QueuedFrame { frame: Bytes::from_static(b"abcdef"), receipt: Some(receipt), feed: None });
        assert_eq!(taken.get(), 0, "two bytes wait");
        assert!(finished.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty));
        assert_eq!(read(&peer), "abcd");
        socket.pump();
        assert_eq!((read(&peer), taken.get()), (BytesMut::from("ef"), 1));
        assert!(finished.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_overflows_is_over_after_the_goodbye_deadline_whatever_its_peer_does() {
        use futures_util::StreamExt as _;
        for room in [1, 1 << 20] {
            let (socket, _peer) = socket(room);
            let mut inbound = Inbound::new(socket.clone(), BytesMut::new());
            let began = Instant::now();
            let filling = async {
                tokio::task::yield_now().await;
                while socket.closing().is_none() {
                    socket.push(Lane::Raid, Bytes::from_static(b"raid"));
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                frame = inbound.next() => assert!(frame.is_none(), "it ends"),
                () = filling => {}
            }
            assert_eq!(socket.closing(), Some(Reason::TooSlow));
            assert_eq!(began.elapsed().as_millis() as Millis, GOODBYE_DEADLINE, "room {room}");
        }
    }

    #[tokio::test]
    async fn a_socket_that_closes_confirms_nothing_that_still_waits() {
        let (socket, peer) = socket(4);
        socket.push(Lane::Raid, Bytes::from_static(b"abcdef"));
        let (receipt, taken, mut finished) = Receipt::of_alarm(Default::default());
        socket.push(
            Lane::Raid,
            QueuedFrame { frame: Bytes::from_static(b"second"), receipt: Some(receipt.clone()), feed: None },
        );
        socket.close(Reason::Restarting);
        socket
            .push(Lane::Raid, QueuedFrame { frame: Bytes::from_static(b"third"), receipt: Some(receipt), feed: None });
        assert!(finished.try_recv().is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Closed));
        assert_eq!(taken.get(), 0);
        let mut all = read(&peer);
        for _ in 0..100 {
            socket.pump();
            all.extend_from_slice(&read(&peer));
        }
        assert_eq!(all, [b"abcdef", &Reason::Restarting.frame()[..]].concat(), "the half frame, then the close frame");
    }
}
