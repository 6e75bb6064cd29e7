//! Sockets that watch paired servers, on a thread of this process. Each notes when which patch came.

use std::{
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::{Arc, LazyLock, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::{Semaphore, oneshot},
    task::{LocalSet, spawn_local},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use crate::process::Result;

/// Handshakes under way at once.
const AT_ONCE: usize = 64;
/// Sockets of one address: the service limits them.
const PER_ADDRESS: usize = 1_000;
/// Bits of the first of these addresses.
const FIRST_ADDRESS: u32 = 0x7f00_0101;
/// Time for one socket until it has its snapshot.
const OPENS_WITHIN: Duration = Duration::from_secs(60);
/// Text right before the number in a patch.
const NEWS: &str = r#"name","value":""#;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Microseconds by the one clock of this bench. A number in the news is the time at which they became news.
pub fn stamp() -> u64 {
    ORIGIN.elapsed().as_micros() as u64
}

/// Place of a socket: at which node, by which right, and the server that it watches.
pub struct Seat {
    pub relay: SocketAddr,
    pub token: String,
    pub server: String,
}

/// A patch with news, as it came.
pub struct Patch {
    pub epoch: u64,
    pub seq: u64,
    /// When it came, by [`stamp`].
    pub at: u64,
    /// Microseconds.
    pub age: u64,
}

impl Patch {
    /// The state after it: the same one at all sockets.
    pub fn position(&self) -> (u64, u64) {
        (self.epoch, self.seq)
    }

    fn read(text: &str, at: u64) -> Option<Self> {
        if !text.starts_with(r#"{"type":"patch""#) {
            return None;
        }
        let PatchHead { epoch, seq } = serde_json::from_str(text).ok()?;
        let (_, news) = text.rsplit_once(NEWS)?;
        let news: u64 = news.split('"').next()?.parse().ok()?;
        Some(Self { epoch, seq, at, age: at.saturating_sub(news) })
    }
}

#[derive(Deserialize)]
struct PatchHead {
    epoch: u64,
    seq: u64,
}

/// Frames that one socket got.
#[derive(Default)]
pub struct Seen {
    pub frames: usize,
    /// In their order.
    pub patches: Vec<Patch>,
}

/// Open sockets, which are closed when dropped.
pub struct Watchers {
    seen: Arc<[Mutex<Seen>]>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchers {
    /// Opens a socket for each of these. All have their snapshot when this returns.
    pub fn open(seats: Vec<Seat>) -> Result<Self> {
        let count = seats.len();
        let seen: Arc<[Mutex<Seen>]> = seats.iter().map(|_| Mutex::default()).collect();
        let (ready, opened) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let notes = seen.clone();
        let thread = thread::spawn(move || {
            LocalSet::new().block_on(&runtime, watch(seats, notes, ready, ended));
        });
        let watchers = Self { seen, end: Some(end), thread: Some(thread) };
        for _ in 0..count {
            opened.recv()??;
        }
        Ok(watchers)
    }

    /// Takes what each socket has got since the last time, in the order in which they were given.
    pub fn take(&self) -> Vec<Seen> {
        let take = |seen: &Mutex<Seen>| std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
        self.seen.iter().map(take).collect()
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it is on stderr.
            let _ = thread.join();
        }
    }
}

/// The thread.
async fn watch(
    seats: Vec<Seat>,
    seen: Arc<[Mutex<Seen>]>,
    ready: mpsc::Sender<Result<()>>,
    ended: oneshot::Receiver<()>,
) {
    let turns = Rc::new(Semaphore::new(AT_ONCE));
    for (number, seat) in seats.into_iter().enumerate() {
        let (seen, ready, turns) = (seen.clone(), ready.clone(), turns.clone());
        spawn_local(async move {
            let opened = async {
                let _turn = turns.acquire().await?;
                timeout(OPENS_WITHIN, open(number, &seat)).await?
            };
            // After the first error, no one waits for the others.
            match opened.await {
                Ok(socket) => {
                    let _ = ready.send(Ok(()));
                    read(socket, &seen[number]).await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
    }
    // Without its sender, it has ended.
    let _ = ended.await;
}

/// Opens a socket and waits for its snapshot.
async fn open(number: usize, seat: &Seat) -> Result<WebSocketStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    let own = Ipv4Addr::from_bits(FIRST_ADDRESS + (number / PER_ADDRESS) as u32);
    socket.bind((own, 0).into())?;
    let stream = socket.connect(seat.relay).await?;
    stream.set_nodelay(true)?;
    let url = format!("ws://{}/v1?token={}", seat.relay, seat.token);
    let small = WebSocketConfig::default().read_buffer_size(1_024).write_buffer_size(0);
    let (mut socket, _) = client_async_with_config(url, stream, Some(small)).await?;
    let subscribe = format!(r#"{{"type":"subscribe","serverId":"{}"}}"#, seat.server);
    socket.send(Message::text(subscribe)).await?;
    loop {
        let message = socket.next().await.ok_or("a socket was closed")??;
        let Message::Text(text) = message else { continue };
        if text.starts_with(r#"{"type":"snapshot""#) {
            return Ok(socket);
        } else if text.starts_with(r#"{"type":"error""#) {
            return Err(text.as_str().into());
        }
    }
}

/// Notes what comes until the socket is closed.
async fn read(mut socket: WebSocketStream<TcpStream>, seen: &Mutex<Seen>) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let patch = Patch::read(&text, stamp());
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.frames += 1;
        seen.patches.extend(patch);
    }
    eprintln!("a socket was closed");
}
