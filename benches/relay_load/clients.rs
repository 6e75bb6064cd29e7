//! The clients, in a process of their own. They read what comes and look at as little of it as there is to measure.
//!
//! A number in the news is the time at which they became news, so that a client knows how old they are.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    rc::Rc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use companion::net::descriptors;
use flate2::{Decompress, FlushDecompress};
use tempfile::TempPath;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::{Notify, Semaphore},
    time::timeout,
};

use crate::process::{Beside, Result};

/// Text right before the number in a patch.
pub const NEWS: &str = r#"name","value":""#;
/// For whatever is awaited.
const DEADLINE: Duration = Duration::from_secs(60);
/// Clients of one address: a server may limit them.
const PER_ADDRESS: usize = 1_000;
/// Bytes that are kept of a frame: a snapshot is large.
const KEPT: usize = 8 * 1_024;

/// Microseconds since 1970, the same clock in all processes.
pub fn stamp() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// The process of the clients.
pub struct Clients {
    process: Beside,
    _tokens: TempPath,
}

/// Figures since they were connected or said it last.
pub struct Seen {
    pub frames: f64,
    pub bytes: f64,
    pub patches: Ages,
    pub raids: Ages,
}

/// Ages of news when they came, ms.
pub struct Ages {
    pub p50: f64,
    pub p99: f64,
}

impl Clients {
    /// One client for each token of the file. They subscribe to the server, if one is named.
    pub fn start(address: SocketAddr, server: &str, tokens: TempPath, reading: bool) -> Result<Self> {
        let path = tokens.to_str().ok_or("a path that is no text")?;
        let process = Beside::start(&["clients", &address.to_string(), server, path, &reading.to_string()])?;
        Ok(Self { process, _tokens: tokens })
    }

    /// All connect, this many at a time; the seconds until all have the answer to their handshake or, if they subscribe
    /// and read, the snapshot.
    pub fn connect(&mut self, at_once: usize) -> Result<f64> {
        Ok(self.process.ask(&format!("connect {at_once}"))?.parse()?)
    }

    /// Waits until every client has these news or newer ones; when the last one had.
    pub fn all_have(&mut self, news: u64) -> Result<u64> {
        Ok(self.process.ask(&format!("await {news}"))?.parse()?)
    }

    /// `fired`: each alarm and when it went off.
    pub fn seen(&mut self, fired: &[(u64, u64)]) -> Result<Seen> {
        let fired: Vec<String> = fired.iter().map(|(alarm, at)| format!("{alarm} {at}")).collect();
        let line = self.process.ask(&format!("report {}", fired.join(" ")))?;
        let figures = line.split(' ').map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
        let [frames, bytes, p50, p99, raid_p50, raid_p99] = figures[..] else { return Err("not a report".into()) };
        let (patches, raids) = (Ages { p50, p99 }, Ages { p50: raid_p50, p99: raid_p99 });
        Ok(Seen { frames, bytes, patches, raids })
    }
}

/// The process.
pub fn run(address: SocketAddr, server: &str, tokens: &Path, reading: bool) -> Result<()> {
    descriptors::raise_limit();
    let tokens: Vec<String> = fs::read_to_string(tokens)?.lines().map(str::to_owned).collect();
    let all = Rc::new(All { address, server: server.to_owned(), reading, ..All::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut commands = tokio::io::BufReader::new(tokio::fs::File::open("/dev/stdin").await?).lines();
        while let Some(command) = commands.next_line().await? {
            let (command, arguments) = command.split_once(' ').ok_or("no such command")?;
            let answer = async {
                match command {
                    "connect" => all.connect(&tokens, arguments.parse()?).await,
                    "await" => all.wait_for(arguments.parse()?, tokens.len()).await,
                    "report" => all.report(arguments),
                    _ => Err("no such command".into()),
                }
            };
            println!("{}", timeout(DEADLINE, answer).await.map_err(|_| format!("{command} takes too long"))??);
        }
        Ok(())
    })
}

struct All {
    address: SocketAddr,
    server: String,
    reading: bool,
    /// Number of clients that are connected, and have what they are to have by then.
    ready: RefCell<usize>,
    failed: RefCell<Option<String>>,
    more: Notify,
    seen: RefCell<Observed>,
}

#[derive(Default)]
struct Observed {
    frames: usize,
    bytes: usize,
    /// Microseconds.
    ages: Vec<u32>,
    /// Which news how many clients have, the newest last, and when any came last.
    news: Vec<(u64, usize)>,
    last: u64,
    /// Which alarm came when.
    raids: Vec<(u64, u64)>,
}

