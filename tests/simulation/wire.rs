//! The wires between the service and its neighbours, and what can happen to one: lag, a cut, a hole, a slow reader.
//!
//! Bytes that the service has written were taken by the kernel: they are delivered even when the service dies.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    io,
    rc::Rc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use companion::net::Memory;
use tokio::{
    sync::Notify,
    task::LocalSet,
    time::{Instant, sleep_until},
};

use crate::random::Stream;

/// Bytes that each end takes without the other reading, as a kernel's buffers; a seed has one or the other.
const ROOM: usize = 256 * 1024;
const LITTLE_ROOM: usize = 2 * 1024;
/// Seeds in a hundred whose wires have little.
const NARROW: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    Link,
    Push,
    Relay,
}

/// One connection; the ends are the service's and the neighbour's.
pub struct Wire {
    pub kind: WireKind,
    /// Our end of the service's connection, until the wire is cut or the service died.
    service: RefCell<Option<Rc<Memory>>>,
    /// Bytes of a dead service that the kernel still delivers.
    last_words: RefCell<Option<BytesMut>>,
    lag: Cell<(u64, u64)>,
    hole: Cell<bool>,
    /// The neighbour takes nothing for now.
    stalled: Cell<bool>,
    cut: Cell<bool>,
    /// The service writes no more.
    said_all: Cell<bool>,
    /// Cut when this number of further bytes has come from the service.
    cut_after: Cell<Option<usize>>,
    changed: Notify,
    random: RefCell<Stream>,
    /// The neighbour once stopped reading: what is read later was written at another time.
    pub was_stalled: Cell<bool>,
    /// When the session that it came from was signed out.
    pub revoked_at: Cell<Option<Instant>>,
    /// Nothing was ever lost or held up on this wire.
    pub lossless: Cell<bool>,
    /// When the service wrote data frames, if this is a relay wire.
    pub frames: RefCell<FrameCounter>,
}

impl Wire {
    /// Connects; the service's end, the neighbour's end, and the wire.
    pub fn new(kind: WireKind, seed: u64, number: u64, neighbours: &LocalSet) -> (Memory, Memory, Rc<Self>) {
        let random = Stream::of(seed, &format!("wire {number}"));
        let is_narrow = Stream::of(seed, "room").chance(NARROW);
        let (service, ours) = Memory::pair(if is_narrow { LITTLE_ROOM } else { ROOM });
        let (theirs, neighbour) = Memory::pair(ROOM);
        let wire = Rc::new(Self {
            kind,
            service: RefCell::new(Some(Rc::new(ours))),
            last_words: RefCell::new(None),
            lag: Cell::new((1, 5)),
            hole: Cell::new(false),
            stalled: Cell::new(false),
            cut: Cell::new(false),
            said_all: Cell::new(false),
            cut_after: Cell::new(None),
            changed: Notify::new(),
            random: RefCell::new(random),
            was_stalled: Cell::new(false),
            revoked_at: Cell::new(None),
            lossless: Cell::new(true),
            frames: RefCell::default(),
        });
        let theirs = Rc::new(theirs);
        neighbours.spawn_local(Rc::clone(&wire).carry_out(Rc::clone(&theirs)));
        neighbours.spawn_local(Rc::clone(&wire).carry_in(theirs));
        (service, neighbour, wire)
    }

    pub fn is_open(&self) -> bool {
        self.service.borrow().is_some()
    }

    /// The connection breaks, for both ends.
    pub fn cut(&self) {
        self.lossless.set(false);
        self.cut.set(true);
        self.end();
    }

    /// Cut when this number of further bytes has come from the service; with none, not by those.
    pub fn cut_after(&self, bytes: Option<usize>) {
        self.cut_after.set(bytes);
    }

    /// Half open: bytes are taken and never delivered, in both directions.
    pub fn open_hole(&self) {
        self.lossless.set(false);
        self.hole.set(true);
    }

    /// Milliseconds from `lag.0` to `lag.1`.
    pub fn set_lag(&self, lag: (u64, u64)) {
        self.lag.set(lag);
    }

    /// The neighbour reads nothing, or reads again.
    pub fn stall(&self, stalled: bool) {
        self.lossless.set(false);
        self.stalled.set(stalled);
        self.was_stalled.set(true);
        self.changed.notify_waiters();
    }

    /// The process of the service ended: what its kernel has is delivered, then the end.
    /// Our end of what it leaves, which must be closed soon.
    pub fn kill(&self) -> Option<Rc<Memory>> {
        if let Some(service) = &*self.service.borrow() {
            let mut last_words = BytesMut::new();
            while service.try_read_buf(&mut last_words).is_ok_and(|count| count > 0) {}
            *self.last_words.borrow_mut() = Some(last_words);
        }
        let left = self.service.borrow().clone();
        self.end();
        left
    }

    fn end(&self) {
        // Dropped, it breaks the service's end.
        self.service.borrow_mut().take();
        self.changed.notify_waiters();
    }

    fn due(&self, after: Option<Instant>) -> Instant {
        let (low, high) = self.lag.get();
        let lag = Duration::from_millis(self.random.borrow_mut().between(low, high.max(low + 1)));
        let at = Instant::now() + lag;
        // TCP keeps the order.
        after.map_or(at, |after| at.max(after))
    }

    /// From the service to the neighbour.
    async fn carry_out(self: Rc<Self>, theirs: Rc<Memory>) {
        let mut flight: VecDeque<(Instant, Bytes)> = VecDeque::new();
        let mut last_due = None;
        loop {
            let service = self.service.borrow().clone();
            let changed = self.changed.notified();
            let stalled = self.stalled.get();
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(flight.front().map_or_else(Instant::now, |(due, _)| *due)), if !flight.is_empty() && !stalled => {
                    let (_, bytes) = flight.pop_front().expect("it is not empty");
                    if write_all(&theirs, &bytes).await.is_err() {
                        break;
                    }
                }
                read = read(service.as_deref()), if service.is_some() && (!stalled || flight.len() < 4) => {
                    self.frames.borrow_mut().read(read.as_deref().unwrap_or_default(), Instant::now(), self.kind);
                    match (read, self.cut_after.get()) {
                        (Err(_), _) => self.said_all.set(true),
                        (Ok(bytes), Some(left)) if bytes.len() >= left => self.cut(),
                        (Ok(bytes), left) => {
                            self.cut_after.set(left.map(|left| left - bytes.len()));
                            if !self.hole.get() {
                                let due = self.due(last_due);
                                last_due = Some(due);
                                flight.push_back((due, bytes));
                            }
                        }
                    }
                }
            }
            if self.said_all.get() || !self.is_open() {
                if let Some(last_words) = self.last_words.borrow_mut().take() {
                    self.frames.borrow_mut().read(&last_words, Instant::now(), self.kind);
                    if !self.hole.get() {
                        flight.push_back((self.due(last_due), last_words.freeze()));
                    }
                }
                if self.cut.get() {
                    break;
                }
                for (due, bytes) in flight.drain(..) {
                    sleep_until(due).await;
                    if write_all(&theirs, &bytes).await.is_err() {
                        break;
                    }
                }
                break;
            }
        }
        // The service still hears of its neighbour, which has not hung up.
        if !self.said_all.get() || self.hole.get() {
            self.end();
        }
        theirs.shutdown_write();
    }

    /// From the neighbour to the service.
    async fn carry_in(self: Rc<Self>, theirs: Rc<Memory>) {
        let mut last_due = None;
        loop {
            let changed = self.changed.notified();
            if self.cut.get() {
                break;
            }
            let bytes = tokio::select! {
                biased;
                () = changed => continue,
                read = read(Some(&theirs)) => match read {
                    Ok(bytes) => bytes,
                    // The service does not hear of its end.
                    Err(_) if self.hole.get() && !self.said_all.get() => return,
                    Err(_) => break,
                },
            };
            if self.hole.get() {
                continue;
            }
            let due = self.due(last_due);
            last_due = Some(due);
            sleep_until(due).await;
            let service = self.service.borrow().clone();
            // A process that is gone resets the connection, which its neighbour notices only now.
            let Some(service) = service else { break };
            let changed = self.changed.notified();
            tokio::select! {
                biased;
                () = changed => {}
                written = write_all(&service, &bytes) => if written.is_err() { break },
            }
        }
        self.end();
    }
}

async fn read(memory: Option<&Memory>) -> io::Result<Bytes> {
    let Some(memory) = memory else { return std::future::pending().await };
    let mut buffer = BytesMut::new();
    loop {
        poll_fn(|cx| memory.poll_read_ready(cx)).await?;
        match memory.try_read_buf(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(buffer.freeze()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write_all(memory: &Memory, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        poll_fn(|cx| memory.poll_write_ready(cx)).await?;
        match memory.try_write(bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Notes when data frames (RFC 6455, unmasked) were written.
#[derive(Default)]
pub struct FrameCounter {
    head: Vec<u8>,
    /// Payload bytes still to come.
    payload: u64,
    pub written_at: Vec<Instant>,
}

impl FrameCounter {
    fn read(&mut self, mut bytes: &[u8], now: Instant, kind: WireKind) {
        if kind != WireKind::Relay {
            return;
        }
        while !bytes.is_empty() {
            let skipped = self.payload.min(bytes.len() as u64);
            self.payload -= skipped;
            bytes = &bytes[skipped as usize..];
            let Some((first, rest)) = bytes.split_first() else { return };
            self.head.push(*first);
            bytes = rest;
            let Some(length) = length(&self.head) else { continue };
            self.payload = length;
            if self.head[0] & 0x0f <= 2 {
                self.written_at.push(now);
            }
            self.head.clear();
        }
    }
}

/// The payload's length, once the head is whole.
fn length(head: &[u8]) -> Option<u64> {
    match *head {
        [_, short @ 0..=125] => Some(u64::from(short)),
        [_, 126, high, low] => Some(u64::from(u16::from_be_bytes([high, low]))),
        [_, 127, a, b, c, d, e, f, g, h] => Some(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}