impl Default for All {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            server: String::new(),
            reading: true,
            ready: RefCell::default(),
            failed: RefCell::default(),
            more: Notify::new(),
            seen: RefCell::default(),
        }
    }
}

impl All {
    async fn connect(self: &Rc<Self>, tokens: &[String], at_once: usize) -> Result<String> {
        let turns = Rc::new(Semaphore::new(at_once));
        let start = Instant::now();
        for (number, token) in tokens.iter().enumerate() {
            let (all, turns, token) = (self.clone(), turns.clone(), token.clone());
            tokio::task::spawn_local(async move {
                let connected = async {
                    let _turn = turns.acquire().await;
                    all.open(number, &token).await
                };
                match connected.await {
                    Ok((stream, early)) if all.reading => all.read(stream, &early).await,
                    Ok(open) => {
                        let _open = open;
                        std::future::pending().await
                    }
                    Err(error) => {
                        all.failed.replace(Some(error.to_string()));
                        all.more.notify_one();
                    }
                }
            });
        }
        while *self.ready.borrow() < tokens.len() {
            self.more.notified().await;
            if let Some(error) = self.failed.take() {
                return Err(error.into());
            }
        }
        let taken = start.elapsed().as_secs_f64();
        self.seen.take();
        Ok(taken.to_string())
    }

    /// An open socket, and what has come behind the handshake.
    async fn open(&self, number: usize, token: &str) -> Result<(TcpStream, Vec<u8>)> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::new(127, 0, 1, 1 + (number / PER_ADDRESS) as u8), 0).into())?;
        let mut stream = socket.connect(self.address).await?;
        let request = format!(
            "GET /v1?token={token} HTTP/1.1\r\nHost: relay\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::with_capacity(512);
        let end = loop {
            if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            } else if stream.read_buf(&mut head).await? == 0 {
                break head.len();
            }
        };
        let early = head.split_off(end);
        if !head.starts_with(b"HTTP/1.1 101") {
            return Err(format!("no WebSocket: {}", String::from_utf8_lossy(&head)).into());
        }
        if !self.server.is_empty() {
            let subscribe = format!(r#"{{"type":"subscribe","serverId":"{}"}}"#, self.server);
            stream.write_all(&masked(0x1, subscribe.as_bytes())).await?;
        }
        if self.server.is_empty() || !self.reading {
            self.is_ready();
        }
        Ok((stream, early))
    }

    fn is_ready(&self) {
        *self.ready.borrow_mut() += 1;
        self.more.notify_one();
    }

    async fn wait_for(&self, news: u64, clients: usize) -> Result<String> {
        let have = || {
            let seen = self.seen.borrow();
            seen.news.iter().rev().take_while(|(known, _)| *known >= news).map(|(_, count)| count).sum::<usize>()
        };
        while have() < clients {
            self.more.notified().await;
        }
        Ok(self.seen.borrow().last.to_string())
    }

    fn report(&self, fired: &str) -> Result<String> {
        let Observed { frames, bytes, ages, raids, .. } = self.seen.take();
        let fired = fired.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
        let fired: HashMap<u64, u64> = fired.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let age = |(alarm, at): &(u64, u64)| fired.get(alarm).map(|fired| at.saturating_sub(*fired) as u32);
        let [p50, p99] = percentiles(ages);
        let [raid_p50, raid_p99] = percentiles(raids.iter().filter_map(age).collect());
        Ok(format!("{frames} {} {p50} {p99} {raid_p50} {raid_p99}", bytes as f64 / frames as f64))
    }

    /// One data frame of this many bytes; `text` is its beginning.
    fn take(&self, text: &[u8], bytes: usize, now: u64) {
        if text.starts_with(br#"{"type":"snapshot""#) {
            return self.is_ready();
        }
        let seen = &mut *self.seen.borrow_mut();
        seen.frames += 1;
        seen.bytes += bytes;
        if text.starts_with(br#"{"type":"raid""#) {
            seen.raids.extend(number_after(text, br#""alarmId":""#).map(|alarm| (alarm, now)));
        } else if let Some(news) = number_after(text, NEWS.as_bytes()) {
            seen.ages.push(now.saturating_sub(news) as u32);
            seen.last = now;
            match seen.news.binary_search_by_key(&news, |(known, _)| *known) {
                Ok(index) => seen.news[index].1 += 1,
                Err(index) => seen.news.insert(index, (news, 1)),
            }
            self.more.notify_one();
        }
    }

    /// Reads one client's frames until its connection ends.
    async fn read(&self, mut stream: TcpStream, early: &[u8]) {
        thread_local!(static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 * 1_024]));
        let mut frame = Frame::default();
        // A ping may have come at once.
        if frame.feed(early, |text, bytes| self.take(text, bytes, stamp())) > 0
            && stream.write_all(&masked(0xa, b"")).await.is_err()
        {
            return;
        }
        while stream.readable().await.is_ok() {
            let now = stamp();
            let pings = BUFFER.with_borrow_mut(|buffer| match stream.try_read(buffer) {
                Ok(0) => None,
                Ok(count) => Some(frame.feed(&buffer[..count], |text, bytes| self.take(text, bytes, now))),
                Err(error) => (error.kind() == io::ErrorKind::WouldBlock).then_some(0),
            });
            match pings {
                Some(0) => {}
                Some(_) if stream.write_all(&masked(0xa, b"")).await.is_ok() => {}
                _ => break,
            }
        }
        eprintln!("a client's connection has ended");
    }
}

/// A frame that has come in part.
#[derive(Default)]
struct Frame {
    /// Its head, and the beginning of its payload.
    begun: Vec<u8>,
    /// Bytes of the payload, and those still to come, once the head is whole.
    length: usize,
    missing: Option<usize>,
}

impl Frame {
    /// Takes what was read; returns how many pings were in it.
    fn feed(&mut self, mut bytes: &[u8], mut text: impl FnMut(&[u8], usize)) -> usize {
        let mut pings = 0;
        let mut end = |first: u8, payload: &[u8], bytes: usize| match first {
            0x81 => text(payload, bytes),
            0xc1 => text(&inflated(payload), bytes),
            0x89 => pings += 1,
            _ => {}
        };
        while !bytes.is_empty() {
            // Most frames come whole.
            if self.begun.is_empty()
                && let Some(length) = payload_length(bytes)
                && let head = head_length(bytes[1])
                && bytes.len() >= head + length
            {
                let (frame, later) = bytes.split_at(head + length);
                end(frame[0], &frame[head..], length);
                bytes = later;
                continue;
            }
            if let Some(left) = self.missing {
                let (here, later) = bytes.split_at(left.min(bytes.len()));
                self.begun.extend_from_slice(&here[..here.len().min(KEPT.saturating_sub(self.begun.len()))]);
                (bytes, self.missing) = (later, Some(left - here.len()));
            } else {
                self.begun.push(bytes[0]);
                bytes = &bytes[1..];
                self.missing = payload_length(&self.begun);
                self.length = self.missing.unwrap_or_default();
            }
            if self.missing == Some(0) {
                end(self.begun[0], &self.begun[head_length(self.begun[1])..], self.length);
                *self = Self::default();
            }
        }
        pings
    }
}

/// The beginning of a compressed message (RFC 7692), of which this is the beginning.
fn inflated(payload: &[u8]) -> Vec<u8> {
    thread_local!(static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(false)));
    let mut text = Vec::with_capacity(KEPT);
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        // Text that it cannot read is none that is waited for.
        let _ = inflate.decompress_vec(payload, &mut text, FlushDecompress::Sync);
    });
    text
}

/// A client's frame with a short payload; a mask of zeros is a mask.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

/// Length in a server's frame, which is never masked; none while its head is not whole.
fn payload_length(head: &[u8]) -> Option<usize> {
    let length = *head.get(1)?;
    let long = head.get(2..head_length(length))?;
    match length {
        0..126 => Some(usize::from(length)),
        _ => Some(long.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))),
    }
}

fn head_length(length: u8) -> usize {
    match length {
        0..126 => 2,
        126 => 4,
        _ => 10,
    }
}

fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    let start = text.windows(key.len()).rposition(|window| window == key)? + key.len();
    let digits = text[start..].split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Half of them and all but one in a hundred are not above, ms.
fn percentiles(mut ages: Vec<u32>) -> [f64; 2] {
    ages.sort_unstable();
    let at = |share: f64| match ages.len() {
        0 => f64::NAN,
        count => f64::from(ages[((count - 1) as f64 * share) as usize]) / 1e3,
    };
    [at(0.5), at(0.99)]
}
